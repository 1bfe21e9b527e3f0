#include "server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

/* Bounds on a broken server, far above what a slow machine needs. */
#define START_TRIES_MAX     600
#define START_PAUSE_NS      50000000
#define REQUEST_SECONDS_MAX 300L

static CURLcode perform(struct server *server, const char *path, const char *body,
                        struct bytes *answer, long *status);
static size_t append(char *data, size_t size, size_t count, void *context);
static void fail_with_log(const struct server *server, const char *what);

void server_start(struct server *server, const char *program, const char *folder)
{
    const struct timespec pause = {.tv_nsec = START_PAUSE_NS};
    char *data = path_join(folder, "data");
    char *listen;
    long status = 0;

    server->socket = path_join(folder, "socket");
    server->log = path_join(folder, "serve.log");
    if (asprintf(&listen, "unix:%s", server->socket) < 0)
        fail_msg("no memory for the address of the server");
    server->curl = curl_easy_init();
    assert_non_null(server->curl);
    server->pid = process_start(
        folder, (const char *[]){program, "serve", "--listen", listen, "--data", data, NULL}, NULL,
        server->log);
    for (int tries = 0; status != 200; tries++) {
        struct bytes answer = {0};

        if (waitpid(server->pid, NULL, WNOHANG) != 0) {
            server->pid = 0;
            fail_with_log(server, "the server ended before it answered");
        }
        if (tries == START_TRIES_MAX)
            fail_with_log(server, "the server does not answer /healthz");
        if (perform(server, "/healthz", NULL, &answer, &status) != CURLE_OK)
            nanosleep(&pause, NULL);
        free(answer.data);
    }
    free(listen);
    free(data);
}

int server_stop(struct server *server)
{
    int status = 0;

    if (server->pid > 0) {
        kill(server->pid, SIGTERM);
        status = process_wait(server->pid);
    }
    curl_easy_cleanup(server->curl);
    free(server->socket);
    free(server->log);
    memset(server, 0, sizeof *server);
    return status;
}

long server_request(struct server *server, const char *path, const char *body, struct bytes *answer)
{
    long status = 0;
    CURLcode code;

    *answer = (struct bytes){0};
    code = perform(server, path, body, answer, &status);
    if (code != CURLE_OK) {
        print_error("%s: %s\n", path, curl_easy_strerror(code));
        fail_with_log(server, "a request got no answer");
    }
    return status;
}

static CURLcode perform(struct server *server, const char *path, const char *body,
                        struct bytes *answer, long *status)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    CURLcode code;
    char *url;

    assert_non_null(headers);
    if (asprintf(&url, "http://localhost%s", path) < 0)
        fail_msg("no memory for the address of '%s'", path);
    curl_easy_reset(server->curl);
    curl_easy_setopt(server->curl, CURLOPT_URL, url);
    curl_easy_setopt(server->curl, CURLOPT_UNIX_SOCKET_PATH, server->socket);
    curl_easy_setopt(server->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(server->curl, CURLOPT_TIMEOUT, REQUEST_SECONDS_MAX);
    curl_easy_setopt(server->curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(server->curl, CURLOPT_WRITEDATA, answer);
    if (body != NULL) {
        curl_easy_setopt(server->curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(server->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        curl_easy_setopt(server->curl, CURLOPT_POSTFIELDS, body);
    }
    code = curl_easy_perform(server->curl);
    curl_easy_getinfo(server->curl, CURLINFO_RESPONSE_CODE, status);
    curl_slist_free_all(headers);
    free(url);
    return code;
}

static size_t append(char *data, size_t size, size_t count, void *context)
{
    struct bytes *answer = context;
    char *grown = realloc(answer->data, answer->count + size * count + 1);

    if (grown == NULL)
        return 0;
    memcpy(grown + answer->count, data, size * count);
    answer->data = grown;
    answer->count += size * count;
    grown[answer->count] = '\0';
    return size * count;
}

static void fail_with_log(const struct server *server, const char *what)
{
    struct bytes log = file_read(server->log);

    fail_msg("%s; it printed:\n%s", what, log.data);
}

#include "server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

/* Bounds on a broken server, far above what a slow machine needs. */
#define START_TRIES_MAX     1200
#define START_PAUSE_NS      50000000
#define REQUEST_SECONDS_MAX 300L
#define OPTIONS_MAX         32

static void await_answer(struct server *server);
static CURLcode perform(struct client *client, const struct request *request, struct reply *reply);
static size_t append(char *data, size_t size, size_t count, void *context);
static void fail_with_log(const struct server *server, const char *what);

void server_start(struct server *server, const char *program, const char *folder,
                  const char *const *options)
{
    const char *argv[OPTIONS_MAX + 1] = {program, "serve", "--listen", NULL, "--data"};
    char *data = path_join(folder, "data");
    char *listen;
    int used = 5;

    memset(server, 0, sizeof *server);
    server->socket = path_join(folder, "socket");
    server->log = path_join(folder, "serve.log");
    if (asprintf(&listen, "unix:%s", server->socket) < 0)
        fail_msg("no memory for the address of the server");
    argv[3] = listen;
    argv[used++] = data;
    while (options && *options && used < OPTIONS_MAX)
        argv[used++] = *options++;
    server->pid = process_start(folder, argv, NULL, server->log);
    await_answer(server);
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
    free(server->socket);
    free(server->log);
    memset(server, 0, sizeof *server);
    return status;
}

void server_kill(struct server *server)
{
    kill(server->pid, SIGKILL);
    process_wait(server->pid);
    server->pid = 0;
    server_stop(server);
}

void client_open(struct client *client, const struct server *server)
{
    client->server = server;
    client->curl = curl_easy_init();
    assert_non_null(client->curl);
}

void client_close(struct client *client)
{
    curl_easy_cleanup(client->curl);
    client->curl = NULL;
}

void client_send(struct client *client, const struct request *request, struct reply *reply)
{
    CURLcode code = perform(client, request, reply);

    if (code != CURLE_OK) {
        print_error("%s: %s\n", request->path, curl_easy_strerror(code));
        fail_with_log(client->server, "a request got no answer");
    }
    if (reply->body.data == NULL)
        reply->body.data = calloc(1, 1);
}

void reply_free(struct reply *reply)
{
    free(reply->body.data);
    free(reply->headers.data);
    memset(reply, 0, sizeof *reply);
}

const char *reply_header(const struct reply *reply, const char *name)
{
    static _Thread_local char value[512];
    size_t length = strlen(name);
    const char *line = reply->headers.data;

    while (line && *line) {
        size_t line_bytes = strcspn(line, "\r\n");

        if (line_bytes > length && line[length] == ':' && strncasecmp(line, name, length) == 0) {
            const char *start = line + length + 1 + strspn(line + length + 1, " ");

            snprintf(value, sizeof value, "%.*s", (int)(line + line_bytes - start), start);
            return value;
        }
        line += line_bytes;
        line += strspn(line, "\r\n");
    }
    return NULL;
}

static void await_answer(struct server *server)
{
    const struct timespec pause = {.tv_nsec = START_PAUSE_NS};
    struct client client;
    bool up = false;

    client_open(&client, server);
    for (int tries = 0; !up; tries++) {
        struct reply reply = {0};

        if (waitpid(server->pid, NULL, WNOHANG) != 0) {
            server->pid = 0;
            fail_with_log(server, "the server ended before it answered");
        }
        if (tries == START_TRIES_MAX)
            fail_with_log(server, "the server does not answer /healthz");
        up = perform(&client, &(struct request){.path = "/healthz"}, &reply) == CURLE_OK &&
             reply.status == 200;
        if (!up)
            nanosleep(&pause, NULL);
        reply_free(&reply);
    }
    client_close(&client);
}

static CURLcode perform(struct client *client, const struct request *request, struct reply *reply)
{
    struct curl_slist *headers = NULL;
    CURL *curl = client->curl;
    CURLcode code;
    char *url;

    memset(reply, 0, sizeof *reply);
    if (asprintf(&url, "http://localhost%s", request->path) < 0)
        fail_msg("no memory for the address of '%s'", request->path);
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->server->socket);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, REQUEST_SECONDS_MAX);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply->body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &reply->headers);
    if (request->body != NULL) {
        size_t bytes = request->body_bytes ? request->body_bytes : strlen(request->body);

        headers = curl_slist_append(headers, "Content-Type: application/json");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    }
    if (request->header != NULL)
        headers = curl_slist_append(headers, request->header);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (request->method != NULL && strcmp(request->method, "HEAD") == 0)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    else if (request->method != NULL)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);
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
    struct bytes log = {.data = (char *)"nothing: it runs in this process"};

    if (server->log != NULL)
        log = file_read(server->log);
    fail_msg("%s; it printed:\n%s", what, log.data);
}

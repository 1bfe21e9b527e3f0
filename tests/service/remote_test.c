/* remote_test.c - a service beyond loopback: when it may listen there, and whom it answers. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"
#include "support/process.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define LOOKS_MAX 6000 /* of 10 ms, far above what a slow machine needs */
#define ANY       "0.0.0.0:0"

/* A service on TCP, and the port that it found. */
struct tcp_service {
    pid_t pid;
    char port[8];
};

static struct tcp_service tcp_start(struct room *room, const char *const *options)
{
    const char *argv[16] = {program_path(), "serve", "--data", "data"};
    char *log = path_join(room->folder, "tcp.log");
    struct tcp_service service = {0};

    for (size_t i = 0; options[i]; i++)
        argv[4 + i] = options[i];
    file_write(log, "", 0);
    service.pid = process_start(room->folder, argv, NULL, log);
    for (unsigned looks = 0; !service.port[0]; looks++) {
        struct bytes text = file_read(log);
        const char *at = strstr(text.data, "listening on http://");

        if (at && strchr(at, '\n'))
            sscanf(at, "listening on http://%*[0-9.]:%7[0-9]", service.port);
        if (looks > LOOKS_MAX)
            fail_msg("the service does not say where it listens: %s", text.data);
        free(text.data);
        poll(NULL, 0, 10);
    }
    free(log);
    return service;
}

static void tcp_stop(struct tcp_service *service)
{
    kill(service->pid, SIGTERM);
    assert_int_equal(process_wait(service->pid), 0);
}

static size_t drop(char *data, size_t size, size_t count, void *context)
{
    (void)data;
    (void)context;
    return size * count;
}

/* The status of GET /healthz with one more header line. */
static long status_with(const struct tcp_service *service, const char *header)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, header);
    char url[64];
    long status = 0;

    snprintf(url, sizeof url, "http://127.0.0.1:%s/healthz", service->port);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    assert_int_equal(curl_easy_perform(curl), CURLE_OK);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

static void expect_statuses(const struct tcp_service *service, const char *const *headers,
                            long status)
{
    for (size_t i = 0; headers[i]; i++)
        if (status_with(service, headers[i]) != status)
            fail_msg("'%s' is not answered with %ld", headers[i], status);
}

/* Broken when strangers are let in whose source would not be isolated by every guard, or though
 * nobody asked for them. */
static void strangers_come_only_where_told_and_isolated(void **state)
{
    static const struct {
        const char *options[4];
        const char *says;
    } cases[] = {
        {{NULL}, "or say --allow-remote"},
        {{"--allow-remote", "--isolation", "in-process", NULL}, "leave --isolation in-process out"},
        {{"--allow-remote", "--unguarded", NULL}, "leave --unguarded out"},
    };
    struct room *room = *state;
    char *log = path_join(room->folder, "refused.log");

    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *argv[16] = {"timeout", "60",   program_path(), "serve",
                                "--data",  "data", "--listen",     ANY};
        struct bytes text;

        for (size_t at = 0; cases[i].options[at]; at++)
            argv[8 + at] = cases[i].options[at];
        assert_int_equal(process_run(room->folder, argv, NULL, log), 1);
        text = file_read(log);
        if (!bytes_contain(&text, cases[i].says))
            fail_msg("'%s' does not say '%s'", text.data, cases[i].says);
        free(text.data);
    }
    free(log);
}

/* Broken when a page of somebody's browser gets to the service by a name that its owner has pointed
 * there, or when a client that calls it by its address or its own name does not. */
static void pages_stay_out_beyond_loopback(void **state)
{
    static const char *const ours[] = {"Host: localhost",
                                       "Host: 192.0.2.1",
                                       "Host: 192.0.2.1:8080",
                                       "Host: [2001:db8::1]:8080",
                                       "Host: build.example.org",
                                       "Host: BUILD.example.org:443",
                                       "Origin: https://build.example.org",
                                       "Origin: http://localhost:3000",
                                       NULL};
    static const char *const foreign[] = {"Host: example.org",
                                          "Host: build.example.org.example.net",
                                          "Host: notbuild.example.org",
                                          "Host: 192.0.2.1.example.org",
                                          "Host: [2001:db8::1].example.org",
                                          "Host: [2001:db8::1",
                                          "Host: 192.0.2.1:x",
                                          "Origin: https://example.org",
                                          "Origin: http://192.0.2.1",
                                          "Origin: https://build.example.org.example.net",
                                          "Origin: null",
                                          NULL};
    struct room *room = *state;
    struct tcp_service service =
        tcp_start(room, (const char *[]){"--listen", ANY, "--allow-remote", "--public-name",
                                         "build.example.org", NULL});

    expect_statuses(&service, ours, 200);
    expect_statuses(&service, foreign, 403);
    tcp_stop(&service);
}

/* Broken when a service on loopback answers to any other name: no address is its name there. */
static void loopback_knows_loopback_names_only(void **state)
{
    static const char *const ours[] = {"Host: localhost:1", "Host: 127.0.0.1", "Host: [::1]:7417",
                                       NULL};
    static const char *const foreign[] = {"Host: 192.0.2.1", "Host: example.org",
                                          "Host: 127.0.0.1.example.org", NULL};
    struct room *room = *state;
    struct tcp_service service = tcp_start(room, (const char *[]){"--listen", "127.0.0.1:0", NULL});

    expect_statuses(&service, ours, 200);
    expect_statuses(&service, foreign, 403);
    tcp_stop(&service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(strangers_come_only_where_told_and_isolated, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(pages_stay_out_beyond_loopback, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(loopback_knows_loopback_names_only, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.remote", tests, NULL, NULL);
}

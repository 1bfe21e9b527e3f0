/* remote_test.c - a service beyond loopback: when it may listen there, and whom it answers. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
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
#define ANY_SIX   "[::]:0" /* IPv4 comes to it too, as ::ffff:a.b.c.d */

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

        if (at && strchr(at, '\n') &&
            sscanf(at, "listening on http://%*[0-9.]:%7[0-9]", service.port) != 1)
            sscanf(at, "listening on http://[%*[^]]]:%7[0-9]", service.port);
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

/* The status of a request to `host` with one more header line (NULL: none). `body`: NULL for a GET,
 * else what is sent as a PATCH. */
static long status_of(const struct tcp_service *service, const char *host, const char *path,
                      const char *header, const char *body)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = header ? curl_slist_append(NULL, header) : NULL;
    char url[128];
    long status = 0;

    snprintf(url, sizeof url, "http://%s:%s%s", host, service->port, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    if (body) {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PATCH");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    assert_int_equal(curl_easy_perform(curl), CURLE_OK);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

static long status_with(const struct tcp_service *service, const char *header)
{
    return status_of(service, "127.0.0.1", "/healthz", header, NULL);
}

static long status_of_change(const struct tcp_service *service, const char *host,
                             const char *header)
{
    return status_of(service, host, "/v1/pools/shared", header, "{\"min_threads\": 5}");
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

/* An address of this machine that is not loopback's, as a stranger would be seen who comes from
 * there; false: it has none. */
static bool find_outside(char text[INET_ADDRSTRLEN])
{
    struct ifaddrs *all;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *each = all; each && !found; each = each->ifa_next) {
        struct sockaddr_in four;

        if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET ||
            (each->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&four, each->ifa_addr, sizeof four);
        found = inet_ntop(AF_INET, &four.sin_addr, text, INET_ADDRSTRLEN) != NULL;
    }
    freeifaddrs(all);
    return found;
}

/* Broken when a stranger who may compile may change the service too, or when its operator, who
 * comes from the machine itself, may not: the control. */
static void only_this_machine_changes_the_service(void **state)
{
    static const char *const listens[] = {ANY, ANY_SIX};
    struct room *room = *state;
    char outside[INET_ADDRSTRLEN];

    if (!find_outside(outside))
        skip(); /* a machine that nobody can reach */
    for (size_t i = 0; i < COUNT(listens); i++) {
        struct tcp_service service =
            tcp_start(room, (const char *[]){"--listen", listens[i], "--allow-remote", NULL});

        assert_int_equal(status_of(&service, outside, "/healthz", NULL, NULL), 200);
        assert_int_equal(status_of_change(&service, outside, NULL), 403);
        assert_int_equal(status_of_change(&service, "127.0.0.1", NULL), 200);
        tcp_stop(&service);
    }
}

/* Broken when a stranger gets in by a proxy on this machine that says what it is. The control is a
 * header that says nothing of the kind. */
static void what_a_proxy_forwards_changes_nothing(void **state)
{
    static const char *const marks[] = {"X-Forwarded-For: 192.0.2.1",
                                        "Forwarded: for=192.0.2.1;proto=https",
                                        "Via: 1.1 proxy.example.org"};
    struct room *room = *state;
    struct tcp_service service = tcp_start(room, (const char *[]){"--listen", "127.0.0.1:0", NULL});

    for (size_t i = 0; i < COUNT(marks); i++) {
        assert_int_equal(status_of_change(&service, "127.0.0.1", marks[i]), 403);
        assert_int_equal(status_with(&service, marks[i]), 200);
    }
    assert_int_equal(status_of_change(&service, "127.0.0.1", "X-Request-Id: 192.0.2.1"), 200);
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
        cmocka_unit_test_setup_teardown(only_this_machine_changes_the_service, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(what_a_proxy_forwards_changes_nothing, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.remote", tests, NULL, NULL);
}

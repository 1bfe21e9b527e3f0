/* flow_test.c - how requests share, wait, time out, are taken back and come to an end.
 *
 * Where a test needs a compile that still runs, it looks at the lane's numbers and goes on only
 * when they say so; no test knows how long a compile takes. */
#include <arpa/inet.h>
#include <errno.h>
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"
#include "service/swarm.h"

#define ROUNDS_SLOW   2   /* long enough for all that a test does meanwhile, in milliseconds */
#define CLIENTS       40  /* of one key */
#define CHANGES       120 /* of the only client that waits */
#define PATIENCE_MS   60000
#define CPU_LANE      "compile-cpu"
#define EXIT_BY(kill) (128 + (kill))

static const char *const one_at_a_time[] = {"--lane-cap", "1", "--grace-ms", "300000", NULL};

/* A body for a source of its own that compiles at once. */
static json_t *quick_body(unsigned tag)
{
    char source[64];

    snprintf(source, sizeof source, "int quick_%u;\n", tag);
    return json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms",
                     PATIENT_MS);
}

/* Expects 200 ok of a request that is done. */
static void expect_ok(struct swarm *swarm, size_t number)
{
    long status;
    json_t *json = swarm_json(swarm, number, &status);

    if (status != 200 || strcmp(text_of(json, "status"), "ok") != 0)
        fail_msg("request %zu: %ld %s", number, status, text_of(json, "detail"));
    json_decref(json);
}

static bool has_ended(pid_t pid)
{
    siginfo_t ended = {0};

    return waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
}

/* ---- sharing ---- */

/* Broken when clients of one key start more than one leaf, or one of them gets another answer. */
static void clients_of_one_key_share_one_compile(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    json_t *first = NULL;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    for (size_t i = 0; i < CLIENTS; i++)
        swarm_post(swarm, "/v1/compile", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_finish(swarm);
    for (size_t i = 0; i < CLIENTS; i++) {
        long status;
        json_t *json = swarm_json(swarm, i, &status);

        assert_int_equal(status, 200);
        /* the last part of the way is each client's own; who came late was served by the store */
        json_object_del(json, "timings");
        json_object_del(json, "cached");
        json_object_del(json, "thread");
        if (!first)
            first = json_incref(json);
        assert_true(json_equal(first, json));
        json_decref(json);
    }
    json_decref(first);
    assert_int_equal(lane_number(room, CPU_LANE, "started"), 1);
    assert_true(metric(room, "millwright_compile_joined_total") > 0);
    assert_true(metric(room, "millwright_compile_flights") == 0);
    assert_true(metric(room, "millwright_compile_tickets") == 0);
    swarm_free(swarm);
    room_stop(room);
}

/* Broken when what nobody waits for any more keeps its place in the queue, or when it is taken
 * back although another client still waits for it. */
static void the_last_client_that_leaves_takes_the_job_back(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    size_t slow, shared[2], alone;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    slow = swarm_post(swarm, "/v1/compile", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    shared[0] = swarm_post(swarm, "/v1/compile", quick_body(2));
    swarm_until_lane(swarm, room, CPU_LANE, "queued", 1);
    shared[1] = swarm_post(swarm, "/v1/compile", quick_body(2));
    alone = swarm_post(swarm, "/v1/compile", quick_body(3));
    swarm_until_lane(swarm, room, CPU_LANE, "queued", 2);
    swarm_until_metric(swarm, room, "millwright_compile_joined_total", 1);

    swarm_leave(swarm, shared[0]);
    swarm_leave(swarm, alone);
    swarm_until_metric(swarm, room, "millwright_compile_abandoned_total", 2);
    assert_int_equal(lane_number(room, CPU_LANE, "cancelled"), 1);
    assert_int_equal(lane_number(room, CPU_LANE, "queued"), 1);
    swarm_finish(swarm);
    expect_ok(swarm, slow);
    expect_ok(swarm, shared[1]);
    assert_int_equal(lane_number(room, CPU_LANE, "started"), 2);
    swarm_free(swarm);
    room_stop(room);
}

/* Broken when a key whose job was taken back stays unusable, or its flight stays behind. */
static void what_was_taken_back_can_be_asked_for_again(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    size_t left;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    for (json_int_t round = 1; round <= 3; round++) {
        left = swarm_post(swarm, "/v1/compile", quick_body(2));
        swarm_until_lane(swarm, room, CPU_LANE, "queued", 1);
        swarm_leave(swarm, left);
        swarm_until_lane(swarm, room, CPU_LANE, "cancelled", round);
    }
    left = swarm_post(swarm, "/v1/compile", quick_body(2));
    swarm_finish(swarm);
    expect_ok(swarm, left);
    assert_true(metric(room, "millwright_compile_flights") == 0);
    swarm_free(swarm);
    room_stop(room);
}

/* Broken when a client that comes just as the last one leaves boards a job that is taken back: it
 * would be told that the compiler broke down. */
static void one_who_comes_as_the_last_one_leaves_is_served(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    size_t last, next;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", slow_body(1, 4 * ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    last = swarm_post(swarm, "/v1/compile", quick_body(2));
    swarm_until_lane(swarm, room, CPU_LANE, "queued", 1);
    for (unsigned change = 0; change < CHANGES; change++) {
        next = swarm_post(swarm, "/v1/compile", quick_body(2));
        for (unsigned noise = 0; noise < 3; noise++) /* keeps the loop busy */
            swarm_post(swarm, "/v1/compile", json_object());
        for (unsigned turns = change % 40; turns > 0; turns--) /* from at once to fully aboard */
            swarm_turn(swarm, 0);
        if (swarm->requests[last].done)
            expect_ok(swarm, last);
        swarm_leave(swarm, last);
        last = next;
    }
    swarm_finish(swarm);
    expect_ok(swarm, last);
    assert_true(metric(room, "millwright_compile_flights") == 0);
    assert_true(metric(room, "millwright_compile_tickets") == 0);
    swarm_free(swarm);
    room_stop(room);
}

/* ---- too much, too late ---- */

/* Broken when a full queue blocks, or refuses without saying when to come back. */
static void a_full_queue_refuses_at_once_and_the_others_finish(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    size_t running, waiting;
    struct answer answer;
    const char *retry_after;

    room_start(room, (const char *[]){"--lane-cap", "1", "--lane-queue", "1", NULL});
    swarm = swarm_new(&room->server);
    running = swarm_post(swarm, "/v1/compile", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    waiting = swarm_post(swarm, "/v1/compile", quick_body(2));
    swarm_until_lane(swarm, room, CPU_LANE, "queued", 1);

    answer = post(room, quick_body(3));
    retry_after = reply_header(&answer.reply, "Retry-After");
    assert_non_null(retry_after);
    assert_true(strtol(retry_after, NULL, 10) >= 1);
    expect_problem(answer, 503, "queue-full", "queue", CPU_LANE, "try again in about");
    assert_int_equal(lane_number(room, CPU_LANE, "rejected"), 1);

    swarm_finish(swarm);
    expect_ok(swarm, running);
    expect_ok(swarm, waiting);
    answer = post(room, quick_body(3));
    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    swarm_free(swarm);
    room_stop(room);
}

/* The entry of the CPU lane in a time-out's document. */
static const json_t *cpu_lane_of(const json_t *problem)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(problem, "lanes"), i, entry)
    {
        if (strcmp(text_of(entry, "name"), CPU_LANE) == 0)
            return entry;
    }
    fail_msg("the time-out shows no lane %s", CPU_LANE);
    return NULL;
}

/* Broken when a time-out is not answered, shows no state, or, where compiles run in the process,
 * ends the running one or loses what it makes. */
static void a_timeout_shows_pool_and_lanes_and_the_compile_is_kept(void **state)
{
    struct room *room = *state;
    unsigned timeout_ms = 100, tag = 1;
    struct answer answer;
    json_int_t running;

    room_start(room, (const char *[]){"--isolation", "in-process", "--lane-cap", "1", NULL});
    /* The leaf must have begun when time runs out: on a slow machine that takes more patience. */
    do {
        answer = post(room, slow_body(++tag, ROUNDS_SLOW + timeout_ms / 100, timeout_ms));
        assert_int_equal(answer.status, 504);
        assert_true(json_is_object(json_object_get(answer.json, "pool")));
        assert_int_equal(number_of(json_object_get(answer.json, "pool"), "max_threads"), 16);
        assert_int_equal(json_array_size(json_object_get(answer.json, "lanes")), 3);
        running = number_of(cpu_lane_of(answer.json), "running");
        timeout_ms *= 2;
        expect_problem(answer, 504, "timeout", NULL, NULL, "give a larger timeout_ms");
    } while (running < 1);
    expect_service_goes_on(room); /* behind the compile, which runs to its end */
    while (metric(room, "millwright_compile_flights") > 0) /* until it is kept; ctest has a bound */
        ;
    answer = post(room, slow_body(tag, ROUNDS_SLOW + timeout_ms / 200, PATIENT_MS));
    assert_int_equal(answer.status, 200);
    assert_true(json_is_true(json_object_get(answer.json, "cached")));
    answer_free(&answer);
    assert_true(metric(room, "millwright_compile_tickets") == 0);
    room_stop(room);
}

/* Broken when a request of one millisecond is not ended, or leaves its ticket or flight behind. */
static void a_timeout_of_a_millisecond_ends_wherever_it_falls(void **state)
{
    struct room *room = *state;

    room_start(room, one_at_a_time);
    for (unsigned tag = 1; tag <= 60; tag++) {
        json_t *body = quick_body(tag);
        struct answer answer;

        json_object_set_new(body, "timeout_ms", json_integer(1 + tag / 6));
        answer = post(room, body);
        if (answer.status != 200)
            expect_problem(answer, 504, "timeout", NULL, NULL, "the time asked for is up");
        else
            answer_free(&answer);
    }
    expect_service_goes_on(room);
    for (int tries = 0; metric(room, "millwright_compile_flights") > 0; tries++) {
        assert_true(tries * 10 < PATIENCE_MS);
        poll(NULL, 0, 10);
    }
    assert_true(metric(room, "millwright_compile_tickets") == 0);
    room_stop(room);
}

/* Broken when the service's own bound on time-outs is not applied to a request that names none. */
static void the_services_bound_cuts_every_timeout(void **state)
{
    struct room *room = *state;
    json_t *names_none = slow_body(1, ROUNDS_SLOW, PATIENT_MS);

    json_object_del(names_none, "timeout_ms");
    room_start(room, (const char *[]){"--lane-cap", "1", "--timeout-max-ms", "50", NULL});
    expect_problem(post(room, names_none), 504, "timeout", NULL, NULL, "");
    expect_problem(post(room, slow_body(2, ROUNDS_SLOW, 60000)), 504, "timeout", NULL, NULL, "");
    room_stop(room);
}

/* ---- the end ---- */

/* Broken when SIGTERM loses an answer, takes a new connection, leaves its socket or fails. */
static void sigterm_finishes_what_is_in_work(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    size_t slow, queued, joined;
    struct stat status;
    struct reply reply;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    slow = swarm_post(swarm, "/v1/compile", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    queued = swarm_post(swarm, "/v1/compile", quick_body(2));
    swarm_until_lane(swarm, room, CPU_LANE, "queued", 1);
    joined =
        swarm_post(swarm, "/v1/compile?include=artifact", slow_body(1, ROUNDS_SLOW, PATIENT_MS));
    swarm_until_metric(swarm, room, "millwright_compile_joined_total", 1);

    kill(room->server.pid, SIGTERM);
    for (int tries = 0; stat(room->server.socket, &status) == 0; tries++) {
        assert_true(tries * 10 < PATIENCE_MS);
        poll(NULL, 0, 10);
    }
    assert_false(has_ended(room->server.pid));
    /* the connection that is there is told so; see stopping in docs/http.md */
    client_send(&room->client, &(struct request){.path = "/healthz"}, &reply);
    assert_int_equal(reply.status, 503);
    assert_non_null(strstr(reply.body.data, "urn:millwright:problem:stopping"));
    assert_non_null(reply_header(&reply, "Retry-After"));
    reply_free(&reply);

    swarm_finish(swarm);
    expect_ok(swarm, slow);
    expect_ok(swarm, queued);
    expect_ok(swarm, joined);
    client_close(&room->client);
    assert_int_equal(process_wait(room->server.pid), 0);
    room->server.pid = 0;
    swarm_free(swarm);
}

/* Broken when an idle service does not end, or an open silent connection holds it up. */
static void sigterm_ends_an_idle_service(void **state)
{
    struct room *room = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    room_start(room, NULL);
    memcpy(address.sun_path, room->server.socket, strlen(room->server.socket) + 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    expect_service_goes_on(room);
    kill(room->server.pid, SIGTERM);
    assert_int_equal(process_wait(room->server.pid), 0);
    room->server.pid = 0;
    assert_int_equal(access(room->server.socket, F_OK), -1);
    close(fd);
}

/* Broken when SIGINT is not taken for SIGTERM, or a second signal waits for what is in work. */
static void a_second_signal_ends_at_once(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    struct stat status;

    room_start(room, one_at_a_time);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", slow_body(1, 4 * ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    kill(room->server.pid, SIGINT);
    while (stat(room->server.socket, &status) == 0)
        poll(NULL, 0, 10);
    assert_false(has_ended(room->server.pid));
    kill(room->server.pid, SIGTERM);
    assert_int_equal(process_wait(room->server.pid), EXIT_BY(SIGTERM));
    room->server.pid = 0;
    swarm_free(swarm);
}

/* Broken when the grace time does not end a service whose compile goes on. */
static void the_grace_time_ends_a_service_that_still_works(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;

    room_start(room, (const char *[]){"--lane-cap", "1", "--grace-ms", "1", NULL});
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", slow_body(1, 4 * ROUNDS_SLOW, PATIENT_MS));
    swarm_until_lane(swarm, room, CPU_LANE, "started", 1);
    kill(room->server.pid, SIGTERM);
    assert_int_equal(process_wait(room->server.pid), 1);
    room->server.pid = 0;
    swarm_free(swarm);
}

/* ---- where it listens ---- */

/* Runs `serve` with an address that it must refuse; returns what it printed. */
static struct bytes refused_start(struct room *room, const char *listen)
{
    char *log = path_join(room->folder, "refused.log");
    char *data = path_join(room->folder, "data2");
    struct bytes text;

    int status = process_run(room->folder,
                             (const char *[]){"timeout", "60", program_path(), "serve", "--listen",
                                              listen, "--data", data, NULL},
                             NULL, log);
    text = file_read(log);
    if (status == 0)
        fail_msg("it served on %s: %s", listen, text.data);
    free(log);
    free(data);
    return text;
}

static void expect_refused(struct room *room, const char *listen, const char *says)
{
    struct bytes text = refused_start(room, listen);

    if (!bytes_contain(&text, says))
        fail_msg("%s: '%s' does not say '%s'", listen, text.data, says);
    free(text.data);
}

/* Broken when strangers may come in though nobody said so, or an address that is none is taken. */
static void only_loopback_addresses_are_taken(void **state)
{
    static const char *const strangers[] = {"0.0.0.0:0", "[::]:0", "192.0.2.1:0",
                                            "[::ffff:127.0.0.1]:0", "128.0.0.1:0"};
    static const char *const nonsense[] = {
        "7417",           ":7417",           "127.0.0.1",      "127.0.0.1:",
        "127.0.0.1:x",    "127.0.0.1:99999", "example.org:80", "127.0.0.1:-1",
        "127.0.0.1:0x10", "[::1:0",
    };
    struct room *room = *state;
    char *long_path = malloc(300);

    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        expect_refused(room, strangers[i], "is not a loopback address");
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        expect_refused(room, nonsense[i], "must be 127.0.0.1:PORT, [::1]:PORT or unix:PATH");
    expect_refused(room, "unix:", "must be 1 to 107 bytes long");
    memset(long_path, 'p', 299);
    memcpy(long_path, "unix:", 5);
    long_path[299] = '\0';
    expect_refused(room, long_path, "must be 1 to 107 bytes long");
    expect_refused(room, "unix:/nowhere/socket", "No such file or directory");
    free(long_path);
}

/* Broken when a port that is taken is shared, or the refusal does not say what to do. */
static void a_taken_port_is_refused(void **state)
{
    struct room *room = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char listen_text[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    snprintf(listen_text, sizeof listen_text, "127.0.0.1:%u", ntohs(address.sin_port));
    expect_refused(room, listen_text, "the port is taken; choose another, or 0 for any free one");
    close(fd);
}

/* Broken when the port that was found is not the one that is printed. */
static void a_free_port_is_found_and_said(void **state)
{
    struct room *room = *state;
    char *log = path_join(room->folder, "tcp.log");
    char *data = path_join(room->folder, "data");
    pid_t pid = process_start(
        room->folder,
        (const char *[]){program_path(), "serve", "--listen", "localhost:0", "--data", data, NULL},
        NULL, log);
    char port[8] = "";
    CURL *curl = curl_easy_init();
    char url[64];

    for (int tries = 0; !port[0]; tries++) {
        struct bytes text = access(log, F_OK) == 0 ? file_read(log) : (struct bytes){0};
        const char *at = text.data ? strstr(text.data, "http://127.0.0.1:") : NULL;

        if (at && strchr(at, '\n'))
            sscanf(at, "http://127.0.0.1:%7[0-9]", port);
        free(text.data);
        if (has_ended(pid) || tries * 10 > PATIENCE_MS)
            fail_msg("the service does not say where it listens");
        poll(NULL, 0, 10);
    }
    snprintf(url, sizeof url, "http://127.0.0.1:%s/healthz", port);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    assert_int_equal(curl_easy_perform(curl), CURLE_OK);
    curl_easy_cleanup(curl);
    kill(pid, SIGTERM);
    assert_int_equal(process_wait(pid), 0);
    free(log);
    free(data);
}

/* Broken when a socket left by a killed service stops the next one, or a live one's is taken. */
static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **state)
{
    struct room *room = *state;
    char listen_text[160];

    room_start(room, NULL);
    snprintf(listen_text, sizeof listen_text, "unix:%s", room->server.socket);
    expect_refused(room, listen_text, "another service is using it");
    expect_service_goes_on(room);
    client_close(&room->client);
    server_kill(&room->server);

    room_start(room, NULL); /* the same path, where the socket still lies */
    expect_service_goes_on(room);
    room_stop(room);
}

/* Broken when a file that is no socket is removed to listen in its place. */
static void a_file_at_the_sockets_path_is_left_alone(void **state)
{
    struct room *room = *state;
    char *path = path_join(room->folder, "precious");
    char listen_text[160];
    struct bytes text;

    file_write(path, "data", 4);
    snprintf(listen_text, sizeof listen_text, "unix:%s", path);
    expect_refused(room, listen_text, "a file is there that is no socket; move it away");
    text = file_read(path);
    assert_string_equal(text.data, "data");
    free(text.data);
    free(path);
}

/* Broken when others on the machine may connect to the service's socket. */
static void the_socket_is_its_owners_only(void **state)
{
    struct room *room = *state;
    struct stat status;

    room_start(room, NULL);
    assert_int_equal(stat(room->server.socket, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    room_stop(room);
}

/* ---- the store ---- */

/* Text that does not compress below a quarter of the smallest store. */
static char *big_source(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    uint64_t seed = 7;

    assert_non_null(out);
    for (unsigned i = 0; i < 40000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        fprintf(out, "int x%016llx;\n", (unsigned long long)(seed ^ seed >> 29));
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

/* Broken when a store that fails stops a compile, or its answer has neither bytes nor a reason. */
static void a_store_that_cannot_keep_it_does_not_stop_a_compile(void **state)
{
    struct room *room = *state;
    char *source = big_source();
    json_t *body =
        json_pack("{s:s, s:s, s:s}", "language", "c", "source", source, "emit", "preprocessed");
    struct answer answer;
    const json_t *artifact;
    struct bytes text;

    room_start(room, (const char *[]){"--store-max-bytes", "1M", NULL});
    for (int round = 0; round < 2; round++) {
        answer = post(room, json_incref(body));
        assert_int_equal(answer.status, 200);
        assert_true(json_is_false(json_object_get(answer.json, "cached")));
        artifact = json_object_get(answer.json, "artifact");
        assert_true(json_is_null(json_object_get(artifact, "url")));
        assert_non_null(strstr(text_of(artifact, "not_stored"), "the store could not keep it"));
        text = base64_bytes(json_object_get(artifact, "base64"));
        assert_int_equal(text.count, number_of(artifact, "bytes"));
        assert_true(text.count > strlen(source));
        free(text.data);
        answer_free(&answer);
    }
    assert_true(metric(room, "millwright_store_errors_total") == 2);
    expect_service_goes_on(room);
    json_decref(body);
    free(source);
    room_stop(room);
}

/* Broken when a data folder that is no store is overwritten, or refused without its name. */
static void a_folder_that_is_no_store_is_refused(void **state)
{
    struct room *room = *state;
    char *folder = path_join(room->folder, "data2");
    char *path = path_join(folder, "store.db");
    struct bytes text;

    assert_int_equal(mkdir(folder, 0700), 0);
    file_write(path, "this is a letter to my mother, not a database", 45);
    expect_refused(room, "127.0.0.1:0", "cannot open the store in");
    text = file_read(path);
    assert_int_equal(text.count, 45);
    free(text.data);
    free(path);
    free(folder);
}

int main(void)
{
#define IN_A_ROOM(test) cmocka_unit_test_setup_teardown(test, room_setup, room_teardown)
    const struct CMUnitTest tests[] = {
        IN_A_ROOM(clients_of_one_key_share_one_compile),
        IN_A_ROOM(the_last_client_that_leaves_takes_the_job_back),
        IN_A_ROOM(what_was_taken_back_can_be_asked_for_again),
        IN_A_ROOM(one_who_comes_as_the_last_one_leaves_is_served),
        IN_A_ROOM(a_full_queue_refuses_at_once_and_the_others_finish),
        IN_A_ROOM(a_timeout_shows_pool_and_lanes_and_the_compile_is_kept),
        IN_A_ROOM(a_timeout_of_a_millisecond_ends_wherever_it_falls),
        IN_A_ROOM(the_services_bound_cuts_every_timeout),
        IN_A_ROOM(sigterm_finishes_what_is_in_work),
        IN_A_ROOM(sigterm_ends_an_idle_service),
        IN_A_ROOM(a_second_signal_ends_at_once),
        IN_A_ROOM(the_grace_time_ends_a_service_that_still_works),
        IN_A_ROOM(only_loopback_addresses_are_taken),
        IN_A_ROOM(a_taken_port_is_refused),
        IN_A_ROOM(a_free_port_is_found_and_said),
        IN_A_ROOM(a_stale_socket_is_replaced_and_a_live_one_is_not),
        IN_A_ROOM(a_file_at_the_sockets_path_is_left_alone),
        IN_A_ROOM(the_socket_is_its_owners_only),
        IN_A_ROOM(a_store_that_cannot_keep_it_does_not_stop_a_compile),
        IN_A_ROOM(a_folder_that_is_no_store_is_refused),
    };

    return cmocka_run_group_tests_name("service.flow", tests, NULL, NULL);
}

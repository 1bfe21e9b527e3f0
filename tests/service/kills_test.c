/* kills_test.c - kill -9 of whatever the service is made of, at moments that differ each time: the
 * service itself, the process that forks workers, a worker. What was answered stays; what was not
 * is answered clearly, or by the service's end; nothing wrong is kept. Over HTTP, against the real
 * program. */
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"
#include "service/swarm.h"
#include "support/process.h"

#define ROUNDS    4u
#define REQUESTS  40u
#define KILLS_MAX 24u

/* A source of its own for each tag, with the symbol kept_<tag>. */
static json_t *tagged_body(unsigned tag)
{
    char source[256];

    snprintf(source, sizeof source,
             "#include <stdio.h>\nint kept_%u(int a) { return printf(\"%%d\", a) + %u; }\n", tag,
             tag);
    return json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms",
                     PATIENT_MS);
}

static struct swarm *tagged_swarm(const struct room *room, unsigned first)
{
    struct swarm *swarm = swarm_new(&room->server);

    for (unsigned i = 0; i < REQUESTS; i++)
        swarm_post(swarm, "/v1/compile", tagged_body(first + i));
    return swarm;
}

/* The artifact of an answer is there, and is that of its source. */
static void expect_artifact(struct room *room, const json_t *answered, unsigned tag)
{
    const char *url = text_of(json_object_get(answered, "artifact"), "url");
    char symbol[32];
    struct answer got;

    assert_string_not_equal(url, "");
    got = ask(room, &(struct request){.path = url});
    assert_int_equal(got.status, 200);
    snprintf(symbol, sizeof symbol, "kept_%u", tag);
    assert_true(bytes_contain(&got.reply.body, symbol));
    answer_free(&got);
}

/* The children of all threads of `pid`, at most `room` of them. */
static size_t children_of(pid_t pid, int *children, size_t room)
{
    size_t count = 0;
    glob_t tasks;
    char pattern[64];

    snprintf(pattern, sizeof pattern, "/proc/%d/task/*/children", (int)pid);
    if (glob(pattern, 0, NULL, &tasks) != 0)
        return 0;
    for (size_t i = 0; i < tasks.gl_pathc; i++) {
        FILE *file = fopen(tasks.gl_pathv[i], "re");

        while (file && count < room && fscanf(file, "%d", &children[count]) == 1)
            count++;
        if (file)
            fclose(file);
    }
    globfree(&tasks);
    return count;
}

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* What the service's end takes along, which it cannot wait for itself. */
static void until_gone(const int *pids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (unsigned looks = 0; kill(pids[i], 0) == 0; looks++) {
            if (looks > 30000)
                fail_msg("process %d outlived the service", pids[i]);
            sleep_ms(1);
        }
}

/* Broken when a service that is killed loses an artifact that it has answered with, keeps half of
 * one that it has not, leaves a process behind, or cannot start again. */
static void killed_service_keeps_what_it_answered(void **state)
{
    struct room *room = *state;
    unsigned kept = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct swarm *swarm;
        int zygote[8], workers[64];
        size_t zygotes, count = 0;

        room_start(room, NULL);
        swarm = tagged_swarm(room, round * REQUESTS);
        while (REQUESTS - swarm_turn(swarm, 3 + (int)round) < 1 + 9 * round)
            ; /* so many are answered, perhaps more; others are at any point */
        zygotes = children_of(room->server.pid, zygote, 8);
        if (zygotes > 0)
            count = children_of(zygote[0], workers, 64);
        client_close(&room->client);
        server_kill(&room->server);
        until_gone(zygote, zygotes);
        until_gone(workers, count);
        swarm_finish(swarm); /* the connections are closed */
        room_start(room, NULL);
        for (unsigned i = 0; i < REQUESTS; i++) {
            unsigned tag = round * REQUESTS + i;
            json_t *answered = NULL;
            long status = 0;

            if (swarm->requests[i].code == CURLE_OK)
                answered = swarm_json(swarm, i, &status);
            if (answered) {
                assert_int_equal(status, 200);
                expect_artifact(room, answered, tag);
                kept++;
            } else if (i % 8 == 0) { /* whatever of it was begun */
                struct answer again = post(room, tagged_body(tag));

                assert_string_equal(text_of(again.json, "status"), "ok");
                expect_artifact(room, again.json, tag);
                answer_free(&again);
            }
            json_decref(answered);
        }
        swarm_free(swarm);
        room_stop(room);
    }
    print_message("%u of %u requests were answered before the kill\n", kept, ROUNDS * REQUESTS);
}

/* Whether a worker is at a request: then it has the name of the thread that drives it. */
static bool is_at_work(int worker)
{
    char path[64], name[32] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/comm", worker);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(name, sizeof name, file))
        name[0] = '\0';
    fclose(file);
    return name[0] && strcmp(name, "mw-worker\n") != 0;
}

/* Kill the process that forks workers in each third round; else one of its workers that is at work,
 * or in each third round any. Returns whether somebody was killed. */
static bool kill_one(const struct room *room, unsigned round)
{
    int zygote, workers[64];
    size_t count;

    if (children_of(room->server.pid, &zygote, 1) == 0)
        return false; /* it is being started again */
    if (round % 3 == 2)
        return kill(zygote, SIGKILL) == 0;
    count = children_of(zygote, workers, 64);
    for (size_t i = 0; i < count; i++)
        if (round % 3 == 1 || is_at_work(workers[i]))
            return kill(workers[i], SIGKILL) == 0;
    return false;
}

/* Broken when the end of a worker, or of the process that forks them, leaves a request unanswered,
 * answers it with anything but its artifact or a clear failure, or has such a failure kept. */
static void killed_workers_lose_no_request(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    unsigned right = 0, kills = 0;

    room_start(room, NULL);
    swarm = tagged_swarm(room, 0);
    for (unsigned turn = 0, left; (left = swarm_turn(swarm, 1 + turn * 7 % 13)) > 0; turn++)
        if (kills < KILLS_MAX && (REQUESTS - left) * KILLS_MAX / REQUESTS >= kills)
            for (unsigned looks = 0, before = kills; looks < 20 && kills == before; looks++) {
                kills += kill_one(room, kills);
                sleep_ms(1);
            }
    for (unsigned i = 0; i < REQUESTS; i++) {
        long status;
        json_t *answered = swarm_json(swarm, i, &status);
        bool ok = strcmp(text_of(answered, "status"), "ok") == 0;
        struct answer again;

        if (ok) {
            expect_artifact(room, answered, i);
            right++;
        } else if (status == 200) { /* its own worker was killed, twice if the zygote was */
            const json_t *said = json_object_get(answered, "diagnostics");

            assert_string_equal(text_of(answered, "status"), "failed");
            assert_non_null(strstr(text_of(json_array_get(said, 0), "message"), "SIGKILL"));
        } else {
            assert_int_equal(status, 503);
        }
        again = post(room, tagged_body(i));
        assert_string_equal(text_of(again.json, "status"), "ok");
        expect_artifact(room, again.json, i);
        answer_free(&again);
        json_decref(answered);
    }
    print_message("%u of %u requests right in spite of %u kills; %lld were tried again\n", right,
                  REQUESTS, kills, (long long)isolation_number(room, "retries"));
    assert_true(kills > 0 && right > 0);
    expect_service_goes_on(room);
    swarm_free(swarm);
    room_stop(room);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_service_keeps_what_it_answered, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(killed_workers_lose_no_request, room_setup, room_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

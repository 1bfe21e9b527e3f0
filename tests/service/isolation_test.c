/* isolation_test.c - what hostile source does to the service whose compiles run in worker
 * processes: nothing. Over HTTP, against the real program. Each case has its control with
 * --isolation in-process where the same can be tried without harm to the test. */
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

#define BANGS 200000u

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1 /* there the memory of a process cannot be limited */
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static json_t *source_body(const char *language, const char *source)
{
    return json_pack("{s:s, s:s, s:i}", "language", language, "source", source, "timeout_ms",
                     PATIENT_MS);
}

/* A source that sends the compiler's parser BANGS levels down. */
static json_t *deep_body(void)
{
    static const char head[] = "int f(void) { return ";
    char *source = malloc(sizeof head + BANGS + 8);
    json_t *body;

    assert_non_null(source);
    strcpy(source, head);
    memset(source + sizeof head - 1, '!', BANGS);
    strcpy(source + sizeof head - 1 + BANGS, "1; }\n");
    body = source_body("c", source);
    free(source);
    return body;
}

static json_t *isolation_of(struct room *room)
{
    struct answer answer = ask(room, &(struct request){.path = "/v1/isolation"});
    json_t *object = json_incref(answer.json);

    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    return object;
}

static json_int_t worker_number(struct room *room, const char *member)
{
    json_t *object = isolation_of(room);
    json_int_t number = number_of(object, member);

    json_decref(object);
    return number;
}

/* Broken when a crash of the compiler takes the service or another request with it, is stored, or
 * is not explained. */
static void source_that_crashes_the_compiler_fails_alone(void **state)
{
    struct room *room = *state;

    for (int again = 0; again < 2; again++) {
        struct answer answer = post(room, deep_body());
        const json_t *list;

        assert_int_equal(answer.status, 200);
        assert_string_equal(text_of(answer.json, "status"), "failed");
        assert_true(json_is_false(json_object_get(answer.json, "cached")));
        list = json_object_get(answer.json, "diagnostics");
        assert_true(json_array_size(list) > 0);
        assert_non_null(
            strstr(text_of(json_array_get(list, json_array_size(list) - 1), "message"), "SIG"));
        answer_free(&answer);
        expect_service_goes_on(room);
    }
    assert_int_equal(worker_number(room, "crashed"), 2);
}

/* Broken when a limit is not kept, or the answer does not name it. */
static void limits_are_kept_and_named(void **state)
{
    static const struct {
        const char *options[8];
        const char *language, *source, *limit;
    } cases[] = {
        {{"--output-max-bytes", "1M"}, "c", "char a[8 << 20] = {1};\n", "output"},
        {{"--memory-max-bytes", "64M", "--output-max-bytes", "400M"},
         "c",
         "char a[300 << 20] = {1};\n",
         "memory"},
        {{"--cpu-max-ms", "300"},
         "c++",
         "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; i++) s += i; return s; }\n"
         "template <int N> struct A { A<N - 1> a; A<N - 2> b; enum { v = f(5000 + N) }; };\n"
         "template <> struct A<0> {}; template <> struct A<-1> {}; A<900> x;\n"
         "template <int A, int B> struct T { T<A - 1, 2 * B> l; T<A - 1, 2 * B + 1> r; };\n"
         "template <int B> struct T<0, B> {}; T<22, 1> tree;\n",
         "cpu"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (SANITIZED && strcmp(cases[i].limit, "memory") == 0)
            continue;
        room_start(room, cases[i].options);
        expect_problem(post(room, source_body(cases[i].language, cases[i].source)), 422, "limit",
                       "limit", cases[i].limit, "more");
        expect_service_goes_on(room);
        assert_int_equal(worker_number(room, "killed_by_limit"), 1);
        room_stop(room);
    }
}

/* Until no compile runs and no worker compiles; ctest has a bound. */
static void until_quiet(struct room *room)
{
    while (lane_number(room, "compile-cpu", "running") > 0 || worker_number(room, "running") > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Broken when a compile that nobody waits for any more goes on, or what it makes is kept. */
static void time_out_ends_the_worker(void **state)
{
    struct room *room = *state;
    struct answer answer;

    expect_problem(post(room, slow_body(1, 4000, 1500)), 504, "timeout", NULL, NULL, "timeout_ms");
    until_quiet(room); /* and not the minutes that it would take */
    assert_int_equal(worker_number(room, "stopped"), 1);
    answer = post(room, slow_body(1, 4000, 1500));
    assert_int_equal(answer.status, 504); /* not kept */
    answer_free(&answer);
    expect_service_goes_on(room);
}

/* Inline assembly that reads a file of the machine past the compiler's own view of files. */
static json_t *reading_body(void)
{
    return source_body("c", "__asm__(\".incbin \\\"/etc/passwd\\\"\");\n");
}

/* Broken when a source reads what is on the service's machine. Control: in the service's process,
 * without the sandbox, it does. */
static void source_reads_no_file_of_the_machine(void **state)
{
    struct room *room = *state;
    struct answer answer;

    room_start(room, NULL);
    answer = post(room, reading_body());
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(answer.json, "status"), "failed");
    assert_false(bytes_contain(&answer.reply.body, "root:"));
    answer_free(&answer);
    expect_service_goes_on(room);
    room_stop(room);

    room_start(room, (const char *[]){"--isolation", "in-process", NULL});
    answer = post(room, reading_body());
    assert_string_equal(text_of(answer.json, "status"), "ok");
    answer_free(&answer);
    room_stop(room);
}

/* Children of the service, and theirs: the zygote and the workers. */
static unsigned workers_of(pid_t pid)
{
    char path[64], line[512] = "";
    unsigned count = 0;
    FILE *file;
    int used;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    fclose(file);
    for (const char *at = line; sscanf(at, "%31s%n", path, &used) == 1; at += used)
        count += 1 + workers_of((pid_t)atoi(path));
    return count;
}

/* Broken when a killed service leaves a process behind. */
static void killed_service_leaves_no_process(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = swarm_new(&room->server);
    json_t *object = isolation_of(room);
    pid_t zygote = 0;
    char path[64];
    FILE *file;

    assert_string_equal(text_of(object, "isolation"), "isolated");
    json_decref(object);
    swarm_post(swarm, "/v1/compile", slow_body(1, 4000, PATIENT_MS));
    while (worker_number(room, "running") < 1)
        swarm_turn(swarm, 5);
    assert_true(workers_of(room->server.pid) >= 2);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)room->server.pid,
             (int)room->server.pid);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &zygote), 1);
    fclose(file);
    assert_int_equal(kill(room->server.pid, SIGKILL), 0);
    while (kill(zygote, 0) == 0) /* its workers go before it; ctest has a bound */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    swarm_free(swarm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(source_that_crashes_the_compiler_fails_alone,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(limits_are_kept_and_named, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(time_out_ends_the_worker, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(source_reads_no_file_of_the_machine, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(killed_service_leaves_no_process, room_setup_started,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.isolation", tests, NULL, NULL);
}

/* isolation_test.c - what hostile source does to the service whose compiles run in worker
 * processes: nothing. Over HTTP, against the real program. Each case has its control with
 * --isolation in-process where the same can be tried without harm to the test. */
#include <errno.h>
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
#include <seccomp.h>

#include "service/support.h"
#include "service/swarm.h"
#include "support/process.h"
#include "support/sanitized.h"

#define BANGS 200000u

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
    assert_int_equal(isolation_number(room, "crashed"), 2);
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
        assert_int_equal(isolation_number(room, "killed_by_limit"), 1);
        room_stop(room);
    }
}

/* Until no compile runs and no worker compiles; ctest has a bound. */
static void until_quiet(struct room *room)
{
    while (lane_number(room, "compile-cpu", "running") > 0 || isolation_number(room, "running") > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Broken when a compile that nobody waits for any more goes on, or what it makes is kept. */
static void time_out_ends_the_worker(void **state)
{
    struct room *room = *state;
    struct answer answer;

    expect_problem(post(room, slow_body(1, 4000, 1500)), 504, "timeout", NULL, NULL, "timeout_ms");
    until_quiet(room); /* and not the minutes that it would take */
    assert_int_equal(isolation_number(room, "stopped"), 1);
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

    if (SANITIZED_THREADS) /* a worker with a thread of ThreadSanitizer's own enters no sandbox */
        skip();
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

/* The service's one child that it started itself. */
static pid_t zygote_of(const struct room *room)
{
    char path[64];
    int zygote = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)room->server.pid,
             (int)room->server.pid);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &zygote), 1);
    fclose(file);
    return (pid_t)zygote;
}

/* Its workers go before it. */
static void until_gone(pid_t zygote)
{
    for (unsigned looks = 0; kill(zygote, 0) == 0; looks++) {
        if (looks > 30000)
            fail_msg("the process that forks workers is still there");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Until a worker is at a compile of minutes. */
static struct swarm *busy_swarm(struct room *room, unsigned tag)
{
    struct swarm *swarm = swarm_new(&room->server);

    swarm_post(swarm, "/v1/compile", slow_body(tag, 4000, PATIENT_MS));
    while (isolation_number(room, "running") < 1)
        swarm_turn(swarm, 1);
    return swarm;
}

/* Broken when a killed service leaves a process behind. */
static void killed_service_leaves_no_process(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = busy_swarm(room, 1);
    pid_t zygote = zygote_of(room);

    assert_true(process_descendants(room->server.pid) >= 2);
    assert_int_equal(kill(room->server.pid, SIGKILL), 0);
    until_gone(zygote);
    swarm_free(swarm);
}

/* Broken when the grace time does not end what runs, or it leaves a process behind. */
static void shutdown_past_its_grace_leaves_no_process(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    pid_t zygote;

    room_start(room, (const char *[]){"--grace-ms", "50", NULL});
    swarm = busy_swarm(room, 1);
    zygote = zygote_of(room);
    client_close(&room->client);
    assert_int_equal(server_stop(&room->server), 1);
    until_gone(zygote);
    swarm_free(swarm);
}

static int compare_ms(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;

    return (one > other) - (one < other);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Broken when a client that leaves, the last of its compile, does not free the place on the lane at
 * once: the compile would take minutes. How long it took is printed; a place is seen free by a look
 * over HTTP, which is part of that. */
static void client_that_leaves_frees_its_place(void **state)
{
    struct room *room = *state;
    double freed_ms[15];
    const size_t rounds = sizeof freed_ms / sizeof freed_ms[0];

    for (size_t i = 0; i < rounds; i++) {
        struct swarm *swarm = busy_swarm(room, (unsigned)i);
        double begin;

        swarm_turn(swarm, 100); /* so that it has memory to give back */
        assert_int_equal(lane_number(room, "compile-cpu", "running"), 1);
        begin = now_ms();
        swarm_leave(swarm, 0);
        while (lane_number(room, "compile-cpu", "running") > 0)
            ;
        freed_ms[i] = now_ms() - begin;
        swarm_free(swarm);
    }
    qsort(freed_ms, rounds, sizeof *freed_ms, compare_ms);
    printf("a place is free after %.1f ms at the median, %.1f ms at most\n", freed_ms[rounds / 2],
           freed_ms[rounds - 1]);
    assert_int_equal(isolation_number(room, "stopped"), rounds);
    expect_service_goes_on(room);
}

/* Broken when one client that leaves, or whose time is up, ends the compile of another. */
static void who_stays_keeps_the_compile(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = swarm_new(&room->server);
    size_t leaves = swarm_post(swarm, "/v1/compile", slow_body(1, 3, PATIENT_MS));
    size_t stays;
    long status;
    json_t *answer;

    while (isolation_number(room, "running") < 1)
        swarm_turn(swarm, 1);
    stays = swarm_post(swarm, "/v1/compile", slow_body(1, 3, PATIENT_MS));
    swarm_until_metric(swarm, room, "millwright_compile_joined_total", 1);
    swarm_leave(swarm, leaves);
    swarm_finish(swarm);
    answer = swarm_json(swarm, stays, &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_of(answer, "status"), "ok");
    json_decref(answer);
    assert_int_equal(isolation_number(room, "stopped"), 0);
    swarm_free(swarm);
}

/* Broken when a request with limits shares the compile of one that has others, and fails or goes
 * through because of those. */
static void who_has_other_limits_has_a_compile_of_its_own(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = swarm_new(&room->server);
    json_t *bodies[2] = {slow_body(1, 3, PATIENT_MS), slow_body(1, 3, PATIENT_MS)};
    long status;
    json_t *answer;

    json_object_set_new(bodies[1], "limits", json_pack("{s:i}", "cpu_ms", 1));
    swarm_post(swarm, "/v1/compile", bodies[0]);
    while (isolation_number(room, "running") < 1)
        swarm_turn(swarm, 1);
    swarm_post(swarm, "/v1/compile", bodies[1]);
    swarm_finish(swarm);
    answer = swarm_json(swarm, 1, &status);
    assert_int_equal(status, 422);
    assert_string_equal(text_of(answer, "limit"), "cpu");
    json_decref(answer);
    answer = swarm_json(swarm, 0, &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_of(answer, "status"), "ok");
    json_decref(answer);
    swarm_free(swarm);
}

/* Broken when a request gets more than its service's ceilings, or another default than is set; also
 * where the service compiles in its own process, which can keep this limit only. */
static void ceilings_and_defaults_are_the_services(void **state, const char *where)
{
    static const struct {
        json_int_t asked; /* 0: nothing */
        json_int_t value; /* that the answer tells */
    } cases[] = {{0, 1 << 20}, {2 << 20, 2 << 20}, {64 << 20, 3 << 20}};
    struct room *room = *state;

    room_start(room, (const char *[]){"--output-max-bytes", "3M", "--output-default-bytes", "1M",
                                      "--isolation", where, NULL});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *body = source_body("c", "char a[8 << 20] = {1};\n");
        struct answer answer;

        if (cases[i].asked)
            json_object_set_new(body, "limits", json_pack("{s:I}", "output_bytes", cases[i].asked));
        answer = post(room, body);
        assert_int_equal(answer.status, 422);
        assert_string_equal(text_of(answer.json, "limit"), "output");
        assert_int_equal(number_of(answer.json, "limit_value"), cases[i].value);
        answer_free(&answer);
    }
    expect_service_goes_on(room);
    room_stop(room);
}

static void ceilings_and_defaults_are_the_services_isolated(void **state)
{
    ceilings_and_defaults_are_the_services(state, "isolated");
}

static void ceilings_and_defaults_are_the_services_in_process(void **state)
{
    ceilings_and_defaults_are_the_services(state, "in-process");
}

/* Broken when a service that cannot keep a limit takes it, or refuses the one that it can keep. */
static void limits_are_refused_where_they_cannot_be_kept(void **state)
{
    struct room *room = *state;
    json_t *body = source_body("c", "int x;\n");
    struct answer answer;

    room_start(room, (const char *[]){"--isolation", "in-process", NULL});
    json_object_set_new(body, "limits", json_pack("{s:i}", "cpu_ms", 1000));
    expect_problem(post(room, body), 400, "bad-field", "field", "limits", "in its own process");
    body = source_body("c", "#warning one\n#warning two\n#error three\n");
    json_object_set_new(body, "limits", json_pack("{s:i}", "diagnostics", 2));
    answer = post(room, body);
    assert_int_equal(json_array_size(json_object_get(answer.json, "diagnostics")), 2);
    assert_int_equal(number_of(answer.json, "diagnostics_dropped"), 1);
    /* the failure is explained, though the error came last */
    assert_string_equal(
        text_of(json_array_get(json_object_get(answer.json, "diagnostics"), 1), "message"),
        "three");
    answer_free(&answer);
    room_stop(room);
}

/* Takes a system call away from this process and those that it starts, as from an older kernel. */
static void take_away(int call)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    assert_non_null(filter);
    assert_int_equal(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), call, 0), 0);
    assert_int_equal(seccomp_load(filter), 0);
    seccomp_release(filter);
}

/* Broken when the service serves strangers without a guard and nobody told it to, or does not say
 * what to do about it. Then, told to, it does, says which is missing, and what that guard stands
 * against goes through: the control of the test above. But never without the one by which workers
 * are ended. The last test: what is taken away stays away. */
static void a_kernel_without_a_guard_is_refused_unless_told(void **state)
{
    struct room *room = *state;
    char *log = path_join(room->folder, "refused.log");
    char *socket = path_join(room->folder, "refused");
    struct bytes text;
    struct answer answer;
    char *listen;
    json_t *object;

    take_away(SCMP_SYS(landlock_create_ruleset));
    assert_true(asprintf(&listen, "unix:%s", socket) > 0);
    assert_int_equal(process_run(room->folder,
                                 (const char *[]){program_path(), "serve", "--listen", listen,
                                                  "--data", "refused-data", NULL},
                                 NULL, log),
                     1);
    text = file_read(log);
    assert_true(bytes_contain(&text, "this kernel has no landlock"));
    assert_true(bytes_contain(&text, "--isolation in-process, or --unguarded"));
    free(text.data);

    room_start(room, (const char *[]){"--unguarded", NULL});
    object = isolation_of(room);
    assert_int_equal(json_array_size(json_object_get(object, "guards")), 3);
    assert_int_equal(number_of(object, "landlock_abi"), 0);
    json_decref(object);
    text = file_read(room->server.log);
    assert_true(bytes_contain(&text, "lacks what keeps strangers' source in: landlock"));
    free(text.data);
    answer = post(room, reading_body());
    assert_string_equal(text_of(answer.json, "status"), "ok");
    answer_free(&answer);
    room_stop(room);

    take_away(SCMP_SYS(pidfd_open));
    assert_int_equal(process_run(room->folder,
                                 (const char *[]){program_path(), "serve", "--listen", listen,
                                                  "--data", "refused-data", "--unguarded", NULL},
                                 NULL, log),
                     1);
    text = file_read(log);
    assert_true(bytes_contain(&text, "this kernel has no pidfd"));
    assert_true(bytes_contain(&text, "--isolation in-process\n"));
    free(text.data);
    free(listen);
    free(socket);
    free(log);
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
        cmocka_unit_test_setup_teardown(client_that_leaves_frees_its_place, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(who_stays_keeps_the_compile, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(who_has_other_limits_has_a_compile_of_its_own,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(ceilings_and_defaults_are_the_services_isolated, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(ceilings_and_defaults_are_the_services_in_process,
                                        room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(limits_are_refused_where_they_cannot_be_kept, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(shutdown_past_its_grace_leaves_no_process, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(a_kernel_without_a_guard_is_refused_unless_told, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.isolation", tests, NULL, NULL);
}

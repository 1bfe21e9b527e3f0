/* pools_test.c - the shared pool of the service: its minimum, set three ways and while it runs, the
 * monitor, the probes, and what a time-out tells of them.
 *
 * Workers are blocked for real: compiles that run on the pool (`--emit-lane pool`) read a FIFO that
 * nobody writes, and writes to the store wait for a lock that the test holds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"
#include "service/swarm.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIN_VARIABLE "MILLWRIGHT_POOL_MIN_THREADS"
#define OFF_VARIABLE "MILLWRIGHT_DISABLE_POOL_TUNING"
#define LOOK_MS      10
#define LOOKS_MAX    30000 /* far above what a slow machine needs */

/* ---- what the tests share ---- */

static int setup(void **state)
{
    unsetenv(MIN_VARIABLE);
    unsetenv(OFF_VARIABLE);
    return room_setup(state);
}

/* Without the monitor, which on a slow machine may raise the minimum while the service warms up. */
static int setup_untuned(void **state)
{
    int error = setup(state);

    setenv(OFF_VARIABLE, "1", 1);
    return error;
}

static int teardown(void **state)
{
    unsetenv(MIN_VARIABLE);
    unsetenv(OFF_VARIABLE);
    return room_teardown(state);
}

static char *in_room(const struct room *room, const char *name)
{
    return path_join(room->folder, name);
}

static void write_in(const struct room *room, const char *name, const char *text)
{
    char *path = in_room(room, name);

    file_write(path, text, strlen(text));
    free(path);
}

static bool file_says(const struct room *room, const char *name, const char *text)
{
    char *path = in_room(room, name);
    struct bytes bytes = file_read(path);
    bool says = bytes_contain(&bytes, text);

    free(bytes.data);
    free(path);
    return says;
}

/* The entry of GET /v1/pools, or with `member` "loop" what stands beside it. Free with
 * json_decref. */
static json_t *ask_pools(struct room *room, const char *member)
{
    struct answer answer = ask(room, &(struct request){.path = "/v1/pools"});
    json_t *part = json_object_get(answer.json, member);

    assert_int_equal(answer.status, 200);
    if (json_is_array(part))
        part = json_array_get(part, 0);
    assert_non_null(part);
    json_incref(part);
    answer_free(&answer);
    return part;
}

static json_t *pool_of(struct room *room)
{
    return ask_pools(room, "pools");
}

static json_int_t pool_number(struct room *room, const char *member)
{
    json_t *pool = pool_of(room);
    json_int_t number = number_of(pool, member);

    json_decref(pool);
    return number;
}

static double real_of(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);

    if (!json_is_real(value))
        fail_msg("there is no %s", member);
    return json_real_value(value);
}

/* A compile that reads the room's FIFO: it blocks the thread that runs it until let_go. */
static json_t *blocking_body(const struct room *room, unsigned tag)
{
    char *fifo = in_room(room, "fifo");
    char source[256];
    json_t *body;

    if (mkfifo(fifo, 0600) != 0)
        assert_int_equal(errno, EEXIST);
    snprintf(source, sizeof source, "int blocking_%u;\n__asm__(\".incbin \\\"%s\\\"\");\n", tag,
             fifo);
    body =
        json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms", PATIENT_MS);
    assert_non_null(body);
    free(fifo);
    return body;
}

/* Whoever reads the FIFO, now or later, finds its end, until every request is answered. */
static void let_go(struct swarm *swarm, const struct room *room)
{
    char *path = in_room(room, "fifo");

    for (int turns = 0; swarm_turn(swarm, LOOK_MS) > 0; turns++) {
        int fifo = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

        if (fifo >= 0)
            close(fifo);
        if (turns > LOOKS_MAX)
            fail_msg("blocked compiles are still not answered");
    }
    free(path);
}

static void expect_all_ok(struct swarm *swarm)
{
    for (size_t i = 0; i < swarm->count; i++) {
        long status;
        json_t *json = swarm_json(swarm, i, &status);

        assert_int_equal(status, 200);
        assert_string_equal(text_of(json, "status"), "ok");
        json_decref(json);
    }
}

/* Turn until `number` workers of the pool are busy. */
static void until_busy(struct swarm *swarm, struct room *room, json_int_t number)
{
    for (int turns = 0; pool_number(room, "busy") < number; turns++) {
        if (turns > LOOKS_MAX)
            fail_msg("no %lld workers are busy", (long long)number);
        swarm_turn(swarm, LOOK_MS);
    }
}

/* A request whose time is up after 100 ms, as the 504 that it is answered with. */
static struct answer time_out(struct room *room)
{
    struct answer answer = post(room, json_pack("{s:s, s:s, s:i}", "language", "c", "source",
                                                "int never_compiled;\n", "timeout_ms", 100));

    assert_int_equal(answer.status, 504);
    return answer;
}

static void expect_detail(const struct answer *answer, const char *says, bool it_does)
{
    const char *detail = text_of(answer->json, "detail");

    if ((strstr(detail, says) != NULL) != it_does)
        fail_msg("the detail '%s' says '%s': %s", detail, says, it_does ? "no" : "yes");
}

/* ---- the minimum, three ways ---- */

/* Broken when a source is not read, when a weaker one wins, or when before and after are not told.
 */
static void the_most_explicit_source_sets_the_minimum(void **state)
{
    static const struct {
        const char *file, *environment, *argument; /* NULL: says nothing */
        json_int_t min;
        const char *from;
        const char *logged;
    } cases[] = {
        {"5", NULL, NULL, 5, "config_file", " -> 5 (config file)"},
        {NULL, "6", NULL, 6, "environment", " -> 6 (environment)"},
        {NULL, NULL, "7", 7, "command_line", " -> 7 (command line)"},
        {"5", "6", NULL, 6, "environment", " -> 6 (environment; it wins over the config file's 5)"},
        {"5", NULL, "7", 7, "command_line",
         " -> 7 (command line; it wins over the config file's 5)"},
        {"5", "6", "7", 7, "command_line",
         " -> 7 (command line; it wins over the environment's 6, the config file's 5)"},
        {NULL, "", NULL, 0, "default", NULL},
    };
    struct room *room = *state;
    char *config = in_room(room, "serve.ini"), text[64];

    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *options[5] = {"--config", config};
        json_t *pool, *given;

        snprintf(text, sizeof text, "[serve]\n%s%s\n", cases[i].file ? "pool-min = " : "",
                 cases[i].file ? cases[i].file : "");
        write_in(room, "serve.ini", text);
        if (cases[i].environment)
            setenv(MIN_VARIABLE, cases[i].environment, 1);
        else
            unsetenv(MIN_VARIABLE);
        if (cases[i].argument) {
            options[2] = "--pool-min";
            options[3] = cases[i].argument;
        }
        room_start(room, options);
        pool = pool_of(room);
        given = json_object_get(pool, "min_threads_given");
        assert_true(number_of(given, "default") > 0);
        assert_int_equal(number_of(pool, "min_threads"),
                         cases[i].min ? cases[i].min : number_of(given, "default"));
        assert_string_equal(text_of(pool, "min_threads_from"), cases[i].from);
        assert_true(!cases[i].file == json_is_null(json_object_get(given, "config_file")));
        assert_true(!cases[i].argument == json_is_null(json_object_get(given, "command_line")));
        snprintf(text, sizeof text, "pool minimum %lld", (long long)number_of(given, "default"));
        assert_int_equal(file_says(room, "serve.log", text), cases[i].logged != NULL);
        if (cases[i].logged)
            assert_true(file_says(room, "serve.log", cases[i].logged));
        json_decref(pool);
        room_stop(room);
    }
    free(config);
}

/* What `millwright serve` says and ends with. The environment is the test's. */
static void expect_refusal(struct room *room, const char *const *options, int status,
                           const char *says)
{
    const char *argv[16] = {"timeout",  "60",           program_path(), "serve",
                            "--listen", "unix:refused", "--data",       "refused"};
    char *log = in_room(room, "refused.log");
    int ended;

    for (size_t i = 0; options[i]; i++)
        argv[8 + i] = options[i];
    ended = process_run(room->folder, argv, "/dev/null", log);
    if (!file_says(room, "refused.log", says)) {
        struct bytes text = file_read(log);

        fail_msg("'%s' does not say '%s'", text.data, says);
    }
    assert_int_equal(ended, status);
    free(log);
}

/* Broken when anything but plain decimal digits passes anywhere, or is refused without a word on
 * how to write it. The control is the test above: digits pass. */
static void what_is_not_decimal_is_refused_three_times(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"1F4", "write 500"},
        {"0x1f4", "write 500"},
        {"0X1F4", "write 500"},
        {"-1", "must be a decimal number from 1 to 1024"},
        {"+5", "must be a decimal number from 1 to 1024"},
        {"5.0", "must be a decimal number from 1 to 1024"},
        {"five", "must be a decimal number from 1 to 1024"},
        {"0", "must be a decimal number from 1 to 1024"},
        {"1025", "must be a decimal number from 1 to 1024"},
        {"18446744073709551617", "must be a decimal number from 1 to 1024"},
    };
    struct room *room = *state;
    char text[64], says[128];

    for (size_t i = 0; i < COUNT(cases); i++) {
        expect_refusal(room, (const char *[]){"--pool-min", cases[i].text, NULL}, 2,
                       "serve: --pool-min must be a decimal number");
        assert_true(file_says(room, "refused.log", cases[i].says));

        snprintf(text, sizeof text, "[serve]\npool-min = %s\n", cases[i].text);
        write_in(room, "wrong.ini", text);
        expect_refusal(room, (const char *[]){"--config", "wrong.ini", NULL}, 2,
                       "wrong.ini: line 2: pool-min must be a decimal number");
        assert_true(file_says(room, "refused.log", cases[i].says));

        setenv(MIN_VARIABLE, cases[i].text, 1);
        snprintf(says, sizeof says, "serve: %s must be a decimal number", MIN_VARIABLE);
        expect_refusal(room, (const char *[]){NULL}, 2, says);
        assert_true(file_says(room, "refused.log", cases[i].says));
        /* also when the command line would win over it */
        expect_refusal(room, (const char *[]){"--pool-min", "5", NULL}, 2, says);
        unsetenv(MIN_VARIABLE);
    }
}

/* Broken when a minimum above the maximum is cut in silence, or its source is not named. */
static void a_minimum_above_the_maximum_is_refused(void **state)
{
    setenv(MIN_VARIABLE, "17", 1);
    expect_refusal(*state, (const char *[]){NULL}, 1,
                   "the shared pool's minimum of 17 (environment) is more than pool-max 16; lower "
                   "it, or raise pool-max");
    unsetenv(MIN_VARIABLE);
    expect_refusal(*state, (const char *[]){"--pool-min", "9", "--pool-max", "8", NULL}, 1,
                   "minimum of 9 (command line) is more than pool-max 8");
}

/* ---- the minimum, while it runs ---- */

static struct answer patch(struct room *room, const char *body)
{
    return ask(room,
               &(struct request){.method = "PATCH", .path = "/v1/pools/shared", .body = body});
}

static void expect_patched(struct room *room, const char *body, json_int_t before, json_int_t after,
                           const char *from)
{
    struct answer answer = patch(room, body);

    assert_int_equal(answer.status, 200);
    assert_int_equal(number_of(answer.json, "min_threads_before"), before);
    assert_int_equal(number_of(answer.json, "min_threads"), after);
    assert_string_equal(text_of(answer.json, "min_threads_from"), from);
    answer_free(&answer);
    assert_int_equal(pool_number(room, "min_threads"), after);
}

/* Broken when a change does not reach the pool, or what was before it cannot be had back. */
static void a_request_sets_the_minimum_and_gives_it_back(void **state)
{
    struct room *room = *state;
    const json_t *events, *last;
    json_t *pool;

    setenv(MIN_VARIABLE, "3", 1);
    room_start(room, NULL);
    expect_patched(room, "{\"min_threads\": 9}", 3, 9, "request");
    assert_true(file_says(room, "serve.log",
                          "pool minimum 3 -> 9 (request; it wins over the environment's 3)"));
    expect_patched(room, "{\"min_threads\": 16}", 9, 16, "request");
    expect_patched(room, "{\"min_threads\": null}", 16, 3, "environment");

    pool = pool_of(room);
    events = json_object_get(pool, "events");
    assert_int_equal(json_array_size(events), 4);
    last = json_array_get(events, 2);
    assert_string_equal(text_of(last, "what"), "set");
    assert_string_equal(text_of(last, "by"), "request");
    assert_int_equal(number_of(last, "min_before"), 9);
    assert_int_equal(number_of(last, "min_after"), 16);
    assert_int_equal(strlen(text_of(last, "at")), strlen("2026-11-30T12:00:00Z"));
    json_decref(pool);
    room_stop(room);
}

/* Control of the last: broken when a wrong body changes the minimum, or is not told what is wrong.
 */
static void a_wrong_request_leaves_the_minimum(void **state)
{
    static const char *const wrong[] = {
        "{\"min_threads\": 0}",
        "{\"min_threads\": 17}",
        "{\"min_threads\": -1}",
        "{\"min_threads\": 4294967299}",
        "{\"min_threads\": 8.0}",
        "{\"min_threads\": \"1F4\"}",
        "{\"min_threads\": \"8\"}",
        "{\"min_threads\": true}",
        "{\"min_threads\": [8]}",
        "{\"max_threads\": 8}",
        "{\"min_threads\": 8, \"max_threads\": 8}",
        "{}",
        "[]",
        "[8]",
    };
    struct room *room = *state;
    char large[8192];

    room_start(room, (const char *[]){"--pool-min", "3", NULL});
    for (size_t i = 0; i < COUNT(wrong); i++)
        expect_problem(patch(room, wrong[i]), 400, "bad-field", "field", "min_threads",
                       "must be the only member, and a number from 1 to 16, or null");
    expect_problem(patch(room, "{\"min_threads\": 0x8}"), 400, "bad-json", NULL, NULL, "line 1");
    expect_problem(patch(room, "{\"min_threads\": 8, \"min_threads\": 9}"), 400, "bad-json", NULL,
                   NULL, "duplicate");
    expect_problem(patch(room, NULL), 400, "bad-json", NULL, NULL, "line 1");
    memset(large, ' ', sizeof large);
    large[sizeof large - 1] = '\0';
    expect_problem(patch(room, large), 413, "too-large", "field", "body", "at most 4096 bytes");
    expect_problem(ask(room, &(struct request){.path = "/v1/pools/shared"}), 405,
                   "method-not-allowed", NULL, NULL, "takes PATCH");
    expect_problem(ask(room, &(struct request){.method = "PATCH",
                                               .path = "/v1/pools/shared",
                                               .body = "{\"min_threads\": 8}",
                                               .header = "Origin: http://example.org"}),
                   403, "foreign-page", NULL, NULL, "");
    expect_problem(ask(room, &(struct request){.method = "PATCH",
                                               .path = "/v1/pools/shared",
                                               .body = "{\"min_threads\": 8}",
                                               .header = "X-Forwarded-For: 192.0.2.1"}),
                   403, "operator-only", "path", "/v1/pools/shared",
                   "taken only from the machine it runs on, not through a proxy (X-Forwarded-For)");
    assert_int_equal(pool_number(room, "min_threads"), 3);
    expect_patched(room, "{\"min_threads\": 8}", 3, 8, "request");
    room_stop(room);
}

/* ---- the monitor ---- */

/* 20 compiles that block, on a pool that begins with one worker. */
static struct swarm *block_the_pool(struct room *room, const char *const *options)
{
    /* in-process: a worker's sandbox would not let it read what blocks here */
    const char *all[14] = {"--emit-lane", "pool", "--lane-cap",  "20",
                           "--pool-min",  "1",    "--isolation", "in-process"};
    struct swarm *swarm;

    for (size_t i = 0; options[i]; i++)
        all[8 + i] = options[i];
    room_start(room, all);
    swarm = swarm_new(&room->server);
    for (unsigned tag = 0; tag < 20; tag++)
        swarm_post(swarm, "/v1/compile", blocking_body(room, tag));
    return swarm;
}

static void expect_raise_told(struct room *room)
{
    json_t *pool = pool_of(room);
    const json_t *monitor = json_object_get(pool, "monitor");
    const json_t *event = json_array_get(json_object_get(pool, "events"), 1);

    assert_string_equal(text_of(pool, "min_threads_from"), "monitor");
    assert_int_equal(number_of(pool, "min_threads"), 16); /* the maximum: 32 leaves may block */
    assert_true(json_is_true(json_object_get(monitor, "enabled")));
    assert_true(json_is_true(json_object_get(monitor, "raised")));
    assert_int_equal(number_of(monitor, "min_before"), 1);
    assert_int_equal(number_of(monitor, "min_after"), 16);
    assert_int_equal(number_of(monitor, "raises"), 1);
    assert_string_equal(text_of(event, "what"), "raised");
    assert_string_equal(text_of(event, "by"), "monitor");
    assert_int_equal(number_of(event, "min_before"), 1);
    assert_int_equal(number_of(event, "min_after"), 16);
    assert_true(real_of(event, "age_ms") >= 40);
    assert_true(number_of(event, "busy") >= 1);
    assert_true(number_of(event, "blocked") >= 1); /* though none says so */
    assert_true(real_of(event, "cpu_used") >= 0);
    json_decref(pool);
    assert_true(metric(room, "millwright_pool_monitor_raises_total") == 1);
    assert_true(metric(room, "millwright_pool_monitor_min_raised") == 16);
    assert_true(metric(room, "millwright_pool_monitor_enabled") == 1);
    assert_true(file_says(room, "serve.log", "pool minimum 1 -> 16 (monitor): an item waited"));
}

/* Broken when blocked workers do not make the monitor raise the minimum, when it is not told, when
 * a time-out does not tell of it, or when the minimum is not put back at the end. */
static void the_monitor_raises_while_workers_block_and_restores(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = block_the_pool(room, (const char *[]){NULL});
    struct answer answer;

    swarm_until_metric(swarm, room, "millwright_pool_monitor_raises_total", 1);
    expect_raise_told(room);
    until_busy(swarm, room, 16);
    answer = time_out(room);
    expect_detail(&answer,
                  "work waits while all 16 workers of the shared pool are busy (0 of them say that "
                  "they block), so the time-out may come from blocking elsewhere; the monitor has "
                  "raised the pool's minimum from 1 to 16",
                  true);
    assert_int_equal(number_of(json_object_get(answer.json, "pool_monitor"), "min_after"), 16);
    assert_int_equal(number_of(json_object_get(answer.json, "pool"), "busy"), 16);
    assert_true(real_of(json_object_get(answer.json, "pool"), "oldest_pending_ms") > 0);
    answer_free(&answer);
    let_go(swarm, room);
    expect_all_ok(swarm);
    swarm_free(swarm);
    room_stop(room);
    assert_true(file_says(room, "serve.log", "pool minimum 16 -> 1 (monitor): put back"));
}

/* Expects that the pool was starved for long enough, and the minimum stays. */
static void expect_no_raise(struct room *room, struct swarm *swarm)
{
    json_t *pool = pool_of(room);

    for (int turns = 0; real_of(pool, "oldest_pending_ms") < 400; turns++) {
        if (turns > LOOKS_MAX)
            fail_msg("the pool is not starved");
        json_decref(pool);
        swarm_turn(swarm, LOOK_MS);
        pool = pool_of(room);
    }
    assert_int_equal(number_of(pool, "min_threads"), 1);
    assert_string_equal(text_of(pool, "min_threads_from"), "command_line");
    assert_true(json_is_false(json_object_get(json_object_get(pool, "monitor"), "enabled")));
    assert_int_equal(number_of(json_object_get(pool, "monitor"), "raises"), 0);
    assert_true(metric(room, "millwright_pool_monitor_enabled") == 0);
    assert_false(file_says(room, "serve.log", "(monitor)"));
    json_decref(pool);
}

/* Control: the same load. Broken when the setting does not keep the monitor off. */
static void control_the_setting_keeps_the_monitor_off(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = block_the_pool(room, (const char *[]){"--pool-tuning", "off", NULL});

    expect_no_raise(room, swarm);
    let_go(swarm, room);
    expect_all_ok(swarm);
    swarm_free(swarm);
    room_stop(room);
}

/* Control: the same load. Broken when the environment does not win over the setting. */
static void control_the_environment_keeps_the_monitor_off(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;

    setenv(OFF_VARIABLE, "yes", 1);
    swarm = block_the_pool(room, (const char *[]){"--pool-tuning", "on", NULL});
    expect_no_raise(room, swarm);
    let_go(swarm, room);
    expect_all_ok(swarm);
    swarm_free(swarm);
    room_stop(room);
}

/* Broken when the environment's word for "on" is not taken, or nonsense in it is. */
static void the_environment_turns_the_monitor_on_too(void **state)
{
    struct room *room = *state;

    setenv(OFF_VARIABLE, "0", 1);
    room_start(room, (const char *[]){"--pool-tuning", "off", NULL});
    assert_true(metric(room, "millwright_pool_monitor_enabled") == 1);
    room_stop(room);
    setenv(OFF_VARIABLE, "maybe", 1);
    expect_refusal(room, (const char *[]){NULL}, 2, "0, false or no, not 'maybe'");
    /* also when the command line says the same thing rightly */
    expect_refusal(room, (const char *[]){"--pool-tuning", "off", NULL}, 2, "not 'maybe'");
}

/* ---- time-outs ---- */

/* Broken when a time-out behind blocked workers does not say what it may come from. */
static void a_timeout_behind_blocked_workers_says_so(void **state)
{
    static const char *const options[] = {
        "--isolation", "in-process", "--emit-lane",   "pool", "--lane-cap",  "2",
        "--pool-max",  "2",          "--files-cap",   "1",    "--store-cap", "1",
        "--pool-min",  "2",          "--pool-tuning", "off",  NULL};
    struct room *room = *state;
    struct swarm *swarm;
    struct answer answer;

    room_start(room, options);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", blocking_body(room, 1));
    swarm_post(swarm, "/v1/compile", blocking_body(room, 2));
    until_busy(swarm, room, 2);
    swarm_until_lane(swarm, room, "compile-cpu", "running", 2);
    answer = time_out(room);
    expect_detail(&answer, "work waits while all 2 workers of the shared pool are busy", true);
    expect_detail(&answer, "may come from blocking elsewhere", true);
    expect_detail(&answer, "the monitor, which would raise the pool's minimum of 2, is off", true);
    assert_true(
        json_is_false(json_object_get(json_object_get(answer.json, "pool_monitor"), "raised")));
    answer_free(&answer);
    let_go(swarm, room);
    expect_all_ok(swarm);
    swarm_free(swarm);
    room_stop(room);
}

/* Control: the lane is busy and the pool is not. Broken when a slow compile is laid at the pool's
 * door. */
static void control_a_timeout_of_a_slow_compile_does_not(void **state)
{
    struct room *room = *state;
    struct answer answer;

    room_start(room, (const char *[]){"--lane-cap", "1", NULL});
    answer = post(room, slow_body(1, 20, 300));
    assert_int_equal(answer.status, 504);
    expect_detail(&answer, "give a larger timeout_ms", true);
    expect_detail(&answer, "blocking", false);
    /* one may: the service counts what is stored now and then */
    assert_true(number_of(json_object_get(answer.json, "pool"), "blocked") < 16);
    answer_free(&answer);
    room_stop(room);
}

/* Broken when the monitor does not count what an isolated compile uses, and takes CPUs that are
 * busy for idle ones; or counts on when the compile is over. */
static void the_monitor_counts_isolated_compiles(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;

    room_start(room, NULL);
    assert_true(metric(room, "millwright_pool_monitor_processes") == 0);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile", slow_body(1, 4000, 1500));
    swarm_until_metric(swarm, room, "millwright_pool_monitor_processes", 1);
    swarm_finish(swarm); /* its time is up */
    for (int looks = 0; metric(room, "millwright_pool_monitor_processes") > 0; looks++)
        assert_true(looks < LOOKS_MAX);
    swarm_free(swarm);
    room_stop(room);
}

/* ---- leaves that block say so ---- */

/* Broken when a write to the store that waits for another process is not told as blocked. */
static void a_write_that_waits_is_told_as_blocked(void **state)
{
    struct room *room = *state;
    char *path = in_room(room, "data/store.db");
    struct swarm *swarm;
    sqlite3 *other;

    room_start(room, NULL);
    for (int looks = 0; pool_number(room, "blocked") > 0; looks++) /* the warming of the start */
        assert_true(looks < LOOKS_MAX);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    (void)sqlite3_busy_timeout(other, 10000);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    swarm = swarm_new(&room->server);
    swarm_post(swarm, "/v1/compile",
               json_pack("{s:s, s:s, s:i}", "language", "c", "source", "int kept;\n", "timeout_ms",
                         PATIENT_MS));
    swarm_until_metric(swarm, room, "millwright_compile_ok_total", 1);
    swarm_until_metric(swarm, room, "millwright_pool_blocked", 1);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    swarm_finish(swarm);
    expect_all_ok(swarm);
    for (int looks = 0; pool_number(room, "blocked") > 0; looks++)
        assert_true(looks < LOOKS_MAX);
    swarm_free(swarm);
    free(path);
    room_stop(room);
}

/* ---- the probes ---- */

static json_t *probe_of(struct room *room, const char *member)
{
    json_t *part = ask_pools(room, member);
    json_t *probe = json_incref(json_object_get(part, "probe"));

    json_decref(part);
    return probe;
}

static void expect_probe(struct room *room, const char *member, const char *target)
{
    char name[96];
    json_t *probe = NULL;

    for (int looks = 0; number_of(probe, "arrived") < 3; looks++) {
        assert_true(looks < LOOKS_MAX);
        json_decref(probe);
        poll(NULL, 0, LOOK_MS);
        probe = probe_of(room, member);
    }
    assert_int_equal(number_of(probe, "interval_ms"), 5);
    assert_true(number_of(probe, "sent") >= number_of(probe, "arrived"));
    assert_true(real_of(probe, "max_ms") > 0);
    assert_true(real_of(probe, "max_ms") >= real_of(probe, "p50_ms"));
    json_decref(probe);
    snprintf(name, sizeof name, "millwright_probe_wait_seconds_count{target=\"%s\"}", target);
    assert_true(metric(room, name) >= 3);
    snprintf(name, sizeof name, "millwright_probe_wait_seconds_bucket{target=\"%s\",le=\"+Inf\"}",
             target);
    assert_true(metric(room, name) >= 3);
    snprintf(name, sizeof name, "millwright_probe_refused_total{target=\"%s\"}", target);
    assert_true(metric(room, name) == 0);
}

/* Broken when a probe does not run in a service that nobody configured, or is not shown. */
static void pool_and_loop_are_probed(void **state)
{
    struct room *room = *state;

    room_start(room, NULL);
    expect_probe(room, "pools", "pool");
    expect_probe(room, "loop", "loop");
    room_stop(room);
}

/* Broken when a pool that is stuck does not show in the probe at once, or when that of the loop
 * shows the pool's trouble. */
static void a_stuck_pool_shows_in_its_probe_only(void **state)
{
    struct room *room = *state;
    struct swarm *swarm = block_the_pool(
        room, (const char *[]){"--pool-tuning", "off", "--probe-interval-ms", "7", NULL});
    json_t *probe = probe_of(room, "pools");

    for (int turns = 0; real_of(probe, "in_flight_ms") < 200; turns++) {
        assert_true(turns < LOOKS_MAX);
        json_decref(probe);
        swarm_turn(swarm, LOOK_MS);
        probe = probe_of(room, "pools");
    }
    assert_int_equal(number_of(probe, "interval_ms"), 7);
    json_decref(probe);
    probe = probe_of(room, "loop");
    assert_true(number_of(probe, "arrived") > 3);
    json_decref(probe);
    let_go(swarm, room);
    swarm_free(swarm);
    room_stop(room);
}

/* Control: broken when an interval of 0 does not turn the probes off. */
static void control_no_probe_when_off(void **state)
{
    struct room *room = *state;
    struct answer answer;
    json_t *pool;

    room_start(room, (const char *[]){"--probe-interval-ms=0", NULL});
    pool = pool_of(room);
    assert_true(json_is_null(json_object_get(pool, "probe")));
    json_decref(pool);
    answer = ask(room, &(struct request){.path = "/metrics"});
    assert_int_equal(answer.status, 200);
    assert_null(strstr(answer.reply.body.data, "millwright_probe_"));
    assert_non_null(strstr(answer.reply.body.data, "\nmillwright_pool_blocked "));
    answer_free(&answer);
    room_stop(room);
}

#define IN_A_ROOM(test)         cmocka_unit_test_setup_teardown(test, setup, teardown)
#define UNTUNED_IN_A_ROOM(test) cmocka_unit_test_setup_teardown(test, setup_untuned, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNTUNED_IN_A_ROOM(the_most_explicit_source_sets_the_minimum),
        IN_A_ROOM(what_is_not_decimal_is_refused_three_times),
        IN_A_ROOM(a_minimum_above_the_maximum_is_refused),
        UNTUNED_IN_A_ROOM(a_request_sets_the_minimum_and_gives_it_back),
        UNTUNED_IN_A_ROOM(a_wrong_request_leaves_the_minimum),
        IN_A_ROOM(the_monitor_raises_while_workers_block_and_restores),
        IN_A_ROOM(control_the_setting_keeps_the_monitor_off),
        IN_A_ROOM(control_the_environment_keeps_the_monitor_off),
        IN_A_ROOM(the_environment_turns_the_monitor_on_too),
        IN_A_ROOM(a_timeout_behind_blocked_workers_says_so),
        IN_A_ROOM(control_a_timeout_of_a_slow_compile_does_not),
        IN_A_ROOM(the_monitor_counts_isolated_compiles),
        IN_A_ROOM(a_write_that_waits_is_told_as_blocked),
        IN_A_ROOM(pool_and_loop_are_probed),
        IN_A_ROOM(a_stuck_pool_shows_in_its_probe_only),
        IN_A_ROOM(control_no_probe_when_off),
    };

    return cmocka_run_group_tests_name("service.pools", tests, NULL, NULL);
}

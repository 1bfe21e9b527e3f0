/* probe_cli_test.c - `millwright probe`: the rows asked for, their form, and a clean end. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define ARGUMENTS_MAX 12

/* A run in the background: stdout and stderr in one file, temporary files in a folder of its own.
 */
struct run {
    pid_t pid;
    char *temporary;
    char *log;
};

static struct run start(const struct room *room, const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX + 3] = {program_path(), "probe"};
    struct run run = {.temporary = path_join(room->folder, "temporary"),
                      .log = path_join(room->folder, "printed.log")};

    for (size_t i = 0; arguments[i]; i++) {
        assert_true(i < ARGUMENTS_MAX);
        argv[i + 2] = arguments[i];
    }
    assert_int_equal(setenv("TMPDIR", run.temporary, 1), 0);
    file_write(run.log, "", 0);
    run.pid = process_start(room->folder, argv, "/dev/null", run.log);
    return run;
}

/* Expects the exit status, and returns what was printed, for free(). */
static char *finish(struct run *run, int status)
{
    int got = process_wait(run->pid);
    struct bytes text = file_read(run->log);

    if (got != status)
        fail_msg("exit status %d, expected %d; it printed '%s'", got, status, text.data);
    free(run->temporary);
    free(run->log);
    return text.data;
}

/* How many entries the folder of temporary files has. */
static unsigned entries(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2; /* "." and ".." */
}

/* The JSON that a run printed; the lines of progress come before it or around it. */
static json_t *json_of(const char *text)
{
    const char *begin = strstr(text, "\n{");
    json_t *json;

    begin = begin ? begin + 1 : text;
    json = json_loads(begin, JSON_DISABLE_EOF_CHECK, NULL);
    if (!json)
        fail_msg("no JSON in '%s'", text);
    return json;
}

static double number_in(const json_t *object, const char *outer, const char *member)
{
    const json_t *value = json_object_get(json_object_get(object, outer), member);

    if (!json_is_number(value))
        fail_msg("%s.%s is no number", outer, member);
    return json_number_value(value);
}

static void expect_waits(const json_t *row, const char *which)
{
    assert_true(number_in(row, which, "p50_ms") <= number_in(row, which, "p99_ms"));
    assert_true(number_in(row, which, "p99_ms") <= number_in(row, which, "max_ms"));
    assert_true(number_in(row, which, "max_ms") > 0);
    assert_true(number_in(row, which, "sent") > 0);
}

/* Broken when a row that was asked for is missing, another one is there, or its members are. */
static void the_rows_asked_for_are_there(void **state)
{
    static const struct {
        const char *lane;
        bool isolated, threads;
    } expected[] = {{"uv", false, false},  {"pool", false, false},     {"dedicated", false, false},
                    {"pool", true, false}, {"dedicated", true, false}, {"uv", false, true},
                    {"pool", false, true}, {"dedicated", false, true}};
    struct room *room = *state;
    struct run run =
        start(room, (const char *[]){"--emits", "1", "--seconds", "1", "--json", NULL});
    char *text = finish(&run, 0);
    json_t *json = json_of(text);
    json_t *rows = json_object_get(json, "rows");

    assert_int_equal(json_array_size(rows), COUNT(expected));
    assert_int_equal(json_array_size(json_object_get(json, "rolls")), 0);
    assert_false(json_boolean_value(json_object_get(json, "interrupted")));
    for (size_t i = 0; i < COUNT(expected); i++) {
        const json_t *row = json_array_get(rows, i);

        assert_string_equal(text_of(row, "lane"), expected[i].lane);
        assert_int_equal(json_boolean_value(json_object_get(row, "isolated")),
                         expected[i].isolated);
        assert_int_equal(json_boolean_value(json_object_get(row, "compiler_threads")),
                         expected[i].threads);
        assert_int_equal(number_of(row, "emits"), 1);
        expect_waits(row, "probe");
        expect_waits(row, "loop");
    }
    json_decref(json);
    free(text);
}

/* Broken when "on" starts no thread for each parse, or "off" starts any. */
static void compiler_threads_are_started_when_on_and_only_then(void **state)
{
    struct room *room = *state;

    for (int on = 0; on <= 1; on++) {
        struct run run = start(room, (const char *[]){"--emits", "2", "--lane", "dedicated",
                                                      "--compiler-threads", on ? "on" : "off",
                                                      "--seconds", "120", "--json", NULL});
        char *text = finish(&run, 0);
        json_t *json = json_of(text);
        const json_t *row = json_array_get(json_object_get(json, "rows"), 0);

        assert_true(number_of(row, "compiled") >= 2);
        assert_int_equal(number_of(row, "compiler_threads_started"),
                         on ? number_of(row, "compiled") : 0);
        assert_true(json_is_number(json_object_get(row, "batch_ms")));
        json_decref(json);
        free(text);
    }
}

/* Broken when an isolated emit runs in the probe's own process, or one that is not has another. */
static void isolated_emits_have_processes_of_their_own(void **state)
{
    struct room *room = *state;

    for (int isolated = 0; isolated <= 1; isolated++) {
        struct run run = start(room, (const char *[]){"--emits", "2", "--lane", "dedicated",
                                                      "--compiler-threads", "off", "--isolation",
                                                      isolated ? "isolated" : "in-process",
                                                      "--seconds", "120", "--json", NULL});
        char *text = finish(&run, 0);
        json_t *json = json_of(text);
        json_t *rows = json_object_get(json, "rows");
        const json_t *row = json_array_get(rows, 0);

        assert_int_equal(json_array_size(rows), 1);
        assert_int_equal(json_boolean_value(json_object_get(row, "isolated")), isolated);
        assert_true(number_of(row, "compiled") >= 2);
        if (isolated)
            assert_true(number_of(row, "processes_started") >= number_of(row, "compiled"));
        else
            assert_int_equal(number_of(row, "processes_started"), 0);
        expect_waits(row, "probe");
        json_decref(json);
        free(text);
    }
}

/* Broken when a changed compiler finds what the former one stored (then nothing was stale), or what
 * was stored is not found before the change (the control). */
static void a_changed_compiler_finds_nothing_that_was_stored(void **state)
{
    struct room *room = *state;

    for (int isolated = 0; isolated <= 1; isolated++) {
        struct run run =
            start(room, (const char *[]){"--lane", "dedicated", "--compiler-threads", "off",
                                         "--isolation", isolated ? "isolated" : "in-process",
                                         "--seconds", "5", "--json", NULL});
        char *text = finish(&run, 0);
        json_t *json = json_of(text);
        json_t *rolls = json_object_get(json, "rolls");
        const json_t *roll = json_array_get(rolls, 0);
        json_int_t count = number_of(roll, "emits");

        assert_int_equal(json_array_size(json_object_get(json, "rows")), 5);
        assert_int_equal(json_array_size(rolls), 1);
        assert_int_equal(json_boolean_value(json_object_get(roll, "isolated")), isolated);
        assert_true(count >= 300);
        assert_int_equal(number_of(roll, "found_before"), count);
        assert_int_equal(number_of(roll, "found_after"), 0);
        if (!json_boolean_value(json_object_get(roll, "cut"))) /* on a slow machine it may be */
            assert_int_equal(number_of(roll, "compiled"), count);
        assert_int_equal(number_of(roll, "processes_started") > 0, isolated);
        expect_waits(roll, "probe");
        json_decref(json);
        free(text);
    }
}

/* Broken when the table lacks a row, or its bar. */
static void the_table_is_for_people(void **state)
{
    struct room *room = *state;
    struct run run =
        start(room, (const char *[]){"--emits", "0", "--compiler-threads", "off", NULL});
    char *text = finish(&run, 0);

    assert_non_null(strstr(text, "\nCompiler threads off: "));
    assert_non_null(strstr(text, "\n   0  uv_queue_work "));
    assert_non_null(strstr(text, "\n   0  lane          "));
    assert_non_null(strstr(text, "\n   0  lane isolated "));
    assert_null(strstr(text, "Compiler threads on: "));
    assert_non_null(strstr(text, "probe: 1 of 5: 0 emits on uv_queue_work"));
    assert_non_null(strstr(text, "probe: 4 of 5: 0 emits on pool isolated"));
    free(text);
}

/* Waits until the log has `says`. */
static void await_log(const struct run *run, const char *says)
{
    for (unsigned tries = 0; tries < 6000; tries++) {
        struct bytes text = file_read(run->log);
        bool there = strstr(text.data, says) != NULL;

        free(text.data);
        if (there)
            return;
        usleep(10000);
    }
    fail_msg("'%s' did not come", says);
}

/* Broken when a signal loses the rows that are finished, or leaves files or processes behind. */
static void a_signal_ends_it_with_what_it_has(void **state)
{
    static const struct {
        int number, status;
        const char *form;
    } cases[] = {{SIGINT, 130, "--json"}, {SIGTERM, 143, "--json"}, {SIGINT, 130, NULL}};
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct run run = start(room, (const char *[]){"--lane", "dedicated", "--compiler-threads",
                                                      "on", cases[i].form, NULL});
        char *temporary = strdup(run.temporary);
        char *text;

        await_log(&run, "probe: 2 of 5");
        assert_int_equal(entries(temporary) <= 1, 1);
        assert_int_equal(kill(run.pid, cases[i].number), 0);
        text = finish(&run, cases[i].status);
        if (cases[i].form) {
            json_t *json = json_of(text);

            assert_true(json_boolean_value(json_object_get(json, "interrupted")));
            assert_in_range(json_array_size(json_object_get(json, "rows")), 2, 4);
            json_decref(json);
        } else {
            assert_non_null(strstr(text, "\n   1  lane "));
            assert_non_null(strstr(text, "of 5 rows."));
        }
        assert_int_equal(entries(temporary), 0);
        free(temporary);
        free(text);
    }
}

/* Broken when a folder for temporary files is left behind by a run that ended by itself. */
static void nothing_is_left_behind(void **state)
{
    struct room *room = *state;
    struct run run =
        start(room, (const char *[]){"--emits", "1", "--lane", "pool", "--seconds", "1", NULL});
    char *temporary = strdup(run.temporary);

    free(finish(&run, 0));
    assert_int_equal(entries(temporary), 0);
    free(temporary);
}

/* Broken when a mistake is not named, or exits with another status. */
static void mistakes_are_named(void **state)
{
    static const struct {
        const char *arguments[5];
        int status;
        const char *says;
    } cases[] = {
        {{"--emits", "1F4"}, 2, "millwright probe: --emits must be a decimal number"},
        {{"--emits", "1025"}, 2, "from 0 to 1024"},
        {{"--lane", "cpu"}, 2, "--lane must be one of dedicated|pool|uv"},
        {{"--isolation", "on"}, 2, "--isolation must be one of isolated|in-process"},
        {{"--isolation", "isolated", "--lane", "uv"}, 2, "no row is all of that"},
        {{"--compiler-threads", "yes"}, 2, "--compiler-threads must be one of on|off"},
        {{"--seconds", "0"}, 2, "--seconds must be a decimal number"},
        {{"--no-such"}, 2, "--no-such is no option"},
        {{"stray"}, 2, "takes no argument 'stray'"},
        {{"--help"}, 0, "usage: millwright probe [OPTION...]"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct run run = start(room, cases[i].arguments);
        char *text = finish(&run, cases[i].status);

        if (!strstr(text, cases[i].says))
            fail_msg("it printed '%s', expected '%s'", text, cases[i].says);
        free(text);
    }
}

/* Broken when a row that cannot run passes for one that did. */
static void a_row_that_fails_is_told(void **state)
{
    struct room *room = *state;
    struct run run = start(room, (const char *[]){"--help", NULL});
    char *missing = path_join(room->folder, "missing");
    const char *const argv[] = {program_path(), "probe", "--emits", "0", "--lane", "uv", NULL};
    char *text;

    free(finish(&run, 0));
    run = (struct run){.temporary = strdup(""), .log = path_join(room->folder, "printed.log")};
    assert_int_equal(setenv("TMPDIR", missing, 1), 0);
    run.pid = process_start(room->folder, argv, "/dev/null", run.log);
    text = finish(&run, 1);
    assert_non_null(strstr(text, "failed: no folder in "));
    assert_non_null(strstr(text, "set TMPDIR"));
    free(missing);
    free(text);
}

static int setup(void **state)
{
    int error = room_setup(state);
    char *temporary;

    if (error)
        return error;
    temporary = path_join(((struct room *)*state)->folder, "temporary");
    error = mkdir(temporary, 0700);
    free(temporary);
    return error;
}

static int teardown(void **state)
{
    unsetenv("TMPDIR");
    return room_teardown(state);
}

int main(void)
{
#define IN_A_ROOM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_A_ROOM(the_rows_asked_for_are_there),
        IN_A_ROOM(compiler_threads_are_started_when_on_and_only_then),
        IN_A_ROOM(isolated_emits_have_processes_of_their_own),
        IN_A_ROOM(a_changed_compiler_finds_nothing_that_was_stored),
        IN_A_ROOM(the_table_is_for_people),
        IN_A_ROOM(a_signal_ends_it_with_what_it_has),
        IN_A_ROOM(nothing_is_left_behind),
        IN_A_ROOM(mistakes_are_named),
        IN_A_ROOM(a_row_that_fails_is_told),
    };

    return cmocka_run_group_tests_name("service.probe_cli", tests, NULL, NULL);
}

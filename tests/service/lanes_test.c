/* lanes_test.c - the lanes of the service by name: their options from the command line and the
 * config file, what GET /v1/lanes shows of them, and the leak audit of GET /v1/audit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void write_in(const struct room *room, const char *name, const char *text)
{
    char *path = path_join(room->folder, name);

    file_write(path, text, strlen(text));
    free(path);
}

static void compile_one(struct room *room)
{
    struct answer answer =
        post(room, json_pack("{s:s, s:s}", "language", "c", "source", "int audited;\n"));

    assert_int_equal(answer.status, 200);
    answer_free(&answer);
}

static json_t *audit_of(struct room *room)
{
    struct answer answer = ask(room, &(struct request){.path = "/v1/audit"});
    json_t *audit = json_incref(answer.json);

    assert_int_equal(answer.status, 200);
    assert_non_null(audit);
    answer_free(&answer);
    return audit;
}

/* Broken when a lane is missing, or they are shown in another order than the documented. */
static void every_lane_is_shown(void **state)
{
    static const char *const names[] = {"compile-cpu", "compile", "files", "store"};
    struct answer answer = ask(*state, &(struct request){.path = "/v1/lanes"});
    const json_t *lanes = json_object_get(answer.json, "lanes");

    assert_int_equal(json_array_size(lanes), COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++) {
        const json_t *lane = json_array_get(lanes, i);

        assert_string_equal(text_of(lane, "name"), names[i]);
        assert_string_equal(text_of(lane, "runner"), i == 0 ? "dedicated" : "pool");
        assert_true(number_of(lane, "waiting_for_worker") >= 0); /* housekeeping may wait */
        assert_true(json_is_real(json_object_get(lane, "slot_wait_p99_ms")));
        assert_true(json_is_real(json_object_get(lane, "worker_wait_p99_ms")));
        assert_int_equal(number_of(lane, "queued_interactive"), 0);
        assert_int_equal(number_of(lane, "queued_normal"), 0);
        assert_int_equal(number_of(lane, "queued_batch"), 0);
    }
    answer_free(&answer);
}

/* Broken when an option of a lane does not reach it, lands on another, or loses to a weaker one. */
static void options_reach_their_lanes(void **state)
{
    struct room *room = *state;
    char *path = path_join(room->folder, "lanes.ini");

    write_in(room, "lanes.ini",
             "[serve]\nfiles-cap = 2\n"
             "[lane files]\ncap = 3\nqueue = 77\n"
             "[lane store]\ncap = 5\n"
             "[lane compile-cpu]\nlinger-ms = 100\nspin-us = 1\nurgency = equal\n");
    room_start(room, (const char *[]){"--config", path, "--lane-cap", "7", "--lane",
                                      "compile-cpu.cap=2", "--lane=store.cap=6", NULL});
    free(path);
    assert_int_equal(lane_number(room, "files", "cap"), 3);
    assert_int_equal(lane_number(room, "files", "queue_max"), 77);
    assert_int_equal(lane_number(room, "store", "cap"), 6);
    assert_int_equal(lane_number(room, "compile-cpu", "cap"), 2);
    assert_int_equal(lane_number(room, "compile", "cap"), 4);
    compile_one(room);
}

/* What `millwright serve` says and ends with, given these options (up to a NULL). */
static void expect_refusal(struct room *room, const char *const *options, int status,
                           const char *says)
{
    const char *argv[16] = {program_path(), "serve",  "--listen",
                            "unix:refused", "--data", "refused"};
    char *log = path_join(room->folder, "refused.log");
    struct bytes text;

    for (size_t i = 0; options[i]; i++)
        argv[6 + i] = options[i];
    assert_int_equal(process_run(room->folder, argv, "/dev/null", log), status);
    text = file_read(log);
    if (!bytes_contain(&text, says))
        fail_msg("'%.*s' does not say '%s'", (int)text.count, text.data, says);
    free(text.data);
    free(log);
}

/* Broken when the service starts with lanes other than those asked for, or with lanes that can
 * starve each other. */
static void wrong_lanes_are_refused(void **state)
{
    static const struct {
        const char *options[5];
        int status;
        const char *says;
    } cases[] = {
        {{"--lane", "fles.cap=2"},
         2,
         "--lane fles.cap is for a lane 'fles', which there is not; there are compile-cpu, "
         "compile, files, store"},
        {{"--lane", "files.cap=1F4"}, 2, "must be a decimal number from 1 to 1024, not '1F4'"},
        {{"--lane", "files.urgency=idle"}, 2, "is for lanes with threads of their own"},
        {{"--lane", "files.runner=dedicated"}, 2, "is no option of a lane; there are cap"},
        {{"--config", "wrong.ini"},
         2,
         "wrong.ini: line 3: spin-us must be a decimal number from 0 "
         "to 10, not '11'"},
        {{"--pool-max", "10", "--lane", "compile.cap=10"},
         1,
         "lane 'compile' has a cap of 10 and its leaves may wait; with 0 of other such lanes that "
         "is 10, which must be less than the 10 threads of the shared pool"},
        {{"--lane", "files.cap=13"}, 1, "files-cap 13 and store-cap 4 together are more than"},
    };

    write_in(*state, "wrong.ini", "[lane compile-cpu]\ncap = 2\nspin-us = 11\n");
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_refusal(*state, cases[i].options, cases[i].status, cases[i].says);
}

/* Broken when a compile leaks, when the audit calls honest work a leak, or when it does not see
 * thread starts at all. */
static void audit_of_honest_compiles_has_no_finding(void **state)
{
    static const char *const none[] = {"wrong_expectations", "strayed", "escapes", "thread_starts",
                                       "foreign_starts"};
    json_t *audit;

    compile_one(*state);
    audit = audit_of(*state);
    if (!json_is_null(json_object_get(audit, "finding")))
        fail_msg("finding: %s", text_of(audit, "finding"));
    for (size_t i = 0; i < COUNT(none); i++)
        assert_int_equal(number_of(audit, none[i]), 0);
    assert_int_equal(number_of(audit, "expectations"), 1);
    assert_true(json_is_true(json_object_get(audit, "foreign_starts_seen")));
    assert_null(json_object_get(audit, "census_error"));
    assert_int_equal(number_of(json_object_get(audit, "threads"), "mw-loop"), 1);
    assert_int_equal(number_of(json_object_get(audit, "threads"), "mw-cpu-lane"), 1);
    assert_true(number_of(json_object_get(audit, "threads"), "mw-pool") > 0);
    assert_int_equal(number_of(audit, "strangers"),
                     json_array_size(json_object_get(audit, "stranger_list")));
    json_decref(audit);
}

/* Broken when a number of the audit is not a metric too, or they differ. */
static void audit_is_in_the_metrics(void **state)
{
    struct room *room = *state;

    compile_one(room);
    assert_true(metric(room, "millwright_audit_expectations_total") == 1);
    assert_true(metric(room, "millwright_audit_wrong_expectations_total") == 0);
    assert_true(metric(room, "millwright_audit_strayed_total") == 0);
    assert_true(metric(room, "millwright_audit_thread_starts_total") == 0);
    assert_true(metric(room, "millwright_audit_foreign_starts_total") == 0);
    assert_true(metric(room, "millwright_audit_tasks") >= 3);
    assert_true(metric(room, "millwright_threads{kind=\"mw-loop\"}") == 1);
    assert_true(metric(room, "millwright_threads{kind=\"mw-cpu-lane\"}") == 1);
    assert_true(metric(room, "millwright_audit_heirs{kind=\"mw-cpu-lane\"}") == 0);
}

/* Control: the same compile with the lane on the pool's workers. Broken when the audit cannot tell.
 */
static void control_lane_on_the_pool_is_found(void **state)
{
    struct room *room = *state;
    json_t *audit;

    room_start(room, (const char *[]){"--emit-lane", "pool", NULL});
    compile_one(room);
    audit = audit_of(room);
    assert_string_equal(text_of(audit, "finding"),
                        "leaves that compute and ran on other threads than a lane's own: 1");
    assert_int_equal(number_of(audit, "strayed"), 1);
    assert_int_equal(number_of(audit, "wrong_expectations"), 1);
    assert_int_equal(number_of(json_object_get(audit, "threads"), "mw-cpu-lane"), 0);
    json_decref(audit);
    assert_true(metric(room, "millwright_audit_strayed_total") == 1);
    assert_true(metric(room, "millwright_audit_wrong_expectations_total") == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_lane_is_shown, room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(options_reach_their_lanes, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(wrong_lanes_are_refused, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(audit_of_honest_compiles_has_no_finding, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(audit_is_in_the_metrics, room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(control_lane_on_the_pool_is_found, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

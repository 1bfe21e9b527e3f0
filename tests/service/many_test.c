/* many_test.c - hundreds of distinct compiles at once: every answer right, the threads bounded,
 * clang on the lane's own threads only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "service/support.h"
#include "service/swarm.h"

#define COMPILES 300
#define LANE_CAP 2
#define POOL_MAX 10
/* The loop (HTTP, timers and signals need no thread of their own), the pool's gate and monitor, and
 * the two probes. */
#define THREADS_BESIDE   5
#define CONTROL_COMPILES 8
#define TURN_MS          5

static const char *const bounded[] = {"--lane-cap", "2", "--pool-max", "10", NULL};
static const char *const bounded_on_pool[] = {"--lane-cap",  "2",    "--pool-max", "10",
                                              "--emit-lane", "pool", NULL};

/* A source of its own for each number; every third includes a header of the request. */
static json_t *body_of(unsigned number)
{
    char source[256];
    json_t *files;

    snprintf(source, sizeof source,
             "#include <string.h>\n%s"
             "unsigned long many_%03u_(const char *s) { return strlen(s) + %u; }\n",
             number % 3 == 0 ? "#include \"own.h\"\n" : "", number, number);
    files = json_pack("[{s:s, s:s}]", "name", number % 2 ? "m.cc" : "m.c", "content", source);
    if (number % 3 == 0)
        json_array_append_new(
            files, json_pack("{s:s, s:s}", "name", "own.h", "content", "#define OWN 1\n"));
    return json_pack("{s:o, s:s, s:[s], s:i}", "files", files, "main", number % 2 ? "m.cc" : "m.c",
                     "args", "-O1", "timeout_ms", PATIENT_MS);
}

/* Expects the answer to `number` to hold its own object. Returns the answer's thread, static. */
static const char *expect_own_object(struct swarm *swarm, size_t number)
{
    static char thread[32];
    long status;
    json_t *json = swarm_json(swarm, number, &status);
    struct bytes object;
    char symbol[32];

    if (status != 200 || strcmp(text_of(json, "status"), "ok") != 0)
        fail_msg("compile %zu: %ld %s", number, status, text_of(json, "detail"));
    object = base64_bytes(json_object_get(json_object_get(json, "artifact"), "base64"));
    snprintf(symbol, sizeof symbol, "many_%03zu_", number);
    if (!bytes_contain(&object, symbol))
        fail_msg("the answer to compile %zu is another's object", number);
    free(object.data);
    snprintf(thread, sizeof thread, "%s", text_of(json, "thread"));
    json_decref(json);
    return thread;
}

/* Sends `count` compiles at once and turns until all are answered; returns the most threads seen
 * in the service. */
static unsigned compile_at_once(struct swarm *swarm, unsigned count)
{
    unsigned most = 0, running;

    for (unsigned i = 0; i < count; i++)
        swarm_post(swarm, "/v1/compile?include=artifact", body_of(i));
    do {
        unsigned threads = process_threads(swarm->server->pid);

        running = swarm_turn(swarm, TURN_MS);
        most = threads > most ? threads : most;
    } while (running > 0);
    return most;
}

/* Expect `count` leaves in a counter of the lane, beside those that made preambles, which may come
 * to their end a little later. */
static void expect_leaves(struct room *room, const char *member, json_int_t count)
{
    const unsigned looks_max = 30000; /* far above what a slow machine needs */
    json_int_t leaves = -1;

    for (unsigned looks = 0; looks < looks_max && leaves != count; looks++) {
        if (looks > 0)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        leaves = lane_number(room, "compile-cpu", member) -
                 (json_int_t)metric(room, "millwright_preambles_built_total") -
                 (json_int_t)metric(room, "millwright_preambles_failed_total");
    }
    assert_int_equal(leaves, count);
}

/* Broken when answers are mixed up, a queue loses one, threads grow with the load, more leaves run
 * than the cap, or a leaf runs on a pool worker. */
static void hundreds_of_compiles_are_right_on_bounded_threads(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;
    unsigned most;

    room_start(room, bounded);
    swarm = swarm_new(&room->server);
    most = compile_at_once(swarm, COMPILES);
    for (size_t i = 0; i < COMPILES; i++)
        assert_string_equal(expect_own_object(swarm, i), "mw-cpu-lane");
    if (most > LANE_CAP + POOL_MAX + THREADS_BESIDE)
        fail_msg("%u threads were seen, at most %u + %u + %u may be", most, LANE_CAP, POOL_MAX,
                 THREADS_BESIDE);
    expect_leaves(room, "started", COMPILES);
    expect_leaves(room, "ran_on_lane", COMPILES);
    assert_int_equal(lane_number(room, "compile-cpu", "ran_on_pool"), 0);
    assert_true(lane_number(room, "compile-cpu", "running_peak") <= LANE_CAP);
    assert_true(metric(room, "millwright_leaf_escapes_total") == 0);
    swarm_free(swarm);

    /* and once more: all from the store, without a leaf */
    swarm = swarm_new(&room->server);
    compile_at_once(swarm, COMPILES);
    for (size_t i = 0; i < COMPILES; i++)
        assert_string_equal(expect_own_object(swarm, i), "");
    expect_leaves(room, "started", COMPILES);
    swarm_free(swarm);
    room_stop(room);
}

/* The control: leaves that do run on pool workers are seen as such in the numbers and answers. */
static void leaves_on_pool_workers_are_noticed(void **state)
{
    struct room *room = *state;
    struct swarm *swarm;

    room_start(room, bounded_on_pool);
    swarm = swarm_new(&room->server);
    compile_at_once(swarm, CONTROL_COMPILES);
    for (size_t i = 0; i < CONTROL_COMPILES; i++)
        assert_string_equal(expect_own_object(swarm, i), "mw-pool");
    expect_leaves(room, "ran_on_pool", CONTROL_COMPILES);
    assert_int_equal(lane_number(room, "compile-cpu", "ran_on_lane"), 0);
    swarm_free(swarm);
    room_stop(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hundreds_of_compiles_are_right_on_bounded_threads,
                                        room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(leaves_on_pool_workers_are_noticed, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.many", tests, NULL, NULL);
}

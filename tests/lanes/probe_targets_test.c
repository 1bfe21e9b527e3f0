/* probe_targets_test.c - a lane, a libuv loop and libuv's workers as targets of the probe: each
 * shows it when it is stuck, and gives back what is in flight. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/probe_targets.h>

#include "pools/support.h"

#define INTERVAL_MS 1u
#define INTERVAL_NS (INTERVAL_MS * MW_NS_PER_MS)
#define UV_WORKERS  2u

/* What keeps a lane or libuv's workers busy until the gate opens. */
struct holder {
    struct mw_job job; /* first, so that fn can cast */
    uv_work_t req;
};

static struct counter waiting, gate;

static int group_setup(void **state)
{
    (void)state;
    return setenv("UV_THREADPOOL_SIZE", "2", 1); /* UV_WORKERS; read when they are first used */
}

static int setup(void **state)
{
    (void)state;
    counter_init(&waiting);
    counter_init(&gate);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    counter_fini(&gate);
    counter_fini(&waiting);
    return 0;
}

static int hold_lane(struct mw_job *job)
{
    (void)job;
    counter_add(&waiting, 1);
    counter_await(&gate, 1);
    return 0;
}

static void hold_worker(uv_work_t *req)
{
    (void)req;
    counter_add(&waiting, 1);
    counter_await(&gate, 1);
}

static struct mw_probe_stats stats_of(const struct mw_probe *probe)
{
    struct mw_probe_stats stats;

    mw_probe_snapshot(probe, &stats);
    return stats;
}

static void expect_in_time(uint64_t begin_ns)
{
    assert_true(mw_clock_ns() < begin_ns + SUPPORT_WAIT_S * MW_NS_PER_S);
    usleep(1000);
}

static void await_arrived(const struct mw_probe *probe, uint64_t count)
{
    uint64_t begin_ns = mw_clock_ns();

    while (stats_of(probe).arrived < count)
        expect_in_time(begin_ns);
}

/* The item in flight grows old, and none arrives meanwhile. */
static void expect_stuck(const struct mw_probe *probe)
{
    uint64_t begin_ns = mw_clock_ns();
    uint64_t arrived;

    while (stats_of(probe).in_flight_ns < 10 * INTERVAL_NS)
        expect_in_time(begin_ns);
    arrived = stats_of(probe).arrived;
    while (stats_of(probe).in_flight_ns < 20 * INTERVAL_NS)
        expect_in_time(begin_ns);
    assert_int_equal(stats_of(probe).arrived, arrived);
}

/* ---- a lane ---- */

/* Broken when items do not run on the lane, or a lane that is held looks healthy. */
static void a_lane_is_probed_and_shows_when_it_is_held(void **state)
{
    struct mw_lane_options options = {.name = "probed", .cap = 1};
    struct holder holder = {.job = {.fn = hold_lane}};
    struct mw_probe_lane target;
    struct mw_lane_stats stats;
    struct mw_probe *probe;
    struct mw_lane *lane;

    (void)state;
    assert_int_equal(mw_lane_new(&lane, &options), 0);
    mw_probe_lane_init(&target, lane, MW_JOB_NORMAL, 0);
    assert_int_equal(mw_probe_new(&probe, &target.target, INTERVAL_MS), 0);
    await_arrived(probe, 2 * MW_PROBE_TARGET_ITEMS); /* each item comes back into use */
    assert_int_equal(stats_of(probe).refused, 0);
    mw_lane_snapshot(lane, &stats);
    assert_true(stats.ran_on_lane >= 2 * MW_PROBE_TARGET_ITEMS);

    assert_int_equal(mw_lane_submit(lane, &holder.job), 0);
    assert_true(counter_await(&waiting, 1));
    expect_stuck(probe);
    counter_add(&gate, 1);
    await_arrived(probe, stats_of(probe).arrived + 2);
    mw_probe_free(probe);
    mw_lane_free(lane, false);
}

/* Broken when a probe cannot be freed while its item waits in a held lane: it is taken back. */
static void an_item_that_waits_in_a_lane_is_taken_back(void **state)
{
    struct mw_lane_options options = {.name = "held", .cap = 1};
    struct holder holder = {.job = {.fn = hold_lane}};
    struct mw_probe_lane target;
    struct mw_lane_stats stats;
    struct mw_probe *probe;
    struct mw_lane *lane;

    (void)state;
    assert_int_equal(mw_lane_new(&lane, &options), 0);
    assert_int_equal(mw_lane_submit(lane, &holder.job), 0);
    assert_true(counter_await(&waiting, 1));
    mw_probe_lane_init(&target, lane, MW_JOB_NORMAL, 0);
    assert_int_equal(mw_probe_new(&probe, &target.target, INTERVAL_MS), 0);
    expect_stuck(probe);
    mw_probe_free(probe); /* and the holder still holds */
    mw_lane_snapshot(lane, &stats);
    assert_int_equal(stats.cancelled, 1);
    assert_int_equal(stats.queued, 0);
    counter_add(&gate, 1);
    mw_lane_free(lane, false);
}

/* Broken when the items do not have the priority and tenant that they were given. */
static void items_have_the_priority_that_was_asked_for(void **state)
{
    struct mw_lane_options options = {.name = "held", .cap = 1, .tenants_max = 2};
    struct holder holder = {.job = {.fn = hold_lane}};
    struct mw_probe_lane target;
    struct mw_lane_stats stats;
    struct mw_probe *probe;
    struct mw_lane *lane;

    (void)state;
    assert_int_equal(mw_lane_new(&lane, &options), 0);
    assert_int_equal(mw_lane_submit(lane, &holder.job), 0);
    assert_true(counter_await(&waiting, 1));
    mw_probe_lane_init(&target, lane, MW_JOB_INTERACTIVE, 1);
    assert_int_equal(target.items[MW_PROBE_TARGET_ITEMS - 1].job.tenant, 1);
    assert_int_equal(mw_probe_new(&probe, &target.target, INTERVAL_MS), 0);
    expect_stuck(probe);
    mw_lane_snapshot(lane, &stats);
    assert_int_equal(stats.queued_by_priority[MW_JOB_INTERACTIVE], 1);
    mw_probe_free(probe);
    counter_add(&gate, 1);
    mw_lane_free(lane, false);
}

/* ---- a libuv loop ---- */

struct loop_scene {
    uv_loop_t loop;
    uv_async_t work; /* keeps the loop alive; holds it, or stops it */
    struct mw_probe_uv_loop target;
    pthread_t thread;
    _Atomic int to_hold; /* relaxed: the async orders */
    unsigned closed;
};

static void on_work(uv_async_t *async)
{
    struct loop_scene *scene = async->data;

    if (!atomic_load_explicit(&scene->to_hold, memory_order_relaxed)) {
        uv_stop(&scene->loop);
        return;
    }
    atomic_store_explicit(&scene->to_hold, 0, memory_order_relaxed);
    counter_add(&waiting, 1);
    counter_await(&gate, 1);
}

static void *turn(void *arg)
{
    uv_run(&((struct loop_scene *)arg)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void loop_open(struct loop_scene *scene)
{
    memset(scene, 0, sizeof *scene);
    assert_int_equal(uv_loop_init(&scene->loop), 0);
    assert_int_equal(uv_async_init(&scene->loop, &scene->work, on_work), 0);
    scene->work.data = scene;
    assert_int_equal(mw_probe_uv_loop_init(&scene->target, &scene->loop), 0);
    scene->target.data = scene;
}

static void note_closed(struct mw_probe_uv_loop *target)
{
    ((struct loop_scene *)target->data)->closed++;
}

static void loop_close(struct loop_scene *scene)
{
    mw_probe_uv_loop_close(&scene->target, note_closed);
    uv_close((uv_handle_t *)&scene->work, NULL);
    uv_run(&scene->loop, UV_RUN_DEFAULT);
    assert_int_equal(scene->closed, 1);
    assert_int_equal(uv_loop_close(&scene->loop), 0);
}

/* Broken when a loop that turns is not seen to, or one that is held in a callback looks healthy. */
static void a_loop_is_probed_and_shows_when_it_is_held(void **state)
{
    struct loop_scene scene;
    struct mw_probe *probe;

    (void)state;
    loop_open(&scene);
    assert_int_equal(pthread_create(&scene.thread, NULL, turn, &scene), 0);
    assert_int_equal(mw_probe_new(&probe, &scene.target.target, INTERVAL_MS), 0);
    await_arrived(probe, 10);
    atomic_store_explicit(&scene.to_hold, 1, memory_order_relaxed);
    uv_async_send(&scene.work);
    assert_true(counter_await(&waiting, 1));
    expect_stuck(probe);
    counter_add(&gate, 1);
    await_arrived(probe, stats_of(probe).arrived + 2);
    mw_probe_free(probe); /* while the loop turns */
    uv_async_send(&scene.work);
    assert_int_equal(pthread_join(scene.thread, NULL), 0);
    loop_close(&scene);
}

/* Broken when a probe on a loop that does not turn any more can never be freed. */
static void an_item_that_waits_for_a_loop_is_taken_back(void **state)
{
    struct loop_scene scene;
    struct mw_probe *probe;

    (void)state;
    loop_open(&scene);
    assert_int_equal(mw_probe_new(&probe, &scene.target.target, INTERVAL_MS), 0);
    expect_stuck(probe);
    mw_probe_free(probe);
    loop_close(&scene); /* and on_due finds nothing */
}

/* Broken when the target keeps a loop alive that has nothing else to do. */
static void a_probed_loop_may_end(void **state)
{
    struct mw_probe_uv_loop target;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(mw_probe_uv_loop_init(&target, &loop), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    mw_probe_uv_loop_close(&target, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- libuv's workers ---- */

/* Broken when libuv's workers are not probed, or look healthy while another loop's work holds all
 * of them. */
static void the_workers_are_probed_and_show_when_they_are_held(void **state)
{
    struct holder holders[UV_WORKERS];
    struct mw_probe_uv_workers target;
    struct mw_probe *probe;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(mw_probe_uv_workers_init(&target), 0);
    assert_int_equal(mw_probe_new(&probe, &target.target, INTERVAL_MS), 0);
    await_arrived(probe, 2 * MW_PROBE_TARGET_ITEMS); /* each item comes back into use */
    for (unsigned i = 0; i < UV_WORKERS; i++)
        assert_int_equal(uv_queue_work(&loop, &holders[i].req, hold_worker, NULL), 0);
    assert_true(counter_await(&waiting, UV_WORKERS));
    expect_stuck(probe);
    counter_add(&gate, 1);
    await_arrived(probe, stats_of(probe).arrived + 2);
    mw_probe_free(probe);
    mw_probe_uv_workers_fini(&target);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Broken when a probe cannot be freed while its item waits for a worker. */
static void an_item_that_waits_for_a_worker_is_taken_back(void **state)
{
    struct holder holders[UV_WORKERS];
    struct mw_probe_uv_workers target;
    struct mw_probe *probe;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    for (unsigned i = 0; i < UV_WORKERS; i++)
        assert_int_equal(uv_queue_work(&loop, &holders[i].req, hold_worker, NULL), 0);
    assert_true(counter_await(&waiting, UV_WORKERS));
    assert_int_equal(mw_probe_uv_workers_init(&target), 0);
    assert_int_equal(mw_probe_new(&probe, &target.target, INTERVAL_MS), 0);
    expect_stuck(probe);
    mw_probe_free(probe); /* and the holders still hold */
    mw_probe_uv_workers_fini(&target);
    counter_add(&gate, 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
#define HELD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        HELD(a_lane_is_probed_and_shows_when_it_is_held),
        HELD(an_item_that_waits_in_a_lane_is_taken_back),
        HELD(items_have_the_priority_that_was_asked_for),
        HELD(a_loop_is_probed_and_shows_when_it_is_held),
        HELD(an_item_that_waits_for_a_loop_is_taken_back),
        HELD(a_probed_loop_may_end),
        HELD(the_workers_are_probed_and_show_when_they_are_held),
        HELD(an_item_that_waits_for_a_worker_is_taken_back),
    };

    return cmocka_run_group_tests_name("lanes.probe_targets", tests, group_setup, NULL);
}

/* probe_test.c - the probe sees a pool that is stuck, counts what it missed, and ends cleanly. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/probe.h>

#include "pools/support.h"
#include "pools/thread_starts.h"
#include "probe_internal.h"

#define INTERVAL_MS 1u
#define INTERVAL_NS (INTERVAL_MS * MW_NS_PER_MS)
#define WORKERS     2u

/* A pool whose workers the test can hold at a gate, and a probe on it. */
struct scene {
    struct mw_pool *pool;
    struct mw_probe_pool target;
    struct mw_probe *probe;
    struct counter gate;
    struct counter waiting;
    struct holder {
        struct mw_pool_item item; /* first, so that fn can cast */
        struct scene *scene;
    } holders[WORKERS];
};

/* A target that does what the test says: it takes as many items as it is told to, and keeps them
 * until the test lets them arrive. */
struct stand_in {
    struct mw_probe_target target; /* first, so that send can cast */
    _Atomic unsigned taken;        /* released by send */
    unsigned most;
    struct mw_probe *probe;
    struct counter settled;
};

static void hold(struct mw_pool_item *item)
{
    struct scene *scene = ((struct holder *)item)->scene;

    counter_add(&scene->waiting, 1);
    counter_await(&scene->gate, 1);
}

static void scene_open(struct scene *scene)
{
    struct mw_pool_options options = {.min_threads = WORKERS, .max_threads = WORKERS};

    memset(scene, 0, sizeof *scene);
    counter_init(&scene->gate);
    counter_init(&scene->waiting);
    assert_int_equal(mw_pool_new(&scene->pool, &options), 0);
    mw_probe_pool_init(&scene->target, scene->pool);
}

/* Every worker is at the gate when this returns. */
static void scene_hold(struct scene *scene)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        scene->holders[i] = (struct holder){.item = {.fn = hold}, .scene = scene};
        assert_int_equal(mw_pool_submit(scene->pool, &scene->holders[i].item), 0);
    }
    assert_true(counter_await(&scene->waiting, WORKERS));
}

static void scene_probe(struct scene *scene)
{
    assert_int_equal(mw_probe_new(&scene->probe, &scene->target.target, INTERVAL_MS), 0);
}

static void scene_close(struct scene *scene)
{
    counter_add(&scene->gate, 1);
    mw_probe_free(scene->probe);
    mw_pool_free(scene->pool);
    counter_fini(&scene->waiting);
    counter_fini(&scene->gate);
}

static struct mw_probe_stats stats_of(const struct mw_probe *probe)
{
    struct mw_probe_stats stats;

    mw_probe_snapshot(probe, &stats);
    return stats;
}

/* Wait until so many items have arrived. */
static struct mw_probe_stats await_arrived(const struct mw_probe *probe, uint64_t count)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    struct mw_probe_stats stats = stats_of(probe);

    while (stats.arrived < count) {
        assert_true(mw_clock_ns() < deadline);
        usleep(1000);
        stats = stats_of(probe);
    }
    return stats;
}

/* Wait until the item in flight has waited at least `age_ns`. */
static struct mw_probe_stats await_age(const struct mw_probe *probe, uint64_t age_ns)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    struct mw_probe_stats stats = stats_of(probe);

    while (stats.in_flight_ns < age_ns) {
        assert_true(mw_clock_ns() < deadline);
        usleep(1000);
        stats = stats_of(probe);
    }
    return stats;
}

static int take(struct mw_probe_target *target, struct mw_probe *probe)
{
    struct stand_in *stand_in = (struct stand_in *)target;
    unsigned taken = atomic_load_explicit(&stand_in->taken, memory_order_relaxed);

    if (taken == stand_in->most)
        return -EAGAIN;
    stand_in->probe = probe;
    /* release: partner of the acquire in await_taken */
    atomic_store_explicit(&stand_in->taken, taken + 1, memory_order_release);
    return 0;
}

static int take_at_once(struct mw_probe_target *target, struct mw_probe *probe)
{
    int error = take(target, probe);

    if (error == 0)
        mw_probe_arrive(probe);
    return error;
}

static void settle(struct mw_probe_target *target)
{
    struct stand_in *stand_in = (struct stand_in *)target;

    counter_add(&stand_in->settled, 1);
    if (stand_in->probe != NULL)
        mw_probe_arrive(stand_in->probe);
}

static void await_taken(struct stand_in *stand_in, unsigned count)
{
    /* acquire: partner of the release in take */
    while (atomic_load_explicit(&stand_in->taken, memory_order_acquire) < count)
        sched_yield();
}

/* Broken when items that start at once are not counted, or two are in flight at a time. */
static void an_idle_pool_is_seen_to_start_items(void **state)
{
    struct scene scene;
    struct mw_probe_stats stats;

    (void)state;
    scene_open(&scene);
    scene_probe(&scene);
    stats = await_arrived(scene.probe, 20);
    assert_in_range(stats.sent, stats.arrived, stats.arrived + 2); /* counted one after the other */
    assert_int_equal(stats.refused, 0);
    assert_true(stats.p50_ns <= stats.p99_ns && stats.p99_ns <= stats.max_ns);
    assert_true(stats.max_ns > 0);
    assert_true(mw_histogram_count(mw_probe_histogram(scene.probe)) >= stats.arrived);
    scene_close(&scene);
}

/* Broken when a stuck pool looks healthy: its item does not show as waiting, or as arrived. The
 * idle pool beside it is the control: there items arrive meanwhile. */
static void a_pool_without_a_free_worker_shows_its_wait(void **state)
{
    struct scene stuck, idle;
    struct mw_probe_stats first, second;

    (void)state;
    scene_open(&stuck);
    scene_open(&idle);
    scene_hold(&stuck);
    scene_probe(&stuck);
    scene_probe(&idle);
    await_arrived(idle.probe, 10);
    first = await_age(stuck.probe, INTERVAL_NS);
    await_arrived(idle.probe, stats_of(idle.probe).arrived + 10);
    second = await_age(stuck.probe, first.in_flight_ns + INTERVAL_NS);
    assert_int_equal(second.sent, 1);
    assert_int_equal(second.arrived, 0);
    assert_int_equal(second.max_ns, 0);

    counter_add(&stuck.gate, 1);
    assert_true(await_arrived(stuck.probe, 1).max_ns >= second.in_flight_ns);
    scene_close(&idle);
    scene_close(&stuck);
}

/* Broken when the sends that a late item kept from being made are not recorded, or with another
 * wait: then a pool that stalls once for a second shows one bad sample among hundreds. */
static void a_late_item_stands_for_the_sends_that_it_kept_back(void **state)
{
    struct stand_in stand_in = {.target = {.send = take}, .most = 1};
    struct mw_probe *probe;
    const struct mw_histogram *histogram;
    uint64_t wait_ns, missed;

    (void)state;
    assert_int_equal(mw_probe_new(&probe, &stand_in.target, INTERVAL_MS), 0);
    await_taken(&stand_in, 1);
    await_age(probe, 20 * INTERVAL_NS);
    mw_probe_arrive(stand_in.probe);
    wait_ns = await_arrived(probe, 1).max_ns;
    missed = (wait_ns - 1) / INTERVAL_NS;
    assert_true(missed >= 19);
    histogram = mw_probe_histogram(probe);
    assert_int_equal(mw_histogram_count(histogram), 1 + missed);
    assert_int_equal(mw_histogram_sum(histogram),
                     wait_ns * (1 + missed) - INTERVAL_NS * (missed * (missed + 1) / 2));
    mw_probe_free(probe);
}

/* Broken when the arithmetic of missed sends is off by one, or has no bound. */
static void missed_sends_are_counted_exactly(void **state)
{
    static const struct {
        uint64_t wait, interval, count, sum;
    } cases[] = {
        {0, 5, 1, 0},
        {4, 5, 1, 4},
        {5, 5, 1, 5}, /* the send at 5 was made in time */
        {6, 5, 2, 6 + 1},
        {12, 5, 3, 12 + 7 + 2},
        {MW_PROBE_MISSED_MAX + 100, 1, MW_PROBE_MISSED_MAX + 1,
         (MW_PROBE_MISSED_MAX + 1) * (MW_PROBE_MISSED_MAX / UINT64_C(2) + 100)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_histogram histogram = {0};

        mw_probe_record_wait(&histogram, cases[i].wait, cases[i].interval);
        assert_int_equal(mw_histogram_count(&histogram), cases[i].count);
        assert_int_equal(mw_histogram_sum(&histogram), cases[i].sum);
        assert_int_equal(mw_histogram_max(&histogram), cases[i].wait);
    }
}

/* Broken when a refused send counts as waiting, or ends the probe. */
static void refused_sends_are_counted_and_tried_again(void **state)
{
    struct stand_in stand_in = {.target = {.send = take_at_once}, .most = 3};
    struct mw_probe *probe;
    struct mw_probe_stats stats;
    uint64_t refused;

    (void)state;
    assert_int_equal(mw_probe_new(&probe, &stand_in.target, INTERVAL_MS), 0);
    stats = await_arrived(probe, 3); /* which arrive inside send */
    refused = stats.refused;
    do {
        sched_yield();
        stats = stats_of(probe);
    } while (stats.refused < refused + 5);
    assert_int_equal(stats.sent, 3);
    assert_int_equal(stats.arrived, 3);
    assert_int_equal(stats.in_flight_ns, 0);
    mw_probe_free(probe);
}

/* Broken when a full queue is not seen as a refusal. */
static void a_full_pool_refuses(void **state)
{
    struct mw_pool_options options = {.min_threads = 1, .max_threads = 1, .queue_max = 1};
    struct scene scene = {0};
    struct holder more = {.item = {.fn = hold}, .scene = &scene};

    (void)state;
    counter_init(&scene.gate);
    counter_init(&scene.waiting);
    assert_int_equal(mw_pool_new(&scene.pool, &options), 0);
    scene.holders[0] = (struct holder){.item = {.fn = hold}, .scene = &scene};
    assert_int_equal(mw_pool_submit(scene.pool, &scene.holders[0].item), 0);
    assert_true(counter_await(&scene.waiting, 1));
    assert_int_equal(mw_pool_submit(scene.pool, &more.item), 0);
    mw_probe_pool_init(&scene.target, scene.pool);
    scene_probe(&scene);
    while (stats_of(scene.probe).refused < 3)
        sched_yield();
    assert_int_equal(stats_of(scene.probe).sent, 0);
    scene_close(&scene);
}

/* Broken when a target cannot take back what is in flight, or is asked more than once. */
static void a_target_may_settle_what_is_in_flight(void **state)
{
    struct stand_in stand_in = {.target = {.send = take, .settle = settle}, .most = 1};
    struct mw_probe *probe;

    (void)state;
    counter_init(&stand_in.settled);
    assert_int_equal(mw_probe_new(&probe, &stand_in.target, INTERVAL_MS), 0);
    await_taken(&stand_in, 1);
    mw_probe_free(probe);
    assert_int_equal(counter_value(&stand_in.settled), 1);
    counter_fini(&stand_in.settled);
}

static void *free_probe(void *arg)
{
    struct scene *scene = arg;

    counter_add(&scene->waiting, 1);
    mw_probe_free(scene->probe);
    scene->probe = NULL;
    return NULL;
}

/* Broken when the probe is released while its item still waits in the pool (the item would then
 * touch freed memory), or never. */
static void free_waits_for_the_item_in_flight(void **state)
{
    struct scene scene;
    pthread_t thread;

    (void)state;
    scene_open(&scene);
    scene_hold(&scene);
    scene_probe(&scene);
    await_age(scene.probe, INTERVAL_NS);
    assert_int_equal(pthread_create(&thread, NULL, free_probe, &scene), 0);
    assert_true(counter_await(&scene.waiting, WORKERS + 1));
    counter_add(&scene.gate, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(scene.probe);
    scene_close(&scene);
}

/* Broken when a probe without a thread is handed out. */
static void a_thread_that_does_not_start_is_told(void **state)
{
    struct stand_in stand_in = {.target = {.send = take}};
    struct mw_probe *probe = NULL;

    (void)state;
    thread_starts_allow(0);
    assert_int_equal(mw_probe_new(&probe, &stand_in.target, 0), -EAGAIN);
    thread_starts_allow(-1);
    assert_null(probe);
    mw_probe_free(NULL);
}

/* Broken when a forked child waits for a thread that it does not have. */
static void a_forked_child_leaves_the_probe_alone(void **state)
{
    struct scene scene;
    int status;
    pid_t child;

    (void)state;
    if (SANITIZED_THREADS)
        skip(); /* its runtime does not take a fork with threads */
    scene_open(&scene);
    scene_probe(&scene);
    await_arrived(scene.probe, 1);
    child = fork();
    if (child == 0) {
        alarm(SUPPORT_WAIT_S);
        mw_probe_free(scene.probe);
        _exit(7);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_pool_is_seen_to_start_items),
        cmocka_unit_test(a_pool_without_a_free_worker_shows_its_wait),
        cmocka_unit_test(a_late_item_stands_for_the_sends_that_it_kept_back),
        cmocka_unit_test(missed_sends_are_counted_exactly),
        cmocka_unit_test(refused_sends_are_counted_and_tried_again),
        cmocka_unit_test(a_full_pool_refuses),
        cmocka_unit_test(a_target_may_settle_what_is_in_flight),
        cmocka_unit_test(free_waits_for_the_item_in_flight),
        cmocka_unit_test(a_thread_that_does_not_start_is_told),
        cmocka_unit_test(a_forked_child_leaves_the_probe_alone),
    };

    return cmocka_run_group_tests_name("pools.probe", tests, NULL, NULL);
}

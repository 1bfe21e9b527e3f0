/* Which job is next, seen through the lane: by the order in which leaves start, never by time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>

#include "lanes/scene.h"

#define FLOOD    10000u
#define FLOOD_OF 1u /* the tenant that floods */

/* Queue three jobs of these priorities, and see in which order they run. */
static void run_three(const enum mw_job_priority priorities[3], unsigned order[3])
{
    struct scene scene;
    struct leaf first;
    struct leaf leaves[3];
    unsigned queued[MW_JOB_PRIORITIES] = {0};

    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < 3; i++) {
        leaf_init(&leaves[i], &scene, run_in_order);
        leaves[i].number = i;
        leaves[i].job.priority = priorities[i];
        queued[priorities[i]]++;
        submit(&leaves[i]);
    }
    for (unsigned i = 0; i < MW_JOB_PRIORITIES; i++)
        assert_int_equal(stats_of(&scene).queued_by_priority[i], queued[i]);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 4));
    memcpy(order, scene.order, 3 * sizeof *order);
    scene_close(&scene);
}

/* Breaks when an interactive job waits for batch jobs that came before it. */
static void interactive_goes_before_batch(void **state)
{
    unsigned order[3];

    (void)state;
    run_three((const enum mw_job_priority[]){MW_JOB_BATCH, MW_JOB_NORMAL, MW_JOB_INTERACTIVE},
              order);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 0);
}

/* The control: of one priority, the same jobs run in the order in which they came. Breaks when the
 * test above would pass because a lane is no queue. */
static void equal_jobs_go_as_they_came(void **state)
{
    unsigned order[3];

    (void)state;
    run_three((const enum mw_job_priority[]){MW_JOB_BATCH, MW_JOB_BATCH, MW_JOB_BATCH}, order);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(order[i], i);
}

/* Breaks when a priority or tenant that does not exist is taken, and used as an index later. */
static void job_out_of_bounds_is_refused(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1, .tenants_max = 2});
    leaf_init(&leaf, &scene, run_plain);
    leaf.job.tenant = 2;
    assert_int_equal(mw_lane_submit(scene.lane, &leaf.job), -EINVAL);
    leaf.job.tenant = 1;
    leaf.job.priority = MW_JOB_PRIORITIES;
    assert_int_equal(mw_lane_submit(scene.lane, &leaf.job), -EINVAL);
    assert_int_equal(leaf.dones, 0);
    leaf.job.priority = MW_JOB_BATCH;
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    scene_close(&scene);
}

/* ---- tenants ---- */

struct flood {
    struct scene scene;
    struct leaf *leaves;
    _Atomic unsigned started; /* relaxed: leaves only count it, the test reads what done() brings */
};

static struct flood flood;

static int run_counted(struct mw_job *job)
{
    ((struct leaf *)job)->number =
        atomic_fetch_add_explicit(&flood.started, 1, memory_order_relaxed);
    return 0;
}

/* One tenant has FLOOD jobs queued; then `tenant` queues one. Returns how many of the flood started
 * before it, on a lane of `cap` threads. */
static unsigned jobs_before_a_single_one(uint32_t tenant, unsigned cap)
{
    struct leaf holders[4];
    struct leaf single;

    scene_open(&flood.scene,
               &(struct mw_lane_options){.cap = cap, .queue_max = FLOOD + 1, .tenants_max = 8});
    flood.leaves = calloc(FLOOD, sizeof *flood.leaves);
    assert_non_null(flood.leaves);
    atomic_store_explicit(&flood.started, 0, memory_order_relaxed);
    for (unsigned i = 0; i < cap; i++)
        hold_the_lane(&flood.scene, &holders[i]);
    assert_true(counter_await(&flood.scene.waiting, cap));
    for (unsigned i = 0; i < FLOOD; i++) {
        leaf_init(&flood.leaves[i], &flood.scene, run_counted);
        flood.leaves[i].job.tenant = FLOOD_OF;
        submit(&flood.leaves[i]);
    }
    leaf_init(&single, &flood.scene, run_counted);
    single.job.tenant = tenant;
    submit(&single);
    counter_add(&flood.scene.gate, 1);
    assert_true(counter_await(&flood.scene.done, FLOOD + 1 + cap));
    scene_close(&flood.scene);
    free(flood.leaves);
    return single.number;
}

/* Breaks when a tenant that queues thousands delays another's single job by more than about a leaf
 * for each thread. */
static void flood_delays_others_by_a_leaf_per_thread(void **state)
{
    (void)state;
    for (unsigned cap = 1; cap <= 2; cap++)
        assert_in_range(jobs_before_a_single_one(2, cap), 0, 2 * cap);
}

/* The control: under the flood's own number the same job is the last. Breaks when the test above
 * would pass without shares. */
static void flood_delays_its_own(void **state)
{
    (void)state;
    assert_int_equal(jobs_before_a_single_one(FLOOD_OF, 1), FLOOD);
}

/* ---- batches ---- */

/* Breaks when a batch is not queued whole, in its order, or a loop too few comes for it. */
static void batch_runs_in_order(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct mw_job *jobs[LEAVES_MAX];
    struct scene scene;
    struct leaf first;

    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        scene_open(&scene, &(struct mw_lane_options){.cap = 1});
        if (busy == 1)
            hold_the_lane(&scene, &first); /* the inbox is open then */
        for (unsigned i = 0; i < LEAVES_MAX; i++) {
            leaf_init(&leaves[i], &scene, run_in_order);
            leaves[i].number = i;
            jobs[i] = &leaves[i].job;
        }
        assert_int_equal(mw_lane_submit_batch(scene.lane, jobs, LEAVES_MAX), LEAVES_MAX);
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, LEAVES_MAX + (unsigned)busy));
        for (unsigned i = 0; i < LEAVES_MAX; i++)
            assert_int_equal(scene.order[i], i);
        assert_int_equal(stats_of(&scene).submitted, LEAVES_MAX + (unsigned)busy);
        scene_close(&scene);
    }
}

/* Breaks when only one loop comes for many jobs: the leaves wait for each other at the gate. */
static void batch_brings_as_many_loops_as_it_needs(void **state)
{
    struct leaf leaves[4];
    struct mw_job *jobs[4];
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 4});
    for (unsigned round = 1; round <= 50; round++) {
        scene.gate.value = 0; /* the leaves of the round before are done */
        for (unsigned i = 0; i < 4; i++) {
            leaf_init(&leaves[i], &scene, run_at_gate);
            jobs[i] = &leaves[i].job;
        }
        assert_int_equal(mw_lane_submit_batch(scene.lane, jobs, 4), 4);
        assert_true(counter_await(&scene.waiting, 4 * round));
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, 4 * round));
    }
    scene_close(&scene);
}

/* Breaks when a batch goes past a bound, past a job that is refused, or reports what it did not
 * queue. */
static void batch_stops_at_what_is_refused(void **state)
{
    struct leaf leaves[5];
    struct mw_job *jobs[5];
    struct scene scene;
    struct leaf first;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1, .queue_max = 3});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < 5; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        jobs[i] = &leaves[i].job;
    }
    assert_int_equal(mw_lane_submit_batch(scene.lane, jobs, 0), 0);
    assert_int_equal(mw_lane_submit_batch(scene.lane, (struct mw_job *[]){&first.job}, 1), -EBUSY);
    leaves[1].job.fn = NULL;
    assert_int_equal(mw_lane_submit_batch(scene.lane, jobs, 5), 1);
    assert_int_equal(mw_lane_submit_batch(scene.lane, jobs + 1, 4), -EINVAL);
    leaves[1].job.fn = run_plain;
    assert_int_equal(mw_lane_submit_batch(scene.lane, jobs + 1, 4), 2);
    assert_int_equal(mw_lane_submit_batch(scene.lane, jobs + 3, 2), -EAGAIN);
    assert_int_equal(stats_of(&scene).queued, 3);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 4));
    assert_int_equal(leaves[3].dones + leaves[4].dones, 0);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interactive_goes_before_batch),
        cmocka_unit_test(equal_jobs_go_as_they_came),
        cmocka_unit_test(job_out_of_bounds_is_refused),
        cmocka_unit_test(flood_delays_others_by_a_leaf_per_thread),
        cmocka_unit_test(flood_delays_its_own),
        cmocka_unit_test(batch_runs_in_order),
        cmocka_unit_test(batch_brings_as_many_loops_as_it_needs),
        cmocka_unit_test(batch_stops_at_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

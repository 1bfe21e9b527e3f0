/* A lane keeps its leaves off the shared pool, and a leaf keeps its work on the lane. Each check
 * says what is wrong with a lane, or NULL; the controls hand it lanes and leaves that are wrong on
 * purpose and expect exactly that answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/flow.h>
#include <millwright/lane.h>

#include "pools/support.h"

#define LEAVES     6
#define CAP        2
#define FANNED_OUT 3
#define GRACE_MS   1000 /* in which a lane that would run too many at once has done so */

/* ---- six parked leaves ---- */

struct parking {
    struct counter gate;
    struct counter parked;
    struct counter done;
    _Atomic unsigned inside; /* relaxed: a number of its own */
    _Atomic unsigned peak;   /* relaxed: a number of its own */
};

struct parked_leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct parking *parking;
    char thread_name[16];
};

static int park(struct mw_job *job)
{
    struct parked_leaf *leaf = (struct parked_leaf *)job;
    struct parking *parking = leaf->parking;
    unsigned inside = atomic_fetch_add_explicit(&parking->inside, 1, memory_order_relaxed) + 1;
    unsigned peak = atomic_load_explicit(&parking->peak, memory_order_relaxed);

    while (peak < inside &&
           !atomic_compare_exchange_weak_explicit(&parking->peak, &peak, inside,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    pthread_getname_np(pthread_self(), leaf->thread_name, sizeof leaf->thread_name);
    counter_add(&parking->parked, 1);
    counter_await(&parking->gate, 1);
    atomic_fetch_sub_explicit(&parking->inside, 1, memory_order_relaxed);
    return 0;
}

static void park_done(struct mw_job *job, int status)
{
    (void)status;
    counter_add(&((struct parked_leaf *)job)->parking->done, 1);
}

/* Give a lane that is wrong the time to show it. */
static void wait_for_one_too_many(struct parking *parking)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t deadline = mw_clock_ns() + GRACE_MS * MW_NS_PER_MS;

    while (counter_value(&parking->parked) <= CAP && mw_clock_ns() < deadline)
        nanosleep(&pause, NULL);
}

/* Park six leaves on `lane`, which should run two at once on threads of its own. Returns what is
 * wrong, or NULL; `text` holds the answer. */
static const char *check_leaves_stay_off_the_pool(struct mw_lane *lane, char *text, size_t bytes)
{
    struct parked_leaf leaves[LEAVES] = {0};
    struct parking parking = {0};
    unsigned on_pool = 0;
    unsigned ran = 0;
    unsigned misnamed = 0;

    counter_init(&parking.gate);
    counter_init(&parking.parked);
    counter_init(&parking.done);
    for (unsigned i = 0; i < LEAVES; i++) {
        leaves[i].parking = &parking;
        leaves[i].job.fn = park;
        leaves[i].job.done = park_done;
        assert_int_equal(mw_lane_submit(lane, &leaves[i].job), 0);
    }
    assert_true(counter_await(&parking.parked, CAP));
    wait_for_one_too_many(&parking);
    counter_add(&parking.gate, 1);
    assert_true(counter_await(&parking.done, LEAVES));
    for (unsigned i = 0; i < LEAVES; i++) {
        ran += leaves[i].job.started_ns != 0;
        on_pool += leaves[i].job.ran_on == MW_THREAD_POOL;
        misnamed += strcmp(leaves[i].thread_name, "mw-cpu-lane") != 0;
    }
    counter_fini(&parking.done);
    counter_fini(&parking.parked);
    counter_fini(&parking.gate);

    if (ran != LEAVES)
        snprintf(text, bytes, "%u of %u leaves ran", ran, LEAVES);
    else if (parking.peak > CAP)
        snprintf(text, bytes, "%u leaves ran at once, the cap is %u", parking.peak, CAP);
    else if (on_pool > 0)
        snprintf(text, bytes, "%u of %u leaves ran on pool workers", on_pool, LEAVES);
    else if (misnamed > 0)
        snprintf(text, bytes, "%u of %u leaves ran on threads of other names", misnamed, LEAVES);
    else
        return NULL;
    return text;
}

/* Make a lane, check it, free it. */
static const char *check_lane(struct mw_lane_options options, char *text, size_t bytes)
{
    struct mw_lane *lane;
    const char *wrong;

    assert_int_equal(mw_lane_new(&lane, &options), 0);
    wrong = check_leaves_stay_off_the_pool(lane, text, bytes);
    mw_lane_free(lane, false);
    return wrong;
}

/* Breaks when a leaf of a CPU lane runs on a pool worker, or the cap does not hold. */
static void dedicated_lane_keeps_its_leaves_off_the_pool(void **state)
{
    char text[128];
    const char *wrong = check_lane((struct mw_lane_options){.cap = CAP}, text, sizeof text);

    (void)state;
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

/* Control: breaks when the check cannot tell a pool worker from a lane's thread. */
static void pool_run_lane_is_caught_with_all_its_leaves(void **state)
{
    struct mw_pool *pool;
    char text[128];
    const char *wrong;

    (void)state;
    assert_int_equal(mw_pool_new(&pool, NULL), 0);
    wrong = check_lane((struct mw_lane_options){.cap = CAP, .runner = MW_LANE_POOL, .pool = pool},
                       text, sizeof text);
    mw_pool_free(pool);
    assert_non_null(wrong);
    assert_string_equal(wrong, "6 of 6 leaves ran on pool workers");
}

/* Control: breaks when the check would not see a cap that does not hold. */
static void lane_with_a_larger_cap_is_caught(void **state)
{
    char text[128];
    const char *wrong = check_lane((struct mw_lane_options){.cap = CAP + 1}, text, sizeof text);

    (void)state;
    assert_non_null(wrong);
    assert_string_equal(wrong, "3 leaves ran at once, the cap is 2");
}

/* ---- what flows from a leaf ---- */

struct flowing_leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct mw_pool *pool;
    struct mw_lane *pool_lane;
    struct mw_pool_item items[FANNED_OUT];
    struct mw_job jobs[FANNED_OUT];
    struct counter done;
};

static struct counter items_run;

static void run_item(struct mw_pool_item *item)
{
    (void)item;
    counter_add(&items_run, 1);
}

static int run_job(struct mw_job *job)
{
    (void)job;
    counter_add(&items_run, 1);
    return 0;
}

static void submit_items(struct flowing_leaf *leaf)
{
    for (unsigned i = 0; i < FANNED_OUT; i++) {
        leaf->items[i].fn = run_item;
        (void)mw_pool_submit(leaf->pool, &leaf->items[i]);
    }
}

static int compute_only(struct mw_job *job)
{
    (void)job;
    return 0;
}

static int fan_out_onto_the_pool(struct mw_job *job)
{
    submit_items((struct flowing_leaf *)job);
    return 0;
}

static int fan_out_onto_a_pool_lane(struct mw_job *job)
{
    struct flowing_leaf *leaf = (struct flowing_leaf *)job;

    for (unsigned i = 0; i < FANNED_OUT; i++) {
        leaf->jobs[i].fn = run_job;
        (void)mw_lane_submit(leaf->pool_lane, &leaf->jobs[i]);
    }
    return 0;
}

static void tell_done(struct mw_job *job, int status)
{
    (void)status;
    counter_add(&((struct flowing_leaf *)job)->done, 1);
}

static void submit_when_done(struct mw_job *job, int status)
{
    submit_items((struct flowing_leaf *)job);
    tell_done(job, status);
}

/* Run one leaf on a dedicated lane beside a shared pool. Returns what escaped from it, or NULL. */
static const char *check_nothing_flows_from_a_leaf(int (*fn)(struct mw_job *),
                                                   void (*done)(struct mw_job *, int),
                                                   unsigned items, char *text, size_t bytes)
{
    struct flowing_leaf leaf = {.job = {.fn = fn, .done = done}};
    uint64_t before = mw_flow_escapes();
    struct mw_lane *lane;
    uint64_t escapes;

    counter_init(&items_run);
    counter_init(&leaf.done);
    assert_int_equal(mw_pool_new(&leaf.pool, NULL), 0);
    assert_int_equal(mw_lane_new(&leaf.pool_lane, &(struct mw_lane_options){.runner = MW_LANE_POOL,
                                                                            .pool = leaf.pool}),
                     0);
    assert_int_equal(mw_lane_new(&lane, NULL), 0);
    assert_int_equal(mw_lane_submit(lane, &leaf.job), 0);
    assert_true(counter_await(&leaf.done, 1));
    assert_true(counter_await(&items_run, items));
    mw_lane_free(lane, false);
    mw_lane_free(leaf.pool_lane, false);
    mw_pool_free(leaf.pool);
    counter_fini(&leaf.done);
    counter_fini(&items_run);

    escapes = mw_flow_escapes() - before;
    if (escapes == 0)
        return NULL;
    snprintf(text, bytes, "%u items that flow from %s leaf ran on pool workers", (unsigned)escapes,
             mw_flow_escaped_leaf() == leaf.job.leaf ? "this" : "another");
    return text;
}

/* Breaks when a leaf that only computes is counted as one that fans out. */
static void honest_leaf_lets_nothing_flow(void **state)
{
    char text[128];

    (void)state;
    assert_null(check_nothing_flows_from_a_leaf(compute_only, tell_done, 0, text, sizeof text));
}

/* Breaks when what done() submits is taken for the leaf's: done() is where the IO suffix starts. */
static void honest_done_may_use_the_pool(void **state)
{
    char text[128];

    (void)state;
    assert_null(check_nothing_flows_from_a_leaf(compute_only, submit_when_done, FANNED_OUT, text,
                                                sizeof text));
}

/* Control: breaks when an item does not carry the leaf from which it was submitted. */
static void leaf_that_fans_out_onto_the_pool_is_caught(void **state)
{
    char text[128];
    const char *wrong = check_nothing_flows_from_a_leaf(fan_out_onto_the_pool, tell_done,
                                                        FANNED_OUT, text, sizeof text);

    (void)state;
    assert_non_null(wrong);
    assert_string_equal(wrong, "3 items that flow from this leaf ran on pool workers");
}

/* Control: breaks when the way through a pool-run lane hides where a job came from. */
static void leaf_that_fans_out_onto_a_pool_lane_is_caught(void **state)
{
    char text[128];
    const char *wrong = check_nothing_flows_from_a_leaf(fan_out_onto_a_pool_lane, tell_done,
                                                        FANNED_OUT, text, sizeof text);

    (void)state;
    assert_non_null(wrong);
    assert_string_equal(wrong, "3 items that flow from this leaf ran on pool workers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dedicated_lane_keeps_its_leaves_off_the_pool),
        cmocka_unit_test(pool_run_lane_is_caught_with_all_its_leaves),
        cmocka_unit_test(lane_with_a_larger_cap_is_caught),
        cmocka_unit_test(honest_leaf_lets_nothing_flow),
        cmocka_unit_test(honest_done_may_use_the_pool),
        cmocka_unit_test(leaf_that_fans_out_onto_the_pool_is_caught),
        cmocka_unit_test(leaf_that_fans_out_onto_a_pool_lane_is_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* audit_starts_test.c - libmillwright-audit at work: threads that a leaf starts past Millwright are
 * counted, named or not. audit_test.c has the same leaks without it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/audit.h>
#include <millwright/flow.h>

#include "pools/support.h"

/* A leaf, and all that may come of it. */
struct leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct mw_pool *pool;
    struct mw_pool_item item;
    struct counter item_run;
    struct counter done;
};

/* What the audit counted while a leaf ran. */
struct counts {
    uint64_t foreign_starts, thread_starts, escapes;
};

static void note_item(struct mw_pool_item *item)
{
    struct leaf *leaf = (struct leaf *)((char *)item - offsetof(struct leaf, item));

    counter_add(&leaf->item_run, 1);
}

static void note_done(struct mw_job *job, int status)
{
    (void)status;
    counter_add(&((struct leaf *)job)->done, 1);
}

static void *take_a_name(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "a-library");
    return NULL;
}

static void *use_the_pool(void *arg)
{
    struct leaf *leaf = arg;

    leaf->item.fn = note_item;
    if (mw_pool_submit(leaf->pool, &leaf->item) == 0)
        counter_await(&leaf->item_run, 1);
    return NULL;
}

static void *start_another(void *arg)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, take_a_name, arg) == 0)
        pthread_join(thread, NULL);
    return NULL;
}

static int run_thread(struct mw_job *job, void *(*fn)(void *))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, fn, job) == 0)
        pthread_join(thread, NULL);
    return 0;
}

static int compute(struct mw_job *job)
{
    (void)job;
    return 0;
}

static int start_a_named_thread(struct mw_job *job)
{
    return run_thread(job, take_a_name);
}

static int start_a_thread_that_starts_another(struct mw_job *job)
{
    return run_thread(job, start_another);
}

static int start_a_thread_that_uses_the_pool(struct mw_job *job)
{
    return run_thread(job, use_the_pool);
}

static void nothing(void *arg)
{
    (void)arg;
}

static int start_one_of_ours(struct mw_job *job)
{
    struct mw_thread thread;

    (void)job;
    if (mw_thread_start(&thread, &(struct mw_thread_options){0}, nothing, NULL) == 0)
        mw_thread_join(&thread);
    return 0;
}

/* Run `fn` as a leaf of a dedicated lane. */
static struct counts counts_of(int (*fn)(struct mw_job *))
{
    struct leaf leaf = {.job = {.fn = fn, .done = note_done}};
    struct mw_audit before, after;
    struct mw_lane *lane;

    counter_init(&leaf.item_run);
    counter_init(&leaf.done);
    assert_int_equal(mw_pool_new(&leaf.pool, NULL), 0);
    assert_int_equal(mw_lane_new(&lane, &(struct mw_lane_options){.urgency = MW_LANE_EQUAL}), 0);
    assert_int_equal(mw_audit_report(&before, NULL), 0);
    assert_int_equal(mw_lane_submit(lane, &leaf.job), 0);
    assert_true(counter_await(&leaf.done, 1));
    assert_int_equal(mw_audit_report(&after, NULL), 0);
    mw_lane_free(lane, false);
    mw_pool_free(leaf.pool);
    counter_fini(&leaf.done);
    counter_fini(&leaf.item_run);

    assert_true(after.foreign_starts_seen);
    if (after.foreign_starts > before.foreign_starts)
        assert_int_equal(after.foreign_start_leaf, leaf.job.leaf);
    return (struct counts){after.foreign_starts - before.foreign_starts,
                           after.thread_starts - before.thread_starts,
                           after.escapes - before.escapes};
}

static void expect_counts(int (*fn)(struct mw_job *), struct counts expected)
{
    struct counts counts = counts_of(fn);

    assert_int_equal(counts.foreign_starts, expected.foreign_starts);
    assert_int_equal(counts.thread_starts, expected.thread_starts);
    assert_int_equal(counts.escapes, expected.escapes);
}

/* Breaks when the lane's own thread counts as started under a leaf, or the library is not in front
 * of pthread_create at all. */
static void leaf_that_computes_starts_nothing(void **state)
{
    (void)state;
    expect_counts(compute, (struct counts){0});
}

/* Control: breaks when a thread that names itself, and has ended, gets away. */
static void named_thread_of_a_leaf_is_counted(void **state)
{
    struct mw_audit report;
    char text[128];

    (void)state;
    expect_counts(start_a_named_thread, (struct counts){.foreign_starts = 1});
    assert_int_equal(mw_audit_report(&report, NULL), 0);
    assert_non_null(mw_audit_finding(&report, text, sizeof text));
    assert_string_equal(text, "threads of others that were started under a leaf: 1");
}

/* Control: breaks when the leaf is forgotten one thread further. */
static void thread_of_a_thread_of_a_leaf_is_counted(void **state)
{
    (void)state;
    if (SANITIZED_THREADS)
        skip(); /* see audit_starts.c */
    expect_counts(start_a_thread_that_starts_another, (struct counts){.foreign_starts = 2});
}

/* Control: breaks when a leaf can get onto the pool by way of a thread. */
static void way_through_a_thread_hides_no_escape(void **state)
{
    struct counts counts;

    (void)state;
    if (SANITIZED_THREADS)
        skip(); /* see audit_starts.c */
    counts = counts_of(start_a_thread_that_uses_the_pool);
    assert_int_equal(counts.foreign_starts, 1);
    assert_int_equal(counts.escapes, 1);
}

/* Breaks when a thread of ours is counted as a foreign one too. */
static void thread_of_ours_is_no_foreign_one(void **state)
{
    (void)state;
    expect_counts(start_one_of_ours, (struct counts){.thread_starts = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaf_that_computes_starts_nothing),
        cmocka_unit_test(named_thread_of_a_leaf_is_counted),
        cmocka_unit_test(thread_of_a_thread_of_a_leaf_is_counted),
        cmocka_unit_test(way_through_a_thread_hides_no_escape),
        cmocka_unit_test(thread_of_ours_is_no_foreign_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

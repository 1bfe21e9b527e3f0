/* Each allocation and each thread start of a whole life of lanes fails in turn. Whatever fails, no
 * job is lost, none is done twice, and nothing is left behind. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>

#include "lanes/scene.h"
#include "pools/thread_starts.h"

#define JOBS      8
#define STEPS_MAX 1000 /* far above what one scenario takes */

/* ---- the library's calls of calloc find this one ---- */

typedef void *calloc_fn(size_t count, size_t bytes);

calloc_fn __libc_calloc;
/* Where a sanitizer keeps its own when somebody defines another. */
__attribute__((weak)) calloc_fn __interceptor_calloc;

/* Numbers of their own: relaxed order, no partner. */
static _Atomic int left = -1; /* so many calls succeed; below 0: all */
static _Atomic bool fail_once;
static _Atomic unsigned failures;

/* Only the library's own allocations fail: a sanitizer's would end the process. */
static bool is_from_the_library(const void *caller)
{
    Dl_info own;
    Dl_info callers;

    return dladdr((const void *)(uintptr_t)mw_lane_new, &own) != 0 &&
           dladdr(caller, &callers) != 0 && own.dli_fbase == callers.dli_fbase;
}

static bool may_allocate(const void *caller)
{
    int now = atomic_load_explicit(&left, memory_order_relaxed);

    if (now < 0 || !is_from_the_library(caller))
        return true;
    while (now > 0)
        if (atomic_compare_exchange_weak_explicit(&left, &now, now - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    if (now < 0) /* another thread's call was the one to fail */
        return true;
    atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_once, memory_order_relaxed))
        atomic_store_explicit(&left, -1, memory_order_relaxed);
    return false;
}

void *calloc(size_t count, size_t bytes)
{
    if (!may_allocate(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __interceptor_calloc != NULL ? __interceptor_calloc(count, bytes)
                                        : __libc_calloc(count, bytes);
}

static void allocations_fail_after(int n, bool once)
{
    atomic_store_explicit(&failures, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_once, once, memory_order_relaxed);
    atomic_store_explicit(&left, n, memory_order_relaxed);
}

/* ---- a whole life ---- */

struct faulty {
    struct mw_job job; /* first, so that fn can cast */
    _Atomic unsigned runs;
    _Atomic unsigned dones; /* relaxed: read when the lane is freed */
    unsigned taken;
};

static int run_faulty(struct mw_job *job)
{
    struct faulty *faulty = (struct faulty *)job;

    atomic_fetch_add_explicit(&faulty->runs, 1, memory_order_relaxed);
    return 0;
}

static void done_faulty(struct mw_job *job, int status)
{
    struct faulty *faulty = (struct faulty *)job;

    (void)status;
    atomic_fetch_add_explicit(&faulty->dones, 1, memory_order_relaxed);
}

/* Submit one by one and in a batch, cancel, wait, close. Returns how many jobs were refused. */
static unsigned use_lane(struct mw_lane *lane, bool cancel_queued)
{
    struct faulty jobs[JOBS];
    struct mw_job *batch[JOBS / 2];
    unsigned refused = 0;
    int count;

    memset(jobs, 0, sizeof jobs);
    for (unsigned i = 0; i < JOBS; i++) {
        jobs[i].job.fn = run_faulty;
        jobs[i].job.done = done_faulty;
        jobs[i].job.tenant = i % 2;
    }
    for (unsigned i = 0; i < JOBS / 2; i++) {
        int error = mw_lane_submit(lane, &jobs[i].job);

        assert_true(error == 0 || error == -EAGAIN);
        jobs[i].taken = error == 0;
        batch[i] = &jobs[JOBS / 2 + i].job;
    }
    count = mw_lane_submit_batch(lane, batch, JOBS / 2);
    assert_true(count == -EAGAIN || (count > 0 && count <= JOBS / 2));
    for (int i = 0; i < count; i++)
        jobs[JOBS / 2 + i].taken = 1;
    (void)mw_lane_cancel(lane, &jobs[1].job);
    assert_int_equal(mw_lane_wait(lane, &jobs[0].job, UINT64_MAX), 0);
    mw_lane_free(lane, cancel_queued);
    for (unsigned i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].dones, jobs[i].taken);
        assert_true(jobs[i].runs <= jobs[i].taken);
        refused += jobs[i].taken == 0;
    }
    return refused;
}

/* Returns how many things could not be had: objects that were not made, jobs that were refused. */
static unsigned live_a_life(bool cancel_queued)
{
    struct mw_lane_options options = {.cap = 3, .tenants_max = 2, .linger_ms = 1};
    struct mw_pool *pool = NULL;
    struct mw_lane *lane = NULL;
    unsigned missing = 0;
    int error = mw_pool_new(&pool, &(struct mw_pool_options){.min_threads = 1, .idle_ms = 1});

    assert_true(error == 0 || error == -ENOMEM);
    missing += error != 0;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        options.runner = (enum mw_lane_runner)runner;
        options.pool = runner == MW_LANE_POOL ? pool : NULL;
        if (runner == MW_LANE_POOL && pool == NULL)
            break;
        error = mw_lane_new(&lane, &options);
        assert_true(error == 0 || error == -ENOMEM);
        missing += error != 0 ? 1 : use_lane(lane, cancel_queued);
    }
    mw_pool_free(pool);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
    assert_int_equal(mw_thread_count(MW_THREAD_POOL), 0);
    return missing;
}

/* Let the n-th allocation fail, for each n until a life needs no more of them. */
static void sweep_allocations(bool once)
{
    unsigned faults = 0;
    unsigned missing = 0;
    unsigned n = 0;

    do {
        unsigned missed;

        assert_true(n < STEPS_MAX);
        allocations_fail_after((int)n, once);
        missed = live_a_life(n % 2);
        faults = atomic_load_explicit(&failures, memory_order_relaxed);
        allocations_fail_after(-1, false);
        missing += missed;
        n++;
    } while (faults > 0);
    assert_true(n > 5);       /* pool, two lanes with two blocks each: the faults do reach them */
    assert_true(missing > 0); /* and show */
    assert_int_equal(live_a_life(false), 0);
}

/* Breaks when one allocation that fails loses a job, leaks or is not told. */
static void one_allocation_fails(void **state)
{
    (void)state;
    sweep_allocations(true);
}

/* Breaks when what comes after a failed allocation fails as well and is not ready for it. */
static void all_allocations_fail_from_some_point_on(void **state)
{
    (void)state;
    sweep_allocations(false);
}

/* Breaks when a thread that does not start loses a job, or one that was refused is done. Several
 * rounds of each, as it is the scheduler that says how many threads a life takes. */
static void thread_starts_fail_from_some_point_on(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++)
        for (unsigned round = 0; round < 20; round++) {
            unsigned missing;

            thread_starts_allow(n);
            missing = live_a_life(round % 2);
            thread_starts_allow(-1);
            if (n == 0)
                assert_int_equal(missing, 2 * JOBS); /* the control: nobody is there to run any */
        }
    assert_int_equal(live_a_life(false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_fails),
        cmocka_unit_test(all_allocations_fail_from_some_point_on),
        cmocka_unit_test(thread_starts_fail_from_some_point_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Many threads submit, cancel, wait and let expire at once, under every kind of lane, while lanes
 * close. What must hold: the cap, fn at most once, done() exactly once for each submit that was
 * taken. No wait in here has a time-out that could heal a lost wake-up, but those of the waiters.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/lane.h>
#include <millwright/thread.h>

#include "pools/support.h"
#include "pools/thread_starts.h"

#define SUBMITTERS 4
#define CANCELLERS 2
#define WAITERS    2
#define OTHERS     (CANCELLERS + WAITERS)
#define JOBS       64 /* of each submitter */
#define ROUNDS     20
#define CAP_MAX    3
#define TENANTS    3
#define POOL_MAX   4

#define LINGER_MS 3600000 /* for ever: no time-out heals a wake-up that was lost */

/* The kinds of lane: each has its own way to park, or none. Those that linger for a moment only see
 * threads that leave and start all the time. */
static const struct mw_lane_options kinds[] = {
    {.runner = MW_LANE_DEDICATED, .cap = 1, .linger_ms = 1},
    {.runner = MW_LANE_DEDICATED, .cap = 1, .linger_ms = LINGER_MS},
    {.runner = MW_LANE_DEDICATED, .cap = CAP_MAX, .linger_ms = 1},
    {.runner = MW_LANE_DEDICATED, .cap = CAP_MAX, .linger_ms = LINGER_MS},
    {.runner = MW_LANE_DEDICATED, .cap = 1, .linger_ms = LINGER_MS, .spin_us = 10},
    {.runner = MW_LANE_DEDICATED, .cap = CAP_MAX, .linger_ms = LINGER_MS, .spin_us = 10},
    {.runner = MW_LANE_POOL, .cap = 1},
    {.runner = MW_LANE_POOL, .cap = CAP_MAX},
};
#define KINDS (sizeof kinds / sizeof *kinds)

struct arena;

/* The counters are relaxed: the joins and mw_lane_free at the end of a test publish them. */
struct stressed_job {
    struct mw_job job; /* first, so that fn can cast */
    struct arena *arena;
    _Atomic unsigned taken;
    _Atomic unsigned runs;
    _Atomic unsigned dones;
    _Atomic bool free; /* release when done, acquire before the next submit */
};

struct arena {
    struct mw_lane *lane;
    struct mw_pool *pool;
    unsigned cap;
    struct counter gate;
    struct counter held;
    _Atomic unsigned inside;      /* relaxed: a number of its own */
    _Atomic unsigned above_cap;   /* relaxed: a number of its own */
    _Atomic unsigned statuses[4]; /* relaxed: 0 ran, 1 cancelled, 2 expired, 3 anything else */
    _Atomic bool stop;            /* relaxed: only a hint to end */
    struct stressed_job jobs[SUBMITTERS][JOBS];
};

struct role {
    struct arena *arena;
    unsigned number;
};

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void add(_Atomic unsigned *number, unsigned n)
{
    atomic_fetch_add_explicit(number, n, memory_order_relaxed);
}

static int run_stressed(struct mw_job *job)
{
    struct stressed_job *stressed = (struct stressed_job *)job;
    struct arena *arena = stressed->arena;

    if (atomic_fetch_add_explicit(&arena->inside, 1, memory_order_relaxed) >= arena->cap)
        add(&arena->above_cap, 1);
    add(&stressed->runs, 1);
    if (job->leaf % 4 == 0)
        sched_yield();
    atomic_fetch_sub_explicit(&arena->inside, 1, memory_order_relaxed);
    return 0;
}

static void done_stressed(struct mw_job *job, int status)
{
    struct stressed_job *stressed = (struct stressed_job *)job;
    int kind = status == 0 ? 0 : status == -ECANCELED ? 1 : status == -ETIMEDOUT ? 2 : 3;

    add(&stressed->arena->statuses[kind], 1);
    add(&stressed->dones, 1);
    atomic_store_explicit(&stressed->free, true, memory_order_release);
}

static int hold(struct mw_job *job)
{
    struct arena *arena = ((struct stressed_job *)job)->arena;

    counter_add(&arena->held, 1);
    counter_await(&arena->gate, 1);
    return 0;
}

static int submit_as_batch(struct mw_lane *lane, struct mw_job *job)
{
    int count = mw_lane_submit_batch(lane, &job, 1);

    return count == 1 ? 0 : count;
}

static void submit_stressed(void *arg)
{
    const struct role *role = arg;
    struct arena *arena = role->arena;
    unsigned seed = role->number;
    int error = 0;

    for (unsigned i = 0; i < JOBS * ROUNDS && error != -ESHUTDOWN; i++) {
        struct stressed_job *stressed = &arena->jobs[role->number][i % JOBS];

        while (!atomic_exchange_explicit(&stressed->free, false, memory_order_acquire))
            sched_yield();
        stressed->job.deadline_ns = next_random(&seed) % 8 == 0 ? mw_clock_ns() : 0;
        stressed->job.priority = (enum mw_job_priority)(next_random(&seed) % MW_JOB_PRIORITIES);
        stressed->job.tenant = next_random(&seed) % TENANTS;
        if (next_random(&seed) % 4 == 0)
            error = submit_as_batch(arena->lane, &stressed->job);
        else
            error = mw_lane_submit(arena->lane, &stressed->job);
        if (error == 0)
            add(&stressed->taken, 1);
        else
            atomic_store_explicit(&stressed->free, true, memory_order_release);
    }
}

static void cancel_stressed(void *arg)
{
    const struct role *role = arg;
    struct arena *arena = role->arena;
    unsigned seed = 1000 + role->number;

    while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
        unsigned n = next_random(&seed);

        (void)mw_lane_cancel(arena->lane, &arena->jobs[n % SUBMITTERS][n / SUBMITTERS % JOBS].job);
        if (n % 16 == 0)
            sched_yield();
    }
}

static void wait_stressed(void *arg)
{
    const struct role *role = arg;
    struct arena *arena = role->arena;
    unsigned seed = 2000 + role->number;

    while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
        unsigned n = next_random(&seed);
        struct mw_job *job = &arena->jobs[n % SUBMITTERS][n / SUBMITTERS % JOBS].job;

        (void)mw_lane_wait(arena->lane, job, mw_clock_ns() + n % 64 * MW_NS_PER_US);
        (void)mw_lane_wait_estimate_ns(arena->lane);
    }
}

static void arena_open(struct arena *arena, const struct mw_lane_options *kind)
{
    struct mw_lane_options options = *kind;
    enum mw_lane_runner runner = kind->runner;

    options.queue_max = SUBMITTERS * JOBS / 2;
    options.tenants_max = TENANTS;
    options.urgency = MW_LANE_EQUAL; /* or a busy machine would let the lane wait for minutes */
    memset(arena, 0, sizeof *arena);
    arena->cap = kind->cap;
    counter_init(&arena->gate);
    counter_init(&arena->held);
    if (runner == MW_LANE_POOL)
        assert_int_equal(mw_pool_new(&arena->pool,
                                     &(struct mw_pool_options){
                                         .min_threads = 1, .max_threads = POOL_MAX, .idle_ms = 1}),
                         0);
    options.pool = arena->pool;
    assert_int_equal(mw_lane_new(&arena->lane, &options), 0);
    for (unsigned s = 0; s < SUBMITTERS; s++)
        for (unsigned i = 0; i < JOBS; i++) {
            struct stressed_job *stressed = &arena->jobs[s][i];

            stressed->job.fn = run_stressed;
            stressed->job.done = done_stressed;
            stressed->arena = arena;
            atomic_init(&stressed->free, true);
        }
}

static void arena_close(struct arena *arena)
{
    mw_pool_free(arena->pool);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
    assert_int_equal(mw_thread_count(MW_THREAD_POOL), 0);
    counter_fini(&arena->held);
    counter_fini(&arena->gate);
}

static void start_roles(struct mw_thread *threads, struct role *roles, unsigned count,
                        struct arena *arena, void (*fn)(void *))
{
    for (unsigned i = 0; i < count; i++) {
        roles[i] = (struct role){.arena = arena, .number = i};
        assert_int_equal(mw_thread_start(&threads[i], &(struct mw_thread_options){.name = "role"},
                                         fn, &roles[i]),
                         0);
    }
}

static void start_others(struct mw_thread *threads, struct role *roles, struct arena *arena)
{
    start_roles(threads, roles, CANCELLERS, arena, cancel_stressed);
    start_roles(threads + CANCELLERS, roles + CANCELLERS, WAITERS, arena, wait_stressed);
}

static void join_roles(struct mw_thread *threads, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        mw_thread_join(&threads[i]);
}

/* Each submit that was taken got its done(), and no more than its one run. */
static unsigned check_accounts(struct arena *arena)
{
    unsigned taken = 0;
    unsigned runs = 0;

    for (unsigned s = 0; s < SUBMITTERS; s++)
        for (unsigned i = 0; i < JOBS; i++) {
            struct stressed_job *stressed = &arena->jobs[s][i];

            assert_int_equal(stressed->dones, stressed->taken);
            assert_true(stressed->runs <= stressed->taken);
            taken += stressed->taken;
            runs += stressed->runs;
        }
    assert_int_equal(arena->above_cap, 0);
    assert_int_equal(arena->statuses[0], runs);
    assert_int_equal(arena->statuses[3], 0);
    assert_int_equal(arena->statuses[0] + arena->statuses[1] + arena->statuses[2], taken);
    return taken;
}

static void stress_and_drain(const struct mw_lane_options *kind)
{
    static struct arena arena;
    struct role roles[SUBMITTERS + OTHERS];
    struct mw_thread threads[SUBMITTERS + OTHERS];
    struct mw_lane_stats stats;
    unsigned taken;

    arena_open(&arena, kind);
    start_roles(threads, roles, SUBMITTERS, &arena, submit_stressed);
    start_others(threads + SUBMITTERS, roles + SUBMITTERS, &arena);
    join_roles(threads, SUBMITTERS);
    atomic_store_explicit(&arena.stop, true, memory_order_relaxed);
    join_roles(threads + SUBMITTERS, OTHERS);
    do {
        sched_yield();
        mw_lane_snapshot(arena.lane, &stats);
    } while (stats.queued > 0 || stats.running > 0);
    mw_lane_free(arena.lane, false);
    taken = check_accounts(&arena);
    assert_int_equal(stats.submitted, taken);
    assert_int_equal(stats.completed + stats.cancelled + stats.expired, taken);
    assert_in_range(stats.running_peak, 1, arena.cap);
    assert_int_equal(stats.ran_on_lane, kind->runner == MW_LANE_DEDICATED ? stats.completed : 0);
    assert_int_equal(stats.ran_on_pool, kind->runner == MW_LANE_POOL ? stats.completed : 0);
    arena_close(&arena);
}

static void close_the_lane(void *arg)
{
    mw_lane_free(arg, true);
}

/* A held job keeps the lane from going away until the others have learned that it closes. */
static void stress_and_close(const struct mw_lane_options *kind)
{
    static struct arena arena;
    static struct stressed_job holder;
    struct role roles[SUBMITTERS + OTHERS];
    struct mw_thread threads[SUBMITTERS + OTHERS];
    struct mw_thread closer;

    arena_open(&arena, kind);
    holder = (struct stressed_job){.job = {.fn = hold}, .arena = &arena};
    assert_int_equal(mw_lane_submit(arena.lane, &holder.job), 0);
    assert_true(counter_await(&arena.held, 1));
    start_roles(threads, roles, SUBMITTERS, &arena, submit_stressed);
    start_others(threads + SUBMITTERS, roles + SUBMITTERS, &arena);
    assert_int_equal(mw_thread_start(&closer, &(struct mw_thread_options){.name = "closer"},
                                     close_the_lane, arena.lane),
                     0);
    join_roles(threads, SUBMITTERS);
    atomic_store_explicit(&arena.stop, true, memory_order_relaxed);
    join_roles(threads + SUBMITTERS, OTHERS);
    counter_add(&arena.gate, 1);
    mw_thread_join(&closer);
    (void)check_accounts(&arena);
    arena_close(&arena);
}

/* Breaks when a race loses or repeats a job, or lets more than cap run at once; in whichever way
 * the lane parks, yields or spins. */
static void lane_keeps_its_promises_under_stress(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++)
        stress_and_drain(&kinds[i]);
}

/* Breaks when closing races with submit, cancel or expiry over who calls done(). */
static void closing_lane_calls_each_done_once(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++)
        stress_and_close(&kinds[round % KINDS]);
}

/* Breaks when starts that fail now and then strand a job or leak a place under the cap. */
static void lane_keeps_its_promises_while_starts_fail(void **state)
{
    static struct arena arena;
    struct role roles[SUBMITTERS];
    struct mw_thread threads[SUBMITTERS];

    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        arena_open(&arena, &kinds[round % KINDS]);
        start_roles(threads, roles, SUBMITTERS, &arena, submit_stressed);
        thread_starts_allow((int)(round % 5));
        join_roles(threads, SUBMITTERS);
        mw_lane_free(arena.lane, false);
        thread_starts_allow(-1);
        (void)check_accounts(&arena);
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_keeps_its_promises_under_stress),
        cmocka_unit_test(closing_lane_calls_each_done_once),
        cmocka_unit_test(lane_keeps_its_promises_while_starts_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

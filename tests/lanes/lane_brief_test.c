/* A lane whose leaves are brief runs them on one thread. What must hold all the same: a leaf that
 * blocks does not hold up what a free place under the cap could run. Whether leaves count as brief
 * is the machine's to say, so these tests only make it likely; what they check holds in any case.
 * Threads linger for ever: no time that is up heals a wake-up that was lost. */
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

#define CAP_MIN    2
#define CAP_MAX    4
#define STREAMS    3   /* threads that go on submitting empty jobs */
#define RING       64  /* jobs of each */
#define BRIEF_JOBS 300 /* enough for a lane to take leaves for brief */
#define ROUNDS     (SANITIZED_THREADS ? 40u : 300u)
#define FREES      (SANITIZED_THREADS ? 20u : 100u)
#define MIXED_JOBS (SANITIZED_THREADS ? 2000u : 20000u) /* of each submitter of the stress */
#define STUCK_NS   (50 * MW_NS_PER_MS) /* how long the control looks at a stuck lane */

struct crew;

/* A leaf: it tells `told`, then waits until `awaited` has reached `enough`. Either may be NULL. */
struct task {
    struct mw_job job; /* first, so that fn can cast */
    struct crew *crew;
    struct counter *told;
    struct counter *awaited;
    unsigned enough;
    bool has_token;
    bool yields;
    unsigned taken;    /* written by its submitter */
    unsigned runs;     /* written by its leaf */
    unsigned dones;    /* by done() */
    _Atomic bool free; /* release when done, acquire before the next submit */
};

/* Who uses one lane. Its counters are relaxed: numbers of their own, published by the joins. */
struct crew {
    struct mw_lane *lane;
    struct counter ended;   /* tasks of `meet` that are done */
    unsigned ended_before;  /* of earlier meetings */
    _Atomic unsigned stuck; /* waits that were given up */
    _Atomic unsigned
        tokens; /* leaves that may block at once: with all of the cap they would wedge */
    _Atomic bool stop;
    struct task ring[RING]; /* of the test's own thread */
};

struct stream {
    struct crew *crew;
    unsigned seed;
    struct mw_thread thread;
    struct task ring[RING];
    struct task partners[RING]; /* of those in `ring` that block */
    struct counter meetings[RING];
};

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int run_nothing(struct mw_job *job)
{
    ((struct task *)job)->runs++;
    return 0;
}

static int run_task(struct mw_job *job)
{
    struct task *task = (struct task *)job;

    task->runs++;
    if (task->yields)
        sched_yield();
    if (task->told != NULL)
        counter_add(task->told, 1);
    if (task->awaited != NULL && !counter_await(task->awaited, task->enough))
        atomic_fetch_add_explicit(&task->crew->stuck, 1, memory_order_relaxed);
    return 0;
}

static void done_task(struct mw_job *job, int status)
{
    struct task *task = (struct task *)job;

    task->dones += status == 0;
    if (task->has_token)
        atomic_fetch_add_explicit(&task->crew->tokens, 1, memory_order_relaxed);
    atomic_store_explicit(&task->free, true, memory_order_release);
}

static void done_meeting(struct mw_job *job, int status)
{
    struct task *task = (struct task *)job;

    task->dones += status == 0;
    counter_add(&task->crew->ended, 1);
}

static void ring_init(struct task *ring, struct crew *crew)
{
    for (unsigned i = 0; i < RING; i++) {
        ring[i] = (struct task){.job = {.fn = run_nothing, .done = done_task}, .crew = crew};
        atomic_init(&ring[i].free, true);
    }
}

/* Each submit that was taken was run and done, once. */
static void ring_check(const struct task *ring)
{
    for (unsigned i = 0; i < RING; i++) {
        assert_int_equal(ring[i].runs, ring[i].taken);
        assert_int_equal(ring[i].dones, ring[i].taken);
    }
}

static void crew_open(struct crew *crew, unsigned cap, unsigned spin_us)
{
    memset(crew, 0, sizeof *crew);
    counter_init(&crew->ended);
    atomic_init(&crew->tokens, cap - 1);
    ring_init(crew->ring, crew);
    assert_int_equal(mw_lane_new(&crew->lane, &(struct mw_lane_options){.cap = cap,
                                                                        .linger_ms = 3600000,
                                                                        .spin_us = spin_us,
                                                                        .urgency = MW_LANE_EQUAL}),
                     0);
}

/* The lane has been freed. */
static void crew_close(struct crew *crew)
{
    assert_int_equal(crew->stuck, 0);
    ring_check(crew->ring);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
    counter_fini(&crew->ended);
}

/* Wait until the task is its submitter's again. Returns false when that takes too long. */
static bool task_await(struct task *task)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;

    while (!atomic_exchange_explicit(&task->free, false, memory_order_acquire)) {
        if (mw_clock_ns() > deadline) {
            atomic_fetch_add_explicit(&task->crew->stuck, 1, memory_order_relaxed);
            return false;
        }
        sched_yield();
    }
    return true;
}

/* Submit a task that is free; the lane has room for it. */
static bool task_submit(struct task *task)
{
    task->taken++;
    return mw_lane_submit(task->crew->lane, &task->job) == 0;
}

static void submit_empty(struct crew *crew, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct task *task = &crew->ring[i % RING];

        assert_true(task_await(task));
        assert_true(task_submit(task));
    }
}

/* Whether all have ended; `count` more than before. */
static bool await_ended(struct crew *crew, unsigned count)
{
    crew->ended_before += count;
    return counter_await(&crew->ended, crew->ended_before);
}

/* A leaf that blocks until another one behind it has run. */
static void pair_init(struct task *pair, struct crew *crew, struct counter *meeting)
{
    const struct mw_job job = {.fn = run_task, .done = done_meeting};

    pair[0] = (struct task){.job = job, .crew = crew, .awaited = meeting, .enough = 1};
    pair[1] = (struct task){.job = job, .crew = crew, .told = meeting};
}

static void submit_empty_on(void *arg)
{
    struct stream *stream = arg;

    for (unsigned i = 0; !atomic_load_explicit(&stream->crew->stop, memory_order_relaxed); i++) {
        struct task *task = &stream->ring[i % RING];

        if (!task_await(task) || !task_submit(task))
            break;
        if (next_random(&stream->seed) % 256 == 0)
            sched_yield(); /* now and then the lane runs dry */
    }
}

static void streams_start(struct stream *streams, struct crew *crew, void (*fn)(void *))
{
    for (unsigned s = 0; s < STREAMS; s++) {
        streams[s].crew = crew;
        streams[s].seed = s;
        ring_init(streams[s].ring, crew);
        ring_init(streams[s].partners, crew);
        assert_int_equal(mw_thread_start(&streams[s].thread,
                                         &(struct mw_thread_options){.name = "stream"}, fn,
                                         &streams[s]),
                         0);
    }
}

static void streams_join(struct stream *streams)
{
    for (unsigned s = 0; s < STREAMS; s++)
        mw_thread_join(&streams[s].thread);
}

static void streams_check(struct stream *streams)
{
    for (unsigned s = 0; s < STREAMS; s++) {
        ring_check(streams[s].ring);
        ring_check(streams[s].partners);
    }
}

/* Pairs at many places in what the streams submit. */
static void pairs_among_brief_leaves(unsigned cap, unsigned streams_count)
{
    static struct stream streams[STREAMS];
    static struct crew crew;
    unsigned seed = cap;

    crew_open(&crew, cap, 0);
    submit_empty(&crew, BRIEF_JOBS);
    if (streams_count > 0)
        streams_start(streams, &crew, submit_empty_on);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct counter meeting;
        struct task pair[2];

        counter_init(&meeting);
        pair_init(pair, &crew, &meeting);
        submit_empty(&crew, next_random(&seed) % 200);
        assert_true(task_submit(&pair[0]));
        submit_empty(&crew, next_random(&seed) % 20);
        assert_true(task_submit(&pair[1]));
        submit_empty(&crew, next_random(&seed) % 20);
        assert_true(await_ended(&crew, 2));
        counter_fini(&meeting);
    }
    atomic_store_explicit(&crew.stop, true, memory_order_relaxed);
    if (streams_count > 0)
        streams_join(streams);
    mw_lane_free(crew.lane, false);
    if (streams_count > 0)
        streams_check(streams);
    crew_close(&crew);
}

/* Breaks when nobody stands by for the only loop, or who stands by does not see that it is stuck,
 * or lets go too early. */
static void blocking_leaf_does_not_hold_up_the_lane(void **state)
{
    (void)state;
    for (unsigned cap = CAP_MIN; cap <= CAP_MAX; cap++)
        pairs_among_brief_leaves(cap, 0);
}

/* Breaks when that goes wrong only while jobs are posted to the inbox, or are taken in between. */
static void blocking_leaf_does_not_hold_up_a_stream(void **state)
{
    (void)state;
    for (unsigned cap = CAP_MIN; cap <= CAP_MAX; cap++)
        pairs_among_brief_leaves(cap, STREAMS);
}

/* Control for the two above: with one thread such a pair is stuck, and a wait shows it. */
static void blocking_leaf_holds_up_a_lane_of_one(void **state)
{
    static struct crew crew;
    struct counter meeting;
    struct task pair[2];

    (void)state;
    crew_open(&crew, 1, 0);
    counter_init(&meeting);
    pair_init(pair, &crew, &meeting);
    submit_empty(&crew, BRIEF_JOBS);
    assert_true(task_submit(&pair[0]));
    assert_true(task_submit(&pair[1]));
    assert_int_equal(mw_lane_wait(crew.lane, &pair[1].job, mw_clock_ns() + STUCK_NS), -ETIMEDOUT);
    assert_int_equal(counter_value(&crew.ended), 0);
    counter_add(&meeting, 1);
    assert_true(await_ended(&crew, 2));
    assert_int_equal(mw_lane_wait(crew.lane, &pair[1].job, UINT64_MAX), 0);
    mw_lane_free(crew.lane, false);
    counter_fini(&meeting);
    crew_close(&crew);
}

/* Breaks when who takes over brings nobody else: as many leaves as the cap allows wait for each
 * other. */
static void cap_leaves_meet_after_brief_ones(void **state)
{
    static struct crew crew;

    (void)state;
    for (unsigned cap = CAP_MIN; cap <= CAP_MAX; cap++) {
        crew_open(&crew, cap, 0);
        for (unsigned round = 0; round < ROUNDS; round++) {
            struct counter meeting;
            struct task all[CAP_MAX];

            counter_init(&meeting);
            submit_empty(&crew, BRIEF_JOBS);
            for (unsigned i = 0; i < cap; i++) {
                all[i] = (struct task){.job = {.fn = run_task, .done = done_meeting},
                                       .crew = &crew,
                                       .told = &meeting,
                                       .awaited = &meeting,
                                       .enough = cap};
                assert_true(task_submit(&all[i]));
            }
            assert_true(await_ended(&crew, cap));
            counter_fini(&meeting);
        }
        mw_lane_free(crew.lane, false);
        crew_close(&crew);
    }
}

/* Breaks when a closing lane sends a thread home that a queued job needs. */
static void lane_that_closes_drains_a_pair(void **state)
{
    static struct crew crew;
    unsigned seed = 1;

    (void)state;
    for (unsigned i = 0; i < FREES; i++) {
        struct counter meeting;
        struct task pair[2];

        crew_open(&crew, CAP_MIN + i % (CAP_MAX - CAP_MIN + 1), 0);
        counter_init(&meeting);
        pair_init(pair, &crew, &meeting);
        submit_empty(&crew, BRIEF_JOBS + next_random(&seed) % 200);
        assert_true(task_submit(&pair[0]));
        submit_empty(&crew, next_random(&seed) % 4);
        assert_true(task_submit(&pair[1]));
        mw_lane_free(crew.lane, false);
        assert_int_equal(pair[0].dones, 1);
        assert_int_equal(pair[1].dones, 1);
        counter_fini(&meeting);
        crew_close(&crew);
    }
}

/* Take one of the crew's tokens, if there is one. */
static bool token_take(struct crew *crew)
{
    unsigned tokens = atomic_load_explicit(&crew->tokens, memory_order_relaxed);

    while (tokens > 0 &&
           !atomic_compare_exchange_weak_explicit(&crew->tokens, &tokens, tokens - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    return tokens > 0;
}

static void submit_mixed(void *arg)
{
    struct stream *stream = arg;

    for (unsigned i = 0; i < MIXED_JOBS; i++) {
        struct task *task = &stream->ring[i % RING];
        struct task *partner = &stream->partners[i % RING];
        struct counter *meeting = &stream->meetings[i % RING];
        unsigned kind = next_random(&stream->seed) % 1024;

        if (!task_await(task) || !task_await(partner))
            return;
        task->has_token = kind < 8 && token_take(stream->crew);
        task->yields = kind >= 8 && kind < 16;
        task->job.fn = task->has_token || task->yields ? run_task : run_nothing;
        task->awaited = task->has_token ? meeting : NULL;
        task->enough = counter_value(meeting) + 1;
        partner->job.fn = run_task;
        partner->told = meeting;
        if (!task_submit(task) || (task->has_token && !task_submit(partner)))
            return;
        if (!task->has_token)
            atomic_store_explicit(&partner->free, true, memory_order_relaxed); /* it was not used */
    }
}

/* Breaks when empty, yielding and blocking leaves in any order, from several threads, strand a job
 * or repeat one, in whichever way threads wait for more. */
static void lane_keeps_its_promises_to_mixed_leaves(void **state)
{
    static struct stream streams[STREAMS];
    static struct crew crew;

    (void)state;
    for (unsigned kind = 0; kind < 2 * CAP_MAX; kind++) {
        struct mw_lane_stats stats;
        unsigned cap = 1 + kind / 2;

        for (unsigned s = 0; s < STREAMS; s++)
            for (unsigned i = 0; i < RING; i++)
                counter_init(&streams[s].meetings[i]);
        crew_open(&crew, cap, kind % 2 * MW_LANE_SPIN_US_MAX);
        streams_start(streams, &crew, submit_mixed);
        streams_join(streams);
        mw_lane_snapshot(crew.lane, &stats);
        assert_in_range(stats.running_peak, 1, cap);
        mw_lane_free(crew.lane, false);
        assert_int_equal(crew.tokens, cap - 1);
        streams_check(streams);
        crew_close(&crew);
        for (unsigned s = 0; s < STREAMS; s++)
            for (unsigned i = 0; i < RING; i++)
                counter_fini(&streams[s].meetings[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocking_leaf_does_not_hold_up_the_lane),
        cmocka_unit_test(blocking_leaf_does_not_hold_up_a_stream),
        cmocka_unit_test(blocking_leaf_holds_up_a_lane_of_one),
        cmocka_unit_test(cap_leaves_meet_after_brief_ones),
        cmocka_unit_test(lane_that_closes_drains_a_pair),
        cmocka_unit_test(lane_keeps_its_promises_to_mixed_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

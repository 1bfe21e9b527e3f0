/* The half of a lane that takes jobs and runs them: its loops, the threads of its own that carry
 * them, and what happens to one job. The theory and the invariants stand in lane.c. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>

#include <millwright/clock.h>
#include <millwright/flow.h>
#include <millwright/futex.h>

#include "lane_internal.h"

/* After this much a loop on the shared pool goes to the tail of the pool's queue, so that the
 * pool's other items are not held up by a long lane. */
#define QUANTUM_LEAVES 16u
#define QUANTUM_NS     (30 * MW_NS_PER_MS)

/* So often a loop looks at the inbox between two looks at the clock. */
#define SPINS 16

/* The mean of the run times follows the last so many, roughly. */
#define MEAN_RUNS 16

/* What the futex of a lane's only thread says. */
#define DOWN   0u
#define WOKEN  1u
#define ASLEEP 2u

/* What one loop carries from job to job. */
struct round {
    uint64_t now;       /* the newest time it knows */
    uint64_t ticks;     /* when that was read; 0: long ago */
    bool is_first;      /* the loop has just come */
    bool has_expired;   /* the job that it has taken */
    uint64_t called_ns; /* see struct slot */
};

static _Thread_local struct mw_lane *own_lane MW_THREAD_LOCAL_NEAR;

static void loop_arrive(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static bool loop_wanted(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static struct slot *loop_reserve(struct mw_lane *lane, uint64_t now) MW_REQUIRES(lane->lock);
static int loop_launch(struct slot *slot);
static void loop_roll_back(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool loop_look_again(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void inbox_watch(const struct mw_lane *lane);
static bool loop_end(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void loop_on_pool(struct mw_pool_item *item);
static int loop_yield(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);

static void thread_main(void *arg);
static void thread_call(struct mw_lane *lane, uint64_t now) MW_REQUIRES(lane->lock);
static bool thread_park(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool thread_sleep(struct mw_lane *lane, struct slot *slot, uint64_t deadline_ns)
    MW_REQUIRES(lane->lock);
static bool thread_sleep_alone(struct mw_lane *lane, struct slot *slot, uint64_t deadline_ns)
    MW_REQUIRES(lane->lock);
static _Atomic uint32_t *thread_mark_alone(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static bool thread_leave(struct mw_lane *lane, struct slot *slot, struct mw_thread *before)
    MW_REQUIRES(lane->lock);
static void slot_release(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);

static bool jobs_run(struct mw_lane *lane, struct slot *slot, unsigned count_max, uint64_t until_ns)
    MW_REQUIRES(lane->lock);
static struct mw_job *job_take(struct mw_lane *lane, struct slot *slot, struct round *round)
    MW_REQUIRES(lane->lock);
static void job_run(struct mw_lane *lane, struct slot *slot, struct mw_job *job,
                    struct round *round) MW_REQUIRES(lane->lock);
static int job_call(struct slot *slot, struct mw_job *job, struct round *round);
static void job_count(struct slot *slot, const struct mw_job *job, const struct round *round);

struct mw_lane *lane_own(void)
{
    return own_lane;
}

/* The lane is still private to its maker: nothing here needs the lock. */
void slots_init(struct mw_lane *lane)
{
    for (unsigned i = lane->options.cap; i > 0; i--) {
        struct slot *slot = &lane->slots[i - 1];

        slot->lane = lane;
        slot->item.fn = loop_on_pool;
        slot->next = lane->unused;
        lane->unused = slot;
    }
}

/* ---- loops ---- */

/* See that a loop comes for a job just queued, if one is wanted and allowed. */
int loop_bring(struct mw_lane *lane, uint64_t now)
{
    struct slot *slot;
    int error;

    if (!loop_wanted(lane))
        return 0;
    if (lane->parked > 0) {
        thread_call(lane, now);
        return 0;
    }
    slot = loop_reserve(lane, now);
    error = loop_launch(slot);
    if (error != 0)
        loop_roll_back(lane, slot);
    return error;
}

/* A loop looks at the queue for the first time: bring the next one if there is more than it can
 * take itself. That one is launched without the lock, which is safe because this loop is active
 * meanwhile, and kind because this thread may be a slow one (SCHED_IDLE). */
static void loop_arrive(struct mw_lane *lane)
{
    inbox_settle(lane); /* it was woken: who posts from now on must look for himself */
    lane_take_in(lane);
    if (loop_wanted(lane) && lane->parked == 0) { /* it still counts as coming, for its own job */
        struct slot *next = loop_reserve(lane, mw_clock_ns());
        int error;

        inbox_settle(lane);
        lane_unlock(lane);
        error = loop_launch(next);
        mw_spin_mutex_lock(&lane->lock);
        if (error != 0)
            loop_roll_back(lane, next);
        inbox_settle(lane);
    }
    if (loop_wanted(lane) && lane->parked > 0)
        thread_call(lane, mw_clock_ns());
    lane->coming--;
    inbox_settle(lane);
}

static bool loop_wanted(const struct mw_lane *lane)
{
    if (lane->queue.queued <= lane->coming || lane->active == lane->options.cap)
        return false;
    return lane->parked == 0 || !lane->waking;
}

static struct slot *loop_reserve(struct mw_lane *lane, uint64_t now)
{
    struct slot *slot = lane->unused;

    assert(slot != NULL); /* cap slots; active < cap, and nothing is parked */
    lane->unused = slot->next;
    slot->called_ns = now;
    lane->active++;
    lane->coming++;
    if (lane->options.runner == MW_LANE_DEDICATED)
        lane->threads++;
    return slot;
}

static int loop_launch(struct slot *slot)
{
    const struct mw_lane_options *options = &slot->lane->options;
    struct mw_thread_options thread_options = {.kind = MW_THREAD_LANE,
                                               .stack_bytes = options->stack_bytes,
                                               .nice = options->urgency == MW_LANE_NICE_19 ? 19 : 0,
                                               .idle = options->urgency == MW_LANE_IDLE};
    struct mw_thread thread; /* thread_main notes itself which thread it is */
    uint64_t leaf;
    int error;

    if (options->runner == MW_LANE_DEDICATED)
        return mw_thread_start(&thread, &thread_options, thread_main, slot);
    /* The loop flows from nobody; each job carries its own parent. */
    leaf = mw_flow_enter(0);
    error = mw_pool_submit(options->pool, &slot->item);
    mw_flow_enter(leaf);
    return error;
}

static void loop_roll_back(struct mw_lane *lane, struct slot *slot)
{
    lane->start_failures++;
    lane->active--;
    lane->coming--;
    if (lane->options.runner == MW_LANE_DEDICATED)
        lane->threads--;
    slot_release(lane, slot);
}

/* The loop found nothing: look again in a moment, unless another loop does so already. The inbox is
 * open meanwhile, and this loop counts as coming, so a submit costs nobody a lock or a wake.
 * Returns whether there is work. Workers of the shared pool have other items to go to. */
static bool loop_look_again(struct mw_lane *lane)
{
    if (lane->options.runner != MW_LANE_DEDICATED || lane->spinning || lane->closing)
        return false;
    lane->spinning = true;
    lane->coming++;
    inbox_settle(lane);
    lane_unlock(lane);
    inbox_watch(lane);
    mw_spin_mutex_lock(&lane->lock);
    lane->spinning = false;
    loop_arrive(lane);
    return lane->queue.queued > 0;
}

/* Spin as long as the host wants that. Else let another thread have this CPU once: it may be just
 * about to post, and then neither a sleep nor a wake is needed (push-heavy loads take half the time
 * for it; docs/measurements.md). */
static void inbox_watch(const struct mw_lane *lane)
{
    uint64_t end_ns;

    if (lane->spin_ns == 0) {
        sched_yield();
        return;
    }
    end_ns = mw_clock_ns() + lane->spin_ns;
    do {
        for (int i = 0;
             i < SPINS && atomic_load_explicit(&lane->inbox, memory_order_relaxed) == NULL; i++)
            mw_cpu_relax();
    } while (atomic_load_explicit(&lane->inbox, memory_order_relaxed) == NULL &&
             mw_clock_ns() < end_ns);
}

/* The loop found nothing: let it end, unless something was posted since. */
static bool loop_end(struct mw_lane *lane)
{
    lane->active--;
    inbox_settle(lane);
    if (lane->queue.queued == 0)
        return true;
    lane->active++;
    return false;
}

/* One quantum of a loop, as an item of the shared pool. After the unlock the lane may be gone. */
static void loop_on_pool(struct mw_pool_item *item)
{
    struct slot *slot = (struct slot *)((char *)item - offsetof(struct slot, item));
    struct mw_lane *lane = slot->lane;
    bool more;

    own_lane = lane;
    mw_spin_mutex_lock(&lane->lock);
    loop_arrive(lane);
    do {
        more = jobs_run(lane, slot, QUANTUM_LEAVES, mw_clock_ns() + QUANTUM_NS);
    } while (more && loop_yield(lane, slot) != 0);
    if (!more)
        slot_release(lane, slot);
    lane_check(lane);
    own_lane = NULL;
    lane_unlock(lane);
}

/* Another worker may pick the item up at once; it then waits for the lock that we hold. */
static int loop_yield(struct mw_lane *lane, struct slot *slot)
{
    int error = mw_pool_yield(lane->options.pool, &slot->item);

    if (error == 0) {
        slot->called_ns = mw_clock_ns();
        lane->coming++;
    }
    return error;
}

/* ---- threads of the lane's own ---- */

static void thread_main(void *arg)
{
    struct slot *slot = arg;
    struct mw_lane *lane = slot->lane;
    struct mw_thread before;
    bool has_before;

    own_lane = lane;
    mw_spin_mutex_lock(&lane->lock);
    slot->thread.os = pthread_self();
    do {
        loop_arrive(lane);
        jobs_run(lane, slot, UINT_MAX, UINT64_MAX);
    } while (thread_park(lane, slot));
    has_before = thread_leave(lane, slot, &before);
    lane_unlock(lane);
    if (has_before)
        mw_thread_join(&before);
}

/* Wake a parked thread, as soon as the lock is free. */
static void thread_call(struct mw_lane *lane, uint64_t now)
{
    assert(!lane->waking && lane->to_wake == NULL);
    lane->waking = true;
    lane->waking_called_ns = now;
    lane->parked--;
    lane->active++;
    lane->coming++;
    lane->to_wake = lane->options.cap > 1 ? mw_event_count_choose_one(&lane->sleepers)
                                          : thread_mark_alone(lane);
}

/* Linger for more work. Returns false when the thread should end. */
static bool thread_park(struct mw_lane *lane, struct slot *slot)
{
    uint64_t deadline = mw_clock_ns() + lane->options.linger_ms * MW_NS_PER_MS;
    bool in_time = true;

    lane->parked++;
    inbox_settle(lane);
    while (!lane->waking && !lane->closing && in_time)
        in_time = lane->options.cap > 1 ? thread_sleep(lane, slot, deadline)
                                        : thread_sleep_alone(lane, slot, deadline);
    if (lane->waking) { /* whomever it was meant for */
        lane->waking = false;
        slot->called_ns = lane->waking_called_ns;
        return true;
    }
    lane->parked--;
    return false;
}

/* Sleep until called; false: the time was up. The announcement comes before the lock is freed, and
 * callers hold it, so there is no further look between prepare and wait: the caller's was it. */
static bool thread_sleep(struct mw_lane *lane, struct slot *slot, uint64_t deadline_ns)
{
    struct mw_event_key key = mw_event_count_prepare(&lane->sleepers);
    enum mw_event_outcome outcome;

    lane_unlock(lane);
    outcome = mw_event_count_wait(&lane->sleepers, key, &slot->waiter, 0, deadline_ns);
    mw_spin_mutex_lock(&lane->lock);
    return outcome != MW_EVENT_TIMED_OUT;
}

/* The same for a lane's only thread: one word, and nobody to tell apart. */
static bool thread_sleep_alone(struct mw_lane *lane, struct slot *slot, uint64_t deadline_ns)
{
    _Atomic uint32_t *word = &slot->waiter.futex;
    uint32_t down = DOWN;
    bool in_time = true;

    atomic_store_explicit(word, DOWN, memory_order_relaxed); /* the lock orders it */
    lane_unlock(lane);
    /* relaxed: what the caller did is read under the lock */
    if (atomic_compare_exchange_strong_explicit(word, &down, ASLEEP, memory_order_relaxed,
                                                memory_order_relaxed))
        while (in_time && atomic_load_explicit(word, memory_order_relaxed) == ASLEEP)
            in_time = mw_futex_wait(word, ASLEEP, deadline_ns);
    mw_spin_mutex_lock(&lane->lock);
    return in_time;
}

/* Returns the word to wake, NULL if the thread does not sleep. */
static _Atomic uint32_t *thread_mark_alone(struct mw_lane *lane)
{
    _Atomic uint32_t *word = &lane->slots[0].waiter.futex;

    return atomic_exchange_explicit(word, WOKEN, memory_order_relaxed) == ASLEEP ? word : NULL;
}

/* Send all parked threads home. */
void threads_dismiss(struct mw_lane *lane)
{
    if (lane->parked == 0)
        return;
    if (lane->options.cap > 1)
        mw_event_count_notify_all(&lane->sleepers);
    else
        lane->to_wake = thread_mark_alone(lane);
}

/* Give the slot back and take the place of the last thread that left. Returns true, and that
 * thread in `before`, when there is one to join. */
static bool thread_leave(struct mw_lane *lane, struct slot *slot, struct mw_thread *before)
{
    bool has_before = lane->has_ended;

    *before = lane->ended;
    lane->ended = slot->thread;
    lane->has_ended = true;
    lane->threads--;
    slot_release(lane, slot);
    lane_check(lane);
    return has_before;
}

static void slot_release(struct mw_lane *lane, struct slot *slot)
{
    slot->next = lane->unused;
    lane->unused = slot;
    lane_quiet_check(lane);
}

/* ---- jobs ---- */

/* Run jobs until the queue is empty, and end the loop under the same lock (false); or until
 * `count_max` of them ran or the time is up (true). The lock is free while a job runs. */
static bool jobs_run(struct mw_lane *lane, struct slot *slot, unsigned count_max, uint64_t until_ns)
{
    struct round round = {.is_first = true, .called_ns = slot->called_ns};
    unsigned count = 0;

    do {
        struct mw_job *job;

        while ((job = job_take(lane, slot, &round)) != NULL) {
            job_run(lane, slot, job, &round);
            if (++count < count_max && round.now < until_ns)
                continue;
            lane_take_in(lane);
            if (lane->queue.queued > 0)
                return true;
        }
    } while (loop_look_again(lane) || !loop_end(lane));
    return false;
}

static struct mw_job *job_take(struct mw_lane *lane, struct slot *slot, struct round *round)
{
    struct mw_job *job;
    uint64_t state;

    lane_take_in(lane);
    job = job_queue_take(&lane->queue);
    if (job == NULL)
        return NULL;
    counter_add(&lane->taken, 1);
    lane->busy++;
    slot->job = job;
    round->has_expired = false;
    if (job->deadline_ns != 0) {
        round->now = mw_clock_ns();
        round->ticks = mw_clock_ticks();
        round->has_expired = round->now >= job->deadline_ns;
    }
    state = atomic_load_explicit(&job->state, memory_order_relaxed);
    atomic_store_explicit(&job->state, (state & ~JOB_STAGE_MASK) | JOB_RUNNING,
                          memory_order_release); /* partner: job_find */
    if (round->has_expired) {
        lane->expired++;
    } else {
        atomic_store_explicit(&slot->in_fn, true, memory_order_relaxed); /* read under the lock */
        if (lane->running_peak < lane->busy)
            lane->running_peak = lane->busy;
    }
    return job;
}

/* Run the job or drop it as expired, hand it back, and account for it. The lock is free meanwhile,
 * and taken again only once. */
static void job_run(struct mw_lane *lane, struct slot *slot, struct mw_job *job,
                    struct round *round)
{
    void (*done)(struct mw_job *, int);
    enum mw_job_priority priority = job->priority;
    uint32_t tenant = job->tenant;
    uint64_t run_ns = 0;
    int status = -ETIMEDOUT;

    lane_unlock(lane);
    if (!round->has_expired) {
        status = job_call(slot, job, round);
        run_ns = job->ended_ns - job->started_ns;
    }
    done = job->done; /* fn() may have set it */
    job_let_go(job);
    if (done != NULL)
        done(job, status);
    mw_spin_mutex_lock(&lane->lock);
    slot->job = NULL;
    lane->busy--;
    if (!round->has_expired) {
        lane->run_mean_ns =
            lane->run_mean_ns == 0
                ? run_ns
                : lane->run_mean_ns - lane->run_mean_ns / MEAN_RUNS + run_ns / MEAN_RUNS;
        job_queue_charge(&lane->queue, priority, tenant, run_ns);
    }
    if (lane->waiters != NULL)
        waiters_release(lane, job);
}

/* Run fn() under the job's own leaf id. */
static int job_call(struct slot *slot, struct mw_job *job, struct round *round)
{
    uint64_t before;
    int status;

    if (!mw_clock_is_near(round->ticks)) /* else it follows the one before at once */
        round->now = mw_clock_ns();
    job->started_ns = round->now;
    job->ran_on = mw_thread_kind_current();
    job->leaf = atomic_load_explicit(&job->state, memory_order_relaxed) >> JOB_STATE_BITS;
    if (job->ran_on == MW_THREAD_POOL)
        mw_flow_arrive(job->parent_leaf);
    counter_add(&slot->stats.started, 1);

    before = mw_flow_enter(job->leaf);
    status = job->fn(job);
    mw_flow_enter(before);

    job->ended_ns = mw_clock_ns();
    round->now = job->ended_ns;
    round->ticks = mw_clock_ticks();
    job_count(slot, job, round);
    round->is_first = false;
    /* release: partner of the acquire in the snapshot */
    atomic_store_explicit(&slot->in_fn, false, memory_order_release);
    return status;
}

static void job_count(struct slot *slot, const struct mw_job *job, const struct round *round)
{
    struct slot_stats *stats = &slot->stats;
    uint64_t wait_ns = job->started_ns - job->queued_ns;

    counter_add(&stats->completed, 1);
    counter_add(&stats->ran_on[job->ran_on], 1);
    mw_histogram_record_alone(&stats->runs, job->ended_ns - job->started_ns);
    if (!round->is_first) {
        mw_histogram_record_alone(&stats->later_waits, wait_ns);
    } else {
        uint64_t slot_ns =
            round->called_ns > job->queued_ns ? round->called_ns - job->queued_ns : 0;

        if (slot_ns > wait_ns)
            slot_ns = wait_ns;
        mw_histogram_record_alone(&stats->first_waits, wait_ns);
        mw_histogram_record_alone(&stats->slot_waits, slot_ns);
        mw_histogram_record_alone(&stats->worker_waits, wait_ns - slot_ns);
    }
}

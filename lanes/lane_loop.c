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

/* A leaf shorter than BRIEF_NS costs less than to share the queue with another loop. */
#define BRIEF_NS     UINT64_C(200)
#define BRIEF_ENOUGH 64u
#define BRIEF_MOST   128u
#define BRIEF_LOSS   32u
#define BRIEF_LOOKS  16u

/* A thread that stands by looks whether jobs are taken after the first of these, then after twice
 * as long each time, up to the second. */
#define STANDBY_NS_MIN (50 * MW_NS_PER_US)
#define STANDBY_NS_MAX (400 * MW_NS_PER_US)

/* The mean of the run times follows the last so many, roughly. */
#define MEAN_RUNS 16

/* What the futex of a lane's only thread says. */
#define DOWN   0u
#define WOKEN  1u
#define ASLEEP 2u

/* What one loop carries from job to job. */
struct round {
    uint64_t now;             /* the newest time it knows */
    enum mw_thread_kind kind; /* of the thread that carries the loop */
    unsigned looks;           /* jobs that were due to be taken */
    bool is_first;            /* the loop has just come */
    bool has_expired;         /* the job that it has taken */
    uint64_t called_ns;       /* see struct slot */
};

static _Thread_local struct mw_lane *own_lane MW_THREAD_LOCAL_NEAR;

static void loop_arrive(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool loop_wanted(const struct mw_lane *lane, unsigned own) MW_REQUIRES(lane->lock);
static struct slot *loop_reserve(struct mw_lane *lane, uint64_t now) MW_REQUIRES(lane->lock);
static int loop_launch(struct slot *slot);
static void loop_roll_back(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool loop_look_again(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static void inbox_watch(const struct mw_lane *lane);
static bool loop_end(struct mw_lane *lane, const struct slot *slot) MW_REQUIRES(lane->lock);
static bool loop_is_spare(const struct mw_lane *lane, const struct slot *slot)
    MW_REQUIRES(lane->lock);
static bool leaves_are_brief(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void loop_stand_down(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool standby_watch(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static uint64_t standby_taken(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void briefness_count(struct mw_lane *lane, uint64_t run_ns) MW_REQUIRES(lane->lock);
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
static uint64_t later(uint64_t a, uint64_t b);

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

/* See that a loop comes for a job just queued, if one is wanted and allowed. A thread is started
 * under the lock: nobody may queue a job on the strength of a loop that then fails to start. */
int loop_bring(struct mw_lane *lane, uint64_t now)
{
    struct slot *slot;
    int error;

    if (!loop_wanted(lane, 0))
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

/* A loop looks at the queue for the first time: bring others if there is more than it can take
 * itself. They are launched without the lock, which is safe because this loop is active meanwhile,
 * and kind because this thread may be a slow one (SCHED_IDLE). One at a time launches: the kernel
 * would make them wait for each other. */
static void loop_arrive(struct mw_lane *lane, struct slot *slot)
{
    lane->coming--;
    inbox_settle(lane); /* it was awaited: who posts from now on must look for himself */
    lane_take_in(lane);
    while (!loop_is_spare(lane, slot) && loop_wanted(lane, 1)) { /* it takes one job itself */
        uint64_t now = mw_clock_ns();
        struct slot *next;
        int error;

        if (lane->parked > 0) {
            thread_call(lane, now);
            continue;
        }
        if (lane->launching)
            break;
        lane->launching = true;
        next = loop_reserve(lane, now);
        inbox_settle(lane);
        lane_unlock(lane);
        error = loop_launch(next);
        mw_spin_mutex_lock(&lane->lock);
        lane->launching = false;
        lane_take_in(lane);
        if (error != 0) {
            loop_roll_back(lane, next);
            break;
        }
    }
    inbox_settle(lane);
}

/* Whether another loop should come; `own` jobs are taken care of. On threads of its own a lane
 * grows in a chain: whoever arrives brings the next, so submitters never wait for more than one,
 * and most never for any. Where leaves may block or are long, several links are forged at a time.
 */
static bool loop_wanted(const struct mw_lane *lane, unsigned own)
{
    if (lane->queue.queued <= lane->coming + own || lane->active == lane->options.cap)
        return false;
    if (lane->options.runner == MW_LANE_POOL)
        return true;
    if (lane->active > 0 && lane->standby != NULL)
        return false;
    if (own == 0 || lane->briefness > 0)
        return lane->coming == 0;
    return lane->parked == 0 || lane->calls < LANE_CALLS_MAX;
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
static bool loop_look_again(struct mw_lane *lane, struct slot *slot)
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
    loop_arrive(lane, slot);
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
static bool loop_end(struct mw_lane *lane, const struct slot *slot)
{
    lane->active--;
    inbox_settle(lane);
    if (lane->queue.queued == 0) {
        if (lane->taker == slot)
            lane->taker = NULL; /* it is not there any more for others to stand down before */
        return true;
    }
    lane->active++;
    return false;
}

/* Whether the others do better without this loop: another has come, and one that is still there has
 * taken a job since this one took its last. That it may sit in that leaf is what the standby is
 * for.
 */
static bool loop_is_spare(const struct mw_lane *lane, const struct slot *slot)
{
    return lane->active > lane->coming + 1 && lane->taker != NULL && lane->taker != slot &&
           leaves_are_brief(lane);
}

static bool leaves_are_brief(const struct mw_lane *lane)
{
    return lane->briefness >= BRIEF_ENOUGH && lane->options.runner == MW_LANE_DEDICATED &&
           !lane->closing;
}

/* End a loop although there may be work: another one is active. */
static void loop_stand_down(struct mw_lane *lane, struct slot *slot)
{
    lane->active--;
    if (lane->standby == NULL) {
        lane->standby = slot;
        lane->standby_ns = STANDBY_NS_MIN;
        lane->standby_taken = standby_taken(lane);
    }
    inbox_settle(lane);
}

/* The thread that stands by has woken up by itself. Returns whether it must take over. */
static bool standby_watch(struct mw_lane *lane)
{
    uint64_t taken = standby_taken(lane);
    bool is_stuck = taken == lane->standby_taken && lane->active > 0;

    lane_take_in(lane);
    lane->standby_taken = taken;
    if (lane->standby_ns < STANDBY_NS_MAX)
        lane->standby_ns *= 2;
    if (is_stuck)
        lane->briefness = 0; /* the others are wanted, too; those who submit see to it */
    if (is_stuck || lane->active == 0) {
        lane->standby = NULL;
        inbox_settle(lane);
    }
    return is_stuck && lane->queue.queued > lane->coming;
}

/* How many jobs were taken to be run. */
static uint64_t standby_taken(const struct mw_lane *lane)
{
    return atomic_load_explicit(&lane->taken, memory_order_relaxed) - lane->cancelled;
}

/* Learn from a leaf. One that a thread switch fell into is not the end of it; when leaves are brief
 * no longer, each job may have a loop of its own. */
static void briefness_count(struct mw_lane *lane, uint64_t run_ns)
{
    bool was_brief;

    if (run_ns < BRIEF_NS) {
        lane->briefness += lane->briefness < BRIEF_MOST;
        return;
    }
    was_brief = leaves_are_brief(lane);
    lane->briefness -= lane->briefness < BRIEF_LOSS ? lane->briefness : BRIEF_LOSS;
    if (!was_brief || leaves_are_brief(lane))
        return;
    lane->standby = NULL;
    lane_take_in(lane);
    if (loop_wanted(lane, 1) && lane->parked > 0)
        thread_call(lane, mw_clock_ns());
    inbox_settle(lane);
}

/* One quantum of a loop, as an item of the shared pool. After the unlock the lane may be gone. */
static void loop_on_pool(struct mw_pool_item *item)
{
    struct slot *slot = (struct slot *)((char *)item - offsetof(struct slot, item));
    struct mw_lane *lane = slot->lane;
    bool more;

    own_lane = lane;
    mw_spin_mutex_lock(&lane->lock);
    loop_arrive(lane, slot);
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
        loop_arrive(lane, slot);
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
    assert(lane->calls < LANE_CALLS_MAX);
    lane->calls++;
    lane->called_ns = now;
    lane->parked--;
    lane->active++;
    lane->coming++;
    lane_wake_later(lane, lane->options.cap > 1 ? mw_event_count_choose_one(&lane->sleepers)
                                                : thread_mark_alone(lane));
}

/* Linger for more work, or stand by. Returns false when the thread should end. */
static bool thread_park(struct mw_lane *lane, struct slot *slot)
{
    uint64_t deadline = mw_clock_ns() + lane->options.linger_ms * MW_NS_PER_MS;
    bool in_time = true;
    bool takes_over = false;

    lane->parked++;
    inbox_settle(lane);
    while (lane->calls == 0 && !lane->closing && in_time && !takes_over) {
        if (lane->options.cap == 1)
            in_time = thread_sleep_alone(lane, slot, deadline);
        else if (lane->standby != slot)
            in_time = thread_sleep(lane, slot, deadline);
        else if (!thread_sleep(lane, slot, mw_clock_ns() + lane->standby_ns) &&
                 lane->standby == slot)
            takes_over = standby_watch(lane);
    }
    if (lane->standby == slot)
        lane->standby = NULL;
    if (lane->calls > 0) { /* whomever it was meant for */
        lane->calls--;
        slot->called_ns = lane->called_ns;
        return true;
    }
    lane->parked--;
    if (takes_over || (lane->closing && lane->queue.queued > lane->coming)) {
        lane->active++;
        lane->coming++;
        slot->called_ns = mw_clock_ns();
        return true;
    }
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
        lane_wake_later(lane, thread_mark_alone(lane));
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
    struct round round = {
        .kind = mw_thread_kind_current(), .is_first = true, .called_ns = slot->called_ns};
    unsigned count = 0;

    do {
        struct mw_job *job;

        while (!loop_is_spare(lane, slot) && (job = job_take(lane, slot, &round)) != NULL) {
            job_run(lane, slot, job, &round);
            if (++count < count_max && round.now < until_ns)
                continue;
            lane_take_in(lane);
            if (lane->queue.queued > 0)
                return true;
        }
        if (loop_is_spare(lane, slot)) {
            loop_stand_down(lane, slot);
            return false;
        }
    } while (loop_look_again(lane, slot) || !loop_end(lane, slot));
    return false;
}

static struct mw_job *job_take(struct mw_lane *lane, struct slot *slot, struct round *round)
{
    struct mw_job *job;
    uint64_t state;

    if (lane->queue.queued == 0 || !leaves_are_brief(lane) || ++round->looks % BRIEF_LOOKS == 0)
        lane_take_in(lane);
    job = job_queue_take(&lane->queue);
    if (job == NULL)
        return NULL;
    mw_counter_add(&lane->taken, 1);
    lane->busy++;
    lane->taker = slot;
    slot->job = job;
    round->has_expired = false;
    if (job->deadline_ns != 0) {
        round->now = mw_clock_ns();
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
        briefness_count(lane, run_ns);
    }
    if (lane->waiters != NULL)
        waiters_release(lane, job);
}

/* Run fn() under the job's own leaf id. */
static int job_call(struct slot *slot, struct mw_job *job, struct round *round)
{
    uint64_t before;
    int status;

    job->started_ns = later(mw_clock_near_ns(), job->queued_ns);
    job->ran_on = round->kind;
    job->leaf = atomic_load_explicit(&job->state, memory_order_relaxed) >> JOB_STATE_BITS;
    if (job->ran_on == MW_THREAD_POOL)
        mw_flow_arrive(job->parent_leaf);
    mw_counter_add(&slot->stats.started, 1);

    before = mw_flow_enter(job->leaf);
    status = job->fn(job);
    mw_flow_enter(before);

    job->ended_ns = later(mw_clock_near_ns(), job->started_ns);
    round->now = job->ended_ns;
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

    mw_counter_add(&stats->completed, 1);
    mw_counter_add(&stats->ran_on[job->ran_on], 1);
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

/* The near clock of one thread may be behind that of another; the times of a job are in order. */
static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

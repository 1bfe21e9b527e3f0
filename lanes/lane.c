/* A *loop* takes jobs off the queue and runs them, until the queue is empty. It runs on a thread of
 * the lane's own, which then parks for a while, or as an item of the shared pool. Nothing else
 * differs between the two runners.
 *
 * A loop is *coming* from when it was started or woken until it first looks at the queue. It stands
 * for one job; so a loop is brought only when more jobs wait than loops are coming. Of parked
 * threads only one is woken at a time; once it has arrived it brings the next if jobs still wait.
 *
 * Invariants, whenever the lock is free (lane_check):
 *  1. queued > 0 only while active > 0: a queued job always has a loop that will look for it. A
 *     loop ends under the lock that it found the queue empty under.
 *  2. running <= active <= cap, and coming <= active.
 *  3. Dedicated: parked = threads - active. Pool: threads = 0, nothing is parked.
 *  4. Of a parked thread and its wake-up at most one is in flight (`waking`).
 *  5. fn() and done() are called without the lock. Before done(), the job has left the lane: it is
 *     counted, marked idle and its `lane` is NULL. After done() the lane does not touch it.
 *  6. A loop is active while it calls done(), and mw_lane_free waits until none is; mw_lane_cancel
 *     calls done() as its last act. So a done() may let another thread free the lane.
 *  7. `ended` is the one thread that has left and was not joined; each thread that leaves joins the
 *     one before it, so submitters never wait for a thread to end. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/flow.h>
#include <millwright/mutex.h>

#include "lane.h"

/* After this much a loop on the shared pool goes to the tail of the pool's queue, so that the
 * pool's other items are not held up by a long lane. */
#define QUANTUM_LEAVES 16u
#define QUANTUM_NS     (30 * MW_NS_PER_MS)

/* What MW_LANE_YIELDING stands for; docs/measurements.md has the figures. */
#define YIELDING_IS MW_LANE_IDLE

/* What carries one loop. */
struct slot {
    struct mw_lane *lane;     /* immutable */
    struct mw_pool_item item; /* MW_LANE_POOL: lent to the pool */
    /* guarded by the lane's lock */
    struct slot *next;       /* in `unused` or in `parked` */
    struct mw_thread thread; /* MW_LANE_DEDICATED */
    struct mw_cond wake;     /* signalled when `woken` is set or the lane closes */
    bool woken;
};

struct mw_lane {
    /* immutable */
    char name[sizeof((struct mw_lane_stats *)0)->name];
    struct mw_lane_options options; /* with the defaults filled in; its `name` is not used */

    struct mw_mutex lock; /* guards all below down to the histograms, and the slots' fields */
    struct mw_job *head;
    struct mw_job *tail;
    struct slot *unused;
    struct slot *parked; /* newest first */
    unsigned queued;
    unsigned active;
    unsigned coming;
    unsigned running;
    unsigned running_peak;
    unsigned threads;
    bool waking;
    bool closing;
    bool has_ended;
    struct mw_thread ended;
    struct mw_cond quiet; /* signalled when no loop is active and no thread left */
    uint64_t submitted;
    uint64_t started;
    uint64_t completed;
    uint64_t rejected;
    uint64_t cancelled;
    uint64_t expired;
    uint64_t start_failures;
    uint64_t ran_on[MW_THREAD_KINDS];

    struct mw_histogram waits; /* atomic */
    struct mw_histogram runs;  /* atomic */

    struct slot slots[]; /* cap of them */
};

/* The lane whose loop runs on the calling thread. */
static _Thread_local const struct mw_lane *own_lane;

static int options_fill(struct mw_lane_options *filled, const struct mw_lane_options *options);
static int slots_init(struct mw_lane *lane);
static void slots_fini(struct mw_lane *lane, unsigned count);

static int loop_bring(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void loop_arrive(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool loop_wanted(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static struct slot *loop_reserve(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static int loop_launch(struct slot *slot);
static void loop_roll_back(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static void loop_on_pool(struct mw_pool_item *item);
static int loop_yield(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);

static void thread_main(void *arg);
static void thread_wake(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static bool thread_park(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);
static bool thread_leave(struct mw_lane *lane, struct slot *slot, struct mw_thread *before)
    MW_REQUIRES(lane->lock);
static void slot_release(struct mw_lane *lane, struct slot *slot) MW_REQUIRES(lane->lock);

static bool jobs_run(struct mw_lane *lane, unsigned count_max, uint64_t until_ns)
    MW_REQUIRES(lane->lock);
static uint64_t job_run_next(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static int job_call(struct mw_lane *lane, struct mw_job *job, uint64_t now);
static void job_return(struct mw_lane *lane, struct mw_job *job, int status)
    MW_REQUIRES(lane->lock);
static void job_let_go(struct mw_job *job);
static void job_push(struct mw_lane *lane, struct mw_job *job) MW_REQUIRES(lane->lock);
static void job_unlink(struct mw_lane *lane, struct mw_job *job) MW_REQUIRES(lane->lock);
static struct mw_job *jobs_take_all(struct mw_lane *lane) MW_REQUIRES(lane->lock);
static void jobs_cancel(struct mw_job *first);

static void stats_fill(const struct mw_lane *lane, struct mw_lane_stats *stats)
    MW_REQUIRES(lane->lock);
static void lane_check(const struct mw_lane *lane) MW_REQUIRES(lane->lock);

int mw_lane_new(struct mw_lane **out, const struct mw_lane_options *options)
{
    struct mw_lane_options filled;
    struct mw_lane *lane;
    int error = options_fill(&filled, options);

    if (error != 0)
        return error;
    lane = calloc(1, sizeof *lane + filled.cap * sizeof *lane->slots);
    if (lane == NULL)
        return -ENOMEM;
    snprintf(lane->name, sizeof lane->name, "%s", filled.name);
    lane->options = filled;
    lane->options.name = NULL;
    error = mw_mutex_init(&lane->lock);
    if (error != 0)
        goto no_lock;
    error = mw_cond_init(&lane->quiet);
    if (error != 0)
        goto no_cond;
    error = slots_init(lane);
    if (error != 0)
        goto no_slots;
    *out = lane;
    return 0;

no_slots:
    mw_cond_fini(&lane->quiet);
no_cond:
    mw_mutex_fini(&lane->lock);
no_lock:
    free(lane);
    return error;
}

void mw_lane_free(struct mw_lane *lane, bool cancel_queued)
{
    struct mw_job *dropped;
    struct mw_thread ended;
    bool has_ended;

    if (lane == NULL)
        return;
    assert(own_lane != lane);
    mw_mutex_lock(&lane->lock);
    lane->closing = true;
    dropped = cancel_queued ? jobs_take_all(lane) : NULL;
    for (struct slot *slot = lane->parked; slot != NULL; slot = slot->next)
        mw_cond_signal(&slot->wake);
    mw_mutex_unlock(&lane->lock);

    jobs_cancel(dropped);

    mw_mutex_lock(&lane->lock);
    while (lane->active > 0 || lane->threads > 0)
        mw_cond_wait(&lane->quiet, &lane->lock);
    lane_check(lane);
    has_ended = lane->has_ended;
    ended = lane->ended;
    mw_mutex_unlock(&lane->lock);

    if (has_ended)
        mw_thread_join(&ended); /* which has joined the one before it, and so on */
    slots_fini(lane, lane->options.cap);
    mw_cond_fini(&lane->quiet);
    mw_mutex_fini(&lane->lock);
    free(lane);
}

int mw_lane_submit(struct mw_lane *lane, struct mw_job *job)
{
    struct mw_lane *nobody = NULL;
    int error = 0;

    if (job->fn == NULL)
        return -EINVAL;
    mw_mutex_lock(&lane->lock);
    if (lane->closing)
        error = -ESHUTDOWN;
    else if (!atomic_compare_exchange_strong_explicit(&job->lane, &nobody, lane,
                                                      memory_order_acquire, memory_order_relaxed))
        error = -EBUSY; /* acquire: partner of job_let_go, when the job comes from another lane */
    if (error != 0)
        goto out;

    if (lane->queued == lane->options.queue_max) {
        error = -EAGAIN;
    } else {
        job_push(lane, job);
        /* Started under the lock: nobody may queue a job on the strength of a loop that then
         * fails to start. */
        if (loop_bring(lane) != 0 && lane->active == 0) {
            job_unlink(lane, job);
            error = -EAGAIN;
        }
    }
    if (error != 0) {
        job_let_go(job);
        lane->rejected++;
    } else {
        lane->submitted++;
    }
    lane_check(lane);
out:
    mw_mutex_unlock(&lane->lock);
    return error;
}

int mw_lane_cancel(struct mw_lane *lane, struct mw_job *job)
{
    void (*done)(struct mw_job *, int) = NULL;
    int error = 0;

    mw_mutex_lock(&lane->lock);
    /* `lane` becomes and ceases to be this lane only under our lock, so relaxed will do */
    if (atomic_load_explicit(&job->lane, memory_order_relaxed) != lane) {
        error = -ENOENT;
    } else if (job->state == MW_JOB_RUNNING) {
        error = -EBUSY;
    } else {
        job_unlink(lane, job);
        lane->cancelled++;
        done = job->done;
        job_let_go(job);
        lane_check(lane);
    }
    mw_mutex_unlock(&lane->lock);
    /* no loop is active for this one: whoever learns of it may free the lane at once */
    if (done != NULL)
        done(job, -ECANCELED);
    return error;
}

void mw_lane_snapshot(struct mw_lane *lane, struct mw_lane_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    mw_mutex_lock(&lane->lock);
    stats_fill(lane, stats);
    mw_mutex_unlock(&lane->lock);

    memcpy(stats->name, lane->name, sizeof stats->name);
    stats->wait_p50_ns = mw_histogram_quantile(&lane->waits, 0.50);
    stats->wait_p99_ns = mw_histogram_quantile(&lane->waits, 0.99);
    stats->wait_max_ns = mw_histogram_max(&lane->waits);
    stats->run_p50_ns = mw_histogram_quantile(&lane->runs, 0.50);
    stats->run_p99_ns = mw_histogram_quantile(&lane->runs, 0.99);
    stats->run_max_ns = mw_histogram_max(&lane->runs);
}

const struct mw_histogram *mw_lane_wait_histogram(const struct mw_lane *lane)
{
    return &lane->waits;
}

const struct mw_histogram *mw_lane_run_histogram(const struct mw_lane *lane)
{
    return &lane->runs;
}

static int options_fill(struct mw_lane_options *filled, const struct mw_lane_options *options)
{
    *filled = options != NULL ? *options : (struct mw_lane_options){0};
    if (filled->name == NULL)
        filled->name = "lane";
    if (strlen(filled->name) >= sizeof((struct mw_lane *)0)->name)
        return -EINVAL;
    if (filled->runner != MW_LANE_DEDICATED && filled->runner != MW_LANE_POOL)
        return -EINVAL;
    if ((filled->runner == MW_LANE_POOL) != (filled->pool != NULL))
        return -EINVAL;
    if (filled->cap > MW_LANE_CAP_LIMIT || filled->tenants_max > MW_LANE_TENANTS_LIMIT ||
        filled->spin_us > MW_LANE_SPIN_US_MAX || filled->urgency > MW_LANE_EQUAL)
        return -EINVAL;
    if (filled->cap == 0)
        filled->cap = mw_cpus_effective();
    if (filled->cap > MW_LANE_CAP_LIMIT)
        filled->cap = MW_LANE_CAP_LIMIT;
    if (filled->queue_max == 0)
        filled->queue_max = MW_LANE_QUEUE_MAX_DEFAULT;
    if (filled->stack_bytes == 0)
        filled->stack_bytes = MW_LANE_STACK_BYTES_DEFAULT;
    if (filled->linger_ms == 0)
        filled->linger_ms = MW_LANE_LINGER_MS_DEFAULT;
    if (filled->tenants_max == 0)
        filled->tenants_max = 1;
    if (filled->urgency == MW_LANE_YIELDING)
        filled->urgency = YIELDING_IS;
    return 0;
}

/* The lane is still private to its maker: nothing here needs the lock. */
static int slots_init(struct mw_lane *lane)
{
    for (unsigned i = 0; i < lane->options.cap; i++) {
        struct slot *slot = &lane->slots[i];
        int error = mw_cond_init(&slot->wake);

        if (error != 0) {
            slots_fini(lane, i);
            return error;
        }
        slot->lane = lane;
        slot->item.fn = loop_on_pool;
        slot->next = lane->unused;
        lane->unused = slot;
    }
    return 0;
}

static void slots_fini(struct mw_lane *lane, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        mw_cond_fini(&lane->slots[i].wake);
}

/* ---- loops ---- */

/* See that a loop comes for the job just queued, if one is wanted and allowed. */
static int loop_bring(struct mw_lane *lane)
{
    struct slot *slot;
    int error;

    if (!loop_wanted(lane))
        return 0;
    if (lane->parked != NULL) {
        thread_wake(lane);
        return 0;
    }
    slot = loop_reserve(lane);
    error = loop_launch(slot);
    if (error != 0)
        loop_roll_back(lane, slot);
    return error;
}

/* The loop of `slot` looks at the queue for the first time: bring the next one if there is more
 * than it can take itself. That one is launched without the lock, which is safe because this loop
 * is active meanwhile, and kind because this thread may be a slow one (nice 19). */
static void loop_arrive(struct mw_lane *lane, struct slot *slot)
{
    if (slot->woken) {
        slot->woken = false;
        lane->waking = false;
    }
    if (loop_wanted(lane)) { /* this loop still counts as coming, for the job it will take */
        if (lane->parked != NULL) {
            thread_wake(lane);
        } else {
            struct slot *next = loop_reserve(lane);
            int error;

            mw_mutex_unlock(&lane->lock);
            error = loop_launch(next);
            mw_mutex_lock(&lane->lock);
            if (error != 0)
                loop_roll_back(lane, next);
        }
    }
    lane->coming--;
}

static bool loop_wanted(const struct mw_lane *lane)
{
    if (lane->queued <= lane->coming || lane->active == lane->options.cap)
        return false;
    return lane->parked == NULL || !lane->waking;
}

static struct slot *loop_reserve(struct mw_lane *lane)
{
    struct slot *slot = lane->unused;

    assert(slot != NULL); /* cap slots, and active < cap */
    lane->unused = slot->next;
    slot->woken = false;
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

/* One quantum of a loop, as an item of the shared pool. After the unlock the lane may be gone. */
static void loop_on_pool(struct mw_pool_item *item)
{
    struct slot *slot = (struct slot *)((char *)item - offsetof(struct slot, item));
    struct mw_lane *lane = slot->lane;
    bool more;

    own_lane = lane;
    mw_mutex_lock(&lane->lock);
    loop_arrive(lane, slot);
    do {
        more = jobs_run(lane, QUANTUM_LEAVES, mw_clock_ns() + QUANTUM_NS);
    } while (more && loop_yield(lane, slot) != 0);
    if (!more) {
        lane->active--;
        slot_release(lane, slot);
    }
    lane_check(lane);
    mw_mutex_unlock(&lane->lock);
    own_lane = NULL;
}

/* Another worker may pick the item up at once; it then waits for the lock that we hold. */
static int loop_yield(struct mw_lane *lane, struct slot *slot)
{
    int error = mw_pool_yield(lane->options.pool, &slot->item);

    if (error == 0)
        lane->coming++;
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
    mw_mutex_lock(&lane->lock);
    slot->thread.os = pthread_self();
    do {
        loop_arrive(lane, slot);
        jobs_run(lane, UINT_MAX, UINT64_MAX);
        lane->active--;
    } while (thread_park(lane, slot));
    has_before = thread_leave(lane, slot, &before);
    mw_mutex_unlock(&lane->lock);
    if (has_before)
        mw_thread_join(&before);
}

static void thread_wake(struct mw_lane *lane)
{
    struct slot *slot = lane->parked;

    lane->parked = slot->next;
    slot->next = NULL;
    slot->woken = true;
    lane->waking = true;
    lane->active++;
    lane->coming++;
    mw_cond_signal(&slot->wake);
}

/* Linger for more work. Returns false when the thread should end. */
static bool thread_park(struct mw_lane *lane, struct slot *slot)
{
    uint64_t deadline = mw_clock_ns() + lane->options.linger_ms * MW_NS_PER_MS;
    struct slot **link = &lane->parked;
    bool in_time = true;

    if (lane->closing)
        return false;
    slot->next = lane->parked;
    lane->parked = slot;
    while (!slot->woken && !lane->closing && in_time)
        in_time = mw_cond_wait_until(&slot->wake, &lane->lock, deadline);
    if (slot->woken)
        return true;
    while (*link != slot)
        link = &(*link)->next;
    *link = slot->next;
    return false;
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
    if (lane->active == 0 && lane->threads == 0)
        mw_cond_broadcast(&lane->quiet);
}

/* ---- jobs ---- */

/* Run jobs until the queue is empty (false), or `count_max` of them ran or the time is up (true).
 * The lock is free while a job runs. */
static bool jobs_run(struct mw_lane *lane, unsigned count_max, uint64_t until_ns)
{
    uint64_t now = 0;

    for (unsigned count = 0; lane->head != NULL; count++) {
        if (count >= count_max || now >= until_ns)
            return true;
        now = job_run_next(lane);
    }
    return false;
}

/* Take the oldest job, run it or drop it as expired, and hand it back. Returns the time. */
static uint64_t job_run_next(struct mw_lane *lane)
{
    enum mw_thread_kind kind = mw_thread_kind_current();
    struct mw_job *job = lane->head;
    uint64_t now = mw_clock_ns();
    int status;

    job_unlink(lane, job);
    if (job->deadline_ns != 0 && now >= job->deadline_ns) {
        lane->expired++;
        job_return(lane, job, -ETIMEDOUT);
        return now;
    }
    job->state = MW_JOB_RUNNING;
    lane->started++;
    lane->running++;
    if (lane->running_peak < lane->running)
        lane->running_peak = lane->running;
    lane_check(lane);
    mw_mutex_unlock(&lane->lock);

    status = job_call(lane, job, now);
    now = job->ended_ns;

    mw_mutex_lock(&lane->lock);
    lane->running--;
    lane->completed++;
    lane->ran_on[kind]++;
    job_return(lane, job, status);
    return now;
}

/* Run fn() under the job's own leaf id. */
static int job_call(struct mw_lane *lane, struct mw_job *job, uint64_t now)
{
    uint64_t before;
    int status;

    job->started_ns = now;
    job->ran_on = mw_thread_kind_current();
    job->leaf = mw_flow_next();
    if (job->ran_on == MW_THREAD_POOL)
        mw_flow_arrive(job->parent_leaf);
    mw_histogram_record(&lane->waits, now - job->queued_ns);

    before = mw_flow_enter(job->leaf);
    status = job->fn(job);
    mw_flow_enter(before);

    job->ended_ns = mw_clock_ns();
    mw_histogram_record(&lane->runs, job->ended_ns - now);
    return status;
}

/* Hand `job` back to its owner, from a loop. The lock is free while done() runs; without a done()
 * the job may be gone as soon as it is let go. */
static void job_return(struct mw_lane *lane, struct mw_job *job, int status)
{
    void (*done)(struct mw_job *, int) = job->done;

    job_let_go(job);
    if (done == NULL)
        return;
    lane_check(lane);
    mw_mutex_unlock(&lane->lock);
    done(job, status);
    mw_mutex_lock(&lane->lock);
}

/* The last touch of a job. Under the lane's lock. */
static void job_let_go(struct mw_job *job)
{
    job->state = MW_JOB_IDLE;
    /* release: partner of the acquire in mw_lane_submit, maybe to another lane */
    atomic_store_explicit(&job->lane, NULL, memory_order_release);
}

static void job_push(struct mw_lane *lane, struct mw_job *job)
{
    job->state = MW_JOB_QUEUED;
    job->parent_leaf = mw_flow_current();
    job->leaf = 0;
    job->queued_ns = mw_clock_ns();
    job->started_ns = 0;
    job->ended_ns = 0;
    job->ran_on = MW_THREAD_HOST;
    job->next = NULL;
    job->prev = lane->tail;
    if (lane->tail != NULL)
        lane->tail->next = job;
    else
        lane->head = job;
    lane->tail = job;
    lane->queued++;
}

static void job_unlink(struct mw_lane *lane, struct mw_job *job)
{
    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        lane->head = job->next;
    if (job->next != NULL)
        job->next->prev = job->prev;
    else
        lane->tail = job->prev;
    job->prev = NULL;
    job->next = NULL;
    lane->queued--;
}

/* Empty the queue. Returns, linked by `next`, those jobs that have a done() to call; the others may
 * be gone once the lock is. */
static struct mw_job *jobs_take_all(struct mw_lane *lane)
{
    struct mw_job *first = NULL;
    struct mw_job **link = &first;

    while (lane->head != NULL) {
        struct mw_job *job = lane->head;

        job_unlink(lane, job);
        lane->cancelled++;
        if (job->done != NULL) {
            *link = job;
            link = &job->next;
        }
        job_let_go(job);
    }
    return first;
}

static void jobs_cancel(struct mw_job *first)
{
    while (first != NULL) {
        struct mw_job *job = first;

        first = job->next;
        job->done(job, -ECANCELED);
    }
}

/* ---- inspection ---- */

static void stats_fill(const struct mw_lane *lane, struct mw_lane_stats *stats)
{
    bool dedicated = lane->options.runner == MW_LANE_DEDICATED;

    stats->runner = lane->options.runner;
    stats->cap = lane->options.cap;
    stats->queue_max = lane->options.queue_max;
    stats->queued = lane->queued;
    stats->running = lane->running;
    stats->running_peak = lane->running_peak;
    stats->threads = dedicated ? lane->threads : lane->active;
    stats->submitted = lane->submitted;
    stats->started = lane->started;
    stats->completed = lane->completed;
    stats->rejected = lane->rejected;
    stats->cancelled = lane->cancelled;
    stats->expired = lane->expired;
    stats->start_failures = lane->start_failures;
    stats->ran_on_lane = lane->ran_on[MW_THREAD_LANE];
    stats->ran_on_pool = lane->ran_on[MW_THREAD_POOL];
    if (lane->head != NULL)
        stats->oldest_queued_ns = mw_clock_ns() - lane->head->queued_ns;
}

static void lane_check(const struct mw_lane *lane)
{
    assert(lane->queued == 0 || lane->active > 0);
    assert((lane->queued == 0) == (lane->head == NULL));
    assert(lane->queued <= lane->options.queue_max);
    assert(lane->running <= lane->active);
    assert(lane->active <= lane->options.cap);
    assert(lane->coming <= lane->active);
    assert(lane->options.runner != MW_LANE_DEDICATED || lane->active <= lane->threads);
}

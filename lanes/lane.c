/* A *loop* takes jobs off the queue and runs them, until the queue is empty. It runs on a thread of
 * the lane's own, which then parks for a while, or as an item of the shared pool. Nothing else
 * differs between the two runners.
 *
 * A loop is *coming* from when it was started or woken until it first looks at the queue. It stands
 * for one job; so a loop is brought only when more jobs wait than loops are coming. Threads grow in
 * a chain: a submitter brings a loop only while none is coming; whoever arrives brings the next if
 * jobs still wait.
 *
 * While leaves are *brief*, shorter than what two loops lose by sharing the queue, one loop does
 * all: the others park, and one of them *stands by*: it wakes up by itself now and then. When jobs
 * wait and none was taken since, the loop that is active sits in a leaf that is not brief, and the
 * standby takes over. So the price of a mistake is two STANDBY_NS_MAX.
 *
 * Submitters do not contend with loops. They post to an *inbox*, a stack that one compare-and-swap
 * pushes on, and loops move what is there to the queue under the lock; the queue then says which
 * job is next, and each loop takes one at a time. The inbox is *open* as long as a submitter has
 * nothing to bring: all loops are active and will look again, or one is coming and will bring the
 * next, or one is active while another stands by. Else it is SHUT: the word itself sends submitters
 * to the lock, where they queue the job and bring a loop. A loop that would end shuts the inbox in
 * the same exchange in which it looks into it for the last time, so no job is posted between that
 * look and the end, and no fence is needed. The push is also the last that a submitter does to the
 * lane: whoever sees that job done may free the lane at once.
 *
 * Invariants, whenever the lock is free (lane_check):
 *  1. A queued or posted job always has an active loop that will look for it.
 *  2. busy <= active <= cap, and coming <= active.
 *  3. The inbox is open only while active = cap; or, on threads of the lane's own, while a loop is
 *     coming, or one is active and a thread stands by.
 *  4. Dedicated: parked + active <= threads. Pool: threads = 0, nothing is parked.
 *  5. At most LANE_CALLS_MAX parked threads are called and have not come (`calls`), one while
 *     leaves are brief. A call is nobody's in particular: the first thread that comes back to the
 *     lock takes it.
 *  6. fn() and done() are called without the lock. Before done(), the job has left the lane: it is
 *     counted, marked idle and its `lane` is NULL. After done() the lane does not touch it.
 *  7. A loop is active while it calls done(), and mw_lane_free waits until none is; mw_lane_cancel
 *     calls done() when it is through with the lane. So a done() may let another thread free it.
 *  8. `ended` is the one thread that has left and was not joined; each thread that leaves joins the
 *     one before it, so submitters never wait for a thread to end.
 *  9. job->lane becomes this lane in a claim that only a submitter with a place makes; it is taken
 *     back under the lock, or by the loop that has run the job. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/flow.h>
#include <millwright/futex.h>
#include <millwright/process.h>

#include "lane_internal.h"

struct mw_job lane_shut_word;
struct mw_job lane_closed_word;

static int options_fill(struct mw_lane_options *filled, const struct mw_lane_options *options);
static int jobs_submit(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count);
static int job_claim(struct mw_lane *lane, struct mw_job *job, uint64_t now);
static int jobs_post(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count);
static int jobs_post_locked(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count);
static unsigned places_take(struct mw_lane *lane, unsigned wanted);
static void places_return(struct mw_lane *lane, unsigned count);
static bool is_awaited(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static bool is_quiet(const struct mw_lane *lane) MW_REQUIRES(lane->lock);
static bool job_find(const struct mw_lane *lane, const struct mw_job *job, uint64_t *state)
    MW_REQUIRES(lane->lock);
static int job_call_off(struct mw_lane *lane, struct mw_job *job) MW_REQUIRES(lane->lock);
static void job_withdraw(struct mw_lane *lane, struct mw_job *job) MW_REQUIRES(lane->lock);
static struct mw_job *jobs_take_all(struct mw_lane *lane, struct lane_waiter **waiters)
    MW_REQUIRES(lane->lock);
static void jobs_cancel(struct mw_job *first);

int mw_lane_new(struct mw_lane **out, const struct mw_lane_options *options)
{
    struct mw_lane_options filled;
    struct mw_lane *lane;
    int error = options_fill(&filled, options);

    if (error != 0)
        return error;
    if (mw_process_watch() != 0 || waits_watch_forks() != 0)
        return -ENOMEM;
    lane = calloc(1, sizeof *lane + filled.cap * sizeof *lane->slots);
    if (lane == NULL)
        return -ENOMEM;
    snprintf(lane->name, sizeof lane->name, "%s", filled.name);
    lane->options = filled;
    lane->options.name = NULL;
    lane->generation = mw_process_generation();
    if (filled.runner == MW_LANE_DEDICATED && mw_cpus_effective() > 1)
        lane->spin_ns = filled.spin_us * MW_NS_PER_US;
    atomic_init(&lane->inbox, INBOX_SHUT);
    error = job_queue_init(&lane->queue, filled.tenants_max);
    if (error != 0)
        goto no_queue;
    error = mw_event_count_init(&lane->sleepers, filled.cap);
    if (error != 0)
        goto no_sleepers;
    slots_init(lane);
    *out = lane;
    return 0;

no_sleepers:
    job_queue_fini(&lane->queue);
no_queue:
    free(lane);
    return error;
}

void mw_lane_free(struct mw_lane *lane, bool cancel_queued)
{
    struct lane_waiter *waiters = NULL;
    struct lane_waiter self = {0};
    struct mw_job *dropped;
    bool quiet;

    if (lane == NULL || lane_is_foreign(lane))
        return; /* its threads and whoever held its lock are not in this process: leave it */
    assert(lane_own() != lane);
    mw_spin_mutex_lock(&lane->lock);
    lane->closing = true;
    inbox_settle(lane);
    dropped = cancel_queued ? jobs_take_all(lane, &waiters) : NULL;
    threads_dismiss(lane);
    lane_unlock(lane);

    jobs_cancel(dropped);
    waiters_wake(waiters);

    mw_spin_mutex_lock(&lane->lock);
    quiet = is_quiet(lane);
    if (!quiet)
        lane->closer = &self;
    lane_unlock(lane);
    if (!quiet)
        (void)waiter_sleep(&self, UINT64_MAX);

    mw_spin_mutex_lock(&lane->lock); /* whoever told us has freed it */
    lane_check(lane);
    lane_unlock(lane);
    if (lane->has_ended)
        mw_thread_join(&lane->ended); /* which has joined the one before it, and so on */
    mw_event_count_fini(&lane->sleepers);
    job_queue_fini(&lane->queue);
    free(lane);
}

int mw_lane_submit(struct mw_lane *lane, struct mw_job *job)
{
    int queued = jobs_submit(lane, &job, 1);

    return queued < 0 ? queued : 0;
}

int mw_lane_submit_batch(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count)
{
    return count > 0 ? jobs_submit(lane, jobs, count < INT_MAX ? count : INT_MAX) : 0;
}

int mw_lane_cancel(struct mw_lane *lane, struct mw_job *job)
{
    struct lane_waiter *waiters = NULL;
    void (*done)(struct mw_job *, int) = NULL;
    int error;

    if (lane_is_foreign(lane))
        return -EOWNERDEAD;
    mw_spin_mutex_lock(&lane->lock);
    lane_take_in(lane);
    error = job_call_off(lane, job);
    if (error == 0) {
        waiters = waiters_detach(lane, job, NULL);
        done = job->done;
        job_let_go(job);
        lane_check(lane);
    }
    lane_unlock(lane);
    /* no loop is active for this one: whoever learns of it may free the lane at once */
    if (done != NULL)
        done(job, -ECANCELED);
    waiters_wake(waiters);
    return error;
}

bool mw_job_cancelled(const struct mw_job *job)
{
    /* acquire: what the canceller did before may be looked at; partner: job_call_off */
    return (atomic_load_explicit(&job->state, memory_order_acquire) & JOB_CANCELLED) != 0;
}

bool lane_is_foreign(const struct mw_lane *lane)
{
    return lane->generation != mw_process_generation();
}

void lane_unlock_and_wake(struct mw_lane *lane)
{
    _Atomic uint32_t *words[LANE_CALLS_MAX];
    unsigned count = lane->to_wake_count;

    memcpy(words, lane->to_wake, sizeof words);
    lane->to_wake_count = 0;
    mw_spin_mutex_unlock(&lane->lock);
    for (unsigned i = 0; i < count; i++)
        mw_futex_wake(words[i], 1); /* it may be gone by now, see futex.h */
}

bool lane_has_queued(struct mw_lane *lane, const struct mw_job *job)
{
    uint64_t state;

    return job_find(lane, job, &state) && (state & JOB_STAGE_MASK) == JOB_QUEUED;
}

void lane_quiet_check(struct mw_lane *lane)
{
    if (lane->closer != NULL && is_quiet(lane)) {
        waiter_wake(lane->closer);
        lane->closer = NULL;
    }
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
    return 0;
}

/* ---- submit ---- */

/* Returns how many were queued, at least 1, or why the first was not. */
static int jobs_submit(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count)
{
    unsigned granted;
    unsigned claimed = 0;
    uint64_t now;
    int error = 0;

    if (lane_is_foreign(lane))
        return -EOWNERDEAD;
    /* relaxed: a closing lane is seen here early, in jobs_post_locked for certain */
    if (atomic_load_explicit(&lane->inbox, memory_order_relaxed) == INBOX_CLOSED)
        return -ESHUTDOWN;
    granted = places_take(lane, count);
    if (granted < count)
        atomic_fetch_add_explicit(&lane->rejected, 1, memory_order_relaxed);
    now = granted > 0 ? mw_clock_near_ns() : 0;
    while (claimed < granted && error == 0) {
        error = job_claim(lane, jobs[claimed], now);
        claimed += error == 0;
    }
    if (claimed < granted)
        places_return(lane, granted - claimed);
    if (claimed == 0)
        return error != 0 ? error : -EAGAIN;
    return jobs_post(lane, jobs, claimed);
}

/* Make the job this lane's. The caller has a place for it. */
static int job_claim(struct mw_lane *lane, struct mw_job *job, uint64_t now)
{
    struct mw_lane *nobody = NULL;

    if (job->fn == NULL || !job_queue_fits(&lane->queue, job))
        return -EINVAL;
    /* acquire: partner of the release in job_let_go, maybe of another lane. Release: partner of the
     * acquire in job_find, so that who finds the job here sees how it left the lane before. */
    if (!atomic_compare_exchange_strong_explicit(&job->lane, &nobody, lane, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return -EBUSY;
    job->parent_leaf = mw_flow_current();
    job->leaf = 0;
    job->queued_ns = now;
    job->started_ns = 0;
    job->ended_ns = 0;
    job->ran_on = MW_THREAD_HOST;
    atomic_store_explicit(&job->state, mw_flow_next() << JOB_STATE_BITS | JOB_POSTED,
                          memory_order_release); /* partner: job_find */
    return 0;
}

/* Hand over jobs that were claimed. In an open inbox the push is the last touch of the lane. */
static int jobs_post(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count)
{
    struct mw_job *newest = atomic_load_explicit(&lane->inbox, memory_order_relaxed);

    for (unsigned i = 1; i < count; i++)
        jobs[i]->next = jobs[i - 1];
    do {
        if (newest == INBOX_SHUT || newest == INBOX_CLOSED)
            return jobs_post_locked(lane, jobs, count);
        jobs[0]->next = newest;
        /* release: partner of the acquire in lane_take_in and inbox_settle */
    } while (!atomic_compare_exchange_weak_explicit(&lane->inbox, &newest, jobs[count - 1],
                                                    memory_order_release, memory_order_relaxed));
    return (int)count;
}

/* Queue jobs and see that loops come for them. Threads are started under the lock: nobody may queue
 * a job on the strength of a loop that then fails to start. */
static int jobs_post_locked(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count)
{
    uint64_t now = jobs[0]->queued_ns;
    int error = 0;

    mw_spin_mutex_lock(&lane->lock);
    lane_take_in(lane);
    for (unsigned i = count; i > 1; i--)
        jobs[i - 1]->next = jobs[i - 2];
    jobs[0]->next = NULL;
    lane_queue_posted(lane, jobs[count - 1]);
    if (lane->closing)
        error = -ESHUTDOWN;
    for (unsigned i = 0; i < count && error == 0; i++)
        error = loop_bring(lane, now);
    if (error != 0 && (lane->active == 0 || lane->closing)) {
        for (unsigned i = 0; i < count; i++) {
            job_queue_remove(&lane->queue, jobs[i]);
            job_let_go(jobs[i]);
        }
        places_return(lane, count);
        if (!lane->closing)
            atomic_fetch_add_explicit(&lane->rejected, 1, memory_order_relaxed);
        error = lane->closing ? -ESHUTDOWN : -EAGAIN;
    } else {
        error = 0;
    }
    inbox_settle(lane);
    lane_check(lane);
    lane_unlock(lane);
    return error != 0 ? error : (int)count;
}

/* Take up to `wanted` places in the queue. Returns how many there were. */
static unsigned places_take(struct mw_lane *lane, unsigned wanted)
{
    /* All relaxed: these are numbers. Who knows that a job has left, by its done(), knows the
     * `taken` that came before it. */
    uint64_t places = atomic_load_explicit(&lane->places, memory_order_relaxed);
    unsigned granted;

    do {
        uint64_t end =
            lane->options.queue_max + atomic_load_explicit(&lane->taken_seen, memory_order_relaxed);

        if (places + wanted > end) { /* look at the line that loops write only when it matters */
            uint64_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);

            atomic_store_explicit(&lane->taken_seen, taken, memory_order_relaxed);
            end = lane->options.queue_max + taken;
        }
        if (places >= end)
            return 0;
        granted = end - places < wanted ? (unsigned)(end - places) : wanted;
    } while (!atomic_compare_exchange_weak_explicit(&lane->places, &places, places + granted,
                                                    memory_order_relaxed, memory_order_relaxed));
    return granted;
}

static void places_return(struct mw_lane *lane, unsigned count)
{
    atomic_fetch_sub_explicit(&lane->places, count, memory_order_relaxed);
}

/* ---- the inbox ---- */

/* Open or shut the inbox as the invariant has it; what lay in it is queued. To be called wherever
 * it may have to shut. */
void inbox_settle(struct mw_lane *lane)
{
    struct mw_job *found = atomic_load_explicit(&lane->inbox, memory_order_relaxed);
    bool open = is_awaited(lane);
    struct mw_job *wanted = lane->closing ? INBOX_CLOSED : open ? NULL : INBOX_SHUT;

    if (found == wanted || (wanted == NULL && inbox_has_job(found)))
        return;
    /* acquire: partner of the release in jobs_post. Release: whoever posts into what is open now
     * owes nothing to what was before, so it has no partner but itself. */
    found = atomic_exchange_explicit(&lane->inbox, wanted, memory_order_acq_rel);
    if (inbox_has_job(found))
        lane_queue_posted(lane, found);
}

/* Whether a loop will look at what is posted, and bring the next loop if there is one to bring. */
static bool is_awaited(const struct mw_lane *lane)
{
    if (lane->active == lane->options.cap)
        return true;
    return lane->options.runner == MW_LANE_DEDICATED &&
           (lane->coming > 0 || (lane->standby != NULL && lane->active > 0));
}

/* Queue the list that starts with its newest, oldest first. One pass turns it round and links it
 * both ways; a job was written on another CPU, and each look at it for the first time is dear. */
void lane_queue_posted(struct mw_lane *lane, struct mw_job *newest)
{
    struct mw_job *newer = NULL;
    struct mw_job *oldest = newest;
    unsigned count = 0;
    bool alike = true;

    for (struct mw_job *job = newest; job != NULL; count++) {
        struct mw_job *older = job->next;
        uint64_t state = atomic_load_explicit(&job->state, memory_order_relaxed);

        atomic_store_explicit(&job->state, (state & ~JOB_STAGE_MASK) | JOB_QUEUED,
                              memory_order_release); /* partner: job_find */
        alike &= job->priority == newest->priority && job->tenant == newest->tenant;
        job->prev = older;
        job->next = newer;
        newer = job;
        oldest = job;
        job = older;
    }
    if (alike) {
        job_queue_push(&lane->queue, oldest, newest, count);
        return;
    }
    for (struct mw_job *job = oldest; job != NULL;) {
        struct mw_job *next = job->next;

        job_queue_push(&lane->queue, job, job, 1);
        job = next;
    }
}

static bool is_quiet(const struct mw_lane *lane)
{
    return lane->active == 0 && lane->threads == 0 && lane->waiting == 0;
}

/* Whether the job is in this lane, and in which state. It may leave at any time while it runs, and
 * be in another lane at once; but as long as it is queued here, the lock keeps it. */
static bool job_find(const struct mw_lane *lane, const struct mw_job *job, uint64_t *state)
{
    uint64_t again;

    do {
        *state = atomic_load_explicit(&job->state, memory_order_acquire);
        /* acquire: partner of the release in job_claim, so that `again` is no older than it */
        if (atomic_load_explicit(&job->lane, memory_order_acquire) != lane)
            return false;
        again = atomic_load_explicit(&job->state, memory_order_acquire);
    } while (*state != again); /* it has moved on between: not often, for each time is one step */
    return true;
}

/* Take a job out of the queue, or ask it to stop. */
static int job_call_off(struct mw_lane *lane, struct mw_job *job)
{
    uint64_t state;

    while (job_find(lane, job, &state)) {
        if ((state & JOB_STAGE_MASK) == JOB_QUEUED) {
            job_withdraw(lane, job);
            return 0;
        }
        if ((state & JOB_STAGE_MASK) != JOB_RUNNING)
            return -ENOENT; /* its submit has not come to an end */
        /* release: partner of the acquire in mw_job_cancelled */
        if (atomic_compare_exchange_strong_explicit(&job->state, &state, state | JOB_CANCELLED,
                                                    memory_order_release, memory_order_relaxed))
            return -EBUSY;
    }
    return -ENOENT;
}

/* It will not be run. */
static void job_withdraw(struct mw_lane *lane, struct mw_job *job)
{
    job_queue_remove(&lane->queue, job);
    mw_counter_add(&lane->taken, 1);
    lane->cancelled++;
}

/* Empty the queue. Returns, linked by `next`, those jobs that have a done() to call; the others may
 * be gone once the lock is. */
static struct mw_job *jobs_take_all(struct mw_lane *lane, struct lane_waiter **waiters)
{
    struct mw_job *first = NULL;
    struct mw_job **link = &first;
    struct mw_job *job;

    while ((job = job_queue_take(&lane->queue)) != NULL) {
        mw_counter_add(&lane->taken, 1);
        lane->cancelled++;
        *waiters = waiters_detach(lane, job, *waiters);
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

void lane_check(const struct mw_lane *lane)
{
    const struct mw_job *inbox = atomic_load_explicit(&lane->inbox, memory_order_relaxed);

    assert(lane->queue.queued == 0 || lane->active > 0);
    assert(lane->busy <= lane->active);
    assert(lane->active <= lane->options.cap);
    assert(lane->coming <= lane->active);
    assert(lane->standby == NULL || lane->parked + lane->calls > 0);
    assert(inbox == INBOX_SHUT || inbox == INBOX_CLOSED || is_awaited(lane));
    assert(lane->options.runner != MW_LANE_DEDICATED ||
           lane->active + lane->parked <= lane->threads);
}

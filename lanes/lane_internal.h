/* lane_internal.h - what a lane is made of. Private to lanes/: lane.c takes jobs in, lane_loop.c
 * runs them, lane_wait.c lets others wait, lane_stats.c tells of it all. The theory and the
 * invariants stand in lane.c. */
#ifndef MILLWRIGHT_LANE_INTERNAL_H
#define MILLWRIGHT_LANE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <millwright/counter.h>
#include <millwright/event_count.h>
#include <millwright/futex.h>
#include <millwright/histogram.h>
#include <millwright/pool.h>
#include <millwright/spin_mutex.h>
#include <millwright/thread.h>

#include "job_queue.h"
#include "lane.h"

/* Keeps what submitters write off the lines that loops write, and one slot off the next. */
#define LANE_LINE_BYTES 64

/* So many loops may be on their way at a time. */
#define LANE_CALLS_MAX 4u

/* mw_job.state: the id of this submit above, how far it has come below. Ids are never used again,
 * so whoever sees the same word twice knows that the job did not go away and come back between. */
#define JOB_STATE_BITS 3
#define JOB_IDLE       UINT64_C(0)
#define JOB_POSTED     UINT64_C(1) /* in the inbox, or on its way there */
#define JOB_QUEUED     UINT64_C(2)
#define JOB_RUNNING    UINT64_C(3)
#define JOB_STAGE_MASK UINT64_C(3)
#define JOB_CANCELLED  UINT64_C(4) /* with JOB_RUNNING: its owner would have it stop */

/* What a loop counts by itself. One writer at a time: relaxed loads and stores, no partner. */
struct slot_stats {
    _Atomic uint64_t started;
    _Atomic uint64_t completed;
    _Atomic uint64_t ran_on[MW_THREAD_KINDS];
    struct mw_histogram runs;
    struct mw_histogram later_waits;  /* of jobs that a loop took when it was there already */
    struct mw_histogram first_waits;  /* of the first job that a loop took after it came */
    struct mw_histogram slot_waits;   /* the part of `first_waits` before the loop was called for */
    struct mw_histogram worker_waits; /* the part after */
};

/* What carries one loop. */
struct slot {
    struct mw_lane *lane;     /* immutable */
    struct mw_pool_item item; /* MW_LANE_POOL: lent to the pool */
    struct mw_event_waiter waiter;
    /* guarded by the lane's lock */
    struct slot *next;       /* in `unused` */
    struct mw_thread thread; /* MW_LANE_DEDICATED */
    struct mw_job *job;      /* that it runs or hands back; never followed, only compared */
    uint64_t called_ns;      /* when its loop was started, woken or given to the pool */
    /* Set under the lock, cleared by the loop when fn() has returned. Release: partner of the
     * acquire in the snapshot, which then sees what the loop counted. */
    _Atomic bool in_fn;

    char line[LANE_LINE_BYTES];
    struct slot_stats stats;
};

/* Somebody in mw_lane_wait, on that thread's stack. */
struct lane_waiter {
    const struct mw_job *job; /* compared, not followed */
    struct lane_waiter *next; /* guarded by the lane's lock while listed */
    _Atomic uint32_t word;    /* a futex, see lane_wait.c */
};

struct mw_lane {
    /* immutable */
    char name[sizeof((struct mw_lane_stats *)0)->name];
    struct mw_lane_options options; /* with the defaults filled in; its `name` is not used */
    unsigned generation;            /* of the process that made it */
    uint64_t spin_ns;

    char line_before[LANE_LINE_BYTES];
    /* Written by submitters without the lock. */
    _Atomic(struct mw_job *) inbox; /* newest first; or SHUT or CLOSED, see lane.c */
    _Atomic uint64_t places;        /* in the queue, ever given out and not given back */
    _Atomic uint64_t taken_seen;    /* an old value of `taken` */
    _Atomic uint64_t rejected;
    char line_between[LANE_LINE_BYTES];

    /* Guards all below but what says otherwise. What each job changes comes first, together. */
    struct mw_spin_mutex lock;
    unsigned busy;            /* loops that run a job or hand it back */
    _Atomic uint64_t taken;   /* places whose job has left the queue; written under the lock */
    uint64_t run_mean_ns;     /* of late */
    unsigned briefness;       /* of late: up with each leaf that is brief, down with each other */
    struct slot *standby;     /* parked, but looks by itself now and then; NULL: none */
    uint64_t standby_ns;      /* how long until it looks again */
    uint64_t standby_taken;   /* jobs that had been taken when it last looked */
    const struct slot *taker; /* took the newest job, and its loop has not ended; compared only */
    struct lane_waiter *waiters;
    unsigned to_wake_count;
    _Atomic uint32_t *to_wake[LANE_CALLS_MAX]; /* futexes to wake when the lock is free */
    struct job_queue queue;
    unsigned running_peak;
    unsigned active;
    unsigned coming;
    unsigned threads;
    unsigned parked;
    unsigned calls; /* of parked threads that were called, and none has come for it */
    bool launching; /* a loop that has arrived is starting another, without the lock */
    bool spinning;  /* a loop found nothing and is about to look again */
    bool closing;
    bool has_ended;
    uint64_t called_ns; /* when the newest of `calls` was made */
    struct slot *unused;
    struct mw_thread ended;
    struct lane_waiter *closer; /* mw_lane_free waits for the rest to go */
    unsigned waiting;           /* threads in mw_lane_wait that will touch the lane again */
    uint64_t cancelled;
    uint64_t expired;
    uint64_t start_failures;

    struct mw_event_count sleepers; /* parked threads of a lane with more than one slot */

    struct mw_spin_mutex inspect_lock; /* guards the writing of the four below */
    struct mw_histogram waits;         /* sums of what the slots have, as of the last look */
    struct mw_histogram runs;
    struct mw_histogram slot_waits;
    struct mw_histogram worker_waits;

    struct slot slots[]; /* cap of them */
};

/* Two words that the inbox may hold instead of a job, see lane.c. */
__attribute__((visibility("hidden"))) extern struct mw_job lane_shut_word, lane_closed_word;
#define INBOX_SHUT   (&lane_shut_word)
#define INBOX_CLOSED (&lane_closed_word)

static inline bool inbox_has_job(const struct mw_job *word)
{
    return word != NULL && word != INBOX_SHUT && word != INBOX_CLOSED;
}

/* The last touch of a job: it is its owner's again. */
static inline void job_let_go(struct mw_job *job)
{
    atomic_store_explicit(&job->state, JOB_IDLE, memory_order_relaxed); /* the next line orders */
    /* release: partner of the acquire in job_claim, maybe of another lane */
    atomic_store_explicit(&job->lane, NULL, memory_order_release);
}

/* lane.c */

/* Whether the lane was made by a process of which this one is a forked child. */
bool lane_is_foreign(const struct mw_lane *lane);

/* Queue the posted jobs from `newest` on, oldest first. */
void lane_queue_posted(struct mw_lane *lane, struct mw_job *newest) MW_REQUIRES(lane->lock);

/* Open or shut the inbox as the invariant has it; what lay in it is queued. To be called wherever
 * it may have to shut. */
void inbox_settle(struct mw_lane *lane) MW_REQUIRES(lane->lock);

/* Assert the invariants. */
void lane_check(const struct mw_lane *lane) MW_REQUIRES(lane->lock);

/* Whether `job` waits in this lane, and not in another or on its way; take in before. */
bool lane_has_queued(struct mw_lane *lane, const struct mw_job *job) MW_REQUIRES(lane->lock);

/* Tell mw_lane_free if nobody is left. */
void lane_quiet_check(struct mw_lane *lane) MW_REQUIRES(lane->lock);

/* lane_loop.c */

/* The lane whose loop runs on the calling thread; NULL: none. */
struct mw_lane *lane_own(void);

/* Of a lane that is still private to its maker. */
void slots_init(struct mw_lane *lane);

/* See that a loop comes for a job just queued, if one is wanted and allowed. Returns 0, or why it
 * could not be started. */
int loop_bring(struct mw_lane *lane, uint64_t now) MW_REQUIRES(lane->lock);

/* Send all parked threads home. */
void threads_dismiss(struct mw_lane *lane) MW_REQUIRES(lane->lock);

/* lane_wait.c */

/* Wake those who wait for `job`, whose done() has returned. */
void waiters_release(struct mw_lane *lane, const struct mw_job *job) MW_REQUIRES(lane->lock);

/* Take them off the lane, to be woken by waiters_wake when done() has returned. */
struct lane_waiter *waiters_detach(struct mw_lane *lane, const struct mw_job *job,
                                   struct lane_waiter *others) MW_REQUIRES(lane->lock);
void waiters_wake(struct lane_waiter *first);

/* Sleep until the waiter is woken; false: the time was up, and nobody will wake it. */
bool waiter_sleep(struct lane_waiter *waiter, uint64_t deadline_ns);
void waiter_wake(struct lane_waiter *waiter);

/* Know of forks, to forget the waits of threads that a child does not have. Returns 0 or -ENOMEM.
 */
int waits_watch_forks(void);

/* ---- what each job passes through ---- */

/* Wake this futex, unless it is NULL, as soon as the lock is free. */
static inline void lane_wake_later(struct mw_lane *lane, _Atomic uint32_t *word)
    MW_REQUIRES(lane->lock)
{
    if (word != NULL)
        lane->to_wake[lane->to_wake_count++] = word;
}

/* Free the lock, and then wake the threads that were called meanwhile: see lane.c. */
void lane_unlock_and_wake(struct mw_lane *lane) MW_RELEASE(lane->lock);

static inline void lane_unlock(struct mw_lane *lane) MW_RELEASE(lane->lock)
{
    if (lane->to_wake_count > 0)
        lane_unlock_and_wake(lane);
    else
        mw_spin_mutex_unlock(&lane->lock);
}

/* Move what was posted to the queue. */
static inline void lane_take_in(struct mw_lane *lane) MW_REQUIRES(lane->lock)
{
    if (inbox_has_job(atomic_load_explicit(&lane->inbox, memory_order_relaxed)))
        /* acquire: partner of the release in jobs_post */
        lane_queue_posted(lane, atomic_exchange_explicit(&lane->inbox, NULL, memory_order_acquire));
}

#endif

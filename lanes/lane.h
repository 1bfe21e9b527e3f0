/* lane.h - bounded executor: at most `cap` jobs run at once, the rest wait in a bounded queue, and
 * a full queue refuses at once. The LimitedConcurrency scheduler of seed 002.
 *
 * There is one queue, one cap, and drain loops that are started on demand. Who runs a drain loop
 * is the only difference between the two runners: threads that the lane starts itself (a CPU
 * lane), or workers of the shared pool (an IO pool). That makes the pool-run lane an honest
 * negative control for the dedicated one: same code, same cap, other runner.
 *
 * Ownership:  a job stays the caller's; the lane borrows it from a successful submit until done()
 *             is called, and does not touch it after. No allocation per job.
 * Threads:    submit and cancel from any thread; fn() and done() on the thread that ran the job;
 *             for a cancelled job done() runs on the thread that cancelled.
 * Bounds:     queue_max waiting jobs, cap running ones; both fixed at mw_lane_new.
 * Promise:    fn runs once or never. After a successful submit done() fires exactly once; after a
 *             refused one it never fires. */
#ifndef MILLWRIGHT_LANE_H
#define MILLWRIGHT_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <millwright/histogram.h>
#include <millwright/pool.h>
#include <millwright/thread.h>

#define MW_LANE_CAP_LIMIT           1024u
#define MW_LANE_QUEUE_MAX_DEFAULT   1024u
#define MW_LANE_STACK_BYTES_DEFAULT (UINT64_C(64) << 20) /* clang recurses; reserved, not used */
#define MW_LANE_NICE_DEFAULT        19
#define MW_LANE_LINGER_MS_DEFAULT   5000u

struct mw_lane;

enum mw_lane_runner {
    MW_LANE_DEDICATED = 0, /* threads of the lane's own, named mw-cpu-lane, kind MW_THREAD_LANE */
    MW_LANE_POOL           /* workers of options.pool */
};

enum mw_job_state { MW_JOB_IDLE = 0, MW_JOB_QUEUED, MW_JOB_RUNNING };

struct mw_job {
    /* set by the caller; the whole struct starts as zero bytes */
    int (*fn)(struct mw_job *job);                /* the leaf; its return is handed to done() */
    void (*done)(struct mw_job *job, int status); /* may be NULL */
    uint64_t deadline_ns; /* on mw_clock_ns: not started by then, done(-ETIMEDOUT); 0: never */
    /* written by the lane, readable in fn() and done() */
    uint64_t queued_ns;         /* when it was submitted */
    uint64_t started_ns;        /* when fn was called; 0: never */
    uint64_t ended_ns;          /* when fn returned; 0: never */
    enum mw_thread_kind ran_on; /* recorded kind of the thread that ran fn */
    uint64_t leaf;              /* this run's id, see flow.h */
    /* private */
    _Atomic(struct mw_lane *) lane; /* the lane that has it; NULL: none */
    struct mw_job *prev, *next;
    uint64_t parent_leaf;
    enum mw_job_state state;
};

/* Zero means the default of each. */
struct mw_lane_options {
    const char *name; /* what stats and logs call it, at most 31 bytes; default "lane" */
    enum mw_lane_runner runner;
    struct mw_pool *pool; /* MW_LANE_POOL only; must outlive the lane */
    unsigned cap;         /* default: effective CPUs; at most MW_LANE_CAP_LIMIT */
    unsigned queue_max;   /* default MW_LANE_QUEUE_MAX_DEFAULT */
    /* MW_LANE_DEDICATED only */
    size_t stack_bytes; /* default MW_LANE_STACK_BYTES_DEFAULT */
    int nice;           /* -1: 0, the creator's own class; 0: default MW_LANE_NICE_DEFAULT; ..19 */
    unsigned linger_ms; /* an idle thread waits this long before it ends; default 5000 */
};

struct mw_lane_stats {
    char name[32];
    enum mw_lane_runner runner;
    unsigned cap;
    unsigned queue_max;
    unsigned queued;
    unsigned running;      /* leaves inside fn() */
    unsigned running_peak; /* the most at once so far; never above cap */
    unsigned threads;      /* dedicated: alive threads; pool: drain loops */
    uint64_t submitted;
    uint64_t started;
    uint64_t completed;
    uint64_t rejected;
    uint64_t cancelled;
    uint64_t expired;
    uint64_t start_failures;   /* threads or pool slots that could not be had */
    uint64_t ran_on_lane;      /* leaves run on threads of kind MW_THREAD_LANE */
    uint64_t ran_on_pool;      /* leaves run on threads of kind MW_THREAD_POOL */
    uint64_t oldest_queued_ns; /* age of the job that has waited longest; 0 when none waits */
    uint64_t wait_p50_ns, wait_p99_ns, wait_max_ns;
    uint64_t run_p50_ns, run_p99_ns, run_max_ns;
};

/* Make a lane; no thread is started yet.
 * Returns 0, -EINVAL (a limit exceeded, or a pool missing or given in vain) or -ENOMEM.
 * Does not block. */
int mw_lane_new(struct mw_lane **out, const struct mw_lane_options *options);

/* Close the lane: run what is queued (`cancel_queued` false) or call done(-ECANCELED) for it
 * (true), wait for what runs, end every thread, release the lane. NULL is fine.
 * Submits that come meanwhile get -ESHUTDOWN; nobody may use the lane afterwards. Whoever saw the
 * last done() may call this at once; a done() that mw_lane_cancel calls on another thread may still
 * run when it returns.
 * Runs on: any thread but one that runs a job of this lane. Blocks. */
void mw_lane_free(struct mw_lane *lane, bool cancel_queued);

/* Queue `job`.
 * Returns 0, -EAGAIN (queue_max jobs wait already, or no thread could be had to run it and none
 * is running), -EBUSY (this job is queued or running), -EINVAL (no fn) or -ESHUTDOWN.
 * Runs on: any thread, also inside fn() and done(). Does not block (it may start a thread). */
int mw_lane_submit(struct mw_lane *lane, struct mw_job *job);

/* Take `job` back if it has not started: done(-ECANCELED) runs on this thread before the return.
 * Returns 0, -EBUSY (it runs already: it will finish and call done itself) or -ENOENT (it is not
 * in this lane). The caller keeps `job` alive during the call.
 * Runs on: any thread, but not with a lock held that done() takes. Does not block. */
int mw_lane_cancel(struct mw_lane *lane, struct mw_job *job);

/* What the lane does and did. Runs on: any thread. Holds the lane's lock for a moment. */
void mw_lane_snapshot(struct mw_lane *lane, struct mw_lane_stats *stats);

/* The wait and run time histograms, in nanoseconds; they live as long as the lane.
 * Runs on: any thread. Does not block. */
const struct mw_histogram *mw_lane_wait_histogram(const struct mw_lane *lane);
const struct mw_histogram *mw_lane_run_histogram(const struct mw_lane *lane);

#endif

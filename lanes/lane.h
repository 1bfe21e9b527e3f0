/* lane.h - bounded executor: at most `cap` jobs run at once, the rest wait in a bounded queue, and
 * a full queue refuses at once. The LimitedConcurrency scheduler of seed 002.
 *
 * There is one queue, one cap, and drain loops that are started on demand. Who runs a drain loop
 * is the only difference between the two runners: threads that the lane starts itself (a CPU
 * lane), or workers of the shared pool (an IO pool). That makes the pool-run lane an honest
 * negative control for the dedicated one: same code, same cap, other runner.
 *
 * Which job is next: interactive before normal before batch; but a class that has jobs and was
 * passed over MW_LANE_PASSES_MAX times in a row goes next, so none starves. Within a class the
 * tenants take turns by deficit round robin (Shreedhar and Varghese, 1995), charged with measured
 * run time; within a tenant the oldest job is first.
 *
 * Where leaves are shorter than two threads lose by sharing the queue (about 200 ns), a dedicated
 * lane runs them on one thread, and another looks now and then whether it is stuck. So a job that
 * stands behind such leaves and one that blocks starts up to 0.8 ms later than it could, and one
 * that is more urgent up to 16 such leaves later.
 *
 * Ownership:  a job stays the caller's; the lane borrows it from a successful submit until done()
 *             is called, and does not touch it after. No allocation per job.
 * Threads:    submit and cancel from any thread; fn() and done() on the thread that ran the job;
 *             for a cancelled job done() runs on the thread that cancelled.
 * Bounds:     queue_max waiting jobs, cap running ones, tenants_max tenants; fixed at mw_lane_new.
 * Promise:    fn runs once or never. After a successful submit done() fires exactly once; after a
 *             refused one it never fires.
 * Fork:       a lane belongs to the process that made it. In a forked child submit, cancel and
 *             wait return -EOWNERDEAD and mw_lane_free returns at once: make a new lane there. */
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
#define MW_LANE_LINGER_MS_DEFAULT   5000u
#define MW_LANE_TENANTS_LIMIT       1024u
#define MW_LANE_PASSES_MAX          16u
#define MW_LANE_SHARE_QUANTUM_NS    UINT64_C(10000000) /* run time per tenant and turn */
#define MW_LANE_SPIN_US_MAX         10u

struct mw_lane;

enum mw_lane_runner {
    MW_LANE_DEDICATED = 0, /* threads of the lane's own, named mw-cpu-lane, kind MW_THREAD_LANE */
    MW_LANE_POOL           /* workers of options.pool */
};

enum mw_job_priority {
    MW_JOB_NORMAL = 0, /* zero bytes are a normal job */
    MW_JOB_INTERACTIVE,
    MW_JOB_BATCH,
    MW_JOB_PRIORITIES /* how many there are */
};

struct mw_job {
    /* set by the caller; the whole struct starts as zero bytes */
    int (*fn)(struct mw_job *job);                /* the leaf; its return is handed to done() */
    void (*done)(struct mw_job *job, int status); /* may be NULL */
    uint64_t deadline_ns; /* on mw_clock_ns: not started by then, done(-ETIMEDOUT); 0: never */
    enum mw_job_priority priority;
    uint32_t tenant; /* whose share it uses, below options.tenants_max */
    /* Written by the lane, readable in fn() and done(). Times are on mw_clock_near_ns, so within
     * microseconds of mw_clock_ns, and in order. */
    uint64_t queued_ns;         /* when it was submitted */
    uint64_t started_ns;        /* when fn was called; 0: never */
    uint64_t ended_ns;          /* when fn returned; 0: never */
    enum mw_thread_kind ran_on; /* recorded kind of the thread that ran fn */
    uint64_t leaf;              /* this run's id, see flow.h */
    /* private */
    struct mw_job *prev, *next;
    _Atomic(struct mw_lane *) lane; /* the lane that has it; NULL: none */
    _Atomic uint64_t state;         /* this submit's id, and how far it has come */
    uint64_t parent_leaf;
};

/* How a lane's threads compete for the CPUs. docs/measurements.md has the figures behind the
 * default. */
enum mw_lane_urgency {
    MW_LANE_NICE_19 = 0, /* gives way to pool workers and the loop at once, and never starves */
    MW_LANE_IDLE,        /* SCHED_IDLE: runs when nobody else on the machine wants to */
    MW_LANE_EQUAL        /* as the process's other threads */
};

/* Zero means the default of each. */
struct mw_lane_options {
    const char *name; /* what stats and logs call it, at most 31 bytes; default "lane" */
    enum mw_lane_runner runner;
    struct mw_pool *pool; /* MW_LANE_POOL only; must outlive the lane */
    unsigned cap;         /* default: effective CPUs; at most MW_LANE_CAP_LIMIT */
    unsigned queue_max;   /* default MW_LANE_QUEUE_MAX_DEFAULT */
    /* MW_LANE_DEDICATED only */
    size_t stack_bytes;           /* default MW_LANE_STACK_BYTES_DEFAULT */
    enum mw_lane_urgency urgency; /* how its threads compete with the rest of the host */
    unsigned linger_ms;           /* an idle thread waits this long before it ends; default 5000 */
    unsigned spin_us; /* one idle thread spins this long before it sleeps; 0 (default): it yields
                         once; at most MW_LANE_SPIN_US_MAX, and never on one CPU */
    /* both */
    unsigned tenants_max; /* default 1: everybody is tenant 0; at most MW_LANE_TENANTS_LIMIT */
};

struct mw_lane_stats {
    char name[32];
    enum mw_lane_runner runner;
    unsigned cap;
    unsigned queue_max;
    unsigned queued;
    unsigned running;      /* leaves inside fn() */
    unsigned running_peak; /* the most loops at once in fn() or done() so far; never above cap */
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
    uint64_t queued_by_priority[MW_JOB_PRIORITIES];
    /* Pool-run: the wait until the lane had a slot for the job, and from then until a worker of the
     * pool took it. A lane that is too small shows in the first, a starved pool in the second.
     * Dedicated: worker waits are those for a thread to start or wake. */
    uint64_t slot_wait_p50_ns, slot_wait_p99_ns, slot_wait_max_ns;
    uint64_t worker_wait_p50_ns, worker_wait_p99_ns, worker_wait_max_ns;
    unsigned waiting_for_worker; /* loops that were called for and have not come yet */
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

/* Queue `count` jobs with one look at the lane, in order, as mw_lane_submit would one by one.
 * Returns how many were queued (the first of them, all of them unless the lane is full, closing or
 * a job is refused), or what mw_lane_submit returns for the first when none was. Runs as that. */
int mw_lane_submit_batch(struct mw_lane *lane, struct mw_job *const *jobs, unsigned count);

/* Take `job` back if it has not started: done(-ECANCELED) runs on this thread before the return.
 * Returns 0, -EBUSY (it runs already: its cancel token is set, it will finish and call done) or
 * -ENOENT (it is not in this lane). The caller keeps `job` alive during the call. Runs on: any
 * thread, but not with a lock held that done() takes. Does not block. */
int mw_lane_cancel(struct mw_lane *lane, struct mw_job *job);

/* Whether the running job was asked to stop: a long leaf looks now and then, and returns early.
 * Runs on: the thread inside fn(). Does not block. */
bool mw_job_cancelled(const struct mw_job *job);

/* Wait until `job` has left the lane and its done() has returned.
 * Returns 0 (also when it left before; a done() that mw_lane_cancel calls on another thread may
 * then still run), -ETIMEDOUT at `deadline_ns` on mw_clock_ns (UINT64_MAX: never), or -EDEADLK at
 * once: inside a leaf of a dedicated lane, always; inside a leaf of a pool-run lane, when the lanes
 * that wait for each other would form a circle (a lane and itself included). The caller keeps `job`
 * alive meanwhile; one whose done() releases it cannot be waited for. Runs on: any thread but the
 * loop's. Blocks. */
int mw_lane_wait(struct mw_lane *lane, struct mw_job *job, uint64_t deadline_ns);

/* How long a normal job queued now would likely wait: what is queued and running, times the mean
 * run time, over the cap. For a Retry-After. 0 while a thread is free.
 * Runs on: any thread. Holds the lane's lock for a moment. */
uint64_t mw_lane_wait_estimate_ns(struct mw_lane *lane);

/* What the lane does and did. Runs on: any thread. Holds the lane's lock for a moment. */
void mw_lane_snapshot(struct mw_lane *lane, struct mw_lane_stats *stats);

/* The wait and run time histograms, in nanoseconds; they live as long as the lane.
 * Runs on: any thread. Does not block. */
const struct mw_histogram *mw_lane_wait_histogram(const struct mw_lane *lane);
const struct mw_histogram *mw_lane_run_histogram(const struct mw_lane *lane);

#endif

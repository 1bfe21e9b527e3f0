/* monitor.h - repairs a starved pool: raises its minimum when items wait although the CPUs are
 * idle, which means that its workers block (seed 000).
 *
 * A thread of its own samples every MW_MONITOR_INTERVAL_MS. One probe item at a time waits in the
 * pool's queue and is judged by its age. The pool is starved when the item has waited for
 * MW_MONITOR_AGE_MS or more although workers are blocked (they said so, or sleep in a call), and
 * either less than half of the effective CPUs was used meanwhile, or those awake could not have
 * used more. The rules stand in monitor_rules.h.
 * The first raise goes in one step to parallel_limit + CPUs; if it is starved still when the pool
 * has grown to that, the minimum doubles; never above the pool's maximum nor
 * MW_MONITOR_THREADS_PER_CPU per CPU, never below what the user has set. When the monitor ends, the
 * minimum of before the first raise is put back, unless somebody has set it since, be it to what it
 * was: that is the user's minimum then. A sample is thrown away when the monitor itself woke late,
 * or its cgroup was throttled.
 *
 * Off by options.disabled or MILLWRIGHT_DISABLE_POOL_TUNING=1, true or yes, which wins over the
 * option (0, false or no: on). It is then a monitor that samples nothing, with no thread.
 *
 * Ownership:  the pool is the caller's and outlives the monitor. A probe item that still waits when
 *             the monitor ends releases itself; nobody waits for it.
 * Threads:    one of its own, named mw-monitor; `report` is called on it, and never ends the
 *             process: an error is reported, and the next sample is tried.
 * Fork:       in a forked child there is no monitor, and free leaves it as it is, on purpose. */
#ifndef MILLWRIGHT_MONITOR_H
#define MILLWRIGHT_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <millwright/pool.h>

#define MW_MONITOR_INTERVAL_MS     50u
#define MW_MONITOR_AGE_MS          40u
#define MW_MONITOR_THREADS_PER_CPU 64u
#define MW_MONITOR_PROCESSES_MAX   1024u

struct mw_monitor;

enum mw_monitor_event_kind {
    MW_MONITOR_RAISED = 0,
    MW_MONITOR_RESTORED,
    MW_MONITOR_LEFT, /* not restored: somebody has set the minimum since */
    MW_MONITOR_FAILED,
    MW_MONITOR_EVENTS /* how many kinds there are */
};

/* What happened, with the figures that were decided on. */
struct mw_monitor_event {
    enum mw_monitor_event_kind kind;
    unsigned min_before, min_after;
    unsigned threads, busy, pending; /* of the pool */
    unsigned blocked;                /* those that said so, or that were seen asleep */
    uint64_t age_ns;                 /* of the probe item */
    double cpu_used;                 /* of the effective CPUs, 0 to 1 */
    int error;                       /* MW_MONITOR_FAILED: a negative errno */
};

struct mw_monitor_options {
    struct mw_pool *pool;
    unsigned parallel_limit; /* how many items may block at once; default: 4 x effective CPUs */
    bool disabled;
    void (*report)(void *user, const struct mw_monitor_event *event); /* may be NULL */
    void *user;
};

struct mw_monitor_stats {
    bool enabled;
    unsigned min_user;   /* the minimum before the first raise */
    unsigned min_raised; /* what the monitor raised it to; 0: it has not */
    uint64_t samples;
    uint64_t discarded; /* samples thrown away */
    uint64_t starved;   /* samples that found the pool starved */
    uint64_t raises;
    uint64_t failures;
    uint64_t age_max_ns; /* the longest wait of a probe item seen */
    unsigned processes;  /* that it counts the CPU time of, beside its own */
};

/* Returns 0, -EINVAL (no pool; MILLWRIGHT_DISABLE_POOL_TUNING is neither), -ENOMEM, or -EAGAIN
 * when the thread cannot be started. */
int mw_monitor_new(struct mw_monitor **out, const struct mw_monitor_options *options);

/* What MILLWRIGHT_DISABLE_POOL_TUNING says: 0 with `disabled` set, -ENOENT when it is unset or
 * empty, or -EINVAL with `why`, which names it. */
int mw_monitor_environment(bool *disabled, char *why, size_t why_bytes);

/* Stop, put the minimum back, release. NULL is fine. Blocks. */
void mw_monitor_free(struct mw_monitor *monitor);

/* Count the CPU time of a child process as this one's, until mw_monitor_forget or its end. Call it
 * on the thread that will wait for it: a worker that waits for a child which computes needs no
 * other worker, and a lane's thread that does says nothing about the pool.
 * Forget one before it is reaped, and none of its time is lost. Returns 0, -ESRCH, -EINVAL (this
 * process: it counts anyway) or -ENOSPC (MW_MONITOR_PROCESSES_MAX). Runs on: any thread. */
int mw_monitor_watch(struct mw_monitor *monitor, pid_t process);
void mw_monitor_forget(struct mw_monitor *monitor, pid_t process);

/* Runs on: any thread. Does not block, but for a lock held for moments. */
void mw_monitor_snapshot(struct mw_monitor *monitor, struct mw_monitor_stats *stats);

#endif

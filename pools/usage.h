/* usage.h - the CPU time that this process has used so far, and child processes on its behalf.
 *
 * A sum that never goes back. A child counts from when it is watched; what it had used when it was
 * last seen stays in the sum when it ends, and its process id may go to another process then
 * without harm. Who forgets a child before reaping it loses nothing of it; else what it used since
 * the last look is lost. A child's own children do not count.
 *
 * Children that work for a pool's workers, who block meanwhile, are summed up apart as well.
 *
 * Threads: watch and forget from any thread; read from one at a time.
 * Bounds:  MW_USAGE_PROCESSES_MAX processes. */
#ifndef MW_POOLS_USAGE_H
#define MW_POOLS_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "mutex.h"

#define MW_USAGE_PROCESSES_MAX 1024u

/* A watched process: who it is, and what of its time is in the sum. */
struct mw_usage_process {
    pid_t pid;
    clockid_t clock;
    uint64_t began; /* as the kernel tells, from a later one of its id; 0 before the first look */
    uint64_t seen_ns;
    bool for_worker;
};

struct mw_usage_table {
    struct mw_mutex lock; /* guards all below */
    unsigned count;
    uint64_t children_ns;
    uint64_t for_workers_ns; /* of that, by those that work for a worker */
    struct mw_usage_process processes[MW_USAGE_PROCESSES_MAX];
};

/* Returns 0, or -ENOMEM/-EAGAIN from the system. */
int mw_usage_init(struct mw_usage_table *usage);
void mw_usage_fini(struct mw_usage_table *usage);

/* Returns 0 (also when it is watched already), -ESRCH (no such process), -EINVAL (this process
 * itself: it counts anyway) or -ENOSPC. */
int mw_usage_watch(struct mw_usage_table *usage, pid_t pid, bool for_worker);

/* Look at it a last time, and no more. One that is not watched is no error. */
void mw_usage_forget(struct mw_usage_table *usage, pid_t pid);

/* The sum, and what of it was used by the children that work for workers (which may be NULL). What
 * has ended is forgotten on the way. */
uint64_t mw_usage_read_ns(struct mw_usage_table *usage, uint64_t *for_workers_ns);

/* How many processes are watched. */
unsigned mw_usage_count(struct mw_usage_table *usage);

#endif

/* pool_growth.h - how many workers of a pool may be awake: arithmetic only, no threads, no clock.
 *
 * The goal is minimum + injected + compensated, and never above the maximum.
 *
 *  - injected: added by the gate, one for each MW_POOL_GATE_MS in which work waited and none was
 *    taken. They are forgotten as workers leave, and are absorbed when the minimum is raised.
 *  - compensated: added for workers that say that they block, at most one for each. At once while
 *    the goal is below minimum + CPUs, or below the workers that there are; then one for each step:
 *    STEP_MS, and as much again for each CPUs that the goal is further up, at most STEP_MS_MAX.
 *    The time runs also while nothing waits and nobody looks. When a worker blocks no longer the
 *    goal falls at once.
 *
 * The numbers are .NET's, but for these: a raise of the minimum is never handed to the steps (seed
 * 000 saw the pool stuck there), and the injected count apart from the compensated ones, so a
 * worker that says that it blocks is made up for even if the gate came first for another.
 *
 * Ownership:  part of struct mw_pool.
 * Threads:    guarded by the pool's lock. */
#ifndef MW_POOLS_POOL_GROWTH_H
#define MW_POOLS_POOL_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

#define GROWTH_STEP_MS     25u
#define GROWTH_STEP_MS_MAX 250u

struct growth {
    unsigned min;  /* 1 to max */
    unsigned max;  /* immutable */
    unsigned cpus; /* immutable */
    unsigned injected;
    unsigned blocked;     /* workers that say that they block */
    unsigned compensated; /* of those; at most `blocked` */
    uint64_t step_ns;     /* when the last step was taken, or the first became due to be taken */
};

/* How many workers may be awake. */
unsigned growth_goal(const struct growth *growth);

/* A worker blocks; one blocks no longer. `threads` is how many workers there are. */
void growth_block(struct growth *growth, unsigned threads, uint64_t now);
void growth_unblock(struct growth *growth);

/* Whether a blocked worker could be made up for, later: when growth_step_due says. */
bool growth_is_short(const struct growth *growth);
uint64_t growth_step_due(const struct growth *growth);

/* Make up for the blocked workers as far as is allowed now. */
void growth_compensate(struct growth *growth, unsigned threads, uint64_t now);

/* One more worker, for work that waits. Returns false at the maximum. */
bool growth_inject(struct growth *growth);

/* Change the minimum. */
void growth_set_min(struct growth *growth, unsigned min, unsigned threads, uint64_t now);

/* A worker has left, and `threads` are there now. */
void growth_shrink(struct growth *growth, unsigned threads);

#endif

/* head_starts.h - which prefixes workers wait behind. Private to compile/; isolate.h is what others
 * use.
 *
 * A prefix zygote (worker.c) has read the headers that many requests begin with, and so have its
 * workers. It takes memory as long as it lives and as much CPU time as its headers take to be
 * read, so there are few. Which prefixes get one: those that were asked for MW_HEAD_START_USES
 * times, when there is room, or when one was not used for MW_HEAD_START_IDLE_NS. So as many
 * prefixes as there is no room for, in turn, do not push out one another.
 *
 * Ownership:  a pool that was held stays until it is released.
 * Threads:    all from any thread. make waits for a prefix to be read; make, release and free for
 *             the end of a prefix zygote: a moment, and 5 s when it does not do what it is told.
 * Bounds:     `max` pools; MW_HEAD_START_SIGHTINGS_MAX prefixes that have none are remembered. */
#ifndef MW_COMPILE_HEAD_STARTS_H
#define MW_COMPILE_HEAD_STARTS_H

#include <stdbool.h>
#include <stdint.h>

#include <millwright/isolate.h>

#include "worker_pool.h"

#define MW_HEAD_START_USES          3u
#define MW_HEAD_START_IDLE_NS       UINT64_C(10000000000)
#define MW_HEAD_START_RETRY_NS      UINT64_C(60000000000) /* of one that was due and is not made */
#define MW_HEAD_START_SIGHTINGS_MAX 64u

struct mw_head_starts;

/* Returns 0 or -ENOMEM. */
int mw_head_starts_new(struct mw_head_starts **out, struct mw_worker_pool *zygotes, unsigned max);
void mw_head_starts_free(struct mw_head_starts *starts); /* before the zygotes' pool */
void mw_head_starts_abandon(struct mw_head_starts *starts);

/* Note that `key` is asked for. Returns the pool of workers that wait behind it, held; else NULL,
 * and *due says whether to make it now. */
struct mw_worker_pool *mw_head_starts_hold(struct mw_head_starts *starts, const char *key,
                                           bool *due);

/* `is_dead`: no worker can be had from it any more. */
void mw_head_starts_release(struct mw_head_starts *starts, struct mw_worker_pool *pool,
                            bool is_dead);

/* As mw_worker_pool_of_prefix. 0 as well when there is one, -EBUSY when there is no room. */
int mw_head_starts_make(struct mw_head_starts *starts, const char *key, int request_file,
                        const struct mw_wire_scheduling *scheduling, uint64_t deadline_ns,
                        int stop);

/* Add its pools' numbers to `stats`, also of those that are gone, and fill head_starts. */
void mw_head_starts_snapshot(struct mw_head_starts *starts, struct mw_isolate_stats *stats);

#endif

/* worker_pool.h - the host's end of the zygote, and the workers that wait for work. Private to
 * compile/; isolate.h is what others use.
 *
 * Ownership:  a worker is the pool's until take, the taker's until drop or give.
 * Threads:    all from any thread. take waits for the zygote; the rest does not block, but that
 *             free, and whoever finds the zygote dead, wait for its end.
 * Bounds:     options.ready workers wait, and one for each thread in take. */
#ifndef MW_COMPILE_WORKER_POOL_H
#define MW_COMPILE_WORKER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <millwright/isolate.h>

#include "worker_wire.h"

struct mw_worker_pool;
struct mw_zygote;

struct mw_worker {
    struct mw_worker *next; /* of those that wait */
    pid_t pid;
    int socket; /* requests and answers */
    int report; /* how it ended, told by the zygote */
    int pidfd;
    bool is_ready;
    int clear_refs;        /* of its memory; -1: there is none, or it is used once */
    uint64_t data_bytes;   /* of RLIMIT_DATA, when it began to wait; 0: not to be told */
    uint64_t shared_bytes; /* of its memory, the code that all workers share */
    unsigned requests;     /* handed to it */
};

struct mw_worker_pool_options {
    const char *program;
    const char *identity; /* the toolchain's: the zygote's must be the same */
    unsigned guards;
    unsigned ready;
    bool reuse;                           /* workers are given back */
    struct mw_wire_scheduling scheduling; /* of the first workers */
};

/* Returns 0 when the first worker is ready, or a negative errno with `why`. */
int mw_worker_pool_new(struct mw_worker_pool **out, const struct mw_worker_pool_options *options,
                       char *why, size_t why_bytes);
void mw_worker_pool_free(struct mw_worker_pool *pool);

/* Have `zygotes` fork a prefix zygote that reads the prefix of the request in `request_file`, and
 * make a pool of its workers, of the same options. It does not replace a zygote that has ended:
 * then take returns -EAGAIN for ever. Returns 0 when it has read the prefix, -EAGAIN (it cannot, or
 * no more), -ETIMEDOUT, -ECANCELED or -ENOMEM. */
int mw_worker_pool_of_prefix(struct mw_worker_pool **out, struct mw_worker_pool *zygotes,
                             int request_file, const struct mw_wire_scheduling *scheduling,
                             uint64_t deadline_ns, int stop);

/* In a forked child: release what is only this process's. */
void mw_worker_pool_abandon(struct mw_worker_pool *pool);

/* Take a worker that is ready for a request. `stop` is a descriptor that ends the wait when it
 * becomes readable, or -1. Returns 0, -ETIMEDOUT, -ECANCELED, -EAGAIN (none could be had) or
 * -ENOMEM. */
int mw_worker_take(struct mw_worker_pool *pool, const struct mw_wire_scheduling *scheduling,
                   uint64_t deadline_ns, int stop, struct mw_worker **out);

/* Have those forked that are missing. */
void mw_worker_pool_refill(struct mw_worker_pool *pool,
                           const struct mw_wire_scheduling *scheduling);

/* End a worker and forget it; or let it wait for another request. */
void mw_worker_drop(struct mw_worker_pool *pool, struct mw_worker *worker);
void mw_worker_give(struct mw_worker_pool *pool, struct mw_worker *worker);

/* Have the peak of its memory counted anew, from what is resident now. */
void mw_worker_peak_reset(const struct mw_worker *worker);

/* End its process, and no other. */
void mw_worker_kill(const struct mw_worker *worker);

/* How it ended. Returns 1 with `report` filled, -EAGAIN (not ended, or not told yet), or 0 (nobody
 * will tell any more: the zygote is dead). */
int mw_worker_report(const struct mw_worker *worker, struct mw_wire_report *report);

/* Add to ready, running and started of `stats`, and fill zygote_restarts and zygote_rss_bytes; but
 * these not of a pool behind a prefix. */
void mw_worker_pool_snapshot(struct mw_worker_pool *pool, struct mw_isolate_stats *stats);

#endif

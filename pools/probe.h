/* probe.h - the starvation probe: how long does a piece of work wait until it is started? Every
 * interval_ms it sends one item to its target and records the wait in a histogram (seed 002, which
 * measured 5 ms apart).
 *
 * An item is sent when the one before has started, so at most one is in flight; what an item in
 * flight has waited so far is told beside the histogram, so a target that is stuck shows at once.
 * A late item also stands for the sends that it kept from being made: like HdrHistogram's
 * correction for coordinated omission, each missed interval is recorded with the wait that it
 * would have seen, at most MW_PROBE_MISSED_MAX of them for one item.
 *
 * Ownership:  the target is the caller's and outlives the probe.
 * Threads:    one of the probe's own, named mw-probe, in the middle of every interval asleep.
 *             Targets: a pool here; lanes, loops and libuv's workers in lanes/probe_targets.h.
 * Bounds:     one item in flight. */
#ifndef MILLWRIGHT_PROBE_H
#define MILLWRIGHT_PROBE_H

#include <stdint.h>

#include <millwright/histogram.h>
#include <millwright/pool.h>

#define MW_PROBE_INTERVAL_MS_DEFAULT 5u
#define MW_PROBE_MISSED_MAX          100000u

struct mw_probe;

/* What is probed. */
struct mw_probe_target {
    /* Send one item; when it starts, it calls mw_probe_arrive(probe) once. Returns 0 or a negative
     * errno: nothing was sent. Runs on the probe's thread, and does not block. */
    int (*send)(struct mw_probe_target *target, struct mw_probe *probe);
    /* The probe is over; may wait until the item in flight has arrived. NULL: nothing to do. Runs
     * on the thread that calls mw_probe_free. */
    void (*settle)(struct mw_probe_target *target);
};

/* Probes a pool: an item at the tail of its queue. */
struct mw_probe_pool {
    struct mw_probe_target target;
    struct mw_pool *pool;
    struct mw_pool_item item;
    struct mw_probe *probe;
};

struct mw_probe_stats {
    uint64_t sent;
    uint64_t arrived;
    uint64_t refused;                /* sends that the target refused (a full queue) */
    uint64_t in_flight_ns;           /* what the item in flight has waited so far; 0: none */
    uint64_t p50_ns, p99_ns, max_ns; /* of the waits of arrived items, missed sends included */
};

/* Start to probe. `interval_ms` 0: the default. Returns 0, -ENOMEM, or -EAGAIN when the thread
 * cannot be started. */
int mw_probe_new(struct mw_probe **out, struct mw_probe_target *target, unsigned interval_ms);

/* Stop, wait for the item in flight, release. NULL is fine. Blocks. */
void mw_probe_free(struct mw_probe *probe);

/* Called by the item when it starts. Runs on: any thread. Does not block. */
void mw_probe_arrive(struct mw_probe *probe);

/* Runs on: any thread. Does not block. */
void mw_probe_snapshot(const struct mw_probe *probe, struct mw_probe_stats *stats);
const struct mw_histogram *mw_probe_histogram(const struct mw_probe *probe);

/* The target that probes `pool`. */
void mw_probe_pool_init(struct mw_probe_pool *target, struct mw_pool *pool);

#endif

/* registry.h - the named lanes of a process over one shared pool: `compile-cpu` beside `compile`,
 * `files`, `store` ... All are lanes, with the same queue and the same cap; those for CPU work have
 * threads of their own, the others (IO pools) run on the pool's workers.
 *
 * A pool-run lane whose leaves may wait (for another lane's work, say) holds a worker meanwhile.
 * The caps of all such lanes must sum to less than the pool's maximum of threads, so that a worker
 * is always left for the work that they wait for; what would break this is refused.
 *
 * Ownership:  the registry owns its lanes and borrows the pool, which must outlive it.
 * Threads:    add by one thread at a time (a second one waits); all else from any thread, also
 *             meanwhile. free: see there.
 * Bounds:     MW_REGISTRY_LANES_MAX lanes. None is ever removed, so a lane found stays valid until
 *             mw_registry_free. */
#ifndef MILLWRIGHT_REGISTRY_H
#define MILLWRIGHT_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/lane.h>
#include <millwright/pool.h>

#define MW_REGISTRY_LANES_MAX 64u

struct mw_registry;

/* Zero means the default of each. */
struct mw_registry_lane {
    struct mw_lane_options options; /* name: needed; 1 to 31 letters, digits and '-'. pool: NULL,
                                       the registry gives a pool-run lane its own */
    bool leaves_wait; /* a leaf of this pool-run lane may wait for work of other lanes */
    bool computes;    /* its leaves only compute: the audit counts each that runs elsewhere than on
                         a lane's own thread, also when the lane is pool-run on purpose */
};

/* Make a registry without lanes. `pool` may be NULL: then it takes no pool-run lanes.
 * Returns 0 or -ENOMEM. Does not block. */
int mw_registry_new(struct mw_registry **out, struct mw_pool *pool);

/* Free the lanes, the newest first (mw_lane_free, with `cancel_queued` for each), then the
 * registry. NULL is fine. Nobody may use the registry or a lane of it any more.
 * Runs on: any thread but one that runs a job of one of the lanes. Blocks. */
void mw_registry_free(struct mw_registry *registry, bool cancel_queued);

/* Make a lane and add it. Returns 0, or with a text in `why` that says what to do:
 * -EINVAL (the name or an option), -EEXIST (the name is taken), -ENOSPC (MW_REGISTRY_LANES_MAX),
 * -EDEADLK (the caps of lanes whose leaves may wait reach the pool's maximum), -ENOMEM.
 * Runs on: any thread. May wait for another that adds. */
int mw_registry_add(struct mw_registry *registry, const struct mw_registry_lane *lane, char *why,
                    size_t why_bytes);

/* The lane of this name; NULL: there is none. Runs on: any thread. Does not block. */
struct mw_lane *mw_registry_find(const struct mw_registry *registry, const char *name);

/* The lanes in the order of their adding: places 0 to mw_registry_count - 1, and NULL past them.
 * Runs on: any thread. Does not block. */
unsigned mw_registry_count(const struct mw_registry *registry);
struct mw_lane *mw_registry_at(const struct mw_registry *registry, unsigned place);

/* How many leaves of lanes that compute (see there) ran on other threads than a lane's own.
 * Runs on: any thread. Holds each lane's lock for a moment. */
uint64_t mw_registry_strayed(const struct mw_registry *registry);

/* Set one option from text: cap, queue and tenants, and for lanes with threads of their own also
 * urgency, linger-ms and spin-us; options->runner must be set before. Numbers are decimal.
 * Returns 0, or -EINVAL with a text in `why` that names the bounds: "must be ...", to be put
 * after the option's name. Does not block. */
int mw_lane_options_set(struct mw_lane_options *options, const char *key, const char *value,
                        char *why, size_t why_bytes);

#endif

/* preambles.h - who makes the precompiled prefixes of the service, in the background.
 *
 * A plan that the pipeline's look-up gave is compiled as any leaf, on the CPU lane at batch
 * priority and, where compiles are isolated, in a worker of its own; then it is put, on the store's
 * lane.
 *
 * Ownership:  a plan is the maker's from take on.
 * Threads:    the loop's thread; the work itself on the lanes.
 * Bounds:     MW_PREAMBLE_PLANS_MAX at once, as many as there are plans out. */
#ifndef MW_SERVICE_PREAMBLES_H
#define MW_SERVICE_PREAMBLES_H

#include <stdbool.h>

#include <millwright/lane_uv.h>
#include <millwright/preamble.h>

#include "leaf.h"

struct mw_preamble_maker;

/* All of it outlives the maker. */
struct mw_preamble_maker_parts {
    struct mw_preambles *preambles;
    struct mw_lane_uv *adapter;
    struct mw_leaf_place place;
    struct mw_lane *cpu, *store_io;
};

/* Returns 0 or -ENOMEM. */
int mw_preamble_maker_new(struct mw_preamble_maker **out,
                          const struct mw_preamble_maker_parts *parts);

/* It may not be busy. NULL is fine. */
void mw_preamble_maker_free(struct mw_preamble_maker *maker);

/* Make it, or give it up when a lane is full. Does not block. */
void mw_preamble_maker_take(struct mw_preamble_maker *maker, struct mw_preamble_plan *plan);

/* Give up what is not done, and all that comes. */
void mw_preamble_maker_stop(struct mw_preamble_maker *maker);

/* Whether anything of it is on a lane, or on its way back. */
bool mw_preamble_maker_busy(const struct mw_preamble_maker *maker);

#endif

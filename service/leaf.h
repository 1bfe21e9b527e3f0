/* leaf.h - the CPU leaf of the service: a compile in this process, or in a process of its own.
 *
 * Ownership:  what a leaf needs is lent for its run; what it yields is its owner's.
 * Threads:    mw_leaf_run on the thread of the lane; the rest on the loop's. */
#ifndef MW_SERVICE_LEAF_H
#define MW_SERVICE_LEAF_H

#include <jansson.h>
#include <stdbool.h>

#include <millwright/emit.h>
#include <millwright/isolate.h>
#include <millwright/limits.h>
#include <millwright/toolchain.h>

#include "problem.h"

/* Where leaves run, and what each may use. */
struct mw_leaf_place {
    struct mw_toolchain *toolchain;
    struct mw_isolate *isolate; /* NULL: in this process, where only the output is limited */
    struct mw_limits ceilings;  /* for what is asked for */
    struct mw_limits defaults;  /* for what is not */
};

/* Zero bytes are a fresh one. */
struct mw_leaf {
    struct mw_isolate_stop stop;
    struct mw_limits limits;
    struct mw_usage usage; /* isolated; in this process only the limit that was hit */
};

/* What a request gets that asks for `asked` (0: not): cut to the ceilings. Returns 0; or
 * -ENOTSUP with the problem filled, for what can only be kept of another process. */
int mw_leaf_limits(const struct mw_leaf_place *place, const struct mw_limits *asked,
                   struct mw_limits *limits, struct mw_problem *problem);
bool mw_leaf_limits_equal(const struct mw_limits *one, const struct mw_limits *other);

/* Compile. Returns as mw_compile or mw_isolate_compile. Blocks. */
int mw_leaf_run(struct mw_leaf *leaf, const struct mw_leaf_place *place,
                const struct mw_options *options, const struct mw_compile_request *request,
                struct mw_compile_result *result);

/* Nobody wants the result any more: end an isolated leaf, now or when it begins. */
void mw_leaf_stop(struct mw_leaf *leaf, const struct mw_leaf_place *place);

/* After its run. */
void mw_leaf_fini(struct mw_leaf *leaf);

/* Say why a leaf returned `status`, which is not 0. Returns members for the problem's document, to
 * be released by the caller, or NULL. */
json_t *mw_leaf_explain(const struct mw_leaf *leaf, int status, struct mw_problem *problem);

/* What it used; NULL when that is not known (in this process). */
json_t *mw_leaf_usage_json(const struct mw_leaf *leaf, const struct mw_leaf_place *place);

#endif

/* wire.h - the JSON of the compile endpoint: a body becomes a submission, a result an answer.
 *
 * Ownership:  a submission owns everything its request points to.
 * Threads:    plain functions for the IO pools; nothing here knows the loop.
 * Bounds:     those of request.h and options.h; nesting as jansson bounds it (2,048). */
#ifndef MW_SERVICE_WIRE_H
#define MW_SERVICE_WIRE_H

#include <jansson.h>
#include <stddef.h>

#include <millwright/diagnostic.h>
#include <millwright/key.h>
#include <millwright/limits.h>
#include <millwright/options.h>
#include <millwright/packages.h>
#include <millwright/request.h>

#include "problem.h"

#define MW_TIMEOUT_LOOK_BYTES 4096u

struct mw_submission {
    json_t *body; /* owns the strings that the request points to */
    struct mw_compile_request request;
    struct mw_run_options run;
    struct mw_limits limits;  /* parsed: as asked for, 0: not; the caller cuts them */
    unsigned diagnostics_max; /* of the answer; 0: all */
    struct mw_options *options;
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES]; /* of the toolchain, when the key was made */
    struct mw_key key;
    struct mw_source_file *files;
    const char **args;
    const char **packages; /* the names, up to a NULL */
    struct mw_package_flags package_flags;
    char **decoded; /* per file: what was base64, else NULL */
};

/* Parse and check a body, and look for its packages in `source`; the key is computed by the
 * caller.
 * Returns 0, or a negative errno with `problem` filled. Runs on: an IO pool; packages block on the
 * disk. */
int mw_submission_parse(struct mw_submission **out, const char *body, size_t body_bytes,
                        const struct mw_package_source *source, struct mw_problem *problem);
void mw_submission_free(struct mw_submission *submission);

/* The timeout_ms of a body that nobody has parsed yet, for a clock that runs meanwhile: a look at
 * the first and last MW_TIMEOUT_LOOK_BYTES only. 0: it cannot be told so cheaply. Where it is, a
 * body that parses has the same; one that does not may have any. Runs on: any thread. */
uint32_t mw_submission_timeout_look(const char *body, size_t body_bytes);

/* The diagnostics as a JSON array. NULL when memory is out. */
json_t *mw_wire_diagnostics(const struct mw_diagnostics *diagnostics);

/* The first `max` (0: all) of such an array, as a new reference. Where those show no error and the
 * rest has one, its first takes the last place, so that a failure is explained. NULL when memory is
 * out. */
json_t *mw_wire_diagnostics_cut(json_t *list, unsigned max);

/* Bytes as a JSON string of base64. NULL when memory is out. */
json_t *mw_wire_base64(const char *data, size_t bytes);

#endif

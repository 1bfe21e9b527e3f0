/* plan.h - how ./dev bench compile is to run, for all its parts. */
#ifndef BENCH_COMPILE_PLAN_H
#define BENCH_COMPILE_PLAN_H

#include <stdbool.h>

#include "bench.h"

#define COMPILER "clang-19"

struct plan {
    const struct bench *bench;
    const char *program; /* millwright */
    const char *folder;  /* for what is written meanwhile; removed at the end */
    bool quick;          /* a small part: for the form, not for the figures */
    bool equal;          /* leaves as urgent as the process that they are compared with */
};

/* The options of `millwright serve` that a plan asks for, and those of `more` (up to a NULL), into
 * `options`. */
#define PLAN_OPTIONS_MAX 16u
void plan_options(const struct plan *plan, const char *const *more,
                  const char *options[PLAN_OPTIONS_MAX]);

/* Between measurements, so that what the one before left to be done is done: workers get ready. */
void plan_pause(const struct plan *plan);

#endif

/* where.h - where the time of one uncached, isolated compile goes, by the service's own counters
 * and by the compiler's time trace.
 *
 * Threads: the main thread only. */
#ifndef BENCH_COMPILE_WHERE_H
#define BENCH_COMPILE_WHERE_H

#include "plan.h"
#include "subject.h"

/* First the stages of a compile, with a prefix where one serves; then what a run is made of where
 * none does: with a prefix there is no trace. */
enum {
    STAGE_HTTP, /* what the client waits and no other stage knows of */
    STAGE_KEY,
    STAGE_QUEUE,
    STAGE_TAKE,
    STAGE_HAND_OVER,
    STAGE_RUN,
    STAGE_COPY,
    STAGE_STORE,
    PART_RUN,
    PART_REST, /* what the trace does not know of */
    PART_DRIVER,
    PART_HEADERS,
    PART_SEMA,
    PART_IR,
    PART_PASSES,
    PART_CODE,
    WHERE_ROWS
};

/* Medians in milliseconds; NAN: not measured. */
struct where {
    double ms[WHERE_ROWS];
};

/* Returns 0 or a negative errno, and said why. */
int where_measure(const struct plan *plan, struct where results[SUBJECTS]);

const char *where_row_name(unsigned row);

#endif

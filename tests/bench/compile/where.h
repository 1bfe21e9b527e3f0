/* where.h - where the time of one uncached, isolated compile goes, by the service's own counters.
 *
 * Threads: the main thread only. */
#ifndef BENCH_COMPILE_WHERE_H
#define BENCH_COMPILE_WHERE_H

#include "plan.h"
#include "subject.h"

enum {
    STAGE_HTTP,    /* what the client waits and no other stage knows of */
    STAGE_KEY,     /* files, key, look-up */
    STAGE_QUEUE,   /* for a thread of the lane */
    STAGE_WORKER,  /* a worker process is taken, gets the request, and its answer is copied */
    STAGE_COMPILE, /* in the worker */
    STAGE_STORE,   /* and the answer */
    STAGES
};

/* Medians in milliseconds; NAN: not measured. */
struct where {
    double ms[STAGES];
    double worker_cpu_ms;
};

/* Returns 0 or a negative errno, and said why. */
int where_measure(const struct plan *plan, struct where results[SUBJECTS]);

const char *where_stage_name(unsigned stage);

#endif

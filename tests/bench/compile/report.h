/* report.h - what ./dev bench compile found, for people and for programs.
 *
 * Threads: the main thread only. */
#ifndef BENCH_COMPILE_REPORT_H
#define BENCH_COMPILE_REPORT_H

#include <stdio.h>

#include "load.h"
#include "plan.h"
#include "speed.h"
#include "where.h"

/* A part that was not measured is left out. */
struct findings {
    bool has_speed, has_throughput, has_memory, has_where;
    struct speed speeds[SUBJECTS];
    struct throughput throughput[LOAD_BATCHES];
    struct load_memory memory[LOAD_LEVELS];
    struct where where[SUBJECTS];
};

void report_text(FILE *out, const struct plan *plan, const struct findings *findings);

/* To stdout. Returns 0, -ENOMEM, or -EIO when stdout does not take it. */
int report_json(const struct plan *plan, const struct findings *findings);

#endif

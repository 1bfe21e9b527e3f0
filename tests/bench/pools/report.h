/* report.h - the tables for people and for programs.
 *
 * Threads: the main thread only. */
#ifndef BENCH_POOLS_REPORT_H
#define BENCH_POOLS_REPORT_H

#include <stdio.h>

#include "bench.h"
#include "table.h"

/* The tables, their ratios, and how many goals are met. */
void report_text(FILE *out, const struct bench *bench, const struct table_result *results,
                 size_t count);

/* To stdout. Returns 0, -ENOMEM, or -EIO when stdout does not take it. */
int report_json(const struct bench *bench, const struct table_result *results, size_t count);

#endif

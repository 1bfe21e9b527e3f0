/* table.h - what ./dev bench pools measures: one table for each that the seeds print.
 *
 * A table has columns, which are the ways to do the same job, and rows, which are what is measured
 * of each; beside each figure stands the seed's own, as the seed words it. Absolute figures of two
 * machines say little, so below them stand ratios of columns, the seed's beside ours, and goals.
 *
 * Ownership:  all is static; names outlive everything.
 * Threads:    a measurement has a process of its own, see ../lanes/child.h.
 * Bounds:     as the arrays say. */
#ifndef BENCH_POOLS_TABLE_H
#define BENCH_POOLS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "bench.h"

#define TABLE_COLUMNS_MAX 4u
#define TABLE_GROUPS_MAX  3u
#define TABLE_ROWS_MAX    5u
#define TABLE_RATIOS_MAX  6u

/* What is measured in one process. */
struct table_cell {
    unsigned group;
    unsigned column;
    unsigned round;
    bool quick; /* a small part of the load: for the form, not for the figures */
};

typedef int table_measure(const struct table_cell *cell, double values[BENCH_VALUES_MAX]);

enum table_figure { TABLE_MEDIAN, TABLE_MEAN, TABLE_MAX }; /* over the rounds */

/* `value` of each column of `group`. */
struct table_row {
    const char *name; /* NULL: no more rows */
    const char *unit;
    unsigned group;
    unsigned value;
    enum table_figure figure;
    const char *seed[TABLE_COLUMNS_MAX]; /* NULL: the seed did not measure it */
};

/* Column `over` divided by column `under` of one row. */
struct table_ratio {
    const char *name; /* NULL: no more ratios */
    unsigned row;
    unsigned over, under;
    bool paired;      /* the ratio of each round, with an interval, which is what the goal is for */
    double least;     /* the goal */
    double most;      /* 0: no upper one; both 0: no goal */
    const char *seed; /* NULL: the seed did not measure it */
};

struct table {
    const char *name;  /* for rows of JSON and --rows: "neutral" */
    const char *title; /* "seed 000: ..." */
    table_measure *measure;
    unsigned rounds; /* for each of --runs; with --quick one */
    bool cold;       /* there is nothing to warm up: the first round counts */
    unsigned group_count;
    unsigned column_count;
    unsigned ours; /* the column that JSON calls so */
    const char *columns[TABLE_COLUMNS_MAX];
    struct table_row rows[TABLE_ROWS_MAX + 1];
    struct table_ratio ratios[TABLE_RATIOS_MAX + 1];
    const char *note;
};

extern const struct table neutral_table;
extern const struct table blocking_table;
extern const struct table escalation_table;
extern const struct table slots_table;
extern const struct table connect_table;
extern const struct table batch_table;
extern const struct table memory_table;

/* Everything that was measured of one table. */
struct table_result {
    const struct table *table;
    unsigned rounds; /* that count */
    double *samples; /* see table_samples */
};

/* The samples of a value, one for each round, in their order. */
static inline double *table_samples(const struct table_result *result, unsigned group,
                                    unsigned column, unsigned value)
{
    size_t variant = (size_t)group * result->table->column_count + column;

    return result->samples + (variant * BENCH_VALUES_MAX + value) * result->rounds;
}

#endif

/* bench.h - a small harness for benchmarks: variants measured in interleaved rounds, their medians,
 * a table for people and JSON for programs.
 *
 * The variants of a group do the same job in different ways. In each round every variant of every
 * group runs once, and each round begins with the next variant of a group, so that a machine that
 * drifts drifts for all of them alike. Round 0 warms up and is not counted.
 *
 * Ownership:  names and arrays are the caller's and outlive the call that takes them.
 * Threads:    the main thread only.
 * Bounds:     BENCH_RUNS_MAX rounds, BENCH_VALUES_MAX values of a measurement, BENCH_PEERS_MAX
 *             peers of a row. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_RUNS_DEFAULT 15u
#define BENCH_RUNS_MAX     1000u
#define BENCH_VALUES_MAX   4u
#define BENCH_PEERS_MAX    3u

#define BENCH_MACHINE_BYTES 512u

/* An option of one benchmark, beside --runs, --json and --help. */
struct bench_option {
    const char *name;     /* "--program" */
    const char *argument; /* NULL: it has none */
    const char *help;
    const char **value; /* set when the option is given; without an argument, to its name */
};

struct bench {
    /* set by the caller */
    const char *name;    /* "compile" */
    const char *summary; /* what it compares, one sentence */
    const struct bench_option *options;
    size_t option_count;
    unsigned runs_default; /* 0: BENCH_RUNS_DEFAULT */

    /* set by bench_parse */
    unsigned runs;
    bool json;
    double load; /* of the machine in the minute before; NAN when unknown */
};

/* Measure once. Returns 0, or a negative errno after saying on stderr what failed. */
typedef int bench_measure(void *context, unsigned round, double values[BENCH_VALUES_MAX]);

struct bench_variant {
    const char *name; /* for the progress line */
    bench_measure *measure;
    void *context;
    double medians[BENCH_VALUES_MAX]; /* set by bench_rounds */
};

/* One line of the table, in milliseconds. NAN means not measured: shown as "-", left out of JSON.
 */
struct bench_row {
    const char *name;
    double ours;
    double peers[BENCH_PEERS_MAX];
    double side; /* a further figure for people, not in JSON */
};

/* The ratio of a row is its first peer divided by ours: above 1 means that ours is faster. */
struct bench_report {
    const char *ours; /* the heads of the columns */
    const char *peers[BENCH_PEERS_MAX];
    size_t peer_count;
    const char *side; /* NULL: no such column */
    const struct bench_row *rows;
    size_t row_count;
    const char *note; /* what a reader must know; NULL: nothing */
};

/* Read the command line. Returns true when the benchmark should run; else *status is what to exit
 * with: 0 after --help, 2 after wrong usage. From here on SIGINT, SIGTERM and SIGHUP end
 * bench_rounds early instead of the process, so that the caller can clean up. */
bool bench_parse(struct bench *bench, int argc, char **argv, int *status);

/* Measure `group_count` groups of `group_size` variants each, laid out group after group, and set
 * their medians. Returns 0, what a measurement returned, -ENOMEM, or -EINTR after a signal. */
int bench_rounds(const struct bench *bench, struct bench_variant *variants, size_t group_count,
                 size_t group_size);

/* Print the table, or the JSON. Returns 0, or -EIO when stdout does not take it. */
int bench_print(const struct bench *bench, const struct bench_report *report);

/* One line about the machine, its load and the day, without an end of line; and print it. */
void bench_describe_machine(const struct bench *bench, char text[BENCH_MACHINE_BYTES]);
void bench_print_machine(const struct bench *bench);

/* Sorts `values`. Returns the value at `quantile` (0..1), between two neighbours their mean by
 * distance; NAN when there is none. */
double bench_quantile(double *values, size_t count, double quantile);

#endif

/* interval.h - how sure the ratio of two things is that were measured in pairs.
 *
 * Threads: any. Bounds: none. */
#ifndef BENCH_POOLS_INTERVAL_H
#define BENCH_POOLS_INTERVAL_H

#include <stddef.h>

struct interval {
    double middle, low, high; /* NAN when it cannot be told */
};

/* The geometric mean of over[i] / under[i], and its 95 % interval: Student's t on the logarithms.
 * Needs two pairs for the interval. */
struct interval interval_of_ratio(const double *over, const double *under, size_t count);

#endif

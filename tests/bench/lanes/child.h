/* child.h - each measurement in a process of its own.
 *
 * So no thread of another pool is about, libuv's process-wide pool can have another size each
 * time, and what gets stuck or crashes costs one figure, not the run. The parent starts no thread.
 *
 * Bounds: a child that takes longer than CHILD_SECONDS_MAX is killed. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include "bench.h"

#define CHILD_SECONDS_MAX 60u

/* Fills `values`. Returns 0 or a negative errno. */
typedef int child_fn(const void *context, double values[BENCH_VALUES_MAX]);

/* Call fn(context, values) in a new process. `name` says on stderr which one failed.
 * Returns 0, with `values` all INFINITY when the child got stuck or crashed; or what went wrong. */
int child_measure(const char *name, child_fn *fn, const void *context,
                  double values[BENCH_VALUES_MAX]);

#endif

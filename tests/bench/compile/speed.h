/* speed.h - one compile by the service, isolated or in its process, against one by a process of
 * clang. All run in turn; all give the same bytes.
 *
 * Threads: the main thread only. */
#ifndef BENCH_COMPILE_SPEED_H
#define BENCH_COMPILE_SPEED_H

#include "plan.h"
#include "subject.h"

/* Isolated after a compile of the same kind, whose prefix the next worker has at hand; and after
 * one of another kind. */
enum { WAY_ISOLATED, WAY_SWITCHED, WAY_IN_PROCESS, WAY_CACHED, WAY_CLANG, WAYS };

/* Medians; NAN: not measured. */
struct speed {
    double ms[WAYS];
    double prefix; /* isolated: SITE_PREFIX_... */
};

/* Returns 0 or a negative errno, and said why. */
int speed_measure(const struct plan *plan, struct speed speeds[SUBJECTS]);

/* How many times as fast as the process. */
double speed_ratio(const struct speed *speed, unsigned way);

#endif

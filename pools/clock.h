/* clock.h - the monotonic clock that every time in Millwright is read from.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MILLWRIGHT_CLOCK_H
#define MILLWRIGHT_CLOCK_H

#include <stdint.h>

#define MW_NS_PER_US UINT64_C(1000)
#define MW_NS_PER_MS UINT64_C(1000000)
#define MW_NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds since an arbitrary fixed point (CLOCK_MONOTONIC).
 * Runs on: any thread, also in a signal handler. Does not block. */
uint64_t mw_clock_ns(void);

/* The same within a few microseconds, at a third of the cost where the CPU counts time itself. Of
 * two threads one may be ahead of the other by as much, and a later time of one thread may lie
 * before an earlier one: subtract with care. Runs on: any thread. Does not block. */
uint64_t mw_clock_near_ns(void);

#endif

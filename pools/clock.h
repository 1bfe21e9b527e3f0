/* clock.h - the monotonic clock that every time in Millwright is read from.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MILLWRIGHT_CLOCK_H
#define MILLWRIGHT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define MW_NS_PER_US UINT64_C(1000)
#define MW_NS_PER_MS UINT64_C(1000000)
#define MW_NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds since an arbitrary fixed point (CLOCK_MONOTONIC).
 * Runs on: any thread, also in a signal handler. Does not block. */
uint64_t mw_clock_ns(void);

/* Whether only about a microsecond has passed since mw_clock_ticks() gave `ticks`, for those who
 * would else read the clock twice in a row: three times as cheap. Errs to "no"; without a counter
 * it always does. */
#if defined(__x86_64__) || defined(__i386__)
static inline uint64_t mw_clock_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

static inline bool mw_clock_is_near(uint64_t ticks)
{
    return __builtin_ia32_rdtsc() - ticks < 2048;
}
#else
static inline uint64_t mw_clock_ticks(void)
{
    return 0;
}

static inline bool mw_clock_is_near(uint64_t ticks)
{
    (void)ticks;
    return false;
}
#endif

#endif

/* clock.h - the monotonic clock that every time in Millwright is read from.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MILLWRIGHT_CLOCK_H
#define MILLWRIGHT_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include <millwright/thread.h>

#define MW_NS_PER_US UINT64_C(1000)
#define MW_NS_PER_MS UINT64_C(1000000)
#define MW_NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds since an arbitrary fixed point (CLOCK_MONOTONIC).
 * Runs on: any thread, also in a signal handler. Does not block. */
uint64_t mw_clock_ns(void);

/* The same within a few microseconds, at a third of the cost where the CPU counts time itself. Of
 * two threads one may be ahead of the other by as much, and a later time of one thread may lie
 * before an earlier one: subtract with care. Runs on: any thread, but not in a signal handler. Does
 * not block. */
static inline uint64_t mw_clock_near_ns(void);

/* ---- the inside of mw_clock_near_ns, see clock.c ---- */

#define MW_CLOCK_RATE_BITS        32
#define MW_CLOCK_ANCHOR_TICKS_MAX (UINT64_C(1) << 21) /* about a millisecond */

struct mw_clock_anchor {
    uint64_t ticks;
    uint64_t ns;
};

extern _Thread_local struct mw_clock_anchor mw_clock_own MW_THREAD_LOCAL_NEAR;
extern _Atomic uint64_t mw_clock_rate;

/* Take a new anchor. Returns the time. */
uint64_t mw_clock_anchor_ns(void);

static inline uint64_t mw_clock_near_ns(void)
{
#if defined(__x86_64__)
    uint64_t rate = atomic_load_explicit(&mw_clock_rate, memory_order_relaxed);
    uint64_t passed = __builtin_ia32_rdtsc() - mw_clock_own.ticks;

    if (rate != 0 && passed < MW_CLOCK_ANCHOR_TICKS_MAX)
        return mw_clock_own.ns + (passed * rate >> MW_CLOCK_RATE_BITS);
#endif
    return mw_clock_anchor_ns();
}

#endif

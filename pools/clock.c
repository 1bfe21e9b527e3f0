/* The near clock counts from an *anchor*: a moment of which both the counter of the CPU and
 * CLOCK_MONOTONIC are known. Each thread has its own and takes a new one every
 * MW_CLOCK_ANCHOR_TICKS_MAX at the latest, so an error of the rate has no time to grow. The rate is
 * found once, from two anchors far enough apart; an anchor that the rate foretells badly (a virtual
 * machine has moved) throws the rate away. A counter that does not serve is given up for good: one
 * that changes its speed, or was foretold badly RATES_MAX times, or that takes so long to read
 * (some virtual machines trap it) that no anchor is had MISSES_MAX times in a row. */
#include <assert.h>
#include <stdatomic.h>
#include <time.h>

#include "clock.h"

/* Its `ticks` are 0 when there is none. */
_Thread_local struct mw_clock_anchor mw_clock_own MW_THREAD_LOCAL_NEAR;

/* Nanoseconds for each tick, as a fraction of 1 << MW_CLOCK_RATE_BITS; 0: not known. A plain
 * number: relaxed order, no partner. */
_Atomic uint64_t mw_clock_rate;

uint64_t mw_clock_ns(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_MONOTONIC, &now);

    assert(failed == 0);
    (void)failed;
    return (uint64_t)now.tv_sec * MW_NS_PER_S + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)

#include <cpuid.h>

#define ANCHOR_WIDTH_MAX   UINT64_C(1024) /* between two reads of the counter */
#define ANCHOR_TRIES       4
#define RATE_TICKS_MIN     (UINT64_C(1) << 24)
#define FORETOLD_TICKS_MAX (UINT64_C(1) << 30) /* about half a second */
#define OFF_NS_MAX         UINT64_C(2000)
#define OFF_PART           1000 /* of the time since the anchor before: twice what NTP slews */
#define RATES_MAX          8
#define MISSES_MAX         64

/* Plain numbers: relaxed order, no partner. */
static _Atomic int rates_left = RATES_MAX; /* 0: the counter is given up */
static _Atomic int misses;                 /* in a row */

/* Guards `first`: whoever finds it set goes without. Acquire and release pair with each other. */
static atomic_flag is_rating = ATOMIC_FLAG_INIT;
static struct mw_clock_anchor first;

static bool anchor_take(struct mw_clock_anchor *anchor);
static void rate_find(const struct mw_clock_anchor *anchor);
static void rate_check(const struct mw_clock_anchor *before, const struct mw_clock_anchor *now);
static void give_up(void);
static bool counter_is_invariant(void);

uint64_t mw_clock_anchor_ns(void)
{
    struct mw_clock_anchor now;

    if (atomic_load_explicit(&rates_left, memory_order_relaxed) == 0)
        return mw_clock_ns();
    if (!anchor_take(&now)) { /* interrupted each time: do without this once */
        if (atomic_fetch_add_explicit(&misses, 1, memory_order_relaxed) + 1 >= MISSES_MAX)
            give_up();
        mw_clock_own.ticks = 0;
        return mw_clock_ns();
    }
    if (atomic_load_explicit(&misses, memory_order_relaxed) != 0)
        atomic_store_explicit(&misses, 0, memory_order_relaxed);
    rate_check(&mw_clock_own, &now);
    if (atomic_load_explicit(&mw_clock_rate, memory_order_relaxed) == 0)
        rate_find(&now);
    mw_clock_own = now;
    return now.ns;
}

static bool anchor_take(struct mw_clock_anchor *anchor)
{
    for (int i = 0; i < ANCHOR_TRIES; i++) {
        uint64_t before = __builtin_ia32_rdtsc();
        uint64_t ns = mw_clock_ns();
        uint64_t width = __builtin_ia32_rdtsc() - before;

        if (width < ANCHOR_WIDTH_MAX) {
            *anchor = (struct mw_clock_anchor){before + width / 2, ns};
            return true;
        }
    }
    return false;
}

/* What lies far enough apart gives the rate; else `anchor` is the first of the two. */
static void rate_find(const struct mw_clock_anchor *anchor)
{
    uint64_t ticks;

    if (atomic_flag_test_and_set_explicit(&is_rating, memory_order_acquire))
        return;
    ticks = anchor->ticks - first.ticks;
    if (first.ticks == 0 || anchor->ticks < first.ticks) {
        if (counter_is_invariant())
            first = *anchor;
        else
            give_up();
    } else if (ticks >= RATE_TICKS_MIN) {
        double exact = (double)(anchor->ns - first.ns) / (double)ticks;

        first.ticks = 0;
        atomic_store_explicit(&mw_clock_rate,
                              (uint64_t)(exact * (double)(UINT64_C(1) << MW_CLOCK_RATE_BITS)),
                              memory_order_relaxed);
    }
    atomic_flag_clear_explicit(&is_rating, memory_order_release);
}

static void rate_check(const struct mw_clock_anchor *before, const struct mw_clock_anchor *now)
{
    uint64_t passed = now->ticks - before->ticks;
    uint64_t known = atomic_load_explicit(&mw_clock_rate, memory_order_relaxed);
    uint64_t foretold;
    uint64_t off;

    if (before->ticks == 0 || known == 0 || passed > FORETOLD_TICKS_MAX)
        return;
    foretold = before->ns + (passed * known >> MW_CLOCK_RATE_BITS);
    off = foretold > now->ns ? foretold - now->ns : now->ns - foretold;
    if (off <= OFF_NS_MAX + (now->ns - before->ns) / OFF_PART)
        return;
    atomic_store_explicit(&mw_clock_rate, 0, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&rates_left, 1, memory_order_relaxed) <= 1)
        give_up();
}

static void give_up(void)
{
    atomic_store_explicit(&rates_left, 0, memory_order_relaxed);
    atomic_store_explicit(&mw_clock_rate, 0, memory_order_relaxed);
}

/* Whether it counts at one speed, also when the CPU does not run at one. */
static bool counter_is_invariant(void)
{
    enum { POWER_LEAF = 0x80000007, INVARIANT = 1 << 8 };
    unsigned a, b, c, d;

    return __get_cpuid(POWER_LEAF, &a, &b, &c, &d) != 0 && (d & INVARIANT) != 0;
}

#else

uint64_t mw_clock_anchor_ns(void)
{
    return mw_clock_ns();
}

#endif

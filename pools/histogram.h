/* histogram.h - a fixed-size log-linear histogram: 16 steps per power of two, so a value is known
 * to 1/16 of itself (6.25 %) over the whole range of 64 bits, in 8 KiB, with no allocation.
 *
 * Ownership:  the caller's storage; all zero bytes is an empty histogram.
 * Threads:    record and read from any thread at once; nothing blocks. A reader may see a value
 *             counted and not yet summed; counts never go back.
 * Bounds:     MW_HISTOGRAM_BUCKETS buckets. */
#ifndef MILLWRIGHT_HISTOGRAM_H
#define MILLWRIGHT_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <millwright/counter.h>

#define MW_HISTOGRAM_STEP_BITS 4
#define MW_HISTOGRAM_BUCKETS   ((64 - MW_HISTOGRAM_STEP_BITS + 1) << MW_HISTOGRAM_STEP_BITS)

struct mw_histogram {
    _Atomic uint64_t counts[MW_HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum;
    _Atomic uint64_t max;
};

/* Count one value (by convention nanoseconds). Runs on: any thread. Does not block. */
void mw_histogram_record(struct mw_histogram *histogram, uint64_t value);

/* As record, by the histogram's only writer at a time: without a locked instruction. */
static inline void mw_histogram_record_alone(struct mw_histogram *histogram, uint64_t value);

/* The same for `times` equal values. */
static inline void mw_histogram_record_times(struct mw_histogram *histogram, uint64_t value,
                                             uint64_t times);

/* Add what `from` holds. Nobody else writes `into` meanwhile. */
void mw_histogram_add(struct mw_histogram *into, const struct mw_histogram *from);

/* Make `into` show what `from` holds; a reader never sees less than before if `from` is no less.
 * Nobody else writes `into` meanwhile. */
void mw_histogram_copy(struct mw_histogram *into, const struct mw_histogram *from);

/* How many values were recorded. */
uint64_t mw_histogram_count(const struct mw_histogram *histogram);

/* How many recorded values lie in buckets wholly at or below `value`. */
uint64_t mw_histogram_count_below(const struct mw_histogram *histogram, uint64_t value);

/* Upper bound of the bucket that holds the `quantile` (0..1) of the values; never above the
 * largest value recorded. 0 when empty. */
uint64_t mw_histogram_quantile(const struct mw_histogram *histogram, double quantile);

uint64_t mw_histogram_sum(const struct mw_histogram *histogram);
uint64_t mw_histogram_max(const struct mw_histogram *histogram);

/* ---- the inside of the two that are called for each job; orders as in histogram.c ---- */

static inline size_t mw_histogram_bucket(uint64_t value)
{
    unsigned shift;

    if (value < 1u << MW_HISTOGRAM_STEP_BITS)
        return (size_t)value;
    shift = 63u - (unsigned)__builtin_clzll(value) - MW_HISTOGRAM_STEP_BITS;
    /* the leading one itself is the carry into the next group of steps */
    return ((size_t)shift << MW_HISTOGRAM_STEP_BITS) + (size_t)(value >> shift);
}

static inline void mw_histogram_record_times(struct mw_histogram *histogram, uint64_t value,
                                             uint64_t times)
{
    if (times == 0)
        return;
    if (atomic_load_explicit(&histogram->max, memory_order_relaxed) < value)
        atomic_store_explicit(&histogram->max, value, memory_order_relaxed);
    mw_counter_add(&histogram->counts[mw_histogram_bucket(value)], times);
    mw_counter_add(&histogram->sum, value * times);
}

static inline void mw_histogram_record_alone(struct mw_histogram *histogram, uint64_t value)
{
    mw_histogram_record_times(histogram, value, 1);
}

#endif

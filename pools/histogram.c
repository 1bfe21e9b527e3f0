/* Bucket 0..15 hold the values 0..15 exactly. From 16 on, each power of two has 16 buckets of
 * equal width: the bits below the leading one choose the bucket. So bucket numbers grow with the
 * values, and the width of a bucket is never more than 1/16 of its smallest value.
 *
 * Every counter is read and written alone and publishes nothing else: relaxed order, no partner. */
#include "histogram.h"

#define STEPS (1u << MW_HISTOGRAM_STEP_BITS)

static uint64_t bucket_top(size_t bucket);
static uint64_t load(const _Atomic uint64_t *counter);
static void store(_Atomic uint64_t *counter, uint64_t value);

void mw_histogram_record(struct mw_histogram *histogram, uint64_t value)
{
    uint64_t max = load(&histogram->max);

    while (max < value &&
           !atomic_compare_exchange_weak_explicit(&histogram->max, &max, value,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&histogram->counts[mw_histogram_bucket(value)], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

void mw_histogram_add(struct mw_histogram *into, const struct mw_histogram *from)
{
    uint64_t max = load(&from->max);

    if (load(&into->max) < max)
        store(&into->max, max);
    for (size_t i = 0; i < MW_HISTOGRAM_BUCKETS; i++)
        store(&into->counts[i], load(&into->counts[i]) + load(&from->counts[i]));
    store(&into->sum, load(&into->sum) + load(&from->sum));
}

void mw_histogram_copy(struct mw_histogram *into, const struct mw_histogram *from)
{
    store(&into->max, load(&from->max));
    for (size_t i = 0; i < MW_HISTOGRAM_BUCKETS; i++)
        store(&into->counts[i], load(&from->counts[i]));
    store(&into->sum, load(&from->sum));
}

uint64_t mw_histogram_count(const struct mw_histogram *histogram)
{
    return mw_histogram_count_below(histogram, UINT64_MAX);
}

uint64_t mw_histogram_count_below(const struct mw_histogram *histogram, uint64_t value)
{
    uint64_t count = 0;

    for (size_t i = 0; i < MW_HISTOGRAM_BUCKETS && bucket_top(i) <= value; i++)
        count += load(&histogram->counts[i]);
    return count;
}

uint64_t mw_histogram_quantile(const struct mw_histogram *histogram, double quantile)
{
    uint64_t total = mw_histogram_count(histogram);
    uint64_t max = mw_histogram_max(histogram);
    double wanted = quantile * (double)total;
    uint64_t rank = wanted > 0 ? (uint64_t)wanted : 0;
    uint64_t seen = 0;

    if (total == 0)
        return 0;
    if ((double)rank < wanted || rank == 0)
        rank++;
    if (rank >= total)
        return max;
    for (size_t i = 0; i < MW_HISTOGRAM_BUCKETS; i++) {
        seen += load(&histogram->counts[i]);
        if (seen >= rank)
            return bucket_top(i) < max ? bucket_top(i) : max;
    }
    return max;
}

uint64_t mw_histogram_sum(const struct mw_histogram *histogram)
{
    return load(&histogram->sum);
}

uint64_t mw_histogram_max(const struct mw_histogram *histogram)
{
    return load(&histogram->max);
}

static uint64_t bucket_top(size_t bucket)
{
    unsigned shift;

    if (bucket < STEPS)
        return bucket;
    shift = (unsigned)(bucket >> MW_HISTOGRAM_STEP_BITS) - 1;
    /* wraps to the largest value for the last bucket, as it should */
    return ((STEPS + (bucket & (STEPS - 1)) + UINT64_C(1)) << shift) - 1;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void store(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

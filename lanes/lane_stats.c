/* What a lane tells of itself. Each slot counts alone; sums are made here, when somebody asks. */
#include <string.h>

#include <millwright/clock.h>

#include "lane_internal.h"

static void stats_fill(struct mw_lane *lane, struct mw_lane_stats *stats) MW_REQUIRES(lane->lock);
static void slot_add(const struct slot *slot, struct mw_lane_stats *stats);
static void histograms_sum(struct mw_lane *lane);
static void sum_up(struct mw_lane *lane, struct mw_histogram *shown, const size_t *members,
                   unsigned count, bool later_is_zero) MW_REQUIRES(lane->inspect_lock);
static uint64_t load(const _Atomic uint64_t *counter);

void mw_lane_snapshot(struct mw_lane *lane, struct mw_lane_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    memcpy(stats->name, lane->name, sizeof stats->name);
    if (lane_is_foreign(lane))
        return;
    mw_spin_mutex_lock(&lane->lock);
    stats_fill(lane, stats);
    lane_unlock(lane);

    histograms_sum(lane);
    stats->wait_p50_ns = mw_histogram_quantile(&lane->waits, 0.50);
    stats->wait_p99_ns = mw_histogram_quantile(&lane->waits, 0.99);
    stats->wait_max_ns = mw_histogram_max(&lane->waits);
    stats->run_p50_ns = mw_histogram_quantile(&lane->runs, 0.50);
    stats->run_p99_ns = mw_histogram_quantile(&lane->runs, 0.99);
    stats->run_max_ns = mw_histogram_max(&lane->runs);
    stats->slot_wait_p50_ns = mw_histogram_quantile(&lane->slot_waits, 0.50);
    stats->slot_wait_p99_ns = mw_histogram_quantile(&lane->slot_waits, 0.99);
    stats->slot_wait_max_ns = mw_histogram_max(&lane->slot_waits);
    stats->worker_wait_p50_ns = mw_histogram_quantile(&lane->worker_waits, 0.50);
    stats->worker_wait_p99_ns = mw_histogram_quantile(&lane->worker_waits, 0.99);
    stats->worker_wait_max_ns = mw_histogram_max(&lane->worker_waits);
}

uint64_t mw_lane_wait_estimate_ns(struct mw_lane *lane)
{
    uint64_t ahead = 0;
    uint64_t mean_ns;

    if (lane_is_foreign(lane))
        return 0;
    mw_spin_mutex_lock(&lane->lock);
    lane_take_in(lane);
    mean_ns = lane->run_mean_ns;
    if (lane->queue.queued + lane->busy >= lane->options.cap)
        ahead = (uint64_t)lane->queue.queued + lane->busy;
    lane_unlock(lane);
    return ahead * mean_ns / lane->options.cap;
}

const struct mw_histogram *mw_lane_wait_histogram(const struct mw_lane *lane)
{
    histograms_sum((struct mw_lane *)lane); /* a cache of what the slots have */
    return &lane->waits;
}

const struct mw_histogram *mw_lane_run_histogram(const struct mw_lane *lane)
{
    histograms_sum((struct mw_lane *)lane); /* a cache of what the slots have */
    return &lane->runs;
}

static void stats_fill(struct mw_lane *lane, struct mw_lane_stats *stats)
{
    bool dedicated = lane->options.runner == MW_LANE_DEDICATED;
    uint64_t taken = load(&lane->taken);
    uint64_t oldest_ns;
    uint64_t now;

    lane_take_in(lane);
    stats->runner = lane->options.runner;
    stats->cap = lane->options.cap;
    stats->queue_max = lane->options.queue_max;
    stats->submitted = load(&lane->places);
    stats->queued = (unsigned)(stats->submitted - taken);
    stats->running_peak = lane->running_peak;
    stats->threads = dedicated ? lane->threads : lane->active;
    stats->waiting_for_worker = lane->coming;
    stats->rejected = load(&lane->rejected);
    stats->cancelled = lane->cancelled;
    stats->expired = lane->expired;
    stats->start_failures = lane->start_failures;
    for (unsigned i = 0; i < MW_JOB_PRIORITIES; i++)
        stats->queued_by_priority[i] = lane->queue.classes[i].queued;
    for (unsigned i = 0; i < lane->options.cap; i++)
        slot_add(&lane->slots[i], stats);
    oldest_ns = job_queue_oldest_ns(&lane->queue);
    now = mw_clock_near_ns();
    if (oldest_ns != UINT64_MAX)
        stats->oldest_queued_ns = now > oldest_ns ? now - oldest_ns : 1; /* 0: none waits */
}

static void slot_add(const struct slot *slot, struct mw_lane_stats *stats)
{
    /* First: a leaf that is not in fn() any more has been counted. Acquire: partner of job_call. */
    stats->running += atomic_load_explicit(&slot->in_fn, memory_order_acquire);
    stats->completed += load(&slot->stats.completed);
    stats->started += load(&slot->stats.started);
    stats->ran_on_lane += load(&slot->stats.ran_on[MW_THREAD_LANE]);
    stats->ran_on_pool += load(&slot->stats.ran_on[MW_THREAD_POOL]);
}

/* Counts in the lane's own histograms never go back, so each is summed up aside and then shown. */
static void histograms_sum(struct mw_lane *lane)
{
    const size_t runs = offsetof(struct slot_stats, runs);
    const size_t later = offsetof(struct slot_stats, later_waits);

    if (lane_is_foreign(lane))
        return;
    mw_spin_mutex_lock(&lane->inspect_lock);
    sum_up(lane, &lane->runs, &runs, 1, false);
    sum_up(lane, &lane->waits, (const size_t[]){later, offsetof(struct slot_stats, first_waits)}, 2,
           false);
    sum_up(lane, &lane->slot_waits,
           (const size_t[]){later, offsetof(struct slot_stats, slot_waits)}, 2, false);
    sum_up(lane, &lane->worker_waits, (const size_t[]){offsetof(struct slot_stats, worker_waits)},
           1, true);
    mw_spin_mutex_unlock(&lane->inspect_lock);
}

/* Show in `shown` the sum of those members of every slot's stats, and no wait at all for each job
 * that a loop took when it was there already, if `later_is_zero`. */
static void sum_up(struct mw_lane *lane, struct mw_histogram *shown, const size_t *members,
                   unsigned count, bool later_is_zero)
{
    struct mw_histogram sum;

    memset(&sum, 0, sizeof sum);
    for (unsigned i = 0; i < lane->options.cap; i++) {
        const struct slot_stats *stats = &lane->slots[i].stats;

        if (load(&stats->started) == 0)
            continue; /* its memory was never touched: leave it so */
        for (unsigned m = 0; m < count; m++)
            mw_histogram_add(&sum, (const struct mw_histogram *)((const char *)stats + members[m]));
        if (later_is_zero)
            mw_histogram_record_times(&sum, 0, mw_histogram_count(&stats->later_waits));
    }
    mw_histogram_copy(shown, &sum);
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

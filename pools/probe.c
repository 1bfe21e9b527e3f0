/* The probe's thread owns the histogram and the counters, and nobody waits for anybody: an item
 * that starts notes the time and goes, and the thread finds the note at its next tick. Ticks lie
 * interval_ms apart, whatever a tick took; those that the thread itself slept through are left out,
 * because they say nothing about the target.
 *
 * `flight_ns` is the whole state: when the item in flight was sent, or 0. The thread sets it before
 * it sends, and the item sets it back; whoever reads it as 0 may also read `arrived_ns`. */
#include "probe.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "clock.h"
#include "mutex.h"
#include "probe_internal.h"
#include "process.h"
#include "thread.h"

struct mw_probe {
    /* immutable */
    struct mw_probe_target *target;
    uint64_t interval_ns;
    unsigned generation; /* of the process that made it */
    struct mw_thread thread;

    /* owned by the probe's thread, and after it by whoever frees the probe */
    uint64_t sent_ns; /* of the item that was sent last and not yet recorded; 0: none */

    struct mw_mutex lock;   /* guards `stopping`; held where flight_ns becomes 0 */
    struct mw_cond stop;    /* signalled when `stopping` is set */
    struct mw_cond arrival; /* signalled when flight_ns becomes 0 */
    bool stopping;

    _Atomic uint64_t flight_ns;
    _Atomic uint64_t arrived_ns; /* when the last item started */
    /* Written by the probe's thread. */
    _Atomic uint64_t sent;
    _Atomic uint64_t arrived;
    _Atomic uint64_t refused;
    struct mw_histogram histogram;
};

static int parts_init(struct mw_probe *probe);
static void parts_fini(struct mw_probe *probe);
static void run(void *arg);
static void tick(struct mw_probe *probe);
static bool collect(struct mw_probe *probe);
static bool stopped_until(struct mw_probe *probe, uint64_t deadline_ns);
static void await_arrival(struct mw_probe *probe);
static void add_one(_Atomic uint64_t *counter);
static uint64_t count_of(const _Atomic uint64_t *counter);
static int pool_send(struct mw_probe_target *target, struct mw_probe *probe);
static void pool_arrive(struct mw_pool_item *item);

int mw_probe_new(struct mw_probe **out, struct mw_probe_target *target, unsigned interval_ms)
{
    struct mw_thread_options options = {.kind = MW_THREAD_PROBE};
    struct mw_probe *probe;
    int error = mw_process_watch();

    if (error != 0)
        return error;
    probe = calloc(1, sizeof *probe);
    if (probe == NULL)
        return -ENOMEM;
    probe->target = target;
    probe->interval_ns =
        (interval_ms != 0 ? interval_ms : MW_PROBE_INTERVAL_MS_DEFAULT) * MW_NS_PER_MS;
    probe->generation = mw_process_generation();
    error = parts_init(probe);
    if (error == 0) {
        error = mw_thread_start(&probe->thread, &options, run, probe);
        if (error != 0)
            parts_fini(probe);
    }
    if (error != 0) {
        free(probe);
        return error;
    }
    *out = probe;
    return 0;
}

void mw_probe_free(struct mw_probe *probe)
{
    if (probe == NULL || probe->generation != mw_process_generation())
        return; /* its thread is not in this process: leave it */
    mw_mutex_lock(&probe->lock);
    probe->stopping = true;
    mw_cond_signal(&probe->stop);
    mw_mutex_unlock(&probe->lock);
    mw_thread_join(&probe->thread);

    if (probe->target->settle != NULL)
        probe->target->settle(probe->target);
    await_arrival(probe);
    parts_fini(probe);
    free(probe);
}

/* Under the lock, so that whoever frees the probe cannot do so before this thread lets go of it. */
void mw_probe_arrive(struct mw_probe *probe)
{
    uint64_t now = mw_clock_ns();

    mw_mutex_lock(&probe->lock);
    assert(atomic_load_explicit(&probe->flight_ns, memory_order_relaxed) != 0);
    atomic_store_explicit(&probe->arrived_ns, now, memory_order_relaxed);
    /* release: partner of the acquire in collect */
    atomic_store_explicit(&probe->flight_ns, 0, memory_order_release);
    mw_cond_signal(&probe->arrival);
    mw_mutex_unlock(&probe->lock);
}

void mw_probe_snapshot(const struct mw_probe *probe, struct mw_probe_stats *stats)
{
    uint64_t now = mw_clock_ns();
    uint64_t flight_ns = count_of(&probe->flight_ns);
    /* acquire: the wait of each that is counted here is in the histogram; partner: add_one */
    uint64_t arrived = atomic_load_explicit(&probe->arrived, memory_order_acquire);

    *stats = (struct mw_probe_stats){
        .sent = count_of(&probe->sent),
        .arrived = arrived,
        .refused = count_of(&probe->refused),
        .in_flight_ns = flight_ns != 0 && flight_ns < now ? now - flight_ns : 0,
        .p50_ns = mw_histogram_quantile(&probe->histogram, 0.5),
        .p99_ns = mw_histogram_quantile(&probe->histogram, 0.99),
        .max_ns = mw_histogram_max(&probe->histogram),
    };
}

const struct mw_histogram *mw_probe_histogram(const struct mw_probe *probe)
{
    return &probe->histogram;
}

void mw_probe_record_wait(struct mw_histogram *histogram, uint64_t wait_ns, uint64_t interval_ns)
{
    mw_histogram_record_alone(histogram, wait_ns);
    for (unsigned i = 0; i < MW_PROBE_MISSED_MAX && wait_ns > interval_ns; i++) {
        wait_ns -= interval_ns;
        mw_histogram_record_alone(histogram, wait_ns);
    }
}

/* ---- the probe's thread ---- */

static int parts_init(struct mw_probe *probe)
{
    int error = mw_mutex_init(&probe->lock);

    if (error != 0)
        return error;
    error = mw_cond_init(&probe->stop);
    if (error != 0)
        goto no_stop;
    error = mw_cond_init(&probe->arrival);
    if (error == 0)
        return 0;

    mw_cond_fini(&probe->stop);
no_stop:
    mw_mutex_fini(&probe->lock);
    return error;
}

static void parts_fini(struct mw_probe *probe)
{
    mw_cond_fini(&probe->arrival);
    mw_cond_fini(&probe->stop);
    mw_mutex_fini(&probe->lock);
}

static void run(void *arg)
{
    struct mw_probe *probe = arg;
    uint64_t next_ns = mw_clock_ns();

    do {
        uint64_t now;

        tick(probe);
        now = mw_clock_ns();
        next_ns += probe->interval_ns;
        if (next_ns <= now) /* slept through some: keep in step */
            next_ns +=
                (now - next_ns) / probe->interval_ns * probe->interval_ns + probe->interval_ns;
    } while (!stopped_until(probe, next_ns));
    (void)collect(probe);
}

static void tick(struct mw_probe *probe)
{
    if (!collect(probe))
        return;
    probe->sent_ns = mw_clock_ns();
    /* relaxed: published to the item by the queue of the target, to a snapshot by nothing */
    atomic_store_explicit(&probe->flight_ns, probe->sent_ns, memory_order_relaxed);
    if (probe->target->send(probe->target, probe) == 0) {
        add_one(&probe->sent);
        return;
    }
    probe->sent_ns = 0;
    atomic_store_explicit(&probe->flight_ns, 0, memory_order_relaxed);
    add_one(&probe->refused);
}

/* Record the item that has arrived since the last look. Returns whether none is in flight. */
static bool collect(struct mw_probe *probe)
{
    /* acquire: partner of the release in mw_probe_arrive */
    if (atomic_load_explicit(&probe->flight_ns, memory_order_acquire) != 0)
        return false;
    if (probe->sent_ns != 0) {
        uint64_t arrived_ns = atomic_load_explicit(&probe->arrived_ns, memory_order_relaxed);

        mw_probe_record_wait(&probe->histogram, arrived_ns - probe->sent_ns, probe->interval_ns);
        add_one(&probe->arrived);
        probe->sent_ns = 0;
    }
    return true;
}

static bool stopped_until(struct mw_probe *probe, uint64_t deadline_ns)
{
    bool in_time = true;
    bool stopped;

    mw_mutex_lock(&probe->lock);
    while (!probe->stopping && in_time)
        in_time = mw_cond_wait_until(&probe->stop, &probe->lock, deadline_ns);
    stopped = probe->stopping;
    mw_mutex_unlock(&probe->lock);
    return stopped;
}

static void await_arrival(struct mw_probe *probe)
{
    mw_mutex_lock(&probe->lock);
    while (atomic_load_explicit(&probe->flight_ns, memory_order_relaxed) != 0)
        mw_cond_wait(&probe->arrival, &probe->lock);
    mw_mutex_unlock(&probe->lock);
}

static void add_one(_Atomic uint64_t *counter)
{
    /* release: partner of the acquire in mw_probe_snapshot */
    atomic_store_explicit(counter, count_of(counter) + 1, memory_order_release);
}

static uint64_t count_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- a pool as target ---- */

void mw_probe_pool_init(struct mw_probe_pool *target, struct mw_pool *pool)
{
    *target = (struct mw_probe_pool){
        .target = {.send = pool_send}, .pool = pool, .item = {.fn = pool_arrive}};
}

/* Runs on: the probe's thread. */
static int pool_send(struct mw_probe_target *target, struct mw_probe *probe)
{
    struct mw_probe_pool *pool_target = (struct mw_probe_pool *)target;

    pool_target->probe = probe;
    return mw_pool_submit(pool_target->pool, &pool_target->item);
}

/* Runs on: a worker of the pool. */
static void pool_arrive(struct mw_pool_item *item)
{
    struct mw_probe_pool *pool_target =
        (struct mw_probe_pool *)((char *)item - offsetof(struct mw_probe_pool, item));

    mw_probe_arrive(pool_target->probe);
}

/* urgency_bench.c - what a lane's threads do to the rest of a host, and what they get themselves,
 * for each urgency that a lane can have.
 *
 * The host has a shared pool with one worker for each CPU, a timer of 1 ms, and a probe: every
 * 2 ms one item is queued to the pool and its wait to start is recorded. The lane has one thread
 * for each CPU and always something to compute. The pool is half busy (at each tick an item that
 * computes for half a millisecond, for each CPU), or always busy (an item for each CPU that
 * computes for 100 us and queues itself again).
 *
 * The figures choose the default of enum mw_lane_urgency; see docs/measurements.md. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/error.h>
#include <millwright/lane.h>
#include <millwright/pool.h>

#include "bench.h"
#include "lanes/child.h"
#include "lanes/work.h"

#define RUNS_DEFAULT 9u
#define MEASURE_NS   (500 * MW_NS_PER_MS)
#define TICK_NS      MW_NS_PER_MS
#define PROBE_NS     (2 * MW_NS_PER_MS)
#define TICKS_MAX    (MEASURE_NS / TICK_NS)
#define PROBES_MAX   (MEASURE_NS / PROBE_NS)
#define LEAF_NS      (200 * MW_NS_PER_US) /* of CPU time */
#define HALF_ITEM_NS (500 * MW_NS_PER_US)
#define BUSY_ITEM_NS (100 * MW_NS_PER_US)
#define START_NS     (20 * MW_NS_PER_MS) /* until all threads run */
#define CPUS_MAX     64u

enum { IDLE, NICE_19, EQUAL, NO_LANE, VARIANTS };
enum { HALF_BUSY, ALWAYS_BUSY, SCENES };
enum { VALUE_P50, VALUE_P99, VALUE_TIMER, VALUE_LEAF, VALUES };

/* One variant. */
struct cell {
    enum mw_lane_urgency urgency;
    bool has_lane;
    int scene;
};

/* At most one of each is in the pool, so that a machine with other work is not flooded. */
struct half_item {
    struct mw_pool_item item;
    _Atomic bool queued; /* released by its end, acquired by the tick that queues it again */
};

struct probe {
    struct mw_pool_item item;
    uint64_t queued_ns;
    double wait_ms;
};

static unsigned cpus;
static uint64_t loops_per_ms;
static struct mw_pool *pool;
static struct mw_lane *lane;
static struct mw_job leaves[CPUS_MAX * 2];
static struct mw_pool_item busy_items[CPUS_MAX];
static struct half_item half_items[CPUS_MAX];
static struct probe probes[PROBES_MAX];
static sem_t probes_ended;            /* publishes the waits */
static _Atomic unsigned leaves_ended; /* relaxed: a count */

static struct {
    bool adds_items; /* published by the thread's start */
    double lates_ms[TICKS_MAX];
} ticker;

static bench_measure measure;
static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX]);
static int open_host(const struct cell *cell);
static int start_leaves(void);
static int start_items(void);
static void *tick(void *unused);
static void queue_half_item(struct half_item *half);
static unsigned queue_probes(uint64_t until_ns);
static void fill_waits(unsigned count, double values[BENCH_VALUES_MAX]);
static int run_leaf(struct mw_job *job);
static void submit_again(struct mw_job *job, int status);
static void run_half_item(struct mw_pool_item *item);
static void run_busy_item(struct mw_pool_item *item);
static void run_probe(struct mw_pool_item *item);
static void compute(uint64_t ns);
static void sleep_until(uint64_t ns);
static void fill_rows(struct bench_row *rows, const struct bench_variant *variants);

int main(int argc, char **argv)
{
    struct bench bench = {.name = "urgency",
                          .summary = "a host's waits and a lane's own pace, by the lane's urgency",
                          .runs_default = RUNS_DEFAULT};
    static struct cell cells[SCENES * VARIANTS];
    struct bench_variant variants[SCENES * VARIANTS];
    struct bench_row rows[SCENES * VALUES];
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    cpus = mw_cpus_effective() < CPUS_MAX ? mw_cpus_effective() : CPUS_MAX;
    loops_per_ms = work_calibrate(MW_NS_PER_MS);
    for (int i = 0; i < SCENES * VARIANTS; i++) {
        static const enum mw_lane_urgency urgencies[VARIANTS] = {
            [IDLE] = MW_LANE_IDLE, [NICE_19] = MW_LANE_NICE_19, [EQUAL] = MW_LANE_EQUAL};
        static const char *const names[VARIANTS] = {"SCHED_IDLE", "nice 19", "equal", "no lane"};

        cells[i] = (struct cell){urgencies[i % VARIANTS], i % VARIANTS != NO_LANE, i / VARIANTS};
        variants[i] = (struct bench_variant){names[i % VARIANTS], measure, &cells[i], {0}};
    }
    if (bench_rounds(&bench, variants, SCENES, VARIANTS) != 0)
        return 1;
    fill_rows(rows, variants);
    return bench_print(&bench, &(struct bench_report){
                                   .ours = "SCHED_IDLE",
                                   .peers = {"nice 19", "equal", "no lane"},
                                   .peer_count = 3,
                                   .rows = rows,
                                   .row_count = SCENES * VALUES,
                                   .note = "Pool workers and lane threads: one per CPU each. "
                                           "Probe: wait to start in the pool.\nTimer: how late a "
                                           "tick of 1 ms is. Lane: wall time for each 0.2 ms of "
                                           "its CPU work, all threads together.",
                               }) != 0;
}

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    (void)round;
    return child_measure("urgency", measure_in_child, context, values);
}

/* ---- one measurement ---- */

static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX])
{
    const struct cell *cell = context;
    unsigned probe_count, leaf_count;
    uint64_t begin_ns, took_ns;
    pthread_t timer;
    int error = open_host(cell);

    if (error == 0 && cell->has_lane)
        error = start_leaves();
    if (error == 0 && cell->scene == ALWAYS_BUSY)
        error = start_items();
    if (error != 0)
        return error;
    sleep_until(mw_clock_ns() + START_NS);
    ticker.adds_items = cell->scene == HALF_BUSY;
    begin_ns = mw_clock_ns();
    leaf_count = atomic_load_explicit(&leaves_ended, memory_order_relaxed);
    error = -pthread_create(&timer, NULL, tick, NULL);
    if (error != 0)
        return error;
    probe_count = queue_probes(begin_ns + MEASURE_NS);
    leaf_count = atomic_load_explicit(&leaves_ended, memory_order_relaxed) - leaf_count;
    took_ns = mw_clock_ns() - begin_ns;
    error = -pthread_join(timer, NULL);
    fill_waits(probe_count, values);
    if (cell->has_lane) /* none in all that time: as if one had just ended */
        values[VALUE_LEAF] =
            (double)took_ns / (leaf_count > 0 ? leaf_count : 1) / (double)MW_NS_PER_MS;
    return error; /* what still runs ends with the process */
}

static int open_host(const struct cell *cell)
{
    struct mw_pool_options sizes = {.min_threads = cpus, .max_threads = cpus};
    struct mw_lane_options options = {.name = "bench", .cap = cpus, .urgency = cell->urgency};
    int error = mw_pool_new(&pool, &sizes);

    if (error == 0)
        error = mw_lane_new(&lane, &options);
    if (error == 0 && sem_init(&probes_ended, 0, 0) != 0)
        error = -errno;
    return error;
}

/* Twice as many as threads, so that there is always a next one. */
static int start_leaves(void)
{
    int error = 0;

    for (unsigned i = 0; error == 0 && i < 2 * cpus; i++) {
        leaves[i] = (struct mw_job){.fn = run_leaf, .done = submit_again};
        error = mw_lane_submit(lane, &leaves[i]);
    }
    return error;
}

static int start_items(void)
{
    int error = 0;

    for (unsigned i = 0; error == 0 && i < cpus; i++) {
        busy_items[i].fn = run_busy_item;
        error = mw_pool_submit(pool, &busy_items[i]);
    }
    return error;
}

/* Runs on: a thread of the host's own. */
static void *tick(void *unused)
{
    uint64_t next_ns = mw_clock_ns();

    (void)unused;
    for (unsigned i = 0; i < TICKS_MAX; i++) {
        next_ns += TICK_NS;
        sleep_until(next_ns);
        ticker.lates_ms[i] = (double)(mw_clock_ns() - next_ns) / (double)MW_NS_PER_MS;
        for (unsigned item = 0; ticker.adds_items && item < cpus; item++)
            queue_half_item(&half_items[item]);
    }
    return NULL;
}

static void queue_half_item(struct half_item *half)
{
    if (atomic_exchange_explicit(&half->queued, true, memory_order_acquire))
        return;
    half->item.fn = run_half_item;
    if (mw_pool_submit(pool, &half->item) != 0)
        atomic_store_explicit(&half->queued, false, memory_order_relaxed);
}

/* Returns how many were queued, when all of them have run. */
static unsigned queue_probes(uint64_t until_ns)
{
    uint64_t next_ns = mw_clock_ns() + PROBE_NS / 3; /* not with the ticks */
    unsigned count = 0;

    while (count < PROBES_MAX && next_ns < until_ns) {
        sleep_until(next_ns);
        probes[count] = (struct probe){.item = {.fn = run_probe}, .queued_ns = mw_clock_ns()};
        count += mw_pool_submit(pool, &probes[count].item) == 0;
        next_ns += PROBE_NS;
    }
    for (unsigned i = 0; i < count;)
        i += sem_wait(&probes_ended) == 0; /* else interrupted */
    return count;
}

static void fill_waits(unsigned count, double values[BENCH_VALUES_MAX])
{
    static double waits_ms[PROBES_MAX];

    for (unsigned i = 0; i < count; i++)
        waits_ms[i] = probes[i].wait_ms;
    values[VALUE_P50] = bench_quantile(waits_ms, count, 0.5);
    values[VALUE_P99] = bench_quantile(waits_ms, count, 0.99);
    values[VALUE_TIMER] = bench_quantile(ticker.lates_ms, TICKS_MAX, 0.99);
}

/* ---- what runs on the lane and on the pool ---- */

static int run_leaf(struct mw_job *job)
{
    (void)job;
    compute(LEAF_NS);
    atomic_fetch_add_explicit(&leaves_ended, 1, memory_order_relaxed);
    return 0;
}

static void submit_again(struct mw_job *job, int status)
{
    (void)status;
    (void)mw_lane_submit(lane, job); /* its place in the queue has just become free */
}

static void run_half_item(struct mw_pool_item *item)
{
    compute(HALF_ITEM_NS);
    atomic_store_explicit(&((struct half_item *)item)->queued, false, memory_order_release);
}

static void run_busy_item(struct mw_pool_item *item)
{
    compute(BUSY_ITEM_NS);
    (void)mw_pool_yield(pool, item); /* the queue has room: it holds these and a few probes */
}

static void run_probe(struct mw_pool_item *item)
{
    struct probe *probe = (struct probe *)item;

    probe->wait_ms = (double)(mw_clock_ns() - probe->queued_ns) / (double)MW_NS_PER_MS;
    sem_post(&probes_ended);
}

/* Takes that much CPU time, however long that takes. */
static void compute(uint64_t ns)
{
    work_run(loops_per_ms * ns / MW_NS_PER_MS);
}

static void sleep_until(uint64_t ns)
{
    struct timespec when = {.tv_sec = (time_t)(ns / MW_NS_PER_S),
                            .tv_nsec = (long)(ns % MW_NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

/* ---- the answer ---- */

static void fill_rows(struct bench_row *rows, const struct bench_variant *variants)
{
    static const char *const names[SCENES * VALUES] = {
        "half busy: probe, p50",   "half busy: probe, p99",   "half busy: timer, p99",
        "half busy: lane's leaf",  "always busy: probe, p50", "always busy: probe, p99",
        "always busy: timer, p99", "always busy: lane's leaf"};

    for (int i = 0; i < SCENES * VALUES; i++) {
        const struct bench_variant *scene = variants + (ptrdiff_t)(i / VALUES) * VARIANTS;
        int value = i % VALUES;

        rows[i] =
            (struct bench_row){.name = names[i],
                               .ours = scene[IDLE].medians[value],
                               .peers = {scene[NICE_19].medians[value], scene[EQUAL].medians[value],
                                         scene[NO_LANE].medians[value]}};
    }
}

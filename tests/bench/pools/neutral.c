/* neutral.c - seed 000's benchmark of 12,000 tests, none of which blocks: what the monitor costs
 * where there is nothing to repair, and what a minimum that is raised beforehand costs.
 *
 * The load comes in two shapes. Steady: as by the seed's scheduler so many items are under way at
 * once, four for each CPU, and the end of one queues the next; so items wait at all times. Bursts:
 * 40 items each millisecond, which leaves the CPUs idle for most of it; as in the seed, whose
 * engine kept a small queue at 25 % CPU. A trigger that counts waiting items would raise at
 * both. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>

#include "lanes/work.h"
#include "scene.h"
#include "table.h"

#define ITEMS        12000
#define ITEMS_QUICK  600
#define STEADY_US    40
#define BURST_US     10
#define BURST_ITEMS  40
#define BURSTS_AHEAD 20 /* at most */
#define BURST_EVERY  MW_NS_PER_MS
#define CHAINS_MAX   1024u

enum { STEADY, BURSTS, SHAPES };
enum { OFF, ON, STATIC, COLUMNS };
enum { CPU, WALL, THREADS };

static table_measure measure;
static void run_steadily(int count);
static void run_in_bursts(int count);
static uint64_t await_burst(uint64_t next_ns, int ended, int count);
static void run_link(struct mw_pool_item *item);
static void run_single(struct mw_pool_item *item);

static struct mw_pool_item items[ITEMS];
static uint64_t item_loops;     /* published by the first submits */
static _Atomic int left;        /* items to start, or to end; relaxed: a count */
static _Atomic unsigned chains; /* that have not ended; relaxed but for the semaphore */
static sem_t all_ended;

const struct table neutral_table = {
    .name = "neutral",
    .title = "Seed 000: 12,000 items that do not block",
    .measure = measure,
    .rounds = 15,
    .group_count = SHAPES,
    .column_count = COLUMNS,
    .ours = ON,
    .columns = {"off", "monitor", "static"},
    .rows = {{"steady: CPU time", "ms", STEADY, CPU, TABLE_MEDIAN, {NULL}},
             {"steady: wall time", "ms", STEADY, WALL, TABLE_MEDIAN, {"2935", "2926", NULL}},
             {"steady: threads", "", STEADY, THREADS, TABLE_MAX, {NULL}},
             {"bursts: CPU time", "ms", BURSTS, CPU, TABLE_MEDIAN, {NULL}},
             {"bursts: threads", "", BURSTS, THREADS, TABLE_MAX, {NULL}}},
    .ratios = {{"steady: CPU, monitor / off", 0, ON, OFF, true, 0.99, 1.01, NULL},
               {"steady: wall, monitor / off", 1, ON, OFF, true, 0, 0, "0.997"},
               {"steady: CPU, static / monitor", 0, STATIC, ON, true, 1, 0, NULL},
               {"steady: wall, static / off", 1, STATIC, OFF, true, 0, 0, "1.15"},
               {"bursts: CPU, monitor / off", 3, ON, OFF, true, 0, 0, NULL},
               {"bursts: CPU, static / monitor", 3, STATIC, ON, true, 0, 0, NULL}},
    .note = "Steady: 40 us each, 4 for each CPU under way. Bursts: 40 of 10 us each millisecond.\n"
            "Static: a minimum of 5 for each CPU from the start, which is what the monitor would\n"
            "raise to. Intervals: Student's t on the logarithms of the rounds' ratios. The seed's\n"
            "1.15 is from 2.63 s to 3.02 s.",
};

static int measure(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    struct scene_options options = {
        .monitored = cell->column == ON,
        .min_threads = cell->column == STATIC ? scene_limit() + mw_cpus_effective() : 0,
    };
    struct scene_use before = scene_use(); /* making both is part of what they cost */
    struct scene_use after;
    int count = cell->quick ? ITEMS_QUICK : ITEMS;
    int error = scene_open(&options);

    if (error != 0)
        return error;
    sem_init(&all_ended, 0, 0);
    atomic_init(&left, count);
    if (cell->group == STEADY)
        run_steadily(count);
    else
        run_in_bursts(count);
    values[THREADS] = scene_threads();
    mw_monitor_free(scene.monitor);
    after = scene_use();
    values[CPU] = scene_ms(after.cpu_ns - before.cpu_ns);
    values[WALL] = scene_ms(after.wall_ns - before.wall_ns);
    return 0;
}

static void run_steadily(int count)
{
    unsigned limit = scene_limit() < (unsigned)count ? scene_limit() : (unsigned)count;

    item_loops = work_loops * STEADY_US / 1000;
    atomic_init(&chains, limit);
    for (unsigned i = 0; i < limit; i++) {
        items[i].fn = run_link;
        scene_submit(&items[i]);
    }
    while (sem_wait(&all_ended) != 0)
        ;
}

static void run_in_bursts(int count)
{
    uint64_t next_ns = mw_clock_ns();

    item_loops = work_loops * BURST_US / 1000;
    for (int i = 0; i < count; i++) {
        if (i % BURST_ITEMS == 0)
            next_ns = await_burst(next_ns, i - BURSTS_AHEAD * BURST_ITEMS, count);
        items[i].fn = run_single;
        scene_submit(&items[i]);
    }
    while (sem_wait(&all_ended) != 0)
        ;
}

/* Sleep until it is time, and longer on a machine that is too busy, until so many of `count` have
 * ended: the pool's queue has an end. Returns when the next burst is due. */
static uint64_t await_burst(uint64_t next_ns, int ended, int count)
{
    do {
        scene_sleep_until(next_ns);
        next_ns += BURST_EVERY;
    } while (count - atomic_load_explicit(&left, memory_order_relaxed) < ended);
    return next_ns;
}

/* One item after the other, as long as there are some to start. */
static void run_link(struct mw_pool_item *item)
{
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) > 0) {
        work_run(item_loops);
        scene_submit(item);
    } else if (atomic_fetch_sub_explicit(&chains, 1, memory_order_relaxed) == 1) {
        sem_post(&all_ended);
    }
}

static void run_single(struct mw_pool_item *item)
{
    (void)item;
    work_run(item_loops);
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) == 1)
        sem_post(&all_ended);
}

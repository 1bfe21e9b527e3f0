/* neutral.c - seed 000's benchmark of 12,000 tests, none of which blocks: what the monitor costs
 * where there is nothing to repair, and what a minimum that is raised beforehand costs.
 *
 * As the seed's scheduler does, it has so many items under way at once, four for each CPU, and the
 * end of one queues the next. So items wait at all times, and nobody blocks: a trigger that counts
 * waiting items would raise here. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>

#include "lanes/work.h"
#include "scene.h"
#include "table.h"

#define ITEMS       12000
#define ITEMS_QUICK 600
#define ITEM_NS     (40 * MW_NS_PER_US)
#define CHAINS_MAX  1024u

enum { OFF, ON, STATIC, COLUMNS };
enum { CPU, WALL, THREADS };

static table_measure measure;
static void run_item(struct mw_pool_item *item);

static struct mw_pool_item chains[CHAINS_MAX];
static uint64_t item_loops;    /* published by the first submits */
static _Atomic int left;       /* items to start; relaxed: a count */
static _Atomic unsigned alive; /* chains that have not ended; relaxed but for the semaphore */
static sem_t all_ended;

const struct table neutral_table = {
    .name = "neutral",
    .title = "Seed 000: 12,000 items that do not block",
    .measure = measure,
    .rounds = 20,
    .group_count = 1,
    .column_count = COLUMNS,
    .ours = ON,
    .columns = {"off", "monitor", "static"},
    .rows = {{.name = "CPU time", .unit = "ms", .value = CPU},
             {.name = "wall time", .unit = "ms", .value = WALL, .seed = {"2935", "2926", NULL}},
             {.name = "threads", .unit = "", .value = THREADS}},
    .ratios = {{"CPU, monitor / off", CPU, ON, OFF, true, 0.99, 1.01, NULL},
               {"wall, monitor / off", WALL, ON, OFF, true, 0, 0, "0.997"},
               {"CPU, static / monitor", CPU, STATIC, ON, true, 1, 0, NULL},
               {"wall, static / off", WALL, STATIC, OFF, true, 0, 0, "1.15"}},
    .note =
        "40 us each, 4 for each CPU at once, as the seed's scheduler. Static: the minimum that\n"
        "the monitor would raise to, 5 for each CPU, from the start. The seed's 1.15 is from\n"
        "2.63 s to 3.02 s.",
};

static int measure(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    unsigned limit = scene_limit() < CHAINS_MAX ? scene_limit() : CHAINS_MAX;
    struct scene_options options = {
        .monitored = cell->column == ON,
        .min_threads = cell->column == STATIC ? limit + mw_cpus_effective() : 0,
    };
    struct scene_use before = scene_use(); /* making both is part of what they cost */
    struct scene_use after;
    int error = scene_open(&options);

    if (error != 0)
        return error;
    item_loops = work_loops * ITEM_NS / MW_NS_PER_MS;
    atomic_init(&left, cell->quick ? ITEMS_QUICK : ITEMS);
    atomic_init(&alive, limit);
    sem_init(&all_ended, 0, 0);
    for (unsigned i = 0; i < limit; i++) {
        chains[i].fn = run_item;
        scene_submit(&chains[i]);
    }
    while (sem_wait(&all_ended) != 0)
        ;
    values[THREADS] = scene_threads();
    mw_monitor_free(scene.monitor);
    after = scene_use();
    values[CPU] = scene_ms(after.cpu_ns - before.cpu_ns);
    values[WALL] = scene_ms(after.wall_ns - before.wall_ns);
    return 0;
}

static void run_item(struct mw_pool_item *item)
{
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) > 0) {
        work_run(item_loops);
        scene_submit(item);
    } else if (atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed) == 1) {
        sem_post(&all_ended);
    }
}

/* memory.c - what a thread that nobody needs costs: a pool's memory before and after 100 more
 * workers have run an item each and are parked. */
#include <semaphore.h>

#include "scene.h"
#include "table.h"

#define WORKERS 100u
#define PARK_MS 20.0 /* in which all of them have parked */

enum { RESIDENT, RESERVED };

static table_measure measure;
static void run_together(unsigned count);
static void run_item(struct mw_pool_item *item);

static sem_t begun, go_on;

const struct table memory_table = {
    .name = "memory",
    .title = "Seeds 001 and 003: memory of one parked worker",
    .measure = measure,
    .rounds = 1,
    .group_count = 1,
    .column_count = 1,
    .columns = {"worker"},
    .rows = {{"resident", "KiB", 0, RESIDENT, TABLE_MEDIAN, {"\"say 1 MB\""}},
             {"reserved address space", "KiB", 0, RESERVED, TABLE_MEDIAN, {NULL}}},
    .note = "Of 100 more, each of which has run one item. The stack is the system's default.",
};

static int measure(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    struct scene_options options = {.min_threads = WORKERS + 1, .max_threads = WORKERS + 1};
    double resident, reserved;
    int error = scene_open(&options);

    (void)cell;
    if (error != 0)
        return error;
    sem_init(&begun, 0, 0);
    sem_init(&go_on, 0, 0);
    run_together(1);
    resident = scene_resident_kib();
    reserved = scene_reserved_kib();
    run_together(WORKERS + 1);
    values[RESIDENT] = (scene_resident_kib() - resident) / WORKERS;
    values[RESERVED] = (scene_reserved_kib() - reserved) / WORKERS;
    return 0;
}

/* So many items at once, and thus as many workers; returns when they are parked. */
static void run_together(unsigned count)
{
    static struct mw_pool_item items[WORKERS + 1];

    for (unsigned i = 0; i < count; i++) {
        items[i].fn = run_item;
        scene_submit(&items[i]);
    }
    for (unsigned i = 0; i < count;)
        i += sem_wait(&begun) == 0;
    for (unsigned i = 0; i < count; i++)
        sem_post(&go_on);
    scene_sleep_ms(PARK_MS);
}

static void run_item(struct mw_pool_item *item)
{
    (void)item;
    sem_post(&begun);
    while (sem_wait(&go_on) != 0)
        ;
}

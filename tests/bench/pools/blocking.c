/* blocking.c - seed 000's repro and its escalation: tests that block beside tests that wait for a
 * timer, and how late those are woken.
 *
 * A test is an item that starts on the pool; its end starts the next of its track, so a track has
 * as many under way as its limit. A blocking test holds its worker. A probe starts a timer of 50 ms
 * and leaves its worker; the timer's item ends it, late by its overshoot. */
#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <millwright/clock.h>

#include "scene.h"
#include "table.h"
#include "timers.h"

#define DELAY_MS   50u /* Task.Delay(50) */
#define TESTS_MAX  480u
#define TRACKS_MAX 2u
#define QUICK_PART 10u /* of the tests, and a third of the time */
#define PHASE_MS   50u /* the monitor's period: each round begins at another point of it */
#define PHASE_STEP 17u

enum { OFF, ON, DECLARED, COLUMNS };
enum { P99, WORST, THREADS, WALL };

struct test {
    struct timer timer; /* its item is also the test's own */
    struct track *track;
    unsigned block_ms; /* 0: a probe */
    double overshoot_ms;
};

/* Tests that are started in order. */
struct track {
    struct test tests[TESTS_MAX];
    unsigned count;
    _Atomic unsigned started; /* relaxed: a count; the pool's queue publishes the tests */
};

static table_measure measure_repro, measure_escalation;
static int measure(const struct table_cell *cell, unsigned monitor_limit,
                   const unsigned limits[TRACKS_MAX], double values[BENCH_VALUES_MAX]);
static void add_test(struct track *track, unsigned block_ms);
static void shuffle(struct track *track, unsigned seed);
static void start_next(struct track *track);
static void end_test(struct test *test);
static void run_blocking(struct mw_pool_item *item);
static void run_probe(struct mw_pool_item *item);
static void run_due(struct mw_pool_item *item);
static void fill_overshoots(double values[BENCH_VALUES_MAX]);

static struct track tracks[TRACKS_MAX];
static bool declares;         /* published by the first submits */
static _Atomic unsigned left; /* tests that have not ended; released by each, acquired by the last,
                                 whose semaphore publishes the overshoots */
static sem_t all_ended;

const struct table blocking_table = {
    .name = "blocking",
    .title = "Seed 000: 240 blocking tests beside 240 timer probes, one limit for all",
    .measure = measure_repro,
    .rounds = 1,
    .cold = true,
    .group_count = 1,
    .column_count = COLUMNS,
    .ours = ON,
    .columns = {"off", "monitor", "off, declared"},
    .rows = {{"overshoot, mean p99", "ms", 0, P99, TABLE_MEAN, {"73", "48", NULL}},
             {"overshoot, worst", "ms", 0, WORST, TABLE_MAX, {"232", "75", NULL}},
             {"threads, most", "", 0, THREADS, TABLE_MAX, {NULL}},
             {"wall time", "ms", 0, WALL, TABLE_MEDIAN, {"baseline", "-800", NULL}}},
    .ratios = {{"p99, monitor / off", 0, ON, OFF, false, 0, 1 / 3.0, "0.66"},
               {"worst, monitor / off", 1, ON, OFF, false, 0, 1 / 3.0, "0.32"}},
    .note =
        "A blocking test sleeps 100 ms, a probe waits for a timer of 50 ms; shuffled, 4 for each\n"
        "CPU at once. Declared: without the monitor, but each says mw_block_begin.",
};

const struct table escalation_table = {
    .name = "escalation",
    .title = "Seed 000: 60 blocking tests outside the limit, 40 timer probes 4 at a time",
    .measure = measure_escalation,
    .rounds = 1,
    .cold = true,
    .group_count = 1,
    .column_count = COLUMNS,
    .ours = ON,
    .columns = {"off", "monitor", "off, declared"},
    .rows = {{"overshoot, mean p99", "ms", 0, P99, TABLE_MEAN, {"133 to 275", "29 to 58", NULL}},
             {"threads, most", "", 0, THREADS, TABLE_MAX, {"40 to 47", "64 to 68", NULL}},
             {"wall time", "ms", 0, WALL, TABLE_MEDIAN, {"4200 to 5700", "4100 to 4200", NULL}}},
    .ratios = {{"p99, monitor / off", 0, ON, OFF, false, 0, 1 / 3.0, "0.2"}},
    .note = "A blocking test sleeps 200 ms. The monitor first raises to 4 + CPUs (in the seed 24,\n"
            "on 20 CPUs), then doubles when the pool has caught up.",
};

static int measure_repro(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    unsigned count = 240 / (cell->quick ? QUICK_PART : 1);
    unsigned block_ms = cell->quick ? 30 : 100;

    for (unsigned i = 0; i < 2 * count; i++)
        add_test(&tracks[0], i < count ? block_ms : 0);
    shuffle(&tracks[0], cell->round);
    return measure(cell, scene_limit(), (unsigned[]){scene_limit(), 0}, values);
}

/* The probes are started first: they are under way when the blocking tests come. */
static int measure_escalation(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    for (unsigned i = 0; i < 40 / (cell->quick ? QUICK_PART : 1); i++)
        add_test(&tracks[0], 0);
    for (unsigned i = 0; i < 60 / (cell->quick ? QUICK_PART : 1); i++)
        add_test(&tracks[1], 200);
    return measure(cell, 4, (unsigned[]){4, 60}, values);
}

static int measure(const struct table_cell *cell, unsigned monitor_limit,
                   const unsigned limits[TRACKS_MAX], double values[BENCH_VALUES_MAX])
{
    struct scene_options options = {.monitored = cell->column == ON,
                                    .parallel_limit = monitor_limit};
    struct scene_use before;
    int error = scene_open(&options);

    if (error == 0)
        error = timers_start(DELAY_MS);
    if (error != 0)
        return error;
    declares = cell->column == DECLARED;
    sem_init(&all_ended, 0, 0);
    atomic_init(&left, tracks[0].count + tracks[1].count);
    scene_sleep_ms(cell->round * PHASE_STEP % PHASE_MS);
    before = scene_use();
    for (unsigned track = 0; track < TRACKS_MAX; track++)
        for (unsigned i = 0; i < limits[track]; i++)
            start_next(&tracks[track]);
    while (sem_wait(&all_ended) != 0)
        ;
    values[WALL] = scene_ms(scene_use().wall_ns - before.wall_ns);
    values[THREADS] = scene_threads();
    mw_monitor_free(scene.monitor);
    fill_overshoots(values);
    return 0;
}

/* 0: a probe. */
static void add_test(struct track *track, unsigned block_ms)
{
    struct test *test = &track->tests[track->count++];

    test->track = track;
    test->block_ms = block_ms;
    test->timer.item.fn = block_ms > 0 ? run_blocking : run_probe;
}

/* The same order for all columns of a round: Fisher and Yates, by a small random generator. */
static void shuffle(struct track *track, unsigned seed)
{
    uint64_t state = seed + 1;

    for (unsigned i = track->count - 1; i > 0; i--) {
        struct test test = track->tests[i];
        unsigned other;

        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        other = (unsigned)(state >> 33) % (i + 1);
        track->tests[i] = track->tests[other];
        track->tests[other] = test;
    }
}

/* Does nothing when all have been started. */
static void start_next(struct track *track)
{
    unsigned index = atomic_fetch_add_explicit(&track->started, 1, memory_order_relaxed);

    if (index < track->count)
        scene_submit(&track->tests[index].timer.item);
}

static void end_test(struct test *test)
{
    start_next(test->track);
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_acq_rel) == 1)
        sem_post(&all_ended);
}

static void run_blocking(struct mw_pool_item *item)
{
    struct test *test = (struct test *)item;

    if (declares)
        mw_block_begin();
    scene_sleep_ms(test->block_ms);
    if (declares)
        mw_block_end();
    end_test(test);
}

static void run_probe(struct mw_pool_item *item)
{
    item->fn = run_due;
    timers_add(&((struct test *)item)->timer);
}

static void run_due(struct mw_pool_item *item)
{
    struct test *test = (struct test *)item;

    test->overshoot_ms = scene_ms(mw_clock_ns() - test->timer.due_ns);
    end_test(test);
}

static void fill_overshoots(double values[BENCH_VALUES_MAX])
{
    static double overshoots[TRACKS_MAX * TESTS_MAX];
    size_t count = 0;

    for (unsigned track = 0; track < TRACKS_MAX; track++)
        for (unsigned i = 0; i < tracks[track].count; i++)
            if (tracks[track].tests[i].block_ms == 0)
                overshoots[count++] = tracks[track].tests[i].overshoot_ms;
    values[P99] = bench_quantile(overshoots, count, 0.99);
    values[WORST] = count > 0 ? overshoots[count - 1] : NAN; /* they are sorted now */
}

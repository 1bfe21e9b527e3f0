/* floors.c - what this machine needs for the like of a scenario without any pool. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>

#include <millwright/clock.h>
#include <millwright/futex.h>

#include "place.h"
#include "scenarios.h"
#include "work.h"

#define MUTEX_TURNS 1000000u
#define TRIPS_MAX   4096u
#define PARTS_MAX   64u

/* One side of a ping-pong waits for `ping`, the other for `pong`. */
struct table {
    _Atomic uint32_t ping, pong; /* the number of the last ball; released and acquired */
    uint32_t balls;
    bool spins;
};

/* What one thread computes: each `step`th job. */
struct part {
    pthread_barrier_t *start;
    unsigned first, step;
};

static int ping_pong(const struct scene *scene, unsigned trips, uint64_t pause_ns, bool spins,
                     double values[BENCH_VALUES_MAX]);
static void *play_pong(void *argument);
static void await_ball(_Atomic uint32_t *word, uint32_t ball, bool spins);
static void hit_ball(_Atomic uint32_t *word, uint32_t ball, bool spins);
static int compute_in_parts(unsigned parts, double *took_ns);
static void *compute_part(void *argument);

int floor_mutex(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    unsigned turns = scene_scaled(scene, MUTEX_TURNS);
    uint64_t begin_ns = mw_clock_ns();

    for (unsigned i = 0; i < turns; i++)
        if (pthread_mutex_lock(&mutex) != 0 || pthread_mutex_unlock(&mutex) != 0)
            return -EINVAL;
    values[0] = (double)(mw_clock_ns() - begin_ns) / turns;
    return 0;
}

int floor_ping_pong(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return ping_pong(scene, SCENARIO_SERIAL_TRIPS, 0, false, values);
}

int floor_ping_pong_parked(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return ping_pong(scene, SCENARIO_PARKED_TRIPS, SCENARIO_PARK_NS, false, values);
}

int floor_ping_pong_hot(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return ping_pong(scene, SCENARIO_HOT_TRIPS, 0, true, values);
}

static int ping_pong(const struct scene *scene, unsigned trips, uint64_t pause_ns, bool spins,
                     double values[BENCH_VALUES_MAX])
{
    static double walls[TRIPS_MAX];
    static struct table table;
    pthread_t partner;
    int error;

    trips = scene_scaled(scene, trips);
    table.balls = trips;
    table.spins = spins;
    error = pthread_create(&partner, NULL, play_pong, &table);
    if (error != 0)
        return -error;
    error = place_apart();
    for (uint32_t ball = 1; error == 0 && ball <= trips; ball++) {
        uint64_t begin_ns;

        if (pause_ns > 0)
            scene_pause(pause_ns);
        begin_ns = mw_clock_ns();
        hit_ball(&table.ping, ball, spins);
        await_ball(&table.pong, ball, spins);
        walls[ball - 1] = (double)(mw_clock_ns() - begin_ns);
    }
    values[0] = bench_quantile(walls, trips, 0.5);
    values[1] = bench_quantile(walls, trips, 0.99);
    return error != 0 ? error : -pthread_join(partner, NULL);
}

static void *play_pong(void *argument)
{
    struct table *table = argument;

    for (uint32_t ball = 1; ball <= table->balls; ball++) {
        await_ball(&table->ping, ball, table->spins);
        hit_ball(&table->pong, ball, table->spins);
    }
    return NULL;
}

static void await_ball(_Atomic uint32_t *word, uint32_t ball, bool spins)
{
    while (atomic_load_explicit(word, memory_order_acquire) != ball)
        if (spins)
            mw_cpu_relax();
        else
            mw_futex_wait(word, ball - 1, UINT64_MAX);
}

static void hit_ball(_Atomic uint32_t *word, uint32_t ball, bool spins)
{
    atomic_store_explicit(word, ball, memory_order_release);
    if (!spins)
        mw_futex_wake(word, 1);
}

int floor_work(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    double walls[SCENARIO_WORK_REPEATS];
    unsigned repeats = scene_scaled(scene, SCENARIO_WORK_REPEATS);
    unsigned parts = scene->cpus < PARTS_MAX ? scene->cpus : PARTS_MAX;
    int error = place_on(0);

    work_loops = scene->work_loops;
    for (unsigned i = 0; error == 0 && i < repeats; i++)
        error = compute_in_parts(parts, &walls[i]);
    values[0] = bench_quantile(walls, repeats, 0.5);
    return error;
}

/* Each on a CPU of its own; the calling thread has the first part. The time does not hold the start
 * of the others. */
static int compute_in_parts(unsigned parts, double *took_ns)
{
    pthread_t threads[PARTS_MAX];
    struct part shares[PARTS_MAX];
    pthread_barrier_t start;
    uint64_t begin_ns;
    int error = -pthread_barrier_init(&start, NULL, parts);

    assert(parts > 0);
    for (unsigned i = 0; error == 0 && i < parts; i++) {
        shares[i] = (struct part){.start = &start, .first = i, .step = parts};
        if (i > 0)
            error = -pthread_create(&threads[i], NULL, compute_part, &shares[i]);
    }
    if (error != 0)
        return error;         /* those that wait end with the process */
    begin_ns = mw_clock_ns(); /* before the barrier: others may leave it first */
    compute_part(&shares[0]);
    for (unsigned i = 1; error == 0 && i < parts; i++)
        error = -pthread_join(threads[i], NULL);
    *took_ns = (double)(mw_clock_ns() - begin_ns);
    return error;
}

static void *compute_part(void *argument)
{
    const struct part *part = argument;

    (void)place_on(part->first); /* a hint */
    pthread_barrier_wait(part->start);
    for (unsigned i = part->first; i < SCENARIO_JOBS; i += part->step)
        work_compute(NULL);
    return NULL;
}

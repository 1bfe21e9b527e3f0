#include "scenarios.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <millwright/clock.h>
#include <millwright/futex.h>

#include "place.h"
#include "work.h"

#define MEASURE_NS     (60 * MW_NS_PER_MS)
#define SAMPLES_MAX    4096u
#define BURSTS_MAX     9u
#define WARM_TASKS     2000u
#define PUSH_TASKS     4000u
#define PUSH_OUT_MAX   2u
#define SUBMIT_TASKS   5000u
#define QUEUE_PAUSE_NS MW_NS_PER_MS
#define SUBMIT_REPEATS 7u

/* The tasks that block until they are let go. */
struct gate {
    unsigned wanted;
    _Atomic unsigned inside;  /* released by each that enters, acquired by the last */
    _Atomic uint32_t full;    /* futex; released by the last that enters */
    _Atomic uint32_t open;    /* futex; released by open_gate */
    _Atomic uint64_t full_ns; /* when the last entered; published by `full` */
};

/* Several producers submit parts of one batch. */
struct crew {
    const struct scene *scene;
    unsigned count; /* tasks of the batch */
    bool ends;      /* published by the barrier */
    pthread_barrier_t barrier;
    _Atomic int error; /* the first; relaxed: read after the barrier */
    pthread_t threads[PEER_PRODUCERS_MAX];
};

struct producer {
    struct crew *crew;
    unsigned number;
};

static struct task tasks[PEER_TASKS_MAX];
static struct gate gate;

static int open_pool(const struct scene *scene, bool spin);
static int warm_up(const struct scene *scene);
static int settle(const struct scene *scene);
static void give_work(void (*work)(struct task *task), unsigned first, unsigned count);
static int submit_range(const struct scene *scene, unsigned producer, unsigned first, unsigned end);
static int run_batch(const struct scene *scene, unsigned count);
static int ramp(const struct scene *scene, unsigned extra, uint64_t *took_ns);
static void open_gate(void);
static void block_in_gate(struct task *task);
static int start_crew(struct crew *crew, const struct scene *scene);
static int crew_batch(struct crew *crew, unsigned count, double *wall_ns, double *cpu_ns);
static void end_crew(struct crew *crew);
static void *produce(void *argument);
static int round_trips(const struct scene *scene, unsigned trips, uint64_t pause_ns, bool spins,
                       double values[BENCH_VALUES_MAX]);
static uint64_t cpu_ns(void);

/* ---- throughput ---- */

int scenario_throughput(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    static double walls[SAMPLES_MAX], cpus[SAMPLES_MAX];
    struct crew crew = {0};
    unsigned samples = 0;
    uint64_t until_ns;
    int error = open_pool(scene, false);

    if (error == 0)
        error = warm_up(scene);
    if (error != 0 || (error = start_crew(&crew, scene)) != 0)
        return error;
    error = crew_batch(&crew, WARM_TASKS, &walls[0], &cpus[0]);
    until_ns = mw_clock_ns() + MEASURE_NS / (scene->quick ? 4 : 1);
    while (error == 0 && samples < SAMPLES_MAX && (samples == 0 || mw_clock_ns() < until_ns)) {
        error = crew_batch(&crew, PEER_TASKS_MAX, &walls[samples], &cpus[samples]);
        samples++;
    }
    if (error == 0) /* else the others wait for good, and end with the process */
        end_crew(&crew);
    values[0] = bench_quantile(walls, samples, 0.5) / PEER_TASKS_MAX;
    values[1] = bench_quantile(cpus, samples, 0.5) / PEER_TASKS_MAX;
    return error;
}

int scenario_push_heavy(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    static double walls[SAMPLES_MAX], cpus[SAMPLES_MAX];
    unsigned samples = 0;
    uint64_t until_ns;
    int error = open_pool(scene, false);

    if (error == 0)
        error = warm_up(scene);
    until_ns = mw_clock_ns() + MEASURE_NS / (scene->quick ? 4 : 1);
    while (error == 0 && samples < SAMPLES_MAX && (samples == 0 || mw_clock_ns() < until_ns)) {
        uint64_t begin_cpu_ns = cpu_ns();
        uint64_t begin_ns = mw_clock_ns();

        batch_begin(PUSH_TASKS, false);
        for (unsigned i = 0; error == 0 && i < PUSH_TASKS; i++) {
            while (i - (PUSH_TASKS - batch_left()) >= PUSH_OUT_MAX)
                sched_yield();
            error = scene->peer->submit(0, &tasks[i]);
        }
        if (error != 0)
            break;
        batch_wait();
        walls[samples] = (double)(mw_clock_ns() - begin_ns);
        cpus[samples++] = (double)(cpu_ns() - begin_cpu_ns);
        error = settle(scene);
    }
    values[0] = bench_quantile(walls, samples, 0.5) / PUSH_TASKS;
    values[1] = bench_quantile(cpus, samples, 0.5) / PUSH_TASKS;
    return error;
}

int scenario_burst(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    double walls[BURSTS_MAX];
    unsigned bursts = 0;
    uint64_t until_ns;
    int error = open_pool(scene, false);

    if (error == 0)
        error = warm_up(scene);
    until_ns = mw_clock_ns() + MEASURE_NS / (scene->quick ? 4 : 1);
    while (error == 0 && bursts < BURSTS_MAX && (bursts == 0 || mw_clock_ns() < until_ns)) {
        uint64_t begin_ns;

        scene_pause(QUEUE_PAUSE_NS);
        begin_ns = mw_clock_ns();
        error = run_batch(scene, SCENARIO_BURST);
        walls[bursts++] = (double)(mw_clock_ns() - begin_ns);
        if (error == 0)
            error = settle(scene);
    }
    values[0] = bench_quantile(walls, bursts, 0.5);
    return error;
}

int scenario_submit(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    double walls[SUBMIT_REPEATS];
    unsigned repeats = scene_scaled(scene, SUBMIT_REPEATS);
    int error = open_pool(scene, false);

    if (error == 0)
        error = warm_up(scene);
    for (unsigned i = 0; error == 0 && i < repeats; i++) {
        unsigned first = scene->threads;
        uint64_t begin_ns;

        error = ramp(scene, SUBMIT_TASKS, NULL);
        if (error != 0)
            break;
        begin_ns = mw_clock_ns();
        error = submit_range(scene, 0, first, first + SUBMIT_TASKS);
        walls[i] = (double)(mw_clock_ns() - begin_ns);
        if (error != 0)
            break;
        open_gate();
        batch_wait();
        error = settle(scene);
    }
    values[0] = bench_quantile(walls, repeats, 0.5) / SUBMIT_TASKS;
    return error;
}

int scenario_work(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    double walls[SCENARIO_WORK_REPEATS];
    unsigned repeats = scene_scaled(scene, SCENARIO_WORK_REPEATS);
    int error = open_pool(scene, false);

    work_loops = scene->work_loops;
    if (error == 0)
        error = warm_up(scene);
    give_work(work_compute, 0, SCENARIO_JOBS);
    for (unsigned i = 0; error == 0 && i < repeats; i++) {
        uint64_t begin_ns = mw_clock_ns();

        error = run_batch(scene, SCENARIO_JOBS);
        walls[i] = (double)(mw_clock_ns() - begin_ns);
        if (error == 0)
            error = settle(scene);
    }
    values[0] = bench_quantile(walls, repeats, 0.5);
    return error;
}

/* ---- ramp ---- */

int scenario_ramp_cold(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    uint64_t begin_ns = mw_clock_ns();
    uint64_t took_ns;
    int error = open_pool(scene, false);

    if (error == 0)
        error = ramp(scene, 0, &took_ns);
    values[0] = (double)(atomic_load_explicit(&gate.full_ns, memory_order_relaxed) - begin_ns);
    return error; /* those inside end with the process */
}

int scenario_ramp_warm(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    double walls[SUBMIT_REPEATS];
    unsigned repeats = scene_scaled(scene, SUBMIT_REPEATS);
    int error = open_pool(scene, false);

    if (error == 0)
        error = warm_up(scene);
    for (unsigned i = 0; error == 0 && i < repeats; i++) {
        uint64_t took_ns = 0;

        scene_pause(QUEUE_PAUSE_NS);
        error = ramp(scene, 0, &took_ns);
        walls[i] = (double)took_ns;
        if (error != 0)
            break;
        open_gate();
        batch_wait();
        error = settle(scene);
    }
    values[0] = bench_quantile(walls, repeats, 0.5);
    return error;
}

/* ---- round trips ---- */

int scenario_serial(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return round_trips(scene, SCENARIO_SERIAL_TRIPS, 0, false, values);
}

int scenario_parked(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return round_trips(scene, SCENARIO_PARKED_TRIPS, SCENARIO_PARK_NS, false, values);
}

int scenario_hot(const struct scene *scene, double values[BENCH_VALUES_MAX])
{
    return round_trips(scene, SCENARIO_HOT_TRIPS, 0, true, values);
}

static int round_trips(const struct scene *scene, unsigned trips, uint64_t pause_ns, bool spins,
                       double values[BENCH_VALUES_MAX])
{
    static double walls[SAMPLES_MAX];
    int error = open_pool(scene, spins);

    trips = scene_scaled(scene, trips);
    if (error == 0)
        error = warm_up(scene);
    if (error == 0)
        error = place_apart();
    for (unsigned i = 0; error == 0 && i < trips; i++) {
        uint64_t begin_ns;

        if (pause_ns > 0)
            scene_pause(pause_ns);
        begin_ns = mw_clock_ns();
        batch_begin(1, spins);
        error = scene->peer->submit(0, &tasks[0]);
        if (error != 0)
            break;
        batch_wait();
        walls[i] = (double)(mw_clock_ns() - begin_ns);
        error = settle(scene);
    }
    values[0] = bench_quantile(walls, trips, 0.5);
    values[1] = bench_quantile(walls, trips, 0.99);
    return error;
}

/* ---- tasks ---- */

static void give_work(void (*work)(struct task *task), unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        tasks[i].work = work;
}

/* ---- a pool, and batches of one producer ---- */

static int open_pool(const struct scene *scene, bool spin)
{
    return scene->peer->open(&(struct peer_options){
        .threads = scene->threads, .producers = scene->producers, .spin = spin});
}

/* All threads at once, so that each exists; and each on a CPU, so that the scheduler's mood is not
 * what is measured. */
static int warm_up(const struct scene *scene)
{
    int error = ramp(scene, 0, NULL);

    if (error != 0)
        return error;
    open_gate();
    batch_wait();
    give_work(NULL, 0, scene->threads);
    error = settle(scene);
    if (error == 0)
        error = place_evenly();
    if (error == 0)
        error = run_batch(scene, WARM_TASKS);
    return error == 0 ? settle(scene) : error;
}

static int settle(const struct scene *scene)
{
    return scene->peer->settle == NULL ? 0 : scene->peer->settle(0);
}

static int submit_range(const struct scene *scene, unsigned producer, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        int error = scene->peer->submit(producer, &tasks[i]);

        if (error != 0)
            return error;
    }
    return 0;
}

static int run_batch(const struct scene *scene, unsigned count)
{
    int error;

    batch_begin(count, false);
    error = submit_range(scene, 0, 0, count);
    if (error == 0)
        batch_wait();
    return error;
}

/* Have as many tasks blocked inside the pool as it has threads: the first of `tasks`. `extra` more
 * tasks will belong to the same batch. */
static int ramp(const struct scene *scene, unsigned extra, uint64_t *took_ns)
{
    uint64_t begin_ns = mw_clock_ns();
    int error;

    gate.wanted = scene->threads; /* all of the gate is published by the submits */
    atomic_store_explicit(&gate.inside, 0, memory_order_relaxed);
    atomic_store_explicit(&gate.full, 0, memory_order_relaxed);
    atomic_store_explicit(&gate.open, 0, memory_order_relaxed);
    give_work(block_in_gate, 0, scene->threads);
    batch_begin(scene->threads + extra, false);
    error = submit_range(scene, 0, 0, scene->threads);
    while (error == 0 && atomic_load_explicit(&gate.full, memory_order_acquire) == 0)
        mw_futex_wait(&gate.full, 0, UINT64_MAX);
    if (error == 0 && took_ns != NULL)
        *took_ns = atomic_load_explicit(&gate.full_ns, memory_order_relaxed) - begin_ns;
    return error;
}

static void open_gate(void)
{
    atomic_store_explicit(&gate.open, 1, memory_order_release);
    mw_futex_wake(&gate.open, (int)gate.wanted);
}

static void block_in_gate(struct task *task)
{
    (void)task;
    if (atomic_fetch_add_explicit(&gate.inside, 1, memory_order_acq_rel) + 1 == gate.wanted) {
        atomic_store_explicit(&gate.full_ns, mw_clock_ns(), memory_order_relaxed);
        atomic_store_explicit(&gate.full, 1, memory_order_release);
        mw_futex_wake(&gate.full, 1);
    }
    while (atomic_load_explicit(&gate.open, memory_order_acquire) == 0)
        mw_futex_wait(&gate.open, 0, UINT64_MAX);
}

/* ---- batches of several producers ---- */

/* The calling thread is producer 0. */
static int start_crew(struct crew *crew, const struct scene *scene)
{
    static struct producer producers[PEER_PRODUCERS_MAX];
    int error;

    crew->scene = scene;
    error = pthread_barrier_init(&crew->barrier, NULL, scene->producers);
    for (unsigned i = 1; error == 0 && i < scene->producers; i++) {
        producers[i] = (struct producer){.crew = crew, .number = i};
        error = pthread_create(&crew->threads[i], NULL, produce, &producers[i]);
    }
    return -error;
}

static int crew_part(struct crew *crew, unsigned number)
{
    unsigned share = crew->count / crew->scene->producers;

    return submit_range(crew->scene, number, number * share, (number + 1) * share);
}

static int crew_batch(struct crew *crew, unsigned count, double *wall_ns, double *cpu)
{
    uint64_t begin_ns, begin_cpu_ns;
    int error;

    crew->count = count;
    batch_begin(count, false);
    begin_cpu_ns = cpu_ns();
    begin_ns = mw_clock_ns(); /* before the barrier: others may leave it first */
    pthread_barrier_wait(&crew->barrier);
    error = crew_part(crew, 0);
    if (error != 0)
        return error; /* the process ends; so do those that wait for more */
    batch_wait();
    *wall_ns = (double)(mw_clock_ns() - begin_ns);
    *cpu = (double)(cpu_ns() - begin_cpu_ns);
    error = settle(crew->scene);
    pthread_barrier_wait(&crew->barrier);
    return error != 0 ? error : atomic_load_explicit(&crew->error, memory_order_relaxed);
}

static void end_crew(struct crew *crew)
{
    crew->ends = true;
    pthread_barrier_wait(&crew->barrier);
    for (unsigned i = 1; i < crew->scene->producers; i++)
        pthread_join(crew->threads[i], NULL);
}

static void *produce(void *argument)
{
    const struct producer *producer = argument;
    struct crew *crew = producer->crew;
    const struct peer *peer = crew->scene->peer;

    for (;;) {
        int error;

        pthread_barrier_wait(&crew->barrier);
        if (crew->ends)
            return NULL;
        error = crew_part(crew, producer->number);
        if (error == 0) {
            batch_wait();
            error = peer->settle == NULL ? 0 : peer->settle(producer->number);
        }
        if (error != 0)
            atomic_store_explicit(&crew->error, error, memory_order_relaxed);
        pthread_barrier_wait(&crew->barrier);
    }
}

/* ---- clocks ---- */

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * MW_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* slots.c - seed 003: requests that block on a resource of 25 slots, 500 at once, 2,000 in all.
 *
 * 500 clients send one request after the other. A request takes a slot, holds it (the query), and
 * gives it back; like a driver of blocking calls it holds a worker from its start to its end. One
 * that has no slot when its connect time-out is over, counted from when its client sent it, fails.
 * All is the seed's at about a seventh of its time: it held a slot for 75 ms, with 15 s to
 * connect. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/lane.h>
#include <millwright/mutex.h>

#include "scene.h"
#include "table.h"

#define SLOTS            25u
#define CLIENTS_MAX      500u
#define CLIENTS_QUICK    20u
#define REQUESTS         4u /* of each client */
#define HOLD_MS          10u
#define CONNECT_PER_HOLD 200u /* the time-out */

enum { MANY_THREADS, DEFAULT, IO_POOL, MONITOR, COLUMNS };
enum { TIME, ERRORS, THREADS, KIB };

struct client {
    struct mw_pool_item item; /* without a lane */
    struct mw_job job;        /* with one */
    uint64_t sent_ns;
    unsigned left; /* requests */
};

static table_measure measure;
static struct scene_options options_of(unsigned column);
static int slots_init(void);
static void send_request(struct client *client);
static void serve(struct client *client);
static bool take_slot(uint64_t deadline_ns);
static void give_slot(void);
static void next_request(struct client *client);
static void run_item(struct mw_pool_item *item);
static int run_job(struct mw_job *job);
static void job_done(struct mw_job *job, int status);

static struct client clients[CLIENTS_MAX];
static struct mw_lane *lane; /* NULL: requests go straight to the pool */
static struct mw_mutex lock;
static struct mw_cond given;
static unsigned free_slots MW_GUARDED_BY(lock);
static _Atomic unsigned errors; /* relaxed: a count */
static _Atomic unsigned left;   /* clients that have not ended; relaxed but for the semaphore */
static sem_t all_ended;

const struct table slots_table = {
    .name = "slots",
    .title = "Seed 003: 2,000 requests, 500 at once, that block on a resource of 25 slots",
    .measure = measure,
    .rounds = 1,
    .cold = true,
    .group_count = 1,
    .column_count = COLUMNS,
    .ours = IO_POOL,
    .columns = {"minimum 500", "default", "IO pool", "monitor"},
    .rows = {{"time", "ms", 0, TIME, TABLE_MEDIAN, {"6200", "ended or errors", "6000", NULL}},
             {"errors", "", 0, ERRORS, TABLE_MAX, {"0", "most runs", "0", NULL}},
             {"threads of the process",
              "",
              0,
              THREADS,
              TABLE_MAX,
              {"386 to 425", NULL, "38 to 39", NULL}},
             {"resident memory, growth", "KiB", 0, KIB, TABLE_MEDIAN, {NULL}}},
    .ratios = {{"time, IO pool / minimum 500", 0, IO_POOL, MANY_THREADS, false, 0, 1.05, "0.97"},
               {"threads, IO pool / minimum 500", 2, IO_POOL, MANY_THREADS, false, 0, 0.1, "0.1"}},
    .note =
        "A slot is held for 10 ms; a request without one after 2 s fails. IO pool: a lane of cap\n"
        "25 over a pool with a minimum of 25 + CPUs. Default: a minimum of one thread for each\n"
        "CPU; monitor: the same with the monitor. The seed's default: 600 requests in 26 runs,\n"
        "of which 17 ended the process, 4 gave errors and 5 were clean.",
};

static int measure(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    unsigned count = cell->quick ? CLIENTS_QUICK : CLIENTS_MAX;
    struct scene_options options = options_of(cell->column);
    struct mw_lane_options io = {.name = "io", .runner = MW_LANE_POOL, .cap = SLOTS};
    double resident = scene_resident_kib();
    struct scene_use before;
    int error = slots_init();

    if (error == 0)
        error = scene_open(&options);
    io.pool = scene.pool;
    if (error == 0 && cell->column == IO_POOL)
        error = mw_lane_new(&lane, &io);
    if (error != 0)
        return error;
    atomic_init(&left, count);
    before = scene_use();
    for (unsigned i = 0; i < count; i++) {
        clients[i] = (struct client){
            .item = {.fn = run_item}, .job = {.fn = run_job, .done = job_done}, .left = REQUESTS};
        send_request(&clients[i]);
    }
    while (sem_wait(&all_ended) != 0)
        ;
    values[TIME] = scene_ms(scene_use().wall_ns - before.wall_ns);
    values[ERRORS] = atomic_load_explicit(&errors, memory_order_relaxed);
    values[THREADS] = scene_process_threads();
    values[KIB] = scene_resident_kib() - resident;
    return 0;
}

static struct scene_options options_of(unsigned column)
{
    struct scene_options options = {.monitored = column == MONITOR};

    if (column == MANY_THREADS)
        options.min_threads = options.max_threads = CLIENTS_MAX;
    else if (column == IO_POOL)
        options.min_threads = SLOTS + mw_cpus_effective();
    return options;
}

static int slots_init(void)
{
    int error = mw_mutex_init(&lock);

    if (error == 0)
        error = mw_cond_init(&given);
    mw_mutex_lock(&lock);
    free_slots = SLOTS;
    mw_mutex_unlock(&lock);
    sem_init(&all_ended, 0, 0);
    return error;
}

static void send_request(struct client *client)
{
    client->sent_ns = mw_clock_ns();
    if (lane == NULL)
        scene_submit(&client->item);
    else if (mw_lane_submit(lane, &client->job) != 0)
        _exit(EAGAIN); /* child.c tells of it */
}

static void serve(struct client *client)
{
    if (take_slot(client->sent_ns + HOLD_MS * CONNECT_PER_HOLD * MW_NS_PER_MS)) {
        scene_sleep_ms(HOLD_MS);
        give_slot();
    } else {
        atomic_fetch_add_explicit(&errors, 1, memory_order_relaxed);
    }
}

static bool take_slot(uint64_t deadline_ns)
{
    bool in_time = mw_clock_ns() < deadline_ns;

    mw_mutex_lock(&lock);
    while (free_slots == 0 && in_time)
        in_time = mw_cond_wait_until(&given, &lock, deadline_ns);
    if (in_time)
        free_slots--;
    mw_mutex_unlock(&lock);
    return in_time;
}

static void give_slot(void)
{
    mw_mutex_lock(&lock);
    free_slots++;
    mw_cond_signal(&given);
    mw_mutex_unlock(&lock);
}

static void next_request(struct client *client)
{
    if (--client->left > 0)
        send_request(client);
    else if (atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) == 1)
        sem_post(&all_ended);
}

static void run_item(struct mw_pool_item *item)
{
    struct client *client = (struct client *)item;

    serve(client);
    next_request(client);
}

static int run_job(struct mw_job *job)
{
    serve((struct client *)((char *)job - offsetof(struct client, job)));
    return 0;
}

static void job_done(struct mw_job *job, int status)
{
    (void)status;
    next_request((struct client *)((char *)job - offsetof(struct client, job)));
}

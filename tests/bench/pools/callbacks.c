/* callbacks.c - seed 001: a runner's callbacks behind its own blocked workers.
 *
 * For each test host a waiter on the pool starts it and blocks until it is through. What comes from
 * the hosts is seen by a loop on a thread of its own, but handled by items of the same pool: the
 * accepted connection, and each message, which goes on to the reader over one channel under a
 * lock. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/mutex.h>
#include <millwright/thread.h>

#include "hosts.h"
#include "scene.h"
#include "table.h"

#define RESULTS       250000u /* of all hosts */
#define RESULTS_QUICK 2500u
#define EVENTS        16

enum { SMALL, LARGE, MONITOR, COLUMNS };
enum { MEDIAN, WORST, THREADS };
enum { TOTAL };

struct waiter {
    struct mw_pool_item item;
    unsigned index;
    sem_t released;
};

struct connection {
    struct mw_pool_item item;
    int fd;
    unsigned index;       /* of the host, once it has said hello */
    _Atomic bool awaited; /* released by the item, acquired by the loop that queues it again; the
                             kernel orders them too, which ThreadSanitizer does not see */
    struct host_message message;
};

static table_measure measure_connect, measure_batch;
static int run(const struct table_cell *cell, unsigned results, unsigned batch, double *total_ms);
static int start_loop(void);
static void run_loop(void *unused);
static void accept_host(unsigned index);
static void await(struct connection *connection, int operation);
static void run_waiter(struct mw_pool_item *item);
static void run_accepted(struct mw_pool_item *item);
static void run_message(struct mw_pool_item *item);

static struct hosts hosts;
static struct waiter waiters[HOSTS_MAX];
static struct connection connections[HOSTS_MAX];
static double accepted_ms[HOSTS_MAX]; /* published by the waiters' semaphores, then by all_ended */
static int events;
static struct mw_mutex channel; /* guards what is written to the reader */
static sem_t all_ended;         /* one post of each waiter */

const struct table connect_table = {
    .name = "connect",
    .title = "Seed 001: from a host's connect to the accepted callback, while its waiter blocks",
    .measure = measure_connect,
    .rounds = 1,
    .cold = true,
    .group_count = 1,
    .column_count = COLUMNS,
    .ours = MONITOR,
    .columns = {"CPUs", "5 x CPUs", "CPUs, monitor"},
    .rows =
        {{"median", "ms", 0, MEDIAN, TABLE_MEDIAN, {NULL}},
         {"worst of a run", "ms", 0, WORST, TABLE_MEDIAN, {"to 3000-4000", "close to 250", NULL}},
         {"threads, most", "", 0, THREADS, TABLE_MAX, {NULL}}},
    .ratios = {{"worst, 5 x CPUs / CPUs", 1, LARGE, SMALL, false, 0, 0, "0.07"},
               {"worst, monitor / CPUs", 1, MONITOR, SMALL, false, 0, 0, NULL}},
    .note = "4 hosts for each CPU. The columns are the pool's minimum. The seed measured from the\n"
            "start of the waiter: 250 ms of it are the host's own start-up.",
};

const struct table batch_table = {
    .name = "batch",
    .title = "Seed 001: 250,000 results through one channel, by results per message",
    .measure = measure_batch,
    .rounds = 1,
    .cold = true,
    .group_count = 3,
    .column_count = COLUMNS,
    .ours = LARGE,
    .columns = {"small pool", "large pool", "small, monitor"},
    .rows = {{"10 a message", "ms", 0, TOTAL, TABLE_MEDIAN, {"47000", "45000", NULL}},
             {"100 a message", "ms", 1, TOTAL, TABLE_MEDIAN, {NULL}},
             {"1,000 a message", "ms", 2, TOTAL, TABLE_MEDIAN, {"44000", "34000", NULL}}},
    .ratios = {{"10, large / small", 0, LARGE, SMALL, false, 0, 0, "0.96"},
               {"1,000, large / small", 2, LARGE, SMALL, false, 0, 0, "0.77"}},
    .note =
        "100 bytes each, from 4 hosts for each CPU. Small: a minimum of one thread for each CPU;\n"
        "large: 5. The seed's 250,000 results are the discovery of real tests.",
};

static int measure_connect(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    double total_ms;
    int error = run(cell, 0, 1, &total_ms);

    values[MEDIAN] = bench_quantile(accepted_ms, hosts.count, 0.5);
    values[WORST] = bench_quantile(accepted_ms, hosts.count, 1);
    values[THREADS] = error == 0 ? scene_threads() : 0;
    return error;
}

static int measure_batch(const struct table_cell *cell, double values[BENCH_VALUES_MAX])
{
    static const unsigned batches[] = {10, 100, 1000};

    return run(cell, cell->quick ? RESULTS_QUICK : RESULTS, batches[cell->group], &values[TOTAL]);
}

static int run(const struct table_cell *cell, unsigned results, unsigned batch, double *total_ms)
{
    unsigned count = cell->quick ? mw_cpus_effective() : scene_limit();
    struct scene_options options = {
        .monitored = cell->column == MONITOR,
        .min_threads = cell->column == LARGE ? 5 * mw_cpus_effective() : 0,
    };
    struct scene_use before;
    int error;

    hosts.count = count < HOSTS_MAX ? count : HOSTS_MAX;
    hosts.results = results / hosts.count;
    hosts.batch = batch;
    error = hosts_start(&hosts);
    if (error == 0)
        error = scene_open(&options);
    if (error == 0)
        error = start_loop();
    if (error != 0)
        return error;
    sem_init(&all_ended, 0, 0);
    before = scene_use();
    for (unsigned i = 0; i < hosts.count; i++) {
        waiters[i].item.fn = run_waiter;
        waiters[i].index = i;
        sem_init(&waiters[i].released, 0, 0);
        scene_submit(&waiters[i].item);
    }
    for (unsigned i = 0; i < hosts.count;)
        i += sem_wait(&all_ended) == 0;
    hosts_finish(&hosts);
    *total_ms = scene_ms(scene_use().wall_ns - before.wall_ns);
    mw_monitor_free(scene.monitor);
    return 0;
}

/* ---- the loop ---- */

static int start_loop(void)
{
    static struct mw_thread thread;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}; /* NULL: the listener */
    int error = mw_mutex_init(&channel);

    events = epoll_create1(EPOLL_CLOEXEC);
    if (events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, hosts.listener, &event) != 0)
        return -errno;
    if (error == 0)
        error =
            mw_thread_start(&thread, &(struct mw_thread_options){.name = "loop"}, run_loop, NULL);
    return error;
}

static void run_loop(void *unused)
{
    struct epoll_event ready[EVENTS];
    unsigned accepted = 0;

    (void)unused;
    for (;;) {
        int count = epoll_wait(events, ready, EVENTS, -1);

        for (int i = 0; i < count; i++) {
            struct connection *connection = ready[i].data.ptr;

            if (connection == NULL)
                accept_host(accepted++);
            else if (atomic_load_explicit(&connection->awaited, memory_order_acquire))
                scene_submit(&connection->item);
        }
    }
}

static void accept_host(unsigned index)
{
    struct connection *connection = &connections[index];

    connection->fd = accept4(hosts.listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection->fd < 0)
        _exit(errno);
    connection->item.fn = run_accepted;
    scene_submit(&connection->item);
}

/* Have the loop queue the item when there is something to read, once. */
static void await(struct connection *connection, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = connection};

    atomic_store_explicit(&connection->awaited, true, memory_order_release);
    if (epoll_ctl(events, operation, connection->fd, &event) != 0)
        _exit(errno);
}

/* ---- on the pool ---- */

static void run_waiter(struct mw_pool_item *item)
{
    struct waiter *waiter = (struct waiter *)item;

    hosts_go(waiter->index);
    while (sem_wait(&waiter->released) != 0)
        ;
    sem_post(&all_ended);
}

static void run_accepted(struct mw_pool_item *item)
{
    struct connection *connection = (struct connection *)item;
    struct host_hello hello;

    hosts_read(connection->fd, &hello, sizeof hello);
    accepted_ms[hello.index] = scene_ms(mw_clock_ns() - hello.connect_ns);
    connection->index = hello.index;
    connection->item.fn = run_message;
    if (hosts.results == 0)
        sem_post(&waiters[hello.index].released);
    else
        await(connection, EPOLL_CTL_ADD);
}

static void run_message(struct mw_pool_item *item)
{
    struct connection *connection = (struct connection *)item;

    hosts_read_message(connection->fd, &connection->message);
    if (connection->message.bytes == 0) {
        sem_post(&waiters[connection->index].released);
        return;
    }
    mw_mutex_lock(&channel);
    hosts_write_message(hosts.reader, &connection->message);
    mw_mutex_unlock(&channel);
    await(connection, EPOLL_CTL_MOD);
}

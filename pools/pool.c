/* A worker is idle (parked on its own condition variable, newest on top), or *coming* (woken or
 * started, or about to return from an item that yielded, and not yet back at the queue), or busy.
 * Coming workers are promised: each stands for one item, so two items never rely on the same one.
 *
 * Invariants, whenever the lock is free (pool_check):
 *  1. pending <= coming, or nobody is idle: an item that waits has a worker coming, or all of
 *     them are busy and look at the queue again when they are done.
 *  2. pending > 0 only while threads > 0: a queued item always has somebody to run it.
 *  3. idle + coming <= threads <= max_threads; pending <= queue_max.
 *  4. `ended` is the one thread that has left and was not joined; each thread that leaves joins
 *     the one before it, so submitters never wait for a thread to end. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "cpus.h"
#include "flow.h"
#include "mutex.h"
#include "pool.h"
#include "process.h"
#include "thread.h"

struct worker {
    struct mw_pool *pool; /* immutable */
    /* guarded by the pool's lock */
    struct worker *next; /* in `idle` or in `unused` */
    struct mw_thread thread;
    struct mw_cond wake; /* signalled when `woken` is set or the pool closes */
    bool woken;
    bool slow;    /* less urgent than the process's first thread, see worker_is_slow */
    bool yielded; /* the item that it runs has called mw_pool_yield */
};

struct mw_pool {
    /* immutable */
    struct mw_pool_options limits; /* with the defaults filled in */
    unsigned generation;           /* of the process that made it */

    struct mw_mutex lock; /* guards all below, and the workers' fields */
    struct mw_pool_item *head;
    struct mw_pool_item *tail;
    struct worker *idle;   /* parked, newest first */
    struct worker *unused; /* slots that no thread uses */
    unsigned idlers;
    unsigned pending;
    unsigned threads;
    unsigned busy;
    unsigned coming;
    bool closing;
    bool has_ended;
    struct mw_thread ended;
    struct mw_cond empty; /* signalled when `threads` becomes 0 */
    uint64_t completed;
    uint64_t rejected;
    uint64_t start_failures;

    struct worker workers[]; /* max_threads slots */
};

/* The worker that the calling thread is; NULL on other threads. */
static _Thread_local struct worker *self;

static bool is_foreign(const struct mw_pool *pool);
static int limits_fill(struct mw_pool_options *limits, const struct mw_pool_options *options);
static int workers_init(struct mw_pool *pool);
static void workers_fini(struct mw_pool *pool, unsigned count);
static int worker_bring(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static int worker_start(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void worker_main(void *arg);
static bool worker_is_slow(void);
static bool worker_park(struct mw_pool *pool, struct worker *worker) MW_REQUIRES(pool->lock);
static void worker_unlist(struct mw_pool *pool, struct worker *worker) MW_REQUIRES(pool->lock);
static bool worker_leave(struct mw_pool *pool, struct worker *worker, struct mw_thread *before)
    MW_REQUIRES(pool->lock);
static void item_push(struct mw_pool *pool, struct mw_pool_item *item) MW_REQUIRES(pool->lock);
static void item_run(struct mw_pool *pool, struct worker *worker) MW_REQUIRES(pool->lock);
static void pool_check(const struct mw_pool *pool) MW_REQUIRES(pool->lock);

int mw_pool_new(struct mw_pool **out, const struct mw_pool_options *options)
{
    struct mw_pool_options limits;
    struct mw_pool *pool;
    int error = limits_fill(&limits, options);

    if (error != 0)
        return error;
    if (mw_process_watch() != 0)
        return -ENOMEM;
    pool = calloc(1, sizeof *pool + limits.max_threads * sizeof *pool->workers);
    if (pool == NULL)
        return -ENOMEM;
    pool->limits = limits;
    pool->generation = mw_process_generation();
    error = mw_mutex_init(&pool->lock);
    if (error != 0)
        goto no_lock;
    error = mw_cond_init(&pool->empty);
    if (error != 0)
        goto no_cond;
    error = workers_init(pool);
    if (error != 0)
        goto no_workers;
    *out = pool;
    return 0;

no_workers:
    mw_cond_fini(&pool->empty);
no_cond:
    mw_mutex_fini(&pool->lock);
no_lock:
    free(pool);
    return error;
}

void mw_pool_free(struct mw_pool *pool)
{
    struct mw_thread ended;
    bool has_ended;

    if (pool == NULL || is_foreign(pool))
        return; /* its workers and whoever held its lock are not in this process: leave it */
    assert(self == NULL || self->pool != pool);
    mw_mutex_lock(&pool->lock);
    pool->closing = true;
    for (struct worker *worker = pool->idle; worker != NULL; worker = worker->next)
        mw_cond_signal(&worker->wake);
    while (pool->threads > 0)
        mw_cond_wait(&pool->empty, &pool->lock);
    pool_check(pool);
    has_ended = pool->has_ended;
    ended = pool->ended;
    mw_mutex_unlock(&pool->lock);

    if (has_ended)
        mw_thread_join(&ended); /* which has joined the one before it, and so on */
    workers_fini(pool, pool->limits.max_threads);
    mw_cond_fini(&pool->empty);
    mw_mutex_fini(&pool->lock);
    free(pool);
}

int mw_pool_submit(struct mw_pool *pool, struct mw_pool_item *item)
{
    int error = 0;

    assert(item->fn != NULL);
    if (is_foreign(pool))
        return -EOWNERDEAD;
    mw_mutex_lock(&pool->lock);
    if (pool->pending == pool->limits.queue_max ||
        (worker_bring(pool) != 0 && pool->threads == 0)) {
        pool->rejected++;
        error = -EAGAIN;
    } else {
        item_push(pool, item);
    }
    pool_check(pool);
    mw_mutex_unlock(&pool->lock);
    return error;
}

int mw_pool_yield(struct mw_pool *pool, struct mw_pool_item *item)
{
    int error = 0;

    assert(item->fn != NULL);
    assert(self != NULL && self->pool == pool);
    mw_mutex_lock(&pool->lock);
    assert(!self->yielded);
    if (pool->pending == pool->limits.queue_max) {
        pool->rejected++;
        error = -EAGAIN;
    } else {
        self->yielded = true;
        pool->coming++;
        item_push(pool, item);
    }
    pool_check(pool);
    mw_mutex_unlock(&pool->lock);
    return error;
}

void mw_pool_snapshot(struct mw_pool *pool, struct mw_pool_stats *stats)
{
    uint64_t now;

    *stats = (struct mw_pool_stats){0};
    if (is_foreign(pool))
        return;
    mw_mutex_lock(&pool->lock);
    now = mw_clock_ns();
    *stats = (struct mw_pool_stats){
        .threads = pool->threads,
        .busy = pool->busy,
        .min_threads = pool->limits.min_threads,
        .max_threads = pool->limits.max_threads,
        .pending = pool->pending,
        .queue_max = pool->limits.queue_max,
        .completed = pool->completed,
        .rejected = pool->rejected,
        .start_failures = pool->start_failures,
        .oldest_pending_ns = pool->head != NULL ? now - pool->head->queued_ns : 0,
    };
    mw_mutex_unlock(&pool->lock);
}

/* Made by a process of which this one is a forked child. */
static bool is_foreign(const struct mw_pool *pool)
{
    return pool->generation != mw_process_generation();
}

static int limits_fill(struct mw_pool_options *limits, const struct mw_pool_options *options)
{
    *limits = options != NULL ? *options : (struct mw_pool_options){0};
    if (limits->max_threads == 0)
        limits->max_threads = MW_POOL_MAX_THREADS_DEFAULT;
    if (limits->max_threads > MW_POOL_MAX_THREADS_LIMIT)
        return -EINVAL;
    if (limits->min_threads > limits->max_threads)
        return -EINVAL;
    if (limits->min_threads == 0) {
        unsigned cpus = mw_cpus_effective();

        limits->min_threads = cpus < limits->max_threads ? cpus : limits->max_threads;
    }
    if (limits->queue_max == 0)
        limits->queue_max = MW_POOL_QUEUE_MAX_DEFAULT;
    if (limits->idle_ms == 0)
        limits->idle_ms = MW_POOL_IDLE_MS_DEFAULT;
    return 0;
}

/* The pool is still private to its maker: nothing here needs the lock. */
static int workers_init(struct mw_pool *pool)
{
    for (unsigned i = 0; i < pool->limits.max_threads; i++) {
        struct worker *worker = &pool->workers[i];
        int error = mw_cond_init(&worker->wake);

        if (error != 0) {
            workers_fini(pool, i);
            return error;
        }
        worker->pool = pool;
        worker->next = pool->unused;
        pool->unused = worker;
    }
    return 0;
}

static void workers_fini(struct mw_pool *pool, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        mw_cond_fini(&pool->workers[i].wake);
}

/* See that somebody comes for one item more than is queued. */
static int worker_bring(struct mw_pool *pool)
{
    struct worker *worker = pool->idle;

    if (pool->pending < pool->coming)
        return 0;
    if (worker != NULL) {
        worker_unlist(pool, worker);
        worker->woken = true;
        pool->coming++;
        mw_cond_signal(&worker->wake);
        return 0;
    }
    return pool->threads < pool->limits.max_threads ? worker_start(pool) : 0;
}

/* The thread is started under the lock, so that nobody can queue an item on the strength of a
 * worker that then fails to start. */
static int worker_start(struct mw_pool *pool)
{
    struct mw_thread_options options = {.kind = MW_THREAD_POOL,
                                        .stack_bytes = pool->limits.stack_bytes};
    struct worker *worker = pool->unused;
    int error;

    assert(worker != NULL);
    worker->woken = false;
    error = mw_thread_start(&worker->thread, &options, worker_main, worker);
    if (error != 0) {
        pool->start_failures++;
        return error;
    }
    pool->unused = worker->next;
    pool->threads++;
    pool->coming++;
    return 0;
}

static void worker_main(void *arg)
{
    struct worker *worker = arg;
    struct mw_pool *pool = worker->pool;
    struct mw_thread before;
    bool has_before;
    bool slow;

    self = worker;
    slow = worker_is_slow();
    mw_mutex_lock(&pool->lock);
    worker->slow = slow;
    do {
        pool->coming--;
        while (pool->head != NULL)
            item_run(pool, worker);
    } while (worker_park(pool, worker));
    has_before = worker_leave(pool, worker, &before);
    mw_mutex_unlock(&pool->lock);
    if (has_before)
        mw_thread_join(&before);
}

/* A worker that a lane's thread had to start (from done(), say) inherits that thread's policy and
 * nice value, and without privilege cannot raise itself. It serves the moment's need; then it
 * leaves rather than park, so that a pool never fills up with workers that run only when nobody
 * else does. */
static bool worker_is_slow(void)
{
    if (sched_getscheduler(0) == SCHED_IDLE && sched_getscheduler(getpid()) != SCHED_IDLE)
        return true;
    return getpriority(PRIO_PROCESS, (id_t)gettid()) > getpriority(PRIO_PROCESS, (id_t)getpid());
}

/* Wait for work. Returns false when this worker should leave. */
static bool worker_park(struct mw_pool *pool, struct worker *worker)
{
    uint64_t deadline = mw_clock_ns() + pool->limits.idle_ms * MW_NS_PER_MS;
    bool in_time = true;

    if (pool->closing || worker->slow)
        return false;
    worker->woken = false;
    worker->next = pool->idle;
    pool->idle = worker;
    pool->idlers++;
    while (!worker->woken && !pool->closing && in_time) {
        if (pool->threads > pool->limits.min_threads)
            in_time = mw_cond_wait_until(&worker->wake, &pool->lock, deadline);
        else
            mw_cond_wait(&worker->wake, &pool->lock);
        if (pool->threads <= pool->limits.min_threads)
            in_time = true; /* another one left first */
    }
    if (worker->woken)
        return true;
    worker_unlist(pool, worker);
    return false;
}

static void worker_unlist(struct mw_pool *pool, struct worker *worker)
{
    struct worker **link = &pool->idle;

    while (*link != worker)
        link = &(*link)->next;
    *link = worker->next;
    worker->next = NULL;
    pool->idlers--;
}

/* Give the slot back and take the place of the last thread that left. Returns true, and that
 * thread in `before`, when there is one to join. */
static bool worker_leave(struct mw_pool *pool, struct worker *worker, struct mw_thread *before)
{
    bool has_before = pool->has_ended;

    *before = pool->ended;
    pool->ended = worker->thread;
    pool->has_ended = true;
    worker->next = pool->unused;
    pool->unused = worker;
    pool->threads--;
    if (pool->threads == 0)
        mw_cond_broadcast(&pool->empty);
    pool_check(pool);
    return has_before;
}

static void item_push(struct mw_pool *pool, struct mw_pool_item *item)
{
    item->next = NULL;
    item->leaf = mw_flow_current();
    item->queued_ns = mw_clock_ns();
    if (pool->head == NULL)
        pool->head = item;
    else
        pool->tail->next = item;
    pool->tail = item;
    pool->pending++;
}

/* Run the oldest item; the lock is free meanwhile. */
static void item_run(struct mw_pool *pool, struct worker *worker)
{
    struct mw_pool_item *item = pool->head;
    uint64_t leaf = item->leaf;
    uint64_t before;

    pool->head = item->next;
    pool->pending--;
    pool->busy++;
    mw_mutex_unlock(&pool->lock);

    mw_flow_arrive(leaf);
    before = mw_flow_enter(leaf);
    item->fn(item); /* the item is the caller's again */
    mw_flow_enter(before);

    mw_mutex_lock(&pool->lock);
    pool->busy--;
    pool->completed++;
    if (worker->yielded) {
        worker->yielded = false;
        pool->coming--;
    }
}

static void pool_check(const struct mw_pool *pool)
{
    assert(pool->pending <= pool->coming || pool->idle == NULL);
    assert(pool->pending == 0 || pool->threads > 0);
    assert(pool->idlers + pool->coming <= pool->threads);
    assert(pool->threads <= pool->limits.max_threads);
    assert(pool->pending <= pool->limits.queue_max);
    assert((pool->pending == 0) == (pool->head == NULL));
}

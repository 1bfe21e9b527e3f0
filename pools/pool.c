/* A worker is *parked* (on the event count, newest on top), or *awake*: inside an item (busy), or
 * on its way to the queue. No more are awake than the goal allows (pool_growth.h): it is the
 * ceiling of seed 004, kept here rather than in the event count, for it moves with what blocks, and
 * whoever brings a worker must know whether one comes.
 *
 * One wake is in flight at a time (`coming`): whoever brings a worker, by a wake or by a start,
 * brings one, and that one brings the next when it has taken its item. A worker that is about to
 * return from an item that yielded comes to the queue as well, without being brought (`yielding`).
 *
 * What waits although the goal is reached waits for a worker to come back. In case none does, there
 * is the gate: a thread that raises the goal by one when nothing was taken for MW_POOL_GATE_MS, or
 * when a blocked worker's step is due (pool_growth.h). It also tries again when a thread could not
 * be started. It is started when work waits in this way, and ends when there was no need for it
 * for GATE_ROUNDS_IDLE of its periods.
 *
 * Invariants, whenever the lock is free (pool_check):
 *  1. An item waits only while somebody comes for it (pending <= yielding, or `coming`), or as many
 *     are awake as may be, or none is parked and the system has refused to start one.
 *  2. pending > 0 only while threads > 0: a queued item always has somebody to run it.
 *  3. parked + busy <= threads <= max_threads; pending <= queue_max.
 *  4. `ended` is the one thread that has left and was not joined; each thread that leaves joins
 *     the one before it, so submitters never wait for a thread to end. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "cpus.h"
#include "event_count.h"
#include "flow.h"
#include "futex.h"
#include "mutex.h"
#include "pool.h"
#include "pool_growth.h"
#include "process.h"
#include "thread.h"

#define GATE_ROUNDS_IDLE 4u

struct worker {
    struct mw_pool *pool; /* immutable */
    /* owned by the worker's thread */
    struct mw_event_waiter waiter;
    unsigned blocks; /* mw_block_begin without its mw_block_end */
    bool slow;       /* less urgent than the process's first thread, see is_slow */
    bool awaited;    /* it was `coming` when it was started; set before its thread is there */
    /* guarded by the pool's lock */
    struct worker *next; /* in `unused` */
    struct mw_thread thread;
    bool yielded; /* the item that it runs has called mw_pool_yield */
};

/* What a snapshot shows: written under the lock by pool_unlock, read without it. Each is a number
 * of its own (relaxed, no partner), but that `pending` is written last and read first, and `busy`
 * next to it (release, and acquire in the snapshot): so an item that a worker takes meanwhile shows
 * in one of them at least, and one that is neither is completed. In the same way `min_changes` is
 * written after `min_threads` and read before it: who knows a change knows what it set. */
struct shown {
    _Atomic unsigned threads;
    _Atomic unsigned busy;
    _Atomic unsigned blocked;
    _Atomic unsigned min_threads;
    _Atomic uint64_t min_changes;
    _Atomic unsigned pending;
    _Atomic uint64_t completed;
    _Atomic uint64_t rejected;
    _Atomic uint64_t injected;
    _Atomic uint64_t start_failures;
    _Atomic uint64_t oldest_ns; /* when the item that waits longest was queued; 0: none waits */
};

struct mw_pool {
    /* immutable */
    unsigned queue_max;
    uint64_t idle_ns;
    size_t stack_bytes;
    unsigned generation; /* of the process that made it */

    struct mw_event_count sleepers; /* its lock comes after the pool's */
    struct shown shown;

    struct mw_mutex lock; /* guards all below, and the workers' fields */
    struct mw_pool_item *head;
    struct mw_pool_item *tail;
    struct growth growth;
    struct worker *unused; /* slots that no thread uses */
    unsigned threads;
    unsigned parked;
    unsigned busy;
    unsigned pending;
    unsigned yielding;
    bool coming; /* a worker was woken or started, and is not at the queue yet */
    bool called; /* it is one of those parked, and none has taken the call up yet */
    bool closing;
    bool has_ended;
    struct mw_thread ended;
    struct mw_cond empty;      /* signalled when no worker is left, or no gate */
    _Atomic uint32_t *to_wake; /* by pool_unlock; NULL: nobody */
    uint64_t taken_ns; /* when an item was last taken while others waited, or the gate acted */
    uint64_t completed;
    uint64_t rejected;
    uint64_t injected;
    uint64_t start_failures;
    uint64_t min_changes; /* since it was made */

    bool gate_alive;
    struct mw_thread gate;
    struct mw_cond gate_call; /* signalled when the gate should look before `gate_until_ns` */
    uint64_t gate_until_ns;

    struct worker workers[]; /* max_threads slots */
};

/* The worker that the calling thread is; NULL on other threads. */
static _Thread_local struct worker *self;

static bool is_foreign(const struct mw_pool *pool);
static int limits_fill(struct mw_pool_options *limits, const struct mw_pool_options *options);
static int locks_init(struct mw_pool *pool, unsigned max_threads);
static void locks_fini(struct mw_pool *pool);
static int min_change(struct mw_pool *pool, const uint64_t *min_changes, unsigned min_threads,
                      unsigned *before);
static bool is_slow(void);

static void worker_bring(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static int worker_start(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void worker_main(void *arg);
static bool worker_may_take(const struct mw_pool *pool) MW_REQUIRES(pool->lock);
static bool worker_park(struct mw_pool *pool, struct worker *worker) MW_REQUIRES(pool->lock);
static bool worker_sleep(struct mw_pool *pool, struct worker *worker, uint64_t deadline_ns)
    MW_REQUIRES(pool->lock);
static bool worker_leave(struct mw_pool *pool, struct worker *worker, struct mw_thread *before)
    MW_REQUIRES(pool->lock);
static bool thread_end(struct mw_pool *pool, const struct mw_thread *thread,
                       struct mw_thread *before) MW_REQUIRES(pool->lock);

static void item_push(struct mw_pool *pool, struct mw_pool_item *item) MW_REQUIRES(pool->lock);
static struct mw_pool_item *item_pop(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void item_run(struct mw_pool *pool, struct worker *worker) MW_REQUIRES(pool->lock);

static bool gate_is_needed(const struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void gate_call(struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void gate_main(void *arg);
static uint64_t gate_due(const struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void gate_act(struct mw_pool *pool, uint64_t now) MW_REQUIRES(pool->lock);

static unsigned awake(const struct mw_pool *pool) MW_REQUIRES(pool->lock);
static void pool_unlock(struct mw_pool *pool) MW_RELEASE(pool->lock);
static void pool_show(struct mw_pool *pool) MW_REQUIRES(pool->lock);
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
    error = locks_init(pool, limits.max_threads);
    if (error != 0) {
        free(pool);
        return error;
    }
    pool->queue_max = limits.queue_max;
    pool->idle_ns = limits.idle_ms * MW_NS_PER_MS;
    pool->stack_bytes = limits.stack_bytes;
    pool->generation = mw_process_generation();
    pool->growth = (struct growth){
        .min = limits.min_threads, .max = limits.max_threads, .cpus = mw_cpus_effective()};
    for (unsigned i = 0; i < limits.max_threads; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].next = pool->unused;
        pool->unused = &pool->workers[i];
    }
    mw_mutex_lock(&pool->lock);
    pool_unlock(pool); /* which shows it to snapshots */
    *out = pool;
    return 0;
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
    mw_event_count_notify_all(&pool->sleepers);
    mw_cond_signal(&pool->gate_call);
    while (pool->threads > 0 || pool->gate_alive)
        mw_cond_wait(&pool->empty, &pool->lock);
    has_ended = pool->has_ended;
    ended = pool->ended;
    pool_unlock(pool);

    if (has_ended)
        mw_thread_join(&ended); /* which has joined the one before it, and so on */
    locks_fini(pool);
    free(pool);
}

int mw_pool_submit(struct mw_pool *pool, struct mw_pool_item *item)
{
    int error = 0;

    assert(item->fn != NULL);
    if (is_foreign(pool))
        return -EOWNERDEAD;
    mw_mutex_lock(&pool->lock);
    if (pool->pending == pool->queue_max || (pool->threads == 0 && worker_start(pool) != 0)) {
        pool->rejected++;
        error = -EAGAIN;
    } else {
        item_push(pool, item);
        worker_bring(pool);
    }
    pool_unlock(pool);
    return error;
}

int mw_pool_yield(struct mw_pool *pool, struct mw_pool_item *item)
{
    int error = 0;

    assert(item->fn != NULL);
    assert(self != NULL && self->pool == pool);
    mw_mutex_lock(&pool->lock);
    assert(!self->yielded);
    if (pool->pending == pool->queue_max) {
        pool->rejected++;
        error = -EAGAIN;
    } else {
        self->yielded = true;
        pool->yielding++;
        item_push(pool, item);
    }
    pool_unlock(pool);
    return error;
}

int mw_pool_set_min(struct mw_pool *pool, unsigned min_threads, unsigned *before)
{
    return min_change(pool, NULL, min_threads, before);
}

int mw_pool_replace_min(struct mw_pool *pool, uint64_t min_changes, unsigned min_threads,
                        unsigned *before)
{
    return min_change(pool, &min_changes, min_threads, before);
}

void mw_block_begin(void)
{
    struct mw_pool *pool;
    uint64_t leaf;

    if (self == NULL || is_foreign(self->pool) || self->blocks++ > 0)
        return;
    pool = self->pool;
    leaf = mw_flow_enter(0); /* a thread that is started now is the pool's, not the leaf's */
    mw_mutex_lock(&pool->lock);
    growth_block(&pool->growth, pool->threads, mw_clock_ns());
    worker_bring(pool);
    pool_unlock(pool);
    mw_flow_enter(leaf);
}

void mw_block_end(void)
{
    struct mw_pool *pool;

    if (self == NULL || is_foreign(self->pool))
        return;
    assert(self->blocks > 0);
    if (--self->blocks > 0)
        return;
    pool = self->pool;
    mw_mutex_lock(&pool->lock);
    growth_unblock(&pool->growth);
    pool_unlock(pool);
}

void mw_pool_snapshot(struct mw_pool *pool, struct mw_pool_stats *stats)
{
    const struct shown *shown = &pool->shown;
    uint64_t min_changes;
    uint64_t oldest_ns;
    unsigned pending;
    unsigned busy;
    uint64_t now;

    *stats = (struct mw_pool_stats){0};
    if (is_foreign(pool))
        return;
    pending = atomic_load_explicit(&shown->pending, memory_order_acquire);
    busy = atomic_load_explicit(&shown->busy, memory_order_acquire);
    min_changes = atomic_load_explicit(&shown->min_changes, memory_order_acquire);
    oldest_ns = atomic_load_explicit(&shown->oldest_ns, memory_order_relaxed);
    now = mw_clock_ns();
    *stats = (struct mw_pool_stats){
        .threads = atomic_load_explicit(&shown->threads, memory_order_relaxed),
        .busy = busy,
        .blocked = atomic_load_explicit(&shown->blocked, memory_order_relaxed),
        .min_threads = atomic_load_explicit(&shown->min_threads, memory_order_relaxed),
        .min_changes = min_changes,
        .max_threads = pool->growth.max,
        .pending = pending,
        .queue_max = pool->queue_max,
        .completed = atomic_load_explicit(&shown->completed, memory_order_relaxed),
        .rejected = atomic_load_explicit(&shown->rejected, memory_order_relaxed),
        .injected = atomic_load_explicit(&shown->injected, memory_order_relaxed),
        .start_failures = atomic_load_explicit(&shown->start_failures, memory_order_relaxed),
        .oldest_pending_ns = oldest_ns != 0 && now > oldest_ns ? now - oldest_ns : 0,
    };
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

static int locks_init(struct mw_pool *pool, unsigned max_threads)
{
    int error = mw_mutex_init(&pool->lock);

    if (error != 0)
        return error;
    error = mw_event_count_init(&pool->sleepers, max_threads);
    if (error != 0)
        goto no_sleepers;
    error = mw_cond_init(&pool->empty);
    if (error != 0)
        goto no_empty;
    error = mw_cond_init(&pool->gate_call);
    if (error == 0)
        return 0;

    mw_cond_fini(&pool->empty);
no_empty:
    mw_event_count_fini(&pool->sleepers);
no_sleepers:
    mw_mutex_fini(&pool->lock);
    return error;
}

static void locks_fini(struct mw_pool *pool)
{
    mw_cond_fini(&pool->gate_call);
    mw_cond_fini(&pool->empty);
    mw_event_count_fini(&pool->sleepers);
    mw_mutex_fini(&pool->lock);
}

/* `min_changes` NULL: however often it was set. */
static int min_change(struct mw_pool *pool, const uint64_t *min_changes, unsigned min_threads,
                      unsigned *before)
{
    unsigned old;
    int error = 0;

    if (is_foreign(pool)) {
        if (before != NULL)
            *before = 0;
        return -EOWNERDEAD;
    }
    mw_mutex_lock(&pool->lock);
    old = pool->growth.min;
    if (min_threads == 0 || min_threads > pool->growth.max) {
        error = -EINVAL;
    } else if (min_changes != NULL && *min_changes != pool->min_changes) {
        error = -ESTALE;
    } else {
        growth_set_min(&pool->growth, min_threads, pool->threads, mw_clock_ns());
        pool->min_changes++;
        worker_bring(pool);
        if (min_threads < old) /* some of the parked ones have a time to leave now */
            mw_event_count_notify_all(&pool->sleepers);
    }
    pool_unlock(pool);
    if (before != NULL)
        *before = old;
    return error;
}

/* A thread that a lane's thread had to start (from done(), say) inherits that thread's policy and
 * nice value, and without privilege cannot raise itself. As a worker it serves the moment's need;
 * then it leaves rather than park, so that a pool never fills up with workers that run only when
 * nobody else does. */
static bool is_slow(void)
{
    if (sched_getscheduler(0) == SCHED_IDLE && sched_getscheduler(getpid()) != SCHED_IDLE)
        return true;
    return getpriority(PRIO_PROCESS, (id_t)gettid()) > getpriority(PRIO_PROCESS, (id_t)getpid());
}

/* ---- workers ---- */

/* See that somebody comes for what waits, if that is allowed; else that the gate looks after it. */
static void worker_bring(struct mw_pool *pool)
{
    if (growth_is_short(&pool->growth))
        growth_compensate(&pool->growth, pool->threads, mw_clock_ns());
    if (pool->pending <= pool->yielding || pool->coming)
        return;
    if (awake(pool) < growth_goal(&pool->growth)) {
        if (pool->parked > 0) {
            pool->parked--;
            pool->coming = true;
            pool->called = true;
            pool->to_wake = mw_event_count_choose_one(&pool->sleepers);
            return;
        }
        if (worker_start(pool) == 0)
            return;
    }
    if (gate_is_needed(pool))
        gate_call(pool);
}

/* The thread is started under the lock, so that nobody can queue an item on the strength of a
 * worker that then fails to start. */
static int worker_start(struct mw_pool *pool)
{
    struct mw_thread_options options = {.kind = MW_THREAD_POOL, .stack_bytes = pool->stack_bytes};
    struct worker *worker = pool->unused;
    int error;

    assert(worker != NULL);
    worker->awaited = !is_slow(); /* others should not rely on one that may be long in coming */
    error = mw_thread_start(&worker->thread, &options, worker_main, worker);
    if (error != 0) {
        pool->start_failures++;
        return error;
    }
    pool->unused = worker->next;
    pool->threads++;
    pool->coming = worker->awaited;
    return 0;
}

static void worker_main(void *arg)
{
    struct worker *worker = arg;
    struct mw_pool *pool = worker->pool;
    struct mw_thread before;
    bool has_before;

    self = worker;
    worker->slow = is_slow();
    mw_mutex_lock(&pool->lock);
    if (worker->awaited)
        pool->coming = false;
    do {
        while (worker_may_take(pool))
            item_run(pool, worker);
    } while (worker_park(pool, worker));
    has_before = worker_leave(pool, worker, &before);
    pool_unlock(pool);
    if (has_before)
        mw_thread_join(&before);
}

/* When more are awake than may be (a worker blocks no longer), the surplus parks and leaves what
 * waits to the others. */
static bool worker_may_take(const struct mw_pool *pool)
{
    return pool->head != NULL && awake(pool) <= growth_goal(&pool->growth);
}

/* Wait for work. Returns false when this worker should leave. */
static bool worker_park(struct mw_pool *pool, struct worker *worker)
{
    uint64_t deadline = mw_clock_ns() + pool->idle_ns;
    bool in_time = true;

    if (pool->closing || worker->slow)
        return false;
    pool->parked++;
    while (!pool->called && !pool->closing && (in_time || pool->threads <= pool->growth.min))
        in_time =
            worker_sleep(pool, worker, pool->threads > pool->growth.min ? deadline : UINT64_MAX);
    if (pool->called) { /* whomever it was meant for */
        pool->called = false;
        pool->coming = false;
        return true;
    }
    pool->parked--;
    return false;
}

/* Sleep until woken; false: the time was up. The announcement comes before the lock is freed, and
 * callers hold it, so there is no further look between prepare and wait: the caller's was it. */
static bool worker_sleep(struct mw_pool *pool, struct worker *worker, uint64_t deadline_ns)
{
    struct mw_event_key key = mw_event_count_prepare(&pool->sleepers);
    enum mw_event_outcome outcome;

    pool_unlock(pool);
    outcome = mw_event_count_wait(&pool->sleepers, key, &worker->waiter, 0, deadline_ns);
    mw_mutex_lock(&pool->lock);
    return outcome != MW_EVENT_TIMED_OUT;
}

/* Give the slot back. Returns true, and a thread in `before`, when there is one to join. */
static bool worker_leave(struct mw_pool *pool, struct worker *worker, struct mw_thread *before)
{
    worker->next = pool->unused;
    pool->unused = worker;
    pool->threads--;
    growth_shrink(&pool->growth, pool->threads);
    if (pool->threads == 0)
        mw_cond_signal(&pool->gate_call); /* it may be what keeps mw_pool_free waiting */
    return thread_end(pool, &worker->thread, before);
}

/* The calling thread takes the place of the last one that has left. */
static bool thread_end(struct mw_pool *pool, const struct mw_thread *thread,
                       struct mw_thread *before)
{
    bool has_before = pool->has_ended;

    *before = pool->ended;
    pool->ended = *thread;
    pool->has_ended = true;
    mw_cond_broadcast(&pool->empty);
    return has_before;
}

/* ---- items ---- */

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

static struct mw_pool_item *item_pop(struct mw_pool *pool)
{
    struct mw_pool_item *item = pool->head;

    pool->head = item->next;
    pool->pending--;
    if (pool->head != NULL) /* else the next one will be younger than this moment */
        pool->taken_ns = mw_clock_ns();
    return item;
}

/* Run the oldest item; the lock is free meanwhile. */
static void item_run(struct mw_pool *pool, struct worker *worker)
{
    struct mw_pool_item *item = item_pop(pool);
    uint64_t leaf = item->leaf;
    uint64_t before;

    pool->busy++;
    worker_bring(pool); /* the next one, for what is left */
    pool_unlock(pool);

    mw_flow_arrive(leaf);
    before = mw_flow_enter(leaf);
    item->fn(item); /* the item is the caller's again */
    mw_flow_enter(before);
    assert(worker->blocks == 0);

    mw_mutex_lock(&pool->lock);
    pool->busy--;
    pool->completed++;
    if (worker->yielded) {
        worker->yielded = false;
        pool->yielding--;
    }
}

/* ---- the gate ---- */

/* Work waits, nobody comes for it, and more can be done than to wait for a worker to come back:
 * the goal can rise, or a worker that could not be started is tried again. */
static bool gate_is_needed(const struct mw_pool *pool)
{
    unsigned goal = growth_goal(&pool->growth);

    return pool->pending > pool->yielding && !pool->coming &&
           (awake(pool) < goal || goal < pool->growth.max);
}

/* See that the gate looks in time. If it cannot be started, whoever comes by next tries again. */
static void gate_call(struct mw_pool *pool)
{
    struct mw_thread_options options = {.kind = MW_THREAD_GATE};
    uint64_t leaf;

    if (pool->gate_alive) {
        if (gate_due(pool) < pool->gate_until_ns)
            mw_cond_signal(&pool->gate_call);
        return;
    }
    leaf = mw_flow_enter(0); /* it serves all, not the leaf that happens to come by */
    if (mw_thread_start(&pool->gate, &options, gate_main, pool) == 0) {
        pool->gate_alive = true;
        pool->gate_until_ns = 0; /* it looks first thing */
    } else {
        pool->start_failures++;
    }
    mw_flow_enter(leaf);
}

static void gate_main(void *arg)
{
    struct mw_pool *pool = arg;
    struct mw_thread before;
    unsigned rounds_idle = is_slow() ? GATE_ROUNDS_IDLE - 1 : 0;
    bool has_before;

    mw_mutex_lock(&pool->lock);
    for (unsigned idle = rounds_idle; idle < GATE_ROUNDS_IDLE;) {
        uint64_t now = mw_clock_ns();

        if (pool->closing && pool->pending == 0)
            break;
        if (!gate_is_needed(pool)) {
            idle++;
            pool->gate_until_ns = now + MW_POOL_GATE_MS * MW_NS_PER_MS;
        } else {
            idle = rounds_idle;
            pool->gate_until_ns = gate_due(pool);
            if (now >= pool->gate_until_ns) {
                gate_act(pool, now);
                pool_unlock(pool); /* which wakes whom it chose */
                mw_mutex_lock(&pool->lock);
                continue;
            }
        }
        (void)mw_cond_wait_until(&pool->gate_call, &pool->lock, pool->gate_until_ns);
    }
    pool->gate_alive = false;
    has_before = thread_end(pool, &pool->gate, &before);
    pool_unlock(pool);
    if (has_before)
        mw_thread_join(&before);
}

/* When the gate should act if nothing changes. */
static uint64_t gate_due(const struct mw_pool *pool)
{
    uint64_t since =
        pool->head->queued_ns > pool->taken_ns ? pool->head->queued_ns : pool->taken_ns;
    uint64_t due = since + MW_POOL_GATE_MS * MW_NS_PER_MS;

    if (growth_is_short(&pool->growth) && growth_step_due(&pool->growth) < due)
        due = growth_step_due(&pool->growth);
    return due;
}

static void gate_act(struct mw_pool *pool, uint64_t now)
{
    bool is_step = growth_is_short(&pool->growth) && now >= growth_step_due(&pool->growth);

    if (!is_step) {
        if (awake(pool) >= growth_goal(&pool->growth) && growth_inject(&pool->growth))
            pool->injected++;
        pool->taken_ns = now; /* the next one a period from here */
    }
    worker_bring(pool); /* which takes the step, if it is one */
}

/* ---- the whole ---- */

static unsigned awake(const struct mw_pool *pool)
{
    return pool->threads - pool->parked;
}

/* Free the lock, then wake whom the holder wanted awake: it would only run into the lock before. */
static void pool_unlock(struct mw_pool *pool)
{
    _Atomic uint32_t *word = pool->to_wake;

    pool->to_wake = NULL;
    pool_check(pool);
    pool_show(pool);
    mw_mutex_unlock(&pool->lock);
    if (word != NULL)
        mw_futex_wake(word, 1);
}

static void pool_show(struct mw_pool *pool)
{
    struct shown *shown = &pool->shown;

#define SHOW(field, value) atomic_store_explicit(&shown->field, (value), memory_order_relaxed)
    SHOW(threads, pool->threads);
    SHOW(blocked, pool->growth.blocked);
    SHOW(min_threads, pool->growth.min);
    SHOW(rejected, pool->rejected);
    SHOW(injected, pool->injected);
    SHOW(start_failures, pool->start_failures);
    SHOW(oldest_ns, pool->head != NULL ? pool->head->queued_ns : 0);
    SHOW(completed, pool->completed);
#undef SHOW
    atomic_store_explicit(&shown->min_changes, pool->min_changes, memory_order_release);
    atomic_store_explicit(&shown->busy, pool->busy, memory_order_release);
    atomic_store_explicit(&shown->pending, pool->pending, memory_order_release);
}

static void pool_check(const struct mw_pool *pool)
{
    assert(pool->pending <= pool->yielding || pool->coming || pool->parked == 0 ||
           awake(pool) >= growth_goal(&pool->growth));
    assert(pool->pending == 0 || pool->threads > 0);
    assert(pool->parked + pool->busy <= pool->threads);
    assert(pool->threads <= pool->growth.max);
    assert(pool->pending <= pool->queue_max);
    assert((pool->pending == 0) == (pool->head == NULL));
    assert(!pool->called || pool->coming);
}

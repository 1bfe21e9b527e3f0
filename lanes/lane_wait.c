/* Waiting for a job. A waiter lies on its own thread's stack and is listed in the lane; whoever
 * hands the job back wakes it.
 *
 * Its word says who will touch it next. LISTED: it is in the lane's list, and counted in `waiting`
 * because it may come back to the lane. WOKEN: it is free to go, and does not look at the lane any
 * more. CHOSEN: it has been taken off the list, by somebody who calls done() first and then wakes
 * it. LEAVING: its time was up while it was listed, so it will take itself off.
 *
 * Who waits for whom: a leaf of a pool-run lane that waits for a job of another lane makes an edge
 * between the two, kept on its stack and listed here for the whole process. A wait that would close
 * a circle of lanes is refused. Leaves of dedicated lanes never wait, so they make no edges. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>

#include <millwright/futex.h>
#include <millwright/mutex.h>

#include "lane_internal.h"

#define LISTED  0u
#define WOKEN   1u
#define CHOSEN  2u
#define LEAVING 3u

/* A leaf of `from` waits for a job of `to`. One for each such leaf, so never more than the threads
 * of the process's pools. */
struct edge {
    struct mw_lane *from;
    struct mw_lane *to;
    struct edge *next;
    bool is_reached; /* by the search in hand */
};

static struct mw_spin_mutex edges_lock; /* guards `edges` and what is in it */
static struct edge *edges MW_GUARDED_BY(edges_lock);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watch_error; /* written once, under `once` */

static bool edge_add(struct edge *edge);
static void edge_remove(struct edge *edge);
static bool is_reachable(const struct mw_lane *from, const struct mw_lane *to)
    MW_REQUIRES(edges_lock);
static int wait_here(struct mw_lane *lane, const struct mw_job *job, uint64_t deadline_ns);
static bool is_held(struct mw_lane *lane, const struct mw_job *job) MW_REQUIRES(lane->lock);
static void waiter_unlist(struct mw_lane *lane, struct lane_waiter *waiter) MW_REQUIRES(lane->lock);
static bool waiter_choose(struct mw_lane *lane, struct lane_waiter *waiter, uint32_t as)
    MW_REQUIRES(lane->lock);
static void watch(void);
static void forget(void);

int mw_lane_wait(struct mw_lane *lane, struct mw_job *job, uint64_t deadline_ns)
{
    struct edge edge = {.from = lane_own(), .to = lane};
    int error;

    if (lane_is_foreign(lane))
        return -EOWNERDEAD;
    if (edge.from == NULL)
        return wait_here(lane, job, deadline_ns);
    if (edge.from->options.runner == MW_LANE_DEDICATED || !edge_add(&edge))
        return -EDEADLK;
    error = wait_here(lane, job, deadline_ns);
    edge_remove(&edge);
    return error;
}

void waiters_release(struct mw_lane *lane, const struct mw_job *job)
{
    struct lane_waiter **link = &lane->waiters;

    while (*link != NULL) {
        struct lane_waiter *waiter = *link;

        if (waiter->job != job) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        if (waiter_choose(lane, waiter, WOKEN))
            mw_futex_wake(&waiter->word, 1);
    }
}

struct lane_waiter *waiters_detach(struct mw_lane *lane, const struct mw_job *job,
                                   struct lane_waiter *others)
{
    struct lane_waiter **link = &lane->waiters;

    while (*link != NULL) {
        struct lane_waiter *waiter = *link;

        if (waiter->job != job) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        if (waiter_choose(lane, waiter, CHOSEN)) {
            waiter->next = others;
            others = waiter;
        }
    }
    return others;
}

void waiters_wake(struct lane_waiter *first)
{
    while (first != NULL) {
        struct lane_waiter *waiter = first;

        first = waiter->next; /* gone once it is awake */
        waiter_wake(waiter);
    }
}

bool waiter_sleep(struct lane_waiter *waiter, uint64_t deadline_ns)
{
    for (;;) {
        /* acquire: partner of the release in waiter_wake and waiter_choose */
        uint32_t word = atomic_load_explicit(&waiter->word, memory_order_acquire);
        uint32_t listed = LISTED;

        if (word == WOKEN)
            return true;
        if (mw_futex_wait(&waiter->word, word, word == CHOSEN ? UINT64_MAX : deadline_ns))
            continue;
        /* relaxed: the lock orders what comes after */
        if (atomic_compare_exchange_strong_explicit(&waiter->word, &listed, LEAVING,
                                                    memory_order_relaxed, memory_order_relaxed))
            return false;
    }
}

void waiter_wake(struct lane_waiter *waiter)
{
    _Atomic uint32_t *word = &waiter->word;

    atomic_store_explicit(word, WOKEN, memory_order_release); /* partner: waiter_sleep */
    mw_futex_wake(word, 1);                                   /* it may be gone, see futex.h */
}

int waits_watch_forks(void)
{
    int error = pthread_once(&once, watch);

    assert(error == 0);
    (void)error;
    return watch_error;
}

/* ---- waiters ---- */

static int wait_here(struct mw_lane *lane, const struct mw_job *job, uint64_t deadline_ns)
{
    struct lane_waiter waiter = {.job = job};
    bool was_woken;

    mw_spin_mutex_lock(&lane->lock);
    lane_take_in(lane);
    if (!is_held(lane, job)) {
        lane_unlock(lane);
        return 0;
    }
    waiter.next = lane->waiters;
    lane->waiters = &waiter;
    lane->waiting++;
    lane_unlock(lane);
    mw_block_begin(); /* a worker of a pool may be made up for */
    was_woken = waiter_sleep(&waiter, deadline_ns);
    mw_block_end();
    if (was_woken)
        return 0;

    mw_spin_mutex_lock(&lane->lock);
    waiter_unlist(lane, &waiter);
    lane->waiting--;
    lane_quiet_check(lane);
    lane_unlock(lane);
    return -ETIMEDOUT;
}

/* Whether the job is queued, or a loop runs it or hands it back. */
static bool is_held(struct mw_lane *lane, const struct mw_job *job)
{
    if (lane_has_queued(lane, job))
        return true;
    for (unsigned i = 0; i < lane->options.cap; i++)
        if (lane->slots[i].job == job)
            return true;
    return false;
}

static void waiter_unlist(struct mw_lane *lane, struct lane_waiter *waiter)
{
    struct lane_waiter **link = &lane->waiters;

    while (*link != NULL && *link != waiter)
        link = &(*link)->next;
    if (*link != NULL)
        *link = waiter->next;
}

/* Take over a waiter that is off the list. False: it is about to come for itself. */
static bool waiter_choose(struct mw_lane *lane, struct lane_waiter *waiter, uint32_t as)
{
    uint32_t listed = LISTED;

    /* release: partner of the acquire in waiter_sleep */
    if (!atomic_compare_exchange_strong_explicit(&waiter->word, &listed, as, memory_order_release,
                                                 memory_order_relaxed))
        return false;
    lane->waiting--;
    lane_quiet_check(lane);
    return true;
}

/* ---- who waits for whom ---- */

/* False: the edge would close a circle. */
static bool edge_add(struct edge *edge)
{
    bool added;

    mw_spin_mutex_lock(&edges_lock);
    added = edge->from != edge->to && !is_reachable(edge->to, edge->from);
    if (added) {
        edge->next = edges;
        edges = edge;
    }
    mw_spin_mutex_unlock(&edges_lock);
    return added;
}

static void edge_remove(struct edge *edge)
{
    struct edge **link = &edges;

    mw_spin_mutex_lock(&edges_lock);
    while (*link != edge)
        link = &(*link)->next;
    *link = edge->next;
    mw_spin_mutex_unlock(&edges_lock);
}

/* Each round reaches at least one more edge or is the last. */
static bool is_reachable(const struct mw_lane *from, const struct mw_lane *to)
{
    bool grown = true;

    for (struct edge *edge = edges; edge != NULL; edge = edge->next)
        edge->is_reached = edge->from == from;
    while (grown) {
        grown = false;
        for (struct edge *edge = edges; edge != NULL; edge = edge->next)
            for (struct edge *next = edges; edge->is_reached && next != NULL; next = next->next)
                if (next->from == edge->to && !next->is_reached) {
                    next->is_reached = true;
                    grown = true;
                }
    }
    for (struct edge *edge = edges; edge != NULL; edge = edge->next)
        if (edge->is_reached && edge->to == to)
            return true;
    return false;
}

/* ---- forks ---- */

static void watch(void)
{
    watch_error = -pthread_atfork(NULL, NULL, forget);
}

/* In the child: the threads that waited are not there, and the one that held the lock may be one of
 * them. */
MW_THREAD_ATTRIBUTE(no_thread_safety_analysis)
static void forget(void)
{
    atomic_init(&edges_lock.word, 0);
    edges = NULL;
}

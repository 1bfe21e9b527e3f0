#include "event_count.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "cpus.h"

#define WAITER       UINT64_C(1)
#define EPOCH        (UINT64_C(1) << 32)
#define WAITERS_MASK (EPOCH - 1)

static bool is_moved(const struct mw_event_count *event_count, struct mw_event_key key);
static bool spin(struct mw_event_count *event_count, struct mw_event_key key, uint64_t spin_ns);
static bool lie_down(struct mw_event_count *event_count, struct mw_event_key key,
                     struct mw_event_waiter *waiter);
static bool get_up(struct mw_event_count *event_count, struct mw_event_waiter *waiter);
static bool sleep_until(_Atomic uint32_t *futex, uint64_t deadline_ns);
static void wake(struct mw_event_waiter *waiter);

int mw_event_count_init(struct mw_event_count *event_count, uint32_t workers)
{
    atomic_init(&event_count->state, 0);
    atomic_init(&event_count->ceiling, UINT32_MAX);
    atomic_init(&event_count->spinning, mw_cpus_effective() == 1); /* then nobody ever may */
    event_count->workers = workers;
    event_count->sleepers = NULL;
    return mw_mutex_init(&event_count->lock);
}

void mw_event_count_fini(struct mw_event_count *event_count)
{
    assert(mw_event_count_waiters(event_count) == 0);
    mw_mutex_fini(&event_count->lock);
}

struct mw_event_key mw_event_count_prepare(struct mw_event_count *event_count)
{
    /* relaxed: the fence below orders it before the second look; partner: the fence in notify */
    uint64_t before = atomic_fetch_add_explicit(&event_count->state, WAITER, memory_order_relaxed);

    atomic_thread_fence(memory_order_seq_cst);
    return (struct mw_event_key){(uint32_t)(before >> 32)};
}

void mw_event_count_cancel(struct mw_event_count *event_count, struct mw_event_key key)
{
    (void)key;
    atomic_fetch_sub_explicit(&event_count->state, WAITER, memory_order_relaxed);
}

enum mw_event_outcome mw_event_count_wait(struct mw_event_count *event_count,
                                          struct mw_event_key key, struct mw_event_waiter *waiter,
                                          uint64_t spin_ns, uint64_t deadline_ns)
{
    if ((spin_ns > 0 && spin(event_count, key, spin_ns)) || !lie_down(event_count, key, waiter)) {
        mw_event_count_cancel(event_count, key);
        return MW_EVENT_MOVED;
    }
    while (atomic_load_explicit(&waiter->futex, memory_order_acquire) == 0) /* partner: wake */
        if (!sleep_until(&waiter->futex, deadline_ns) && get_up(event_count, waiter))
            return MW_EVENT_TIMED_OUT;
    return MW_EVENT_WOKEN;
}

void mw_event_count_notify_one(struct mw_event_count *event_count)
{
    struct mw_event_waiter *waiter;
    uint64_t state;
    uint32_t waiters;

    atomic_thread_fence(memory_order_seq_cst); /* partner: the fence in prepare */
    state = atomic_load_explicit(&event_count->state, memory_order_relaxed);
    waiters = (uint32_t)(state & WAITERS_MASK);
    if (waiters == 0)
        return;
    if (event_count->workers - waiters >=
        atomic_load_explicit(&event_count->ceiling, memory_order_relaxed))
        return;
    mw_mutex_lock(&event_count->lock);
    waiter = event_count->sleepers;
    if (waiter != NULL)
        event_count->sleepers = waiter->next;
    /* The waker takes the waiter off the count, so that the next notifier sees who is left.
     * Release: partner of the acquire in is_moved, for a waiter that never gets to sleep. */
    atomic_fetch_add_explicit(&event_count->state, waiter != NULL ? EPOCH - WAITER : EPOCH,
                              memory_order_release);
    mw_mutex_unlock(&event_count->lock);
    if (waiter != NULL)
        wake(waiter);
}

void mw_event_count_notify_all(struct mw_event_count *event_count)
{
    struct mw_event_waiter *waiter;

    atomic_thread_fence(memory_order_seq_cst); /* partner: the fence in prepare */
    mw_mutex_lock(&event_count->lock);
    waiter = event_count->sleepers;
    event_count->sleepers = NULL;
    atomic_fetch_add_explicit(&event_count->state, EPOCH, memory_order_release); /* as above */
    for (struct mw_event_waiter *each = waiter; each != NULL; each = each->next)
        atomic_fetch_sub_explicit(&event_count->state, WAITER, memory_order_relaxed);
    mw_mutex_unlock(&event_count->lock);
    while (waiter != NULL) {
        struct mw_event_waiter *next = waiter->next; /* gone once it is awake */

        wake(waiter);
        waiter = next;
    }
}

void mw_event_count_set_ceiling(struct mw_event_count *event_count, uint32_t ceiling)
{
    assert(ceiling > 0);
    atomic_store_explicit(&event_count->ceiling, ceiling, memory_order_relaxed);
}

uint32_t mw_event_count_waiters(const struct mw_event_count *event_count)
{
    return (uint32_t)(atomic_load_explicit(&event_count->state, memory_order_relaxed) &
                      WAITERS_MASK);
}

static bool is_moved(const struct mw_event_count *event_count, struct mw_event_key key)
{
    /* acquire: partner of the release in notify, so that the third look sees the work */
    return (uint32_t)(atomic_load_explicit(&event_count->state, memory_order_acquire) >> 32) !=
           key.epoch;
}

/* Returns whether a notification came meanwhile. */
static bool spin(struct mw_event_count *event_count, struct mw_event_key key, uint64_t spin_ns)
{
    bool moved = false;
    uint64_t until_ns;

    if (atomic_exchange_explicit(&event_count->spinning, true, memory_order_relaxed))
        return false;
    if (spin_ns > MW_EVENT_COUNT_SPIN_NS_MAX)
        spin_ns = MW_EVENT_COUNT_SPIN_NS_MAX;
    until_ns = mw_clock_ns() + spin_ns;
    do {
        for (int i = 0; i < 32 && !moved; i++) {
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
            moved = is_moved(event_count, key);
        }
    } while (!moved && mw_clock_ns() < until_ns);
    atomic_store_explicit(&event_count->spinning, false, memory_order_relaxed);
    return moved;
}

/* Go on the list of sleepers, unless a notification came since prepare. */
static bool lie_down(struct mw_event_count *event_count, struct mw_event_key key,
                     struct mw_event_waiter *waiter)
{
    bool down;

    atomic_store_explicit(&waiter->futex, 0, memory_order_relaxed);
    mw_mutex_lock(&event_count->lock);
    down = !is_moved(event_count, key); /* it moves only under the lock */
    if (down) {
        waiter->next = event_count->sleepers;
        event_count->sleepers = waiter;
    }
    mw_mutex_unlock(&event_count->lock);
    return down;
}

/* The time is up. False: a notifier has taken this waiter off the list meanwhile, and its wake-up
 * is on the way. */
static bool get_up(struct mw_event_count *event_count, struct mw_event_waiter *waiter)
{
    struct mw_event_waiter **link = &event_count->sleepers;
    bool mine;

    mw_mutex_lock(&event_count->lock);
    while (*link != NULL && *link != waiter)
        link = &(*link)->next;
    mine = *link == waiter;
    if (mine) {
        *link = waiter->next;
        atomic_fetch_sub_explicit(&event_count->state, WAITER, memory_order_relaxed);
    }
    mw_mutex_unlock(&event_count->lock);
    return mine;
}

/* Returns false when the time is up. */
static bool sleep_until(_Atomic uint32_t *futex, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / MW_NS_PER_S),
                                .tv_nsec = (long)(deadline_ns % MW_NS_PER_S)};
    struct timespec *until = deadline_ns == UINT64_MAX ? NULL : &deadline;

    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock. */
    return syscall(SYS_futex, futex, FUTEX_WAIT_BITSET_PRIVATE, 0, until, NULL,
                   FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != ETIMEDOUT;
}

/* The waiter may be gone as soon as its futex says woken; waking an address that nobody sleeps on
 * any more harms nobody. */
static void wake(struct mw_event_waiter *waiter)
{
    atomic_store_explicit(&waiter->futex, 1, memory_order_release); /* partner: wait */
    (void)syscall(SYS_futex, &waiter->futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

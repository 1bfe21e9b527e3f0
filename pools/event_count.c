#include <assert.h>
#include <stddef.h>

#include "clock.h"
#include "cpus.h"
#include "event_count.h"
#include "futex.h"

#define WAITER       UINT64_C(1)
#define EPOCH        (UINT64_C(1) << 32)
#define WAITERS_MASK (EPOCH - 1)

/* What a waiter's futex says. */
#define DOWN   0u /* on the list, not asleep yet */
#define WOKEN  1u /* a notifier has taken it off the list */
#define ASLEEP 2u /* it needs a system call to be woken */

static bool is_moved(const struct mw_event_count *event_count, struct mw_event_key key);
static void spin(struct mw_event_count *event_count, const struct mw_event_waiter *waiter,
                 uint64_t spin_ns);
static bool is_gated(const struct mw_event_count *event_count, uint32_t waiters);
static void take_off(struct mw_event_count *event_count);
static bool lie_down(struct mw_event_count *event_count, struct mw_event_key key,
                     struct mw_event_waiter *waiter);
static bool get_up(struct mw_event_count *event_count, struct mw_event_waiter *waiter);
static bool is_woken(const struct mw_event_waiter *waiter);
static bool sleep_until(struct mw_event_waiter *waiter, uint64_t deadline_ns);
static _Atomic uint32_t *mark(struct mw_event_waiter *waiter);
static void wake(_Atomic uint32_t *word);

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
    take_off(event_count);
}

enum mw_event_outcome mw_event_count_wait(struct mw_event_count *event_count,
                                          struct mw_event_key key, struct mw_event_waiter *waiter,
                                          uint64_t spin_ns, uint64_t deadline_ns)
{
    if (!lie_down(event_count, key, waiter)) {
        take_off(event_count);
        return MW_EVENT_MOVED;
    }
    if (spin_ns > 0)
        spin(event_count, waiter, spin_ns);
    while (!is_woken(waiter)) {
        if (sleep_until(waiter, deadline_ns))
            continue;
        if (get_up(event_count, waiter))
            return MW_EVENT_TIMED_OUT;
        deadline_ns = UINT64_MAX; /* a notifier has this waiter: its wake-up is on the way */
    }
    return MW_EVENT_WOKEN;
}

void mw_event_count_notify_one(struct mw_event_count *event_count)
{
    wake(mw_event_count_choose_one(event_count));
}

_Atomic uint32_t *mw_event_count_choose_one(struct mw_event_count *event_count)
{
    struct mw_event_waiter *waiter;
    uint32_t waiters;

    atomic_thread_fence(memory_order_seq_cst); /* partner: the fence in prepare */
    waiters = mw_event_count_waiters(event_count);
    if (waiters == 0 || is_gated(event_count, waiters))
        return NULL;
    mw_mutex_lock(&event_count->lock);
    waiter = event_count->sleepers;
    if (waiter != NULL)
        event_count->sleepers = waiter->next;
    /* The waker takes the waiter off the count, so that the next notifier sees who is left.
     * Release: partner of the acquire in is_moved, for a waiter that never gets to sleep. */
    atomic_fetch_add_explicit(&event_count->state, waiter != NULL ? EPOCH - WAITER : EPOCH,
                              memory_order_release);
    mw_mutex_unlock(&event_count->lock);
    return waiter != NULL ? mark(waiter) : NULL;
}

void mw_event_count_notify_all(struct mw_event_count *event_count)
{
    struct mw_event_waiter *waiter;
    uint64_t change = EPOCH;

    atomic_thread_fence(memory_order_seq_cst); /* partner: the fence in prepare */
    if (mw_event_count_waiters(event_count) == 0)
        return;
    mw_mutex_lock(&event_count->lock);
    waiter = event_count->sleepers;
    event_count->sleepers = NULL;
    for (struct mw_event_waiter *each = waiter; each != NULL; each = each->next)
        change -= WAITER;
    atomic_fetch_add_explicit(&event_count->state, change, memory_order_release); /* as above */
    mw_mutex_unlock(&event_count->lock);
    while (waiter != NULL) {
        struct mw_event_waiter *next = waiter->next; /* gone once it is awake */

        wake(mark(waiter));
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

/* More may wait than init was told of: then nobody counts as awake. */
static bool is_gated(const struct mw_event_count *event_count, uint32_t waiters)
{
    uint32_t ceiling = atomic_load_explicit(&event_count->ceiling, memory_order_relaxed);
    uint32_t awake = event_count->workers > waiters ? event_count->workers - waiters : 0;

    return awake >= ceiling;
}

/* Take the calling thread's announcement back. Below zero a key was used twice. */
static void take_off(struct mw_event_count *event_count)
{
    uint64_t before = atomic_fetch_sub_explicit(&event_count->state, WAITER, memory_order_relaxed);

    assert((before & WAITERS_MASK) != 0);
    (void)before;
}

/* Watch the waiter's own futex for a while, unless somebody else does so. A spinner lies on the
 * list like a sleeper, so it is woken in its turn and instead of another, without a system call. */
static void spin(struct mw_event_count *event_count, const struct mw_event_waiter *waiter,
                 uint64_t spin_ns)
{
    bool woken = false;
    uint64_t until_ns;

    if (atomic_exchange_explicit(&event_count->spinning, true, memory_order_relaxed))
        return;
    if (spin_ns > MW_EVENT_COUNT_SPIN_NS_MAX)
        spin_ns = MW_EVENT_COUNT_SPIN_NS_MAX;
    until_ns = mw_clock_ns() + spin_ns;
    do {
        for (int i = 0; i < 32 && !woken; i++) {
            mw_cpu_relax();
            woken = is_woken(waiter);
        }
    } while (!woken && mw_clock_ns() < until_ns);
    atomic_store_explicit(&event_count->spinning, false, memory_order_relaxed);
}

/* Go on the list of sleepers, unless a notification came since prepare. */
static bool lie_down(struct mw_event_count *event_count, struct mw_event_key key,
                     struct mw_event_waiter *waiter)
{
    bool down;

    atomic_store_explicit(&waiter->futex, DOWN, memory_order_relaxed);
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
        take_off(event_count);
    }
    mw_mutex_unlock(&event_count->lock);
    /* A notifier may have counted on this waiter and then not found it: if it leaves for good, its
     * last look must see what was published. Partner: the fence in notify. */
    atomic_thread_fence(memory_order_seq_cst);
    return mine;
}

static bool is_woken(const struct mw_event_waiter *waiter)
{
    /* acquire: partner of the release in wake, so that the next look sees the work */
    return atomic_load_explicit(&waiter->futex, memory_order_acquire) == WOKEN;
}

/* Returns false when the time is up. */
static bool sleep_until(struct mw_event_waiter *waiter, uint64_t deadline_ns)
{
    uint32_t down = DOWN;

    /* relaxed: says only that a system call is needed; is_woken orders what comes after */
    if (!atomic_compare_exchange_strong_explicit(&waiter->futex, &down, ASLEEP,
                                                 memory_order_relaxed, memory_order_relaxed) &&
        down == WOKEN)
        return true;
    return mw_futex_wait(&waiter->futex, ASLEEP, deadline_ns);
}

/* Let the waiter go; it may be gone as soon as its futex says woken. Returns the word on which it
 * sleeps, NULL if it does not sleep yet. */
static _Atomic uint32_t *mark(struct mw_event_waiter *waiter)
{
    _Atomic uint32_t *word = &waiter->futex;

    /* release: partner of the acquire in is_woken */
    return atomic_exchange_explicit(word, WOKEN, memory_order_release) == ASLEEP ? word : NULL;
}

static void wake(_Atomic uint32_t *word)
{
    if (word != NULL)
        mw_futex_wake(word, 1);
}

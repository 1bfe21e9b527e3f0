/* event_count.h - lets idle workers sleep without missing work that is published without a lock.
 *
 * A worker that found nothing announces itself (prepare), looks once more, and then either goes
 * back to work (cancel) or sleeps (wait). A producer publishes, then notifies. When nobody has
 * announced itself a notify is a fence and a load: no lock, no store, no system call.
 *
 * Theory (seed 004, after Vyukov's event count). One word holds an epoch and the number of waiters.
 * prepare() adds a waiter and keeps the epoch that this very addition saw; then comes a fence, then
 * the second look. notify() fences between the publication and its look at the waiters. The two
 * fences are totally ordered, so either the notifier sees the waiter, or the waiter's second look
 * sees the work. Were the epoch read after the fence instead, a wake could fall between the look
 * and the read and be lost; tests/model/event_count.pml shows this, and that both fences are
 * needed.
 *
 * Ownership:  both structs are the caller's storage; a waiter belongs to one thread, and lies on
 *             its stack or beside its worker.
 * Threads:    any; wait blocks, nothing else does (but for a mutex held for a few instructions).
 * Bounds:     fewer than 2^31 waiters. The epoch wraps after 2^32 notifications: a waiter would
 *             have to be held up between prepare and wait for that many. */
#ifndef MILLWRIGHT_EVENT_COUNT_H
#define MILLWRIGHT_EVENT_COUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <millwright/mutex.h>

/* No thread spins longer than this before it sleeps, and one at a time at the most. */
#define MW_EVENT_COUNT_SPIN_NS_MAX UINT64_C(10000)

struct mw_event_waiter {
    struct mw_event_waiter *next; /* guarded by the event count's lock */
    _Atomic uint32_t futex;       /* down, woken or asleep; see event_count.c */
};

struct mw_event_count {
    _Atomic uint64_t state;           /* epoch (high 32 bits), announced waiters (low 32) */
    _Atomic uint32_t ceiling;         /* see mw_event_count_set_ceiling; UINT32_MAX: none */
    uint32_t workers;                 /* how many there are in all; immutable */
    _Atomic bool spinning;            /* somebody spins: nobody else may */
    struct mw_mutex lock;             /* guards `sleepers` and the waiters' `next` */
    struct mw_event_waiter *sleepers; /* newest first */
};

/* A ticket from prepare, to be used exactly once: by wait or by cancel. */
struct mw_event_key {
    uint32_t epoch;
};

enum mw_event_outcome {
    MW_EVENT_WOKEN = 0, /* by a notification that chose this waiter */
    MW_EVENT_MOVED,     /* a notification came before the sleep: look again */
    MW_EVENT_TIMED_OUT
};

/* `workers` is how many threads may wait here, for the ceiling. Returns 0 or -ENOMEM/-EAGAIN. */
int mw_event_count_init(struct mw_event_count *event_count, uint32_t workers);

/* Nobody may wait any more. */
void mw_event_count_fini(struct mw_event_count *event_count);

/* Announce that the calling thread is about to sleep. Look for work again after this. */
struct mw_event_key mw_event_count_prepare(struct mw_event_count *event_count);

/* The second look found work. */
void mw_event_count_cancel(struct mw_event_count *event_count, struct mw_event_key key);

/* Sleep until notified or until `deadline_ns` on mw_clock_ns (UINT64_MAX: never). Spins first for
 * `spin_ns` (at most MW_EVENT_COUNT_SPIN_NS_MAX, never on one CPU) when nobody else does. Whatever
 * it returns, look for work once more before going away: a notifier may have counted on you. */
enum mw_event_outcome mw_event_count_wait(struct mw_event_count *event_count,
                                          struct mw_event_key key, struct mw_event_waiter *waiter,
                                          uint64_t spin_ns, uint64_t deadline_ns);

/* Wake the waiter that came last, if one has announced itself and fewer than the ceiling are
 * awake. Publish the work before this. */
void mw_event_count_notify_one(struct mw_event_count *event_count);

/* The first half of notify_one, for a notifier that holds a lock which the waiter will want: choose
 * the waiter, and mark it as woken. Returns the word to hand to mw_futex_wake once that lock is
 * free, or NULL when nobody sleeps. */
_Atomic uint32_t *mw_event_count_choose_one(struct mw_event_count *event_count);

/* Wake everyone; never gated. For close, cancel, error and the end of work. */
void mw_event_count_notify_all(struct mw_event_count *event_count);

/* Let notify_one wake nobody while `ceiling` or more of the workers are awake. A wake withheld is
 * safe only while an awake worker will look for work again before it sleeps, so at least 1; and
 * those that do not come by again soon (not started, blocked, pinned to other work) count as awake
 * here, so `ceiling` must exceed their number. UINT32_MAX (the default): no ceiling. */
void mw_event_count_set_ceiling(struct mw_event_count *event_count, uint32_t ceiling);

/* How many have announced themselves. For inspection. */
uint32_t mw_event_count_waiters(const struct mw_event_count *event_count);

#endif

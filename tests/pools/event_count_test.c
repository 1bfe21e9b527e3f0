/* The event count, step by step and under stress.
 *
 * The stress lets no wait end by itself, so a lost wake-up stays lost, and a judge sees it without
 * a clock: all waiters lie on the list, and an item lies there whose producer has notified. Three
 * broken event counts, made of the real one, show that the judge sees what it should.
 *
 * ThreadSanitizer knows nothing of fences. Items are handed over by release and acquire here, so it
 * has nothing to say about them; that the two fences are right, and needed, is what the model in
 * tests/model/event_count.pml shows. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/event_count.h>
#include <millwright/thread.h>

#include "pools/support.h"

#define NEVER     UINT64_MAX
#define WAITERS   3
#define PRODUCERS 2
#define ROUNDS    20000 /* items of each producer */
#define RISKED    20000 /* the same, for an event count that is to be found broken long before */

static uint32_t sleepers_count(struct mw_event_count *event_count)
{
    uint32_t count = 0;

    mw_mutex_lock(&event_count->lock);
    for (struct mw_event_waiter *each = event_count->sleepers; each != NULL; each = each->next)
        count++;
    mw_mutex_unlock(&event_count->lock);
    return count;
}

static bool sleepers_await(struct mw_event_count *event_count, uint32_t count)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;

    while (sleepers_count(event_count) != count && mw_clock_ns() < deadline)
        sched_yield();
    return sleepers_count(event_count) == count;
}

static uint64_t state_of(struct mw_event_count *event_count)
{
    return atomic_load_explicit(&event_count->state, memory_order_relaxed);
}

/* ---- threads that sleep once ---- */

struct sleeper {
    struct mw_event_count *event_count;
    struct mw_event_waiter waiter;
    struct mw_thread thread;
    struct counter *woken;     /* how many woke so far */
    unsigned turn;             /* which of them this one was; read after the join */
    uint64_t spin_ns;          /* set before the start */
    enum mw_event_outcome out; /* read after the join */
};

static void sleep_once(void *arg)
{
    struct sleeper *sleeper = arg;
    struct mw_event_key key = mw_event_count_prepare(sleeper->event_count);

    sleeper->out =
        mw_event_count_wait(sleeper->event_count, key, &sleeper->waiter, sleeper->spin_ns, NEVER);
    sleeper->turn = counter_value(sleeper->woken);
    counter_add(sleeper->woken, 1);
}

/* Starts `count` of them, one after the other has lain down. */
static void sleepers_start(struct sleeper *sleepers, unsigned count,
                           struct mw_event_count *event_count, struct counter *woken)
{
    uint32_t before = sleepers_count(event_count);

    for (unsigned i = 0; i < count; i++) {
        sleepers[i] = (struct sleeper){.event_count = event_count, .woken = woken};
        assert_int_equal(mw_thread_start(&sleepers[i].thread,
                                         &(struct mw_thread_options){.name = "sleeper"}, sleep_once,
                                         &sleepers[i]),
                         0);
        assert_true(sleepers_await(event_count, before + i + 1));
    }
}

static void sleepers_join(struct sleeper *sleepers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        mw_thread_join(&sleepers[i].thread);
        assert_int_equal(sleepers[i].out, MW_EVENT_WOKEN);
    }
}

/* ---- step by step ---- */

struct notifier {
    struct mw_event_count *event_count;
    struct counter finished;
};

static void notify_both_ways(void *arg)
{
    struct notifier *notifier = arg;

    mw_event_count_notify_one(notifier->event_count);
    mw_event_count_notify_all(notifier->event_count);
    counter_add(&notifier->finished, 1);
}

static void notifier_start(struct notifier *notifier, struct mw_thread *thread,
                           struct mw_event_count *event_count)
{
    notifier->event_count = event_count;
    counter_init(&notifier->finished);
    assert_int_equal(mw_thread_start(thread, &(struct mw_thread_options){.name = "notifier"},
                                     notify_both_ways, notifier),
                     0);
}

/* Breaks when a notify that finds nobody waiting takes the lock, or writes the state word. */
static void notify_touches_nothing_when_nobody_waits(void **state)
{
    struct mw_event_count event_count;
    struct notifier notifier;
    struct mw_thread thread;
    uint64_t before;
    bool finished;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 2), 0);
    before = state_of(&event_count);
    mw_mutex_lock(&event_count.lock);
    notifier_start(&notifier, &thread, &event_count);
    finished = counter_await(&notifier.finished, 1);
    mw_mutex_unlock(&event_count.lock);
    mw_thread_join(&thread);
    assert_true(finished);
    assert_int_equal(state_of(&event_count), before);
    counter_fini(&notifier.finished);
    mw_event_count_fini(&event_count);
}

/* The control of the one above: with a waiter announced the same notifier needs the lock. Breaks
 * when a held lock does not show, so that the test above would pass for any notify. */
static void notify_takes_the_lock_when_somebody_waits(void **state)
{
    struct mw_event_count event_count;
    struct mw_event_key key;
    struct notifier notifier;
    struct mw_thread thread;
    uint64_t before;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 2), 0);
    key = mw_event_count_prepare(&event_count);
    before = state_of(&event_count);
    mw_mutex_lock(&event_count.lock);
    notifier_start(&notifier, &thread, &event_count);
    for (unsigned i = 0; i < 1000; i++)
        sched_yield();
    assert_int_equal(counter_value(&notifier.finished), 0);
    mw_mutex_unlock(&event_count.lock);
    mw_thread_join(&thread);
    assert_int_not_equal(state_of(&event_count), before);
    mw_event_count_cancel(&event_count, key);
    counter_fini(&notifier.finished);
    mw_event_count_fini(&event_count);
}

/* Breaks when a notification between prepare and wait is slept through. */
static void wait_returns_at_once_when_the_epoch_moved(void **state)
{
    void (*const notifies[])(struct mw_event_count *) = {mw_event_count_notify_one,
                                                         mw_event_count_notify_all};
    struct mw_event_count event_count;
    struct mw_event_waiter waiter;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 1), 0);
    for (unsigned i = 0; i < 2; i++)
        for (uint64_t spin_ns = 0; spin_ns <= MW_EVENT_COUNT_SPIN_NS_MAX;
             spin_ns += MW_EVENT_COUNT_SPIN_NS_MAX) {
            struct mw_event_key key = mw_event_count_prepare(&event_count);

            notifies[i](&event_count);
            assert_int_equal(
                mw_event_count_wait(&event_count, key, &waiter, spin_ns, mw_clock_ns()),
                MW_EVENT_MOVED);
            assert_int_equal(mw_event_count_waiters(&event_count), 0);
        }
    mw_event_count_fini(&event_count);
}

/* Breaks when a waiter that found work stays announced: each later notify would take the lock. */
static void cancel_takes_the_announcement_back(void **state)
{
    struct mw_event_count event_count;
    struct mw_event_key key;
    uint64_t before;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 1), 0);
    before = state_of(&event_count);
    key = mw_event_count_prepare(&event_count);
    assert_int_equal(mw_event_count_waiters(&event_count), 1);
    mw_event_count_cancel(&event_count, key);
    assert_int_equal(state_of(&event_count), before);
    mw_event_count_fini(&event_count);
}

/* Breaks when a waiter whose time is up stays on the list or on the count. */
static void waiter_that_timed_out_is_gone(void **state)
{
    struct mw_event_count event_count;
    struct mw_event_waiter waiter;
    uint64_t before;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 1), 0);
    before = state_of(&event_count);
    assert_int_equal(mw_event_count_wait(&event_count, mw_event_count_prepare(&event_count),
                                         &waiter, 0, mw_clock_ns()),
                     MW_EVENT_TIMED_OUT);
    assert_int_equal(sleepers_count(&event_count), 0);
    mw_event_count_notify_one(&event_count);
    assert_int_equal(state_of(&event_count), before);
    mw_event_count_fini(&event_count);
}

/* Breaks when the longest asleep is woken first: its cache is the coldest. */
static void newest_waiter_is_woken_first(void **state)
{
    struct mw_event_count event_count;
    struct sleeper sleepers[WAITERS];
    struct counter woken;

    (void)state;
    counter_init(&woken);
    assert_int_equal(mw_event_count_init(&event_count, WAITERS), 0);
    sleepers_start(sleepers, WAITERS, &event_count, &woken);
    for (unsigned i = 0; i < WAITERS; i++) {
        mw_event_count_notify_one(&event_count);
        assert_int_equal(mw_event_count_waiters(&event_count), WAITERS - i - 1);
        assert_true(counter_await(&woken, i + 1));
    }
    sleepers_join(sleepers, WAITERS);
    for (unsigned i = 0; i < WAITERS; i++)
        assert_int_equal(sleepers[i].turn, WAITERS - i - 1);
    mw_event_count_fini(&event_count);
    counter_fini(&woken);
}

/* Breaks when a notification reaches the wrong number of sleepers, or a ceiling holds back the end
 * of work. */
static void notify_all_wakes_everybody_whatever_the_ceiling(void **state)
{
    struct mw_event_count event_count;
    struct sleeper sleepers[WAITERS];
    struct counter woken;

    (void)state;
    counter_init(&woken);
    assert_int_equal(mw_event_count_init(&event_count, WAITERS + 1), 0);
    mw_event_count_set_ceiling(&event_count, 1);
    sleepers_start(sleepers, WAITERS, &event_count, &woken);
    mw_event_count_notify_all(&event_count);
    assert_int_equal(mw_event_count_waiters(&event_count), 0);
    assert_true(counter_await(&woken, WAITERS));
    sleepers_join(sleepers, WAITERS);
    mw_event_count_fini(&event_count);
    counter_fini(&woken);
}

/* The test's own thread is the awake worker. Breaks when a wake passes the ceiling, when one is
 * withheld with nobody awake, or when what was withheld stays hidden from the awake worker. */
static void ceiling_gates_notify_one(void **state)
{
    struct mw_event_count event_count;
    struct sleeper sleepers[2];
    struct counter woken;
    _Atomic bool item = false;
    struct mw_event_key key;
    uint64_t before;

    (void)state;
    counter_init(&woken);
    assert_int_equal(mw_event_count_init(&event_count, 3), 0);
    mw_event_count_set_ceiling(&event_count, 1);
    sleepers_start(sleepers, 2, &event_count, &woken);

    before = state_of(&event_count);
    atomic_store_explicit(&item, true, memory_order_release);
    mw_event_count_notify_one(&event_count);
    assert_int_equal(state_of(&event_count), before);

    key = mw_event_count_prepare(&event_count);
    assert_true(atomic_exchange_explicit(&item, false, memory_order_acquire));
    mw_event_count_notify_one(&event_count); /* all three wait now, as far as it can see */
    assert_true(counter_await(&woken, 1));
    mw_event_count_cancel(&event_count, key);

    mw_event_count_notify_one(&event_count); /* two are awake */
    assert_int_equal(mw_event_count_waiters(&event_count), 1);
    mw_event_count_set_ceiling(&event_count, 3);
    mw_event_count_notify_one(&event_count);
    assert_true(counter_await(&woken, 2));
    sleepers_join(sleepers, 2);
    mw_event_count_fini(&event_count);
    counter_fini(&woken);
}

/* Breaks when waiters beyond the number given to init wrap the number of those awake: a wake would
 * be withheld though there is no ceiling. */
static void more_waiters_than_workers_are_still_woken(void **state)
{
    struct mw_event_count event_count;
    struct sleeper sleepers[2];
    struct counter woken;

    (void)state;
    counter_init(&woken);
    assert_int_equal(mw_event_count_init(&event_count, 1), 0);
    sleepers_start(sleepers, 2, &event_count, &woken);
    mw_event_count_notify_one(&event_count);
    assert_int_equal(mw_event_count_waiters(&event_count), 1);
    mw_event_count_notify_one(&event_count);
    assert_true(counter_await(&woken, 2));
    sleepers_join(sleepers, 2);
    mw_event_count_fini(&event_count);
    counter_fini(&woken);
}

/* Breaks when a second waiter spins too, or when it ends the first one's turn. */
static void only_one_waiter_spins(void **state)
{
    struct mw_event_count event_count;
    struct mw_event_waiter waiter;
    bool may_spin = mw_cpus_effective() > 1;

    (void)state;
    assert_int_equal(mw_event_count_init(&event_count, 2), 0);
    assert_int_equal(atomic_load(&event_count.spinning), !may_spin);
    assert_int_equal(mw_event_count_wait(&event_count, mw_event_count_prepare(&event_count),
                                         &waiter, MW_EVENT_COUNT_SPIN_NS_MAX, mw_clock_ns()),
                     MW_EVENT_TIMED_OUT);
    assert_int_equal(atomic_load(&event_count.spinning), !may_spin);

    atomic_store(&event_count.spinning, true); /* as if another did */
    assert_int_equal(mw_event_count_wait(&event_count, mw_event_count_prepare(&event_count),
                                         &waiter, MW_EVENT_COUNT_SPIN_NS_MAX, mw_clock_ns()),
                     MW_EVENT_TIMED_OUT);
    assert_true(atomic_load(&event_count.spinning));
    mw_event_count_fini(&event_count);
}

/* Runs `fn` in a child. Returns the signal that ended it, 0 for none. */
static int signal_that_ends(void (*fn)(struct mw_event_count *))
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct mw_event_count event_count;

        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO); /* what the assertion says is expected */
        if (mw_event_count_init(&event_count, 1) == 0)
            fn(&event_count);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void use_once(struct mw_event_count *event_count)
{
    mw_event_count_cancel(event_count, mw_event_count_prepare(event_count));
}

static void cancel_twice(struct mw_event_count *event_count)
{
    struct mw_event_key key = mw_event_count_prepare(event_count);

    mw_event_count_cancel(event_count, key);
    mw_event_count_cancel(event_count, key);
}

static void cancel_after_wait(struct mw_event_count *event_count)
{
    struct mw_event_key key = mw_event_count_prepare(event_count);
    struct mw_event_waiter waiter;

    (void)mw_event_count_wait(event_count, key, &waiter, 0, mw_clock_ns());
    mw_event_count_cancel(event_count, key);
}

static void wait_after_cancel(struct mw_event_count *event_count)
{
    struct mw_event_key key = mw_event_count_prepare(event_count);
    struct mw_event_waiter waiter;

    mw_event_count_cancel(event_count, key);
    (void)mw_event_count_wait(event_count, key, &waiter, 0, mw_clock_ns());
}

/* Breaks when a key used twice goes unnoticed: the waiters' number would run below zero, into the
 * epoch. */
static void key_used_twice_is_caught(void **state)
{
    (void)state;
    assert_int_equal(signal_that_ends(use_once), 0);
    assert_int_equal(signal_that_ends(cancel_twice), SIGABRT);
    assert_int_equal(signal_that_ends(cancel_after_wait), SIGABRT);
    assert_int_equal(signal_that_ends(wait_after_cancel), SIGABRT);
}

/* ---- the real event count and broken ones ---- */

/* How a waiter gets its key and a producer notifies. */
struct make {
    struct mw_event_key (*key)(struct mw_event_count *event_count, struct mw_event_key prepared);
    void (*notify_one)(struct mw_event_count *event_count);
};

static struct mw_event_key key_of_prepare(struct mw_event_count *event_count,
                                          struct mw_event_key prepared)
{
    (void)event_count;
    return prepared;
}

/* Called after the second look: what a relaxed load after the fence may amount to. */
static struct mw_event_key key_read_late(struct mw_event_count *event_count,
                                         struct mw_event_key prepared)
{
    (void)prepared;
    return (struct mw_event_key){(uint32_t)(state_of(event_count) >> 32)};
}

/* One that sees a waiter, wakes whom it finds, and leaves the epoch as it was. */
static void notify_without_epoch(struct mw_event_count *event_count)
{
    if (mw_event_count_waiters(event_count) > 0) {
        mw_event_count_notify_one(event_count);
        atomic_fetch_sub_explicit(&event_count->state, UINT64_C(1) << 32, memory_order_relaxed);
    }
}

static const struct make real = {key_of_prepare, mw_event_count_notify_one};
static const struct make late_key = {key_read_late, mw_event_count_notify_one};
static const struct make kept_epoch = {key_of_prepare, notify_without_epoch};

/* A notification falls between the second look and the wait. */
static enum mw_event_outcome wait_across_a_notification(const struct make *make)
{
    struct mw_event_count event_count;
    struct mw_event_waiter waiter;
    struct mw_event_key key;
    enum mw_event_outcome outcome;

    assert_int_equal(mw_event_count_init(&event_count, 1), 0);
    key = mw_event_count_prepare(&event_count);
    make->notify_one(&event_count);
    key = make->key(&event_count, key);
    outcome = mw_event_count_wait(&event_count, key, &waiter, 0, mw_clock_ns());
    mw_event_count_fini(&event_count);
    return outcome;
}

/* Breaks when the step that loses a wake-up in a broken event count does not show, or when the real
 * one loses it. */
static void notification_before_the_wait_is_lost_by_broken_ones_only(void **state)
{
    (void)state;
    assert_int_equal(wait_across_a_notification(&real), MW_EVENT_MOVED);
    assert_int_equal(wait_across_a_notification(&late_key), MW_EVENT_TIMED_OUT);
    assert_int_equal(wait_across_a_notification(&kept_epoch), MW_EVENT_TIMED_OUT);
}

/* ---- stress ---- */

struct stress {
    const struct make *make;
    struct mw_event_count event_count;
    uint64_t spin_ns;
    uint64_t patience_ns; /* of a wait; 0: for ever */
    unsigned waiters;     /* at most WAITERS */
    unsigned producers;   /* at most PRODUCERS */
    unsigned rounds;
    _Atomic bool items[PRODUCERS];    /* one each. Release to publish, acquire to take; never a
                                         read-modify-write to publish, which would be a fence too */
    _Atomic bool notified[PRODUCERS]; /* about the item that lies there; release, acquire */
    _Atomic unsigned taken;           /* relaxed: a number of its own */
    _Atomic unsigned left;            /* waiters; relaxed: a number of its own */
    _Atomic bool closed;              /* release, acquire: all items were published before */
};

struct stressor {
    struct stress *stress;
    unsigned number;
    struct mw_thread thread;
};

static bool item_take(struct stress *stress)
{
    for (unsigned p = 0; p < stress->producers; p++)
        if (atomic_load_explicit(&stress->items[p], memory_order_relaxed) &&
            atomic_exchange_explicit(&stress->items[p], false, memory_order_acquire)) {
            atomic_fetch_add_explicit(&stress->taken, 1, memory_order_relaxed);
            return true;
        }
    return false;
}

static bool is_closed(struct stress *stress)
{
    return atomic_load_explicit(&stress->closed, memory_order_acquire);
}

static void take_items(void *arg)
{
    struct stressor *stressor = arg;
    struct stress *stress = stressor->stress;
    unsigned seed = 1 + stressor->number;
    struct mw_event_waiter waiter;

    while (item_take(stress) || !is_closed(stress)) {
        struct mw_event_key key = mw_event_count_prepare(&stress->event_count);

        if (item_take(stress) || is_closed(stress)) {
            mw_event_count_cancel(&stress->event_count, key);
            continue;
        }
        seed = seed * 1664525u + 1013904223u;
        if (seed >> 30 == 0)
            sched_yield(); /* where a notification hurts most */
        key = stress->make->key(&stress->event_count, key);
        (void)mw_event_count_wait(&stress->event_count, key, &waiter, stress->spin_ns,
                                  stress->patience_ns == 0 ? NEVER
                                                           : mw_clock_ns() + stress->patience_ns);
    }
    atomic_fetch_add_explicit(&stress->left, 1, memory_order_relaxed);
}

static void publish_items(void *arg)
{
    struct stressor *stressor = arg;
    struct stress *stress = stressor->stress;
    unsigned me = stressor->number;

    for (unsigned i = 0; i < stress->rounds; i++) {
        while (atomic_load_explicit(&stress->items[me], memory_order_acquire)) {
            if (is_closed(stress))
                return;
            sched_yield();
        }
        atomic_store_explicit(&stress->notified[me], false, memory_order_relaxed);
        atomic_store_explicit(&stress->items[me], true, memory_order_release);
        stress->make->notify_one(&stress->event_count);
        atomic_store_explicit(&stress->notified[me], true, memory_order_release);
    }
}

/* Everybody sleeps, and an item lies there whose producer has done its part: nobody will ever take
 * it, unless by luck of another notification. The item is read before `notified`, so that the two
 * belong together; nobody can be woken meanwhile without the lock. */
static bool is_wake_lost(struct stress *stress)
{
    struct mw_event_count *event_count = &stress->event_count;
    unsigned asleep = 0;
    bool lost = false;

    mw_mutex_lock(&event_count->lock);
    for (struct mw_event_waiter *each = event_count->sleepers; each != NULL; each = each->next)
        asleep++;
    for (unsigned p = 0; p < stress->producers && asleep == stress->waiters; p++)
        lost = lost || (atomic_load_explicit(&stress->items[p], memory_order_acquire) &&
                        atomic_load_explicit(&stress->notified[p], memory_order_acquire));
    mw_mutex_unlock(&event_count->lock);
    return lost;
}

enum stress_result { STRESS_HELD = 0, STRESS_LOST_A_WAKE, STRESS_STUCK, STRESS_LEFT_BEHIND };

/* Watches until the producers have published all and it was taken. */
static enum stress_result stress_watch(struct stress *stress)
{
    const struct timespec pause = {.tv_nsec = 200000};
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;

    for (;;) {
        if (atomic_load_explicit(&stress->taken, memory_order_relaxed) ==
            stress->producers * stress->rounds)
            return STRESS_HELD;
        if (stress->patience_ns == 0 && is_wake_lost(stress))
            return STRESS_LOST_A_WAKE;
        if (mw_clock_ns() > deadline)
            return STRESS_STUCK;
        nanosleep(&pause, NULL);
    }
}

/* One notify_all must reach everybody; more are sent only to get rid of the threads. */
static enum stress_result stress_close(struct stress *stress)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    enum stress_result result = STRESS_HELD;

    atomic_store_explicit(&stress->closed, true, memory_order_release);
    mw_event_count_notify_all(&stress->event_count);
    while (atomic_load_explicit(&stress->left, memory_order_relaxed) < stress->waiters) {
        if (stress->make != &real || mw_clock_ns() > deadline) {
            result = STRESS_LEFT_BEHIND;
            mw_event_count_notify_all(&stress->event_count);
        }
        sched_yield();
    }
    return result;
}

static enum stress_result stress_run(struct stress *stress, const struct make *make,
                                     uint32_t ceiling)
{
    unsigned count = stress->waiters + stress->producers;
    struct stressor stressors[WAITERS + PRODUCERS];
    enum stress_result result;
    enum stress_result closing;

    stress->make = make;
    assert_int_equal(mw_event_count_init(&stress->event_count, stress->waiters), 0);
    mw_event_count_set_ceiling(&stress->event_count, ceiling);
    for (unsigned i = 0; i < count; i++) {
        stressors[i].stress = stress;
        stressors[i].number = i < stress->waiters ? i : i - stress->waiters;
        assert_int_equal(
            mw_thread_start(&stressors[i].thread, &(struct mw_thread_options){.name = "stressor"},
                            i < stress->waiters ? take_items : publish_items, &stressors[i]),
            0);
    }
    result = stress_watch(stress);
    closing = stress_close(stress);
    for (unsigned i = 0; i < count; i++)
        mw_thread_join(&stressors[i].thread);
    if (result == STRESS_HELD) {
        result = closing;
        assert_int_equal(stress->taken, stress->producers * stress->rounds);
    }
    if (make == &real)
        mw_event_count_fini(&stress->event_count); /* it checks that nobody is left on the count */
    return result;
}

/* Breaks when a wake-up is lost, with nothing that would heal it: the judge names it. */
static void no_wake_is_lost_under_stress(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WAITERS * PRODUCERS; i++) {
        unsigned waiters = 1 + i % WAITERS;
        unsigned producers = 1 + i / WAITERS;
        struct stress stress = {.waiters = waiters, .producers = producers, .rounds = ROUNDS / 2};

        assert_int_equal(stress_run(&stress, &real, UINT32_MAX), STRESS_HELD);
    }
}

/* The same with one that spins: breaks when a spinner is woken in vain or passed over. */
static void no_wake_is_lost_while_one_spins(void **state)
{
    struct stress stress = {.waiters = WAITERS,
                            .producers = PRODUCERS,
                            .rounds = ROUNDS,
                            .spin_ns = MW_EVENT_COUNT_SPIN_NS_MAX};

    (void)state;
    assert_int_equal(stress_run(&stress, &real, UINT32_MAX), STRESS_HELD);
}

/* The same under the lowest ceiling: breaks when a wake is withheld and nobody looks again. */
static void no_wake_is_lost_under_a_ceiling(void **state)
{
    struct stress stress = {.waiters = WAITERS, .producers = PRODUCERS, .rounds = ROUNDS};

    (void)state;
    assert_int_equal(stress_run(&stress, &real, 1), STRESS_HELD);
}

/* Breaks when a time-out races with a notifier over who takes the waiter off: fini counts. */
static void waiters_are_counted_once_while_times_run_out(void **state)
{
    struct stress stress = {.waiters = WAITERS,
                            .producers = PRODUCERS,
                            .rounds = ROUNDS,
                            .patience_ns = 20 * MW_NS_PER_US};

    (void)state;
    assert_int_equal(stress_run(&stress, &real, UINT32_MAX), STRESS_HELD);
}

/* The controls of the stress: one waiter and one producer, so that nobody else makes good what was
 * lost. Breaks when the judge is blind to a lost wake-up. */
static void stress_finds_broken_event_counts(void **state)
{
    const struct make *const broken[] = {&late_key, &kept_epoch};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct stress stress = {.waiters = 1, .producers = 1, .rounds = RISKED};

        assert_int_equal(stress_run(&stress, broken[i], UINT32_MAX), STRESS_LOST_A_WAKE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_used_twice_is_caught), /* first: it forks */
        cmocka_unit_test(notify_touches_nothing_when_nobody_waits),
        cmocka_unit_test(notify_takes_the_lock_when_somebody_waits),
        cmocka_unit_test(wait_returns_at_once_when_the_epoch_moved),
        cmocka_unit_test(cancel_takes_the_announcement_back),
        cmocka_unit_test(waiter_that_timed_out_is_gone),
        cmocka_unit_test(newest_waiter_is_woken_first),
        cmocka_unit_test(notify_all_wakes_everybody_whatever_the_ceiling),
        cmocka_unit_test(ceiling_gates_notify_one),
        cmocka_unit_test(more_waiters_than_workers_are_still_woken),
        cmocka_unit_test(only_one_waiter_spins),
        cmocka_unit_test(notification_before_the_wait_is_lost_by_broken_ones_only),
        cmocka_unit_test(no_wake_is_lost_under_stress),
        cmocka_unit_test(no_wake_is_lost_while_one_spins),
        cmocka_unit_test(no_wake_is_lost_under_a_ceiling),
        cmocka_unit_test(waiters_are_counted_once_while_times_run_out),
        cmocka_unit_test(stress_finds_broken_event_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

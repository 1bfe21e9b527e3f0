#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/thread.h>

#include "awake.h"
#include "support.h"

#define LOOKS 5u

static struct counter ready;
static struct counter gate;
static _Atomic bool open; /* the gate, for those who must not sleep on a lock; relaxed: a hint */

static void wait_for_gate(void *arg)
{
    (void)arg;
    counter_add(&ready, 1);
    counter_await(&gate, 1);
}

static void sleep_long(void *arg)
{
    const struct timespec nap = {.tv_nsec = 100 * MW_NS_PER_MS};

    (void)arg;
    counter_add(&ready, 1);
    while (counter_value(&gate) == 0)
        nanosleep(&nap, NULL);
}

/* Computes; every two milliseconds it sleeps for moments, as on a lock. */
static void compute(void *arg)
{
    const struct timespec nap = {.tv_nsec = 50 * MW_NS_PER_US};

    (void)arg;
    counter_add(&ready, 1);
    while (!atomic_load_explicit(&open, memory_order_relaxed)) {
        uint64_t end = mw_clock_ns() + 2 * MW_NS_PER_MS;

        while (mw_clock_ns() < end)
            ;
        nanosleep(&nap, NULL);
    }
}

/* How many are awake of threads of `kind` that run these; they are of the kind MW_THREAD_POOL. */
static unsigned awake_of(enum mw_thread_kind kind, void (*const *fns)(void *), unsigned count)
{
    struct mw_thread threads[8];
    unsigned awake = 0;

    counter_init(&ready);
    counter_init(&gate);
    atomic_store_explicit(&open, false, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(mw_thread_start(&threads[i],
                                         &(struct mw_thread_options){.kind = MW_THREAD_POOL},
                                         fns[i], NULL),
                         0);
    assert_true(counter_await(&ready, count));
    for (unsigned i = 0; i < LOOKS; i++) {
        unsigned now;

        assert_int_equal(mw_awake_count(kind, &now), 0);
        assert_true(i == 0 || now == awake);
        awake = now;
    }
    counter_add(&gate, 1);
    atomic_store_explicit(&open, true, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        mw_thread_join(&threads[i]);
    counter_fini(&gate);
    counter_fini(&ready);
    return awake;
}

/* Breaks when a thread that waits or sleeps counts as awake, or one that computes does not. */
static void awake_are_those_that_want_a_cpu(void **state)
{
    static void (*const asleep[])(void *) = {wait_for_gate, sleep_long, wait_for_gate};
    static void (*const mixed[])(void *) = {wait_for_gate, compute, sleep_long, compute, compute};

    (void)state;
    assert_int_equal(awake_of(MW_THREAD_POOL, asleep, 3), 0);
    assert_int_equal(awake_of(MW_THREAD_POOL, mixed, 5), 3);
}

/* Breaks when threads of another kind count. */
static void awake_is_asked_of_one_kind(void **state)
{
    static void (*const one[])(void *) = {compute};

    (void)state;
    assert_int_equal(awake_of(MW_THREAD_LANE, one, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awake_are_those_that_want_a_cpu),
        cmocka_unit_test(awake_is_asked_of_one_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

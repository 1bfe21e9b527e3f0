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

#define LOOKS 5u /* in a row */

static struct counter ready;
static struct counter gate;
static int ends[2];       /* of a pipe that is closed when the gate opens */
static _Atomic bool open; /* the gate, for those who must not sleep on a lock; relaxed: a hint */

static void wait_for_gate(void *arg)
{
    (void)arg;
    counter_add(&ready, 1);
    counter_await(&gate, 1);
}

static void read_pipe(void *arg)
{
    char byte;

    (void)arg;
    counter_add(&ready, 1);
    while (read(ends[0], &byte, 1) > 0)
        ;
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

/* Whether `expected` are awake, look after look. On a busy machine it takes a while until one that
 * is about to sleep does. */
static bool are_awake(enum mw_thread_kind kind, unsigned expected)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    unsigned looks = 0;

    while (looks < LOOKS && mw_clock_ns() < deadline) {
        unsigned awake;

        assert_int_equal(mw_awake_count(kind, &awake), 0);
        looks = awake == expected ? looks + 1 : 0;
    }
    return looks == LOOKS;
}

/* Run `fns` on threads of the kind MW_THREAD_POOL, and look at those of `kind`. */
static void check(enum mw_thread_kind kind, void (*const *fns)(void *), unsigned count,
                  unsigned expected)
{
    const struct mw_thread_options options = {.kind = MW_THREAD_POOL};
    struct mw_thread threads[8];

    counter_init(&ready);
    counter_init(&gate);
    atomic_store_explicit(&open, false, memory_order_relaxed);
    assert_int_equal(pipe(ends), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(mw_thread_start(&threads[i], &options, fns[i], NULL), 0);
    assert_true(counter_await(&ready, count));
    assert_true(are_awake(kind, expected));
    counter_add(&gate, 1);
    atomic_store_explicit(&open, true, memory_order_relaxed);
    close(ends[1]);
    for (unsigned i = 0; i < count; i++)
        mw_thread_join(&threads[i]);
    close(ends[0]);
    counter_fini(&gate);
    counter_fini(&ready);
}

/* Breaks when a thread that waits or sleeps counts as awake, or one that computes does not. */
static void awake_are_those_that_want_a_cpu(void **state)
{
    static void (*const asleep[])(void *) = {wait_for_gate, read_pipe, wait_for_gate};
    static void (*const mixed[])(void *) = {wait_for_gate, compute, read_pipe, compute, compute};

    (void)state;
    check(MW_THREAD_POOL, asleep, 3, 0);
    check(MW_THREAD_POOL, mixed, 5, 3);
}

/* Breaks when threads of another kind count. */
static void awake_is_asked_of_one_kind(void **state)
{
    static void (*const one[])(void *) = {compute};

    (void)state;
    check(MW_THREAD_LANE, one, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awake_are_those_that_want_a_cpu),
        cmocka_unit_test(awake_is_asked_of_one_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

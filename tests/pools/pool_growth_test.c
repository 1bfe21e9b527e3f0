/* The goal of a pool, step by step on a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <millwright/clock.h>

#include "pool_growth.h"

#define CPUS 4
#define MANY 1000 /* workers, where their number should not matter */

/* So many workers block, one after the other, at the time 0. */
static struct growth with_blocked(unsigned min, unsigned max, unsigned blocked)
{
    struct growth growth = {.min = min, .max = max, .cpus = CPUS};

    for (unsigned i = 0; i < blocked; i++)
        growth_block(&growth, 0, 0);
    return growth;
}

/* Breaks when the goal is not the minimum where nothing blocks and nothing was injected. */
static void goal_is_the_minimum_at_rest(void **state)
{
    struct growth growth = with_blocked(3, 10, 0);

    (void)state;
    growth_compensate(&growth, MANY, UINT64_MAX);
    assert_int_equal(growth_goal(&growth), 3);
    assert_false(growth_is_short(&growth));
}

/* Breaks when one of the first CPUs' worth of blocked workers has to wait, or the next has not. */
static void first_cpus_are_made_up_for_at_once(void **state)
{
    (void)state;
    for (unsigned blocked = 1; blocked <= CPUS; blocked++) {
        struct growth growth = with_blocked(2, 100, blocked);

        assert_int_equal(growth_goal(&growth), 2 + blocked);
        assert_false(growth_is_short(&growth));
    }
    for (unsigned blocked = CPUS + 1; blocked <= CPUS + 3; blocked++) {
        struct growth growth = with_blocked(2, 100, blocked);

        assert_int_equal(growth_goal(&growth), 2 + CPUS);
        assert_true(growth_is_short(&growth));
    }
}

/* Breaks when a step comes early or late, two come at once, or they do not get longer with each
 * CPUs' worth, up to their limit. */
static void further_ones_come_step_by_step(void **state)
{
    struct growth growth = with_blocked(2, 200, 100);
    uint64_t now = 0;

    (void)state;
    for (unsigned step = 0; growth_is_short(&growth); step++) {
        unsigned expected_ms = 25 * (1 + step / CPUS);
        unsigned goal = growth_goal(&growth);

        if (expected_ms > 250)
            expected_ms = 250;
        assert_int_equal(goal, 2 + CPUS + step);
        now += expected_ms * MW_NS_PER_MS;
        assert_int_equal(growth_step_due(&growth), now);
        growth_compensate(&growth, 0, now - 1);
        assert_int_equal(growth_goal(&growth), goal);
        growth_compensate(&growth, 0, now);
        assert_int_equal(growth_goal(&growth), goal + 1);
    }
    assert_int_equal(growth_goal(&growth), 2 + 100);
}

/* Breaks when time that passed before a worker blocked counts for it. */
static void step_counts_from_when_it_is_short(void **state)
{
    struct growth growth = with_blocked(2, 100, CPUS);

    (void)state;
    growth_block(&growth, 0, 1000 * MW_NS_PER_MS);
    assert_true(growth_is_short(&growth));
    assert_int_equal(growth_step_due(&growth), 1025 * MW_NS_PER_MS);
    growth_block(&growth, 0, 1010 * MW_NS_PER_MS); /* the second does not put the first off */
    assert_int_equal(growth_step_due(&growth), 1025 * MW_NS_PER_MS);
}

/* Breaks when steps that were due while nobody looked are lost: what comes after a long wait would
 * be held up as if the workers had only just begun to block. The control is a shorter wait. */
static void steps_that_nobody_watched_are_made_up(void **state)
{
    struct growth growth = with_blocked(2, 100, 20);

    (void)state;
    growth_compensate(&growth, 0, 99 * MW_NS_PER_MS);
    assert_int_equal(growth_goal(&growth), 2 + CPUS + 3);
    growth_compensate(&growth, 0, 3600 * MW_NS_PER_S);
    assert_int_equal(growth_goal(&growth), 2 + 20);
}

/* Breaks when workers that are there already are held back like those that must be started. */
static void workers_that_exist_are_let_in_at_once(void **state)
{
    struct growth growth = with_blocked(2, 100, 0);

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        growth_block(&growth, 2 + CPUS + 5, 0);
    assert_int_equal(growth_goal(&growth), 2 + CPUS + 5);
}

/* Breaks when the goal stays up for workers that block no longer. */
static void goal_falls_when_a_worker_blocks_no_longer(void **state)
{
    struct growth growth = with_blocked(2, 100, CPUS + 2);

    (void)state;
    growth_unblock(&growth); /* one of those that were not made up for */
    growth_unblock(&growth);
    assert_int_equal(growth_goal(&growth), 2 + CPUS);
    for (unsigned left = CPUS; left > 0; left--) {
        growth_unblock(&growth);
        assert_int_equal(growth_goal(&growth), 2 + left - 1);
    }
}

/* Breaks when the maximum is not the end of all growth. */
static void nothing_grows_past_the_maximum(void **state)
{
    struct growth growth = with_blocked(2, 4, 10);

    (void)state;
    assert_int_equal(growth_goal(&growth), 4);
    assert_false(growth_is_short(&growth));
    assert_false(growth_inject(&growth));
    growth_compensate(&growth, MANY, UINT64_MAX);
    assert_int_equal(growth_goal(&growth), 4);
    for (unsigned i = 0; i < 10; i++)
        growth_unblock(&growth);
    assert_int_equal(growth_goal(&growth), 2); /* and what was not grown is not taken away */
    assert_true(growth_inject(&growth));
    assert_true(growth_inject(&growth));
    assert_false(growth_inject(&growth));
}

/* Breaks when one who says that it blocks is not made up for because the gate came first for
 * another. */
static void injected_and_compensated_add_up(void **state)
{
    struct growth growth = with_blocked(1, 100, 0);

    (void)state;
    assert_true(growth_inject(&growth));
    assert_true(growth_inject(&growth));
    growth_block(&growth, 0, 0);
    assert_int_equal(growth_goal(&growth), 4);
    growth_unblock(&growth);
    assert_int_equal(growth_goal(&growth), 3);
}

/* Breaks when injected workers are counted on top of a raised minimum, for which they stood in, or
 * stay when the minimum falls again. The control is a raise that is smaller than what was injected.
 */
static void raise_of_the_minimum_absorbs_what_was_injected(void **state)
{
    struct growth growth = with_blocked(2, 100, 0);

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_true(growth_inject(&growth));
    growth_set_min(&growth, 4, 5, 0);
    assert_int_equal(growth_goal(&growth), 5);
    growth_set_min(&growth, 10, 5, 0);
    assert_int_equal(growth_goal(&growth), 10);
    growth_set_min(&growth, 2, 10, 0);
    assert_int_equal(growth_goal(&growth), 2);
}

/* Breaks when a raise of the minimum is handed to the steps, as seed 000 saw it happen. */
static void raise_of_the_minimum_does_not_wait_for_steps(void **state)
{
    struct growth growth = with_blocked(2, 100, 20);

    (void)state;
    assert_int_equal(growth_goal(&growth), 2 + CPUS);
    growth_set_min(&growth, 30, 6, 0);
    assert_int_equal(growth_goal(&growth), 30 + CPUS);
}

/* Breaks when what was injected outlives the workers, or goes before them. */
static void injected_ones_are_forgotten_as_workers_leave(void **state)
{
    struct growth growth = with_blocked(2, 100, 0);

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_true(growth_inject(&growth));
    growth_shrink(&growth, 6);
    assert_int_equal(growth_goal(&growth), 5);
    growth_shrink(&growth, 4);
    assert_int_equal(growth_goal(&growth), 4);
    growth_shrink(&growth, 1);
    assert_int_equal(growth_goal(&growth), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goal_is_the_minimum_at_rest),
        cmocka_unit_test(first_cpus_are_made_up_for_at_once),
        cmocka_unit_test(further_ones_come_step_by_step),
        cmocka_unit_test(step_counts_from_when_it_is_short),
        cmocka_unit_test(steps_that_nobody_watched_are_made_up),
        cmocka_unit_test(workers_that_exist_are_let_in_at_once),
        cmocka_unit_test(goal_falls_when_a_worker_blocks_no_longer),
        cmocka_unit_test(nothing_grows_past_the_maximum),
        cmocka_unit_test(injected_and_compensated_add_up),
        cmocka_unit_test(raise_of_the_minimum_absorbs_what_was_injected),
        cmocka_unit_test(raise_of_the_minimum_does_not_wait_for_steps),
        cmocka_unit_test(injected_ones_are_forgotten_as_workers_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

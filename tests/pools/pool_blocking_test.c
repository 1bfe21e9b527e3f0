/* mw_block_begin and mw_block_end: who is made up for, when, and for how long. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <millwright/cpus.h>
#include <millwright/flow.h>
#include <millwright/thread.h>

#include "pools/pool_scene.h"
#include "pools/thread_starts.h"

#define FURTHER  3 /* blocked workers beyond the first CPUs' worth */
#define CPUS_MAX (ITEMS_MAX - FURTHER - 2)
#define DEPTH    3

/* As many as this machine has CPUs; where that is too many for the test, fewer would do as well. */
static unsigned cpus_of(void)
{
    unsigned cpus = mw_cpus_effective();

    assert_in_range(cpus, 1, CPUS_MAX);
    return cpus;
}

/* An item that passes two gates: one of its own, then the scene's. */
struct two_gates {
    struct task task; /* first, so that fn can cast */
    struct counter own;
};

static void pass_own_gate(struct mw_pool_item *item)
{
    struct two_gates *two = (struct two_gates *)item;

    counter_add(&two->task.scene->waiting, 1);
    counter_await(&two->own, 1);
}

static void run_held_and_then_blocked(struct mw_pool_item *item)
{
    pass_own_gate(item);
    run_blocked(item);
}

static void run_blocked_and_then_held(struct mw_pool_item *item)
{
    mw_block_begin();
    pass_own_gate(item);
    mw_block_end();
    run_at_gate(item);
}

/* Breaks when one of the first CPUs' worth of blocked workers is not made up for at once: no gate
 * is to be had here. */
static void first_cpus_are_made_up_for_without_a_gate(void **state)
{
    unsigned blocked = cpus_of();
    struct scene scene;
    struct task tasks[CPUS_MAX + 2];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = CPUS_MAX + 2});
    thread_starts_allow((int)blocked + 1);
    for (unsigned i = 0; i < blocked + 1; i++) {
        task_launch(&tasks[i], &scene, i < blocked ? run_blocked : run_at_gate);
        assert_true(counter_await(&scene.waiting, i + 1));
    }
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).threads, blocked + 1);
    assert_int_equal(stats_of(&scene).busy, blocked + 1);
    assert_int_equal(stats_of(&scene).blocked, blocked);
    assert_int_equal(stats_of(&scene).start_failures, 0);
    assert_int_equal(stats_of(&scene).injected, 0);
    scene_close(&scene);
}

/* The control: the same without a word is left to the gate, which is not to be had. Breaks when a
 * worker is made up for that has not said that it blocks. */
static void silent_workers_are_not_made_up_for(void **state)
{
    struct scene scene;
    struct task held;
    struct task next;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = CPUS_MAX + 2});
    task_launch(&held, &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 1));
    thread_starts_allow(0);
    task_launch(&next, &scene, run_plain);
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).start_failures, 1); /* the gate's */
    assert_int_equal(stats_of(&scene).threads, 1);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 2));
    assert_int_equal(next.tid, held.tid);
    scene_close(&scene);
}

/* Breaks when what is queued before a worker says that it blocks has to wait for the gate. */
static void begin_starts_a_worker_for_what_waits(void **state)
{
    struct scene scene;
    struct two_gates blocker;
    struct task next;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 4});
    counter_init(&blocker.own);
    task_launch(&blocker.task, &scene, run_held_and_then_blocked);
    assert_true(counter_await(&scene.waiting, 1));
    thread_starts_allow(0); /* no gate */
    task_launch(&next, &scene, run_plain);
    assert_int_equal(stats_of(&scene).threads, 1);
    thread_starts_allow(1);
    counter_add(&blocker.own, 1);
    assert_true(counter_await(&scene.ran, 1));
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).injected, 0);
    assert_int_not_equal(next.tid, blocker.task.tid);
    counter_add(&scene.gate, 1);
    settle(&scene);
    counter_fini(&blocker.own);
    scene_close(&scene);
}

/* Breaks when those beyond the first CPUs' worth are never made up for, or only by what the gate
 * adds for workers that say nothing. (How the steps follow each other is for pool_growth_test.) */
static void further_ones_are_made_up_for_by_steps(void **state)
{
    unsigned count = cpus_of() + FURTHER + 1;
    struct scene scene;
    struct task tasks[CPUS_MAX + FURTHER + 1];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = ITEMS_MAX});
    for (unsigned i = 0; i < count; i++)
        task_launch(&tasks[i], &scene, run_blocked);
    assert_true(counter_await(&scene.waiting, count));
    assert_int_equal(stats_of(&scene).threads, count);
    assert_int_equal(stats_of(&scene).blocked, count);
    assert_int_equal(stats_of(&scene).injected, 0);
    scene_close(&scene);
}

static void run_nested(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    for (unsigned depth = 0; depth < DEPTH; depth++) {
        mw_block_begin();
        scene->order[depth] = stats_of(scene).blocked;
    }
    for (unsigned depth = DEPTH; depth < 2 * DEPTH; depth++) {
        mw_block_end();
        scene->order[depth] = stats_of(scene).blocked;
    }
    counter_add(&scene->ran, 1);
}

/* Breaks when an inner pair counts, or ends what the outer one began. */
static void pairs_nest(void **state)
{
    static const unsigned expected[2 * DEPTH] = {1, 1, 1, 1, 1, 0};
    struct scene scene;
    struct task task;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 4});
    task_launch(&task, &scene, run_nested);
    assert_true(counter_await(&scene.ran, 1));
    for (unsigned i = 0; i < 2 * DEPTH; i++)
        assert_int_equal(scene.order[i], expected[i]);
    scene_close(&scene);
}

/* Breaks when a thread that is no worker is counted, or must pair its calls. */
static void threads_that_are_no_workers_are_not_counted(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 4});
    mw_block_begin();
    assert_int_equal(stats_of(&scene).blocked, 0);
    mw_block_end();
    mw_block_end(); /* one too many: on a worker this would stop the program */
    scene_close(&scene);
}

/* Breaks when a worker that was let in for a blocked one goes on taking items afterwards: then more
 * run than may. The control comes first: while the one blocks, the other takes them. */
static void surplus_parks_when_the_block_ends(void **state)
{
    struct scene scene;
    struct two_gates two;
    struct task before;
    struct task after;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2});
    counter_init(&two.own);
    task_launch(&two.task, &scene, run_blocked_and_then_held);
    assert_true(counter_await(&scene.waiting, 1));
    task_launch(&before, &scene, run_plain);
    assert_true(counter_await(&scene.ran, 1));
    while (stats_of(&scene).busy > 1) /* until the other one has parked */
        sched_yield();

    counter_add(&two.own, 1);
    assert_true(counter_await(&scene.waiting, 2));
    assert_int_equal(stats_of(&scene).blocked, 0);
    thread_starts_allow(0); /* no gate */
    task_launch(&after, &scene, run_plain);
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).pending, 1);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 3));
    assert_int_not_equal(before.tid, two.task.tid);
    assert_int_equal(after.tid, two.task.tid);
    counter_fini(&two.own);
    scene_close(&scene);
}

/* Breaks when a worker that was let in for a blocked one, and is still busy when the block ends,
 * takes the next item as well. */
static void surplus_leaves_the_next_item_to_the_others(void **state)
{
    struct two_gates first;
    struct two_gates second;
    struct scene scene;
    struct task next;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2});
    counter_init(&first.own);
    counter_init(&second.own);
    task_launch(&first.task, &scene, run_blocked_and_then_held);
    assert_true(counter_await(&scene.waiting, 1));
    task_launch(&second.task, &scene, pass_own_gate);
    assert_true(counter_await(&scene.waiting, 2));
    counter_add(&first.own, 1);
    assert_true(counter_await(&scene.waiting, 3));

    thread_starts_allow(0); /* no gate */
    task_launch(&next, &scene, run_plain);
    counter_add(&second.own, 1);
    while (stats_of(&scene).completed < 1) /* the second; a take would be in the same step */
        sched_yield();
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).pending, 1);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 2));
    assert_int_equal(next.tid, first.task.tid);
    settle(&scene);
    counter_fini(&second.own);
    counter_fini(&first.own);
    scene_close(&scene);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void run_and_start_a_thread(struct mw_pool_item *item)
{
    struct mw_thread thread;

    if (mw_thread_start(&thread, &(struct mw_thread_options){.name = "own"}, nothing, NULL) == 0)
        mw_thread_join(&thread);
    run_plain(item);
}

/* Breaks when a leaf that blocks is charged with the thread that the pool starts in its place: an
 * audit would accuse it of starting threads. The control is a thread that an item does start. */
static void replacement_is_not_the_leafs_doing(void **state)
{
    uint64_t started = mw_flow_count(MW_FLOW_THREAD_START);
    uint64_t leaf = mw_flow_next();
    struct two_gates blocker;
    struct scene scene;
    struct task next;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 4});
    counter_init(&blocker.own);
    task_launch(&next, &scene, run_plain); /* so that the first worker is there */
    settle(&scene);
    mw_flow_enter(leaf);
    task_launch(&blocker.task, &scene, run_held_and_then_blocked);
    mw_flow_enter(0);
    assert_true(counter_await(&scene.waiting, 1));
    thread_starts_allow(0); /* no gate */
    task_launch(&next, &scene, run_plain);
    thread_starts_allow(-1);
    counter_add(&blocker.own, 1);
    assert_true(counter_await(&scene.ran, 2));
    assert_int_equal(mw_flow_count(MW_FLOW_THREAD_START), started);

    mw_flow_enter(leaf);
    task_launch(&next, &scene, run_and_start_a_thread);
    mw_flow_enter(0);
    assert_true(counter_await(&scene.ran, 3));
    assert_int_equal(mw_flow_count(MW_FLOW_THREAD_START), started + 1);
    counter_add(&scene.gate, 1);
    settle(&scene);
    counter_fini(&blocker.own);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_cpus_are_made_up_for_without_a_gate),
        cmocka_unit_test(silent_workers_are_not_made_up_for),
        cmocka_unit_test(begin_starts_a_worker_for_what_waits),
        cmocka_unit_test(further_ones_are_made_up_for_by_steps),
        cmocka_unit_test(pairs_nest),
        cmocka_unit_test(threads_that_are_no_workers_are_not_counted),
        cmocka_unit_test(surplus_parks_when_the_block_ends),
        cmocka_unit_test(surplus_leaves_the_next_item_to_the_others),
        cmocka_unit_test(replacement_is_not_the_leafs_doing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

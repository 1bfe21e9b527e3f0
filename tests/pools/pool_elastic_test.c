/* How a pool grows above its minimum, and what may be set at run time.
 *
 * No test asserts how long something took. Where the gate has to be ruled out its thread is refused
 * (thread_starts.h); what it did is told from the count of workers that it added. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/thread.h>

#include "pools/pool_scene.h"
#include "pools/thread_starts.h"

#define PERIOD_NS    (MW_POOL_GATE_MS * MW_NS_PER_MS)
#define SHORT_NS     (20 * MW_NS_PER_MS)
#define ATTEMPTS     3 /* for what a machine that stands still for half a second may spoil */
#define STARTS_SWEPT 6 /* more than the scenario makes */

/* Breaks when a worker within the minimum waits for the gate. */
static void workers_within_the_minimum_need_no_gate(void **state)
{
    struct scene scene;
    struct task tasks[4];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 4, .max_threads = 8});
    for (unsigned i = 0; i < 4; i++)
        task_launch(&tasks[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 4));
    assert_int_equal(stats_of(&scene).threads, 4);
    assert_int_equal(stats_of(&scene).injected, 0);
    assert_int_equal(tasks_count(), scene.tasks + 4);
    scene_close(&scene);
}

/* Breaks when somebody else than the gate starts a worker above the minimum. The control is the
 * second half: the same item, with a gate, is run beside those that are held. */
static void only_the_gate_goes_above_the_minimum(void **state)
{
    struct scene scene;
    struct task held[2];
    struct task third;
    struct task fourth;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 8});
    for (unsigned i = 0; i < 2; i++)
        task_launch(&held[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 2));
    thread_starts_allow(0);
    task_launch(&third, &scene, run_plain);
    assert_int_equal(stats_of(&scene).start_failures, 1); /* the gate's, and nobody else's */
    assert_int_equal(stats_of(&scene).threads, 2);
    assert_int_equal(stats_of(&scene).pending, 1);
    thread_starts_allow(-1);

    task_launch(&fourth, &scene, run_plain);
    assert_true(counter_await(&scene.ran, 2));
    assert_int_equal(stats_of(&scene).injected, 1);
    assert_int_equal(stats_of(&scene).threads, 3);
    assert_int_equal(third.tid, fourth.tid);
    scene_close(&scene);
}

/* Breaks when the gate adds more than one in a period, stops after one, or passes the maximum. */
static void gate_adds_one_in_each_period(void **state)
{
    struct scene scene;
    struct task tasks[4];
    uint64_t queued_ns = mw_clock_ns();

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 3});
    for (unsigned i = 0; i < 4; i++)
        task_launch(&tasks[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 3));
    for (unsigned i = 0; i < 3; i++) /* it may be late, but never early */
        assert_true(tasks[i].began_ns >= queued_ns + i * PERIOD_NS);
    assert_int_equal(stats_of(&scene).injected, 2);
    assert_int_equal(stats_of(&scene).threads, 3);
    assert_int_equal(stats_of(&scene).pending, 1);
    scene_close(&scene);
}

static void run_for_a_while(struct mw_pool_item *item)
{
    usleep(SHORT_NS / MW_NS_PER_US);
    run_plain(item);
}

/* One worker and a queue that it needs longer than two periods for. Returns what the gate added. */
static uint64_t injected_while_items_flow(void)
{
    struct scene scene;
    struct task tasks[2 * PERIOD_NS / SHORT_NS + 10];
    const unsigned count = sizeof tasks / sizeof *tasks;
    uint64_t injected;

    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 4});
    for (unsigned i = 0; i < count; i++)
        task_launch(&tasks[i], &scene, run_for_a_while);
    assert_true(counter_await(&scene.ran, count));
    injected = stats_of(&scene).injected;
    scene_close(&scene);
    return injected;
}

/* Breaks when the gate goes by what waits, or by how long it does, though the workers go on taking
 * items: a busy pool is not a stuck one. */
static void gate_leaves_a_busy_pool_alone(void **state)
{
    uint64_t injected = 1;

    (void)state;
    for (unsigned i = 0; i < ATTEMPTS && injected > 0; i++)
        injected = injected_while_items_flow();
    assert_int_equal(injected, 0);
}

/* Breaks when the gate's thread stays although there is no need for it. */
static void gate_ends_when_it_is_not_needed(void **state)
{
    struct scene scene;
    struct task tasks[2];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2});
    for (unsigned i = 0; i < 2; i++) {
        task_launch(&tasks[i], &scene, run_at_gate);
        assert_true(counter_await(&scene.waiting, 1));
    }
    assert_int_equal(tasks_count(), scene.tasks + 2); /* a worker and the gate */
    assert_true(counter_await(&scene.waiting, 2));
    while (tasks_count() != scene.tasks + 2) /* two workers; the test's time limit bounds this */
        usleep(1000);
    scene_close(&scene);
}

static void wait_for_the_second(struct mw_pool_item *item)
{
    (void)counter_await(&((struct task *)item)->scene->ran, 1);
}

/* Breaks when mw_pool_free drops the gate while what is queued still needs it: the first item waits
 * for the second. */
static void free_keeps_the_gate_until_all_has_run(void **state)
{
    struct scene scene;
    struct task first;
    struct task second;
    struct mw_pool *pool;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2});
    task_launch(&first, &scene, wait_for_the_second);
    task_launch(&second, &scene, run_plain);
    pool = scene.pool;
    scene.pool = NULL;
    mw_pool_free(pool);
    assert_int_equal(counter_value(&scene.ran), 1);
    scene_close(&scene);
}

/* Breaks when a raise leaves what waits to the gate. The control is what waits before it. */
static void raised_minimum_starts_workers_at_once(void **state)
{
    struct scene scene;
    struct task tasks[4];
    unsigned before = 0;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 8});
    thread_starts_allow(1); /* a worker, and no gate */
    for (unsigned i = 0; i < 4; i++)
        task_launch(&tasks[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 1));
    assert_int_equal(stats_of(&scene).threads, 1);
    assert_int_equal(stats_of(&scene).pending, 3);
    thread_starts_allow(-1);
    assert_int_equal(mw_pool_set_min(scene.pool, 4, &before), 0);
    assert_int_equal(before, 1);
    assert_true(counter_await(&scene.waiting, 4));
    assert_int_equal(stats_of(&scene).min_threads, 4);
    assert_int_equal(stats_of(&scene).injected, 0);
    scene_close(&scene);
}

/* Breaks when parked workers stay above a minimum that has been lowered: they sleep without a time
 * limit when it is. */
static void lowered_minimum_lets_parked_workers_go(void **state)
{
    struct scene scene;
    struct task tasks[4];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 4, .max_threads = 4, .idle_ms = 1});
    for (unsigned i = 0; i < 4; i++)
        task_launch(&tasks[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 4));
    counter_add(&scene.gate, 1);
    settle(&scene);
    assert_int_equal(stats_of(&scene).threads, 4);
    assert_int_equal(mw_pool_set_min(scene.pool, 2, NULL), 0);
    assert_true(tasks_await(scene.tasks + 2));
    assert_int_equal(stats_of(&scene).threads, 2);
    scene_close(&scene);
}

/* Breaks when a bad minimum is taken, or `before` does not say what there was. */
static void minimum_is_checked_and_told(void **state)
{
    struct scene scene;
    unsigned before = 0;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 8});
    assert_int_equal(mw_pool_set_min(scene.pool, 0, &before), -EINVAL);
    assert_int_equal(before, 2);
    before = 0;
    assert_int_equal(mw_pool_set_min(scene.pool, 9, &before), -EINVAL);
    assert_int_equal(before, 2);
    assert_int_equal(stats_of(&scene).min_threads, 2);
    assert_int_equal(mw_pool_set_min(scene.pool, 8, &before), 0);
    assert_int_equal(mw_pool_set_min(scene.pool, 1, &before), 0);
    assert_int_equal(before, 8);
    assert_int_equal(stats_of(&scene).min_threads, 1);
    scene_close(&scene);
}

/* Breaks when a minimum that somebody else has set is put back over it, be it to what it was, or
 * when a refused change counts as one. */
static void minimum_is_replaced_only_if_nobody_has_set_it(void **state)
{
    struct scene scene;
    unsigned before = 0;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 8});
    assert_int_equal(stats_of(&scene).min_changes, 0);
    assert_int_equal(mw_pool_replace_min(scene.pool, 0, 6, &before), 0);
    assert_int_equal(before, 2);
    assert_int_equal(mw_pool_replace_min(scene.pool, 0, 4, &before), -ESTALE);
    assert_int_equal(before, 6);
    assert_int_equal(stats_of(&scene).min_threads, 6);
    assert_int_equal(mw_pool_replace_min(scene.pool, 1, 9, &before), -EINVAL);
    assert_int_equal(stats_of(&scene).min_changes, 1);
    assert_int_equal(mw_pool_set_min(scene.pool, 6, NULL), 0);
    assert_int_equal(stats_of(&scene).min_changes, 2);
    assert_int_equal(mw_pool_replace_min(scene.pool, 1, 2, &before), -ESTALE);
    assert_int_equal(mw_pool_replace_min(scene.pool, 2, 2, NULL), 0);
    assert_int_equal(stats_of(&scene).min_threads, 2);
    scene_close(&scene);
}

/* Breaks when an item is lost or a pool stands still because one thread, whichever, could not be
 * started: all four items must be inside at once, two of them by the gate's help. */
static void pool_survives_the_failure_of_any_one_start(void **state)
{
    (void)state;
    for (int failing = 0; failing < STARTS_SWEPT; failing++) {
        struct scene scene;
        struct task tasks[4];

        scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 4});
        thread_starts_refuse_one(failing);
        for (unsigned i = 0; i < 4; i++) {
            task_init(&tasks[i], &scene, run_at_gate);
            if (mw_pool_submit(scene.pool, &tasks[i].item) != 0) {
                assert_int_equal(failing, 0);
                assert_int_equal(i, 0);
                task_submit(&tasks[i]);
            }
        }
        while (counter_value(&scene.waiting) < 4) { /* the test's time limit bounds this */
            assert_int_equal(mw_pool_set_min(scene.pool, 2, NULL), 0); /* somebody comes by */
            usleep(1000);
        }
        thread_starts_refuse_one(-1);
        assert_int_equal(stats_of(&scene).threads, 4);
        assert_int_equal(stats_of(&scene).injected, 2);
        assert_int_equal(stats_of(&scene).start_failures, failing < 5 ? 1 : 0);
        scene_close(&scene);
    }
}

/* Breaks when a worker within the minimum that could not be started is not tried again while nobody
 * comes by: the first item waits for the second. */
static void gate_tries_a_failed_start_again(void **state)
{
    struct scene scene;
    struct task first;
    struct task second;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 2});
    task_launch(&first, &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 1));
    thread_starts_refuse_one(0);
    task_launch(&second, &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 2));
    assert_int_equal(stats_of(&scene).start_failures, 1);
    assert_int_equal(stats_of(&scene).injected, 0);
    scene_close(&scene);
}

static void submit_when_told(void *arg)
{
    struct task *task = arg;

    counter_await(&task->scene->gate, 1);
    (void)mw_pool_submit(task->scene->pool, &task->item);
}

/* Breaks when a snapshot waits for the pool's lock, which is held here by somebody who is kept
 * inside the start of a thread: it would hang. */
static void snapshot_waits_for_nobody(void **state)
{
    struct mw_thread thread;
    struct scene scene;
    struct task task;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2});
    task_init(&task, &scene, run_plain);
    assert_int_equal(mw_thread_start(&thread, &(struct mw_thread_options){.name = "submitter"},
                                     submit_when_told, &task),
                     0);
    thread_starts_hold();
    counter_add(&scene.gate, 1);
    while (thread_starts_held() == 0) /* the test's time limit bounds this */
        sched_yield();
    assert_int_equal(stats_of(&scene).min_threads, 1);
    assert_int_equal(stats_of(&scene).max_threads, 2);
    thread_starts_let_go();
    mw_thread_join(&thread);
    assert_true(counter_await(&scene.ran, 1));
    scene_close(&scene);
}

/* What a forked child does with a pool that is not its own. Returns 0, or the number of the check
 * that failed. */
static int use_in_child(struct scene *scene)
{
    struct mw_pool_stats stats;
    unsigned tasks = tasks_count();
    struct task task;
    unsigned before = 7;

    task_init(&task, scene, run_plain);
    if (mw_pool_submit(scene->pool, &task.item) != -EOWNERDEAD)
        return 1;
    if (mw_pool_set_min(scene->pool, 1, &before) != -EOWNERDEAD || before != 0)
        return 2;
    if (mw_pool_replace_min(scene->pool, 0, 1, NULL) != -EOWNERDEAD)
        return 3;
    mw_pool_snapshot(scene->pool, &stats);
    if (stats.threads != 0 || stats.max_threads != 0)
        return 4;
    mw_block_begin(); /* in the parent, on a worker, this would start another */
    if (tasks_count() != tasks)
        return 5;
    mw_block_end();
    mw_pool_free(scene->pool);
    return 0;
}

static int wait_for_child(pid_t child)
{
    int status = 0;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

struct forker {
    struct task task; /* first, so that fn can cast */
    struct counter told;
    pid_t child;
};

static void fork_inside(struct mw_pool_item *item)
{
    struct forker *forker = (struct forker *)item;

    counter_add(&forker->task.scene->waiting, 1);
    counter_await(&forker->told, 1);
    forker->child = fork();
    if (forker->child == 0)
        _exit(use_in_child(forker->task.scene));
    run_plain(item);
}

/* Breaks when a call in a child, of the test's thread or of a worker, hangs or is served. */
static void child_is_told_that_the_pool_is_not_its_own(void **state)
{
    struct scene scene;
    struct forker forker = {.child = -1};
    struct task held[3];
    struct task next;
    pid_t child;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 4, .max_threads = 8});
    for (unsigned i = 0; i < 3; i++)
        task_launch(&held[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 3));
    child = fork();
    if (child == 0)
        _exit(use_in_child(&scene));
    assert_int_equal(wait_for_child(child), 0);
    counter_init(&forker.told);
    task_launch(&forker.task, &scene, fork_inside);
    assert_true(counter_await(&scene.waiting, 4));
    task_launch(&next, &scene, run_at_gate); /* waits, so that a worker could be started for it */
    counter_add(&forker.told, 1);
    assert_true(counter_await(&scene.ran, 1));
    assert_int_equal(wait_for_child(forker.child), 0);
    counter_fini(&forker.told);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_is_told_that_the_pool_is_not_its_own),
        cmocka_unit_test(workers_within_the_minimum_need_no_gate),
        cmocka_unit_test(only_the_gate_goes_above_the_minimum),
        cmocka_unit_test(gate_adds_one_in_each_period),
        cmocka_unit_test(gate_leaves_a_busy_pool_alone),
        cmocka_unit_test(gate_ends_when_it_is_not_needed),
        cmocka_unit_test(free_keeps_the_gate_until_all_has_run),
        cmocka_unit_test(raised_minimum_starts_workers_at_once),
        cmocka_unit_test(lowered_minimum_lets_parked_workers_go),
        cmocka_unit_test(minimum_is_checked_and_told),
        cmocka_unit_test(minimum_is_replaced_only_if_nobody_has_set_it),
        cmocka_unit_test(pool_survives_the_failure_of_any_one_start),
        cmocka_unit_test(gate_tries_a_failed_start_again),
        cmocka_unit_test(snapshot_waits_for_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/flow.h>
#include <millwright/thread.h>

#include "pools/pool_scene.h"

void scene_open(struct scene *scene, const struct mw_pool_options *options)
{
    memset(scene, 0, sizeof *scene);
    counter_init(&scene->gate);
    counter_init(&scene->waiting);
    counter_init(&scene->ran);
    scene->tasks = tasks_baseline();
    assert_int_equal(mw_pool_new(&scene->pool, options), 0);
}

void scene_close(struct scene *scene)
{
    counter_add(&scene->gate, 1);
    mw_pool_free(scene->pool);
    assert_int_equal(mw_thread_count(MW_THREAD_POOL), 0);
    assert_true(tasks_await(scene->tasks));
    counter_fini(&scene->ran);
    counter_fini(&scene->waiting);
    counter_fini(&scene->gate);
}

void task_init(struct task *task, struct scene *scene, void (*fn)(struct mw_pool_item *))
{
    memset(task, 0, sizeof *task);
    task->item.fn = fn;
    task->scene = scene;
}

void task_submit(struct task *task)
{
    assert_int_equal(mw_pool_submit(task->scene->pool, &task->item), 0);
}

void task_launch(struct task *task, struct scene *scene, void (*fn)(struct mw_pool_item *))
{
    task_init(task, scene, fn);
    task_submit(task);
}

struct mw_pool_stats stats_of(const struct scene *scene)
{
    struct mw_pool_stats stats;

    mw_pool_snapshot(scene->pool, &stats);
    return stats;
}

void settle(const struct scene *scene)
{
    struct mw_pool_stats stats = stats_of(scene);

    while (stats.busy > 0 || stats.pending > 0) {
        sched_yield();
        stats = stats_of(scene);
    }
}

void run_plain(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;

    task->flow = mw_flow_current();
    task->tid = gettid();
    counter_add(&task->scene->ran, 1);
}

void run_at_gate(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    task->tid = gettid();
    task->began_ns = mw_clock_ns();
    counter_add(&scene->waiting, 1);
    counter_await(&scene->gate, 1);
    counter_add(&scene->ran, 1);
}

void run_blocked(struct mw_pool_item *item)
{
    mw_block_begin();
    run_at_gate(item);
    mw_block_end();
}

void run_in_order(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    scene->order[atomic_fetch_add_explicit(&scene->ordered, 1, memory_order_relaxed)] =
        task->number;
    counter_add(&scene->ran, 1);
}

/* The pool under stress: submitters race, items yield, block and come again, the minimum changes,
 * workers come and go. For ThreadSanitizer above all. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <millwright/thread.h>

#include "pools/pool_scene.h"

#define SUBMITTERS    3
#define PER_SUBMITTER 2000
#define TURNS         3
#define THREADS_MAX   6

struct stressed {
    struct mw_pool_item item; /* first, so that fn can cast */
    struct scene *scene;
    unsigned number;
    unsigned turns;       /* owned by whoever runs it */
    _Atomic unsigned ran; /* relaxed: `ran` of the scene publishes */
};

struct submitter {
    struct scene *scene;
    struct stressed *all;
};

static struct stressed stressed[SUBMITTERS][PER_SUBMITTER];

/* What it does is told by its number, so each run does the same work. */
static void run_stressed(struct mw_pool_item *item)
{
    struct stressed *own = (struct stressed *)item;
    struct scene *scene = own->scene;
    unsigned blocks = own->number % 4;

    atomic_fetch_add_explicit(&own->ran, 1, memory_order_relaxed);
    for (unsigned i = 0; i < blocks; i++)
        mw_block_begin();
    if (blocks > 0)
        sched_yield();
    for (unsigned i = 0; i < blocks; i++)
        mw_block_end();
    if (own->turns-- > 1 &&
        (own->number % 3 == 0 ? mw_pool_yield : mw_pool_submit)(scene->pool, item) != 0)
        abort(); /* there is room */
    counter_add(&scene->ran, 1);
}

static void submit_all(void *arg)
{
    const struct submitter *submitter = arg;

    for (unsigned i = 0; i < PER_SUBMITTER; i++) {
        struct stressed *each = &submitter->all[i];

        *each = (struct stressed){
            .item = {.fn = run_stressed}, .scene = submitter->scene, .number = i, .turns = TURNS};
        while (mw_pool_submit(submitter->scene->pool, &each->item) != 0)
            sched_yield();
    }
}

static void change_minimum(void *arg)
{
    struct scene *scene = arg;
    struct mw_pool_stats stats;
    unsigned min_threads = 1;

    while (counter_value(&scene->gate) == 0) {
        min_threads = min_threads % THREADS_MAX + 1;
        (void)mw_pool_set_min(scene->pool, min_threads, NULL);
        mw_pool_snapshot(scene->pool, &stats);
        (void)mw_pool_replace_min(scene->pool, stats.min_changes, THREADS_MAX / 2, NULL);
        if (stats.threads > THREADS_MAX || stats.pending > stats.queue_max)
            abort();
        sched_yield();
    }
}

static void start(struct mw_thread *thread, bool idle, void (*fn)(void *), void *arg)
{
    struct mw_thread_options options = {.name = "stress", .idle = idle};

    assert_int_equal(mw_thread_start(thread, &options, fn, arg), 0);
}

/* Breaks when an item is lost or run twice, or an invariant of the pool does not hold. */
static void pool_runs_each_item_as_often_as_submitted(void **state)
{
    struct submitter submitters[SUBMITTERS];
    struct mw_thread threads[SUBMITTERS];
    struct mw_thread changer;
    struct scene scene;

    (void)state;
    scene_open(&scene,
               &(struct mw_pool_options){.min_threads = 1,
                                         .max_threads = THREADS_MAX,
                                         .queue_max = SUBMITTERS * PER_SUBMITTER + THREADS_MAX,
                                         .idle_ms = 1});
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.scene = &scene, .all = stressed[i]};
        /* one that is slow: others must not rely on the workers that it starts */
        start(&threads[i], i == 0, submit_all, &submitters[i]);
    }
    start(&changer, false, change_minimum, &scene);
    assert_true(counter_await(&scene.ran, SUBMITTERS * PER_SUBMITTER * TURNS));
    counter_add(&scene.gate, 1);
    mw_thread_join(&changer);
    for (unsigned i = 0; i < SUBMITTERS; i++)
        mw_thread_join(&threads[i]);
    settle(&scene);
    for (unsigned i = 0; i < SUBMITTERS; i++)
        for (unsigned j = 0; j < PER_SUBMITTER; j++)
            assert_int_equal(atomic_load_explicit(&stressed[i][j].ran, memory_order_relaxed),
                             TURNS);
    assert_int_equal(stats_of(&scene).completed, SUBMITTERS * PER_SUBMITTER * TURNS);
    assert_int_equal(stats_of(&scene).blocked, 0);
    scene_close(&scene);
}

/* Breaks when a wake is lost: one submitter and an item at a time leave nothing that would heal
 * it, but for a worker whose time is up, which is never here. */
static void no_wake_is_lost_one_item_at_a_time(void **state)
{
    struct scene scene;
    struct task task;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 2});
    for (unsigned i = 1; i <= 20000; i++) {
        task_launch(&task, &scene, run_plain);
        assert_true(counter_await(&scene.ran, i));
        settle(&scene);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_runs_each_item_as_often_as_submitted),
        cmocka_unit_test(no_wake_is_lost_one_item_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

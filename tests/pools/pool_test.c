#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/flow.h>
#include <millwright/pool.h>
#include <millwright/thread.h>

#include "pools/pool_scene.h"
#include "pools/support.h"
#include "pools/thread_starts.h"

#define SUBMITTERS    4
#define PER_SUBMITTER 2000
#define NOBODY        65534 /* Debian's user of that name */

static void run_and_free(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    memset(task, 0xA5, sizeof *task);
    free(task);
    counter_add(&scene->ran, 1);
}

static void run_again(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    if (task->turns-- > 1)
        (void)mw_pool_submit(scene->pool, item);
    counter_add(&scene->ran, 1);
}

static void run_and_yield(struct mw_pool_item *item)
{
    struct task *task = (struct task *)item;
    struct scene *scene = task->scene;

    if (task->turns-- > 1 && mw_pool_yield(scene->pool, item) == 0)
        return;
    run_in_order(item);
}

/* Breaks when a limit is not checked, or a default does not fit the others. */
static void pool_refuses_bad_limits(void **state)
{
    static const struct mw_pool_options bad[] = {
        {.max_threads = MW_POOL_MAX_THREADS_LIMIT + 1},
        {.min_threads = 5, .max_threads = 4},
        {.min_threads = MW_POOL_MAX_THREADS_DEFAULT + 1},
    };
    struct mw_pool_stats stats;
    struct mw_pool *pool = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mw_pool_new(&pool, &bad[i]), -EINVAL);
    assert_null(pool);
    assert_int_equal(mw_pool_new(&pool, &(struct mw_pool_options){.max_threads = 1}), 0);
    mw_pool_snapshot(pool, &stats);
    assert_int_equal(stats.min_threads, 1);
    assert_int_equal(stats.threads, 0);
    mw_pool_free(pool);
    mw_pool_free(NULL);
}

/* Breaks when a second worker takes part, or the queue is no queue. */
static void pool_starts_items_in_order(void **state)
{
    struct scene scene;
    struct task first;
    struct task tasks[ITEMS_MAX];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 1});
    task_launch(&first, &scene, run_at_gate);
    for (unsigned i = 0; i < ITEMS_MAX; i++) {
        task_init(&tasks[i], &scene, run_in_order);
        tasks[i].number = i;
        task_submit(&tasks[i]);
    }
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, ITEMS_MAX + 1));
    for (unsigned i = 0; i < ITEMS_MAX; i++)
        assert_int_equal(scene.order[i], i);
    scene_close(&scene);
}

/* Breaks when an item that finds nobody idle waits although a worker could be started, when two
 * items rely on the same worker, or when the maximum is passed. */
static void pool_grows_to_its_maximum_and_no_further(void **state)
{
    struct scene scene;
    struct task tasks[5];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 3, .max_threads = 3});
    for (unsigned i = 0; i < 5; i++)
        task_launch(&tasks[i], &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 3));
    assert_int_equal(stats_of(&scene).threads, 3);
    assert_int_equal(stats_of(&scene).busy, 3);
    assert_int_equal(stats_of(&scene).pending, 2);
    assert_true(stats_of(&scene).oldest_pending_ns > 0);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 5));
    settle(&scene);
    assert_int_equal(stats_of(&scene).completed, 5);
    assert_int_equal(stats_of(&scene).oldest_pending_ns, 0);
    scene_close(&scene);
}

/* Breaks when two items that come close together rely on the same idle worker: the second would
 * wait for ever, as the first waits for the gate. */
static void pool_counts_wakes_in_flight(void **state)
{
    struct scene scene;
    struct task tasks[2];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 2});
    for (unsigned round = 0; round < 200; round++) {
        unsigned waiting = counter_value(&scene.waiting);

        scene.gate.value = 0; /* nobody else is about: the pool is idle */
        for (unsigned i = 0; i < 2; i++) {
            task_launch(&tasks[i], &scene, run_at_gate);
        }
        assert_true(counter_await(&scene.waiting, waiting + 2));
        counter_add(&scene.gate, 1);
        settle(&scene);
    }
    scene_close(&scene);
}

/* Wait until the thread sleeps. The test's own time limit bounds this. */
static void await_sleep(pid_t tid)
{
    char path[64];
    char state = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    while (state != 'S') {
        FILE *stat = fopen(path, "re");

        assert_non_null(stat);
        assert_int_equal(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
        fclose(stat);
        if (state != 'S')
            sched_yield();
    }
}

/* Breaks when another than the newest idle worker is woken: its cache would be cold, and the
 * others would never have been idle long enough to leave. */
static void pool_wakes_the_newest_idle_worker(void **state)
{
    struct scene scene;
    struct task tasks[3];
    struct task task;
    pid_t newest;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 3, .max_threads = 3});
    for (unsigned i = 0; i < 3; i++) {
        task_launch(&tasks[i], &scene, run_at_gate);
    }
    assert_true(counter_await(&scene.waiting, 3));
    counter_add(&scene.gate, 1);
    settle(&scene);
    task_launch(&task, &scene, run_plain);
    settle(&scene);
    newest = task.tid;
    for (unsigned i = 0; i < 50; i++) {
        await_sleep(newest); /* until then it is on no list, and an older one may be chosen */
        task_submit(&task);
        settle(&scene);
        assert_int_equal(task.tid, newest);
    }
    scene_close(&scene);
}

/* Wait until the pool has so many workers. The test's own time limit bounds this. */
static void await_threads(const struct scene *scene, unsigned threads)
{
    while (stats_of(scene).threads != threads || mw_thread_count(MW_THREAD_POOL) != threads)
        usleep(1000);
}

/* Breaks when workers above the minimum stay, those within it leave, or one that left is not
 * replaced. */
static void pool_shrinks_to_its_minimum(void **state)
{
    struct scene scene;
    struct task tasks[6];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 2, .max_threads = 6, .idle_ms = 1});
    for (unsigned round = 1; round <= 3; round++) {
        scene.gate.value = 0;
        for (unsigned i = 0; i < 6; i++)
            task_launch(&tasks[i], &scene, run_blocked);
        assert_true(counter_await(&scene.waiting, 6 * round));
        assert_int_equal(stats_of(&scene).threads, 6);
        counter_add(&scene.gate, 1);
        settle(&scene);
        await_threads(&scene, 2);
    }
    scene_close(&scene);
}

/* What the thread has run so far, in nanoseconds. */
static uint64_t run_ns_of(pid_t tid)
{
    char path[64];
    uint64_t run_ns;
    FILE *stat;

    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)tid);
    stat = fopen(path, "re");
    assert_non_null(stat);
    assert_int_equal(fscanf(stat, "%" SCNu64, &run_ns), 1);
    fclose(stat);
    return run_ns;
}

/* Breaks when a parked worker within the minimum wakes for nothing, its idle time being up. */
static void parked_worker_within_the_minimum_costs_nothing(void **state)
{
    struct scene scene;
    struct task task;
    uint64_t run_ns;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2, .idle_ms = 1});
    task_launch(&task, &scene, run_plain);
    settle(&scene);
    await_sleep(task.tid);
    usleep(20 * 1000); /* long enough for its idle time to be up, if it had one */
    run_ns = run_ns_of(task.tid);
    usleep(20 * 1000);
    assert_int_equal(run_ns_of(task.tid), run_ns);
    scene_close(&scene);
}

/* Breaks when a full queue blocks, drops, or touches the item it refuses. */
static void pool_refuses_when_its_queue_is_full(void **state)
{
    struct scene scene;
    struct task first;
    struct task tasks[3];
    struct task untouched;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 1, .queue_max = 2});
    task_launch(&first, &scene, run_at_gate);
    assert_true(counter_await(&scene.waiting, 1));
    for (unsigned i = 0; i < 3; i++)
        task_init(&tasks[i], &scene, run_plain);
    untouched = tasks[2];
    assert_int_equal(mw_pool_submit(scene.pool, &tasks[0].item), 0);
    assert_int_equal(mw_pool_submit(scene.pool, &tasks[1].item), 0);
    assert_int_equal(mw_pool_submit(scene.pool, &tasks[2].item), -EAGAIN);
    assert_memory_equal(&tasks[2], &untouched, sizeof untouched);
    assert_int_equal(stats_of(&scene).rejected, 1);
    counter_add(&scene.gate, 1);
    settle(&scene);
    assert_int_equal(counter_value(&scene.ran), 3);
    assert_int_equal(mw_pool_submit(scene.pool, &tasks[2].item), 0);
    scene_close(&scene);
}

/* Breaks when an item is queued that nobody will ever run. */
static void pool_refuses_when_no_worker_can_be_had(void **state)
{
    struct scene scene;
    struct task task;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 4});
    task_init(&task, &scene, run_plain);
    thread_starts_allow(0);
    assert_int_equal(mw_pool_submit(scene.pool, &task.item), -EAGAIN);
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).start_failures, 1);
    assert_int_equal(stats_of(&scene).threads, 0);
    assert_int_equal(stats_of(&scene).pending, 0);
    task_submit(&task);
    assert_true(counter_await(&scene.ran, 1));
    scene_close(&scene);
}

/* Breaks when an item is refused although a worker exists that will come to it. */
static void pool_goes_on_with_the_workers_it_has(void **state)
{
    struct scene scene;
    struct task first;
    struct task second;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 4});
    task_init(&first, &scene, run_at_gate);
    task_init(&second, &scene, run_plain);
    task_submit(&first);
    assert_true(counter_await(&scene.waiting, 1));
    thread_starts_allow(0);
    task_submit(&second);
    thread_starts_allow(-1);
    assert_int_equal(stats_of(&scene).start_failures, 2); /* the gate is refused as well */
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 2));
    scene_close(&scene);
}

/* Breaks when the pool reads an item after it called fn. */
static void pool_leaves_an_item_alone_once_it_runs(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 2});
    for (unsigned i = 0; i < 500; i++) {
        struct task *task = malloc(sizeof *task);

        assert_non_null(task);
        task_init(task, &scene, run_and_free);
        assert_int_equal(mw_pool_submit(scene.pool, &task->item), 0);
    }
    assert_true(counter_await(&scene.ran, 500));
    scene_close(&scene);
}

/* Breaks when an item cannot queue itself again from inside itself. */
static void pool_takes_an_item_again_from_inside(void **state)
{
    struct scene scene;
    struct task task;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 1});
    task_init(&task, &scene, run_again);
    task.turns = 1000;
    task_submit(&task);
    assert_true(counter_await(&scene.ran, 1000));
    scene_close(&scene);
}

/* Breaks when a yielded item does not go behind the others. */
static void pool_yield_goes_to_the_tail(void **state)
{
    struct scene scene;
    struct task first;
    struct task tasks[3];

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 1});
    task_launch(&first, &scene, run_at_gate);
    for (unsigned i = 0; i < 3; i++) {
        task_init(&tasks[i], &scene, i == 0 ? run_and_yield : run_in_order);
        tasks[i].number = i;
        tasks[i].turns = 2;
        task_submit(&tasks[i]);
    }
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.ran, 4));
    assert_int_equal(scene.order[0], 1);
    assert_int_equal(scene.order[1], 2);
    assert_int_equal(scene.order[2], 0);
    scene_close(&scene);
}

/* Breaks when a yield grows the pool, although the worker that yields is about to be free. */
static void pool_yield_starts_no_thread(void **state)
{
    struct scene scene;
    struct task task;
    struct task next;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1, .max_threads = 8});
    task_init(&task, &scene, run_and_yield);
    task.turns = 100;
    task_submit(&task);
    assert_true(counter_await(&scene.ran, 1));
    assert_int_equal(stats_of(&scene).threads, 1);
    settle(&scene);
    task_launch(&next, &scene, run_plain); /* and nobody is taken for one who yields any longer */
    assert_true(counter_await(&scene.ran, 2));
    scene_close(&scene);
}

/* Breaks when the pool drops the leaf that an item was submitted from, or lets it stick to the
 * worker. The control is the second half: with no leaf nothing is counted. */
static void pool_item_carries_the_leaf_it_came_from(void **state)
{
    struct scene scene;
    struct task task;
    uint64_t escapes = mw_flow_escapes();
    uint64_t leaf = mw_flow_next();

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 1});
    task_init(&task, &scene, run_plain);
    mw_flow_enter(leaf);
    task_submit(&task);
    mw_flow_enter(0);
    settle(&scene);
    assert_int_equal(task.flow, leaf);
    assert_int_equal(mw_flow_escapes(), escapes + 1);
    assert_int_equal(mw_flow_escaped_leaf(), leaf);

    task_submit(&task);
    settle(&scene);
    assert_int_equal(task.flow, 0);
    assert_int_equal(mw_flow_escapes(), escapes + 1);
    scene_close(&scene);
}

/* Breaks when mw_pool_free drops what is queued, or does not wait for it. */
static void pool_free_finishes_what_is_queued(void **state)
{
    struct scene scene;
    struct task tasks[ITEMS_MAX];
    struct mw_pool *pool;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.max_threads = 2});
    for (unsigned i = 0; i < ITEMS_MAX; i++) {
        task_launch(&tasks[i], &scene, run_plain);
    }
    pool = scene.pool;
    scene.pool = NULL;
    mw_pool_free(pool);
    assert_int_equal(counter_value(&scene.ran), ITEMS_MAX);
    scene_close(&scene);
}

struct submitter {
    struct scene *scene;
    struct task *tasks;
};

static void submit_many(void *arg)
{
    const struct submitter *submitter = arg;

    for (unsigned i = 0; i < PER_SUBMITTER; i++) {
        task_init(&submitter->tasks[i], submitter->scene, run_again);
        submitter->tasks[i].turns = 2;
        while (mw_pool_submit(submitter->scene->pool, &submitter->tasks[i].item) != 0)
            sched_yield();
    }
}

/* Breaks when an item is lost or run twice while workers come and go and submitters race. */
static void pool_runs_each_item_once_under_stress(void **state)
{
    static struct task tasks[SUBMITTERS][PER_SUBMITTER];
    struct submitter submitters[SUBMITTERS];
    struct mw_thread threads[SUBMITTERS];
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct mw_pool_options){.min_threads = 1,
                                                 .max_threads = 4,
                                                 .queue_max = 2 * SUBMITTERS * PER_SUBMITTER,
                                                 .idle_ms = 1});
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.scene = &scene, .tasks = tasks[i]};
        assert_int_equal(mw_thread_start(&threads[i],
                                         &(struct mw_thread_options){.name = "submitter"},
                                         submit_many, &submitters[i]),
                         0);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++)
        mw_thread_join(&threads[i]);
    assert_true(counter_await(&scene.ran, 2 * SUBMITTERS * PER_SUBMITTER));
    settle(&scene);
    assert_int_equal(stats_of(&scene).completed, 2 * SUBMITTERS * PER_SUBMITTER);
    assert_in_range(stats_of(&scene).threads, 1, 4);
    scene_close(&scene);
}

static void submit_one(void *arg)
{
    struct task *task = arg;

    (void)mw_pool_submit(task->scene->pool, &task->item);
}

/* The body of the next test, in a process that may not get out of SCHED_IDLE. Returns 0, or the
 * number of the check that failed. */
static int check_slow_worker_leaves(void)
{
    struct mw_thread_options options = {.name = "slow", .idle = true};
    struct mw_pool *pool;
    struct scene scene = {0};
    struct mw_thread thread;
    struct mw_pool_stats stats;
    struct task task;

    counter_init(&scene.ran);
    if (mw_pool_new(&pool, &(struct mw_pool_options){.min_threads = 1, .max_threads = 2}) != 0)
        return 1;
    scene.pool = pool;
    task_init(&task, &scene, run_plain);
    if (mw_thread_start(&thread, &options, submit_one, &task) != 0)
        return 2;
    mw_thread_join(&thread);
    if (!counter_await(&scene.ran, 1))
        return 3;
    do {
        sched_yield();
        mw_pool_snapshot(pool, &stats);
    } while (stats.threads > 0); /* the test's own time limit bounds this */
    submit_one(&task);
    settle(&scene);
    mw_pool_snapshot(pool, &stats);
    if (stats.threads != 1)
        return 4;
    mw_pool_free(pool);
    counter_fini(&scene.ran);
    return 0;
}

/* Breaks when a worker that an idle-class thread had to start stays in the pool: it would starve
 * behind the compiles that it should serve. */
static void pool_lets_a_slow_worker_go(void **state)
{
    const struct rlimit none = {0, 0};
    int status = 0;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        if (setrlimit(RLIMIT_NICE, &none) != 0)
            _exit(100);
        if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
            _exit(101);
        _exit(check_slow_worker_leaves());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_lets_a_slow_worker_go), /* first: it forks */
        cmocka_unit_test(pool_refuses_bad_limits),
        cmocka_unit_test(pool_starts_items_in_order),
        cmocka_unit_test(pool_grows_to_its_maximum_and_no_further),
        cmocka_unit_test(pool_counts_wakes_in_flight),
        cmocka_unit_test(pool_wakes_the_newest_idle_worker),
        cmocka_unit_test(pool_shrinks_to_its_minimum),
        cmocka_unit_test(parked_worker_within_the_minimum_costs_nothing),
        cmocka_unit_test(pool_refuses_when_its_queue_is_full),
        cmocka_unit_test(pool_refuses_when_no_worker_can_be_had),
        cmocka_unit_test(pool_goes_on_with_the_workers_it_has),
        cmocka_unit_test(pool_leaves_an_item_alone_once_it_runs),
        cmocka_unit_test(pool_takes_an_item_again_from_inside),
        cmocka_unit_test(pool_yield_goes_to_the_tail),
        cmocka_unit_test(pool_yield_starts_no_thread),
        cmocka_unit_test(pool_item_carries_the_leaf_it_came_from),
        cmocka_unit_test(pool_free_finishes_what_is_queued),
        cmocka_unit_test(pool_runs_each_item_once_under_stress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

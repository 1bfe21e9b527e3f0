/* monitor_test.c - the whole monitor on a real pool whose workers really block, or really compute.
 *
 * Nothing here asserts how long a thing takes: what must happen is waited for, and what must not
 * happen is looked for after the monitor has had many chances to do it. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/monitor.h>
#include <millwright/pool.h>
#include <millwright/thread.h>

#include "support.h"
#include "thread_starts.h"

#define ENVIRONMENT "MILLWRIGHT_DISABLE_POOL_TUNING"
#define ITEMS_MAX   64u

/* What the monitor has reported. */
struct journal {
    struct mw_mutex lock; /* guards all but the counter */
    unsigned counts[MW_MONITOR_EVENTS];
    struct mw_monitor_event last[MW_MONITOR_EVENTS];
    enum mw_thread_kind told_on;
    struct counter events;
};

struct scene {
    struct mw_pool *pool;
    struct mw_monitor *monitor;
    struct journal journal;
    struct counter inside; /* items that have begun */
    struct counter gate;   /* what they wait for */
    _Atomic bool open;     /* the same, for those who must not sleep on a lock; relaxed: a hint */
    struct item {
        struct mw_pool_item item; /* first, so that fn can cast */
        struct scene *scene;
    } items[ITEMS_MAX];
};

static void note(void *user, const struct mw_monitor_event *event)
{
    struct journal *journal = user;

    mw_mutex_lock(&journal->lock);
    journal->counts[event->kind]++;
    journal->last[event->kind] = *event;
    journal->told_on = mw_thread_kind_current();
    mw_mutex_unlock(&journal->lock);
    counter_add(&journal->events, 1);
}

static unsigned noted(struct journal *journal, enum mw_monitor_event_kind kind,
                      struct mw_monitor_event *last)
{
    unsigned count;

    mw_mutex_lock(&journal->lock);
    count = journal->counts[kind];
    if (last != NULL)
        *last = journal->last[kind];
    mw_mutex_unlock(&journal->lock);
    return count;
}

static struct scene *scene_open(unsigned min_threads, unsigned max_threads)
{
    struct scene *scene = calloc(1, sizeof *scene);

    assert_non_null(scene);
    counter_init(&scene->inside);
    counter_init(&scene->gate);
    counter_init(&scene->journal.events);
    assert_int_equal(mw_mutex_init(&scene->journal.lock), 0);
    assert_int_equal(
        mw_pool_new(&scene->pool, &(struct mw_pool_options){.min_threads = min_threads,
                                                            .max_threads = max_threads}),
        0);
    return scene;
}

static void scene_monitor(struct scene *scene, unsigned parallel_limit)
{
    assert_int_equal(mw_monitor_new(&scene->monitor,
                                    &(struct mw_monitor_options){.pool = scene->pool,
                                                                 .parallel_limit = parallel_limit,
                                                                 .report = note,
                                                                 .user = &scene->journal}),
                     0);
}

static void scene_unmonitor(struct scene *scene)
{
    mw_monitor_free(scene->monitor);
    scene->monitor = NULL;
}

static void scene_close(struct scene *scene)
{
    counter_add(&scene->gate, 1);
    atomic_store_explicit(&scene->open, true, memory_order_relaxed);
    scene_unmonitor(scene);
    mw_pool_free(scene->pool);
    mw_mutex_fini(&scene->journal.lock);
    counter_fini(&scene->journal.events);
    counter_fini(&scene->gate);
    counter_fini(&scene->inside);
    free(scene);
}

static void submit(struct scene *scene, unsigned index, void (*fn)(struct mw_pool_item *item))
{
    struct item *item = &scene->items[index];

    assert_true(index < ITEMS_MAX);
    item->scene = scene;
    item->item.fn = fn;
    assert_int_equal(mw_pool_submit(scene->pool, &item->item), 0);
}

static unsigned min_of(struct scene *scene)
{
    struct mw_pool_stats stats;

    mw_pool_snapshot(scene->pool, &stats);
    return stats.min_threads;
}

/* Blocks, and says nothing. */
static void block(struct mw_pool_item *item)
{
    struct scene *scene = ((struct item *)item)->scene;

    counter_add(&scene->inside, 1);
    counter_await(&scene->gate, 1);
}

static void block_and_say_so(struct mw_pool_item *item)
{
    mw_block_begin();
    block(item);
    mw_block_end();
}

static void compute(struct mw_pool_item *item)
{
    struct scene *scene = ((struct item *)item)->scene;

    counter_add(&scene->inside, 1);
    while (!atomic_load_explicit(&scene->open, memory_order_relaxed))
        ;
}

static void nothing(struct mw_pool_item *item)
{
    counter_add(&((struct item *)item)->scene->inside, 1);
}

/* Wait until the monitor has taken `samples` that count, of which the probe waited in the last few.
 * Returns false when it does not get there in time. */
static bool await_samples(struct scene *scene, unsigned samples)
{
    const struct timespec pause = {.tv_nsec = 10 * MW_NS_PER_MS};
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    struct mw_monitor_stats stats;

    do {
        nanosleep(&pause, NULL);
        mw_monitor_snapshot(scene->monitor, &stats);
    } while (stats.samples - stats.discarded < samples && mw_clock_ns() < deadline);
    return stats.samples - stats.discarded >= samples;
}

/* Breaks when blocked workers are not found, when the raise is not the one step it should be, when
 * it does not help those who wait, when the minimum is not put back, or when any of it is told
 * wrongly. Half of the items say that they block. */
static void monitor_raises_for_blocked_workers_and_restores(void **state)
{
    enum { ITEMS = 24 };
    struct scene *scene = scene_open(2, 200);
    struct mw_monitor_event raised;
    struct mw_monitor_event restored;
    struct mw_monitor_stats stats;

    (void)state;
    scene_monitor(scene, ITEMS);
    for (unsigned i = 0; i < ITEMS; i++)
        submit(scene, i, i % 2 == 0 ? block : block_and_say_so);
    assert_true(counter_await(&scene->journal.events, 1));
    assert_true(counter_await(&scene->inside, ITEMS));
    assert_int_equal(noted(&scene->journal, MW_MONITOR_RAISED, &raised), 1);
    assert_int_equal(raised.min_before, 2);
    assert_int_equal(raised.min_after, ITEMS + mw_cpus_effective());
    assert_int_equal(min_of(scene), raised.min_after);
    assert_true(raised.blocked > 0 && raised.blocked <= raised.busy);
    assert_true(raised.busy <= raised.threads);
    assert_true(raised.pending > 0);
    assert_true(raised.age_ns >= MW_MONITOR_AGE_MS * MW_NS_PER_MS);
    assert_true(raised.cpu_used >= 0 && raised.cpu_used <= 1);

    mw_monitor_snapshot(scene->monitor, &stats);
    assert_true(stats.enabled);
    assert_int_equal(stats.raises, 1);
    assert_int_equal(stats.failures, 0);
    assert_true(stats.starved >= 1 && stats.starved < stats.samples);
    assert_true(stats.age_max_ns >= raised.age_ns);

    counter_add(&scene->gate, 1);
    scene_unmonitor(scene);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_RESTORED, &restored), 1);
    assert_int_equal(restored.min_before, raised.min_after);
    assert_int_equal(restored.min_after, 2);
    assert_int_equal(min_of(scene), 2);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_LEFT, NULL), 0);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_FAILED, NULL), 0);
    assert_int_equal(scene->journal.told_on, MW_THREAD_MONITOR);
    scene_close(scene);
}

/* Breaks when workers that compute are taken for blocked ones. The control is the test above, and
 * the one below. Others may have the CPUs meanwhile: that must not matter. */
static void monitor_leaves_a_pool_alone_that_computes(void **state)
{
    struct scene *scene = scene_open(2, 200);
    struct mw_monitor_stats stats;

    (void)state;
    submit(scene, 0, compute);
    submit(scene, 1, compute);
    assert_true(counter_await(&scene->inside, 2));
    submit(scene, 2, nothing);
    scene_monitor(scene, 8);
    assert_true(await_samples(scene, 10));
    mw_monitor_snapshot(scene->monitor, &stats);
    assert_int_equal(stats.raises, 0);
    assert_int_equal(stats.starved, 0);
    assert_int_equal(min_of(scene), 2);
    assert_true(stats.age_max_ns >=
                MW_MONITOR_AGE_MS * MW_NS_PER_MS); /* there was something to see */
    assert_int_equal(counter_value(&scene->journal.events), 0);
    scene_close(scene);
}

/* Breaks when one spinner beside one blocked worker, exactly half of two CPUs, is not enough. */
static void monitor_raises_for_one_spinner_and_one_blocked_on_two_cpus(void **state)
{
    struct scene *scene;
    cpu_set_t before;
    cpu_set_t two;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&two);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    if (mw_cpus_fraction() < 2) {
        assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
        skip(); /* not on this machine */
    }
    scene = scene_open(2, 200);
    submit(scene, 0, compute);
    submit(scene, 1, block);
    assert_true(counter_await(&scene->inside, 2));
    submit(scene, 2, nothing);
    scene_monitor(scene, 8);
    assert_true(counter_await(&scene->journal.events, 1));
    assert_int_equal(noted(&scene->journal, MW_MONITOR_RAISED, NULL), 1);
    assert_true(counter_await(&scene->inside, 3));
    scene_close(scene);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* Breaks when a pool that is starved after its first raise is not given more. */
static void monitor_doubles_when_the_first_step_was_too_small(void **state)
{
    enum { ITEMS = 40 };
    struct scene *scene = scene_open(2, 200);
    struct mw_monitor_event last;
    unsigned first = 1 + mw_cpus_effective();
    unsigned raises;

    (void)state;
    if (MW_MONITOR_THREADS_PER_CPU * mw_cpus_effective() < ITEMS)
        skip();
    scene_monitor(scene, 1);
    for (unsigned i = 0; i < ITEMS; i++)
        submit(scene, i, block);
    assert_true(counter_await(&scene->inside, ITEMS));
    raises = noted(&scene->journal, MW_MONITOR_RAISED, &last);
    assert_true(raises >= 2);
    while (--raises > 0)
        first *= 2;
    if (first > MW_MONITOR_THREADS_PER_CPU * mw_cpus_effective())
        first = MW_MONITOR_THREADS_PER_CPU * mw_cpus_effective();
    assert_int_equal(last.min_after, first);
    scene_unmonitor(scene);
    assert_int_equal(min_of(scene), 2);
    scene_close(scene);
}

/* Breaks when the monitor puts its own minimum in the place of one that was set meanwhile. */
static void monitor_keeps_a_minimum_that_was_set_meanwhile(void **state)
{
    struct scene *scene = scene_open(2, 200);
    struct mw_monitor_event left;

    (void)state;
    scene_monitor(scene, 8);
    for (unsigned i = 0; i < 6; i++)
        submit(scene, i, block);
    assert_true(counter_await(&scene->journal.events, 1));
    assert_true(counter_await(&scene->inside, 6));
    counter_add(&scene->gate, 1);
    assert_int_equal(mw_pool_set_min(scene->pool, 5, NULL), 0);
    scene_unmonitor(scene);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_LEFT, &left), 1);
    assert_int_equal(left.min_before, 8 + mw_cpus_effective());
    assert_int_equal(left.min_after, 5);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_RESTORED, NULL), 0);
    assert_int_equal(min_of(scene), 5);
    scene_close(scene);
}

/* Breaks when a minimum that was set to just what the monitor had raised it to is taken for the
 * monitor's, and lowered at the end. The control is the first test: untouched, it is lowered. */
static void monitor_keeps_a_minimum_set_to_what_it_raised_it_to(void **state)
{
    struct scene *scene = scene_open(2, 200);
    unsigned raised = 8 + mw_cpus_effective();
    struct mw_monitor_event left;

    (void)state;
    scene_monitor(scene, 8);
    for (unsigned i = 0; i < 6; i++)
        submit(scene, i, block);
    assert_true(counter_await(&scene->journal.events, 1));
    assert_true(counter_await(&scene->inside, 6));
    assert_int_equal(min_of(scene), raised);
    assert_int_equal(mw_pool_set_min(scene->pool, raised, NULL), 0);
    assert_true(counter_await(&scene->journal.events, 2)); /* while it runs, not only at its end */
    assert_int_equal(noted(&scene->journal, MW_MONITOR_LEFT, &left), 1);
    assert_int_equal(left.min_before, raised);
    assert_int_equal(left.min_after, raised);
    scene_unmonitor(scene);
    assert_int_equal(noted(&scene->journal, MW_MONITOR_RESTORED, NULL), 0);
    assert_int_equal(min_of(scene), raised);
    scene_close(scene);
}

/* Breaks when a minimum that is high enough is touched. */
static void monitor_leaves_a_high_minimum_alone(void **state)
{
    struct scene *scene = scene_open(20, 20);

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        submit(scene, i, block);
    assert_true(counter_await(&scene->inside, 20));
    submit(scene, 20, nothing);
    scene_monitor(scene, 8);
    assert_true(await_samples(scene, 8));
    assert_int_equal(counter_value(&scene->journal.events), 0);
    assert_int_equal(min_of(scene), 20);
    scene_close(scene);
}

/* Breaks when the probe keeps an idle pool busy, or starts its threads. */
static void monitor_leaves_an_idle_pool_in_peace(void **state)
{
    struct scene *scene = scene_open(2, 200);
    struct mw_pool_stats pool;

    (void)state;
    scene_monitor(scene, 8);
    assert_true(await_samples(scene, 5));
    mw_pool_snapshot(scene->pool, &pool);
    assert_int_equal(pool.threads, 0);
    assert_int_equal(pool.completed, 0);
    scene_close(scene);
}

/* Breaks when the option or a word of the environment is not heeded, or the environment does not
 * win; the rows with no word are the option's own. */
static void monitor_is_off_when_it_is_told_so(void **state)
{
    static const struct {
        const char *environment;
        bool disabled;
        int error;
        bool enabled;
    } rows[] = {
        {NULL, false, 0, true},       {NULL, true, 0, false},    {"", true, 0, false},
        {"1", false, 0, false},       {"true", false, 0, false}, {"yes", false, 0, false},
        {"YES", false, 0, false},     {"0", true, 0, true},      {"false", true, 0, true},
        {"no", true, 0, true},        {"0", false, 0, true},     {"maybe", false, -EINVAL, false},
        {"10", true, -EINVAL, false},
    };
    struct scene *scene = scene_open(2, 200);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mw_monitor_options options = {.pool = scene->pool, .disabled = rows[i].disabled};
        struct mw_monitor_stats stats;
        struct mw_monitor *monitor = NULL;

        if (rows[i].environment != NULL)
            assert_int_equal(setenv(ENVIRONMENT, rows[i].environment, 1), 0);
        assert_int_equal(mw_monitor_new(&monitor, &options), rows[i].error);
        assert_int_equal(unsetenv(ENVIRONMENT), 0);
        assert_int_equal(mw_thread_count(MW_THREAD_MONITOR), rows[i].enabled);
        if (rows[i].error == 0) {
            mw_monitor_snapshot(monitor, &stats);
            assert_int_equal(stats.enabled, rows[i].enabled);
        }
        mw_monitor_free(monitor);
        assert_int_equal(mw_thread_count(MW_THREAD_MONITOR), 0);
    }
    scene_close(scene);
}

/* Breaks when options that cannot be are taken, or NULL is not free to free. */
static void monitor_refuses_no_pool(void **state)
{
    struct mw_monitor *monitor = NULL;

    (void)state;
    assert_int_equal(mw_monitor_new(&monitor, &(struct mw_monitor_options){0}), -EINVAL);
    assert_int_equal(mw_monitor_new(&monitor, NULL), -EINVAL);
    assert_null(monitor);
    mw_monitor_free(NULL);
}

/* Breaks when a thread that the system refuses leaves anything behind (with AddressSanitizer: any
 * memory), or when the next try is spoiled by it. */
static void monitor_without_a_thread_is_none(void **state)
{
    struct scene *scene = scene_open(2, 200);
    unsigned tasks = tasks_baseline();
    struct mw_monitor *monitor = NULL;

    (void)state;
    thread_starts_allow(0);
    assert_int_equal(mw_monitor_new(&monitor, &(struct mw_monitor_options){.pool = scene->pool}),
                     -EAGAIN);
    thread_starts_allow(-1);
    assert_null(monitor);
    assert_int_equal(mw_thread_count(MW_THREAD_MONITOR), 0);
    assert_true(tasks_await(tasks));
    scene_monitor(scene, 8);
    assert_int_equal(mw_thread_count(MW_THREAD_MONITOR), 1);
    scene_close(scene);
}

/* Breaks when the end of a monitor waits for a probe item that no worker takes, or when that item,
 * taken later, touches or loses what was the monitor's. */
static void monitor_ends_while_its_probe_waits(void **state)
{
    struct scene *scene = scene_open(1, 1);

    (void)state;
    submit(scene, 0, block);
    assert_true(counter_await(&scene->inside, 1));
    scene_monitor(scene, 8);
    assert_true(await_samples(scene, 3));
    scene_unmonitor(scene);
    counter_add(&scene->gate, 1);
    submit(scene, 1, nothing); /* behind the probe */
    assert_true(counter_await(&scene->inside, 2));
    scene_close(scene);
}

/* Breaks when a full queue, which has no room for the probe, hides that the pool is starved. */
static void monitor_judges_a_full_queue_by_its_oldest_item(void **state)
{
    struct mw_pool_options options = {.min_threads = 1, .max_threads = 64, .queue_max = 1};
    struct scene *scene = scene_open(1, 1);

    (void)state;
    mw_pool_free(scene->pool);
    assert_int_equal(mw_pool_new(&scene->pool, &options), 0);
    submit(scene, 0, block);
    assert_true(counter_await(&scene->inside, 1));
    submit(scene, 1, block);
    scene_monitor(scene, 8);
    assert_true(counter_await(&scene->journal.events, 1));
    assert_true(counter_await(&scene->inside, 2));
    assert_int_equal(noted(&scene->journal, MW_MONITOR_FAILED, NULL), 0);
    scene_close(scene);
}

/* Breaks when a forked child waits for a thread that it does not have. */
static void a_forked_child_leaves_the_monitor_alone(void **state)
{
    struct scene *scene;
    int status;
    pid_t child;

    (void)state;
    if (SANITIZED_THREADS)
        skip(); /* its runtime does not take a fork with threads */
    scene = scene_open(2, 200);
    scene_monitor(scene, 8);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SUPPORT_WAIT_S);
        mw_monitor_free(scene->monitor);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    scene_close(scene);
}

/* Breaks when the calls do not reach the table of processes, which usage_test.c is about. */
static void monitor_watches_processes(void **state)
{
    struct scene *scene = scene_open(2, 200);
    struct mw_monitor_stats stats;

    (void)state;
    scene_monitor(scene, 8);
    assert_int_equal(mw_monitor_watch(scene->monitor, getppid()), 0);
    assert_int_equal(mw_monitor_watch(scene->monitor, getpid()), -EINVAL);
    assert_int_equal(mw_monitor_watch(scene->monitor, -1), -ESRCH);
    mw_monitor_snapshot(scene->monitor, &stats);
    assert_int_equal(stats.processes, 1);
    assert_true(await_samples(scene, 3));
    mw_monitor_forget(scene->monitor, getppid());
    mw_monitor_snapshot(scene->monitor, &stats);
    assert_int_equal(stats.processes, 0);
    scene_close(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monitor_raises_for_blocked_workers_and_restores),
        cmocka_unit_test(monitor_leaves_a_pool_alone_that_computes),
        cmocka_unit_test(monitor_raises_for_one_spinner_and_one_blocked_on_two_cpus),
        cmocka_unit_test(monitor_doubles_when_the_first_step_was_too_small),
        cmocka_unit_test(monitor_keeps_a_minimum_that_was_set_meanwhile),
        cmocka_unit_test(monitor_keeps_a_minimum_set_to_what_it_raised_it_to),
        cmocka_unit_test(monitor_leaves_a_high_minimum_alone),
        cmocka_unit_test(monitor_leaves_an_idle_pool_in_peace),
        cmocka_unit_test(monitor_is_off_when_it_is_told_so),
        cmocka_unit_test(monitor_refuses_no_pool),
        cmocka_unit_test(monitor_without_a_thread_is_none),
        cmocka_unit_test(monitor_ends_while_its_probe_waits),
        cmocka_unit_test(monitor_judges_a_full_queue_by_its_oldest_item),
        cmocka_unit_test(a_forked_child_leaves_the_monitor_alone),
        cmocka_unit_test(monitor_watches_processes),
    };

    unsetenv(ENVIRONMENT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

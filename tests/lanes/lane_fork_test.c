/* A forked child that uses the lanes and pools of its parent: told at once, never hung. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/error.h>
#include <millwright/pool.h>

#include "lanes/scene.h"

#define CHILD_HAS_THREADS (!SANITIZED_THREADS) /* ThreadSanitizer ends a child that starts one */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 256); /* says where; cmocka belongs to the parent */                  \
    } while (0)

static int nothing(struct mw_job *job)
{
    (void)job;
    return 0;
}

static void no_item(struct mw_pool_item *item)
{
    (void)item;
}

/* Run `in_child` in a child. Returns its exit status; -1 when it had to be ended. */
static int fork_and(void (*in_child)(struct scene *scene), struct scene *scene)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        alarm(SUPPORT_WAIT_S); /* a hang ends, and is seen */
        in_child(scene);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void use_everything(struct scene *scene)
{
    struct mw_job *running = &scene->target->job;
    struct mw_job job = {.fn = nothing};
    struct mw_job *jobs[] = {&job};
    struct mw_pool_item item = {.fn = no_item};
    struct mw_pool_stats pool_stats;
    struct mw_lane_stats stats;

    CHECK(mw_lane_submit(scene->lane, &job) == -EOWNERDEAD);
    CHECK(mw_lane_submit_batch(scene->lane, jobs, 1) == -EOWNERDEAD);
    CHECK(mw_lane_cancel(scene->lane, running) == -EOWNERDEAD);
    CHECK(mw_lane_wait(scene->lane, running, UINT64_MAX) == -EOWNERDEAD);
    CHECK(mw_lane_wait_estimate_ns(scene->lane) == 0);
    mw_lane_snapshot(scene->lane, &stats);
    CHECK(strcmp(stats.name, "parent") == 0);
    CHECK(mw_lane_wait_histogram(scene->lane) != NULL);
    mw_lane_free(scene->lane, false);
    mw_lane_free(scene->lane, true);
    CHECK(mw_pool_submit(scene->pool, &item) == -EOWNERDEAD);
    mw_pool_snapshot(scene->pool, &pool_stats);
    mw_pool_free(scene->pool);
}

/* Breaks when a call in a child hangs on threads or locks that are not there, under either runner.
 */
static void child_is_told_that_the_lane_is_not_its_own(void **state)
{
    struct scene scene;
    struct leaf running;

    (void)state;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        scene_open(&scene, &(struct mw_lane_options){
                               .name = "parent", .runner = (enum mw_lane_runner)runner, .cap = 1});
        if (scene.pool == NULL)
            assert_int_equal(mw_pool_new(&scene.pool, NULL), 0);
        hold_the_lane(&scene, &running);
        scene.target = &running;
        assert_int_equal(fork_and(use_everything, &scene), 0);
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, 1)); /* the parent's lane has not noticed */
        assert_int_equal(running.status, 0);
        scene_close(&scene);
    }
}

static void submit_for_ever(void *arg)
{
    struct scene *scene = arg;
    struct mw_job job = {.fn = nothing};

    while (counter_value(&scene->gate) == 0)
        (void)mw_lane_submit(scene->lane, &job);
    (void)mw_lane_wait(scene->lane, &job, UINT64_MAX);
}

/* Breaks when a child needs a lock that a thread of the parent held at the fork. */
static void child_of_a_busy_parent_does_not_hang(void **state)
{
    struct mw_thread threads[2];
    struct scene scene;
    struct leaf target;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.name = "parent", .cap = 2});
    assert_int_equal(mw_pool_new(&scene.pool, NULL), 0);
    leaf_init(&target, &scene, run_plain);
    scene.target = &target;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(mw_thread_start(&threads[i], &(struct mw_thread_options){.name = "busy"},
                                         submit_for_ever, &scene),
                         0);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(fork_and(use_everything, &scene), 0);
    counter_add(&scene.gate, 1);
    for (unsigned i = 0; i < 2; i++)
        mw_thread_join(&threads[i]);
    scene_close(&scene);
}

static void make_a_new_lane(struct scene *scene)
{
    struct mw_job job = {.fn = nothing};
    struct mw_lane *lane;

    (void)scene;
    CHECK(mw_lane_new(&lane, &(struct mw_lane_options){.cap = 1}) == 0);
    if (CHILD_HAS_THREADS) {
        CHECK(mw_lane_submit(lane, &job) == 0);
        CHECK(mw_lane_wait(lane, &job, UINT64_MAX) == 0);
        CHECK(job.ended_ns != 0);
    }
    mw_lane_free(lane, false);
}

/* Breaks when a child cannot do what the message tells it to: make a lane of its own. */
static void child_may_have_a_lane_of_its_own(void **state)
{
    struct scene scene;
    struct leaf running;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &running);
    assert_int_equal(fork_and(make_a_new_lane, &scene), 0);
    scene_close(&scene);
}

/* Breaks when the error does not say what to do. */
static void error_says_what_to_do(void **state)
{
    (void)state;
    assert_non_null(strstr(mw_strerror(-EOWNERDEAD), "make a new one"));
}

static void check_in_vain(struct scene *scene)
{
    CHECK(scene == NULL);
}

/* The control: a child whose check fails is seen to fail. */
static void failing_child_is_seen(void **state)
{
    struct scene scene;

    (void)state;
    assert_int_not_equal(fork_and(check_in_vain, &scene), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_is_told_that_the_lane_is_not_its_own),
        cmocka_unit_test(child_of_a_busy_parent_does_not_hang),
        cmocka_unit_test(child_may_have_a_lane_of_its_own),
        cmocka_unit_test(error_says_what_to_do),
        cmocka_unit_test(failing_child_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

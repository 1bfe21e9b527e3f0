/* Waiting for a job, and the circles in which everybody would wait for ever. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <millwright/clock.h>

#include "lanes/scene.h"

#define NEVER UINT64_MAX

static uint64_t soon(void)
{
    return mw_clock_ns() + 20 * MW_NS_PER_MS;
}

/* ---- what a wait says ---- */

static void note_done_late(struct mw_job *job, int status)
{
    struct leaf *leaf = (struct leaf *)job;

    for (int i = 0; i < 100; i++)
        sched_yield();
    leaf->answer = 1; /* read by the waiter: ThreadSanitizer sees when it comes back too early */
    note_done(job, status);
}

/* Breaks when a wait returns before done() has, or never, under either runner. */
static void wait_ends_when_done_has_returned(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        scene_open(&scene,
                   &(struct mw_lane_options){.runner = (enum mw_lane_runner)runner, .cap = 2});
        for (unsigned i = 0; i < 200; i++) {
            leaf_init(&leaf, &scene, run_plain);
            leaf.job.done = note_done_late;
            submit(&leaf);
            assert_int_equal(mw_lane_wait(scene.lane, &leaf.job, NEVER), 0);
            assert_int_equal(leaf.answer, 1);
            assert_int_equal(leaf.dones, 1);
        }
        scene_close(&scene);
    }
}

/* Breaks when a job that is not in the lane is waited for. */
static void wait_for_a_job_that_has_left_is_over_at_once(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    leaf_init(&leaf, &scene, run_plain);
    assert_int_equal(mw_lane_wait(scene.lane, &leaf.job, NEVER), 0);
    submit(&leaf);
    assert_int_equal(mw_lane_wait(scene.lane, &leaf.job, NEVER), 0);
    assert_int_equal(mw_lane_wait(scene.lane, &leaf.job, NEVER), 0);
    scene_close(&scene);
}

/* Breaks when a deadline is not kept, for a job that runs and for one that is queued, or when the
 * waiter that left is still written to. */
static void wait_ends_at_its_deadline(void **state)
{
    struct scene scene;
    struct leaf running;
    struct leaf queued;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &running);
    leaf_init(&queued, &scene, run_plain);
    submit(&queued);
    assert_int_equal(mw_lane_wait(scene.lane, &running.job, soon()), -ETIMEDOUT);
    assert_int_equal(mw_lane_wait(scene.lane, &queued.job, soon()), -ETIMEDOUT);
    assert_int_equal(mw_lane_wait(scene.lane, &queued.job, 0), -ETIMEDOUT);
    counter_add(&scene.gate, 1);
    assert_int_equal(mw_lane_wait(scene.lane, &queued.job, NEVER), 0);
    assert_int_equal(queued.dones, 1);
    scene_close(&scene);
}

struct waiter {
    struct scene *scene;
    struct mw_job *job;
    int answer;
};

static void wait_for_it(void *arg)
{
    struct waiter *waiter = arg;

    counter_add(&waiter->scene->waiting, 1);
    waiter->answer = mw_lane_wait(waiter->scene->lane, waiter->job, NEVER);
}

static void start_waiters(struct waiter *waiters, struct mw_thread *threads, unsigned count,
                          struct scene *scene, struct mw_job *job)
{
    for (unsigned i = 0; i < count; i++) {
        waiters[i] = (struct waiter){.scene = scene, .job = job, .answer = NEVER_DONE};
        assert_int_equal(mw_thread_start(&threads[i], &(struct mw_thread_options){.name = "waiter"},
                                         wait_for_it, &waiters[i]),
                         0);
    }
}

static void close_with_cancel(void *arg)
{
    struct scene *scene = arg;

    mw_lane_free(scene->lane, true);
}

static void cancel_target(void *arg)
{
    struct scene *scene = arg;
    struct leaf *target = scene->target;

    target->answer = mw_lane_cancel(scene->lane, &target->job);
}

/* Waiters lie in wait for a queued job; then `take_back` takes it out of the lane. */
static void wait_while(void (*take_back)(void *), bool frees)
{
    enum { WAITERS = 3 };
    struct mw_thread threads[WAITERS];
    struct waiter waiters[WAITERS];
    struct mw_thread taker;
    struct scene scene;
    struct leaf running;
    struct leaf queued;

    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    scene.target = &queued;
    hold_the_lane(&scene, &running);
    leaf_init(&queued, &scene, run_plain);
    submit(&queued);
    start_waiters(waiters, threads, WAITERS, &scene, &queued.job);
    assert_true(counter_await(&scene.waiting, 1 + WAITERS));
    (void)mw_lane_wait(scene.lane, &queued.job, soon()); /* let them lie down; none has to */
    assert_int_equal(
        mw_thread_start(&taker, &(struct mw_thread_options){.name = "taker"}, take_back, &scene),
        0);
    for (unsigned i = 0; i < WAITERS; i++) {
        mw_thread_join(&threads[i]);
        assert_int_equal(waiters[i].answer, 0);
    }
    assert_true(counter_await(&scene.done, 1));
    assert_int_equal(queued.status, -ECANCELED);
    assert_int_equal(running.dones, 0);
    counter_add(&scene.gate, 1);
    mw_thread_join(&taker);
    if (frees)
        scene.lane = NULL;
    scene_close(&scene);
}

/* Breaks when a job that is cancelled leaves its waiters behind. */
static void wait_ends_when_the_job_is_cancelled(void **state)
{
    (void)state;
    wait_while(cancel_target, false);
}

/* Breaks when a job that the end of its lane drops leaves its waiters behind, or the lane goes away
 * under a waiter. */
static void wait_ends_when_the_lane_does(void **state)
{
    (void)state;
    wait_while(close_with_cancel, true);
}

static int stop_when_asked(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;

    counter_add(&leaf->scene->waiting, 1);
    while (!mw_job_cancelled(job))
        sched_yield();
    return -ECANCELED;
}

/* Breaks when a running leaf does not learn that it should stop, or a later run of the same job is
 * told so too. */
static void running_job_sees_its_cancel_token(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    for (unsigned round = 1; round <= 3; round++) {
        leaf_init(&leaf, &scene, stop_when_asked);
        submit(&leaf);
        assert_true(counter_await(&scene.waiting, round));
        assert_int_equal(mw_lane_cancel(scene.lane, &leaf.job), -EBUSY);
        assert_int_equal(mw_lane_wait(scene.lane, &leaf.job, NEVER), 0);
        assert_int_equal(leaf.status, -ECANCELED);
        assert_false(mw_job_cancelled(&leaf.job));
    }
    assert_int_equal(stats_of(&scene).cancelled, 0);
    scene_close(&scene);
}

/* ---- waits that can only fail ---- */

static int wait_for_target(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;

    counter_add(&leaf->scene->waiting, 1);
    leaf->answer = mw_lane_wait(leaf->number == 0 ? leaf->scene->lane : leaf->scene->other,
                                &leaf->target->job, NEVER);
    return 0;
}

/* Breaks when a CPU leaf can wait, for its own lane or any other: the lane's cap is not made for
 * threads that sit still. */
static void leaf_of_a_cpu_lane_never_waits(void **state)
{
    struct scene scene;
    struct leaf leaf;
    struct leaf target;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 2});
    assert_int_equal(mw_lane_new(&scene.other, &(struct mw_lane_options){.cap = 1}), 0);
    for (unsigned other = 0; other < 2; other++) {
        leaf_init(&target, &scene, run_plain);
        leaf_init(&leaf, &scene, wait_for_target);
        leaf.target = &target;
        leaf.number = other;
        submit(&leaf);
        assert_true(counter_await(&scene.done, other + 1));
        assert_int_equal(leaf.answer, -EDEADLK);
    }
    scene_close(&scene);
}

/* Breaks when a leaf of an IO pool waits for its own lane, where every slot may do the same. */
static void leaf_of_an_io_pool_never_waits_for_its_own(void **state)
{
    struct scene scene;
    struct leaf leaf;
    struct leaf target;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 2});
    leaf_init(&target, &scene, run_plain);
    leaf_init(&leaf, &scene, wait_for_target);
    leaf.target = &target;
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    assert_int_equal(leaf.answer, -EDEADLK);
    scene_close(&scene);
}

/* Its target is in no lane, so each wait is over at once; but as soon as the other leaf lies in its
 * own wait, this one is refused. */
static int wait_until_refused(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;
    uint64_t end = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;

    do {
        leaf->answer = mw_lane_wait(leaf->scene->lane, &leaf->target->job, NEVER);
        sched_yield();
    } while (leaf->answer == 0 && mw_clock_ns() < end);
    return 0;
}

/* A leaf of one IO pool waits for a job of the other; then `backwards`, one of the other waits for
 * a job of the first. Returns what the second was told; the first is always let through. */
static int two_pools_wait(bool backwards)
{
    struct scene scene;
    struct leaf first;
    struct leaf second;
    struct leaf held;
    struct leaf target;

    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 4});
    assert_int_equal(mw_lane_new(&scene.other, &(struct mw_lane_options){.runner = MW_LANE_POOL,
                                                                         .pool = scene.pool,
                                                                         .cap = 2}),
                     0);
    leaf_init(&held, &scene, run_at_gate);
    assert_int_equal(mw_lane_submit(scene.other, &held.job), 0);
    assert_true(counter_await(&scene.waiting, 1));
    leaf_init(&first, &scene, wait_for_target);
    first.target = &held;
    first.number = 1;
    submit(&first);
    assert_true(counter_await(&scene.waiting, 2));

    leaf_init(&target, &scene, run_plain);
    leaf_init(&second, &scene, backwards ? wait_until_refused : wait_for_target);
    second.target = backwards ? &target : &held;
    second.number = backwards ? 0 : 1;
    assert_int_equal(mw_lane_submit(backwards ? scene.other : scene.lane, &second.job), 0);
    if (!backwards)
        assert_true(counter_await(&scene.waiting, 3));
    else
        assert_int_equal(mw_lane_wait(scene.other, &second.job, NEVER), 0);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 3));
    assert_int_equal(first.answer, 0);
    scene_close(&scene);
    return second.answer;
}

/* Breaks when two lanes can wait for each other. */
static void circle_of_lanes_is_refused(void **state)
{
    (void)state;
    assert_int_equal(two_pools_wait(true), -EDEADLK);
}

/* The control: two leaves that wait in the same direction make no circle. Breaks when the test
 * above would pass because IO leaves never may wait. */
static void lanes_may_wait_in_one_direction(void **state)
{
    (void)state;
    assert_int_equal(two_pools_wait(false), 0);
}

/* ---- the nested gate: scripts that wait for a compile ---- */

enum { SLOTS = 2 };

/* A script is a leaf that submits a compile and waits for it. */
struct script {
    struct leaf leaf; /* first, so that fn can cast */
    struct leaf compile;
    struct counter *compiled; /* NULL: wait by the lane */
};

static int run_script(struct mw_job *job)
{
    struct script *script = (struct script *)job;
    struct scene *scene = script->leaf.scene;

    counter_add(&scene->waiting, 1);
    if (!counter_await(&scene->waiting, SLOTS)) /* until scripts fill every slot */
        return -ETIMEDOUT;
    script->leaf.answer = mw_lane_submit(scene->other, &script->compile.job);
    if (script->leaf.answer != 0)
        return script->leaf.answer;
    counter_add(&scene->ordered, 1);
    if (script->compiled != NULL) /* as a host would that does not ask the lane */
        return counter_await(script->compiled, SLOTS) ? 0 : -ETIMEDOUT;
    script->leaf.answer = mw_lane_wait(scene->other, &script->compile.job, NEVER);
    return script->leaf.answer;
}

static int compile_something(struct mw_job *job)
{
    counter_add(&((struct leaf *)job)->scene->gate, 1);
    return 0;
}

static void scripts_submit(struct script *scripts, struct scene *scene, struct counter *compiled)
{
    memset(scripts, 0, SLOTS * sizeof *scripts);
    for (unsigned i = 0; i < SLOTS; i++) {
        leaf_init(&scripts[i].leaf, scene, run_script);
        leaf_init(&scripts[i].compile, scene, compile_something);
        scripts[i].compiled = compiled;
        submit(&scripts[i].leaf);
    }
}

/* The control, seed 002: scripts and compiles share one gate, every slot is held by a script that
 * waits for a compile which needs a slot. Nothing moves. Breaks when the scenario has no deadlock
 * in it, and the two tests below prove nothing. */
static void nested_gate_is_stuck(void **state)
{
    struct script scripts[SLOTS];
    struct counter released;
    struct scene scene;

    (void)state;
    counter_init(&released);
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = SLOTS});
    scene.other = scene.lane;
    scripts_submit(scripts, &scene, &released);
    assert_true(counter_await(&scene.ordered, SLOTS));
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_int_equal(mw_lane_wait(scene.lane, &scripts[i].leaf.job, soon()), -ETIMEDOUT);
        assert_int_equal(mw_lane_wait(scene.lane, &scripts[i].compile.job, soon()), -ETIMEDOUT);
    }
    assert_int_equal(stats_of(&scene).running, SLOTS);
    assert_int_equal(stats_of(&scene).queued, SLOTS);
    assert_int_equal(counter_value(&scene.gate), 0); /* nothing was compiled */
    counter_add(&released, SLOTS);                   /* from outside: no lane gets out of this */
    assert_true(counter_await(&scene.done, 2 * SLOTS));
    scene.other = NULL;
    scene_close(&scene);
    counter_fini(&released);
}

/* Breaks when the lane lets the scripts of a shared gate hang instead of telling them. */
static void nested_gate_is_refused_when_the_lane_is_asked(void **state)
{
    struct script scripts[SLOTS];
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = SLOTS});
    scene.other = scene.lane;
    scripts_submit(scripts, &scene, NULL);
    assert_true(counter_await(&scene.done, 2 * SLOTS));
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_int_equal(scripts[i].leaf.status, -EDEADLK);
        assert_int_equal(scripts[i].compile.status, 0);
    }
    scene.other = NULL;
    scene_close(&scene);
}

/* Breaks when a `compile` pool full of scripts stops the CPU lane that they wait for. */
static void scripts_beside_a_cpu_lane_go_on(void **state)
{
    struct script scripts[SLOTS];
    struct scene scene;

    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        scene_open(&scene, &(struct mw_lane_options){
                               .name = "compile", .runner = MW_LANE_POOL, .cap = SLOTS});
        assert_int_equal(
            mw_lane_new(&scene.other, &(struct mw_lane_options){.name = "compile-cpu", .cap = 1}),
            0);
        scripts_submit(scripts, &scene, NULL);
        assert_true(counter_await(&scene.done, 2 * SLOTS));
        for (unsigned i = 0; i < SLOTS; i++)
            assert_int_equal(scripts[i].leaf.status, 0);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_ends_when_done_has_returned),
        cmocka_unit_test(wait_for_a_job_that_has_left_is_over_at_once),
        cmocka_unit_test(wait_ends_at_its_deadline),
        cmocka_unit_test(wait_ends_when_the_job_is_cancelled),
        cmocka_unit_test(wait_ends_when_the_lane_does),
        cmocka_unit_test(running_job_sees_its_cancel_token),
        cmocka_unit_test(leaf_of_a_cpu_lane_never_waits),
        cmocka_unit_test(leaf_of_an_io_pool_never_waits_for_its_own),
        cmocka_unit_test(circle_of_lanes_is_refused),
        cmocka_unit_test(lanes_may_wait_in_one_direction),
        cmocka_unit_test(nested_gate_is_stuck),
        cmocka_unit_test(nested_gate_is_refused_when_the_lane_is_asked),
        cmocka_unit_test(scripts_beside_a_cpu_lane_go_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/flow.h>
#include <millwright/lane.h>

#include "lanes/scene.h"
#include "pools/support.h"
#include "pools/thread_starts.h"

static int look_around(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;
    pthread_attr_t attributes;

    pthread_getname_np(pthread_self(), leaf->thread_name, sizeof leaf->thread_name);
    leaf->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    leaf->policy = sched_getscheduler(0);
    pthread_sigmask(SIG_SETMASK, NULL, &leaf->blocked);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &leaf->stack_bytes);
    pthread_attr_destroy(&attributes);
    return 0;
}

/* ---- making a lane ---- */

/* Breaks when a limit is not checked, or a pool is taken or missed in silence. */
static void lane_refuses_bad_options(void **state)
{
    struct mw_pool *pool;
    struct mw_lane *lane = NULL;

    (void)state;
    assert_int_equal(mw_pool_new(&pool, NULL), 0);
    const struct mw_lane_options bad[] = {
        {.cap = MW_LANE_CAP_LIMIT + 1},
        {.tenants_max = MW_LANE_TENANTS_LIMIT + 1},
        {.spin_us = MW_LANE_SPIN_US_MAX + 1},
        {.urgency = (enum mw_lane_urgency)(MW_LANE_EQUAL + 1)},
        {.name = "a name of thirty-two bytes, which"},
        {.runner = MW_LANE_POOL},
        {.pool = pool},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mw_lane_new(&lane, &bad[i]), -EINVAL);
    assert_null(lane);
    mw_pool_free(pool);
}

/* Breaks when a zero option does not mean its documented default. */
static void lane_defaults_are_as_documented(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){0});
    assert_string_equal(stats_of(&scene).name, "lane");
    assert_int_equal(stats_of(&scene).cap, mw_cpus_effective());
    assert_int_equal(stats_of(&scene).queue_max, MW_LANE_QUEUE_MAX_DEFAULT);
    assert_int_equal(stats_of(&scene).threads, 0);
    leaf_init(&leaf, &scene, look_around);
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    assert_int_equal(leaf.policy, SCHED_OTHER);
    assert_int_equal(leaf.nice, 19);
    assert_true(leaf.stack_bytes >= MW_LANE_STACK_BYTES_DEFAULT);
    scene_close(&scene);
}

/* Breaks when a lane's thread is not what the audits look for: its name, kind and signal mask. */
static void lane_thread_is_named_and_deaf_to_signals(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1, .urgency = MW_LANE_EQUAL});
    leaf_init(&leaf, &scene, look_around);
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    assert_string_equal(leaf.thread_name, "mw-cpu-lane");
    assert_int_equal(leaf.job.ran_on, MW_THREAD_LANE);
    assert_true(sigismember(&leaf.blocked, SIGTERM));
    assert_true(sigismember(&leaf.blocked, SIGINT));
    if (geteuid() == 0) /* others cannot get below what they inherited */
        assert_int_equal(leaf.nice, getpriority(PRIO_PROCESS, (id_t)getpid()));
    assert_int_equal(stats_of(&scene).ran_on_lane, 1);
    assert_int_equal(stats_of(&scene).ran_on_pool, 0);
    scene_close(&scene);
}

/* Breaks when a host's choice of urgency does not reach the lane's threads. */
static void lane_threads_are_as_urgent_as_asked(void **state)
{
    const int own = getpriority(PRIO_PROCESS, (id_t)getpid());
    const struct {
        enum mw_lane_urgency urgency;
        int policy;
        int nice;
    } rows[] = {{MW_LANE_NICE_19, SCHED_OTHER, 19},
                {MW_LANE_IDLE, SCHED_IDLE, own},
                {MW_LANE_EQUAL, SCHED_OTHER, own}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene scene;
        struct leaf leaf;

        scene_open(&scene, &(struct mw_lane_options){.cap = 1, .urgency = rows[i].urgency});
        leaf_init(&leaf, &scene, look_around);
        submit(&leaf);
        assert_true(counter_await(&scene.done, 1));
        assert_int_equal(leaf.policy, rows[i].policy);
        assert_int_equal(leaf.nice, rows[i].nice);
        scene_close(&scene);
    }
}

/* ---- submit and run ---- */

/* Breaks when the status, the times, the ids or the counters of a run are not handed on. */
static void job_tells_how_it_ran(void **state)
{
    struct scene scene;
    struct leaf leaf;
    uint64_t before = mw_clock_ns();

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.name = "told", .cap = 1});
    leaf_init(&leaf, &scene, run_plain);
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    assert_int_equal(leaf.status, 7);
    assert_true(before <= leaf.job.queued_ns);
    assert_true(leaf.job.queued_ns <= leaf.job.started_ns);
    assert_true(leaf.job.started_ns <= leaf.job.ended_ns);
    assert_int_not_equal(leaf.job.leaf, 0);
    assert_int_equal(leaf.flow, leaf.job.leaf);
    assert_int_equal(leaf.flow_in_done, 0);
    assert_string_equal(stats_of(&scene).name, "told");
    assert_int_equal(stats_of(&scene).submitted, 1);
    assert_int_equal(stats_of(&scene).started, 1);
    assert_int_equal(stats_of(&scene).completed, 1);
    assert_int_equal(stats_of(&scene).running, 0);
    assert_int_equal(stats_of(&scene).running_peak, 1);
    assert_int_equal(mw_histogram_count(mw_lane_wait_histogram(scene.lane)), 1);
    assert_int_equal(mw_histogram_sum(mw_lane_run_histogram(scene.lane)),
                     leaf.job.ended_ns - leaf.job.started_ns);
    scene_close(&scene);
}

/* Breaks when the queue is no queue, under either runner. */
static void jobs_start_in_the_order_of_their_submission(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct scene scene;
    struct leaf first;

    (void)state;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        scene_open(&scene,
                   &(struct mw_lane_options){.runner = (enum mw_lane_runner)runner, .cap = 1});
        hold_the_lane(&scene, &first);
        for (unsigned i = 0; i < LEAVES_MAX; i++) {
            leaf_init(&leaves[i], &scene, run_in_order);
            leaves[i].number = i;
            submit(&leaves[i]);
        }
        assert_int_equal(stats_of(&scene).queued, LEAVES_MAX);
        assert_true(stats_of(&scene).oldest_queued_ns > 0);
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, LEAVES_MAX + 1));
        for (unsigned i = 0; i < LEAVES_MAX; i++)
            assert_int_equal(scene.order[i], i);
        assert_int_equal(stats_of(&scene).oldest_queued_ns, 0);
        scene_close(&scene);
    }
}

/* Breaks when a full queue blocks, drops a job or calls done() for the one it refused. */
static void full_queue_refuses(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf leaves[3];

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1, .queue_max = 2});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < 3; i++)
        leaf_init(&leaves[i], &scene, run_plain);
    submit(&leaves[0]);
    submit(&leaves[1]);
    assert_int_equal(mw_lane_submit(scene.lane, &leaves[2].job), -EAGAIN);
    assert_int_equal(stats_of(&scene).rejected, 1);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 3));
    assert_int_equal(leaves[2].dones, 0);
    submit(&leaves[2]);
    assert_true(counter_await(&scene.done, 4));
    assert_int_equal(leaves[2].runs, 1);
    scene_close(&scene);
}

/* Breaks when a job can be in two places at once: in one lane twice, or in two lanes. */
static void job_in_a_lane_cannot_be_submitted_again(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf queued;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    assert_int_equal(mw_lane_new(&scene.other, &(struct mw_lane_options){.cap = 1}), 0);
    hold_the_lane(&scene, &first);
    leaf_init(&queued, &scene, run_plain);
    submit(&queued);
    assert_int_equal(mw_lane_submit(scene.lane, &queued.job), -EBUSY);
    assert_int_equal(mw_lane_submit(scene.other, &queued.job), -EBUSY);
    assert_int_equal(mw_lane_submit(scene.lane, &first.job), -EBUSY);
    assert_int_equal(mw_lane_submit(scene.other, &first.job), -EBUSY);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 2));
    assert_int_equal(queued.runs, 1);
    assert_int_equal(mw_lane_submit(scene.other, &queued.job), 0);
    assert_true(counter_await(&scene.done, 3));
    scene_close(&scene);
}

/* Breaks when a job with no fn is queued, to crash a thread later. */
static void job_without_fn_is_refused(void **state)
{
    struct scene scene;
    struct mw_job job = {0};

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    assert_int_equal(mw_lane_submit(scene.lane, &job), -EINVAL);
    scene_close(&scene);
}

static void submit_again_when_done(struct mw_job *job, int status)
{
    struct leaf *leaf = (struct leaf *)job;

    if (leaf->runs == 100)
        note_done(job, status);
    else if (mw_lane_submit(leaf->scene->lane, job) != 0)
        note_done(job, NEVER_DONE); /* else the job may run already: hands off */
}

/* Breaks when a job is not its owner's again by the time done() is called. */
static void job_can_be_submitted_again_from_done(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        scene_open(&scene,
                   &(struct mw_lane_options){.runner = (enum mw_lane_runner)runner, .cap = 2});
        leaf_init(&leaf, &scene, run_plain);
        leaf.job.done = submit_again_when_done;
        submit(&leaf);
        assert_true(counter_await(&scene.done, 1));
        assert_int_equal(leaf.runs, 100);
        assert_int_equal(leaf.status, 7);
        scene_close(&scene);
    }
}

static void free_when_done(struct mw_job *job, int status)
{
    struct scene *scene = ((struct leaf *)job)->scene;

    (void)status;
    memset(job, 0xA5, sizeof(struct leaf));
    free(job);
    counter_add(&scene->done, 1);
}

/* Breaks when the lane touches a job after done(): its memory is gone. */
static void job_may_be_freed_in_done(void **state)
{
    struct scene scene;

    (void)state;
    for (int runner = MW_LANE_DEDICATED; runner <= MW_LANE_POOL; runner++) {
        scene_open(&scene,
                   &(struct mw_lane_options){.runner = (enum mw_lane_runner)runner, .cap = 2});
        for (unsigned i = 0; i < 300; i++) {
            struct leaf *leaf = malloc(sizeof *leaf);

            assert_non_null(leaf);
            leaf_init(leaf, &scene, run_plain);
            leaf->job.done = free_when_done;
            leaf->job.deadline_ns = i % 3 == 0; /* every third has expired long ago */
            submit(leaf);
        }
        assert_true(counter_await(&scene.done, 300));
        assert_int_equal(stats_of(&scene).expired, 100);
        scene_close(&scene);
    }
}

/* Breaks when a job without a done() is not run, or crashes the lane. */
static void job_may_have_no_done(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    leaf_init(&leaf, &scene, run_plain);
    leaf.job.done = NULL;
    submit(&leaf);
    mw_lane_free(scene.lane, false);
    scene.lane = NULL;
    assert_int_equal(leaf.runs, 1);
    scene_close(&scene);
}

/* ---- cancel and expiry ---- */

/* Breaks when a cancelled job runs, or its done() comes late, twice or on another thread. */
static void cancel_takes_a_queued_job_back(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf leaves[3];

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < 3; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        submit(&leaves[i]);
    }
    assert_int_equal(mw_lane_cancel(scene.lane, &leaves[1].job), 0);
    assert_int_equal(leaves[1].dones, 1);
    assert_int_equal(leaves[1].status, -ECANCELED);
    assert_true(pthread_equal(leaves[1].done_on, pthread_self()));
    assert_int_equal(leaves[1].job.started_ns, 0);
    assert_int_equal(stats_of(&scene).queued, 2);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 4));
    assert_int_equal(leaves[0].runs, 1);
    assert_int_equal(leaves[1].runs, 0);
    assert_int_equal(leaves[2].runs, 1);
    assert_int_equal(leaves[1].dones, 1);
    assert_int_equal(stats_of(&scene).cancelled, 1);
    scene_close(&scene);
}

/* Breaks when cancel claims success for a job that it cannot take back. */
static void cancel_says_why_it_cannot(void **state)
{
    struct scene scene;
    struct leaf running;
    struct leaf queued;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    assert_int_equal(mw_lane_new(&scene.other, &(struct mw_lane_options){.cap = 1}), 0);
    leaf_init(&queued, &scene, run_plain);
    assert_int_equal(mw_lane_cancel(scene.lane, &queued.job), -ENOENT);
    hold_the_lane(&scene, &running);
    submit(&queued);
    assert_int_equal(mw_lane_cancel(scene.lane, &running.job), -EBUSY);
    assert_int_equal(mw_lane_cancel(scene.other, &queued.job), -ENOENT);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 2));
    assert_int_equal(running.status, 0);
    assert_int_equal(mw_lane_cancel(scene.lane, &running.job), -ENOENT);
    scene_close(&scene);
}

/* Breaks when a job whose time is up still runs, or one that has time left is dropped. */
static void expired_job_is_dropped(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf late;
    struct leaf in_time;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &first);
    leaf_init(&late, &scene, run_plain);
    late.job.deadline_ns = mw_clock_ns();
    submit(&late);
    leaf_init(&in_time, &scene, run_plain);
    in_time.job.deadline_ns = mw_clock_ns() + 3600 * MW_NS_PER_S;
    submit(&in_time);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 3));
    assert_int_equal(late.status, -ETIMEDOUT);
    assert_int_equal(late.runs, 0);
    assert_int_equal(late.dones, 1);
    assert_int_equal(late.job.started_ns, 0);
    assert_int_equal(in_time.status, 7);
    assert_int_equal(stats_of(&scene).expired, 1);
    assert_int_equal(stats_of(&scene).started, 2);
    scene_close(&scene);
}

/* ---- the end of a lane ---- */

/* Breaks when closing without cancel loses jobs, or with cancel runs them. */
static void free_drains_or_cancels(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct scene scene;

    (void)state;
    for (int way = 0; way < 4; way++) {
        bool cancel = way & 1;
        unsigned runs = 0;
        unsigned cancels = 0;

        scene_open(&scene, &(struct mw_lane_options){
                               .runner = way & 2 ? MW_LANE_POOL : MW_LANE_DEDICATED, .cap = 2});
        for (unsigned i = 0; i < LEAVES_MAX; i++) {
            leaf_init(&leaves[i], &scene, run_plain);
            submit(&leaves[i]);
        }
        mw_lane_free(scene.lane, cancel);
        scene.lane = NULL;
        for (unsigned i = 0; i < LEAVES_MAX; i++) {
            assert_int_equal(leaves[i].dones, 1);
            runs += leaves[i].runs;
            cancels += leaves[i].status == -ECANCELED;
        }
        assert_int_equal(runs + cancels, LEAVES_MAX);
        assert_true(cancel || cancels == 0);
        scene_close(&scene);
    }
    mw_lane_free(NULL, true);
}

static void close_with_cancel(void *arg)
{
    mw_lane_free(arg, true);
}

/* Breaks when closing with cancel still runs what is queued, or does not tell at once: the running
 * leaf ends only after all the others were told. */
static void free_cancels_what_is_queued_at_once(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct mw_thread closer;
    struct scene scene;
    struct leaf first;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < LEAVES_MAX; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        submit(&leaves[i]);
    }
    assert_int_equal(mw_thread_start(&closer, &(struct mw_thread_options){.name = "closer"},
                                     close_with_cancel, scene.lane),
                     0);
    assert_true(counter_await(&scene.done, LEAVES_MAX));
    assert_int_equal(first.dones, 0);
    counter_add(&scene.gate, 1);
    mw_thread_join(&closer);
    scene.lane = NULL;
    for (unsigned i = 0; i < LEAVES_MAX; i++) {
        assert_int_equal(leaves[i].dones, 1);
        assert_int_equal(leaves[i].status, -ECANCELED);
    }
    assert_int_equal(first.status, 0);
    scene_close(&scene);
}

/* Runs until the lane is closing, and tells what a submit got then. */
static int submit_until_refused(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;
    struct leaf extra;

    leaf_init(&extra, leaf->scene, run_plain);
    counter_add(&leaf->scene->waiting, 1);
    do {
        leaf->answer = mw_lane_submit(leaf->scene->lane, &extra.job);
        if (leaf->answer == 0)
            (void)mw_lane_cancel(leaf->scene->lane, &extra.job);
        sched_yield();
    } while (leaf->answer == 0);
    return 0;
}

/* Breaks when a lane that closes takes work that it will not run. */
static void closing_lane_refuses(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    leaf_init(&leaf, &scene, submit_until_refused);
    submit(&leaf);
    assert_true(counter_await(&scene.waiting, 1));
    mw_lane_free(scene.lane, false);
    scene.lane = NULL;
    assert_int_equal(leaf.answer, -ESHUTDOWN);
    scene_close(&scene);
}

/* Breaks when the lane uses itself after the done() that lets its owner free it. */
static void lane_may_be_freed_once_done_was_seen(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        scene_open(&scene, &(struct mw_lane_options){
                               .runner = round % 2 ? MW_LANE_POOL : MW_LANE_DEDICATED, .cap = 1});
        leaf_init(&leaf, &scene, run_plain);
        submit(&leaf);
        assert_true(counter_await(&scene.done, 1));
        mw_lane_free(scene.lane, true);
        scene.lane = NULL;
        scene_close(&scene);
    }
}

/* ---- threads ---- */

/* Breaks when an idle thread stays after its linger time, or the lane cannot start again. */
static void idle_threads_end_after_lingering(void **state)
{
    struct scene scene;
    struct leaf leaves[3];

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 3, .linger_ms = 1});
    for (unsigned round = 1; round <= 3; round++) {
        scene.gate.value = 0; /* nobody else is about: the lane is idle */
        for (unsigned i = 0; i < 3; i++) {
            leaf_init(&leaves[i], &scene, run_at_gate);
            submit(&leaves[i]);
        }
        assert_true(counter_await(&scene.waiting, 3 * round));
        assert_int_equal(stats_of(&scene).threads, 3);
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, 3 * round));
        assert_true(tasks_await(scene.tasks));
        assert_int_equal(stats_of(&scene).threads, 0);
    }
    scene_close(&scene);
}

/* Breaks when a lingering thread is not used again. */
static void lingering_threads_are_used_again(void **state)
{
    struct scene scene;
    struct leaf leaf;
    unsigned started;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 2, .linger_ms = 1000 * SUPPORT_WAIT_S});
    started = thread_starts_count();
    for (unsigned i = 1; i <= 200; i++) {
        leaf_init(&leaf, &scene, run_plain);
        submit(&leaf);
        assert_true(counter_await(&scene.done, i));
    }
    assert_in_range(thread_starts_count() - started, 1, 2);
    scene_close(&scene);
}

/* Breaks when the one wake in flight is not passed on: of three jobs that come at once one would
 * wait although two threads are parked, and never be reached, as the others wait for the gate. */
static void parked_threads_wake_one_another(void **state)
{
    struct scene scene;
    struct leaf leaves[3];

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 3, .linger_ms = 1000 * SUPPORT_WAIT_S});
    for (unsigned round = 1; round <= 100; round++) {
        scene.gate.value = 0; /* the leaves of the round before are done */
        for (unsigned i = 0; i < 3; i++) {
            leaf_init(&leaves[i], &scene, run_at_gate);
            submit(&leaves[i]);
        }
        assert_true(counter_await(&scene.waiting, 3 * round));
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, 3 * round));
    }
    assert_int_equal(stats_of(&scene).threads, 3);
    scene_close(&scene);
}

/* Breaks when a start that fails leaves a job that nobody will run, or a slot that is lost. */
static void thread_start_failure_is_rolled_back(void **state)
{
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    for (unsigned round = 1; round <= 3; round++) {
        leaf_init(&leaf, &scene, run_plain);
        thread_starts_allow(0);
        assert_int_equal(mw_lane_submit(scene.lane, &leaf.job), -EAGAIN);
        thread_starts_allow(-1);
        assert_int_equal(leaf.dones, 0);
        assert_int_equal(stats_of(&scene).queued, 0);
        assert_int_equal(stats_of(&scene).threads, 0);
        assert_int_equal(stats_of(&scene).start_failures, round);
        assert_int_equal(stats_of(&scene).rejected, round);
    }
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    scene_close(&scene);
}

/* Breaks when a failed start costs a job although other loops run, or a loop that was counted and
 * never came keeps its place under the cap. Swept over how many starts succeed. */
static void lane_goes_on_with_the_threads_it_has(void **state)
{
    enum { CAP = 4, LEAVES = 8 };
    struct scene scene;
    struct leaf leaves[LEAVES];

    (void)state;
    for (int threads = 1; threads <= CAP; threads++) {
        scene_open(&scene, &(struct mw_lane_options){.cap = CAP});
        thread_starts_allow(threads);
        for (unsigned i = 0; i < LEAVES; i++) {
            leaf_init(&leaves[i], &scene, run_at_gate);
            submit(&leaves[i]);
        }
        assert_true(counter_await(&scene.waiting, (unsigned)threads));
        counter_add(&scene.gate, 1);
        assert_true(counter_await(&scene.done, LEAVES));
        thread_starts_allow(-1);
        assert_int_equal(stats_of(&scene).completed, LEAVES);
        assert_int_equal(stats_of(&scene).running_peak, threads);
        assert_int_equal(stats_of(&scene).start_failures > 0, threads < CAP);
        scene_close(&scene);
    }
}

/* ---- on the shared pool ---- */

struct held_item {
    struct mw_pool_item item; /* first, so that fn can cast */
    struct scene *scene;
    uint64_t completed; /* by the lane, when the item ran */
};

static void hold_a_worker(struct mw_pool_item *item)
{
    struct scene *scene = ((struct held_item *)item)->scene;

    counter_add(&scene->waiting, 1);
    counter_await(&scene->gate, 1);
}

static void note_completed(struct mw_pool_item *item)
{
    struct held_item *held = (struct held_item *)item;

    held->completed = stats_of(held->scene).completed;
    counter_add(&held->scene->done, 1);
}

/* Breaks when a lane over a pool that has no room left keeps a job that no loop will come for. */
static void pool_lane_refuses_when_the_pool_is_full(void **state)
{
    struct held_item held[1 + 64]; /* one runs, the pool's queue takes 64 */
    struct scene scene;
    struct leaf leaf;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 1});
    for (unsigned i = 0; i < 1 + 64; i++) {
        held[i] = (struct held_item){.item = {.fn = hold_a_worker}, .scene = &scene};
        assert_int_equal(mw_pool_submit(scene.pool, &held[i].item), 0);
        assert_true(counter_await(&scene.waiting, 1));
    }
    leaf_init(&leaf, &scene, run_plain);
    assert_int_equal(mw_lane_submit(scene.lane, &leaf.job), -EAGAIN);
    assert_int_equal(stats_of(&scene).start_failures, 1);
    assert_int_equal(stats_of(&scene).threads, 0);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.waiting, 1 + 64));
    submit(&leaf);
    assert_true(counter_await(&scene.done, 1));
    assert_int_equal(leaf.job.ran_on, MW_THREAD_POOL);
    scene_close(&scene);
}

/* Breaks when a long lane keeps its pool worker until it is empty: others of the pool starve. */
static void pool_lane_yields_to_other_items(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct held_item item;
    struct scene scene;
    struct leaf first;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 1});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < LEAVES_MAX; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        submit(&leaves[i]);
    }
    item = (struct held_item){.item = {.fn = note_completed}, .scene = &scene};
    assert_int_equal(mw_pool_submit(scene.pool, &item.item), 0);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, LEAVES_MAX + 2));
    assert_in_range(item.completed, 1, LEAVES_MAX / 2);
    assert_int_equal(stats_of(&scene).running_peak, 1);
    scene_close(&scene);
}

/* Breaks when a lane that is too small and a pool that is starved look alike: the first job waits
 * for a worker of the pool, the second for the lane's only slot. */
static void waits_for_a_slot_and_for_a_worker_are_told_apart(void **state)
{
    struct held_item held;
    struct mw_lane_stats stats;
    struct scene scene;
    struct leaf first;
    struct leaf second;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 1});
    held = (struct held_item){.item = {.fn = hold_a_worker}, .scene = &scene};
    assert_int_equal(mw_pool_submit(scene.pool, &held.item), 0);
    assert_true(counter_await(&scene.waiting, 1));
    leaf_init(&first, &scene, run_plain);
    leaf_init(&second, &scene, run_plain);
    submit(&first);
    assert_int_equal(stats_of(&scene).waiting_for_worker, 1);
    submit(&second);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 2));
    stats = stats_of(&scene);
    assert_int_equal(stats.worker_wait_max_ns, first.job.started_ns - first.job.queued_ns);
    assert_int_equal(stats.slot_wait_max_ns, second.job.started_ns - second.job.queued_ns);
    assert_int_equal(stats.wait_max_ns, stats.worker_wait_max_ns > stats.slot_wait_max_ns
                                            ? stats.worker_wait_max_ns
                                            : stats.slot_wait_max_ns);
    assert_int_equal(mw_histogram_count(mw_lane_wait_histogram(scene.lane)), 2);
    assert_int_equal(stats.waiting_for_worker, 0);
    scene_close(&scene);
}

/* The control: the same two jobs over a pool that is not starved wait for no worker, unless it is
 * for its thread to start. Breaks when every wait counts as one for a worker. */
static void wait_behind_a_leaf_is_one_for_a_slot(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf second;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 1});
    hold_the_lane(&scene, &first);
    leaf_init(&second, &scene, run_plain);
    submit(&second);
    assert_int_equal(stats_of(&scene).waiting_for_worker, 0);
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, 2));
    assert_int_equal(stats_of(&scene).worker_wait_max_ns,
                     first.job.started_ns - first.job.queued_ns);
    assert_int_equal(stats_of(&scene).slot_wait_max_ns,
                     second.job.started_ns - second.job.queued_ns);
    scene_close(&scene);
}

static int run_for_a_while(struct mw_job *job)
{
    (void)job;
    usleep(2000);
    return 0;
}

/* Breaks when the estimate for a Retry-After does not grow with what waits, or is not 0 while a
 * thread is free. */
static void wait_estimate_grows_with_the_queue(void **state)
{
    struct scene scene;
    struct leaf first;
    struct leaf leaves[3];
    uint64_t before;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.cap = 1});
    assert_int_equal(mw_lane_wait_estimate_ns(scene.lane), 0);
    leaf_init(&leaves[0], &scene, run_for_a_while);
    submit(&leaves[0]);
    assert_int_equal(mw_lane_wait(scene.lane, &leaves[0].job, UINT64_MAX), 0);
    assert_int_equal(mw_lane_wait_estimate_ns(scene.lane), 0);
    hold_the_lane(&scene, &first);
    before = mw_lane_wait_estimate_ns(scene.lane);
    assert_true(before > 0);
    for (unsigned i = 0; i < 3; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        submit(&leaves[i]);
        assert_int_equal(mw_lane_wait_estimate_ns(scene.lane), (i + 2) * before);
    }
    scene_close(&scene);
}

/* Breaks when a yield that a full pool refuses loses the loop. */
static void pool_lane_goes_on_when_it_cannot_yield(void **state)
{
    static struct leaf leaves[LEAVES_MAX];
    struct held_item held[64];
    struct scene scene;
    struct leaf first;

    (void)state;
    scene_open(&scene, &(struct mw_lane_options){.runner = MW_LANE_POOL, .cap = 1});
    hold_the_lane(&scene, &first);
    for (unsigned i = 0; i < LEAVES_MAX; i++) {
        leaf_init(&leaves[i], &scene, run_plain);
        submit(&leaves[i]);
    }
    for (unsigned i = 0; i < 64; i++) {
        held[i] = (struct held_item){.item = {.fn = hold_a_worker}, .scene = &scene};
        assert_int_equal(mw_pool_submit(scene.pool, &held[i].item), 0);
    }
    counter_add(&scene.gate, 1);
    assert_true(counter_await(&scene.done, LEAVES_MAX + 1));
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_refuses_bad_options),
        cmocka_unit_test(lane_defaults_are_as_documented),
        cmocka_unit_test(lane_thread_is_named_and_deaf_to_signals),
        cmocka_unit_test(lane_threads_are_as_urgent_as_asked),
        cmocka_unit_test(job_tells_how_it_ran),
        cmocka_unit_test(jobs_start_in_the_order_of_their_submission),
        cmocka_unit_test(full_queue_refuses),
        cmocka_unit_test(job_in_a_lane_cannot_be_submitted_again),
        cmocka_unit_test(job_without_fn_is_refused),
        cmocka_unit_test(job_can_be_submitted_again_from_done),
        cmocka_unit_test(job_may_be_freed_in_done),
        cmocka_unit_test(job_may_have_no_done),
        cmocka_unit_test(cancel_takes_a_queued_job_back),
        cmocka_unit_test(cancel_says_why_it_cannot),
        cmocka_unit_test(expired_job_is_dropped),
        cmocka_unit_test(free_drains_or_cancels),
        cmocka_unit_test(free_cancels_what_is_queued_at_once),
        cmocka_unit_test(closing_lane_refuses),
        cmocka_unit_test(lane_may_be_freed_once_done_was_seen),
        cmocka_unit_test(idle_threads_end_after_lingering),
        cmocka_unit_test(lingering_threads_are_used_again),
        cmocka_unit_test(parked_threads_wake_one_another),
        cmocka_unit_test(thread_start_failure_is_rolled_back),
        cmocka_unit_test(lane_goes_on_with_the_threads_it_has),
        cmocka_unit_test(pool_lane_refuses_when_the_pool_is_full),
        cmocka_unit_test(pool_lane_yields_to_other_items),
        cmocka_unit_test(waits_for_a_slot_and_for_a_worker_are_told_apart),
        cmocka_unit_test(wait_behind_a_leaf_is_one_for_a_slot),
        cmocka_unit_test(wait_estimate_grows_with_the_queue),
        cmocka_unit_test(pool_lane_goes_on_when_it_cannot_yield),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

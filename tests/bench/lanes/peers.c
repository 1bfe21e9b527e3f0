#include "peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "peer_optional.h"

static int lane_open(const struct peer_options *options);
static int lane_submit(unsigned producer, struct task *task);
static int uv_open(const struct peer_options *options);
static int uv_submit(unsigned producer, struct task *task);
static int uv_settle(unsigned producer);
#ifdef BENCH_TBB
static int tbb_open(const struct peer_options *options);
#endif
static int lane_work(struct mw_job *job);
static void lane_done(struct mw_job *job, int status);
static void uv_work(uv_work_t *work);

const struct peer peers[PEER_COUNT] = {
    [PEER_LANE] = {.name = "lane", .open = lane_open, .submit = lane_submit},
    [PEER_UV] = {"libuv", "libuv1-dev", uv_open, uv_submit, uv_settle},
    [PEER_GLIB] = {"GThreadPool", "libglib2.0-dev", PEER_GLIB_OPEN, PEER_GLIB_SUBMIT, NULL},
    [PEER_TBB] = {"oneTBB", "libtbb-dev", PEER_TBB_OPEN, PEER_TBB_SUBMIT, NULL},
    [PEER_APR] = {"APR", "libaprutil1-dev libapr1-dev", PEER_APR_OPEN, PEER_APR_SUBMIT, NULL},
};

static struct mw_lane *lane;
static uv_loop_t loops[PEER_PRODUCERS_MAX]; /* one for each producer: libuv takes work only on a
                                               loop's own thread */

/* ---- the lane ---- */

static int lane_open(const struct peer_options *options)
{
    return mw_lane_new(&lane, &(struct mw_lane_options){
                                  .name = "bench",
                                  .cap = options->threads,
                                  .queue_max = PEER_TASKS_MAX,
                                  .urgency = MW_LANE_EQUAL, /* the scheduling class of the others */
                                  .spin_us = options->spin ? MW_LANE_SPIN_US_MAX : 0,
                              });
}

static int lane_submit(unsigned producer, struct task *task)
{
    struct mw_job *job = &task->carrier.job;

    (void)producer;
    job->fn = lane_work; /* the rest is zero at first, and as the lane left it later */
    job->done = lane_done;
    return mw_lane_submit(lane, job);
}

static int lane_work(struct mw_job *job)
{
    task_work((struct task *)job);
    return 0;
}

/* Not before: until done() the job is the lane's, and cannot be submitted again. */
static void lane_done(struct mw_job *job, int status)
{
    (void)job;
    (void)status;
    task_end();
}

/* ---- libuv ---- */

static int uv_open(const struct peer_options *options)
{
    char threads[16];
    int error = 0;

    snprintf(threads, sizeof threads, "%u", options->threads);
    setenv("UV_THREADPOOL_SIZE", threads, 1); /* read at libuv's first use */
    for (unsigned i = 0; error == 0 && i < options->producers; i++)
        error = uv_loop_init(&loops[i]);
    return error;
}

static int uv_submit(unsigned producer, struct task *task)
{
    return uv_queue_work(&loops[producer], &task->carrier.work, uv_work, NULL);
}

/* Its requests come back through the loop. */
static int uv_settle(unsigned producer)
{
    return uv_run(&loops[producer], UV_RUN_DEFAULT) == 0 ? 0 : -EBUSY;
}

static void uv_work(uv_work_t *work)
{
    task_run((struct task *)work);
}

/* ---- oneTBB, the part that C++ cannot read ---- */

#ifdef BENCH_TBB
static int tbb_open(const struct peer_options *options)
{
    return peer_tbb_start(options->threads, task_run);
}
#endif

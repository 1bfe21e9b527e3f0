/* lane_bench.c - how fast empty jobs go through a lane and through libuv's worker pool.
 *
 * Both have two threads of the ordinary scheduling class and a queue that takes every job, and
 * both say when each job is done: the lane on the thread that ran it, libuv on the loop. */
#include <millwright/clock.h>
#include <millwright/error.h>
#include <millwright/lane.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "bench.h"

#define JOBS         100000u
#define THREADS      2u
#define THREADS_TEXT "2"

enum { LANE, UV, VARIANTS };
enum { VALUE_MS };

struct empty_job {
    struct mw_job job;
    struct lane_side *side;
};

struct lane_side {
    struct mw_lane *lane;
    struct empty_job *jobs;
    sem_t all_done;
    _Atomic unsigned left; /* released by each done(), acquired by the one that posts all_done */
};

struct uv_side {
    uv_loop_t loop;
    uv_work_t *works;
};

static int set_up(struct lane_side *lane, struct uv_side *uv);
static void clean_up(struct lane_side *lane, struct uv_side *uv);
static bench_measure measure_lane, measure_uv;
static int run_job(struct mw_job *job);
static void job_done(struct mw_job *job, int status);
static void run_work(uv_work_t *work);
static void work_done(uv_work_t *work, int status);

int main(int argc, char **argv)
{
    static struct lane_side lane;
    static struct uv_side uv;
    struct bench bench = {.name = "lanes",
                          .summary = "empty jobs through a lane against libuv's uv_queue_work"};
    struct bench_variant variants[VARIANTS] = {
        [LANE] = {"lane", measure_lane, &lane, {0}},
        [UV] = {"uv_queue_work", measure_uv, &uv, {0}},
    };
    struct bench_row row = {.name = "100,000 jobs, 1 producer, 2 threads"};
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    status = 1;
    if (set_up(&lane, &uv) == 0 && bench_rounds(&bench, variants, 1, VARIANTS) == 0) {
        row.ours = variants[LANE].medians[VALUE_MS];
        row.peers[0] = variants[UV].medians[VALUE_MS];
        row.side = row.ours * MW_NS_PER_MS / JOBS;
        status =
            bench_print(
                &bench,
                &(struct bench_report){
                    .ours = "lane",
                    .peers = {"uv_queue_work"},
                    .peer_count = 1,
                    .side = "lane, ns/job",
                    .rows = &row,
                    .row_count = 1,
                    .note = "From the first submit to the last completion. The lane has "
                            "threads of its own, here of the same nice value\nas libuv's; it "
                            "completes a job on the thread that ran it, libuv on its loop."}) != 0;
    }
    clean_up(&lane, &uv);
    return status;
}

static int set_up(struct lane_side *lane, struct uv_side *uv)
{
    const struct mw_lane_options options = {
        .name = "bench", .cap = THREADS, .queue_max = JOBS, .urgency = MW_LANE_EQUAL};
    int error;

    setenv("UV_THREADPOOL_SIZE", THREADS_TEXT, 1); /* read at libuv's first use */
    if (sem_init(&lane->all_done, 0, 0) != 0 || uv_loop_init(&uv->loop) != 0)
        return -1;
    lane->jobs = calloc(JOBS, sizeof *lane->jobs);
    uv->works = calloc(JOBS, sizeof *uv->works);
    error = mw_lane_new(&lane->lane, &options);
    if (error == 0 && lane->jobs != NULL && uv->works != NULL)
        return 0;
    fprintf(stderr, "lanes: cannot start: %s\n", mw_strerror(error));
    return -1;
}

static void clean_up(struct lane_side *lane, struct uv_side *uv)
{
    mw_lane_free(lane->lane, false);
    uv_loop_close(&uv->loop);
    sem_destroy(&lane->all_done);
    free(lane->jobs);
    free(uv->works);
}

static int measure_lane(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct lane_side *side = context;
    uint64_t begin_ns = mw_clock_ns();
    int error = 0;

    (void)round;
    atomic_store_explicit(&side->left, JOBS, memory_order_relaxed); /* submit publishes it */
    for (unsigned i = 0; i < JOBS; i++) {
        side->jobs[i] = (struct empty_job){.job = {.fn = run_job, .done = job_done}, .side = side};
        error = mw_lane_submit(side->lane, &side->jobs[i].job);
        if (error != 0) {
            fprintf(stderr, "lanes: the lane refused job %u: %s\n", i, mw_strerror(error));
            return error;
        }
    }
    while (sem_wait(&side->all_done) != 0)
        ; /* interrupted */
    values[VALUE_MS] = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    return 0;
}

static int measure_uv(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct uv_side *side = context;
    uint64_t begin_ns = mw_clock_ns();

    (void)round;
    for (unsigned i = 0; i < JOBS; i++) {
        int error = uv_queue_work(&side->loop, &side->works[i], run_work, work_done);

        if (error != 0) {
            fprintf(stderr, "lanes: libuv refused job %u: %s\n", i, uv_strerror(error));
            return error;
        }
    }
    uv_run(&side->loop, UV_RUN_DEFAULT);
    values[VALUE_MS] = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    return 0;
}

static int run_job(struct mw_job *job)
{
    (void)job;
    return 0;
}

static void job_done(struct mw_job *job, int status)
{
    struct lane_side *side = ((struct empty_job *)job)->side;

    (void)status;
    if (atomic_fetch_sub_explicit(&side->left, 1, memory_order_acq_rel) == 1)
        sem_post(&side->all_done);
}

static void run_work(uv_work_t *work)
{
    (void)work;
}

static void work_done(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

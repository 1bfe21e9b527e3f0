/* probe_bench.c - how long an item waits to start in the shared pool while compiles run.
 *
 * The measurement of seed 002: every 5 ms one item is queued to the shared pool, which has as many
 * workers as there are CPUs, and its wait to start is recorded. The compiles run on a lane with
 * threads of its own, on a lane of the same cap over the pool's workers, or not at all. */
#include <errno.h>
#include <math.h>
#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/emit.h>
#include <millwright/error.h>
#include <millwright/lane.h>
#include <millwright/pool.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "source.h"

#define EMITS        6u
#define SOURCE_LINES 1000u
#define PERIOD_NS    (5 * MW_NS_PER_MS)
#define QUIET_PROBES 200u   /* without compiles: one second */
#define PROBES_MAX   20000u /* 100 seconds; then the compiles are waited for without probes */

enum { DEDICATED, POOL_RUN, QUIET, VARIANTS };
enum { VALUE_P50, VALUE_P99, VALUE_MAX, VALUE_BATCH, VALUES };

struct probe {
    struct mw_pool_item item;
    uint64_t queued_ns;
    double wait_ms;
};

struct emit_job {
    struct mw_job job;
    int error;
};

struct scene {
    struct mw_lane *lane; /* NULL: no compiles */
};

static struct mw_toolchain *toolchain;
static struct mw_options *options;
static struct mw_compile_request request;
static struct mw_pool *pool;
static struct scene scenes[VARIANTS];

/* One measurement at a time; each item and job posts once, which also publishes what it wrote. */
static struct probe probes[PROBES_MAX];
static struct emit_job jobs[EMITS];
static sem_t probe_ended, job_ended;

static int set_up(void);
static void clean_up(void);
static bench_measure measure;
static int start_emits(struct mw_lane *lane);
static unsigned probe_until_done(unsigned emits);
static bool all_ended(unsigned emits);
static void await(sem_t *semaphore, unsigned count);
static void fill_values(unsigned probe_count, double values[BENCH_VALUES_MAX]);
static int check_emits(unsigned emits);
static void run_probe(struct mw_pool_item *item);
static int run_emit(struct mw_job *job);
static void emit_done(struct mw_job *job, int status);
static void fill_rows(struct bench_row *rows, const struct bench_variant *variants);

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "probe",
        .summary = "wait to start in the shared pool while 6 compiles of 1,000 lines at -O2 run"};
    struct bench_variant variants[VARIANTS] = {
        [DEDICATED] = {"CPU lane", measure, &scenes[DEDICATED], {0}},
        [POOL_RUN] = {"lane over the pool", measure, &scenes[POOL_RUN], {0}},
        [QUIET] = {"no compiles", measure, &scenes[QUIET], {0}},
    };
    struct bench_row rows[VALUES] = {0};
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    status = 1;
    if (set_up() == 0 && bench_rounds(&bench, variants, 1, VARIANTS) == 0) {
        fill_rows(rows, variants);
        status = bench_print(
                     &bench,
                     &(struct bench_report){
                         .ours = "CPU lane",
                         .peers = {"lane over pool", "no compiles"},
                         .peer_count = 2,
                         .rows = rows,
                         .row_count = VALUES,
                         .note = "One item every 5 ms. Pool workers and the caps of both lanes: "
                                 "one per CPU.\nCPU lane: threads of its own at nice 19. Lane over "
                                 "pool: the same lane on the pool's workers."}) != 0;
    }
    clean_up();
    return status;
}

/* ---- set up and clean up ---- */

static int set_up(void)
{
    static const char *const args[] = {"-O2"};
    static struct mw_source_file file = {.name = "main.c"};
    unsigned cpus = mw_cpus_effective();
    struct mw_pool_options sizes = {.min_threads = cpus, .max_threads = cpus};
    struct mw_lane_options dedicated = {.name = "dedicated", .cap = cpus};
    struct mw_lane_options pool_run = {.name = "pool", .cap = cpus, .runner = MW_LANE_POOL};
    int error = mw_compile_init();

    file.data = source_generate(SOURCE_LINES);
    if (error == 0 &&
        (file.data == NULL || sem_init(&probe_ended, 0, 0) != 0 || sem_init(&job_ended, 0, 0) != 0))
        error = -ENOMEM;
    file.bytes = file.data == NULL ? 0 : strlen(file.data);
    request = (struct mw_compile_request){.directory = MW_REQUEST_DIRECTORY_DEFAULT,
                                          .main = file.name,
                                          .files = &file,
                                          .file_count = 1,
                                          .args = args,
                                          .arg_count = 1};
    if (error == 0)
        error = mw_toolchain_new(&toolchain);
    if (error == 0)
        error = mw_options_new(&options, &request, NULL);
    if (error == 0)
        error = mw_pool_new(&pool, &sizes);
    pool_run.pool = pool;
    if (error == 0)
        error = mw_lane_new(&scenes[DEDICATED].lane, &dedicated);
    if (error == 0)
        error = mw_lane_new(&scenes[POOL_RUN].lane, &pool_run);
    if (error != 0)
        fprintf(stderr, "probe: cannot start: %s\n", mw_strerror(error));
    return error;
}

static void clean_up(void)
{
    for (int i = 0; i < VARIANTS; i++)
        mw_lane_free(scenes[i].lane, true);
    mw_pool_free(pool);
    mw_options_free(options);
    mw_toolchain_free(toolchain);
    if (request.files != NULL)
        free((char *)request.files[0].data);
}

/* ---- one measurement ---- */

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    const struct scene *scene = context;
    unsigned emits = scene->lane == NULL ? 0 : EMITS;
    uint64_t begin_ns = mw_clock_ns();
    unsigned probe_count;
    int error = 0;

    (void)round;
    if (emits > 0)
        error = start_emits(scene->lane);
    if (error != 0)
        return error;
    probe_count = probe_until_done(emits);
    await(&probe_ended, probe_count);
    fill_values(probe_count, values);
    values[VALUE_BATCH] = NAN;
    for (unsigned i = 0; i < emits; i++) {
        double ended_ms = (double)(jobs[i].job.ended_ns - begin_ns) / MW_NS_PER_MS;

        values[VALUE_BATCH] = fmax(values[VALUE_BATCH], ended_ms); /* fmax passes over NAN */
    }
    return check_emits(emits);
}

static int start_emits(struct mw_lane *lane)
{
    for (unsigned i = 0; i < EMITS; i++) {
        int error;

        jobs[i] = (struct emit_job){.job = {.fn = run_emit, .done = emit_done}};
        error = mw_lane_submit(lane, &jobs[i].job);
        if (error != 0) {
            fprintf(stderr, "probe: the lane refused a job: %s\n", mw_strerror(error));
            await(&job_ended, i);
            return error;
        }
    }
    return 0;
}

/* Returns how many items were queued. */
static unsigned probe_until_done(unsigned emits)
{
    unsigned most = emits == 0 ? QUIET_PROBES : PROBES_MAX;
    uint64_t next_ns = mw_clock_ns();
    unsigned count = 0;

    while (count < most && !(emits > 0 && all_ended(emits))) {
        struct timespec when;

        probes[count] = (struct probe){.item = {.fn = run_probe}, .queued_ns = mw_clock_ns()};
        count += mw_pool_submit(pool, &probes[count].item) == 0;
        next_ns += PERIOD_NS;
        when = (struct timespec){.tv_sec = (time_t)(next_ns / MW_NS_PER_S),
                                 .tv_nsec = (long)(next_ns % MW_NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
    }
    await(&job_ended, emits);
    return count;
}

static bool all_ended(unsigned emits)
{
    int ended = 0;

    sem_getvalue(&job_ended, &ended);
    return (unsigned)ended == emits;
}

static void await(sem_t *semaphore, unsigned count)
{
    while (count > 0)
        if (sem_wait(semaphore) == 0) /* else interrupted */
            count--;
}

static void fill_values(unsigned probe_count, double values[BENCH_VALUES_MAX])
{
    static double waits_ms[PROBES_MAX];

    for (unsigned i = 0; i < probe_count; i++)
        waits_ms[i] = probes[i].wait_ms;
    values[VALUE_P50] = bench_quantile(waits_ms, probe_count, 0.5);
    values[VALUE_P99] = bench_quantile(waits_ms, probe_count, 0.99);
    values[VALUE_MAX] = bench_quantile(waits_ms, probe_count, 1);
}

static int check_emits(unsigned emits)
{
    for (unsigned i = 0; i < emits; i++)
        if (jobs[i].error != 0) {
            fprintf(stderr, "probe: a compile failed: %s\n", mw_strerror(jobs[i].error));
            return jobs[i].error;
        }
    return 0;
}

/* ---- what runs elsewhere ---- */

/* Runs on: a worker of the pool. */
static void run_probe(struct mw_pool_item *item)
{
    struct probe *probe = (struct probe *)item;

    probe->wait_ms = (double)(mw_clock_ns() - probe->queued_ns) / MW_NS_PER_MS;
    sem_post(&probe_ended);
}

/* Runs on: a thread of the lane, or a worker of the pool. */
static int run_emit(struct mw_job *job)
{
    struct mw_compile_result result = {0};
    int error = mw_compile(toolchain, options, &request, &result);

    (void)job;
    if (error == 0 && (!result.ok || result.artifact_bytes < SOURCE_LINES))
        error = -EBADMSG; /* less than a byte a line: not what should have been compiled */
    mw_compile_result_fini(&result);
    return error;
}

/* Runs on: where run_emit ran. */
static void emit_done(struct mw_job *job, int status)
{
    ((struct emit_job *)job)->error = status;
    sem_post(&job_ended);
}

/* ---- the answer ---- */

static void fill_rows(struct bench_row *rows, const struct bench_variant *variants)
{
    static const char *const names[VALUES] = {
        [VALUE_P50] = "wait to start, p50",
        [VALUE_P99] = "wait to start, p99",
        [VALUE_MAX] = "wait to start, max",
        [VALUE_BATCH] = "all 6 compiles",
    };

    for (int value = 0; value < VALUES; value++)
        rows[value] = (struct bench_row){
            .name = names[value],
            .ours = variants[DEDICATED].medians[value],
            .peers = {variants[POOL_RUN].medians[value], variants[QUIET].medians[value]}};
}

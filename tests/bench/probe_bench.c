/* probe_bench.c - how long an item waits to start while compiles run: the rows of 6 emits of
 * `millwright probe`, each measured several times, each time in a process of its own. */
#include <errno.h>
#include <math.h>
#include <millwright/emit.h>
#include <millwright/error.h>
#include <stdio.h>

#include "bench.h"
#include "probe_child.h"

#define EMITS   6u
#define SECONDS 60u /* no row comes near it */

enum { LANE, POOL, UV, QUIET, VARIANTS };
enum { VALUE_P50, VALUE_P99, VALUE_MAX, VALUE_BATCH, VALUES };

static struct mw_probe_row rows_of[VARIANTS] = {
    [LANE] = {.emits = EMITS, .lane = MW_PROBE_ON_LANE, .seconds = SECONDS},
    [POOL] = {.emits = EMITS, .lane = MW_PROBE_ON_POOL, .seconds = SECONDS},
    [UV] = {.emits = EMITS, .lane = MW_PROBE_ON_UV, .seconds = SECONDS},
    [QUIET] = {.emits = 0, .lane = MW_PROBE_ON_LANE, .seconds = SECONDS},
};

static bench_measure measure;
static double ms_of(uint64_t ns);
static void fill_rows(struct bench_row *rows, const struct bench_variant *variants);

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "probe",
        .summary = "wait to start while 6 emits of 20 functions with 20 loops at -O1 run"};
    struct bench_variant variants[VARIANTS] = {
        [LANE] = {"CPU lane", measure, &rows_of[LANE], {0}},
        [POOL] = {"shared pool", measure, &rows_of[POOL], {0}},
        [UV] = {"uv_queue_work", measure, &rows_of[UV], {0}},
        [QUIET] = {"no emits", measure, &rows_of[QUIET], {0}},
    };
    struct bench_row rows[VALUES] = {0};
    int status;
    int error;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    error = mw_compile_init();
    if (error != 0) {
        fprintf(stderr, "probe: %s\n", mw_strerror(error));
        return 1;
    }
    if (bench_rounds(&bench, variants, 1, VARIANTS) != 0)
        return 1;
    fill_rows(rows, variants);
    return bench_print(&bench,
                       &(struct bench_report){
                           .ours = "CPU lane",
                           .peers = {"shared pool", "uv_queue_work", "no emits"},
                           .peer_count = 3,
                           .rows = rows,
                           .row_count = VALUES,
                           .note = "One item every 5 ms: to libuv's workers for uv_queue_work, to "
                                   "the shared pool for the others.\nCPU lane: one thread for each "
                                   "CPU, its own, at nice 19. All rows: millwright probe."}) != 0;
}

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct mw_probe_result result;
    int error = mw_probe_child_run(context, -1, NULL, NULL, &result);

    (void)round;
    if (error == 0 && result.error != 0) {
        fprintf(stderr, "probe: %s\n", result.why);
        error = result.error;
    }
    if (error != 0)
        return error;
    values[VALUE_P50] = ms_of(result.probe.p50_ns);
    values[VALUE_P99] = ms_of(result.probe.p99_ns);
    values[VALUE_MAX] = ms_of(result.probe.max_ns);
    values[VALUE_BATCH] = result.batches > 0 ? ms_of(result.batch_ns) : NAN;
    return 0;
}

static double ms_of(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void fill_rows(struct bench_row *rows, const struct bench_variant *variants)
{
    static const char *const names[VALUES] = {
        [VALUE_P50] = "wait to start, p50",
        [VALUE_P99] = "wait to start, p99",
        [VALUE_MAX] = "wait to start, max",
        [VALUE_BATCH] = "all 6 emits",
    };

    for (int value = 0; value < VALUES; value++)
        rows[value] =
            (struct bench_row){.name = names[value],
                               .ours = variants[LANE].medians[value],
                               .peers = {variants[POOL].medians[value], variants[UV].medians[value],
                                         variants[QUIET].medians[value]}};
}

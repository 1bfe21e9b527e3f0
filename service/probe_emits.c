/* probe_emits.c - a row of N emits at once, see probe_row.h. */
#include <errno.h>
#include <millwright/clock.h>
#include <millwright/diagnose.h>
#include <millwright/emit.h>
#include <millwright/flow.h>
#include <millwright/lane_uv.h>
#include <stdlib.h>
#include <string.h>

#include "probe_child.h"
#include "probe_source.h"
#include "probe_stage.h"

#define BATCHES_MAX 4096u /* times that are kept for the median; later batches only run */

struct emits;

/* One of the emits of a batch. */
struct unit {
    struct mw_lane_uv_req req; /* lane and pool */
    uv_work_t work;            /* uv */
    struct emits *emits;
    int error; /* written where the emit runs; the loop's from its return on */
};

struct emits {
    struct mw_probe_stage stage; /* first, so that its callbacks can cast */
    const struct mw_probe_row *row;
    struct mw_pool *pool; /* NULL for uv */
    struct mw_lane *lane; /* NULL for uv */
    struct mw_lane_uv adapter;
    bool adapter_open;
    struct mw_toolchain *toolchain;
    struct mw_isolate *isolate; /* NULL: emits run in this process */
    struct mw_options *options;
    struct mw_source_file file;
    struct mw_compile_request request;
    struct unit *units;
    unsigned out; /* of this batch */
    uint64_t batch_begin_ns;
    uint64_t times_ns[BATCHES_MAX];
};

static int open_all(struct emits *emits);
static int open_runner(struct emits *emits);
static void close_all(struct emits *emits);
static void batch_start(struct emits *emits);
static int unit_queue(struct unit *unit);
static void unit_cancel(struct unit *unit);
static void unit_back(struct unit *unit, int status);
static void batch_end(struct emits *emits);
static void on_time_up(struct mw_probe_stage *stage);
static void on_ended(struct mw_probe_stage *stage);
static void lane_work(struct mw_lane_uv_req *req);
static void lane_after(struct mw_lane_uv_req *req, int status);
static void uv_work(uv_work_t *work);
static void uv_after(uv_work_t *work, int status);
static int emit(struct emits *emits);
static int emit_isolated(struct emits *emits, struct mw_compile_result *result);
static int parse(struct emits *emits);
static uint64_t median(uint64_t *values, unsigned count);

int mw_probe_emits_run(const struct mw_probe_row *row, struct mw_probe_result *result)
{
    struct emits *emits = calloc(1, sizeof *emits);
    if (!emits) {
        mw_probe_fail(result, -ENOMEM, "the row");
        return -ENOMEM;
    }
    emits->row = row;
    /* libclang looks at each parse; nobody else runs yet */
    if (row->compiler_threads)
        unsetenv("LIBCLANG_NOTHREADS");
    uint64_t time_ms = row->emits ? row->seconds * UINT64_C(1000) : MW_PROBE_ROW_MS_LEAST;
    if (mw_probe_stage_open(&emits->stage, result) == 0) {
        if (open_all(emits) == 0 &&
            mw_probe_stage_start(&emits->stage, emits->pool, time_ms, on_time_up) == 0)
            batch_start(emits);
        else
            on_ended(&emits->stage);
        uv_run(&emits->stage.loop, UV_RUN_DEFAULT);
        close_all(emits);
    }
    free(emits);
    return result->error;
}

static int open_all(struct emits *emits)
{
    static const char *const args[] = {"-O1"};
    emits->units = calloc(emits->row->emits + 1, sizeof *emits->units);
    emits->file = (struct mw_source_file){.name = "main.c", .data = mw_probe_source()};
    int error = emits->units && emits->file.data ? 0 : -ENOMEM;
    if (!error) {
        emits->file.bytes = strlen(emits->file.data);
        emits->request = (struct mw_compile_request){
            .directory = MW_REQUEST_DIRECTORY_DEFAULT,
            .main = emits->file.name,
            .files = &emits->file,
            .file_count = 1,
            .args = args,
            .arg_count = 1,
        };
        error = mw_toolchain_new(&emits->toolchain);
    }
    if (!error)
        error = mw_options_new(&emits->options, &emits->request, NULL);
    if (!error && emits->row->isolated)
        error = mw_probe_isolate_new(&emits->isolate, emits->toolchain, emits->stage.result);
    if (!error && emits->row->lane != MW_PROBE_ON_UV)
        error = open_runner(emits);
    if (error)
        mw_probe_fail(emits->stage.result, error, "the compiler and its lane");
    return error;
}

/* The pool as the service has it. What is put straight onto it is a lane over it that holds nothing
 * back. */
static int open_runner(struct emits *emits)
{
    bool dedicated = emits->row->lane == MW_PROBE_ON_LANE;
    int error = mw_pool_new(&emits->pool, NULL);
    if (!error)
        error =
            mw_lane_new(&emits->lane, &(struct mw_lane_options){
                                          .name = "emits",
                                          .runner = dedicated ? MW_LANE_DEDICATED : MW_LANE_POOL,
                                          .pool = dedicated ? NULL : emits->pool,
                                          .cap = dedicated ? 0 : emits->row->emits,
                                      });
    if (!error)
        error = mw_lane_uv_init(&emits->adapter, &emits->stage.loop);
    emits->adapter_open = error == 0;
    return error;
}

static void close_all(struct emits *emits)
{
    mw_lane_free(emits->lane, true);
    mw_probe_stage_close(&emits->stage);
    mw_pool_free(emits->pool);
    mw_isolate_free(emits->isolate);
    mw_options_free(emits->options);
    mw_toolchain_free(emits->toolchain);
    free((char *)emits->file.data);
    free(emits->units);
}

/* ---- on the loop ---- */

static void batch_start(struct emits *emits)
{
    emits->batch_begin_ns = mw_clock_ns();
    for (unsigned i = 0; i < emits->row->emits && !emits->stage.result->error; i++) {
        struct unit *unit = &emits->units[i];
        unit->emits = emits;
        int error = unit_queue(unit);
        if (error)
            mw_probe_fail(emits->stage.result, error, "an emit was not taken");
        else
            emits->out++;
    }
    /* a row without emits ends when its time is up */
    if (emits->out == 0 && emits->stage.result->error)
        batch_end(emits);
}

static int unit_queue(struct unit *unit)
{
    struct emits *emits = unit->emits;
    if (emits->row->lane == MW_PROBE_ON_UV)
        return uv_queue_work(&emits->stage.loop, &unit->work, uv_work, uv_after);
    return mw_lane_uv_queue(&emits->adapter, emits->lane, &unit->req, lane_work, lane_after);
}

/* Fails where the emit has begun, or is back. */
static void unit_cancel(struct unit *unit)
{
    if (unit->emits->row->lane == MW_PROBE_ON_UV)
        (void)uv_cancel((uv_req_t *)&unit->work);
    else
        (void)mw_lane_uv_cancel(&unit->req);
}

static void unit_back(struct unit *unit, int status)
{
    struct emits *emits = unit->emits;
    struct mw_probe_result *result = emits->stage.result;
    if (status == 0 && unit->error)
        mw_probe_fail(result, unit->error, "an emit failed");
    if (status == 0 && !unit->error)
        result->compiled++;
    if (--emits->out == 0)
        batch_end(emits);
}

static void batch_end(struct emits *emits)
{
    struct mw_probe_result *result = emits->stage.result;
    uint64_t now = mw_clock_ns();
    if (!result->cut && !result->error) {
        if (result->batches < BATCHES_MAX)
            emits->times_ns[result->batches++] = now - emits->batch_begin_ns;
        if (now - emits->stage.begin_ns < MW_PROBE_ROW_MS_LEAST * MW_NS_PER_MS) {
            batch_start(emits);
            return;
        }
    }
    mw_probe_isolate_note(emits->isolate, result);
    result->batch_ns = median(emits->times_ns, result->batches);
    mw_probe_stage_finish(&emits->stage, on_ended);
}

static void on_time_up(struct mw_probe_stage *stage)
{
    struct emits *emits = (struct emits *)stage;
    if (emits->row->emits == 0) {
        mw_probe_stage_finish(stage, on_ended);
        return;
    }
    stage->result->cut = true;
    for (unsigned i = 0; i < emits->row->emits; i++)
        unit_cancel(&emits->units[i]);
}

static void on_ended(struct mw_probe_stage *stage)
{
    struct emits *emits = (struct emits *)stage;
    if (emits->adapter_open)
        mw_lane_uv_close(&emits->adapter, NULL);
    mw_probe_stage_let_go(stage);
}

static void lane_after(struct mw_lane_uv_req *req, int status)
{
    unit_back((struct unit *)((char *)req - offsetof(struct unit, req)), status);
}

static void uv_after(uv_work_t *work, int status)
{
    unit_back((struct unit *)((char *)work - offsetof(struct unit, work)), status);
}

/* ---- where the load runs ---- */

static void lane_work(struct mw_lane_uv_req *req)
{
    struct unit *unit = (struct unit *)((char *)req - offsetof(struct unit, req));
    unit->error = emit(unit->emits);
}

/* As a leaf of its own, so that the threads which the compiler starts are counted here too. */
static void uv_work(uv_work_t *work)
{
    struct unit *unit = (struct unit *)((char *)work - offsetof(struct unit, work));
    uint64_t before = mw_flow_enter(mw_flow_next());
    unit->error = emit(unit->emits);
    (void)mw_flow_enter(before);
}

static int emit(struct emits *emits)
{
    if (emits->row->compiler_threads)
        return parse(emits);
    struct mw_compile_result result = {0};
    int error = emits->isolate
                    ? emit_isolated(emits, &result)
                    : mw_compile(emits->toolchain, emits->options, &emits->request, &result);
    if (!error && (!result.ok || result.artifact_bytes == 0))
        error = -EBADMSG;
    mw_compile_result_fini(&result);
    return error;
}

/* Its time is the row's, and what a row lets end. */
static int emit_isolated(struct emits *emits, struct mw_compile_result *result)
{
    uint64_t time_ns = (emits->row->seconds + MW_PROBE_CHILD_GRACE_S) * MW_NS_PER_S;
    struct mw_limits limits = {.wall_ns = time_ns, .cpu_ns = time_ns};
    struct mw_usage usage;
    return mw_isolate_compile(emits->isolate, emits->options, &emits->request, &limits, NULL,
                              result, &usage);
}

static int parse(struct emits *emits)
{
    struct mw_diagnostics list = {0};
    int error = mw_diagnose(emits->toolchain, emits->options, &emits->request, false, &list);
    if (!error && list.errors > 0)
        error = -EBADMSG;
    mw_diagnostics_fini(&list);
    return error;
}

static int compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

static uint64_t median(uint64_t *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return count == 0 ? 0 : values[count / 2];
}

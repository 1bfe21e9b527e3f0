/* probe_roll.c - a row in which every stored key becomes stale at once, see probe_row.h. It goes
 * the service's own way: files lane, store lane, CPU lane, store lane, files lane. What is stored
 * before the probes begin is compiled in this process, also in an isolated row. */
#include <errno.h>
#include <limits.h>
#include <millwright/clock.h>
#include <millwright/lane.h>
#include <millwright/store.h>
#include <millwright/toolchain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "pipeline.h"
#include "probe_source.h"
#include "probe_stage.h"
#include "shared_pool.h"

#define FORMER_COMPILER "the compiler before this one"

/* Each phase asks for every source once. */
enum phase {
    PHASE_FILL,  /* by the former compiler: compiled and stored */
    PHASE_AGAIN, /* by the former compiler: found */
    PHASE_STALE, /* by this compiler: none is found */
    PHASES
};

struct ask {
    struct roll *roll;
    struct mw_ticket *ticket; /* NULL: answered */
};

struct roll {
    struct mw_probe_stage stage; /* first, so that its callbacks can cast */
    const struct mw_probe_row *row;
    struct mw_shared_pool shared;
    struct mw_lane *files, *store_io, *cpu;
    struct mw_lane_uv adapter;
    bool adapter_open;
    struct mw_toolchain *former, *current;
    struct mw_isolate *isolate; /* of the current compiler; NULL: compiles run in this process */
    struct mw_store *store;
    struct mw_pipeline *pipelines[PHASES]; /* the first two are one */
    enum phase phase;
    unsigned out;
    struct ask asks[MW_PROBE_ROLL_SOURCES];
};

static int open_all(struct roll *roll);
static int open_lanes(struct roll *roll);
static int open_store(struct roll *roll);
static int open_pipelines(struct roll *roll);
static void close_all(struct roll *roll);
static void phase_start(struct roll *roll);
static int ask_send(struct roll *roll, unsigned number);
static void on_answer(void *user, const struct mw_answer *answer);
static void phase_end(struct roll *roll);
static void on_time_up(struct mw_probe_stage *stage);
static void on_ended(struct mw_probe_stage *stage);

int mw_probe_roll_run(const struct mw_probe_row *row, struct mw_probe_result *result)
{
    struct roll *roll = calloc(1, sizeof *roll);
    if (!roll) {
        mw_probe_fail(result, -ENOMEM, "the row");
        return -ENOMEM;
    }
    roll->row = row;
    if (mw_probe_stage_open(&roll->stage, result) == 0) {
        if (open_all(roll) == 0)
            phase_start(roll);
        else
            on_ended(&roll->stage);
        uv_run(&roll->stage.loop, UV_RUN_DEFAULT);
        close_all(roll);
    }
    free(roll);
    return result->error;
}

static int open_all(struct roll *roll)
{
    char why[sizeof roll->stage.result->why] = "the service's pipeline";
    struct mw_serve_settings settings = mw_serve_defaults;
    int error = mw_shared_pool_open(&roll->shared, &settings, why, sizeof why);
    if (!error)
        error = open_lanes(roll);
    if (!error) {
        error = mw_lane_uv_init(&roll->adapter, &roll->stage.loop);
        roll->adapter_open = error == 0;
    }
    if (!error)
        error = open_store(roll);
    if (!error)
        error = open_pipelines(roll);
    if (error)
        mw_probe_fail(roll->stage.result, error, why);
    return error;
}

/* The service's lanes with its defaults, but for the runner of the CPU lane. */
static int open_lanes(struct roll *roll)
{
    struct mw_lane_options files = {.name = "files",
                                    .runner = MW_LANE_POOL,
                                    .pool = roll->shared.pool,
                                    .cap = mw_serve_defaults.files_cap};
    struct mw_lane_options store = {.name = "store",
                                    .runner = MW_LANE_POOL,
                                    .pool = roll->shared.pool,
                                    .cap = mw_serve_defaults.store_cap};
    struct mw_lane_options cpu = {.name = "compile-cpu"};
    if (roll->row->lane == MW_PROBE_ON_POOL) {
        cpu.runner = MW_LANE_POOL;
        cpu.pool = roll->shared.pool;
    }
    int error = mw_lane_new(&roll->files, &files);
    if (!error)
        error = mw_lane_new(&roll->store_io, &store);
    if (!error)
        error = mw_lane_new(&roll->cpu, &cpu);
    return error;
}

static int open_store(struct roll *roll)
{
    const char *parent = getenv("TMPDIR");
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s/store", parent ? parent : ".");
    if (length < 0 || (size_t)length >= sizeof folder)
        return -ENAMETOOLONG;
    return mw_store_open(&roll->store, folder, NULL);
}

static int open_pipelines(struct roll *roll)
{
    int error = mw_toolchain_new_as(&roll->former, FORMER_COMPILER);
    if (!error)
        error = mw_toolchain_new(&roll->current);
    if (!error && roll->row->isolated)
        error = mw_probe_isolate_new(&roll->isolate, roll->current, roll->stage.result);
    struct mw_pipeline_parts parts = {
        .loop = &roll->stage.loop,
        .adapter = &roll->adapter,
        .place = {.toolchain = roll->former},
        .store = roll->store,
        .shared = &roll->shared,
        .files = roll->files,
        .store_io = roll->store_io,
        .cpu = roll->cpu,
    };
    if (!error)
        error = mw_pipeline_new(&roll->pipelines[PHASE_FILL], &parts);
    roll->pipelines[PHASE_AGAIN] = roll->pipelines[PHASE_FILL];
    parts.place = (struct mw_leaf_place){
        .toolchain = roll->current,
        .isolate = roll->isolate,
        .ceilings = {.wall_ns = MW_RUN_TIMEOUT_MS_MAX * MW_NS_PER_MS,
                     .cpu_ns = MW_RUN_TIMEOUT_MS_MAX * MW_NS_PER_MS},
    };
    parts.place.defaults = parts.place.ceilings;
    if (!error)
        error = mw_pipeline_new(&roll->pipelines[PHASE_STALE], &parts);
    return error;
}

static void close_all(struct roll *roll)
{
    mw_lane_free(roll->cpu, true);
    mw_lane_free(roll->files, true);
    mw_lane_free(roll->store_io, true);
    mw_probe_stage_close(&roll->stage);
    mw_shared_pool_close(&roll->shared);
    mw_pipeline_free(roll->pipelines[PHASE_FILL]);
    mw_pipeline_free(roll->pipelines[PHASE_STALE]);
    mw_store_close(roll->store);
    mw_isolate_free(roll->isolate);
    mw_toolchain_free(roll->former);
    mw_toolchain_free(roll->current);
}

/* ---- on the loop ---- */

/* Both toolchains have read the headers when the identity changes: the first request of a service
 * would do it, and here it would be taken for the roll's. */
static void phase_start(struct roll *roll)
{
    struct mw_probe_result *result = roll->stage.result;
    if (roll->phase == PHASE_STALE) {
        uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
        int error = mw_toolchain_stamp(roll->current, stamp);
        if (!error)
            error = mw_probe_stage_start(&roll->stage, roll->shared.pool,
                                         roll->row->seconds * UINT64_C(1000), on_time_up);
        if (error) {
            mw_probe_fail(result, error, "the changed compiler");
            on_ended(&roll->stage);
            return;
        }
    }
    for (unsigned i = 0; i < MW_PROBE_ROLL_SOURCES && !result->error; i++) {
        int error = ask_send(roll, i);
        if (error)
            mw_probe_fail(result, error, "a request was not taken");
    }
    if (roll->out == 0)
        phase_end(roll);
}

static int ask_send(struct roll *roll, unsigned number)
{
    struct ask *ask = &roll->asks[number];
    struct mw_problem problem = {0};
    char *source = mw_probe_small_source(number);
    /* the row has an end of its own, so no request's time may be up before */
    json_t *json =
        json_pack("{s:s, s:s, s:[s], s:i}", "language", "c", "source", source ? source : "", "args",
                  "-O1", "timeout_ms", (int)MW_RUN_TIMEOUT_MS_MAX);
    char *body = source ? mw_json_text(json, MW_JSON_COMPACT) : NULL;
    free(source);
    if (!body)
        return -ENOMEM;
    ask->roll = roll;
    int error = mw_pipeline_submit(roll->pipelines[roll->phase], body, strlen(body), false,
                                   on_answer, ask, &ask->ticket, &problem);
    roll->out += error == 0;
    return error;
}

static void on_answer(void *user, const struct mw_answer *answer)
{
    struct ask *ask = user;
    struct roll *roll = ask->roll;
    ask->ticket = NULL;
    if (answer->status != 200)
        mw_probe_fail(roll->stage.result, -EBADMSG, "a request was answered with an error");
    free(answer->body);
    if (--roll->out == 0)
        phase_end(roll);
}

static void phase_end(struct roll *roll)
{
    struct mw_probe_result *result = roll->stage.result;
    if (result->error && roll->phase != PHASE_STALE) {
        on_ended(&roll->stage);
        return;
    }
    if (roll->phase != PHASE_STALE) {
        roll->phase++;
        phase_start(roll);
        return;
    }
    const struct mw_pipeline_stats *stats = mw_pipeline_stats(roll->pipelines[PHASE_STALE]);
    result->found_before = (unsigned)mw_pipeline_stats(roll->pipelines[PHASE_AGAIN])->hits;
    result->found_after = (unsigned)stats->hits;
    result->compiled = stats->compiled;
    mw_probe_isolate_note(roll->isolate, result);
    if (!result->cut && !result->error) {
        result->batches = 1;
        result->batch_ns = mw_clock_ns() - roll->stage.begin_ns;
    }
    mw_probe_stage_finish(&roll->stage, on_ended);
}

/* Whoever still waits leaves: what is queued for them is taken back, what runs ends. */
static void on_time_up(struct mw_probe_stage *stage)
{
    struct roll *roll = (struct roll *)stage;
    stage->result->cut = true;
    for (unsigned i = 0; i < MW_PROBE_ROLL_SOURCES; i++) {
        if (!roll->asks[i].ticket)
            continue;
        mw_ticket_abandon(roll->asks[i].ticket);
        roll->asks[i].ticket = NULL;
        roll->out--;
    }
    phase_end(roll);
}

static void on_ended(struct mw_probe_stage *stage)
{
    struct roll *roll = (struct roll *)stage;
    if (roll->adapter_open)
        mw_lane_uv_close(&roll->adapter, NULL);
    mw_probe_stage_let_go(stage);
}

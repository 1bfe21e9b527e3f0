#include "probe_stage.h"

#include <millwright/clock.h>
#include <millwright/error.h>
#include <millwright/flow.h>
#include <millwright/thread.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS   1u
#define LOOKS_MAX 1000u /* an item that nobody starts in a second shows as the longest wait */

static void on_time_up(uv_timer_t *timer);
static void on_look(uv_timer_t *timer);
static void take_waits(struct mw_probe_waits *waits, const struct mw_probe *probe);

int mw_probe_row_run(const struct mw_probe_row *row, struct mw_probe_result *result)
{
    memset(result, 0, sizeof *result);
    return row->roll ? mw_probe_roll_run(row, result) : mw_probe_emits_run(row, result);
}

int mw_probe_stage_open(struct mw_probe_stage *stage, struct mw_probe_result *result)
{
    stage->result = result;
    mw_thread_adopt(MW_THREAD_LOOP);
    int error = uv_loop_init(&stage->loop);
    if (error) {
        mw_probe_fail(result, error, "a libuv loop");
        return error;
    }
    stage->timer_open = uv_timer_init(&stage->loop, &stage->timer) == 0;
    stage->timer.data = stage;
    return 0;
}

int mw_probe_stage_start(struct mw_probe_stage *stage, struct mw_pool *pool, uint64_t time_ms,
                         void (*time_up)(struct mw_probe_stage *stage))
{
    struct mw_probe_target *target = &stage->workers_target.target;
    int error = 0;
    if (pool) {
        mw_probe_pool_init(&stage->pool_target, pool);
        target = &stage->pool_target.target;
    } else {
        error = mw_probe_uv_workers_init(&stage->workers_target);
        stage->probes_workers = error == 0;
    }
    if (!error) {
        error = mw_probe_uv_loop_init(&stage->loop_target, &stage->loop);
        stage->loop_target_open = error == 0;
    }
    if (!error)
        error = mw_probe_new(&stage->probe, target, 0);
    if (!error)
        error = mw_probe_new(&stage->loop_probe, &stage->loop_target.target, 0);
    if (error) {
        mw_probe_fail(stage->result, error, "the probes");
        return error;
    }
    stage->time_up = time_up;
    stage->begin_ns = mw_clock_ns();
    stage->threads_before = mw_flow_count(MW_FLOW_FOREIGN_START);
    uv_update_time(&stage->loop);
    uv_timer_start(&stage->timer, on_time_up, time_ms, 0);
    return 0;
}

void mw_probe_stage_finish(struct mw_probe_stage *stage,
                           void (*ended)(struct mw_probe_stage *stage))
{
    struct mw_probe_stats stats;
    mw_probe_snapshot(stage->probe, &stats);
    stage->sent_at_end = stats.sent;
    stage->ended = ended;
    stage->result->threads_started = mw_flow_count(MW_FLOW_FOREIGN_START) - stage->threads_before;
    uv_timer_start(&stage->timer, on_look, 0, LOOK_MS);
}

void mw_probe_stage_let_go(struct mw_probe_stage *stage)
{
    mw_probe_free(stage->loop_probe);
    stage->loop_probe = NULL;
    if (stage->timer_open)
        uv_close((uv_handle_t *)&stage->timer, NULL);
    if (stage->loop_target_open)
        mw_probe_uv_loop_close(&stage->loop_target, NULL);
    stage->timer_open = stage->loop_target_open = false;
}

void mw_probe_stage_close(struct mw_probe_stage *stage)
{
    mw_probe_free(stage->probe);
    if (stage->probes_workers)
        mw_probe_uv_workers_fini(&stage->workers_target);
    (void)uv_loop_close(&stage->loop);
}

void mw_probe_fail(struct mw_probe_result *result, int error, const char *what)
{
    if (result->error)
        return;
    result->error = error;
    snprintf(result->why, sizeof result->why, "%s: %s", what, mw_strerror(error));
}

int mw_probe_isolate_new(struct mw_isolate **out, const struct mw_toolchain *toolchain,
                         struct mw_probe_result *result)
{
    char why[sizeof result->why] = "";
    int error =
        mw_isolate_new(out, &(struct mw_isolate_options){.toolchain = toolchain, .unguarded = true},
                       why, sizeof why);
    if (error && !result->error) {
        result->error = error;
        snprintf(result->why, sizeof result->why, "%s", why[0] ? why : mw_strerror(error));
    }
    return error;
}

void mw_probe_isolate_note(struct mw_isolate *isolate, struct mw_probe_result *result)
{
    struct mw_isolate_stats stats;
    if (!isolate)
        return;
    mw_isolate_snapshot(isolate, &stats);
    result->processes_started = stats.started;
}

static void on_time_up(uv_timer_t *timer)
{
    struct mw_probe_stage *stage = timer->data;
    stage->time_up(stage);
}

/* The item that was in flight at the end of the load has the longest wait, as like as not. */
static void on_look(uv_timer_t *timer)
{
    struct mw_probe_stage *stage = timer->data;
    struct mw_probe_stats stats;
    mw_probe_snapshot(stage->probe, &stats);
    if (stats.arrived < stage->sent_at_end && ++stage->looks < LOOKS_MAX)
        return;
    uv_timer_stop(timer);
    take_waits(&stage->result->probe, stage->probe);
    take_waits(&stage->result->loop, stage->loop_probe);
    stage->ended(stage);
}

static void take_waits(struct mw_probe_waits *waits, const struct mw_probe *probe)
{
    struct mw_probe_stats stats;
    mw_probe_snapshot(probe, &stats);
    *waits = (struct mw_probe_waits){
        .p50_ns = stats.p50_ns,
        .p99_ns = stats.p99_ns,
        .max_ns = stats.max_ns > stats.in_flight_ns ? stats.max_ns : stats.in_flight_ns,
        .sent = stats.sent,
        .refused = stats.refused,
    };
}

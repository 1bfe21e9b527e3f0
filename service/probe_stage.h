/* probe_stage.h - what both kinds of rows of `millwright probe` stand on: a loop, the two probes on
 * it, and the end of a row.
 *
 * Ownership:  the caller's storage, zero bytes before the first use.
 * Threads:    the thread that runs the loop. */
#ifndef MW_SERVICE_PROBE_STAGE_H
#define MW_SERVICE_PROBE_STAGE_H

#include <stdbool.h>
#include <uv.h>

#include <millwright/isolate.h>
#include <millwright/pool.h>
#include <millwright/probe.h>
#include <millwright/probe_targets.h>

#include "probe_row.h"

struct mw_probe_stage {
    uv_loop_t loop;
    uv_timer_t timer; /* first the end of the row's time, then of its probes */
    struct mw_probe_pool pool_target;
    struct mw_probe_uv_workers workers_target;
    struct mw_probe_uv_loop loop_target;
    struct mw_probe *probe, *loop_probe;
    bool probes_workers, timer_open, loop_target_open;
    uint64_t begin_ns; /* when the probes started */
    uint64_t threads_before;
    uint64_t sent_at_end;
    unsigned looks;
    void (*time_up)(struct mw_probe_stage *stage);
    void (*ended)(struct mw_probe_stage *stage);
    struct mw_probe_result *result;
};

/* Make the loop. Returns 0 or a negative errno. */
int mw_probe_stage_open(struct mw_probe_stage *stage, struct mw_probe_result *result);

/* Start the probes (`pool` NULL: on libuv's workers) and the row's time, after which time_up is
 * called. Returns 0 or a negative errno. */
int mw_probe_stage_start(struct mw_probe_stage *stage, struct mw_pool *pool, uint64_t time_ms,
                         void (*time_up)(struct mw_probe_stage *stage));

/* The load is over: when the items in flight have arrived the waits are in the result, and `ended`
 * is called. */
void mw_probe_stage_finish(struct mw_probe_stage *stage,
                           void (*ended)(struct mw_probe_stage *stage));

/* Let go of the loop; it must turn once more, then close. NULL probes and handles not opened are
 * passed over. */
void mw_probe_stage_let_go(struct mw_probe_stage *stage);
void mw_probe_stage_close(struct mw_probe_stage *stage);

/* What both rows may fail of: notes the first failure. */
void mw_probe_fail(struct mw_probe_result *result, int error, const char *what);

/* What runs isolated emits for the row's time; one process waits ready for each CPU. Returns 0, or
 * a negative errno that is noted. */
int mw_probe_isolate_new(struct mw_isolate **out, const struct mw_toolchain *toolchain,
                         struct mw_probe_result *result);

/* Note what it has started; NULL: nothing. */
void mw_probe_isolate_note(struct mw_isolate *isolate, struct mw_probe_result *result);

/* The row's kinds. */
int mw_probe_emits_run(const struct mw_probe_row *row, struct mw_probe_result *result);
int mw_probe_roll_run(const struct mw_probe_row *row, struct mw_probe_result *result);

#endif

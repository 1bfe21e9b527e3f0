/* step.h - one leaf of a request: it runs on a lane and comes back to the loop with a result.
 *
 * It is a request of the libuv adapter whose work returns something.
 *
 * Ownership:  embedded in what it works for, which must live until after() is called.
 * Threads:    start and cancel on the loop's thread; work() on the lane's; after() on the loop's.
 * Promise:    after a successful start, after() is called exactly once, never from inside start
 *             or cancel. */
#ifndef MW_SERVICE_STEP_H
#define MW_SERVICE_STEP_H

#include <stdbool.h>

#include <millwright/lane_uv.h>

struct mw_step {
    struct mw_lane_uv_req req; /* its job tells in after() when and where it ran */
    int (*work)(struct mw_step *step);
    void (*after)(struct mw_step *step, int status);
    int result; /* of work() */
    bool out;   /* started, and after() not yet called */
};

/* Queue `work` on `lane`; its return (or -ECANCELED) comes to `after`.
 * Returns 0, or what mw_lane_uv_queue returns; then neither is called. */
int mw_step_start(struct mw_step *step, struct mw_lane_uv *adapter, struct mw_lane *lane,
                  int (*work)(struct mw_step *), void (*after)(struct mw_step *, int));

/* The same at batch priority: it gives way to all other work of the lane. */
int mw_step_start_batch(struct mw_step *step, struct mw_lane_uv *adapter, struct mw_lane *lane,
                        int (*work)(struct mw_step *), void (*after)(struct mw_step *, int));

/* Take the step back if it has not begun: true, and after(-ECANCELED) follows. Else nothing
 * happens: false. */
bool mw_step_cancel(struct mw_step *step);

#endif

#include "step.h"

#include <string.h>

static void run(struct mw_lane_uv_req *req);
static void came_back(struct mw_lane_uv_req *req, int status);

static int start(struct mw_step *step, struct mw_lane_uv *adapter, struct mw_lane *lane,
                 enum mw_job_priority priority, int (*work)(struct mw_step *),
                 void (*after)(struct mw_step *, int))
{
    memset(step, 0, sizeof *step);
    step->req.data = step;
    step->req.job.priority = priority;
    step->work = work;
    step->after = after;
    step->out = true;
    int error = mw_lane_uv_queue(adapter, lane, &step->req, run, came_back);
    if (error)
        step->out = false;
    return error;
}

int mw_step_start(struct mw_step *step, struct mw_lane_uv *adapter, struct mw_lane *lane,
                  int (*work)(struct mw_step *), void (*after)(struct mw_step *, int))
{
    return start(step, adapter, lane, MW_JOB_NORMAL, work, after);
}

int mw_step_start_batch(struct mw_step *step, struct mw_lane_uv *adapter, struct mw_lane *lane,
                        int (*work)(struct mw_step *), void (*after)(struct mw_step *, int))
{
    return start(step, adapter, lane, MW_JOB_BATCH, work, after);
}

bool mw_step_cancel(struct mw_step *step)
{
    return mw_lane_uv_cancel(&step->req) == 0;
}

static void run(struct mw_lane_uv_req *req)
{
    struct mw_step *step = req->data;
    step->result = step->work(step);
}

static void came_back(struct mw_lane_uv_req *req, int status)
{
    struct mw_step *step = req->data;
    step->out = false;
    step->after(step, status ? status : step->result);
}

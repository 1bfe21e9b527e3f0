#include "step.h"

#include <stddef.h>
#include <string.h>

static int run(struct mw_job *job);
static void ran(struct mw_job *job, int status);
static void came_back(struct mw_post *post);

#define STEP_OF(member_pointer, member)                                                            \
    ((struct mw_step *)((char *)(member_pointer) - offsetof(struct mw_step, member)))

int mw_step_start(struct mw_step *step, struct mw_mailbox *mailbox, struct mw_lane *lane,
                  int (*work)(struct mw_step *), void (*after)(struct mw_step *, int))
{
    memset(step, 0, sizeof *step);
    step->mailbox = mailbox;
    step->lane = lane;
    step->work = work;
    step->after = after;
    step->post.fn = came_back;
    step->job.fn = run;
    step->job.done = ran;
    step->out = true;
    int error = mw_lane_submit(lane, &step->job);
    if (error)
        step->out = false;
    return error;
}

bool mw_step_cancel(struct mw_step *step)
{
    return step->out && mw_lane_cancel(step->lane, &step->job) == 0;
}

static int run(struct mw_job *job)
{
    struct mw_step *step = STEP_OF(job, job);
    return step->work(step);
}

static void ran(struct mw_job *job, int status)
{
    struct mw_step *step = STEP_OF(job, job);
    step->status = status;
    mw_mailbox_post(step->mailbox, &step->post);
}

static void came_back(struct mw_post *post)
{
    struct mw_step *step = STEP_OF(post, post);
    step->out = false;
    step->after(step, step->status);
}

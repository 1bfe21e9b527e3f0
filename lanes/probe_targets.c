#include "probe_targets.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int lane_send(struct mw_probe_target *target, struct mw_probe *probe);
static void lane_settle(struct mw_probe_target *target);
static int lane_begin(struct mw_job *job);
static void lane_done(struct mw_job *job, int status);
static int loop_send(struct mw_probe_target *target, struct mw_probe *probe);
static void loop_settle(struct mw_probe_target *target);
static void on_due(uv_poll_t *poll, int status, int events);
static bool take_due(struct mw_probe_uv_loop *target);
static void on_closed(uv_handle_t *handle);
static int workers_send(struct mw_probe_target *target, struct mw_probe *probe);
static void workers_settle(struct mw_probe_target *target);
static void workers_begin(uv_work_t *req);
static void workers_done(uv_work_t *req, int status);

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* ---- a lane ---- */

void mw_probe_lane_init(struct mw_probe_lane *target, struct mw_lane *lane,
                        enum mw_job_priority priority, uint32_t tenant)
{
    *target =
        (struct mw_probe_lane){.target = {.send = lane_send, .settle = lane_settle}, .lane = lane};
    for (unsigned i = 0; i < MW_PROBE_TARGET_ITEMS; i++)
        target->items[i].job = (struct mw_job){
            .fn = lane_begin, .done = lane_done, .priority = priority, .tenant = tenant};
}

/* Runs on: the probe's thread. */
static int lane_send(struct mw_probe_target *target, struct mw_probe *probe)
{
    struct mw_probe_lane *lane_target = CONTAINER_OF(target, struct mw_probe_lane, target);

    for (unsigned i = 0; i < MW_PROBE_TARGET_ITEMS; i++) {
        struct mw_probe_lane_item *item = &lane_target->items[i];
        int error;

        /* acquire: partner of the release in lane_done */
        if (atomic_load_explicit(&item->out, memory_order_acquire))
            continue;
        item->probe = probe;
        item->begun = false;
        /* relaxed: whoever clears it again has it from the lane */
        atomic_store_explicit(&item->out, true, memory_order_relaxed);
        error = mw_lane_submit(lane_target->lane, &item->job);
        if (error != 0)
            atomic_store_explicit(&item->out, false, memory_order_relaxed);
        return error;
    }
    return -EAGAIN;
}

/* Runs on: the thread that frees the probe. */
static void lane_settle(struct mw_probe_target *target)
{
    struct mw_probe_lane *lane_target = CONTAINER_OF(target, struct mw_probe_lane, target);

    for (unsigned i = 0; i < MW_PROBE_TARGET_ITEMS; i++) {
        struct mw_job *job = &lane_target->items[i].job;

        (void)mw_lane_cancel(lane_target->lane, job); /* fails when it has begun, or is not there */
        (void)mw_lane_wait(lane_target->lane, job, UINT64_MAX);
    }
}

/* Runs on: a thread of the lane. */
static int lane_begin(struct mw_job *job)
{
    struct mw_probe_lane_item *item = CONTAINER_OF(job, struct mw_probe_lane_item, job);

    item->begun = true;
    mw_probe_arrive(item->probe);
    return 0;
}

/* Runs on: a thread of the lane, or where the job was cancelled. */
static void lane_done(struct mw_job *job, int status)
{
    struct mw_probe_lane_item *item = CONTAINER_OF(job, struct mw_probe_lane_item, job);

    (void)status;
    if (!item->begun)
        mw_probe_arrive(item->probe);
    /* release: partner of the acquire in lane_send */
    atomic_store_explicit(&item->out, false, memory_order_release);
}

/* ---- a libuv loop ---- */

int mw_probe_uv_loop_init(struct mw_probe_uv_loop *target, uv_loop_t *loop)
{
    int error;

    *target = (struct mw_probe_uv_loop){.target = {.send = loop_send, .settle = loop_settle}};
    target->due_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (target->due_fd < 0)
        return uv_translate_sys_error(errno);
    error = uv_poll_init(loop, &target->poll, target->due_fd);
    if (error != 0) {
        close(target->due_fd);
        return error;
    }
    error = uv_poll_start(&target->poll, UV_READABLE, on_due);
    assert(error == 0); /* fails only for a handle that is closing */
    uv_unref((uv_handle_t *)&target->poll);
    return 0;
}

void mw_probe_uv_loop_close(struct mw_probe_uv_loop *target,
                            void (*close_cb)(struct mw_probe_uv_loop *target))
{
    target->close_cb = close_cb;
    uv_close((uv_handle_t *)&target->poll, on_closed);
}

/* Runs on: the probe's thread. */
static int loop_send(struct mw_probe_target *target, struct mw_probe *probe)
{
    struct mw_probe_uv_loop *loop_target = CONTAINER_OF(target, struct mw_probe_uv_loop, target);
    const uint64_t one = 1;

    /* release: partner of the acquire in take_due; the eventfd orders them too, which
     * ThreadSanitizer does not see */
    atomic_store_explicit(&loop_target->probe, probe, memory_order_release);
    return write(loop_target->due_fd, &one, sizeof one) == sizeof one ? 0 : -EIO;
}

/* The loop may not turn any more: what is due is taken from it. If it was faster it arrives by
 * itself. Runs on: the thread that frees the probe, which may be the loop's. */
static void loop_settle(struct mw_probe_target *target)
{
    (void)take_due(CONTAINER_OF(target, struct mw_probe_uv_loop, target));
}

static void on_due(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an eventfd has no errors */
    (void)events;
    (void)take_due(CONTAINER_OF(poll, struct mw_probe_uv_loop, poll));
}

/* Whoever reads the eventfd has the item. */
static bool take_due(struct mw_probe_uv_loop *target)
{
    uint64_t due;

    if (read(target->due_fd, &due, sizeof due) != sizeof due)
        return false;
    /* acquire: partner of the release in loop_send */
    mw_probe_arrive(atomic_load_explicit(&target->probe, memory_order_acquire));
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    struct mw_probe_uv_loop *target = CONTAINER_OF(handle, struct mw_probe_uv_loop, poll);

    close(target->due_fd);
    if (target->close_cb != NULL)
        target->close_cb(target);
}

/* ---- libuv's workers ---- */

int mw_probe_uv_workers_init(struct mw_probe_uv_workers *target)
{
    *target =
        (struct mw_probe_uv_workers){.target = {.send = workers_send, .settle = workers_settle}};
    return uv_loop_init(&target->loop);
}

void mw_probe_uv_workers_fini(struct mw_probe_uv_workers *target)
{
    int error = uv_loop_close(&target->loop);

    assert(error == 0); /* nothing is out after mw_probe_free */
    (void)error;
}

/* Runs on: the probe's thread. */
static int workers_send(struct mw_probe_target *target, struct mw_probe *probe)
{
    struct mw_probe_uv_workers *workers = CONTAINER_OF(target, struct mw_probe_uv_workers, target);

    uv_run(&workers->loop, UV_RUN_NOWAIT); /* what is done comes home */
    for (unsigned i = 0; i < MW_PROBE_TARGET_ITEMS; i++) {
        struct mw_probe_uv_workers_item *item = &workers->items[i];
        int error;

        if (item->out)
            continue;
        item->probe = probe;
        error = uv_queue_work(&workers->loop, &item->req, workers_begin, workers_done);
        item->out = error == 0;
        return error;
    }
    return -EAGAIN;
}

/* Runs on: the thread that frees the probe. */
static void workers_settle(struct mw_probe_target *target)
{
    struct mw_probe_uv_workers *workers = CONTAINER_OF(target, struct mw_probe_uv_workers, target);

    for (unsigned i = 0; i < MW_PROBE_TARGET_ITEMS; i++)
        if (workers->items[i].out)
            (void)uv_cancel((uv_req_t *)&workers->items[i].req); /* fails when it has begun */
    uv_run(&workers->loop, UV_RUN_DEFAULT);
}

/* Runs on: a worker of libuv. */
static void workers_begin(uv_work_t *req)
{
    mw_probe_arrive(CONTAINER_OF(req, struct mw_probe_uv_workers_item, req)->probe);
}

/* Runs on: the probe's thread, or the one that frees the probe. */
static void workers_done(uv_work_t *req, int status)
{
    struct mw_probe_uv_workers_item *item = CONTAINER_OF(req, struct mw_probe_uv_workers_item, req);

    item->out = false;
    if (status == UV_ECANCELED) /* it has not begun */
        mw_probe_arrive(item->probe);
}

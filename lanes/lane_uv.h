/* lane_uv.h - a lane for a host that lives on a libuv loop: the feel of uv_queue_work, without
 * libuv's four shared workers.
 *
 * One adapter serves one loop and any number of lanes. The work runs on the lane; what comes after
 * it runs on the loop. Many completions share one wake, and a loop turn hands back at most
 * MW_LANE_UV_TURN_MAX of them, so that a flood leaves room for timers and sockets; the rest comes
 * in the next turn.
 *
 * The lane's threads wake the loop through an eventfd of the adapter's own, polled by the loop, and
 * not through a uv_async_t: until 1.45 libuv's loop spins until the sender of an async is through,
 * and a lane's threads are meant to be pre-empted, so that the loop would wait for whoever it has
 * just pushed off the CPU (docs/libuv.md has the figures).
 *
 * Ownership:  adapter and requests are the caller's storage. The adapter is lent from init until
 *             close_cb; a request from a successful queue until after_work_cb is called. A lane
 *             outlives what it has of them: free it at any time when nobody queues on it any more.
 * Threads:    everything here on the loop's thread, as all of libuv: whoever sets the loop up, then
 *             whoever runs it (asserted while requests are out, from the first wake on, which shows
 *             who that is). Only work_cb runs elsewhere, on the lane. Nothing here blocks.
 * Bounds:     those of the lanes: queue_max waiting requests and cap running ones each. No
 *             allocation.
 * Loop:       requests that are out keep the loop alive, like those of uv_queue_work; the adapter
 *             itself does not, but uv_loop_close fails until close_cb was called, as it does for
 * any handle. Errors:     0 or libuv's codes, which are negative errnos here: uv_strerror has words
 * for them. Fork:       a forked child gets -EOWNERDEAD from queue and cancel, and may close the
 * adapter after uv_loop_fork; what the parent has out stays with the parent. */
#ifndef MILLWRIGHT_LANE_UV_H
#define MILLWRIGHT_LANE_UV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include <millwright/lane.h>

#define MW_LANE_UV_TURN_MAX 64u

struct mw_lane_uv;
struct mw_lane_uv_req;

typedef void mw_lane_uv_work_cb(struct mw_lane_uv_req *req);
typedef void mw_lane_uv_after_work_cb(struct mw_lane_uv_req *req, int status);
typedef void mw_lane_uv_close_cb(struct mw_lane_uv *adapter);

struct mw_lane_uv {
    void *data; /* the caller's; set it after init */
    /* private; owned by the loop's thread, but for `back` */
    uv_poll_t poll;
    uv_os_fd_t wake_fd;  /* immutable: an eventfd, to which each wake that is owed adds 1 */
    unsigned generation; /* immutable: of the process that called init */
    _Atomic(struct mw_lane_uv_req *) back; /* finished, newest first; pushed by any thread */
    struct mw_lane_uv_req *ready;          /* taken from `back`, oldest first */
    struct mw_lane_uv_req *out;            /* queued, and not yet handed back */
    uint64_t wakes_owed;                   /* by those who found `back` empty */
    uint64_t wakes_seen;
    pthread_t thread; /* who runs the loop, if known */
    bool thread_known;
    bool closing;
    mw_lane_uv_close_cb *close_cb;
};

/* Zero bytes before the first use. */
struct mw_lane_uv_req {
    void *data; /* the caller's */
    /* The caller may set its priority, tenant and deadline_ns whenever the request is not out. In
     * after_work_cb its queued_ns, started_ns, ended_ns and ran_on say how the work went; in
     * work_cb mw_job_cancelled(&req->job) says whether to stop early. The rest of it is the
     * adapter's. */
    struct mw_job job;
    /* private */
    struct mw_lane_uv *adapter; /* NULL: not out */
    struct mw_lane *lane;
    mw_lane_uv_work_cb *work_cb;
    mw_lane_uv_after_work_cb *after_work_cb;
    struct mw_lane_uv_req *prev_out, *next_out; /* owned by the loop's thread */
    struct mw_lane_uv_req *next_back;           /* owned by whoever has it: lane, then loop */
    int status;
    _Atomic bool left_lane;
};

/* Make `loop` ready to take work back from lanes.
 * Returns 0, or what the system says when it has no descriptor left (UV_EMFILE, UV_ENFILE,
 * UV_ENOMEM). */
int mw_lane_uv_init(struct mw_lane_uv *adapter, uv_loop_t *loop);

/* Run work_cb(req) on `lane`, and then after_work_cb(req, status) on the loop, never from inside
 * this call. The status is 0, UV_ECANCELED or UV_ETIMEDOUT; after these two work_cb has not run.
 * after_work_cb may be NULL, as in libuv.
 * Returns 0, UV_EAGAIN (the lane is full), UV_EBUSY (this request is out), UV_EINVAL (no work_cb,
 * or a tenant or priority that the lane refuses) or UV_ESHUTDOWN (the adapter or the lane closes).
 * After an error neither is called. May be called in after_work_cb, also for the same request. */
int mw_lane_uv_queue(struct mw_lane_uv *adapter, struct mw_lane *lane, struct mw_lane_uv_req *req,
                     mw_lane_uv_work_cb *work_cb, mw_lane_uv_after_work_cb *after_work_cb);

/* Take `req` back if its work has not begun.
 * Returns 0 (after_work_cb comes with UV_ECANCELED, in a later turn of the loop), UV_EBUSY (too
 * late: it runs and has been asked to stop, or it is on its way to after_work_cb already) or
 * UV_EINVAL (it is not out: after_work_cb was called, or it was never queued). */
int mw_lane_uv_cancel(struct mw_lane_uv_req *req);

/* Cancel what is queued, ask what runs to stop, and call close_cb (NULL: nobody) after the last
 * after_work_cb; then `adapter` is the caller's again. Once for each init. */
void mw_lane_uv_close(struct mw_lane_uv *adapter, mw_lane_uv_close_cb *close_cb);

#endif

/* probe_targets.h - what else probe.h can probe: a lane, a libuv loop, and libuv's own worker pool.
 *
 *   mw_probe_lane        a job on a lane: the wait until a thread of the lane calls it
 *   mw_probe_uv_loop     lateness on a loop: something falls due at once, like a timer that has run
 *                        out or a socket with news; the wait until the loop calls its callback.
 *                        (libuv counts timers in whole milliseconds; this leaves the rounding out.)
 *   mw_probe_uv_workers  the workers behind uv_queue_work, uv_fs_* and uv_getaddrinfo, which all
 *                        loops of a process share: the wait until one takes the item
 *
 * Each is made, given to mw_probe_new as `&it.target`, and taken down after mw_probe_free. An item
 * in flight at that time is taken back; it counts as arrived with what it has waited.
 *
 * Ownership:  targets are the caller's storage, from init until fini or close_cb. What is probed
 *             outlives them.
 * Threads:    init, fini and mw_probe_free of a lane's and of the workers' target from any thread
 *             that may wait: not a leaf of that lane, not a worker of libuv. The loop's target:
 * init and close on the loop's thread, mw_probe_free on any. Bounds:     one item in flight. A
 * thread that was pushed off the CPU when it had just begun an item still holds it; when
 * MW_PROBE_TARGET_ITEMS are held so, sends are refused. */
#ifndef MILLWRIGHT_PROBE_TARGETS_H
#define MILLWRIGHT_PROBE_TARGETS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <uv.h>

#include <millwright/lane.h>
#include <millwright/probe.h>

#define MW_PROBE_TARGET_ITEMS 16u

struct mw_probe_lane_item {
    struct mw_job job;
    struct mw_probe *probe;
    bool begun;       /* owned by the thread that runs the job */
    _Atomic bool out; /* the lane has it */
};

struct mw_probe_lane {
    struct mw_probe_target target;
    struct mw_lane *lane;
    struct mw_probe_lane_item items[MW_PROBE_TARGET_ITEMS];
};

/* The target that probes `lane` with jobs of this priority and tenant. */
void mw_probe_lane_init(struct mw_probe_lane *target, struct mw_lane *lane,
                        enum mw_job_priority priority, uint32_t tenant);

struct mw_probe_uv_loop {
    struct mw_probe_target target;
    void *data; /* the caller's; set it after init */
    /* private */
    uv_poll_t poll;
    uv_os_fd_t due_fd;                /* an eventfd: above 0 when something is due */
    _Atomic(struct mw_probe *) probe; /* of the item in flight */
    void (*close_cb)(struct mw_probe_uv_loop *target);
};

/* Make ready to probe `loop`; it does not keep the loop alive, but uv_loop_close fails until
 * close_cb was called. Returns 0 or one of libuv's codes, which are negative errnos. */
int mw_probe_uv_loop_init(struct mw_probe_uv_loop *target, uv_loop_t *loop);

/* After mw_probe_free. `close_cb` may be NULL. Runs on: the loop's thread. Does not block. */
void mw_probe_uv_loop_close(struct mw_probe_uv_loop *target,
                            void (*close_cb)(struct mw_probe_uv_loop *target));

struct mw_probe_uv_workers_item {
    uv_work_t req;
    struct mw_probe *probe;
    bool out; /* owned by the thread that runs `loop` */
};

struct mw_probe_uv_workers {
    struct mw_probe_target target;
    uv_loop_t
        loop; /* of the probe's own, turned by its thread; its work goes where all work goes */
    struct mw_probe_uv_workers_item items[MW_PROBE_TARGET_ITEMS];
};

/* Make ready to probe libuv's workers, of which it starts all if nobody has used them yet. Returns
 * 0 or one of libuv's codes. */
int mw_probe_uv_workers_init(struct mw_probe_uv_workers *target);

/* After mw_probe_free. */
void mw_probe_uv_workers_fini(struct mw_probe_uv_workers *target);

#endif

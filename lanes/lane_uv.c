/* How a finished request comes home. Whoever finishes it (a lane's thread, or the loop's own in a
 * cancel) pushes it onto `back`, a stack that the loop takes whole. Who found the stack empty
 * *owes a wake*: one added to the eventfd. Nobody takes a lock, so the loop never waits for a
 * lane's thread, which may be one of a low priority.
 *
 * Closing must not free the adapter under somebody who is still between his push and his wake.
 * The eventfd counts: each stack taken means one wake owed, and what is read from the eventfd is
 * wakes paid. When all requests are home and all wakes are paid nobody will touch the adapter any
 * more. A wake not yet paid will come and turn the loop, so there is nothing to spin for.
 *
 * Invariants, on the loop's thread (adapter_check):
 *  1. The poll handle is referenced while requests are out, and only then.
 *  2. wakes_seen <= wakes_owed + 1: only the stack that is not taken yet can be paid for early.
 *  3. When on_wake returns nothing is left to hand back, or a wake of our own is under way: what
 *     comes after its last look finds the stack empty, and owes a wake. */
#include "lane_uv.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <millwright/process.h>

/* An errno of a lane is a code of libuv as it stands. */
static_assert(UV_EAGAIN == -EAGAIN && UV_EBUSY == -EBUSY && UV_ECANCELED == -ECANCELED,
              "libuv's codes are negative errnos");

static int run(struct mw_job *job);
static void ran(struct mw_job *job, int status);
static void send_back(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req);
static void pay_wake(struct mw_lane_uv *adapter);
static void on_wake(uv_poll_t *poll, int status, int events);
static void see_wakes(struct mw_lane_uv *adapter);
static bool has_ready(struct mw_lane_uv *adapter);
static void hand_back(struct mw_lane_uv_req *req);
static void close_if_quiet(struct mw_lane_uv *adapter);
static void on_closed(uv_handle_t *handle);
static void out_add(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req);
static void out_remove(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req);
static bool is_in_child(const struct mw_lane_uv *adapter);
static void assert_on_loop(const struct mw_lane_uv *adapter);
static void adapter_check(const struct mw_lane_uv *adapter);

#define REQ_OF(job_pointer)                                                                        \
    ((struct mw_lane_uv_req *)((char *)(job_pointer) - offsetof(struct mw_lane_uv_req, job)))

int mw_lane_uv_init(struct mw_lane_uv *adapter, uv_loop_t *loop)
{
    int error = mw_process_watch();

    if (error != 0)
        return error;
    *adapter = (struct mw_lane_uv){.generation = mw_process_generation()};
    adapter->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (adapter->wake_fd < 0)
        return uv_translate_sys_error(errno);
    error = uv_poll_init(loop, &adapter->poll, adapter->wake_fd);
    if (error != 0) {
        close(adapter->wake_fd);
        return error;
    }
    adapter->poll.data = adapter;
    error = uv_poll_start(&adapter->poll, UV_READABLE, on_wake);
    assert(error == 0); /* fails only for a handle that is closing */
    uv_unref((uv_handle_t *)&adapter->poll);
    return 0;
}

int mw_lane_uv_queue(struct mw_lane_uv *adapter, struct mw_lane *lane, struct mw_lane_uv_req *req,
                     mw_lane_uv_work_cb *work_cb, mw_lane_uv_after_work_cb *after_work_cb)
{
    int error;

    assert_on_loop(adapter);
    if (work_cb == NULL)
        return UV_EINVAL;
    if (adapter->closing)
        return UV_ESHUTDOWN;
    if (req->adapter != NULL)
        return UV_EBUSY;
    req->job.fn = run;
    req->job.done = ran;
    req->adapter = adapter;
    req->lane = lane;
    req->work_cb = work_cb;
    req->after_work_cb = after_work_cb;
    /* relaxed, as everywhere: see mw_lane_uv_cancel */
    atomic_store_explicit(&req->left_lane, false, memory_order_relaxed);
    error = mw_lane_submit(lane, &req->job);
    if (error != 0) {
        req->adapter = NULL;
        return error;
    }
    out_add(adapter, req);
    adapter_check(adapter);
    return 0;
}

int mw_lane_uv_cancel(struct mw_lane_uv_req *req)
{
    int error;

    if (req->adapter == NULL)
        return UV_EINVAL;
    assert_on_loop(req->adapter);
    /* Relaxed: this only tells whether the lane may be gone, and it goes after its done() calls. If
     * the host freed it we learned of that in some way that also shows us this flag. */
    if (atomic_load_explicit(&req->left_lane, memory_order_relaxed))
        return UV_EBUSY;
    error = mw_lane_cancel(req->lane, &req->job);
    return error == -ENOENT ? UV_EBUSY : error; /* not there: it has just finished */
}

void mw_lane_uv_close(struct mw_lane_uv *adapter, mw_lane_uv_close_cb *close_cb)
{
    assert_on_loop(adapter);
    assert(!adapter->closing);
    adapter->closing = true;
    adapter->close_cb = close_cb;
    if (is_in_child(adapter)) { /* what the parent had out never comes back here */
        uv_close((uv_handle_t *)&adapter->poll, on_closed);
        return;
    }
    /* A cancel changes nothing in the list of those that are out: they leave it on their way home.
     */
    for (struct mw_lane_uv_req *req = adapter->out; req != NULL; req = req->next_out)
        (void)mw_lane_uv_cancel(req);
    close_if_quiet(adapter);
}

/* ---- on the lane ---- */

static int run(struct mw_job *job)
{
    struct mw_lane_uv_req *req = REQ_OF(job);

    req->work_cb(req);
    return 0;
}

static void ran(struct mw_job *job, int status)
{
    struct mw_lane_uv_req *req = REQ_OF(job);

    req->status = status;
    atomic_store_explicit(&req->left_lane, true, memory_order_relaxed); /* see mw_lane_uv_cancel */
    send_back(req->adapter, req);
}

/* From the exchange on `req` may be gone, and the adapter too unless we owe it a wake. */
static void send_back(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req)
{
    struct mw_lane_uv_req *head = atomic_load_explicit(&adapter->back, memory_order_relaxed);

    do {
        req->next_back = head;
        /* release: partner of the acquire in take_back */
    } while (!atomic_compare_exchange_weak_explicit(&adapter->back, &head, req,
                                                    memory_order_release, memory_order_relaxed));
    if (head == NULL)
        pay_wake(adapter);
}

/* From the write on the adapter may be gone. */
static void pay_wake(struct mw_lane_uv *adapter)
{
    const uint64_t one = 1;
    ssize_t written = write(adapter->wake_fd, &one, sizeof one);

    assert(written == sizeof one); /* it blocks on nothing, and holds 2^64 - 2 */
    (void)written;
}

/* ---- on the loop ---- */

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct mw_lane_uv *adapter = poll->data;
    struct mw_lane_uv_req *req;

    (void)status; /* an eventfd has no errors */
    (void)events;
    if (is_in_child(adapter)) { /* the descriptor is the parent's: leave its wakes to it */
        uv_poll_stop(poll);
        return;
    }
    adapter->thread = pthread_self();
    adapter->thread_known = true;
    see_wakes(adapter);
    for (unsigned count = 0; count < MW_LANE_UV_TURN_MAX && has_ready(adapter); count++) {
        req = adapter->ready;
        adapter->ready = req->next_back;
        hand_back(req);
    }
    if (has_ready(adapter)) {
        adapter->wakes_owed++;
        pay_wake(adapter);
    }
    adapter_check(adapter);
    if (adapter->closing)
        close_if_quiet(adapter);
}

static void see_wakes(struct mw_lane_uv *adapter)
{
    uint64_t wakes;

    if (read(adapter->wake_fd, &wakes, sizeof wakes) == sizeof wakes)
        adapter->wakes_seen += wakes;
}

/* Whether there is something to hand back. What is back is taken, and turned so that the oldest
 * comes first. Its wake may be paid already, or come later and find nothing. */
static bool has_ready(struct mw_lane_uv *adapter)
{
    struct mw_lane_uv_req *newest;

    if (adapter->ready != NULL)
        return true;
    /* acquire: partner of the release in send_back */
    newest = atomic_exchange_explicit(&adapter->back, NULL, memory_order_acquire);
    if (newest == NULL)
        return false;
    adapter->wakes_owed++; /* by the one who pushed onto the empty stack */
    while (newest != NULL) {
        struct mw_lane_uv_req *req = newest;

        newest = req->next_back;
        req->next_back = adapter->ready;
        adapter->ready = req;
    }
    return true;
}

/* From the callback on `req` may be gone, or out again. */
static void hand_back(struct mw_lane_uv_req *req)
{
    out_remove(req->adapter, req);
    req->adapter = NULL;
    if (req->after_work_cb != NULL)
        req->after_work_cb(req, req->status);
}

static void close_if_quiet(struct mw_lane_uv *adapter)
{
    if (adapter->out != NULL || adapter->wakes_seen != adapter->wakes_owed) {
        uv_ref((uv_handle_t *)&adapter->poll); /* the loop must not end before the last wake */
        return;
    }
    if (!uv_is_closing((uv_handle_t *)&adapter->poll))
        uv_close((uv_handle_t *)&adapter->poll, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
    struct mw_lane_uv *adapter = handle->data;

    close(adapter->wake_fd);
    if (adapter->close_cb != NULL)
        adapter->close_cb(adapter);
}

static void out_add(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req)
{
    req->prev_out = NULL;
    req->next_out = adapter->out;
    if (adapter->out != NULL)
        adapter->out->prev_out = req;
    else
        uv_ref((uv_handle_t *)&adapter->poll);
    adapter->out = req;
}

static void out_remove(struct mw_lane_uv *adapter, struct mw_lane_uv_req *req)
{
    if (req->prev_out != NULL)
        req->prev_out->next_out = req->next_out;
    else
        adapter->out = req->next_out;
    if (req->next_out != NULL)
        req->next_out->prev_out = req->prev_out;
    if (adapter->out == NULL) {
        uv_unref((uv_handle_t *)&adapter->poll);
        adapter->thread_known = false; /* a loop at rest may move to another thread */
    }
}

/* Whether this is a forked child of the process that the adapter belongs to. */
static bool is_in_child(const struct mw_lane_uv *adapter)
{
    return mw_process_generation() != adapter->generation;
}

static void assert_on_loop(const struct mw_lane_uv *adapter)
{
    assert(!adapter->thread_known || pthread_equal(pthread_self(), adapter->thread) ||
           is_in_child(adapter));
}

static void adapter_check(const struct mw_lane_uv *adapter)
{
    assert(adapter->closing ||
           uv_has_ref((const uv_handle_t *)&adapter->poll) == (adapter->out != NULL ? 1 : 0));
    assert(adapter->wakes_seen <= adapter->wakes_owed + 1);
}

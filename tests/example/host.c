#include "host.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include <millwright/clock.h>
#include <millwright/lane_uv.h>

#include "client.h"

#define TIMER_MS        1u
#define FILE_BYTES      4096u
#define BACKLOG         128
#define CALIBRATE_MS    20u
#define CALIBRATE_TIMES 3u

struct host {
    enum way way;
    struct mw_lane *lane;      /* WAY_LANE */
    struct mw_lane_uv adapter; /* WAY_LANE */
    const struct load *load;
    struct times *times;
    uv_loop_t loop;
    uv_tcp_t server;
    unsigned connections; /* open ones; the last one to hang up ends the host */
    uint64_t end_ns;      /* nothing is recorded any more */
    uv_timer_t timer;
    uint64_t due_ns;
    uv_file file;
    uv_fs_t read;
    uint64_t read_ns; /* when the read in flight began; 0: none is */
    char bytes[FILE_BYTES];
};

/* A client's connection. It has one message at a time. */
struct connection {
    struct host *host;
    uv_tcp_t tcp;
    uv_write_t write;
    struct message message;
    size_t filled;
    uv_work_t uv_work;               /* WAY_UV */
    struct mw_lane_uv_req lane_work; /* WAY_LANE */
};

static int file_open(struct host *host);
static void file_close(struct host *host);
static int timer_start(struct host *host);
static void go_home(struct host *host);
static int server_listen(struct host *host, struct sockaddr_in *address);
static void on_timer(uv_timer_t *timer);
static void on_file_read(uv_fs_t *read);
static void on_connection(uv_stream_t *server, int status);
static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_bytes(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes);
static void answer(struct connection *connection);
static void on_answered(uv_write_t *write, int status);
static void hang_up(struct connection *connection);
static void on_hung_up(uv_handle_t *handle);
static void compute(uint64_t rounds);
static void work(const struct connection *connection);
static void after_work(struct connection *connection, int status);

/* ---- the two ways: what differs between them ---- */

static int way_open(struct host *host)
{
    if (host->way == WAY_UV)
        return 0; /* libuv's workers need no start */
    if (mw_lane_new(&host->lane, NULL) != 0 || mw_lane_uv_init(&host->adapter, &host->loop) != 0)
        return UV_ENOMEM;
    return 0;
}

static void way_close(struct host *host)
{
    if (host->way == WAY_LANE)
        mw_lane_uv_close(&host->adapter, NULL);
}

static void work_on_uv(uv_work_t *req)
{
    work(req->data);
}

static void after_work_on_uv(uv_work_t *req, int status)
{
    after_work(req->data, status);
}

static void work_on_lane(struct mw_lane_uv_req *req)
{
    work(req->data);
}

static void after_work_on_lane(struct mw_lane_uv_req *req, int status)
{
    after_work(req->data, status);
}

static int queue_work(struct connection *connection)
{
    struct host *host = connection->host;

    if (host->way == WAY_UV)
        return uv_queue_work(&host->loop, &connection->uv_work, work_on_uv, after_work_on_uv);
    return mw_lane_uv_queue(&host->adapter, host->lane, &connection->lane_work, work_on_lane,
                            after_work_on_lane);
}

/* ---- a run ---- */

int host_run(enum way way, const struct load *load, struct times *times)
{
    struct host host = {.way = way, .load = load, .times = times, .file = -1};
    struct client_load *clients = NULL;
    struct sockaddr_in address;
    int error = uv_loop_init(&host.loop);

    if (error != 0)
        return error;
    error = file_open(&host);
    if (error == 0)
        error = way_open(&host);
    if (error == 0)
        error = server_listen(&host, &address);
    if (error == 0)
        error = client_load_start(&clients, &address, load, times);
    if (error == 0)
        error = timer_start(&host);
    if (error == 0) {
        uv_run(&host.loop, UV_RUN_DEFAULT);
        error = client_load_join(clients);
        mw_lane_free(host.lane, false);
        uv_loop_close(&host.loop);
    } /* else the example ends: it tidies up nothing */
    file_close(&host);
    return error;
}

uint64_t host_calibrate(void)
{
    const uint64_t step = 10000;
    uint64_t best = 1;

    for (unsigned i = 0; i < CALIBRATE_TIMES; i++) {
        uint64_t end_ns = mw_clock_ns() + CALIBRATE_MS * MW_NS_PER_MS;
        uint64_t rounds = 0;

        for (; mw_clock_ns() < end_ns; rounds += step)
            compute(step);
        if (rounds / CALIBRATE_MS > best)
            best = rounds / CALIBRATE_MS;
    }
    return best;
}

static int file_open(struct host *host)
{
    char path[] = "/tmp/millwright-example-XXXXXX";

    host->file = mkstemp(path);
    if (host->file < 0)
        return UV_EIO;
    unlink(path);
    return write(host->file, host->bytes, sizeof host->bytes) == sizeof host->bytes ? 0 : UV_EIO;
}

static void file_close(struct host *host)
{
    if (host->file >= 0)
        close(host->file);
}

static int timer_start(struct host *host)
{
    uint64_t now_ns = mw_clock_ns();
    int error = uv_timer_init(&host->loop, &host->timer);

    host->timer.data = host;
    host->due_ns = now_ns + TIMER_MS * MW_NS_PER_MS;
    host->end_ns = now_ns + (uint64_t)(host->load->seconds * (double)MW_NS_PER_S);
    uv_update_time(&host->loop);
    return error != 0 ? error : uv_timer_start(&host->timer, on_timer, TIMER_MS, TIMER_MS);
}

/* Let go of the loop, which then ends by itself. */
static void go_home(struct host *host)
{
    uv_close((uv_handle_t *)&host->server, NULL);
    uv_close((uv_handle_t *)&host->timer, NULL);
    way_close(host);
}

/* ---- the timer and the file ---- */

static void on_timer(uv_timer_t *timer)
{
    struct host *host = timer->data;
    uint64_t now_ns = mw_clock_ns();

    if (now_ns >= host->end_ns)
        return;
    mw_histogram_record(&host->times->timer, now_ns > host->due_ns ? now_ns - host->due_ns : 0);
    host->due_ns = now_ns + TIMER_MS * MW_NS_PER_MS;
    if (host->read_ns != 0)
        return;
    uv_buf_t room = uv_buf_init(host->bytes, sizeof host->bytes);
    host->read.data = host;
    host->read_ns = now_ns;
    if (uv_fs_read(&host->loop, &host->read, host->file, &room, 1, 0, on_file_read) != 0)
        host->read_ns = 0;
}

static void on_file_read(uv_fs_t *read)
{
    struct host *host = read->data;

    assert(read->result == FILE_BYTES);
    mw_histogram_record(&host->times->file, mw_clock_ns() - host->read_ns);
    host->read_ns = 0;
    uv_fs_req_cleanup(read);
}

/* ---- the server ---- */

static int server_listen(struct host *host, struct sockaddr_in *address)
{
    int bytes = sizeof *address;
    int error = uv_ip4_addr("127.0.0.1", 0, address);

    if (error == 0)
        error = uv_tcp_init(&host->loop, &host->server);
    if (error == 0)
        error = uv_tcp_bind(&host->server, (struct sockaddr *)address, 0);
    if (error == 0)
        error = uv_listen((uv_stream_t *)&host->server, BACKLOG, on_connection);
    host->server.data = host;
    if (error == 0)
        error = uv_tcp_getsockname(&host->server, (struct sockaddr *)address, &bytes);
    return error;
}

static void on_connection(uv_stream_t *server, int status)
{
    struct host *host = server->data;
    struct connection *connection = calloc(1, sizeof *connection);

    assert(status == 0 && connection != NULL);
    connection->host = host;
    connection->tcp.data = connection;
    connection->write.data = connection;
    connection->uv_work.data = connection;
    connection->lane_work.data = connection;
    host->connections++;
    uv_tcp_init(&host->loop, &connection->tcp);
    if (uv_accept(server, (uv_stream_t *)&connection->tcp) != 0 ||
        uv_tcp_nodelay(&connection->tcp, 1) != 0 ||
        uv_read_start((uv_stream_t *)&connection->tcp, on_room, on_bytes) != 0)
        hang_up(connection);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct connection *connection = handle->data;

    (void)suggested;
    room->base = (char *)&connection->message + connection->filled;
    room->len = sizeof connection->message - connection->filled;
}

static void on_bytes(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct connection *connection = stream->data;

    (void)bytes;
    if (count < 0) {
        hang_up(connection);
        return;
    }
    connection->filled += (size_t)count;
    if (connection->filled < sizeof connection->message)
        return;
    connection->filled = 0;
    uv_read_stop(stream); /* until the answer is out */
    if (connection->message.ms == 0)
        answer(connection);
    else if (queue_work(connection) != 0)
        hang_up(connection);
}

static void work(const struct connection *connection)
{
    compute(connection->message.ms * connection->host->load->rounds_per_ms);
}

static void after_work(struct connection *connection, int status)
{
    if (status == 0)
        answer(connection);
    else
        hang_up(connection);
}

static void answer(struct connection *connection)
{
    uv_buf_t bytes = uv_buf_init((char *)&connection->message, sizeof connection->message);

    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &bytes, 1, on_answered) != 0)
        hang_up(connection);
}

static void on_answered(uv_write_t *write, int status)
{
    struct connection *connection = write->data;

    if (status != 0 || uv_read_start((uv_stream_t *)&connection->tcp, on_room, on_bytes) != 0)
        hang_up(connection);
}

static void hang_up(struct connection *connection)
{
    uv_close((uv_handle_t *)&connection->tcp, on_hung_up);
}

static void on_hung_up(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct host *host = connection->host;

    free(connection);
    if (--host->connections == 0)
        go_home(host);
}

/* ---- computing ---- */

/* A hash of nothing: what counts is that it takes a CPU. */
static void compute(uint64_t rounds)
{
    volatile uint64_t kept;
    uint64_t hash = rounds | 1;

    for (uint64_t i = 0; i < rounds; i++) {
        hash ^= hash << 13;
        hash ^= hash >> 7;
        hash ^= hash << 17;
    }
    kept = hash;
    (void)kept;
}

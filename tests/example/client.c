#include "client.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include <millwright/clock.h>

#define ECHO_PAUSE_MS 1u
#define WORK_MS_MIN   5u
#define WORK_MS_STEP  5u
#define WORK_STEPS    4u /* 5, 10, 15, 20 ms in turn */
#define LONGER_MS     100u
#define LONGER_TIMES  600u

struct client {
    struct client_load *all;
    bool echoes; /* sends no work */
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_timer_t pause;
    struct message message;
    struct message answer;
    size_t filled;
    uint64_t sent_ns;
};

struct client_load {
    struct times *times;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_timer_t end;
    unsigned count;
    int error;
    unsigned longer; /* how often the end was put off */
    bool ended;
    struct client clients[];
};

static void run(void *arg);
static int client_connect(struct client *client, const struct sockaddr_in *address);
static void on_connected(uv_connect_t *connect, int status);
static void on_pause_over(uv_timer_t *pause);
static void send_next(struct client *client);
static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
static void on_bytes(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes);
static void on_answer(struct client *client);
static void hang_up(struct client *client, int error);
static void on_end(uv_timer_t *end);

int client_load_start(struct client_load **out, const struct sockaddr_in *address,
                      const struct load *load, struct times *times)
{
    unsigned count = load->clients + 1;
    struct client_load *all = calloc(1, sizeof *all + count * sizeof *all->clients);
    int error;

    if (all == NULL)
        return UV_ENOMEM;
    all->times = times;
    all->count = count;
    error = uv_loop_init(&all->loop);
    for (unsigned i = 0; error == 0 && i < count; i++) {
        all->clients[i].all = all;
        all->clients[i].echoes = i == 0;
        all->clients[i].message.number = i;
        error = client_connect(&all->clients[i], address);
    }
    if (error == 0)
        error = uv_timer_init(&all->loop, &all->end);
    all->end.data = all;
    if (error == 0)
        error = uv_timer_start(&all->end, on_end, (uint64_t)(load->seconds * 1000), 0);
    if (error == 0)
        error = uv_thread_create(&all->thread, run, all);
    if (error == 0)
        *out = all; /* else the example ends: it tidies up nothing */
    return error;
}

int client_load_join(struct client_load *all)
{
    int error = uv_thread_join(&all->thread);

    if (error == 0)
        error = all->error;
    uv_loop_close(&all->loop);
    free(all);
    return error;
}

static void run(void *arg)
{
    struct client_load *all = arg;

    uv_run(&all->loop, UV_RUN_DEFAULT);
}

static int client_connect(struct client *client, const struct sockaddr_in *address)
{
    uv_loop_t *loop = &client->all->loop;
    int error = uv_tcp_init(loop, &client->tcp);

    client->tcp.data = client;
    client->connect.data = client;
    if (error == 0)
        error = uv_timer_init(loop, &client->pause);
    client->pause.data = client;
    if (error == 0)
        error = uv_tcp_nodelay(&client->tcp, 1);
    if (error == 0)
        error = uv_tcp_connect(&client->connect, &client->tcp, (const struct sockaddr *)address,
                               on_connected);
    return error;
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct client *client = connect->data;

    if (status == 0)
        status = uv_read_start((uv_stream_t *)&client->tcp, on_room, on_bytes);
    if (status == 0)
        send_next(client);
    else
        hang_up(client, status);
}

static void on_pause_over(uv_timer_t *pause)
{
    send_next(pause->data);
}

static void send_next(struct client *client)
{
    uv_buf_t bytes = uv_buf_init((char *)&client->message, sizeof client->message);
    int sent;

    if (!client->echoes)
        client->message.ms = WORK_MS_MIN + client->message.number % WORK_STEPS * WORK_MS_STEP;
    client->message.number++;
    client->sent_ns = mw_clock_ns();
    /* A socket that has nothing on its way takes a few bytes at once. */
    sent = uv_try_write((uv_stream_t *)&client->tcp, &bytes, 1);
    if (sent != sizeof client->message)
        hang_up(client, sent < 0 ? sent : UV_EIO);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct client *client = handle->data;

    (void)suggested;
    room->base = (char *)&client->answer + client->filled;
    room->len = sizeof client->answer - client->filled;
}

static void on_bytes(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct client *client = stream->data;

    (void)bytes;
    if (count < 0) {
        hang_up(client, (int)count);
        return;
    }
    client->filled += (size_t)count;
    if (client->filled == sizeof client->answer) {
        client->filled = 0;
        on_answer(client);
    }
}

static void on_answer(struct client *client)
{
    struct times *times = client->all->times;

    mw_histogram_record(client->echoes ? &times->echo : &times->work,
                        mw_clock_ns() - client->sent_ns);
    if (client->echoes)
        uv_timer_start(&client->pause, on_pause_over, ECHO_PAUSE_MS, 0);
    else
        send_next(client);
}

/* Before the end nobody should hang up: an error then is the run's. */
static void hang_up(struct client *client, int error)
{
    struct client_load *all = client->all;

    if (!all->ended && all->error == 0)
        all->error = error;
    if (uv_is_closing((uv_handle_t *)&client->tcp))
        return;
    uv_close((uv_handle_t *)&client->tcp, NULL);
    uv_close((uv_handle_t *)&client->pause, NULL);
}

static void on_end(uv_timer_t *end)
{
    struct client_load *all = end->data;
    uint64_t answers = mw_histogram_count(&all->times->work);

    /* A machine that is busy with other things may need longer for the first answer. */
    if (answers == 0 && all->error == 0 && all->longer++ < LONGER_TIMES) {
        uv_timer_start(end, on_end, LONGER_MS, 0);
        return;
    }
    all->ended = true;
    for (unsigned i = 0; i < all->count; i++)
        hang_up(&all->clients[i], 0);
    uv_close((uv_handle_t *)end, NULL);
}

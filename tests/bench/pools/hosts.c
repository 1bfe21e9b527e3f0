#include "hosts.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <millwright/clock.h>

#include "scene.h"

#define START_UP_MS 25.0

static int listen_somewhere(struct hosts *hosts);
static int start_reader(struct hosts *hosts);
static int start_host(const struct hosts *hosts, unsigned index);
static void run_host(const struct hosts *hosts, unsigned index);
static void run_reader(int in);

static int go_pipes[HOSTS_MAX]; /* the ends to write to */
static struct sockaddr_un address;
static socklen_t address_bytes;

int hosts_start(struct hosts *hosts)
{
    int error = listen_somewhere(hosts);

    if (error == 0)
        error = start_reader(hosts);
    for (unsigned i = 0; error == 0 && i < hosts->count; i++)
        error = start_host(hosts, i);
    return error;
}

void hosts_go(unsigned index)
{
    hosts_write(go_pipes[index], "", 1);
}

void hosts_read(int fd, void *bytes, size_t count)
{
    char *rest = bytes;

    while (count > 0) {
        ssize_t got = read(fd, rest, count);

        if (got == 0 || (got < 0 && errno != EINTR))
            _exit(got == 0 ? EPIPE : errno);
        if (got > 0) {
            rest += got;
            count -= (size_t)got;
        }
    }
}

void hosts_write(int fd, const void *bytes, size_t count)
{
    const char *rest = bytes;

    while (count > 0) {
        ssize_t put = write(fd, rest, count);

        if (put < 0 && errno != EINTR)
            _exit(errno);
        if (put > 0) {
            rest += put;
            count -= (size_t)put;
        }
    }
}

void hosts_read_message(int fd, struct host_message *message)
{
    hosts_read(fd, &message->bytes, sizeof message->bytes);
    if (message->bytes > sizeof message->results)
        _exit(EPROTO);
    hosts_read(fd, message->results, message->bytes);
}

void hosts_write_message(int fd, const struct host_message *message)
{
    hosts_write(fd, message, sizeof message->bytes + message->bytes);
}

void hosts_finish(const struct hosts *hosts)
{
    static const struct host_message last = {.bytes = 0};
    char answer;

    hosts_write_message(hosts->reader, &last);
    hosts_read(hosts->reader, &answer, 1);
}

/* The kernel picks a name that no file stands for. */
static int listen_somewhere(struct hosts *hosts)
{
    address.sun_family = AF_UNIX;
    address_bytes = sizeof address;
    hosts->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (hosts->listener < 0 ||
        bind(hosts->listener, (struct sockaddr *)&address, sizeof address.sun_family) != 0 ||
        listen(hosts->listener, (int)hosts->count) != 0 ||
        getsockname(hosts->listener, (struct sockaddr *)&address, &address_bytes) != 0)
        return -errno;
    return 0;
}

static int start_reader(struct hosts *hosts)
{
    int ends[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_reader(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    hosts->reader = ends[0];
    return child < 0 ? -EAGAIN : 0;
}

static int start_host(const struct hosts *hosts, unsigned index)
{
    int ends[2];
    pid_t child;

    if (pipe(ends) != 0)
        return -errno;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        go_pipes[index] = ends[0];
        run_host(hosts, index);
        _exit(0);
    }
    close(ends[0]);
    go_pipes[index] = ends[1];
    return child < 0 ? -EAGAIN : 0;
}

/* ---- in the children ---- */

static void run_host(const struct hosts *hosts, unsigned index)
{
    static struct host_message message;
    struct host_hello hello = {.index = index};
    char go;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    hosts_read(go_pipes[index], &go, 1);
    scene_sleep_ms(START_UP_MS);
    hello.connect_ns = mw_clock_ns();
    if (connect(fd, (struct sockaddr *)&address, address_bytes) != 0)
        _exit(errno);
    hosts_write(fd, &hello, sizeof hello);
    if (hosts->results == 0)
        return;
    for (unsigned left = hosts->results; left > 0;) {
        unsigned count = left < hosts->batch ? left : hosts->batch;

        message.bytes = count * HOSTS_RESULT_BYTES;
        memset(message.results, 'r', message.bytes); /* they are written for each message */
        hosts_write_message(fd, &message);
        left -= count;
    }
    message.bytes = 0;
    hosts_write_message(fd, &message);
}

static void run_reader(int in)
{
    static struct host_message message;

    do
        hosts_read_message(in, &message);
    while (message.bytes > 0);
    hosts_write(in, "", 1);
}

#include "probe_child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS       1000
#define OPEN_DIRS_MAX 16

struct watch {
    int result_fd;
    int stop_fd;
    void (*tick)(void *user, uint64_t elapsed_ns);
    void *user;
    uint64_t begin_ns;
    uint64_t deadline_ns;
};

static int make_folder(char folder[PATH_MAX], struct mw_probe_result *result);
static void remove_folder(const char *folder);
static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at);
static void run_in_child(const struct mw_probe_row *row, const char *folder, pid_t parent, int fd);
static int await_result(const struct watch *watch, struct mw_probe_result *result);
static void await_end(pid_t child, struct mw_probe_result *result, int error);

int mw_probe_child_run(const struct mw_probe_row *row, int stop_fd,
                       void (*tick)(void *user, uint64_t elapsed_ns), void *user,
                       struct mw_probe_result *result)
{
    char folder[PATH_MAX];
    int pipe_fds[2];
    pid_t self = getpid();
    unsigned time_s = row->seconds + (row->roll ? MW_PROBE_CHILD_FILL_S : 0);
    uint64_t now = mw_clock_ns();
    memset(result, 0, sizeof *result);
    int error = make_folder(folder, result);
    if (error)
        return 0;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        error = -errno;
        remove_folder(folder);
        return error;
    }
    (void)fflush(NULL); /* or the child might print it once more */
    pid_t child = fork();
    if (child == 0)
        run_in_child(row, folder, self, pipe_fds[1]);
    error = child < 0 ? -errno : 0;
    close(pipe_fds[1]);
    if (!error) {
        struct watch watch = {
            .result_fd = pipe_fds[0],
            .stop_fd = stop_fd,
            .tick = tick,
            .user = user,
            .begin_ns = now,
            .deadline_ns = now + (time_s + MW_PROBE_CHILD_GRACE_S) * MW_NS_PER_S,
        };
        error = await_result(&watch, result);
        if (error)
            kill(child, SIGKILL);
        await_end(child, result, error);
    }
    close(pipe_fds[0]);
    remove_folder(folder);
    return error == -EINTR || child < 0 ? error : 0;
}

/* ---- the folder ---- */

static int make_folder(char folder[PATH_MAX], struct mw_probe_result *result)
{
    const char *parent = getenv("TMPDIR");
    if (!parent || *parent != '/')
        parent = "/tmp";
    int length = snprintf(folder, PATH_MAX, "%s/millwright-probe-XXXXXX", parent);
    int error = length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
    if (!error && !mkdtemp(folder))
        error = -errno;
    if (error) {
        result->error = error;
        snprintf(result->why, sizeof result->why, "no folder in %.60s: %s; set TMPDIR", parent,
                 mw_strerror(error));
    }
    return error;
}

static void remove_folder(const char *folder)
{
    (void)nftw(folder, remove_entry, OPEN_DIRS_MAX, FTW_DEPTH | FTW_PHYS);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    (void)remove(path); /* what cannot be removed must not keep the others */
    return 0;
}

/* ---- the child ---- */

/* Signals of the terminal go to the parent, which kills the child: so nothing is left half. */
static void run_in_child(const struct mw_probe_row *row, const char *folder, pid_t parent, int fd)
{
    struct mw_probe_result result;
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        setenv("TMPDIR", folder, 1) != 0)
        _exit(1);
    (void)mw_probe_row_run(row, &result);
    _exit(write(fd, &result, sizeof result) == sizeof result ? 0 : 1);
}

/* ---- the parent ---- */

/* Returns 0, -EINTR, -ETIMEDOUT, or -ECHILD: it ended without a result. */
static int await_result(const struct watch *watch, struct mw_probe_result *result)
{
    static_assert(sizeof *result <= PIPE_BUF, "the result comes in one piece");
    struct pollfd fds[] = {{.fd = watch->result_fd, .events = POLLIN},
                           {.fd = watch->stop_fd, .events = POLLIN}};
    for (;;) {
        int ready = poll(fds, 2, TICK_MS);
        uint64_t now = mw_clock_ns();
        if (ready < 0)
            return errno == EINTR ? -EINTR : -errno;
        if (fds[1].revents)
            return -EINTR;
        if (fds[0].revents)
            return read(watch->result_fd, result, sizeof *result) == sizeof *result ? 0 : -ECHILD;
        if (now > watch->deadline_ns)
            return -ETIMEDOUT;
        if (watch->tick)
            watch->tick(watch->user, now - watch->begin_ns);
    }
}

/* Reap it, and say what became of it where it could not say so itself. */
static void await_end(pid_t child, struct mw_probe_result *result, int error)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!error)
        return;
    *result = (struct mw_probe_result){.error = error};
    if (error == -ETIMEDOUT)
        snprintf(result->why, sizeof result->why, "it did not end %u s after its time",
                 MW_PROBE_CHILD_GRACE_S);
    else if (WIFSIGNALED(status))
        snprintf(result->why, sizeof result->why, "signal %d ended it", WTERMSIG(status));
    else
        snprintf(result->why, sizeof result->why, "it ended without a result");
}

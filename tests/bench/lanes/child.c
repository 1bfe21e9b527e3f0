#include "child.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_child(int out, child_fn *fn, const void *context);
static int reap(const char *name, pid_t child, double values[BENCH_VALUES_MAX], bool complete);

int child_measure(const char *name, child_fn *fn, const void *context,
                  double values[BENCH_VALUES_MAX])
{
    size_t bytes = sizeof(double) * BENCH_VALUES_MAX;
    int ends[2];
    pid_t child;
    ssize_t got;

    if (pipe(ends) != 0)
        return -errno;
    child = fork();
    if (child == 0)
        run_child(ends[1], fn, context);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return -EAGAIN;
    }
    got = read(ends[0], values, bytes); /* less than PIPE_BUF: all or nothing */
    if (got < 0)
        kill(child, SIGKILL); /* a signal wants the run to end */
    close(ends[0]);
    return reap(name, child, values, got == (ssize_t)bytes);
}

static void run_child(int out, child_fn *fn, const void *context)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    double values[BENCH_VALUES_MAX];
    int error;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL); /* the parent's handlers only take note */
    for (int i = 0; i < (int)BENCH_VALUES_MAX; i++)
        values[i] = NAN;
    alarm(CHILD_SECONDS_MAX);
    error = fn(context, values);
    if (error == 0 && write(out, values, sizeof values) != (ssize_t)sizeof values)
        error = -EPIPE;
    _exit(error == 0 ? 0 : -error & 0x7f);
}

static int reap(const char *name, pid_t child, double values[BENCH_VALUES_MAX], bool complete)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGINT)
            return -EINTR;
        fprintf(stderr, "%s: %s\n", name,
                WTERMSIG(status) == SIGALRM ? "got stuck" : "crashed; that counts as stuck");
        for (size_t i = 0; i < BENCH_VALUES_MAX; i++)
            values[i] = INFINITY;
        return 0;
    }
    if (WEXITSTATUS(status) != 0 || !complete) {
        fprintf(stderr, "%s: failed with errno %d\n", name, WEXITSTATUS(status));
        return -EIO;
    }
    return 0;
}

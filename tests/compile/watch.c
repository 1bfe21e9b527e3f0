#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define MARK UINT64_C(0x6d775f7761746368) /* what a register holds by chance is not this */

enum use {
    OPENS, /* by its flags */
    LOOKS, /* at what a name leads to */
    CHANGES,
    STARTS /* a process, or a connection */
};

struct call {
    int number;
    const char *name;
    enum use use;
    int path;   /* which argument; -1: none */
    int folder; /* which argument is the folder that it starts from; -1: the working one */
};

#define CALL(NAME, USE, PATH, FOLDER) {SCMP_SYS(NAME), #NAME, USE, PATH, FOLDER}

/* A number below zero: not on this machine. */
static const struct call calls[] = {
    CALL(open, OPENS, 0, -1),
    CALL(openat, OPENS, 1, 0),
    CALL(openat2, OPENS, 1, 0),
    CALL(creat, CHANGES, 0, -1),
    CALL(stat, LOOKS, 0, -1),
    CALL(lstat, LOOKS, 0, -1),
    CALL(newfstatat, LOOKS, 1, 0),
    CALL(statx, LOOKS, 1, 0),
    CALL(access, LOOKS, 0, -1),
    CALL(faccessat, LOOKS, 1, 0),
    CALL(faccessat2, LOOKS, 1, 0),
    CALL(readlink, LOOKS, 0, -1),
    CALL(readlinkat, LOOKS, 1, 0),
    CALL(statfs, LOOKS, 0, -1),
    CALL(chdir, CHANGES, 0, -1),
    CALL(mkdir, CHANGES, 0, -1),
    CALL(mkdirat, CHANGES, 1, 0),
    CALL(rmdir, CHANGES, 0, -1),
    CALL(unlink, CHANGES, 0, -1),
    CALL(unlinkat, CHANGES, 1, 0),
    CALL(rename, CHANGES, 1, -1),
    CALL(renameat, CHANGES, 3, 2),
    CALL(renameat2, CHANGES, 3, 2),
    CALL(link, CHANGES, 1, -1),
    CALL(linkat, CHANGES, 3, 2),
    CALL(symlink, CHANGES, 1, -1),
    CALL(symlinkat, CHANGES, 2, 1),
    CALL(chmod, CHANGES, 0, -1),
    CALL(fchmodat, CHANGES, 1, 0),
    CALL(chown, CHANGES, 0, -1),
    CALL(fchownat, CHANGES, 1, 0),
    CALL(truncate, CHANGES, 0, -1),
    CALL(mknod, CHANGES, 0, -1),
    CALL(mknodat, CHANGES, 1, 0),
    CALL(utimensat, CHANGES, 1, 0),
    CALL(execve, STARTS, 0, -1),
    CALL(execveat, STARTS, 1, 0),
    CALL(fork, STARTS, -1, -1),
    CALL(vfork, STARTS, -1, -1),
    CALL(clone, STARTS, -1, -1),
    CALL(clone3, STARTS, -1, -1),
    CALL(socket, STARTS, -1, -1),
    CALL(io_uring_setup, STARTS, -1, -1),
};
#define CALLS (sizeof calls / sizeof calls[0])

static const struct watch_rules *rules;
static struct watch_log *log_of;
static char working[WATCH_PATH_BYTES]; /* folder, when it began */

static int filter_load(void);
static void on_call(int number, siginfo_t *info, void *context);
static long pass(const struct call *call, const uint64_t arguments[6]);
static bool is_fine(const struct call *call, const uint64_t arguments[6], const char *path);
static uint64_t open_flags(const struct call *call, const uint64_t arguments[6]);
static void path_of(const struct call *call, const uint64_t arguments[6], char *path);
static void path_append(char *path, const char *more);
static bool below(const char *path, const char *folder);
static void note(const struct call *call, const char *path);

int watch_begin(const struct watch_rules *wanted, struct watch_log *log)
{
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_RESTART};

    rules = wanted;
    log_of = log;
    if (!getcwd(working, sizeof working) || sigaction(SIGSYS, &action, NULL) < 0)
        return -errno;
    return filter_load();
}

static int filter_load(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int rc = filter ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < CALLS; i++) {
        if (calls[i].number >= 0)
            rc = seccomp_rule_add(filter, SCMP_ACT_TRAP, calls[i].number, 1,
                                  SCMP_A5(SCMP_CMP_NE, MARK, 0));
    }
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    return rc;
}

#if defined(__x86_64__)
static void arguments_get(const ucontext_t *at, uint64_t arguments[6])
{
    static const int registers[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

    for (size_t i = 0; i < 6; i++)
        arguments[i] = (uint64_t)at->uc_mcontext.gregs[registers[i]];
}

static void result_set(ucontext_t *at, long result)
{
    at->uc_mcontext.gregs[REG_RAX] = result;
}
#elif defined(__aarch64__)
static void arguments_get(const ucontext_t *at, uint64_t arguments[6])
{
    memcpy(arguments, at->uc_mcontext.regs, 6 * sizeof arguments[0]);
}

static void result_set(ucontext_t *at, long result)
{
    at->uc_mcontext.regs[0] = (uint64_t)result;
}
#else
#error "say which registers hold a system call's arguments and its result"
#endif

static void on_call(int number, siginfo_t *info, void *context)
{
    char path[WATCH_PATH_BYTES] = "";
    const struct call *call = NULL;
    uint64_t arguments[6];
    int saved = errno;
    long result = -EACCES;

    (void)number;
    for (size_t i = 0; i < CALLS; i++) {
        if (calls[i].number == info->si_syscall)
            call = &calls[i];
    }
    if (call) { /* else a filter that is not ours */
        arguments_get(context, arguments);
        path_of(call, arguments, path);
        if (is_fine(call, arguments, path))
            result = pass(call, arguments);
        else
            note(call, path);
    }
    result_set(context, result);
    errno = saved;
}

static long pass(const struct call *call, const uint64_t arguments[6])
{
    long result = syscall(call->number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], MARK);

    return result < 0 ? -errno : result;
}

static bool is_fine(const struct call *call, const uint64_t arguments[6], const char *path)
{
    uint64_t flags;

    if (call->use == STARTS)
        return false;
    if (rules->scratch && below(path, rules->scratch))
        return true;
    if (call->use == LOOKS)
        return !rules->secret || !below(path, rules->secret);
    if (call->use == CHANGES)
        return false;
    flags = open_flags(call, arguments);
    if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)))
        return false;
    if (rules->listable && (flags & O_DIRECTORY) && below(path, rules->listable))
        return true;
    for (size_t i = 0; rules->readable[i]; i++) {
        if (below(path, rules->readable[i]))
            return true;
    }
    return false;
}

static uint64_t open_flags(const struct call *call, const uint64_t arguments[6])
{
    if (call->number == SCMP_SYS(openat2))
        return ((const struct open_how *)(uintptr_t)arguments[2])->flags;
    return arguments[call->path + 1];
}

/* The absolute path, by its text alone: what is asked for, not what a link makes of it. */
static void path_of(const struct call *call, const uint64_t arguments[6], char *path)
{
    const char *given = call->path < 0 ? NULL : (const char *)(uintptr_t)arguments[call->path];
    int folder = call->folder < 0 ? AT_FDCWD : (int)arguments[call->folder];

    if (!given)
        return;
    if (given[0] != '/' && folder == AT_FDCWD) {
        path_append(path, working);
    } else if (given[0] != '/') {
        char link[] = "/proc/self/fd/\0\0\0\0\0\0\0\0\0\0", base[WATCH_PATH_BYTES];
        char *end = link + strlen(link);
        unsigned divisor = 1;
        long bytes;

        while ((unsigned)folder / divisor >= 10)
            divisor *= 10;
        for (; divisor > 0; divisor /= 10)
            *end++ = (char)('0' + (unsigned)folder / divisor % 10);
        bytes = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1, 0, MARK);
        base[bytes < 0 ? 0 : bytes] = '\0';
        path_append(path, base);
    }
    path_append(path, given);
}

/* Part by part; "." and ".." as in a shell. What has no room becomes a path that is nowhere. */
static void path_append(char *path, const char *more)
{
    while (*more) {
        size_t bytes = strcspn(more, "/"), have = strlen(path);

        if (bytes == 2 && more[0] == '.' && more[1] == '.') {
            while (have > 0 && path[have] != '/')
                have--; /* at first there is the end */
            path[have] = '\0';
        } else if (bytes > 0 && !(bytes == 1 && more[0] == '.')) {
            if (have + bytes + 2 > WATCH_PATH_BYTES) {
                strcpy(path, "/(too long)");
                return;
            }
            path[have] = '/';
            memcpy(path + have + 1, more, bytes);
            path[have + 1 + bytes] = '\0';
        }
        more += bytes + (more[bytes] == '/');
    }
}

static bool below(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);

    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
}

static void note(const struct call *call, const char *path)
{
    size_t count = atomic_load_explicit(&log_of->count, memory_order_relaxed);

    if (count < WATCH_EVENTS_MAX) {
        strncpy(log_of->events[count].call, call->name, sizeof log_of->events[0].call - 1);
        strncpy(log_of->events[count].path, path, WATCH_PATH_BYTES - 1);
    }
    /* Release: who reads the count sees the event. */
    atomic_store_explicit(&log_of->count, count + 1, memory_order_release);
}

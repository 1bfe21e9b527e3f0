/* worker.c - millwright-worker: the zygote, and the workers it forks. See isolate.h.
 *
 * The zygote loads LLVM, compiles a few texts of its own, so that what is made at first use is
 * made, and from then on forks when the host asks for it. It has one thread, so a fork copies a
 * whole process. It never sees a request.
 *
 * A worker enters the sandbox before anybody's source comes near it, says that it is ready, warms
 * up when no request comes soon, and serves what comes over its socket until the host kills it.
 *
 * A *prefix zygote* is forked by the zygote to compile a list of system headers, which a sandboxed
 * worker has compiled before. It stops behind the last of them and becomes a zygote itself. Its
 * workers stand in the middle of a compile: each goes on with one request that begins with the same
 * headers.
 *
 * What ends whom:
 * 1. The zygote ends when the host does: it watches the host's pidfd, which a copy of a descriptor
 *    in a forked child of the host cannot deceive, and its socket.
 * 2. A worker, however busy, ends when the zygote that forked it does, by PR_SET_PDEATHSIG, and so
 *    does a prefix zygote. That signal follows the thread that forked, and a zygote has only one.
 * 3. Who waits for a request ends when its socket closes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millwright/emit.h>
#include <millwright/guard.h>
#include <millwright/options.h>
#include <millwright/preamble.h>

#include "clang_bridge.h"
#include "sandbox.h"
#include "text_pages.h"
#include "warm_up.h"
#include "worker_wire.h"
#include "zygote_heap.h"

#define CHILDREN_MAX       1024u
#define STACK_BYTES        (UINT64_C(64) << 20)
#define DESCRIPTORS_OF_ONE 64u
#define WARM_MS_MAX        60000
#define WAITING_NAME       "mw-worker" /* of one that no thread drives yet */
#define PREFIX_NAME        "mw-prefix"
#define PREFIX_CPU_S       60u /* of a prefix zygote, until it waits */
#define PREFIX_DATA_BYTES  (UINT64_C(256) << 20)
#define NS_PER_S           UINT64_C(1000000000)

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
/* The environment is empty, so a sanitizer's options stand here: a fault ends the process as it
 * would end any other, and the sandbox keeps the leak check from stopping it. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_segv=0:handle_abort=0:detect_leaks=0:allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "handle_segv=0:handle_abort=0:report_bugs=0";
}
#endif
/* ThreadSanitizer has a thread of its own in each process, and no sandbox is entered with two: a
 * build for that tool, which no stranger sees, goes without. */
#if __has_feature(thread_sanitizer)
#define SANDBOXED 0
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#ifndef SANDBOXED
#define SANDBOXED 1
#endif

struct child {
    pid_t pid;
    int report; /* where its end is told; -1: nowhere */
};

/* What a process is after the zygote has served a message: itself or its child. */
enum role { ZYGOTE, NOBODY, WORKER, PREFIX_ZYGOTE };

/* What the zygote gives to a child. */
struct birth {
    int socket;
    int warm_ms; /* WORKER */
    bool is_single;
    int request; /* PREFIX_ZYGOTE: the request's file */
};

struct zygote {
    pid_t pid;
    unsigned guards;
    struct mw_toolchain *toolchain;
    struct mw_warm_up warm_up;
    uint64_t shared_bytes; /* of memory, the code that workers share with it */
    int host;              /* pidfd */
    int signals;           /* signalfd of SIGCHLD */
    struct child children[CHILDREN_MAX];
    size_t child_count;
    struct birth birth; /* a child's own */
    bool is_of_prefix;
};

/* A request at work: as it came, and what was made of it. */
struct work {
    void *bytes; /* mapped */
    size_t count;
    struct mw_wire_request wire;
    struct mw_options *options;
};

/* A request that a worker has received. */
struct task {
    struct mw_message message;
    int descriptors[MW_WIRE_DESCRIPTORS_MAX];
    size_t count;
    struct work work;
};

/* Of a prefix zygote, and of its workers. */
struct prefix {
    struct zygote *zygote;
    struct work work; /* the prefix, as a request */
    struct task task; /* of a worker */
};

static int zygote_begin(struct zygote *zygote, pid_t host);
static enum role zygote_live(struct zygote *zygote);
static enum role zygote_serve(struct zygote *zygote);
static void zygote_end(struct zygote *zygote);
static enum role child_fork(struct zygote *zygote, const struct mw_message *message);
static enum role prefix_zygote_fork(struct zygote *zygote, const struct mw_message *message,
                                    const int descriptors[2]);
static void children_reap(struct zygote *zygote);
static _Noreturn void worker_run(const struct zygote *zygote);
static _Noreturn void prefix_zygote_run(struct zygote *zygote);
static int work_begin(struct work *work, const int *descriptors, size_t count);
static void work_end(struct work *work);
static int compile(const struct zygote *zygote, const struct mw_options *options,
                   const struct mw_compile_request *request, struct mw_compile_result *result);
static void scheduling_take(const struct mw_wire_scheduling *scheduling);

int main(int argc, char **argv)
{
    static struct zygote zygote;
    int type = 0, rc;
    socklen_t bytes = sizeof(type);

    if (argc != 3 || getsockopt(MW_WIRE_CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 ||
        type != SOCK_SEQPACKET) {
        fputs("millwright-worker " MW_VERSION " compiles for a host program, which starts it; "
              "there is nothing to run by hand\n",
              stderr);
        return MW_WORKER_EXIT_USAGE;
    }
    zygote.guards = (unsigned)strtoul(argv[2], NULL, 10);
    rc = zygote_begin(&zygote, (pid_t)strtol(argv[1], NULL, 10));
    if (rc)
        return rc;
    switch (zygote_live(&zygote)) {
    case WORKER:
        worker_run(&zygote);
    case PREFIX_ZYGOTE:
        prefix_zygote_run(&zygote);
    default:
        zygote_end(&zygote);
    }
    return MW_WORKER_EXIT_DONE;
}

/* ---- zygote ---- */

/* The first stack keeps room to grow to this size, whatever the limit was when it began. */
static void stack_grow(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) < 0)
        return;
    limit.rlim_cur = STACK_BYTES;
    if (limit.rlim_max < limit.rlim_cur)
        limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_STACK, &limit);
}

static int signals_open(void)
{
    sigset_t signals;

    (void)signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
        return -1;
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* With its pidfd when it has one to give. */
static int hello_tell(const struct zygote *zygote, int pidfd)
{
    struct mw_message hello = {
        .magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_HELLO, .number = (uint64_t)zygote->pid};

    (void)snprintf(hello.identity, sizeof(hello.identity), "%s",
                   mw_toolchain_identity(zygote->toolchain));
    return mw_message_send(MW_WIRE_CONTROL_FD, &hello, &pidfd, pidfd >= 0);
}

/* Returns 0 or an exit status. */
static int zygote_begin(struct zygote *zygote, pid_t host)
{
    zygote->pid = getpid();
    zygote->host = (int)syscall(SYS_pidfd_open, host, 0);
    zygote->signals = signals_open();
    if (zygote->host < 0 || zygote->signals < 0 || getppid() != host)
        return MW_WORKER_EXIT_START;
    stack_grow();
    if (chdir("/") < 0 || mw_compile_init() || mw_toolchain_new(&zygote->toolchain))
        return MW_WORKER_EXIT_START;
    /* Workers inherit what clang is told here: that it need start no thread for want of stack.
     * Where the stack cannot be had, deep sources end their worker a little earlier. */
    (void)mw_guard_enter();
    mw_text_pages_forget();
    mw_warm_up_begin(&zygote->warm_up, zygote->toolchain);
    zygote->shared_bytes = mw_text_pages_enlarge();
    mw_zygote_heap_settle();
    return hello_tell(zygote, -1) ? MW_WORKER_EXIT_START : 0;
}

/* Until it is time to end; but a child goes on as something else. */
static enum role zygote_live(struct zygote *zygote)
{
    enum role role;

    do
        role = zygote_serve(zygote);
    while (role == ZYGOTE);
    return role;
}

/* Wait for one thing to do, and do it. */
static enum role zygote_serve(struct zygote *zygote)
{
    struct pollfd polls[] = {{.fd = MW_WIRE_CONTROL_FD, .events = POLLIN},
                             {.fd = zygote->host, .events = POLLIN},
                             {.fd = zygote->signals, .events = POLLIN}};
    struct mw_message message;
    int descriptors[2], got;

    if (poll(polls, sizeof(polls) / sizeof(polls[0]), -1) < 0)
        return errno == EINTR ? ZYGOTE : NOBODY;
    if (polls[1].revents)
        return NOBODY;
    if (polls[2].revents)
        children_reap(zygote);
    if (!polls[0].revents)
        return ZYGOTE;
    descriptors[0] = descriptors[1] = -1;
    got = mw_message_receive(MW_WIRE_CONTROL_FD, &message, descriptors, 2, MSG_DONTWAIT);
    if (got == -EAGAIN)
        return ZYGOTE;
    if (got == 1 && message.kind == MW_MESSAGE_PREFIX)
        return prefix_zygote_fork(zygote, &message, descriptors);
    if (got != 1 || message.kind != MW_MESSAGE_FORK)
        return NOBODY;
    scheduling_take(&message.scheduling);
    return child_fork(zygote, &message);
}

/* Nobody is left behind, not for a moment: who sees the zygote end sees the workers ended. */
static void zygote_end(struct zygote *zygote)
{
    for (size_t i = 0; i < zygote->child_count; i++)
        (void)kill(zygote->children[i].pid, SIGKILL);
    for (size_t i = 0; i < zygote->child_count; i++)
        while (waitpid(zygote->children[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

static void no_child_tell(int error)
{
    struct mw_message message = {
        .magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_NO_WORKER, .number = (uint64_t)error};

    (void)mw_message_send(MW_WIRE_CONTROL_FD, &message, NULL, 0);
}

static void close_all(const int *descriptors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}

static enum role child_fork(struct zygote *zygote, const struct mw_message *asked)
{
    struct mw_message message = {.magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_WORKER};
    enum { HOSTS, WORKERS, REPORT_READ, REPORT_WRITE, PIDFD, ALL };
    int fds[ALL] = {-1, -1, -1, -1, -1};
    pid_t pid;

    if (zygote->child_count == CHILDREN_MAX) {
        no_child_tell(EAGAIN);
        return ZYGOTE;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, &fds[HOSTS]) < 0 ||
        pipe2(&fds[REPORT_READ], O_CLOEXEC | O_NONBLOCK) < 0 || (pid = fork()) < 0) {
        no_child_tell(errno);
        close_all(fds, ALL);
        return ZYGOTE;
    }
    if (pid == 0) {
        zygote->birth = (struct birth){
            .socket = fds[WORKERS],
            .warm_ms = asked->number < WARM_MS_MAX ? (int)asked->number : WARM_MS_MAX,
            .is_single = asked->is_last,
        };
        return WORKER;
    }
    fds[PIDFD] = (int)syscall(SYS_pidfd_open, pid, 0);
    message.number = (uint64_t)pid;
    zygote->children[zygote->child_count++] =
        (struct child){.pid = pid, .report = fds[REPORT_WRITE]};
    fds[REPORT_WRITE] = -1;
    if (fds[PIDFD] < 0) {
        no_child_tell(errno);
        (void)kill(pid, SIGKILL);
    } else {
        (void)mw_message_send(MW_WIRE_CONTROL_FD, &message,
                              (int[]){fds[HOSTS], fds[REPORT_READ], fds[PIDFD]}, 3);
    }
    close_all(fds, ALL);
    return ZYGOTE;
}

/* Where it cannot be had the host sees its socket close. Nobody waits for a report on it. */
static enum role prefix_zygote_fork(struct zygote *zygote, const struct mw_message *message,
                                    const int descriptors[2])
{
    bool can = descriptors[1] >= 0 && !zygote->is_of_prefix && zygote->child_count < CHILDREN_MAX;
    pid_t pid = can ? fork() : -1;

    if (pid == 0) {
        scheduling_take(&message->scheduling);
        zygote->birth = (struct birth){.socket = descriptors[0], .request = descriptors[1]};
        return PREFIX_ZYGOTE;
    }
    if (pid > 0)
        zygote->children[zygote->child_count++] = (struct child){.pid = pid, .report = -1};
    close_all(descriptors, 2);
    return ZYGOTE;
}

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_usec * 1000;
}

/* Tell of each child that has ended. */
static void children_reap(struct zygote *zygote)
{
    struct signalfd_siginfo info;
    struct rusage usage;
    int status;
    pid_t pid;

    while (read(zygote->signals, &info, sizeof(info)) > 0)
        ;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct mw_wire_report report = {
            .status = status,
            .cpu_ns = timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime),
            .memory_peak_bytes = (uint64_t)usage.ru_maxrss * 1024,
        };
        size_t i = 0;

        while (i < zygote->child_count && zygote->children[i].pid != pid)
            i++;
        if (i == zygote->child_count)
            continue;
        if (report.memory_peak_bytes > zygote->shared_bytes)
            report.memory_peak_bytes -= zygote->shared_bytes;
        /* An empty pipe has room; and when nobody wants to know, that is fine. */
        if (zygote->children[i].report >= 0) {
            if (write(zygote->children[i].report, &report, sizeof(report)) < 0)
                (void)0;
            close(zygote->children[i].report);
        }
        zygote->children[i] = zygote->children[--zygote->child_count];
    }
}

/* ---- worker ---- */

static void out_of_memory(void)
{
    _exit(MW_WORKER_EXIT_MEMORY);
}

/* Keep the socket, as the one descriptor there is beside the standard three; be a process as any
 * other; and die with the zygote. */
static void worker_detach(const struct zygote *zygote)
{
    sigset_t none;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != zygote->pid ||
        dup2(zygote->birth.socket, MW_WIRE_CONTROL_FD) < 0 ||
        syscall(SYS_close_range, MW_WIRE_CONTROL_FD + 1, ~0U, 0) < 0)
        _exit(MW_WORKER_EXIT_START);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    mw_bridge_on_out_of_memory(out_of_memory);
}

static void sandbox_enter(const struct zygote *zygote)
{
    struct mw_sandbox sandbox = {
        /* The host sets the limits of a request from outside when it hands it over. */
        .data_bytes = RLIM_INFINITY,       .cpu_s = RLIM_INFINITY,   .file_bytes = RLIM_INFINITY,
        .descriptors = DESCRIPTORS_OF_ONE, .guards = zygote->guards,
    };

    sandbox.readable_dirs = mw_toolchain_dirs(zygote->toolchain, &sandbox.readable_count);
    if (SANDBOXED && mw_sandbox_enter(&sandbox))
        _exit(MW_WORKER_EXIT_SANDBOX);
}

/* The bytes of data in use, from /proc/self/statm: what RLIMIT_DATA counts. 0 when that tells
 * nothing, because a sanitizer has terabytes of it. */
static uint64_t data_bytes_read(int statm)
{
    char text[128] = "";
    unsigned long data = 0;

    if (SANITIZED || statm < 0 || pread(statm, text, sizeof(text) - 1, 0) <= 0 ||
        sscanf(text, "%*u %*u %*u %*u %*u %lu", &data) != 1)
        return 0;
    return (uint64_t)data * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What of /proc is used later, when nothing of it can be opened any more. */
struct own_files {
    int statm;
    int clear_refs;
};

static int ready_tell(const struct zygote *zygote, struct own_files *own)
{
    struct mw_message message = {.magic = MW_WIRE_MAGIC,
                                 .kind = MW_MESSAGE_READY,
                                 .number = data_bytes_read(own->statm),
                                 .shared_bytes = zygote->shared_bytes};
    int rc = mw_message_send(MW_WIRE_CONTROL_FD, &message, &own->clear_refs, own->clear_refs >= 0);

    if (own->clear_refs >= 0)
        close(own->clear_refs);
    own->clear_refs = -1;
    return rc;
}

/* Whoever needs this worker at once gets it as it is: a request warms it as well as anything does.
 * When none comes, the time is there: for another compile; or, in the middle of one, to have the
 * memory for itself that it would write to. */
static void warm_up_and_tell(const struct zygote *zygote, struct own_files *own)
{
    struct mw_message warming = {.magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_WARMING};
    int warm_ms = zygote->birth.warm_ms;

    if (warm_ms > 0) {
        if (ready_tell(zygote, own))
            _exit(MW_WORKER_EXIT_DONE);
        if (poll(&(struct pollfd){.fd = MW_WIRE_CONTROL_FD, .events = POLLIN}, 1, warm_ms) != 0)
            return;
        if (mw_message_send(MW_WIRE_CONTROL_FD, &warming, NULL, 0))
            _exit(MW_WORKER_EXIT_DONE);
    }
    if (zygote->is_of_prefix)
        mw_zygote_heap_own();
    else
        mw_warm_up_again(&zygote->warm_up);
    if (ready_tell(zygote, own))
        _exit(MW_WORKER_EXIT_DONE);
}

static void worker_begin(const struct zygote *zygote)
{
    struct own_files own;

    worker_detach(zygote);
    (void)prctl(PR_SET_NAME, WAITING_NAME);
    own.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    /* One that is sent counts until it is received, and there is a limit for all of a user's. */
    own.clear_refs =
        zygote->birth.is_single ? -1 : open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    sandbox_enter(zygote);
    warm_up_and_tell(zygote, &own);
    if (own.statm >= 0)
        close(own.statm);
}

/* Wait for a request. Returns 0 or -ENOMEM. */
static int task_begin(struct task *task)
{
    int got = mw_message_receive_request(MW_WIRE_CONTROL_FD, &task->message, task->descriptors,
                                         &task->count, 0);
    int rc;

    if (got == 0)
        _exit(MW_WORKER_EXIT_DONE);
    if (got < 0 || task->message.kind != MW_MESSAGE_REQUEST || task->count < 2)
        _exit(MW_WORKER_EXIT_REQUEST);
    scheduling_take(&task->message.scheduling);
    (void)prctl(PR_SET_NAME, task->message.scheduling.name);
    if (task->message.is_last)
        mw_bridge_leave_memory();
    rc = work_begin(&task->work, task->descriptors, task->count);
    if (rc == -EPROTO || mw_wire_answer_begin(task->descriptors[1]))
        _exit(MW_WORKER_EXIT_REQUEST);
    return rc;
}

/* Answer it. */
static void task_end(struct task *task, int rc, struct mw_compile_result *result)
{
    struct mw_message answer = {
        .magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_ANSWER, .number = task->message.number};

    if (mw_wire_answer_write(task->descriptors[1], &task->work.wire.bounds, rc, result))
        out_of_memory();
    close_all(task->descriptors, task->count);
    (void)mw_message_send(MW_WIRE_CONTROL_FD, &answer, NULL, 0);
    /* A worker that is used once is killed about now. */
    mw_compile_result_fini(result);
    work_end(&task->work);
}

static _Noreturn void worker_run(const struct zygote *zygote)
{
    worker_begin(zygote);
    for (;;) {
        struct task task = {0};
        struct mw_compile_result result = {0};
        int rc = task_begin(&task);

        if (rc == 0)
            rc = compile(zygote, task.work.options, &task.work.wire.request, &result);
        task_end(&task, rc, &result);
    }
}

/* ---- prefix zygote, and its workers ---- */

static void soft_limit_set(__rlimit_resource_t resource, rlim_t value)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) < 0)
        return;
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    (void)setrlimit(resource, &limit);
}

/* Be a process of its own, whose children are not those of before. */
static void prefix_zygote_detach(struct zygote *zygote)
{
    (void)prctl(PR_SET_NAME, PREFIX_NAME);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != zygote->pid ||
        dup2(zygote->birth.socket, MW_WIRE_CONTROL_FD) < 0)
        _exit(MW_WORKER_EXIT_START);
    close(zygote->birth.socket);
    zygote->pid = getpid();
    zygote->is_of_prefix = true;
    for (size_t i = 0; i < zygote->child_count; i++)
        if (zygote->children[i].report >= 0)
            close(zygote->children[i].report);
    zygote->child_count = 0;
    soft_limit_set(RLIMIT_CPU, PREFIX_CPU_S);
    if (!SANITIZED)
        soft_limit_set(RLIMIT_DATA, PREFIX_DATA_BYTES);
}

static const char *ending(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot : "";
}

/* Whether the request is one that the prefix is the beginning of. */
static bool fits(const struct work *prefix, const struct work *work)
{
    const struct mw_compile_request *begun = &prefix->wire.request, *request = &work->wire.request;

    return strcmp(mw_options_fingerprint(prefix->options), mw_options_fingerprint(work->options)) ==
               0 &&
           strcmp(begun->directory, request->directory) == 0 &&
           strcmp(ending(begun->main), ending(request->main)) == 0 &&
           work->wire.preamble.covers_bytes >= begun->files[0].bytes;
}

/* In the middle of the compile, behind the prefix: wait here, and let each worker go on. */
static void prefix_done(void *user, struct mw_bridge_rest *rest)
{
    struct prefix *prefix = user;
    struct zygote *zygote = prefix->zygote;
    struct mw_compile_request *request = &prefix->work.wire.request;
    int pidfd = (int)syscall(SYS_pidfd_open, zygote->pid, 0);

    soft_limit_set(RLIMIT_CPU, RLIM_INFINITY);
    soft_limit_set(RLIMIT_DATA, RLIM_INFINITY);
    mw_zygote_heap_settle();
    if (pidfd < 0 || hello_tell(zygote, pidfd))
        _exit(MW_WORKER_EXIT_START);
    close(pidfd);
    if (zygote_live(zygote) != WORKER) {
        zygote_end(zygote);
        _exit(MW_WORKER_EXIT_DONE);
    }
    worker_begin(zygote);
    if (task_begin(&prefix->task))
        out_of_memory();
    if (!fits(&prefix->work, &prefix->task.work))
        _exit(MW_WORKER_EXIT_REQUEST);
    *request = prefix->task.work.wire.request; /* what the compile looks at from here on */
    *rest = (struct mw_bridge_rest){.main = request->main,
                                    .files = request->files,
                                    .file_count = request->file_count,
                                    .covers_bytes = request->preamble->covers_bytes};
}

static _Noreturn void prefix_zygote_run(struct zygote *zygote)
{
    static struct prefix prefix;
    struct mw_compile_result result = {0};
    int rc;

    prefix.zygote = zygote;
    prefix_zygote_detach(zygote);
    if (work_begin(&prefix.work, (int[]){zygote->birth.request, -1}, 2))
        _exit(MW_WORKER_EXIT_REQUEST);
    close(zygote->birth.request);
    mw_bridge_leave_memory();
    mw_bridge_pause_after_prefix(prefix_done, &prefix);
    rc = compile(zygote, prefix.work.options, &prefix.work.wire.request, &result);
    if (prefix.task.count == 0) /* it did not come to that */
        _exit(MW_WORKER_EXIT_REQUEST);
    task_end(&prefix.task, rc, &result);
    (void)poll(&(struct pollfd){.fd = MW_WIRE_CONTROL_FD, .events = POLLIN}, 1, -1);
    _exit(MW_WORKER_EXIT_DONE);
}

/* ---- requests ---- */

/* mw_compile, but that a source which neither compiles nor explains itself is an answer here, and
 * no fault of the worker. */
static int compile(const struct zygote *zygote, const struct mw_options *options,
                   const struct mw_compile_request *request, struct mw_compile_result *result)
{
    int rc = mw_compile(zygote->toolchain, options, request, result);
    struct mw_diagnostic why = {
        .severity = result->diagnostics.errors > 0 ? MW_SEVERITY_NOTE : MW_SEVERITY_ERROR,
        .file = "",
        .message = "the compiler broke down on this; try another target or optimisation level",
    };

    if (rc != -EIO)
        return rc;
    return mw_diagnostics_add(&result->diagnostics, &why);
}

/* Returns 0, -EPROTO or -ENOMEM. The host has checked all this; the worker believes nobody. */
static int options_make(struct mw_options **options, const struct mw_wire_request *wire)
{
    struct mw_compile_request outside = wire->request;
    struct mw_refusal refusal = {0};

    if (outside.emit == MW_EMIT_PREAMBLE) /* the one kind that nobody outside may ask for */
        outside.emit = MW_EMIT_NONE;
    if (mw_request_check(&outside, &refusal) || mw_options_new(options, &wire->request, &refusal))
        return -EPROTO;
    return strcmp(mw_options_fingerprint(*options), wire->fingerprint) == 0 ? 0 : -EPROTO;
}

/* Map the preamble that the request speaks of. Returns 0 or -EPROTO. */
static int preamble_take(struct mw_wire_request *wire, const int *descriptors, size_t count)
{
    struct mw_preamble_use *preamble = &wire->preamble;

    if ((preamble->count > 0) != (count == 3))
        return -EPROTO;
    if (count < 3)
        return 0;
    preamble->bytes = mw_wire_file_map(descriptors[2], preamble->count);
    if (!preamble->bytes)
        return -EPROTO;
    wire->request.preamble = preamble;
    return 0;
}

/* Returns 0, -EPROTO or -ENOMEM. */
static int work_begin(struct work *work, const int *descriptors, size_t count)
{
    struct stat file;
    int rc;

    if (fstat(descriptors[0], &file) < 0 || file.st_size <= 0)
        return -EPROTO;
    work->count = (size_t)file.st_size;
    work->bytes = mmap(NULL, work->count, PROT_READ, MAP_PRIVATE, descriptors[0], 0);
    if (work->bytes == MAP_FAILED)
        return -EPROTO;
    rc = mw_wire_request_read(&work->wire, work->bytes, work->count);
    if (rc == 0)
        rc = preamble_take(&work->wire, descriptors, count);
    return rc ? rc : options_make(&work->options, &work->wire);
}

static void work_end(struct work *work)
{
    mw_options_free(work->options);
    if (work->wire.request.preamble)
        (void)munmap((void *)work->wire.preamble.bytes, work->wire.preamble.count);
    mw_wire_request_fini(&work->wire);
    (void)munmap(work->bytes, work->count);
}

/* ---- both ---- */

/* As the thread that drives it. What the system refuses is ignored: it is a hint. */
static void scheduling_take(const struct mw_wire_scheduling *scheduling)
{
    struct sched_param none = {0};

    (void)sched_setscheduler(0, scheduling->policy, &none);
    (void)setpriority(PRIO_PROCESS, 0, scheduling->nice);
}

/* worker_pool.c - see worker_pool.h.
 *
 * 1. `asked` counts the workers that the zygote still owes. Whoever needs one asks so that ready
 *    and owed ones suffice for all who wait, and then listens; who hears of a worker puts it on the
 *    list, for whomever. So who lets go of the lock and leaves something that another waits for
 *    wakes one of those, and that one the next: what they poll may have been said to somebody else.
 * 2. A zygote that ends takes its workers along, and what it owed is forgotten; the next who needs
 *    a worker starts another zygote. Who still polls a dead one's socket holds a reference to it.
 * 3. Nothing is killed by its number but through a pidfd. */
#include "worker_pool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/mutex.h>

/* Of one take: zygotes started, and workers found dead. */
#define STARTS_MAX 2u
#define DEAD_MAX   (MW_ISOLATE_READY_MAX + 2u)
/* Of a new worker, until it warms up unless it has got a request: longer than a small compile
 * takes, for where requests follow each other its warming up would only take their CPU; and shorter
 * than who types pauses. */
#define WARM_MS  20u
#define START_NS (UINT64_C(60) * MW_NS_PER_S)

struct mw_zygote {
    unsigned references; /* the pool's, and those who poll; guarded by the pool's lock */
    pid_t pid;
    int socket;
    int pidfd;
};

struct mw_worker_pool {
    /* Immutable once made. */
    struct mw_worker_pool_options options;
    char *program, *identity; /* program NULL: of a prefix */

    struct mw_mutex lock; /* guards all below; held while a zygote is started or its end awaited */
    struct mw_zygote *zygote; /* NULL: dead */
    struct mw_worker *first, **end;
    unsigned ready, asked, waiting, running;
    uint64_t started, zygotes;
    uint64_t failures; /* times that the zygote said no */
    int failure;       /* the errno of the last */
    int wake;          /* eventfd: something may be there for who waits; immutable */
};

static int pool_make(struct mw_worker_pool **out, const struct mw_worker_pool_options *options);
static int zygote_start(struct mw_worker_pool *pool) MW_REQUIRES(pool->lock);
static int prefix_await(struct mw_worker_pool *pool, int socket, uint64_t deadline_ns, int stop);
static void zygote_forget(struct mw_worker_pool *pool) MW_REQUIRES(pool->lock);
static void zygote_release(struct mw_zygote *zygote);
static void zygote_listen(struct mw_worker_pool *pool) MW_REQUIRES(pool->lock);
static void workers_ask(struct mw_worker_pool *pool, unsigned ready,
                        const struct mw_wire_scheduling *scheduling) MW_REQUIRES(pool->lock);
static int worker_get(struct mw_worker_pool *pool, const struct mw_wire_scheduling *scheduling,
                      uint64_t deadline_ns, int stop, struct mw_worker **out);
static void others_wake(struct mw_worker_pool *pool) MW_REQUIRES(pool->lock);
static int worker_await_ready(const struct mw_worker_pool *pool, struct mw_worker *worker,
                              uint64_t deadline_ns, int stop);
static void worker_close(struct mw_worker *worker);
static int until_readable(struct pollfd *polls, nfds_t count, uint64_t deadline_ns);
static int first_worker_check(struct mw_worker_pool *pool, char *why, size_t why_bytes);

int mw_worker_pool_new(struct mw_worker_pool **out, const struct mw_worker_pool_options *options,
                       char *why, size_t why_bytes)
{
    struct mw_worker_pool *pool;
    int rc = pool_make(&pool, options);

    if (rc)
        return rc;
    mw_mutex_lock(&pool->lock);
    rc = zygote_start(pool);
    mw_mutex_unlock(&pool->lock);
    if (rc)
        (void)snprintf(why, why_bytes,
                       "cannot start '%s': %s; install millwright-worker or give its place",
                       options->program, strerror(-rc));
    else
        rc = first_worker_check(pool, why, why_bytes);
    if (rc) {
        mw_worker_pool_free(pool);
        return rc;
    }
    *out = pool;
    return 0;
}

int mw_worker_pool_of_prefix(struct mw_worker_pool **out, struct mw_worker_pool *zygotes,
                             int request_file, const struct mw_wire_scheduling *scheduling,
                             uint64_t deadline_ns, int stop)
{
    struct mw_worker_pool_options options = zygotes->options;
    struct mw_message message = {
        .magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_PREFIX, .scheduling = *scheduling};
    struct mw_worker_pool *pool;
    int sockets[2], rc;

    options.program = NULL;
    rc = pool_make(&pool, &options);
    if (rc)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        mw_worker_pool_free(pool);
        return -EAGAIN;
    }
    mw_mutex_lock(&zygotes->lock);
    rc = zygotes->zygote ? mw_message_send(zygotes->zygote->socket, &message,
                                           (int[]){sockets[1], request_file}, 2)
                         : -EAGAIN;
    mw_mutex_unlock(&zygotes->lock);
    close(sockets[1]);
    rc = rc ? -EAGAIN : prefix_await(pool, sockets[0], deadline_ns, stop);
    if (rc) {
        close(sockets[0]); /* whoever reads a prefix for it ends when it has */
        mw_worker_pool_free(pool);
        return rc;
    }
    mw_worker_pool_refill(pool, scheduling);
    *out = pool;
    return 0;
}

void mw_worker_pool_free(struct mw_worker_pool *pool)
{
    struct mw_message quit = {.magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_QUIT};

    if (!pool)
        return;
    mw_mutex_lock(&pool->lock);
    assert(pool->waiting == 0 && pool->running == 0);
    if (pool->zygote) {
        /* It ends all it forked, those too of which nobody has heard yet, and awaits them. */
        if (mw_message_send(pool->zygote->socket, &quit, NULL, 0) == 0)
            (void)poll(&(struct pollfd){.fd = pool->zygote->pidfd, .events = POLLIN}, 1, 5000);
        zygote_forget(pool);
    }
    mw_mutex_unlock(&pool->lock);
    mw_mutex_fini(&pool->lock);
    close(pool->wake);
    free(pool->program);
    free(pool->identity);
    free(pool);
}

/* The lock may have been held when this process was forked, so it is not taken. */
void mw_worker_pool_abandon(struct mw_worker_pool *pool)
{
    while (pool->first) {
        struct mw_worker *worker = pool->first;

        pool->first = worker->next;
        worker_close(worker);
    }
    if (pool->zygote) {
        pool->zygote->references = 1;
        zygote_release(pool->zygote);
    }
    close(pool->wake);
    free(pool->program);
    free(pool->identity);
    free(pool);
}

int mw_worker_take(struct mw_worker_pool *pool, const struct mw_wire_scheduling *scheduling,
                   uint64_t deadline_ns, int stop, struct mw_worker **out)
{
    int rc = -ESRCH;

    for (unsigned i = 0; rc == -ESRCH && i < DEAD_MAX; i++) {
        rc = worker_get(pool, scheduling, deadline_ns, stop, out);
        if (rc)
            break;
        rc = worker_await_ready(pool, *out, deadline_ns, stop);
        if (rc == 0)
            return 0;
        mw_worker_drop(pool, *out);
    }
    *out = NULL;
    return rc == -ESRCH ? -EAGAIN : rc;
}

void mw_worker_pool_refill(struct mw_worker_pool *pool, const struct mw_wire_scheduling *scheduling)
{
    unsigned wanted = pool->options.ready;

    mw_mutex_lock(&pool->lock);
    /* Those that are given back will be ready again. */
    if (pool->options.reuse)
        wanted = pool->running < wanted ? wanted - pool->running : 0;
    if (pool->zygote)
        zygote_listen(pool);
    if (pool->zygote)
        workers_ask(pool, wanted, scheduling);
    others_wake(pool);
    mw_mutex_unlock(&pool->lock);
}

void mw_worker_drop(struct mw_worker_pool *pool, struct mw_worker *worker)
{
    mw_worker_kill(worker);
    worker_close(worker);
    mw_mutex_lock(&pool->lock);
    assert(pool->running > 0);
    pool->running--;
    mw_mutex_unlock(&pool->lock);
}

void mw_worker_give(struct mw_worker_pool *pool, struct mw_worker *worker)
{
    struct mw_wire_report report;
    bool kept;

    mw_mutex_lock(&pool->lock);
    /* In front, for it is warm. */
    kept = pool->ready < pool->options.ready + pool->waiting &&
           mw_worker_report(worker, &report) == -EAGAIN;
    if (kept) {
        assert(pool->running > 0);
        pool->running--;
        pool->ready++;
        worker->next = pool->first;
        if (!pool->first)
            pool->end = &worker->next;
        pool->first = worker;
        others_wake(pool);
    }
    mw_mutex_unlock(&pool->lock);
    if (!kept)
        mw_worker_drop(pool, worker);
}

void mw_worker_peak_reset(const struct mw_worker *worker)
{
    /* Whoever is just ending has no peak any more; and where it fails, too high a one is told. */
    if (worker->clear_refs >= 0 && write(worker->clear_refs, "5", 1) < 0)
        return;
}

void mw_worker_kill(const struct mw_worker *worker)
{
    (void)syscall(SYS_pidfd_send_signal, worker->pidfd, SIGKILL, NULL, 0);
}

int mw_worker_report(const struct mw_worker *worker, struct mw_wire_report *report)
{
    ssize_t got;

    do
        got = read(worker->report, report, sizeof(*report));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -EAGAIN;
    return got == sizeof(*report);
}

static uint64_t rss_bytes(pid_t pid)
{
    unsigned long pages = 0;
    char path[64];
    FILE *statm;

    (void)snprintf(path, sizeof(path), "/proc/%ld/statm", (long)pid);
    statm = fopen(path, "re");
    if (!statm)
        return 0;
    if (fscanf(statm, "%*u %lu", &pages) != 1)
        pages = 0;
    (void)fclose(statm);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void mw_worker_pool_snapshot(struct mw_worker_pool *pool, struct mw_isolate_stats *stats)
{
    mw_mutex_lock(&pool->lock);
    if (pool->zygote)
        zygote_listen(pool);
    stats->ready += pool->ready;
    stats->running += pool->running;
    stats->started += pool->started;
    if (pool->program) {
        stats->zygote_restarts = pool->zygotes - 1;
        stats->zygote_rss_bytes = pool->zygote ? rss_bytes(pool->zygote->pid) : 0;
    }
    others_wake(pool);
    mw_mutex_unlock(&pool->lock);
}

static int pool_make(struct mw_worker_pool **out, const struct mw_worker_pool_options *options)
{
    struct mw_worker_pool *pool = calloc(1, sizeof(*pool));
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = !pool ? -ENOMEM : wake < 0 ? -errno : mw_mutex_init(&pool->lock);

    if (rc) {
        if (wake >= 0)
            close(wake);
        free(pool);
        return rc;
    }
    pool->wake = wake;
    pool->options = *options;
    pool->program = options->program ? strdup(options->program) : NULL;
    pool->identity = strdup(options->identity);
    mw_mutex_lock(&pool->lock);
    pool->end = &pool->first;
    mw_mutex_unlock(&pool->lock);
    if (!pool->identity || (options->program && !pool->program)) {
        mw_worker_pool_free(pool);
        return -ENOMEM;
    }
    *out = pool;
    return 0;
}

/* ---- the zygote ---- */

/* Nothing of the host's reaches it but a socket: no descriptor, handler, mask, terminal or
 * environment. The last variable is for libc: it asks for huge pages, so that a worker that is
 * killed with hundreds of megabytes gives them back in a few milliseconds, not in a hundred, and
 * its place on the lane with them; a large compile also takes less CPU time. */
static int zygote_spawn(const struct mw_worker_pool *pool, int socket, pid_t *pid)
{
    char host[24], guards[16];
    char *argv[] = {"millwright-worker", host, guards, NULL};
    char *environment[] = {"LIBCLANG_NOTHREADS=1", "LIBCLANG_DISABLE_CRASH_RECOVERY=1",
                           "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    int rc;

    (void)snprintf(host, sizeof(host), "%ld", (long)getpid());
    (void)snprintf(guards, sizeof(guards), "%u", pool->options.guards);
    sigfillset(&all);
    sigemptyset(&none);
    rc = posix_spawn_file_actions_init(&files);
    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -rc;
    }
    for (int fd = 0; rc == 0 && fd < 3; fd++)
        rc = posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, socket, MW_WIRE_CONTROL_FD);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(&files, MW_WIRE_CONTROL_FD + 1);
    if (rc == 0)
        /* A group of its own, for the signals of a terminal. Not a session: the kernel would weigh
         * that against this one as a whole, and no nice value would count between the two. */
        rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETSIGMASK);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(&attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(&attributes, &none);
    if (rc == 0)
        rc = posix_spawn(pid, pool->program, &files, &attributes, argv, environment);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return -rc;
}

static int zygote_start(struct mw_worker_pool *pool)
{
    struct mw_zygote *zygote = calloc(1, sizeof(*zygote));
    int sockets[2] = {-1, -1};
    int rc = 0;

    if (!zygote)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        rc = -errno;
    /* The spawned process puts the standard three in place before it takes its socket. */
    for (unsigned i = 0; rc == 0 && sockets[1] <= MW_WIRE_CONTROL_FD && i <= MW_WIRE_CONTROL_FD;
         i++) {
        int higher = fcntl(sockets[1], F_DUPFD_CLOEXEC, MW_WIRE_CONTROL_FD + 1);

        if (higher < 0)
            rc = -errno;
        else
            close(sockets[1]);
        sockets[1] = higher < 0 ? sockets[1] : higher;
    }
    if (rc == 0)
        rc = zygote_spawn(pool, sockets[1], &zygote->pid);
    if (rc == 0) {
        zygote->pidfd = (int)syscall(SYS_pidfd_open, zygote->pid, 0);
        if (zygote->pidfd < 0)
            rc = -errno; /* without its socket it ends */
    }
    if (sockets[1] >= 0)
        close(sockets[1]);
    if (rc) {
        if (sockets[0] >= 0)
            close(sockets[0]);
        free(zygote);
        return rc;
    }
    zygote->references = 1;
    zygote->socket = sockets[0];
    pool->zygote = zygote;
    pool->asked = 0;
    pool->zygotes++;
    return 0;
}

/* Wait until the prefix zygote at `socket` has read its prefix. */
static int prefix_await(struct mw_worker_pool *pool, int socket, uint64_t deadline_ns, int stop)
{
    struct pollfd polls[] = {{.fd = socket, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    struct mw_zygote *zygote;
    struct mw_message message;
    int pidfd = -1, rc = 0;

    while (rc == 0 && !polls[0].revents && !polls[1].revents)
        rc = until_readable(polls, 2, deadline_ns);
    if (rc || !polls[0].revents)
        return rc ? rc : -ECANCELED;
    if (mw_message_receive(socket, &message, &pidfd, 1, MSG_DONTWAIT) != 1 || pidfd < 0)
        return -EAGAIN;
    zygote = calloc(1, sizeof(*zygote));
    if (!zygote || message.kind != MW_MESSAGE_HELLO) {
        rc = zygote ? -EAGAIN : -ENOMEM;
        close(pidfd);
        free(zygote);
        return rc;
    }
    *zygote = (struct mw_zygote){
        .references = 1, .pid = (pid_t)message.number, .socket = socket, .pidfd = pidfd};
    mw_mutex_lock(&pool->lock);
    pool->zygote = zygote;
    pool->zygotes = 1;
    mw_mutex_unlock(&pool->lock);
    return 0;
}

/* It is dead, or does not do what it is told: be sure that it is, and start with nothing. */
static void zygote_forget(struct mw_worker_pool *pool)
{
    struct mw_zygote *zygote = pool->zygote;
    siginfo_t ended;

    while (pool->first) {
        struct mw_worker *worker = pool->first;

        pool->first = worker->next;
        mw_worker_kill(worker);
        worker_close(worker);
    }
    pool->end = &pool->first;
    pool->ready = pool->asked = 0;
    pool->zygote = NULL;
    (void)syscall(SYS_pidfd_send_signal, zygote->pidfd, SIGKILL, NULL, 0);
    /* A host that waits for any child may have been faster: then there is nothing to wait for. */
    while (waitid(P_PIDFD, (id_t)zygote->pidfd, &ended, WEXITED) < 0 && errno == EINTR)
        ;
    (void)shutdown(zygote->socket, SHUT_RDWR); /* wakes who polls it */
    zygote_release(zygote);
}

/* Runs on: any thread, with the pool's lock; or alone. */
static void zygote_release(struct mw_zygote *zygote)
{
    if (--zygote->references > 0)
        return;
    close(zygote->socket);
    close(zygote->pidfd);
    free(zygote);
}

static void worker_add(struct mw_worker_pool *pool, pid_t pid, const int descriptors[3])
    MW_REQUIRES(pool->lock)
{
    struct mw_worker *worker = calloc(1, sizeof(*worker));

    if (pool->asked > 0)
        pool->asked--;
    pool->started++;
    if (!worker) { /* without its socket it ends */
        for (size_t i = 0; i < 3; i++)
            close(descriptors[i]);
        pool->failures++;
        pool->failure = ENOMEM;
        return;
    }
    *worker = (struct mw_worker){.pid = pid,
                                 .socket = descriptors[0],
                                 .report = descriptors[1],
                                 .pidfd = descriptors[2],
                                 .clear_refs = -1};
    *pool->end = worker;
    pool->end = &worker->next;
    pool->ready++;
}

/* Hear all that it has said. */
static void zygote_listen(struct mw_worker_pool *pool)
{
    int descriptors[3], got = 1;
    struct mw_message message;

    while (got == 1) {
        got = mw_message_receive(pool->zygote->socket, &message, descriptors, 3, MSG_DONTWAIT);
        if (got != 1)
            break;
        if (message.kind == MW_MESSAGE_WORKER) {
            worker_add(pool, (pid_t)message.number, descriptors);
        } else if (message.kind == MW_MESSAGE_NO_WORKER) {
            if (pool->asked > 0)
                pool->asked--;
            pool->failures++;
            pool->failure = (int)message.number;
        } else if (message.kind != MW_MESSAGE_HELLO ||
                   strcmp(message.identity, pool->identity) != 0) {
            got = -EPROTO;
        }
    }
    if (got != -EAGAIN)
        zygote_forget(pool);
}

/* ---- workers ---- */

/* Ask for as many as are missing to `ready` of them and one for each who waits. */
static void workers_ask(struct mw_worker_pool *pool, unsigned ready,
                        const struct mw_wire_scheduling *scheduling)
{
    struct mw_message message = {.magic = MW_WIRE_MAGIC,
                                 .kind = MW_MESSAGE_FORK,
                                 .number =
                                     pool->started > 0 ? WARM_MS : 0, /* the first is a check */
                                 .is_last = !pool->options.reuse,
                                 .scheduling = *scheduling};

    while (pool->ready + pool->asked < ready + pool->waiting) {
        if (mw_message_send(pool->zygote->socket, &message, NULL, 0)) {
            zygote_forget(pool);
            return;
        }
        pool->asked++;
    }
}

static int until_readable(struct pollfd *polls, nfds_t count, uint64_t deadline_ns)
{
    uint64_t now = mw_clock_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec time = {.tv_sec = (time_t)(left / MW_NS_PER_S),
                            .tv_nsec = (long)(left % MW_NS_PER_S)};
    int rc = ppoll(polls, count, &time, NULL);

    if (rc == 0)
        return -ETIMEDOUT;
    return rc < 0 && errno != EINTR ? -errno : 0;
}

static struct mw_worker *ready_pop(struct mw_worker_pool *pool) MW_REQUIRES(pool->lock)
{
    struct mw_worker *worker = pool->first;

    if (!worker)
        return NULL;
    pool->first = worker->next;
    if (!pool->first)
        pool->end = &pool->first;
    pool->ready--;
    pool->running++;
    return worker;
}

/* Something was said, and whoever it is for may not have heard it. */
static void others_wake(struct mw_worker_pool *pool)
{
    uint64_t one = 1;

    if (pool->waiting > 0 && write(pool->wake, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN); /* it is full, so it is readable */
}

/* Let go of the lock until the zygote says something. Returns 0, -ETIMEDOUT, -ECANCELED. */
static int zygote_await(struct mw_worker_pool *pool, uint64_t deadline_ns, int stop)
    MW_REQUIRES(pool->lock)
{
    struct mw_zygote *zygote = pool->zygote;
    struct pollfd polls[] = {{.fd = zygote->socket, .events = POLLIN},
                             {.fd = stop, .events = POLLIN},
                             {.fd = pool->wake, .events = POLLIN}};
    uint64_t wakes;
    int rc;

    zygote->references++;
    mw_mutex_unlock(&pool->lock);
    rc = until_readable(polls, 3, deadline_ns);
    mw_mutex_lock(&pool->lock);
    zygote_release(zygote);
    if (read(pool->wake, &wakes, sizeof(wakes)) < 0)
        assert(errno == EAGAIN);
    return rc == 0 && polls[1].revents ? -ECANCELED : rc;
}

/* A worker off the list, ready or not. */
static int worker_get(struct mw_worker_pool *pool, const struct mw_wire_scheduling *scheduling,
                      uint64_t deadline_ns, int stop, struct mw_worker **out)
{
    unsigned starts = 0;
    uint64_t failures;
    int rc = 0;

    mw_mutex_lock(&pool->lock);
    pool->waiting++;
    failures = pool->failures;
    for (;;) {
        if (pool->zygote)
            zygote_listen(pool);
        *out = ready_pop(pool);
        if (*out || rc)
            break;
        if (pool->failures != failures) {
            rc = pool->failure == ENOMEM ? -ENOMEM : -EAGAIN;
        } else if (!pool->zygote) {
            rc = pool->program && starts++ < STARTS_MAX ? zygote_start(pool) : -EAGAIN;
        } else {
            workers_ask(pool, 0, scheduling);
            if (pool->zygote)
                rc = zygote_await(pool, deadline_ns, stop);
        }
    }
    pool->waiting--;
    others_wake(pool);
    mw_mutex_unlock(&pool->lock);
    if (*out)
        return 0;
    return rc == -ETIMEDOUT || rc == -ECANCELED || rc == -ENOMEM ? rc : -EAGAIN;
}

/* Hear all that it has said. Returns 0, or -ESRCH (it is dead, or talks nonsense). */
static int worker_listen(const struct mw_worker_pool *pool, struct mw_worker *worker)
{
    struct mw_message message;
    int clear_refs = -1, got;

    while ((got = mw_message_receive(worker->socket, &message, &clear_refs, 1, MSG_DONTWAIT)) ==
           1) {
        /* The first message comes before any request, so it is honest. */
        if (clear_refs >= 0 && (worker->clear_refs >= 0 || !pool->options.reuse))
            close(clear_refs);
        else if (clear_refs >= 0)
            worker->clear_refs = clear_refs;
        clear_refs = -1;
        if (message.kind != MW_MESSAGE_READY && message.kind != MW_MESSAGE_WARMING)
            return -ESRCH;
        worker->is_ready = message.kind == MW_MESSAGE_READY;
        if (worker->is_ready) {
            worker->data_bytes = message.number;
            worker->shared_bytes = message.shared_bytes;
        }
    }
    return got == -EAGAIN ? 0 : -ESRCH;
}

/* Returns 0; -ESRCH (it is dead), -ETIMEDOUT, -ECANCELED. */
static int worker_await_ready(const struct mw_worker_pool *pool, struct mw_worker *worker,
                              uint64_t deadline_ns, int stop)
{
    int rc = 0;

    while (rc == 0) {
        struct pollfd polls[] = {{.fd = worker->socket, .events = POLLIN},
                                 {.fd = worker->pidfd, .events = POLLIN},
                                 {.fd = stop, .events = POLLIN}};

        if (poll(&polls[1], 1, 0) > 0 || worker_listen(pool, worker))
            return -ESRCH;
        if (worker->is_ready)
            return 0;
        rc = until_readable(polls, 3, deadline_ns);
        if (rc == 0 && polls[2].revents)
            rc = -ECANCELED;
    }
    return rc;
}

static void worker_close(struct mw_worker *worker)
{
    close(worker->socket);
    close(worker->report);
    close(worker->pidfd);
    if (worker->clear_refs >= 0)
        close(worker->clear_refs);
    free(worker);
}

/* The check at the start: a worker can be had, and it got through the sandbox and a compile. */
static int first_worker_check(struct mw_worker_pool *pool, char *why, size_t why_bytes)
{
    const struct mw_wire_scheduling *scheduling = &pool->options.scheduling;
    uint64_t deadline_ns = mw_clock_ns() + START_NS;
    struct mw_wire_report report = {0};
    struct mw_worker *worker = NULL;
    int rc = worker_get(pool, scheduling, deadline_ns, -1, &worker);
    bool told = false;

    if (rc == 0) {
        rc = worker_await_ready(pool, worker, deadline_ns, -1);
        if (rc == -ESRCH) {
            (void)poll(&(struct pollfd){.fd = worker->report, .events = POLLIN}, 1, 1000);
            told = mw_worker_report(worker, &report) == 1;
        }
        if (rc == 0)
            mw_worker_give(pool, worker);
        else
            mw_worker_drop(pool, worker);
    }
    if (rc == 0) {
        mw_worker_pool_refill(pool, scheduling);
        return 0;
    }
    if (told)
        (void)snprintf(why, why_bytes,
                       "a worker ended before it was ready (%s %d); this kernel may lack a guard",
                       WIFSIGNALED(report.status) ? "signal" : "exit status",
                       WIFSIGNALED(report.status) ? WTERMSIG(report.status)
                                                  : WEXITSTATUS(report.status));
    else
        (void)snprintf(why, why_bytes,
                       "'%s' gave no worker (%s); is it of the same build as this library?",
                       pool->program, strerror(-rc));
    return rc == -ESRCH ? -EIO : rc;
}

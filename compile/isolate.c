/* isolate.c - see isolate.h; worker_pool.c keeps the zygote and the workers.
 *
 * 1. A worker never ends by itself when all goes well: it answers, is looked at while it lives, and
 *    is killed. So its use of CPU and memory is the kernel's word, not its own, and its end is not
 *    waited for.
 * 2. What it answers is read from a file of fixed size, each byte once.
 * 3. A worker that ended is the zygote's to reap; the zygote tells how. When nobody can tell, the
 *    zygote is dead and took it along. Then the request is tried once more, as it is when its
 *    worker was dead before it began; never when a worker died of what it compiled. */
#include <millwright/isolate.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/mutex.h>
#include <millwright/process.h>

#include "clang_bridge.h"
#include "head_starts.h"
#include "sandbox.h"
#include "worker_pool.h"
#include "worker_wire.h"

#define LOOK_NS_MIN MW_NS_PER_MS                /* between two looks at a worker's CPU clock */
#define REAP_NS_MAX (UINT64_C(2) * MW_NS_PER_S) /* for the word on how a killed one ended */
#define UNBEGUN_MAX (MW_ISOLATE_READY_MAX + 2u)
#define WORKER_NAME "millwright-worker"
#define PATH_BYTES  4096

struct mw_isolate {
    /* Immutable once made. */
    struct mw_worker_pool *pool;
    struct mw_head_starts *head_starts; /* NULL: none */
    unsigned generation;
    unsigned guards;
    int landlock_abi;
    unsigned requests_max;
    uint64_t memory_mark_bytes;
    void (*on_work)(void *user, pid_t worker, bool begins);
    void *user;

    /* Relaxed: numbers. */
    atomic_uint_least64_t killed_by_limit, stopped, crashed, retries, head_starts_used;
};

/* How the wait for a worker went. */
enum ending {
    ANSWERED,
    ENDED,   /* by itself, and the report says how */
    LOST,    /* with its zygote */
    LIMITED, /* usage->hit says by what */
    STOPPED,
    NONSENSE,
};

/* One call of mw_isolate_compile. */
struct call {
    struct mw_isolate *isolate;
    const struct mw_compile_request *request;
    struct mw_limits limits;
    struct mw_wire_scheduling scheduling;
    uint64_t begin_ns, deadline_ns;
    int stop;                     /* descriptor, or -1 */
    int request_file;             /* the request, as the worker reads it */
    char *head_start_key;         /* NULL: it can have none */
    struct mw_wire_bounds bounds; /* of the answer */
    struct mw_compile_result *result;
    struct mw_usage *usage;

    /* Of one attempt. */
    struct mw_worker_pool *pool; /* held, if it is not the one of all */
    struct mw_worker *worker;
    int answer_file;
    clockid_t clock;       /* the worker's CPU time */
    uint64_t cpu_begin_ns; /* on that clock, when it got the request */
    struct mw_wire_report report;
};

static int options_check(const struct mw_isolate_options *options, char *why, size_t why_bytes);
static int guards_check(struct mw_isolate *isolate, bool unguarded, char *why, size_t why_bytes);
static int program_find(const char *given, char path[PATH_BYTES], char *why, size_t why_bytes);
static void scheduling_read(struct mw_wire_scheduling *scheduling);
static int stop_open(struct mw_isolate_stop *stop);
static int attempts(struct call *call);
static int attempt(struct call *call);
static char *head_start_key(const struct mw_isolate *isolate, const struct mw_options *options,
                            const struct mw_compile_request *request);
static int worker_take(struct call *call);
static void pool_release(struct call *call, bool is_dead);
static int worker_hand_over(struct call *call);
static enum ending worker_await(struct call *call);
static int worker_finish(struct call *call, enum ending ending);
static int answer_take(struct call *call);
static int end_explain(struct call *call);
static int limit_name(struct call *call, enum mw_limit limit);
static void usage_look(struct call *call);

int mw_isolate_new(struct mw_isolate **out, const struct mw_isolate_options *options, char *why,
                   size_t why_bytes)
{
    struct mw_worker_pool_options pool = {.reuse = options->requests_max > 0};
    struct mw_isolate *isolate = NULL;
    char program[PATH_BYTES];
    int rc;

    (void)snprintf(why, why_bytes, "out of memory");
    rc = options_check(options, why, why_bytes);
    if (rc == 0)
        rc = mw_process_watch();
    if (rc == 0)
        rc = program_find(options->worker, program, why, why_bytes);
    if (rc)
        return rc;
    isolate = calloc(1, sizeof(*isolate));
    if (!isolate)
        return -ENOMEM;
    isolate->generation = mw_process_generation();
    isolate->requests_max = options->requests_max;
    isolate->memory_mark_bytes = options->memory_mark_bytes;
    isolate->on_work = options->on_work;
    isolate->user = options->user;
    rc = guards_check(isolate, options->unguarded, why, why_bytes);
    if (rc == 0) {
        pool.program = program;
        pool.identity = mw_toolchain_identity(options->toolchain);
        pool.guards = isolate->guards;
        pool.ready = options->ready > 0 ? options->ready : mw_cpus_effective();
        if (pool.ready > MW_ISOLATE_READY_MAX)
            pool.ready = MW_ISOLATE_READY_MAX;
        scheduling_read(&pool.scheduling);
        rc = mw_worker_pool_new(&isolate->pool, &pool, why, why_bytes);
    }
    if (rc == 0 && options->head_starts > 0 && options->requests_max == 0)
        rc = mw_head_starts_new(&isolate->head_starts, isolate->pool, options->head_starts);
    if (rc) {
        mw_worker_pool_free(isolate->pool);
        free(isolate);
        return rc;
    }
    *out = isolate;
    return 0;
}

void mw_isolate_free(struct mw_isolate *isolate)
{
    if (!isolate)
        return;
    if (isolate->generation == mw_process_generation()) {
        mw_head_starts_free(isolate->head_starts);
        mw_worker_pool_free(isolate->pool);
    } else {
        mw_head_starts_abandon(isolate->head_starts);
        mw_worker_pool_abandon(isolate->pool);
    }
    free(isolate);
}

static struct mw_limits limits_fill(const struct mw_limits *given)
{
    struct mw_limits limits = given ? *given : (struct mw_limits){0};

    if (limits.wall_ns == 0)
        limits.wall_ns = MW_LIMIT_WALL_NS_DEFAULT;
    if (limits.cpu_ns == 0)
        limits.cpu_ns = MW_LIMIT_CPU_NS_DEFAULT;
    if (limits.memory_bytes == 0)
        limits.memory_bytes = MW_LIMIT_MEMORY_BYTES_DEFAULT;
    if (limits.output_bytes == 0)
        limits.output_bytes = MW_LIMIT_OUTPUT_BYTES_DEFAULT;
    if (limits.output_bytes > MW_ARTIFACT_BYTES_MAX)
        limits.output_bytes = MW_ARTIFACT_BYTES_MAX;
    return limits;
}

int mw_isolate_compile(struct mw_isolate *isolate, const struct mw_options *options,
                       const struct mw_compile_request *request, const struct mw_limits *limits,
                       struct mw_isolate_stop *stop, struct mw_compile_result *result,
                       struct mw_usage *usage)
{
    struct call call = {.isolate = isolate,
                        .request = request,
                        .limits = limits_fill(limits),
                        .begin_ns = mw_clock_ns(),
                        .request_file = -1,
                        .result = result,
                        .usage = usage};
    int rc;

    *result = (struct mw_compile_result){0};
    *usage = (struct mw_usage){0};
    if (isolate->generation != mw_process_generation())
        return -EOWNERDEAD;
    if (request->read_disk)
        return -EINVAL;
    call.deadline_ns = call.begin_ns + call.limits.wall_ns;
    if (call.deadline_ns < call.begin_ns)
        call.deadline_ns = UINT64_MAX;
    call.bounds = (struct mw_wire_bounds){call.limits.output_bytes, request->extras};
    scheduling_read(&call.scheduling);
    call.stop = stop_open(stop);
    if (stop && atomic_load_explicit(&stop->state, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&isolate->stopped, 1, memory_order_relaxed);
        return -ECANCELED;
    }
    call.request_file =
        mw_wire_request_make(request, mw_options_fingerprint(options), call.limits.output_bytes);
    call.head_start_key = head_start_key(isolate, options, request);
    if (call.stop == -EMFILE || call.request_file < 0) {
        rc = call.request_file == -ENOMEM ? -ENOMEM : -EAGAIN;
    } else {
        rc = attempts(&call);
    }
    if (call.request_file >= 0)
        close(call.request_file);
    free(call.head_start_key);
    if (rc)
        mw_compile_result_fini(result);
    usage->wall_ns = mw_clock_ns() - call.begin_ns;
    return rc;
}

int mw_isolate_prepare(struct mw_isolate *isolate, const struct mw_options *options,
                       const struct mw_compile_request *request, const struct mw_limits *limits,
                       struct mw_isolate_stop *stop)
{
    struct mw_compile_request prefix = *request;
    struct mw_wire_scheduling scheduling;
    uint64_t deadline_ns = mw_clock_ns() + limits_fill(limits).wall_ns;
    int stop_event = stop_open(stop), file, rc;
    char *key;

    if (isolate->generation != mw_process_generation())
        return -EOWNERDEAD;
    if (stop && atomic_load_explicit(&stop->state, memory_order_relaxed))
        return -ECANCELED;
    key = head_start_key(isolate, options, request);
    if (!key || request->file_count != 1) {
        rc = -EINVAL;
    } else {
        prefix.preamble = NULL; /* it is what this is to be */
        file = mw_wire_request_make(&prefix, mw_options_fingerprint(options), 0);
        scheduling_read(&scheduling);
        rc = file < 0 ? -EAGAIN
                      : mw_head_starts_make(isolate->head_starts, key, file, &scheduling,
                                            deadline_ns, stop_event);
        if (file >= 0)
            close(file);
    }
    free(key);
    return rc;
}

const char *mw_isolate_guard_name(unsigned bit)
{
    static const char *const names[] = {"landlock", "seccomp", "limits", "pidfd"};

    _Static_assert(MW_GUARDS_ALL == (1u << sizeof names / sizeof *names) - 1, "one name each");
    return bit < sizeof names / sizeof *names ? names[bit] : NULL;
}

void mw_isolate_snapshot(struct mw_isolate *isolate, struct mw_isolate_stats *stats)
{
    *stats = (struct mw_isolate_stats){
        .guards = isolate->guards,
        .landlock_abi = isolate->landlock_abi,
        .killed_by_limit = atomic_load_explicit(&isolate->killed_by_limit, memory_order_relaxed),
        .stopped = atomic_load_explicit(&isolate->stopped, memory_order_relaxed),
        .crashed = atomic_load_explicit(&isolate->crashed, memory_order_relaxed),
        .retries = atomic_load_explicit(&isolate->retries, memory_order_relaxed),
        .head_starts_used = atomic_load_explicit(&isolate->head_starts_used, memory_order_relaxed),
    };
    if (isolate->generation != mw_process_generation())
        return;
    mw_worker_pool_snapshot(isolate->pool, stats);
    if (isolate->head_starts)
        mw_head_starts_snapshot(isolate->head_starts, stats);
}

/* ---- stop: whoever comes second sees what the first wrote, so all four are seq_cst ---- */

void mw_isolate_stop(struct mw_isolate_stop *stop)
{
    uint64_t one = 1;
    int event;

    atomic_store_explicit(&stop->state, 1, memory_order_seq_cst); /* partner: stop_open's load */
    event = atomic_load_explicit(&stop->event, memory_order_seq_cst); /* partner: its store */
    if (event > 0 && write(event - 1, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN); /* it is full, so it is readable */
}

void mw_isolate_stop_fini(struct mw_isolate_stop *stop)
{
    int event = atomic_exchange_explicit(&stop->event, 0, memory_order_acq_rel);

    if (event > 0)
        close(event - 1);
    atomic_store_explicit(&stop->state, 0, memory_order_relaxed); /* the caller's alone now */
}

/* The descriptor that says stop; -1 when there is none, -EMFILE when there cannot be one. In the
 * struct stands one more than the descriptor, so that zero is none. */
static int stop_open(struct mw_isolate_stop *stop)
{
    uint64_t one = 1;
    int event;

    if (!stop)
        return -1;
    event = atomic_load_explicit(&stop->event, memory_order_acquire) - 1;
    if (event < 0)
        event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return -EMFILE;
    atomic_store_explicit(&stop->event, event + 1, memory_order_seq_cst);
    if (atomic_load_explicit(&stop->state, memory_order_seq_cst) &&
        write(event, &one, sizeof(one)) < 0)
        assert(errno == EAGAIN);
    return event;
}

/* ---- at the start ---- */

static int options_check(const struct mw_isolate_options *options, char *why, size_t why_bytes)
{
    if (options->toolchain && options->ready <= MW_ISOLATE_READY_MAX &&
        options->requests_max <= MW_ISOLATE_REQUESTS_LIMIT &&
        options->head_starts <= MW_ISOLATE_HEAD_STARTS_MAX)
        return 0;
    (void)snprintf(
        why, why_bytes,
        "give a toolchain, at most %u workers to keep ready, at most %u requests for each, and at "
        "most %u head starts",
        MW_ISOLATE_READY_MAX, MW_ISOLATE_REQUESTS_LIMIT, MW_ISOLATE_HEAD_STARTS_MAX);
    return -EINVAL;
}

static int guards_check(struct mw_isolate *isolate, bool unguarded, char *why, size_t why_bytes)
{
    static const struct {
        unsigned guard;
        const char *name;
    } names[] = {
        {MW_GUARD_LANDLOCK, "landlock"},
        {MW_GUARD_SECCOMP, "seccomp"},
        {MW_GUARD_LIMITS, "resource limits"},
        {MW_GUARD_PIDFD, "pidfd"},
    };

    isolate->guards = mw_sandbox_available(&isolate->landlock_abi);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (isolate->guards & names[i].guard)
            continue;
        if (names[i].guard == MW_GUARD_PIDFD) {
            (void)snprintf(why, why_bytes,
                           "this kernel has no pidfd, so no worker can be ended for certain: "
                           "compile in process");
            return -ENOSYS;
        }
        if (unguarded)
            continue;
        (void)snprintf(why, why_bytes,
                       "this kernel has no %s: compile in process, or ask for isolation without "
                       "that guard",
                       names[i].name);
        return -ENOTSUP;
    }
    return 0;
}

static int program_find(const char *given, char path[PATH_BYTES], char *why, size_t why_bytes)
{
    static const char *const places[] = {"/" WORKER_NAME, "/../libexec/millwright/" WORKER_NAME};
    char self[PATH_BYTES - 64];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (given) {
        (void)snprintf(path, PATH_BYTES, "%s", given);
        return 0;
    }
    self[length > 0 ? length : 0] = '\0';
    if (strrchr(self, '/'))
        *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, PATH_BYTES, "%s%s", self, places[i]);
        if (access(path, X_OK) == 0)
            return 0;
    }
    (void)snprintf(why, why_bytes,
                   "%s is neither beside the program nor in ../libexec/millwright; give its place",
                   WORKER_NAME);
    return -ENOENT;
}

/* What a worker is to take over from the calling thread. */
static void scheduling_read(struct mw_wire_scheduling *scheduling)
{
    int policy = sched_getscheduler(0), saved = errno;

    *scheduling = (struct mw_wire_scheduling){.policy = SCHED_OTHER};
    /* No compile runs in real time. */
    if (policy == SCHED_BATCH || policy == SCHED_IDLE)
        scheduling->policy = policy;
    errno = 0;
    scheduling->nice = getpriority(PRIO_PROCESS, 0);
    if (errno)
        scheduling->nice = 0;
    errno = saved;
    (void)prctl(PR_GET_NAME, scheduling->name);
}

/* ---- one attempt ---- */

/* Whoever was killed while it waited has not seen the request: there may be as many as wait. */
static int attempts(struct call *call)
{
    unsigned lost = 0, unbegun = 0;
    int rc;

    do {
        rc = attempt(call);
        lost += rc == -ENOLINK;
        unbegun += rc == -ESRCH;
        if (lost == 1 && rc == -ENOLINK)
            atomic_fetch_add_explicit(&call->isolate->retries, 1, memory_order_relaxed);
    } while ((rc == -ENOLINK && lost < 2) || (rc == -ESRCH && unbegun < UNBEGUN_MAX));
    if (rc == -EPERM)
        return -EIO;
    return rc == -ESRCH || rc == -ENOLINK ? -EAGAIN : rc;
}

static bool is_over(const struct call *call)
{
    return mw_clock_ns() >= call->deadline_ns;
}

static void tell_work(const struct call *call, bool begins)
{
    if (call->isolate->on_work)
        call->isolate->on_work(call->isolate->user, call->worker->pid, begins);
}

/* Since the last. */
static uint64_t lap(uint64_t *since_ns)
{
    uint64_t before = *since_ns;

    *since_ns = mw_clock_ns();
    return *since_ns - before;
}

/* Returns as mw_isolate_compile, -ESRCH (the worker ended before it began), or -ENOLINK (it was
 * lost with its zygote). */
static int attempt(struct call *call)
{
    struct mw_isolate *isolate = call->isolate;
    enum ending ending;
    uint64_t step_ns = call->begin_ns;
    int rc = worker_take(call);

    call->usage->take_ns = lap(&step_ns);
    if (rc == -ETIMEDOUT)
        return limit_name(call, MW_LIMIT_WALL);
    if (rc == -ECANCELED)
        atomic_fetch_add_explicit(&isolate->stopped, 1, memory_order_relaxed);
    if (rc)
        return rc;
    call->answer_file = mw_wire_answer_make(&call->bounds);
    if (call->answer_file < 0) {
        mw_worker_drop(call->pool, call->worker);
        pool_release(call, false);
        return call->answer_file == -ENOMEM ? -ENOMEM : -EAGAIN;
    }
    tell_work(call, true);
    rc = worker_hand_over(call);
    call->usage->hand_ns = lap(&step_ns);
    if (rc == 0) {
        ending = worker_await(call);
        call->usage->run_ns = lap(&step_ns);
        rc = worker_finish(call, ending);
    } else {
        ending = LOST;
    }
    tell_work(call, false);
    close(call->answer_file);
    if (ending == ANSWERED && rc == 0 && call->worker->requests < isolate->requests_max &&
        (isolate->memory_mark_bytes == 0 ||
         call->usage->memory_peak_bytes < isolate->memory_mark_bytes))
        mw_worker_give(call->pool, call->worker);
    else
        mw_worker_drop(call->pool, call->worker);
    /* Now, not before: a worker that warms up takes CPU from one that compiles. */
    mw_worker_pool_refill(call->pool, &call->scheduling);
    pool_release(call, ending == LOST); /* whose other workers are dying as well */
    return rc;
}

/* Of the workers behind the request's prefix, or of all; call->pool is to be released when it
 * returns 0. */
static int worker_take(struct call *call)
{
    struct mw_isolate *isolate = call->isolate;
    bool *due = &call->usage->head_start_due;
    int rc;

    call->usage->has_head_start = *due = false;
    call->pool = call->head_start_key
                     ? mw_head_starts_hold(isolate->head_starts, call->head_start_key, due)
                     : NULL;
    if (call->pool) {
        rc = mw_worker_take(call->pool, &call->scheduling, call->deadline_ns, call->stop,
                            &call->worker);
        call->usage->has_head_start = rc == 0;
        if (rc == 0) {
            atomic_fetch_add_explicit(&isolate->head_starts_used, 1, memory_order_relaxed);
            return 0;
        }
        pool_release(call, rc == -EAGAIN);
        if (rc != -EAGAIN)
            return rc;
    }
    call->pool = isolate->pool;
    return mw_worker_take(call->pool, &call->scheduling, call->deadline_ns, call->stop,
                          &call->worker);
}

static void pool_release(struct call *call, bool is_dead)
{
    if (call->pool != call->isolate->pool)
        mw_head_starts_release(call->isolate->head_starts, call->pool, is_dead);
}

/* What all requests have in common that a worker behind a prefix can go on with, or NULL. */
static char *head_start_key(const struct mw_isolate *isolate, const struct mw_options *options,
                            const struct mw_compile_request *request)
{
    const struct mw_preamble_use *preamble = request->preamble;
    const struct mw_source_file *main = mw_request_main(request);
    const char *ending = strrchr(request->main, '.');
    char *key;

    if (!isolate->head_starts || !preamble || !preamble->key || !main ||
        main->bytes > MW_BRIDGE_REST_BYTES_MAX || preamble->covers_bytes < preamble->text_bytes)
        return NULL;
    return asprintf(&key, "%s\n%s\n%s\n%s", preamble->key, ending ? ending : "", request->directory,
                    mw_options_fingerprint(options)) < 0
               ? NULL
               : key;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    if (clock_gettime(clock, &now) < 0)
        return 0;
    return (uint64_t)now.tv_sec * MW_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* From outside, so that the worker need not be able to. A worker that is used again keeps room
 * above, for a later request may have more. */
static int limits_set(const struct call *call)
{
    const struct call *c = call;
    const uint64_t data = c->worker->data_bytes; /* 0: its data cannot be counted */
    const struct {
        int resource;
        rlim_t value;
    } limits[] = {
        {RLIMIT_DATA, data > 0 ? data + c->limits.memory_bytes : RLIM_INFINITY},
        /* The driver looks at the clock; this is for when the driver cannot. */
        {RLIMIT_CPU, (c->cpu_begin_ns + c->limits.cpu_ns) / MW_NS_PER_S + 2},
        {RLIMIT_FSIZE, mw_wire_answer_bytes(&c->bounds)},
    };

    if (!(c->isolate->guards & MW_GUARD_LIMITS))
        return 0;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        __rlimit_resource_t resource = (__rlimit_resource_t)limits[i].resource;
        struct rlimit now, limit = {.rlim_cur = limits[i].value, .rlim_max = limits[i].value};

        if (prlimit(c->worker->pid, resource, NULL, &now) < 0)
            return -errno;
        if (c->isolate->requests_max > 0 || limit.rlim_max > now.rlim_max)
            limit.rlim_max = now.rlim_max;
        if (limit.rlim_cur > limit.rlim_max)
            limit.rlim_cur = limit.rlim_max;
        if (prlimit(c->worker->pid, resource, &limit, NULL) < 0)
            return -errno;
    }
    return 0;
}

/* Returns 0, -ESRCH (it is dead already), or -EPERM (this process may not set its limits). */
static int worker_hand_over(struct call *call)
{
    struct mw_message message = {.magic = MW_WIRE_MAGIC,
                                 .kind = MW_MESSAGE_REQUEST,
                                 .number = ++call->worker->requests,
                                 .is_last = call->isolate->requests_max == 0,
                                 .scheduling = call->scheduling};
    const struct mw_preamble_use *preamble = call->request->preamble;
    bool has_preamble = preamble && preamble->file >= 0;
    int descriptors[] = {call->request_file, call->answer_file, has_preamble ? preamble->file : -1};
    int rc;

    if (clock_getcpuclockid(call->worker->pid, &call->clock) ||
        (call->cpu_begin_ns = clock_ns(call->clock)) == 0)
        return -ESRCH;
    rc = limits_set(call);
    if (rc)
        return rc;
    mw_worker_peak_reset(call->worker);
    return mw_message_send(call->worker->socket, &message, descriptors, has_preamble ? 3 : 2)
               ? -ESRCH
               : 0;
}

/* The CPU time that the request has used, as long as its process is there. */
static uint64_t cpu_used_ns(const struct call *call)
{
    uint64_t now = clock_ns(call->clock);

    return now > call->cpu_begin_ns ? now - call->cpu_begin_ns : 0;
}

/* Wait for something to happen until the deadline, or until the CPU limit can have been reached.
 * Returns what poll does. */
static int events_await(const struct call *call, struct pollfd *polls, nfds_t count)
{
    uint64_t now = mw_clock_ns(), used = cpu_used_ns(call);
    uint64_t left = call->limits.cpu_ns > used ? call->limits.cpu_ns - used : 0;
    uint64_t wall = call->deadline_ns > now ? call->deadline_ns - now : 0;
    struct timespec time;

    if (left < LOOK_NS_MIN)
        left = LOOK_NS_MIN;
    if (left > wall)
        left = wall;
    time = (struct timespec){.tv_sec = (time_t)(left / MW_NS_PER_S),
                             .tv_nsec = (long)(left % MW_NS_PER_S)};
    return ppoll(polls, count, &time, NULL);
}

static enum ending ended(struct call *call)
{
    int told = mw_worker_report(call->worker, &call->report);

    assert(told != -EAGAIN); /* poll said that there is something */
    return told == 1 ? ENDED : LOST;
}

static enum ending answered(const struct call *call, const struct mw_message *message, int got)
{
    bool ours =
        got == 1 && message->kind == MW_MESSAGE_ANSWER && message->number == call->worker->requests;

    return ours ? ANSWERED : NONSENSE;
}

/* It had begun to warm up before it saw the request; it has seen it now. */
static bool is_of_warming(const struct mw_message *message, int got)
{
    return got == 1 && (message->kind == MW_MESSAGE_WARMING || message->kind == MW_MESSAGE_READY);
}

static enum ending limited(struct call *call, enum mw_limit limit)
{
    (void)limit_name(call, limit);
    return LIMITED;
}

static enum ending worker_await(struct call *call)
{
    struct pollfd polls[] = {{.fd = call->worker->socket, .events = POLLIN},
                             {.fd = call->worker->report, .events = POLLIN},
                             {.fd = call->stop, .events = POLLIN}};

    for (;;) {
        int ready = events_await(call, polls, sizeof(polls) / sizeof(polls[0]));
        struct mw_message message;
        int got;

        if (ready > 0 && polls[0].revents) {
            got = mw_message_receive(call->worker->socket, &message, NULL, 0, MSG_DONTWAIT);
            if (got != 0 && got != -EAGAIN && !is_of_warming(&message, got))
                return answered(call, &message, got);
            if (got == 0)
                polls[0].fd = -1; /* it is ending; the report will tell */
        }
        if (ready > 0 && polls[1].revents)
            return ended(call);
        if (ready > 0 && polls[2].revents)
            return STOPPED;
        if (is_over(call))
            return limited(call, MW_LIMIT_WALL);
        if (cpu_used_ns(call) >= call->limits.cpu_ns)
            return limited(call, MW_LIMIT_CPU);
    }
}

/* ---- what came of it ---- */

/* Kill it and wait for the word on it: until then its memory is not free. */
static void worker_end(struct call *call)
{
    struct pollfd poll_report = {.fd = call->worker->report, .events = POLLIN};

    mw_worker_kill(call->worker);
    if (poll(&poll_report, 1, (int)(REAP_NS_MAX / MW_NS_PER_MS)) > 0 &&
        mw_worker_report(call->worker, &call->report) == 1)
        return;
    call->report = (struct mw_wire_report){0};
}

static void usage_of_report(struct call *call)
{
    uint64_t cpu_ns = call->report.cpu_ns;

    call->usage->cpu_ns = cpu_ns > call->cpu_begin_ns ? cpu_ns - call->cpu_begin_ns : 0;
    if (call->report.memory_peak_bytes > 0)
        call->usage->memory_peak_bytes = call->report.memory_peak_bytes;
}

/* Somebody killed it while it waited, and it never came to the request. */
static bool is_unbegun(const struct call *call)
{
    return WIFSIGNALED(call->report.status) && !mw_wire_answer_is_begun(call->answer_file);
}

static int worker_finish(struct call *call, enum ending ending)
{
    struct mw_isolate *isolate = call->isolate;

    switch (ending) {
    case ANSWERED:
        usage_look(call);
        return answer_take(call);
    case ENDED:
        usage_of_report(call);
        return is_unbegun(call) ? -ESRCH : end_explain(call);
    case LIMITED:
        usage_look(call);
        worker_end(call);
        usage_of_report(call);
        return call->usage->hit == MW_LIMIT_WALL ? -ETIMEDOUT : -EDQUOT;
    case STOPPED:
        worker_end(call);
        usage_of_report(call);
        atomic_fetch_add_explicit(&isolate->stopped, 1, memory_order_relaxed);
        return -ECANCELED;
    case LOST:
        return mw_wire_answer_is_begun(call->answer_file) ? -ENOLINK : -ESRCH;
    case NONSENSE:
        break;
    }
    usage_look(call);
    return -EIO;
}

/* The answer says what the compile returned; its limits show as errors of it. */
static int answer_take(struct call *call)
{
    struct mw_wire_outcome outcome = {0};
    int rc = mw_wire_answer_read(call->answer_file, &call->bounds, call->result, &outcome);

    if (rc)
        return rc == -ENOMEM ? rc : -EIO;
    call->usage->output_bytes = outcome.artifact_bytes;
    switch (outcome.rc) {
    case 0:
        return 0;
    case -E2BIG:
        return limit_name(call, MW_LIMIT_OUTPUT);
    case -ENOMEM:
        return limit_name(call, MW_LIMIT_MEMORY);
    default:
        return -EIO;
    }
}

/* What can be the end of a process that was refused memory and did not look. */
static bool is_fault(int signal_number)
{
    static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGTRAP};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (signal_number == faults[i])
            return true;
    return false;
}

/* The limit that ended the worker, or none. */
static enum mw_limit limit_find(const struct call *call)
{
    int status = call->report.status;
    int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    uint64_t near = call->limits.memory_bytes - call->limits.memory_bytes / 8;

    if (WIFEXITED(status) && WEXITSTATUS(status) == MW_WORKER_EXIT_MEMORY)
        return MW_LIMIT_MEMORY;
    if (by == SIGXCPU || (by == SIGKILL && call->usage->cpu_ns >= call->limits.cpu_ns))
        return MW_LIMIT_CPU;
    if (by == SIGXFSZ)
        return MW_LIMIT_OUTPUT;
    return is_fault(by) && call->usage->memory_peak_bytes >= near ? MW_LIMIT_MEMORY : MW_LIMIT_NONE;
}

/* What a source can do about the end of the compiler. */
static const char *advice(int signal_number)
{
    static const struct {
        int signal_number;
        const char *text;
    } advices[] = {
        {SIGSEGV, "it ran out of stack, or has a fault there: nest less deeply, or leave parts of "
                  "the source out until it compiles"},
        {SIGSYS, "it asked the system for what a compile may not do; leave out what is not plain "
                 "C or C++"},
        {SIGKILL, "from outside, perhaps because the system is out of memory; try again later"},
    };

    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
        if (signal_number == advices[i].signal_number)
            return advices[i].text;
    return "it has a fault there: leave parts of the source out until it compiles";
}

/* The worker ended before it answered: by a limit, or by what it compiled. */
static int end_explain(struct call *call)
{
    enum mw_limit limit = limit_find(call);
    int status = call->report.status;
    char text[512];
    struct mw_diagnostic crash = {
        .severity = MW_SEVERITY_FATAL, .file = call->request->main, .message = text};

    if (limit != MW_LIMIT_NONE)
        return limit_name(call, limit);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == MW_WORKER_EXIT_REQUEST ||
                              WEXITSTATUS(status) == MW_WORKER_EXIT_SANDBOX ||
                              WEXITSTATUS(status) == MW_WORKER_EXIT_START))
        return -EIO;
    atomic_fetch_add_explicit(&call->isolate->crashed, 1, memory_order_relaxed);
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));

        call->usage->signal = WTERMSIG(status);
        (void)snprintf(text, sizeof(text), "the compiler was ended by SIG%s on this source: %s",
                       name ? name : "?", advice(WTERMSIG(status)));
    } else {
        (void)snprintf(text, sizeof(text),
                       "the compiler gave up on this source (exit status %d): %s",
                       WEXITSTATUS(status), advice(0));
    }
    return mw_diagnostics_add(&call->result->diagnostics, &crash);
}

/* Note which limit was hit. Returns the error for it. */
static int limit_name(struct call *call, enum mw_limit limit)
{
    const uint64_t values[MW_LIMITS] = {
        [MW_LIMIT_WALL] = call->limits.wall_ns,
        [MW_LIMIT_CPU] = call->limits.cpu_ns,
        [MW_LIMIT_MEMORY] = call->limits.memory_bytes,
        [MW_LIMIT_OUTPUT] = call->limits.output_bytes,
    };

    call->usage->hit = limit;
    call->usage->hit_value = values[limit];
    atomic_fetch_add_explicit(&call->isolate->killed_by_limit, 1, memory_order_relaxed);
    return limit == MW_LIMIT_WALL ? -ETIMEDOUT : -EDQUOT;
}

/* Read what it used from the kernel, while it lives. */
static void usage_look(struct call *call)
{
    char path[64], text[4096] = ""; /* the line is among the first */
    const char *line;
    int status;

    call->usage->cpu_ns = cpu_used_ns(call);
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)call->worker->pid);
    status = open(path, O_RDONLY | O_CLOEXEC);
    if (status >= 0 && read(status, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    if (status >= 0)
        close(status);
    line = strstr(text, "VmHWM:");
    call->usage->memory_peak_bytes = line ? strtoull(line + strlen("VmHWM:"), NULL, 10) * 1024 : 0;
    if (call->usage->memory_peak_bytes > call->worker->shared_bytes)
        call->usage->memory_peak_bytes -= call->worker->shared_bytes;
}

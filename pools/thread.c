#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "census.h"
#include "flow.h"
#include "thread.h"

#define NAME_BYTES_MAX 15
#define NICE_MAX       19

/* What a new thread needs at its entry. Made by the starter, freed by the thread. */
struct entry {
    char name[NAME_BYTES_MAX + 1];
    enum mw_thread_kind kind;
    int nice;
    bool idle;
    void (*fn)(void *arg);
    void *arg;
};

static const char *const kind_names[MW_THREAD_KINDS] = {
    [MW_THREAD_HOST] = "host",          [MW_THREAD_LOOP] = "mw-loop",
    [MW_THREAD_POOL] = "mw-pool",       [MW_THREAD_LANE] = "mw-cpu-lane",
    [MW_THREAD_MONITOR] = "mw-monitor", [MW_THREAD_PROBE] = "mw-probe",
    [MW_THREAD_GATE] = "mw-pool-gate",
};

/* Raised by the starter before the thread exists, lowered by the thread as its last act. Numbers
 * for people, publishing nothing: relaxed order, no partner. */
static _Atomic unsigned alive[MW_THREAD_KINDS];

static _Thread_local enum mw_thread_kind current_kind MW_THREAD_LOCAL_NEAR;

static struct entry *entry_new(const struct mw_thread_options *options);
static int create(pthread_t *thread, size_t stack_bytes, struct entry *entry);
static void *run_entry(void *arg);
static void block_signals(sigset_t *before);
static void set_name(const char *name);
static void set_urgency(int nice, bool idle);
static void must(int error);

int mw_thread_start(struct mw_thread *thread, const struct mw_thread_options *options,
                    void (*fn)(void *arg), void *arg)
{
    const char *name = options->name != NULL ? options->name : mw_thread_kind_name(options->kind);
    size_t name_bytes = strlen(name);
    struct entry *entry;
    int error;

    assert((unsigned)options->kind < MW_THREAD_KINDS);
    if (name_bytes == 0 || name_bytes > NAME_BYTES_MAX)
        return -EINVAL;
    if (options->nice < 0 || options->nice > NICE_MAX)
        return -EINVAL;
    entry = entry_new(options);
    if (entry == NULL)
        return -ENOMEM;
    memcpy(entry->name, name, name_bytes + 1);
    entry->fn = fn;
    entry->arg = arg;

    atomic_fetch_add_explicit(&alive[options->kind], 1, memory_order_relaxed);
    mw_census_starting();
    error = create(&thread->os, options->stack_bytes, entry);
    if (error != 0) {
        mw_census_not_started();
        atomic_fetch_sub_explicit(&alive[options->kind], 1, memory_order_relaxed);
        free(entry);
        return error;
    }
    mw_flow_note(MW_FLOW_THREAD_START, mw_flow_current());
    return 0;
}

void mw_thread_join(struct mw_thread *thread)
{
    must(pthread_join(thread->os, NULL));
}

void mw_thread_adopt(enum mw_thread_kind kind)
{
    assert((unsigned)kind < MW_THREAD_KINDS);
    current_kind = kind;
    mw_census_enter(kind, false);
    if (kind != MW_THREAD_HOST) /* what the host calls its threads is its own affair */
        set_name(kind_names[kind]);
}

enum mw_thread_kind mw_thread_kind_current(void)
{
    return current_kind;
}

const char *mw_thread_kind_name(enum mw_thread_kind kind)
{
    return (unsigned)kind < MW_THREAD_KINDS ? kind_names[kind] : "unknown";
}

unsigned mw_thread_count(enum mw_thread_kind kind)
{
    assert((unsigned)kind < MW_THREAD_KINDS);
    return atomic_load_explicit(&alive[kind], memory_order_relaxed);
}

static struct entry *entry_new(const struct mw_thread_options *options)
{
    struct entry *entry = calloc(1, sizeof *entry);

    if (entry == NULL)
        return NULL;
    entry->kind = options->kind;
    entry->nice = options->nice;
    entry->idle = options->idle;
    return entry;
}

/* The new thread inherits the creator's mask, so the creator blocks all for the moment: no signal
 * can reach the thread before its first instruction. */
static int create(pthread_t *thread, size_t stack_bytes, struct entry *entry)
{
    pthread_attr_t attributes;
    sigset_t before;
    int error = pthread_attr_init(&attributes);

    if (error != 0)
        return -error;
    if (stack_bytes != 0) {
        if (stack_bytes < (size_t)PTHREAD_STACK_MIN)
            stack_bytes = (size_t)PTHREAD_STACK_MIN;
        error = pthread_attr_setstacksize(&attributes, stack_bytes);
    }
    if (error == 0) {
        uint64_t leaf = mw_flow_enter(0); /* our threads flow from nobody */

        block_signals(&before);
        error = pthread_create(thread, &attributes, run_entry, entry);
        must(pthread_sigmask(SIG_SETMASK, &before, NULL));
        mw_flow_enter(leaf);
    }
    must(pthread_attr_destroy(&attributes));
    return -error;
}

static void *run_entry(void *arg)
{
    struct entry entry = *(struct entry *)arg;

    free(arg);
    current_kind = entry.kind;
    mw_census_enter(entry.kind, true);
    set_name(entry.name);
    set_urgency(entry.nice, entry.idle);
    entry.fn(entry.arg);
    mw_census_leave();
    atomic_fetch_sub_explicit(&alive[entry.kind], 1, memory_order_relaxed);
    return NULL;
}

/* All but what a fault of the thread itself raises: with those blocked the kernel kills the process
 * at once, past the host's crash handler. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t blocked;

    must(sigfillset(&blocked));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        must(sigdelset(&blocked, faults[i]));
    must(pthread_sigmask(SIG_SETMASK, &blocked, before));
}

static void set_name(const char *name)
{
    /* a name helps people; a sandbox that forbids it is no reason to stop */
    (void)pthread_setname_np(pthread_self(), name);
}

/* Linux keeps a policy and a nice value per thread, and a new one has its creator's, which may be a
 * lane's. So both are set from what the process's first thread has; but never a real-time policy,
 * which is for threads that were written for it. Where one may not be had, the thread runs anyway.
 */
static void set_urgency(int nice, bool idle)
{
    const struct sched_param none = {0};
    int policy = idle ? SCHED_IDLE : sched_getscheduler(getpid());
    int sum = getpriority(PRIO_PROCESS, (id_t)getpid()) + nice;

    if (policy != SCHED_IDLE && policy != SCHED_BATCH)
        policy = SCHED_OTHER;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), sum < NICE_MAX ? sum : NICE_MAX);
    (void)sched_setscheduler(0, policy, &none); /* 0: this thread */
}

static void must(int error)
{
    assert(error == 0);
    (void)error;
}

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "census.h"
#include "mutex.h"

#define TASKS_MAX   65536u /* above what any sane process has: more end the look with -E2BIG */
#define TRIES_MAX   8u     /* looks in hope of one during which no thread is starting */
#define LEAVERS_MAX 64u    /* how many that end at the same time are remembered */

/* A recorded thread. The record lies in the thread's own storage. */
struct record {
    struct record *next;
    pid_t tid;
    enum mw_thread_kind kind;
    bool listed;
};

/* One that has ended stays in /proc for moments, joined or not. */
struct leaver {
    pid_t tid;      /* 0: free */
    uint64_t order; /* of its leaving, counted from 1 */
};

struct tasks {
    pid_t *tids;
    unsigned count;
    unsigned room;
};

static struct mw_mutex lock = {PTHREAD_MUTEX_INITIALIZER};
static struct record *records MW_GUARDED_BY(lock);
static struct leaver leavers[LEAVERS_MAX] MW_GUARDED_BY(lock);
static uint64_t left MW_GUARDED_BY(lock);

/* Raised by the starter before the thread exists, lowered once it is recorded. A hint for the
 * census, publishing nothing: relaxed order, no partner. */
static _Atomic unsigned starting;

static _Thread_local struct record mine;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t adopted; /* its destructor takes the record of an adopted thread back */
static bool has_adopted;      /* written once, under `once` */

static void set_up(void);
static void fork_prepare(void) MW_ACQUIRE(lock);
static void fork_parent(void) MW_RELEASE(lock);
static void fork_child(void) MW_RELEASE(lock);
static void forget(void *record);
static int tasks_read(struct tasks *tasks);
static int tasks_add(struct tasks *tasks, pid_t tid);
static int take_once(struct mw_census *census);
static void match(const struct tasks *tasks, uint64_t left_before, struct mw_census *census);
static const struct record *find_record(pid_t tid) MW_REQUIRES(lock);
static bool is_leaver(pid_t tid) MW_REQUIRES(lock);
static struct leaver *leaver_slot(void) MW_REQUIRES(lock);
static void leavers_prune(uint64_t left_before) MW_REQUIRES(lock);
static void strangers_name(struct mw_census *census, const pid_t *tids, unsigned count);
static bool name_read(pid_t tid, char *name);
static enum mw_thread_kind kind_of_name(const char *name);

int mw_census_take(struct mw_census *census)
{
    int error = 0;

    for (unsigned i = 0; i < TRIES_MAX; i++) {
        error = take_once(census);
        if (error != 0 || census->starting == 0)
            break;
        sched_yield();
    }
    return error;
}

unsigned mw_census_list(enum mw_thread_kind kind, pid_t *tids, unsigned room)
{
    unsigned count = 0;

    mw_mutex_lock(&lock);
    for (const struct record *record = records; record != NULL; record = record->next) {
        if (record->kind != kind)
            continue;
        if (count < room)
            tids[count] = record->tid;
        count++;
    }
    mw_mutex_unlock(&lock);
    return count;
}

void mw_census_starting(void)
{
    (void)pthread_once(&once, set_up);
    atomic_fetch_add_explicit(&starting, 1, memory_order_relaxed);
}

void mw_census_not_started(void)
{
    atomic_fetch_sub_explicit(&starting, 1, memory_order_relaxed);
}

void mw_census_enter(enum mw_thread_kind kind, bool was_starting)
{
    (void)pthread_once(&once, set_up);
    mw_mutex_lock(&lock);
    mine.kind = kind;
    mine.tid = gettid();
    if (!mine.listed) {
        mine.listed = true;
        mine.next = records;
        records = &mine;
    }
    for (unsigned i = 0; i < LEAVERS_MAX; i++) /* the kernel gives an id again */
        if (leavers[i].tid == mine.tid)
            leavers[i].tid = 0;
    mw_mutex_unlock(&lock);
    if (was_starting)
        atomic_fetch_sub_explicit(&starting, 1, memory_order_relaxed);
    else if (has_adopted) /* without a key the record would outlive its thread; see forget() */
        (void)pthread_setspecific(adopted, &mine);
}

void mw_census_leave(void)
{
    forget(&mine);
}

static void set_up(void)
{
    has_adopted = pthread_key_create(&adopted, forget) == 0;
    /* Without it a child may find the lock taken, but only if it counts or starts threads. */
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void fork_prepare(void)
{
    mw_mutex_lock(&lock);
}

static void fork_parent(void)
{
    mw_mutex_unlock(&lock);
}

/* Only the thread that forked lives on, with another id. */
static void fork_child(void)
{
    records = mine.listed ? &mine : NULL;
    mine.next = NULL;
    mine.tid = gettid();
    memset(leavers, 0, sizeof leavers);
    atomic_store_explicit(&starting, 0, memory_order_relaxed);
    mw_mutex_unlock(&lock);
}

/* Take `record` out, on its own thread. */
static void forget(void *record)
{
    struct record *gone = record;
    struct record **link = &records;

    mw_mutex_lock(&lock);
    if (gone->listed) {
        while (*link != gone)
            link = &(*link)->next;
        *link = gone->next;
        gone->listed = false;
        *leaver_slot() = (struct leaver){gone->tid, left + 1};
        left++;
    }
    mw_mutex_unlock(&lock);
}

/* A thread may begin or end between the look at /proc and the look at the records. One that was
 * recorded meanwhile is found there, one that ended is found among the leavers. */
static int take_once(struct mw_census *census)
{
    struct tasks tasks = {0};
    uint64_t left_before;
    int error;

    memset(census, 0, sizeof *census);
    mw_mutex_lock(&lock);
    left_before = left;
    mw_mutex_unlock(&lock);
    error = tasks_read(&tasks);
    if (error == 0)
        match(&tasks, left_before, census);
    free(tasks.tids);
    return error;
}

static int tasks_read(struct tasks *tasks)
{
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    int error = 0;

    if (directory == NULL)
        return -errno;
    while (error == 0 && (errno = 0, entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            error = tasks_add(tasks, (pid_t)strtol(entry->d_name, NULL, 10));
    if (error == 0)
        error = -errno;
    closedir(directory);
    return error;
}

static int tasks_add(struct tasks *tasks, pid_t tid)
{
    if (tasks->count == TASKS_MAX)
        return -E2BIG;
    if (tasks->count == tasks->room) {
        unsigned room = tasks->room == 0 ? 64 : 2 * tasks->room;
        pid_t *tids = realloc(tasks->tids, room * sizeof *tids);

        if (tids == NULL)
            return -ENOMEM;
        tasks->tids = tids;
        tasks->room = room;
    }
    tasks->tids[tasks->count++] = tid;
    return 0;
}

/* The strangers are moved to the front of the list of tasks, to be named without the lock. */
static void match(const struct tasks *tasks, uint64_t left_before, struct mw_census *census)
{
    unsigned strangers = 0;

    mw_mutex_lock(&lock);
    /* One that was seen in /proc and is not recorded yet has not lowered it: see enter. */
    census->starting = atomic_load_explicit(&starting, memory_order_relaxed);
    leavers_prune(left_before);
    for (unsigned i = 0; i < tasks->count; i++) {
        pid_t tid = tasks->tids[i];
        const struct record *record = find_record(tid);

        if (record != NULL)
            census->threads[record->kind]++;
        else if (is_leaver(tid))
            continue;
        else if (tid == getpid())
            census->threads[MW_THREAD_HOST]++;
        else
            tasks->tids[strangers++] = tid;
        census->tasks++;
    }
    mw_mutex_unlock(&lock);
    strangers_name(census, tasks->tids, strangers);
}

static const struct record *find_record(pid_t tid)
{
    const struct record *record = records;

    while (record != NULL && record->tid != tid)
        record = record->next;
    return record;
}

static bool is_leaver(pid_t tid)
{
    for (unsigned i = 0; i < LEAVERS_MAX; i++)
        if (leavers[i].tid == tid)
            return true;
    return false;
}

/* The oldest slot whose thread is really gone; if all linger, the oldest. */
static struct leaver *leaver_slot(void)
{
    for (unsigned i = 0; i < LEAVERS_MAX; i++) {
        struct leaver *slot = &leavers[(left + i) % LEAVERS_MAX];

        if (slot->tid == 0 || tgkill(getpid(), slot->tid, 0) != 0)
            return slot;
    }
    return &leavers[left % LEAVERS_MAX];
}

/* Forget those that had left before the look at /proc and are really gone. The list of tasks does
 * not tell: reading it may skip a thread while another one ends. */
static void leavers_prune(uint64_t left_before)
{
    for (unsigned i = 0; i < LEAVERS_MAX; i++)
        if (leavers[i].tid != 0 && leavers[i].order <= left_before &&
            tgkill(getpid(), leavers[i].tid, 0) != 0)
            leavers[i].tid = 0;
}

/* One whose name cannot be read has ended meanwhile. */
static void strangers_name(struct mw_census *census, const pid_t *tids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct mw_census_stranger stranger = {.tid = tids[i]};

        if (!name_read(stranger.tid, stranger.name)) {
            census->tasks--;
            continue;
        }
        stranger.heir_of = kind_of_name(stranger.name);
        if (stranger.heir_of != MW_THREAD_HOST)
            census->heirs[stranger.heir_of]++;
        if (census->listed < MW_CENSUS_STRANGERS_MAX)
            census->list[census->listed++] = stranger;
        census->strangers++;
    }
}

/* As `top -H` and `ps -L` read it. */
static bool name_read(pid_t tid, char *name)
{
    char path[64];
    FILE *file;
    bool read;

    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)tid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    read = fgets(name, MW_CENSUS_NAME_BYTES, file) != NULL;
    fclose(file);
    if (read)
        name[strcspn(name, "\n")] = '\0';
    return read;
}

static enum mw_thread_kind kind_of_name(const char *name)
{
    for (int kind = MW_THREAD_HOST + 1; kind < MW_THREAD_KINDS; kind++)
        if (strcmp(name, mw_thread_kind_name((enum mw_thread_kind)kind)) == 0)
            return (enum mw_thread_kind)kind;
    return MW_THREAD_HOST;
}

/* Each process has a clock of its CPU time, found by its id: exact to the nanosecond, where
 * /proc/PID/stat counts in hundredths of a second. The file tells when the process began; it is
 * read after the clock, so a clock whose process is still the same one was that process's clock.
 *
 * To read the file takes longer than all else here, so it is left to the first of the looks that
 * come by the period: a process that is forgotten before one lived too shortly for its id to have
 * been given to another.
 *
 * The lock is not held while the system is asked: a process is copied, looked at, and put back if
 * it is still listed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "usage.h"

#define STAT_BYTES 1024 /* of /proc/PID/stat: numbers and a name of at most 15 bytes */

static int process_open(pid_t pid, bool for_worker, struct mw_usage_process *process);
static bool process_look(struct mw_usage_process *process, uint64_t *used_ns);
static bool process_at(struct mw_usage_table *usage, unsigned index,
                       struct mw_usage_process *process);
static void account(struct mw_usage_table *usage, const struct mw_usage_process *process,
                    bool alive, uint64_t used_ns);
static struct mw_usage_process *find(struct mw_usage_table *usage, pid_t pid)
    MW_REQUIRES(usage->lock);
static int list(struct mw_usage_table *usage, const struct mw_usage_process *process)
    MW_REQUIRES(usage->lock);
static bool clock_look(clockid_t clock, uint64_t *used_ns);
static uint64_t process_began(pid_t pid);

int mw_usage_init(struct mw_usage_table *usage)
{
    usage->count = 0;
    usage->children_ns = 0;
    usage->for_workers_ns = 0;
    return mw_mutex_init(&usage->lock);
}

void mw_usage_fini(struct mw_usage_table *usage)
{
    mw_mutex_fini(&usage->lock);
}

int mw_usage_watch(struct mw_usage_table *usage, pid_t pid, bool for_worker)
{
    struct mw_usage_process process;
    int error = process_open(pid, for_worker, &process);
    bool is_known;

    if (error != 0)
        return error;
    mw_mutex_lock(&usage->lock);
    is_known = find(usage, pid) != NULL;
    mw_mutex_unlock(&usage->lock);
    if (is_known)
        process.began = process_began(pid);
    mw_mutex_lock(&usage->lock);
    error = list(usage, &process);
    mw_mutex_unlock(&usage->lock);
    return error;
}

void mw_usage_forget(struct mw_usage_table *usage, pid_t pid)
{
    struct mw_usage_process process = {0};
    const struct mw_usage_process *found;
    uint64_t used_ns = 0;

    mw_mutex_lock(&usage->lock);
    found = find(usage, pid);
    if (found != NULL)
        process = *found;
    mw_mutex_unlock(&usage->lock);
    if (process.pid == 0)
        return;
    if (process.began != 0 ? process_look(&process, &used_ns) : clock_look(process.clock, &used_ns))
        account(usage, &process, true, used_ns);
    account(usage, &process, false, 0);
}

uint64_t mw_usage_read_ns(struct mw_usage_table *usage, uint64_t *for_workers_ns)
{
    struct mw_usage_process process;
    uint64_t sum_ns, own_ns;

    /* one that takes the place of one forgotten meanwhile may be passed over, until the next time
     */
    for (unsigned i = 0; process_at(usage, i, &process); i++) {
        uint64_t used_ns = 0;
        bool alive = process_look(&process, &used_ns);

        account(usage, &process, alive, used_ns);
    }
    mw_mutex_lock(&usage->lock);
    sum_ns = usage->children_ns;
    if (for_workers_ns != NULL)
        *for_workers_ns = usage->for_workers_ns;
    mw_mutex_unlock(&usage->lock);
    (void)clock_look(CLOCK_PROCESS_CPUTIME_ID, &own_ns);
    return sum_ns + own_ns;
}

unsigned mw_usage_count(struct mw_usage_table *usage)
{
    unsigned count;

    mw_mutex_lock(&usage->lock);
    count = usage->count;
    mw_mutex_unlock(&usage->lock);
    return count;
}

static int process_open(pid_t pid, bool for_worker, struct mw_usage_process *process)
{
    if (pid == getpid())
        return -EINVAL;
    *process = (struct mw_usage_process){.pid = pid, .for_worker = for_worker};
    if (pid <= 0 || clock_getcpuclockid(pid, &process->clock) != 0)
        return -ESRCH;
    return clock_look(process->clock, &process->seen_ns) ? 0 : -ESRCH;
}

/* Returns false when it has ended and was reaped. One that waits to be reaped still tells. */
static bool process_look(struct mw_usage_process *process, uint64_t *used_ns)
{
    bool known = clock_look(process->clock, used_ns);
    uint64_t began = known ? process_began(process->pid) : 0;

    if (process->began == 0)
        process->began = began;
    return known && process->began == began;
}

static bool process_at(struct mw_usage_table *usage, unsigned index,
                       struct mw_usage_process *process)
{
    bool found;

    mw_mutex_lock(&usage->lock);
    found = index < usage->count;
    if (found)
        *process = usage->processes[index];
    mw_mutex_unlock(&usage->lock);
    return found;
}

/* Only what was used since the last look is added: a look that was overtaken adds nothing. */
static void account(struct mw_usage_table *usage, const struct mw_usage_process *process,
                    bool alive, uint64_t used_ns)
{
    struct mw_usage_process *listed;

    mw_mutex_lock(&usage->lock);
    listed = find(usage, process->pid);
    if (listed != NULL && listed->began == 0)
        listed->began = process->began;
    if (listed != NULL && (process->began == 0 || listed->began == process->began)) {
        if (!alive) {
            *listed = usage->processes[--usage->count];
        } else if (used_ns > listed->seen_ns) {
            usage->children_ns += used_ns - listed->seen_ns;
            if (listed->for_worker)
                usage->for_workers_ns += used_ns - listed->seen_ns;
            listed->seen_ns = used_ns;
        }
    }
    mw_mutex_unlock(&usage->lock);
}

static struct mw_usage_process *find(struct mw_usage_table *usage, pid_t pid)
{
    for (unsigned i = 0; i < usage->count; i++)
        if (usage->processes[i].pid == pid)
            return &usage->processes[i];
    return NULL;
}

static int list(struct mw_usage_table *usage, const struct mw_usage_process *process)
{
    struct mw_usage_process *listed = find(usage, process->pid);

    if (listed != NULL) {
        if (listed->began != 0 && listed->began != process->began) /* it has ended unseen */
            *listed = *process;
        return 0;
    }
    if (usage->count == MW_USAGE_PROCESSES_MAX)
        return -ENOSPC;
    usage->processes[usage->count++] = *process;
    return 0;
}

static bool clock_look(clockid_t clock, uint64_t *used_ns)
{
    struct timespec used = {0};
    bool known = clock_gettime(clock, &used) == 0;

    *used_ns = (uint64_t)used.tv_sec * MW_NS_PER_S + (uint64_t)used.tv_nsec;
    return known;
}

/* In clock ticks since the machine's start; 0 when /proc does not show it. The name in front of the
 * numbers is the process's own choice, and may hold brackets and blanks. */
static uint64_t process_began(pid_t pid)
{
    enum { FIELDS_BETWEEN = 19 }; /* from the state, the 3rd, to the 22nd */
    char text[STAT_BYTES];
    char path[64];
    char *field;
    ssize_t bytes;
    int file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    bytes = read(file, text, sizeof text - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
    field = strrchr(text, ')');
    for (int i = 0; field != NULL && i <= FIELDS_BETWEEN; i++)
        field = strchr(field + 1, ' ');
    return field != NULL ? strtoull(field + 1, NULL, 10) : 0;
}

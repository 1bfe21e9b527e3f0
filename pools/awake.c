#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "awake.h"
#include "census.h"
#include "clock.h"

#define FILE_BYTES 1024 /* of stat and schedstat: numbers, and a name of at most 15 bytes */

/* A thread at the first look. */
struct look {
    pid_t tid;
    uint64_t at_ns;
    uint64_t wanted_ns; /* what it has spent on a CPU or queued for one, in all its life */
};

static void pause_ms(unsigned ms);
static bool is_awake(const struct look *first, bool *readable);
static uint64_t wanted_read_ns(pid_t tid);
static char state_read(pid_t tid);
static bool file_read(pid_t tid, const char *name, char *text);

int mw_awake_count(enum mw_thread_kind kind, unsigned *awake)
{
    pid_t *tids = calloc(MW_AWAKE_THREADS_MAX, sizeof *tids);
    struct look *looks = calloc(MW_AWAKE_THREADS_MAX, sizeof *looks);
    unsigned known = 0;
    unsigned total;
    unsigned count;

    if (tids == NULL || looks == NULL) {
        free(tids);
        free(looks);
        return -ENOMEM;
    }
    total = mw_census_list(kind, tids, MW_AWAKE_THREADS_MAX);
    count = total < MW_AWAKE_THREADS_MAX ? total : MW_AWAKE_THREADS_MAX;
    for (unsigned i = 0; i < count; i++)
        looks[i] = (struct look){tids[i], mw_clock_ns(), wanted_read_ns(tids[i])};
    pause_ms(count > 0 ? MW_AWAKE_WINDOW_MS : 0);
    *awake = total - count;
    for (unsigned i = 0; i < count; i++) {
        bool readable = false;

        *awake += is_awake(&looks[i], &readable);
        known += readable;
    }
    free(tids);
    free(looks);
    return count > 0 && known == 0 ? -ENOSYS : 0;
}

/* Its threads have signals blocked, but for a host's own thread a shorter pause does no harm. */
static void pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_nsec = (long)(ms * MW_NS_PER_MS)};

    nanosleep(&pause, NULL);
}

/* Without schedstat what it wanted reads as 0 both times, and the states alone decide. */
static bool is_awake(const struct look *first, bool *readable)
{
    char state = state_read(first->tid);
    uint64_t wanted_ns;

    *readable = state != '\0';
    if (state == '\0') /* it has ended */
        return false;
    if (state == 'R')
        return true;
    wanted_ns = wanted_read_ns(first->tid) - first->wanted_ns;
    return wanted_ns > (mw_clock_ns() - first->at_ns) / 2;
}

static uint64_t wanted_read_ns(pid_t tid)
{
    unsigned long long ran_ns;
    unsigned long long queued_ns;
    char text[FILE_BYTES];

    if (!file_read(tid, "schedstat", text) || sscanf(text, "%llu %llu", &ran_ns, &queued_ns) != 2)
        return 0;
    return ran_ns + queued_ns;
}

/* As in proc(5); the name in front of it may hold brackets and blanks. */
static char state_read(pid_t tid)
{
    char text[FILE_BYTES];
    const char *name_end;

    if (!file_read(tid, "stat", text))
        return '\0';
    name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : '\0';
}

static bool file_read(pid_t tid, const char *name, char *text)
{
    char path[64];
    ssize_t bytes;
    int file;

    snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)tid, name);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bytes = read(file, text, FILE_BYTES - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

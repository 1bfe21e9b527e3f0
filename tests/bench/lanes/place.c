#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static int place_others(const cpu_set_t *cpus, bool one_each);
static cpu_set_t nth_cpu(const cpu_set_t *set, unsigned number);

int place_apart(void)
{
    cpu_set_t others, mine;
    int error;

    if (sched_getaffinity(0, sizeof others, &others) != 0)
        return -errno;
    if (CPU_COUNT(&others) < 2)
        return 0;
    mine = nth_cpu(&others, 0);
    CPU_XOR(&others, &others, &mine);
    error = place_others(&others, false);
    if (error == 0 && sched_setaffinity(0, sizeof mine, &mine) != 0)
        error = -errno;
    return error;
}

int place_evenly(void)
{
    cpu_set_t all;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return -errno;
    return place_others(&all, true);
}

int place_on(unsigned number)
{
    static cpu_set_t all; /* written before there are other threads */
    cpu_set_t mine;

    if (CPU_COUNT(&all) == 0 && sched_getaffinity(0, sizeof all, &all) != 0)
        return -errno;
    mine = nth_cpu(&all, number);
    return sched_setaffinity(0, sizeof mine, &mine) == 0 ? 0 : -errno;
}

/* Each of the process's other threads: on any of these CPUs, or on one, taken in turn. */
static int place_others(const cpu_set_t *cpus, bool one_each)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned count = 0;
    int error = threads == NULL ? -errno : 0;

    while (error == 0 && (entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)atoi(entry->d_name); /* 0: "." and ".." */
        cpu_set_t its = *cpus;

        if (thread == 0 || thread == gettid())
            continue;
        if (one_each)
            its = nth_cpu(cpus, count++);
        if (sched_setaffinity(thread, sizeof its, &its) != 0 && errno != ESRCH) /* has ended */
            error = -errno;
    }
    if (threads != NULL)
        closedir(threads);
    return error;
}

/* Only this CPU of the set; counted round. */
static cpu_set_t nth_cpu(const cpu_set_t *set, unsigned number)
{
    cpu_set_t only;
    int cpu = 0;

    number %= (unsigned)CPU_COUNT(set);
    while (!CPU_ISSET(cpu, set) || number-- > 0)
        cpu++;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    return only;
}

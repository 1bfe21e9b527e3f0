#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int first_cpu(const cpu_set_t *set);

int place_apart(void)
{
    cpu_set_t all, mine;
    const struct dirent *entry;
    DIR *tasks;
    int error = 0;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return -errno;
    if (CPU_COUNT(&all) < 2)
        return 0;
    CPU_ZERO(&mine);
    CPU_SET(first_cpu(&all), &mine);
    CPU_CLR(first_cpu(&all), &all);
    tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return -errno;
    while (error == 0 && (entry = readdir(tasks)) != NULL) {
        pid_t thread = (pid_t)atoi(entry->d_name); /* 0: "." and ".." */

        if (thread > 0 && thread != gettid() && sched_setaffinity(thread, sizeof all, &all) != 0 &&
            errno != ESRCH) /* has just ended */
            error = -errno;
    }
    closedir(tasks);
    if (error == 0 && sched_setaffinity(0, sizeof mine, &mine) != 0)
        error = -errno;
    return error;
}

static int first_cpu(const cpu_set_t *set)
{
    int cpu = 0;

    while (!CPU_ISSET(cpu, set))
        cpu++;
    return cpu;
}

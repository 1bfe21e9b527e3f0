#include "scene.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/cpus.h>

#define LIMIT_PER_CPU 4u

static double read_figure(const char *path, const char *name);

struct scene scene;

unsigned scene_limit(void)
{
    return LIMIT_PER_CPU * mw_cpus_effective();
}

int scene_open(const struct scene_options *options)
{
    unsigned most = MW_MONITOR_THREADS_PER_CPU * mw_cpus_effective();
    struct mw_pool_options sizes = {.min_threads = options->min_threads,
                                    .max_threads = options->max_threads};
    int error;

    if (sizes.max_threads == 0)
        sizes.max_threads = most < SCENE_THREADS_MAX ? most : SCENE_THREADS_MAX;
    error = mw_pool_new(&scene.pool, &sizes);
    if (error == 0 && options->monitored) {
        struct mw_monitor_options monitor = {.pool = scene.pool,
                                             .parallel_limit = options->parallel_limit};

        if (monitor.parallel_limit == 0)
            monitor.parallel_limit = scene_limit();
        error = mw_monitor_new(&scene.monitor, &monitor);
    }
    return error;
}

void scene_submit(struct mw_pool_item *item)
{
    int error = mw_pool_submit(scene.pool, item);

    if (error != 0)
        _exit(-error); /* child.c tells of it */
}

unsigned scene_threads(void)
{
    struct mw_pool_stats stats;

    mw_pool_snapshot(scene.pool, &stats);
    return stats.threads;
}

struct scene_use scene_use(void)
{
    struct timespec cpu;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (struct scene_use){
        .wall_ns = mw_clock_ns(),
        .cpu_ns = (uint64_t)cpu.tv_sec * MW_NS_PER_S + (uint64_t)cpu.tv_nsec,
    };
}

double scene_ms(uint64_t ns)
{
    return (double)ns / (double)MW_NS_PER_MS;
}

void scene_sleep_ms(double ms)
{
    scene_sleep_until(mw_clock_ns() + (uint64_t)(ms * (double)MW_NS_PER_MS));
}

void scene_sleep_until(uint64_t ns)
{
    struct timespec when = {.tv_sec = (time_t)(ns / MW_NS_PER_S),
                            .tv_nsec = (long)(ns % MW_NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

/* Exact, where VmRSS lags behind by some pages for each CPU. */
double scene_resident_kib(void)
{
    return read_figure("/proc/self/smaps_rollup", "Rss:");
}

double scene_reserved_kib(void)
{
    return read_figure("/proc/self/status", "VmSize:");
}

double scene_process_threads(void)
{
    return read_figure("/proc/self/status", "Threads:");
}

static double read_figure(const char *path, const char *name)
{
    char line[256];
    double figure = NAN;
    FILE *file = fopen(path, "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) {
            figure = strtod(line + strlen(name), NULL);
            break;
        }
    if (file != NULL)
        fclose(file);
    return figure;
}

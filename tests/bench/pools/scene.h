/* scene.h - the pool of one measurement, perhaps with the monitor, and what it costs.
 *
 * Ownership:  one scene at a time in a process; what still runs ends with the process.
 * Threads:    scene_submit from any thread; the rest on the main thread. */
#ifndef BENCH_POOLS_SCENE_H
#define BENCH_POOLS_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include <millwright/monitor.h>
#include <millwright/pool.h>

#define SCENE_THREADS_MAX 640u

struct scene_options {
    unsigned min_threads; /* 0: the pool's default, one for each CPU */
    unsigned max_threads; /* 0: MW_MONITOR_THREADS_PER_CPU for each CPU */
    bool monitored;
    unsigned parallel_limit; /* the monitor's; 0: scene_limit() */
};

struct scene {
    struct mw_pool *pool;
    struct mw_monitor *monitor; /* NULL: none */
};

/* What has been used so far. */
struct scene_use {
    uint64_t wall_ns;
    uint64_t cpu_ns; /* of all threads of this process */
};

extern struct scene scene;

/* How many items the loads have under way at once: four for each CPU, seed 000's parallel limit. */
unsigned scene_limit(void);

/* Returns 0 or a negative errno. */
int scene_open(const struct scene_options *options);

/* Ends the process when the pool refuses. */
void scene_submit(struct mw_pool_item *item);

/* Threads of the pool now. None leaves before a measurement ends: it is also the peak. */
unsigned scene_threads(void);

struct scene_use scene_use(void);
double scene_ms(uint64_t ns);
void scene_sleep_ms(double ms);
void scene_sleep_until(uint64_t ns); /* on mw_clock_ns */

/* Of this process, from /proc; in KiB, or how many. NAN when it cannot be read. */
double scene_resident_kib(void);
double scene_reserved_kib(void);
double scene_process_threads(void);

#endif

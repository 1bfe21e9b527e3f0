/* scenarios.h - what is measured: one function for each kind, the same for every pool.
 *
 * Each runs in a process of its own, opens one pool, has all its threads run once, puts
 * them on the CPUs in turn, measures for a little while, and gives medians over that while. Times
 * are in nanoseconds.
 *
 * A floor is what this machine would need for the like of it without any pool.
 *
 * Threads: the process's only one when it begins. */
#ifndef BENCH_SCENARIOS_H
#define BENCH_SCENARIOS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "bench.h"
#include "peers.h"

struct scene {
    const struct peer *peer; /* NULL for a floor */
    unsigned threads;
    unsigned producers;
    unsigned cpus;
    uint64_t work_loops; /* what takes SCENARIO_WORK_NS; see work.h */
    bool quick;          /* a quarter of the time */
};

typedef int scenario_fn(const struct scene *scene, double values[BENCH_VALUES_MAX]);

#define SCENARIO_BURST   10000u
#define SCENARIO_JOBS    1000u /* of scenario_work */
#define SCENARIO_WORK_NS 20000u

/* How often a scenario and its floor do it, when they are not in a hurry. */
#define SCENARIO_SERIAL_TRIPS 1000u
#define SCENARIO_PARKED_TRIPS 150u
#define SCENARIO_HOT_TRIPS    4000u
#define SCENARIO_WORK_REPEATS 5u
#define SCENARIO_PARK_NS      UINT64_C(400000) /* in which a thread surely falls asleep */

/* values: wall time and CPU time for each empty task */
scenario_fn scenario_throughput; /* the queue always full */
scenario_fn scenario_push_heavy; /* at most two tasks out: nearly each submit finds an idle pool */
/* values: wall time */
scenario_fn scenario_burst;     /* of SCENARIO_BURST tasks into a pool that sleeps */
scenario_fn scenario_submit;    /* of one submit while all threads are inside tasks */
scenario_fn scenario_ramp_cold; /* until as many blocked tasks as threads run; from no thread */
scenario_fn scenario_ramp_warm; /* the same; the threads exist and sleep */
scenario_fn scenario_work;      /* SCENARIO_JOBS tasks that compute */
/* values: p50 and p99 of one task's way there and back; the submitter has a CPU of its own */
scenario_fn scenario_serial; /* one after the other */
scenario_fn scenario_parked; /* after a pause in which the pool falls asleep */
scenario_fn scenario_hot;    /* nobody sleeps: the submitter spins, and a pool that can does */

scenario_fn floor_mutex;     /* lock and unlock */
scenario_fn floor_ping_pong; /* two threads and two futexes: p50 and p99 */
scenario_fn floor_ping_pong_parked;
scenario_fn floor_ping_pong_hot; /* without a futex */
scenario_fn floor_work;          /* scenario_work in equal parts, one thread for each CPU */

static inline unsigned scene_scaled(const struct scene *scene, unsigned count)
{
    return scene->quick ? (count + 3) / 4 : count;
}

static inline void scene_pause(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

#endif

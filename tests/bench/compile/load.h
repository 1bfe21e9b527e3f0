/* load.h - many compiles at once: what a second thread of the lane brings, and what a full queue
 * takes of memory.
 *
 * Threads: the main thread only; it starts one for each client.
 * Bounds:  LOAD_CLIENTS_MAX. */
#ifndef BENCH_COMPILE_LOAD_H
#define BENCH_COMPILE_LOAD_H

#include "plan.h"
#include "site.h"

#define LOAD_CLIENTS_MAX 64u
#define LOAD_THREADS_MAX 2u /* of the lane */
#define LOAD_BATCHES     3u

/* A batch of compiles: by the service, with as many threads of the lane as the index says, and one
 * more; and by as many processes of clang at once, which shows what the machine itself gives. */
enum { LOAD_SERVICE, LOAD_CLANG, LOAD_WAYS };
struct throughput {
    const char *name; /* NULL: not measured */
    unsigned compiles;
    unsigned runs; /* the medians of so many batches */
    double ms[LOAD_WAYS][LOAD_THREADS_MAX];
};
#define LOAD_SCALE_GOAL 1.8

/* The most that was seen while so many compiles were asked for at once. */
struct load_memory {
    unsigned at_once;
    struct site_memory most;
    double worker_peak_bytes; /* of one, resident, by the kernel's word */
    double ms;
};
enum { LOAD_IDLE, LOAD_CAP, LOAD_QUEUED, LOAD_LEVELS };

/* Both return 0 or a negative errno, and said why. */
int load_throughput(const struct plan *plan, struct throughput results[LOAD_BATCHES]);
int load_memory(const struct plan *plan, struct load_memory results[LOAD_LEVELS]);

#endif

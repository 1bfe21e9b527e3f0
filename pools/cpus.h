/* cpus.h - how many CPUs this process can really use.
 *
 * Threads: any thread; reads small files of /proc and /sys, so it may block for moments. */
#ifndef MILLWRIGHT_CPUS_H
#define MILLWRIGHT_CPUS_H

#include <stdint.h>

struct mw_cpus {
    double fraction;    /* min(CPU affinity, cgroup quota), not rounded; more than 0 */
    uint64_t throttled; /* how often its cgroups were held up so far, for having used their quota */
};

/* min(CPU affinity, cgroup quota rounded up), for cgroup v1 and v2 and every ancestor that this
 * process can see; at least 1. Read anew at each call.
 * Runs on: any thread. */
unsigned mw_cpus_effective(void);

/* The same, not rounded: half a CPU is 0.5. For those who compare with CPU time that was used.
 * Runs on: any thread. */
double mw_cpus_fraction(void);

/* That, and the count of throttlings, in one look. Runs on: any thread. */
void mw_cpus_read(struct mw_cpus *cpus);

#endif

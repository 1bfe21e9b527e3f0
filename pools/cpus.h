/* cpus.h - how many CPUs this process can really use.
 *
 * Threads: any thread; reads small files of /proc and /sys, so it may block for moments. */
#ifndef MILLWRIGHT_CPUS_H
#define MILLWRIGHT_CPUS_H

/* min(CPU affinity, cgroup quota rounded up), for cgroup v1 and v2 and every ancestor that this
 * process can see; at least 1. Read anew at each call.
 * Runs on: any thread. */
unsigned mw_cpus_effective(void);

#endif

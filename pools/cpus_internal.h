/* cpus_internal.h - the reading behind cpus.h, apart from this machine's own files.
 *
 * Threads: any thread; reads small files, so it may block for moments.
 * Bounds:  CGROUP_DEPTH_MAX levels of each cgroup, see cpus.c. */
#ifndef MILLWRIGHT_CPUS_INTERNAL_H
#define MILLWRIGHT_CPUS_INTERNAL_H

#include "cpus.h"

/* What mw_cpus_read reads, for the system whose files lie under `root`:
 * root/proc/self/{cgroup,mountinfo}, and each mount point that they name, under root too. "" is
 * this system. An affinity of 0 counts as 1. What cannot be read sets no limit. */
void mw_cpus_read_at(const char *root, unsigned affinity, struct mw_cpus *cpus);

/* The same as a count: rounded up, at least 1. */
unsigned mw_cpus_effective_at(const char *root, unsigned affinity);

#endif

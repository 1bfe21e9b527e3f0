/* cpus_internal.h - the reading behind cpus.h, apart from this machine's own files.
 *
 * Threads: any thread; reads small files, so it may block for moments.
 * Bounds:  CGROUP_DEPTH_MAX levels of each cgroup, see cpus.c. */
#ifndef MILLWRIGHT_CPUS_INTERNAL_H
#define MILLWRIGHT_CPUS_INTERNAL_H

/* min(affinity, quota rounded up), at least 1, for the system whose files lie under `root`:
 * root/proc/self/{cgroup,mountinfo}, and each mount point that they name, under root too. "" is
 * this system. What cannot be read sets no limit. */
unsigned mw_cpus_effective_at(const char *root, unsigned affinity);

#endif

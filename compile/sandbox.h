/* sandbox.h - what a compile worker may not do, kept by the kernel. Private to compile/.
 *
 * Guards: landlock (of the file system only the named directories, read-only), seccomp (a list of
 * system calls; any other kills), resource limits, no new privileges, no network, an empty
 * environment. They add up; each holds without the others.
 *
 * Threads:  mw_sandbox_enter changes the calling process, which has one thread, for good. */
#ifndef MW_COMPILE_SANDBOX_H
#define MW_COMPILE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a set of guards. */
#define MW_GUARD_LANDLOCK (1u << 0)
#define MW_GUARD_SECCOMP  (1u << 1)
#define MW_GUARD_LIMITS   (1u << 2)
#define MW_GUARD_PIDFD    (1u << 3) /* used by the host side, not by enter */
#define MW_GUARDS_ALL     0xFu

struct mw_sandbox {
    const char *const *readable_dirs;
    size_t readable_count;
    uint64_t data_bytes;  /* RLIMIT_DATA */
    uint64_t cpu_s;       /* RLIMIT_CPU, rounded up; a second line behind the driver's own clock */
    uint64_t file_bytes;  /* RLIMIT_FSIZE */
    unsigned descriptors; /* RLIMIT_NOFILE */
    unsigned guards;      /* which to use; tests leave one out to see that it is needed */
};

/* Which guards this kernel gives. `landlock_abi` (may be NULL) gets its version, 0: none.
 * Does not block. */
unsigned mw_sandbox_available(int *landlock_abi);

/* Enter. Returns 0, or a negative errno: then some guards may be on, and the caller must end. */
int mw_sandbox_enter(const struct mw_sandbox *sandbox);

#endif

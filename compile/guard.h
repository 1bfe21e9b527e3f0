/* guard.h - what can be done for a host that compiles its own source in its own process: where a
 * compile goes wrong, the compile fails and the host lives, as far as that goes. What it cannot do
 * stands in docs/security.md; for a stranger's source there is isolate.h.
 *
 * Ownership:  a guard is a thread's, from enter to leave.
 * Threads:    see each. */
#ifndef MILLWRIGHT_GUARD_H
#define MILLWRIGHT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#define MW_GUARD_STACK_BYTES_MIN      (UINT64_C(64) << 20)
#define MW_GUARD_LEAKED_BYTES_ADVISED (UINT64_C(256) << 20)

struct mw_guard_stats {
    bool crash_recovery;
    uint64_t recovered;    /* compiles that ended in a crash and were recovered from */
    uint64_t leaked_bytes; /* heap that those, and what broke down otherwise, left behind: the
                              growth of the process's heap meanwhile, so at best an upper bound */
    bool restart_advised;  /* it is time to drain and start a new process: after the first crash,
                              or MW_GUARD_LEAKED_BYTES_ADVISED */
};

/* Turn crash recovery on for the process: it replaces the handlers of SIGSEGV, SIGBUS, SIGABRT,
 * SIGFPE, SIGILL and SIGTRAP, and std::new_handler. Of what happens outside of a compile the
 * earlier ones hear; the first such fault turns recovery off. Opt-in. A compile that crashes then
 * fails with a diagnostic that says so; one that finds no memory returns -ENOMEM.
 * Returns 0 or -EBUSY (already on). After mw_compile_init, before any lane exists. */
int mw_guard_recover_crashes(void);

/* Prepare the calling thread for compiles: an alternate signal stack (the host's own, if it has
 * one), and clang told how much stack there is, so that it starts no thread of its own. Before the
 * thread's first compile; what clang was told cannot be taken back. Returns 0, also when called
 * again, -ENOMEM, or -ENOSPC (the thread has less than MW_GUARD_STACK_BYTES_MIN of stack).
 * mw_guard_leave before the thread ends. After mw_compile_init. Does not block. */
int mw_guard_enter(void);
void mw_guard_leave(void);

/* Runs on: any thread. Does not block. */
void mw_guard_snapshot(struct mw_guard_stats *stats);

#endif

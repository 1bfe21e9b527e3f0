/* awake.h - how many threads of a kind want a CPU, as against asleep in a call.
 *
 * It looks twice, MW_AWAKE_WINDOW_MS apart. A thread was asleep when it is not runnable at the
 * second look and spent most of the time between on no CPU and in no queue for one. So one that
 * waits for a CPU which others use is awake, and so is one that sleeps for moments, on a lock say.
 *
 * Threads: any; it sleeps between the looks.
 * Bounds:  MW_AWAKE_THREADS_MAX threads are looked at; the rest count as awake. */
#ifndef MW_POOLS_AWAKE_H
#define MW_POOLS_AWAKE_H

#include "thread.h"

#define MW_AWAKE_WINDOW_MS   10u
#define MW_AWAKE_THREADS_MAX 1024u

/* Returns 0, -ENOMEM, or -ENOSYS when the system does not tell the states of threads. */
int mw_awake_count(enum mw_thread_kind kind, unsigned *awake);

#endif

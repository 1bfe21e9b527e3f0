/* process.h - tells a forked child from the process that made a thing.
 *
 * Threads do not survive a fork, and a lock that one of them held stays locked for ever. So what
 * owns threads keeps the generation that it was made in, and refuses to be used in another.
 *
 * Threads: any; nothing here blocks. */
#ifndef MILLWRIGHT_PROCESS_H
#define MILLWRIGHT_PROCESS_H

#include <stdatomic.h>

/* Private: read it by mw_process_generation. */
extern _Atomic unsigned mw_process_forks;

/* Count the forks from now on. Returns 0 or -ENOMEM; calls after the first say the same. */
int mw_process_watch(void);

/* How many forks lie between the first process and this one. Costs a load, so that it can stand at
 * the entry of every function. */
static inline unsigned mw_process_generation(void)
{
    /* relaxed, no partner: written only in a child that has one thread yet */
    return atomic_load_explicit(&mw_process_forks, memory_order_relaxed);
}

#endif

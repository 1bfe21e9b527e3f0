/* timers.h - Task.Delay's counterpart: an item that is queued to the pool when its timer is due, by
 * a thread that does nothing else.
 *
 * Ownership:  a timer is the caller's, from timers_add until its item is called.
 * Threads:    any.
 * Bounds:     all timers of a process have the same delay, so that they are due in their order. */
#ifndef BENCH_POOLS_TIMERS_H
#define BENCH_POOLS_TIMERS_H

#include <stdint.h>

#include <millwright/pool.h>

struct timer {
    struct mw_pool_item item; /* item.fn is set by the caller */
    uint64_t due_ns;
    struct timer *next; /* private */
};

/* Returns 0 or a negative errno. The thread ends with the process. */
int timers_start(unsigned delay_ms);

void timers_add(struct timer *timer);

#endif

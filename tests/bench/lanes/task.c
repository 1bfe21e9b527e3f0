#include "task.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>

#include <millwright/futex.h>

#define SPINS_PER_YIELD 4096u

static bool waiter_spins; /* published by the submit */

/* The last task's fetch_sub acquires what the others released, and its store to `over` releases
 * all of it to the waiter's load. */
static _Atomic unsigned left;
static _Atomic uint32_t over;

void batch_begin(unsigned count, bool spins)
{
    waiter_spins = spins;
    atomic_store_explicit(&over, 0, memory_order_relaxed); /* published by the submit */
    atomic_store_explicit(&left, count, memory_order_relaxed);
}

void batch_wait(void)
{
    unsigned spins = 0;

    while (atomic_load_explicit(&over, memory_order_acquire) == 0)
        if (!waiter_spins)
            mw_futex_wait(&over, 0, UINT64_MAX);
        else if (++spins % SPINS_PER_YIELD == 0)
            sched_yield(); /* the CPU may be the one that the task needs */
        else
            mw_cpu_relax();
}

unsigned batch_left(void)
{
    return atomic_load_explicit(&left, memory_order_acquire); /* partner: task_end */
}

void task_end(void)
{
    bool sleeps = !waiter_spins; /* once it is over, the waiter may begin another batch */

    if (atomic_fetch_sub_explicit(&left, 1, memory_order_acq_rel) != 1)
        return;
    atomic_store_explicit(&over, 1, memory_order_release);
    if (sleeps)
        mw_futex_wake(&over, INT_MAX);
}

void task_run(struct task *task)
{
    task_work(task);
    task_end();
}

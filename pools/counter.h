/* counter.h - a number that one thread at a time raises and any thread reads: cheaper than an
 * atomic addition, which locks the bus for the sake of other writers.
 *
 * Threads:    one writer at a time, whoever that is; readers at any time. Nothing blocks.
 * Orders:     relaxed, no partner: a reader learns the number, and nothing that happened before. */
#ifndef MILLWRIGHT_COUNTER_H
#define MILLWRIGHT_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

static inline void mw_counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + n, memory_order_relaxed);
}

#endif

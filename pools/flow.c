#include <stdatomic.h>

#include "flow.h"

/* Plain counters and ids: each is read and written alone, nothing is published through them, so
 * relaxed order is enough and there is no partner. */
static _Atomic uint64_t newest_id;
static _Atomic uint64_t escapes;
static _Atomic uint64_t escaped_leaf;

static _Thread_local uint64_t current;

uint64_t mw_flow_current(void)
{
    return current;
}

uint64_t mw_flow_next(void)
{
    return atomic_fetch_add_explicit(&newest_id, 1, memory_order_relaxed) + 1;
}

uint64_t mw_flow_enter(uint64_t leaf)
{
    uint64_t before = current;

    current = leaf;
    return before;
}

void mw_flow_arrive(uint64_t leaf)
{
    if (leaf == 0)
        return;
    atomic_store_explicit(&escaped_leaf, leaf, memory_order_relaxed);
    atomic_fetch_add_explicit(&escapes, 1, memory_order_relaxed);
}

uint64_t mw_flow_escapes(void)
{
    return atomic_load_explicit(&escapes, memory_order_relaxed);
}

uint64_t mw_flow_escaped_leaf(void)
{
    return atomic_load_explicit(&escaped_leaf, memory_order_relaxed);
}

#include <assert.h>
#include <stdatomic.h>

#include "flow.h"
#include "thread.h"

/* Plain counters and ids: each is read and written alone, nothing is published through them, so
 * relaxed order is enough and there is no partner. */
static _Atomic uint64_t newest_id;
static _Atomic uint64_t counts[MW_FLOW_EVENTS];
static _Atomic uint64_t newest_leaf[MW_FLOW_EVENTS];

/* Each thread takes ids by the block, so that threads do not contend for them. */
#define BLOCK 64

_Thread_local uint64_t mw_flow_own MW_THREAD_LOCAL_NEAR; /* the calling thread's current leaf */

static _Thread_local uint64_t next_id MW_THREAD_LOCAL_NEAR;
static _Thread_local unsigned ids_left MW_THREAD_LOCAL_NEAR;

uint64_t mw_flow_next(void)
{
    if (ids_left == 0) {
        next_id = atomic_fetch_add_explicit(&newest_id, BLOCK, memory_order_relaxed) + 1;
        ids_left = BLOCK;
    }
    ids_left--;
    return next_id++;
}

void mw_flow_note(enum mw_flow_event event, uint64_t leaf)
{
    assert((unsigned)event < MW_FLOW_EVENTS);
    if (leaf == 0)
        return;
    atomic_store_explicit(&newest_leaf[event], leaf, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[event], 1, memory_order_relaxed);
}

uint64_t mw_flow_count(enum mw_flow_event event)
{
    assert((unsigned)event < MW_FLOW_EVENTS);
    return atomic_load_explicit(&counts[event], memory_order_relaxed);
}

uint64_t mw_flow_newest_leaf(enum mw_flow_event event)
{
    assert((unsigned)event < MW_FLOW_EVENTS);
    return atomic_load_explicit(&newest_leaf[event], memory_order_relaxed);
}

void mw_flow_arrive(uint64_t leaf)
{
    mw_flow_note(MW_FLOW_ESCAPE, leaf);
}

uint64_t mw_flow_escapes(void)
{
    return mw_flow_count(MW_FLOW_ESCAPE);
}

uint64_t mw_flow_escaped_leaf(void)
{
    return mw_flow_newest_leaf(MW_FLOW_ESCAPE);
}

/* flow.h - follows work that flows from a leaf, so that a leaf which fans out is caught.
 *
 * A leaf that runs on a lane has an id, kept per thread while it runs. Whatever is submitted to
 * the shared pool meanwhile carries that id along, and the worker that starts it counts one
 * *escape*: work that began under a leaf and ended on a pool worker. This is the count that seed
 * 002 takes with an AsyncLocal change handler. For CPU leaves it must stay 0. Threads that are
 * started under a leaf are counted in the same way.
 *
 * Ownership:  ids are plain numbers, never reused in a process.
 * Threads:    any thread; nothing here blocks. */
#ifndef MILLWRIGHT_FLOW_H
#define MILLWRIGHT_FLOW_H

#include <stdint.h>

#include <millwright/thread.h>

/* What can flow out of a leaf. */
enum mw_flow_event {
    MW_FLOW_ESCAPE = 0,    /* an item that carried its id was started on a pool worker */
    MW_FLOW_THREAD_START,  /* it, or what flowed from it, started a thread of ours */
    MW_FLOW_FOREIGN_START, /* the same, past us: only with libmillwright-audit loaded, audit.h */
    MW_FLOW_EVENTS         /* how many there are */
};

/* The leaf that runs on the calling thread (or from which the running pool item came); 0: none. */
static inline uint64_t mw_flow_current(void);

/* A new id, for a leaf about to start. */
uint64_t mw_flow_next(void);

/* Make `leaf` the calling thread's current one; returns the one before, to be put back after. */
static inline uint64_t mw_flow_enter(uint64_t leaf);

/* Count one event of `leaf`; none when `leaf` is 0. */
void mw_flow_note(enum mw_flow_event event, uint64_t leaf);

/* How many events of this kind there were in the whole process, and the leaf of the newest (0:
 * there was none). */
uint64_t mw_flow_count(enum mw_flow_event event);
uint64_t mw_flow_newest_leaf(enum mw_flow_event event);

/* Called by whoever starts an item on a pool worker: counts an escape when `leaf` is not 0. */
void mw_flow_arrive(uint64_t leaf);

/* How many items that carried a leaf's id were started on pool workers, in the whole process. */
uint64_t mw_flow_escapes(void);

/* The leaf of the newest escape; 0 when there was none. */
uint64_t mw_flow_escaped_leaf(void);

/* ---- the inside of mw_flow_current and mw_flow_enter ---- */

extern _Thread_local uint64_t mw_flow_own MW_THREAD_LOCAL_NEAR;

static inline uint64_t mw_flow_current(void)
{
    return mw_flow_own;
}

static inline uint64_t mw_flow_enter(uint64_t leaf)
{
    uint64_t before = mw_flow_own;

    mw_flow_own = leaf;
    return before;
}

#endif

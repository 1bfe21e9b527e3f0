/* flow.h - follows work that flows from a leaf, so that a leaf which fans out is caught.
 *
 * A leaf that runs on a lane has an id, kept per thread while it runs. Whatever is submitted to
 * the shared pool meanwhile carries that id along, and the worker that starts it counts one
 * *escape*: work that began under a leaf and ended on a pool worker. This is the count that seed
 * 002 takes with an AsyncLocal change handler. For CPU leaves it must stay 0.
 *
 * Ownership:  ids are plain numbers, never reused in a process.
 * Threads:    any thread; nothing here blocks. */
#ifndef MILLWRIGHT_FLOW_H
#define MILLWRIGHT_FLOW_H

#include <stdint.h>

/* The leaf that runs on the calling thread (or from which the running pool item came); 0: none. */
uint64_t mw_flow_current(void);

/* A new id, for a leaf about to start. */
uint64_t mw_flow_next(void);

/* Make `leaf` the calling thread's current one; returns the one before, to be put back after. */
uint64_t mw_flow_enter(uint64_t leaf);

/* Called by whoever starts an item on a pool worker: counts an escape when `leaf` is not 0. */
void mw_flow_arrive(uint64_t leaf);

/* How many items that carried a leaf's id were started on pool workers, in the whole process. */
uint64_t mw_flow_escapes(void);

/* The leaf of the newest escape; 0 when there was none. */
uint64_t mw_flow_escaped_leaf(void);

#endif

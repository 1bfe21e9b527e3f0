/* pipeline.h - the way of a compile: IO prefix, store, one CPU leaf, IO suffix, answer.
 *
 *   files lane   parse, check, content key            (prefix)
 *   store lane   look the key up, then the manifests: a hit goes straight to the answer, no CPU
 *                admission is spent
 *   CPU lane     one leaf, compute only               (one per key, however many ask: a *flight*)
 *   store lane   keep artifact, manifest, sources     (suffix)
 *   files lane   make the answer's JSON
 *
 * Theory: a *ticket* is one client's request; a *flight* is the work for one content key under the
 * same limits. Tickets board a flight and hold a reference to it. A ticket that leaves (its time is
 * up, its client hung up) drops its reference; when the last one leaves, what the flight still has
 * queued is cancelled. What already runs in this process finishes and is kept, because somebody may
 * ask again; an isolated leaf is ended, for it holds a place that others wait for.
 *
 * Invariants:
 *  1. A flight is found by its key and limits from its birth until its result is complete, never
 *     after.
 *  2. A flight has at most one step out; it is freed when no step is out and no ticket is aboard.
 *  3. A ticket is answered at most once, and exactly once unless it is abandoned.
 *  4. Everything here runs on the loop's thread but the work_* functions, which touch only what
 *     their step lends them; nobody else touches that until the step is back.
 *
 * Ownership:  a ticket belongs to the pipeline from submit until its answer or mw_ticket_abandon.
 * Bounds:     as many tickets as connections; the lanes' queues refuse with 503. */
#ifndef MW_SERVICE_PIPELINE_H
#define MW_SERVICE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <millwright/emit.h>
#include <millwright/lane_uv.h>
#include <millwright/store.h>
#include <millwright/toolchain.h>

#include "leaf.h"
#include "problem.h"

struct mw_pipeline;
struct mw_preamble_maker;
struct mw_preambles;
struct mw_shared_pool;
struct mw_ticket;

/* What the pipeline works with; all of it outlives the pipeline. */
struct mw_pipeline_parts {
    uv_loop_t *loop;
    struct mw_lane_uv *adapter;  /* brings steps back to the loop */
    struct mw_leaf_place place;  /* where leaves run; its toolchain is the one for all */
    const char *pkg_config_path; /* as in packages.h; NULL: the system's only */
    struct mw_store *store;
    bool manifests;                 /* look artifacts up by manifests too, and keep those */
    bool debug_sources;             /* keep the sources of debug information */
    struct mw_preambles *preambles; /* NULL: none are used */
    struct mw_preamble_maker *preamble_maker;
    struct mw_shared_pool *shared; /* for what time-out answers tell of it */
    struct mw_lane *files;         /* IO pool: parsing, keys, answers */
    struct mw_lane *store_io;      /* IO pool: the store */
    struct mw_lane *cpu;           /* the CPU lane */
    uint32_t timeout_ms_max; /* a request may ask for at most this; 0: MW_RUN_TIMEOUT_MS_MAX */
};

/* The answer to a ticket: the body is malloc'ed and goes to the receiver. */
struct mw_answer {
    unsigned status;
    char *body;
    size_t body_bytes;
    unsigned retry_after_s; /* 0: no such header */
};

/* Counters since start; written and read on the loop's thread. */
struct mw_pipeline_stats {
    uint64_t direct_hits; /* those of `hits` that a manifest found */
    uint64_t requests, hits, compiled, failed, joined, timeouts, abandoned, refused, store_errors;
    unsigned flights; /* now */
    unsigned tickets; /* now */
};

/* Returns 0 or -ENOMEM. Runs on: the loop's thread, as all below. */
int mw_pipeline_new(struct mw_pipeline **out, const struct mw_pipeline_parts *parts);

/* Nothing may be in the pipeline any more. NULL is fine. */
void mw_pipeline_free(struct mw_pipeline *pipeline);

/* Start the way of `body` (taken over, also on failure). `answered` is called once, later, never
 * from inside this call. Returns 0 with *out set, or -ENOMEM or what a full lane returns; `problem`
 * is filled then. Does not block. */
int mw_pipeline_submit(struct mw_pipeline *pipeline, char *body, size_t body_bytes,
                       bool include_artifact,
                       void (*answered)(void *user, const struct mw_answer *answer), void *user,
                       struct mw_ticket **out, struct mw_problem *problem);

/* The client is gone: `answered` will not be called. Once, and only before it was. */
void mw_ticket_abandon(struct mw_ticket *ticket);

const struct mw_pipeline_stats *mw_pipeline_stats(const struct mw_pipeline *pipeline);

#endif

/* peers.h - the lane and the pools that it is measured against, behind one small interface.
 *
 * A measurement has a process of its own (child.h), so a pool is that process's only one: it is
 * opened once and never closed, and its threads end with the process.
 *
 * Threads:    open and settle as each says; submit on the thread of its producer.
 * Bounds:     PEER_PRODUCERS_MAX producers. */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

#include "task.h"

#define PEER_PRODUCERS_MAX 4u
#define PEER_TASKS_MAX     20000u /* that wait or run at once */

enum { PEER_LANE, PEER_UV, PEER_GLIB, PEER_TBB, PEER_APR, PEER_COUNT };

struct peer_options {
    unsigned threads;
    unsigned producers;
    bool spin; /* the lane's opt-in; the others have no such option */
};

struct peer {
    const char *name;
    const char *package;                             /* Debian's, that it comes from */
    int (*open)(const struct peer_options *options); /* NULL: was not there at build time */
    int (*submit)(unsigned producer, struct task *task);
    /* After a batch: what must be done before its tasks can be used again. Runs on: the thread of
     * that producer. NULL: nothing. */
    int (*settle)(unsigned producer);
};

extern const struct peer peers[PEER_COUNT];

#endif

/* audit.h - does work stay where it belongs? What a process can ask, and what a leaf can assert.
 *
 * The audit gathers four looks at the same promise, that CPU leaves run on a lane's own threads and
 * nothing of them gets onto a pool worker:
 *
 *   expectations  a leaf says on what kind of thread it should run: mw_audit_expect
 *   strayed       leaves of the registry's lanes that compute, and ran elsewhere: registry.h
 *   flow          items and threads that came from under a leaf: flow.h
 *   census        threads by recorded kind, and those of no kind of ours: census.h
 *
 * Threads that a leaf starts through Millwright are always counted. A pthread_create of the leaf's
 * own, or of a library that it calls, a library cannot see; there are two ways to catch it:
 *
 *   1. Always, at no cost, while such a thread lives: it inherits the name of the thread that
 *      started it, so it shows in the census as an heir of that kind, unless it names itself.
 *   2. With libmillwright-audit loaded (link it, or LD_PRELOAD=libmillwright-audit.so), which
 * stands in front of pthread_create: every call under a leaf is counted, named or not, living or
 *      not, and the new thread counts as flowing from that leaf. `foreign_starts_seen` tells
 *      whether it is at work. The price is one look at a thread-local variable per thread start.
 *
 * Neither sees clone(2) called directly, nor threads that libc makes for itself (thrd_create,
 * timers with SIGEV_THREAD) except as heirs.
 *
 * Threads: any thread.
 * Never aborts, and never stops a leaf: it counts, and says so. */
#ifndef MILLWRIGHT_AUDIT_H
#define MILLWRIGHT_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <millwright/census.h>
#include <millwright/registry.h>
#include <millwright/thread.h>

struct mw_audit {
    struct mw_census census;
    uint64_t expectations;              /* mw_audit_expect was called so often */
    uint64_t wrong_expectations;        /* and so often it was wrong */
    enum mw_thread_kind wrong_expected; /* in the newest wrong one: what was expected */
    enum mw_thread_kind wrong_found;    /* and what was found */
    uint64_t strayed;                   /* see mw_registry_strayed; 0 without a registry */
    uint64_t escapes;                   /* items from under a leaf on pool workers */
    uint64_t escaped_leaf;              /* of the newest */
    uint64_t thread_starts;             /* threads of ours that were started under a leaf */
    uint64_t thread_start_leaf;         /* of the newest */
    uint64_t foreign_starts;            /* the same for other threads, where that is seen */
    uint64_t foreign_start_leaf;        /* of the newest */
    bool foreign_starts_seen;           /* libmillwright-audit is at work */
};

/* Assert, inside a leaf, that it runs on a thread that recorded `kind`.
 * Returns 0, or -EXDEV when it does not, and counts both. Does not block. */
int mw_audit_expect(enum mw_thread_kind kind);

/* All numbers of the process since its start, and its threads now. `registry` may be NULL.
 * Returns 0, or what mw_census_take returned; the counts are filled in all the same.
 * Runs on: any thread. Reads small files of /proc; holds each lane's lock for a moment. */
int mw_audit_report(struct mw_audit *audit, const struct mw_registry *registry);

/* The first thing in the report that should not be, in words in `text`, or NULL: all is as it
 * should be. Strangers that bear no name of ours are no finding: a host has threads.
 * Returns `text` or NULL. Does not block. */
const char *mw_audit_finding(const struct mw_audit *audit, char *text, size_t bytes);

/* For libmillwright-audit: `leaf` (0: none) called pthread_create. */
void mw_audit_foreign_start(uint64_t leaf);

#endif

/* site.h - a running `millwright serve` to measure: compiles on a kept-alive connection, its
 * metrics, and the memory of its processes.
 *
 * What has no answer at all ends the process, as support/server.h says; all else is an error that
 * was said on stderr.
 *
 * Threads: a site is one thread's, but for site_memory, which any thread may call while it runs. */
#ifndef BENCH_COMPILE_SITE_H
#define BENCH_COMPILE_SITE_H

#include <stdbool.h>

#include "subject.h"
#include "support/server.h"

struct site {
    struct server server;
    struct client client;
    char *folder;
    bool is_in_process; /* set by who opens it so */
};

/* What a time trace sums up, each without what is of another. */
enum {
    SITE_TRACE_DRIVER,
    SITE_TRACE_HEADERS,
    SITE_TRACE_SEMA, /* lexer, parser, templates; but for headers */
    SITE_TRACE_IR,
    SITE_TRACE_PASSES,
    SITE_TRACE_CODE,
    SITE_TRACES
};

/* How a compile began. */
enum {
    SITE_PREFIX_NONE,
    SITE_PREFIX_PRECOMPILED,
    SITE_PREFIX_READ /* by its worker, before it had the source */
};

/* What one compile took, by the client's clock and by the answer's word. Milliseconds; NAN where
 * the answer says nothing. */
struct site_answer {
    bool is_cached;
    unsigned prefix; /* SITE_PREFIX_... */
    double ms;
    double prefix_ms, queued_ms, leaf_ms, suffix_ms;
    double worker_ms, take_ms, hand_over_ms, run_ms, cpu_ms; /* of the leaf, isolated */
    double memory_peak_bytes;
    double trace_ms[SITE_TRACES]; /* of the run; where a trace was asked for */
};

/* Bytes. NAN: not to be known. */
struct site_memory {
    double service;
    double zygotes; /* together, those of prefixes too */
    double workers; /* together */
    unsigned worker_count;
};

/* Start `program` with `options` (up to a NULL), its files in the folder `name` of `parent`.
 * Returns 0 or a negative errno. */
int site_open(struct site *site, const char *program, const char *parent, const char *name,
              const char *const *options);
void site_close(struct site *site);

/* Compile `body`, which is of `subject`, and compare the object with those before.
 * Returns 0, -EBADMSG (and said why), or -ENOMEM. */
int site_compile(struct site *site, struct subject *subject, const char *body,
                 struct site_answer *answer);

/* Post new variants until the service does for them what it can do with a prefix, or until there is
 * none to be expected.
 * Returns as site_compile. Blocks for up to SITE_WARM_MS_MAX. */
#define SITE_WARM_MS_MAX 20000u
int site_warm(struct site *site, struct subject *subject);

/* What is the processes' own, shared pages in equal parts (PSS). */
struct site_memory site_memory(const struct site *site);

#endif

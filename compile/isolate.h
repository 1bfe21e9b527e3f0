/* isolate.h - a compile in a process of its own: whatever a source does to the compiler, it does to
 * a worker that is used once, sandboxed and killed at its limits.
 *
 * A *zygote* (the program millwright-worker, single-threaded, LLVM loaded and its targets
 * registered) forks workers ahead of their use. A lane thread takes one, hands it the request,
 * waits for its answer on a pidfd, kills it at a limit or when told to, and reaps it. The leaf
 * stays the lane thread's: its cap, queue and audit hold unchanged, and the worker has that
 * thread's name and scheduling (as far as the system lets it: without privilege a nice value only
 * rises, so threads that compile should be equally nice). The zygote never sees a request. When the
 * zygote ends unexpectedly it is started again; a leaf whose worker was lost that way, and not by a
 * fault of its own, is tried once more. All of them end when their pipe to this process closes,
 * also after kill -9.
 *
 * Many sources begin with the same system headers. For a few such prefixes (head_starts) a *prefix
 * zygote* keeps workers ready that have read them and stand behind them, in the middle of a compile
 * that any of those sources can go on with: its bytes are those of a compile from the start. Who
 * uses that asks mw_isolate_prepare when a compile's usage says that it is due.
 *
 * Ownership:  the toolchain is the caller's and outlives it.
 * Threads:    compile from any number of threads at once; each call blocks its thread.
 * Bounds:     options.ready workers wait, and as many behind each prefix; at most one more for each
 *             thread in compile. A main file of over 1 MiB has no head start. */
#ifndef MILLWRIGHT_ISOLATE_H
#define MILLWRIGHT_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <millwright/emit.h>
#include <millwright/limits.h>
#include <millwright/toolchain.h>

#define MW_ISOLATE_READY_MAX       64u
#define MW_ISOLATE_REQUESTS_LIMIT  100000u
#define MW_ISOLATE_HEAD_STARTS_MAX 64u

struct mw_isolate;

/* Lets any thread end a compile that another one waits for. Zero bytes are a fresh one; use it for
 * one compile at a time. */
struct mw_isolate_stop {
    _Atomic int state; /* private */
    _Atomic int event; /* private: an eventfd, opened at first need */
};

struct mw_isolate_options {
    const struct mw_toolchain *toolchain;
    const char *worker;    /* path of millwright-worker; NULL: beside the running program, or in
                              ../libexec/millwright */
    unsigned ready;        /* workers kept ready; default: effective CPUs */
    unsigned requests_max; /* 0: a worker is used once. Else it is used again, for one trusted
                              tenant, until so many requests, a fault or memory_mark_bytes */
    uint64_t memory_mark_bytes; /* with requests_max: resident size at which it is replaced */
    unsigned head_starts;       /* prefixes that workers wait behind, at most; 0: none. Not with
                                   requests_max */
    bool unguarded;             /* go on where the kernel lacks a guard; else -ENOTSUP and its
                                   name. Not without a pidfd: -ENOSYS */
    /* For those who account for workers (monitor.h), or NULL: called before `worker` gets a request
     * and when it is through with it, before it is reaped unless it was killed. On the thread in
     * compile. */
    void (*on_work)(void *user, pid_t worker, bool begins);
    void *user;
};

struct mw_isolate_stats {
    unsigned guards; /* bit i: the guard that mw_isolate_guard_name(i) names is in force */
    int landlock_abi;
    unsigned ready;
    unsigned running;
    uint64_t started; /* workers, ever */
    uint64_t killed_by_limit;
    uint64_t stopped; /* by mw_isolate_stop */
    uint64_t crashed; /* ended by a signal of their own */
    uint64_t zygote_restarts;
    uint64_t retries;
    uint64_t zygote_rss_bytes;
    unsigned head_starts;      /* prefixes that workers wait behind */
    uint64_t head_starts_used; /* compiles, ever */
};

/* Start the zygote. Returns 0, or a negative errno with `why` filled. Blocks until it is ready. */
int mw_isolate_new(struct mw_isolate **out, const struct mw_isolate_options *options, char *why,
                   size_t why_bytes);

/* End the zygote and the waiting workers. Nobody may be in compile. NULL is fine. Blocks. */
void mw_isolate_free(struct mw_isolate *isolate);

/* As mw_compile, in a worker. `usage` is filled whatever is returned; `options` were made of this
 * request. request->cancelled is not asked: use `stop`. The request's preamble is used where it is
 * a file, which the worker maps.
 * Returns 0 (the compiler ran, or crashed on this source: then ok is false and the diagnostics say
 * so), -ETIMEDOUT (wall), -EDQUOT (cpu, memory or output: usage->hit says which), -ECANCELED
 * (stopped), -EAGAIN (no worker could be had), -ENOMEM, -EINVAL (read_disk: a worker sees
 * no disk), -EOWNERDEAD (in a forked child of the process that made it), or -EIO (the worker
 * answered nonsense).
 * Runs on: any thread; the worker takes its name and scheduling. Blocks. */
int mw_isolate_compile(struct mw_isolate *isolate, const struct mw_options *options,
                       const struct mw_compile_request *request, const struct mw_limits *limits,
                       struct mw_isolate_stop *stop, struct mw_compile_result *result,
                       struct mw_usage *usage);

/* Have workers wait behind the prefix of `request`: it has the options, directory and kind of main
 * file of those that said it was due, and the prefix alone for its main file, in plain lines; its
 * preamble has their key. `options` were made of it. What is used of `limits` is the time.
 * Returns 0, -EAGAIN (the prefix cannot be read, or a process not be had), -EBUSY (all places are
 * in use), -ETIMEDOUT, -ECANCELED, -ENOMEM, -EINVAL (no such request, or no head starts here), or
 * -EOWNERDEAD.
 * Runs on: any thread; the process takes its scheduling. Blocks until the headers are read. */
int mw_isolate_prepare(struct mw_isolate *isolate, const struct mw_options *options,
                       const struct mw_compile_request *request, const struct mw_limits *limits,
                       struct mw_isolate_stop *stop);

/* End the compile that uses `stop`, now or when it begins. Runs on: any thread. Does not block. */
void mw_isolate_stop(struct mw_isolate_stop *stop);

/* Release what it holds; nobody uses it any more. */
void mw_isolate_stop_fini(struct mw_isolate_stop *stop);

/* "landlock", "seccomp", "limits", "pidfd"; NULL past the last. Static text. */
const char *mw_isolate_guard_name(unsigned bit);

/* Runs on: any thread. Does not block. */
void mw_isolate_snapshot(struct mw_isolate *isolate, struct mw_isolate_stats *stats);

#endif

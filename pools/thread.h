/* thread.h - named threads that record what they are at their entry.
 *
 * A new Linux thread inherits its creator's name, scheduling policy, nice value and signal mask, so
 * reading any of them back proves nothing. Each thread of ours sets all of them first thing, and
 * records its *kind*; audits and the `thread` field of an answer use that recorded kind (seed 002).
 *
 * Ownership:  a struct mw_thread is the caller's storage, from start until join.
 * Threads:    start and join from any thread; join blocks.
 * Bounds:     names are cut to 15 bytes by the kernel: longer ones are refused. */
#ifndef MILLWRIGHT_THREAD_H
#define MILLWRIGHT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* What a thread is for. The host's own threads are MW_THREAD_HOST unless they say otherwise. */
enum mw_thread_kind {
    MW_THREAD_HOST = 0, /* not ours */
    MW_THREAD_LOOP,     /* mw-loop: the caller of uv_run */
    MW_THREAD_POOL,     /* mw-pool: a worker of the shared pool */
    MW_THREAD_LANE,     /* mw-cpu-lane: a lane's dedicated thread */
    MW_THREAD_MONITOR,  /* mw-monitor: samples a pool */
    MW_THREAD_PROBE,    /* mw-probe: sends a probe's items */
    MW_THREAD_GATE,     /* mw-pool-gate: lets a pool grow, slowly */
    MW_THREAD_KINDS     /* how many there are */
};

struct mw_thread_options {
    const char *name; /* 1..15 bytes; NULL means the kind's own name */
    enum mw_thread_kind kind;
    size_t stack_bytes; /* 0 means the system's default; reserved, not committed */
    int nice;           /* 0..19, added to the nice value of the process's first thread */
    bool idle; /* SCHED_IDLE: runs when no other thread wants to; else as the first thread */
};

/* For thread-local variables that are used for each job: found at a fixed distance, also in a
 * shared library. That room is small, so only for a few words. */
#define MW_THREAD_LOCAL_NEAR __attribute__((tls_model("initial-exec")))

struct mw_thread {
    pthread_t os;
};

/* Start a thread that runs fn(arg) with every signal blocked but those that a fault of its own
 * raises (SIGSEGV and its like), so that the host's crash handler still sees them.
 * Returns 0, -EINVAL (name or nice out of range), -EAGAIN or -ENOMEM (the system has no room).
 * A nice value or policy that the system refuses is ignored: it is a hint, never a reason to lose
 * work. Without privilege a thread cannot leave SCHED_IDLE if it inherited that.
 * Runs on: any thread. Blocks only as long as the system takes to create a thread. */
int mw_thread_start(struct mw_thread *thread, const struct mw_thread_options *options,
                    void (*fn)(void *arg), void *arg);

/* Wait until the thread has ended, and release it. Once for each start.
 * Runs on: any thread but that one. Blocks. */
void mw_thread_join(struct mw_thread *thread);

/* Record the calling thread as `kind` and give it that kind's name, if it is one of ours (the
 * loop's thread does this; threads from mw_thread_start already have). Runs on: the thread meant.
 * Does not block. */
void mw_thread_adopt(enum mw_thread_kind kind);

/* What the calling thread recorded at its entry. Runs on: any thread. Does not block. */
enum mw_thread_kind mw_thread_kind_current(void);

/* "host", "mw-loop", "mw-pool", "mw-cpu-lane", "mw-monitor" and so on. Static text, never NULL. */
const char *mw_thread_kind_name(enum mw_thread_kind kind);

/* How many threads of `kind`, started by mw_thread_start, are alive now.
 * Runs on: any thread. Does not block; the number may be old when you read it. */
unsigned mw_thread_count(enum mw_thread_kind kind);

#endif

/* pool.h - the shared worker pool: short pieces of IO work, between a minimum and a maximum of
 * threads.
 *
 * Elastic as .NET's pool is (seeds 000, 001, 003): up to min_threads a worker is started for each
 * item that finds nobody idle. Above it a gate thread adds one when items wait and none was taken
 * for MW_POOL_GATE_MS. A worker that says that it blocks (mw_block_begin) is made up for: at once
 * for the first CPUs of them, then step by step, see pool_growth.h; when it blocks no longer, one
 * worker parks as soon as its item is done. max_threads is hard. Workers above min_threads leave
 * after idle_ms without work. Items start in the order of their submission.
 *
 * Where the system refuses a thread, the workers that there are go on, and the gate tries again
 * each MW_POOL_GATE_MS; where it refuses the gate too, the next call or finished item tries again.
 *
 * Ownership:  an item is the caller's; the pool borrows it from submit until it calls fn, and does
 *             not touch it again.
 * Threads:    submit and snapshot from any thread, also from inside an item. Workers are named
 *             mw-pool and record the kind MW_THREAD_POOL; the gate is named mw-pool-gate, is none
 *             of our kinds, and is there only while work waits that may not start a worker.
 * Bounds:     queue_max waiting items, max_threads workers; both fixed at mw_pool_new. min_threads
 *             may change at any time.
 * Fork:       in a forked child submit and the calls for the minimum return -EOWNERDEAD, a snapshot
 *             is all zeros, mw_block_* do nothing, and free leaves the pool as it is, on purpose:
 *             make a new one there. */
#ifndef MILLWRIGHT_POOL_H
#define MILLWRIGHT_POOL_H

#include <stddef.h>
#include <stdint.h>

#define MW_POOL_MAX_THREADS_DEFAULT 16u
#define MW_POOL_MAX_THREADS_LIMIT   1024u
#define MW_POOL_QUEUE_MAX_DEFAULT   4096u
#define MW_POOL_IDLE_MS_DEFAULT     20000u
#define MW_POOL_GATE_MS             500u

struct mw_pool;

struct mw_pool_item {
    void (*fn)(struct mw_pool_item *item); /* set by the caller */
    /* private to the pool until fn is called */
    struct mw_pool_item *next;
    uint64_t leaf;      /* the leaf it was submitted from, see flow.h */
    uint64_t queued_ns; /* when it was submitted */
};

/* Zero means the default of each. */
struct mw_pool_options {
    unsigned min_threads; /* default: effective CPUs; never above max_threads */
    unsigned max_threads; /* default MW_POOL_MAX_THREADS_DEFAULT; at most the LIMIT */
    unsigned queue_max;   /* default MW_POOL_QUEUE_MAX_DEFAULT */
    unsigned idle_ms;     /* default MW_POOL_IDLE_MS_DEFAULT */
    size_t stack_bytes;   /* default: the system's */
};

struct mw_pool_stats {
    unsigned threads;
    unsigned busy;    /* workers inside an item, blocked ones included */
    unsigned blocked; /* of those, the ones between mw_block_begin and mw_block_end */
    unsigned min_threads;
    uint64_t min_changes; /* how often it was set, also to what it was; min_threads is no older */
    unsigned max_threads;
    unsigned pending;
    unsigned queue_max;
    uint64_t completed;
    uint64_t rejected;
    uint64_t injected;          /* workers that the gate added above the minimum */
    uint64_t start_failures;    /* threads, the gate's too, that the system refused to start */
    uint64_t oldest_pending_ns; /* age of the item that has waited longest; 0 when none waits */
};

/* Make a pool; no thread is started yet.
 * Returns 0, -EINVAL (a limit exceeded, min above max) or -ENOMEM. Does not block. */
int mw_pool_new(struct mw_pool **out, const struct mw_pool_options *options);

/* Finish what is queued, end every worker, release the pool. NULL is fine.
 * Nobody may submit any more. Runs on: any thread but a worker of this pool. Blocks. */
void mw_pool_free(struct mw_pool *pool);

/* Queue `item`. Returns 0, or -EAGAIN at once when queue_max items wait, or when no worker exists
 * and the system refuses to start one; the item is then untouched.
 * Runs on: any thread. Does not block (it may start a thread). */
int mw_pool_submit(struct mw_pool *pool, struct mw_pool_item *item);

/* Queue `item` behind all others from inside an item that is about to return: the calling worker
 * itself looks at the queue next, so nobody is woken and no thread is started. At most once in an
 * item. Returns 0, or -EAGAIN when queue_max items wait; the item is then untouched.
 * Runs on: a worker of this pool, inside an item. Does not block. */
int mw_pool_yield(struct mw_pool *pool, struct mw_pool_item *item);

/* Set the minimum; workers that this allows for what waits are started at once, and those above a
 * lower one leave as they become idle. `before`, if not NULL, gets the minimum there was. Returns
 * 0, or -EINVAL (0, or above max_threads; `before` is set nevertheless). Seed 003. Runs on: any
 * thread. Does not block (it may start threads). */
int mw_pool_set_min(struct mw_pool *pool, unsigned min_threads, unsigned *before);

/* The same, but only while it was set `min_changes` times (mw_pool_stats), and once more from then
 * on: else -ESTALE, and `before` says what it is. For those who put back what they raised, and must
 * see that somebody else has set it, to whatever value. Seed 000. */
int mw_pool_replace_min(struct mw_pool *pool, uint64_t min_changes, unsigned min_threads,
                        unsigned *before);

/* Say that the calling item is about to block (a lock, a file, a child process), and that it does
 * no longer. They nest; each item ends as many as it began. On a thread that is no worker of a pool
 * they do nothing. Runs on: any thread. Does not block (begin may start a thread). */
void mw_block_begin(void);
void mw_block_end(void);

/* What the pool does right now. Runs on: any thread. Stops nobody and waits for nobody: it reads
 * counters that each are right, of moments that may lie microseconds apart. An item that a worker
 * takes meanwhile shows in `pending` or in `busy`: when both are 0, all that was submitted before
 * has run. */
void mw_pool_snapshot(struct mw_pool *pool, struct mw_pool_stats *stats);

#endif

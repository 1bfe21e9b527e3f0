/* probe_row.h - one row of `millwright probe`: a load in this process, and what items wait
 * meanwhile.
 *
 * The calling thread becomes a libuv loop that hands out the load, as a host's would. Two probes
 * run: one on what the load may starve (libuv's workers for a uv row, the shared pool for the
 * others), and one on the loop itself.
 *
 * A row of N emits compiles the same source N times at once, in batches one after the other, until
 * MW_PROBE_ROW_MS_LEAST have passed; one batch at the least. After `seconds` it takes back what has
 * not begun, lets end what runs, and the batch is not counted.
 *
 * A *roll* first stores MW_PROBE_ROLL_SOURCES small objects through the pipeline of the service,
 * under the identity of an older compiler, and asks for them once more: all come from the store.
 * Then the compiler's identity changes, and all are asked for at once: every key is stale (the roll
 * of seed 002). The probes run from then on.
 *
 * Isolated: each emit is a compile in a process of its own, as the service's are by default; the
 * thread where it is said to run drives it, and waits for it. Whichever guards the kernel gives
 * will do, since the sources are the probe's own.
 *
 * Compiler threads off: each emit is the service's leaf, from source to object; it starts no
 * thread. On: clang's code generator cannot be had with threads, so each is a parse of the source
 * through libclang, with LIBCLANG_NOTHREADS unset; libclang then starts a thread for each parse,
 * and its caller waits for that. No object comes of it, and it is much shorter.
 *
 * Threads:    call it in a process that has no threads yet, once (it changes the environment, and
 *             libuv's workers stay): see probe_child.h. Blocks. Isolated rows have processes of
 *             their own, which end with this one.
 * Bounds:     MW_PROBE_EMITS_MAX emits at once. */
#ifndef MW_SERVICE_PROBE_ROW_H
#define MW_SERVICE_PROBE_ROW_H

#include <stdbool.h>
#include <stdint.h>

#define MW_PROBE_EMITS_MAX    1024u
#define MW_PROBE_ROW_MS_LEAST 1000u
#define MW_PROBE_ROLL_SOURCES 300u

/* Where the load runs. */
enum mw_probe_lane_choice {
    MW_PROBE_ON_LANE, /* a lane with threads of its own, one for each CPU */
    MW_PROBE_ON_POOL, /* the workers of the shared pool, as many as they are */
    MW_PROBE_ON_UV,   /* uv_queue_work */
    MW_PROBE_LANES    /* how many there are */
};

struct mw_probe_row {
    bool roll; /* else `emits` at once */
    unsigned emits;
    enum mw_probe_lane_choice lane; /* a roll: lane or pool, and on both one for each CPU */
    bool isolated;                  /* on the lane or the pool, without compiler threads */
    bool compiler_threads;          /* a roll: off */
    unsigned seconds;
};

struct mw_probe_waits {
    uint64_t p50_ns, p99_ns, max_ns;
    uint64_t sent, refused;
};

/* Plain data: it goes through a pipe. */
struct mw_probe_result {
    struct mw_probe_waits probe; /* of what the load may starve */
    struct mw_probe_waits loop;
    unsigned batches;  /* that were complete */
    uint64_t batch_ns; /* the median of their times; 0: none was complete in time */
    bool cut;          /* the time was up before the last one was complete */
    uint64_t compiled;
    uint64_t threads_started;   /* by the compiler */
    uint64_t processes_started; /* for isolated emits; each is used once */
    unsigned found_before;      /* roll: of the keys in the store, under the former identity */
    unsigned found_after;       /* roll: of the keys in the store, under the changed one */
    int error;                  /* 0, or a negative errno; then `why` says where */
    char why[128];
};

/* Returns result->error. */
int mw_probe_row_run(const struct mw_probe_row *row, struct mw_probe_result *result);

#endif

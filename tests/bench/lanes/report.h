/* report.h - the figures of all pools side by side, and which goals are met.
 *
 * Ownership: names are the caller's.
 * Threads:   the main thread only. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"
#include "peers.h"

enum goal_against { GOAL_NONE, GOAL_BEST_PEER, GOAL_UV, GOAL_FLOOR, GOAL_NS };

/* The lane's time is at most `most` times another's; or, for GOAL_NS, nanoseconds. */
struct goal {
    enum goal_against against;
    double most;
};

/* In nanoseconds. NAN: not measured. INFINITY: got stuck or crashed in most rounds. */
struct report_row {
    char name[64];
    const char *unit;
    double unit_ns; /* how many nanoseconds make one of it */
    double ns[PEER_COUNT];
    double floor_ns;
    struct goal goal;
};

struct report {
    const struct report_row *rows;
    size_t count;
    const char *note;
};

/* Print the table and the goals, or the JSON. Returns 0, -EIO when stdout does not take it, or
 * -ETIMEDOUT when the lane itself got stuck somewhere. */
int report_print(const struct bench *bench, const struct report *report);

#endif

/* limits.h - what one compile may use, and what it used.
 *
 * Ownership:  plain values.
 * Bounds:     0 in a limit means its default; a service cuts each to its operator's ceiling. */
#ifndef MILLWRIGHT_LIMITS_H
#define MILLWRIGHT_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define MW_LIMIT_WALL_NS_DEFAULT      UINT64_C(30000000000)
#define MW_LIMIT_CPU_NS_DEFAULT       UINT64_C(30000000000)
#define MW_LIMIT_MEMORY_BYTES_DEFAULT (UINT64_C(1) << 30) /* of data that it allocates itself */
#define MW_LIMIT_OUTPUT_BYTES_DEFAULT (UINT64_C(64) << 20)

/* Which limit ended a compile. */
enum mw_limit {
    MW_LIMIT_NONE = 0,
    MW_LIMIT_WALL,
    MW_LIMIT_CPU,
    MW_LIMIT_MEMORY,
    MW_LIMIT_OUTPUT,
    MW_LIMITS /* how many there are */
};

struct mw_limits {
    uint64_t wall_ns;
    uint64_t cpu_ns;
    uint64_t memory_bytes;
    uint64_t output_bytes;
};

struct mw_usage {
    uint64_t wall_ns;
    uint64_t take_ns; /* of that, until a worker was ready */
    uint64_t hand_ns; /* and until it had the request */
    uint64_t run_ns;  /* and until its answer; the rest is the answer's copy */
    uint64_t cpu_ns;
    uint64_t memory_peak_bytes; /* resident, without the code that all workers share */
    uint64_t output_bytes;
    enum mw_limit hit;   /* MW_LIMIT_NONE: none */
    uint64_t hit_value;  /* of that limit, in its unit */
    int signal;          /* that ended its process without a limit; 0: none */
    bool has_head_start; /* its worker had read the prefix already */
    bool head_start_due; /* it had not, and mw_isolate_prepare would help the next */
};

/* "wall", "cpu", "memory", "output", "none". Static text. */
const char *mw_limit_name(enum mw_limit limit);

#endif

/* host.h - a small libuv host: an echo server that also computes, beside a timer of 1 ms and reads
 * of a file. It gives its computing either to libuv's workers or to a lane; all else is the same.
 *
 * Threads: host_run on any thread, one at a time; it is the loop's. */
#ifndef EXAMPLE_HOST_H
#define EXAMPLE_HOST_H

#include <stdint.h>

#include <millwright/histogram.h>

enum way { WAY_UV, WAY_LANE, WAYS };

struct load {
    unsigned clients;       /* each has one piece of work in flight; one more only echoes */
    double seconds;         /* how long they go on */
    uint64_t rounds_per_ms; /* of computing, see host_calibrate */
};

/* What one run saw, in nanoseconds. */
struct times {
    struct mw_histogram timer; /* how late a timer of 1 ms was */
    struct mw_histogram file;  /* from uv_fs_read to its callback */
    struct mw_histogram echo;  /* from a client's message to its echo: no work in it */
    struct mw_histogram work;  /* from a client's message to the answer after 5 to 20 ms of work */
};

/* How much one CPU computes in a millisecond. */
uint64_t host_calibrate(void);

/* Run the host under `load`. `times` starts as zero bytes. Returns 0, or a code of libuv. */
int host_run(enum way way, const struct load *load, struct times *times);

#endif

/* hosts.h - the processes around seed 001's runner: test hosts that connect back to it and send
 * their results, and the one reader (the IDE) that all results go to.
 *
 * A host waits until it is told to go, takes a moment to start up, connects, says hello, and sends
 * messages of so many results each, the last one empty.
 *
 * Ownership:  all are children of this process and end with it.
 * Threads:    hosts_start while there is one thread; the rest from any.
 * Bounds:     HOSTS_MAX. */
#ifndef BENCH_POOLS_HOSTS_H
#define BENCH_POOLS_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#define HOSTS_MAX          256u
#define HOSTS_RESULT_BYTES 100u
#define HOSTS_BATCH_MAX    1000u

struct host_hello {
    uint32_t index;
    uint64_t connect_ns; /* when it called connect */
};

struct host_message {
    uint32_t bytes; /* that follow */
    char results[HOSTS_BATCH_MAX * HOSTS_RESULT_BYTES];
};

struct hosts {
    /* set by the caller */
    unsigned count;
    unsigned results; /* of each host; 0: it only says hello */
    unsigned batch;   /* results in a message */
    /* set by hosts_start */
    int listener; /* to which the hosts connect */
    int reader;   /* to which all messages are passed on */
};

/* Returns 0 or a negative errno. */
int hosts_start(struct hosts *hosts);

void hosts_go(unsigned index);

/* Read from or write to a process; end this one when that is not possible. Block. */
void hosts_read(int fd, void *bytes, size_t count);
void hosts_write(int fd, const void *bytes, size_t count);
void hosts_read_message(int fd, struct host_message *message);
void hosts_write_message(int fd, const struct host_message *message);

/* Tell the reader that this was all, and wait until it has read it. */
void hosts_finish(const struct hosts *hosts);

#endif

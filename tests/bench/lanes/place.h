/* place.h - keeps a thread that waits for others on another CPU than theirs.
 *
 * Whether two threads share a CPU changes the time of a wake-up several times over, and the
 * scheduler's choice changes from one process to the next.
 *
 * Threads: the one that is to have a CPU of its own. */
#ifndef BENCH_PLACE_H
#define BENCH_PLACE_H

/* Give the calling thread the first of the process's CPUs, and all threads that exist now the
 * others. Does nothing on one CPU. Returns 0 or a negative errno. */
int place_apart(void);

#endif

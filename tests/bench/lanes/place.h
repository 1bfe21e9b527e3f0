/* place.h - which CPUs threads run on, where that must not be left to chance.
 *
 * Whether two threads share a CPU changes the time of a wake-up several times over, and the
 * scheduler's choice changes from one process to the next.
 *
 * Threads: as each says. */
#ifndef BENCH_PLACE_H
#define BENCH_PLACE_H

/* For a thread that waits for others: give it the first of the process's CPUs, and all threads that
 * exist now the others. Does nothing on one CPU. Returns 0 or a negative errno. */
int place_apart(void);

/* Give each other thread that exists now one CPU, evenly. Returns 0 or a negative errno. */
int place_evenly(void);

/* Give the calling thread the CPU with this number, of those that the process had at the first call
 * (which comes before there are other threads), counted round. Returns 0 or a negative errno. */
int place_on(unsigned number);

#endif

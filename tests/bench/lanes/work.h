/* work.h - computes for so long: it takes CPU time and nothing else.
 *
 * Threads: any; `work_loops` is set before there are others. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdint.h>

struct task;

/* Of work_compute. */
extern uint64_t work_loops;

/* How many loops take `ns`. */
uint64_t work_calibrate(uint64_t ns);

void work_run(uint64_t loops);

/* `work_loops` of them: the work of a task. */
void work_compute(struct task *task);

#endif

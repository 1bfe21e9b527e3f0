/* task.h - a job that every pool can carry, and how its end is counted.
 *
 * Tasks are counted in batches: batch_begin before the first is submitted, batch_wait until the
 * last has ended. One batch at a time in a process.
 *
 * Ownership:  tasks are the caller's and outlive their batch.
 * Threads:    task_work and task_end on the pool's threads; the batch functions as each says.
 * Bounds:     none of its own. */
#ifndef BENCH_TASK_H
#define BENCH_TASK_H

#include <stdbool.h>
#include <uv.h>

#include <millwright/lane.h>

struct task {
    union {
        struct mw_job job;           /* the lane's */
        uv_work_t work;              /* libuv's */
    } carrier;                       /* the others need only the address of the task */
    void (*work)(struct task *task); /* NULL: an empty task */
};

/* `count` tasks are about to come. `spins`: batch_wait spins instead of sleeping, and the last
 * task then spares the system call that would wake it. Before the first submit. */
void batch_begin(unsigned count, bool spins);

/* Sleep (or spin) until all have ended. Runs on: any number of threads. */
void batch_wait(void);

/* How many have not ended. Runs on: any thread. */
unsigned batch_left(void);

static inline void task_work(struct task *task)
{
    if (task->work != NULL)
        task->work(task);
}

/* Count it; the last one wakes whoever waits. The task may be used again as far as the batch is
 * concerned. */
void task_end(void);

/* For pools that know nothing of an end but that a function returns. */
void task_run(struct task *task);

#endif

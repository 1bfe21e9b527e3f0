/* pool_scene.h - what the tests of the pool share: a pool, a gate, and items that wait there.
 *
 * Ownership:  both structs are the test's storage. */
#ifndef MILLWRIGHT_TESTS_POOL_SCENE_H
#define MILLWRIGHT_TESTS_POOL_SCENE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <millwright/pool.h>

#include "pools/support.h"

#define ITEMS_MAX 64

/* What the items of a test share. */
struct scene {
    struct mw_pool *pool;
    struct counter gate;    /* opened by the test */
    struct counter waiting; /* items that wait at the gate */
    struct counter ran;
    unsigned tasks; /* threads of the process before the pool came */
    unsigned order[ITEMS_MAX];
    _Atomic unsigned ordered; /* relaxed: a number of its own, `ran` publishes */
};

struct task {
    struct mw_pool_item item; /* first, so that fn can cast */
    struct scene *scene;
    unsigned number;
    unsigned turns;
    uint64_t flow;
    uint64_t began_ns; /* of those that wait at the gate */
    pid_t tid;         /* of the thread that ran it */
};

/* The pool that `options` make, and all else fresh. */
void scene_open(struct scene *scene, const struct mw_pool_options *options);

/* Open the gate and free the pool. Every test ends here: no thread may be left. */
void scene_close(struct scene *scene);

void task_init(struct task *task, struct scene *scene, void (*fn)(struct mw_pool_item *));

/* Submit it; it must be taken. */
void task_submit(struct task *task);

/* Init and submit. */
void task_launch(struct task *task, struct scene *scene, void (*fn)(struct mw_pool_item *));

struct mw_pool_stats stats_of(const struct scene *scene);

/* Wait until nothing is queued or run: every worker is then parked or gone. */
void settle(const struct scene *scene);

/* Notes its flow and its thread. */
void run_plain(struct mw_pool_item *item);

/* Waits at the gate, and says nothing of it; between mw_block_begin and mw_block_end. */
void run_at_gate(struct mw_pool_item *item);
void run_blocked(struct mw_pool_item *item);

/* Notes its number in the scene's order. */
void run_in_order(struct mw_pool_item *item);

#endif

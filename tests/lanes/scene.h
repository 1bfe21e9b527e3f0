/* scene.h - what the tests of a lane share: a lane, perhaps over a pool, and leaves that note what
 * became of them.
 *
 * Ownership:  a scene is the test's storage, from scene_open to scene_close.
 * Threads:    the test's own; leaves and their done() run wherever the lane runs them. */
#ifndef MILLWRIGHT_TESTS_LANES_SCENE_H
#define MILLWRIGHT_TESTS_LANES_SCENE_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <millwright/lane.h>

#include "pools/support.h"

#define LEAVES_MAX 128
#define NEVER_DONE 12345 /* a status that no lane hands out */

struct leaf;

/* What the leaves of a test share. */
struct scene {
    struct mw_lane *lane;
    struct mw_lane *other;
    struct mw_pool *pool;
    struct counter gate;    /* opened by the test */
    struct counter waiting; /* leaves that wait at the gate */
    struct counter done;
    unsigned tasks; /* threads of the process before the lane came */
    unsigned order[LEAVES_MAX];
    struct counter ordered;
    struct leaf *target; /* one that the test's other threads have to do with */
};

struct leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct scene *scene;
    struct leaf *target; /* another one that this one has to do with */
    unsigned number;
    unsigned runs;
    unsigned dones;
    int status;
    pthread_t done_on;
    uint64_t flow;
    uint64_t flow_in_done;
    int answer; /* of what the leaf tried from inside */
    int nice;
    int policy;
    size_t stack_bytes;
    sigset_t blocked;
    char thread_name[16];
};

/* A lane with these options; a pool-run one gets a pool with a worker for each of its loops. */
void scene_open(struct scene *scene, const struct mw_lane_options *options);

/* Every test ends here: opens the gate, frees the lanes and checks that no thread is left. */
void scene_close(struct scene *scene);

struct mw_lane_stats stats_of(const struct scene *scene);

/* A leaf that runs `fn`; its done() notes the status and counts in scene->done. */
void leaf_init(struct leaf *leaf, struct scene *scene, int (*fn)(struct mw_job *));
void note_done(struct mw_job *job, int status);

/* Submit to the scene's lane, which must take it. */
void submit(struct leaf *leaf);

/* Leaves: one that returns 7, one that waits at the gate, one that notes its number in the order in
 * which it ran (on a lane of cap 1). */
int run_plain(struct mw_job *job);
int run_at_gate(struct mw_job *job);
int run_in_order(struct mw_job *job);

/* Keep the lane's only thread busy with `leaf` until the gate opens. */
void hold_the_lane(struct scene *scene, struct leaf *leaf);

#endif

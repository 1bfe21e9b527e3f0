#include <string.h>

#include <millwright/flow.h>

#include "scene.h"

void scene_open(struct scene *scene, const struct mw_lane_options *options)
{
    struct mw_lane_options own = *options;

    memset(scene, 0, sizeof *scene);
    counter_init(&scene->gate);
    counter_init(&scene->waiting);
    counter_init(&scene->done);
    counter_init(&scene->ordered);
    scene->tasks = tasks_baseline();
    if (own.runner == MW_LANE_POOL) {
        assert_int_equal(mw_pool_new(&scene->pool, &(struct mw_pool_options){.max_threads = own.cap,
                                                                             .queue_max = 64}),
                         0);
        own.pool = scene->pool;
    }
    assert_int_equal(mw_lane_new(&scene->lane, &own), 0);
}

void scene_close(struct scene *scene)
{
    counter_add(&scene->gate, 1);
    mw_lane_free(scene->lane, false);
    mw_lane_free(scene->other, false);
    mw_pool_free(scene->pool);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
    assert_int_equal(mw_thread_count(MW_THREAD_POOL), 0);
    assert_true(tasks_await(scene->tasks));
    counter_fini(&scene->ordered);
    counter_fini(&scene->done);
    counter_fini(&scene->waiting);
    counter_fini(&scene->gate);
}

void note_done(struct mw_job *job, int status)
{
    struct leaf *leaf = (struct leaf *)job;

    leaf->dones++;
    leaf->status = status;
    leaf->done_on = pthread_self();
    leaf->flow_in_done = mw_flow_current();
    counter_add(&leaf->scene->done, 1);
}

void leaf_init(struct leaf *leaf, struct scene *scene, int (*fn)(struct mw_job *))
{
    memset(leaf, 0, sizeof *leaf);
    leaf->job.fn = fn;
    leaf->job.done = note_done;
    leaf->scene = scene;
    leaf->status = NEVER_DONE;
}

struct mw_lane_stats stats_of(const struct scene *scene)
{
    struct mw_lane_stats stats;

    mw_lane_snapshot(scene->lane, &stats);
    return stats;
}

void submit(struct leaf *leaf)
{
    assert_int_equal(mw_lane_submit(leaf->scene->lane, &leaf->job), 0);
}

int run_plain(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;

    leaf->runs++;
    leaf->flow = mw_flow_current();
    return 7;
}

int run_at_gate(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;

    leaf->runs++;
    counter_add(&leaf->scene->waiting, 1);
    counter_await(&leaf->scene->gate, 1);
    return 0;
}

int run_in_order(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;
    struct scene *scene = leaf->scene;

    scene->order[scene->ordered.value] = leaf->number; /* cap 1: one at a time */
    counter_add(&scene->ordered, 1);
    return 0;
}

void hold_the_lane(struct scene *scene, struct leaf *leaf)
{
    leaf_init(leaf, scene, run_at_gate);
    submit(leaf);
    assert_true(counter_await(&scene->waiting, 1));
}

#include "preambles.h"

#include <assert.h>
#include <errno.h>
#include <millwright/audit.h>
#include <millwright/pool.h>
#include <stdlib.h>

#include "step.h"

/* One plan on its way. */
struct making {
    struct mw_preamble_maker *maker;
    struct mw_preamble_plan *plan; /* NULL: this place is free; owned until it is put */
    struct mw_step step;
    struct mw_leaf leaf;
    struct mw_compile_result result;
    bool in_leaf;
};

struct mw_preamble_maker {
    struct mw_preamble_maker_parts parts;
    bool stopping;
    struct making makings[MW_PREAMBLE_PLANS_MAX];
};

static int work_make(struct mw_step *step);
static void after_make(struct mw_step *step, int status);
static int work_put(struct mw_step *step);
static void after_put(struct mw_step *step, int status);
static bool is_head_start(const struct mw_preamble_plan *plan);
static struct making *place_find(struct mw_preamble_maker *maker);
static void put_nothing(struct mw_preamble_maker *maker, struct mw_preamble_plan *plan);
static void give_up(struct making *making);
static void clear(struct making *making);

#define MAKING_OF(step_pointer)                                                                    \
    ((struct making *)((char *)(step_pointer) - offsetof(struct making, step)))

int mw_preamble_maker_new(struct mw_preamble_maker **out,
                          const struct mw_preamble_maker_parts *parts)
{
    struct mw_preamble_maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return -ENOMEM;
    maker->parts = *parts;
    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++)
        maker->makings[i].maker = maker;
    *out = maker;
    return 0;
}

void mw_preamble_maker_free(struct mw_preamble_maker *maker)
{
    assert(!maker || !mw_preamble_maker_busy(maker));
    free(maker);
}

void mw_preamble_maker_take(struct mw_preamble_maker *maker, struct mw_preamble_plan *plan)
{
    struct making *making = place_find(maker);
    if (!making) {
        put_nothing(maker, plan);
        return;
    }
    making->plan = plan;
    making->leaf.limits = maker->parts.place.defaults;
    making->leaf.limits.output_bytes = mw_preambles_one_bytes_max(maker->parts.preambles);
    making->in_leaf =
        !maker->stopping && mw_step_start_batch(&making->step, maker->parts.adapter,
                                                maker->parts.cpu, work_make, after_make) == 0;
    if (!making->in_leaf)
        give_up(making);
}

void mw_preamble_maker_stop(struct mw_preamble_maker *maker)
{
    maker->stopping = true;
    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++) {
        struct making *making = &maker->makings[i];
        if (making->in_leaf && !mw_step_cancel(&making->step))
            mw_leaf_stop(&making->leaf, &maker->parts.place);
    }
}

bool mw_preamble_maker_busy(const struct mw_preamble_maker *maker)
{
    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++)
        if (maker->makings[i].plan)
            return true;
    return false;
}

static bool is_head_start(const struct mw_preamble_plan *plan)
{
    return plan->main != NULL;
}

/* One that was put but is not back yet still has its place, so there may be none. */
static struct making *place_find(struct mw_preamble_maker *maker)
{
    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++)
        if (!maker->makings[i].plan)
            return &maker->makings[i];
    return NULL;
}

static int work_make(struct mw_step *step)
{
    struct making *making = MAKING_OF(step);
    (void)mw_audit_expect(MW_THREAD_LANE);
    if (is_head_start(making->plan))
        return mw_isolate_prepare(making->maker->parts.place.isolate, making->plan->options,
                                  &making->plan->request, &making->leaf.limits, &making->leaf.stop);
    return mw_leaf_run(&making->leaf, &making->maker->parts.place, making->plan->options,
                       &making->plan->request, &making->result);
}

static void after_make(struct mw_step *step, int status)
{
    struct making *making = MAKING_OF(step);
    struct mw_preamble_maker *maker = making->maker;
    making->in_leaf = false;
    if (is_head_start(making->plan)) /* it is there, or the next compiles do without */
        give_up(making);
    else if (status || mw_step_start(&making->step, maker->parts.adapter, maker->parts.store_io,
                                     work_put, after_put) != 0)
        give_up(making);
}

/* What it returns is in the counters: headers that nobody has are no news. */
static int work_put(struct mw_step *step)
{
    struct making *making = MAKING_OF(step);
    mw_block_begin(); /* it may look at all headers again */
    (void)mw_preambles_put(making->maker->parts.preambles, making->maker->parts.place.toolchain,
                           making->plan, &making->result);
    mw_block_end();
    return 0;
}

/* A step that was taken back has put nothing. */
static void after_put(struct mw_step *step, int status)
{
    struct making *making = MAKING_OF(step);
    if (status)
        give_up(making);
    else
        clear(making);
}

/* Without a result a put blocks on nothing. */
static void put_nothing(struct mw_preamble_maker *maker, struct mw_preamble_plan *plan)
{
    if (is_head_start(plan))
        mw_preamble_plan_free(plan);
    else
        (void)mw_preambles_put(maker->parts.preambles, maker->parts.place.toolchain, plan, NULL);
}

static void give_up(struct making *making)
{
    put_nothing(making->maker, making->plan);
    clear(making);
}

static void clear(struct making *making)
{
    mw_leaf_fini(&making->leaf);
    mw_compile_result_fini(&making->result);
    *making = (struct making){.maker = making->maker};
}

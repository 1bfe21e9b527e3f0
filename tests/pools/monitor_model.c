#include <assert.h>
#include <string.h>

#include <millwright/clock.h>

#include "monitor_model.h"

#define GATE_MS     500u
#define STEP_MS     25u
#define STEP_MS_MAX 250u

static void finish_done(struct model *model);
static void start_waiting(struct model *model);
static void compute(struct model *model);
static void gate(struct model *model);
static void make_up_for_blocked(struct model *model);
static unsigned count_kind(const struct model *model, enum model_kind kind);
static unsigned least(unsigned a, unsigned b);
static unsigned most(unsigned a, unsigned b);

void model_init(struct model *model, unsigned cpus, unsigned max)
{
    memset(model, 0, sizeof *model);
    model->cpus = cpus;
    model->min = cpus;
    model->goal = cpus;
    model->max = max;
}

void model_submit(struct model *model, enum model_kind kind, unsigned ms)
{
    assert(model->tail < MODEL_ITEMS_MAX);
    model->items[model->tail++] =
        (struct model_item){.kind = kind, .left_ms = ms, .queued_ms = model->now_ms};
}

void model_tick(struct model *model)
{
    finish_done(model);
    make_up_for_blocked(model);
    gate(model);
    start_waiting(model);
    compute(model);
    model->now_ms++;
}

void model_sample(struct model *model, struct mw_monitor_sample *sample)
{
    unsigned age_ms = model->probing ? model->now_ms - model->probe_sent_ms : model->probe_wait_ms;
    unsigned computing = count_kind(model, MODEL_COMPUTES);

    *sample = (struct mw_monitor_sample){
        .now_ns = model->now_ms * MW_NS_PER_MS,
        .age_ns = age_ms * MW_NS_PER_MS,
        .cpu_ns = model->cpu_ns,
        .cpus = model->cpus,
        .threads = model->threads,
        .busy = model->running,
        .min_threads = model->min,
        .min_changes = model->min_changes,
        .max_threads = model->max,
        .awake_known = true,
        .awake = computing,
    };
    if (!model->probing) {
        model->probing = true;
        model->probe_sent_ms = model->now_ms;
        model_submit(model, MODEL_PROBES, 0);
    }
}

void model_set_min(struct model *model, unsigned min)
{
    model->min = min;
    model->min_changes++;
    if (count_kind(model, MODEL_WAITS) == 0)
        model->goal = most(model->goal, min);
}

unsigned model_pending(const struct model *model)
{
    return model->tail - model->head;
}

static void finish_done(struct model *model)
{
    for (unsigned i = 0; i < model->running;) {
        if (model->workers[i].left_ms == 0)
            model->workers[i] = model->workers[--model->running];
        else
            i++;
    }
}

static void start_waiting(struct model *model)
{
    while (model->head < model->tail && model->running < model->goal) {
        struct model_item item = model->items[model->head++];

        model->taken_ms = model->now_ms;
        model->threads = most(model->threads, model->running + 1);
        if (item.kind == MODEL_PROBES) {
            model->probing = false;
            model->probe_wait_ms = model->now_ms - item.queued_ms;
        } else {
            model->workers[model->running++] = item;
        }
    }
    if (model->head == model->tail)
        model->taken_ms = model->now_ms;
}

/* Those that compute share the CPUs, the first ones first; for all others time passes anyway. */
static void compute(struct model *model)
{
    unsigned on_cpu = 0;

    for (unsigned i = 0; i < model->running; i++) {
        struct model_item *item = &model->workers[i];

        if (item->kind == MODEL_COMPUTES && on_cpu == model->cpus)
            continue;
        on_cpu += item->kind == MODEL_COMPUTES;
        item->left_ms--;
    }
    model->cpu_ns += on_cpu * MW_NS_PER_MS;
}

static void gate(struct model *model)
{
    if (model->now_ms - model->taken_ms < GATE_MS)
        return;
    model->taken_ms = model->now_ms;
    model->goal = least(model->goal + 1, model->max);
}

static void make_up_for_blocked(struct model *model)
{
    unsigned target = least(model->min + count_kind(model, MODEL_WAITS), model->max);
    unsigned at_once = least(target, most(model->min + model->cpus, model->threads));
    unsigned above = model->goal - least(model->goal, model->min + model->cpus);
    unsigned delay_ms = least(STEP_MS * (1 + above / model->cpus), STEP_MS_MAX);

    if (model->goal > target) {
        unsigned back = least(model->for_blocked, model->goal - target);

        model->goal -= back;
        model->for_blocked -= back;
    } else if (model->goal < at_once) {
        model->for_blocked += at_once - model->goal;
        model->goal = at_once;
        model->step_ms = model->now_ms;
    } else if (model->goal < target && model->now_ms - model->step_ms >= delay_ms) {
        model->for_blocked++;
        model->goal++;
        model->step_ms = model->now_ms;
    }
}

static unsigned count_kind(const struct model *model, enum model_kind kind)
{
    unsigned count = 0;

    for (unsigned i = 0; i < model->running; i++)
        count += model->workers[i].kind == kind;
    return count;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned most(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

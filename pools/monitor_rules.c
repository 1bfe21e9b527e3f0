#include <limits.h>

#include "clock.h"
#include "monitor.h"
#include "monitor_rules.h"

#define INTERVAL_NS (MW_MONITOR_INTERVAL_MS * MW_NS_PER_MS)
#define AGE_NS      (MW_MONITOR_AGE_MS * MW_NS_PER_MS)
#define LATE_NS     (INTERVAL_NS + INTERVAL_NS / 2) /* from one sample to the next */

#define USED_MAX 0.5 /* of the effective CPUs: from here on they are busy */

static bool is_discarded(const struct mw_monitor_state *state,
                         const struct mw_monitor_sample *sample);
static double cpu_used(const struct mw_monitor_state *state,
                       const struct mw_monitor_sample *sample);
static unsigned blocked_count(const struct mw_monitor_sample *sample);
static bool blocked_explain(const struct mw_monitor_state *state,
                            const struct mw_monitor_sample *sample, unsigned blocked);
static unsigned first_step(const struct mw_monitor_state *state,
                           const struct mw_monitor_sample *sample);
static unsigned raise_target(struct mw_monitor_state *state,
                             const struct mw_monitor_sample *sample);
static void note_minimum(struct mw_monitor_state *state, const struct mw_monitor_sample *sample,
                         struct mw_monitor_decision *decision);
static unsigned ceiling(const struct mw_monitor_sample *sample);
static unsigned whole_cpus(const struct mw_monitor_sample *sample);
static unsigned least(unsigned a, unsigned b);

void mw_monitor_rules_init(struct mw_monitor_state *state, unsigned parallel_limit)
{
    *state = (struct mw_monitor_state){.parallel_limit = parallel_limit};
}

bool mw_monitor_rules_wants_awake(const struct mw_monitor_state *state,
                                  const struct mw_monitor_sample *sample)
{
    return !is_discarded(state, sample) && sample->age_ns >= AGE_NS &&
           sample->min_threads < ceiling(sample);
}

void mw_monitor_rules_step(struct mw_monitor_state *state, const struct mw_monitor_sample *sample,
                           struct mw_monitor_decision *decision)
{
    bool explained = false;

    *decision = (struct mw_monitor_decision){.blocked = blocked_count(sample),
                                             .cpu_used = cpu_used(state, sample)};
    note_minimum(state, sample, decision);
    if (is_discarded(state, sample)) {
        decision->verdict = MW_MONITOR_DISCARDED;
    } else if (sample->age_ns < AGE_NS) {
        decision->verdict = MW_MONITOR_CALM;
    } else if (sample->awake_known && decision->blocked == 0) {
        decision->verdict = MW_MONITOR_BUSY;
    } else {
        explained = blocked_explain(state, sample, decision->blocked);
        decision->verdict = decision->cpu_used < USED_MAX || (explained && state->explained)
                                ? MW_MONITOR_STARVED
                                : MW_MONITOR_BUSY;
    }
    if (decision->verdict == MW_MONITOR_STARVED)
        decision->min_target = raise_target(state, sample);
    state->explained = explained;
    state->begun = true;
    state->now_ns = sample->now_ns;
    state->cpu_ns = sample->cpu_ns;
    state->children_ns = sample->children_ns;
    state->throttled = sample->throttled;
}

void mw_monitor_rules_raised(struct mw_monitor_state *state, unsigned before, unsigned after)
{
    if (state->min_raised == 0)
        state->min_user = before;
    state->min_raised = after;
    state->min_changes++;
    state->stepped = true;
}

static bool is_discarded(const struct mw_monitor_state *state,
                         const struct mw_monitor_sample *sample)
{
    return !state->begun || sample->now_ns - state->now_ns > LATE_NS ||
           sample->throttled != state->throttled;
}

static double cpu_used(const struct mw_monitor_state *state, const struct mw_monitor_sample *sample)
{
    double room_ns = (double)(sample->now_ns - state->now_ns) * sample->cpus;
    double used;

    if (!state->begun || room_ns <= 0 || sample->cpu_ns < state->cpu_ns)
        return 0;
    used = (double)(sample->cpu_ns - state->cpu_ns) / room_ns;
    return used < 1 ? used : 1;
}

/* Workers inside an item that sleep, said so or not. Those awake may belong to another pool, so
 * this is the least number that there can be. */
static unsigned blocked_count(const struct mw_monitor_sample *sample)
{
    unsigned asleep = 0;

    if (sample->awake_known && sample->busy > sample->awake)
        asleep = sample->busy - sample->awake;
    return sample->declared > asleep ? sample->declared : asleep;
}

/* A child that computes is the work of a worker that waits for it. */
static bool blocked_explain(const struct mw_monitor_state *state,
                            const struct mw_monitor_sample *sample, unsigned blocked)
{
    double passed_ns = (double)(sample->now_ns - state->now_ns);
    double children = (double)(sample->children_ns - state->children_ns) / passed_ns;
    unsigned awake = sample->busy > blocked ? sample->busy - blocked : 0;

    return blocked > 0 && awake + children <= USED_MAX * sample->cpus;
}

/* What a starved pool's minimum should be; 0: what it is. */
static unsigned raise_target(struct mw_monitor_state *state, const struct mw_monitor_sample *sample)
{
    unsigned target = 0;

    if (!state->stepped) {
        target = first_step(state, sample);
        state->stepped = target <= sample->min_threads;
    } else if (sample->threads >= sample->min_threads) {
        target = sample->min_threads > UINT_MAX / 2 ? UINT_MAX : 2 * sample->min_threads;
        target = least(target, ceiling(sample));
    }
    return target > sample->min_threads ? target : 0;
}

static unsigned first_step(const struct mw_monitor_state *state,
                           const struct mw_monitor_sample *sample)
{
    unsigned cpus = whole_cpus(sample);
    unsigned sum =
        state->parallel_limit > UINT_MAX - cpus ? UINT_MAX : state->parallel_limit + cpus;

    return least(sum, ceiling(sample));
}

static void note_minimum(struct mw_monitor_state *state, const struct mw_monitor_sample *sample,
                         struct mw_monitor_decision *decision)
{
    bool seen = state->min_user != 0;

    if (seen && sample->min_changes == state->min_changes)
        return;
    decision->left = state->min_raised != 0;
    decision->min_left = state->min_raised;
    state->min_changes = sample->min_changes;
    state->min_user = sample->min_threads;
    state->min_raised = 0;
    state->stepped = false;
}

static unsigned ceiling(const struct mw_monitor_sample *sample)
{
    return least(MW_MONITOR_THREADS_PER_CPU * whole_cpus(sample), sample->max_threads);
}

static unsigned whole_cpus(const struct mw_monitor_sample *sample)
{
    unsigned whole = (unsigned)sample->cpus;

    return whole + (whole < sample->cpus);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

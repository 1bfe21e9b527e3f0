/* monitor_rules_test.c - each rule of the monitor by itself, fed with made-up samples: a row that
 * shows the rule, and beside it a row with one thing changed, which must be judged otherwise. Then
 * whole stories, told by a pool on paper, in which a rival of the rules goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/monitor.h>

#include "monitor_model.h"
#include "monitor_rules.h"

#define LIMIT 8u /* parallel_limit */
#define MS    MW_NS_PER_MS

/* Two CPUs that nobody uses, and a pool of two workers that are both blocked. */
static const struct mw_monitor_sample starved = {.now_ns = 50 * MS,
                                                 .age_ns = 50 * MS,
                                                 .cpus = 2,
                                                 .threads = 2,
                                                 .busy = 2,
                                                 .min_threads = 2,
                                                 .max_threads = 1000,
                                                 .awake_known = true};

/* Four workers, two of them blocked: more awake than explain a wait, so that CPU use decides. */
#define HALF_AWAKE .threads = 4, .busy = 4, .awake = 2

/* One sample, 50 ms after a calm one; cpu_ns is what was used in between. */
struct row {
    const char *shows;
    struct mw_monitor_sample change; /* to `starved`; 0: as it is there */
    bool awake_unknown;
    bool twice; /* it comes twice, and the second one counts */
    enum mw_monitor_verdict verdict;
    unsigned target;
};

static const struct row rows[] = {
    {.shows = "blocked workers and idle CPUs", .verdict = MW_MONITOR_STARVED, .target = LIMIT + 2},
    {.shows = "rule 1: as late as may be",
     .change = {.now_ns = 75 * MS},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but later", .change = {.now_ns = 75 * MS + 1}, .verdict = MW_MONITOR_DISCARDED},
    {.shows = "... but throttled", .change = {.throttled = 1}, .verdict = MW_MONITOR_DISCARDED},
    {.shows = "... throttled before, not since",
     .change = {.throttled = 1},
     .twice = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "rule 2: a wait as long as it must be",
     .change = {.age_ns = 40 * MS},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but shorter", .change = {.age_ns = 40 * MS - 1}, .verdict = MW_MONITOR_CALM},
    {.shows = "rule 3: all awake, and the CPUs idle: others have them",
     .change = {.awake = 2},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but one asleep",
     .change = {.awake = 1},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but it is not known who is awake: the CPUs decide",
     .awake_unknown = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... not known, and the CPUs are in use",
     .awake_unknown = true,
     .change = {.cpu_ns = 80 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... awake workers of another pool hide the blocked ones",
     .change = {.awake = 5},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but not those that said that they block",
     .change = {.awake = 5, .declared = 2},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "rule 4: less than half of the CPUs used",
     .change = {HALF_AWAKE, .cpu_ns = 50 * MS - 1},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but half",
     .change = {HALF_AWAKE, .cpu_ns = 50 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... half of a CPU and a half is less",
     .change = {HALF_AWAKE, .cpus = 1.5, .cpu_ns = 40 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but not of two, to which it must not be rounded",
     .change = {HALF_AWAKE, .cpu_ns = 40 * MS},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "rule 5: one spinner, one blocked: exactly half, the seed's blind spot",
     .change = {.awake = 1, .cpu_ns = 50 * MS},
     .twice = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... and a little more, for the monitor runs too",
     .change = {.awake = 1, .cpu_ns = 52 * MS},
     .twice = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but in one sample only",
     .change = {.awake = 1, .cpu_ns = 50 * MS},
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but two spinners",
     .change = {.awake = 2, .cpu_ns = 100 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but two spinners beside two that are blocked",
     .change = {HALF_AWAKE, .cpu_ns = 100 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... but a quota of one CPU, which the spinner fills",
     .change = {.cpus = 1, .awake = 1, .cpu_ns = 50 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... declared, where the states are not known",
     .awake_unknown = true,
     .change = {.declared = 1, .cpu_ns = 50 * MS},
     .twice = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but nobody who says so, where the states are not known",
     .awake_unknown = true,
     .change = {.cpus = 4, .cpu_ns = 200 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "... all workers blocked while a lane computes on both CPUs",
     .change = {.cpu_ns = 100 * MS},
     .twice = true,
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 2},
    {.shows = "... but not while children compute for them",
     .change = {.cpu_ns = 100 * MS, .children_ns = 100 * MS},
     .twice = true,
     .verdict = MW_MONITOR_BUSY},
    {.shows = "target: CPUs rounded up",
     .change = {.cpus = 0.5},
     .verdict = MW_MONITOR_STARVED,
     .target = LIMIT + 1},
    {.shows = "... at most the pool's maximum",
     .change = {.max_threads = 5},
     .verdict = MW_MONITOR_STARVED,
     .target = 5},
    {.shows = "... nothing to do when the minimum is as high",
     .change = {.min_threads = LIMIT + 2},
     .verdict = MW_MONITOR_STARVED},
    {.shows = "... never down",
     .change = {.min_threads = LIMIT + 3},
     .verdict = MW_MONITOR_STARVED},
    {.shows = "... also from above the ceiling",
     .change = {.threads = 200, .min_threads = 200},
     .twice = true,
     .verdict = MW_MONITOR_STARVED},
};

static struct mw_monitor_sample changed(const struct row *row)
{
    const struct mw_monitor_sample *change = &row->change;
    struct mw_monitor_sample sample = starved;

    sample.now_ns = change->now_ns != 0 ? change->now_ns : sample.now_ns;
    sample.age_ns = change->age_ns != 0 ? change->age_ns : sample.age_ns;
    sample.cpus = change->cpus > 0 ? change->cpus : sample.cpus;
    sample.threads = change->threads != 0 ? change->threads : sample.threads;
    sample.busy = change->busy != 0 ? change->busy : sample.busy;
    sample.min_threads = change->min_threads != 0 ? change->min_threads : sample.min_threads;
    sample.max_threads = change->max_threads != 0 ? change->max_threads : sample.max_threads;
    sample.cpu_ns = change->cpu_ns;
    sample.children_ns = change->children_ns;
    sample.throttled = change->throttled;
    sample.declared = change->declared;
    sample.awake = change->awake;
    sample.awake_known = !row->awake_unknown;
    return sample;
}

/* Begin with a calm sample of the same pool, at time 0. */
static void begin(struct mw_monitor_state *state, unsigned limit, unsigned min_threads)
{
    const struct mw_monitor_sample calm = {
        .cpus = 2, .threads = 2, .min_threads = min_threads, .max_threads = 1000};
    struct mw_monitor_decision decision;

    mw_monitor_rules_init(state, limit);
    mw_monitor_rules_step(state, &calm, &decision);
}

/* One more, an interval after the one before, in which `sample->cpu_ns` was used, and the minimum
 * was set by others as often as it says. */
static struct mw_monitor_decision next(struct mw_monitor_state *state,
                                       const struct mw_monitor_sample *sample)
{
    struct mw_monitor_sample later = *sample;
    struct mw_monitor_decision decision;

    later.now_ns += state->now_ns;
    later.cpu_ns += state->cpu_ns;
    later.children_ns += state->children_ns;
    later.min_changes += state->min_changes;
    mw_monitor_rules_step(state, &later, &decision);
    return decision;
}

/* Breaks when a rule, a threshold or a ceiling is not what monitor_rules.h says; the row tells. */
static void rules_judge_each_sample(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct mw_monitor_sample sample = changed(row);
        struct mw_monitor_decision decision;
        struct mw_monitor_state state;

        begin(&state, LIMIT, sample.min_threads);
        decision = next(&state, &sample);
        if (row->twice)
            decision = next(&state, &sample);
        if (decision.verdict != row->verdict || decision.min_target != row->target)
            fail_msg("%s: expected verdict %d and target %u, got %d and %u", row->shows,
                     (int)row->verdict, row->target, (int)decision.verdict, decision.min_target);
    }
}

/* Breaks when the first sample, which has nothing to be compared with, is judged. */
static void rules_discard_the_first_sample(void **unused)
{
    const struct mw_monitor_sample sample = starved;
    struct mw_monitor_decision decision;
    struct mw_monitor_state state;

    (void)unused;
    mw_monitor_rules_init(&state, LIMIT);
    mw_monitor_rules_step(&state, &sample, &decision);
    assert_int_equal(decision.verdict, MW_MONITOR_DISCARDED);
    assert_int_equal(next(&state, &sample).verdict, MW_MONITOR_STARVED);
}

/* Breaks when the two samples of rule 5 need not follow each other. */
static void rules_want_blocked_workers_twice_in_a_row(void **unused)
{
    struct mw_monitor_sample spinner = starved;
    struct mw_monitor_sample calm = starved;
    struct mw_monitor_state state;

    (void)unused;
    spinner.awake = 1;
    spinner.cpu_ns = 50 * MS;
    calm.age_ns = 0;
    begin(&state, LIMIT, 2);
    assert_int_equal(next(&state, &spinner).verdict, MW_MONITOR_BUSY);
    assert_int_equal(next(&state, &calm).verdict, MW_MONITOR_CALM);
    assert_int_equal(next(&state, &spinner).verdict, MW_MONITOR_BUSY);
    assert_int_equal(next(&state, &spinner).verdict, MW_MONITOR_STARVED); /* the control */
}

/* Breaks when the ceiling of threads for each CPU does not hold, or is not rounded up. */
static void rules_keep_to_64_threads_for_each_cpu(void **unused)
{
    static const struct {
        double cpus;
        unsigned target;
    } ceilings[] = {{2, 128}, {1.5, 128}, {1, 64}, {0.25, 64}, {16, 1000 /* the pool's */}};
    struct mw_monitor_sample sample = starved;

    (void)unused;
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        struct mw_monitor_state state;

        sample.cpus = ceilings[i].cpus;
        begin(&state, UINT32_MAX, 2);
        assert_int_equal(next(&state, &sample).min_target, ceilings[i].target);
    }
}

/* Breaks when a raise is stacked on one that the pool has not followed yet, or when it doubles past
 * the ceiling. */
static void rules_double_once_the_pool_has_caught_up(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 2);
    mw_monitor_rules_raised(&state, 2, next(&state, &sample).min_target);
    sample.min_threads = LIMIT + 2;
    sample.threads = sample.busy = LIMIT + 1;
    assert_int_equal(next(&state, &sample).verdict, MW_MONITOR_STARVED);
    assert_int_equal(next(&state, &sample).min_target, 0);
    sample.threads = LIMIT + 2;
    assert_int_equal(next(&state, &sample).min_target, 2 * (LIMIT + 2));

    mw_monitor_rules_raised(&state, LIMIT + 2, 100);
    sample.min_threads = sample.threads = 100;
    assert_int_equal(next(&state, &sample).min_target, 128);
    mw_monitor_rules_raised(&state, 100, 128);
    sample.min_threads = sample.threads = 128;
    assert_int_equal(next(&state, &sample).verdict, MW_MONITOR_STARVED);
    assert_int_equal(next(&state, &sample).min_target, 0);
    assert_int_equal(state.min_user, 2);
}

/* Breaks when a first step that the pool refused counts as made. */
static void rules_try_a_refused_step_again(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 2);
    assert_int_equal(next(&state, &sample).min_target, LIMIT + 2);
    assert_int_equal(next(&state, &sample).min_target, LIMIT + 2);
    mw_monitor_rules_raised(&state, 2, LIMIT + 2); /* the control */
    sample.min_threads = LIMIT + 2;
    assert_int_equal(next(&state, &sample).min_target, 0);
}

/* Breaks when a minimum that the user has set as high as the first step counts as a raise that the
 * pool has followed already. */
static void rules_let_a_high_minimum_be_reached_first(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 20);
    sample.min_threads = 20;
    sample.threads = 20;
    assert_int_equal(next(&state, &sample).min_target, 0); /* the first step, not needed */
    sample.threads = 19;
    assert_int_equal(next(&state, &sample).min_target, 0);
    sample.threads = 20;
    assert_int_equal(next(&state, &sample).min_target, 40);
}

/* Breaks when the monitor takes a minimum that somebody set meanwhile for its own, or tells of one
 * that nobody touched. */
static void rules_begin_anew_when_somebody_sets_the_minimum(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_decision decision;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 2);
    mw_monitor_rules_raised(&state, 2, LIMIT + 2);
    sample.min_threads = LIMIT + 2;
    sample.age_ns = 0;
    assert_false(next(&state, &sample).left);
    sample.min_threads = 6;
    sample.min_changes = 1;
    decision = next(&state, &sample);
    assert_true(decision.left);
    assert_int_equal(decision.min_left, LIMIT + 2);
    sample.min_changes = 0;
    assert_false(next(&state, &sample).left);
    assert_int_equal(state.min_user, 6);
    sample.age_ns = 50 * MS;
    assert_int_equal(next(&state, &sample).min_target, LIMIT + 2); /* the first step, not 12 */
}

/* Breaks when a minimum that somebody has set to the very value of the last raise passes for the
 * raise: at the end it would be put back over it. */
static void rules_see_a_minimum_set_to_what_it_was_raised_to(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_decision decision;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 2);
    mw_monitor_rules_raised(&state, 2, LIMIT + 2);
    sample.min_threads = LIMIT + 2;
    sample.age_ns = 0;
    assert_false(next(&state, &sample).left); /* the control */
    assert_int_equal(state.min_raised, LIMIT + 2);
    sample.min_changes = 1;
    decision = next(&state, &sample);
    assert_true(decision.left);
    assert_int_equal(decision.min_left, LIMIT + 2);
    assert_int_equal(state.min_user, LIMIT + 2);
    assert_int_equal(state.min_raised, 0);
    sample.min_changes = 0;
    assert_false(next(&state, &sample).left);
}

/* Breaks when the costly look at the workers is taken, or not taken, without need. */
static void rules_want_the_workers_states_only_if_it_matters(void **unused)
{
    struct mw_monitor_sample sample = starved;
    struct mw_monitor_state state;

    (void)unused;
    begin(&state, LIMIT, 2);
    assert_true(mw_monitor_rules_wants_awake(&state, &sample));
    sample.age_ns = 0;
    assert_false(mw_monitor_rules_wants_awake(&state, &sample));
    sample = starved;
    sample.throttled = 1;
    assert_false(mw_monitor_rules_wants_awake(&state, &sample));
    sample = starved;
    sample.max_threads = sample.min_threads;
    assert_false(mw_monitor_rules_wants_awake(&state, &sample));
}

/* ---- stories ---- */

/* A rival: work waits, and the CPUs have room. The seed tried it. */
static bool pending_trigger(const struct model *model, const struct mw_monitor_decision *decision)
{
    return model_pending(model) > 1 /* beside the probe */ && decision->cpu_used < 0.5;
}

struct verdicts {
    unsigned raises;
    unsigned rival_raises;
    unsigned samples;
};

/* Four items every ten milliseconds for ten seconds; nobody changes the minimum. */
static struct verdicts run_bursts(enum model_kind kind, unsigned ms)
{
    static struct model model;
    struct verdicts verdicts = {0};
    struct mw_monitor_state state;

    model_init(&model, 2, 500);
    mw_monitor_rules_init(&state, LIMIT);
    while (model.now_ms < 10000) {
        struct mw_monitor_decision decision;
        struct mw_monitor_sample sample;

        if (model.now_ms % 10 == 0)
            for (int i = 0; i < 4; i++)
                model_submit(&model, kind, ms);
        model_tick(&model);
        if (model.now_ms % MW_MONITOR_INTERVAL_MS != 1)
            continue;
        model_sample(&model, &sample);
        mw_monitor_rules_step(&state, &sample, &decision);
        verdicts.samples++;
        verdicts.raises += decision.min_target != 0;
        verdicts.rival_raises += pending_trigger(&model, &decision);
    }
    return verdicts;
}

/* Breaks when the length of the queue comes to count. The rival, fed with the same samples, raises
 * at every one of them; and the same bursts of blocking work must raise. */
static void rules_leave_a_busy_but_healthy_pool_alone(void **unused)
{
    struct verdicts healthy = run_bursts(MODEL_COMPUTES, 1);
    struct verdicts blocking = run_bursts(MODEL_SLEEPS, 100);

    (void)unused;
    assert_int_equal(healthy.raises, 0);
    assert_true(healthy.rival_raises >= healthy.samples - 1);
    assert_true(blocking.raises > 0);
}

/* A rival: as many more as there are CPUs, whenever it is starved and the pool has caught up. */
static unsigned small_step(const struct mw_monitor_sample *sample,
                           const struct mw_monitor_decision *decision)
{
    bool caught_up = sample->threads >= sample->min_threads;

    return decision->verdict == MW_MONITOR_STARVED && caught_up ? sample->min_threads + 2 : 0;
}

/* Sleeps and cooperative waits by turns, two seconds each. Returns when the last one has begun. */
static unsigned run_mixed(bool in_small_steps)
{
    enum { ITEMS = 48, PARALLEL_LIMIT = 48 };
    static struct model model;
    struct mw_monitor_state state;

    model_init(&model, 2, 500);
    mw_monitor_rules_init(&state, PARALLEL_LIMIT);
    for (int i = 0; i < ITEMS; i++)
        model_submit(&model, i % 2 == 0 ? MODEL_SLEEPS : MODEL_WAITS, 2000);
    while (model.head < ITEMS && model.now_ms < 10000) {
        struct mw_monitor_decision decision;
        struct mw_monitor_sample sample;
        unsigned target;

        model_tick(&model);
        if (model.now_ms % MW_MONITOR_INTERVAL_MS != 0)
            continue;
        model_sample(&model, &sample);
        mw_monitor_rules_step(&state, &sample, &decision);
        target = in_small_steps ? small_step(&sample, &decision) : decision.min_target;
        if (target == 0)
            continue;
        mw_monitor_rules_raised(&state, model.min, target);
        model_set_min(&model, target);
    }
    return model.now_ms;
}

/* Breaks when the first raise is not one step to where all that may block at once has a thread. The
 * rival's small steps are each followed at once, and each must wait to be found wanting again. */
static void rules_need_one_step_where_small_ones_stall(void **unused)
{
    unsigned one_step_ms = run_mixed(false);
    unsigned small_steps_ms = run_mixed(true);

    (void)unused;
    assert_in_range(one_step_ms, 1, 3 * MW_MONITOR_INTERVAL_MS);
    assert_true(small_steps_ms >= 5 * one_step_ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_judge_each_sample),
        cmocka_unit_test(rules_discard_the_first_sample),
        cmocka_unit_test(rules_want_blocked_workers_twice_in_a_row),
        cmocka_unit_test(rules_keep_to_64_threads_for_each_cpu),
        cmocka_unit_test(rules_double_once_the_pool_has_caught_up),
        cmocka_unit_test(rules_try_a_refused_step_again),
        cmocka_unit_test(rules_let_a_high_minimum_be_reached_first),
        cmocka_unit_test(rules_begin_anew_when_somebody_sets_the_minimum),
        cmocka_unit_test(rules_see_a_minimum_set_to_what_it_was_raised_to),
        cmocka_unit_test(rules_want_the_workers_states_only_if_it_matters),
        cmocka_unit_test(rules_leave_a_busy_but_healthy_pool_alone),
        cmocka_unit_test(rules_need_one_step_where_small_ones_stall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "where.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "site.h"

static int measure_subject(const struct plan *plan, struct site *site, struct subject *subject,
                           struct where *result);
static void stages_of(const struct site_answer *answer, double ms[STAGES]);

static const char *const stage_names[STAGES] = {
    [STAGE_HTTP] = "HTTP and JSON",      [STAGE_KEY] = "files, key, look-up",
    [STAGE_QUEUE] = "queue of the lane", [STAGE_WORKER] = "worker: take, hand over, copy",
    [STAGE_COMPILE] = "worker: compile", [STAGE_STORE] = "store, answer",
};

int where_measure(const struct plan *plan, struct where results[SUBJECTS])
{
    const char *options[PLAN_OPTIONS_MAX];
    struct site site;
    int error;

    plan_options(plan, NULL, options);
    error = site_open(&site, plan->program, plan->folder, "where", options);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        for (unsigned stage = 0; stage < STAGES; stage++)
            results[i].ms[stage] = NAN;
        results[i].worker_cpu_ms = NAN;
        if (error == 0 && (!plan->quick || subjects[i].is_quick))
            error = measure_subject(plan, &site, &subjects[i], &results[i]);
    }
    site_close(&site);
    return error;
}

const char *where_stage_name(unsigned stage)
{
    return stage_names[stage];
}

static int measure_subject(const struct plan *plan, struct site *site, struct subject *subject,
                           struct where *result)
{
    unsigned runs = plan->bench->runs;
    double *samples = calloc(runs * (STAGES + 1), sizeof *samples);
    int error = samples == NULL ? -ENOMEM : site_warm(site, subject);

    for (unsigned run = 0; error == 0 && run < runs; run++) {
        char *body = subject_body(subject);
        struct site_answer answer = {0};
        double ms[STAGES];

        plan_pause(plan);
        error = site_compile(site, subject, body, &answer);
        stages_of(&answer, ms);
        for (unsigned stage = 0; stage < STAGES; stage++)
            samples[stage * runs + run] = ms[stage];
        samples[STAGES * runs + run] = answer.worker_cpu_ms;
        free(body);
    }
    for (unsigned stage = 0; error == 0 && stage < STAGES; stage++)
        result->ms[stage] = bench_quantile(samples + stage * runs, runs, 0.5);
    if (error == 0)
        result->worker_cpu_ms = bench_quantile(samples + STAGES * runs, runs, 0.5);
    free(samples);
    return error;
}

static void stages_of(const struct site_answer *answer, double ms[STAGES])
{
    ms[STAGE_KEY] = answer->prefix_ms;
    ms[STAGE_QUEUE] = answer->queued_ms;
    ms[STAGE_WORKER] = answer->leaf_ms - answer->worker_ms;
    ms[STAGE_COMPILE] = answer->worker_ms;
    ms[STAGE_STORE] = answer->suffix_ms;
    ms[STAGE_HTTP] =
        answer->ms - answer->prefix_ms - answer->queued_ms - answer->leaf_ms - answer->suffix_ms;
}

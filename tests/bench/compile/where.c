#include "where.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "site.h"

static int measure_subject(const struct plan *plan, struct site *site, struct subject *subject,
                           struct where *result);
static int measure_once(const struct plan *plan, struct site *site, struct subject *subject,
                        double ms[WHERE_ROWS]);
static int post(const struct plan *plan, struct site *site, struct subject *subject, char *body,
                struct site_answer *answer);
static void stages_of(const struct site_answer *answer, double ms[WHERE_ROWS]);
static void parts_of(const struct site_answer *answer, double ms[WHERE_ROWS]);

static const char *const row_names[WHERE_ROWS] = {
    [STAGE_HTTP] = "HTTP and JSON",
    [STAGE_KEY] = "files, key, look-up",
    [STAGE_QUEUE] = "queue of the lane",
    [STAGE_TAKE] = "a worker is taken, or forked",
    [STAGE_HAND_OVER] = "the request is handed over",
    [STAGE_RUN] = "the compile",
    [STAGE_COPY] = "the answer is copied",
    [STAGE_STORE] = "store, answer",
    [PART_RUN] = "the compile without a prefix",
    [PART_REST] = "  set-up, all else",
    [PART_DRIVER] = "  driver",
    [PART_HEADERS] = "  headers",
    [PART_SEMA] = "  sema, templates",
    [PART_IR] = "  IR",
    [PART_PASSES] = "  passes",
    [PART_CODE] = "  code generation",
};

int where_measure(const struct plan *plan, struct where results[SUBJECTS])
{
    const char *options[PLAN_OPTIONS_MAX];
    struct site site;
    int error;

    plan_options(plan, NULL, options);
    error = site_open(&site, plan->program, plan->folder, "where", options);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        for (unsigned row = 0; row < WHERE_ROWS; row++)
            results[i].ms[row] = NAN;
        if (error == 0 && (!plan->quick || subjects[i].is_quick))
            error = measure_subject(plan, &site, &subjects[i], &results[i]);
    }
    site_close(&site);
    return error;
}

const char *where_row_name(unsigned row)
{
    return row_names[row];
}

static int measure_subject(const struct plan *plan, struct site *site, struct subject *subject,
                           struct where *result)
{
    unsigned runs = plan->bench->runs;
    double *samples = calloc(runs * WHERE_ROWS, sizeof *samples);
    int error = samples == NULL ? -ENOMEM : site_warm(site, subject);

    for (unsigned run = 0; error == 0 && run < runs; run++) {
        double ms[WHERE_ROWS];

        error = measure_once(plan, site, subject, ms);
        for (unsigned row = 0; error == 0 && row < WHERE_ROWS; row++)
            samples[row * runs + run] = ms[row];
    }
    for (unsigned row = 0; error == 0 && row < WHERE_ROWS; row++)
        result->ms[row] = bench_quantile(samples + row * runs, runs, 0.5);
    free(samples);
    return error;
}

static int measure_once(const struct plan *plan, struct site *site, struct subject *subject,
                        double ms[WHERE_ROWS])
{
    struct site_answer answer = {0};
    int error = post(plan, site, subject, subject_body(subject), &answer);

    stages_of(&answer, ms);
    if (error == 0)
        error = post(plan, site, subject, subject_body_traced(subject), &answer);
    parts_of(&answer, ms);
    return error;
}

static int post(const struct plan *plan, struct site *site, struct subject *subject, char *body,
                struct site_answer *answer)
{
    int error;

    plan_pause(plan);
    error = site_compile(site, subject, body, answer);
    free(body);
    return error;
}

static void stages_of(const struct site_answer *answer, double ms[WHERE_ROWS])
{
    ms[STAGE_HTTP] =
        answer->ms - answer->prefix_ms - answer->queued_ms - answer->leaf_ms - answer->suffix_ms;
    ms[STAGE_KEY] = answer->prefix_ms;
    ms[STAGE_QUEUE] = answer->queued_ms;
    ms[STAGE_TAKE] = answer->take_ms;
    ms[STAGE_HAND_OVER] = answer->hand_over_ms;
    ms[STAGE_RUN] = answer->run_ms;
    ms[STAGE_COPY] = answer->leaf_ms - answer->take_ms - answer->hand_over_ms - answer->run_ms;
    ms[STAGE_STORE] = answer->suffix_ms;
}

static void parts_of(const struct site_answer *answer, double ms[WHERE_ROWS])
{
    const double *trace = answer->trace_ms;

    ms[PART_RUN] = answer->run_ms;
    ms[PART_REST] = answer->run_ms;
    for (unsigned i = 0; i < SITE_TRACES; i++) {
        ms[PART_DRIVER + i] = trace[i];
        ms[PART_REST] -= trace[i];
    }
}

#include "speed.h"

#include <errno.h>
#include <math.h>
#include <millwright/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "peer.h"
#include "site.h"

enum { VALUE_MS, VALUE_PREFIX };

/* One subject by one way. */
struct cell {
    const struct plan *plan;
    struct subject *subject;
    char name[64];
    char *folder; /* of clang's files; shared by the cells of a subject */
};

static struct site isolated, in_process;
static char *last_bodies[SUBJECTS]; /* what was posted last to the isolated service */

static int sites_open(const struct plan *plan);
static int sites_warm(const struct plan *plan);
static int rounds(const struct plan *plan, struct speed speeds[SUBJECTS]);
static void cells_make(const struct plan *plan, struct cell *cells, struct bench_variant *variants,
                       size_t *group_count);
static bench_measure measure_isolated, measure_switched, measure_in_process, measure_cached,
    measure_clang;
static int measure_after(struct cell *cell, struct subject *before,
                         double values[BENCH_VALUES_MAX]);
static int measure_post(struct site *site, struct cell *cell, char *body,
                        double values[BENCH_VALUES_MAX]);
static int clang_check(const struct cell *cell);

int speed_measure(const struct plan *plan, struct speed speeds[SUBJECTS])
{
    int error;

    for (size_t i = 0; i < SUBJECTS; i++)
        speeds[i] = (struct speed){{NAN, NAN, NAN, NAN, NAN}, NAN};
    error = sites_open(plan);
    if (error == 0)
        error = sites_warm(plan);
    if (error == 0)
        error = rounds(plan, speeds);
    site_close(&isolated);
    site_close(&in_process);
    for (size_t i = 0; i < SUBJECTS; i++)
        free(last_bodies[i]);
    return error;
}

double speed_ratio(const struct speed *speed, unsigned way)
{
    return speed->ms[WAY_CLANG] / speed->ms[way];
}

/* ---- set up ---- */

static int sites_open(const struct plan *plan)
{
    const char *options[PLAN_OPTIONS_MAX];
    int error;

    plan_options(plan, NULL, options);
    error = site_open(&isolated, plan->program, plan->folder, "isolated", options);
    plan_options(plan, (const char *[]){"--isolation", "in-process", NULL}, options);
    if (error == 0)
        error = site_open(&in_process, plan->program, plan->folder, "in-process", options);
    in_process.is_in_process = true;
    return error;
}

static int sites_warm(const struct plan *plan)
{
    int error = 0;

    for (size_t i = 0; error == 0 && i < SUBJECTS; i++) {
        if (plan->quick && !subjects[i].is_quick)
            continue;
        error = site_warm(&isolated, &subjects[i]);
        if (error == 0)
            error = site_warm(&in_process, &subjects[i]);
    }
    return error;
}

static int rounds(const struct plan *plan, struct speed speeds[SUBJECTS])
{
    static struct cell cells[SUBJECTS * WAYS];
    struct bench_variant variants[SUBJECTS * WAYS];
    size_t group_count;
    int error;

    cells_make(plan, cells, variants, &group_count);
    error = bench_rounds(plan->bench, variants, group_count, WAYS);
    for (size_t i = 0; i < group_count * WAYS; i++) {
        struct speed *speed = &speeds[cells[i].subject - subjects];

        speed->ms[i % WAYS] = variants[i].medians[VALUE_MS];
        if (i % WAYS == WAY_ISOLATED)
            speed->prefix = variants[i].medians[VALUE_PREFIX];
        if (i % WAYS == WAY_CLANG)
            free(cells[i].folder);
    }
    return error;
}

static void cells_make(const struct plan *plan, struct cell *cells, struct bench_variant *variants,
                       size_t *group_count)
{
    static bench_measure *const measures[WAYS] = {
        measure_isolated, measure_switched, measure_in_process, measure_cached, measure_clang};
    static const char *const kinds[WAYS] = {"isolated", "switched", "in process", "cached",
                                            COMPILER};
    size_t count = 0;

    for (size_t i = 0; i < SUBJECTS; i++) {
        char name[16];
        char *folder;

        if (plan->quick && !subjects[i].is_quick)
            continue;
        snprintf(name, sizeof name, "clang-%zu", i);
        folder = path_join(plan->folder, name);
        if (mkdir(folder, 0777) == 0)
            subject_write(&subjects[i], folder);
        for (unsigned way = 0; way < WAYS; way++, count++) {
            cells[count] = (struct cell){plan, &subjects[i], "", folder};
            snprintf(cells[count].name, sizeof cells[count].name, "%s %s", subjects[i].name,
                     kinds[way]);
            variants[count] = (struct bench_variant){
                .name = cells[count].name, .measure = measures[way], .context = &cells[count]};
        }
    }
    *group_count = count / WAYS;
}

/* ---- the ways ---- */

static int measure_isolated(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct cell *cell = context;

    (void)round;
    return measure_after(cell, cell->subject, values);
}

static int measure_switched(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct cell *cell = context;
    bool is_first = cell->subject == &subjects[HELLO_O0];

    (void)round;
    return measure_after(cell, &subjects[is_first ? WORDS_O0 : HELLO_O0], values);
}

static int measure_after(struct cell *cell, struct subject *before, double values[BENCH_VALUES_MAX])
{
    char **body = &last_bodies[cell->subject - subjects];
    char *first = subject_body(before);
    struct site_answer answer = {0};
    int error = site_compile(&isolated, before, first, &answer);

    free(first);
    if (error != 0)
        return error;
    free(*body);
    *body = subject_body(cell->subject);
    return measure_post(&isolated, cell, *body, values);
}

static int measure_in_process(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct cell *cell = context;
    char *body = subject_body(cell->subject);
    int error = measure_post(&in_process, cell, body, values);

    (void)round;
    free(body);
    return error;
}

/* The warm-up round begins with measure_isolated, so there is a body. */
static int measure_cached(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct cell *cell = context;
    struct site_answer answer = {0};
    int error =
        site_compile(&isolated, cell->subject, last_bodies[cell->subject - subjects], &answer);

    (void)round;
    values[VALUE_MS] = answer.ms;
    if (error == 0 && !answer.is_cached) {
        fprintf(stderr, "compile: %s was compiled again, not answered from the store\n",
                cell->name);
        error = -EBADMSG;
    }
    return error;
}

static int measure_clang(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct cell *cell = context;
    uint64_t begin_ns;
    int error;

    plan_pause(cell->plan);
    begin_ns = mw_clock_ns();
    error = peer_compile(cell->subject, cell->folder, "clang.o");
    values[VALUE_MS] = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    return error == 0 && round == 0 ? clang_check(cell) : error;
}

static int measure_post(struct site *site, struct cell *cell, char *body,
                        double values[BENCH_VALUES_MAX])
{
    struct site_answer answer = {0};
    int error;

    plan_pause(cell->plan);
    error = site_compile(site, cell->subject, body, &answer);
    values[VALUE_MS] = answer.ms;
    values[VALUE_PREFIX] = answer.prefix;
    if (error == 0 && answer.is_cached) {
        fprintf(stderr, "compile: %s was answered from the store, not compiled\n", cell->name);
        error = -EBADMSG;
    }
    return error;
}

static int clang_check(const struct cell *cell)
{
    char *path = path_join(cell->folder, "clang.o");
    struct bytes object = file_read(path);
    int error = subject_check(cell->subject, object.data, object.count);

    if (error != 0)
        fprintf(stderr, "compile: %s: the object of millwright is not that of %s\n",
                cell->subject->name, COMPILER);
    free(object.data);
    free(path);
    return error;
}

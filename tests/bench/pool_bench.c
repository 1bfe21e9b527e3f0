/* pool_bench.c - the measurements of seeds 000, 001 and 003 on our pool, the seeds' own figures
 * beside ours.
 *
 * What is measured stands in pools/, a file for each subject; here is in which order. The probe of
 * seed 002 has a command of its own, `millwright probe`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>

#include "bench.h"
#include "lanes/child.h"
#include "lanes/work.h"
#include "pools/report.h"
#include "pools/section.h"
#include "pools/table.h"

#define RUNS_DEFAULT  2u
#define SECTION_BEGIN "<!-- begin: ./dev bench pools -- --update -->"
#define SECTION_END   "<!-- end -->"

/* One variant of a table. */
struct variant {
    struct table_result *result;
    struct table_cell cell;
};

static const struct table *const tables[] = {
    &neutral_table, &blocking_table, &escalation_table, &slots_table,
    &connect_table, &batch_table,    &memory_table,
};

#define TABLES       (sizeof tables / sizeof *tables)
#define VARIANTS_MAX (TABLE_GROUPS_MAX * TABLE_COLUMNS_MAX)

static const char *only, *quick, *update;
static const struct bench_option options[] = {
    {"--rows", "TEXT", "only the tables that have TEXT in their name, such as 'block'", &only},
    {"--quick", NULL, "few rounds of a small load: for the form, not for the figures", &quick},
    {"--update", "FILE", "also put the tables into FILE, in place of those before", &update},
};

static int measure_tables(const struct bench *bench, struct table_result *results, size_t *count);
static int measure_table(const struct bench *bench, struct table_result *result);
static bench_measure measure;
static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX]);
static int show(const struct bench *bench, const struct table_result *results, size_t count);
static int update_file(const char *text);
static int tell_update(int error);

int main(int argc, char **argv)
{
    struct bench bench = {.name = "pools",
                          .summary = "the pool under what the seeds measured, and what they got",
                          .options = options,
                          .option_count = sizeof options / sizeof *options,
                          .runs_default = RUNS_DEFAULT};
    struct table_result results[TABLES] = {0};
    size_t count = 0;
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    if (update != NULL && (only != NULL || quick != NULL)) {
        fprintf(stderr, "pools: --update takes the whole: leave out --rows and --quick\n");
        return 2;
    }
    if (update != NULL && tell_update(section_find(update, SECTION_BEGIN, SECTION_END)) != 0)
        return 1; /* before minutes have gone by */
    work_loops = work_calibrate(MW_NS_PER_MS);
    status = measure_tables(&bench, results, &count);
    if (status == 0)
        status = show(&bench, results, count);
    for (size_t i = 0; i < count; i++)
        free(results[i].samples);
    return status == -EINVAL ? 2 : status != 0;
}

static int measure_tables(const struct bench *bench, struct table_result *results, size_t *count)
{
    int error = 0;

    for (size_t i = 0; error == 0 && i < TABLES; i++)
        if (only == NULL || strstr(tables[i]->name, only) != NULL) {
            results[*count].table = tables[i];
            error = measure_table(bench, &results[(*count)++]);
        }
    if (*count == 0) {
        fprintf(stderr, "pools: no table has '%s' in its name; see the names without --rows\n",
                only);
        return -EINVAL;
    }
    return error;
}

static int measure_table(const struct bench *bench, struct table_result *result)
{
    const struct table *table = result->table;
    struct bench_variant variants[VARIANTS_MAX];
    struct variant contexts[VARIANTS_MAX];
    struct bench some = *bench;
    size_t count = (size_t)table->group_count * table->column_count;

    some.runs = bench->runs * (quick == NULL ? table->rounds : 1);
    result->rounds = some.runs + table->cold;
    result->samples = calloc(count * BENCH_VALUES_MAX * result->rounds, sizeof *result->samples);
    if (result->samples == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        contexts[i] = (struct variant){.result = result,
                                       .cell = {.group = (unsigned)(i / table->column_count),
                                                .column = (unsigned)(i % table->column_count),
                                                .quick = quick != NULL}};
        variants[i] = (struct bench_variant){
            .name = table->name, .measure = measure, .context = &contexts[i]};
    }
    return bench_rounds(&some, variants, table->group_count, table->column_count);
}

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct variant *variant = context;
    const struct table *table = variant->result->table;
    const struct table_cell *cell = &variant->cell;
    int error;

    variant->cell.round = round;
    error = child_measure(table->name, measure_in_child, variant, values);
    if (round > 0 || table->cold)
        for (unsigned i = 0; i < BENCH_VALUES_MAX; i++)
            table_samples(variant->result, cell->group, cell->column, i)[round - !table->cold] =
                values[i];
    return error;
}

static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX])
{
    const struct variant *variant = context;

    return variant->result->table->measure(&variant->cell, values);
}

static int show(const struct bench *bench, const struct table_result *results, size_t count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    int error = 0;

    if (out == NULL)
        return -errno;
    report_text(out, bench, results, count);
    if (quick != NULL)
        fputs("\nThis was --quick: a small load, for which the goals are not meant.\n", out);
    if (fclose(out) != 0)
        error = -ENOMEM;
    if (error == 0 && bench->json)
        error = report_json(bench, results, count);
    else if (error == 0 && (fputs(text, stdout) < 0 || fflush(stdout) != 0))
        error = -EIO;
    if (error == 0 && update != NULL)
        error = update_file(text);
    free(text);
    return error;
}

static int update_file(const char *text)
{
    char *block = NULL;
    int error;

    if (asprintf(&block, "\n```\n%s```\n\n", text) < 0)
        return -ENOMEM;
    error = section_replace(update, SECTION_BEGIN, SECTION_END, block);
    free(block);
    return tell_update(error);
}

static int tell_update(int error)
{
    if (error == -ENOENT)
        fprintf(stderr, "pools: '%s' is not there or has no lines '%s' and '%s'\n", update,
                SECTION_BEGIN, SECTION_END);
    else if (error != 0)
        fprintf(stderr, "pools: cannot update '%s': %s\n", update, strerror(-error));
    return error;
}

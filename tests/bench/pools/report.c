#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "interval.h"

#define GOAL_BYTES 32u

static void print_table(FILE *out, const struct table_result *result);
static void print_rows(FILE *out, const struct table_result *result);
static void print_ratios(FILE *out, const struct table_result *result);
static void print_goals(FILE *out, const struct table_result *results, size_t count);
static void set_figure(struct grid *grid, unsigned row, unsigned column, double figure);
static void describe_goal(const struct table_ratio *ratio, char text[GOAL_BYTES]);
static json_t *row_json(const struct table_result *result, const struct table_row *row);
static json_t *ratio_json(const struct table_result *result, const struct table_ratio *ratio);
static json_t *seed_json(const struct table *table, const struct table_row *row);
static json_t *named(const struct table *table, const char *name);
static double figure_of(const struct table_result *result, const struct table_row *row,
                        unsigned column);
static struct interval ratio_of(const struct table_result *result, const struct table_ratio *ratio);
static bool has_goal(const struct table_ratio *ratio);
static bool is_met(const struct table_ratio *ratio, const struct interval *interval);
static double finite_or_minus_one(double value);

void report_text(FILE *out, const struct bench *bench, const struct table_result *results,
                 size_t count)
{
    char machine[BENCH_MACHINE_BYTES];

    bench_describe_machine(bench, machine);
    fprintf(out, "%s: %s\n%s\n", bench->name, bench->summary, machine);
    for (size_t i = 0; i < count; i++)
        print_table(out, &results[i]);
    print_goals(out, results, count);
    fprintf(out, "\nHow long an item waits beside compiles, seed 002's table: millwright probe\n");
}

int report_json(const struct bench *bench, const struct table_result *results, size_t count)
{
    json_t *rows = json_array();
    json_t *object;
    int error = 0;

    for (size_t i = 0; i < count; i++) {
        const struct table *table = results[i].table;

        for (const struct table_row *row = table->rows; row->name != NULL; row++)
            error |= json_array_append_new(rows, row_json(&results[i], row));
        for (const struct table_ratio *ratio = table->ratios; ratio->name != NULL; ratio++)
            error |= json_array_append_new(rows, ratio_json(&results[i], ratio));
    }
    object = json_pack("{s:s, s:o}", "benchmark", bench->name, "rows", rows);
    if (error == 0)
        error = json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    json_decref(object);
    putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout))
        return -EIO;
    return error == 0 ? 0 : -ENOMEM;
}

/* ---- for people ---- */

static void print_table(FILE *out, const struct table_result *result)
{
    fprintf(out, "\n%s: %s\n\n", result->table->name, result->table->title);
    print_rows(out, result);
    if (result->table->ratios[0].name != NULL) {
        fprintf(out, "\n");
        print_ratios(out, result);
    }
    fprintf(out, "\n%s %u round%s.\n", result->table->note, result->rounds,
            result->rounds == 1 ? "" : "s");
}

/* Ours, then the seed's; a column that the seed has nothing in stays empty and is not shown. */
static void print_rows(FILE *out, const struct table_result *result)
{
    const struct table *table = result->table;
    struct grid grid = {0};

    for (unsigned column = 0; column < table->column_count; column++)
        grid_set(&grid, 0, 2 + column, "%s", table->columns[column]);
    for (unsigned i = 0; table->rows[i].name != NULL; i++) {
        grid_set(&grid, 1 + i, 0, "%s", table->rows[i].name);
        grid_set(&grid, 1 + i, 1, "%s", table->rows[i].unit);
        for (unsigned column = 0; column < table->column_count; column++) {
            const char *seed = table->rows[i].seed[column];
            unsigned beside = 2 + table->column_count + column;

            set_figure(&grid, 1 + i, 2 + column, figure_of(result, &table->rows[i], column));
            if (seed != NULL) {
                grid_set(&grid, 0, beside, "seed, %s", table->columns[column]);
                grid_set(&grid, 1 + i, beside, "%s", seed);
            }
        }
    }
    grid_print(&grid, out);
}

static void print_ratios(FILE *out, const struct table_result *result)
{
    struct grid grid = {0};

    grid_set(&grid, 0, 1, "ratio");
    grid_set(&grid, 0, 5, "seed");
    for (unsigned i = 0; result->table->ratios[i].name != NULL; i++) {
        const struct table_ratio *ratio = &result->table->ratios[i];
        struct interval interval = ratio_of(result, ratio);
        char goal[GOAL_BYTES];

        grid_set(&grid, 1 + i, 0, "%s", ratio->name);
        grid_set(&grid, 1 + i, 1, "%.3f", interval.middle);
        if (ratio->paired && isfinite(interval.low)) {
            grid_set(&grid, 0, 2, "95 %% interval");
            grid_set(&grid, 1 + i, 2, "%.3f to %.3f", interval.low, interval.high);
        }
        if (has_goal(ratio)) {
            grid_set(&grid, 0, 3, "goal");
            describe_goal(ratio, goal);
            grid_set(&grid, 1 + i, 3, "%s", goal);
            grid_set(&grid, 1 + i, 4, "%s", is_met(ratio, &interval) ? "met" : "LOST");
        }
        grid_set(&grid, 1 + i, 5, "%s", ratio->seed == NULL ? "" : ratio->seed);
    }
    grid_print(&grid, out);
}

static void print_goals(FILE *out, const struct table_result *results, size_t count)
{
    unsigned goals = 0;
    unsigned reached = 0;

    for (size_t i = 0; i < count; i++)
        for (const struct table_ratio *ratio = results[i].table->ratios; ratio->name != NULL;
             ratio++) {
            struct interval interval = ratio_of(&results[i], ratio);

            goals += has_goal(ratio);
            reached += has_goal(ratio) && is_met(ratio, &interval);
        }
    if (goals > 0)
        fprintf(out, "\n%u of %u goals met\n", reached, goals);
}

/* About three digits that mean something, and whole numbers as such. */
static void set_figure(struct grid *grid, unsigned row, unsigned column, double figure)
{
    bool whole = figure == floor(figure);

    if (isnan(figure))
        grid_set(grid, row, column, "-");
    else if (isinf(figure))
        grid_set(grid, row, column, "stuck");
    else
        grid_set(grid, row, column, "%.*f",
                 whole          ? 0
                 : figure < 10  ? 2
                 : figure < 100 ? 1
                                : 0,
                 figure);
}

static void describe_goal(const struct table_ratio *ratio, char text[GOAL_BYTES])
{
    if (ratio->most == 0)
        snprintf(text, GOAL_BYTES, "above %.2f", ratio->least);
    else if (ratio->least == 0)
        snprintf(text, GOAL_BYTES, "at most %.2f", ratio->most);
    else
        snprintf(text, GOAL_BYTES, "%.2f to %.2f", ratio->least, ratio->most);
}

/* ---- for programs ---- */

static json_t *row_json(const struct table_result *result, const struct table_row *row)
{
    const struct table *table = result->table;
    double ours = figure_of(result, row, table->ours);
    unsigned first = table->ours == 0 ? 1 : 0;
    double ratio = table->column_count > 1 ? figure_of(result, row, first) / ours : 0;
    json_t *peers = json_object();

    for (unsigned column = 0; column < table->column_count; column++)
        if (column != table->ours)
            json_object_set_new(peers, table->columns[column],
                                json_real(finite_or_minus_one(figure_of(result, row, column))));
    return json_pack("{s:o, s:s, s:f, s:o, s:f, s:i, s:o}", "row", named(table, row->name), "unit",
                     row->unit, "ours", finite_or_minus_one(ours), "peers", peers, "ratio",
                     finite_or_minus_one(ratio), "runs", (int)result->rounds, "seed",
                     seed_json(table, row));
}

static json_t *ratio_json(const struct table_result *result, const struct table_ratio *ratio)
{
    struct interval interval = ratio_of(result, ratio);
    double middle = finite_or_minus_one(interval.middle);
    json_t *object = json_pack("{s:o, s:s, s:f, s:{}, s:f, s:i}", "row",
                               named(result->table, ratio->name), "unit", "ratio", "ours", middle,
                               "peers", "ratio", middle, "runs", (int)result->rounds);

    if (ratio->paired && isfinite(interval.low))
        json_object_set_new(object, "interval", json_pack("[f, f]", interval.low, interval.high));
    if (ratio->seed != NULL)
        json_object_set_new(object, "seed", json_string(ratio->seed));
    if (has_goal(ratio))
        json_object_set_new(object, "goal",
                            json_pack("{s:f, s:f, s:b}", "at_least", ratio->least, "at_most",
                                      ratio->most, "met", is_met(ratio, &interval)));
    return object;
}

static json_t *seed_json(const struct table *table, const struct table_row *row)
{
    json_t *seed = json_object();

    for (unsigned column = 0; column < table->column_count; column++)
        if (row->seed[column] != NULL)
            json_object_set_new(seed, table->columns[column], json_string(row->seed[column]));
    return seed;
}

static json_t *named(const struct table *table, const char *name)
{
    return json_sprintf("%s: %s", table->name, name);
}

/* ---- figures ---- */

static double figure_of(const struct table_result *result, const struct table_row *row,
                        unsigned column)
{
    const double *samples = table_samples(result, row->group, column, row->value);
    size_t bytes = result->rounds * sizeof *samples;
    double *sorted = malloc(bytes);
    double sum = 0;
    double figure = NAN;

    if (sorted == NULL)
        return NAN;
    memcpy(sorted, samples, bytes);
    for (unsigned i = 0; i < result->rounds; i++)
        sum += samples[i];
    if (row->figure == TABLE_MEAN)
        figure = sum / result->rounds;
    else
        figure = bench_quantile(sorted, result->rounds, row->figure == TABLE_MAX ? 1 : 0.5);
    free(sorted);
    return figure;
}

static struct interval ratio_of(const struct table_result *result, const struct table_ratio *ratio)
{
    const struct table_row *row = &result->table->rows[ratio->row];

    if (ratio->paired)
        return interval_of_ratio(table_samples(result, row->group, ratio->over, row->value),
                                 table_samples(result, row->group, ratio->under, row->value),
                                 result->rounds);
    return (struct interval){
        .middle = figure_of(result, row, ratio->over) / figure_of(result, row, ratio->under),
        .low = NAN,
        .high = NAN,
    };
}

static bool has_goal(const struct table_ratio *ratio)
{
    return ratio->least > 0 || ratio->most > 0;
}

/* What cannot be told is not met. */
static bool is_met(const struct table_ratio *ratio, const struct interval *interval)
{
    double low = ratio->paired ? interval->low : interval->middle;
    double high = ratio->paired ? interval->high : interval->middle;

    return low >= ratio->least && (ratio->most == 0 || high <= ratio->most);
}

/* JSON knows no other: -1 stands for stuck or unknown. */
static double finite_or_minus_one(double value)
{
    return isfinite(value) ? value : -1;
}

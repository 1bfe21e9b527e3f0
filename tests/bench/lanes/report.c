#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMN_WIDTH 11

static void print_table(const struct bench *bench, const struct report *report, int name_width);
static void print_row(const struct report_row *row, int name_width);
static void print_goals(const struct report *report, int name_width);
static void print_goal(const struct report_row *row, int name_width);
static void print_missing(void);
static void print_value(const struct report_row *row, double ns);
static void print_ratio(double ratio, int width);
static int print_json(const struct bench *bench, const struct report *report);
static json_t *row_json(const struct bench *bench, const struct report_row *row);
static json_t *goal_json(const struct report_row *row);
static int best_peer(const struct report_row *row);
static double best_ratio(const struct report_row *row);
static double allowed_ns(const struct report_row *row);
static const char *reference_name(const struct report_row *row);
static bool met(const struct report_row *row);

int report_print(const struct bench *bench, const struct report *report)
{
    int name_width = 0;
    int error = 0;

    for (size_t i = 0; i < report->count; i++)
        if ((int)strlen(report->rows[i].name) > name_width)
            name_width = (int)strlen(report->rows[i].name);
    if (bench->json) {
        error = print_json(bench, report);
    } else {
        print_table(bench, report, name_width);
        print_goals(report, name_width);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return -EIO;
    for (size_t i = 0; i < report->count; i++)
        if (isinf(report->rows[i].ns[PEER_LANE]))
            return -ETIMEDOUT;
    return error;
}

/* ---- for people ---- */

static void print_table(const struct bench *bench, const struct report *report, int name_width)
{
    printf("%s: %s\n", bench->name, bench->summary);
    bench_print_machine(bench);
    printf("medians of %u interleaved runs; best/lane = the fastest peer's time / the lane's\n",
           bench->runs);
    print_missing();
    printf("\n%-*s  %4s", name_width, "", "unit");
    for (int i = 0; i < PEER_COUNT; i++)
        printf("  %*s", COLUMN_WIDTH, peers[i].name);
    printf("  %9s  %*s  %10s\n", "best/lane", COLUMN_WIDTH, "floor", "lane/floor");
    for (size_t i = 0; i < report->count; i++)
        print_row(&report->rows[i], name_width);
    printf("\n%s\n", report->note);
}

static void print_missing(void)
{
    for (int i = 0; i < PEER_COUNT; i++)
        if (peers[i].open == NULL)
            printf("%s: not installed (Debian: %s)\n", peers[i].name, peers[i].package);
}

static void print_row(const struct report_row *row, int name_width)
{
    printf("%-*s  %4s", name_width, row->name, row->unit);
    for (int i = 0; i < PEER_COUNT; i++) {
        printf("  ");
        print_value(row, row->ns[i]);
    }
    print_ratio(best_ratio(row), 11);
    printf("  ");
    print_value(row, row->floor_ns);
    print_ratio(row->ns[PEER_LANE] / row->floor_ns, 12);
    printf("\n");
}

/* About three digits that mean something. */
static void print_value(const struct report_row *row, double ns)
{
    double value = ns / row->unit_ns;
    int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;

    if (isnan(ns))
        printf("%*s", COLUMN_WIDTH, "-");
    else if (isinf(ns))
        printf("%*s", COLUMN_WIDTH, "stuck");
    else
        printf("%*.*f", COLUMN_WIDTH, decimals, value);
}

static void print_ratio(double ratio, int width)
{
    if (isfinite(ratio))
        printf("%*.2f", width, ratio);
    else
        printf("%*s", width, "-");
}

static void print_goals(const struct report *report, int name_width)
{
    unsigned goals = 0;
    unsigned reached = 0;

    for (size_t i = 0; i < report->count; i++)
        if (!isnan(allowed_ns(&report->rows[i]))) {
            goals++;
            reached += met(&report->rows[i]);
        }
    if (goals == 0)
        return;
    printf("\n%u of %u goals met\n", reached, goals);
    for (size_t i = 0; i < report->count; i++)
        if (!isnan(allowed_ns(&report->rows[i])))
            print_goal(&report->rows[i], name_width);
}

static void print_goal(const struct report_row *row, int name_width)
{
    double over = row->ns[PEER_LANE] / allowed_ns(row);

    printf("%-4s  %-*s  ", met(row) ? "met" : "LOST", name_width, row->name);
    print_value(row, row->ns[PEER_LANE]);
    printf(" %s, goal at most", row->unit);
    print_value(row, allowed_ns(row));
    if (row->goal.against != GOAL_NS)
        printf(" = %.2f x %s", row->goal.most, reference_name(row));
    if (!met(row))
        printf("; %.2f times too long", over);
    printf("\n");
}

/* ---- for programs ---- */

static int print_json(const struct bench *bench, const struct report *report)
{
    json_t *rows = json_array();
    json_t *object;
    int error = 0;

    for (size_t i = 0; error == 0 && i < report->count; i++)
        error = json_array_append_new(rows, row_json(bench, &report->rows[i]));
    object = json_pack("{s:s, s:o}", "benchmark", bench->name, "rows", rows);
    if (error == 0)
        error = json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    json_decref(object);
    putchar('\n');
    return error == 0 ? 0 : -ENOMEM;
}

/* JSON has no infinity: what got stuck is -1. */
static json_t *row_json(const struct bench *bench, const struct report_row *row)
{
    double ours = row->ns[PEER_LANE];
    double ratio = best_ratio(row);
    json_t *others = json_object();
    json_t *object;

    for (int i = PEER_LANE + 1; i < PEER_COUNT; i++)
        if (!isnan(row->ns[i]))
            json_object_set_new(others, peers[i].name,
                                json_real(isinf(row->ns[i]) ? -1.0 : row->ns[i] / row->unit_ns));
    object = json_pack("{s:s, s:s, s:f, s:o, s:f, s:i}", "row", row->name, "unit", row->unit,
                       "ours", isfinite(ours) ? ours / row->unit_ns : -1.0, "peers", others,
                       "ratio", isfinite(ratio) ? ratio : 0.0, "runs", (int)bench->runs);
    if (isfinite(row->floor_ns))
        json_object_set_new(object, "floor", json_real(row->floor_ns / row->unit_ns));
    if (!isnan(allowed_ns(row)))
        json_object_set_new(object, "goal", goal_json(row));
    return object;
}

static json_t *goal_json(const struct report_row *row)
{
    return json_pack("{s:f, s:s, s:b}", "at_most", allowed_ns(row) / row->unit_ns, "against",
                     reference_name(row), "met", met(row));
}

/* ---- figures ---- */

/* -1 when no peer was measured. */
static int best_peer(const struct report_row *row)
{
    int best = -1;

    for (int i = PEER_LANE + 1; i < PEER_COUNT; i++)
        if (isfinite(row->ns[i]) && (best < 0 || row->ns[i] < row->ns[best]))
            best = i;
    return best;
}

static double best_ratio(const struct report_row *row)
{
    int best = best_peer(row);

    return best < 0 ? NAN : row->ns[best] / row->ns[PEER_LANE];
}

/* NAN when there is no goal, or nobody to reach it against. */
static double allowed_ns(const struct report_row *row)
{
    int best = best_peer(row);

    switch (row->goal.against) {
    case GOAL_BEST_PEER:
        return best < 0 ? NAN : row->goal.most * row->ns[best];
    case GOAL_UV:
        return row->goal.most * row->ns[PEER_UV];
    case GOAL_FLOOR:
        return row->goal.most * row->floor_ns;
    case GOAL_NS:
        return row->goal.most;
    case GOAL_NONE:
        break;
    }
    return NAN;
}

static const char *reference_name(const struct report_row *row)
{
    switch (row->goal.against) {
    case GOAL_BEST_PEER:
        return peers[best_peer(row)].name;
    case GOAL_UV:
        return peers[PEER_UV].name;
    case GOAL_FLOOR:
        return "the floor";
    case GOAL_NS:
    case GOAL_NONE:
        break;
    }
    return "the clock";
}

static bool met(const struct report_row *row)
{
    return row->ns[PEER_LANE] <= allowed_ns(row);
}

#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "pools/grid.h"

#define MIB (1024.0 * 1024.0)

/* The ways that have a goal, with their columns. */
static const struct {
    unsigned way;
    const char *name;
} goal_ways[] = {{WAY_ISOLATED, "isolated"}, {WAY_IN_PROCESS, "in process"}};
#define GOAL_WAYS (sizeof goal_ways / sizeof *goal_ways)

static void print_speed(FILE *out, const struct plan *plan, const struct findings *findings);
static void print_throughput(FILE *out, const struct findings *findings);
static void print_memory(FILE *out, const struct findings *findings);
static void print_where(FILE *out, const struct findings *findings);
static void print_goals(FILE *out, const struct findings *findings);
static void set_figure(struct grid *grid, unsigned row, unsigned column, double figure);
static json_t *speed_json(const struct plan *plan, const struct findings *findings, unsigned i,
                          unsigned way);
static json_t *plain_json(const struct plan *plan, const char *row, const char *detail,
                          const char *unit, double figure);
static json_t *scale_json(const struct throughput *throughput, unsigned way);
static void add_loads(const struct plan *plan, const struct findings *findings, json_t *rows);
static void add_where(const struct plan *plan, const struct findings *findings, json_t *rows);
static double scale_of(const struct throughput *throughput, unsigned way);
static bool is_goal_met(const struct throughput *throughput);

void report_text(FILE *out, const struct plan *plan, const struct findings *findings)
{
    char machine[BENCH_MACHINE_BYTES];

    bench_describe_machine(plan->bench, machine);
    fprintf(out, "compile: %s\n%s\n", plan->bench->summary, machine);
    if (plan->equal)
        fprintf(out, "with --equal: leaves are as urgent as the process, not at nice 19\n");
    if (findings->has_speed)
        print_speed(out, plan, findings);
    if (findings->has_throughput)
        print_throughput(out, findings);
    if (findings->has_memory)
        print_memory(out, findings);
    if (findings->has_where)
        print_where(out, findings);
    print_goals(out, findings);
}

int report_json(const struct plan *plan, const struct findings *findings)
{
    json_t *rows = json_array();
    json_t *object;
    int error;

    for (unsigned i = 0; findings->has_speed && i < SUBJECTS; i++)
        for (unsigned way = 0; way < WAY_CLANG; way++)
            if (!isnan(findings->speeds[i].ms[way]))
                json_array_append_new(rows, speed_json(plan, findings, i, way));
    add_loads(plan, findings, rows);
    add_where(plan, findings, rows);
    object = json_pack("{s:s, s:o}", "benchmark", plan->bench->name, "rows", rows);
    error = json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    json_decref(object);
    putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout))
        return -EIO;
    return error == 0 ? 0 : -ENOMEM;
}

/* ---- for people ---- */

static void print_speed(FILE *out, const struct plan *plan, const struct findings *findings)
{
    static const char *const heads[] = {"isolated", "switched", "in process", "cached",
                                        COMPILER,   "isolated", "",           "in process",
                                        "",         "goal",     "prefix"};
    static const char *const prefixes[] = {"no", "precompiled", "read ahead"};
    struct grid grid = {0};
    unsigned row = 0;

    for (unsigned column = 0; column < sizeof heads / sizeof *heads; column++)
        grid_set(&grid, 0, 1 + column, "%s", heads[column]);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        const struct speed *speed = &findings->speeds[i];

        if (isnan(speed->ms[WAY_ISOLATED]))
            continue;
        grid_set(&grid, ++row, 0, "%s", subjects[i].name);
        for (unsigned way = 0; way < WAYS; way++)
            set_figure(&grid, row, 1 + way, speed->ms[way]);
        for (unsigned j = 0; j < GOAL_WAYS; j++) {
            double ratio = speed_ratio(speed, goal_ways[j].way);

            grid_set(&grid, row, 1 + WAYS + 2 * j, "%.2f x", ratio);
            grid_set(&grid, row, 2 + WAYS + 2 * j, ratio >= subjects[i].goal ? "met" : "LOST");
        }
        grid_set(&grid, row, 5 + WAYS, "%.1f x", subjects[i].goal);
        grid_set(&grid, row, 6 + WAYS, "%s", prefixes[(unsigned)speed->prefix]);
    }
    fprintf(out, "\nspeed: median ms of %u interleaved runs, and how many times as fast as %s\n\n",
            plan->bench->runs, COMPILER " -c");
    grid_print(&grid, out);
    fprintf(out, "\nOver HTTP, on a kept-alive connection of a Unix socket: the answer holds the "
                 "object, and the\nprocess writes it. Each source is new, but for \"cached\". All "
                 "gave the same bytes. Isolated:\nafter a compile of the same kind; switched: "
                 "after one of another kind. Prefix: whether isolated\ncompiles found their "
                 "includes precompiled, or read by their worker ahead of its use.\n");
}

static void print_throughput(FILE *out, const struct findings *findings)
{
    struct grid grid = {0};
    unsigned row = 0;

    grid_set(&grid, 0, 1, "compiles");
    grid_set(&grid, 0, 2, "1 thread, ms");
    grid_set(&grid, 0, 3, "2 threads, ms");
    grid_set(&grid, 0, 4, "ratio");
    grid_set(&grid, 0, 6, "goal");
    grid_set(&grid, 0, 7, "%s, 1 -> 2", COMPILER);
    grid_set(&grid, 0, 8, "2 against 2");
    for (unsigned i = 0; i < LOAD_BATCHES; i++) {
        const struct throughput *throughput = &findings->throughput[i];

        if (throughput->name == NULL)
            continue;
        grid_set(&grid, ++row, 0, "%s", throughput->name);
        grid_set(&grid, row, 1, "%u", throughput->compiles);
        set_figure(&grid, row, 2, throughput->ms[LOAD_SERVICE][0]);
        set_figure(&grid, row, 3, throughput->ms[LOAD_SERVICE][1]);
        grid_set(&grid, row, 4, "%.2f", scale_of(throughput, LOAD_SERVICE));
        grid_set(&grid, row, 5, is_goal_met(throughput) ? "met" : "LOST");
        grid_set(&grid, row, 6, "%.1f", LOAD_SCALE_GOAL);
        grid_set(&grid, row, 7, "%.2f", scale_of(throughput, LOAD_CLANG));
        grid_set(&grid, row, 8, "%.2f x",
                 throughput->ms[LOAD_CLANG][1] / throughput->ms[LOAD_SERVICE][1]);
    }
    fprintf(out, "\nthroughput: isolated compiles with 1 and with 2 threads of the lane\n\n");
    grid_print(&grid, out);
    fprintf(out, "\n" COMPILER ", 1 -> 2: what the machine itself gives, by as many compiles in "
                 "processes, two at once\ninstead of one after another, in the same rounds.\n2 "
                 "against 2: how many times "
                 "as fast two threads are as two such processes at once.\n");
}

static void print_memory(FILE *out, const struct findings *findings)
{
    struct grid grid = {0};

    for (unsigned i = 0; i < LOAD_LEVELS; i++) {
        const struct load_memory *memory = &findings->memory[i];
        const struct site_memory *most = &memory->most;

        if (memory->at_once == 0)
            grid_set(&grid, 0, 1 + i, "idle");
        else
            grid_set(&grid, 0, 1 + i, "%u at once", memory->at_once);
        set_figure(&grid, 1, 1 + i, most->service / MIB);
        set_figure(&grid, 2, 1 + i, most->zygotes / MIB);
        set_figure(&grid, 3, 1 + i, most->workers / MIB);
        grid_set(&grid, 4, 1 + i, "%u", most->worker_count);
        if (memory->at_once > 0)
            set_figure(&grid, 5, 1 + i, memory->worker_peak_bytes / MIB);
    }
    grid_set(&grid, 1, 0, "service");
    grid_set(&grid, 2, 0, "zygotes");
    grid_set(&grid, 3, 0, "workers together");
    grid_set(&grid, 4, 0, "workers alive, also those that wait");
    grid_set(&grid, 5, 0, "one worker, resident, without shared code");
    fprintf(out, "\nmemory: the most MiB, with %s on a lane of 2 threads\n\n",
            subjects[WORDS_O0].name);
    grid_print(&grid, out);
    fprintf(out, "\nOf pages that processes share each has its part; the last row leaves the "
                 "compiler's code out.\n");
}

static void print_where(FILE *out, const struct findings *findings)
{
    struct grid grid = {0};
    unsigned column = 0;

    for (unsigned row = 0; row < WHERE_ROWS; row++)
        grid_set(&grid, 1 + row, 0, "%s", where_row_name(row));
    for (unsigned i = 0; i < SUBJECTS; i++) {
        if (isnan(findings->where[i].ms[STAGE_RUN]))
            continue;
        grid_set(&grid, 0, ++column, "%s", subjects[i].name);
        for (unsigned row = 0; row < WHERE_ROWS; row++)
            set_figure(&grid, 1 + row, column, findings->where[i].ms[row]);
    }
    fprintf(out, "\nwhere: median ms of the steps of an isolated compile, and of the parts of one "
                 "without a prefix\n\n");
    grid_print(&grid, out);
    fprintf(out, "\nSteps by the service's counters, with a prefix where one serves. Parts by the "
                 "compiler's time\ntrace, which takes time itself.\n");
}

static void print_goals(FILE *out, const struct findings *findings)
{
    unsigned goals = 0, met = 0;

    for (unsigned i = 0; findings->has_speed && i < SUBJECTS; i++)
        for (unsigned j = 0; j < GOAL_WAYS && !isnan(findings->speeds[i].ms[0]); j++, goals++)
            met += speed_ratio(&findings->speeds[i], goal_ways[j].way) >= subjects[i].goal;
    for (unsigned i = 0; findings->has_throughput && i < LOAD_BATCHES; i++)
        if (findings->throughput[i].name != NULL) {
            goals++;
            met += is_goal_met(&findings->throughput[i]);
        }
    if (goals > 0)
        fprintf(out, "\n%u of %u goals met\n", met, goals);
}

static void set_figure(struct grid *grid, unsigned row, unsigned column, double figure)
{
    if (isnan(figure))
        grid_set(grid, row, column, "-");
    else
        grid_set(grid, row, column, "%.*f", figure < 10 ? 2 : figure < 100 ? 1 : 0, figure);
}

static double scale_of(const struct throughput *throughput, unsigned way)
{
    return throughput->ms[way][0] / throughput->ms[way][1];
}

static bool is_goal_met(const struct throughput *throughput)
{
    return scale_of(throughput, LOAD_SERVICE) >= LOAD_SCALE_GOAL;
}

/* ---- for programs ---- */

static json_t *speed_json(const struct plan *plan, const struct findings *findings, unsigned i,
                          unsigned way)
{
    static const char *const names[] = {"isolated", "switched", "in process", "cached"};
    const struct speed *speed = &findings->speeds[i];
    double ratio = speed_ratio(speed, way);
    json_t *row = json_pack("{s:o, s:s, s:f, s:{s:f}, s:f, s:i}", "row",
                            json_sprintf("%s %s", subjects[i].name, names[way]), "unit", "ms",
                            "ours", speed->ms[way], "peers", COMPILER " -c", speed->ms[WAY_CLANG],
                            "ratio", ratio, "runs", (int)plan->bench->runs);

    if (way == WAY_ISOLATED || way == WAY_IN_PROCESS)
        json_object_set_new(row, "goal",
                            json_pack("{s:f, s:b}", "at_least", subjects[i].goal, "met",
                                      ratio >= subjects[i].goal));
    return row;
}

/* A figure that is compared with nothing. */
static json_t *plain_json(const struct plan *plan, const char *row, const char *detail,
                          const char *unit, double figure)
{
    return json_pack("{s:o, s:s, s:f, s:{}, s:f, s:i}", "row", json_sprintf("%s %s", row, detail),
                     "unit", unit, "ours", isnan(figure) ? -1 : figure, "peers", "ratio", 0.0,
                     "runs", (int)plan->bench->runs);
}

/* Two at once against one after another. */
static json_t *scale_json(const struct throughput *throughput, unsigned way)
{
    static const char *const names[LOAD_WAYS] = {"service", COMPILER " -c"};
    static const char *const peers[LOAD_WAYS] = {"1 thread", "1 process"};

    return json_pack("{s:o, s:s, s:f, s:{s:f}, s:f, s:i}", "row",
                     json_sprintf("throughput, %s, %s", throughput->name, names[way]), "unit", "ms",
                     "ours", throughput->ms[way][1], "peers", peers[way], throughput->ms[way][0],
                     "ratio", scale_of(throughput, way), "runs", (int)throughput->runs);
}

static void add_loads(const struct plan *plan, const struct findings *findings, json_t *rows)
{
    for (unsigned i = 0; findings->has_throughput && i < LOAD_BATCHES; i++) {
        const struct throughput *throughput = &findings->throughput[i];
        json_t *row;

        if (throughput->name == NULL)
            continue;
        row = scale_json(throughput, LOAD_SERVICE);
        json_object_set_new(
            row, "goal",
            json_pack("{s:f, s:b}", "at_least", LOAD_SCALE_GOAL, "met", is_goal_met(throughput)));
        json_array_append_new(rows, row);
        json_array_append_new(rows, scale_json(throughput, LOAD_CLANG));
    }
    for (unsigned i = 0; findings->has_memory && i < LOAD_LEVELS; i++) {
        const struct load_memory *memory = &findings->memory[i];
        char name[64];

        snprintf(name, sizeof name, "memory, %u at once,", memory->at_once);
        json_array_append_new(rows,
                              plain_json(plan, name, "service", "MiB", memory->most.service / MIB));
        json_array_append_new(rows,
                              plain_json(plan, name, "zygotes", "MiB", memory->most.zygotes / MIB));
        json_array_append_new(rows,
                              plain_json(plan, name, "workers", "MiB", memory->most.workers / MIB));
    }
}

static void add_where(const struct plan *plan, const struct findings *findings, json_t *rows)
{
    for (unsigned i = 0; findings->has_where && i < SUBJECTS; i++)
        for (unsigned row = 0; row < WHERE_ROWS; row++) {
            double ms = findings->where[i].ms[row];
            const char *what = where_row_name(row);
            char name[64];

            if (isnan(ms))
                continue;
            snprintf(name, sizeof name, "where, %s,", subjects[i].name);
            json_array_append_new(rows, plain_json(plan, name, what + strspn(what, " "), "ms", ms));
        }
}

/* lane_bench.c - the lane beside the thread pools that a C or C++ program would else take.
 *
 * What is measured stands in lanes/scenarios.h, the pools in lanes/peers.h; here is which rows
 * there are and what they should show. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <millwright/cpus.h>
#include <millwright/lane.h>

#include "bench.h"
#include "lanes/child.h"
#include "lanes/report.h"
#include "lanes/scenarios.h"
#include "lanes/work.h"

#define RUNS_DEFAULT 9u
#define RUNS_QUICK   3u
#define MANY_FACTOR  16u

enum { FLOOR = PEER_COUNT, VARIANTS }; /* of a group: the pools and the floor */
enum { FEW, MANY, SIZES };             /* as many threads as CPUs; 16 times as many */
enum { VALUES = 2 };                   /* of a measurement, at most */

/* One kind of measurement. */
struct scenario {
    const char *name;
    scenario_fn *measure;
    scenario_fn *floor; /* gives what `measure` gives, or the first of it; NULL: none */
    unsigned producers;
    bool many_only;
    struct {
        const char *name; /* NULL: no such value */
        const char *unit;
        double unit_ns;
        struct goal goals[SIZES];
    } values[VALUES];
};

/* Goals: the lane's time at most so many times another's. */
#define BEST(most)     {GOAL_BEST_PEER, most}
#define UV(most)       {GOAL_UV, most}
#define FLOORS(most)   {GOAL_FLOOR, most}
#define LIMIT_NS(most) {GOAL_NS, most}
#define NO_GOAL        {GOAL_NONE, 0}

#define NS "ns", 1
#define US "us", 1e3
#define MS "ms", 1e6

/* clang-format off */
#define THROUGHPUT(text, count)                                                                    \
    {.name = (text), .measure = scenario_throughput, .floor = floor_mutex, .producers = (count),   \
     .values = {{"", NS, {BEST(1 / 1.5), BEST(1 / 2.0)}},                                          \
                {", CPU", NS, {BEST(0.5), BEST(0.5)}}}}

static const struct scenario scenarios[] = {
    THROUGHPUT("throughput, 1 producer", 1),
    THROUGHPUT("throughput, 2 producers", 2),
    THROUGHPUT("throughput, 4 producers", 4),
    {.name = "push-heavy", .measure = scenario_push_heavy, .floor = floor_mutex, .producers = 1,
     .values = {{"", NS, {NO_GOAL, NO_GOAL}}, {", CPU", NS, {NO_GOAL, NO_GOAL}}}},
    {.name = "burst of 10,000", .measure = scenario_burst, .producers = 1,
     .values = {{"", MS, {BEST(0.6), BEST(0.6)}}}},
    {.name = "submit, all awake", .measure = scenario_submit, .floor = floor_mutex, .producers = 1,
     .values = {{"", NS, {UV(0.5), UV(0.5)}}}},
    {.name = "round trip", .measure = scenario_serial, .floor = floor_ping_pong, .producers = 1,
     .values = {{", p50", US, {NO_GOAL, NO_GOAL}}, {", p99", US, {NO_GOAL, NO_GOAL}}}},
    {.name = "parked round trip", .measure = scenario_parked, .floor = floor_ping_pong_parked,
     .producers = 1,
     .values = {{", p50", US, {FLOORS(1.15), FLOORS(1.15)}}, {", p99", US, {NO_GOAL, NO_GOAL}}}},
    {.name = "hot round trip", .measure = scenario_hot, .floor = floor_ping_pong_hot,
     .producers = 1,
     .values = {{", p50", US, {LIMIT_NS(1000), LIMIT_NS(1000)}},
                {", p99", US, {NO_GOAL, NO_GOAL}}}},
    {.name = "ramp, from no thread", .measure = scenario_ramp_cold, .producers = 1,
     .many_only = true, .values = {{"", MS, {NO_GOAL, UV(1)}}}},
    {.name = "ramp, threads asleep", .measure = scenario_ramp_warm, .producers = 1,
     .many_only = true, .values = {{"", MS, {NO_GOAL, UV(1)}}}},
    {.name = "1,000 jobs of 20 us", .measure = scenario_work, .floor = floor_work, .producers = 1,
     .values = {{"", MS, {FLOORS(1.05), FLOORS(1.05)}}}},
};
/* clang-format on */

#define SCENARIOS  (sizeof scenarios / sizeof *scenarios)
#define GROUPS_MAX (SCENARIOS * SIZES)

/* One variant of a group. */
struct cell {
    const struct scenario *scenario;
    struct scene scene;
    scenario_fn *measure; /* NULL: there is none */
    char name[96];
};

static const char *only, *quick;
static const struct bench_option options[] = {
    {"--rows", "TEXT", "only what has TEXT in its name, such as 'round trip'", &only},
    {"--quick", NULL, "3 rounds of a quarter of the time: a first impression", &quick},
};

/* clang-format off */
static const char note[] =
    "Every measurement has a process of its own, so no other pool's threads are about. All threads of a\n"
    "pool run once before it is measured, at the same nice value, and are put on the CPUs in turn. A\n"
    "task counts as ended when its function returns; the lane's when done() is called. libuv has one\n"
    "loop for each producer, and the way back through it is not counted. Round trips are between two\n"
    "CPUs; p50 and p99 are of the trips of one run. Hot: the submitter spins, and the lane with\n"
    "spin_us = 10. Floors: lock and unlock of an uncontended mutex; two threads and two futexes (hot:\n"
    "no futex); the 20 us jobs in equal parts, one for each CPU.";
/* clang-format on */

static struct cell cells[GROUPS_MAX * VARIANTS];
static struct bench_variant variants[GROUPS_MAX * VARIANTS];
static struct report_row rows[GROUPS_MAX * VALUES];

static size_t lay_out_groups(void);
static void lay_out_group(size_t group, const struct scenario *scenario, int size);
static bench_measure measure;
static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX]);
static size_t fill_rows(size_t group_count);

int main(int argc, char **argv)
{
    struct bench bench = {.name = "lanes",
                          .summary = "empty and small jobs through a lane and through other pools",
                          .options = options,
                          .option_count = sizeof options / sizeof *options,
                          .runs_default = RUNS_DEFAULT};
    struct report report = {.rows = rows, .note = note};
    size_t group_count;
    int status;

    for (char **argument = argv + 1; *argument != NULL; argument++)
        if (strcmp(*argument, "--quick") == 0)
            bench.runs_default = RUNS_QUICK; /* --runs still has the last word */
    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    group_count = lay_out_groups();
    if (group_count == 0) {
        fprintf(stderr, "lanes: no row has '%s' in its name; see the names without --rows\n", only);
        return 2;
    }
    if (bench_rounds(&bench, variants, group_count, VARIANTS) != 0)
        return 1;
    report.count = fill_rows(group_count);
    return report_print(&bench, &report) != 0;
}

/* ---- what is measured ---- */

/* Returns how many groups there are. */
static size_t lay_out_groups(void)
{
    size_t count = 0;

    for (size_t i = 0; i < SCENARIOS; i++)
        for (int size = scenarios[i].many_only ? MANY : FEW; size < SIZES; size++)
            if (only == NULL || strstr(scenarios[i].name, only) != NULL)
                lay_out_group(count++, &scenarios[i], size);
    return count;
}

static void lay_out_group(size_t group, const struct scenario *scenario, int size)
{
    static uint64_t loops;
    unsigned cpus = mw_cpus_effective();
    unsigned many = cpus * MANY_FACTOR;

    if (loops == 0)
        loops = work_calibrate(SCENARIO_WORK_NS);
    many = many < MW_LANE_CAP_LIMIT ? many : MW_LANE_CAP_LIMIT;
    for (int i = 0; i < VARIANTS; i++) {
        struct cell *cell = &cells[group * VARIANTS + (size_t)i];
        const struct peer *peer = i == FLOOR ? NULL : &peers[i];

        *cell = (struct cell){.scenario = scenario,
                              .scene = {.peer = peer,
                                        .threads = size == FEW ? cpus : many,
                                        .producers = scenario->producers,
                                        .cpus = cpus,
                                        .work_loops = loops,
                                        .quick = quick != NULL},
                              .measure = scenario->measure};
        if (peer == NULL)
            cell->measure = scenario->floor;
        else if (peer->open == NULL)
            cell->measure = NULL;
        snprintf(cell->name, sizeof cell->name, "%s, %u threads: %s", scenario->name,
                 cell->scene.threads, peer == NULL ? "floor" : peer->name);
        variants[group * VARIANTS + (size_t)i] =
            (struct bench_variant){.name = cell->name, .measure = measure, .context = cell};
    }
}

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    const struct cell *cell = context;

    (void)round;
    for (size_t i = 0; i < BENCH_VALUES_MAX; i++)
        values[i] = NAN;
    return cell->measure == NULL ? 0 : child_measure(cell->name, measure_in_child, cell, values);
}

static int measure_in_child(const void *context, double values[BENCH_VALUES_MAX])
{
    const struct cell *cell = context;

    return cell->measure(&cell->scene, values);
}

/* ---- the answer ---- */

/* Returns how many rows there are. */
static size_t fill_rows(size_t group_count)
{
    size_t count = 0;

    for (size_t group = 0; group < group_count; group++) {
        const struct cell *cell = &cells[group * VARIANTS];
        const struct scenario *scenario = cell->scenario;
        int size = cell->scene.threads == cell->scene.cpus ? FEW : MANY;

        for (size_t value = 0; value < VALUES && scenario->values[value].name != NULL; value++) {
            struct report_row *row = &rows[count++];

            row->unit = scenario->values[value].unit;
            row->unit_ns = scenario->values[value].unit_ns;
            row->goal = scenario->values[value].goals[size];
            snprintf(row->name, sizeof row->name, "%s, %u threads%s", scenario->name,
                     cell->scene.threads, scenario->values[value].name);
            for (int i = 0; i < PEER_COUNT; i++)
                row->ns[i] = variants[group * VARIANTS + (size_t)i].medians[value];
            row->floor_ns = variants[group * VARIANTS + FLOOR].medians[value];
        }
    }
    return count;
}

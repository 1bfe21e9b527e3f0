/* echo_host - what a lane does for a libuv host: the same echo server computes on libuv's workers
 * or on a lane, and tells how its timer, its file reads and its echoes fared meanwhile.
 * docs/libuv.md explains the source and the table. */
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include <millwright/clock.h>

#include "host.h"

#define NAME         "echo_host"
#define RUNS_MAX     101
#define CLIENTS_MAX  1000
#define SECONDS_MAX  3600
#define USAGE_STATUS 2
#define NAME_WIDTH   26
#define FIGURE_WIDTH 14

struct settings {
    const char *work; /* NULL: both ways, side by side */
    bool json;
    unsigned runs;
    struct load load;
};

enum { P50, P99, MAX, FIGURES };
static const char *const figure_names[FIGURES] = {"p50", "p99", "max"};
static const char *const way_names[WAYS] = {[WAY_UV] = "uv_queue_work", [WAY_LANE] = "lane"};

static const struct subject {
    const char *name;
    size_t offset;
} subjects[] = {
    {"timer lateness", offsetof(struct times, timer)},
    {"file read", offsetof(struct times, file)},
    {"echo", offsetof(struct times, echo)},
    {"work", offsetof(struct times, work)},
};
#define SUBJECTS (sizeof subjects / sizeof *subjects)

/* One subject in one way: in milliseconds, and how often it was measured. */
struct row {
    double ms[FIGURES];
    uint64_t samples;
};

typedef struct row way_rows[SUBJECTS];

static bool read_settings(struct settings *settings, int argc, char **argv, int *status);
static bool read_number(const char *text, double max, double *number);
static void usage(FILE *out);
static int run(enum way way, const struct load *load, way_rows rows);
static int show_one(enum way way, const struct load *load);
static int compare(const struct settings *settings);
static void take_medians(const way_rows *runs, unsigned count, way_rows medians);
static int by_size(const void *a, const void *b);
static void print_table(const struct settings *settings, way_rows ways[WAYS]);
static void print_json(const struct settings *settings, way_rows ways[WAYS]);
static double ratio(const struct row *uv, const struct row *lane, unsigned figure);

int main(int argc, char **argv)
{
    struct settings settings = {.runs = 5, .load = {.clients = 8, .seconds = 2}};
    int status;
    int error;

    if (!read_settings(&settings, argc, argv, &status))
        return status;
    signal(SIGPIPE, SIG_IGN); /* a client that hung up is no reason to end */
    settings.load.rounds_per_ms = host_calibrate();
    if (settings.work == NULL)
        error = compare(&settings);
    else
        error = show_one(strcmp(settings.work, "lane") == 0 ? WAY_LANE : WAY_UV, &settings.load);
    if (error != 0)
        fprintf(stderr, "%s: the host failed: %s\n", NAME, uv_strerror(error));
    return error != 0 || fflush(stdout) != 0;
}

/* ---- the command line ---- */

static bool read_settings(struct settings *settings, int argc, char **argv, int *status)
{
    static const struct option options[] = {
        {"work", required_argument, NULL, 'w'},    {"compare", no_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'}, {"clients", required_argument, NULL, 'n'},
        {"runs", required_argument, NULL, 'r'},    {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {0},
    };
    double number = 1;
    int option;

    *status = USAGE_STATUS;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        bool right = true;

        if (option == 'h') {
            usage(stdout);
            *status = 0;
            return false;
        } else if (option == 'w') {
            settings->work = optarg;
            right = strcmp(optarg, "uv") == 0 || strcmp(optarg, "lane") == 0;
        } else if (option == 'c') {
            settings->work = NULL;
        } else if (option == 's') {
            right = read_number(optarg, SECONDS_MAX, &settings->load.seconds);
        } else if (option == 'n') {
            right = read_number(optarg, CLIENTS_MAX, &number) && number >= 1;
            settings->load.clients = (unsigned)number;
        } else if (option == 'r') {
            right = read_number(optarg, RUNS_MAX, &number) && number >= 1;
            settings->runs = (unsigned)number;
        } else if (option == 'j') {
            settings->json = true;
        } else {
            return false; /* getopt has said why */
        }
        if (!right) {
            fprintf(stderr, "%s: '%s' is not what that option takes; see --help\n", NAME, optarg);
            return false;
        }
    }
    return true;
}

static bool read_number(const char *text, double max, double *number)
{
    char *end;

    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number > 0 && *number <= max;
}

static void usage(FILE *out)
{
    fputs("usage: " NAME " [OPTION...]\n\n"
          "An echo server with a timer of 1 ms and file reads, whose clients also ask for 5 to 20 "
          "ms\n"
          "of computing. Tells how late timer, reads and echoes come while it computes.\n\n"
          "  --compare        both ways in turn, side by side (the default)\n"
          "  --work uv|lane   one way only: libuv's workers, or a lane\n"
          "  --seconds S      how long a run takes (2)\n"
          "  --clients N      how many pieces of work are in flight (8)\n"
          "  --runs N         runs of each way to compare (5)\n"
          "  --json           the comparison as JSON\n"
          "  --help           print this\n",
          out);
}

/* ---- running ---- */

static int run(enum way way, const struct load *load, way_rows rows)
{
    static const double quantiles[FIGURES] = {[P50] = 0.5, [P99] = 0.99, [MAX] = 1};
    struct times *times = calloc(1, sizeof *times);
    int error = times != NULL ? host_run(way, load, times) : UV_ENOMEM;

    for (size_t i = 0; error == 0 && i < SUBJECTS; i++) {
        const struct mw_histogram *histogram =
            (const struct mw_histogram *)((char *)times + subjects[i].offset);

        for (unsigned figure = 0; figure < FIGURES; figure++)
            rows[i].ms[figure] =
                (double)mw_histogram_quantile(histogram, quantiles[figure]) / MW_NS_PER_MS;
        rows[i].samples = mw_histogram_count(histogram);
    }
    free(times);
    return error;
}

static int show_one(enum way way, const struct load *load)
{
    way_rows rows;
    int error = run(way, load, rows);

    if (error != 0)
        return error;
    printf("%-*s%*s%*s%*s%*s\n", NAME_WIDTH, way_names[way], FIGURE_WIDTH, "p50 ms", FIGURE_WIDTH,
           "p99 ms", FIGURE_WIDTH, "max ms", FIGURE_WIDTH, "samples");
    for (size_t i = 0; i < SUBJECTS; i++) {
        printf("%-*s", NAME_WIDTH, subjects[i].name);
        for (unsigned figure = 0; figure < FIGURES; figure++)
            printf("%*.3f", FIGURE_WIDTH, rows[i].ms[figure]);
        printf("%*llu\n", FIGURE_WIDTH, (unsigned long long)rows[i].samples);
    }
    return 0;
}

/* Round by round both ways, each first in every other one, so that a machine that drifts drifts
 * for both. */
static int compare(const struct settings *settings)
{
    way_rows *runs[WAYS];
    way_rows medians[WAYS];
    int error = 0;

    for (unsigned way = 0; way < WAYS; way++) {
        runs[way] = calloc(settings->runs, sizeof *runs[way]);
        if (runs[way] == NULL)
            error = UV_ENOMEM;
    }
    for (unsigned i = 0; error == 0 && i < settings->runs * WAYS; i++) {
        unsigned round = i / WAYS;
        enum way way = (enum way)((i + round) % WAYS);

        error = run(way, &settings->load, runs[way][round]);
    }
    for (unsigned way = 0; way < WAYS; way++) {
        if (error == 0)
            take_medians(runs[way], settings->runs, medians[way]);
        free(runs[way]);
    }
    if (error == 0)
        (settings->json ? print_json : print_table)(settings, medians);
    return error;
}

/* Of each figure; of the samples the fewest, since a run without any says nothing. */
static void take_medians(const way_rows *runs, unsigned count, way_rows medians)
{
    double values[RUNS_MAX];

    for (size_t i = 0; i < SUBJECTS; i++) {
        for (unsigned figure = 0; figure < FIGURES; figure++) {
            for (unsigned round = 0; round < count; round++)
                values[round] = runs[round][i].ms[figure];
            qsort(values, count, sizeof *values, by_size);
            medians[i].ms[figure] = (values[(count - 1) / 2] + values[count / 2]) / 2;
        }
        medians[i].samples = runs[0][i].samples;
        for (unsigned round = 1; round < count; round++)
            if (runs[round][i].samples < medians[i].samples)
                medians[i].samples = runs[round][i].samples;
    }
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

/* ---- what it prints ---- */

static void print_table(const struct settings *settings, way_rows ways[WAYS])
{
    printf("an echo host, %u pieces of work of 5 to 20 ms in flight; medians of %u interleaved "
           "runs of %g s\n\n",
           settings->load.clients, settings->runs, settings->load.seconds);
    printf("%-*s%*s%*s%*s%*s\n", NAME_WIDTH, "ms", FIGURE_WIDTH, way_names[WAY_UV], FIGURE_WIDTH,
           way_names[WAY_LANE], FIGURE_WIDTH, "ratio", 2 * FIGURE_WIDTH, "samples in a run");
    for (size_t i = 0; i < SUBJECTS; i++)
        for (unsigned figure = 0; figure < FIGURES; figure++) {
            const struct row *uv = &ways[WAY_UV][i];
            const struct row *lane = &ways[WAY_LANE][i];

            printf("%-*s%-*s%*.3f%*.3f%*.1f%*llu%*llu\n", NAME_WIDTH - 4, subjects[i].name, 4,
                   figure_names[figure], FIGURE_WIDTH, uv->ms[figure], FIGURE_WIDTH,
                   lane->ms[figure], FIGURE_WIDTH, ratio(uv, lane, figure), FIGURE_WIDTH,
                   (unsigned long long)uv->samples, FIGURE_WIDTH,
                   (unsigned long long)lane->samples);
        }
}

/* `samples`: of the fewest of all runs of both ways. */
static void print_json(const struct settings *settings, way_rows ways[WAYS])
{
    const char *comma = "";

    printf("{\"benchmark\":\"%s\",\"rows\":[", NAME);
    for (size_t i = 0; i < SUBJECTS; i++)
        for (unsigned figure = 0; figure < FIGURES; figure++) {
            const struct row *uv = &ways[WAY_UV][i];
            const struct row *lane = &ways[WAY_LANE][i];
            uint64_t samples = uv->samples < lane->samples ? uv->samples : lane->samples;

            printf("%s{\"row\":\"%s %s\",\"ours\":%.6f,\"peers\":{\"%s\":%.6f},\"ratio\":%.3f,"
                   "\"runs\":%u,\"samples\":%llu}",
                   comma, subjects[i].name, figure_names[figure], lane->ms[figure],
                   way_names[WAY_UV], uv->ms[figure], ratio(uv, lane, figure), settings->runs,
                   (unsigned long long)samples);
            comma = ",";
        }
    puts("]}");
}

/* Above 1: the lane is ahead. */
static double ratio(const struct row *uv, const struct row *lane, unsigned figure)
{
    return lane->ms[figure] > 0 ? uv->ms[figure] / lane->ms[figure] : 0;
}

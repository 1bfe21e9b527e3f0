#include "bench.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define USAGE_STATUS 2
#define COLUMN_WIDTH 12

static volatile sig_atomic_t stopped;

static int set_option(struct bench *bench, const char *name, char ***rest);
static int set_runs(struct bench *bench, const char *text);
static void usage(const struct bench *bench, FILE *out);
static void on_signal(int number);
static int measure(const struct bench *bench, struct bench_variant *variant, unsigned round,
                   double *samples);
static void progress(const struct bench *bench, const struct bench_variant *variant,
                     unsigned round);
static void print_table(const struct bench *bench, const struct bench_report *report);
static void print_row(const struct bench_report *report, const struct bench_row *row,
                      int name_width);
static void print_ms(double ms, int width);
static int print_json(const struct bench *bench, const struct bench_report *report);
static json_t *row_json(const struct bench *bench, const struct bench_report *report,
                        const struct bench_row *row);
static double ratio(const struct bench_row *row);
static int column_width(const char *head);
static int compare(const void *a, const void *b);

bool bench_parse(struct bench *bench, int argc, char **argv, int *status)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)argc;
    if (bench->runs_default == 0)
        bench->runs_default = BENCH_RUNS_DEFAULT;
    bench->runs = bench->runs_default;
    if (getloadavg(&bench->load, 1) != 1)
        bench->load = NAN;
    *status = USAGE_STATUS;
    for (char **rest = argv + 1; *rest != NULL;) {
        const char *name = *rest++;

        if (strcmp(name, "--help") == 0) {
            usage(bench, stdout);
            *status = 0;
            return false;
        }
        if (set_option(bench, name, &rest) != 0)
            return false;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return true;
}

int bench_rounds(const struct bench *bench, struct bench_variant *variants, size_t group_count,
                 size_t group_size)
{
    size_t count = group_count * group_size;
    size_t stride = (size_t)bench->runs * BENCH_VALUES_MAX;
    double *samples = calloc(count * stride, sizeof *samples);
    int error = samples == NULL ? -ENOMEM : 0;

    for (unsigned round = 0; error == 0 && round <= bench->runs; round++)
        for (size_t i = 0; error == 0 && i < count; i++) {
            size_t index = i - i % group_size + (i + round) % group_size;

            error = measure(bench, &variants[index], round, samples + index * stride);
        }
    progress(bench, NULL, 0);
    for (size_t i = 0; error == 0 && i < count; i++)
        for (size_t value = 0; value < BENCH_VALUES_MAX; value++)
            variants[i].medians[value] =
                bench_quantile(samples + i * stride + value * bench->runs, bench->runs, 0.5);
    free(samples);
    return error;
}

int bench_print(const struct bench *bench, const struct bench_report *report)
{
    int error = 0;

    if (bench->json)
        error = print_json(bench, report);
    else
        print_table(bench, report);
    return fflush(stdout) != 0 || ferror(stdout) ? -EIO : error;
}

void bench_print_machine(const struct bench *bench)
{
    char text[BENCH_MACHINE_BYTES];

    bench_describe_machine(bench, text);
    printf("%s\n", text);
}

void bench_describe_machine(const struct bench *bench, char text[BENCH_MACHINE_BYTES])
{
    char model[128] = "unknown CPU";
    char line[256];
    char date[32];
    struct utsname system = {0};
    time_t now = time(NULL);
    struct tm day;
    FILE *file = fopen("/proc/cpuinfo", "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "model name : %127[^\n]", model) == 1)
            break;
    if (file != NULL)
        fclose(file);
    uname(&system);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    snprintf(text, BENCH_MACHINE_BYTES, "%s, %ld CPUs, %s %s, %s, load before %.1f", model,
             sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.release, date, bench->load);
}

double bench_quantile(double *values, size_t count, double quantile)
{
    double place;
    size_t below;

    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare);
    place = quantile * (double)(count - 1);
    below = (size_t)place;
    if (below + 1 >= count)
        return values[count - 1];
    return values[below] + (place - (double)below) * (values[below + 1] - values[below]);
}

/* ---- the command line ---- */

static int set_option(struct bench *bench, const char *name, char ***rest)
{
    const char *value = **rest;

    if (strcmp(name, "--json") == 0) {
        bench->json = true;
        return 0;
    }
    for (size_t i = 0; i <= bench->option_count; i++) {
        bool is_runs = i == bench->option_count;

        if (strcmp(name, is_runs ? "--runs" : bench->options[i].name) != 0)
            continue;
        if (!is_runs && bench->options[i].argument == NULL) {
            *bench->options[i].value = name;
            return 0;
        }
        if (value == NULL) {
            fprintf(stderr, "%s: %s needs a value; see --help\n", bench->name, name);
            return -EINVAL;
        }
        (*rest)++;
        if (is_runs)
            return set_runs(bench, value);
        *bench->options[i].value = value;
        return 0;
    }
    fprintf(stderr, "%s: '%s' is no option; see --help\n", bench->name, name);
    return -EINVAL;
}

static int set_runs(struct bench *bench, const char *text)
{
    char *end = NULL;
    unsigned long runs = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

    if (end == NULL || *end != '\0' || runs < 1 || runs > BENCH_RUNS_MAX) {
        fprintf(stderr, "%s: --runs must be a decimal number from 1 to %u, not '%s'\n", bench->name,
                BENCH_RUNS_MAX, text);
        return -EINVAL;
    }
    bench->runs = (unsigned)runs;
    return 0;
}

static void usage(const struct bench *bench, FILE *out)
{
    static const char line[] = "  %-16s %s\n";
    char runs[80];

    fprintf(out, "usage: %s [OPTION...]\n\n%s\n\n", bench->name, bench->summary);
    for (size_t i = 0; i < bench->option_count; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s %s", bench->options[i].name,
                 bench->options[i].argument == NULL ? "" : bench->options[i].argument);
        fprintf(out, line, left, bench->options[i].help);
    }
    snprintf(runs, sizeof runs, "counted rounds, 1 to %u; one more warms up (%u)", BENCH_RUNS_MAX,
             bench->runs_default);
    fprintf(out, line, "--runs N", runs);
    fprintf(out, line, "--json", "print JSON in place of the table");
    fprintf(out, line, "--help", "print this");
}

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* ---- measuring ---- */

/* `samples` holds the variant's first values of all rounds, then its second ones, and so on. */
static int measure(const struct bench *bench, struct bench_variant *variant, unsigned round,
                   double *samples)
{
    double values[BENCH_VALUES_MAX] = {0};
    int error;

    progress(bench, variant, round);
    error = variant->measure(variant->context, round, values);
    if (stopped)
        return -EINTR;
    for (size_t value = 0; round > 0 && value < BENCH_VALUES_MAX; value++)
        samples[value * bench->runs + round - 1] = values[value];
    return error;
}

/* No variant: clear the line. */
static void progress(const struct bench *bench, const struct bench_variant *variant, unsigned round)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (variant == NULL)
        fprintf(stderr, "\r\033[K");
    else if (round == 0)
        fprintf(stderr, "\r\033[K%s: warming up: %s", bench->name, variant->name);
    else
        fprintf(stderr, "\r\033[K%s: round %u of %u: %s", bench->name, round, bench->runs,
                variant->name);
}

/* ---- what it prints ---- */

static void print_table(const struct bench *bench, const struct bench_report *report)
{
    int name_width = (int)strlen("median ms");

    for (size_t i = 0; i < report->row_count; i++)
        if ((int)strlen(report->rows[i].name) > name_width)
            name_width = (int)strlen(report->rows[i].name);
    printf("%s: %s\n", bench->name, bench->summary);
    bench_print_machine(bench);
    printf("medians of %u interleaved runs; ratio = %s / %s\n\n", bench->runs, report->peers[0],
           report->ours);
    printf("%-*s  %*s", name_width, "median ms", column_width(report->ours), report->ours);
    for (size_t i = 0; i < report->peer_count; i++)
        printf("  %*s", column_width(report->peers[i]), report->peers[i]);
    printf("  %8s", "ratio");
    if (report->side != NULL)
        printf("  %*s", column_width(report->side), report->side);
    printf("\n");
    for (size_t i = 0; i < report->row_count; i++)
        print_row(report, &report->rows[i], name_width);
    if (report->note != NULL)
        printf("\n%s\n", report->note);
}

static void print_row(const struct bench_report *report, const struct bench_row *row,
                      int name_width)
{
    printf("%-*s  ", name_width, row->name);
    print_ms(row->ours, column_width(report->ours));
    for (size_t i = 0; i < report->peer_count; i++) {
        printf("  ");
        print_ms(row->peers[i], column_width(report->peers[i]));
    }
    if (isnan(row->peers[0]))
        printf("  %8s", "-");
    else
        printf("  %8.2f", ratio(row));
    if (report->side != NULL) {
        printf("  ");
        print_ms(row->side, column_width(report->side));
    }
    printf("\n");
}

/* About four digits that mean something, whatever the size. */
static void print_ms(double ms, int width)
{
    int decimals = ms < 10 ? 3 : ms < 100 ? 2 : 1;

    if (isnan(ms))
        printf("%*s", width, "-");
    else
        printf("%*.*f", width, decimals, ms);
}

static int print_json(const struct bench *bench, const struct bench_report *report)
{
    json_t *rows = json_array();
    json_t *object;
    int error = 0;

    for (size_t i = 0; error == 0 && i < report->row_count; i++)
        error = json_array_append_new(rows, row_json(bench, report, &report->rows[i]));
    object = json_pack("{s:s, s:o}", "benchmark", bench->name, "rows", rows);
    if (error == 0)
        error = json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    json_decref(object);
    putchar('\n');
    return error == 0 ? 0 : -ENOMEM;
}

/* NULL when out of memory. */
static json_t *row_json(const struct bench *bench, const struct bench_report *report,
                        const struct bench_row *row)
{
    json_t *peers = json_object();

    for (size_t i = 0; i < report->peer_count; i++)
        if (!isnan(row->peers[i]))
            json_object_set_new(peers, report->peers[i], json_real(row->peers[i]));
    return json_pack("{s:s, s:f, s:o, s:f, s:i}", "row", row->name, "ours", row->ours, "peers",
                     peers, "ratio", ratio(row), "runs", (int)bench->runs);
}

/* 0 when there is none: JSON has no NAN. */
static double ratio(const struct bench_row *row)
{
    return row->ours > 0 && !isnan(row->peers[0]) ? row->peers[0] / row->ours : 0;
}

static int column_width(const char *head)
{
    int length = (int)strlen(head);

    return length > COLUMN_WIDTH ? length : COLUMN_WIDTH;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

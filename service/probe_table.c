/* A bar is on a logarithmic scale: five places for each factor of ten from BAR_NS_LEAST on. It is
 * drawn with '#' up to the median, '=' up to the 99th percentile, '-' up to the longest wait. */
#include "probe_table.h"

#include <errno.h>
#include <inttypes.h>
#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/pool.h>
#include <millwright/probe.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "json_text.h"

#define BAR_NS_LEAST 10000.0            /* 10 us */
#define PLACE_FACTOR 1.5848931924611136 /* the fifth root of ten */
#define BAR_WIDTH    30                 /* up to 10 s */
#define TIME_BYTES   16u
#define TITLE_BYTES  32u

/* What the seed's table calls them, and what --lane does. */
static const struct {
    const char *title, *option;
} lanes[MW_PROBE_LANES] = {
    [MW_PROBE_ON_LANE] = {"lane", "dedicated"},
    [MW_PROBE_ON_POOL] = {"pool", "pool"},
    [MW_PROBE_ON_UV] = {"uv_queue_work", "uv"},
};

static void format_title(char text[TITLE_BYTES], const struct mw_probe_row *row);
static void format_time(char text[TIME_BYTES], uint64_t ns);
static void format_batch(char text[TIME_BYTES], const struct mw_probe_row *row,
                         const struct mw_probe_result *result);
static void format_bar(char bar[BAR_WIDTH + 1], const struct mw_probe_waits *waits);
static int place_of(uint64_t ns);
static json_t *machine_json(void);
static json_t *row_json(const struct mw_probe_row *row, const struct mw_probe_result *result);
static json_t *waits_json(const struct mw_probe_waits *waits);
static double ms_of(uint64_t ns);
static const char *uv_workers(void);

void mw_probe_row_describe(const struct mw_probe_row *row, char *text, size_t bytes)
{
    char title[TITLE_BYTES];
    format_title(title, row);
    if (row->roll)
        snprintf(text, bytes, "%u stale keys, emits on %s", MW_PROBE_ROLL_SOURCES, title);
    else
        snprintf(text, bytes, "%u emits on %s, compiler threads %s", row->emits, title,
                 row->compiler_threads ? "on" : "off");
}

void mw_probe_print_machine(FILE *out)
{
    unsigned cpus = mw_cpus_effective();
    fprintf(
        out,
        "One item every %u ms; the probe is its wait until it starts. %u effective CPUs.\n"
        "  uv_queue_work  emits and items on libuv's %s workers\n"
        "  pool           emits and items on the shared pool of %u to %u workers\n"
        "  lane           emits on a lane of %u threads of its own, items on the shared pool\n"
        "  ... isolated   the same, but each emit in a process of its own, which its thread "
        "drives\n"
        "loop99: the same for the event loop, p99. batch: N emits at once, until all are done.\n"
        "Bars, logarithmic: # up to the median, = up to p99, - up to the longest wait.\n",
        MW_PROBE_INTERVAL_MS_DEFAULT, cpus, uv_workers(), cpus, MW_POOL_MAX_THREADS_DEFAULT, cpus);
}

void mw_probe_print_head(FILE *out, const struct mw_probe_row *row)
{
    if (row->roll)
        fprintf(out,
                "\nThe compiler's identity changes: %u stored keys are stale at once, and all are "
                "asked for\n",
                MW_PROBE_ROLL_SOURCES);
    else if (row->compiler_threads)
        fputs("\nCompiler threads on: each is a parse through libclang, which starts a thread for "
              "it (no object)\n",
              out);
    else
        fputs("\nCompiler threads off: each is an emit, from source to object, on one thread\n",
              out);
    fputs("   N  on              p50     p99     max    loop99   batch  "
          "10us .1ms 1ms  10ms .1s  1s   10s\n",
          out);
}

void mw_probe_print_row(FILE *out, const struct mw_probe_row *row,
                        const struct mw_probe_result *result)
{
    char title[TITLE_BYTES], times[4][TIME_BYTES], batch[TIME_BYTES], bar[BAR_WIDTH + 1];
    format_title(title, row);
    if (result->error) {
        fprintf(out, "%4u  %-13s failed: %s\n", row->roll ? MW_PROBE_ROLL_SOURCES : row->emits,
                title, result->why);
        return;
    }
    format_time(times[0], result->probe.p50_ns);
    format_time(times[1], result->probe.p99_ns);
    format_time(times[2], result->probe.max_ns);
    format_time(times[3], result->loop.p99_ns);
    format_batch(batch, row, result);
    format_bar(bar, &result->probe);
    fprintf(out, "%4u  %-13s %7s %7s %7s  %7s %8s  %s\n",
            row->roll ? MW_PROBE_ROLL_SOURCES : row->emits, title, times[0], times[1], times[2],
            times[3], batch, bar);
}

int mw_probe_print_json(FILE *out, const struct mw_probe_row *rows,
                        const struct mw_probe_result *results, size_t count, bool interrupted)
{
    json_t *list = json_array();
    json_t *rolls = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(rows[i].roll ? rolls : list, row_json(&rows[i], &results[i]));
    char *text = mw_json_text(json_pack("{s:o, s:o, s:o, s:b}", "machine", machine_json(), "rows",
                                        list, "rolls", rolls, "interrupted", interrupted),
                              MW_JSON_INDENTED);
    if (!text)
        return -ENOMEM;
    fprintf(out, "%s\n", text);
    free(text);
    return 0;
}

/* ---- text ---- */

static void format_title(char text[TITLE_BYTES], const struct mw_probe_row *row)
{
    snprintf(text, TITLE_BYTES, "%s%s", lanes[row->lane].title, row->isolated ? " isolated" : "");
}

/* Three digits and a unit. */
static void format_time(char text[TIME_BYTES], uint64_t ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    unsigned unit = 0;
    while (value >= 999.5 && unit < 3) {
        value /= 1000;
        unit++;
    }
    snprintf(text, TIME_BYTES, "%.*f%s",
             value < 9.995   ? 2
             : value < 99.95 ? 1
                             : 0,
             value, units[unit]);
}

static void format_batch(char text[TIME_BYTES], const struct mw_probe_row *row,
                         const struct mw_probe_result *result)
{
    if (result->batches > 0)
        format_time(text, result->batch_ns);
    else if (result->cut)
        snprintf(text, TIME_BYTES, ">%us", row->seconds);
    else
        snprintf(text, TIME_BYTES, "-");
}

static void format_bar(char bar[BAR_WIDTH + 1], const struct mw_probe_waits *waits)
{
    int p50 = place_of(waits->p50_ns), p99 = place_of(waits->p99_ns);
    int max = place_of(waits->max_ns);
    int at = 0;
    while (at < p50)
        bar[at++] = '#';
    while (at < p99)
        bar[at++] = '=';
    while (at < max)
        bar[at++] = '-';
    bar[at] = '\0';
}

static int place_of(uint64_t ns)
{
    double bound = BAR_NS_LEAST * PLACE_FACTOR;
    int place = 0;
    while (place < BAR_WIDTH && (double)ns >= bound) {
        bound *= PLACE_FACTOR;
        place++;
    }
    return place;
}

/* ---- JSON ---- */

static json_t *machine_json(void)
{
    return json_pack("{s:i, s:i, s:s, s:s}", "cpus", (int)mw_cpus_effective(), "interval_ms",
                     (int)MW_PROBE_INTERVAL_MS_DEFAULT, "libuv", uv_version_string(), "uv_workers",
                     uv_workers());
}

static json_t *row_json(const struct mw_probe_row *row, const struct mw_probe_result *result)
{
    json_t *json = json_pack("{s:i, s:s, s:b, s:b}", "emits",
                             (int)(row->roll ? MW_PROBE_ROLL_SOURCES : row->emits), "lane",
                             lanes[row->lane].option, "isolated", row->isolated, "compiler_threads",
                             row->compiler_threads);
    if (result->error) {
        (void)json_object_set_new(json, "error", json_string(result->why));
        return json;
    }
    (void)json_object_set_new(json, "probe", waits_json(&result->probe));
    (void)json_object_set_new(json, "loop", waits_json(&result->loop));
    (void)json_object_set_new(
        json, "batch_ms", result->batches > 0 ? json_real(ms_of(result->batch_ns)) : json_null());
    (void)json_object_set_new(json, "batches", json_integer(result->batches));
    (void)json_object_set_new(json, "cut", json_boolean(result->cut));
    (void)json_object_set_new(json, "compiled", json_integer((json_int_t)result->compiled));
    (void)json_object_set_new(json, "compiler_threads_started",
                              json_integer((json_int_t)result->threads_started));
    (void)json_object_set_new(json, "processes_started",
                              json_integer((json_int_t)result->processes_started));
    if (row->roll) {
        (void)json_object_set_new(json, "found_before", json_integer(result->found_before));
        (void)json_object_set_new(json, "found_after", json_integer(result->found_after));
    }
    return json;
}

static json_t *waits_json(const struct mw_probe_waits *waits)
{
    return json_pack("{s:f, s:f, s:f, s:I, s:I}", "p50_ms", ms_of(waits->p50_ns), "p99_ms",
                     ms_of(waits->p99_ns), "max_ms", ms_of(waits->max_ns), "sent",
                     (json_int_t)waits->sent, "refused", (json_int_t)waits->refused);
}

static double ms_of(uint64_t ns)
{
    return (double)ns / MW_NS_PER_MS;
}

/* As libuv reads it. */
static const char *uv_workers(void)
{
    const char *size = getenv("UV_THREADPOOL_SIZE");
    return size && *size ? size : "4";
}

#include "report.h"

#include <millwright/audit.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <millwright/thread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

enum number_type { NUMBER_UNSIGNED, NUMBER_U64, NUMBER_NS };

/* One number of a stats struct. In JSON a NUMBER_NS is shown in milliseconds under "<member>_ms";
 * as a metric (where it has a name) in seconds. */
struct number {
    const char *member;
    size_t offset;
    enum number_type type;
    const char *metric;      /* NULL: JSON only */
    const char *metric_type; /* "gauge" or "counter" */
    const char *help;
};

#define UNSIGNED(stats, member, metric, type, help)                                                \
    {#member, offsetof(struct stats, member), NUMBER_UNSIGNED, metric, type, help}
#define U64(stats, member, metric, type, help)                                                     \
    {#member, offsetof(struct stats, member), NUMBER_U64, metric, type, help}
#define NS(stats, name, metric, help)                                                              \
    {#name, offsetof(struct stats, name##_ns), NUMBER_NS, metric, "gauge", help}

static const struct number pool_numbers[] = {
    UNSIGNED(mw_pool_stats, threads, "pool_threads", "gauge", "Workers alive"),
    UNSIGNED(mw_pool_stats, busy, "pool_busy", "gauge", "Workers that run an item"),
    UNSIGNED(mw_pool_stats, min_threads, "pool_min_threads", "gauge", "Minimum of workers"),
    UNSIGNED(mw_pool_stats, max_threads, "pool_max_threads", "gauge", "Maximum of workers"),
    UNSIGNED(mw_pool_stats, pending, "pool_pending", "gauge", "Items that wait for a worker"),
    UNSIGNED(mw_pool_stats, queue_max, "pool_queue_max", "gauge", "Items that may wait"),
    U64(mw_pool_stats, completed, "pool_completed_total", "counter", "Items run"),
    U64(mw_pool_stats, rejected, "pool_rejected_total", "counter", "Items refused"),
    U64(mw_pool_stats, start_failures, "pool_start_failures_total", "counter",
        "Threads that the system refused to start"),
    NS(mw_pool_stats, oldest_pending, "pool_oldest_pending_seconds",
       "Age of the item that has waited longest"),
};

#define AT_PRIORITY(priority)                                                                      \
    (offsetof(struct mw_lane_stats, queued_by_priority) + (priority) * sizeof(uint64_t))

static const struct number lane_numbers[] = {
    UNSIGNED(mw_lane_stats, cap, "lane_cap", "gauge", "Leaves that may run at once"),
    UNSIGNED(mw_lane_stats, queue_max, "lane_queue_max", "gauge", "Jobs that may wait"),
    UNSIGNED(mw_lane_stats, queued, "lane_queued", "gauge", "Jobs that wait for a slot"),
    {"queued_interactive", AT_PRIORITY(MW_JOB_INTERACTIVE), NUMBER_U64, NULL, NULL, NULL},
    {"queued_normal", AT_PRIORITY(MW_JOB_NORMAL), NUMBER_U64, NULL, NULL, NULL},
    {"queued_batch", AT_PRIORITY(MW_JOB_BATCH), NUMBER_U64, NULL, NULL, NULL},
    UNSIGNED(mw_lane_stats, waiting_for_worker, "lane_waiting_for_worker", "gauge",
             "Loops that were called for and that no worker or thread has taken up yet"),
    UNSIGNED(mw_lane_stats, running, "lane_running", "gauge", "Leaves that run"),
    UNSIGNED(mw_lane_stats, running_peak, "lane_running_peak", "gauge",
             "The most leaves that ran at once"),
    UNSIGNED(mw_lane_stats, threads, "lane_threads", "gauge", "Threads or drain loops"),
    U64(mw_lane_stats, submitted, "lane_submitted_total", "counter", "Jobs taken"),
    U64(mw_lane_stats, started, "lane_started_total", "counter", "Leaves started"),
    U64(mw_lane_stats, completed, "lane_completed_total", "counter", "Leaves ended"),
    U64(mw_lane_stats, rejected, "lane_rejected_total", "counter", "Jobs refused"),
    U64(mw_lane_stats, cancelled, "lane_cancelled_total", "counter", "Jobs cancelled"),
    U64(mw_lane_stats, expired, "lane_expired_total", "counter", "Jobs whose deadline passed"),
    U64(mw_lane_stats, start_failures, "lane_start_failures_total", "counter",
        "Threads or pool slots that could not be had"),
    U64(mw_lane_stats, ran_on_lane, "lane_ran_on_lane_total", "counter",
        "Leaves run on mw-cpu-lane threads"),
    U64(mw_lane_stats, ran_on_pool, "lane_ran_on_pool_total", "counter",
        "Leaves run on pool workers"),
    NS(mw_lane_stats, oldest_queued, "lane_oldest_queued_seconds",
       "Age of the job that has waited longest"),
    NS(mw_lane_stats, slot_wait_p50, "lane_slot_wait_p50_seconds",
       "Median wait until the lane had a slot for the job"),
    NS(mw_lane_stats, slot_wait_p99, "lane_slot_wait_p99_seconds",
       "99th percentile of the wait until the lane had a slot for the job"),
    NS(mw_lane_stats, slot_wait_max, "lane_slot_wait_max_seconds",
       "Longest wait until the lane had a slot for the job"),
    NS(mw_lane_stats, worker_wait_p50, "lane_worker_wait_p50_seconds",
       "Median wait from the slot until a worker or thread took the job"),
    NS(mw_lane_stats, worker_wait_p99, "lane_worker_wait_p99_seconds",
       "99th percentile of the wait from the slot until a worker or thread took the job"),
    NS(mw_lane_stats, worker_wait_max, "lane_worker_wait_max_seconds",
       "Longest wait from the slot until a worker or thread took the job"),
    NS(mw_lane_stats, wait_p50, NULL, NULL),
    NS(mw_lane_stats, wait_p99, NULL, NULL),
    NS(mw_lane_stats, wait_max, NULL, NULL),
    NS(mw_lane_stats, run_p50, NULL, NULL),
    NS(mw_lane_stats, run_p99, NULL, NULL),
    NS(mw_lane_stats, run_max, NULL, NULL),
};

static const struct number audit_numbers[] = {
    {"tasks", offsetof(struct mw_audit, census.tasks), NUMBER_UNSIGNED, "audit_tasks", "gauge",
     "Threads of the process, all in all"},
    {"starting", offsetof(struct mw_audit, census.starting), NUMBER_UNSIGNED, "audit_starting",
     "gauge", "Threads of ours on their way, which may show as strangers for moments"},
    {"strangers", offsetof(struct mw_audit, census.strangers), NUMBER_UNSIGNED, "audit_strangers",
     "gauge", "Threads of libraries: of no kind of ours, and not the initial one"},
    U64(mw_audit, expectations, "audit_expectations_total", "counter",
        "Leaves that said where they should run"),
    U64(mw_audit, wrong_expectations, "audit_wrong_expectations_total", "counter",
        "Leaves that ran elsewhere than they said"),
    U64(mw_audit, strayed, "audit_strayed_total", "counter",
        "Leaves that compute and ran on other threads than a lane's own"),
    U64(mw_audit, escapes, "leaf_escapes_total", "counter",
        "Items that began under a leaf and ran on a pool worker"),
    U64(mw_audit, thread_starts, "audit_thread_starts_total", "counter",
        "Threads of ours that were started under a leaf"),
    U64(mw_audit, foreign_starts, "audit_foreign_starts_total", "counter",
        "Threads of libraries that were started under a leaf"),
};

static const struct number pipeline_numbers[] = {
    U64(mw_pipeline_stats, requests, "compile_requests_total", "counter", "Compile requests"),
    U64(mw_pipeline_stats, hits, "compile_hits_total", "counter", "Answered from the store"),
    U64(mw_pipeline_stats, compiled, "compile_ok_total", "counter", "Compiles that succeeded"),
    U64(mw_pipeline_stats, failed, "compile_failed_total", "counter", "Compiles with errors"),
    U64(mw_pipeline_stats, joined, "compile_joined_total", "counter",
        "Requests that shared a running compile"),
    U64(mw_pipeline_stats, timeouts, "compile_timeouts_total", "counter", "Requests timed out"),
    U64(mw_pipeline_stats, abandoned, "compile_abandoned_total", "counter",
        "Requests whose client left"),
    U64(mw_pipeline_stats, refused, "compile_refused_total", "counter",
        "Requests with bad input or for which a queue was full"),
    U64(mw_pipeline_stats, store_errors, "store_errors_total", "counter",
        "Look-ups and writes that failed"),
    UNSIGNED(mw_pipeline_stats, flights, "compile_flights", "gauge", "Keys in work"),
    UNSIGNED(mw_pipeline_stats, tickets, "compile_tickets", "gauge", "Requests in work"),
};

static const struct number store_numbers[] = {
    U64(mw_store_stats, entries, "store_entries", "gauge", "Artifacts kept"),
    U64(mw_store_stats, bytes, "store_bytes", "gauge", "Bytes kept, compressed"),
    U64(mw_store_stats, max_bytes, "store_max_bytes", "gauge", "Bytes that may be kept"),
    U64(mw_store_stats, puts, "store_puts_total", "counter", "Artifacts written"),
    U64(mw_store_stats, evictions, "store_evictions_total", "counter", "Artifacts evicted"),
};

/* Upper bounds of the exported histograms' buckets. */
static const double bucket_s[] = {0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static json_t *numbers_json(const struct number *numbers, size_t count, const void *stats);
static double number_value(const struct number *number, const void *stats);
static void write_numbers(FILE *out, const struct number *numbers, size_t count, const void *stats);
static void write_lanes(FILE *out, struct mw_lane *const *lanes, size_t count);
static void write_lane_histograms(FILE *out, struct mw_lane *const *lanes, size_t count,
                                  const char *metric,
                                  const struct mw_histogram *(*of)(const struct mw_lane *));
static void write_audit(FILE *out, const struct mw_registry *registry);
static void write_kinds(FILE *out, const char *metric, const char *help, enum mw_thread_kind first,
                        const unsigned *counts);
static json_t *kinds_json(enum mw_thread_kind first, const unsigned *counts);
static json_t *strangers_json(const struct mw_census *census);

json_t *mw_report_pool(struct mw_pool *pool)
{
    struct mw_pool_stats stats;
    mw_pool_snapshot(pool, &stats);
    json_t *object = numbers_json(pool_numbers, COUNT(pool_numbers), &stats);
    if (object)
        json_object_set_new(object, "name", json_string("shared"));
    return object;
}

json_t *mw_report_lanes(struct mw_lane *const *lanes, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++) {
        struct mw_lane_stats stats;
        mw_lane_snapshot(lanes[i], &stats);
        json_t *lane = numbers_json(lane_numbers, COUNT(lane_numbers), &stats);
        if (!lane)
            continue;
        json_object_set_new(lane, "name", json_string(stats.name));
        json_object_set_new(lane, "runner",
                            json_string(stats.runner == MW_LANE_DEDICATED ? "dedicated" : "pool"));
        json_array_append_new(list, lane);
    }
    return list;
}

json_t *mw_report_audit(const struct mw_registry *registry)
{
    struct mw_audit audit;
    char finding[256];
    int error = mw_audit_report(&audit, registry);
    const char *found = mw_audit_finding(&audit, finding, sizeof finding);
    json_t *object = numbers_json(audit_numbers, COUNT(audit_numbers), &audit);
    if (!object)
        return NULL;
    json_object_set_new(object, "foreign_starts_seen", json_boolean(audit.foreign_starts_seen));
    json_object_set_new(object, "finding", found ? json_string(found) : json_null());
    json_object_set_new(object, "threads", kinds_json(MW_THREAD_HOST, audit.census.threads));
    json_object_set_new(object, "heirs", kinds_json(MW_THREAD_LOOP, audit.census.heirs));
    json_object_set_new(object, "stranger_list", strangers_json(&audit.census));
    if (error)
        json_object_set_new(object, "census_error", json_string(mw_strerror(error)));
    return object;
}

char *mw_report_metrics(struct mw_pool *pool, const struct mw_registry *registry,
                        const struct mw_pipeline_stats *pipeline,
                        const struct mw_store_stats *store)
{
    struct mw_lane *lanes[MW_REGISTRY_LANES_MAX];
    size_t lane_count = mw_registry_count(registry);
    for (unsigned i = 0; i < lane_count; i++)
        lanes[i] = mw_registry_at(registry, i);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    struct mw_pool_stats pool_stats;
    mw_pool_snapshot(pool, &pool_stats);
    write_numbers(out, pool_numbers, COUNT(pool_numbers), &pool_stats);
    write_lanes(out, lanes, lane_count);
    write_lane_histograms(out, lanes, lane_count, "lane_wait_seconds", mw_lane_wait_histogram);
    write_lane_histograms(out, lanes, lane_count, "lane_run_seconds", mw_lane_run_histogram);
    write_numbers(out, pipeline_numbers, COUNT(pipeline_numbers), pipeline);
    write_numbers(out, store_numbers, COUNT(store_numbers), store);
    write_audit(out, registry);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

static json_t *numbers_json(const struct number *numbers, size_t count, const void *stats)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < count; i++) {
        double value = number_value(&numbers[i], stats);
        if (numbers[i].type == NUMBER_NS) {
            char member[64];
            snprintf(member, sizeof member, "%s_ms", numbers[i].member);
            json_object_set_new(object, member, json_real(value / 1e6));
        } else {
            json_object_set_new(object, numbers[i].member, json_integer((json_int_t)value));
        }
    }
    return object;
}

static double number_value(const struct number *number, const void *stats)
{
    const char *at = (const char *)stats + number->offset;
    unsigned small;
    uint64_t large;
    if (number->type == NUMBER_UNSIGNED) {
        memcpy(&small, at, sizeof small);
        return small;
    }
    memcpy(&large, at, sizeof large);
    return (double)large;
}

static void write_head(FILE *out, const char *metric, const char *type, const char *help)
{
    fprintf(out, "# HELP millwright_%s %s.\n# TYPE millwright_%s %s\n", metric, help, metric, type);
}

static double metric_value(const struct number *number, const void *stats)
{
    double value = number_value(number, stats);
    return number->type == NUMBER_NS ? value / (double)MW_NS_PER_S : value;
}

static void write_numbers(FILE *out, const struct number *numbers, size_t count, const void *stats)
{
    for (size_t i = 0; i < count; i++) {
        write_head(out, numbers[i].metric, numbers[i].metric_type, numbers[i].help);
        fprintf(out, "millwright_%s %.15g\n", numbers[i].metric, metric_value(&numbers[i], stats));
    }
}

static void write_lanes(FILE *out, struct mw_lane *const *lanes, size_t count)
{
    for (size_t i = 0; i < COUNT(lane_numbers); i++) {
        const struct number *number = &lane_numbers[i];
        if (!number->metric)
            continue;
        write_head(out, number->metric, number->metric_type, number->help);
        for (size_t lane = 0; lane < count; lane++) {
            struct mw_lane_stats stats;
            mw_lane_snapshot(lanes[lane], &stats);
            fprintf(out, "millwright_%s{lane=\"%s\"} %.15g\n", number->metric, stats.name,
                    metric_value(number, &stats));
        }
    }
}

static void write_lane_histograms(FILE *out, struct mw_lane *const *lanes, size_t count,
                                  const char *metric,
                                  const struct mw_histogram *(*of)(const struct mw_lane *))
{
    write_head(out, metric, "histogram", "Time of jobs on the lane");
    for (size_t lane = 0; lane < count; lane++) {
        struct mw_lane_stats stats;
        mw_lane_snapshot(lanes[lane], &stats);
        const struct mw_histogram *histogram = of(lanes[lane]);
        for (size_t i = 0; i < COUNT(bucket_s); i++)
            fprintf(out, "millwright_%s_bucket{lane=\"%s\",le=\"%g\"} %llu\n", metric, stats.name,
                    bucket_s[i],
                    (unsigned long long)mw_histogram_count_below(
                        histogram, (uint64_t)(bucket_s[i] * (double)MW_NS_PER_S)));
        unsigned long long all = mw_histogram_count(histogram);
        fprintf(out, "millwright_%s_bucket{lane=\"%s\",le=\"+Inf\"} %llu\n", metric, stats.name,
                all);
        fprintf(out, "millwright_%s_sum{lane=\"%s\"} %.9g\n", metric, stats.name,
                (double)mw_histogram_sum(histogram) / (double)MW_NS_PER_S);
        fprintf(out, "millwright_%s_count{lane=\"%s\"} %llu\n", metric, stats.name, all);
    }
}

static void write_audit(FILE *out, const struct mw_registry *registry)
{
    struct mw_audit audit;
    (void)mw_audit_report(&audit, registry); /* GET /v1/audit tells why the threads are missing */
    write_numbers(out, audit_numbers, COUNT(audit_numbers), &audit);
    write_kinds(out, "threads", "Threads by the kind that each recorded at its entry",
                MW_THREAD_HOST, audit.census.threads);
    write_kinds(out, "audit_heirs", "Strangers that bear the name of a kind of ours",
                MW_THREAD_LOOP, audit.census.heirs);
}

static void write_kinds(FILE *out, const char *metric, const char *help, enum mw_thread_kind first,
                        const unsigned *counts)
{
    write_head(out, metric, "gauge", help);
    for (int kind = (int)first; kind < MW_THREAD_KINDS; kind++)
        fprintf(out, "millwright_%s{kind=\"%s\"} %u\n", metric,
                mw_thread_kind_name((enum mw_thread_kind)kind), counts[kind]);
}

static json_t *kinds_json(enum mw_thread_kind first, const unsigned *counts)
{
    json_t *object = json_object();
    for (int kind = (int)first; object && kind < MW_THREAD_KINDS; kind++)
        json_object_set_new(object, mw_thread_kind_name((enum mw_thread_kind)kind),
                            json_integer(counts[kind]));
    return object;
}

/* A name is what its thread made it: bytes that are no UTF-8 leave it out. */
static json_t *strangers_json(const struct mw_census *census)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < census->listed; i++) {
        json_t *name = json_string(census->list[i].name);
        enum mw_thread_kind heir_of = census->list[i].heir_of;
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:s?}", "tid", (int)census->list[i].tid, "name",
                            name ? name : json_null(), "heir_of",
                            heir_of != MW_THREAD_HOST ? mw_thread_kind_name(heir_of) : NULL));
    }
    return list;
}

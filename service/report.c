#include "report.h"

#include <millwright/audit.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <millwright/thread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "pipeline.h"
#include "shared_pool.h"

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
    UNSIGNED(mw_pool_stats, blocked, "pool_blocked", "gauge", "Of those, the ones that block"),
    UNSIGNED(mw_pool_stats, min_threads, "pool_min_threads", "gauge", "Minimum of workers"),
    UNSIGNED(mw_pool_stats, max_threads, "pool_max_threads", "gauge", "Maximum of workers"),
    UNSIGNED(mw_pool_stats, pending, "pool_pending", "gauge", "Items that wait for a worker"),
    UNSIGNED(mw_pool_stats, queue_max, "pool_queue_max", "gauge", "Items that may wait"),
    U64(mw_pool_stats, completed, "pool_completed_total", "counter", "Items run"),
    U64(mw_pool_stats, rejected, "pool_rejected_total", "counter", "Items refused"),
    U64(mw_pool_stats, injected, "pool_injected_total", "counter",
        "Workers added above the minimum because nothing moved"),
    U64(mw_pool_stats, start_failures, "pool_start_failures_total", "counter",
        "Threads that the system refused to start"),
    NS(mw_pool_stats, oldest_pending, "pool_oldest_pending_seconds",
       "Age of the item that has waited longest"),
};

static const struct number monitor_numbers[] = {
    UNSIGNED(mw_monitor_stats, min_raised, "pool_monitor_min_raised", "gauge",
             "The minimum that the monitor has raised the pool to; 0: none"),
    U64(mw_monitor_stats, samples, "pool_monitor_samples_total", "counter", "Looks at the pool"),
    U64(mw_monitor_stats, discarded, "pool_monitor_discarded_total", "counter",
        "Looks that did not count: the monitor itself came late, or was throttled"),
    U64(mw_monitor_stats, starved, "pool_monitor_starved_total", "counter",
        "Looks that found the pool starved"),
    U64(mw_monitor_stats, raises, "pool_monitor_raises_total", "counter", "Raises of the minimum"),
    U64(mw_monitor_stats, failures, "pool_monitor_failures_total", "counter", "Looks that failed"),
    UNSIGNED(mw_monitor_stats, processes, "pool_monitor_processes", "gauge",
             "Processes whose CPU time the monitor counts beside the service's own"),
    NS(mw_monitor_stats, age_max, "pool_monitor_age_max_seconds",
       "Longest wait for a worker that the monitor saw"),
};

static const struct number probe_numbers[] = {
    U64(mw_probe_stats, sent, "probe_sent_total", "counter", "Probe items sent"),
    U64(mw_probe_stats, arrived, "probe_arrived_total", "counter", "Probe items started"),
    U64(mw_probe_stats, refused, "probe_refused_total", "counter", "Probe items refused"),
    NS(mw_probe_stats, in_flight, "probe_in_flight_seconds",
       "What the probe item that waits now has waited so far"),
    NS(mw_probe_stats, p50, "probe_wait_p50_seconds", "Median wait of a probe item to start"),
    NS(mw_probe_stats, p99, "probe_wait_p99_seconds",
       "99th percentile of the wait of a probe item to start"),
    NS(mw_probe_stats, max, "probe_wait_max_seconds", "Longest wait of a probe item to start"),
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

static const struct number isolate_numbers[] = {
    UNSIGNED(mw_isolate_stats, ready, "workers_ready", "gauge", "Worker processes that wait"),
    UNSIGNED(mw_isolate_stats, running, "workers_running", "gauge", "Those that compile"),
    U64(mw_isolate_stats, started, "workers_started_total", "counter", "Worker processes started"),
    U64(mw_isolate_stats, killed_by_limit, "workers_killed_by_limit_total", "counter",
        "Those killed because a limit was hit"),
    U64(mw_isolate_stats, stopped, "workers_stopped_total", "counter",
        "Those killed because nobody wanted the result any more"),
    U64(mw_isolate_stats, crashed, "workers_crashed_total", "counter",
        "Those that the source made crash"),
    U64(mw_isolate_stats, zygote_restarts, "zygote_restarts_total", "counter",
        "Times that the process which forks them had to be started again"),
    U64(mw_isolate_stats, retries, "workers_retries_total", "counter",
        "Compiles that were tried again because their worker was lost"),
    U64(mw_isolate_stats, zygote_rss_bytes, "zygote_resident_bytes", "gauge",
        "Memory of the process which forks them"),
    UNSIGNED(mw_isolate_stats, head_starts, "head_starts", "gauge",
             "First includes that worker processes wait behind"),
    U64(mw_isolate_stats, head_starts_used, "head_starts_used_total", "counter",
        "Compiles that began behind their first includes"),
};

static const struct number preamble_numbers[] = {
    U64(mw_preambles_stats, kept, "preambles_kept", "gauge", "Precompiled prefixes in memory"),
    U64(mw_preambles_stats, bytes, "preambles_bytes", "gauge", "What they take"),
    U64(mw_preambles_stats, bytes_max, "preambles_max_bytes", "gauge", "What they may take"),
    U64(mw_preambles_stats, used, "preambles_used_total", "counter",
        "Compiles for which one was there"),
    U64(mw_preambles_stats, built, "preambles_built_total", "counter", "Those made"),
    U64(mw_preambles_stats, failed, "preambles_failed_total", "counter",
        "Those that could not be made"),
    U64(mw_preambles_stats, evicted, "preambles_evicted_total", "counter",
        "Those given up for others, or because a header changed"),
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
    U64(mw_pipeline_stats, direct_hits, "compile_direct_hits_total", "counter",
        "Of those, the ones that a manifest found"),
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
static json_t *probe_json(struct mw_probe *probe, unsigned interval_ms);
static json_t *events_json(struct mw_shared_pool *shared);
static json_t *event_json(const struct mw_pool_event *event);
static json_t *given_json(const struct mw_shared_pool *shared);
static void write_pool(FILE *out, struct mw_shared_pool *shared);
static void write_probes(FILE *out, const struct mw_shared_pool *shared);
static void write_lanes(FILE *out, struct mw_lane *const *lanes, size_t count);
static void write_lane_histograms(FILE *out, struct mw_lane *const *lanes, size_t count,
                                  const char *metric,
                                  const struct mw_histogram *(*of)(const struct mw_lane *));
static void write_histogram(FILE *out, const char *metric, const char *label, const char *value,
                            const struct mw_histogram *histogram);
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

json_t *mw_report_monitor(struct mw_monitor *monitor)
{
    struct mw_monitor_stats stats;
    mw_monitor_snapshot(monitor, &stats);
    json_t *object = numbers_json(monitor_numbers, COUNT(monitor_numbers), &stats);
    if (!object)
        return NULL;
    json_object_set_new(object, "enabled", json_boolean(stats.enabled));
    json_object_set_new(object, "raised", json_boolean(stats.min_raised != 0));
    json_object_set_new(object, "min_before",
                        stats.min_raised ? json_integer(stats.min_user) : json_null());
    json_object_set_new(object, "min_after",
                        stats.min_raised ? json_integer(stats.min_raised) : json_null());
    return object;
}

json_t *mw_report_shared_pool(struct mw_shared_pool *shared)
{
    struct mw_monitor_stats monitor;
    json_t *object = mw_report_pool(shared->pool);
    if (!object)
        return NULL;
    mw_monitor_snapshot(shared->monitor, &monitor);
    bool raised = monitor.min_raised &&
                  json_integer_value(json_object_get(object, "min_threads")) == monitor.min_raised;
    json_object_set_new(
        object, "min_threads_from",
        json_string(raised ? "monitor"
                           : mw_pool_min_source_member(mw_shared_pool_min_source(shared))));
    json_object_set_new(object, "min_threads_given", given_json(shared));
    json_object_set_new(object, "monitor", mw_report_monitor(shared->monitor));
    json_object_set_new(object, "probe", probe_json(shared->pool_probe, shared->probe_interval_ms));
    json_object_set_new(object, "events", events_json(shared));
    return object;
}

json_t *mw_report_loop(const struct mw_shared_pool *shared)
{
    return json_pack("{s:o}", "probe", probe_json(shared->loop_probe, shared->probe_interval_ms));
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

static json_t *preambles_json(struct mw_preambles *preambles)
{
    struct mw_preambles_stats stats;
    if (!preambles)
        return json_null();
    mw_preambles_snapshot(preambles, &stats);
    return numbers_json(preamble_numbers, COUNT(preamble_numbers), &stats);
}

json_t *mw_report_isolation(struct mw_isolate *isolate, struct mw_preambles *preambles)
{
    struct mw_isolate_stats stats;
    if (!isolate)
        return json_pack("{s:s, s:o}", "isolation", "in-process", "preambles",
                         preambles_json(preambles));
    mw_isolate_snapshot(isolate, &stats);
    json_t *object = numbers_json(isolate_numbers, COUNT(isolate_numbers), &stats);
    json_t *guards = json_array();
    if (!object)
        return NULL;
    for (unsigned bit = 0; mw_isolate_guard_name(bit); bit++)
        if (stats.guards >> bit & 1)
            json_array_append_new(guards, json_string(mw_isolate_guard_name(bit)));
    json_object_set_new(object, "isolation", json_string("isolated"));
    json_object_set_new(object, "guards", guards);
    json_object_set_new(object, "landlock_abi", json_integer(stats.landlock_abi));
    json_object_set_new(object, "preambles", preambles_json(preambles));
    return object;
}

char *mw_report_metrics(struct mw_shared_pool *shared, const struct mw_registry *registry,
                        struct mw_isolate *isolate, struct mw_preambles *preambles,
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
    write_pool(out, shared);
    write_probes(out, shared);
    write_lanes(out, lanes, lane_count);
    write_lane_histograms(out, lanes, lane_count, "lane_wait_seconds", mw_lane_wait_histogram);
    write_lane_histograms(out, lanes, lane_count, "lane_run_seconds", mw_lane_run_histogram);
    write_numbers(out, pipeline_numbers, COUNT(pipeline_numbers), pipeline);
    write_numbers(out, store_numbers, COUNT(store_numbers), store);
    write_audit(out, registry);
    if (isolate) {
        struct mw_isolate_stats stats;
        mw_isolate_snapshot(isolate, &stats);
        write_numbers(out, isolate_numbers, COUNT(isolate_numbers), &stats);
    }
    if (preambles) {
        struct mw_preambles_stats stats;
        mw_preambles_snapshot(preambles, &stats);
        write_numbers(out, preamble_numbers, COUNT(preamble_numbers), &stats);
    }
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

static json_t *given_json(const struct mw_shared_pool *shared)
{
    json_t *object = json_object();
    for (int source = 0; object && source < MW_POOL_MIN_SOURCES; source++)
        json_object_set_new(object, mw_pool_min_source_member((enum mw_pool_min_source)source),
                            shared->min_by[source] ? json_integer(shared->min_by[source])
                                                   : json_null());
    return object;
}

/* null: there is no probe */
static json_t *probe_json(struct mw_probe *probe, unsigned interval_ms)
{
    struct mw_probe_stats stats;
    if (!probe)
        return json_null();
    mw_probe_snapshot(probe, &stats);
    json_t *object = numbers_json(probe_numbers, COUNT(probe_numbers), &stats);
    if (object)
        json_object_set_new(object, "interval_ms", json_integer(interval_ms));
    return object;
}

static json_t *events_json(struct mw_shared_pool *shared)
{
    struct mw_pool_event events[MW_POOL_EVENTS_MAX];
    unsigned count = mw_shared_pool_events(shared, events, COUNT(events));
    json_t *list = json_array();
    for (unsigned i = 0; list && i < count; i++)
        json_array_append_new(list, event_json(&events[i]));
    return list;
}

static json_t *event_json(const struct mw_pool_event *event)
{
    static const char *const whats[MW_MONITOR_EVENTS] = {
        [MW_MONITOR_RAISED] = "raised",
        [MW_MONITOR_RESTORED] = "restored",
        [MW_MONITOR_LEFT] = "left",
        [MW_MONITOR_FAILED] = "failed",
    };
    const struct mw_monitor_event *monitor = &event->monitor;
    char at[MW_LOG_STAMP_BYTES];
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:i, s:i}", "at", mw_log_stamp(at, event->at), "what",
                  event->by_monitor ? whats[monitor->kind] : "set", "by",
                  event->by_monitor ? "monitor" : mw_pool_min_source_member(event->source),
                  "min_before", (int)monitor->min_before, "min_after", (int)monitor->min_after);
    if (!object || !event->by_monitor)
        return object;
    json_t *figures = json_pack(
        "{s:i, s:i, s:i, s:i, s:f, s:f, s:s?}", "threads", (int)monitor->threads, "busy",
        (int)monitor->busy, "blocked", (int)monitor->blocked, "pending", (int)monitor->pending,
        "age_ms", (double)monitor->age_ns / (double)MW_NS_PER_MS, "cpu_used", monitor->cpu_used,
        "error", monitor->error ? mw_strerror(monitor->error) : NULL);
    json_object_update_missing(object, figures);
    json_decref(figures);
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
        write_histogram(out, metric, "lane", stats.name, of(lanes[lane]));
    }
}

static void write_histogram(FILE *out, const char *metric, const char *label, const char *value,
                            const struct mw_histogram *histogram)
{
    for (size_t i = 0; i < COUNT(bucket_s); i++)
        fprintf(out, "millwright_%s_bucket{%s=\"%s\",le=\"%g\"} %llu\n", metric, label, value,
                bucket_s[i],
                (unsigned long long)mw_histogram_count_below(
                    histogram, (uint64_t)(bucket_s[i] * (double)MW_NS_PER_S)));
    unsigned long long all = mw_histogram_count(histogram);
    fprintf(out, "millwright_%s_bucket{%s=\"%s\",le=\"+Inf\"} %llu\n", metric, label, value, all);
    fprintf(out, "millwright_%s_sum{%s=\"%s\"} %.9g\n", metric, label, value,
            (double)mw_histogram_sum(histogram) / (double)MW_NS_PER_S);
    fprintf(out, "millwright_%s_count{%s=\"%s\"} %llu\n", metric, label, value, all);
}

static void write_pool(FILE *out, struct mw_shared_pool *shared)
{
    struct mw_pool_stats pool;
    struct mw_monitor_stats monitor;
    mw_pool_snapshot(shared->pool, &pool);
    mw_monitor_snapshot(shared->monitor, &monitor);
    write_numbers(out, pool_numbers, COUNT(pool_numbers), &pool);
    write_head(out, "pool_monitor_enabled", "gauge", "Whether the minimum is raised when it helps");
    fprintf(out, "millwright_pool_monitor_enabled %d\n", monitor.enabled);
    write_numbers(out, monitor_numbers, COUNT(monitor_numbers), &monitor);
}

static void write_probes(FILE *out, const struct mw_shared_pool *shared)
{
    const struct {
        const char *target;
        struct mw_probe *probe;
    } probes[] = {{"pool", shared->pool_probe}, {"loop", shared->loop_probe}};
    if (!shared->pool_probe || !shared->loop_probe)
        return;
    for (size_t i = 0; i < COUNT(probe_numbers); i++) {
        const struct number *number = &probe_numbers[i];
        write_head(out, number->metric, number->metric_type, number->help);
        for (size_t which = 0; which < COUNT(probes); which++) {
            struct mw_probe_stats stats;
            mw_probe_snapshot(probes[which].probe, &stats);
            fprintf(out, "millwright_%s{target=\"%s\"} %.15g\n", number->metric,
                    probes[which].target, metric_value(number, &stats));
        }
    }
    write_head(out, "probe_wait_seconds", "histogram", "Wait of probe items to start");
    for (size_t which = 0; which < COUNT(probes); which++)
        write_histogram(out, "probe_wait_seconds", "target", probes[which].target,
                        mw_probe_histogram(probes[which].probe));
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

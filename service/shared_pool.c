#include "shared_pool.h"

#include <errno.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

static const struct {
    const char *name, *member;
} sources[MW_POOL_MIN_SOURCES] = {
    [MW_POOL_MIN_DEFAULT] = {"default", "default"},
    [MW_POOL_MIN_CONFIG_FILE] = {"config file", "config_file"},
    [MW_POOL_MIN_OF_ENVIRONMENT] = {"environment", "environment"},
    [MW_POOL_MIN_COMMAND_LINE] = {"command line", "command_line"},
    [MW_POOL_MIN_REQUEST] = {"request", "request"},
};

static int apply_min(struct mw_shared_pool *shared, unsigned *before);
static void log_min(const struct mw_shared_pool *shared, unsigned before, unsigned after);
static int start_monitor(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                         const struct mw_registry *registry, char *why, size_t why_bytes);
static int start_probes(struct mw_shared_pool *shared, unsigned interval_ms, uv_loop_t *loop,
                        char *why, size_t why_bytes);
static unsigned parallel_limit_of(const struct mw_registry *registry);
static void on_monitor(void *user, const struct mw_monitor_event *event);
static void log_monitor(const struct mw_monitor_event *event);
static void keep_event(struct mw_shared_pool *shared, struct mw_pool_event event);
static unsigned loops_waiting(struct mw_lane *const *lanes, size_t count);

int mw_shared_pool_open(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                        char *why, size_t why_bytes)
{
    struct mw_pool_stats stats;
    int error = mw_mutex_init(&shared->lock);
    shared->lock_made = error == 0;
    if (!error)
        error = mw_pool_new(&shared->pool,
                            &(struct mw_pool_options){.max_threads = settings->pool_max});
    if (error) {
        snprintf(why, why_bytes, "cannot make the shared pool: %s", mw_strerror(error));
        return error;
    }
    mw_pool_snapshot(shared->pool, &stats);
    memcpy(shared->min_by, settings->pool_min_by, sizeof shared->min_by);
    shared->min_by[MW_POOL_MIN_DEFAULT] = stats.min_threads;
    enum mw_pool_min_source source = mw_shared_pool_min_source(shared);
    unsigned before;
    if (source != MW_POOL_MIN_DEFAULT && apply_min(shared, &before) != 0) {
        snprintf(why, why_bytes,
                 "the shared pool's minimum of %u (%s) is more than pool-max %u; lower it, or "
                 "raise pool-max",
                 shared->min_by[source], sources[source].name, stats.max_threads);
        return -EINVAL;
    }
    return 0;
}

int mw_shared_pool_watch(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                         const struct mw_registry *registry, uv_loop_t *loop, char *why,
                         size_t why_bytes)
{
    int error = start_monitor(shared, settings, registry, why, why_bytes);
    if (!error && settings->probe_interval_ms)
        error = start_probes(shared, settings->probe_interval_ms, loop, why, why_bytes);
    return error;
}

void mw_shared_pool_unwatch(struct mw_shared_pool *shared)
{
    mw_probe_free(shared->pool_probe);
    shared->pool_probe = NULL;
    mw_monitor_free(shared->monitor);
    shared->monitor = NULL;
}

void mw_shared_pool_on_work(void *shared, pid_t process, bool begins)
{
    struct mw_monitor *monitor = ((struct mw_shared_pool *)shared)->monitor;
    if (begins)
        (void)mw_monitor_watch(monitor, process); /* fails when it has died meanwhile */
    else
        mw_monitor_forget(monitor, process);
}

void mw_shared_pool_close(struct mw_shared_pool *shared)
{
    mw_pool_free(shared->pool);
    shared->pool = NULL;
    if (shared->lock_made)
        mw_mutex_fini(&shared->lock);
    shared->lock_made = false;
}

/* ---- the minimum ---- */

int mw_shared_pool_set_min(struct mw_shared_pool *shared, unsigned min_threads, unsigned *before,
                           unsigned *after)
{
    unsigned said = shared->min_by[MW_POOL_MIN_REQUEST];
    shared->min_by[MW_POOL_MIN_REQUEST] = min_threads;
    int error = apply_min(shared, before);
    if (error)
        shared->min_by[MW_POOL_MIN_REQUEST] = said;
    *after = error ? *before : shared->min_by[mw_shared_pool_min_source(shared)];
    return error;
}

enum mw_pool_min_source mw_shared_pool_min_source(const struct mw_shared_pool *shared)
{
    int source = MW_POOL_MIN_SOURCES - 1;
    while (source > MW_POOL_MIN_DEFAULT && shared->min_by[source] == 0)
        source--;
    return (enum mw_pool_min_source)source;
}

const char *mw_pool_min_source_member(enum mw_pool_min_source source)
{
    return sources[source].member;
}

/* Brings to the pool what the most explicit source says. */
static int apply_min(struct mw_shared_pool *shared, unsigned *before)
{
    enum mw_pool_min_source source = mw_shared_pool_min_source(shared);
    unsigned after = shared->min_by[source];
    int error = mw_pool_set_min(shared->pool, after, before);
    if (error)
        return error;
    log_min(shared, *before, after);
    keep_event(shared, (struct mw_pool_event){
                           .source = source,
                           .monitor = {.min_before = *before, .min_after = after},
                       });
    return 0;
}

/* Who is overruled is named, so that nobody looks for an effect that cannot come. */
static void log_min(const struct mw_shared_pool *shared, unsigned before, unsigned after)
{
    enum mw_pool_min_source winner = mw_shared_pool_min_source(shared);
    char overruled[128] = "";
    size_t used = 0;
    for (int source = (int)winner - 1; source > MW_POOL_MIN_DEFAULT; source--)
        if (shared->min_by[source])
            used += (size_t)snprintf(overruled + used, sizeof overruled - used, "%s the %s's %u",
                                     used ? "," : "; it wins over", sources[source].name,
                                     shared->min_by[source]);
    mw_log("pool minimum %u -> %u (%s%s)", before, after, sources[winner].name, overruled);
}

/* ---- monitor ---- */

static int start_monitor(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                         const struct mw_registry *registry, char *why, size_t why_bytes)
{
    int error = mw_monitor_new(&shared->monitor, &(struct mw_monitor_options){
                                                     .pool = shared->pool,
                                                     .parallel_limit = parallel_limit_of(registry),
                                                     .disabled = settings->pool_tuning != 0,
                                                     .report = on_monitor,
                                                     .user = shared,
                                                 });
    if (error)
        snprintf(why, why_bytes, "cannot start the pool's monitor: %s", mw_strerror(error));
    return error;
}

/* As many leaves as may hold a worker at once. */
static unsigned parallel_limit_of(const struct mw_registry *registry)
{
    unsigned limit = 0;
    for (unsigned i = 0; i < mw_registry_count(registry); i++) {
        struct mw_lane_stats stats;
        mw_lane_snapshot(mw_registry_at(registry, i), &stats);
        if (stats.runner == MW_LANE_POOL)
            limit += stats.cap;
    }
    return limit;
}

/* Runs on the monitor's thread. */
static void on_monitor(void *user, const struct mw_monitor_event *event)
{
    log_monitor(event);
    keep_event(user, (struct mw_pool_event){.by_monitor = true, .monitor = *event});
}

static void log_monitor(const struct mw_monitor_event *event)
{
    switch (event->kind) {
    case MW_MONITOR_RAISED:
        mw_log("pool minimum %u -> %u (monitor): an item waited %.0f ms for one of %u workers, of "
               "which %u were busy and %u blocked; %u items waited, and %.0f %% of the CPUs was "
               "used",
               event->min_before, event->min_after, (double)event->age_ns / (double)MW_NS_PER_MS,
               event->threads, event->busy, event->blocked, event->pending,
               event->cpu_used * 100.0);
        break;
    case MW_MONITOR_RESTORED:
        mw_log("pool minimum %u -> %u (monitor): put back at the end", event->min_before,
               event->min_after);
        break;
    case MW_MONITOR_LEFT:
        mw_log("pool minimum %u stays: it was set anew since the monitor raised it",
               event->min_after);
        break;
    case MW_MONITOR_FAILED:
        mw_log("pool monitor: %s; it goes on", mw_strerror(event->error));
        break;
    case MW_MONITOR_EVENTS:
        break;
    }
}

static void keep_event(struct mw_shared_pool *shared, struct mw_pool_event event)
{
    event.at = time(NULL);
    mw_mutex_lock(&shared->lock);
    shared->events[shared->event_count++ % MW_POOL_EVENTS_MAX] = event;
    mw_mutex_unlock(&shared->lock);
}

unsigned mw_shared_pool_events(struct mw_shared_pool *shared, struct mw_pool_event *events,
                               unsigned max)
{
    mw_mutex_lock(&shared->lock);
    uint64_t kept =
        shared->event_count < MW_POOL_EVENTS_MAX ? shared->event_count : MW_POOL_EVENTS_MAX;
    unsigned count = kept < max ? (unsigned)kept : max;
    for (unsigned i = 0; i < count; i++)
        events[i] = shared->events[(shared->event_count - count + i) % MW_POOL_EVENTS_MAX];
    mw_mutex_unlock(&shared->lock);
    return count;
}

/* ---- probes ---- */

static int start_probes(struct mw_shared_pool *shared, unsigned interval_ms, uv_loop_t *loop,
                        char *why, size_t why_bytes)
{
    shared->probe_interval_ms = interval_ms;
    mw_probe_pool_init(&shared->pool_target, shared->pool);
    int error = mw_probe_new(&shared->pool_probe, &shared->pool_target.target, interval_ms);
    if (!error)
        error = mw_probe_uv_loop_init(&shared->loop_target, loop);
    shared->loop_target_open = error == 0;
    if (!error)
        error = mw_probe_new(&shared->loop_probe, &shared->loop_target.target, interval_ms);
    if (error)
        snprintf(why, why_bytes, "cannot start the probes: %s", mw_strerror(error));
    return error;
}

void mw_shared_pool_unwatch_loop(struct mw_shared_pool *shared)
{
    mw_probe_free(shared->loop_probe);
    shared->loop_probe = NULL;
    if (shared->loop_target_open)
        mw_probe_uv_loop_close(&shared->loop_target, NULL);
    shared->loop_target_open = false;
}

/* ---- what a time-out may have come from ---- */

bool mw_shared_pool_explain(struct mw_shared_pool *shared, struct mw_lane *const *lanes,
                            size_t count, char *text, size_t text_bytes)
{
    struct mw_pool_stats pool;
    struct mw_monitor_stats monitor;
    mw_pool_snapshot(shared->pool, &pool);
    mw_monitor_snapshot(shared->monitor, &monitor);
    text[0] = '\0';
    /* The pool's own pending items may be the probes', which nobody waits for. */
    if (loops_waiting(lanes, count) == 0 || pool.busy < pool.threads)
        return false;
    int used = snprintf(text, text_bytes,
                        "; work waits while all %u workers of the shared pool are busy (%u of them "
                        "say that they block), so the time-out may come from blocking elsewhere; ",
                        pool.busy, pool.blocked);
    if (used < 0 || (size_t)used >= text_bytes)
        return true;
    if (monitor.min_raised) /* and nobody has set it since */
        snprintf(text + used, text_bytes - (size_t)used,
                 "the monitor has raised the pool's minimum from %u to %u", monitor.min_user,
                 monitor.min_raised);
    else
        snprintf(text + used, text_bytes - (size_t)used,
                 monitor.enabled
                     ? "the monitor has not raised the pool's minimum of %u"
                     : "the monitor, which would raise the pool's minimum of %u, is off",
                 pool.min_threads);
    return true;
}

static unsigned loops_waiting(struct mw_lane *const *lanes, size_t count)
{
    unsigned waiting = 0;
    for (size_t i = 0; i < count; i++) {
        struct mw_lane_stats stats;
        mw_lane_snapshot(lanes[i], &stats);
        if (stats.runner == MW_LANE_POOL)
            waiting += stats.waiting_for_worker;
    }
    return waiting;
}

/* The sampler owns the rules' state and the probe item. Each turn it takes a sample, has it judged
 * (monitor_rules.c), acts, and sends the probe item again if that has come back.
 *
 * The item lives apart from the monitor: in a starved pool it may wait for long, and a monitor that
 * ends does not wait for it. Whoever of the two is last releases it. It is not sent while an item
 * would start at once anyway: then a pool that has nothing to do is left in peace.
 *
 * CPUs and quotas change rarely and take a dozen small files to read: they are read once a second,
 * and anew before a sample is judged that may lead to a raise, as is the count of throttlings. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "awake.h"
#include "clock.h"
#include "cpus.h"
#include "monitor.h"
#include "monitor_rules.h"
#include "mutex.h"
#include "process.h"
#include "thread.h"
#include "usage.h"

#define ENVIRONMENT      "MILLWRIGHT_DISABLE_POOL_TUNING"
#define WHY_BYTES        160
#define CPUS_READ_NS     MW_NS_PER_S
#define PARALLEL_PER_CPU 4u
#define NOTHING_REPORTED 0

_Static_assert(MW_USAGE_PROCESSES_MAX == MW_MONITOR_PROCESSES_MAX, "one is the other's bound");

enum probe_place { PROBE_HOME = 0, PROBE_SENT, PROBE_LEFT /* its monitor has ended */ };

struct probe {
    struct mw_pool_item item; /* first, so that fn can cast */
    /* release by the item when it is through, acquire by the sampler: what started_ns says; and
     * both ways when the monitor ends, so that one of them, and only one, releases it */
    _Atomic int place;
    uint64_t started_ns;
    uint64_t sent_ns; /* the sampler's own */
};

struct mw_monitor {
    /* immutable */
    struct mw_monitor_options options;
    unsigned generation; /* of the process that made it */
    struct mw_thread thread;

    /* the sampler's own */
    struct mw_monitor_state rules;
    struct probe *probe;
    bool awaits_probe;  /* it was sent, and its wait is not told to the end */
    bool probe_refused; /* by a full queue */
    struct mw_cpus cpus;
    uint64_t cpus_read_ns;
    int error_reported;

    struct mw_usage_table usage; /* has a lock of its own */
    struct mw_mutex lock;        /* guards all below */
    struct mw_cond stopped;
    bool stop;
    struct mw_monitor_stats stats;
};

/* A sample, and what else an event tells. */
struct look {
    struct mw_monitor_sample sample;
    struct mw_pool_stats pool;
    struct mw_monitor_decision decision;
};

static int parts_init(struct mw_monitor *monitor);
static void parts_fini(struct mw_monitor *monitor);
static void sampler_main(void *arg);
static bool sleep_until(struct mw_monitor *monitor, uint64_t deadline_ns);
static void turn(struct mw_monitor *monitor);
static void look_take(struct mw_monitor *monitor, struct look *look);
static void cpus_read(struct mw_monitor *monitor, struct mw_monitor_sample *sample);
static void raise_minimum(struct mw_monitor *monitor, const struct look *look);
static void restore_minimum(struct mw_monitor *monitor);
static void report(struct mw_monitor *monitor, const struct look *look,
                   const struct mw_monitor_event *event);
static void report_failure(struct mw_monitor *monitor, const struct look *look, int error);
static void stats_note(struct mw_monitor *monitor, const struct look *look);
static uint64_t probe_age(struct mw_monitor *monitor, const struct mw_pool_stats *pool,
                          uint64_t now);
static void probe_send(struct mw_monitor *monitor, const struct look *look);
static void probe_run(struct mw_pool_item *item);
static void probe_leave(struct probe *probe);

int mw_monitor_new(struct mw_monitor **out, const struct mw_monitor_options *options)
{
    struct mw_thread_options thread = {.kind = MW_THREAD_MONITOR};
    struct mw_monitor *monitor;
    char why[WHY_BYTES];
    bool disabled;
    int error;

    if (options == NULL || options->pool == NULL)
        return -EINVAL;
    error = mw_monitor_environment(&disabled, why, sizeof why);
    if (error == -ENOENT)
        disabled = options->disabled;
    else if (error != 0)
        return error;
    if (mw_process_watch() != 0)
        return -ENOMEM;
    monitor = calloc(1, sizeof *monitor);
    if (monitor == NULL)
        return -ENOMEM;
    monitor->options = *options;
    monitor->generation = mw_process_generation();
    if (monitor->options.parallel_limit == 0)
        monitor->options.parallel_limit = PARALLEL_PER_CPU * mw_cpus_effective();
    monitor->stats.enabled = !disabled;
    error = parts_init(monitor);
    if (error == 0 && !disabled) {
        error = mw_thread_start(&monitor->thread, &thread, sampler_main, monitor);
        if (error != 0)
            parts_fini(monitor);
    }
    if (error != 0) {
        free(monitor);
        return error;
    }
    *out = monitor;
    return 0;
}

int mw_monitor_environment(bool *disabled, char *why, size_t why_bytes)
{
    static const struct {
        const char *text;
        bool disabled;
    } words[] = {{"1", true},  {"true", true},   {"yes", true},
                 {"0", false}, {"false", false}, {"no", false}};
    const char *text = getenv(ENVIRONMENT);

    if (text == NULL || *text == '\0')
        return -ENOENT;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i].text) == 0) {
            *disabled = words[i].disabled;
            return 0;
        }
    }
    snprintf(why, why_bytes,
             "%s must be 1, true or yes to keep the pool's minimum as it is, or 0, false or no, "
             "not '%.32s'",
             ENVIRONMENT, text);
    return -EINVAL;
}

void mw_monitor_free(struct mw_monitor *monitor)
{
    if (monitor == NULL || monitor->generation != mw_process_generation())
        return; /* its thread and whoever held its lock are not in this process: leave it */
    if (monitor->stats.enabled) {
        mw_mutex_lock(&monitor->lock);
        monitor->stop = true;
        mw_cond_signal(&monitor->stopped);
        mw_mutex_unlock(&monitor->lock);
        mw_thread_join(&monitor->thread);
    }
    parts_fini(monitor);
    free(monitor);
}

int mw_monitor_watch(struct mw_monitor *monitor, pid_t process)
{
    bool for_worker = mw_thread_kind_current() != MW_THREAD_LANE;

    return mw_usage_watch(&monitor->usage, process, for_worker);
}

void mw_monitor_forget(struct mw_monitor *monitor, pid_t process)
{
    mw_usage_forget(&monitor->usage, process);
}

void mw_monitor_snapshot(struct mw_monitor *monitor, struct mw_monitor_stats *stats)
{
    mw_mutex_lock(&monitor->lock);
    *stats = monitor->stats;
    mw_mutex_unlock(&monitor->lock);
    stats->processes = mw_usage_count(&monitor->usage);
}

static int parts_init(struct mw_monitor *monitor)
{
    int error;

    mw_monitor_rules_init(&monitor->rules, monitor->options.parallel_limit);
    error = mw_usage_init(&monitor->usage);
    if (error != 0)
        return error;
    error = mw_mutex_init(&monitor->lock);
    if (error != 0)
        goto no_lock;
    error = mw_cond_init(&monitor->stopped);
    if (error != 0)
        goto no_cond;
    monitor->probe = calloc(1, sizeof *monitor->probe);
    if (monitor->probe == NULL) {
        error = -ENOMEM;
        goto no_probe;
    }
    monitor->probe->item.fn = probe_run;
    return 0;

no_probe:
    mw_cond_fini(&monitor->stopped);
no_cond:
    mw_mutex_fini(&monitor->lock);
no_lock:
    mw_usage_fini(&monitor->usage);
    return error;
}

static void parts_fini(struct mw_monitor *monitor)
{
    probe_leave(monitor->probe);
    mw_cond_fini(&monitor->stopped);
    mw_mutex_fini(&monitor->lock);
    mw_usage_fini(&monitor->usage);
}

/* A turn that took too long, or began late, is not made up for: the next comes an interval later.
 */
static void sampler_main(void *arg)
{
    struct mw_monitor *monitor = arg;
    uint64_t due_ns = mw_clock_ns();

    do {
        uint64_t now_ns;

        turn(monitor);
        now_ns = mw_clock_ns();
        due_ns += MW_MONITOR_INTERVAL_MS * MW_NS_PER_MS;
        if (due_ns < now_ns)
            due_ns = now_ns + MW_MONITOR_INTERVAL_MS * MW_NS_PER_MS;
    } while (sleep_until(monitor, due_ns));
    restore_minimum(monitor);
}

/* Returns false when it is time to end. */
static bool sleep_until(struct mw_monitor *monitor, uint64_t deadline_ns)
{
    bool in_time = true;
    bool stop;

    mw_mutex_lock(&monitor->lock);
    while (!monitor->stop && in_time)
        in_time = mw_cond_wait_until(&monitor->stopped, &monitor->lock, deadline_ns);
    stop = monitor->stop;
    mw_mutex_unlock(&monitor->lock);
    return !stop;
}

static void turn(struct mw_monitor *monitor)
{
    struct look look = {0};

    look_take(monitor, &look);
    mw_monitor_rules_step(&monitor->rules, &look.sample, &look.decision);
    if (look.decision.left)
        report(monitor, &look,
               &(struct mw_monitor_event){.kind = MW_MONITOR_LEFT,
                                          .min_before = look.decision.min_left,
                                          .min_after = look.sample.min_threads});
    if (look.decision.min_target != 0)
        raise_minimum(monitor, &look);
    stats_note(monitor, &look);
    probe_send(monitor, &look);
}

static void look_take(struct mw_monitor *monitor, struct look *look)
{
    struct mw_monitor_sample *sample = &look->sample;

    mw_pool_snapshot(monitor->options.pool, &look->pool);
    *sample = (struct mw_monitor_sample){
        .now_ns = mw_clock_ns(),
        .threads = look->pool.threads,
        .busy = look->pool.busy,
        .declared = look->pool.blocked,
        .min_threads = look->pool.min_threads,
        .min_changes = look->pool.min_changes,
        .max_threads = look->pool.max_threads,
    };
    sample->cpu_ns = mw_usage_read_ns(&monitor->usage, &sample->children_ns);
    sample->age_ns = probe_age(monitor, &look->pool, sample->now_ns);
    cpus_read(monitor, sample);
    if (mw_monitor_rules_wants_awake(&monitor->rules, sample))
        sample->awake_known = mw_awake_count(MW_THREAD_POOL, &sample->awake) == 0;
}

static void cpus_read(struct mw_monitor *monitor, struct mw_monitor_sample *sample)
{
    bool is_late = sample->age_ns >= MW_MONITOR_AGE_MS * MW_NS_PER_MS;

    if (is_late || monitor->cpus_read_ns == 0 ||
        sample->now_ns - monitor->cpus_read_ns >= CPUS_READ_NS) {
        mw_cpus_read(&monitor->cpus);
        monitor->cpus_read_ns = sample->now_ns;
    }
    sample->cpus = monitor->cpus.fraction;
    sample->throttled = monitor->cpus.throttled;
}

/* If somebody else sets the minimum at this moment, the next sample shows it. */
static void raise_minimum(struct mw_monitor *monitor, const struct look *look)
{
    unsigned before = look->sample.min_threads;
    unsigned after = look->decision.min_target;
    int error = mw_pool_replace_min(monitor->options.pool, look->sample.min_changes, after, NULL);

    if (error == -ESTALE)
        return;
    if (error != 0) {
        report_failure(monitor, look, error);
        return;
    }
    mw_monitor_rules_raised(&monitor->rules, before, after);
    monitor->error_reported = NOTHING_REPORTED;
    mw_mutex_lock(&monitor->lock);
    monitor->stats.raises++;
    mw_mutex_unlock(&monitor->lock);
    report(monitor, look,
           &(struct mw_monitor_event){
               .kind = MW_MONITOR_RAISED, .min_before = before, .min_after = after});
}

static void restore_minimum(struct mw_monitor *monitor)
{
    const struct mw_monitor_state *rules = &monitor->rules;
    struct mw_monitor_event event = {
        .kind = MW_MONITOR_RESTORED, .min_before = rules->min_raised, .min_after = rules->min_user};
    struct look look = {0};
    int error;

    if (rules->min_raised == 0)
        return;
    error = mw_pool_replace_min(monitor->options.pool, rules->min_changes, rules->min_user,
                                &event.min_after);
    mw_pool_snapshot(monitor->options.pool, &look.pool);
    look.decision.blocked = look.pool.blocked;
    if (error == -ESTALE) {
        event.kind = MW_MONITOR_LEFT;
    } else if (error != 0) {
        report_failure(monitor, &look, error);
        return;
    } else {
        event.min_after = rules->min_user;
    }
    report(monitor, &look, &event);
}

/* Fill in what every event tells, and pass it on. */
static void report(struct mw_monitor *monitor, const struct look *look,
                   const struct mw_monitor_event *event)
{
    struct mw_monitor_event full = *event;

    if (monitor->options.report == NULL)
        return;
    full.threads = look->pool.threads;
    full.busy = look->pool.busy;
    full.blocked = look->decision.blocked;
    full.pending = look->pool.pending;
    full.age_ns = look->sample.age_ns;
    full.cpu_used = look->decision.cpu_used;
    monitor->options.report(monitor->options.user, &full);
}

/* The same error again, twenty times a second, is counted and not told. */
static void report_failure(struct mw_monitor *monitor, const struct look *look, int error)
{
    mw_mutex_lock(&monitor->lock);
    monitor->stats.failures++;
    mw_mutex_unlock(&monitor->lock);
    if (error == monitor->error_reported)
        return;
    monitor->error_reported = error;
    report(monitor, look,
           &(struct mw_monitor_event){.kind = MW_MONITOR_FAILED,
                                      .min_before = look->sample.min_threads,
                                      .min_after = look->sample.min_threads,
                                      .error = error});
}

static void stats_note(struct mw_monitor *monitor, const struct look *look)
{
    struct mw_monitor_stats *stats = &monitor->stats;

    mw_mutex_lock(&monitor->lock);
    stats->samples++;
    stats->discarded += look->decision.verdict == MW_MONITOR_DISCARDED;
    stats->starved += look->decision.verdict == MW_MONITOR_STARVED;
    if (look->sample.age_ns > stats->age_max_ns)
        stats->age_max_ns = look->sample.age_ns;
    stats->min_user = monitor->rules.min_user;
    stats->min_raised = monitor->rules.min_raised;
    mw_mutex_unlock(&monitor->lock);
}

/* What the item has waited; of one that has come back since the last sample, what it did wait; when
 * the queue had no room for it, what the oldest of the others has. */
static uint64_t probe_age(struct mw_monitor *monitor, const struct mw_pool_stats *pool,
                          uint64_t now)
{
    const struct probe *probe = monitor->probe;

    if (!monitor->awaits_probe)
        return monitor->probe_refused ? pool->oldest_pending_ns : 0;
    if (atomic_load_explicit(&probe->place, memory_order_acquire) == PROBE_SENT)
        return now - probe->sent_ns;
    monitor->awaits_probe = false;
    return probe->started_ns - probe->sent_ns;
}

static void probe_send(struct mw_monitor *monitor, const struct look *look)
{
    const struct mw_pool_stats *pool = &look->pool;
    struct probe *probe = monitor->probe;
    bool starts_at_once = pool->pending == 0 && pool->busy < pool->min_threads;
    int error;

    monitor->probe_refused = false;
    if (monitor->awaits_probe || starts_at_once)
        return;
    atomic_store_explicit(&probe->place, PROBE_SENT, memory_order_relaxed); /* submit publishes */
    probe->sent_ns = mw_clock_ns();
    error = mw_pool_submit(monitor->options.pool, &probe->item);
    if (error == 0) {
        monitor->awaits_probe = true;
        return;
    }
    atomic_store_explicit(&probe->place, PROBE_HOME, memory_order_relaxed); /* nobody else has it */
    monitor->probe_refused = true;
    if (error != -EAGAIN || pool->pending < pool->queue_max)
        report_failure(monitor, look, error);
}

/* Runs on a worker. */
static void probe_run(struct mw_pool_item *item)
{
    struct probe *probe = (struct probe *)item;

    probe->started_ns = mw_clock_ns();
    if (atomic_exchange_explicit(&probe->place, PROBE_HOME, memory_order_acq_rel) == PROBE_LEFT)
        free(probe);
}

static void probe_leave(struct probe *probe)
{
    if (atomic_exchange_explicit(&probe->place, PROBE_LEFT, memory_order_acq_rel) == PROBE_HOME)
        free(probe);
}

/* shared_pool.h - the service's shared pool with what belongs to it: who set its minimum, the
 * monitor that raises it while workers block, the probes of the pool and of the loop, and a log of
 * all that changed the minimum.
 *
 * The minimum is what the most explicit source says: a request, over the command line, over the
 * environment, over the config file, over the default. Each change is told with before and after,
 * on stderr and in the log of events.
 *
 * Ownership:  the caller's storage, zero bytes before the first use; it owns pool, monitor, probes.
 * Threads:    the loop's thread, but for the monitor's report, which comes on the monitor's.
 * Bounds:     MW_POOL_EVENTS_MAX events are kept, the newest. */
#ifndef MW_SERVICE_SHARED_POOL_H
#define MW_SERVICE_SHARED_POOL_H

#include <stdbool.h>
#include <time.h>
#include <uv.h>

#include <millwright/monitor.h>
#include <millwright/mutex.h>
#include <millwright/pool.h>
#include <millwright/probe.h>
#include <millwright/probe_targets.h>
#include <millwright/registry.h>

#include "commands.h"

#define MW_POOL_EVENTS_MAX 64u

/* The minimum was set by a source, or the monitor did something. */
struct mw_pool_event {
    time_t at;
    bool by_monitor;
    enum mw_pool_min_source source;  /* unless by_monitor */
    struct mw_monitor_event monitor; /* else only its min_before and min_after are filled */
};

struct mw_shared_pool {
    struct mw_pool *pool;
    unsigned min_by[MW_POOL_MIN_SOURCES]; /* what each source says; 0: nothing */
    struct mw_monitor *monitor;
    struct mw_probe *pool_probe, *loop_probe; /* NULL: off */
    unsigned probe_interval_ms;
    struct mw_probe_pool pool_target;
    struct mw_probe_uv_loop loop_target;
    bool loop_target_open;
    bool lock_made;
    struct mw_mutex lock;                            /* guards the two below */
    struct mw_pool_event events[MW_POOL_EVENTS_MAX]; /* the newest at (event_count - 1) % MAX */
    uint64_t event_count;
};

/* Make the pool and set its minimum. Returns 0, or a negative errno with `why`; then close. */
int mw_shared_pool_open(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                        char *why, size_t why_bytes);

/* Start the monitor and the probes; `registry` has the lanes that run on the pool. Returns 0, or a
 * negative errno with `why`; then unwatch_loop, and close. */
int mw_shared_pool_watch(struct mw_shared_pool *shared, const struct mw_serve_settings *settings,
                         const struct mw_registry *registry, uv_loop_t *loop, char *why,
                         size_t why_bytes);

/* Let go of the loop; it must turn once more. */
void mw_shared_pool_unwatch_loop(struct mw_shared_pool *shared);

/* Stop the monitor, which puts the minimum back, and the probes. Blocks. */
void mw_shared_pool_unwatch(struct mw_shared_pool *shared);

/* A process works for the calling thread, or does no longer: the monitor counts its CPU time. From
 * watch to unwatch, on any thread; `shared` is a struct mw_shared_pool. */
void mw_shared_pool_on_work(void *shared, pid_t process, bool begins);

/* Nobody may use the pool any more. Blocks. */
void mw_shared_pool_close(struct mw_shared_pool *shared);

/* Set the minimum at run time; 0: what it was started with. Returns 0, or -EINVAL (more than the
 * pool's maximum). `before` and `after` may not be NULL. */
int mw_shared_pool_set_min(struct mw_shared_pool *shared, unsigned min_threads, unsigned *before,
                           unsigned *after);

/* The source whose word stands. */
enum mw_pool_min_source mw_shared_pool_min_source(const struct mw_shared_pool *shared);

/* "config_file", as members of JSON are written. */
const char *mw_pool_min_source_member(enum mw_pool_min_source source);

/* Copy the newest `max` events, the oldest of them first. Returns how many. */
unsigned mw_shared_pool_events(struct mw_shared_pool *shared, struct mw_pool_event *events,
                               unsigned max);

/* Whether leaves of these lanes wait for a worker while every worker is busy. `text` gets a clause
 * for a time-out's detail, "" when not. */
bool mw_shared_pool_explain(struct mw_shared_pool *shared, struct mw_lane *const *lanes,
                            size_t count, char *text, size_t text_bytes);

#endif

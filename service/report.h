/* report.h - the state of pools, lanes, audit, pipeline and store, as JSON and as Prometheus text.
 *
 * One table per struct names each number once, for both forms.
 *
 * Ownership:  what is returned is the caller's (json_decref, free); NULL when memory is out.
 * Threads:    the loop's thread; takes each lane's and the pool's lock for a moment. The audit
 *             reads small files of /proc, which are in memory. */
#ifndef MW_SERVICE_REPORT_H
#define MW_SERVICE_REPORT_H

#include <jansson.h>

#include <millwright/isolate.h>
#include <millwright/lane.h>
#include <millwright/monitor.h>
#include <millwright/pool.h>
#include <millwright/preamble.h>
#include <millwright/registry.h>
#include <millwright/store.h>

struct mw_pipeline_stats;
struct mw_shared_pool;

/* The pool's own numbers, and the monitor's. */
json_t *mw_report_pool(struct mw_pool *pool);
json_t *mw_report_monitor(struct mw_monitor *monitor);

/* The pool with all that belongs to it, and the loop. */
json_t *mw_report_shared_pool(struct mw_shared_pool *shared);
json_t *mw_report_loop(const struct mw_shared_pool *shared);

json_t *mw_report_lanes(struct mw_lane *const *lanes, size_t count);

/* What the leak audit counts and finds. */
json_t *mw_report_audit(const struct mw_registry *registry);

/* Where compiles run, and how the worker processes fare; `isolate` NULL: in this process. With what
 * precompiled prefixes there are; NULL: switched off. */
json_t *mw_report_isolation(struct mw_isolate *isolate, struct mw_preambles *preambles);

/* The text of GET /metrics. `isolate` and `preambles` may be NULL. */
char *mw_report_metrics(struct mw_shared_pool *shared, const struct mw_registry *registry,
                        struct mw_isolate *isolate, struct mw_preambles *preambles,
                        const struct mw_pipeline_stats *pipeline,
                        const struct mw_store_stats *store);

#endif

#include "lane_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COMPILE_CAP 4u
/* A connection has one IO leaf at most, so the IO pools never refuse: what was admitted, and above
 * all what was compiled, goes on to its answer. The spare is for what has no connection: results
 * whose clients left, and the housekeeping. */
#define IO_QUEUE_SPARE 64u

static const struct {
    const char *name;
    enum mw_lane_runner runner;
    bool computes;
    bool leaves_wait;
} table[MW_SERVICE_LANES] = {
    [MW_LANE_COMPILE_CPU] = {"compile-cpu", MW_LANE_DEDICATED, true, false},
    [MW_LANE_COMPILE] = {"compile", MW_LANE_POOL, false, true},
    [MW_LANE_FILES] = {"files", MW_LANE_POOL, false, false},
    [MW_LANE_STORE] = {"store", MW_LANE_POOL, false, false},
};

static void fill(struct mw_lane_options *options, enum mw_service_lane which,
                 const struct mw_serve_settings *settings);

int mw_service_lane_of(struct mw_registry_lane *lane, enum mw_service_lane which,
                       const struct mw_serve_settings *settings, char *why, size_t why_bytes)
{
    *lane = (struct mw_registry_lane){
        .options = {.name = table[which].name, .runner = table[which].runner},
        .leaves_wait = table[which].leaves_wait,
        .computes = table[which].computes,
    };
    fill(&lane->options, which, settings);
    for (unsigned i = 0; i < settings->lanes.count; i++) {
        const struct mw_lane_setting *setting = &settings->lanes.list[i];
        char what[256];
        if (strcmp(setting->lane, table[which].name) != 0)
            continue;
        if (mw_lane_options_set(&lane->options, setting->key, setting->value, what, sizeof what) !=
            0) {
            snprintf(why, why_bytes, "%s.%s %s", setting->lane, setting->key, what);
            return -EINVAL;
        }
    }
    return 0;
}

int mw_service_lane_check(const char *lane, const char *key, const char *value, char *why,
                          size_t why_bytes)
{
    for (int which = 0; which < MW_SERVICE_LANES; which++)
        if (strcmp(table[which].name, lane) == 0) {
            struct mw_lane_options options = {.runner = table[which].runner};
            return mw_lane_options_set(&options, key, value, why, why_bytes);
        }
    int used =
        snprintf(why, why_bytes, "is for a lane '%.32s', which there is not; there are", lane);
    for (int which = 0; which < MW_SERVICE_LANES && used > 0 && (size_t)used < why_bytes; which++)
        used += snprintf(why + used, why_bytes - (size_t)used, "%s %s", which ? "," : "",
                         table[which].name);
    return -EINVAL;
}

static void fill(struct mw_lane_options *options, enum mw_service_lane which,
                 const struct mw_serve_settings *settings)
{
    options->queue_max = settings->connections_max + IO_QUEUE_SPARE;
    switch (which) {
    case MW_LANE_COMPILE_CPU:
        options->cap = settings->lane_cap;
        options->queue_max = settings->lane_queue;
        if (settings->emit_lane != 0)
            options->runner = MW_LANE_POOL;
        break;
    case MW_LANE_COMPILE: /* its leaves may wait, so it must leave a worker free */
        options->cap = settings->pool_max > COMPILE_CAP ? COMPILE_CAP : settings->pool_max - 1;
        break;
    case MW_LANE_FILES:
        options->cap = settings->files_cap;
        break;
    case MW_LANE_STORE:
        options->cap = settings->store_cap;
        break;
    case MW_SERVICE_LANES:
        break;
    }
}

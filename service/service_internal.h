/* service_internal.h - what the routes may see of the service. */
#ifndef MW_SERVICE_INTERNAL_H
#define MW_SERVICE_INTERNAL_H

#include <stdbool.h>

#include <millwright/isolate.h>
#include <millwright/lane_uv.h>
#include <millwright/mutex.h>
#include <millwright/pool.h>
#include <millwright/registry.h>
#include <millwright/store.h>
#include <millwright/toolchain.h>

#include "http.h"
#include "lane_table.h"
#include "listener.h"
#include "pipeline.h"
#include "preambles.h"
#include "service.h"
#include "shared_pool.h"
#include "step.h"

struct mw_service {
    struct mw_serve_settings settings;
    uv_loop_t *loop;
    struct mw_listener listener;
    struct mw_shared_pool shared;
    struct mw_registry *registry;
    struct mw_lane *lanes[MW_SERVICE_LANES]; /* those of the registry */
    struct mw_toolchain *toolchain;
    struct mw_isolate *isolate; /* NULL: compiles run in this process */
    struct mw_store *store;
    struct mw_preambles *preambles;           /* NULL: switched off */
    struct mw_preamble_maker *preamble_maker; /* NULL then, too */
    struct mw_lane_uv adapter;                /* brings steps back to the loop */
    bool adapter_open;
    struct mw_pipeline *pipeline;
    struct mw_http *http;
    struct mw_step warm;   /* stamps the toolchain's headers before the first request needs it */
    struct mw_step census; /* counts what is stored, every few seconds */
    uv_timer_t census_timer;
    bool census_timer_open;
    struct mw_store_stats census_result; /* lent to the census step while it is out */
    struct mw_store_stats store_stats;   /* of the last census */
    uv_timer_t drain;                    /* while stopping: looks whether all is answered */
    unsigned fetches;                    /* artifact requests in work */
    bool stopping;
    uint64_t stop_deadline_ns;
    void (*late)(void *user);
    void *late_user;
    char banner[3072];
};

extern const struct mw_route mw_service_routes[];
extern const size_t mw_service_route_count;

#endif

#include "service.h"

#include <errno.h>
#include <millwright/clock.h>
#include <millwright/cpus.h>
#include <millwright/error.h>
#include <millwright/thread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "service_internal.h"

#define DRAIN_LOOK_MS 10u
#define CENSUS_MS     5000u

static int default_data_dir(char *directory, size_t bytes);
static int open_pools(struct mw_service *service, char *why, size_t why_bytes);
static int open_lanes(struct mw_service *service, char *why, size_t why_bytes);
static int open_store(struct mw_service *service, char *why, size_t why_bytes);
static int open_isolation(struct mw_service *service, char *why, size_t why_bytes);
static void log_guards(const struct mw_service *service);
static int remote_check(const struct mw_serve_settings *settings, char *why, size_t why_bytes);
static int package_path_check(const char *path, char *why, size_t why_bytes);
/* What is relative would depend on where the service was started. */
static int package_path_check(const char *path, char *why, size_t why_bytes)
{
    while (*path == '/' || *path == ':') {
        path += strcspn(path, ":");
        path += *path == ':';
    }
    if (!*path)
        return 0;
    snprintf(why, why_bytes,
             "--pkg-config-path holds '%.64s', which is not absolute; give folders such as "
             "/opt/team/pkgconfig",
             path);
    return -EINVAL;
}

static bool uses_manifests(const struct mw_serve_settings *settings);
static struct mw_leaf_place place_of(const struct mw_service *service);
static int open_preambles(struct mw_service *service);
static int open_front(struct mw_service *service, char *why, size_t why_bytes);
static void start_housekeeping(struct mw_service *service);
static int work_warm(struct mw_step *step);
static void after_warm(struct mw_step *step, int status);
static void on_census(uv_timer_t *timer);
static int work_census(struct mw_step *step);
static void after_census(struct mw_step *step, int status);
static void write_banner(struct mw_service *service);
static void on_drain(uv_timer_t *timer);
static bool all_answered(const struct mw_service *service);
static void let_go_of_loop(struct mw_service *service);

int mw_service_new(struct mw_service **out, uv_loop_t *loop,
                   const struct mw_serve_settings *settings, char *why, size_t why_bytes)
{
    struct mw_service *service = calloc(1, sizeof *service);
    if (!service)
        return -ENOMEM;
    service->settings = *settings;
    service->loop = loop;
    service->listener.fd = -1;
    mw_thread_adopt(MW_THREAD_LOOP);
    int error = remote_check(settings, why, why_bytes);
    if (!error)
        error = package_path_check(settings->pkg_config_path, why, why_bytes);
    if (!error)
        error = open_pools(service, why, why_bytes);
    if (!error)
        error = open_store(service, why, why_bytes);
    if (!error)
        error = open_isolation(service, why, why_bytes);
    if (!error) /* not earlier: loading the compiler is no lateness of the loop's */
        error = mw_shared_pool_watch(&service->shared, settings, service->registry, loop, why,
                                     why_bytes);
    if (!error)
        error = open_front(service, why, why_bytes);
    if (error) {
        let_go_of_loop(service);
        uv_run(loop, UV_RUN_DEFAULT);
        mw_service_free(service);
        return error;
    }
    start_housekeeping(service);
    write_banner(service);
    *out = service;
    return 0;
}

const char *mw_service_banner(const struct mw_service *service)
{
    return service->banner;
}

void mw_service_stop(struct mw_service *service, void (*late)(void *user), void *user)
{
    if (service->stopping)
        return;
    service->stopping = true;
    service->late = late;
    service->late_user = user;
    service->stop_deadline_ns = mw_clock_ns() + service->settings.grace_ms * MW_NS_PER_MS;
    uv_timer_stop(&service->census_timer);
    if (service->preamble_maker)
        mw_preamble_maker_stop(service->preamble_maker);
    mw_http_quiesce(service->http);
    mw_listener_unlink(&service->listener);
    uv_timer_init(service->loop, &service->drain);
    service->drain.data = service;
    uv_timer_start(&service->drain, on_drain, 0, DRAIN_LOOK_MS);
}

void mw_service_free(struct mw_service *service)
{
    if (!service)
        return;
    /* The IO pools run on the shared pool, so they go before it, and leaves tell its monitor of
     * their processes; the store goes last, since a leaf may be using it until they are gone. */
    mw_registry_free(service->registry, true);
    mw_shared_pool_unwatch(&service->shared);
    mw_shared_pool_close(&service->shared);
    mw_pipeline_free(service->pipeline);
    mw_preamble_maker_free(service->preamble_maker);
    mw_preambles_free(service->preambles);
    mw_store_close(service->store);
    mw_isolate_free(service->isolate);
    mw_toolchain_free(service->toolchain);
    free(service);
}

static int open_pools(struct mw_service *service, char *why, size_t why_bytes)
{
    const struct mw_serve_settings *settings = &service->settings;
    int error = mw_shared_pool_open(&service->shared, settings, why, why_bytes);
    if (error)
        return error;
    error = mw_registry_new(&service->registry, service->shared.pool);
    if (error) {
        snprintf(why, why_bytes, "cannot make the lanes: %s", mw_strerror(error));
        return error;
    }
    return open_lanes(service, why, why_bytes);
}

static int open_lanes(struct mw_service *service, char *why, size_t why_bytes)
{
    struct mw_registry_lane lanes[MW_SERVICE_LANES];
    int error = 0;
    for (int which = 0; which < MW_SERVICE_LANES && !error; which++)
        error = mw_service_lane_of(&lanes[which], (enum mw_service_lane)which, &service->settings,
                                   why, why_bytes);
    if (error)
        return error;
    unsigned files_cap = lanes[MW_LANE_FILES].options.cap;
    unsigned store_cap = lanes[MW_LANE_STORE].options.cap;
    if (files_cap + store_cap > service->settings.pool_max) {
        snprintf(why, why_bytes,
                 "files-cap %u and store-cap %u together are more than pool-max %u; raise "
                 "pool-max, or lower them",
                 files_cap, store_cap, service->settings.pool_max);
        return -EINVAL;
    }
    for (int which = 0; which < MW_SERVICE_LANES && !error; which++) {
        error = mw_registry_add(service->registry, &lanes[which], why, why_bytes);
        service->lanes[which] = mw_registry_at(service->registry, (unsigned)which);
    }
    return error;
}

static int open_store(struct mw_service *service, char *why, size_t why_bytes)
{
    struct mw_serve_settings *settings = &service->settings;
    int error = mw_toolchain_new(&service->toolchain);
    if (error) {
        snprintf(why, why_bytes, "cannot load the compiler: %s", mw_strerror(error));
        return error;
    }
    if (!settings->data[0] && default_data_dir(settings->data, sizeof settings->data) != 0) {
        snprintf(why, why_bytes,
                 "neither XDG_STATE_HOME nor HOME is set; say where to store "
                 "artifacts with --data DIR");
        return -EINVAL;
    }
    error = mw_store_open(&service->store, settings->data,
                          &(struct mw_store_options){.max_bytes = settings->store_max_bytes});
    if (!error) /* a service that has just started knows what it has */
        error = mw_store_stats(service->store, &service->store_stats);
    if (error)
        snprintf(why, why_bytes, "cannot open the store in %s: %s", settings->data,
                 mw_strerror(error));
    return error;
}

/* The zygote is another program, so it does not matter which threads exist by now. */
static int open_isolation(struct mw_service *service, char *why, size_t why_bytes)
{
    const struct mw_serve_settings *settings = &service->settings;
    struct mw_lane_stats lane;
    if (settings->isolation == 1) { /* in-process */
        mw_compile_warm_up(service->toolchain);
        return 0;
    }
    mw_lane_snapshot(service->lanes[MW_LANE_COMPILE_CPU], &lane);
    unsigned ready = lane.cap < MW_ISOLATE_READY_MAX ? lane.cap : MW_ISOLATE_READY_MAX;
    int error =
        mw_isolate_new(&service->isolate,
                       &(struct mw_isolate_options){
                           .toolchain = service->toolchain,
                           .worker = settings->worker[0] ? settings->worker : NULL,
                           .ready = settings->workers_ready ? settings->workers_ready : ready,
                           .head_starts = settings->head_starts,
                           .unguarded = settings->unguarded,
                           .on_work = mw_shared_pool_on_work,
                           .user = &service->shared,
                       },
                       why, why_bytes);
    size_t used = strlen(why);
    if (error == -ENOTSUP || error == -ENOSYS)
        snprintf(why + used, why_bytes - used, ": --isolation in-process%s",
                 error == -ENOTSUP ? ", or --unguarded" : "");
    else if (!error)
        log_guards(service);
    return error;
}

/* What the self-check found, in one line. */
static void log_guards(const struct mw_service *service)
{
    struct mw_isolate_stats stats;
    char in_force[96] = "", missing[96] = "";
    mw_isolate_snapshot(service->isolate, &stats);
    for (unsigned bit = 0; mw_isolate_guard_name(bit); bit++) {
        char *list = stats.guards >> bit & 1 ? in_force : missing;
        size_t used = strlen(list);
        snprintf(list + used, sizeof in_force - used, "%s%s", used ? ", " : "",
                 mw_isolate_guard_name(bit));
    }
    mw_log("compiles are isolated by %s (landlock ABI %d)%s%s", in_force, stats.landlock_abi,
           missing[0] ? "; this kernel lacks what keeps strangers' source in: " : "", missing);
}

static int remote_check(const struct mw_serve_settings *settings, char *why, size_t why_bytes)
{
    if (!settings->allow_remote || (settings->isolation == 0 && !settings->unguarded))
        return 0;
    snprintf(
        why, why_bytes,
        "--allow-remote lets strangers in, whose source must be isolated by every guard; leave "
        "%s out",
        settings->unguarded ? "--unguarded" : "--isolation in-process");
    return -EPERM;
}

/* A worker that hostile source has taken over may keep silent about what it read. So manifests are
 * not for strangers, unless somebody says so. */
static bool uses_manifests(const struct mw_serve_settings *settings)
{
    if (settings->manifests == MW_SERVE_UNSET)
        return !settings->allow_remote;
    return settings->manifests == 0;
}

static struct mw_leaf_place place_of(const struct mw_service *service)
{
    const struct mw_serve_settings *settings = &service->settings;
    struct mw_leaf_place place = {
        .toolchain = service->toolchain,
        .isolate = service->isolate,
        .ceilings = {.wall_ns = settings->timeout_max_ms * MW_NS_PER_MS,
                     .cpu_ns = settings->cpu_max_ms * MW_NS_PER_MS,
                     .memory_bytes = settings->memory_max_bytes,
                     .output_bytes = settings->output_max_bytes},
    };
    place.defaults = place.ceilings;
    if (settings->cpu_default_ms)
        place.defaults.cpu_ns = settings->cpu_default_ms * MW_NS_PER_MS;
    if (settings->memory_default_bytes)
        place.defaults.memory_bytes = settings->memory_default_bytes;
    if (settings->output_default_bytes)
        place.defaults.output_bytes = settings->output_default_bytes;
    return place;
}

static int open_preambles(struct mw_service *service)
{
    uint64_t bytes_max = service->settings.preambles_max_bytes;
    int error = bytes_max ? mw_preambles_new(&service->preambles, bytes_max) : 0;
    if (!error && bytes_max)
        error = mw_preamble_maker_new(&service->preamble_maker,
                                      &(struct mw_preamble_maker_parts){
                                          .preambles = service->preambles,
                                          .adapter = &service->adapter,
                                          .place = place_of(service),
                                          .cpu = service->lanes[MW_LANE_COMPILE_CPU],
                                          .store_io = service->lanes[MW_LANE_STORE],
                                      });
    return error;
}

static int open_front(struct mw_service *service, char *why, size_t why_bytes)
{
    const struct mw_serve_settings *settings = &service->settings;
    int error = mw_lane_uv_init(&service->adapter, service->loop);
    service->adapter_open = error == 0;
    if (!error)
        error = open_preambles(service);
    if (!error)
        error =
            mw_pipeline_new(&service->pipeline, &(struct mw_pipeline_parts){
                                                    .loop = service->loop,
                                                    .adapter = &service->adapter,
                                                    .store = service->store,
                                                    .manifests = uses_manifests(settings),
                                                    .debug_sources = settings->debug_sources == 0,
                                                    .preambles = service->preambles,
                                                    .preamble_maker = service->preamble_maker,
                                                    .shared = &service->shared,
                                                    .files = service->lanes[MW_LANE_FILES],
                                                    .store_io = service->lanes[MW_LANE_STORE],
                                                    .cpu = service->lanes[MW_LANE_COMPILE_CPU],
                                                    .timeout_ms_max = settings->timeout_max_ms,
                                                    .place = place_of(service),
                                                    .pkg_config_path = settings->pkg_config_path,
                                                });
    if (error) {
        snprintf(why, why_bytes, "cannot set up the pipeline: %s", mw_strerror(error));
        return error;
    }
    error = mw_listener_open(&service->listener, settings->listen, settings->allow_remote != 0, why,
                             why_bytes);
    if (error)
        return error;
    error = mw_http_new(&service->http,
                        &(struct mw_http_options){
                            .loop = service->loop,
                            .listen_fd = service->listener.fd,
                            .routes = mw_service_routes,
                            .route_count = mw_service_route_count,
                            .user = service,
                            .check_host = !service->listener.unix_path[0],
                            .remote = settings->allow_remote != 0,
                            .public_name = service->settings.public_name,
                            .connections_max = settings->connections_max,
                            .body_bytes_max = settings->body_max_bytes,
                            .body_bytes_total_max = MW_HTTP_BODY_BYTES_TOTAL_MAX_DEFAULT,
                            .read_ms = MW_HTTP_READ_MS_DEFAULT,
                        });
    if (error) {
        snprintf(why, why_bytes, "cannot start the HTTP server: %s", mw_strerror(error));
        close(service->listener.fd);
        mw_listener_unlink(&service->listener);
    }
    return error;
}

/* ---- housekeeping: work of the service's own, on the IO pools ---- */

#define SERVICE_OF(step_pointer, step)                                                             \
    ((struct mw_service *)((char *)(step_pointer) - offsetof(struct mw_service, step)))

static void start_housekeeping(struct mw_service *service)
{
    /* Both are helpful, not needed: when a lane refuses, the first request does the work. */
    (void)mw_step_start(&service->warm, &service->adapter, service->lanes[MW_LANE_FILES], work_warm,
                        after_warm);
    uv_timer_init(service->loop, &service->census_timer);
    service->census_timer.data = service;
    service->census_timer_open = true;
    uv_timer_start(&service->census_timer, on_census, CENSUS_MS, CENSUS_MS);
}

static int work_warm(struct mw_step *step)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    mw_block_begin(); /* it looks at thousands of files */
    int error = mw_toolchain_stamp(SERVICE_OF(step, warm)->toolchain, stamp);
    mw_block_end();
    return error;
}

static void after_warm(struct mw_step *step, int status)
{
    (void)step;
    if (status)
        mw_log("the toolchain's headers could not be read: %s", mw_strerror(status));
}

static void on_census(uv_timer_t *timer)
{
    struct mw_service *service = timer->data;
    if (!service->census.out)
        (void)mw_step_start(&service->census, &service->adapter, service->lanes[MW_LANE_STORE],
                            work_census, after_census);
}

static int work_census(struct mw_step *step)
{
    struct mw_service *service = SERVICE_OF(step, census);
    mw_block_begin();
    int error = mw_store_stats(service->store, &service->census_result);
    mw_block_end();
    return error;
}

static void after_census(struct mw_step *step, int status)
{
    struct mw_service *service = SERVICE_OF(step, census);
    if (status == 0)
        service->store_stats = service->census_result;
}

/* $XDG_STATE_HOME/millwright, else ~/.local/state/millwright. */
static int default_data_dir(char *directory, size_t bytes)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int length = -1;
    if (state && state[0] == '/')
        length = snprintf(directory, bytes, "%s/millwright", state);
    else if (home && home[0] == '/')
        length = snprintf(directory, bytes, "%s/.local/state/millwright", home);
    return length > 0 && (size_t)length < bytes ? 0 : -EINVAL;
}

static void write_banner(struct mw_service *service)
{
    struct mw_lane_stats lane;
    struct mw_pool_stats pool;
    mw_lane_snapshot(service->lanes[MW_LANE_COMPILE_CPU], &lane);
    mw_pool_snapshot(service->shared.pool, &pool);
    snprintf(service->banner, sizeof service->banner,
             "millwright %s listening on %s: %s lane of %u on %u CPUs, shared pool of %u to %u, "
             "clang %s %s, store %s (at most %.1f GiB)",
             MW_VERSION, service->listener.url,
             lane.runner == MW_LANE_DEDICATED ? "CPU" : "pool-run", lane.cap, mw_cpus_effective(),
             pool.min_threads, pool.max_threads, mw_toolchain_version(service->toolchain),
             service->isolate ? "isolated" : "in process", service->settings.data,
             (double)service->settings.store_max_bytes / (1u << 30));
}

static void on_drain(uv_timer_t *timer)
{
    struct mw_service *service = timer->data;
    if (all_answered(service)) {
        uv_close((uv_handle_t *)timer, NULL);
        let_go_of_loop(service);
    } else if (service->late && mw_clock_ns() > service->stop_deadline_ns) {
        void (*late)(void *) = service->late;
        service->late = NULL;
        late(service->late_user);
    }
}

static bool all_answered(const struct mw_service *service)
{
    const struct mw_pipeline_stats *stats = mw_pipeline_stats(service->pipeline);
    return mw_http_requests(service->http) == 0 && stats->tickets == 0 && stats->flights == 0 &&
           service->fetches == 0 && !service->warm.out && !service->census.out &&
           !(service->preamble_maker && mw_preamble_maker_busy(service->preamble_maker));
}

static void let_go_of_loop(struct mw_service *service)
{
    mw_http_free(service->http);
    service->http = NULL;
    mw_shared_pool_unwatch_loop(&service->shared);
    if (service->census_timer_open)
        uv_close((uv_handle_t *)&service->census_timer, NULL);
    service->census_timer_open = false;
    if (service->adapter_open)
        mw_lane_uv_close(&service->adapter, NULL);
    service->adapter_open = false;
}

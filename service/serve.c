/* serve.c - `millwright serve`: settings, signals, and the loop. */
#include <errno.h>
#include <millwright/cpus.h>
#include <millwright/error.h>
#include <millwright/monitor.h>
#include <millwright/pool_min.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine.h"
#include "lane_table.h"
#include "log.h"
#include "service.h"

/* Exit status of a process that a signal ended, as a shell shows it. */
#define STATUS_OF_SIGNAL(number) (128 + (number))

/* Descriptors that are not connections: the store's, the loop's, and for each leaf what it reads.
 */
#define FILES_OF_SERVICE  128u
#define FILES_OF_ONE_LEAF 4u

static const int signals_watched[] = {SIGTERM, SIGINT};
#define SIGNALS (sizeof signals_watched / sizeof signals_watched[0])

struct server {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    struct mw_service *service;
    bool stopping;
};

static int read_settings(struct mw_serve_settings *values, int argc, char **argv);
static int read_environment(struct mw_serve_settings *values);
static int fit_to_file_limit(struct mw_serve_settings *values);
static int run(const struct mw_serve_settings *values);
static void watch_signals(struct server *server);
static void on_signal(uv_signal_t *signal, int number);
static void on_late(void *user);

int mw_command_serve(int argc, char **argv)
{
    struct mw_serve_settings values = mw_serve_defaults;
    if (read_settings(&values, argc, argv) != 0)
        return MW_EXIT_USAGE;
    if (values.help) {
        mw_help_command(mw_command_find("serve"), stdout);
        return MW_EXIT_OK;
    }
    if (fit_to_file_limit(&values) != 0)
        return MW_EXIT_FAILED;
    return run(&values);
}

/* The command line is read twice: once to find the config file, and again to win over it. */
static int read_settings(struct mw_serve_settings *values, int argc, char **argv)
{
    struct mw_settings settings = mw_serve_settings_of(values);
    settings.lane_check = mw_service_lane_check;
    int used = mw_settings_argv(&settings, argc, argv);
    if (used < 0)
        return used;
    if (used < argc) {
        fprintf(stderr, "millwright serve: takes no argument '%s'; see --help\n", argv[used]);
        return -EINVAL;
    }
    unsigned in_command_line = values->pool_min, in_file = 0;
    if (values->config[0]) {
        char path[MW_SETTING_TEXT_BYTES];
        memcpy(path, values->config, sizeof path);
        *values = mw_serve_defaults;
        int error = mw_settings_file(&settings, path);
        if (error)
            return error;
        in_file = values->pool_min;
        if (mw_settings_argv(&settings, argc, argv) < 0)
            return -EINVAL;
    }
    values->pool_min_by[MW_POOL_MIN_CONFIG_FILE] = in_file;
    values->pool_min_by[MW_POOL_MIN_COMMAND_LINE] = in_command_line;
    return read_environment(values);
}

/* What is wrong there is refused even where something else wins over it, as in the config file. */
static int read_environment(struct mw_serve_settings *values)
{
    char why[256];
    bool off; /* the monitor asks for itself */
    int error =
        mw_pool_min_environment(MW_POOL_MAX_THREADS_LIMIT,
                                &values->pool_min_by[MW_POOL_MIN_OF_ENVIRONMENT], why, sizeof why);
    if (!error || error == -ENOENT)
        error = mw_monitor_environment(&off, why, sizeof why);
    if (error && error != -ENOENT) {
        fprintf(stderr, "millwright serve: %s\n", why);
        return error;
    }
    return 0;
}

/* A compile that finds no descriptor for a header would call it missing, so connections must never
 * take the last one. */
static int fit_to_file_limit(struct mw_serve_settings *values)
{
    struct rlimit limit;
    struct mw_registry_lane cpu;
    char why[256];
    if (mw_service_lane_of(&cpu, MW_LANE_COMPILE_CPU, values, why, sizeof why) != 0) {
        fprintf(stderr, "millwright serve: %s\n", why);
        return -EINVAL;
    }
    unsigned lane_cap = cpu.options.cap ? cpu.options.cap : mw_cpus_effective();
    rlim_t others = FILES_OF_SERVICE + FILES_OF_ONE_LEAF * (lane_cap + values->pool_max);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0; /* the kernel knows no such limit */
    struct rlimit raised = {.rlim_cur = others + values->connections_max,
                            .rlim_max = limit.rlim_max};
    if (raised.rlim_cur > raised.rlim_max)
        raised.rlim_cur = raised.rlim_max;
    if (limit.rlim_cur < raised.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    if (limit.rlim_cur <= others) {
        fprintf(stderr,
                "millwright serve: only %llu files may be open and more than %llu are needed; "
                "raise the limit (ulimit -n)\n",
                (unsigned long long)limit.rlim_cur, (unsigned long long)others);
        return -EMFILE;
    }
    if (values->connections_max > limit.rlim_cur - others) {
        values->connections_max = (unsigned)(limit.rlim_cur - others);
        mw_log("only %llu files may be open: connections-max is lowered to %u",
               (unsigned long long)limit.rlim_cur, values->connections_max);
    }
    return 0;
}

static int run(const struct mw_serve_settings *values)
{
    char why[1200] = "out of memory";
    struct server server = {0};
    signal(SIGPIPE, SIG_IGN);
    int error = uv_loop_init(&server.loop);
    if (!error) {
        error = mw_service_new(&server.service, &server.loop, values, why, sizeof why);
        if (error)
            (void)uv_loop_close(&server.loop);
    }
    if (error) {
        fprintf(stderr, "millwright serve: %s\n", why);
        return MW_EXIT_FAILED;
    }
    watch_signals(&server);
    puts(mw_service_banner(server.service));
    fflush(stdout);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    mw_service_free(server.service);
    for (size_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&server.signals[i], NULL);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&server.loop);
    mw_log("stopped; every request was answered");
    return MW_EXIT_OK;
}

static void watch_signals(struct server *server)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        uv_signal_init(&server->loop, &server->signals[i]);
        server->signals[i].data = server;
        uv_signal_start(&server->signals[i], on_signal, signals_watched[i]);
        /* A watched signal alone must not keep the loop alive. */
        uv_unref((uv_handle_t *)&server->signals[i]);
    }
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    if (server->stopping) {
        mw_log("second signal: ending at once");
        _exit(STATUS_OF_SIGNAL(number)); /* the store survives that: see store.h */
    }
    server->stopping = true;
    mw_log("%s: finishing what is in work; a second signal ends at once",
           number == SIGTERM ? "SIGTERM" : "SIGINT");
    mw_service_stop(server->service, on_late, server);
}

static void on_late(void *user)
{
    (void)user;
    mw_log("the grace time is over and requests are still unanswered: ending all the same");
    _exit(MW_EXIT_FAILED);
}

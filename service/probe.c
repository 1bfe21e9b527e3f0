/* probe.c - `millwright probe`: the rows that were asked for, one after the other, each in a
 * process of its own (probe_child.h). */
#include <assert.h>
#include <errno.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "commands.h"
#include "engine.h"
#include "probe_child.h"
#include "probe_table.h"

#define ROWS_MAX 64u

/* Exit status of a process that a signal ended, as a shell shows it. */
#define STATUS_OF_SIGNAL(number) (128 + (number))

static const unsigned emits_default[] = {0, 1, 6, 12, 24};
#define EMITS_DEFAULT (sizeof emits_default / sizeof emits_default[0])

/* The worst first: the eye goes down to the best. */
static const enum mw_probe_lane_choice lane_order[] = {MW_PROBE_ON_UV, MW_PROBE_ON_POOL,
                                                       MW_PROBE_ON_LANE};
#define LANE_ORDER (sizeof lane_order / sizeof lane_order[0])

struct run {
    struct mw_probe_settings settings;
    struct mw_probe_row rows[ROWS_MAX];
    struct mw_probe_result results[ROWS_MAX];
    size_t count, done;
    int stop_fd; /* readable when SIGINT, SIGTERM or SIGHUP came */
    bool on_terminal;
};

static void choose_rows(struct run *run);
static void choose_emits(struct run *run, bool compiler_threads);
static void choose_lanes(struct run *run, struct mw_probe_row row);
static void add_row(struct run *run, struct mw_probe_row row);
static bool wants_lane(const struct run *run, enum mw_probe_lane_choice lane);
static bool wants_isolated(const struct run *run, bool isolated);
static bool wants_threads(const struct run *run, bool on);
static int watch_signals(struct run *run);
static int run_rows(struct run *run);
static int run_row(struct run *run);
static int signal_that_came(const struct run *run);
static void show_progress(void *user, uint64_t elapsed_ns);
static void end_progress(const struct run *run);
static int print_last(const struct run *run);

int mw_command_probe(int argc, char **argv)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return MW_EXIT_FAILED;
    run->settings = mw_probe_defaults;
    struct mw_settings settings = mw_probe_settings_of(&run->settings);
    int status = MW_EXIT_USAGE;
    int used = mw_settings_argv(&settings, argc, argv);
    if (used >= 0 && used < argc)
        fprintf(stderr, "millwright probe: takes no argument '%s'; see --help\n", argv[used]);
    else if (used >= 0 && run->settings.help) {
        mw_help_command(mw_command_find("probe"), stdout);
        status = MW_EXIT_OK;
    } else if (used >= 0) {
        choose_rows(run);
        if (run->count > 0)
            status = run_rows(run);
        else
            fputs("millwright probe: no row is all of that: isolated emits run on a lane or the "
                  "pool, and start no compiler threads\n",
                  stderr);
    }
    free(run);
    return status;
}

/* ---- which rows ---- */

static void choose_rows(struct run *run)
{
    for (int on = 0; on <= 1; on++)
        if (wants_threads(run, on != 0))
            choose_emits(run, on != 0);
    /* a roll has its own number of emits, and its leaves are those of the service */
    if (run->settings.emits == MW_PROBE_ANY && wants_threads(run, false))
        choose_lanes(run, (struct mw_probe_row){.roll = true});
}

static void choose_emits(struct run *run, bool compiler_threads)
{
    bool one = run->settings.emits != MW_PROBE_ANY;
    for (size_t i = 0; i < (one ? 1 : EMITS_DEFAULT); i++)
        choose_lanes(run, (struct mw_probe_row){
                              .emits = one ? run->settings.emits : emits_default[i],
                              .compiler_threads = compiler_threads,
                          });
}

/* In this process, and isolated beside it. */
static void choose_lanes(struct run *run, struct mw_probe_row row)
{
    for (int isolated = 0; isolated <= (row.compiler_threads ? 0 : 1); isolated++)
        for (size_t lane = 0; lane < LANE_ORDER; lane++) {
            row.isolated = isolated != 0;
            row.lane = lane_order[lane];
            bool exists = row.lane != MW_PROBE_ON_UV || (!row.roll && !row.isolated);
            if (exists && wants_lane(run, row.lane) && wants_isolated(run, row.isolated))
                add_row(run, row);
        }
}

static void add_row(struct run *run, struct mw_probe_row row)
{
    static_assert(3 * EMITS_DEFAULT * LANE_ORDER + 2 * LANE_ORDER <= ROWS_MAX, "all rows fit");
    row.seconds = run->settings.seconds;
    run->rows[run->count++] = row;
}

static bool wants_lane(const struct run *run, enum mw_probe_lane_choice lane)
{
    return run->settings.lane == MW_PROBE_ANY || run->settings.lane == (unsigned)lane;
}

static bool wants_isolated(const struct run *run, bool isolated)
{
    return run->settings.isolation == MW_PROBE_ANY ||
           run->settings.isolation == (isolated ? 0u : 1u);
}

static bool wants_threads(const struct run *run, bool on)
{
    return run->settings.compiler_threads == MW_PROBE_ANY ||
           run->settings.compiler_threads == (on ? 0u : 1u);
}

/* ---- running them ---- */

static int run_rows(struct run *run)
{
    int error = watch_signals(run);
    if (error) {
        fprintf(stderr, "millwright probe: cannot watch for signals: %s\n", mw_strerror(error));
        return MW_EXIT_FAILED;
    }
    run->on_terminal = isatty(STDERR_FILENO);
    if (!run->settings.json)
        mw_probe_print_machine(stdout);
    int status = MW_EXIT_OK;
    while (run->done < run->count && error != -EINTR) {
        error = run_row(run);
        if (error)
            status = MW_EXIT_FAILED;
    }
    int number = error == -EINTR ? signal_that_came(run) : 0;
    if (print_last(run) != 0)
        status = MW_EXIT_FAILED;
    close(run->stop_fd);
    return number ? STATUS_OF_SIGNAL(number) : status;
}

/* Returns 0, -EINTR, or what was wrong with the row. */
static int run_row(struct run *run)
{
    const struct mw_probe_row *row = &run->rows[run->done];
    struct mw_probe_result *result = &run->results[run->done];
    if (run->on_terminal)
        show_progress(run, 0);
    int error =
        mw_probe_child_run(row, run->stop_fd, run->on_terminal ? show_progress : NULL, run, result);
    end_progress(run);
    if (error == -EINTR)
        return error;
    if (error) {
        result->error = error;
        snprintf(result->why, sizeof result->why, "no process for it: %s", mw_strerror(error));
    }
    if (!run->settings.json) {
        const struct mw_probe_row *before = run->done > 0 ? row - 1 : NULL;
        if (!before || before->roll != row->roll ||
            before->compiler_threads != row->compiler_threads)
            mw_probe_print_head(stdout, row);
        mw_probe_print_row(stdout, row, result);
        (void)fflush(stdout);
    }
    run->done++;
    if (!run->on_terminal) {
        char text[80];
        mw_probe_row_describe(row, text, sizeof text);
        fprintf(stderr, "probe: %zu of %zu: %s%s%s\n", run->done, run->count, text,
                result->error ? ": failed: " : "", result->error ? result->why : "");
    }
    return result->error;
}

/* Blocked in this process, so that they are read in one place and nothing is interrupted. */
static int watch_signals(struct run *run)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    run->stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->stop_fd < 0 ? -errno : 0;
}

static int signal_that_came(const struct run *run)
{
    struct signalfd_siginfo came;
    return read(run->stop_fd, &came, sizeof came) == sizeof came ? (int)came.ssi_signo : SIGINT;
}

/* ---- what is seen ---- */

static void show_progress(void *user, uint64_t elapsed_ns)
{
    const struct run *run = user;
    char text[80];
    mw_probe_row_describe(&run->rows[run->done], text, sizeof text);
    fprintf(stderr, "\r\033[K%zu of %zu: %s, %llu s", run->done + 1, run->count, text,
            (unsigned long long)(elapsed_ns / MW_NS_PER_S));
}

static void end_progress(const struct run *run)
{
    if (run->on_terminal)
        fputs("\r\033[K", stderr);
}

/* The last word, also when a signal came. */
static int print_last(const struct run *run)
{
    bool interrupted = run->done < run->count;
    int error = 0;
    if (run->settings.json)
        error = mw_probe_print_json(stdout, run->rows, run->results, run->done, interrupted);
    else if (interrupted)
        printf("\nInterrupted: %zu of %zu rows.\n", run->done, run->count);
    if (!error && (fflush(stdout) != 0 || ferror(stdout)))
        error = -EIO;
    if (error)
        fprintf(stderr, "millwright probe: cannot print: %s\n", mw_strerror(error));
    return error;
}

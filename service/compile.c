/* compile.c - `millwright compile`: the compile of the service, in this process, for one's own
 * files. Each file is a leaf on a CPU lane; the main thread reads, writes and prints. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <millwright/emit.h>
#include <millwright/error.h>
#include <millwright/lane.h>
#include <millwright/mutex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beside.h"
#include "commands.h"
#include "engine.h"

struct batch {
    struct mw_compile_settings settings;
    char directory[PATH_MAX];
    const char *const *flags;
    size_t flag_count;
    struct mw_toolchain *toolchain;
    struct mw_mutex lock; /* guards finished, and each unit's `finished` */
    struct mw_cond news;
    struct unit *units;
    size_t count;
};

/* One file on its way. Its result is the main thread's from `finished` on. */
struct unit {
    struct mw_job job;
    struct batch *batch;
    const char *path;
    char *text;
    struct mw_source_file file;
    struct mw_compile_request request;
    struct mw_options *options;
    struct mw_compile_result result;
    int status;
    bool finished;
};

static int split_arguments(struct batch *batch, int argc, char **argv, const char **files);
static int run(struct batch *batch, const char *const *files);
static int compile_all(struct batch *batch);
static int prepare(struct unit *unit);
static int read_text(const char *path, char **text, size_t *bytes);
static int leaf(struct mw_job *job);
static void leaf_done(struct mw_job *job, int status);
static void wait_for(struct unit *unit);
static int report(struct unit *unit);
static int write_artifact(const struct unit *unit);
static int write_beside(const struct unit *unit);
static int output_path(const struct unit *unit, char *path, size_t bytes);
static int stem_of(const struct unit *unit, char *stem, size_t bytes);
static void complain(const char *path, const char *text);

#define UNIT_OF(job_pointer) ((struct unit *)((char *)(job_pointer) - offsetof(struct unit, job)))

int mw_command_compile(int argc, char **argv)
{
    struct batch batch = {.settings = mw_compile_defaults};
    const char **files = calloc((size_t)argc + 1, sizeof *files);
    if (!files)
        return MW_EXIT_FAILED;
    int status = split_arguments(&batch, argc, argv, files);
    if (status == MW_EXIT_OK && batch.settings.help)
        mw_help_command(mw_command_find("compile"), stdout);
    else if (status == MW_EXIT_OK)
        status = run(&batch, files);
    free(files);
    return status;
}

/* Files and options may be mixed; what follows `--` is for the compiler. */
static int split_arguments(struct batch *batch, int argc, char **argv, const char **files)
{
    struct mw_settings settings = mw_compile_settings_of(&batch->settings);
    int at = 0;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        int used = mw_settings_argv(&settings, argc - at, argv + at);
        if (used < 0)
            return MW_EXIT_USAGE;
        at += used;
        if (at < argc && strcmp(argv[at], "--") != 0)
            files[batch->count++] = argv[at++];
    }
    if (at < argc) {
        batch->flags = (const char *const *)&argv[at + 1];
        batch->flag_count = (size_t)(argc - at - 1);
    }
    if (batch->count == 0 && !batch->settings.help) {
        fputs("millwright compile: name a file to compile; see --help\n", stderr);
        return MW_EXIT_USAGE;
    }
    if (batch->count > 1 && (batch->settings.output[0] || batch->settings.deps[0])) {
        fprintf(stderr, "millwright compile: --%s goes with one file only\n",
                batch->settings.output[0] ? "output" : "deps");
        return MW_EXIT_USAGE;
    }
    return MW_EXIT_OK;
}

static int run(struct batch *batch, const char *const *files)
{
    int status = MW_EXIT_FAILED;
    int error = 0;
    if (!getcwd(batch->directory, sizeof batch->directory))
        error = -errno;
    if (!error)
        error = mw_mutex_init(&batch->lock);
    if (!error)
        error = mw_cond_init(&batch->news);
    if (!error)
        error = mw_toolchain_new(&batch->toolchain);
    batch->units = calloc(batch->count, sizeof *batch->units);
    if (!error && !batch->units)
        error = -ENOMEM;
    for (size_t i = 0; !error && i < batch->count; i++) {
        batch->units[i].batch = batch;
        batch->units[i].path = files[i];
    }
    if (error)
        fprintf(stderr, "millwright compile: cannot start: %s\n", mw_strerror(error));
    else
        status = compile_all(batch);
    free(batch->units);
    mw_toolchain_free(batch->toolchain);
    return status;
}

/* A window of cap + 1 files is in memory at a time, however many were named. */
static int compile_all(struct batch *batch)
{
    int status = MW_EXIT_OK;
    struct mw_lane *lane;
    struct mw_lane_stats stats;
    int error = mw_lane_new(
        &lane, &(struct mw_lane_options){.name = "compile-cpu", .cap = batch->settings.jobs});
    if (error) {
        fprintf(stderr, "millwright compile: cannot start: %s\n", mw_strerror(error));
        return MW_EXIT_FAILED;
    }
    mw_lane_snapshot(lane, &stats);
    size_t ahead = 0;
    for (size_t i = 0; i < batch->count; i++) {
        for (; ahead < batch->count && ahead <= i + stats.cap; ahead++) {
            struct unit *unit = &batch->units[ahead];
            unit->status = prepare(unit);
            if (unit->status == MW_EXIT_OK && mw_lane_submit(lane, &unit->job) == 0)
                continue;
            unit->finished = true; /* nobody else has seen it yet */
            if (unit->status == MW_EXIT_OK)
                unit->status = -EAGAIN;
        }
        wait_for(&batch->units[i]);
        int unit_status = report(&batch->units[i]);
        if (unit_status > status)
            status = unit_status;
    }
    mw_lane_free(lane, false);
    return status;
}

/* Returns an exit status; what is wrong is printed. */
static int prepare(struct unit *unit)
{
    const struct mw_compile_settings *settings = &unit->batch->settings;
    struct mw_refusal refusal = {0};
    int error = read_text(unit->path, &unit->text, &unit->file.bytes);
    if (error) {
        complain(unit->path,
                 error == -EFBIG ? "larger than a source file may be" : mw_strerror(error));
        return MW_EXIT_FAILED;
    }
    unit->file.name = unit->path;
    unit->file.data = unit->text;
    unit->request = (struct mw_compile_request){
        .language = (enum mw_language)settings->language,
        .emit = (enum mw_emit_kind)settings->emit,
        .directory = unit->batch->directory,
        .main = unit->path,
        .files = &unit->file,
        .file_count = 1,
        .args = unit->batch->flags,
        .arg_count = unit->batch->flag_count,
        .extras = settings->also | (settings->deps[0] ? 1u << MW_EXTRA_DEPENDENCIES : 0),
        .read_disk = true,
    };
    unit->job.fn = leaf;
    unit->job.done = leaf_done;
    error = mw_request_check(&unit->request, &refusal);
    if (!error)
        error = mw_options_new(&unit->options, &unit->request, &refusal);
    if (!error)
        return MW_EXIT_OK;
    fprintf(stderr, "millwright compile: %s: %s\n", refusal.kind ? refusal.subject : unit->path,
            refusal.kind ? refusal.reason : mw_strerror(error));
    return MW_EXIT_USAGE;
}

static int read_text(const char *path, char **text, size_t *bytes)
{
    struct stat status;
    int error = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) != 0)
        error = -errno;
    else if (!S_ISREG(status.st_mode))
        error = S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
    else if (status.st_size > MW_REQUEST_SOURCE_BYTES_MAX)
        error = -EFBIG;
    *text = error ? NULL : malloc((size_t)status.st_size + 1);
    if (!error && !*text)
        error = -ENOMEM;
    for (*bytes = 0; !error && *bytes < (size_t)status.st_size;) {
        ssize_t got = read(fd, *text + *bytes, (size_t)status.st_size - *bytes);
        if (got > 0)
            *bytes += (size_t)got;
        else if (got == 0)
            break; /* it shrank while we read: what is there is what is compiled */
        else if (errno != EINTR)
            error = -errno;
    }
    close(fd);
    return error;
}

static int leaf(struct mw_job *job)
{
    struct unit *unit = UNIT_OF(job);
    return mw_compile(unit->batch->toolchain, unit->options, &unit->request, &unit->result);
}

static void leaf_done(struct mw_job *job, int status)
{
    struct unit *unit = UNIT_OF(job);
    struct batch *batch = unit->batch;
    mw_mutex_lock(&batch->lock);
    unit->status = status;
    unit->finished = true;
    mw_cond_broadcast(&batch->news);
    mw_mutex_unlock(&batch->lock);
}

static void wait_for(struct unit *unit)
{
    mw_mutex_lock(&unit->batch->lock);
    while (!unit->finished)
        mw_cond_wait(&unit->batch->news, &unit->batch->lock);
    mw_mutex_unlock(&unit->batch->lock);
}

/* Prints, writes and releases a finished unit; returns its exit status. */
static int report(struct unit *unit)
{
    int status = unit->status > 0 ? unit->status : MW_EXIT_OK;
    unsigned color = unit->batch->settings.color;
    (void)mw_diagnostics_print(&unit->result.diagnostics, stderr,
                               color == 1 || (color == 0 && isatty(STDERR_FILENO)));
    if (unit->status < 0) {
        complain(unit->path, mw_strerror(unit->status));
        status = MW_EXIT_FAILED;
    } else if (status == MW_EXIT_OK && !unit->result.ok) {
        status = MW_EXIT_FAILED;
    } else if (status == MW_EXIT_OK && unit->request.emit != MW_EMIT_NONE) {
        status = write_artifact(unit);
    }
    if (status == MW_EXIT_OK)
        status = write_beside(unit);
    mw_compile_result_fini(&unit->result);
    mw_options_free(unit->options);
    free(unit->text);
    return status;
}

static int write_artifact(const struct unit *unit)
{
    char path[PATH_MAX];
    int error = output_path(unit, path, sizeof path);
    if (!error)
        error = mw_beside_write_file(path, unit->result.artifact, unit->result.artifact_bytes);
    if (error)
        complain(path, mw_strerror(error));
    return error ? MW_EXIT_FAILED : MW_EXIT_OK;
}

/* What --also and --deps ask for. */
static int write_beside(const struct unit *unit)
{
    const struct mw_compile_settings *settings = &unit->batch->settings;
    char stem[PATH_MAX], path[PATH_MAX] = "", target[PATH_MAX + 8];
    int error = stem_of(unit, stem, sizeof stem);
    for (unsigned i = 0; !error && i < MW_EXTRAS; i++)
        if (settings->also & 1u << i)
            error = mw_beside_write_extra(&unit->result, (enum mw_extra)i, stem, path, sizeof path);
    if (!error && settings->deps[0]) {
        const char *suffix = mw_emit_kind_suffix((enum mw_emit_kind)settings->emit);
        snprintf(path, sizeof path, "%s", settings->deps);
        if (settings->output[0] && strcmp(settings->output, "-") != 0)
            snprintf(target, sizeof target, "%s", settings->output);
        else
            snprintf(target, sizeof target, "%s%s", stem, suffix[0] ? suffix : ".o");
        error = mw_beside_write_rule(&unit->result, target, path);
    }
    if (error)
        complain(path[0] ? path : unit->path,
                 error == -ENODATA ? "there is nothing to tell, or too much" : mw_strerror(error));
    return error ? MW_EXIT_FAILED : MW_EXIT_OK;
}

/* As compilers do: the source's name without folder and ending, with the kind's own ending. */
static int output_path(const struct unit *unit, char *path, size_t bytes)
{
    const struct mw_compile_settings *settings = &unit->batch->settings;
    int length;
    if (settings->output[0]) {
        length = snprintf(path, bytes, "%s", settings->output);
    } else if (settings->emit == MW_EMIT_PREPROCESSED) {
        length = snprintf(path, bytes, "-");
    } else {
        char stem[PATH_MAX];
        int error = stem_of(unit, stem, sizeof stem);
        if (error)
            return error;
        length = snprintf(path, bytes, "%s%s", stem,
                          mw_emit_kind_suffix((enum mw_emit_kind)settings->emit));
    }
    return length > 0 && (size_t)length < bytes ? 0 : -ENAMETOOLONG;
}

/* The output that was named, without its ending; else the source, without its folder too. */
static int stem_of(const struct unit *unit, char *stem, size_t bytes)
{
    const char *output = unit->batch->settings.output;
    bool named = output[0] && strcmp(output, "-") != 0;
    const char *from = named ? output : unit->path;
    const char *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    const char *dot = strrchr(name, '.');
    size_t end = dot && dot > name ? (size_t)(dot - from) : strlen(from);
    size_t begin = named ? 0 : (size_t)(name - from);
    int length = snprintf(stem, bytes, "%.*s", (int)(end - begin), from + begin);
    return length > 0 && (size_t)length < bytes ? 0 : -ENAMETOOLONG;
}

static void complain(const char *path, const char *text)
{
    fprintf(stderr, "millwright compile: %s: %s\n", path, text);
}

/* isolation_bench.c - what a process of its own costs a compile.
 *
 * One job of a lane is one compile, by one of five ways:
 *
 * - in process: mw_compile on the lane's thread;
 * - forked: a process of one thread, which has loaded LLVM and has compiled before, forks for the
 *   request; the fork enters the sandbox and compiles. What isolation costs when nothing is made
 *   ready. It gets the request by its number, so less is handed over than isolate.h hands over;
 * - ready: mw_isolate_compile with workers forked and warmed ahead, each used once;
 * - persistent: the same with workers that are used again;
 * - clang-19 -c as a process.
 *
 * Paced, each compile follows a pause in which new workers get ready. Back to back, requests follow
 * each other until no worker is ready any more, and only then is time taken: what making workers
 * ready takes shows in full.
 *
 * All end with the bytes of the object, which the warm-up round compares. The lane's threads are as
 * urgent as clang's process, or the nice values would be compared. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/emit.h>
#include <millwright/isolate.h>
#include <millwright/lane.h>

#include "bench.h"
#include "sandbox.h"
#include "source.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOXED 0 /* as millwright-worker: a sanitizer asks for more than a sandbox gives */
#endif
#endif
#ifndef SANDBOXED
#define SANDBOXED 1
#endif

#define COMPILER        "clang-19"
#define RUNS_DEFAULT    9u
#define GENERATED_LINES 300u
#define PAUSE_MS        100u /* some times what a worker takes to get ready */
#define QUICK_PAUSE_MS  10u
#define COMPILING_MS    50u /* from the start of a compile to its stop */
#define ANSWER_S_MAX    60
#define OBJECT_MAX      (UINT64_C(16) << 20)
#define MIB             (1024.0 * 1024.0)

enum { IN_PROCESS, FORKED, READY, PERSISTENT, CLANG, WAYS };
enum { PACED, BACK_TO_BACK, PACES };

struct subject {
    const char *name;
    const char *file;
    enum mw_language language;
    unsigned burst; /* compiles back to back that are counted */
    const char *source;

    struct mw_source_file files[1];
    struct mw_compile_request request;
    struct mw_options *options;
    char *object; /* of the first compile; all others give the same */
    size_t object_bytes;
};

/* One variant. */
struct cell {
    struct subject *subject;
    unsigned way, pace;
    char name[80];
};

/* One compile on the lane. */
struct compile {
    struct mw_job job; /* first: the lane's callback gets this */
    struct subject *subject;
    unsigned way;
    struct mw_isolate_stop *stop;
    int rc;
};

static struct subject subjects[] = {
    {.name = "hello.c -O0",
     .file = "main.c",
     .language = MW_LANGUAGE_C,
     .burst = 8,
     .source = source_hello_c},
    {.name = "300 lines of C -O0", .file = "main.c", .language = MW_LANGUAGE_C, .burst = 8},
    {.name = "C++ vector string map -O0",
     .file = "main.cc",
     .language = MW_LANGUAGE_CXX,
     .burst = 2,
     .source = source_words_cc},
};
#define SUBJECTS (sizeof subjects / sizeof subjects[0])
#define CELLS    (SUBJECTS * PACES * WAYS)
#define ROWS     (SUBJECTS * PACES * (WAYS - 2) + 2)

/* Computes for many seconds and looks at nothing else. */
static struct subject endless = {
    .file = "main.c",
    .language = MW_LANGUAGE_C,
    .source = "int f(unsigned _BitInt(8388608) a) { return (int)(a * a); }\n"};

static const char *worker;
static const char *quick;
static char folder[] = "/tmp/mw-bench-XXXXXX";
static char *generated;
static struct mw_toolchain *toolchain;
static struct mw_isolate *single, *persistent;
static struct mw_lane *lane;
static struct cell cells[CELLS];
static int forker = -1; /* the socket to the process that forks */
static unsigned guards;

static int set_up(void);
static int subject_prepare(struct subject *subject);
static int forker_start(void);
static _Noreturn void forker_run(int socket);
static _Noreturn void fork_compile(int socket, const struct subject *subject);
static int isolates_start(void);
static void clean_up(void);
static bench_measure measure, measure_stop;
static int compile_submit(struct compile *compile);
static int compile_run(struct mw_job *job);
static int run_in_process(struct compile *compile), run_forked(struct compile *compile),
    run_ready(struct compile *compile), run_persistent(struct compile *compile),
    run_clang(struct compile *compile);
static int object_check(struct subject *subject, const char *object, size_t bytes);
static int clang_check(struct subject *subject);
static void sleep_ms(unsigned ms);
static int print_rows(const struct bench *bench, const struct bench_variant *variants,
                      const struct bench_variant *stop);

static int (*const ways[WAYS])(struct compile *compile) = {
    [IN_PROCESS] = run_in_process, [FORKED] = run_forked, [READY] = run_ready,
    [PERSISTENT] = run_persistent, [CLANG] = run_clang,
};
static const char *const way_names[WAYS] = {
    "in process", "forked for it", "worker ready", "persistent worker", COMPILER,
};

int main(int argc, char **argv)
{
    static const struct bench_option options[] = {
        {"--worker", "PATH", "the millwright-worker to start (MW_WORKER, or the one built here)",
         &worker},
        {"--quick", NULL, "shorter pauses and runs back to back", &quick}};
    struct bench bench = {.name = "isolation",
                          .summary = "one compile in process, in processes of its own, and by "
                                     "one process of " COMPILER " -c",
                          .options = options,
                          .option_count = 2,
                          .runs_default = RUNS_DEFAULT};
    struct bench_variant variants[CELLS];
    struct bench_variant stop = {.name = "stop", .measure = measure_stop};
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    atexit(clean_up);
    for (size_t i = 0; i < CELLS; i++) {
        cells[i] = (struct cell){&subjects[i / WAYS / PACES], i % WAYS, i / WAYS % PACES, {0}};
        snprintf(cells[i].name, sizeof cells[i].name, "%s, %s, %s", cells[i].subject->name,
                 cells[i].pace == PACED ? "paced" : "back to back", way_names[i % WAYS]);
        variants[i] = (struct bench_variant){cells[i].name, measure, &cells[i], {0}};
    }
    if (set_up() != 0 || bench_rounds(&bench, variants, SUBJECTS * PACES, WAYS) != 0 ||
        bench_rounds(&bench, &stop, 1, 1) != 0)
        return 1;
    return print_rows(&bench, variants, &stop) != 0;
}

/* ---- set up and clean up ---- */

/* The process that forks is forked itself before this one starts a thread. */
static int set_up(void)
{
    int error = mw_compile_init();

    generated = source_generate(GENERATED_LINES);
    subjects[1].source = generated;
    if (error == 0)
        error = generated == NULL ? -ENOMEM : mw_toolchain_new(&toolchain);
    for (size_t i = 0; error == 0 && i < SUBJECTS; i++)
        error = subject_prepare(&subjects[i]);
    if (error == 0)
        error = subject_prepare(&endless);
    if (error == 0 && mkdtemp(folder) == NULL)
        error = -errno;
    for (size_t i = 0; error == 0 && i < SUBJECTS; i++) {
        struct compile compile = {.subject = &subjects[i]};

        error = run_in_process(&compile); /* makes what is made at first use */
    }
    guards = mw_sandbox_available(NULL);
    if (error == 0)
        error = forker_start();
    if (error == 0)
        error = mw_lane_new(
            &lane, &(struct mw_lane_options){.name = "bench", .cap = 1, .urgency = MW_LANE_EQUAL});
    if (error != 0)
        fprintf(stderr, "isolation: cannot set up: %s\n", strerror(-error));
    return error != 0 ? error : isolates_start();
}

static int subject_prepare(struct subject *subject)
{
    static const char *const args[] = {"-O0"};
    struct mw_refusal refusal;

    subject->files[0] =
        (struct mw_source_file){subject->file, subject->source, strlen(subject->source)};
    subject->request = (struct mw_compile_request){
        .language = subject->language,
        .directory = MW_REQUEST_DIRECTORY_DEFAULT,
        .main = subject->file,
        .files = subject->files,
        .file_count = 1,
        .args = args,
        .arg_count = 1,
    };
    return mw_options_new(&subject->options, &subject->request, &refusal);
}

static int isolates_start(void)
{
    static char path[4096];
    struct mw_isolate_options options = {.toolchain = toolchain, .unguarded = true};
    char why[256];
    int error;

    if (worker == NULL)
        worker = getenv("MW_WORKER");
    if (worker == NULL) {
        static const char from_here[] = "/../../bin/millwright-worker";
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof from_here);
        char *slash;

        path[length < 0 ? 0 : length] = '\0';
        slash = strrchr(path, '/');
        memcpy(slash == NULL ? path : slash, from_here, sizeof from_here);
        worker = path;
    }
    if (access(worker, X_OK) != 0) {
        fprintf(stderr, "isolation: cannot run '%s': build millwright, or give --worker PATH\n",
                worker);
        return -ENOENT;
    }
    options.worker = worker;
    error = mw_isolate_new(&single, &options, why, sizeof why);
    options.ready = 1;
    options.requests_max = MW_ISOLATE_REQUESTS_LIMIT;
    if (error == 0)
        error = mw_isolate_new(&persistent, &options, why, sizeof why);
    if (error != 0)
        fprintf(stderr, "isolation: cannot start workers: %s\n", why);
    return error;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Also when something failed, and after a signal. */
static void clean_up(void)
{
    if (lane != NULL)
        mw_lane_free(lane, true);
    mw_isolate_free(single);
    mw_isolate_free(persistent);
    if (forker >= 0)
        close(forker); /* it ends then */
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < SUBJECTS; i++) {
        mw_options_free(subjects[i].options);
        free(subjects[i].object);
    }
    mw_options_free(endless.options);
    if (toolchain != NULL)
        mw_toolchain_free(toolchain);
    free(generated);
}

/* ---- what is measured ---- */

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    const struct cell *cell = context;
    bool is_burst = cell->pace == BACK_TO_BACK;
    unsigned count = !is_burst ? 1 : quick != NULL ? 2 : cell->subject->burst;
    struct mw_isolate_stats stats = {0};
    uint64_t begin_ns;
    int error = 0;

    sleep_ms(quick != NULL ? QUICK_PAUSE_MS : PAUSE_MS);
    if (is_burst && cell->way == READY)
        mw_isolate_snapshot(single, &stats);
    /* Use up what was made ready in the pause. */
    for (unsigned i = 0; error == 0 && i < stats.ready; i++)
        error = compile_submit(&(struct compile){.subject = cell->subject, .way = cell->way});
    begin_ns = mw_clock_ns();
    for (unsigned i = 0; error == 0 && i < count; i++)
        error = compile_submit(&(struct compile){.subject = cell->subject, .way = cell->way});
    values[0] = (double)(mw_clock_ns() - begin_ns) / (double)MW_NS_PER_MS / count;
    if (error == 0 && round == 0 && cell->way == CLANG)
        error = clang_check(cell->subject);
    if (error != 0)
        fprintf(stderr, "isolation: %s: %s\n", cell->name, strerror(-error));
    return error;
}

/* From the stop of a compile to the start of the next that waits for its slot. */
static int measure_stop(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct mw_isolate_stop stop = {0};
    struct compile stopped = {.subject = &endless, .way = READY, .stop = &stop};
    struct compile next = {.subject = &subjects[0], .way = READY};
    struct mw_isolate_stats stats = {0};
    uint64_t stop_ns;
    int error;

    (void)context;
    (void)round;
    stopped.job.fn = next.job.fn = compile_run;
    error = mw_lane_submit(lane, &stopped.job);
    if (error != 0)
        return error;
    while (stats.running == 0 && stopped.job.ended_ns == 0) {
        sleep_ms(1);
        mw_isolate_snapshot(single, &stats);
    }
    sleep_ms(COMPILING_MS);
    error = mw_lane_submit(lane, &next.job);
    stop_ns = mw_clock_ns();
    mw_isolate_stop(&stop);
    (void)mw_lane_wait(lane, &stopped.job, UINT64_MAX);
    if (error == 0)
        (void)mw_lane_wait(lane, &next.job, UINT64_MAX);
    mw_isolate_stop_fini(&stop);
    if (error == 0 && stopped.rc != -ECANCELED)
        error = stopped.rc == 0 ? -EBADMSG : stopped.rc;
    if (error != 0)
        fprintf(stderr, "isolation: the compile to be stopped: %s\n", strerror(-error));
    values[0] = next.job.started_ns > stop_ns
                    ? (double)(next.job.started_ns - stop_ns) / (double)MW_NS_PER_MS
                    : 0;
    return error;
}

static int compile_submit(struct compile *compile)
{
    int error;

    compile->job.fn = compile_run;
    error = mw_lane_submit(lane, &compile->job);
    if (error == 0)
        error = mw_lane_wait(lane, &compile->job, UINT64_MAX);
    return error != 0 ? error : compile->rc;
}

static int compile_run(struct mw_job *job)
{
    struct compile *compile = (struct compile *)job;

    compile->rc = ways[compile->way](compile);
    return 0;
}

/* ---- the ways ---- */

static int result_check(struct subject *subject, int error, struct mw_compile_result *result)
{
    if (error == 0)
        error =
            result->ok ? object_check(subject, result->artifact, result->artifact_bytes) : -EBADMSG;
    mw_compile_result_fini(result);
    return error;
}

static int run_in_process(struct compile *compile)
{
    struct subject *subject = compile->subject;
    struct mw_compile_result result;
    int error = mw_compile(toolchain, subject->options, &subject->request, &result);

    return result_check(subject, error, &result);
}

static int run_isolated(struct mw_isolate *isolate, struct compile *compile)
{
    struct subject *subject = compile->subject;
    struct mw_compile_result result;
    struct mw_usage usage;
    int error = mw_isolate_compile(isolate, subject->options, &subject->request, NULL,
                                   compile->stop, &result, &usage);

    return result_check(subject, error, &result);
}

static int run_ready(struct compile *compile)
{
    return run_isolated(single, compile);
}

static int run_persistent(struct compile *compile)
{
    return run_isolated(persistent, compile);
}

static int run_clang(struct compile *compile)
{
    const char *file = compile->subject->file;
    char input[sizeof folder + 16], output[sizeof folder + 16];
    const char *argv[] = {COMPILER, "-c", file, "-O0", "-o", output, NULL};
    posix_spawn_file_actions_t actions;
    FILE *source;
    int error, status = 0;
    pid_t pid;

    snprintf(input, sizeof input, "%s/%s", folder, file);
    snprintf(output, sizeof output, "%s/clang.o", folder);
    source = fopen(input, "we");
    if (source == NULL)
        return -errno;
    error = fputs(compile->subject->source, source) < 0 ? EIO : 0;
    if (fclose(source) != 0 || error != 0 || posix_spawn_file_actions_init(&actions) != 0)
        return -EIO;
    error = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (error == 0)
        error = posix_spawnp(&pid, COMPILER, &actions, NULL, (char **)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (error == 0 && waitpid(pid, &status, 0) < 0)
        error = errno == EINTR ? 0 : errno;
    return error != 0 ? -error : status != 0 ? -EBADMSG : 0;
}

/* ---- a fork for each request ---- */

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (const char *next = data; bytes > 0;) {
        ssize_t written = write(fd, next, bytes);

        if (written < 0)
            return false;
        next += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t bytes)
{
    for (char *next = data; bytes > 0;) {
        ssize_t got = read(fd, next, bytes);

        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        next += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static int forker_start(void)
{
    const struct timeval patience = {.tv_sec = ANSWER_S_MAX};
    int ends[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        forker_run(ends[1]);
    }
    close(ends[1]);
    forker = ends[0];
    if (pid < 0 || setsockopt(forker, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
        return -errno;
    return 0;
}

/* Ends when its socket closes. */
static _Noreturn void forker_run(int socket)
{
    unsigned char number;

    signal(SIGCHLD, SIG_IGN); /* nobody waits for those that ended */
    while (read_all(socket, &number, 1)) {
        pid_t pid = fork();

        if (pid == 0)
            fork_compile(socket, &subjects[number]);
        if (pid < 0)
            break;
    }
    _exit(0);
}

static _Noreturn void fork_compile(int socket, const struct subject *subject)
{
    struct mw_sandbox sandbox = {.data_bytes = UINT64_C(2) << 30,
                                 .cpu_s = ANSWER_S_MAX,
                                 .file_bytes = OBJECT_MAX,
                                 .descriptors = 64,
                                 .guards = guards};
    struct mw_compile_result result;
    uint64_t bytes;

    sandbox.readable_dirs = mw_toolchain_dirs(toolchain, &sandbox.readable_count);
    if (SANDBOXED && mw_sandbox_enter(&sandbox) != 0)
        _exit(1);
    if (mw_compile(toolchain, subject->options, &subject->request, &result) != 0 || !result.ok)
        result.artifact_bytes = 0;
    bytes = result.artifact_bytes;
    if (!write_all(socket, &bytes, sizeof bytes) || !write_all(socket, result.artifact, bytes))
        _exit(1);
    _exit(0);
}

/* One that dies without an answer shows after ANSWER_S_MAX. */
static int run_forked(struct compile *compile)
{
    unsigned char number = (unsigned char)(compile->subject - subjects);
    char *object = NULL;
    uint64_t bytes;
    int error = 0;

    if (!write_all(forker, &number, 1) || !read_all(forker, &bytes, sizeof bytes))
        error = -EPIPE;
    else if (bytes == 0 || bytes > OBJECT_MAX)
        error = -EBADMSG;
    if (error == 0)
        object = malloc(bytes);
    if (error == 0 && object == NULL)
        error = -ENOMEM;
    if (error == 0)
        error = read_all(forker, object, bytes) ? object_check(compile->subject, object, bytes)
                                                : -EPIPE;
    free(object);
    return error;
}

/* ---- the same work ---- */

static int object_check(struct subject *subject, const char *object, size_t bytes)
{
    if (subject->object == NULL) {
        subject->object = malloc(bytes);
        if (subject->object == NULL)
            return -ENOMEM;
        memcpy(subject->object, object, bytes);
        subject->object_bytes = bytes;
    }
    return bytes == subject->object_bytes && memcmp(object, subject->object, bytes) == 0 ? 0
                                                                                         : -EBADMSG;
}

static int clang_check(struct subject *subject)
{
    char path[sizeof folder + 16];
    char *object = malloc(OBJECT_MAX);
    int error = object == NULL ? -ENOMEM : 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/clang.o", folder);
    file = fopen(path, "re");
    if (error == 0)
        error = file == NULL ? -errno
                             : object_check(subject, object, fread(object, 1, OBJECT_MAX, file));
    if (file != NULL)
        fclose(file);
    free(object);
    return error;
}

static void sleep_ms(unsigned ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&time, NULL);
}

/* ---- the answer ---- */

static int print_rows(const struct bench *bench, const struct bench_variant *variants,
                      const struct bench_variant *stop)
{
    struct bench_row rows[ROWS];
    struct mw_isolate_stats stats;
    size_t count = 0;
    struct bench_report report = {
        .ours = "isolated",
        .peers = {"in process", COMPILER " -c"},
        .peer_count = 2,
        .side = COMPILER " / it",
        .rows = rows,
        .row_count = ROWS,
        .note = "Paced: after a pause each, in which workers get ready. Back to back: when none is "
                "ready any more.\nForked for it: a fork of a warm process of one thread, which "
                "enters the sandbox and compiles.\nAll gave the same bytes. The last row is no "
                "time: how much of the zygote is resident.",
    };

    for (size_t i = 0; i < CELLS; i++) {
        const struct bench_variant *group = &variants[i - i % WAYS];
        double ms = variants[i].medians[0], clang = group[CLANG].medians[0];

        if (i % WAYS == IN_PROCESS || i % WAYS == CLANG)
            continue;
        rows[count++] = (struct bench_row){.name = cells[i].name,
                                           .ours = ms,
                                           .peers = {group[IN_PROCESS].medians[0], clang},
                                           .side = clang / ms};
    }
    mw_isolate_snapshot(single, &stats);
    rows[count++] =
        (struct bench_row){"stop, to the next compile's start", stop->medians[0], {NAN, NAN}, NAN};
    rows[count++] =
        (struct bench_row){"zygote, MiB", (double)stats.zygote_rss_bytes / MIB, {NAN, NAN}, NAN};
    if (guards != MW_GUARDS_ALL)
        report.note = "This kernel lacks guards: what is shown is less than isolation costs.";
    return bench_print(bench, &report);
}

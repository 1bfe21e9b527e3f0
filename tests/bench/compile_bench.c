/* compile_bench.c - a compile through `millwright serve` against `clang-19 -c` as a process.
 *
 * Both ends hold the bytes of the object at the end of a run: the client asks for the artifact in
 * the answer, the process writes it to a file. The warm-up round compares the two, so that what is
 * timed later is known to be the same work. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <millwright/clock.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "source.h"
#include "support/process.h"
#include "support/server.h"

#define COMPILER        "clang-19"
#define GENERATED_LINES 2000u

enum { VALUE_MS, VALUE_LEAF_MS };
enum { UNCACHED, CACHED, CLANG, VARIANTS };

#define LANGUAGE_C   .language = "c", .file = "main.c"
#define LANGUAGE_CXX .language = "c++", .file = "main.cc"

/* One source at one level of optimisation. */
struct subject {
    const char *name;
    const char *language;
    const char *file; /* the name that the service gives to the main file */
    const char *flag;
    const char *source;

    char names[VARIANTS][64];
    char *body;           /* what was posted last, so that it can be posted again */
    struct bytes object;  /* the service's; the same for all runs */
    unsigned next_number; /* makes each posted source another one */
};

static struct subject subjects[] = {
    {.name = "hello.c", LANGUAGE_C, .flag = "-O0", .source = source_hello_c},
    {.name = "hello.c", LANGUAGE_C, .flag = "-O2", .source = source_hello_c},
    {.name = "2,000 lines of C", LANGUAGE_C, .flag = "-O0", .source = NULL}, /* generated */
    {.name = "2,000 lines of C", LANGUAGE_C, .flag = "-O2", .source = NULL},
    {.name = "C++ vector string map", LANGUAGE_CXX, .flag = "-O0", .source = source_words_cc},
    {.name = "C++ vector string map", LANGUAGE_CXX, .flag = "-O2", .source = source_words_cc},
};

#define SUBJECTS (sizeof subjects / sizeof subjects[0])

static const char *program;
static char folder[] = "/tmp/mw-bench-XXXXXX";
static struct server server;
static struct client client;
static char *generated;

static const char *find_program(void);
static int set_up(struct bench_variant *variants);
static int start_service(void);
static void make_variants(struct bench_variant *variants);
static void clean_up(void);
static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk);
static bench_measure measure_uncached, measure_cached, measure_clang;
static char *next_body(struct subject *subject);
static int post(struct subject *subject, bool cached, double values[BENCH_VALUES_MAX]);
static int check_answer(struct subject *subject, bool cached, const struct reply *reply,
                        double *leaf_ms);
static int fetch_object(struct subject *subject, const json_t *answer);
static int run_clang(const struct subject *subject, double *ms);
static int compare_objects(struct subject *subject);
static int print_rows(const struct bench *bench, const struct bench_variant *variants);

int main(int argc, char **argv)
{
    static const struct bench_option options[] = {
        {"--program", "PATH", "the millwright to start (MW_PROGRAM, or the one built beside this)",
         &program}};
    struct bench bench = {.name = "compile",
                          .summary = "one POST /v1/compile against one process of " COMPILER " -c",
                          .options = options,
                          .option_count = 1};
    struct bench_variant variants[SUBJECTS * VARIANTS];
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    if (set_up(variants) != 0 || bench_rounds(&bench, variants, SUBJECTS, VARIANTS) != 0)
        return 1;
    return print_rows(&bench, variants) != 0;
}

/* ---- set up and clean up ---- */

static const char *find_program(void)
{
    static const char from_here[] = "/../../bin/millwright";
    static char path[4096];
    ssize_t length;
    char *slash;

    if (program != NULL)
        return program;
    if (getenv("MW_PROGRAM") != NULL)
        return getenv("MW_PROGRAM");
    length = readlink("/proc/self/exe", path, sizeof path - sizeof from_here);
    path[length < 0 ? 0 : length] = '\0';
    slash = strrchr(path, '/');
    memcpy(slash == NULL ? path : slash, from_here, sizeof from_here);
    return path;
}

static int set_up(struct bench_variant *variants)
{
    generated = source_generate(GENERATED_LINES);
    if (generated == NULL) {
        fprintf(stderr, "compile: out of memory\n");
        return -ENOMEM;
    }
    for (size_t i = 0; i < SUBJECTS; i++)
        if (subjects[i].source == NULL)
            subjects[i].source = generated;
    make_variants(variants);
    return start_service();
}

static int start_service(void)
{
    const char *path = find_program();

    if (access(path, X_OK) != 0) {
        fprintf(stderr, "compile: cannot run '%s': build millwright, or give --program PATH\n",
                path);
        return -ENOENT;
    }
    if (mkdtemp(folder) == NULL) {
        fprintf(stderr, "compile: cannot make '%s': %s\n", folder, strerror(errno));
        return -EIO;
    }
    atexit(clean_up);
    server_start(&server, path, folder, NULL);
    client_open(&client, &server);
    return 0;
}

static void make_variants(struct bench_variant *variants)
{
    static bench_measure *const measures[VARIANTS] = {measure_uncached, measure_cached,
                                                      measure_clang};
    static const char *const kinds[VARIANTS] = {"uncached", "cached", COMPILER};

    for (size_t i = 0; i < SUBJECTS * VARIANTS; i++) {
        struct subject *subject = &subjects[i / VARIANTS];
        char *name = subject->names[i % VARIANTS];

        snprintf(name, sizeof subject->names[0], "%s %s %s", subject->name, subject->flag,
                 kinds[i % VARIANTS]);
        variants[i] = (struct bench_variant){
            .name = name, .measure = measures[i % VARIANTS], .context = subject};
    }
}

/* Also when something failed, and after a signal. */
static void clean_up(void)
{
    if (client.curl != NULL)
        client_close(&client);
    if (server.pid > 0)
        server_stop(&server);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < SUBJECTS; i++) {
        free(subjects[i].body);
        free(subjects[i].object.data);
    }
    free(generated);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

/* ---- the variants ---- */

static int measure_uncached(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct subject *subject = context;

    (void)round;
    free(subject->body);
    subject->body = next_body(subject);
    if (subject->body == NULL) {
        fprintf(stderr, "compile: out of memory\n");
        return -ENOMEM;
    }
    return post(subject, false, values);
}

/* The warm-up round begins with measure_uncached, so there is a body. */
static int measure_cached(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    (void)round;
    return post(context, true, values);
}

static int measure_clang(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    struct subject *subject = context;
    char *path = path_join(folder, subject->file);
    int error;

    file_write(path, subject->source, strlen(subject->source));
    free(path);
    error = run_clang(subject, &values[VALUE_MS]);
    return error == 0 && round == 0 ? compare_objects(subject) : error;
}

/* ---- a compile by the service ---- */

static char *next_body(struct subject *subject)
{
    json_t *json;
    char *source;
    char *body;

    if (asprintf(&source, "%s// run %u\n", subject->source, subject->next_number++) < 0)
        return NULL;
    json = json_pack("{s:s, s:s, s:[s]}", "language", subject->language, "source", source, "args",
                     subject->flag);
    body = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    free(source);
    return body;
}

static int post(struct subject *subject, bool cached, double values[BENCH_VALUES_MAX])
{
    struct request request = {.path = "/v1/compile?include=artifact", .body = subject->body};
    struct reply reply;
    uint64_t begin_ns = mw_clock_ns();
    long connects = 0;
    int error;

    client_send(&client, &request, &reply);
    values[VALUE_MS] = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    curl_easy_getinfo(client.curl, CURLINFO_NUM_CONNECTS, &connects);
    error = check_answer(subject, cached, &reply, &values[VALUE_LEAF_MS]);
    if (error == 0 && connects != 0 && subject->next_number > 1) {
        fprintf(stderr, "compile: the server closed the kept-alive connection\n");
        error = -ECONNRESET;
    }
    reply_free(&reply);
    return error;
}

static int check_answer(struct subject *subject, bool cached, const struct reply *reply,
                        double *leaf_ms)
{
    json_t *answer = json_loadb(reply->body.data, reply->body.count, 0, NULL);
    const char *status = "";
    const char *object = NULL;
    int is_cached = 0;
    int error = 0;

    if (reply->status != 200 ||
        json_unpack(answer, "{s:s, s:b, s:{s:s}, s:{s:F}}", "status", &status, "cached", &is_cached,
                    "artifact", "base64", &object, "timings", "leaf_ms", leaf_ms) != 0 ||
        strcmp(status, "ok") != 0 || is_cached != cached) {
        fprintf(stderr, "compile: %s %s: expected %s ok, but got %ld %s\n", subject->name,
                subject->flag, cached ? "a cached" : "an uncached", reply->status,
                reply->body.data);
        error = -EBADMSG;
    }
    if (error == 0 && subject->object.data == NULL)
        error = fetch_object(subject, answer);
    json_decref(answer);
    return error;
}

/* Fetch the artifact's own bytes, once per subject. */
static int fetch_object(struct subject *subject, const json_t *answer)
{
    const char *url =
        json_string_value(json_object_get(json_object_get(answer, "artifact"), "url"));
    struct reply reply;

    if (url == NULL) {
        fprintf(stderr, "compile: the store kept no artifact\n");
        return -EIO;
    }
    client_send(&client, &(struct request){.path = url}, &reply);
    subject->object = reply.body;
    reply.body.data = NULL;
    reply_free(&reply);
    return 0;
}

/* ---- a compile by a process ---- */

static int run_clang(const struct subject *subject, double *ms)
{
    char output[sizeof folder + 16];
    const char *argv[] = {COMPILER, "-c", subject->file, subject->flag, "-o", output, NULL};
    posix_spawn_file_actions_t actions;
    uint64_t begin_ns;
    pid_t pid;
    int status;
    int error;

    snprintf(output, sizeof output, "%s/clang.o", folder);
    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addchdir_np(&actions, folder) != 0)
        return -ENOMEM;
    begin_ns = mw_clock_ns();
    error = posix_spawnp(&pid, COMPILER, &actions, NULL, (char **)argv, environ);
    if (error == 0) {
        status = process_wait(pid);
        *ms = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
        if (status != 0)
            fprintf(stderr, "compile: %s ended with %d\n", COMPILER, status);
        error = status == 0 ? 0 : EBADMSG;
    } else {
        fprintf(stderr, "compile: cannot run '%s': %s: install it\n", COMPILER, strerror(error));
    }
    posix_spawn_file_actions_destroy(&actions);
    return -error;
}

static int compare_objects(struct subject *subject)
{
    char *path = path_join(folder, "clang.o");
    struct bytes reference = file_read(path);
    int error = 0;

    if (reference.count != subject->object.count ||
        memcmp(reference.data, subject->object.data, reference.count) != 0) {
        fprintf(stderr, "compile: %s %s: the object of millwright is not that of %s\n",
                subject->name, subject->flag, COMPILER);
        error = -EBADMSG;
    }
    free(reference.data);
    free(path);
    return error;
}

/* ---- the answer ---- */

static int print_rows(const struct bench *bench, const struct bench_variant *variants)
{
    struct bench_row rows[SUBJECTS * 2];
    size_t count = 0;
    const struct bench_report report = {
        .ours = "millwright",
        .peers = {COMPILER " -c"},
        .peer_count = 1,
        .side = "of it, leaf",
        .rows = rows,
        .row_count = SUBJECTS * 2,
        .note = "One kept-alive connection on a unix socket; the answer holds the object, and the "
                "process writes it.\nUncached: each run's source is new. Cached: the same body "
                "again. Both compilers gave the same bytes.",
    };

    for (size_t i = 0; i < SUBJECTS; i++, variants += VARIANTS)
        for (int kind = UNCACHED; kind <= CACHED; kind++)
            rows[count++] = (struct bench_row){.name = subjects[i].names[kind],
                                               .ours = variants[kind].medians[VALUE_MS],
                                               .peers = {variants[CLANG].medians[VALUE_MS]},
                                               .side = variants[kind].medians[VALUE_LEAF_MS]};
    return bench_print(bench, &report);
}

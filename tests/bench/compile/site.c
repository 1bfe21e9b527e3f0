#include "site.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <millwright/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define COMPILE_PATH   "/v1/compile?include=artifact"
#define WARM_PAUSE_NS  100000000L
#define WARM_POSTS_MIN 3u
#define PROCESS_BYTES  64u

/* Where a header begins (1) or ends (-1). */
struct edge {
    double us;
    int step;
};

static int answer_read(struct subject *subject, const struct reply *reply,
                       struct site_answer *answer);
static void trace_read(const json_t *trace, double ms[SITE_TRACES]);
static double trace_total_ms(const json_t *trace, const char *name);
static double trace_headers_ms(const json_t *trace);
static int by_time(const void *a, const void *b);
static int object_compare(struct subject *subject, const char *base64);
static int base64_decode(const char *text, char *out, size_t *count);
static double number_of(const json_t *json, const char *object, const char *member);
static pid_t parent_of(const char *process);
static bool is_prefix_zygote(const char *process);
static double proportional_bytes(pid_t pid);

int site_open(struct site *site, const char *program, const char *parent, const char *name,
              const char *const *options)
{
    *site = (struct site){.folder = path_join(parent, name)};
    if (mkdir(site->folder, 0777) != 0) {
        fprintf(stderr, "compile: cannot make '%s': %s\n", site->folder, strerror(errno));
        return -EIO;
    }
    server_start(&site->server, program, site->folder, options);
    client_open(&site->client, &site->server);
    return 0;
}

void site_close(struct site *site)
{
    if (site->client.curl != NULL)
        client_close(&site->client);
    if (site->server.pid > 0)
        server_stop(&site->server);
    free(site->folder);
    site->folder = NULL;
}

int site_compile(struct site *site, struct subject *subject, const char *body,
                 struct site_answer *answer)
{
    struct reply reply;
    uint64_t begin_ns;
    int error;

    if (body == NULL) {
        fprintf(stderr, "compile: out of memory\n");
        return -ENOMEM;
    }
    begin_ns = mw_clock_ns();
    client_send(&site->client, &(struct request){.path = COMPILE_PATH, .body = body}, &reply);
    answer->ms = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    error = answer_read(subject, &reply, answer);
    reply_free(&reply);
    return error;
}

int site_warm(struct site *site, struct subject *subject)
{
    const struct timespec pause = {.tv_nsec = WARM_PAUSE_NS};
    uint64_t end_ns = mw_clock_ns() + SITE_WARM_MS_MAX * MW_NS_PER_MS;
    unsigned best = site->is_in_process ? SITE_PREFIX_PRECOMPILED : SITE_PREFIX_READ;
    int error = 0;

    for (unsigned posts = 0; error == 0; posts++) {
        struct site_answer answer = {0};
        char *body = subject_body(subject);

        error = site_compile(site, subject, body, &answer);
        free(body);
        if (answer.prefix >= best || (posts >= WARM_POSTS_MIN && !subject->has_prefix))
            return error;
        if (mw_clock_ns() > end_ns) {
            fprintf(stderr, "compile: %s: within %u s no prefix was %s\n", subject->name,
                    SITE_WARM_MS_MAX / 1000, site->is_in_process ? "used" : "read ahead");
            return error;
        }
        nanosleep(&pause, NULL);
    }
    return error;
}

/* Add what the children of `parent` take. The service's child is the zygote; its children, and
 * those of the zygotes among them, are workers. */
static void children_add(pid_t parent, bool is_zygote, struct site_memory *memory)
{
    DIR *processes = opendir("/proc");

    for (const struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        bool forks = is_zygote || is_prefix_zygote(entry->d_name);
        double bytes;

        if (pid <= 0 || parent_of(entry->d_name) != parent)
            continue;
        bytes = proportional_bytes(pid); /* NAN: it has ended meanwhile */
        *(forks ? &memory->zygotes : &memory->workers) += isnan(bytes) ? 0 : bytes;
        memory->worker_count += !forks;
        if (forks)
            children_add(pid, false, memory);
    }
    if (processes != NULL)
        closedir(processes);
}

struct site_memory site_memory(const struct site *site)
{
    struct site_memory memory = {.service = proportional_bytes(site->server.pid)};

    children_add(site->server.pid, true, &memory);
    return memory;
}

/* ---- answers ---- */

static int answer_read(struct subject *subject, const struct reply *reply,
                       struct site_answer *answer)
{
    json_t *json = json_loadb(reply->body.data, reply->body.count, 0, NULL);
    const json_t *timings = json_object_get(json, "timings");
    const char *status = "";
    const char *object = NULL;
    int is_cached = 0;
    int error = 0;

    if (reply->status != 200 ||
        json_unpack(json, "{s:s, s:b, s:{s:s}}", "status", &status, "cached", &is_cached,
                    "artifact", "base64", &object) != 0 ||
        strcmp(status, "ok") != 0) {
        fprintf(stderr, "compile: %s: got %ld %s\n", subject->name, reply->status,
                reply->body.data);
        error = -EBADMSG;
    }
    answer->is_cached = is_cached;
    answer->prefix_ms = number_of(json, "timings", "prefix_ms");
    answer->queued_ms = number_of(json, "timings", "queued_ms");
    answer->leaf_ms = number_of(json, "timings", "leaf_ms");
    answer->suffix_ms = number_of(json, "timings", "suffix_ms");
    answer->prefix = json_is_true(json_object_get(timings, "head_start")) ? SITE_PREFIX_READ
                     : json_is_true(json_object_get(timings, "preamble")) ? SITE_PREFIX_PRECOMPILED
                                                                          : SITE_PREFIX_NONE;
    answer->worker_ms = number_of(json, "usage", "wall_ms");
    answer->take_ms = number_of(json, "usage", "take_ms");
    answer->hand_over_ms = number_of(json, "usage", "hand_over_ms");
    answer->run_ms = number_of(json, "usage", "run_ms");
    answer->cpu_ms = number_of(json, "usage", "cpu_ms");
    answer->memory_peak_bytes = number_of(json, "usage", "memory_peak_bytes");
    trace_read(json_object_get(json, "time_trace"), answer->trace_ms);
    if (error == 0)
        error = object_compare(subject, object);
    json_decref(json);
    return error;
}

static void trace_read(const json_t *trace, double ms[SITE_TRACES])
{
    double front = trace_total_ms(trace, "Total Frontend");

    ms[SITE_TRACE_DRIVER] = trace_total_ms(trace, "Total Driver");
    ms[SITE_TRACE_HEADERS] = trace_headers_ms(trace);
    ms[SITE_TRACE_IR] = trace_total_ms(trace, "Total CodeGen Function");
    ms[SITE_TRACE_SEMA] = front - ms[SITE_TRACE_HEADERS] - ms[SITE_TRACE_IR];
    ms[SITE_TRACE_PASSES] = trace_total_ms(trace, "Total Optimizer");
    ms[SITE_TRACE_CODE] = trace_total_ms(trace, "Total CodeGenPasses");
}

/* Each header has a begin and an end, and lies within the one that includes it; those that took
 * least are left out. */
static double trace_headers_ms(const json_t *trace)
{
    const json_t *events = json_object_get(trace, "traceEvents"), *event;
    struct edge *edges = calloc(json_array_size(events) + 1, sizeof *edges);
    size_t count = 0, i;
    double sum_us = 0, begin_us = 0;
    int depth = 0;

    json_array_foreach(events, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *phase = json_string_value(json_object_get(event, "ph"));

        if (edges == NULL || name == NULL || phase == NULL || strcmp(name, "Source") != 0)
            continue;
        edges[count++] =
            (struct edge){json_number_value(json_object_get(event, "ts")), *phase == 'b' ? 1 : -1};
    }
    if (edges != NULL)
        qsort(edges, count, sizeof *edges, by_time);
    for (i = 0; i < count; i++) {
        if (depth == 0)
            begin_us = edges[i].us;
        depth += edges[i].step;
        if (depth == 0)
            sum_us += edges[i].us - begin_us;
    }
    free(edges);
    return sum_us / 1000;
}

/* One that begins where another ends comes first. */
static int by_time(const void *a, const void *b)
{
    const struct edge *one = a, *other = b;

    if (one->us != other->us)
        return one->us < other->us ? -1 : 1;
    return other->step - one->step;
}

/* 0: nothing of that name took time. */
static double trace_total_ms(const json_t *trace, const char *name)
{
    const json_t *event;
    size_t i;

    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *is = json_string_value(json_object_get(event, "name"));

        if (is != NULL && strcmp(is, name) == 0)
            return json_number_value(json_object_get(event, "dur")) / 1000;
    }
    return 0;
}

static int object_compare(struct subject *subject, const char *base64)
{
    size_t count = strlen(base64);
    char *object = malloc(count + 1);
    int error = object == NULL ? -ENOMEM : base64_decode(base64, object, &count);

    if (error == 0)
        error = subject_check(subject, object, count);
    if (error == -EBADMSG)
        fprintf(stderr, "compile: %s: an object is not that of the compiles before\n",
                subject->name);
    free(object);
    return error;
}

static int base64_decode(const char *text, char *out, size_t *count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, bit_count = 0;

    *count = 0;
    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);

        if (digit == NULL)
            return -EBADMSG;
        bits = bits << 6 | (unsigned)(digit - digits);
        bit_count += 6;
        if (bit_count < 8)
            continue;
        bit_count -= 8;
        out[(*count)++] = (char)(bits >> bit_count & 0xff);
    }
    return 0;
}

static double number_of(const json_t *json, const char *object, const char *member)
{
    const json_t *number = json_object_get(json_object_get(json, object), member);

    return json_is_number(number) ? json_number_value(number) : NAN;
}

/* ---- memory ---- */

/* By its name. */
static bool is_prefix_zygote(const char *process)
{
    char path[PROCESS_BYTES], name[32] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/%.20s/comm", process);
    file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof name, file) == NULL)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strcmp(name, "mw-prefix\n") == 0;
}

/* 0: it is no process, or has ended. */
static pid_t parent_of(const char *process)
{
    char path[PROCESS_BYTES];
    FILE *file;
    int parent = 0;

    if (process[0] < '1' || process[0] > '9' ||
        snprintf(path, sizeof path, "/proc/%.20s/stat", process) < 0)
        return 0;
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1)
        parent = 0;
    fclose(file);
    return (pid_t)parent;
}

static double proportional_bytes(pid_t pid)
{
    char path[PROCESS_BYTES], line[128];
    double kilobytes = NAN;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return NAN;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Pss: %lf kB", &kilobytes) == 1)
            break;
    fclose(file);
    return kilobytes * 1024;
}

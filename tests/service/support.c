#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/process.h"

static const char *const two_lane_threads[] = {"--lane-cap", "2", NULL};

int room_setup(void **state)
{
    struct room *room = calloc(1, sizeof *room);

    assert_non_null(room);
    strcpy(room->folder, "/tmp/mw-service-test-XXXXXX");
    assert_non_null(mkdtemp(room->folder));
    *state = room;
    return 0;
}

int room_setup_started(void **state)
{
    room_setup(state);
    room_start(*state, two_lane_threads);
    return 0;
}

int room_teardown(void **state)
{
    struct room *room = *state;

    if (room->client.curl)
        client_close(&room->client);
    if (room->server.pid > 0)
        server_kill(&room->server);
    else
        server_stop(&room->server); /* frees what is left */
    process_run("/", (const char *[]){"rm", "-rf", room->folder, NULL}, NULL, NULL);
    free(room);
    return 0;
}

void room_start(struct room *room, const char *const *options)
{
    server_start(&room->server, program_path(), room->folder, options);
    client_open(&room->client, &room->server);
}

void room_stop(struct room *room)
{
    client_close(&room->client);
    assert_int_equal(server_stop(&room->server), 0);
}

const char *program_path(void)
{
    const char *program = getenv("MW_PROGRAM");

    if (!program)
        fail_msg("MW_PROGRAM must name the millwright to test; run this through ctest");
    return program;
}

struct answer post_bytes(struct room *room, const char *body, size_t bytes)
{
    return ask(room, &(struct request){.path = "/v1/compile", .body = body, .body_bytes = bytes});
}

struct answer post(struct room *room, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    struct answer answer;

    assert_non_null(text);
    answer = post_bytes(room, text, strlen(text));
    free(text);
    json_decref(body);
    return answer;
}

struct answer ask(struct room *room, const struct request *request)
{
    struct answer answer = {0};

    client_send(&room->client, request, &answer.reply);
    answer.status = answer.reply.status;
    answer.json = json_loadb(answer.reply.body.data, answer.reply.body.count, 0, NULL);
    return answer;
}

void answer_free(struct answer *answer)
{
    json_decref(answer->json);
    reply_free(&answer->reply);
    answer->json = NULL;
}

const char *text_of(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    return text ? text : "";
}

json_int_t number_of(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);

    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static unsigned sextet(char digit)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = digit ? strchr(digits, digit) : NULL;

    if (!at)
        fail_msg("'%c' is no digit of base64", digit);
    return (unsigned)(at - digits);
}

struct bytes base64_bytes(const json_t *text)
{
    const char *at = json_string_value(text);
    size_t length = json_string_length(text);
    struct bytes bytes = {.data = calloc(1, length + 1)};

    assert_non_null(at);
    assert_non_null(bytes.data);
    assert_int_equal(length % 4, 0);
    for (; length > 0 && *at != '='; at += 4, length -= 4) {
        unsigned a = sextet(at[0]), b = sextet(at[1]);

        bytes.data[bytes.count++] = (char)(a << 2 | b >> 4);
        if (at[2] == '=')
            break;
        bytes.data[bytes.count++] = (char)(b << 4 | sextet(at[2]) >> 2);
        if (at[3] == '=')
            break;
        bytes.data[bytes.count++] = (char)(sextet(at[2]) << 6 | sextet(at[3]));
    }
    return bytes;
}

bool bytes_contain(const struct bytes *bytes, const char *text)
{
    return memmem(bytes->data, bytes->count, text, strlen(text)) != NULL;
}

void expect_problem(struct answer answer, long status, const char *slug, const char *member,
                    const char *subject, const char *detail)
{
    const char *type = reply_header(&answer.reply, "Content-Type");
    char urn[80];

    snprintf(urn, sizeof urn, "urn:millwright:problem:%s", slug);
    if (answer.status != status || !answer.json || strcmp(text_of(answer.json, "type"), urn) != 0)
        fail_msg("expected %ld %s, got %ld %s", status, urn, answer.status, answer.reply.body.data);
    assert_non_null(type);
    assert_string_equal(type, "application/problem+json");
    assert_int_equal(number_of(answer.json, "status"), status);
    assert_string_not_equal(text_of(answer.json, "title"), "");
    if (member)
        assert_string_equal(text_of(answer.json, member), subject);
    if (!strstr(text_of(answer.json, "detail"), detail))
        fail_msg("the detail '%s' does not say '%s'", text_of(answer.json, "detail"), detail);
    answer_free(&answer);
}

const char *what_is_wrong(struct room *room)
{
    static unsigned count;
    char symbol[32], source[96];
    siginfo_t ended = {0};
    struct reply reply;
    json_t *body, *json;
    struct bytes object;
    char *text;
    bool found;

    if (waitid(P_PID, (id_t)room->server.pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid != 0)
        return "the process is gone";
    snprintf(symbol, sizeof symbol, "goes_on_%u", count++);
    snprintf(source, sizeof source, "#include <stddef.h>\nsize_t %s = sizeof(int);\n", symbol);
    body =
        json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms", PATIENT_MS);
    text = json_dumps(body, JSON_COMPACT);
    client_send(&room->client,
                &(struct request){.path = "/v1/compile?include=artifact", .body = text}, &reply);
    free(text);
    json_decref(body);
    json = json_loadb(reply.body.data, reply.body.count, 0, NULL);
    reply_free(&reply);
    if (strcmp(text_of(json, "status"), "ok") != 0) {
        json_decref(json);
        return "a good source does not compile";
    }
    object = base64_bytes(json_object_get(json_object_get(json, "artifact"), "base64"));
    found = bytes_contain(&object, symbol);
    free(object.data);
    json_decref(json);
    return found ? NULL : "the object is that of another source";
}

void expect_service_goes_on(struct room *room)
{
    const char *wrong = what_is_wrong(room);

    if (wrong)
        fail_msg("the service does not go on: %s", wrong);
}

char *slow_source(unsigned tag, unsigned rounds)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    fputs("constexpr unsigned spin(unsigned n)\n"
          "{ unsigned s = 0; for (unsigned i = 0; i < n; i++) s = s * 31 + i; return s; }\n",
          out);
    for (unsigned i = 0; i < rounds; i++)
        fprintf(out, "static_assert(spin(%u) != 7, \"\");\n", 50000 + i);
    fprintf(out, "int slow_%u = %u;\n", tag, tag);
    assert_int_equal(fclose(out), 0);
    return text;
}

json_t *slow_body(unsigned tag, unsigned rounds, unsigned timeout_ms)
{
    char *source = slow_source(tag, rounds);
    json_t *body = json_pack("{s:s, s:s, s:i}", "language", "c++", "source", source, "timeout_ms",
                             (int)timeout_ms);

    assert_non_null(body);
    free(source);
    return body;
}

json_int_t lane_number(struct room *room, const char *lane, const char *member)
{
    struct answer answer = ask(room, &(struct request){.path = "/v1/lanes"});
    json_int_t number = -1;
    const json_t *entry;
    size_t i;

    assert_int_equal(answer.status, 200);
    json_array_foreach(json_object_get(answer.json, "lanes"), i, entry)
    {
        if (strcmp(text_of(entry, "name"), lane) == 0)
            number = number_of(entry, member);
    }
    if (number < 0)
        fail_msg("GET /v1/lanes shows no %s of %s", member, lane);
    answer_free(&answer);
    return number;
}

double metric(struct room *room, const char *name)
{
    struct answer answer = ask(room, &(struct request){.path = "/metrics"});
    char line[128];
    const char *at;
    double value;

    assert_int_equal(answer.status, 200);
    snprintf(line, sizeof line, "\n%s ", name);
    at = strstr(answer.reply.body.data, line);
    if (!at)
        fail_msg("GET /metrics shows no %s", name);
    value = strtod(at + strlen(line), NULL);
    answer_free(&answer);
    return value;
}

long process_number(pid_t pid, const char *name)
{
    char path[64], line[256];
    long value = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            value = strtol(line + strlen(name) + 1, NULL, 10);
    if (file)
        fclose(file);
    return value;
}

/* Entries of a folder in /proc/PID. */
static unsigned entries_of(pid_t pid, const char *name)
{
    char path[64];
    unsigned count = 0;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

unsigned process_threads(pid_t pid)
{
    return entries_of(pid, "task");
}

/* The parent of a process, or 0 when it is gone. The name before it may hold anything. */
static pid_t parent_of(const char *pid)
{
    char path[64], line[512] = "";
    int parent = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
        (void)sscanf(strrchr(line, ')'), ") %*c %d", &parent);
    if (file)
        fclose(file);
    return (pid_t)parent;
}

struct family process_family(pid_t pid)
{
    struct family family = {0};
    DIR *folder = opendir("/proc");

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == pid) {
            pid_t child = (pid_t)atoi(entry->d_name);
            struct family below = process_family(child);
            long resident_kb = process_number(child, "VmRSS"); /* -1: it is gone */

            family.processes += 1 + below.processes;
            family.resident_kb += below.resident_kb + (resident_kb > 0 ? resident_kb : 0);
        }
    closedir(folder);
    return family;
}

unsigned process_descendants(pid_t pid)
{
    return process_family(pid).processes;
}

unsigned process_descriptors(pid_t pid)
{
    return entries_of(pid, "fd");
}

json_int_t isolation_number(struct room *room, const char *member)
{
    struct answer answer = ask(room, &(struct request){.path = "/v1/isolation"});
    json_int_t number = number_of(answer.json, member);

    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    return number;
}

/* Behind each prefix, and behind none, wait a zygote and as many workers as the lane has threads: 2
 * in these tests. */
#define ZYGOTE_FAMILY 3u

static bool is_quiet(struct room *room)
{
    unsigned zygotes = 1 + (unsigned)isolation_number(room, "head_starts");

    return lane_number(room, "compile-cpu", "running") == 0 &&
           isolation_number(room, "running") == 0 &&
           isolation_number(room, "ready") >= zygotes * (ZYGOTE_FAMILY - 1) &&
           process_descendants(room->server.pid) <= zygotes * ZYGOTE_FAMILY;
}

/* Until nothing runs and the workers that should wait do. */
static void until_quiet(struct room *room)
{
    const unsigned looks_max = 30000; /* far above what a slow machine needs */
    unsigned looks = 0;

    while (!is_quiet(room)) {
        if (looks++ > looks_max)
            fail_msg("the service does not come to rest: %u processes",
                     process_descendants(room->server.pid));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

struct house_mark house_mark(struct room *room)
{
    struct family family;

    until_quiet(room);
    family = process_family(room->server.pid);
    return (struct house_mark){
        .processes =
            family.processes - ZYGOTE_FAMILY * (unsigned)isolation_number(room, "head_starts"),
        .descriptors = process_descriptors(room->server.pid),
        .resident_kb = process_number(room->server.pid, "VmRSS"),
        .family_kb = family.resident_kb,
    };
}

void house_say(const struct house_mark *before, const struct house_mark *now)
{
    printf("processes %u, then %u; descriptors %u, then %u; resident %ld KiB, then %ld; of zygote "
           "and workers %ld KiB, then %ld\n",
           before->processes, now->processes, before->descriptors, now->descriptors,
           before->resident_kb, now->resident_kb, before->family_kb, now->family_kb);
    fflush(stdout);
}

/* A connection to the store is opened at need and kept: those are the spare descriptors. */
struct house_mark expect_house_as_marked(struct room *room, const struct house_mark *mark,
                                         long growth_kb)
{
    const unsigned spare_descriptors = 24;
    struct house_mark now = house_mark(room);

    if (now.processes != mark->processes)
        fail_msg("%u processes are there, %u were", now.processes, mark->processes);
    if (now.descriptors > mark->descriptors + spare_descriptors)
        fail_msg("%u descriptors are open, %u were", now.descriptors, mark->descriptors);
    if (now.resident_kb > mark->resident_kb + growth_kb)
        fail_msg("%ld KiB are resident, %ld were", now.resident_kb, mark->resident_kb);
    if (now.family_kb > mark->family_kb + growth_kb)
        fail_msg("%ld KiB of zygote and workers are resident, %ld were", now.family_kb,
                 mark->family_kb);
    return now;
}

/* hostile_test.c - source that kills, hangs or fills, and source that reads what it should not,
 * over HTTP against the real program as it is when nobody sets anything: isolated. Controls compile
 * the same in a process of their own choice without the guards, where it does what it is meant to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/hostile_sources.h"
#include "service/support.h"
#include "service/swarm.h"
#include "support/process.h"
#include "support/sanitized.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define SECRET "mw_secret_of_the_machine"

/* Far below what one of these sources would take; a sanitizer keeps what is freed. */
#define GROWTH_KB_MAX (SANITIZED ? 1024 << 10 : 96 << 10)

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- source that kills, hangs or fills ---- */

/* What of a service must be as it was, and how late the latest answer was. */
struct watch {
    struct room *room;
    const struct hostile_limits *limits;
    char *object; /* of before_and_after, in base64 */
    struct house_mark mark;
    double late_ms;
    const char *latest;
};

/* With inline assembly, so that nothing of it comes out of the store. */
static char *object_before_and_after(struct room *room)
{
    static const char source[] = "#include <stdio.h>\n__asm__(\"nop\");\n"
                                 "int twice(int a) { return printf(\"%d\", a) + a; }\n";
    json_t *body = json_pack("{s:s, s:s, s:[s, s], s:i}", "language", "c", "source", source, "args",
                             "-O2", "-g", "timeout_ms", PATIENT_MS);
    char *text = json_dumps(body, JSON_COMPACT);
    struct request request = {.path = "/v1/compile?include=artifact", .body = text};
    struct answer answer = ask(room, &request);
    char *object;

    assert_int_equal(answer.status, 200);
    assert_true(json_is_false(json_object_get(answer.json, "cached")));
    object = strdup(text_of(json_object_get(answer.json, "artifact"), "base64"));
    assert_string_not_equal(object, "");
    answer_free(&answer);
    free(text);
    json_decref(body);
    return object;
}

static struct watch watch_begin(struct room *room, const struct hostile_limits *limits)
{
    struct watch watch = {.room = room, .limits = limits, .latest = "none"};

    expect_service_goes_on(room);
    watch.object = object_before_and_after(room);
    watch.mark = house_mark(room);
    printf("%-32s %-8s %9s %6s %6s | %s\n", "source", "ended by", "answered", "CPU", "peak",
           "growth of the service and of its workers");
    return watch;
}

static void watch_end(struct watch *watch)
{
    struct house_mark now = expect_house_as_marked(watch->room, &watch->mark, GROWTH_KB_MAX);

    house_say(&watch->mark, &now);
    free(watch->object);
}

/* How much of a limit an answer says was used, in the unit of its value. */
static double used_of(const json_t *answer, const char *limit)
{
    static const char *const members[][2] = {{"wall", "wall_ms"},
                                             {"cpu", "cpu_ms"},
                                             {"memory", "memory_peak_bytes"},
                                             {"output", "limit_value"}};

    for (size_t i = 0; i < COUNT(members); i++)
        if (strcmp(limit, members[i][0]) == 0)
            return json_number_value(json_object_get(answer, members[i][1]));
    return 0;
}

static double value_of(const struct hostile_limits *limits, const char *limit)
{
    const struct {
        const char *limit;
        json_int_t value;
    } values[] = {{"wall", limits->wall_ms},
                  {"cpu", limits->cpu_ms},
                  {"memory", limits->memory_bytes},
                  {"output", limits->output_bytes}};

    for (size_t i = 0; i < COUNT(values); i++)
        if (strcmp(limit, values[i].limit) == 0)
            return (double)values[i].value;
    return 0;
}

static void compile_hostile(struct watch *watch, const struct hostile_source *source)
{
    double begin = now_ms(), took_ms;
    struct answer answer = post(watch->room, hostile_body(source, 0, watch->limits));
    const char *outcome = hostile_outcome(answer.status, answer.json);
    const json_t *usage =
        answer.status == 422 ? answer.json : json_object_get(answer.json, "usage");
    struct house_mark now;
    char *object;

    took_ms = now_ms() - begin;
    if (strcmp(outcome, "?") == 0 || (!SANITIZED && !hostile_allows(source, outcome)))
        fail_msg("%s: %ld %s", source->name, answer.status, answer.reply.body.data);
    if (answer.status == 422 &&
        (double)number_of(answer.json, "limit_value") != value_of(watch->limits, outcome))
        fail_msg("%s: its answer tells another %s limit", source->name, outcome);
    if (used_of(usage, "memory") <= 0)
        fail_msg("%s: its answer does not say what was used", source->name);
    if (took_ms - (double)watch->limits->wall_ms > watch->late_ms) {
        watch->late_ms = took_ms - (double)watch->limits->wall_ms;
        watch->latest = source->name;
    }
    object = object_before_and_after(watch->room);
    if (strcmp(object, watch->object) != 0)
        fail_msg("%s: after it the same source gives other bytes", source->name);
    free(object);
    now = expect_house_as_marked(watch->room, &watch->mark, GROWTH_KB_MAX);
    printf("%-32s %-8s %6.0f ms %6.0f %5.0fM | %+ld KiB, %+ld KiB\n", source->name, outcome,
           took_ms, used_of(usage, "cpu"), used_of(usage, "memory") / (1 << 20),
           now.resident_kb - watch->mark.resident_kb, now.family_kb - watch->mark.family_kb);
    fflush(stdout);
    answer_free(&answer);
}

/* Broken when one of them ends the service, spoils the next compile, goes past its limits, is not
 * answered, or leaves a process, a descriptor or its memory behind. */
static void source_that_kills_hangs_or_fills_is_answered(void **state)
{
    struct watch watch = watch_begin(*state, &hostile_tight);

    for (size_t i = 0; i < hostile_source_count; i++)
        compile_hostile(&watch, &hostile_sources[i]);
    watch_end(&watch);
}

/* The same where each may grow until its time is up. Broken, too, when an answer comes long after
 * the deadline; how long is printed, and should be below 250 ms on a machine at rest. */
static void source_that_grows_is_answered_at_its_deadline(void **state)
{
    const double late_ms_max = 40 * 250; /* of a machine that is not */
    struct watch watch = watch_begin(*state, &hostile_wall);

    for (size_t i = 0; i < hostile_source_count; i++)
        compile_hostile(&watch, &hostile_sources[i]);
    watch_end(&watch);
    printf("the latest answer came %.0f ms after its deadline: %s\n", watch.late_ms, watch.latest);
    if (!SANITIZED && watch.late_ms > late_ms_max)
        fail_msg("%s: answered %.0f ms after its deadline", watch.latest, watch.late_ms);
}

/* Control: what a limit ended takes more when it may have three times as much, so it was the limit
 * and nothing else that ended it. */
static void control_with_more_each_takes_more(void **state)
{
    const struct hostile_limits more = {hostile_tight.wall_ms, 3 * hostile_tight.cpu_ms,
                                        3 * hostile_tight.memory_bytes,
                                        3 * hostile_tight.output_bytes};
    struct room *room = *state;

    if (SANITIZED)
        skip();
    for (size_t i = 0; i < hostile_source_count; i++) {
        struct answer first, second;
        const char *limit;

        if (!hostile_is_endless(&hostile_sources[i]))
            continue;
        first = post(room, hostile_body(&hostile_sources[i], 1, &hostile_tight));
        second = post(room, hostile_body(&hostile_sources[i], 1, &more));
        limit = hostile_outcome(first.status, first.json);
        if (used_of(second.json, limit) <= 1.5 * value_of(&hostile_tight, limit))
            fail_msg("%s: ended by %s, and with more: %s", hostile_sources[i].name, limit,
                     second.reply.body.data);
        answer_free(&first);
        answer_free(&second);
    }
}

/* Control: clang itself crashes or hangs on those that a service takes as if nothing were there. */
static void control_pragmas_crash_clang(void **state)
{
    struct room *room = *state;
    char *path = path_join(room->folder, "pragma.c");
    char *log = path_join(room->folder, "pragma.log");
    size_t tried = 0;

    for (size_t i = 0; i < hostile_source_count; i++) {
        const char *text = hostile_sources[i].text;

        /* that one would hang */
        if (!text || strncmp(text, "#pragma", 7) != 0 || strstr(text, "overflow_stack"))
            continue;
        file_write(path, text, strlen(text));
        if (process_run(
                room->folder,
                (const char *[]){"clang-19", "-fno-crash-diagnostics", "-c", "pragma.c", NULL},
                NULL, log) == 0)
            fail_msg("%s: clang compiles it", hostile_sources[i].name);
        tried++;
    }
    assert_true(tried >= 3);
    free(path);
    free(log);
}

/* Broken when what hit a limit is kept, or when a limit is part of the key. */
static void what_hits_a_limit_is_not_kept(void **state)
{
    struct room *room = *state;
    const json_int_t limits[] = {100000, 4 << 20, 100000};
    const bool stored_before[] = {false, false, true};
    char key[80] = "";

    for (size_t i = 0; i < COUNT(limits); i++) {
        struct answer answer =
            post(room, json_pack("{s:s, s:s, s:i, s:{s:I}}", "language", "c", "source",
                                 "char a[1 << 20] = {1};\n", "timeout_ms", PATIENT_MS, "limits",
                                 "output_bytes", limits[i]));

        if (i == 0) {
            assert_string_equal(hostile_outcome(answer.status, answer.json), "output");
        } else {
            assert_string_equal(hostile_outcome(answer.status, answer.json), "ok");
            assert_int_equal(json_is_true(json_object_get(answer.json, "cached")),
                             stored_before[i]);
            if (key[0])
                assert_string_equal(text_of(answer.json, "key"), key);
            snprintf(key, sizeof key, "%s", text_of(answer.json, "key"));
        }
        answer_free(&answer);
    }
}

/* Control: the service's own process does not live through those that say so. */
static void control_the_same_ends_a_service_that_compiles_in_process(void **state)
{
    struct room *room = *state;

    for (size_t i = 0; i < hostile_source_count; i++) {
        struct swarm *swarm;

        if (!hostile_sources[i].ends_host)
            continue;
        room_start(room, (const char *[]){"--isolation", "in-process", NULL});
        swarm = swarm_new(&room->server);
        swarm_post(swarm, "/v1/compile", hostile_body(&hostile_sources[i], 0, NULL));
        swarm_finish(swarm);
        if (swarm->requests[0].code == CURLE_OK)
            fail_msg("%s: was answered", hostile_sources[i].name);
        swarm_free(swarm);
        client_close(&room->client);
        if (server_stop(&room->server) == 0) /* by a signal; a sanitizer makes a status of it */
            fail_msg("%s: the process ended as it should", hostile_sources[i].name);
    }
}

/* Control: where nobody can be ended, one that hangs keeps its place on the lane after its client
 * has had its answer. */
static void control_the_same_holds_the_lane_of_a_service_in_process(void **state)
{
    struct room *room = *state;
    json_t *body = NULL;

    for (size_t i = 0; i < hostile_source_count; i++)
        if (strcmp(hostile_sources[i].name, "repetition") == 0)
            body = hostile_body(&hostile_sources[i], 0, NULL);
    assert_non_null(body);
    json_object_set_new(body, "timeout_ms", json_integer(SANITIZED ? 5000 : 1000));
    room_start(room, (const char *[]){"--isolation", "in-process", "--lane-cap", "1", NULL});
    expect_problem(post(room, body), 504, "timeout", NULL, NULL, "timeout_ms");
    assert_int_equal(lane_number(room, "compile-cpu", "running"), 1);
    client_close(&room->client);
    server_kill(&room->server);
}

/* ---- source that reads what it should not ---- */

static const struct reader {
    const char *name;
    const char *source;  /* %s: the path of the file */
    const char *content; /* of the file */
    const char *flag;    /* NULL: none */
    const char *status;  /* isolated */
} readers[] = {
    {"include", "#include \"%s\"\n", "int " SECRET ";\n", NULL, "failed"},
    {"include in brackets", "#include <%s>\n", "int " SECRET ";\n", NULL, "failed"},
    {"include by digraph", "%%:include \"%s\"\n", "int " SECRET ";\n", NULL, "failed"},
    {"include by trigraph", "?\?=include \"%s\"\n", "int " SECRET ";\n", "-std=c11", "failed"},
    {"include by macro", "#define P \"%s\"\n#include P\n", "int " SECRET ";\n", NULL, "failed"},
    {"include up the tree", "#include \"../../../../../../../..%s\"\n", "int " SECRET ";\n", NULL,
     "failed"},
    {"next include", "#include_next \"%s\"\n", "int " SECRET ";\n", NULL, "failed"},
    {"import", "#import \"%s\"\n", "int " SECRET ";\n", NULL, "failed"},
    {"embed", "const char a[] = {\n#embed \"%s\"\n};\n", SECRET, "-std=c23", "failed"},
    {"embed by macro", "#define P \"%s\"\nconst char a[] = {\n#embed P\n};\n", SECRET, "-std=c23",
     "failed"},
    {"has_include", "#if __has_include(\"%s\")\nint " SECRET ";\n#endif\n", "", NULL, "ok"},
    {"has_include_next", "#if __has_include_next(\"%s\")\nint " SECRET ";\n#endif\n", "", NULL,
     "ok"},
    {"has_embed", "#if __has_embed(\"%s\")\nint " SECRET ";\n#endif\n", "x", "-std=c23", "ok"},
    {"incbin", "__asm__(\".incbin \\\"%s\\\"\");\n", SECRET, NULL, "failed"},
    {"incbin in a function", "void f(void) { __asm__(\".incbin \\\"%s\\\"\"); }\n", SECRET, NULL,
     "failed"},
    {"incbin of joined strings", "__asm__(\".inc\" \"bin \\\"\" \"%s\" \"\\\"\");\n", SECRET, NULL,
     "failed"},
    {"incbin by a macro of the assembler",
     "__asm__(\".macro m p\\n.incbin \\\"\\\\p\\\"\\n.endm\\nm %s\");\n", SECRET, NULL, "failed"},
    {"include of joined strings", "__asm__(\".inc\" \"lude \\\"\" \"%s\" \"\\\"\");\n",
     SECRET ": nop\n", NULL, "failed"},
    {"include of the assembler", "__asm__(\".include \\\"%s\\\"\");\n", SECRET ": nop\n", NULL,
     "failed"},
    {"include of what is no assembler", "__asm__(\".include \\\"%s\\\"\");\n",
     SECRET "::root:x:0:0\n", NULL, "failed"},
};

/* The file that is read, and the source that reads it. */
struct reading {
    char *secret;
    char *source;
};

static struct reading reading_new(const struct room *room, const struct reader *reader)
{
    struct reading reading = {.secret = path_join(room->folder, "secret")};

    file_write(reading.secret, reader->content, strlen(reader->content));
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
    if (asprintf(&reading.source, reader->source, reading.secret) < 0)
        fail_msg("no memory for a source");
#pragma clang diagnostic pop
    return reading;
}

static void reading_free(struct reading *reading)
{
    free(reading->secret);
    free(reading->source);
}

/* Broken when a source gets at the content of a file that is neither the request's nor the
 * toolchain's, or learns that there is one, or the answer shows any of it. */
static void source_that_reads_gets_nothing(void **state)
{
    struct room *room = *state;

    if (SANITIZED_THREADS)
        skip();
    for (size_t i = 0; i < COUNT(readers); i++) {
        struct reading reading = reading_new(room, &readers[i]);
        json_t *body = json_pack("{s:s, s:s, s:i, s:[]}", "language", "c", "source", reading.source,
                                 "timeout_ms", PATIENT_MS, "args");
        struct request request = {.path = "/v1/compile?include=artifact"};
        struct answer answer;
        json_t *artifact;
        char *text;

        if (readers[i].flag)
            json_array_append_new(json_object_get(body, "args"), json_string(readers[i].flag));
        request.body = text = json_dumps(body, JSON_COMPACT);
        answer = ask(room, &request);
        if (strcmp(text_of(answer.json, "status"), readers[i].status) != 0 ||
            bytes_contain(&answer.reply.body, SECRET))
            fail_msg("%s: %s", readers[i].name, answer.reply.body.data);
        artifact = json_object_get(answer.json, "artifact");
        if (json_is_object(artifact)) {
            struct bytes object = base64_bytes(json_object_get(artifact, "base64"));

            if (bytes_contain(&object, SECRET))
                fail_msg("%s: the object has it", readers[i].name);
            free(object.data);
        } else if (json_array_size(json_object_get(answer.json, "diagnostics")) == 0) {
            fail_msg("%s: failed and does not say why", readers[i].name);
        }
        answer_free(&answer);
        free(text);
        json_decref(body);
        reading_free(&reading);
    }
    expect_service_goes_on(room);
}

/* All that the answer to a reader tells: how it ended, its diagnostics, its artifact. */
static char *telling_of(struct room *room, const struct reader *reader, const char *source)
{
    json_t *body = json_pack("{s:s, s:s, s:i, s:[s]}", "language", "c", "source", source,
                             "timeout_ms", PATIENT_MS, "args", reader->flag ? reader->flag : "-O0");
    char *text = json_dumps(body, JSON_COMPACT), *telling;
    struct answer answer =
        ask(room, &(struct request){.path = "/v1/compile?include=artifact", .body = text});
    json_t *told;

    if (answer.status != 200 || json_is_true(json_object_get(answer.json, "cached")))
        fail_msg("%s: %ld %s", reader->name, answer.status, answer.reply.body.data);
    told = json_pack("[O, O, O]", json_object_get(answer.json, "status"),
                     json_object_get(answer.json, "diagnostics"),
                     json_object_get(answer.json, "artifact"));
    telling = json_dumps(told, JSON_COMPACT);
    assert_non_null(telling);
    json_decref(told);
    json_decref(body);
    answer_free(&answer);
    free(text);
    return telling;
}

/* Whether an answer tells a file that is there from one that is not. */
static bool is_told_apart(struct room *room, const struct reader *reader)
{
    struct reading reading = reading_new(room, reader);
    char *source, *with, *without;
    bool differs;

    /* inline assembly, so that nothing of it comes out of the store */
    assert_true(asprintf(&source, "%s__asm__(\"nop\");\n", reading.source) > 0);
    with = telling_of(room, reader, source);
    assert_int_equal(unlink(reading.secret), 0);
    without = telling_of(room, reader, source);
    differs = strcmp(with, without) != 0;
    if (differs)
        printf("%s: %s\nwithout: %s\n", reader->name, with, without);
    free(source);
    free(with);
    free(without);
    reading_free(&reading);
    return differs;
}

/* Broken when a source learns whether there is a file, in any way: by what it makes, or by how it
 * fails. Control: by inline assembly it does, where nothing keeps the files apart. */
static void source_learns_not_what_is_there(void **state)
{
    static const struct reader others[] = {
        {"dependency", "#pragma GCC dependency \"%s\"\n", "x", NULL, "failed"},
        {"another line's file", "#line 1 \"%s\"\nint none = ;\n", "int " SECRET ";\n", NULL,
         "failed"},
        {"another line's file by a marker", "# 1 \"%s\" 1 3\nint none = ;\n", "int " SECRET ";\n",
         NULL, "failed"},
        {"module map", "#pragma clang module import %s\n", "x", NULL, "failed"},
    };
    const struct reader *incbin = NULL;
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(readers); i++) {
        if (!SANITIZED_THREADS && is_told_apart(room, &readers[i]))
            fail_msg("%s: tells whether there is a file", readers[i].name);
        if (strcmp(readers[i].name, "incbin") == 0)
            incbin = &readers[i];
    }
    for (size_t i = 0; i < COUNT(others); i++)
        if (is_told_apart(room, &others[i]))
            fail_msg("%s: tells whether there is a file", others[i].name);
    room_stop(room);
    room_start(room, (const char *[]){"--isolation", "in-process", NULL});
    assert_non_null(incbin);
    assert_true(is_told_apart(room, incbin));
}

/* Control: each of these sources does get at it, or says what it holds, where files can be read. */
static void control_the_same_source_reads_where_it_may(void **state)
{
    struct room *room = *state;
    char *source_path = path_join(room->folder, "reader.c");
    char *object_path = path_join(room->folder, "reader.o");
    char *log_path = path_join(room->folder, "reader.log");

    for (size_t i = 0; i < COUNT(readers); i++) {
        struct reading reading = reading_new(room, &readers[i]);
        struct bytes object, log;

        file_write(source_path, reading.source, strlen(reading.source));
        file_write(object_path, "", 0);
        process_run(room->folder,
                    (const char *[]){program_path(), "compile", "reader.c", "-o", "reader.o", "--",
                                     readers[i].flag ? readers[i].flag : "-O0", NULL},
                    NULL, log_path);
        object = file_read(object_path);
        log = file_read(log_path);
        if (!bytes_contain(&object, SECRET) && !bytes_contain(&log, SECRET))
            fail_msg("%s: does not read: %s", readers[i].name, log.data);
        free(object.data);
        free(log.data);
        reading_free(&reading);
    }
    free(source_path);
    free(object_path);
    free(log_path);
}

/* Broken when a FIFO holds a compile up: nobody ever writes to it. */
static void a_fifo_holds_nobody_up(void **state)
{
    static const struct {
        const char *source, *status;
    } openers[] = {
        {"#include \"%s\"\n", "failed"},
        {"const char a[] = {\n#embed \"%s\"\n};\n", "failed"},
        {"#if __has_include(\"%s\") || __has_embed(\"%s\")\n#error there\n#endif\n", "ok"},
        {"__asm__(\".incbin \\\"%s\\\"\");\n", "failed"},
        {"__asm__(\".include \\\"%s\\\"\");\n", "failed"},
    };
    struct room *room = *state;
    char *fifo;

    if (SANITIZED_THREADS)
        skip();
    fifo = path_join(room->folder, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    for (size_t i = 0; i < COUNT(openers); i++) {
        char source[512];
        struct answer answer;

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
        snprintf(source, sizeof source, openers[i].source, fifo, fifo);
#pragma clang diagnostic pop
        answer = post(room, json_pack("{s:s, s:s, s:i, s:[s]}", "language", "c", "source", source,
                                      "timeout_ms", PATIENT_MS, "args", "-std=c23"));
        if (strcmp(text_of(answer.json, "status"), openers[i].status) != 0)
            fail_msg("%s: %ld %s", source, answer.status, answer.reply.body.data);
        answer_free(&answer);
    }
    free(fifo);
    expect_service_goes_on(room);
}

/* Control: where it may, the assembler waits for somebody to write to it, without end. */
static void control_a_fifo_holds_a_service_in_process_up(void **state)
{
    struct room *room = *state;
    char *fifo = path_join(room->folder, "fifo");
    char source[256];

    assert_int_equal(mkfifo(fifo, 0600), 0);
    room_start(room, (const char *[]){"--isolation", "in-process", "--lane-cap", "1", NULL});
    snprintf(source, sizeof source, "__asm__(\".incbin \\\"%s\\\"\");\n", fifo);
    expect_problem(post(room, json_pack("{s:s, s:s, s:i}", "language", "c", "source", source,
                                        "timeout_ms", SANITIZED ? 5000 : 1000)),
                   504, "timeout", NULL, NULL, "timeout_ms");
    assert_int_equal(lane_number(room, "compile-cpu", "running"), 1);
    free(fifo);
    client_close(&room->client);
    server_kill(&room->server);
}

/* ---- flags and environment ---- */

/* What clang would do with a flag that is refused: "FILE" it leaves in its folder, or "=TEXT" it
 * says or puts into what it makes. */
static const struct {
    const char *args[3];
    const char *effect;
} obeyed[] = {
    /* run or load */
    {{"-fno-integrated-as", "-B", "bin"}, "as-ran"},
    {{"-fplugin=bin/plugin.so"}, "=plugin.so"},
    {{"-fpass-plugin=bin/plugin.so"}, "=plugin.so"},
    {{"-Xclang", "-print-stats"}, "=STATISTICS"},
    {{"-mllvm", "-version"}, "=LLVM version"},
    /* read */
    {{"@flags"}, "=" SECRET},
    {{"--config=./flags"}, "=" SECRET},
    {{"-include", "../flags/bin/spy.h"}, "=" SECRET},
    {{"-include", "/etc/passwd"}, "=root:"},
    {{"-fsanitize=address", "-fsanitize-ignorelist=bin/spy.h"}, "=spy.h"},
    {{"-fprofile-instr-use=bin/spy.h"}, "=spy.h"},
    /* write */
    {{"-MD"}, "t.d"},
    {{"-MJ", "fragment"}, "fragment"},
    {{"-save-temps"}, "t.i"},
    {{"-ftime-trace"}, "t.json"},
    {{"-fproc-stat-report=stat"}, "stat"},
    {{"--serialize-diagnostics", "dia"}, "dia"},
    {{"-fsave-optimization-record"}, "t.opt.yaml"},
    {{"-ftest-coverage"}, "t.gcno"},
    {{"-g", "-gsplit-dwarf"}, "t.dwo"},
    {{"-gen-cdb-fragment-path", "cdb"}, "cdb"},
    {{"-o", "other"}, "other"},
    /* raise limits or leak */
    {{"-march=native", "-v"}, "=-target-cpu"},
    {{"-###"}, "=-cc1"},
    {{"-print-search-dirs"}, "=libraries:"},
};

static bool is_effect(const char *folder, const char *effect)
{
    char *path = path_join(folder, effect[0] == '=' ? "said" : effect);
    char *made = path_join(folder, "t.o");
    bool is = access(path, F_OK) == 0;

    if (effect[0] == '=' && is) {
        struct bytes said = file_read(path);

        is = bytes_contain(&said, effect + 1);
        free(said.data);
        if (!is && access(made, F_OK) == 0) {
            said = file_read(made);
            is = bytes_contain(&said, effect + 1);
            free(said.data);
        }
    }
    free(path);
    free(made);
    return is;
}

/* A folder below the room's with all that the flags lead to. */
static char *flags_folder_new(const struct room *room)
{
    static const char script[] = "#!/bin/sh\n: >as-ran\n";
    static const char spy[] = "int " SECRET ";\n", flags[] = "-include bin/spy.h\n";
    static const char source[] = "int a(int b) { return b; }\n";
    const struct {
        const char *name, *text;
    } files[] = {{"bin/as", script}, {"bin/spy.h", spy}, {"flags", flags}, {"t.c", source}};
    char *folder = path_join(room->folder, "flags"), *bin = path_join(folder, "bin");

    process_run(room->folder, (const char *[]){"rm", "-rf", "flags", NULL}, NULL, NULL);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(bin, 0700), 0);
    for (size_t i = 0; i < COUNT(files); i++) {
        char *path = path_join(folder, files[i].name);

        file_write(path, files[i].text, strlen(files[i].text));
        assert_int_equal(chmod(path, 0700), 0);
        free(path);
    }
    free(bin);
    return folder;
}

/* Broken when a flag that runs, reads, writes, raises or leaks comes through to the compiler of a
 * service; tests/compile/flags_test.c has all of them. Control: clang obeys each. */
static void flags_that_clang_would_obey_are_refused(void **state)
{
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(obeyed); i++) {
        char *folder = flags_folder_new(room), *said = path_join(folder, "said");
        const char *argv[8] = {"clang-19", "-c", "t.c"};
        json_t *args = json_array();

        for (size_t k = 0; k < 3 && obeyed[i].args[k]; k++) {
            json_array_append_new(args, json_string(obeyed[i].args[k]));
            argv[3 + k] = obeyed[i].args[k];
        }
        expect_problem(post(room, json_pack("{s:s, s:s, s:o}", "language", "c", "source",
                                            "int a(int b) { return b; }\n", "args", args)),
                       422, "flag-refused", NULL, NULL, ":");
        if (is_effect(room->folder, obeyed[i].effect))
            fail_msg("%s is refused and was obeyed", obeyed[i].args[0]);
        process_run(folder, argv, NULL, said);
        if (!is_effect(folder, obeyed[i].effect))
            fail_msg("the control fails: clang does not obey %s", obeyed[i].args[0]);
        free(folder);
        free(said);
    }
    expect_service_goes_on(room);
}

/* Set for a service; tests/compile/environment_test.c has each on its own, and its control. */
static const char *const variables[][2] = {
    {"CCC_OVERRIDE_OPTIONS", "# +-DSPY"},
    {"CPATH", "/tmp"},
    {"C_INCLUDE_PATH", "/tmp"},
    {"COMPILER_PATH", "/tmp"},
    {"GCC_EXEC_PREFIX", "/tmp/"},
    {"DEPENDENCIES_OUTPUT", "dependencies"},
    {"SUNPRO_DEPENDENCIES", "dependencies"},
    {"CC_PRINT_OPTIONS", "1"},
    {"CC_PRINT_OPTIONS_FILE", "options"},
    {"CC_LOG_DIAGNOSTICS", "1"},
    {"CC_LOG_DIAGNOSTICS_FILE", "diagnostics"},
    {"LIBCLANG_LOGGING", "2"},
    {"LIBCLANG_BGPRIO_INDEX", "1"},
    {"SOURCE_DATE_EPOCH", "0"},
    {"MW_SPY", "1"},
};

/* The environment that a process was started with, its NULs made spaces. */
static void environment_of(pid_t pid, char environment[16384])
{
    char path[64];
    FILE *file;
    size_t bytes;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    bytes = fread(environment, 1, 16383, file);
    fclose(file);
    environment[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if (environment[i] == '\0')
            environment[i] = ' ';
}

/* Broken when what stands in the service's environment comes to a worker, or changes what it makes.
 * The second variable is ours, so that libclang leaves the handlers of signals alone; the third is
 * for libc's malloc. */
static void the_environment_ends_at_the_service(void **state)
{
    struct room *room = *state;
    char *with, *without;
    char environment[16384];
    int zygote;
    char path[64];
    FILE *file;

    room_start(room, NULL);
    without = object_before_and_after(room);
    room_stop(room);
    for (size_t i = 0; i < COUNT(variables); i++)
        assert_int_equal(setenv(variables[i][0], variables[i][1], 1), 0);
    room_start(room, NULL);
    for (size_t i = 0; i < COUNT(variables); i++)
        assert_int_equal(unsetenv(variables[i][0]), 0);
    with = object_before_and_after(room);
    assert_string_equal(with, without);
    environment_of(room->server.pid, environment);
    assert_non_null(strstr(environment, "MW_SPY=1 ")); /* control: there it is */
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)room->server.pid,
             (int)room->server.pid);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &zygote), 1);
    fclose(file);
    environment_of(zygote, environment);
    assert_string_equal(environment, "LIBCLANG_NOTHREADS=1 LIBCLANG_DISABLE_CRASH_RECOVERY=1 "
                                     "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 ");
    free(with);
    free(without);
    room_stop(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(source_that_kills_hangs_or_fills_is_answered,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(source_that_grows_is_answered_at_its_deadline,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(control_with_more_each_takes_more, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(control_pragmas_crash_clang, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(what_hits_a_limit_is_not_kept, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(control_the_same_ends_a_service_that_compiles_in_process,
                                        room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(control_the_same_holds_the_lane_of_a_service_in_process,
                                        room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(source_that_reads_gets_nothing, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(control_the_same_source_reads_where_it_may, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(a_fifo_holds_nobody_up, room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(control_a_fifo_holds_a_service_in_process_up, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(source_learns_not_what_is_there, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(flags_that_clang_would_obey_are_refused, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(the_environment_ends_at_the_service, room_setup,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.hostile", tests, NULL, NULL);
}

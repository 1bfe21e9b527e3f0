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

static void expect_limit_told(const struct hostile_source *source, const json_t *answer)
{
    static const struct {
        const char *limit;
        json_int_t value;
    } given[] = {{"wall", HOSTILE_WALL_MS},
                 {"cpu", HOSTILE_CPU_MS},
                 {"memory", HOSTILE_MEMORY_BYTES},
                 {"output", HOSTILE_OUTPUT_BYTES}};

    for (size_t i = 0; i < COUNT(given); i++)
        if (strcmp(text_of(answer, "limit"), given[i].limit) == 0)
            assert_int_equal(number_of(answer, "limit_value"), given[i].value);
    if (number_of(answer, "memory_peak_bytes") <= 0)
        fail_msg("%s: its answer does not say what was used", source->name);
}

static void compile_hostile(struct room *room, const struct hostile_source *source)
{
    double begin = now_ms();
    struct answer answer = post(room, hostile_body(source, 0, true));
    const char *outcome = hostile_outcome(answer.status, answer.json);

    printf("%-32s %-8s after %5.0f ms\n", source->name, outcome, now_ms() - begin);
    if (strcmp(outcome, "?") == 0 || (!SANITIZED && !hostile_allows(source, outcome)))
        fail_msg("%s: %ld %s", source->name, answer.status, answer.reply.body.data);
    if (answer.status == 422)
        expect_limit_told(source, answer.json);
    answer_free(&answer);
    expect_service_goes_on(room);
}

/* Broken when one of them ends the service, spoils the next compile, goes past its limits, is not
 * answered, or leaves a process, a descriptor or its memory behind. */
static void source_that_kills_hangs_or_fills_is_answered(void **state)
{
    struct room *room = *state;
    struct house_mark mark;

    expect_service_goes_on(room);
    mark = house_mark(room);
    for (size_t i = 0; i < hostile_source_count; i++)
        compile_hostile(room, &hostile_sources[i]);
    expect_house_as_marked(room, &mark, GROWTH_KB_MAX);
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
        swarm_post(swarm, "/v1/compile", hostile_body(&hostile_sources[i], 0, false));
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
        if (strcmp(hostile_sources[i].name, "header within itself") == 0)
            body = hostile_body(&hostile_sources[i], 0, false);
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
    {"import", "#import \"%s\"\n", "int " SECRET ";\n", NULL, "failed"},
    {"embed", "const char a[] = {\n#embed \"%s\"\n};\n", SECRET, "-std=c23", "failed"},
    {"embed by macro", "#define P \"%s\"\nconst char a[] = {\n#embed P\n};\n", SECRET, "-std=c23",
     "failed"},
    {"has_include", "#if __has_include(\"%s\")\nint " SECRET ";\n#endif\n", "", NULL, "ok"},
    {"has_embed", "#if __has_embed(\"%s\")\nint " SECRET ";\n#endif\n", "x", "-std=c23", "ok"},
    {"incbin", "__asm__(\".incbin \\\"%s\\\"\");\n", SECRET, NULL, "failed"},
    {"incbin in a function", "void f(void) { __asm__(\".incbin \\\"%s\\\"\"); }\n", SECRET, NULL,
     "failed"},
    {"incbin of joined strings", "__asm__(\".inc\" \"bin \\\"\" \"%s\" \"\\\"\");\n", SECRET, NULL,
     "failed"},
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
    struct room *room = *state;
    char *fifo;

    if (SANITIZED_THREADS)
        skip();
    fifo = path_join(room->folder, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    for (int assembler = 0; assembler < 2; assembler++) {
        char source[256];
        struct answer answer;

        snprintf(source, sizeof source,
                 assembler ? "__asm__(\".incbin \\\"%s\\\"\");\n" : "#include \"%s\"\n", fifo);
        answer = post(room, json_pack("{s:s, s:s, s:i}", "language", "c", "source", source,
                                      "timeout_ms", PATIENT_MS));
        assert_int_equal(answer.status, 200);
        assert_string_equal(text_of(answer.json, "status"), "failed");
        answer_free(&answer);
    }
    free(fifo);
    expect_service_goes_on(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(source_that_kills_hangs_or_fills_is_answered,
                                        room_setup_started, room_teardown),
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
    };

    return cmocka_run_group_tests_name("service.hostile", tests, NULL, NULL);
}

/* compile_endpoint_test.c - POST /v1/compile with real sources, and the artifacts it leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A body that compiles `source` in `language`. */
static json_t *source_body(const char *language, const char *source)
{
    json_t *body = json_pack("{s:s, s:s, s:i}", "language", language, "source", source,
                             "timeout_ms", PATIENT_MS);

    assert_non_null(body);
    return body;
}

/* Expect 200 and a status; show the answer otherwise. */
static void expect_status(const struct answer *answer, const char *status)
{
    if (answer->status != 200 || strcmp(text_of(answer->json, "status"), status) != 0)
        fail_msg("expected 200 %s, got %ld %s", status, answer->status, answer->reply.body.data);
}

static const json_t *artifact_of(const struct answer *answer)
{
    return json_object_get(answer->json, "artifact");
}

/* GET the artifact that an answer names; the caller frees the reply. */
static struct reply fetch(struct room *room, const struct answer *answer)
{
    const char *url = text_of(artifact_of(answer), "url");
    char expected[128];
    struct reply reply;

    snprintf(expected, sizeof expected, "/v1/artifacts/%s", text_of(answer->json, "key"));
    assert_string_equal(url, expected);
    client_send(&room->client, &(struct request){.path = url}, &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.count, number_of(artifact_of(answer), "bytes"));
    return reply;
}

/* POST with ?include=artifact. */
static struct answer post_including(struct room *room, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    struct answer answer =
        ask(room, &(struct request){.path = "/v1/compile?include=artifact", .body = text});

    free(text);
    json_decref(body);
    return answer;
}

/* Broken when a language is not compiled, or the object is not that of the source. */
static void c_and_cxx_become_objects(void **state)
{
    static const struct {
        const char *language, *source, *symbol;
    } cases[] = {
        {"c", "#include <stdio.h>\nint greet(void) { return puts(\"hello, object\"); }\n", "greet"},
        {"c++",
         "#include <vector>\n#include <string>\n"
         "std::string greet(const std::vector<std::string> &v) { return v.at(0) + \"!\"; }\n",
         "_Z5greetRKSt6vector"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer = post(room, source_body(cases[i].language, cases[i].source));
        struct reply reply;

        expect_status(&answer, "ok");
        assert_string_equal(text_of(artifact_of(&answer), "kind"), "object");
        reply = fetch(room, &answer);
        assert_memory_equal(reply.body.data, "\177ELF", 4);
        assert_true(bytes_contain(&reply.body, cases[i].symbol));
        reply_free(&reply);
        answer_free(&answer);
    }
}

/* Broken when an answer's documented members are missing, or a leaf runs on another thread. */
static void an_answer_has_every_documented_member(void **state)
{
    struct answer answer = post(*state, source_body("c", "int members;\n"));
    const json_t *timings = json_object_get(answer.json, "timings");

    expect_status(&answer, "ok");
    assert_int_equal(json_object_size(answer.json), 9);
    assert_int_equal(strlen(text_of(answer.json, "key")), 64);
    assert_int_equal(strspn(text_of(answer.json, "key"), "0123456789abcdef"), 64);
    assert_true(json_is_false(json_object_get(answer.json, "cached")));
    assert_string_equal(text_of(answer.json, "thread"), "mw-cpu-lane");
    assert_int_equal(json_array_size(json_object_get(answer.json, "diagnostics")), 0);
    assert_int_equal(number_of(answer.json, "diagnostics_dropped"), 0);
    assert_int_equal(json_object_size(artifact_of(&answer)), 3);
    assert_int_equal(json_object_size(timings), 6);
    assert_true(json_is_false(json_object_get(timings, "head_start")));
    assert_int_equal(json_object_size(json_object_get(answer.json, "usage")), 6);
    assert_true(number_of(json_object_get(answer.json, "usage"), "memory_peak_bytes") > 0);
    assert_true(json_number_value(json_object_get(timings, "leaf_ms")) > 0);
    assert_true(json_is_number(json_object_get(timings, "prefix_ms")));
    assert_true(json_is_number(json_object_get(timings, "queued_ms")));
    assert_true(json_is_number(json_object_get(timings, "suffix_ms")));
    assert_string_equal(reply_header(&answer.reply, "Content-Type"), "application/json");
    answer_free(&answer);
}

/* Broken when files of a request do not see one another, or their content is mixed up. */
static void files_of_a_request_include_one_another(void **state)
{
    json_t *body = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:s, s:[s]}", "files", "name", "src/a.c",
        "content", "#include \"n.h\"\n#include \"inc/m.h\"\nint first[N], second[M];\n", "name",
        "src/n.h", "content", "#define N 42\n", "name", "inc/m.h", "content_base64",
        "I2RlZmluZSBNIDQzCg==", "main", "src/a.c", "args", "-I.");
    struct answer answer;

    json_object_set_new(body, "emit", json_string("asm"));
    answer = post_including(*state, body);
    expect_status(&answer, "ok");
    struct bytes text = base64_bytes(json_object_get(artifact_of(&answer), "base64"));
    assert_true(bytes_contain(&text, "first, 168"));
    assert_true(bytes_contain(&text, "second, 172"));
    free(text.data);
    answer_free(&answer);
}

/* Broken when a kind of output is not that kind, or is served with another's content type. */
static void every_kind_of_output_is_what_it_says(void **state)
{
    static const struct {
        const char *emit, *contains, *content_type;
    } cases[] = {
        {"object", "\177ELF", "application/octet-stream"},
        {"asm", ".globl\tkind_of_output", "text/plain; charset=utf-8"},
        {"llvm-ir", "@kind_of_output", "text/plain; charset=utf-8"},
        {"bitcode", "BC\xc0\xde", "application/octet-stream"},
        {"preprocessed", "int kind_of_output(void)", "text/plain; charset=utf-8"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        json_t *body = source_body("c", "#define TYPE int\nTYPE kind_of_output(void)"
                                        " { return 1; }\n");
        struct answer answer;
        struct reply reply;

        json_object_set_new(body, "emit", json_string(cases[i].emit));
        answer = post(room, body);
        expect_status(&answer, "ok");
        assert_string_equal(text_of(artifact_of(&answer), "kind"), cases[i].emit);
        reply = fetch(room, &answer);
        if (!bytes_contain(&reply.body, cases[i].contains))
            fail_msg("%s is not what it says", cases[i].emit);
        assert_string_equal(reply_header(&reply, "Content-Type"), cases[i].content_type);
        reply_free(&reply);
        answer_free(&answer);
    }
}

/* Broken when a check without output is not stored, or its key serves an artifact. */
static void a_check_without_output_has_no_artifact(void **state)
{
    struct room *room = *state;
    char path[128];

    for (int round = 0; round < 2; round++) {
        json_t *body = source_body("c", "int f(void) { int unused_one; return 0; }\n");
        struct answer answer;

        json_object_set_new(body, "emit", json_string("none"));
        json_object_set_new(body, "args", json_pack("[s]", "-Wall"));
        answer = post(room, body);
        expect_status(&answer, "ok");
        assert_true(json_is_null(artifact_of(&answer)));
        assert_int_equal(json_array_size(json_object_get(answer.json, "diagnostics")), 1);
        assert_int_equal(json_is_true(json_object_get(answer.json, "cached")), round);
        snprintf(path, sizeof path, "/v1/artifacts/%s", text_of(answer.json, "key"));
        answer_free(&answer);
    }
    expect_problem(ask(room, &(struct request){.path = path}), 404, "not-found", NULL, NULL,
                   "compile again");
}

/* Broken when the bytes in the answer are not those under the URL. */
static void included_bytes_equal_those_under_the_url(void **state)
{
    struct room *room = *state;

    for (int round = 0; round < 2; round++) {
        struct answer answer = post_including(room, source_body("c", "int included = 5;\n"));
        struct bytes bytes;
        struct reply reply;

        expect_status(&answer, "ok");
        assert_int_equal(json_is_true(json_object_get(answer.json, "cached")), round);
        bytes = base64_bytes(json_object_get(artifact_of(&answer), "base64"));
        reply = fetch(room, &answer);
        assert_int_equal(bytes.count, reply.body.count);
        assert_memory_equal(bytes.data, reply.body.data, bytes.count);
        free(bytes.data);
        reply_free(&reply);
        answer_free(&answer);
    }
}

/* Broken when the second compile is not answered from the store, takes lane admission, or loses
 * what the first one said. */
static void the_second_time_is_answered_from_the_store_with_the_same_diagnostics(void **state)
{
    static const char source[] = "int f(int x) { if (x = 1) return 2; int unused; return 0; }\n";
    struct room *room = *state;
    struct answer answers[2];
    json_int_t started[2];

    for (size_t i = 0; i < 2; i++) {
        json_t *body = source_body("c", source);

        json_object_set_new(body, "args", json_pack("[s]", "-Wall"));
        answers[i] = post(room, body);
        expect_status(&answers[i], "ok");
        started[i] = lane_number(room, "compile-cpu", "started");
    }
    assert_true(json_is_false(json_object_get(answers[0].json, "cached")));
    assert_true(json_is_true(json_object_get(answers[1].json, "cached")));
    assert_true(json_is_null(json_object_get(answers[1].json, "thread")));
    assert_int_equal(started[0], started[1]);
    assert_string_equal(text_of(answers[0].json, "key"), text_of(answers[1].json, "key"));
    assert_true(json_array_size(json_object_get(answers[0].json, "diagnostics")) == 2);
    assert_true(json_equal(json_object_get(answers[0].json, "diagnostics"),
                           json_object_get(answers[1].json, "diagnostics")));
    answer_free(&answers[0]);
    answer_free(&answers[1]);
}

/* Broken when a run option enters the key, or a canonical one does not. */
static void the_key_moves_with_what_decides_the_bytes_only(void **state)
{
    struct room *room = *state;
    struct answer first = post(room, source_body("c", "int keyed;\n"));
    json_t *same = source_body("c", "int keyed;\n"), *other = source_body("c", "int keyed;\n");
    struct answer again;

    json_object_set_new(same, "timeout_ms", json_integer(100000));
    again = post(room, same);
    assert_string_equal(text_of(first.json, "key"), text_of(again.json, "key"));
    assert_true(json_is_true(json_object_get(again.json, "cached")));
    answer_free(&again);
    json_object_set_new(other, "directory", json_string("/other"));
    again = post(room, other);
    expect_status(&again, "ok");
    assert_string_not_equal(text_of(first.json, "key"), text_of(again.json, "key"));
    answer_free(&again);
    answer_free(&first);
}

/* Broken when a compile with errors is no answer, is stored, or leaves an artifact. */
static void a_failed_compile_is_an_answer_and_not_stored(void **state)
{
    struct room *room = *state;

    for (int round = 0; round < 2; round++) {
        struct answer answer = post(room, source_body("c", "int f(void) { return missing; }\n"));
        const json_t *entry = json_array_get(json_object_get(answer.json, "diagnostics"), 0);
        char path[128];

        expect_status(&answer, "failed");
        assert_true(json_is_null(artifact_of(&answer)));
        assert_true(json_is_false(json_object_get(answer.json, "cached")));
        assert_string_equal(text_of(answer.json, "thread"), "mw-cpu-lane");
        assert_string_equal(text_of(entry, "severity"), "error");
        snprintf(path, sizeof path, "/v1/artifacts/%s", text_of(answer.json, "key"));
        answer_free(&answer);
        expect_problem(ask(room, &(struct request){.path = path}), 404, "not-found", NULL, NULL,
                       "compile again");
    }
}

/* The diagnostic whose message contains `text`. */
static const json_t *entry_saying(const json_t *list, const char *text)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        if (strstr(text_of(entry, "message"), text))
            return entry;
    }
    fail_msg("no diagnostic says '%s'", text);
    return NULL;
}

/* Broken when a diagnostic's place, range, flag, fix-it or note is not the compiler's. */
static void diagnostics_say_where_what_and_how_to_mend_it(void **state)
{
    json_t *body = source_body("c", "int g(int);\n"
                                    "int f(int x)\n"
                                    "{\n"
                                    "    if (x = 1) return g(x, 2);\n"
                                    "    return 0\n"
                                    "}\n");
    struct answer answer;
    const json_t *list, *entry, *fixit, *note;

    json_object_set_new(body, "args", json_pack("[s]", "-Wall"));
    answer = post(*state, body);
    expect_status(&answer, "failed");
    list = json_object_get(answer.json, "diagnostics");
    assert_int_equal(json_array_size(list), 3);

    entry = entry_saying(list, "too many arguments");
    assert_string_equal(text_of(entry, "file"), "main.c");
    assert_string_equal(text_of(entry, "severity"), "error");
    assert_int_equal(number_of(entry, "line"), 4);
    assert_int_equal(number_of(entry, "column"), 28);
    assert_int_equal(number_of(entry, "byte_offset"), 54);
    assert_string_equal(text_of(entry, "category"), "Semantic Issue");
    note = json_array_get(json_object_get(entry, "notes"), 0);
    assert_string_equal(text_of(note, "severity"), "note");
    assert_int_equal(number_of(note, "line"), 1);

    entry = entry_saying(list, "expected ';' after return statement");
    assert_int_equal(number_of(entry, "line"), 5);
    fixit = json_array_get(json_object_get(entry, "fixits"), 0);
    assert_string_equal(text_of(fixit, "text"), ";");
    assert_int_equal(number_of(fixit, "line"), 5);
    assert_int_equal(number_of(fixit, "column"), 13);

    entry = entry_saying(list, "using the result of an assignment");
    assert_string_equal(text_of(entry, "severity"), "warning");
    assert_string_equal(text_of(entry, "flag"), "-Wparentheses");
    assert_int_equal(number_of(entry, "begin_column"), 9);
    assert_int_equal(number_of(entry, "end_column"), 14);
    assert_int_equal(json_array_size(json_object_get(entry, "notes")), 2);
    answer_free(&answer);
}

/* Broken when bytes that depend on more than the key are stored, or are not handed out at once. */
static void what_the_key_does_not_decide_is_answered_inline_and_not_stored(void **state)
{
    static const struct {
        const char *source, *reason;
    } cases[] = {
        {"void f(void) { __asm__ volatile(\"nop\"); }\n", "inline assembly"},
        {"const char *when(void) { return __TIME__; }\n", "__TIME__"},
        {"const char *when(void) { return __DATE__; }\n", "__DATE__"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        struct answer answer = post(room, source_body("c", cases[i / 2].source));
        const json_t *artifact = artifact_of(&answer);
        struct bytes bytes;
        char path[128];

        expect_status(&answer, "ok");
        assert_true(json_is_false(json_object_get(answer.json, "cached")));
        assert_true(json_is_null(json_object_get(artifact, "url")));
        assert_non_null(strstr(text_of(artifact, "not_stored"), cases[i / 2].reason));
        bytes = base64_bytes(json_object_get(artifact, "base64"));
        assert_int_equal(bytes.count, number_of(artifact, "bytes"));
        assert_memory_equal(bytes.data, "\177ELF", 4);
        free(bytes.data);
        snprintf(path, sizeof path, "/v1/artifacts/%s", text_of(answer.json, "key"));
        answer_free(&answer);
        expect_problem(ask(room, &(struct request){.path = path}), 404, "not-found", NULL, NULL,
                       "compile again");
    }
}

/* Broken when debug information shows another directory than the one asked for. */
static void debug_information_shows_the_directory(void **state)
{
    static const char *const directories[] = {NULL, "/home/user/project"};
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(directories); i++) {
        const char *expected = directories[i] ? directories[i] : "/src";
        json_t *body = source_body("c", "int debugged(int x) { return x; }\n");
        struct answer answer;
        struct bytes bytes;

        json_object_set_new(body, "args", json_pack("[s]", "-g"));
        if (directories[i])
            json_object_set_new(body, "directory", json_string(directories[i]));
        answer = post_including(room, body);
        expect_status(&answer, "ok");
        bytes = base64_bytes(json_object_get(artifact_of(&answer), "base64"));
        /* with the NUL that ends it in .debug_line_str */
        assert_non_null(memmem(bytes.data, bytes.count, expected, strlen(expected) + 1));
        free(bytes.data);
        answer_free(&answer);
    }
}

/* Broken when an object differs from what the compiler on the command line makes. */
static void an_object_equals_that_of_the_compiler(void **state)
{
    static const char source[] = "#include <string.h>\n"
                                 "unsigned long f(const char *s) { return strlen(s) * 3; }\n";
    struct room *room = *state;
    json_t *body = source_body("c", source);
    char *path = path_join(room->folder, "main.c");
    struct answer answer;
    struct bytes ours, theirs;

    file_write(path, source, strlen(source));
    free(path);
    assert_int_equal(process_run(room->folder,
                                 (const char *[]){"clang-19", "-c", "-O2", "-fPIC", "main.c", "-o",
                                                  "main.o", NULL},
                                 NULL, NULL),
                     0);
    path = path_join(room->folder, "main.o");
    theirs = file_read(path);
    free(path);
    json_object_set_new(body, "args", json_pack("[s, s]", "-O2", "-fPIC"));
    answer = post_including(room, body);
    expect_status(&answer, "ok");
    ours = base64_bytes(json_object_get(artifact_of(&answer), "base64"));
    assert_int_equal(ours.count, theirs.count);
    assert_memory_equal(ours.data, theirs.data, ours.count);
    free(ours.data);
    free(theirs.data);
    answer_free(&answer);
}

/* Broken when HEAD sends a body, a known ETag is not honoured, or a cache may not keep it. */
static void artifacts_can_be_cached_by_their_etag(void **state)
{
    struct room *room = *state;
    struct answer answer = post(room, source_body("c", "int tagged;\n"));
    char etag[80], header[128], path[128];
    struct reply reply = fetch(room, &answer);

    snprintf(etag, sizeof etag, "\"%s\"", text_of(answer.json, "key"));
    snprintf(path, sizeof path, "%s", text_of(artifact_of(&answer), "url"));
    assert_string_equal(reply_header(&reply, "ETag"), etag);
    assert_non_null(strstr(reply_header(&reply, "Cache-Control"), "immutable"));
    assert_string_equal(reply_header(&reply, "X-Content-Type-Options"), "nosniff");
    reply_free(&reply);

    client_send(&room->client, &(struct request){.method = "HEAD", .path = path}, &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.count, 0);
    assert_int_equal(strtol(reply_header(&reply, "Content-Length"), NULL, 10),
                     number_of(artifact_of(&answer), "bytes"));
    reply_free(&reply);

    snprintf(header, sizeof header, "If-None-Match: \"other\", %s", etag);
    client_send(&room->client, &(struct request){.path = path, .header = header}, &reply);
    assert_int_equal(reply.status, 304);
    assert_int_equal(reply.body.count, 0);
    reply_free(&reply);

    client_send(&room->client,
                &(struct request){.path = path, .header = "If-None-Match: \"other\""}, &reply);
    assert_int_equal(reply.status, 200);
    reply_free(&reply);
    answer_free(&answer);
}

/* Broken when an answered artifact is lost with the process, or its data folder stays locked. */
static void artifacts_survive_kill_minus_nine(void **state)
{
    struct room *room = *state;
    struct answer first = post(room, source_body("c", "int survivor = 9;\n"));
    struct answer again;
    struct reply before = fetch(room, &first), after;

    client_close(&room->client);
    server_kill(&room->server);
    room_start(room, NULL);
    again = post(room, source_body("c", "int survivor = 9;\n"));
    expect_status(&again, "ok");
    assert_true(json_is_true(json_object_get(again.json, "cached")));
    assert_string_equal(text_of(first.json, "key"), text_of(again.json, "key"));
    after = fetch(room, &again);
    assert_int_equal(before.body.count, after.body.count);
    assert_memory_equal(before.body.data, after.body.data, after.body.count);
    assert_int_equal(lane_number(room, "compile-cpu", "started"), 0);
    reply_free(&before);
    reply_free(&after);
    answer_free(&first);
    answer_free(&again);
}

/* Broken when a path of the service does not answer, or not in its form. */
static void the_other_paths_answer(void **state)
{
    struct room *room = *state;
    struct answer answer = ask(room, &(struct request){.path = "/healthz"});

    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(answer.json, "status"), "ok");
    answer_free(&answer);
    answer = ask(room, &(struct request){.path = "/v1/pools"});
    assert_int_equal(
        number_of(json_array_get(json_object_get(answer.json, "pools"), 0), "max_threads"), 16);
    answer_free(&answer);
    assert_int_equal(lane_number(room, "compile-cpu", "cap"), 2);
    assert_true(lane_number(room, "files", "cap") > 0);
    assert_true(lane_number(room, "store", "cap") > 0);
    answer_free(&answer);
    answer = post(room, source_body("c", "int counted;\n"));
    answer_free(&answer);
    assert_true(metric(room, "millwright_compile_requests_total") == 1);
    assert_true(metric(room, "millwright_compile_ok_total") == 1);
    assert_true(metric(room, "millwright_leaf_escapes_total") == 0);
    assert_true(metric(room, "millwright_lane_started_total{lane=\"compile-cpu\"}") == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c_and_cxx_become_objects),
        cmocka_unit_test(an_answer_has_every_documented_member),
        cmocka_unit_test(files_of_a_request_include_one_another),
        cmocka_unit_test(every_kind_of_output_is_what_it_says),
        cmocka_unit_test(a_check_without_output_has_no_artifact),
        cmocka_unit_test(included_bytes_equal_those_under_the_url),
        cmocka_unit_test(the_second_time_is_answered_from_the_store_with_the_same_diagnostics),
        cmocka_unit_test(the_key_moves_with_what_decides_the_bytes_only),
        cmocka_unit_test(a_failed_compile_is_an_answer_and_not_stored),
        cmocka_unit_test(diagnostics_say_where_what_and_how_to_mend_it),
        cmocka_unit_test(what_the_key_does_not_decide_is_answered_inline_and_not_stored),
        cmocka_unit_test(debug_information_shows_the_directory),
        cmocka_unit_test(an_object_equals_that_of_the_compiler),
        cmocka_unit_test(artifacts_can_be_cached_by_their_etag),
        cmocka_unit_test(artifacts_survive_kill_minus_nine),
        cmocka_unit_test_setup_teardown(the_other_paths_answer, room_setup_started, room_teardown),
    };

    return cmocka_run_group_tests_name("service.compile_endpoint", tests, room_setup_started,
                                       room_teardown);
}

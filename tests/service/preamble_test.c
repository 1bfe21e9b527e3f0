/* preamble_test.c - precompiled prefixes in the real program: they are made in the background from
 * the second sighting on, and nothing of an answer is another with one than without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "service/support.h"
#include "support/process.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const isolated[] = {"--lane-cap", "2", NULL};
static const char *const in_process[] = {"--lane-cap", "2", "--isolation", "in-process", NULL};
static const char *const switched_off[] = {"--preambles-max-bytes", "0", NULL};

/* A main file: `text` has one "%d", which makes each body another. */
struct source {
    const char *name, *text, *args[3];
    const char *other, *other_text; /* another file, or NULL */
};

#define C_TEXT                                                                                     \
    "/* a */\n#include <stdio.h>\n#include <stdlib.h> // b\n\n"                                    \
    "int main(void) { printf(\"%d\\n\"); return abs(-1) + __LINE__; }\n"
#define CXX_TEXT                                                                                   \
    "#include <map>\n#include <string>\n#include <vector>\n"                                       \
    "int main() { std::map<std::string, std::vector<int>> m; m[\"a\"].push_back(%d);\n"            \
    "  return m.at(\"a\").at(0); }\n"

static const struct source sources[] = {
    {.name = "a.c", .text = C_TEXT, .args = {"-O0"}},
    {.name = "a.c", .text = C_TEXT, .args = {"-O2", "-fPIC"}},
    {.name = "b.cc", .text = CXX_TEXT, .args = {"-O0", "-DA=1"}},
    {.name = "b.cc", .text = CXX_TEXT, .args = {"-O2"}},
};

static json_t *file_of(const char *name, const char *text)
{
    return json_pack("{s:s, s:s}", "name", name, "content", text);
}

/* As post, with the artifact in the answer. */
static struct answer post_including(struct room *room, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    struct answer answer;

    assert_non_null(text);
    answer = ask(room, &(struct request){.path = "/v1/compile?include=artifact", .body = text});
    free(text);
    json_decref(body);
    return answer;
}

/* Compile `source` with `number` in it. */
static struct answer compile(struct room *room, const struct source *source, int number)
{
    json_t *args = json_array(), *files = json_array();
    char text[2048];

    (void)snprintf(text, sizeof text, source->text, number);
    for (size_t i = 0; i < COUNT(source->args) && source->args[i]; i++)
        json_array_append_new(args, json_string(source->args[i]));
    json_array_append_new(files, file_of(source->name, text));
    if (source->other)
        json_array_append_new(files, file_of(source->other, source->other_text));
    return post_including(room, json_pack("{s:o, s:s, s:o, s:i}", "files", files, "main",
                                          source->name, "args", args, "timeout_ms", PATIENT_MS));
}

static bool used_preamble(const struct answer *answer)
{
    return json_is_true(json_object_get(json_object_get(answer->json, "timings"), "preamble"));
}

/* Compile it with numbers from `first` on until a preamble is used, which the time of the test
 * bounds; each answer must be `status`. Returns the first that used one. */
static struct answer compile_until_used(struct room *room, const struct source *source, int first,
                                        const char *status)
{
    struct answer answer = compile(room, source, first);

    assert_false(used_preamble(&answer));
    for (int i = 1; !used_preamble(&answer); i++) {
        assert_int_equal(answer.status, 200);
        assert_string_equal(text_of(answer.json, "status"), status);
        answer_free(&answer);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        answer = compile(room, source, first + i);
    }
    assert_string_equal(text_of(answer.json, "status"), status);
    return answer;
}

/* What clang makes of `source` with `number` in it. */
static struct bytes clangs_object(struct room *room, const struct source *source, int number)
{
    const char *argv[9] = {"clang-19", "-c", source->name, "-o", "theirs.o"};
    char *path = path_join(room->folder, source->name);
    char text[2048];
    struct bytes object;

    (void)snprintf(text, sizeof text, source->text, number);
    file_write(path, text, strlen(text));
    free(path);
    for (size_t i = 0; i < COUNT(source->args) && source->args[i]; i++)
        argv[5 + i] = source->args[i];
    assert_int_equal(process_run(room->folder, argv, NULL, NULL), 0);
    path = path_join(room->folder, "theirs.o");
    object = file_read(path);
    free(path);
    return object;
}

static void expect_object(const struct answer *answer, const struct bytes *theirs)
{
    const json_t *artifact = json_object_get(answer->json, "artifact");
    struct bytes ours = base64_bytes(json_object_get(artifact, "base64"));

    assert_int_equal(ours.count, theirs->count);
    assert_memory_equal(ours.data, theirs->data, ours.count);
    free(ours.data);
}

/* `number` is one that the store does not know. */
static void check_objects(struct room *room, const char *const *options, int number)
{
    room_start(room, options);
    for (size_t i = 0; i < COUNT(sources); i++) {
        struct answer answer = compile_until_used(room, &sources[i], 1000 * number, "ok");
        struct bytes theirs = clangs_object(room, &sources[i], number);

        answer_free(&answer);
        answer = compile(room, &sources[i], number);
        assert_true(used_preamble(&answer));
        expect_object(&answer, &theirs);
        answer_free(&answer);
        free(theirs.data);
    }
    assert_true(metric(room, "millwright_preambles_built_total") == COUNT(sources));
    assert_true(metric(room, "millwright_preambles_kept") == COUNT(sources));
    assert_true(metric(room, "millwright_preambles_bytes") > 0);
    assert_true(metric(room, "millwright_preambles_failed_total") == 0);
    room_stop(room);
}

/* Broken when no preamble is made or used, or when an object made with one is another. */
static void object_with_a_preamble_is_clangs_own(void **state)
{
    check_objects(*state, isolated, 7);
    check_objects(*state, in_process, 8);
}

/* Broken when an answer from the store says that a preamble was used, or 0 does not switch it off.
 * The first is the control of the others' way to look. */
static void no_preamble_where_there_is_no_compile_or_none_is_wanted(void **state)
{
    struct room *room = *state;
    struct answer answer;

    room_start(room, isolated);
    answer = compile_until_used(room, &sources[0], 0, "ok");
    answer_free(&answer);
    answer = compile(room, &sources[0], 0);
    assert_true(json_is_true(json_object_get(answer.json, "cached")));
    assert_false(used_preamble(&answer));
    answer_free(&answer);
    room_stop(room);
    room_start(room, switched_off);
    for (int i = 0; i < 6; i++) {
        answer = compile(room, &sources[0], 100 + i);
        assert_false(used_preamble(&answer));
        answer_free(&answer);
    }
    answer = ask(room, &(struct request){.path = "/v1/isolation"});
    assert_true(json_is_null(json_object_get(answer.json, "preambles")));
    answer_free(&answer);
    room_stop(room);
}

/* Broken when a header of the request that stands before the system's is not read, or one that
 * might is not looked at; with a control that has no such file. */
static void header_of_the_request_stands_before_the_systems(void **state)
{
    static const struct source cases[] = {
        {.name = "a.c",
         .text = "#include <stdio.h>\nint f(void) { return mine + %d; }\n",
         .args = {"-Iinc"},
         .other = "inc/stdio.h",
         .other_text = "extern int mine;\n"},
        {.name = "a.c", .text = C_TEXT, .other = "sub/stdio.h", .other_text = "#error no\n"},
    };
    struct room *room = *state;
    struct source control = {.name = "a.c", .text = C_TEXT};
    struct answer answer;

    control.other = "sub/mine.h";
    control.other_text = "#error no\n";
    answer = compile_until_used(room, &control, 0, "ok");
    answer_free(&answer);
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int k = 0; k < 4; k++) {
            struct bytes object;

            answer = compile(room, &cases[i], 1000 + k);
            assert_string_equal(text_of(answer.json, "status"), "ok");
            assert_false(used_preamble(&answer));
            object =
                base64_bytes(json_object_get(json_object_get(answer.json, "artifact"), "base64"));
            assert_int_equal(bytes_contain(&object, "mine"), i == 0);
            free(object.data);
            answer_free(&answer);
        }
    }
}

/* The diagnostics of an answer as text; the caller frees it. */
static char *diagnostics_of(const struct answer *answer)
{
    char *text =
        json_dumps(json_object_get(answer->json, "diagnostics"), JSON_INDENT(1) | JSON_SORT_KEYS);

    assert_non_null(text);
    return text;
}

/* Broken when what the compiler says about the body, about headers, or about the way to them is
 * another with a preamble. */
static void diagnostics_are_the_same_with_a_preamble(void **state)
{
    static const struct {
        struct source source;
        const char *status;
    } cases[] = {
        {{.name = "a.c",
          .text = "/* a\n */\n#include <stddef.h>\n\n#include <stdio.h>\nint printf(char);\n"
                  "int f(void) { unused(); return 0; }\nint n%d;\n"},
         "failed"},
        {{.name = "a.c",
          .text = "#include <stdio.h>\n#define EOF 3\nint f(int a) { printf(\"%%s\", 1); }\n"
                  "int n%d;\n",
          .args = {"-Wall", "-Wextra"}},
         "ok"},
        {{.name = "b.cc",
          .text = "// a\n#include <vector>\n#include <algorithm>\nstruct s {};\n"
                  "void f(std::vector<s> v) { std::sort(v.begin(), v.end()); }\nint n%d;\n"},
         "failed"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer;
        char *without, *with;

        room_start(room, switched_off);
        answer = compile(room, &cases[i].source, 7);
        without = diagnostics_of(&answer);
        assert_true(json_array_size(json_object_get(answer.json, "diagnostics")) > 0);
        answer_free(&answer);
        room_stop(room);
        room_start(room, isolated);
        answer = compile_until_used(room, &cases[i].source, 1000, cases[i].status);
        answer_free(&answer);
        answer = compile(room, &cases[i].source, 8); /* what 7 gave may be in the store */
        assert_true(used_preamble(&answer));
        with = diagnostics_of(&answer);
        assert_string_equal(with, without);
        free(with);
        free(without);
        answer_free(&answer);
        room_stop(room);
    }
}

/* Broken when headers that are not there are tried again at each request, or their error is lost.
 */
static void prefix_that_cannot_be_made_is_left_alone(void **state)
{
    static const struct source source = {
        .name = "a.c", .text = "#include <stdio.h>\n#include <no/such.h>\nint x%d;\n"};
    struct room *room = *state;

    for (int i = 0; i < 3 || metric(room, "millwright_preambles_failed_total") < 1; i++) {
        struct answer answer = compile(room, &source, i);
        char *said = diagnostics_of(&answer);

        assert_string_equal(text_of(answer.json, "status"), "failed");
        assert_non_null(strstr(said, "no/such.h"));
        assert_false(used_preamble(&answer));
        free(said);
        answer_free(&answer);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    for (int i = 0; i < 5; i++) {
        struct answer answer = compile(room, &source, 1000 + i);

        answer_free(&answer);
    }
    assert_true(metric(room, "millwright_preambles_failed_total") == 1);
    assert_true(metric(room, "millwright_preambles_kept") == 0);
}

/* Broken when a source that crashes the compiler is answered otherwise with a preamble, or takes
 * the preamble along. */
static void source_that_crashes_the_compiler_is_told_of_with_a_preamble_too(void **state)
{
    enum { BANGS = 200000 };
    static char deep[BANGS + 128];
    struct room *room = *state;
    struct source source = {.name = "a.c", .text = deep};
    struct answer answer = compile_until_used(room, &sources[0], 0, "ok");
    json_t *body;

    answer_free(&answer);
    strcpy(deep, "#include <stdio.h>\n#include <stdlib.h>\nint f(void) { return ");
    memset(deep + strlen(deep), '!', BANGS);
    strcat(deep, "1; }\n");
    body = json_pack("{s:[o], s:s, s:[s], s:i}", "files", file_of(source.name, deep), "main",
                     source.name, "args", "-O0", "timeout_ms", PATIENT_MS);
    answer = post(room, body);
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(answer.json, "status"), "failed");
    assert_true(used_preamble(&answer));
    answer_free(&answer);
    assert_int_equal(isolation_number(room, "crashed"), 2); /* and once more without */
    answer = compile(room, &sources[0], 5000);
    assert_true(used_preamble(&answer));
    answer_free(&answer);
}

/* Broken when a service that is to stop waits for preambles, or leaves one behind. */
static void shutdown_gives_up_what_is_being_made(void **state)
{
    struct room *room = *state;
    struct answer answer;

    for (int i = 0; i < 2; i++) {
        answer = compile(room, &sources[2], i);
        answer_free(&answer);
    }
    room_stop(room); /* now about a second of it is before it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(object_with_a_preamble_is_clangs_own, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(no_preamble_where_there_is_no_compile_or_none_is_wanted,
                                        room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(header_of_the_request_stands_before_the_systems,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(diagnostics_are_the_same_with_a_preamble, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(prefix_that_cannot_be_made_is_left_alone,
                                        room_setup_started, room_teardown),
        cmocka_unit_test_setup_teardown(
            source_that_crashes_the_compiler_is_told_of_with_a_preamble_too, room_setup_started,
            room_teardown),
        cmocka_unit_test_setup_teardown(shutdown_gives_up_what_is_being_made, room_setup_started,
                                        room_teardown),
    };

    return cmocka_run_group_tests_name("service.preamble", tests, NULL, NULL);
}

/* wire_test.c - bodies become submissions, results become JSON, refusals become problem documents,
 * whatever bytes come in. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "problem.h"
#include "wire.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Where packages are looked for; none of those here has a folder of its own for headers. */
static const struct mw_package_source packages;

static struct mw_submission *parse(const char *body)
{
    struct mw_submission *submission = NULL;
    struct mw_problem problem = {0};

    if (mw_submission_parse(&submission, body, strlen(body), &packages, &problem) != 0)
        fail_msg("'%s' is refused: %s", body, problem.detail);
    return submission;
}

/* The problem with a body that must be refused. */
static struct mw_problem refuse(const char *body, size_t bytes)
{
    struct mw_submission *submission = NULL;
    struct mw_problem problem = {0};

    if (mw_submission_parse(&submission, body, bytes, &packages, &problem) == 0)
        fail_msg("'%.200s' is taken", body);
    assert_null(submission);
    return problem;
}

static const char *text_of(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    return text ? text : "(none)";
}

/* Broken when a default changes: language's file name, directory, emit, time. */
static void a_source_alone_is_given_the_documented_defaults(void **state)
{
    struct mw_submission *submission =
        parse("{\"source\":\"int x;\",\"language\":\"c++\"}"); /* in any order */

    (void)state;
    assert_int_equal(submission->request.file_count, 1);
    assert_string_equal(submission->request.files[0].name, "main.cc");
    assert_string_equal(submission->request.main, "main.cc");
    assert_int_equal(submission->request.files[0].bytes, 6);
    assert_memory_equal(submission->request.files[0].data, "int x;", 6);
    assert_string_equal(submission->request.directory, "/src");
    assert_int_equal(submission->request.emit, MW_EMIT_OBJECT);
    assert_int_equal(submission->request.language, MW_LANGUAGE_CXX);
    assert_int_equal(submission->run.timeout_ms, MW_RUN_TIMEOUT_MS_DEFAULT);
    assert_false(submission->request.read_disk);
    mw_submission_free(submission);
}

/* Broken when a field is lost or lands in another's place. */
static void every_field_lands_in_the_request(void **state)
{
    struct mw_submission *submission =
        parse("{\"files\":[{\"name\":\"a.c\",\"content\":\"\"},"
              "{\"name\":\"b/c.h\",\"content_base64\":\"AAH/\"}],\"main\":\"a.c\","
              "\"directory\":\"/w/d\",\"args\":[\"-O2\",\"-DX=1\"],\"timeout_ms\":77,"
              "\"limits\":{\"wall_ms\":3,\"cpu_ms\":4,\"memory_bytes\":5,\"output_bytes\":6,"
              "\"diagnostics\":7},\"emit\":\"llvm-ir\",\"language\":\"c\","
              "\"also\":[\"remarks\",\"dependencies\",\"remarks\"],\"packages\":[\"zlib\"]}");
    const struct mw_compile_request *request = &submission->request;

    (void)state;
    assert_int_equal(request->file_count, 2);
    assert_int_equal(request->files[0].bytes, 0);
    assert_string_equal(request->files[1].name, "b/c.h");
    assert_int_equal(request->files[1].bytes, 3);
    assert_memory_equal(request->files[1].data, "\0\1\377", 3);
    assert_string_equal(request->directory, "/w/d");
    assert_int_equal(request->arg_count, 2);
    assert_string_equal(request->args[1], "-DX=1");
    assert_int_equal(submission->run.timeout_ms, 77);
    assert_int_equal(submission->limits.wall_ns, 3000000);
    assert_int_equal(submission->limits.cpu_ns, 4000000);
    assert_int_equal(submission->limits.memory_bytes, 5);
    assert_int_equal(submission->limits.output_bytes, 6);
    assert_int_equal(submission->diagnostics_max, 7);
    assert_int_equal(request->emit, MW_EMIT_LLVM_IR);
    assert_int_equal(mw_options_emit(submission->options), MW_EMIT_LLVM_IR);
    assert_int_equal(mw_options_extras(submission->options),
                     1u << MW_EXTRA_DEPENDENCIES | 1u << MW_EXTRA_REMARKS);
    assert_string_equal(submission->packages[0], "zlib");
    assert_null(submission->packages[1]);
    mw_submission_free(submission);
}

/* Broken when a name of an extra is tied to another bit, or the debug lines that a map needs are
 * not seen among the flags. */
static void each_extra_has_its_name(void **state)
{
    static const char *const levels[] = {
        "-g",        "-g1",    "-gline-tables-only",
        "-gdwarf-4", "-ggdb3", "-gno-column-info\",\"-gmlt\",\"-gcolumn-info"};

    (void)state;
    for (unsigned i = 0; i < MW_EXTRAS; i++) {
        for (size_t level = 0; level < COUNT(levels); level++) {
            char body[256];
            struct mw_submission *submission;

            (void)snprintf(body, sizeof body,
                           "{\"source\":\"\",\"language\":\"c\",\"emit\":\"asm\",\"args\":[\"%s\"],"
                           "\"also\":[\"%s\"]}",
                           levels[level], mw_extra_name((enum mw_extra)i));
            submission = parse(body);
            assert_int_equal(submission->request.extras, 1u << i);
            mw_submission_free(submission);
        }
    }
}

/* Broken when base64 is cut, padded or ended in the wrong place. */
static void base64_decodes_to_the_very_bytes(void **state)
{
    static const struct {
        const char *text;
        const char *bytes;
        size_t count;
    } cases[] = {
        {"", "", 0},
        {"QQ==", "A", 1},
        {"QUI=", "AB", 2},
        {"QUJD", "ABC", 3},
        {"QUJDRA==", "ABCD", 4},
        {"AAAA", "\0\0\0", 3},
        {"+/+/", "\373\377\277", 3},
        {"/w==", "\377", 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char body[128];
        struct mw_submission *submission;

        snprintf(body, sizeof body,
                 "{\"files\":[{\"name\":\"a.c\",\"content_base64\":\"%s\"}],\"main\":\"a.c\"}",
                 cases[i].text);
        submission = parse(body);
        assert_int_equal(submission->request.files[0].bytes, cases[i].count);
        assert_memory_equal(submission->request.files[0].data, cases[i].bytes, cases[i].count);
        mw_submission_free(submission);
    }
}

/* Broken when text that is no base64 is taken, or a wrong one makes the decoder read too far. */
static void what_is_no_base64_is_refused(void **state)
{
    static const char *const wrong[] = {
        "A",
        "AA",
        "AAA",
        "AAAAA",
        "=",
        "==",
        "===",
        "====",
        "A===",
        "AA=A",
        "=AAA",
        "AAA=AAAA",
        "AA==AAAA",
        "AAA\\n",
        " AAA",
        "AAA ",
        "AAAA\\n\\n\\n\\n",
        "AA-_",
        "A-AA",
        "QUI\\u00e9",
        "QQ==\\n\\n\\n\\n",
        "\\tQQ=",
        "QQ=-",
        "A*AA",
        "----",
        "    ",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char body[160];
        struct mw_problem problem;

        snprintf(body, sizeof body,
                 "{\"files\":[{\"name\":\"a.c\",\"content_base64\":\"%s\"}],\"main\":\"a.c\"}",
                 wrong[i]);
        problem = refuse(body, strlen(body));
        assert_int_equal(problem.kind, MW_PROBLEM_BAD_FIELD);
        assert_string_equal(problem.subject, "files[0]");
        assert_non_null(strstr(problem.detail, "not base64"));
    }
}

/* Broken when bytes do not survive the way out and back in. */
static void base64_out_and_in_again_is_the_same(void **state)
{
    char bytes[256 + 2];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        json_t *text = mw_wire_base64(bytes, count);
        json_t *body = json_pack("{s:[{s:s, s:o}], s:s}", "files", "name", "a.c", "content_base64",
                                 text, "main", "a.c");
        char *dumped = json_dumps(body, JSON_COMPACT);
        struct mw_submission *submission = parse(dumped);

        assert_int_equal(submission->request.files[0].bytes, count);
        assert_memory_equal(submission->request.files[0].data, bytes, count);
        mw_submission_free(submission);
        free(dumped);
        json_decref(body);
    }
}

/* Broken when a mistake is taken, or its refusal names another field or no remedy. */
static void mistakes_are_refused_by_the_name_of_their_field(void **state)
{
    static const struct {
        const char *body;
        enum mw_problem_kind kind;
        const char *subject;
        const char *says;
    } cases[] = {
        {"[]", MW_PROBLEM_BAD_FIELD, "body", "must be a JSON object"},
        {"\"text\"", MW_PROBLEM_BAD_JSON, "", "line 1"},
        {"{}", MW_PROBLEM_BAD_FIELD, "source", "is missing"},
        {"{\"sauce\":1}", MW_PROBLEM_BAD_FIELD, "sauce", "is not a field"},
        {"{\"source\":1,\"language\":\"c\"}", MW_PROBLEM_BAD_FIELD, "source", "must be a string"},
        {"{\"source\":\"\"}", MW_PROBLEM_BAD_FIELD, "language", "is missing"},
        {"{\"source\":\"\",\"language\":\"pascal\"}", MW_PROBLEM_BAD_FIELD, "language",
         "\"c\" or \"c++\""},
        {"{\"source\":\"\",\"language\":7}", MW_PROBLEM_BAD_FIELD, "language", "must be"},
        {"{\"source\":\"\",\"language\":\"c\",\"files\":[]}", MW_PROBLEM_BAD_FIELD, "source",
         "cannot be given together"},
        {"{\"files\":{},\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD, "files", "list"},
        {"{\"files\":[],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD, "files", "at least one"},
        {"{\"files\":[1],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD, "files[0]", "an object"},
        {"{\"files\":[{\"content\":\"\"}],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD, "files[0]",
         "a \"name\""},
        {"{\"files\":[{\"name\":1,\"content\":\"\"}],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD,
         "files[0]", "a \"name\""},
        {"{\"files\":[{\"name\":\"a.c\"}],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD, "files[0]",
         "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":\"\",\"content_base64\":\"\"}],"
         "\"main\":\"a.c\"}",
         MW_PROBLEM_BAD_FIELD, "files[0]", "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":\"\",\"content_base64\":5}],"
         "\"main\":\"a.c\"}",
         MW_PROBLEM_BAD_FIELD, "files[0]", "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":5,\"content_base64\":\"\"}],"
         "\"main\":\"a.c\"}",
         MW_PROBLEM_BAD_FIELD, "files[0]", "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":null}],\"main\":\"a.c\"}", MW_PROBLEM_BAD_FIELD,
         "files[0]", "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content_base64\":[]}],\"main\":\"a.c\"}",
         MW_PROBLEM_BAD_FIELD, "files[0]", "either \"content\" or"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":\"\",\"mode\":1}],\"main\":\"a.c\"}",
         MW_PROBLEM_BAD_FIELD, "files[0]", "has a member other than"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":\"\"}]}", MW_PROBLEM_BAD_FIELD, "main",
         "is missing"},
        {"{\"files\":[{\"name\":\"a.c\",\"content\":\"\"}],\"main\":\"b.c\"}", MW_PROBLEM_BAD_FIELD,
         "main", "is none of"},
        {"{\"source\":\"\",\"language\":\"c\",\"main\":[]}", MW_PROBLEM_BAD_FIELD, "main",
         "must be a string"},
        {"{\"source\":\"\",\"language\":\"c\",\"directory\":1}", MW_PROBLEM_BAD_FIELD, "directory",
         "must be a string"},
        {"{\"source\":\"\",\"language\":\"c\",\"args\":\"-O2\"}", MW_PROBLEM_BAD_FIELD, "args",
         "list of strings"},
        {"{\"source\":\"\",\"language\":\"c\",\"args\":{}}", MW_PROBLEM_BAD_FIELD, "args",
         "list of strings"},
        {"{\"source\":\"\",\"language\":\"c\",\"args\":[1]}", MW_PROBLEM_BAD_FIELD, "args",
         "list of strings"},
        {"{\"source\":\"\",\"language\":\"c\",\"args\":[\"\"]}", MW_PROBLEM_BAD_FIELD, "args[0]",
         "is empty"},
        {"{\"source\":\"\",\"language\":\"c\",\"emit\":\"exe\"}", MW_PROBLEM_BAD_FIELD, "emit",
         "\"preprocessed\", \"ast\", \"ast-json\" or \"none\""},
        {"{\"source\":\"\",\"language\":\"c\",\"also\":\"remarks\"}", MW_PROBLEM_BAD_FIELD, "also",
         "must be a list of"},
        {"{\"source\":\"\",\"language\":\"c\",\"also\":[1]}", MW_PROBLEM_BAD_FIELD, "also",
         "must be a list of"},
        {"{\"source\":\"\",\"language\":\"c\",\"also\":[\"remarks\",\"time_trace\"]}",
         MW_PROBLEM_BAD_FIELD, "also", "\"time-trace\""},
        {"{\"source\":\"\",\"language\":\"c\",\"also\":[\"line-map\"]}", MW_PROBLEM_BAD_FIELD,
         "also", "\"emit\": \"asm\""},
        {"{\"source\":\"\",\"language\":\"c\",\"emit\":\"asm\",\"also\":[\"line-map\"],"
         "\"args\":[\"-g\",\"-g0\"]}",
         MW_PROBLEM_BAD_FIELD, "also", "-gline-tables-only"},
        {"{\"source\":\"\",\"language\":\"c\",\"packages\":\"zlib\"}", MW_PROBLEM_BAD_FIELD,
         "packages", "list of strings"},
        {"{\"source\":\"\",\"language\":\"c\",\"packages\":[null]}", MW_PROBLEM_BAD_FIELD,
         "packages", "list of strings"},
        {"{\"source\":\"\",\"language\":\"c\",\"packages\":[\"../zlib\"]}", MW_PROBLEM_BAD_FIELD,
         "packages", "no package's name"},
        {"{\"source\":\"\",\"language\":\"c\",\"packages\":[\"zlib\",\"no-such-package\"]}",
         MW_PROBLEM_PACKAGE, "no-such-package", "no-such-package: no package of this name"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":7}", MW_PROBLEM_BAD_FIELD, "limits",
         "must be an object"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"isolation\":1}}", MW_PROBLEM_BAD_FIELD,
         "limits", "a member other than"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"cpu_ms\":0}}", MW_PROBLEM_BAD_FIELD,
         "limits.cpu_ms", "from 1 to 3600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"wall_ms\":1e3}}", MW_PROBLEM_BAD_FIELD,
         "limits.wall_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"memory_bytes\":-1}}",
         MW_PROBLEM_BAD_FIELD, "limits.memory_bytes", "from 1 to 1099511627776"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"output_bytes\":536870913}}",
         MW_PROBLEM_BAD_FIELD, "limits.output_bytes", "from 1 to 536870912"},
        {"{\"source\":\"\",\"language\":\"c\",\"limits\":{\"diagnostics\":1001}}",
         MW_PROBLEM_BAD_FIELD, "limits.diagnostics", "from 1 to 1000"},
        {"{\"source\":\"\",\"language\":\"c\",\"isolation\":\"in-process\"}", MW_PROBLEM_BAD_FIELD,
         "isolation", "is not a field of a compile request"},
        {"{\"source\":\"\",\"language\":\"c\",\"timeout_ms\":0}", MW_PROBLEM_BAD_FIELD,
         "timeout_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"timeout_ms\":600001}", MW_PROBLEM_BAD_FIELD,
         "timeout_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"timeout_ms\":-5}", MW_PROBLEM_BAD_FIELD,
         "timeout_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"timeout_ms\":\"5\"}", MW_PROBLEM_BAD_FIELD,
         "timeout_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"timeout_ms\":1.5}", MW_PROBLEM_BAD_FIELD,
         "timeout_ms", "from 1 to 600000"},
        {"{\"source\":\"\",\"language\":\"c\",\"args\":[\"-fplugin=x.so\"]}",
         MW_PROBLEM_FLAG_REFUSED, "-fplugin=x.so", "-fplugin=x.so"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_problem problem = refuse(cases[i].body, strlen(cases[i].body));

        if (problem.kind != cases[i].kind || strcmp(problem.subject, cases[i].subject) != 0 ||
            !strstr(problem.detail, cases[i].says))
            fail_msg("%s: kind %d, subject '%s', detail '%s'", cases[i].body, problem.kind,
                     problem.subject, problem.detail);
    }
}

/* Broken when the place in a broken JSON text is lost. */
static void broken_json_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *body;
        int line;
        const char *says;
    } cases[] = {
        {"{\"source\":\"int x;\",\n\"language\":", 2, "line 2, column"},
        {"{\n\n\"a\" 1}", 3, "line 3, column"},
        {"{\"a\":1}}", 1, "end of file expected"},
        {"{\"a\":1,\"a\":2}", 1, "duplicate"},
        {"{\"source\":\"\\u0000\"}", 1, "\\u0000"},
        {"{\"source\":\"\xff\"}", 1, "unable to decode"},
        {"{\"source\":\"\xed\xa0\x80\"}", 1, "unable to decode"},
        {"{\"source\":\"a\nb\"}", 1, "unexpected newline"},
        {" ", 1, "expected"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_problem problem = refuse(cases[i].body, strlen(cases[i].body));

        assert_int_equal(problem.kind, MW_PROBLEM_BAD_JSON);
        assert_true(problem.column >= 0);
        if (problem.line != cases[i].line || !strstr(problem.detail, cases[i].says))
            fail_msg("%s: line %d, '%s' does not say '%s'", cases[i].body, problem.line,
                     problem.detail, cases[i].says);
    }
    assert_int_equal(refuse("{}\0{}", 5).kind, MW_PROBLEM_BAD_JSON);
}

/* Broken when an empty body is handed to the JSON reader, which then names no place. */
static void an_empty_body_is_refused_as_such(void **state)
{
    struct mw_problem problem = refuse(NULL, 0);

    (void)state;
    assert_int_equal(problem.kind, MW_PROBLEM_BAD_FIELD);
    assert_string_equal(problem.subject, "body");
    assert_int_equal(problem.line, 0);
    assert_int_equal(refuse("", 0).kind, MW_PROBLEM_BAD_FIELD);
}

/* Broken when lists longer than the bound are taken. */
static void lists_over_their_bound_are_too_large(void **state)
{
    static const struct {
        const char *member;
        unsigned max;
    } cases[] = {{"files", MW_REQUEST_FILES_MAX},
                 {"args", MW_REQUEST_ARGS_MAX},
                 {"packages", MW_PACKAGES_MAX}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        json_t *list = json_array();
        json_t *body = json_pack("{s:o}", cases[i].member, list);
        struct mw_problem problem;
        char *text;

        if (i > 0)
            json_object_set_new(body, "source", json_string("")),
                json_object_set_new(body, "language", json_string("c"));
        for (unsigned n = 0; n <= cases[i].max; n++)
            json_array_append_new(list, json_string("-O2"));
        text = json_dumps(body, JSON_COMPACT);
        problem = refuse(text, strlen(text));
        assert_int_equal(problem.kind, MW_PROBLEM_TOO_LARGE);
        assert_int_equal(mw_problem_status(&problem), 413);
        assert_string_equal(problem.subject, cases[i].member);
        free(text);
        json_decref(body);
    }
}

/* Broken when a JSON text deeper than the reader's bound overflows its stack instead. */
static void deep_nesting_is_refused(void **state)
{
    size_t depth = 100000;
    char *body = malloc(depth);
    struct mw_problem problem;

    (void)state;
    assert_non_null(body);
    memset(body, '[', depth);
    problem = refuse(body, depth);
    assert_int_equal(problem.kind, MW_PROBLEM_BAD_JSON);
    assert_non_null(strstr(problem.detail, "depth"));
    free(body);
}

/* Broken when a member of a diagnostic is missing, misnamed or holds another's value. */
static void diagnostics_carry_every_documented_member(void **state)
{
    static const struct {
        const char *member;
        int value;
    } numbers[] = {
        {"line", 2},       {"column", 3},       {"byte_offset", 14},
        {"begin_line", 4}, {"begin_column", 5}, {"begin_byte_offset", 16},
        {"end_line", 6},   {"end_column", 7},   {"end_byte_offset", 18},
    };
    const struct mw_fixit fixit = {"f.c", {8, 9, 20}, {10, 11, 22}, ";"};
    const struct mw_diagnostic error = {
        .severity = MW_SEVERITY_ERROR,
        .file = "a.c",
        .at = {2, 3, 14},
        .begin = {4, 5, 16},
        .end = {6, 7, 18},
        .message = "expected ';'",
        .flag = "-Wx",
        .category = "Parse Issue",
        .line_text = "int x",
        .fixits = &fixit,
        .fixit_count = 1,
    };
    struct mw_diagnostic note = {.severity = MW_SEVERITY_NOTE,
                                 .file = "",
                                 .message = "here",
                                 .flag = "",
                                 .category = "",
                                 .line_text = ""};
    struct mw_diagnostics list = {0};
    json_t *json, *item, *fix;

    (void)state;
    assert_int_equal(mw_diagnostics_add(&list, &error), 0);
    assert_int_equal(mw_diagnostics_add(&list, &note), 0);
    json = mw_wire_diagnostics(&list);
    assert_int_equal(json_array_size(json), 1);
    item = json_array_get(json, 0);
    assert_int_equal(json_object_size(item), 16);
    for (size_t i = 0; i < COUNT(numbers); i++)
        assert_int_equal(json_integer_value(json_object_get(item, numbers[i].member)),
                         numbers[i].value);
    assert_string_equal(text_of(item, "file"), "a.c");
    assert_string_equal(text_of(item, "severity"), "error");
    assert_string_equal(text_of(item, "message"), "expected ';'");
    assert_string_equal(text_of(item, "flag"), "-Wx");
    assert_string_equal(text_of(item, "category"), "Parse Issue");
    fix = json_array_get(json_object_get(item, "fixits"), 0);
    assert_string_equal(text_of(fix, "file"), "f.c");
    assert_string_equal(text_of(fix, "text"), ";");
    assert_int_equal(json_integer_value(json_object_get(fix, "line")), 8);
    assert_int_equal(json_integer_value(json_object_get(fix, "end_byte_offset")), 22);
    item = json_array_get(json_object_get(item, "notes"), 0);
    assert_string_equal(text_of(item, "severity"), "note");
    assert_string_equal(text_of(item, "message"), "here");
    assert_int_equal(json_integer_value(json_object_get(item, "line")), 0);
    json_decref(json);
    mw_diagnostics_fini(&list);
}

/* Broken when a list without entries is null, or missing, instead of empty. */
static void no_diagnostics_are_an_empty_list(void **state)
{
    const struct mw_diagnostics list = {0};
    json_t *json = mw_wire_diagnostics(&list);

    (void)state;
    assert_true(json_is_array(json));
    assert_int_equal(json_array_size(json), 0);
    json_decref(json);
}

/* Broken when bytes that are no UTF-8 make a document invalid, or lose the whole entry. */
static void texts_that_are_no_utf8_never_break_a_document(void **state)
{
    const struct mw_diagnostic strange = {
        .severity = MW_SEVERITY_WARNING,
        .file = "\xff.c",
        .message = "caf\xe9 \x01",
        .flag = "",
        .category = "",
        .line_text = "",
    };
    struct mw_diagnostics list = {0};
    struct mw_problem problem;
    char *text;
    json_t *json;

    (void)state;
    assert_int_equal(mw_diagnostics_add(&list, &strange), 0);
    json = mw_wire_diagnostics(&list);
    assert_string_equal(text_of(json_array_get(json, 0), "file"), "?.c");
    assert_string_equal(text_of(json_array_get(json, 0), "message"), "caf? \x01");
    text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    json = json_loads(text, 0, NULL);
    assert_non_null(json);
    json_decref(json);
    free(text);
    mw_diagnostics_fini(&list);

    mw_problem_set(&problem, MW_PROBLEM_NOT_FOUND, "/\xff\x80", "no \xff here");
    text = mw_problem_render(&problem, NULL);
    json = json_loads(text, 0, NULL);
    assert_string_equal(text_of(json, "detail"), "no ? here");
    assert_string_equal(text_of(json, "path"), "/??");
    json_decref(json);
    free(text);
}

/* Broken when a kind's status, type or the member that names its subject changes. */
static void problem_documents_say_status_type_and_subject(void **state)
{
    static const struct {
        enum mw_problem_kind kind;
        unsigned status;
        const char *type;
        const char *member; /* NULL: none */
    } cases[] = {
        {MW_PROBLEM_BAD_JSON, 400, "urn:millwright:problem:bad-json", NULL},
        {MW_PROBLEM_BAD_FIELD, 400, "urn:millwright:problem:bad-field", "field"},
        {MW_PROBLEM_FLAG_REFUSED, 422, "urn:millwright:problem:flag-refused", "flag"},
        {MW_PROBLEM_TOO_LARGE, 413, "urn:millwright:problem:too-large", "field"},
        {MW_PROBLEM_QUEUE_FULL, 503, "urn:millwright:problem:queue-full", "queue"},
        {MW_PROBLEM_NOT_FOUND, 404, "urn:millwright:problem:not-found", "path"},
        {MW_PROBLEM_METHOD, 405, "urn:millwright:problem:method-not-allowed", "method"},
        {MW_PROBLEM_TIMEOUT, 504, "urn:millwright:problem:timeout", NULL},
        {MW_PROBLEM_STOPPING, 503, "urn:millwright:problem:stopping", NULL},
        {MW_PROBLEM_INTERNAL, 500, "urn:millwright:problem:internal", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_problem problem;
        json_t *json, *extra = json_pack("{s:i, s:i}", "status", 1, "more", 2);
        char *text;

        mw_problem_set(&problem, cases[i].kind, "it", "what %s", "happened");
        assert_int_equal(mw_problem_status(&problem), cases[i].status);
        text = mw_problem_render(&problem, extra);
        json = json_loads(text, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(json, "status")), cases[i].status);
        assert_string_equal(text_of(json, "type"), cases[i].type);
        assert_string_not_equal(text_of(json, "title"), "(none)");
        assert_string_equal(text_of(json, "detail"), "what happened");
        assert_int_equal(json_integer_value(json_object_get(json, "more")), 2);
        assert_int_equal(json_object_size(json), cases[i].member ? 6 : 5);
        if (cases[i].member)
            assert_string_equal(text_of(json, cases[i].member), "it");
        json_decref(json);
        json_decref(extra);
        free(text);
    }
}

/* Broken when a text over the bound writes past it, or cuts a character so that the document is no
 * JSON. */
static void long_texts_are_cut_and_stay_valid(void **state)
{
    char name[3000];
    struct mw_problem problem;
    char *text;
    json_t *json;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof name; i += 2)
        memcpy(name + i, "é", 2);
    name[sizeof name - 2] = '\0';
    for (unsigned shift = 0; shift < 2; shift++) {
        mw_problem_set(&problem, MW_PROBLEM_NOT_FOUND, name, "%s%s", shift ? "x" : "", name);
        text = mw_problem_render(&problem, NULL);
        json = json_loads(text, 0, NULL);
        assert_non_null(json);
        assert_true(strlen(text_of(json, "detail")) > 600);
        json_decref(json);
        free(text);
    }
}

/* Broken when the clock that runs before the body is parsed shows another time than the body asks
 * for: a text that holds the name is taken for the member, or the member is not found. */
static void the_time_of_an_unparsed_body_is_told_or_left_open(void **state)
{
    static const struct {
        const char *body;
        uint32_t timeout_ms;
    } cases[] = {
        {"{\"timeout_ms\":77}", 77},
        {"{\"source\":\"x\", \"timeout_ms\" : \n 77 , \"emit\":\"asm\"}", 77},
        {"{\"timeout_ms\":600000}", 600000},
        {"{\"source\":\"say \\\"timeout_ms\\\": 5\",\"timeout_ms\":77}", 77},
        {"{\"source\":\"say \\\"timeout_ms\\\": 5\"}", MW_RUN_TIMEOUT_MS_DEFAULT},
        {"{\"source\":\"timeout_ms: 5\"}", MW_RUN_TIMEOUT_MS_DEFAULT},
        {"", MW_RUN_TIMEOUT_MS_DEFAULT},
        {"{\"timeout_ms\":600001}", 0},
        {"{\"timeout_ms\":99999999999999999999}", 0},
        {"{\"timeout_ms\":\"5\"}", 0},
        {"{\"timeout_ms\":-5}", 0},
        {"{\"timeout_ms\":5.5}", 0},
        {"{\"timeout_ms\":5e3}", 0},
        {"{\"timeout_ms\":5", 0},
        {"\"timeout_ms\"", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint32_t looked = mw_submission_timeout_look(cases[i].body, strlen(cases[i].body));

        if (looked != cases[i].timeout_ms)
            fail_msg("'%s' looks like %u", cases[i].body, looked);
    }
}

/* Broken when the look reads all of a large body, on the loop, or misses the member at its edges.
 */
static void only_the_edges_of_a_large_body_are_looked_at(void **state)
{
    static const char member[] = "\"timeout_ms\":77,";
    const size_t bytes = 20000;
    char *body = malloc(bytes);

    (void)state;
    assert_non_null(body);
    memset(body, ' ', bytes);
    assert_int_equal(mw_submission_timeout_look(body, bytes), 0);
    memcpy(body + bytes / 2, member, sizeof member - 1);
    assert_int_equal(mw_submission_timeout_look(body, bytes), 0);
    memcpy(body + bytes - MW_TIMEOUT_LOOK_BYTES, member, sizeof member - 1);
    assert_int_equal(mw_submission_timeout_look(body, bytes), 77);
    memset(body, ' ', bytes);
    memcpy(body + 100, member, sizeof member - 1);
    assert_int_equal(mw_submission_timeout_look(body, bytes), 77);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_alone_is_given_the_documented_defaults),
        cmocka_unit_test(every_field_lands_in_the_request),
        cmocka_unit_test(each_extra_has_its_name),
        cmocka_unit_test(base64_decodes_to_the_very_bytes),
        cmocka_unit_test(what_is_no_base64_is_refused),
        cmocka_unit_test(base64_out_and_in_again_is_the_same),
        cmocka_unit_test(mistakes_are_refused_by_the_name_of_their_field),
        cmocka_unit_test(broken_json_is_refused_with_its_place),
        cmocka_unit_test(an_empty_body_is_refused_as_such),
        cmocka_unit_test(lists_over_their_bound_are_too_large),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(diagnostics_carry_every_documented_member),
        cmocka_unit_test(the_time_of_an_unparsed_body_is_told_or_left_open),
        cmocka_unit_test(only_the_edges_of_a_large_body_are_looked_at),
        cmocka_unit_test(no_diagnostics_are_an_empty_list),
        cmocka_unit_test(texts_that_are_no_utf8_never_break_a_document),
        cmocka_unit_test(problem_documents_say_status_type_and_subject),
        cmocka_unit_test(long_texts_are_cut_and_stay_valid),
    };

    return cmocka_run_group_tests_name("service.wire", tests, NULL, NULL);
}

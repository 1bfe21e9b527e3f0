/* outputs_test.c - what a compile can make and tell beside it: every kind of "emit" and of "also",
 * fresh and from the store; targets, and what is said where one cannot be had. */
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

/* A source with a header, something to inline and something to say about it. */
#define MAIN                                                                                       \
    "#include <stddef.h>\n#include \"part.h\"\nsize_t g(int a)\n{\n    return mixed(a);\n}\n"
#define PART "static inline int mixed(int x)\n{\n    return x ^ x >> 3;\n}\n"

/* Compile MAIN. `also`, `args` are lists, taken over. */
static struct answer compile(struct room *room, const char *emit, json_t *also, json_t *args)
{
    return post(room, json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:s, s:s, s:o, s:o, s:i}", "files",
                                "name", "main.c", "content", MAIN, "name", "part.h", "content",
                                PART, "main", "main.c", "emit", emit, "also", also, "args", args,
                                "timeout_ms", PATIENT_MS));
}

static void expect_status(const struct answer *answer, const char *status)
{
    if (answer->status != 200 || strcmp(text_of(answer->json, "status"), status) != 0)
        fail_msg("expected 200 %s, got %ld %s", status, answer->status, answer->reply.body.data);
}

/* The artifact of an answer, whose content type must be `type`. */
static struct bytes fetch(struct room *room, const struct answer *answer, const char *type)
{
    struct reply reply;

    client_send(
        &room->client,
        &(struct request){.path = text_of(json_object_get(answer->json, "artifact"), "url")},
        &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_header(&reply, "Content-Type"), type);
    free(reply.headers.data);
    return reply.body;
}

/* The member of an answer for `also`, which must be the same when it comes from the store and
 * absent when nobody asked for it. Owned by *answer. */
static const json_t *told(struct room *room, const char *also, const char *member, const char *emit,
                          const char *flag, struct answer *answer)
{
    struct answer again, without;

    *answer = compile(room, emit, json_pack("[s]", also), json_pack("[s, s]", "-O2", flag));
    expect_status(answer, "ok");
    again = compile(room, emit, json_pack("[s]", also), json_pack("[s, s]", "-O2", flag));
    assert_true(json_is_true(json_object_get(again.json, "cached")));
    assert_true(
        json_equal(json_object_get(again.json, member), json_object_get(answer->json, member)));
    without = compile(room, emit, json_array(), json_pack("[s, s]", "-O2", flag));
    assert_null(json_object_get(without.json, member));
    assert_string_not_equal(text_of(without.json, "key"), text_of(answer->json, "key"));
    answer_free(&again);
    answer_free(&without);
    return json_object_get(answer->json, member);
}

/* The first entry of `list` whose `member` is `text`, or NULL. */
static const json_t *find(const json_t *list, const char *member, const char *text)
{
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)list, i, item)
    {
        if (strcmp(text_of(item, member), text) == 0)
            return item;
    }
    return NULL;
}

/* Broken when a map is lost on its way, or does not name the line of assembly in either syntax. */
static void a_line_map_names_lines_of_the_assembly(void **state)
{
    static const char *const syntaxes[] = {"-masm=att", "-masm=intel"};
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(syntaxes); i++) {
        struct answer answer = compile(room, "asm", json_pack("[s]", "line-map"),
                                       json_pack("[s, s, s]", "-O1", "-g", syntaxes[i]));
        const json_t *entry = find(json_object_get(answer.json, "line_map"), "file", "part.h");
        struct bytes text;
        const char *line;

        expect_status(&answer, "ok");
        assert_non_null(entry);
        assert_int_equal(number_of(entry, "source_line"), 3);
        text = fetch(room, &answer, "text/plain; charset=utf-8");
        line = text.data;
        for (json_int_t number = number_of(entry, "line"); number > 1; number--)
            line = strchr(line, '\n') + 1;
        if (strncmp(line, "\tsar", 4) != 0 && strncmp(line, "\tmov", 4) != 0)
            fail_msg("part.h:3 is said to be '%.40s'", line);
        assert_true((strcspn(line, "%") < strcspn(line, "\n")) == (i == 0));
        free(text.data);
        answer_free(&answer);
    }
}

/* Broken when the list leaves a file out, or takes a header of the system for one of the request.
 */
static void dependencies_are_what_was_read(void **state)
{
    struct answer answer;
    const json_t *list = told(*state, "dependencies", "dependencies", "object", "-DD", &answer);
    size_t i;
    json_t *item;

    assert_string_equal(text_of(json_array_get(list, 0), "name"), "main.c");
    assert_true(json_is_false(json_object_get(json_array_get(list, 0), "system")));
    assert_non_null(find(list, "name", "part.h"));
    assert_true(json_is_false(json_object_get(find(list, "name", "part.h"), "system")));
    json_array_foreach((json_t *)list, i, item)
    {
        if (strstr(text_of(item, "name"), "/stddef.h"))
            break;
    }
    assert_true(i < json_array_size(list));
    assert_true(json_is_true(json_object_get(item, "system")));
    answer_free(&answer);
}

/* Broken when the optimiser's remarks are not told, or no longer as data. */
static void remarks_tell_what_was_inlined(void **state)
{
    struct answer answer;
    const json_t *remark =
        find(told(*state, "remarks", "remarks", "object", "-DR", &answer), "pass", "inline");

    assert_non_null(remark);
    assert_string_equal(text_of(remark, "function"), "g");
    assert_string_equal(text_of(remark, "file"), "main.c");
    assert_int_equal(number_of(remark, "line"), 5);
    assert_non_null(find(json_object_get(remark, "arguments"), "value", "mixed"));
    answer_free(&answer);
}

/* Broken when a trace has no events of the frontend and of the optimiser. */
static void a_time_trace_has_events(void **state)
{
    struct answer answer;
    const json_t *trace = told(*state, "time-trace", "time_trace", "object", "-DT", &answer);
    const json_t *events = json_object_get(trace, "traceEvents");

    assert_non_null(find(events, "name", "Frontend"));
    assert_non_null(find(events, "name", "Optimizer"));
    answer_free(&answer);
}

/* Broken when a syntax tree is not one that clang loads, or is served as something else. */
static void syntax_trees_are_made(void **state)
{
    struct room *room = *state;
    struct answer tree = compile(room, "ast-json", json_array(), json_array());
    struct answer serialized = compile(room, "ast", json_array(), json_array());
    struct bytes text, bytes;
    json_t *json;

    expect_status(&tree, "ok");
    text = fetch(room, &tree, "application/json");
    json = json_loadb(text.data, text.count, 0, NULL);
    assert_string_equal(text_of(json, "kind"), "TranslationUnitDecl");
    assert_non_null(find(json_object_get(json, "inner"), "name", "mixed"));
    expect_status(&serialized, "ok");
    bytes = fetch(room, &serialized, "application/octet-stream");
    assert_memory_equal(bytes.data, "CPCH", 4);
    json_decref(json);
    free(text.data);
    free(bytes.data);
    answer_free(&tree);
    answer_free(&serialized);
}

/* Compile `source` with one flag. */
static struct answer compile_for(struct room *room, const char *source, const char *flag)
{
    return post(room, json_pack("{s:s, s:s, s:s, s:[s], s:i}", "language", "c", "source", source,
                                "emit", "asm", "args", flag, "timeout_ms", PATIENT_MS));
}

/* Broken when what is listed is not what can be compiled for. */
static void targets_are_listed(void **state)
{
    struct answer answer = ask(*state, &(struct request){.path = "/v1/targets"});
    const json_t *list = json_object_get(answer.json, "targets");

    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(text_of(answer.json, "default"), "-linux-gnu"));
    assert_int_equal(strncmp(text_of(answer.json, "llvm_version"), "19.", 3), 0);
    assert_non_null(find(list, "name", "x86-64"));
    assert_non_null(find(list, "name", "aarch64"));
    assert_string_not_equal(text_of(find(list, "name", "aarch64"), "description"), "");
    assert_null(find(list, "name", "nonsense"));
    answer_free(&answer);
}

/* Broken when another machine's code is not made, or is this machine's. */
static void another_machine_is_compiled_for(void **state)
{
    struct room *room = *state;
    struct answer answer =
        compile_for(room, "int f(int a) { return a * 3; }\n", "--target=aarch64-linux-gnu");
    struct bytes text;

    expect_status(&answer, "ok");
    text = fetch(room, &answer, "text/plain; charset=utf-8");
    assert_non_null(strstr(text.data, "w0"));
    free(text.data);
    answer_free(&answer);
}

/* Broken when a compile for a machine that is unknown, or whose headers are missing, fails without
 * a word on why; or when the word is said of any failure. */
static void what_lacks_for_a_machine_is_said(void **state)
{
    static const struct {
        const char *source, *flag, *says; /* NULL: nothing */
    } cases[] = {
        {"int f;\n", "--target=nonsense", "GET /v1/targets"},
        {"#include <stdio.h>\n", "--target=sparc64-linux-gnu", "'sparc64-linux-gnu' are not"},
        {"#include <stdio.h>\n", "--target=x86_64-pc-windows-msvc", "are not installed here"},
        {"#include \"own.h\"\n", "--target=sparc64-linux-gnu", NULL},
        {"int f\n", "--target=sparc64-linux-gnu", NULL},
        {"#include <no-such-header.h>\n", "-O1", NULL},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer = compile_for(*state, cases[i].source, cases[i].flag);
        char *text;

        expect_status(&answer, "failed");
        text = json_dumps(json_object_get(answer.json, "diagnostics"), JSON_COMPACT);
        if (cases[i].says ? !strstr(text, cases[i].says) : strstr(text, "installed here") != NULL)
            fail_msg("%s with %s: %s", cases[i].source, cases[i].flag, text);
        free(text);
        answer_free(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_map_names_lines_of_the_assembly),
        cmocka_unit_test(dependencies_are_what_was_read),
        cmocka_unit_test(remarks_tell_what_was_inlined),
        cmocka_unit_test(a_time_trace_has_events),
        cmocka_unit_test(syntax_trees_are_made),
        cmocka_unit_test(targets_are_listed),
        cmocka_unit_test(another_machine_is_compiled_for),
        cmocka_unit_test(what_lacks_for_a_machine_is_said),
    };

    return cmocka_run_group_tests_name("service.outputs", tests, room_setup_started, room_teardown);
}

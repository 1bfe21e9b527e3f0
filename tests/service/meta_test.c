/* meta_test.c - what is kept beside an artifact comes back in answers as it was; what a hostile
 * worker says in place of it never breaks a document. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_text.h"
#include "meta.h"

#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define BIT(extra)     (1u << (extra))
#define TEXT(constant) {(char *)(constant), sizeof(constant) - 1}

/* The answer made of `result`'s meta, as JSON again. */
static json_t *answer_of(const struct mw_compile_result *result, unsigned extras, bool complete)
{
    size_t bytes;
    bool told;
    char *meta = mw_meta_make(result, extras, &bytes, &told);
    char *text;
    json_t *answer;

    assert_non_null(meta);
    assert_int_equal(strlen(meta), bytes);
    assert_int_equal(told, complete);
    text = mw_meta_answer(json_pack("{s:s}", "status", "ok"), meta, bytes);
    assert_non_null(text);
    answer = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!answer)
        fail_msg("no JSON: %s", text);
    free(text);
    free(meta);
    return answer;
}

/* Broken when an extra is lost on the way, or lands in another's member. */
static void extras_come_back_as_they_were(void **state)
{
    const struct mw_compile_result result = {
        .extras = {[MW_EXTRA_DEPENDENCIES] = TEXT("[{\"name\":\"a.c\",\"system\":false}]"),
                   [MW_EXTRA_REMARKS] = TEXT("[]"),
                   [MW_EXTRA_TIME_TRACE] = TEXT(" {\"traceEvents\":\n[{\"ts\" : -1.5e+3}]}\r\n"),
                   [MW_EXTRA_LINE_MAP] = TEXT("[{\"line\":1}]")}};
    json_t *answer = answer_of(&result, BIT(MW_EXTRAS) - 1, true);
    json_t *trace = json_object_get(answer, "time_trace");

    (void)state;
    assert_int_equal(json_object_size(answer), 1 + MW_EXTRAS);
    assert_int_equal(json_array_size(json_object_get(answer, "dependencies")), 1);
    assert_true(json_is_array(json_object_get(answer, "remarks")));
    assert_int_equal(json_array_size(json_object_get(trace, "traceEvents")), 1);
    assert_int_equal(json_array_size(json_object_get(answer, "line_map")), 1);
    json_decref(answer);
}

/* Broken when what was not asked for is told, or what was asked for and is not there is left out
 * without a word. */
static void what_is_missing_is_null_and_told(void **state)
{
    const struct mw_compile_result result = {.extras = {[MW_EXTRA_REMARKS] = TEXT("[]")}};
    json_t *answer = answer_of(&result, BIT(MW_EXTRA_DEPENDENCIES), false);

    (void)state;
    assert_int_equal(json_object_size(answer), 2);
    assert_true(json_is_null(json_object_get(answer, "dependencies")));
    json_decref(answer);
    answer = answer_of(&result, 0, true); /* control */
    assert_int_equal(json_object_size(answer), 1);
    json_decref(answer);
}

/* Broken when a worker's nonsense gets into an answer. */
static void what_is_no_json_is_dropped(void **state)
{
    static const struct mw_text texts[] = {
        TEXT(""),
        TEXT(" "),
        TEXT("["),
        TEXT("[1"),
        TEXT("[1,]"),
        TEXT("[,1]"),
        TEXT("[1]]"),
        TEXT("[1] [2]"),
        TEXT("1"),
        TEXT("\"a\""),
        TEXT("null"),
        TEXT("{\"a\"}"),
        TEXT("{\"a\":}"),
        TEXT("{a:1}"),
        TEXT("{1:1}"),
        TEXT("{\"a\":1,}"),
        TEXT("{\"a\" 1}"),
        TEXT("[01]"),
        TEXT("[1.]"),
        TEXT("[.5]"),
        TEXT("[-]"),
        TEXT("[1e]"),
        TEXT("[+1]"),
        TEXT("[0x1]"),
        TEXT("[NaN]"),
        TEXT("[tru]"),
        TEXT("[nulll]"),
        TEXT("[\"a]"),
        TEXT("[\"\\\"]"),
        TEXT("[\"\\x41\"]"),
        TEXT("[\"\\u12\"]"),
        TEXT("[\"\\u12g4\"]"),
        TEXT("[\"a\nb\"]"),
        TEXT("[\"\0\"]"),
        TEXT("[\0]"),
        TEXT("[1]\0"),
        TEXT("[\"\377\"]"),
        TEXT("[\"\303\"]"),
        TEXT("[\"\300\200\"]"),
        TEXT("[\"\355\240\200\"]"),
        TEXT("[\"\364\220\200\200\"]"),
        TEXT("[1]}, \"status\":\"failed\""),
        TEXT("['a']"),
        TEXT("[1//\n]"),
        TEXT("[}"),
        TEXT("{]"),
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        const struct mw_compile_result result = {.extras = {[MW_EXTRA_REMARKS] = texts[i]}};
        json_t *answer = answer_of(&result, BIT(MW_EXTRA_REMARKS), false);

        assert_true(json_is_null(json_object_get(answer, "remarks")));
        json_decref(answer);
    }
}

/* Broken when JSON that a compile may well tell is dropped. */
static void what_is_json_passes(void **state)
{
    static const char *const texts[] = {
        "[]",
        "{}",
        "[[],{}]",
        "[0,-0,10,1.5,1e9,1E-9,-1.25e+2]",
        "[true,false,null]",
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"]",
        "[\"\303\251\342\202\254\360\237\230\200\"]",
        " [ 1 , { \"a\" : [ ] } ] ",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        const struct mw_compile_result result = {
            .extras = {[MW_EXTRA_REMARKS] = {(char *)texts[i], strlen(texts[i])}}};
        json_t *expected = json_loads(texts[i], 0, NULL);
        json_t *answer = answer_of(&result, BIT(MW_EXTRA_REMARKS), true);

        assert_true(json_equal(json_object_get(answer, "remarks"), expected));
        json_decref(expected);
        json_decref(answer);
    }
}

/* `depth` arrays in one another. */
static void nest(char *text, size_t depth)
{
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
}

/* Broken when nesting has no bound, and with it the stack. */
static void nesting_is_bounded(void **state)
{
    char text[2 * MW_JSON_DEPTH_MAX + 2], out[sizeof text];
    size_t bytes;

    (void)state;
    nest(text, MW_JSON_DEPTH_MAX + 1);
    assert_int_equal(mw_json_pass(text, 2 * MW_JSON_DEPTH_MAX + 2, out, &bytes), -EINVAL);
    nest(text, MW_JSON_DEPTH_MAX); /* control */
    assert_int_equal(mw_json_pass(text, 2 * MW_JSON_DEPTH_MAX, out, &bytes), 0);
    assert_int_equal(bytes, 2 * MW_JSON_DEPTH_MAX);
}

/* Broken when a text of any bytes is read past its end, or more comes out than went in: for the
 * sanitizers. What passes, jansson must take as well. */
static void no_bytes_lead_astray(void **state)
{
    static const char seed_text[] = "[{\"a\":[1,-2.5e3,true,null,\"\\u00e9\\n\303\251\"]},{}, []]";
    static const char bytes_of[] = "[]{}\":,\\0-1e.tu \n\303\251\377";
    unsigned seed = 7;

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        size_t bytes = sizeof seed_text - 1 - round % 3, passed;
        char *text = malloc(bytes), *out = malloc(bytes);

        memcpy(text, seed_text, bytes);
        for (unsigned change = 0; change < 1 + round % 4; change++) {
            seed = seed * 1103515245u + 12345u;
            text[(seed >> 8) % bytes] = bytes_of[(seed >> 20) % (sizeof bytes_of - 1)];
        }
        if (mw_json_pass(text, bytes, out, &passed) == 0) {
            json_t *json = json_loadb(out, passed, 0, NULL);

            assert_true(passed <= bytes);
            if (!json && !memmem(out, passed, "\\u", 2)) /* halves of a pair are refused there */
                fail_msg("jansson refuses %.*s", (int)passed, out);
            json_decref(json);
        }
        free(text);
        free(out);
    }
}

/* Broken when an extra over its bound is kept. */
static void an_extra_over_its_bound_is_dropped(void **state)
{
    const size_t bytes = MW_EXTRA_BYTES_MAX + 1;
    struct mw_compile_result result = {.extras = {[MW_EXTRA_REMARKS] = {malloc(bytes), bytes}}};
    char *text = result.extras[MW_EXTRA_REMARKS].data;
    json_t *answer;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[0] = '[';
    text[bytes - 2] = ']';
    answer = answer_of(&result, BIT(MW_EXTRA_REMARKS), false);
    assert_true(json_is_null(json_object_get(answer, "remarks")));
    json_decref(answer);
    result.extras[MW_EXTRA_REMARKS].bytes = bytes - 1; /* control */
    answer = answer_of(&result, BIT(MW_EXTRA_REMARKS), true);
    assert_true(json_is_array(json_object_get(answer, "remarks")));
    json_decref(answer);
    free(text);
}

/* Broken when the first line, of which the diagnostics are read, ends elsewhere. */
static void the_head_is_read_without_the_extras(void **state)
{
    static const char meta[] = "{\"diagnostics\":[],\"dropped\":3}\nremarks [1]";
    json_t *head = mw_meta_head(meta, sizeof meta - 1);

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(head, "dropped")), 3);
    json_decref(head);
    head = mw_meta_head(meta, strcspn(meta, "\n")); /* one that was kept without extras */
    assert_int_equal(json_integer_value(json_object_get(head, "dropped")), 3);
    json_decref(head);
    assert_null(mw_meta_answer(NULL, meta, sizeof meta - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extras_come_back_as_they_were),
        cmocka_unit_test(what_is_missing_is_null_and_told),
        cmocka_unit_test(what_is_no_json_is_dropped),
        cmocka_unit_test(what_is_json_passes),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(no_bytes_lead_astray),
        cmocka_unit_test(an_extra_over_its_bound_is_dropped),
        cmocka_unit_test(the_head_is_read_without_the_extras),
    };

    return cmocka_run_group_tests_name("service.meta", tests, NULL, NULL);
}

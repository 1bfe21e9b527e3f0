/* json_read_test.c - what mw_json_read makes of a text is what jansson makes of it, value or words
 * of refusal, whatever the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_read.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define FILLING_BYTES 300 /* a string with it is long */
#define CASES         20000u
#define SEED          87232857u
#define TEXT_MAX      8192u

static char filling[FILLING_BYTES + 1];

/* Read `text` both ways, which must agree. Returns whether it was taken. */
static bool compare(const char *text, size_t bytes, size_t *spared)
{
    json_error_t expected, found;
    json_t *by_jansson = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &expected);
    json_t *by_us = mw_json_read(text, bytes, &found, spared);
    bool is_taken = by_us != NULL;

    if (is_taken != (by_jansson != NULL))
        fail_msg("'%.*s' is %s", (int)bytes, text, is_taken ? "taken" : "refused");
    if (is_taken && !json_equal(by_jansson, by_us))
        fail_msg("'%.*s' is read as something else", (int)bytes, text);
    if (!is_taken) {
        assert_string_equal(found.text, expected.text);
        assert_int_equal(found.line, expected.line);
        assert_int_equal(found.column, expected.column);
        assert_int_equal(found.position, expected.position);
    }
    json_decref(by_jansson);
    json_decref(by_us);
    return is_taken;
}

/* `form` has one "%s" for the long filling. */
static bool compare_form(const char *form, size_t *spared)
{
    char text[TEXT_MAX];
    const char *at = strstr(form, "%s");
    int bytes = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - form), form, filling, at + 2);

    assert_in_range(bytes, 0, sizeof text - 1);
    return compare(text, (size_t)bytes, spared);
}

static int filling_make(void **state)
{
    (void)state;
    memset(filling, 'x', FILLING_BYTES);
    return 0;
}

/* --- tests --- */

/* Broken when long strings are not spared, so that the reading is slow again; or when one is that
 * only jansson may judge. */
static void long_strings_are_spared_where_that_is_safe(void **state)
{
    static const struct {
        const char *form;
        bool is_taken;
        size_t spared;
    } forms[] = {
        {"{\"source\":\"%s\"}", true, 1},
        {"{\"source\" : \"%s\\n\\\"\\\\\\/\\b\\f\\r\\t\" , \"a\":1}", true, 1},
        {"[[{\"a\":[\"short\",\"%s\",\"short\"]}],null]", true, 1},
        {"[\"\xc3\xa4\xf0\x9f\x98\x80%s\"]", true, 1},
        {"[\"%s\x7f\"]", true, 1},
        {"[\"short\"  ]", true, 0},
        {"{\"%s\":1}", true, 0},                    /* a name */
        {"{\"%s\" \t\r\n:1}", true, 0},             /* a name, after a while */
        {"[\"%s\\u0041\"]", true, 0},               /* an escape of more letters */
        {"[\"%s\\ud83d\\ude00\"]", true, 0},        /* a pair of them */
        {"[\"%s\\ud83d\"]", false, 0},              /* half a pair */
        {"[\"%s\\u0000\"]", false, 0},              /* a NUL */
        {"[\"%s\\x\"]", false, 0},                  /* no escape */
        {"[\"%s\n\"]", false, 0},                   /* a control character */
        {"[\"%s\xc3\"]", false, 0},                 /* no UTF-8 */
        {"[\"%s\xc0\x80\"]", false, 0},             /* NUL, overlong */
        {"[\"%s\xed\xa0\x80\"]", false, 0},         /* half a pair in UTF-8 */
        {"[\"%s\xf4\x90\x80\x80\"]", false, 0},     /* past the last character */
        {"[\"%s\xc3\\n\xa4\"]", false, 0},          /* a character with an escape within */
        {"[\"%s\\\"]", false, 0},                   /* the end is escaped */
        {"[\"%s\\\\\"]", true, 1},                  /* the backslash is */
        {"[\"%s\\\"", false, 0},                    /* and nothing follows */
        {"[\"%s\" \"b\"]", false, 0},               /* no comma */
        {"[\"%s\"", false, 0},                      /* no end */
        {"\"%s\"", false, 0},                       /* no object or array */
        {"{\"a\":\"%s\",\"a\":2}", false, 0},       /* twice the same name */
        {"{\"a\":\"%s\"} x", false, 0},             /* more behind */
        {"[\"%s\", 1e999]", false, 0},              /* no number */
        {"{\"a\":[\"%s\"],\n  \"b\": }", false, 0}, /* in another line */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(forms); i++) {
        size_t spared = 0;

        if (!strstr(forms[i].form, "%s")) {
            assert_true(compare(forms[i].form, strlen(forms[i].form), &spared));
        } else if (compare_form(forms[i].form, &spared) != forms[i].is_taken) {
            fail_msg("'%s' is %s", forms[i].form, forms[i].is_taken ? "refused" : "taken");
        }
        if (spared != forms[i].spared)
            fail_msg("'%s' spares %zu", forms[i].form, spared);
    }
    assert_false(compare("", 0, NULL));
}

/* Broken when strings get into each other's places, or when there is room for some only. */
static void many_long_strings_keep_their_places(void **state)
{
    json_t *list = json_array();
    size_t spared;
    char *text;

    (void)state;
    for (int i = 0; i < 100; i++)
        json_array_append_new(list, json_pack("{s:o, s:s}", "a", json_sprintf("%d%s", i, filling),
                                              "b", i % 2 ? "short" : filling));
    text = json_dumps(list, 0);
    assert_true(compare(text, strlen(text), &spared));
    assert_int_equal(spared, 150);
    free(text);
    json_decref(list);
}

/* Broken when nesting is bounded by other than jansson, which says so. */
static void deep_nesting_is_refused_as_by_jansson(void **state)
{
    char text[2 * TEXT_MAX];
    size_t depth;

    (void)state;
    for (depth = 2046; depth < 2052; depth++) {
        size_t bytes;

        memset(text, '[', depth);
        bytes = depth + (size_t)snprintf(text + depth, sizeof text - depth, "\"%s\"", filling);
        memset(text + bytes, ']', depth);
        assert_int_equal(compare(text, bytes + depth, NULL),
                         depth + 1 <= 2048); /* the string is a level */
    }
}

static uint32_t random_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A text that is changed in a few places, mostly by what has a meaning. */
static size_t text_damage(char *text, size_t bytes, uint32_t *seed)
{
    static const char pieces[] = "\"\"\"\\\\\\{}[],:nu0 \n\x01\xc3\xa4\xed\x7f";

    for (uint32_t i = random_next(seed) % 4; i > 0; i--) {
        size_t at = random_next(seed) % bytes;

        text[at] = pieces[random_next(seed) % (sizeof pieces - 1)];
    }
    return random_next(seed) % 8 == 0 ? random_next(seed) % bytes : bytes;
}

/* Broken by any text of which the two ways are not of one mind. */
static void damaged_texts_are_read_as_by_jansson(void **state)
{
    char whole[TEXT_MAX], text[TEXT_MAX];
    unsigned taken = 0, refused = 0, with_spared = 0;
    uint32_t seed = SEED;
    int bytes;

    (void)state;
    bytes = snprintf(whole, sizeof whole,
                     "{\"source\":\"%s\\n\\\"\\\\\",\"%s\" : [1,\"\",\"a\\\\\",\"\\\"%s\"],\"c\":"
                     "{\"d\":\"\xc3\xa4%s\",\"e\":\"\\u00e4%s\"}}",
                     filling, filling, filling, filling, filling);
    assert_in_range(bytes, 0, sizeof whole - 1);
    for (unsigned i = 0; i < CASES; i++) {
        size_t spared;

        memcpy(text, whole, (size_t)bytes);
        if (compare(text, text_damage(text, (size_t)bytes, &seed), &spared))
            taken++;
        else
            refused++;
        with_spared += spared > 0;
    }
    print_message("%u taken, %u of them with strings spared, %u refused\n", taken, with_spared,
                  refused);
    assert_true(taken > CASES / 10 && with_spared > CASES / 10 && refused > CASES / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_strings_are_spared_where_that_is_safe),
        cmocka_unit_test(many_long_strings_keep_their_places),
        cmocka_unit_test(deep_nesting_is_refused_as_by_jansson),
        cmocka_unit_test(damaged_texts_are_read_as_by_jansson),
    };

    return cmocka_run_group_tests(tests, filling_make, NULL);
}

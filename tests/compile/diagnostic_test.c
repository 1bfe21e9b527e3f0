#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "folder.h"
#include "trial.h"

/* An entry with every text present. */
static struct mw_diagnostic entry(enum mw_severity severity, const char *message)
{
    return (struct mw_diagnostic){
        .severity = severity,
        .file = "a.c",
        .message = message,
        .flag = "",
        .category = "",
        .line_text = "",
    };
}

static void add(struct mw_diagnostics *list, enum mw_severity severity, const char *message)
{
    struct mw_diagnostic item = entry(severity, message);

    assert_int_equal(mw_diagnostics_add(list, &item), 0);
}

/* Breaks when a list keeps pointers to what the compiler will take away. */
static void list_copies_what_it_keeps(void **state)
{
    char text[] = "message";
    struct mw_fixit fixit = {.file = text, .text = text};
    struct mw_diagnostic item = entry(MW_SEVERITY_WARNING, text);
    struct mw_diagnostics list = {0};

    (void)state;
    item.fixits = &fixit;
    item.fixit_count = 1;
    item.flag = NULL; /* a string is never NULL in a list */
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    memset(text, 'x', 7);
    assert_string_equal(list.items[0].message, "message");
    assert_string_equal(list.items[0].fixits[0].text, "message");
    assert_string_equal(list.items[0].flag, "");
    mw_diagnostics_fini(&list);
    assert_int_equal(list.count, 0);
    mw_diagnostics_fini(&list);
    mw_diagnostics_fini(NULL);
}

/* Breaks when notes stand alone, or go to another entry than theirs. */
static void notes_go_below_their_entry(void **state)
{
    struct mw_diagnostics list = {0};

    (void)state;
    add(&list, MW_SEVERITY_NOTE, "alone");
    add(&list, MW_SEVERITY_ERROR, "first");
    add(&list, MW_SEVERITY_NOTE, "to first");
    add(&list, MW_SEVERITY_REMARK, "second");
    for (unsigned i = 0; i < MW_DIAGNOSTIC_NOTES_MAX + 3; i++)
        add(&list, MW_SEVERITY_NOTE, "to second");
    assert_int_equal(list.count, 3);
    assert_int_equal(list.items[0].note_count, 0);
    assert_string_equal(list.items[1].notes[0].message, "to first");
    assert_int_equal(list.items[1].note_count, 1);
    assert_int_equal(list.items[2].note_count, MW_DIAGNOSTIC_NOTES_MAX);
    assert_int_equal(list.dropped, 3);
    mw_diagnostics_fini(&list);
}

/* Breaks when a full list takes more, loses the error, or gives notes of what it dropped to the
 * entry before. */
static void full_list_keeps_errors(void **state)
{
    struct mw_diagnostics list = {0};

    (void)state;
    add(&list, MW_SEVERITY_ERROR, "early error");
    for (unsigned i = 1; i < MW_DIAGNOSTICS_MAX; i++)
        add(&list, MW_SEVERITY_WARNING, "warning");
    add(&list, MW_SEVERITY_WARNING, "over");
    add(&list, MW_SEVERITY_NOTE, "note to over");
    assert_int_equal(list.items[MW_DIAGNOSTICS_MAX - 1].note_count, 0);
    assert_int_equal(list.dropped, 2);

    add(&list, MW_SEVERITY_ERROR, "late error");
    add(&list, MW_SEVERITY_NOTE, "note to late error");
    assert_int_equal(list.count, MW_DIAGNOSTICS_MAX);
    assert_int_equal(list.errors, 2);
    assert_int_equal(list.dropped, 3);
    assert_string_equal(list.items[0].message, "early error");
    assert_string_equal(list.items[list.count - 1].message, "late error");
    assert_string_equal(list.items[list.count - 1].notes[0].message, "note to late error");

    for (unsigned i = 2; i < MW_DIAGNOSTICS_MAX + 5; i++)
        add(&list, MW_SEVERITY_FATAL, "many");
    assert_int_equal(list.errors, MW_DIAGNOSTICS_MAX);
    assert_int_equal(list.count, MW_DIAGNOSTICS_MAX);
    mw_diagnostics_fini(&list);
}

/* Breaks when a text is cut inside a character, or not at all. */
static void long_texts_are_cut_at_a_character(void **state)
{
    char text[MW_DIAGNOSTIC_TEXT_BYTES_MAX + 8];
    struct mw_diagnostics list = {0};

    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text + MW_DIAGNOSTIC_TEXT_BYTES_MAX - 2, "\xe2\x82\xac", 3); /* the euro sign */
    text[sizeof(text) - 1] = '\0';
    add(&list, MW_SEVERITY_ERROR, text);
    assert_int_equal(strlen(list.items[0].message), MW_DIAGNOSTIC_TEXT_BYTES_MAX - 2);
    memset(text, 'a', sizeof(text) - 1);
    add(&list, MW_SEVERITY_ERROR, text);
    assert_int_equal(strlen(list.items[1].message), MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    mw_diagnostics_fini(&list);
}

/* Breaks when a part of a fix is kept: applied, it would spoil the source. */
static void too_many_fixits_are_none(void **state)
{
    struct mw_fixit fixits[MW_DIAGNOSTIC_FIXITS_MAX + 1];
    struct mw_diagnostic item = entry(MW_SEVERITY_WARNING, "w");
    struct mw_diagnostics list = {0};

    (void)state;
    for (size_t i = 0; i <= MW_DIAGNOSTIC_FIXITS_MAX; i++)
        fixits[i] = (struct mw_fixit){.file = "a.c", .text = "x"};
    item.fixits = fixits;
    item.fixit_count = MW_DIAGNOSTIC_FIXITS_MAX;
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    item.fixit_count++;
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    assert_int_equal(list.items[0].fixit_count, MW_DIAGNOSTIC_FIXITS_MAX);
    assert_int_equal(list.items[1].fixit_count, 0);
    assert_int_equal(list.dropped, MW_DIAGNOSTIC_FIXITS_MAX + 1);
    mw_diagnostics_fini(&list);
}

static char *print(const struct mw_diagnostics *list, bool colour)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(mw_diagnostics_print(list, out, colour), 0);
    fclose(out);
    return text;
}

/* Make what clang said comparable: its last line counts, and it leaves spaces at line ends. */
static void trim(char *text)
{
    char *end = strstr(text, " generated.\n");
    char *out = text;

    assert_non_null(end);
    while (end > text && end[-1] != '\n')
        end--;
    for (const char *in = text; in < end; in++) {
        while (*in == '\n' && out > text && out[-1] == ' ')
            out--;
        *out++ = *in;
    }
    *out = '\0';
}

/* Breaks when a line, a caret, a range or a fix-it prints otherwise than in clang. */
static void print_is_that_of_clang(void **state)
{
    static const struct trial trials[] = {
        {.files = {{"a.c", "int f(int n)\n{\n\tif (n = 4)\n\t\treturn 1;\n\treturn 0\n}\n"}}},
        {.files = {{"a.c", "#include \"part.h\"\nint g(void) { return no; }\n"},
                   {"part.h", "int h(void) { return nothing; }\nint i(void) { return it; }\n"}}},
        {.files = {{"a.c", "#include <none-such.h>\n"}}},
        {.files = {{"a.c", "#define ADD(a) f(a)\nint f(int *);\n\nint g(int x) {\n"
                           "    const char *s = \"\xe2\x82\xac \xe6\xbc\xa2\"; x = *s;\n"
                           "    return ADD(x + 1); }\n"}}},
        {.files = {{"b.cc", "struct a { int b; }\nint f(a x) { return x.c + x->b; }\n"
                            "template <class T> T g(T t) { return t.x; }\n"
                            "int h() { return g(3); }\n"}}},
    };

    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        struct folder folder;
        folder_make(&folder);
        struct mw_compile_result result;
        struct bytes said;
        char *printed;

        assert_int_equal(trial_emit(*state, &trials[i], &result), 0);
        printed = print(&result.diagnostics, false);
        free(trial_clang(*state, &trials[i], folder.path, (const char *[3]){"-c"}, &said).data);
        trim(said.data);
        assert_string_equal(printed, said.data);
        free(said.data);
        free(printed);
        mw_compile_result_fini(&result);
        folder_remove(&folder);
    }
}

/* Breaks when source can send commands to a terminal, or move its text about. */
static void print_shows_no_control_characters(void **state)
{
    struct mw_diagnostic item = entry(MW_SEVERITY_ERROR, "m\033[2J");
    struct mw_diagnostics list = {0};
    char *text;

    (void)state;
    item.file = "a\r.c";
    item.line_text = "x\033]0;t\007\xc2\x9b \xe2\x80\xae \xff y";
    item.at = item.begin = item.end = (struct mw_place){1, 1, 0};
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    text = print(&list, false);
    assert_string_equal(text, "a?.c:1:1: error: m?[2J\n"
                              "    1 | x?]0;t?? ? ? y\n"
                              "      | ^\n");
    free(text);
    mw_diagnostics_fini(&list);
}

/* Breaks when a caret is drawn past the end of a line that was cut. */
static void print_leaves_out_a_line_that_was_cut(void **state)
{
    struct mw_diagnostic item = entry(MW_SEVERITY_ERROR, "far right");
    struct mw_diagnostics list = {0};
    char *text;

    (void)state;
    item.line_text = "short";
    item.at = item.begin = item.end = (struct mw_place){1, 7, 6};
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    item.at.column = 6; /* the control: just behind the line there may be a caret */
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    text = print(&list, false);
    assert_string_equal(text, "a.c:1:7: error: far right\n"
                              "a.c:1:6: error: far right\n"
                              "    1 | short\n"
                              "      |      ^\n");
    free(text);
    mw_diagnostics_fini(&list);
}

/* Breaks when the colours of clang are lost, or leak when none are wanted. */
static void print_colours_when_asked(void **state)
{
    struct mw_diagnostic item = entry(MW_SEVERITY_WARNING, "m");
    struct mw_diagnostics list = {0};
    char *text;

    (void)state;
    item.flag = "-Wx";
    assert_int_equal(mw_diagnostics_add(&list, &item), 0);
    text = print(&list, true);
    assert_string_equal(text, "\033[1ma.c: \033[0m\033[0;1;35mwarning: \033[0m"
                              "\033[1mm [-Wx]\033[0m\n");
    free(text);
    text = print(&list, false);
    assert_string_equal(text, "a.c: warning: m [-Wx]\n");
    free(text);
    mw_diagnostics_fini(&list);
}

/* Breaks when a full disk goes unnoticed. */
static void print_reports_a_failed_write(void **state)
{
    struct mw_diagnostics list = {0};
    FILE *full = fopen("/dev/full", "w");

    (void)state;
    if (!full) {
        fail_msg("/dev/full cannot be opened");
        return;
    }
    add(&list, MW_SEVERITY_ERROR, "m");
    assert_int_equal(mw_diagnostics_print(&list, full, false), -EIO);
    fclose(full);
    mw_diagnostics_fini(&list);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_copies_what_it_keeps),
        cmocka_unit_test(notes_go_below_their_entry),
        cmocka_unit_test(full_list_keeps_errors),
        cmocka_unit_test(long_texts_are_cut_at_a_character),
        cmocka_unit_test(too_many_fixits_are_none),
        cmocka_unit_test(print_is_that_of_clang),
        cmocka_unit_test(print_shows_no_control_characters),
        cmocka_unit_test(print_leaves_out_a_line_that_was_cut),
        cmocka_unit_test(print_colours_when_asked),
        cmocka_unit_test(print_reports_a_failed_write),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

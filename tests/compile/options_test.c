#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/options.h>

#define ARGS_MAX 8

struct row {
    const char *main;
    enum mw_language language;
    enum mw_emit_kind emit;
    const char *args[ARGS_MAX];
    const char *fingerprint;
};

static const struct row rows[] = {
    {"a.c", MW_LANGUAGE_AUTO, MW_EMIT_OBJECT, {NULL}, "language c\nemit object\ntarget default\n"},
    {"a.c", MW_LANGUAGE_C, MW_EMIT_OBJECT, {NULL}, "language c\nemit object\ntarget default\n"},
    {"a.c",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {"-x", "c"},
     "language c\nemit object\ntarget default\n"},
    {"a.c",
     MW_LANGUAGE_CXX,
     MW_EMIT_ASM,
     {"-O2"},
     "language c++\nemit asm\ntarget default\narg -xc++\narg -O2\n"},
    {"a.txt",
     MW_LANGUAGE_C,
     MW_EMIT_NONE,
     {NULL},
     "language c\nemit none\ntarget default\narg -xc\n"},
    {"a.txt",
     MW_LANGUAGE_AUTO,
     MW_EMIT_LLVM_IR,
     {"-Wall", "-xc", "-O1"},
     "language c\nemit llvm-ir\ntarget default\narg -xc\narg -Wall\narg -O1\n"},
    {"a.c",
     MW_LANGUAGE_C,
     MW_EMIT_OBJECT,
     {"-x", "c", "-xc"},
     "language c\nemit object\ntarget default\n"},
    {"x.c/a.cc",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {"-D", "A=1", "-UA", "-pipe", "-I", "x"},
     "language c++\nemit object\ntarget default\narg -DA=1\narg -UA\narg -Ix\n"},
    {"a.cpp",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language c++\nemit object\ntarget default\n"},
    {"a.cxx",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language c++\nemit object\ntarget default\n"},
    {"a.C",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language c++\nemit object\ntarget default\n"},
    {"a.c++",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language c++\nemit object\ntarget default\n"},
    {"a.i",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language cpp-output\nemit object\ntarget default\n"},
    {"a.ii",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {NULL},
     "language c++-cpp-output\nemit object\ntarget default\n"},
    {"a.i",
     MW_LANGUAGE_C,
     MW_EMIT_OBJECT,
     {NULL},
     "language c\nemit object\ntarget default\narg -xc\n"},
    {"a.c",
     MW_LANGUAGE_AUTO,
     MW_EMIT_OBJECT,
     {"--target=a", "-target", "b-c"},
     "language c\nemit object\ntarget b-c\narg --target=a\narg --target=b-c\n"},
};

static struct mw_compile_request request_of(const struct row *row)
{
    size_t count = 0;

    while (count < ARGS_MAX && row->args[count])
        count++;
    return (struct mw_compile_request){.language = row->language,
                                       .emit = row->emit,
                                       .directory = "/src",
                                       .main = row->main,
                                       .args = row->args,
                                       .arg_count = count};
}

/* Broken by an option that is lost, reordered or not named, or by one compile written in two ways
 * that gets two fingerprints. */
static void the_fingerprint_names_what_decides_the_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_compile_request request = request_of(&rows[i]);
        struct mw_options *options = NULL;
        struct mw_refusal refusal = {0};

        if (mw_options_new(&options, &request, &refusal) < 0)
            fail_msg("'%s' is refused: %s", refusal.subject, refusal.reason);
        assert_string_equal(mw_options_fingerprint(options), rows[i].fingerprint);
        assert_int_equal(mw_options_emit(options), rows[i].emit);
        mw_options_free(options);
    }
}

/* Broken by arguments for the driver that differ from those of the fingerprint, or have no end. */
static void the_arguments_are_those_of_the_fingerprint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_compile_request request = request_of(&rows[i]);
        const char *line = strstr(rows[i].fingerprint, "arg ");
        struct mw_options *options = NULL;
        const char *const *args;
        size_t count;

        assert_int_equal(mw_options_new(&options, &request, NULL), 0);
        args = mw_options_args(options, &count);
        for (size_t j = 0; j < count; j++) {
            size_t bytes = strlen(args[j]);

            assert_non_null(line);
            assert_memory_equal(line + strlen("arg "), args[j], bytes);
            assert_int_equal(line[strlen("arg ") + bytes], '\n');
            line = strstr(line + strlen("arg "), "arg ");
        }
        assert_null(line);
        assert_null(args[count]);
        mw_options_free(options);
    }
}

/* Broken by a guess: nothing says what a.txt or a header is. */
static void an_unknown_language_is_refused_and_asked_for(void **state)
{
    static const char *const names[] = {"a.txt", "a", "a.h", "a.s", "a.o", "a.c/b", "a.m", "a."};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct row row = {.main = names[i]};
        struct mw_compile_request request = request_of(&row);
        struct mw_options *options = NULL;
        struct mw_refusal refusal = {0};

        assert_int_equal(mw_options_new(&options, &request, &refusal), -EINVAL);
        assert_null(options);
        assert_int_equal(refusal.kind, MW_REFUSAL_FIELD);
        assert_string_equal(refusal.subject, "language");
        assert_non_null(strstr(refusal.reason, "give \"c\" or \"c++\""));
    }
}

/* Broken by one of two contradicting languages being followed in silence. */
static void languages_that_disagree_are_refused(void **state)
{
    static const struct row wrong[] = {
        {.main = "a.c", .language = MW_LANGUAGE_C, .args = {"-xc++"}},
        {.main = "a.c", .args = {"-xc", "-x", "c++"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mw_compile_request request = request_of(&wrong[i]);
        struct mw_options *options = NULL;
        struct mw_refusal refusal = {0};

        assert_int_equal(mw_options_new(&options, &request, &refusal), -EPERM);
        assert_int_equal(refusal.kind, MW_REFUSAL_FLAG);
        assert_string_equal(refusal.subject, "-xc++");
        assert_non_null(strstr(refusal.reason, "disagrees with the language given before, c;"));
    }
}

/* Broken by a refusal after flags that were fine (what they took must be released). */
static void a_refused_flag_refuses_the_options(void **state)
{
    struct row row = {.main = "a.c", .args = {"-O2", "-DA", "-fplugin=x", "-Wall"}};
    struct mw_compile_request request = request_of(&row);
    struct mw_options *options = NULL;
    struct mw_refusal refusal = {0};

    (void)state;
    assert_int_equal(mw_options_new(&options, &request, &refusal), -EPERM);
    assert_null(options);
    assert_string_equal(refusal.subject, "-fplugin=x");
    mw_options_free(NULL);
}

/* Broken by an extra that does not enter the fingerprint, or by a map that is asked for where there
 * are no debug lines to make it of. */
static void extras_are_options_and_a_map_needs_debug_lines(void **state)
{
    static const struct {
        const char *args[ARGS_MAX];
        int error;
    } cases[] = {
        {{"-g"}, 0},
        {{"-g0", "-g1"}, 0},
        {{"-gline-directives-only", "-gno-column-info"}, 0},
        {{"-O2"}, -EINVAL},
        {{"-g", "-g0"}, -EINVAL},
        {{"-gdwarf-4", "-ggdb0"}, -EINVAL},
        {{"-gcolumn-info"}, -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct row row = {.main = "a.c", .emit = MW_EMIT_ASM};
        struct mw_compile_request request;
        struct mw_options *options = NULL;
        struct mw_refusal refusal = {0};

        memcpy(row.args, cases[i].args, sizeof row.args);
        request = request_of(&row);
        request.extras = 1u << MW_EXTRA_LINE_MAP | 1u << MW_EXTRA_REMARKS;
        assert_int_equal(mw_options_new(&options, &request, &refusal), cases[i].error);
        if (cases[i].error) {
            assert_string_equal(refusal.subject, "also");
        } else {
            assert_int_equal(mw_options_extras(options), request.extras);
            assert_non_null(strstr(mw_options_fingerprint(options),
                                   "target default\nalso remarks\nalso line-map\narg "));
        }
        mw_options_free(options);
        request.extras = 1u << MW_EXTRA_REMARKS; /* control: what else there is needs none */
        assert_int_equal(mw_options_new(&options, &request, &refusal), 0);
        assert_null(strstr(mw_options_fingerprint(options), "line-map"));
        mw_options_free(options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fingerprint_names_what_decides_the_bytes),
        cmocka_unit_test(the_arguments_are_those_of_the_fingerprint),
        cmocka_unit_test(an_unknown_language_is_refused_and_asked_for),
        cmocka_unit_test(languages_that_disagree_are_refused),
        cmocka_unit_test(a_refused_flag_refuses_the_options),
        cmocka_unit_test(extras_are_options_and_a_map_needs_debug_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

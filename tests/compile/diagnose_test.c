#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "trial.h"

static const struct trial faulty = {
    .files = {{"a.c", "#include \"part.h\"\n"
                      "#include \"q.h\"\n"
                      "int g(int n)\n"
                      "{\n"
                      "    if (n = 4)\n"
                      "        return Q(n);\n"
                      "    return CALL(n)\n"
                      "}\n"
                      "#line 70 \"z.y\"\n"
                      "int h(void) { return nothing; }\n"},
              {"part.h", "struct s { int x; };\n"
                         "int f(struct s s);\n"
                         "#define CALL(a) f(1)\n"
                         "int h(void) { return no; }\n"},
              {"inc/q.h", "#define Q(x) ((x) + 1)\n"}},
    .args = {"-Iinc", "-Wall"},
};

static void assert_same_place(struct mw_place a, struct mw_place b)
{
    assert_int_equal(a.line, b.line);
    assert_int_equal(a.column, b.column);
    assert_int_equal(a.byte_offset, b.byte_offset);
}

static void assert_same_diagnostic(const struct mw_diagnostic *a, const struct mw_diagnostic *b)
{
    assert_int_equal(a->severity, b->severity);
    assert_string_equal(a->file, b->file);
    assert_string_equal(a->message, b->message);
    assert_string_equal(a->flag, b->flag);
    assert_string_equal(a->category, b->category);
    assert_string_equal(a->line_text, b->line_text);
    assert_same_place(a->at, b->at);
    if (a->severity != MW_SEVERITY_NOTE) { /* libclang has no ranges for the notes of macros */
        assert_same_place(a->begin, b->begin);
        assert_same_place(a->end, b->end);
    }
    assert_int_equal(a->fixit_count, b->fixit_count);
    for (size_t i = 0; i < a->fixit_count; i++) {
        assert_string_equal(a->fixits[i].text, b->fixits[i].text);
        assert_same_place(a->fixits[i].begin, b->fixits[i].begin);
        assert_same_place(a->fixits[i].end, b->fixits[i].end);
    }
    assert_int_equal(a->note_count, b->note_count);
    for (size_t i = 0; i < a->note_count; i++)
        assert_same_diagnostic(&a->notes[i], &b->notes[i]);
}

/* Breaks when the two ways to diagnostics, which share no code, disagree in any field. */
static void diagnose_says_what_emit_says(void **state)
{
    struct mw_compile_result emitted, diagnosed;

    assert_int_equal(trial_emit(*state, &faulty, &emitted), 0);
    assert_int_equal(trial_diagnose(*state, &faulty, false, &diagnosed), 0);
    assert_int_equal(diagnosed.diagnostics.count, 6);
    assert_int_equal(diagnosed.diagnostics.errors, 5);
    assert_int_equal(emitted.diagnostics.count, diagnosed.diagnostics.count);
    for (size_t i = 0; i < emitted.diagnostics.count; i++)
        assert_same_diagnostic(&emitted.diagnostics.items[i], &diagnosed.diagnostics.items[i]);
    mw_compile_result_fini(&emitted);
    mw_compile_result_fini(&diagnosed);
}

/* Breaks when the failure path drowns the explanation in warnings. */
static void diagnose_gives_errors_only_when_asked(void **state)
{
    struct mw_compile_result result;

    assert_int_equal(trial_diagnose(*state, &faulty, true, &result), 0);
    assert_int_equal(result.diagnostics.count, 5);
    assert_int_equal(result.diagnostics.errors, 5);
    mw_compile_result_fini(&result);
}

/* Breaks when libclang looks past the overlay; under read_disk it may. */
static void diagnose_finds_only_readable_headers(void **state)
{
    struct folder folder;
    folder_make(&folder);
    char *header = folder_path(&folder, "outside.h");
    char text[1024];
    struct trial trial = {.files = {{"a.c", text}}, .args = {"-std=c23"}};
    struct mw_compile_result result;

    folder_write(&folder, "outside.h", "int x;\n");
    snprintf(text, sizeof(text),
             "#if __has_include(\"/etc/passwd\") || __has_embed(\"/etc/passwd\") || \\\n"
             "    __has_include(\"/usr/include/../../etc/passwd\")\n"
             "#error seen\n"
             "#endif\n"
             "#include <stdio.h>\n"
             "#include \"%s\"\n",
             header);
    assert_int_equal(trial_diagnose(*state, &trial, false, &result), 0);
    assert_int_equal(result.diagnostics.count, 1);
    assert_non_null(diagnostic_find(&result.diagnostics, "outside.h' file not found"));
    mw_compile_result_fini(&result);

    trial.read_disk = true;
    assert_int_equal(trial_diagnose(*state, &trial, false, &result), 0);
    assert_int_equal(result.diagnostics.count, 1);
    assert_non_null(diagnostic_find(&result.diagnostics, "seen"));
    mw_compile_result_fini(&result);
    free(header);
    folder_remove(&folder);
}

/* Breaks when a host that has no folder to write, such as a sandbox, gets no explanation, or
 * another one. */
static void diagnose_says_the_same_without_a_folder(void **state)
{
    struct mw_compile_result with, without;

    for (unsigned errors_only = 0; errors_only < 2; errors_only++) {
        assert_int_equal(trial_diagnose(*state, &faulty, errors_only, &with), 0);
        setenv("TMPDIR", "/nowhere", 1);
        assert_int_equal(trial_diagnose(*state, &faulty, errors_only, &without), 0);
        unsetenv("TMPDIR");
        assert_int_equal(with.diagnostics.count, errors_only ? 5 : 6);
        assert_int_equal(without.diagnostics.count, with.diagnostics.count);
        assert_int_equal(without.diagnostics.errors, 5);
        for (size_t i = 0; i < with.diagnostics.count; i++)
            assert_same_diagnostic(&without.diagnostics.items[i], &with.diagnostics.items[i]);
        mw_compile_result_fini(&with);
        mw_compile_result_fini(&without);
    }
}

static size_t entry_count(const char *folder)
{
    DIR *entries = opendir(folder);
    size_t count = 0;

    if (!entries) {
        fail_msg("%s cannot be opened", folder);
        return 0;
    }
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

/* Breaks when the process is moved to the request's directory, or the overlay stays on disk. */
static void diagnose_leaves_the_process_as_it_was(void **state)
{
    struct folder folder;
    folder_make(&folder);
    char before[PATH_MAX], after[PATH_MAX];
    struct mw_compile_result result;
    struct trial trial = faulty;

    assert_non_null(getcwd(before, sizeof(before)));
    trial.directory = "/usr/lib";
    setenv("TMPDIR", folder.path, 1);
    assert_int_equal(trial_diagnose(*state, &trial, false, &result), 0);
    unsetenv("TMPDIR");
    assert_int_equal(result.diagnostics.count, 6);
    mw_compile_result_fini(&result);
    assert_non_null(getcwd(after, sizeof(after)));
    assert_string_equal(before, after);
    assert_int_equal(entry_count(folder.path), 2); /* "." and ".." */
    folder_remove(&folder);
}

/* Breaks when names are pasted into the overlay's description as they are. */
static void diagnose_takes_names_with_odd_characters(void **state)
{
    struct trial trial = {.files = {{"a b.c", "#include \"q'{}#: .h\"\nint x = Y;\n"},
                                    {"q'{}#: .h", "#define Y 1\n"}}};
    struct mw_compile_result result;

    assert_int_equal(trial_diagnose(*state, &trial, false, &result), 0);
    assert_int_equal(result.diagnostics.count, 0);
    mw_compile_result_fini(&result);
}

/* Breaks when the pragmas that crash clang on purpose, which any source may hold, are obeyed. */
static void diagnose_survives_debugging_pragmas(void **state)
{
    struct trial trial = {.files = {{"a.c", "#pragma clang __debug parser_crash\n"
                                            "#pragma clang __debug overflow_stack\n"
                                            "#pragma clang __debug llvm_fatal_error\n"
                                            "int x = no;\n"}}};
    struct mw_compile_result result;

    assert_int_equal(trial_diagnose(*state, &trial, false, &result), 0);
    assert_int_equal(result.diagnostics.errors, 1);
    mw_compile_result_fini(&result);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(diagnose_says_what_emit_says),
        cmocka_unit_test(diagnose_gives_errors_only_when_asked),
        cmocka_unit_test(diagnose_finds_only_readable_headers),
        cmocka_unit_test(diagnose_says_the_same_without_a_folder),
        cmocka_unit_test(diagnose_leaves_the_process_as_it_was),
        cmocka_unit_test(diagnose_survives_debugging_pragmas),
        cmocka_unit_test(diagnose_takes_names_with_odd_characters),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

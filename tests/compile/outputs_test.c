#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clang-c/Index.h>
#include <cmocka.h>

#include <millwright/emit.h>

#include "clang_bridge.h"
#include "folder.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EXTRA(which) (1u << MW_EXTRA_##which)

static const struct trial loop_trial = {
    .files = {{"src/a.c", "#include <stddef.h>\n"
                          "#include \"../inc/part.h\"\n"
                          "#if __has_include(\"absent.h\")\n"
                          "#error no\n"
                          "#endif\n"
                          "static inline int twice(int n) { return 2 * n; }\n"
                          "int sum(const int *p, size_t n)\n"
                          "{\n"
                          "    int s = PART;\n"
                          "    for (size_t i = 0; i < n; i++)\n"
                          "        s += twice(p[i]);\n"
                          "    return s;\n"
                          "}\n"},
              {"inc/part.h", "#define PART 3\n"},
              {"inc/other.h", "#define OTHER 3\n"}},
    .args = {"-O2"},
};

static struct mw_compile_result emit(void **state, struct trial trial)
{
    struct mw_compile_result result;

    assert_int_equal(trial_emit(*state, &trial, &result), 0);
    assert_true(result.ok);
    return result;
}

static void assert_holds(const struct mw_text *text, const char *part)
{
    if (!memmem(text->data, text->bytes, part, strlen(part)))
        fail_msg("%s is not in: %.*s", part, (int)(text->bytes < 4000 ? text->bytes : 4000),
                 text->data);
}

static bool inputs_have(const struct mw_text *inputs, const char *entry)
{
    for (size_t at = 0; at < inputs->bytes; at += strlen(inputs->data + at) + 1)
        if (strcmp(inputs->data + at, entry) == 0)
            return true;
    return false;
}

static size_t inputs_count(const struct mw_text *inputs, const char *prefix)
{
    size_t count = 0;

    for (size_t at = 0; at < inputs->bytes; at += strlen(inputs->data + at) + 1)
        count += strncmp(inputs->data + at, prefix, strlen(prefix)) == 0;
    return count;
}

/* Breaks when something that was looked for is missing, or what nobody looked for is there. */
static void inputs_are_what_was_looked_for(void **state)
{
    struct mw_compile_result result = emit(state, loop_trial);

    assert_true(inputs_have(&result.inputs, "r/src/src/a.c"));
    assert_true(inputs_have(&result.inputs, "r/src/inc/part.h"));
    assert_true(inputs_have(&result.inputs, "a/src/src/absent.h"));
    assert_int_equal(inputs_count(&result.inputs, "r"), 2);
    assert_false(inputs_have(&result.inputs, "r/src/inc/other.h"));
    assert_false(inputs_have(&result.inputs, "d/src/inc/other.h"));
    mw_compile_result_fini(&result);
}

/* Breaks when the answer that the driver gave before leaves what it looked for untold. */
static void inputs_are_the_same_the_second_time(void **state)
{
    struct mw_compile_result first = emit(state, loop_trial);
    struct mw_compile_result second = emit(state, loop_trial);

    assert_int_equal(first.inputs.bytes, second.inputs.bytes);
    assert_memory_equal(first.inputs.data, second.inputs.data, first.inputs.bytes);
    mw_compile_result_fini(&first);
    mw_compile_result_fini(&second);
}

/* Breaks when the driver's kept answer outlives what it was made of: here a gcc that is among the
 * request's own files, for one compile, and has headers of its own. */
static void driver_answer_is_not_kept_of_own_files(void **state)
{
    struct trial with = {.directory = "/usr",
                         .files = {{"a.cc", "#include <only-here.h>\n"},
                                   {"lib/gcc/x86_64-redhat-linux/99/crtbegin.o", ""},
                                   {"include/c++/99/only-here.h", "int x;\n"}},
                         .args = {"-O1", "-DOF_THIS_TEST"}};
    struct trial without = {.directory = "/usr",
                            .files = {{"a.cc", "#include <vector>\n"}},
                            .args = {"-O1", "-DOF_THIS_TEST"}};
    struct mw_compile_result result;

    for (int i = 0; i < 2; i++) {
        result = emit(state, with); /* the control: it is found */
        mw_compile_result_fini(&result);
        result = emit(state, without);
        mw_compile_result_fini(&result);
    }
}

/* Breaks when a header that a preamble has read, or looked for in vain, is not told with it. */
static void inputs_of_a_preamble_are_all_that_it_saw(void **state)
{
    struct trial trial = {.files = {{"millwright-preamble", "#include <stdio.h>\n"}},
                          .args = {"-xc"},
                          .emit = MW_EMIT_PREAMBLE};
    struct mw_compile_result result = emit(state, trial);

    assert_true(inputs_have(&result.inputs, "r/usr/include/stdio.h"));
    assert_true(inputs_have(&result.inputs, "a/usr/local/include/stdio.h"));
    mw_compile_result_fini(&result);
}

/* Breaks when the names, their order or who they belong to are wrong. */
static void dependencies_are_named_in_order(void **state)
{
    struct trial trial = loop_trial;
    struct mw_compile_result result;
    const char *begin = "[{\"name\":\"src/a.c\",\"system\":false},{\"name\":\"/";
    const struct mw_text *text = &result.extras[MW_EXTRA_DEPENDENCIES];

    trial.extras = EXTRA(DEPENDENCIES);
    result = emit(state, trial);
    assert_memory_equal(text->data, begin, strlen(begin));
    assert_holds(text, "/stddef.h\",\"system\":true}");
    assert_holds(text, "{\"name\":\"inc/part.h\",\"system\":false}]");
    assert_null(memmem(text->data, text->bytes, "other.h", 7));
    mw_compile_result_fini(&result);
}

/* Breaks when remarks have no place in the source, or asking for any extra changes the object. */
static void extras_change_no_byte(void **state)
{
    static const char *const flags[] = {"-O2", "-O0", "-g"};

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct trial trial = loop_trial;
        struct mw_compile_result plain, rich;
        const struct mw_text *remarks = &rich.extras[MW_EXTRA_REMARKS];

        trial.args[0] = flags[i];
        plain = emit(state, trial);
        trial.extras = EXTRA(DEPENDENCIES) | EXTRA(REMARKS) | EXTRA(TIME_TRACE);
        rich = emit(state, trial);
        assert_int_equal(plain.artifact_bytes, rich.artifact_bytes);
        assert_memory_equal(plain.artifact, rich.artifact, plain.artifact_bytes);
        for (size_t e = 0; e <= MW_EXTRA_TIME_TRACE; e++) {
            assert_null(plain.extras[e].data);
            assert_non_null(rich.extras[e].data);
        }
        if (i == 0) {
            assert_holds(remarks, "{\"type\":\"Passed\",\"pass\":\"loop-vectorize\"");
            assert_holds(remarks,
                         "\"function\":\"sum\",\"file\":\"src/a.c\",\"line\":10,\"column\":");
        }
        assert_int_equal(remarks->data[0], '[');
        assert_int_equal(remarks->data[remarks->bytes - 1], ']');
        mw_compile_result_fini(&plain);
        mw_compile_result_fini(&rich);
    }
}

/* Breaks when the trace is empty, lacks the steps, or one run's goes on in the next. */
static void time_trace_has_the_steps(void **state)
{
    struct trial trial = loop_trial;
    struct mw_compile_result first, second, failed;
    const struct mw_text *text = &first.extras[MW_EXTRA_TIME_TRACE];

    trial.extras = EXTRA(TIME_TRACE);
    first = emit(state, trial);
    assert_holds(text, "\"Total Driver\"");
    assert_holds(text, "\"Total Frontend\"");
    assert_holds(text, "\"Total Backend\"");

    trial.files[0].text = "int f(void) { return no; }\n";
    assert_int_equal(trial_emit(*state, &trial, &failed), 0);
    assert_false(failed.ok);
    assert_null(failed.extras[MW_EXTRA_TIME_TRACE].data);

    trial = loop_trial;
    second = emit(state, trial);
    assert_null(second.extras[MW_EXTRA_TIME_TRACE].data);
    mw_compile_result_fini(&first);
    mw_compile_result_fini(&second);
    mw_compile_result_fini(&failed);
}

/* Breaks when the map's assembly has no lines, or they show in assembly without the map. */
static void line_map_has_its_lines(void **state)
{
    struct trial trial = loop_trial;
    struct mw_compile_result result;

    trial.emit = MW_EMIT_ASM;
    result = emit(state, trial);
    assert_null(memmem(result.artifact, result.artifact_bytes, "\t.loc\t", 6));
    mw_compile_result_fini(&result);

    trial.extras = EXTRA(LINE_MAP);
    trial.args[1] = "-g1";
    result = emit(state, trial);
    assert_holds(&result.extras[MW_EXTRA_LINE_MAP], "\"source_line\":11");
    mw_compile_result_fini(&result);
}

/* The number of declarations at the top level of a serialized tree; -1: it cannot be loaded. */
static int tree_declarations(const char *path)
{
    CXIndex index = clang_createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    int count = -1;

    if (clang_createTranslationUnit2(index, path, &unit) == CXError_Success) {
        CXFile file = clang_getFile(unit, "src/a.c");
        CXSourceLocation at = clang_getLocation(unit, file, 7, 5);
        CXCursor cursor = clang_getCursor(unit, at);
        CXString name = clang_getCursorSpelling(cursor);

        count = strcmp(clang_getCString(name), "sum") == 0;
        clang_disposeString(name);
        clang_disposeTranslationUnit(unit);
    }
    clang_disposeIndex(index);
    return count;
}

/* Breaks when the serialized tree is nothing that libclang and clang load. */
static void tree_can_be_loaded(void **state)
{
    struct folder folder;
    folder_make(&folder);
    char *path = folder_path(&folder, "a.ast");
    char *object = folder_path(&folder, "a.o");
    struct trial trial = loop_trial;
    const char *const argv[] = {mw_toolchain_clang_path(*state), "-c", path, "-o", object, NULL};
    static const char *const dirs[] = {"src", "inc"};
    struct mw_compile_result result;
    struct bytes other;

    trial.directory = folder.path;
    trial.emit = MW_EMIT_AST;
    for (size_t i = 0; i < COUNT(dirs); i++) {
        char *dir = folder_path(&folder, dirs[i]);

        assert_int_equal(mkdir(dir, 0700), 0);
        free(dir);
    }
    /* The tree refers to the files, so they must be there. */
    other = trial_clang(*state, &trial, folder.path, (const char *const[3]){"-c"}, NULL);
    free(other.data);
    result = emit(state, trial);
    folder_write(&folder, "control.ast", "CPCH");
    file_write(path, result.artifact, result.artifact_bytes);
    assert_int_equal(chdir(folder.path), 0);
    assert_int_equal(tree_declarations(path), 1);
    assert_int_equal(tree_declarations("control.ast"), -1);
    assert_int_equal(process_run(folder.path, argv, NULL, NULL), 0);
    assert_int_equal(access(object, R_OK), 0);
    assert_int_equal(chdir("/"), 0);
    mw_compile_result_fini(&result);
    free(object);
    free(path);
    folder_remove(&folder);
}

/* Breaks when ids are addresses, which are others each time, or texts are taken for ids. */
static void tree_as_json_is_the_same_each_time(void **state)
{
    struct trial trial = {.files = {{"a.c", "/**0x123456*/\nint f(int n);\n"
                                            "int g(void) { return f(2) + f(3); }\n"
                                            "const char *s = \"0x123456\";\n"}},
                          .args = {"-Wdocumentation"},
                          .emit = MW_EMIT_AST_JSON};
    struct mw_compile_result first = emit(state, trial), second = emit(state, trial);
    const struct mw_text text = {first.artifact, first.artifact_bytes};

    assert_holds(&text, "\"kind\": \"TranslationUnitDecl\"");
    assert_holds(&text, "\"id\": \"0x1\"");
    assert_holds(&text, "\"text\": \"0x123456\"");
    assert_holds(&text, "\"value\": \"\\\"0x123456\\\"\"");
    assert_int_equal(first.artifact_bytes, second.artifact_bytes);
    assert_memory_equal(first.artifact, second.artifact, first.artifact_bytes);
    mw_compile_result_fini(&first);
    mw_compile_result_fini(&second);
}

/* Breaks when a tree is kept past the bound, or nobody can say how large it was. */
static void tree_as_json_stops_at_the_bound(void **state)
{
    static const char text[] = "int f(int n) { return n + n + n; }\n";
    const struct mw_source_file file = {"a.c", text, sizeof(text) - 1};
    struct mw_bridge_job job = {
        .clang_path = mw_toolchain_clang_path(*state),
        .directory = "/src",
        .main = "a.c",
        .files = &file,
        .file_count = 1,
        .emit = MW_EMIT_AST_JSON,
        .artifact_bytes_max = 1000,
    };
    struct mw_bridge_result result;

    assert_int_equal(mw_bridge_run(&job, &result), -E2BIG);
    assert_null(result.artifact);
    assert_true(result.artifact_bytes > 1000);
    job.artifact_bytes_max = 1u << 20; /* the control */
    assert_int_equal(mw_bridge_run(&job, &result), 0);
    assert_non_null(result.artifact);
    free(result.artifact);
    free(result.inputs.data);
}

static const struct trial asm_trial = {
    .files = {{"a.c", "__asm__(\".globl one\\none: ret\");\n"
                      "int f(int *p, int n) { return p[n] + 7; }\n"}},
    .args = {"-O1"},
    .emit = MW_EMIT_ASM,
};

struct writer {
    pthread_t thread;
    const struct mw_toolchain *toolchain;
    const char *flag;
    struct mw_compile_result results[6];
};

static void *write_asm(void *arg)
{
    struct writer *writer = arg;

    for (size_t i = 0; i < COUNT(writer->results); i++) {
        struct trial trial = asm_trial;

        trial.args[1] = writer->flag;
        trial_emit(writer->toolchain, &trial, &writer->results[i]);
    }
    return NULL;
}

/* Breaks when one thread's syntax of assembly becomes another's. */
static void asm_syntax_is_each_run_s_own(void **state)
{
    static const char *const flags[] = {"-masm=intel", NULL, "-masm=att"};
    struct writer writers[COUNT(flags)] = {0};
    struct bytes expected[COUNT(flags)];

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct folder folder;
        struct trial trial = asm_trial;

        folder_make(&folder);
        trial.args[1] = flags[i];
        expected[i] = trial_clang(*state, &trial, folder.path, (const char *const[3]){"-S"}, NULL);
        folder_remove(&folder);
        writers[i].toolchain = *state;
        writers[i].flag = flags[i];
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_asm, &writers[i]), 0);
    }
    assert_true(expected[0].count != expected[1].count); /* the control: the syntaxes differ */
    for (size_t i = 0; i < COUNT(flags); i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        for (size_t r = 0; r < COUNT(writers[i].results); r++) {
            struct mw_compile_result *result = &writers[i].results[r];

            assert_true(result->ok);
            assert_int_equal(result->artifact_bytes, expected[i].count);
            assert_memory_equal(result->artifact, expected[i].data, expected[i].count);
            mw_compile_result_fini(result);
        }
        free(expected[i].data);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_are_what_was_looked_for),
        cmocka_unit_test(inputs_are_the_same_the_second_time),
        cmocka_unit_test(driver_answer_is_not_kept_of_own_files),
        cmocka_unit_test(inputs_of_a_preamble_are_all_that_it_saw),
        cmocka_unit_test(dependencies_are_named_in_order),
        cmocka_unit_test(extras_change_no_byte),
        cmocka_unit_test(time_trace_has_the_steps),
        cmocka_unit_test(line_map_has_its_lines),
        cmocka_unit_test(tree_can_be_loaded),
        cmocka_unit_test(tree_as_json_is_the_same_each_time),
        cmocka_unit_test(tree_as_json_stops_at_the_bound),
        cmocka_unit_test(asm_syntax_is_each_run_s_own),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/emit.h>

#include "clang_bridge.h"
#include "folder.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char c_text[] = "#include <stdio.h>\n"
                             "#include \"part.h\"\n"
                             "struct point { int x, y; };\n"
                             "static int sum(const struct point *p, int n)\n"
                             "{\n"
                             "    int s = 0;\n"
                             "    for (int i = 0; i < n; i++)\n"
                             "        s += p[i].x * p[i].y;\n"
                             "    return s;\n"
                             "}\n"
                             "int main(int argc, char **argv)\n"
                             "{\n"
                             "    struct point p[PART] = {{argc, 2}};\n"
                             "    printf(\"%s %d %s\\n\", argv[0], sum(p, PART), __FILE__);\n"
                             "    return 0;\n"
                             "}\n";

static const char cxx_text[] = "#include <map>\n"
                               "#include <string>\n"
                               "#include <vector>\n"
                               "int main(int argc, char **argv)\n"
                               "{\n"
                               "    std::map<std::string, std::vector<int>> m;\n"
                               "    for (int i = 0; i < argc; i++)\n"
                               "        m[argv[i]].push_back([=] { return i + 1; }());\n"
                               "    return m.size();\n"
                               "}\n";

static const struct trial c_trial = {.files = {{"a.c", c_text}, {"part.h", "#define PART 3\n"}}};
static const struct trial cxx_trial = {.files = {{"b.cc", cxx_text}}};

/* What a person would type for each kind. */
static const char *const kind_flags[MW_EMIT_KINDS][3] = {
    [MW_EMIT_OBJECT] = {"-c"},
    [MW_EMIT_ASM] = {"-S"},
    [MW_EMIT_LLVM_IR] = {"-S", "-emit-llvm"},
    [MW_EMIT_BITCODE] = {"-c", "-emit-llvm"},
    [MW_EMIT_PREPROCESSED] = {"-E"},
};

static int emit(void **state, struct trial trial, struct mw_compile_result *result)
{
    return trial_emit(*state, &trial, result);
}

/* Compile one C text without further flags, which must at least run. */
static struct mw_compile_result emit_text(void **state, const char *text)
{
    struct mw_compile_result result;

    assert_int_equal(emit(state, (struct trial){.files = {{"a.c", text}}}, &result), 0);
    return result;
}

static void assert_same_as_clang(void **state, struct trial trial)
{
    struct folder folder;
    folder_make(&folder);
    struct mw_compile_result result;
    struct bytes other;

    trial.directory = folder.path;
    assert_int_equal(emit(state, trial, &result), 0);
    assert_true(result.ok);
    other = trial_clang(*state, &trial, folder.path, kind_flags[trial.emit], NULL);
    if (result.artifact_bytes != other.count ||
        memcmp(result.artifact, other.data, other.count) != 0)
        fail_msg("%s %s %s as %s: %zu bytes, by clang %zu, that differ", trial.files[0].name,
                 trial.args[0], trial.args[1] ? trial.args[1] : "", mw_emit_kind_name(trial.emit),
                 result.artifact_bytes, other.count);
    free(other.data);
    mw_compile_result_fini(&result);
    folder_remove(&folder);
}

/* Breaks when the driver is asked for something else than a person would ask clang for. */
static void emit_object_is_that_of_clang(void **state)
{
    static const char *const flags[][3] = {{"-O0"}, {"-O2"}, {"-g"}, {"-O2", "-fPIC", "-g"}};

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct trial trials[] = {c_trial, cxx_trial};

        for (size_t t = 0; t < COUNT(trials); t++) {
            memcpy(trials[t].args, flags[i], sizeof(flags[i]));
            assert_same_as_clang(state, trials[t]);
        }
    }
}

/* Breaks when a kind goes to the wrong action, or misses what the driver adds for it. */
static void emit_other_kinds_are_those_of_clang(void **state)
{
    for (enum mw_emit_kind kind = MW_EMIT_ASM; kind <= MW_EMIT_PREPROCESSED; kind++) {
        struct trial trials[] = {c_trial, cxx_trial};

        for (size_t t = 0; t < COUNT(trials); t++) {
            trials[t].args[0] = "-O2";
            trials[t].emit = kind;
            assert_same_as_clang(state, trials[t]);
        }
    }
}

/* Breaks when kinds are mixed up, or a check-only compile leaves bytes. */
static void emit_kinds_have_their_shapes(void **state)
{
    static const char *const shapes[] = {
        [MW_EMIT_OBJECT] = "\177ELF",       [MW_EMIT_ASM] = "\t.text",
        [MW_EMIT_LLVM_IR] = "; ModuleID",   [MW_EMIT_BITCODE] = "BC\xc0\xde",
        [MW_EMIT_PREPROCESSED] = "# 1 \"a", [MW_EMIT_AST] = "CPCH",
        [MW_EMIT_AST_JSON] = "{\n  \"id\"", [MW_EMIT_NONE] = NULL,
    };

    for (enum mw_emit_kind kind = MW_EMIT_OBJECT; kind < MW_EMIT_KINDS; kind++) {
        struct trial trial = c_trial;
        struct mw_compile_result result;

        trial.emit = kind;
        assert_int_equal(emit(state, trial, &result), 0);
        assert_true(result.ok);
        assert_int_equal(result.diagnostics.count, 0);
        if (shapes[kind])
            assert_memory_equal(result.artifact, shapes[kind], strlen(shapes[kind]));
        else
            assert_null(result.artifact);
        mw_compile_result_fini(&result);
    }
}

/* Breaks when the frontend looks past the request and the toolchain; under read_disk it may. */
static void emit_finds_only_readable_headers(void **state)
{
    struct folder folder;
    folder_make(&folder);
    char *header = folder_path(&folder, "outside.h");
    char text[512];
    struct trial trial = {.files = {{"a.c", text}}};
    struct mw_compile_result result;

    folder_write(&folder, "outside.h", "int x;\n");
    snprintf(text, sizeof(text), "#include \"%s\"\n", header);
    assert_int_equal(emit(state, trial, &result), 0);
    assert_false(result.ok);
    assert_non_null(diagnostic_find(&result.diagnostics, "file not found"));
    mw_compile_result_fini(&result);

    trial.read_disk = true;
    assert_int_equal(emit(state, trial, &result), 0);
    assert_true(result.ok);
    assert_string_equal(result.not_storable, "read_disk: files outside the request may have been "
                                             "read");
    mw_compile_result_fini(&result);
    free(header);
    folder_remove(&folder);
}

/* Breaks when one of the ways to a file goes round the view: each is a way to spy. */
static void emit_sees_no_password_file(void **state)
{
    static const char *const spies[] = {
        "#if __has_include(\"/etc/passwd\")\n#error seen\n#endif\n",
        "#if __has_include(\"../../../../../etc/passwd\")\n#error seen\n#endif\n",
        "#if __has_include(\"/usr/include/../../etc/passwd\")\n#error seen\n#endif\n",
        "#if __has_embed(\"/etc/passwd\")\n#error seen\n#endif\n",
        "#if __has_include(\"/usr/share/common-licenses/GPL\")\n#error seen\n#endif\n",
    };
    struct mw_compile_result result;

    for (size_t i = 0; i < COUNT(spies) - 1; i++) {
        struct trial trial = {.files = {{"a.c", spies[i]}}, .args = {"-std=c23"}};

        assert_int_equal(emit(state, trial, &result), 0);
        assert_true(result.ok);
        mw_compile_result_fini(&result);

        trial.read_disk = true; /* the control: the spy works where it may look */
        trial.directory = "/usr/lib";
        assert_int_equal(emit(state, trial, &result), 0);
        assert_non_null(diagnostic_find(&result.diagnostics, "seen"));
        mw_compile_result_fini(&result);
    }
    result = emit_text(state, "const char a[] = {\n#embed \"/etc/passwd\"\n};\n");
    assert_non_null(diagnostic_find(&result.diagnostics, "file not found"));
    mw_compile_result_fini(&result);
}

/* Breaks when a FIFO is opened: the compile would wait for a writer for ever. */
static void emit_opens_regular_files_only(void **state)
{
    struct folder folder;
    folder_make(&folder);
    char *fifo = folder_path(&folder, "fifo.h");
    struct trial trial = {
        .directory = folder.path, .read_disk = true, .files = {{"a.c", "#include \"fifo.h\"\n"}}};
    struct mw_compile_result result;

    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(emit(state, trial, &result), 0);
    assert_false(result.ok);
    assert_int_equal(result.diagnostics.errors, 1);
    mw_compile_result_fini(&result);
    free(fifo);
    folder_remove(&folder);
}

/* Breaks when an asm statement is missed, or an asm label (as in <stdio.h>) is taken for one. */
static void emit_marks_what_must_not_be_stored(void **state)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"#include <stdio.h>\nint main(void) { return puts(\"a\"); }\n", NULL},
        {"int x(void) __asm__(\"y\");\nint z(void) { return x(); }\n", NULL},
        {"static inline int f(void) { __asm__(\"nop\"); return 1; }\n", NULL}, /* not emitted */
        {"void f(void) { __asm__(\"nop\"); }\n", "inline assembly may read files"},
        {"__asm__(\".set x, 1\");\n", "inline assembly may read files"},
        {"#include \"part.h\"\nint f(void) { return g(); }\n", "inline assembly may read files"},
        {"void f(void) { __asm__(\".incbin \\\"/no/file\\\"\"); }\n", /* fails, but it looked */
         "inline assembly may read files"},
        {"const char *f(void) { return __TIME__; }\n", "__DATE__ or __TIME__ was used"},
        {"#define D __DATE__\nconst char d[] = D;\n", "__DATE__ or __TIME__ was used"},
        {"const char t[] = __TIMESTAMP__;\n", "__DATE__ or __TIME__ was used"},
        {"#ifdef __TIME__\nint __TIME(void);\n#endif\n", NULL},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct trial trial = {
            .files = {{"a.c", cases[i].text},
                      {"part.h", "static int g(void) { __asm__(\"nop\"); return 1; }\n"}}};
        struct mw_compile_result result;

        assert_int_equal(emit(state, trial, &result), 0);
        if (cases[i].why && !result.not_storable)
            fail_msg("may be stored: %s", cases[i].text);
        if (!cases[i].why && result.not_storable)
            fail_msg("%s: %s", result.not_storable, cases[i].text);
        if (cases[i].why)
            assert_string_equal(result.not_storable, cases[i].why);
        mw_compile_result_fini(&result);
    }
}

/* Breaks when an MS block, which is assembled in the parse, is looked for in the IR alone. */
static void emit_marks_ms_assembly_of_a_failed_compile(void **state)
{
    struct trial trial = {.files = {{"a.c", "int f(void) { __asm { nop }; return no; }\n"}},
                          .args = {"-fms-extensions"}};
    struct mw_compile_result result;

    assert_int_equal(emit(state, trial, &result), 0);
    assert_false(result.ok);
    assert_string_equal(result.not_storable, "inline assembly may read files");
    mw_compile_result_fini(&result);
}

/* Breaks when the range of a diagnostic or the place of its fix-it is lost. */
static void emit_warning_carries_range_and_fixits(void **state)
{
    struct mw_compile_result result =
        emit_text(state, "int f(int n)\n{\n    if (n = 4)\n        return 1;\n    return 0;\n}\n");
    const struct mw_diagnostic *warning;
    const struct mw_diagnostic *note;

    assert_true(result.ok);
    assert_int_equal(result.diagnostics.count, 1);
    assert_int_equal(result.diagnostics.errors, 0);
    warning = &result.diagnostics.items[0];
    assert_int_equal(warning->severity, MW_SEVERITY_WARNING);
    assert_string_equal(warning->file, "a.c");
    assert_string_equal(warning->flag, "-Wparentheses");
    assert_string_equal(warning->category, "Semantic Issue");
    assert_string_equal(warning->line_text, "    if (n = 4)");
    assert_int_equal(warning->at.line, 3);
    assert_int_equal(warning->at.column, 11);
    assert_int_equal(warning->at.byte_offset, 25);
    assert_int_equal(warning->begin.column, 9);
    assert_int_equal(warning->end.column, 14);
    assert_int_equal(warning->end.byte_offset, 28);
    assert_int_equal(warning->note_count, 2);
    note = &warning->notes[1];
    assert_int_equal(note->severity, MW_SEVERITY_NOTE);
    assert_int_equal(note->fixit_count, 1);
    assert_string_equal(note->fixits[0].text, "==");
    assert_string_equal(note->fixits[0].file, "a.c");
    assert_int_equal(note->fixits[0].begin.column, 11);
    assert_int_equal(note->fixits[0].end.column, 12);
    mw_compile_result_fini(&result);
}

/* Breaks when notes lose their error, or macros and includes are not explained. */
static void emit_error_carries_notes(void **state)
{
    struct trial trial = {.files = {{"a.c", "#include \"part.h\"\n"
                                            "int g(void) { return CALL(p); }\n"},
                                    {"part.h", "struct s { int x; };\n"
                                               "int f(struct s s);\n"
                                               "#define CALL(a) f(1)\n"
                                               "int h(void) { return no; }\n"}}};
    struct mw_compile_result result;
    const struct mw_diagnostic *error;

    assert_int_equal(emit(state, trial, &result), 0);
    assert_false(result.ok);
    assert_null(result.artifact);
    assert_int_equal(result.diagnostics.errors, 2);
    error = diagnostic_find(&result.diagnostics, "undeclared identifier");
    assert_string_equal(error->file, "./part.h");
    assert_int_equal(error->note_count, 1);
    assert_string_equal(error->notes[0].message, MW_DIAGNOSTIC_INCLUDED_HERE);
    assert_string_equal(error->notes[0].file, "a.c");
    assert_int_equal(error->notes[0].at.line, 1);
    error = diagnostic_find(&result.diagnostics, "incompatible type");
    assert_string_equal(error->file, "a.c");
    assert_int_equal(error->at.line, 2);
    assert_int_equal(error->note_count, 2);
    assert_string_equal(error->notes[0].message, "expanded from macro 'CALL'");
    assert_string_equal(error->notes[1].message, "passing argument to parameter 's' here");
    mw_compile_result_fini(&result);
}

/* Breaks when diagnostics without a place, from the driver or the code generator, are dropped. */
static void emit_reports_what_has_no_place(void **state)
{
    struct trial trial = {.files = {{"a.c", "int x;\n"}}, .args = {"-mcpu=none-such"}};
    struct mw_compile_result result;

    assert_int_equal(emit(state, trial, &result), 0);
    assert_true(result.diagnostics.count > 0);
    assert_string_equal(result.diagnostics.items[0].file, "");
    assert_int_equal(result.diagnostics.items[0].at.line, 0);
    mw_compile_result_fini(&result);
}

/* Breaks when a full list keeps out the error that made the compile fail. */
static void emit_explains_an_error_after_too_many_warnings(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct mw_compile_result result;

    for (unsigned i = 0; i < MW_DIAGNOSTICS_MAX + 10; i++)
        fprintf(out, "#warning number %u\n", i);
    fprintf(out, "int f(void) { return no; }\n");
    fclose(out);
    result = emit_text(state, text);
    assert_false(result.ok);
    assert_int_equal(result.diagnostics.count, MW_DIAGNOSTICS_MAX);
    assert_int_equal(result.diagnostics.errors, 1);
    assert_int_equal(result.diagnostics.dropped, 11);
    assert_non_null(diagnostic_find(&result.diagnostics, "undeclared identifier"));
    mw_compile_result_fini(&result);
    free(text);
}

/* LLVM has no instructions for this, and ends the process over it unless told otherwise. */
static struct trial fatal = {
    .files = {{"a.c", "int f(int *x) { return __sync_fetch_and_nand(x, 1); }\n"}},
    .args = {"--target=bpf", "-mcpu=v1"}};

/* What must hold across a fatal error, in words for the one who has to mend it; or NULL. */
static const char *fault_after_fatal_errors(void **state)
{
    struct mw_compile_result result;
    const struct mw_diagnostic *reason;

    fatal.extras = 1u << MW_EXTRA_TIME_TRACE; /* which must not go on in the next compile */
    for (int i = 0; i < 2; i++) {             /* libclang sets a handler of its own in between */
        if (emit(state, fatal, &result) != -EIO || result.ok)
            return "a fatal error is no -EIO";
        if (!diagnostic_find(&result.diagnostics, "error in backend: Cannot select"))
            return "the fatal error is not among the diagnostics";
        if (trial_diagnose(*state, &c_trial, false, &result))
            return "libclang does not parse after a fatal error";
    }
    if (trial_leaf(mw_compile, *state, &fatal, &result) || result.ok)
        return "the leaf does not answer a fatal error as a failed compile";
    reason = diagnostic_find(&result.diagnostics, "error in backend: Cannot select");
    if (!reason || reason->note_count != 1 ||
        !strstr(reason->notes[0].message, "the source itself has no errors"))
        return "diagnose did not explain the fatal error";
    if (emit(state, c_trial, &result) || !result.ok)
        return "nothing compiles after a fatal error";
    return NULL;
}

/* Breaks when a fatal error of LLVM ends the process. In a child, because what such a compile had
 * allocated is lost. */
static void emit_survives_an_error_of_the_code_generator(void **state)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        const char *fault = fault_after_fatal_errors(state);

        if (fault)
            fprintf(stderr, "%s\n", fault);
        _exit(fault != NULL);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Breaks when the bound is not that of the whole artifact, or what is over is kept. */
static void bridge_stops_at_the_bound(void **state)
{
    static const char text[] = "char a[100000] = {1};\n";
    const struct mw_source_file file = {"a.c", text, sizeof(text) - 1};
    struct mw_bridge_job job = {
        .clang_path = mw_toolchain_clang_path(*state),
        .directory = "/src",
        .main = "a.c",
        .files = &file,
        .file_count = 1,
        .artifact_bytes_max = 1u << 20,
    };
    struct mw_bridge_result result;
    size_t bytes;

    assert_int_equal(mw_bridge_run(&job, &result), 0);
    assert_true(result.ok);
    bytes = result.artifact_bytes;
    free(result.artifact);

    job.artifact_bytes_max = bytes; /* the control: just enough */
    assert_int_equal(mw_bridge_run(&job, &result), 0);
    assert_int_equal(result.artifact_bytes, bytes);
    free(result.artifact);

    job.artifact_bytes_max = bytes - 1;
    assert_int_equal(mw_bridge_run(&job, &result), -E2BIG);
    assert_false(result.ok);
    assert_null(result.artifact);
}

/* Breaks when code for a target that needs options of the whole process is made without them, which
 * is not the code that clang makes, or with them, which then reach others; the control asks for no
 * code. */
static void emit_refuses_targets_with_options_of_the_process(void **state)
{
    static const char *const targets[] = {"--target=hexagon", "--target=nvptx64-nvidia-cuda",
                                          "--target=x86_64-scei-ps4", "--target=x86_64-scei-ps5"};
    struct mw_compile_result result;

    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        struct trial trial = {.files = {{"a.c", "int f(int a) { return a + 1; }\n"}},
                              .args = {targets[i]}};

        assert_int_equal(trial_leaf(mw_compile, *state, &trial, &result), 0);
        assert_false(result.ok);
        assert_int_equal(result.diagnostics.count, 1);
        assert_non_null(diagnostic_find(&result.diagnostics, "choose another target"));
        assert_non_null(diagnostic_find(&result.diagnostics, strchr(targets[i], '=') + 1));
        mw_compile_result_fini(&result);
        trial.emit = MW_EMIT_NONE;
        assert_int_equal(trial_leaf(mw_compile, *state, &trial, &result), 0);
        assert_true(result.ok);
        mw_compile_result_fini(&result);
    }
}

/* Breaks when a host cannot bound what a compile gives it, or a bound of 0 is taken for one. */
static void artifact_bound_of_a_request_is_exact(void **state)
{
    struct trial trial = {.files = {{"large.c", "char a[100000] = {1};\n"}}};
    struct mw_compile_result result;

    assert_int_equal(emit(state, trial, &result), 0);
    trial.artifact_bytes_max = result.artifact_bytes;
    mw_compile_result_fini(&result);
    assert_int_equal(emit(state, trial, &result), 0);
    assert_int_equal(result.artifact_bytes, trial.artifact_bytes_max);
    mw_compile_result_fini(&result);
    trial.artifact_bytes_max--;
    assert_int_equal(emit(state, trial, &result), -E2BIG);
    assert_null(result.artifact);
    mw_compile_result_fini(&result);
}

/* What a process prints that compiles `trial` and then says `more`. */
static struct bytes print_of(void **state, const struct trial *trial, const char *more)
{
    struct folder folder;
    folder_make(&folder);
    char *path = folder_path(&folder, "printed");
    struct bytes printed;
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        struct mw_compile_result result;

        if (!freopen(path, "a", stdout) || !freopen(path, "a", stderr))
            _exit(1);
        trial_emit(*state, trial, &result);
        fputs(more, stderr);
        fflush(NULL);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    printed = file_read(path);
    free(path);
    folder_remove(&folder);
    return printed;
}

/* Breaks when clang talks to the host's terminal: its counts of errors, its debugging pragmas. */
static void emit_prints_nothing(void **state)
{
    struct trial trial = {.files = {{"a.c", "#define X 1\n"
                                            "#pragma clang __debug crash\n"
                                            "#pragma clang __debug macro X\n"
                                            "int f(int n) { if (n = 4) return no; return 0; }\n"}},
                          .args = {"-Wall"}};
    struct bytes printed;

    for (enum mw_emit_kind kind = MW_EMIT_OBJECT; kind < MW_EMIT_KINDS; kind++) {
        trial.emit = kind;
        printed = print_of(state, &trial, "");
        assert_string_equal(printed.data, "");
        free(printed.data);
    }
    printed = print_of(state, &trial, "control"); /* what is printed would be seen */
    assert_string_equal(printed.data, "control");
    free(printed.data);
}

/* Breaks when the environment can add headers to a compile whose key does not know them. */
static void compile_init_cleans_the_environment(void **state)
{
    struct folder folder;
    folder_make(&folder);
    struct trial trial = {.files = {{"a.c", "#include <hidden.h>\n"}}, .read_disk = true};
    struct mw_compile_result result;

    folder_write(&folder, "hidden.h", "int x;\n");
    setenv("CPATH", folder.path, 1);
    setenv("CC_LOG_DIAGNOSTICS", "1", 1);
    setenv("CPATHOLOGY", "kept", 1);
    assert_int_equal(emit(state, trial, &result), 0);
    assert_true(result.ok); /* the control: clang obeys it */
    mw_compile_result_fini(&result);

    assert_int_equal(mw_compile_init(), 0);
    assert_null(getenv("CPATH"));
    assert_null(getenv("CC_LOG_DIAGNOSTICS"));
    assert_string_equal(getenv("CPATHOLOGY"), "kept");
    assert_string_equal(getenv("LIBCLANG_NOTHREADS"), "1");
    assert_int_equal(emit(state, trial, &result), 0);
    assert_false(result.ok);
    mw_compile_result_fini(&result);
    folder_remove(&folder);
}

/* Breaks when LLVM's crash recovery takes the host's signal handlers. */
static void emit_leaves_signal_handlers_alone(void **state)
{
    struct mw_compile_result result;
    struct sigaction before, after;

    sigaction(SIGSEGV, NULL, &before);
    assert_int_equal(emit(state, c_trial, &result), 0);
    mw_compile_result_fini(&result);
    assert_int_equal(trial_diagnose(*state, &c_trial, false, &result), 0);
    mw_compile_result_fini(&result);
    sigaction(SIGSEGV, NULL, &after);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
}

struct worker {
    pthread_t thread;
    const struct mw_toolchain *toolchain;
    struct mw_compile_result results[2];
    int rc[2];
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct trial trials[] = {c_trial, cxx_trial};

    for (size_t i = 0; i < COUNT(trials); i++) {
        trials[i].args[0] = "-O2";
        worker->rc[i] = trial_emit(worker->toolchain, &trials[i], &worker->results[i]);
    }
    return NULL;
}

/* Breaks when compiles share state: threads must not change one another's bytes. */
static void emit_gives_the_same_bytes_on_two_threads(void **state)
{
    struct worker workers[2];

    memset(workers, 0, sizeof(workers));
    for (size_t i = 0; i < COUNT(workers); i++) {
        workers[i].toolchain = *state;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < COUNT(workers); i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(workers[0].rc[i] | workers[1].rc[i], 0);
        assert_true(workers[0].results[i].ok && workers[1].results[i].ok);
        assert_int_equal(workers[0].results[i].artifact_bytes,
                         workers[1].results[i].artifact_bytes);
        assert_memory_equal(workers[0].results[i].artifact, workers[1].results[i].artifact,
                            workers[0].results[i].artifact_bytes);
        mw_compile_result_fini(&workers[0].results[i]);
        mw_compile_result_fini(&workers[1].results[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(emit_object_is_that_of_clang),
        cmocka_unit_test(emit_other_kinds_are_those_of_clang),
        cmocka_unit_test(emit_kinds_have_their_shapes),
        cmocka_unit_test(emit_finds_only_readable_headers),
        cmocka_unit_test(emit_sees_no_password_file),
        cmocka_unit_test(emit_opens_regular_files_only),
        cmocka_unit_test(emit_marks_what_must_not_be_stored),
        cmocka_unit_test(emit_marks_ms_assembly_of_a_failed_compile),
        cmocka_unit_test(emit_warning_carries_range_and_fixits),
        cmocka_unit_test(emit_error_carries_notes),
        cmocka_unit_test(emit_reports_what_has_no_place),
        cmocka_unit_test(emit_explains_an_error_after_too_many_warnings),
        cmocka_unit_test(emit_survives_an_error_of_the_code_generator),
        cmocka_unit_test(bridge_stops_at_the_bound),
        cmocka_unit_test(artifact_bound_of_a_request_is_exact),
        cmocka_unit_test(emit_refuses_targets_with_options_of_the_process),
        cmocka_unit_test(emit_prints_nothing),
        cmocka_unit_test(compile_init_cleans_the_environment),
        cmocka_unit_test(emit_leaves_signal_handlers_alone),
        cmocka_unit_test(emit_gives_the_same_bytes_on_two_threads),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

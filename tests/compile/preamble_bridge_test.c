#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/emit.h>

#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A main file, and the preamble that stands for its first lines. */
struct sample {
    const char *name, *prefix, *rest;
    const char *headers; /* the preamble's text */
    const char *language_flag;
};

static const struct sample samples[] = {
    {"a.c",
     "/* two lines\n   of comment */\n#include <stdio.h>\n\n#include <stdlib.h> // why\n"
     "#include <string.h>\n",
     "static int sum(const int *p, int n)\n"
     "{\n"
     "    int s = 0;\n"
     "    for (int i = 0; i < n; i++)\n"
     "        s += p[i] * __LINE__;\n"
     "    return s;\n"
     "}\n"
     "int main(int argc, char **argv)\n"
     "{\n"
     "    int p[3] = {argc, (int)strlen(argv[0]), atoi(argv[0])};\n"
     "    printf(\"%s %d %s %d\\n\", argv[0], sum(p, 3), __FILE__, __COUNTER__);\n"
     "    return getc(stdin) == EOF;\n"
     "}\n",
     "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n", "-xc"},
    {"b.cc", "#include <map>\n#include <string>\n#include <vector>\n",
     "struct base { virtual ~base() {} virtual int f() = 0; };\n"
     "struct derived : base { int f() override { return 2; } };\n"
     "static std::vector<std::string> names{\"a\", \"b\"};\n"
     "int main(int argc, char **argv)\n"
     "{\n"
     "    std::map<std::string, std::vector<int>> m;\n"
     "    for (int i = 0; i < argc; i++)\n"
     "        m[argv[i]].push_back([=] { return i + derived().f(); }());\n"
     "    m.at(\"x\").at(1) = std::stoi(names.at(0));\n"
     "    return m.size();\n"
     "}\n",
     "#include <map>\n#include <string>\n#include <vector>\n", "-xc++"},
    {"c.cc", "#include <algorithm>\n#include <iostream>\n#include <memory>\n",
     "template <class T> T twice(T t) { return t + t; }\n"
     "int main()\n"
     "{\n"
     "    auto p = std::make_unique<std::string>(\"a\");\n"
     "    std::string s = twice(*p);\n"
     "    std::sort(s.begin(), s.end());\n"
     "    std::cout << s << std::endl;\n"
     "    try { throw std::runtime_error(s); } catch (std::exception &e) { return *e.what(); }\n"
     "}\n",
     "#include <algorithm>\n#include <iostream>\n#include <memory>\n", "-xc++"},
};

/* A preamble of `headers` under the flags of `trial`; its bytes stay in `made`. */
static struct mw_preamble_use preamble_make(void **state, const struct trial *trial,
                                            const char *headers, const char *language_flag,
                                            size_t covers_bytes, struct mw_compile_result *made)
{
    struct trial build = {.files = {{"millwright-preamble", headers}}, .emit = MW_EMIT_PREAMBLE};

    build.args[0] = language_flag;
    for (size_t i = 0; trial->args[i]; i++)
        build.args[i + 1] = trial->args[i];
    assert_int_equal(trial_emit(*state, &build, made), 0);
    assert_true(made->ok);
    assert_null(made->not_storable);
    assert_non_null(made->artifact);
    return (struct mw_preamble_use){
        .bytes = made->artifact,
        .count = made->artifact_bytes,
        .file = -1,
        .covers_bytes = covers_bytes,
    };
}

/* The text of a sample's main file, with `more` at its end. */
static void sample_text(const struct sample *sample, const char *more, char text[4096])
{
    int bytes = snprintf(text, 4096, "%s%s%s", sample->prefix, sample->rest, more);

    assert_in_range(bytes, 1, 4095);
}

/* Compile `trial` without and with a preamble. */
static void emit_both(void **state, struct trial *trial, const struct sample *sample,
                      const char *headers, struct mw_compile_result results[2])
{
    struct mw_compile_result made;
    struct mw_preamble_use use =
        preamble_make(state, trial, headers, sample->language_flag, strlen(sample->prefix), &made);

    assert_int_equal(trial_emit(*state, trial, &results[0]), 0);
    trial->preamble = &use;
    assert_int_equal(trial_emit(*state, trial, &results[1]), 0);
    trial->preamble = NULL;
    mw_compile_result_fini(&made);
}

static bool same_bytes(const struct mw_compile_result results[2])
{
    return results[0].artifact_bytes == results[1].artifact_bytes &&
           memcmp(results[0].artifact, results[1].artifact, results[0].artifact_bytes) == 0;
}

static void results_fini(struct mw_compile_result results[2])
{
    mw_compile_result_fini(&results[0]);
    mw_compile_result_fini(&results[1]);
}

/* Breaks when what a preamble hides can be seen in what comes out. */
static void preamble_changes_no_byte(void **state)
{
    static const char *const flags[][3] = {{"-O0"}, {"-O2"}, {"-O2", "-fPIC", "-DN=1"}};
    char text[4096];

    for (size_t s = 0; s < COUNT(samples); s++) {
        for (size_t f = 0; f < COUNT(flags); f++) {
            struct trial trial = {.files = {{samples[s].name, text}}};
            struct mw_compile_result results[2];

            sample_text(&samples[s], "", text);
            memcpy(trial.args, flags[f], sizeof(flags[f]));
            emit_both(state, &trial, &samples[s], samples[s].headers, results);
            assert_true(results[0].ok && results[1].ok);
            if (!same_bytes(results))
                fail_msg("%s %s: the preamble shows", samples[s].name, flags[f][0]);
            results_fini(results);
        }
    }
}

/* The control of the test above: without what the main file needs it must fail. */
static void preamble_of_other_headers_shows(void **state)
{
    char text[4096];
    struct trial trial = {.files = {{samples[0].name, text}}};
    struct mw_compile_result results[2];

    sample_text(&samples[0], "", text);
    emit_both(state, &trial, &samples[0], "#include <limits.h>\n\n\n", results);
    assert_true(results[0].ok);
    assert_false(results[1].ok && same_bytes(results));
    results_fini(results);
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool same_place(const struct mw_place *a, const struct mw_place *b)
{
    return a->line == b->line && a->column == b->column && a->byte_offset == b->byte_offset;
}

static void diagnostic_print(const struct mw_diagnostic *item, int depth)
{
    print_message("%*s%s:%u:%u (%zu, %zu..%zu): %s [%s] %s\n", depth, "", item->file, item->at.line,
                  item->at.column, (size_t)item->at.byte_offset, (size_t)item->begin.byte_offset,
                  (size_t)item->end.byte_offset, item->message, item->line_text, item->flag);
    for (size_t i = 0; i < item->note_count; i++)
        diagnostic_print(&item->notes[i], depth + 2);
}

static bool same_diagnostic(const struct mw_diagnostic *a, const struct mw_diagnostic *b)
{
    bool same = a->severity == b->severity && same_text(a->message, b->message) &&
                same_text(a->file, b->file) && same_place(&a->at, &b->at) &&
                same_place(&a->begin, &b->begin) && same_place(&a->end, &b->end) &&
                same_text(a->line_text, b->line_text) && same_text(a->flag, b->flag) &&
                a->note_count == b->note_count;

    for (size_t i = 0; same && i < a->note_count; i++)
        same = same_diagnostic(&a->notes[i], &b->notes[i]);
    return same;
}

static void assert_same_diagnostic(const struct mw_diagnostic *a, const struct mw_diagnostic *b)
{
    if (same_diagnostic(a, b))
        return;
    diagnostic_print(a, 0);
    print_message("but with a preamble\n");
    diagnostic_print(b, 0);
    fail();
}

/* Breaks when lines shift, or "in file included from" and notes lead into the preamble. */
static void preamble_changes_no_diagnostic(void **state)
{
    static const struct {
        const struct sample *sample;
        const char *more, *flag;
        size_t included_here; /* at least so many such notes */
    } cases[] = {
        {&samples[0], "int f(int n) { if (n = 4) return 1; return no; }\n", "-Wall", 0},
        {&samples[0], "int puts(int);\nint f(void) { return strlen(1, 2) + fgetc(\"\"); }\n",
         "-Wall", 0},
        {&samples[0], "#undef EOF\n#define EOF 7\n#define stdin 3\nint f(void) { return NULL; }\n",
         "-Wall", 0},
        {&samples[1],
         "struct s {};\nbool operator<(s, s) = delete;\nstd::map<s, s> m;\n"
         "auto f() { return m[s()]; }\n",
         "-Wall", 1},
        {&samples[2], "auto f() { return std::sort(1, 2); }\nstd::unique_ptr<int> p, q = p;\n",
         "-Wextra", 1},
    };
    char text[4096];

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct trial trial = {.files = {{cases[i].sample->name, text}}, .args = {cases[i].flag}};
        struct mw_compile_result results[2];
        size_t included_here = 0;

        sample_text(cases[i].sample, cases[i].more, text);
        emit_both(state, &trial, cases[i].sample, cases[i].sample->headers, results);
        assert_true(results[0].diagnostics.count > 0);
        assert_int_equal(results[0].diagnostics.count, results[1].diagnostics.count);
        for (size_t d = 0; d < results[0].diagnostics.count; d++) {
            const struct mw_diagnostic *item = &results[0].diagnostics.items[d];

            assert_same_diagnostic(item, &results[1].diagnostics.items[d]);
            for (size_t n = 0; n < item->note_count; n++)
                included_here += same_text(item->notes[n].message, MW_DIAGNOSTIC_INCLUDED_HERE);
        }
        assert_true(included_here >= cases[i].included_here);
        results_fini(results);
    }
}

/* Breaks when a preamble is used where it would show: with -g, or in preprocessed text. */
static void preamble_stays_out_where_it_would_show(void **state)
{
    static const struct {
        enum mw_emit_kind kind;
        const char *flag;
    } cases[] = {{MW_EMIT_OBJECT, "-g"}, {MW_EMIT_OBJECT, "-g1"}, {MW_EMIT_PREPROCESSED, "-O0"}};
    char text[4096];

    sample_text(&samples[0], "", text);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct trial trial = {
            .files = {{samples[0].name, text}}, .args = {cases[i].flag}, .emit = cases[i].kind};
        struct mw_compile_result results[2];

        emit_both(state, &trial, &samples[0], samples[0].headers, results);
        assert_true(results[0].ok && results[1].ok);
        assert_true(same_bytes(results));
        results_fini(results);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(preamble_changes_no_byte),
        cmocka_unit_test(preamble_of_other_headers_shows),
        cmocka_unit_test(preamble_changes_no_diagnostic),
        cmocka_unit_test(preamble_stays_out_where_it_would_show),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

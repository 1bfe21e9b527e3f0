/* preamble_test.c - which main files have a prefix, when it is made, kept, found and given up. What
 * a compile would make is any bytes here; tests/service/preamble_test.c has the compiler's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/preamble.h>

#include "folder.h"
#include "prefix.h"
#include "toolchain_internal.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BYTES_MAX    4096u

#define STRESS_THREADS  4
#define STRESS_ROUNDS   2000u
#define STRESS_PREFIXES 6u
#define INPUTS          "r/inc/stdio.h\0a/inc/sub/probed.h\0r/inc/deeper/types.h"

struct fixture {
    struct folder folder;
    struct mw_toolchain *toolchain;
    struct mw_preambles *preambles;
};

static int fixture_make(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    char *dir;

    assert_non_null(fixture);
    folder_make(&fixture->folder);
    folder_write(&fixture->folder, "stdio.h", "int printf();\n");
    dir = folder_path(&fixture->folder, "");
    dir[strlen(dir) - 1] = '\0';
    assert_int_equal(mw_toolchain_new_of(&fixture->toolchain, "test", (const char *const *)&dir, 1),
                     0);
    free(dir);
    assert_int_equal(mw_preambles_new(&fixture->preambles, BYTES_MAX), 0);
    *state = fixture;
    return 0;
}

static int fixture_end(void **state)
{
    struct fixture *fixture = *state;

    mw_preambles_free(fixture->preambles);
    mw_toolchain_free(fixture->toolchain);
    folder_remove(&fixture->folder);
    free(fixture);
    return 0;
}

/* A request as a test writes it. */
struct ask {
    const char *text, *name; /* of the main file; name NULL: a.c */
    const char *args[4];
    const char *other; /* the name of another file, or NULL */
    enum mw_emit_kind emit;
    unsigned extras;
    bool read_disk;
};

#define PLAIN "#include <stdio.h>\nint main(void) { return 0; }\n"

static const struct ask plain = {.text = PLAIN};

/* As mw_preambles_find. */
static int find(struct fixture *fixture, const struct ask *ask, struct mw_preamble_use *use,
                struct mw_preamble_plan **plan)
{
    const char *name = ask->name ? ask->name : "a.c";
    struct mw_source_file files[] = {{name, ask->text, strlen(ask->text)}, {ask->other, "", 0}};
    struct mw_compile_request request = {.emit = ask->emit,
                                         .directory = "/src",
                                         .main = name,
                                         .files = files,
                                         .file_count = ask->other ? 2 : 1,
                                         .args = ask->args,
                                         .extras = ask->extras,
                                         .read_disk = ask->read_disk};
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    struct mw_refusal refusal = {0};
    struct mw_options *options = NULL;
    int rc;

    while (request.arg_count < COUNT(ask->args) && ask->args[request.arg_count])
        request.arg_count++;
    rc = mw_options_new(&options, &request, &refusal);
    if (rc)
        print_error("%s %s\n", refusal.subject, refusal.reason);
    assert_int_equal(rc, 0);
    assert_int_equal(mw_toolchain_stamp(fixture->toolchain, stamp), 0);
    rc = mw_preambles_find(fixture->preambles, fixture->toolchain, stamp, options, &request, use,
                           plan);
    mw_options_free(options);
    return rc;
}

/* Find twice. Returns the plan, which may be NULL. */
static struct mw_preamble_plan *plan_of(struct fixture *fixture, const struct ask *ask)
{
    struct mw_preamble_plan *plan = NULL;
    struct mw_preamble_use use;

    assert_int_equal(find(fixture, ask, &use, &plan), 0);
    assert_null(plan);
    assert_int_equal(find(fixture, ask, &use, &plan), 0);
    return plan;
}

/* What came of a plan: `bytes` bytes, all of them `fill`. */
static int put_filled(struct fixture *fixture, struct mw_preamble_plan *plan, size_t bytes,
                      char fill)
{
    struct mw_compile_result result = {.ok = true, .artifact_bytes = bytes};
    int rc;

    result.artifact = malloc(bytes);
    assert_non_null(result.artifact);
    memset(result.artifact, fill, bytes);
    result.inputs = (struct mw_text){(char *)INPUTS, sizeof(INPUTS)};
    rc = mw_preambles_put(fixture->preambles, fixture->toolchain, plan, &result);
    free(result.artifact);
    return rc;
}

static void keep(struct fixture *fixture, const struct ask *ask, size_t bytes, char fill)
{
    struct mw_preamble_plan *plan = plan_of(fixture, ask);

    assert_non_null(plan);
    assert_int_equal(put_filled(fixture, plan, bytes, fill), 0);
}

static struct mw_preambles_stats stats_of(struct fixture *fixture)
{
    struct mw_preambles_stats stats;

    mw_preambles_snapshot(fixture->preambles, &stats);
    return stats;
}

/* ---- where a prefix ends ---- */

/* Breaks when the prefix is taken too short, or a header's name is not taken as it is written. */
static void prefix_is_the_run_of_system_includes(void **state)
{
    static const struct {
        const char *text, *rest, *headers;
    } cases[] = {
        {"#include <a.h>\nint x;\n", "int x;\n", "#include <a.h>\n"},
        {"#include <a.h>\n", "", "#include <a.h>\n"},
        {"/* c\n * d */\n\n // e\n#include <a.h>\n\n#\tinclude  <s/b-c+.h> // f\n\nx", "\nx",
         "#include <a.h>\n#include <s/b-c+.h>\n"},
        {"#include<vector>\r\n#include <a> /* g\n h */\nx", "x",
         "#include <vector>\n#include <a>\n"},
        {"/* a */ # include <a.h>\nx", "x", "#include <a.h>\n"},
        {"#include <a.h>\n#include <a.h>\nx", "x", "#include <a.h>\n#include <a.h>\n"},
        {"/* a \\ ?"
         "? \xc3\xa9 */#include <a.h>\n",
         "", "#include <a.h>\n"},
    };
    struct mw_prefix prefix;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        mw_prefix_scan(&prefix, cases[i].text, strlen(cases[i].text));
        assert_string_equal(cases[i].text + prefix.covers_bytes, cases[i].rest);
        assert_int_equal(prefix.text_bytes, strlen(cases[i].headers));
        assert_memory_equal(prefix.text, cases[i].headers, prefix.text_bytes);
    }
}

/* Breaks when anything is skipped that the compiler must see, or would speak of. Each is put in
 * front of a second header; the first one's line must be all. */
static void prefix_ends_before_what_is_not_sure(void **state)
{
    static const char first[] = "#include <a.h>\n", second[] = "#include <b.h>\nint x;\n";
    static const char *const stops[] = {
        "x\n",
        ";",
        "#define A\n",
        "#pragma once\n",
        "#ifdef A\n",
        "#include \"c.h\"\n",
        "#include_next <c.h>\n",
        "#include M\n",
        "#import <c.h>\n",
        "#include <c.h> x\n",
        "#include <c.h\n",
        "#include <c d.h>\n",
        "#include </c.h>\n",
        "#include <c/../d.h>\n",
        "#include <c//d.h>\n",
        "#include <./c.h>\n",
        "#include <c/>\n",
        "#include <>\n",
        "#inc\\\nlude <c.h>\n",
        "%:include <c.h>\n",
        "?"
        "?=include <c.h>\n",
        "/* a /* b */\n",
        "// a \\\n",
        "// a \\ \n",
        "// a ?"
        "?/\n",
        "/* a *\\\n/\n",
        "/* a *?"
        "?/\n/\n",
        "/* a\n",
        "\\\n",
        "\f\n",
        "\r",
        "// a \r",
        "\xef\xbb\xbf",
        "\x1a",
        "#include <c.h> \f\n",
        "# /**/ include <c.h>\n",
        "import <c.h>;\n",
    };
    struct mw_prefix prefix;
    char text[256];

    (void)state;
    for (size_t i = 0; i < COUNT(stops); i++) {
        (void)snprintf(text, sizeof(text), "%s%s%s", first, stops[i], second);
        mw_prefix_scan(&prefix, text, strlen(text));
        if (prefix.covers_bytes != strlen(first))
            print_error("after %s\n", stops[i]);
        assert_int_equal(prefix.covers_bytes, strlen(first));
    }
    (void)snprintf(text, sizeof(text), "%s%s", first, second); /* the control */
    mw_prefix_scan(&prefix, text, strlen(text));
    assert_int_equal(prefix.headers, 2);
    mw_prefix_scan(&prefix, "#include <a.h>\n\0\n#include <b.h>\n", 31);
    assert_int_equal(prefix.headers, 1);
    mw_prefix_scan(&prefix, "#include <a.h>", 14); /* the line may go on */
    assert_int_equal(prefix.headers, 0);
    mw_prefix_scan(&prefix, NULL, 0);
    assert_int_equal(prefix.headers, 0);
}

/* Breaks when a list of headers without end is taken, or overruns its room. */
static void prefix_is_bounded(void **state)
{
    enum { LINE = sizeof("#include <>\n") - 1 + MW_PREFIX_HEADER_BYTES_MAX };
    char *text = malloc((MW_PREAMBLE_HEADERS_MAX + 1) * LINE), *at = text;
    struct mw_prefix prefix;

    (void)state;
    assert_non_null(text);
    for (unsigned i = 0; i <= MW_PREAMBLE_HEADERS_MAX; i++) {
        memcpy(at, "#include <", 10);
        memset(at + 10, 'h', MW_PREFIX_HEADER_BYTES_MAX);
        memcpy(at + 10 + MW_PREFIX_HEADER_BYTES_MAX, ">\n", 2);
        at += LINE;
    }
    mw_prefix_scan(&prefix, text, (size_t)(at - text));
    assert_int_equal(prefix.headers, MW_PREAMBLE_HEADERS_MAX);
    assert_int_equal(prefix.covers_bytes, MW_PREAMBLE_HEADERS_MAX * LINE);
    text[10 + MW_PREFIX_HEADER_BYTES_MAX] = 'h'; /* one name is a byte too long */
    mw_prefix_scan(&prefix, text, (size_t)(at - text));
    assert_int_equal(prefix.headers, 0);
    free(text);
}

/* ---- which requests ---- */

/* Breaks when a prefix is used where it might change something, or be made of a stranger's text. */
static void request_that_may_differ_has_no_preamble(void **state)
{
    static const char line_comment[] = "// a\n#include <stdio.h>\nint x;\n";
    static const struct {
        struct ask ask;
        bool planned;
    } cases[] = {
        {{.text = PLAIN}, true}, /* the controls */
        {{.text = PLAIN, .args = {"-O2", "-fPIC", "-Wall", "-std=gnu17"}}, true},
        {{.text = PLAIN, .args = {"-DA", "-DB=1", "-DC_2=x_3L", "-UD"}}, true},
        {{.text = PLAIN, .args = {"-g0"}}, true},
        {{.text = PLAIN, .emit = MW_EMIT_NONE}, true},
        {{.text = line_comment, .args = {"-std=c99"}}, true},
        {{.text = line_comment, .args = {"-std=c++98"}, .name = "a.cc"}, true},
        {{.text = line_comment, .args = {"-std=c89"}}, false},
        {{.text = line_comment, .args = {"-ansi"}}, false},
        {{.text = PLAIN, .args = {"-g"}}, false},
        {{.text = PLAIN, .args = {"-gline-tables-only"}}, false},
        {{.text = PLAIN, .args = {"-Iinc"}}, false},
        {{.text = PLAIN, .args = {"-isystem", "inc"}}, false},
        {{.text = PLAIN, .args = {"-iquote", "inc"}}, false},
        {{.text = PLAIN, .args = {"-include", "b.h"}, .other = "b.h"}, false},
        {{.text = PLAIN, .args = {"-DA=(1)"}}, false},
        {{.text = PLAIN, .args = {"-DA=\"x\""}}, false},
        {{.text = PLAIN, .args = {"-DF(x)=x"}}, false},
        {{.text = PLAIN, .args = {"-Weverything"}}, false},
        {{.text = PLAIN, .args = {"-Wdocumentation"}}, false},
        {{.text = PLAIN, .args = {"-Wsystem-headers"}}, false},
        {{.text = PLAIN, .args = {"-fmacro-prefix-map=/a=/b"}}, false},
        {{.text = PLAIN, .emit = MW_EMIT_PREPROCESSED}, false},
        {{.text = PLAIN, .emit = MW_EMIT_AST}, false},
        {{.text = PLAIN, .emit = MW_EMIT_AST_JSON}, false},
        {{.text = PLAIN, .extras = 1u << MW_EXTRA_DEPENDENCIES}, false},
        {{.text = PLAIN, .extras = 1u << MW_EXTRA_TIME_TRACE}, false},
        {{.text = PLAIN, .read_disk = true}, false},
        {{.text = PLAIN, .name = "a.i"}, false},
        {{.text = "#include <stdio.h>\n"}, false}, /* declares nothing of its own */
        {{.text = "int x;\n#include <stdio.h>\n"}, false},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_preamble_plan *plan;

        assert_int_equal(fixture_make(state), 0);
        plan = plan_of(*state, &cases[i].ask);
        if ((plan != NULL) != cases[i].planned)
            print_error("case %zu\n", i);
        assert_int_equal(plan != NULL, cases[i].planned);
        if (plan)
            assert_int_equal(put_filled(*state, plan, 1, 'x'), 0);
        fixture_end(state);
    }
}

/* Breaks when a macro's name or value of more than a word's length gets into a prefix. */
static void macro_is_a_short_word(void **state)
{
    char arg[160];

    for (size_t bytes = 64; bytes <= 65; bytes++) {
        for (int value = 0; value < 2; value++) {
            struct mw_preamble_plan *plan;

            (void)snprintf(arg, sizeof(arg), "%s%0*d", value ? "-DA=" : "-DA",
                           (int)(bytes - !value), 0);
            assert_int_equal(fixture_make(state), 0);
            plan = plan_of(*state, &(struct ask){.text = PLAIN, .args = {arg}});
            assert_int_equal(plan != NULL, bytes == 64);
            if (plan)
                assert_int_equal(put_filled(*state, plan, 1, 'x'), 0);
            fixture_end(state);
        }
    }
}

/* Breaks when the plan holds anything of the request but its headers and its flags. */
static void plan_is_made_of_headers_and_flags_alone(void **state)
{
    static const struct ask ask = {.text = "/* secret */\n#include <stdio.h> // secret\nint s;\n",
                                   .args = {"-O2", "-D", "A=1"},
                                   .name = "secret.cc"};
    struct fixture *fixture = *state;
    struct mw_preamble_plan *plan = plan_of(fixture, &ask);

    assert_non_null(plan);
    assert_string_equal(plan->text, "#include <stdio.h>\n");
    assert_int_equal(plan->request.emit, MW_EMIT_PREAMBLE);
    assert_int_equal(plan->request.language, MW_LANGUAGE_CXX);
    assert_string_equal(plan->request.main, MW_PREAMBLE_MAIN);
    assert_int_equal(plan->request.file_count, 1);
    assert_string_equal(plan->request.files[0].name, MW_PREAMBLE_MAIN);
    assert_string_equal(plan->request.files[0].data, plan->text);
    assert_string_equal(plan->request.directory, MW_REQUEST_DIRECTORY_DEFAULT);
    assert_int_equal(plan->request.arg_count, 2);
    assert_string_equal(plan->request.args[0], "-O2");
    assert_string_equal(plan->request.args[1], "-DA=1");
    assert_null(plan->request.preamble);
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), 0);
}

/* Breaks when a request from outside may ask for what only a plan may. */
static void request_for_a_preamble_is_refused(void **state)
{
    struct mw_preamble_plan *plan = plan_of(*state, &plain);
    struct mw_refusal refusal = {0};

    assert_non_null(plan);
    assert_int_equal(mw_request_check(&plan->request, &refusal), -EINVAL);
    plan->request.emit = MW_EMIT_NONE; /* the control: nothing else is wrong with it */
    assert_int_equal(mw_request_check(&plan->request, &refusal), 0);
    assert_int_equal(put_filled(*state, plan, 1, 'x'), 0);
}

/* ---- when ---- */

/* Breaks when a prefix is made at its first sighting, by two at once, or not found afterwards, or
 * when it can still be changed. */
static void preamble_is_made_once_at_the_second_sighting(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_use use, again;
    struct mw_preamble_plan *plan, *other;
    struct ask longer = plain;
    struct stat found;

    assert_int_equal(find(fixture, &plain, &use, &plan), 0);
    assert_null(plan);
    assert_int_equal(use.file, -1);
    assert_int_equal(find(fixture, &plain, &use, &plan), 0);
    assert_non_null(plan);
    assert_int_equal(find(fixture, &plain, &use, &other), 0);
    assert_null(other); /* somebody is at it */
    assert_int_equal(put_filled(fixture, plan, 100, 'x'), 0);
    longer.text = "/* more */ #include <stdio.h>\nint other;\n"; /* another body and form */
    assert_int_equal(find(fixture, &plain, &use, &plan), 1);
    assert_int_equal(find(fixture, &longer, &again, &plan), 1);
    assert_null(plan);
    assert_int_equal(use.file, again.file);
    assert_int_equal(use.covers_bytes, strlen("#include <stdio.h>\n"));
    assert_int_equal(again.covers_bytes, strlen("/* more */ #include <stdio.h>\n"));
    assert_int_equal(use.count, 100);
    assert_int_equal(((const char *)use.bytes)[99], 'x');
    assert_int_equal(fstat(use.file, &found), 0);
    assert_int_equal(found.st_size, 100);
    assert_int_equal(pwrite(use.file, "y", 1, 0), -1);
    assert_int_equal(ftruncate(use.file, 1), -1);
    assert_int_equal(stats_of(fixture).used, 2);
    assert_int_equal(stats_of(fixture).built, 1);
    assert_int_equal(stats_of(fixture).kept, 1);
    mw_preambles_drop(fixture->preambles, &use);
    mw_preambles_drop(fixture->preambles, &again);
}

/* Breaks when headers, their order, flags or the language do not part one prefix from another. */
static void preambles_are_told_apart(void **state)
{
    static const struct ask others[] = {
        {.text = "#include <stdio.h>\n#include <stdio.h>\nint x;\n"},
        {.text = "#include <other.h>\n#include <stdio.h>\nint x;\n"},
        {.text = "#include <stdio.h>\n#include <other.h>\nint x;\n"},
        {.text = PLAIN, .args = {"-O1"}},
        {.text = PLAIN, .args = {"-DA=1"}},
        {.text = PLAIN, .args = {"-DA", "-O1"}},
        {.text = PLAIN, .args = {"-DA"}},
        {.text = PLAIN, .name = "a.cc"},
    };
    struct mw_preamble_plan *plan;
    struct mw_preamble_use use;

    keep(*state, &plain, 1, 'x');
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_int_equal(find(*state, &others[i], &use, &plan), 0);
        assert_null(plan); /* each is seen for the first time */
    }
    assert_int_equal(find(*state, &(struct ask){.text = PLAIN, .args = {"-x", "c"}}, &use, &plan),
                     1); /* the control: the same language, said otherwise */
    mw_preambles_drop(((struct fixture *)*state)->preambles, &use);
}

/* Breaks when a file of the request could have stood before a header of the prefix unseen. */
static void file_with_the_name_of_an_input_has_no_preamble(void **state)
{
    static const struct {
        const char *name;
        int found;
    } cases[] = {
        {"stdio.h", 0}, {"sub/stdio.h", 0}, {"probed.h", 0}, {"types.h", 0},
        {"mine.h", 1},  {"types.h.c", 1},   {"stdio", 1},
    };
    struct fixture *fixture = *state;

    keep(fixture, &plain, 1, 'x');
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_preamble_plan *plan;
        struct mw_preamble_use use;
        struct ask ask = plain;

        ask.other = cases[i].name;
        assert_int_equal(find(fixture, &ask, &use, &plan), cases[i].found);
        assert_null(plan);
        if (cases[i].found)
            mw_preambles_drop(fixture->preambles, &use);
    }
}

/* Breaks when a prefix outlives the headers it was made of. */
static void changed_header_takes_the_preamble_along(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_plan *plan;
    struct mw_preamble_use use;

    keep(fixture, &plain, 1, 'x');
    assert_int_equal(find(fixture, &plain, &use, &plan), 1); /* the control */
    mw_preambles_drop(fixture->preambles, &use);
    folder_write(&fixture->folder, "stdio.h", "long printf();\n");
    assert_int_equal(find(fixture, &plain, &use, &plan), 0);
    assert_int_equal(stats_of(fixture).kept, 0);
    assert_int_equal(stats_of(fixture).bytes, 0);
}

/* Breaks when a prefix is kept whose headers changed while it was made. */
static void header_that_changes_meanwhile_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_plan *plan = plan_of(fixture, &plain);
    struct mw_preamble_use use;

    assert_non_null(plan);
    folder_write(&fixture->folder, "stdio.h", "long printf();\n");
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), -ESTALE);
    assert_int_equal(find(fixture, &plain, &use, &plan), 0);
    assert_int_equal(stats_of(fixture).kept, 0);
}

/* Breaks when what failed, spoke, or does not fit its plan is kept; or is tried again and again. */
static void compile_that_is_not_clean_is_not_kept(void **state)
{
    static const struct mw_diagnostic warning = {.severity = MW_SEVERITY_WARNING,
                                                 .message = "a warning"};
    static const struct {
        int rc;
        struct mw_compile_result result;
        const char *inputs;
        size_t inputs_bytes;
        bool warns, nothing;
    } cases[] = {
        {0, {.ok = true}, INPUTS, sizeof(INPUTS), false, false}, /* the control */
        {0, {.ok = true}, INPUTS, sizeof(INPUTS), false, true},
        {-EINVAL, {.ok = false}, INPUTS, sizeof(INPUTS), false, false},
        {-EINVAL, {.ok = true, .not_storable = "a clock"}, INPUTS, sizeof(INPUTS), false, false},
        {-EINVAL, {.ok = true}, INPUTS, sizeof(INPUTS), true, false},
        {-EBADMSG, {.ok = true}, NULL, 0, false, false},
        {-EBADMSG, {.ok = true}, INPUTS, sizeof(INPUTS) - 1, false, false},
        {-EBADMSG, {.ok = true}, "r/inc/other.h", sizeof("r/inc/other.h"), false, false},
        {-EBADMSG, {.ok = true}, "a/inc/stdio.h", sizeof("a/inc/stdio.h"), false, false},
        {-EBADMSG, {.ok = true}, "r/inc/xstdio.h", sizeof("r/inc/xstdio.h"), false, false},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_compile_result result = cases[i].result;
        struct mw_preamble_plan *plan;
        struct mw_preamble_use use;

        assert_int_equal(fixture_make(state), 0);
        plan = plan_of(*state, &plain);
        assert_non_null(plan);
        result.artifact = (char *)"x";
        result.artifact_bytes = 1;
        result.inputs = (struct mw_text){(char *)cases[i].inputs, cases[i].inputs_bytes};
        if (cases[i].warns)
            assert_int_equal(mw_diagnostics_add(&result.diagnostics, &warning), 0);
        assert_int_equal(mw_preambles_put(((struct fixture *)*state)->preambles,
                                          ((struct fixture *)*state)->toolchain, plan,
                                          cases[i].nothing ? NULL : &result),
                         cases[i].rc);
        mw_diagnostics_fini(&result.diagnostics);
        assert_int_equal(stats_of(*state).failed, i != 0);
        assert_int_equal(find(*state, &plain, &use, &plan), i == 0);
        assert_null(plan); /* not soon */
        if (i == 0)
            mw_preambles_drop(((struct fixture *)*state)->preambles, &use);
        fixture_end(state);
    }
}

/* ---- how much ---- */

/* A prefix that no other number has. */
static struct ask flagged(char arg[32], unsigned number)
{
    (void)snprintf(arg, 32, "-DN=%u", number);
    return (struct ask){.text = PLAIN, .args = {arg}};
}

/* Breaks when more is kept than there is room for, when one takes all the room, or when another
 * than the least recently used leaves. */
static void least_recently_used_leaves(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_plan *plan;
    struct mw_preamble_use use;
    char arg[32];

    assert_int_equal(mw_preambles_one_bytes_max(fixture->preambles), BYTES_MAX / 4);
    for (unsigned i = 0; i < 4; i++) {
        struct ask ask = flagged(arg, i);

        keep(fixture, &ask, BYTES_MAX / 4, 'x');
    }
    assert_int_equal(stats_of(fixture).bytes, BYTES_MAX);
    assert_int_equal(find(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=0"}}, &use, &plan),
                     1);
    mw_preambles_drop(fixture->preambles, &use);
    keep(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=4"}}, 1, 'x');
    for (unsigned i = 0; i < 5; i++) {
        struct ask ask = flagged(arg, i);

        assert_int_equal(find(fixture, &ask, &use, &plan), i != 1);
        if (i != 1)
            mw_preambles_drop(fixture->preambles, &use);
    }
    assert_int_equal(stats_of(fixture).evicted, 1);
    plan = plan_of(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=5"}});
    assert_non_null(plan);
    assert_int_equal(put_filled(fixture, plan, BYTES_MAX / 4 + 1, 'x'), -EFBIG);
}

/* Breaks when what somebody uses is taken away, or a change of headers does so. */
static void held_preamble_stays(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_use uses[4];
    struct mw_preamble_plan *plan;
    char arg[32];

    for (unsigned i = 0; i < 4; i++) {
        struct ask ask = flagged(arg, i);

        keep(fixture, &ask, BYTES_MAX / 4, (char)('a' + i));
        assert_int_equal(find(fixture, &ask, &uses[i], &plan), 1);
    }
    plan = plan_of(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=9"}});
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), -ENOMEM);
    folder_write(&fixture->folder, "stdio.h", "long printf();\n");
    assert_null(plan_of(fixture, &(struct ask){.text = "int x;"}));
    assert_non_null(plan = plan_of(fixture, &plain));
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(((const char *)uses[i].bytes)[0], 'a' + i);
        mw_preambles_drop(fixture->preambles, &uses[i]);
    }
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), 0); /* now there is room */
}

/* Breaks when prefixes that come once make the memory of them grow without end. */
static void sightings_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preamble_plan *plan;
    struct mw_preamble_use use;
    char arg[32];

    for (unsigned i = 0; i <= MW_PREAMBLE_SIGHTINGS_MAX; i++) {
        struct ask ask = flagged(arg, i);

        assert_int_equal(find(fixture, &ask, &use, &plan), 0);
    }
    assert_int_equal(find(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=0"}}, &use, &plan),
                     0);
    assert_null(plan); /* it was forgotten */
    assert_int_equal(find(fixture, &(struct ask){.text = PLAIN, .args = {"-DN=99"}}, &use, &plan),
                     0);
    assert_non_null(plan); /* and this one was not */
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), 0);
}

/* Breaks when more plans are out than may be, or one that was put does not make way. */
static void plans_are_bounded(void **state)
{
    struct mw_preamble_plan *plans[MW_PREAMBLE_PLANS_MAX], *plan;
    struct fixture *fixture = *state;
    struct mw_preamble_use use;
    char arg[32];

    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++) {
        struct ask ask = flagged(arg, i);

        assert_non_null(plans[i] = plan_of(fixture, &ask));
    }
    assert_null(plan_of(fixture, &plain));
    for (unsigned i = 0; i < MW_PREAMBLE_PLANS_MAX; i++)
        assert_int_equal(put_filled(fixture, plans[i], 1, 'x'), 0);
    assert_int_equal(find(fixture, &plain, &use, &plan), 0);
    assert_non_null(plan);
    assert_int_equal(put_filled(fixture, plan, 1, 'x'), 0);
}

/* What one of many threads does: ask for prefixes, make what is due, look into what is held. */
static void *ask_and_make(void *arg)
{
    struct fixture *fixture = arg;
    uintptr_t wrong = 0;
    char flag[32];

    for (unsigned i = 0; i < STRESS_ROUNDS; i++) {
        unsigned number = (i * 7 + i / 5) % STRESS_PREFIXES;
        struct ask ask = flagged(flag, number);
        struct mw_preamble_plan *plan;
        struct mw_preamble_use use;

        if (find(fixture, &ask, &use, &plan) == 1) {
            wrong += ((const char *)use.bytes)[use.count - 1] != (char)('a' + number);
            mw_preambles_drop(fixture->preambles, &use);
        } else if (plan) {
            int rc = put_filled(fixture, plan, BYTES_MAX / 4, (char)('a' + number));

            wrong += rc != 0 && rc != -ENOMEM; /* all that is kept may be held */
        }
    }
    return (void *)wrong;
}

/* Breaks when threads that find, make and drop at once see another's bytes, lose count, or use what
 * has left. */
static void many_threads_share_preambles(void **state)
{
    struct fixture *fixture = *state;
    struct mw_preambles_stats stats;
    pthread_t threads[STRESS_THREADS];
    void *wrong;

    for (size_t i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_and_make, fixture), 0);
    for (size_t i = 0; i < STRESS_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    stats = stats_of(fixture);
    assert_true(stats.used > 0 && stats.evicted > 0); /* else nothing was shared */
    assert_int_equal(stats.kept, stats.built - stats.evicted);
    assert_int_equal(stats.bytes, stats.kept * (BYTES_MAX / 4));
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_make, fixture_end)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_is_the_run_of_system_includes),
        cmocka_unit_test(prefix_ends_before_what_is_not_sure),
        cmocka_unit_test(prefix_is_bounded),
        cmocka_unit_test(request_that_may_differ_has_no_preamble),
        cmocka_unit_test(macro_is_a_short_word),
        WITH_FIXTURE(plan_is_made_of_headers_and_flags_alone),
        WITH_FIXTURE(request_for_a_preamble_is_refused),
        WITH_FIXTURE(preamble_is_made_once_at_the_second_sighting),
        WITH_FIXTURE(preambles_are_told_apart),
        WITH_FIXTURE(file_with_the_name_of_an_input_has_no_preamble),
        WITH_FIXTURE(changed_header_takes_the_preamble_along),
        WITH_FIXTURE(header_that_changes_meanwhile_is_noticed),
        cmocka_unit_test(compile_that_is_not_clean_is_not_kept),
        WITH_FIXTURE(least_recently_used_leaves),
        WITH_FIXTURE(held_preamble_stays),
        WITH_FIXTURE(sightings_are_bounded),
        WITH_FIXTURE(plans_are_bounded),
        WITH_FIXTURE(many_threads_share_preambles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

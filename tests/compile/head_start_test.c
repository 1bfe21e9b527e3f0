/* Compiles that go on behind a prefix which their worker has read ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/emit.h>
#include <millwright/isolate.h>
#include <millwright/preamble.h>

#include "isolate_world.h"
#include "support/sanitized.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WORDS        "#include <map>\n#include <string>\n#include <vector>\n"

/* A head start is asked for this often before it is due: see compile/head_starts.h. */
#define USES_BEFORE_DUE 2u

struct fixture {
    const struct mw_toolchain *toolchain;
    struct mw_preambles *preambles;
    struct mw_isolate *isolate;
};

/* One compile by an isolate, with the preamble of its prefix. */
struct ask {
    struct fixture *fixture;
    const struct trial *trial;
    struct mw_limits limits;
    bool unprepared; /* as things are; else its head start is prepared first */
    bool is_alone;   /* without any prefix, in this process */
    int prepared;    /* what mw_isolate_prepare returned */
    int rc;
    struct mw_compile_result result;
    struct mw_usage usage;
};

static _Thread_local struct ask *current; /* what trial_leaf hands on beside its own arguments */

static void preamble_put(struct fixture *fixture, struct mw_preamble_plan *plan)
{
    struct mw_compile_result made = {0};

    assert_int_equal(mw_compile(fixture->toolchain, plan->options, &plan->request, &made), 0);
    assert_int_equal(mw_preambles_put(fixture->preambles, (void *)fixture->toolchain, plan, &made),
                     0);
    mw_compile_result_fini(&made);
}

/* Hold the preamble of a request, which is made at the second sighting. */
static void preamble_hold(struct fixture *fixture, const struct mw_options *options,
                          const struct mw_compile_request *request, struct mw_preamble_use *use)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];

    assert_int_equal(mw_toolchain_stamp((void *)fixture->toolchain, stamp), 0);
    for (unsigned sighting = 0; sighting < 3; sighting++) {
        struct mw_preamble_plan *plan;

        if (mw_preambles_find(fixture->preambles, fixture->toolchain, stamp, options, request, use,
                              &plan) == 1)
            return;
        if (plan)
            preamble_put(fixture, plan);
    }
    fail_msg("%s has no prefix", request->main);
}

static int prepare(struct ask *ask, const struct mw_options *options,
                   const struct mw_compile_request *request)
{
    struct mw_preamble_plan *plan;
    int rc;

    assert_int_equal(mw_preamble_plan_head_start(&plan, options, request), 0);
    rc = mw_isolate_prepare(ask->fixture->isolate, plan->options, &plan->request, NULL, NULL);
    mw_preamble_plan_free(plan);
    return rc;
}

static int leaf(const struct mw_toolchain *toolchain, const struct mw_options *options,
                const struct mw_compile_request *request, struct mw_compile_result *result)
{
    struct ask *ask = current;
    struct mw_compile_request with = *request;
    struct mw_preamble_use use;
    int rc;

    if (ask->is_alone)
        return mw_compile(toolchain, options, request, result);
    preamble_hold(ask->fixture, options, request, &use);
    with.preamble = &use;
    if (!ask->unprepared)
        ask->prepared = prepare(ask, options, &with);
    rc = mw_isolate_compile(ask->fixture->isolate, options, &with, &ask->limits, NULL, result,
                            &ask->usage);
    mw_preambles_drop(ask->fixture->preambles, &use);
    return rc;
}

static void ask_run(struct ask *ask)
{
    current = ask;
    ask->rc = trial_leaf(leaf, ask->fixture->toolchain, ask->trial, &ask->result);
}

static bool places_equal(struct mw_place a, struct mw_place b)
{
    return a.line == b.line && a.column == b.column && a.byte_offset == b.byte_offset;
}

static bool diagnostics_equal(const struct mw_diagnostic *a, size_t a_count,
                              const struct mw_diagnostic *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (a[i].severity != b[i].severity || strcmp(a[i].file, b[i].file) != 0 ||
            strcmp(a[i].message, b[i].message) != 0 || strcmp(a[i].flag, b[i].flag) != 0 ||
            strcmp(a[i].line_text, b[i].line_text) != 0 || !places_equal(a[i].at, b[i].at) ||
            !places_equal(a[i].begin, b[i].begin) || !places_equal(a[i].end, b[i].end) ||
            a[i].fixit_count != b[i].fixit_count ||
            !diagnostics_equal(a[i].notes, a[i].note_count, b[i].notes, b[i].note_count))
            return false;
    return true;
}

/* What two compiles differ in, or NULL. */
static const char *difference(const struct mw_compile_result *a, const struct mw_compile_result *b)
{
    if (a->ok != b->ok)
        return "one failed";
    if (!diagnostics_equal(a->diagnostics.items, a->diagnostics.count, b->diagnostics.items,
                           b->diagnostics.count))
        return "the diagnostics";
    if (a->artifact_bytes != b->artifact_bytes ||
        (a->artifact_bytes > 0 && memcmp(a->artifact, b->artifact, a->artifact_bytes) != 0))
        return "the artifact";
    if (a->inputs.bytes != b->inputs.bytes ||
        (a->inputs.bytes > 0 && memcmp(a->inputs.data, b->inputs.data, a->inputs.bytes) != 0))
        return "the list of inputs";
    return a->not_storable == b->not_storable ? NULL : "whether it can be stored";
}

/* Returns what differs between the compile behind its prefix and the one from the start. */
static const char *trial_difference(struct fixture *fixture, const struct trial *trial)
{
    struct ask behind = {.fixture = fixture, .trial = trial};
    struct ask alone = {.fixture = fixture, .trial = trial, .is_alone = true};
    const char *what;

    ask_run(&behind);
    ask_run(&alone);
    assert_int_equal(behind.prepared, 0);
    assert_int_equal(behind.rc, 0);
    assert_int_equal(alone.rc, 0);
    what = behind.usage.has_head_start ? difference(&behind.result, &alone.result)
                                       : "there was no head start";
    mw_compile_result_fini(&behind.result);
    mw_compile_result_fini(&alone.result);
    return what;
}

static const struct trial trials[] = {
    {.files = {{"hello.c",
                "#include <stdio.h>\nint main(void) { return printf(\"%s %d\", __FILE__, "
                "__LINE__ + __INCLUDE_LEVEL__); }\n"}},
     .args = {"-O0"}},
    {.files = {{"hello.c", "#include <stdio.h>\nint main(void) { return puts(__BASE_FILE__); }\n"}},
     .args = {"-O2", "-fPIC"}},
    {.files = {{"src/words.cc",
                "// comments and blank lines between\n\n#include <map>\n/* two\n lines */\n"
                "#include <string>\n#include <vector> // and behind\n"
                "std::map<std::string, std::vector<int>> words;\n"
                "int count(const char *w) { words[w].push_back(__LINE__); return words.size(); }"}},
     .args = {"-O0"}},
    {.files = {{"src/more/words.cc",
                WORDS "struct once { once(); ~once(); } first;\n" /* named after the file */
                      "static std::map<std::string, int> n{{\"a\", 1}};\n"
                      "int f(const std::string &s) { return n.at(s); }\n"}},
     .args = {"-O2", "-std=c++20"}},
    {.files = {{"twice.cc", "#include <string>\n#include <vector>\n#include <string>\n"
                            "std::vector<std::string> f() { return {\"a\"}; }\n"}}},
    {.files = {{"asm.c", "#include <stdlib.h>\nint f(void) { return abs(3) + rand(); }\n"}},
     .args = {"-O1", "-masm=intel"},
     .emit = MW_EMIT_ASM},
    {.files = {{"ir.cc", "#include <utility>\nint f(int a) { return std::move(a); }\n"}},
     .args = {"-O2"},
     .emit = MW_EMIT_LLVM_IR},
    {.files = {{"bitcode.c", "#include <string.h>\nint f(char *a) { return strlen(a); }\n"}},
     .emit = MW_EMIT_BITCODE},
    {.files = {{"warns.c", "#include <stdio.h>\r\nstatic int unused(int x)\r\n{\r\n  int y;\r\n"
                           "  return x = 1;\r\n}\r\nint f(char *a) { return printf(\"%d\", a); }"}},
     .args = {"-Wall", "-Wextra"},
     .emit = MW_EMIT_NONE},
    {.files = {{"pragma.c",
                "#include <stdio.h>\n#pragma GCC diagnostic ignored \"-Wunused-variable\""
                "\nint f(void) { int a; return 0; }\n"
                "#pragma GCC diagnostic warning \"-Wunused-variable\"\n"
                "int g(void) { int b; return 0; }\n"}},
     .args = {"-Wall", "-Werror"}},
    {.files = {{"ends.c", "#include <stdio.h>\nint f(void) {\n  return 1;\n"}}},
    /* an error in a header, which the notes lead to from the right line of the main file */
    {.files = {{"inside.cc", "#include <map>\n\n\n#include <string>\n#include <vector>\n"
                             "struct none {};\nint f() { std::map<none, int> m; return m[none()]; }"
                             "\n"}}},
    {.files = {{"own.c", "#include <stdio.h>\n#include \"own.h\"\n#include <errno.h>\n"
                         "#ifndef AGAIN\n#define AGAIN\n#include \"own.c\"\n"
                         "int main(void) { return errno + OWN + __COUNTER__; }\n#endif\n"},
               {"own.h", "#define OWN 3\n"},
               {"other.h", "#error nobody reads this\n"}}},
    {.files = {{"asks.c", "#include <stdio.h>\n#if __has_include(\"millwright-prefix.c\") || "
                          "__has_include(\"none.h\")\n#error what is there?\n#endif\nint x;\n"}}},
    {.files = {{"cross.c", "#include <stdint.h>\n#include <stddef.h>\nuintptr_t f(void) { return "
                           "sizeof(ptrdiff_t); }\n"}},
     .args = {"--target=aarch64-linux-gnu", "-ffreestanding", "-O2"}},
    {.files = {{"elsewhere.c", "#include <assert.h>\nvoid f(int a) { assert(a); }\n"}},
     .directory = "/somewhere/else"},
};

static void nothing_differs_behind_a_prefix(void **state)
{
    for (size_t i = 0; i < COUNT(trials); i++) {
        const char *what = trial_difference(*state, &trials[i]);

        if (what)
            fail_msg("%s differs: %s", trials[i].files[0].name, what);
    }
}

/* Control: another name, text or place of an error is a difference. */
static void control_differences_are_seen(void **state)
{
    static const struct trial pairs[][2] = {
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}},
         {.files = {{"b.c", "#include <stdio.h>\nint a;\n"}}}},
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}},
         {.files = {{"a.c", "#include <stdio.h>\nint b;\n"}}}},
        {{.files = {{"a.c", "#include <stdio.h>\nint b; int a\n"}}},
         {.files = {{"a.c", "#include <stdio.h>\n\nint b; int a\n"}}}},
    };
    static const char *const what[] = {"the artifact", "the artifact", "the diagnostics"};

    for (size_t i = 0; i < COUNT(pairs); i++) {
        struct ask asks[] = {{.fixture = *state, .trial = &pairs[i][0]},
                             {.fixture = *state, .trial = &pairs[i][1], .is_alone = true}};

        ask_run(&asks[0]);
        ask_run(&asks[1]);
        assert_true(asks[0].usage.has_head_start);
        assert_string_equal(difference(&asks[0].result, &asks[1].result), what[i]);
        mw_compile_result_fini(&asks[0].result);
        mw_compile_result_fini(&asks[1].result);
    }
}

/* Broken when a worker goes on with a request that its prefix is not the beginning of. */
static void other_requests_get_none(void **state)
{
    static char large[(1 << 20) + 64] = "#include <stdio.h>\nint a; //";
    const struct trial begun = {.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}};
    const struct trial others[] = {
        {.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .directory = "/other"},
        {.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .args = {"-O1"}},
        {.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .emit = MW_EMIT_ASM},
        {.files = {{"a.c", "#include <stdlib.h>\nint a;\n"}}},
        {.files = {{"a.c", "#include<stdio.h>\nint a;\n"}}}, /* shorter than the plain line */
        {.files = {{"a.c", large}}},
    };
    struct ask first = {.fixture = *state, .trial = &begun};

    memset(large + strlen(large), 'x', sizeof(large) - strlen(large) - 1);
    ask_run(&first);
    assert_true(first.usage.has_head_start);
    mw_compile_result_fini(&first.result);
    for (size_t i = 0; i < COUNT(others); i++) {
        struct ask ask = {.fixture = *state, .trial = &others[i], .unprepared = true};

        ask_run(&ask);
        assert_int_equal(ask.rc, 0);
        assert_true(ask.result.ok);
        assert_false(ask.usage.has_head_start);
        mw_compile_result_fini(&ask.result);
    }
}

/* Due at the third use, and not again at once. */
static void it_is_due_after_some_uses(void **state)
{
    const struct trial trial = {.files = {{"due.c", "#include <ctype.h>\nint a;\n"}}};

    for (unsigned use = 0; use < USES_BEFORE_DUE + 3; use++) {
        struct ask ask = {.fixture = *state, .trial = &trial, .unprepared = true};

        ask_run(&ask);
        assert_int_equal(ask.rc, 0);
        assert_false(ask.usage.has_head_start);
        assert_int_equal(ask.usage.head_start_due, use == USES_BEFORE_DUE);
        mw_compile_result_fini(&ask.result);
    }
}

/* Broken when a prefix that is in use leaves for another, or when a place is lost. */
static void places_are_bounded(void **state)
{
    const struct trial one = {.files = {{"one.c", "#include <errno.h>\nint a;\n"}}};
    const struct trial other = {.files = {{"other.c", "#include <time.h>\nint a;\n"}}};
    struct fixture own = *(struct fixture *)*state;
    struct mw_isolate_options options = world_options(&(struct world){.toolchain = own.toolchain});
    struct ask asks[] = {{.fixture = &own, .trial = &one},
                         {.fixture = &own, .trial = &other},
                         {.fixture = &own, .trial = &one}};
    static const int prepared[] = {0, -EBUSY, 0};
    struct mw_isolate_stats stats;
    char why[256] = "";

    options.head_starts = 1;
    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    for (size_t i = 0; i < COUNT(asks); i++) {
        ask_run(&asks[i]);
        assert_int_equal(asks[i].prepared, prepared[i]);
        assert_int_equal(asks[i].rc, 0);
        assert_int_equal(asks[i].usage.has_head_start, prepared[i] == 0);
        mw_compile_result_fini(&asks[i].result);
    }
    mw_isolate_snapshot(own.isolate, &stats);
    assert_int_equal(stats.head_starts, 1);
    assert_int_equal(stats.head_starts_used, 2);
    mw_isolate_free(own.isolate);
}

/* Control: with no place there is nothing to prepare. */
static void control_no_place_no_head_start(void **state)
{
    const struct trial trial = {.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}};
    struct fixture own = *(struct fixture *)*state;
    struct mw_isolate_options options = world_options(&(struct world){.toolchain = own.toolchain});
    struct ask ask = {.fixture = &own, .trial = &trial};
    char why[256] = "";

    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    ask_run(&ask);
    assert_int_equal(ask.prepared, -EINVAL);
    assert_int_equal(ask.rc, 0);
    assert_false(ask.usage.has_head_start);
    mw_compile_result_fini(&ask.result);
    mw_isolate_free(own.isolate);
}

/* Broken when what a source does to a worker behind a prefix outlives that worker. */
static void harm_ends_with_its_worker(void **state)
{
    static const struct trial endless = {
        .files = {{"endless.c", "#include <stdio.h>\n"
                                "int f(unsigned _BitInt(8388608) a) { return (int)(a * a); }"}}};
    static const struct trial hungry = {
        .files = {{"hungry.c", "#include <stdio.h>\nchar a[1ul << 31] = {1};\n"}}};
    static const struct {
        const struct trial *trial;
        struct mw_limits limits;
        int rc;
    } cases[] = {
        {&endless, {.wall_ns = 300 * WORLD_MS}, -ETIMEDOUT},
        {&endless, {.cpu_ns = 200 * WORLD_MS}, -EDQUOT},
        {&hungry, {.memory_bytes = 64u << 20}, -EDQUOT},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ask ask = {.fixture = *state, .trial = cases[i].trial, .limits = cases[i].limits};

        if (cases[i].limits.memory_bytes > 0 && SANITIZED)
            continue;
        ask_run(&ask);
        assert_true(ask.usage.has_head_start);
        assert_int_equal(ask.rc, cases[i].rc);
        mw_compile_result_fini(&ask.result);
        assert_null(trial_difference(*state, &trials[0]));
    }
}

/* The prefix zygote among the children of `zygote`, awaited by its name; it has children. */
static pid_t prefix_zygote(pid_t zygote)
{
    return world_worker_await(zygote, "mw-prefix");
}

/* Broken when a compile fails because a zygote died, or when a dead one's place stays taken. */
static void a_dead_prefix_zygote_is_done_without(void **state)
{
    struct fixture own = *(struct fixture *)*state;
    struct mw_isolate_options options = world_options(&(struct world){.toolchain = own.toolchain});
    pid_t other = world_zygote();

    options.head_starts = 2;
    for (unsigned is_first = 0; is_first < 2; is_first++) {
        struct ask before = {.fixture = &own, .trial = &trials[0]};
        struct ask after = {.fixture = &own, .trial = &trials[0], .unprepared = true};
        struct world_processes zygotes;
        struct mw_isolate_stats stats;
        char why[256] = "";
        pid_t zygote, victim;

        assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
        zygotes = world_children(getpid());
        assert_int_equal(zygotes.count, 2);
        zygote = zygotes.pids[zygotes.pids[0] == other];
        ask_run(&before);
        assert_true(before.usage.has_head_start);
        victim = is_first ? zygote : prefix_zygote(zygote);
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_true(world_gone_await(victim));
        ask_run(&after);
        assert_int_equal(after.rc, 0);
        assert_false(after.usage.has_head_start);
        assert_null(difference(&before.result, &after.result));
        mw_isolate_snapshot(own.isolate, &stats);
        assert_int_equal(stats.head_starts, 0);
        mw_compile_result_fini(&before.result);
        mw_compile_result_fini(&after.result);
        assert_null(trial_difference(&own, &trials[0]));
        mw_isolate_free(own.isolate);
    }
}

static int setup(void **state)
{
    static struct fixture fixture;
    struct mw_isolate_options options;
    char why[256] = "";
    void *toolchain = NULL;

    if (trial_setup(&toolchain))
        return -1;
    fixture.toolchain = toolchain;
    options = world_options(&(struct world){.toolchain = toolchain});
    options.head_starts = MW_ISOLATE_HEAD_STARTS_MAX;
    if (mw_preambles_new(&fixture.preambles, 0) ||
        mw_isolate_new(&fixture.isolate, &options, why, sizeof(why))) {
        print_error("%s\n", why);
        return -1;
    }
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    void *toolchain;

    if (!fixture) /* it could not be set up */
        return 0;
    toolchain = (void *)fixture->toolchain;
    mw_isolate_free(fixture->isolate);
    mw_preambles_free(fixture->preambles);
    return trial_teardown(&toolchain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_differs_behind_a_prefix),
        cmocka_unit_test(control_differences_are_seen),
        cmocka_unit_test(other_requests_get_none),
        cmocka_unit_test(it_is_due_after_some_uses),
        cmocka_unit_test(places_are_bounded),
        cmocka_unit_test(control_no_place_no_head_start),
        cmocka_unit_test(harm_ends_with_its_worker),
        cmocka_unit_test(a_dead_prefix_zygote_is_done_without),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

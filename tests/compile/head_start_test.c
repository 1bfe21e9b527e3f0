/* Compiles that go on behind a prefix which their worker has read ahead. */
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
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/emit.h>
#include <millwright/isolate.h>
#include <millwright/preamble.h>

#include "head_start_samples.h"
#include "isolate_world.h"
#include "support/sanitized.h"

#define COUNT(array)    (sizeof(array) / sizeof((array)[0]))
#define MAIN_BYTES_MAX  (1u << 20) /* isolate.h: a larger main file has none */
#define USES_BEFORE_DUE 2u         /* docs/architecture.md: the third makes it due */
#define POLLS_MAX       500        /* of 10 ms: shorter than any endless source takes */
#define PLACES          32u
#define DESCENDANTS_MAX 512u

struct fixture {
    struct world *world; /* its isolate is the running test's */
    struct mw_preambles *preambles;
    size_t descriptors; /* open before the test began, without those of preambles */
};

enum way {
    PREPARED, /* by the isolate, behind its prefix */
    AS_IT_IS, /* by the isolate, with what is there */
    ALONE     /* in this process, without any prefix */
};

/* One compile, and what came of it. */
struct ask {
    struct fixture *fixture;
    const struct trial *trial;
    enum way way;
    struct mw_limits limits;
    struct mw_isolate_stop *stop;
    const char *prefix; /* NULL, or what is prepared in place of its own */
    struct mw_limits prepare_limits;
    bool has_prefix;
    int prepared; /* what mw_isolate_prepare returned */
    int rc;
    struct mw_compile_result result;
    struct mw_usage usage;
    pthread_t thread;
    const char *name; /* of the thread */
};

/* ---- asking ---- */

static _Thread_local struct ask *current; /* what trial_leaf hands on beside its own arguments */

static void preamble_put(struct fixture *fixture, struct mw_preamble_plan *plan)
{
    struct mw_toolchain *toolchain = (void *)fixture->world->toolchain;
    struct mw_compile_result made = {0};

    assert_int_equal(mw_compile(toolchain, plan->options, &plan->request, &made), 0);
    assert_int_equal(mw_preambles_put(fixture->preambles, toolchain, plan, &made), 0);
    mw_compile_result_fini(&made);
}

/* Hold the preamble of a request, which is made at the second sighting. False: it has no prefix. */
static bool preamble_hold(struct fixture *fixture, const struct mw_options *options,
                          const struct mw_compile_request *request, struct mw_preamble_use *use)
{
    const struct mw_toolchain *toolchain = fixture->world->toolchain;
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];

    assert_int_equal(mw_toolchain_stamp((void *)toolchain, stamp), 0);
    for (unsigned sighting = 0; sighting < 3; sighting++) {
        struct mw_preamble_plan *plan;

        if (mw_preambles_find(fixture->preambles, toolchain, stamp, options, request, use, &plan) ==
            1)
            return true;
        if (plan)
            preamble_put(fixture, plan);
    }
    return false;
}

static int prepare(const struct ask *ask, const struct mw_options *options,
                   const struct mw_compile_request *request)
{
    struct mw_preamble_plan *plan;
    int rc;

    assert_int_equal(mw_preamble_plan_head_start(&plan, options, request), 0);
    if (ask->prefix) {
        plan->file.data = ask->prefix;
        plan->file.bytes = strlen(ask->prefix);
    }
    rc = mw_isolate_prepare(ask->fixture->world->isolate, plan->options, &plan->request,
                            &ask->prepare_limits, ask->stop);
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

    if (ask->way == ALONE)
        return mw_compile(toolchain, options, request, result);
    ask->has_prefix = preamble_hold(ask->fixture, options, request, &use);
    if (ask->has_prefix)
        with.preamble = &use;
    if (ask->way == PREPARED && ask->has_prefix)
        ask->prepared = prepare(ask, options, &with);
    rc = mw_isolate_compile(ask->fixture->world->isolate, options, &with, &ask->limits, ask->stop,
                            result, &ask->usage);
    if (ask->has_prefix)
        mw_preambles_drop(ask->fixture->preambles, &use);
    return rc;
}

static void ask_run(struct ask *ask)
{
    current = ask;
    ask->rc = trial_leaf(leaf, ask->fixture->world->toolchain, ask->trial, &ask->result);
}

static void ask_fini(struct ask *ask)
{
    mw_compile_result_fini(&ask->result);
}

static void *ask_thread(void *arg)
{
    struct ask *ask = arg;

    (void)prctl(PR_SET_NAME, ask->name);
    ask_run(ask);
    return NULL;
}

static void ask_begin(struct ask *ask, const char *name)
{
    ask->name = name;
    assert_int_equal(pthread_create(&ask->thread, NULL, ask_thread, ask), 0);
}

static void ask_join(struct ask *ask)
{
    assert_int_equal(pthread_join(ask->thread, NULL), 0);
}

/* ---- comparing ---- */

static bool places_equal(struct mw_place a, struct mw_place b)
{
    return a.line == b.line && a.column == b.column && a.byte_offset == b.byte_offset;
}

static bool fixits_equal(const struct mw_diagnostic *a, const struct mw_diagnostic *b)
{
    if (a->fixit_count != b->fixit_count)
        return false;
    for (size_t i = 0; i < a->fixit_count; i++)
        if (strcmp(a->fixits[i].file, b->fixits[i].file) != 0 ||
            strcmp(a->fixits[i].text, b->fixits[i].text) != 0 ||
            !places_equal(a->fixits[i].begin, b->fixits[i].begin) ||
            !places_equal(a->fixits[i].end, b->fixits[i].end))
            return false;
    return true;
}

static bool diagnostic_equal(const struct mw_diagnostic *a, const struct mw_diagnostic *b)
{
    return a->severity == b->severity && strcmp(a->file, b->file) == 0 &&
           strcmp(a->message, b->message) == 0 && strcmp(a->flag, b->flag) == 0 &&
           strcmp(a->category, b->category) == 0 && strcmp(a->line_text, b->line_text) == 0 &&
           places_equal(a->at, b->at) && places_equal(a->begin, b->begin) &&
           places_equal(a->end, b->end) && fixits_equal(a, b);
}

static bool lists_equal(const struct mw_diagnostic *a, size_t a_count,
                        const struct mw_diagnostic *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (!diagnostic_equal(&a[i], &b[i]) ||
            !lists_equal(a[i].notes, a[i].note_count, b[i].notes, b[i].note_count))
            return false;
    return true;
}

static bool diagnostics_equal(const struct mw_diagnostics *a, const struct mw_diagnostics *b)
{
    return lists_equal(a->items, a->count, b->items, b->count) && a->dropped == b->dropped &&
           a->errors == b->errors;
}

static void list_print(const char *whose, const struct mw_diagnostic *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        print_error("%s: %s:%u:%u: %s: %s [%zu fix-its]\n", whose, list[i].file, list[i].at.line,
                    list[i].at.column, mw_severity_name(list[i].severity), list[i].message,
                    list[i].fixit_count);
        list_print(whose, list[i].notes, list[i].note_count);
    }
}

static bool texts_equal(const struct mw_text *a, const struct mw_text *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* What two compiles differ in, or NULL. */
static const char *difference(const struct mw_compile_result *a, const struct mw_compile_result *b)
{
    if (!diagnostics_equal(&a->diagnostics, &b->diagnostics))
        return "the diagnostics";
    if (a->ok != b->ok)
        return "one failed";
    if (!texts_equal(&(struct mw_text){a->artifact, a->artifact_bytes},
                     &(struct mw_text){b->artifact, b->artifact_bytes}))
        return "the artifact";
    for (size_t i = 0; i < MW_EXTRAS; i++)
        if (!texts_equal(&a->extras[i], &b->extras[i]))
            return "an extra";
    if (!texts_equal(&a->inputs, &b->inputs))
        return "the list of inputs";
    if (strcmp(a->not_storable ? a->not_storable : "", b->not_storable ? b->not_storable : "") != 0)
        return "whether it can be stored";
    return NULL;
}

/* As difference, of the compile that `ask` tells of and the one from the start. */
static const char *ask_difference(struct ask *ask)
{
    struct ask alone = {.fixture = ask->fixture, .trial = ask->trial, .way = ALONE};
    const char *what;

    ask_run(ask);
    ask_run(&alone);
    assert_int_equal(ask->rc, 0);
    assert_int_equal(alone.rc, 0);
    what = ask->usage.has_head_start ? difference(&ask->result, &alone.result)
                                     : "there was no head start";
    if (what && ask->usage.has_head_start) {
        list_print("behind", ask->result.diagnostics.items, ask->result.diagnostics.count);
        list_print("alone", alone.result.diagnostics.items, alone.result.diagnostics.count);
    }
    ask_fini(&alone);
    return what;
}

static void check_no_difference(struct fixture *fixture, const struct trial *trial, enum way way)
{
    struct ask ask = {.fixture = fixture, .trial = trial, .way = way};
    const char *what = ask_difference(&ask);

    ask_fini(&ask);
    if (what)
        fail_msg("%s differs: %s", trial->files[0].name, what);
}

/* ---- processes ---- */

static pid_t prefix_zygote(void)
{
    return world_worker_await(world_zygote(), "mw-prefix");
}

/* Wait until there is no prefix zygote, dead or alive. */
static bool no_prefix_zygote_await(void)
{
    for (unsigned look = 0; look < POLLS_MAX; look++) {
        struct world_processes children = world_children(world_zygote());
        size_t count = 0;

        for (size_t i = 0; i < children.count; i++)
            count += world_is_called(children.pids[i], "mw-prefix");
        if (count == 0)
            return true;
        (void)usleep(10000);
    }
    return false;
}

struct descendants {
    pid_t pids[DESCENDANTS_MAX];
    size_t count;
};

static void descendants_add(struct descendants *all, pid_t parent)
{
    struct world_processes children = world_children(parent);

    for (size_t i = 0; i < children.count && all->count < DESCENDANTS_MAX; i++) {
        all->pids[all->count++] = children.pids[i];
        descendants_add(all, children.pids[i]);
    }
}

static struct mw_isolate_stats stats_of(const struct fixture *fixture)
{
    struct mw_isolate_stats stats;

    mw_isolate_snapshot(fixture->world->isolate, &stats);
    return stats;
}

static void isolate_begin(struct fixture *fixture, unsigned head_starts)
{
    struct mw_isolate_options options = world_options(fixture->world);
    char why[256] = "";

    options.head_starts = head_starts;
    if (mw_isolate_new(&fixture->world->isolate, &options, why, sizeof(why)))
        fail_msg("%s", why);
}

/* Whether nothing of it is left. */
static bool isolate_end(struct fixture *fixture)
{
    struct descendants all = {.count = 0};

    descendants_add(&all, getpid());
    mw_isolate_free(fixture->world->isolate);
    fixture->world->isolate = NULL;
    for (size_t i = 0; i < all.count; i++) {
        if (world_gone_await(all.pids[i]))
            continue;
        print_error("process %ld is left over\n", (long)all.pids[i]);
        return false;
    }
    return world_children(getpid()).count == 0;
}

/* ---- what a head start changes: nothing ---- */

static bool says(const struct mw_diagnostics *list, const char *text)
{
    if (diagnostic_find(list, text))
        return true;
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < list->items[i].note_count; k++)
            if (strstr(list->items[i].notes[k].message, text))
                return true;
    return false;
}

/* All of a table, so that all that differ are told. */
static void samples_check(struct fixture *fixture, const struct head_start_sample *samples,
                          size_t count)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) {
        struct ask ask = {.fixture = fixture, .trial = &samples[i].trial};
        const char *what = ask_difference(&ask);

        if (!what && samples[i].says && !says(&ask.result.diagnostics, samples[i].says))
            what = "it does not say what it is there for";
        if (!what && !samples[i].says && (!ask.result.ok || ask.result.diagnostics.count > 0))
            what = "it is to compile in silence";
        if (what)
            print_error("%s: %s (prepared: %d)\n", samples[i].trial.files[0].name, what,
                        ask.prepared);
        wrong += what != NULL;
        ask_fini(&ask);
    }
    assert_int_equal(wrong, 0);
}

/* Broken when a name of the prefix's own, or its options, show in what comes out. */
static void outputs_do_not_differ(void **state)
{
    samples_check(*state, head_start_outputs, head_start_output_count);
}

/* Broken when a main file is gone on with at a wrong byte, or is taken for another file. */
static void texts_do_not_differ(void **state)
{
    samples_check(*state, head_start_texts, head_start_text_count);
}

/* Broken when a place in the main file is looked for in the text of the prefix. */
static void complaints_do_not_differ(void **state)
{
    samples_check(*state, head_start_complaints, head_start_complaint_count);
}

/* Broken when the end of the main file lies behind the room for it, or one byte less is there. */
static void the_largest_main_file_has_one(void **state)
{
    static char text[MAIN_BYTES_MAX + 2] = "#include <stdio.h>\n";
    const struct trial trial = {.files = {{"large.c", text}}};
    const char end[] = "\nint f(void) {\nint a = b; ";
    struct ask over = {.fixture = *state, .trial = &trial};

    memset(text + strlen(text), ' ', MAIN_BYTES_MAX - strlen(text));
    (void)snprintf(text + MAIN_BYTES_MAX - strlen(end), sizeof(end), "%s", end);
    check_no_difference(*state, &trial, PREPARED);
    text[MAIN_BYTES_MAX] = '}';
    assert_string_equal(ask_difference(&over), "there was no head start");
    assert_true(over.has_prefix);
    assert_non_null(diagnostic_find(&over.result.diagnostics, "undeclared identifier 'b'"));
    ask_fini(&over);
}

/* Control: another name, text, place, prefix or fix-it is a difference. */
static void control_differences_are_seen(void **state)
{
#define ONE(name, text)                                                                            \
    {                                                                                              \
        .files = { {name, text} }                                                                  \
    }
    static const struct {
        struct trial pair[2];
        const char *what;
    } cases[] = {
        {{ONE("a.c", "#include <stdio.h>\nint a;\n"), ONE("b.c", "#include <stdio.h>\nint a;\n")},
         "the artifact"},
        {{ONE("a.c", "#include <stdio.h>\nint a;\n"), ONE("a.c", "#include <stdio.h>\nint b;\n")},
         "the artifact"},
        {{ONE("a.cc", "#include <iostream>\nint a;\n"), ONE("a.cc", "#include <ios>\nint a;\n")},
         "the artifact"},
        {{ONE("a.c", "#include <stdio.h>\nint b; int a\n"),
          ONE("a.c", "#include <stdio.h>\n\nint b; int a\n")},
         "the diagnostics"},
        {{ONE("a.c", "#include <stdio.h>\nint f(void) { return prinf; }\n"),
          ONE("a.c", "#include <stdio.h>\nint f(void) { return prinf/**/; }\n")},
         "the diagnostics"},
        {{ONE("a.c", "#include <stdio.h>\nint a;\n"), ONE("d/a.c", "#include <stdio.h>\nint a;\n")},
         "the list of inputs"},
        {{ONE("a.c", "#include <stdio.h>\nvoid f(void) { __asm__(\"\"); }\n"),
          ONE("a.c", "#include <stdio.h>\nvoid f(void) { }\n")},
         NULL},
    };
#undef ONE

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ask asks[] = {
            {.fixture = *state, .trial = &cases[i].pair[0]},
            {.fixture = *state, .trial = &cases[i].pair[1], .way = ALONE},
        };
        const char *what;

        ask_run(&asks[0]);
        ask_run(&asks[1]);
        assert_true(asks[0].usage.has_head_start);
        what = difference(&asks[0].result, &asks[1].result);
        assert_non_null(what);
        if (cases[i].what)
            assert_string_equal(what, cases[i].what);
        ask_fini(&asks[0]);
        ask_fini(&asks[1]);
    }
}

/* Control: with no place there is nothing to prepare, and it is seen that there is no head start.
 */
static void control_no_place_no_head_start(void **state)
{
    struct fixture *fixture = *state;
    struct ask ask = {.fixture = fixture, .trial = &head_start_outputs[0].trial};

    assert_true(isolate_end(fixture));
    isolate_begin(fixture, 0);
    assert_string_equal(ask_difference(&ask), "there was no head start");
    assert_true(ask.has_prefix);
    assert_int_equal(ask.prepared, -EINVAL);
    ask_fini(&ask);
}

/* ---- who gets one ---- */

static const struct trial calm = {.files = {{"calm.c", "#include <stdio.h>\nint a;\n"}}};

/* Broken when a worker goes on with a request that its prefix is not the beginning of. */
static void other_requests_get_none(void **state)
{
    static const struct {
        struct trial trial;
        bool has_prefix;
    } others[] = {
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .directory = "/other"}, true},
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .args = {"-O1"}}, true},
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .emit = MW_EMIT_ASM}, true},
        {{.files = {{"a.c", "#include <stdlib.h>\nint a;\n"}}}, true},
        {{.files = {{"a.c", "#include <stdio.h>\n#include <errno.h>\nint a;\n"}}}, true},
        {{.files = {{"a.cc", "#include <stdio.h>\nint a;\n"}}}, true},
        {{.files = {{"a.C", "#include <stdio.h>\nint a;\n"}}}, true},
        {{.files = {{"a", "#include <stdio.h>\nint a;\n"}}, .args = {"-xc"}}, true},
        {{.files = {{"a.c", "#include<stdio.h>\nint a;\n"}}}, true}, /* the plain line is longer */
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}}, .args = {"-g"}}, false},
        {{.files = {{"a.c", "\xef\xbb\xbf#include <stdio.h>\nint a;\n"}}}, false},
        {{.files = {{"a.c", "#include <stdio.h>\nint a;\n"}, {"stdio.h", "int b;\n"}}}, false},
    };
    static const struct trial cxx = {.files = {{"calm.cc", "#include <stdio.h>\nint a;\n"}}};

    check_no_difference(*state, &calm, PREPARED);
    check_no_difference(*state, &cxx, PREPARED);
    for (size_t i = 0; i < COUNT(others); i++) {
        struct ask ask = {.fixture = *state, .trial = &others[i].trial, .way = AS_IT_IS};
        struct ask alone = {.fixture = *state, .trial = &others[i].trial, .way = ALONE};
        bool is_cxx = strcmp(others[i].trial.files[0].name, "a.cc") == 0;

        ask_run(&ask);
        ask_run(&alone);
        assert_int_equal(ask.rc, 0);
        assert_true(ask.result.ok);
        assert_int_equal(ask.has_prefix, others[i].has_prefix);
        assert_int_equal(ask.usage.has_head_start, is_cxx); /* the one with a place */
        assert_null(difference(&ask.result, &alone.result));
        ask_fini(&ask);
        ask_fini(&alone);
    }
}

/* Broken when it is due too early, or again at once, or not made use of. */
static void it_is_due_after_some_uses(void **state)
{
    for (unsigned use = 0; use < USES_BEFORE_DUE + 3; use++) {
        struct ask ask = {.fixture = *state, .trial = &calm, .way = AS_IT_IS};

        ask_run(&ask);
        assert_int_equal(ask.rc, 0);
        assert_false(ask.usage.has_head_start);
        assert_int_equal(ask.usage.head_start_due, use == USES_BEFORE_DUE);
        ask_fini(&ask);
    }
    for (unsigned use = 0; use < 2; use++) {
        struct ask ask = {.fixture = *state, .trial = &calm, .way = use == 0 ? PREPARED : AS_IT_IS};

        ask_run(&ask);
        assert_int_equal(ask.prepared, 0);
        assert_true(ask.usage.has_head_start);
        assert_false(ask.usage.head_start_due);
        ask_fini(&ask);
    }
    assert_int_equal(stats_of(*state).head_starts, 1);
    assert_int_equal(stats_of(*state).head_starts_used, 2);
}

/* Broken when a prefix that is in use leaves for another, or when a place is lost. */
static void places_are_bounded(void **state)
{
    static const struct trial other = {.files = {{"other.c", "#include <time.h>\nint a;\n"}}};
    static const int prepared[] = {0, -EBUSY, 0};
    struct fixture *fixture = *state;
    struct ask asks[] = {{.fixture = fixture, .trial = &calm},
                         {.fixture = fixture, .trial = &other},
                         {.fixture = fixture, .trial = &calm}};

    assert_true(isolate_end(fixture));
    isolate_begin(fixture, 1);
    for (size_t i = 0; i < COUNT(asks); i++) {
        ask_run(&asks[i]);
        assert_int_equal(asks[i].prepared, prepared[i]);
        assert_int_equal(asks[i].rc, 0);
        assert_int_equal(asks[i].usage.has_head_start, prepared[i] == 0);
        ask_fini(&asks[i]);
    }
    assert_int_equal(stats_of(fixture).head_starts, 1);
    assert_int_equal(stats_of(fixture).head_starts_used, 2);
    for (unsigned use = 0; use < USES_BEFORE_DUE + 1; use++) { /* nor is one due without room */
        struct ask ask = {.fixture = fixture, .trial = &other, .way = AS_IT_IS};

        ask_run(&ask);
        assert_false(ask.usage.head_start_due);
        ask_fini(&ask);
    }
}

/* ---- harm ---- */

/* A source of the world's behind `header`; `text` is to be freed. */
static struct trial behind(const struct trial *trial, const char *header, char **text)
{
    struct trial with = *trial;

    if (asprintf(text, "#include <%s>\n%s", header, trial->files[0].text) < 0)
        fail_msg("out of memory");
    with.files[0].text = *text;
    return with;
}

/* Broken when what a source does to a worker behind a prefix is not limited as elsewhere, or
 * outlives that worker. */
static void limits_end_work_behind_a_prefix(void **state)
{
    static const struct {
        const struct trial *trial;
        struct mw_limits limits;
        int rc;
        enum mw_limit hit;
    } cases[] = {
        {&world_endless, {.wall_ns = 300 * WORLD_MS}, -ETIMEDOUT, MW_LIMIT_WALL},
        {&world_endless, {.cpu_ns = 200 * WORLD_MS}, -EDQUOT, MW_LIMIT_CPU},
        {&world_hungry, {.memory_bytes = 64u << 20}, -EDQUOT, MW_LIMIT_MEMORY},
        {&world_hungry_bit_by_bit, {.memory_bytes = 64u << 20}, -EDQUOT, MW_LIMIT_MEMORY},
        {&world_large, {.output_bytes = 1u << 20}, -EDQUOT, MW_LIMIT_OUTPUT},
    };
    pid_t before;

    check_no_difference(*state, &calm, PREPARED);
    before = prefix_zygote();
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text;
        struct trial trial = behind(cases[i].trial, "stdio.h", &text);
        struct ask ask = {
            .fixture = *state, .trial = &trial, .way = AS_IT_IS, .limits = cases[i].limits};

        if (cases[i].hit != MW_LIMIT_MEMORY || !SANITIZED) {
            ask_run(&ask);
            assert_true(ask.usage.has_head_start);
            assert_int_equal(ask.rc, cases[i].rc);
            assert_int_equal(ask.usage.hit, cases[i].hit);
            assert_null(ask.result.artifact);
        }
        free(text);
        ask_fini(&ask);
        check_no_difference(*state, &calm, AS_IT_IS);
    }
    assert_int_equal(prefix_zygote(), before); /* all of them behind the same */
}

/* Broken when a bound on the output is the prefix's own. */
static void output_limit_is_exact_behind_a_prefix(void **state)
{
    char *text;
    struct trial trial = behind(&world_large, "stdio.h", &text);
    struct ask whole = {.fixture = *state, .trial = &trial}, exact = whole, less = whole;

    ask_run(&whole);
    assert_int_equal(whole.rc, 0);
    exact.limits.output_bytes = whole.result.artifact_bytes;
    ask_run(&exact);
    assert_true(exact.usage.has_head_start);
    assert_int_equal(exact.rc, 0);
    assert_null(difference(&whole.result, &exact.result));
    less.limits.output_bytes = whole.result.artifact_bytes - 1;
    ask_run(&less);
    assert_true(less.usage.has_head_start);
    assert_int_equal(less.rc, -EDQUOT);
    assert_int_equal(less.usage.output_bytes, whole.result.artifact_bytes);
    ask_fini(&whole);
    ask_fini(&exact);
    ask_fini(&less);
    free(text);
}

/* Broken when the end of the compiler is not told as elsewhere, or takes more along. */
static void breakdowns_are_told_behind_a_prefix(void **state)
{
    char *texts[2];
    const struct trial crashes = behind(&world_crashes, "stdio.h", &texts[0]);
    const struct trial breaks = behind(&world_breaks, "stddef.h", &texts[1]);
    struct ask asks[] = {{.fixture = *state, .trial = &crashes},
                         {.fixture = *state, .trial = &breaks}};

    for (size_t i = 0; i < COUNT(asks); i++) {
        ask_run(&asks[i]);
        assert_true(asks[i].usage.has_head_start);
        assert_int_equal(asks[i].rc, 0);
        assert_false(asks[i].result.ok);
        free(texts[i]);
    }
    assert_int_equal(asks[0].usage.signal, SIGSEGV);
    assert_true(says(&asks[0].result.diagnostics, "nest less deeply"));
    assert_int_equal(asks[1].usage.signal, 0);
    assert_true(says(&asks[1].result.diagnostics, "error in backend: Cannot select"));
    assert_true(says(&asks[1].result.diagnostics, "the source itself has no errors"));
    ask_fini(&asks[0]);
    ask_fini(&asks[1]);
    check_no_difference(*state, &calm, PREPARED);
}

/* Broken when a stop does not reach a worker behind a prefix. */
static void stop_ends_a_compile_behind_a_prefix(void **state)
{
    struct mw_isolate_stop stop = {0};
    char *text;
    struct trial trial = behind(&world_endless, "stdio.h", &text);
    struct ask ask = {.fixture = *state, .trial = &trial, .way = AS_IT_IS, .stop = &stop};
    pid_t worker;

    check_no_difference(*state, &calm, PREPARED);
    ask_begin(&ask, "driver-stop");
    worker = world_worker_await(prefix_zygote(), "driver-stop");
    world_cpu_await(worker, 50);
    mw_isolate_stop(&stop);
    ask_join(&ask);
    assert_int_equal(ask.rc, -ECANCELED);
    assert_true(ask.usage.has_head_start);
    assert_true(world_gone_await(worker));
    mw_isolate_stop_fini(&stop);
    ask_fini(&ask);
    free(text);
    check_no_difference(*state, &calm, AS_IT_IS);
}

/* Broken when a worker that somebody kills goes unanswered, or leaves its prefix without one. */
static void a_killed_worker_is_answered_and_replaced(void **state)
{
    char *text;
    struct trial trial = behind(&world_endless, "stdio.h", &text);
    struct ask ask = {.fixture = *state, .trial = &trial, .way = AS_IT_IS};
    struct world_processes waiting;
    pid_t worker;

    check_no_difference(*state, &calm, PREPARED);
    ask_begin(&ask, "driver-kill");
    worker = world_worker_await(prefix_zygote(), "driver-kill");
    world_cpu_await(worker, 20);
    assert_int_equal(kill(worker, SIGKILL), 0);
    ask_join(&ask);
    assert_int_equal(ask.rc, 0);
    assert_int_equal(ask.usage.signal, SIGKILL);
    ask_fini(&ask);
    free(text);
    waiting = world_children(prefix_zygote());
    for (size_t i = 0; i < waiting.count; i++)
        (void)kill(waiting.pids[i], SIGKILL);
    check_no_difference(*state, &calm, AS_IT_IS);
}

/* Broken when a worker that took its heap for itself while it waited, or one that was needed before
 * it could, compiles anything else, or has other limits. */
static void waiting_changes_nothing(void **state)
{
    static const struct trial words = {
        .files = {{"words.cc", "#include <map>\n#include <string>\n"
                               "std::map<std::string, std::map<int, std::string>> words;\n"
                               "int f(int a) { return words[\"a\"][a].size(); }\n"}},
        .args = {"-O1"},
    };
    char *text;
    struct trial hungry = behind(&world_hungry_bit_by_bit, "stdio.h", &text);
    struct ask first = {.fixture = *state, .trial = &words};

    assert_null(ask_difference(&first));
    check_no_difference(*state, &calm, PREPARED);
    for (unsigned round = 0; round < 6; round++) {
        struct ask asks[] = {{.fixture = *state, .trial = &words, .way = AS_IT_IS},
                             {.fixture = *state,
                              .trial = &hungry,
                              .way = AS_IT_IS,
                              .limits = {.memory_bytes = 64u << 20}}};

        if (round % 2 > 0) /* long enough for most to settle; whether they do is no matter */
            (void)usleep(100000);
        ask_run(&asks[0]);
        assert_true(asks[0].usage.has_head_start);
        assert_null(difference(&first.result, &asks[0].result));
        if (!SANITIZED) {
            ask_run(&asks[1]);
            assert_true(asks[1].usage.has_head_start);
            assert_int_equal(asks[1].rc, -EDQUOT);
            assert_int_equal(asks[1].usage.hit, MW_LIMIT_MEMORY);
        }
        ask_fini(&asks[0]);
        ask_fini(&asks[1]);
    }
    ask_fini(&first);
    free(text);
}

/* ---- deaths of zygotes ---- */

/* Broken when a compile fails because a zygote died, or when a dead one's place stays taken. */
static void a_dead_zygote_is_done_without(void **state)
{
    for (unsigned is_prefixs = 0; is_prefixs < 2; is_prefixs++) {
        struct ask before = {.fixture = *state, .trial = &calm};
        struct ask after = {.fixture = *state, .trial = &calm, .way = AS_IT_IS};
        pid_t prefixs, victim;

        ask_run(&before);
        assert_true(before.usage.has_head_start);
        assert_int_equal(stats_of(*state).head_starts, 1);
        prefixs = prefix_zygote();
        victim = is_prefixs ? prefixs : world_zygote();
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_true(world_gone_await(victim));
        assert_true(world_gone_await(prefixs)); /* it goes with the zygote */
        ask_run(&after);
        assert_int_equal(after.rc, 0);
        assert_false(after.usage.has_head_start);
        assert_null(difference(&before.result, &after.result));
        assert_int_equal(stats_of(*state).head_starts, 0);
        ask_fini(&before);
        ask_fini(&after);
        check_no_difference(*state, &calm, PREPARED);
        assert_true(isolate_end(*state));
        isolate_begin(*state, PLACES);
    }
}

/* Broken when the end of a prefix zygote takes a request along. */
static void a_request_is_tried_again_without_its_prefix_zygote(void **state)
{
    struct fixture *fixture = *state;
    char *text;
    struct trial trial = behind(&world_endless, "stdio.h", &text);

    for (unsigned round = 0; round < 40; round++) {
        struct mw_isolate_stop stop = {0};
        struct ask ask = {.fixture = fixture, .trial = &trial, .way = AS_IT_IS, .stop = &stop};
        uint64_t retries = stats_of(fixture).retries;
        pid_t victim, worker;

        check_no_difference(fixture, &calm, PREPARED);
        victim = prefix_zygote();
        ask_begin(&ask, "driver-again");
        worker = world_worker_await(victim, "driver-again");
        world_cpu_await(worker, 20);
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_true(world_gone_await(worker));
        worker = world_worker_await(world_zygote(), "driver-again");
        assert_int_equal(stats_of(fixture).retries, retries + 1);
        assert_int_equal(stats_of(fixture).zygote_restarts, 0);
        mw_isolate_stop(&stop);
        ask_join(&ask);
        assert_int_equal(ask.rc, -ECANCELED);
        assert_false(ask.usage.has_head_start);
        assert_true(world_gone_await(worker));
        assert_int_equal(stats_of(fixture).head_starts, 0);
        mw_isolate_stop_fini(&stop);
        ask_fini(&ask);
    }
    free(text);
    check_no_difference(fixture, &calm, PREPARED);
}

/* Broken when a prefix that cannot be read holds a place, a process, or whoever waits for it. */
static void what_cannot_be_prepared_leaves_nothing(void **state)
{
    static const struct {
        const char *prefix;
        struct mw_limits limits;
        int rc;
    } cases[] = {
        {"#include <no-such-header.h>\n", {0}, -EAGAIN},
        {"#include <stdio.h>\n#include <no-such-header.h>\n", {0}, -EAGAIN},
        {"#include <no-such-header.h>\n#include <stdio.h>\n", {0}, -EAGAIN},
        {NULL, {.wall_ns = 1}, -ETIMEDOUT},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ask ask = {.fixture = *state,
                          .trial = &calm,
                          .prefix = cases[i].prefix,
                          .prepare_limits = cases[i].limits};

        ask_run(&ask);
        assert_int_equal(ask.prepared, cases[i].rc);
        assert_int_equal(ask.rc, 0);
        assert_false(ask.usage.has_head_start);
        assert_int_equal(stats_of(*state).head_starts, 0);
        ask_fini(&ask);
        /* More than wait: so the zygote has heard of the prefix when the last of these ends. */
        for (unsigned use = 0; use < 3; use++)
            world_check_compiles(((struct fixture *)*state)->world, &calm);
        assert_true(no_prefix_zygote_await());
    }
    check_no_difference(*state, &calm, PREPARED);
}

/* ---- many at once ---- */

struct crowd {
    struct fixture *fixture;
    const struct mw_compile_result *wanted; /* one for each of crowd_trials */
    pthread_t thread;
    unsigned first, wrong, had;
};

static const struct trial crowd_trials[] = {
    {.files = {{"calm.c", "#include <stdio.h>\nint a;\n"}}},
    {.files = {{"crowd.c", "#include <time.h>\nint b(void) { return time(0); }\n"}}},
};

static void *crowd_thread(void *arg)
{
    struct crowd *crowd = arg;

    for (unsigned i = 0; i < 8; i++) {
        size_t which = (crowd->first + i) % COUNT(crowd_trials);
        struct ask ask = {
            .fixture = crowd->fixture, .trial = &crowd_trials[which], .way = AS_IT_IS};

        ask_run(&ask);
        crowd->wrong += ask.rc != 0 || difference(&ask.result, &crowd->wanted[which]) != NULL;
        crowd->had += ask.usage.has_head_start;
        ask_fini(&ask);
    }
    return NULL;
}

/* Broken when threads that compile at once, more than workers wait, get one another's answers. */
static void threads_compile_behind_prefixes_at_once(void **state)
{
    struct ask wanted[COUNT(crowd_trials)];
    struct mw_compile_result results[COUNT(crowd_trials)];
    struct crowd crowds[6];

    for (size_t i = 0; i < COUNT(wanted); i++) {
        check_no_difference(*state, &crowd_trials[i], PREPARED);
        wanted[i] = (struct ask){.fixture = *state, .trial = &crowd_trials[i], .way = ALONE};
        ask_run(&wanted[i]);
        results[i] = wanted[i].result;
    }
    for (unsigned i = 0; i < COUNT(crowds); i++) {
        crowds[i] = (struct crowd){.fixture = *state, .wanted = results, .first = i};
        assert_int_equal(pthread_create(&crowds[i].thread, NULL, crowd_thread, &crowds[i]), 0);
    }
    for (unsigned i = 0; i < COUNT(crowds); i++) {
        assert_int_equal(pthread_join(crowds[i].thread, NULL), 0);
        assert_int_equal(crowds[i].wrong, 0);
        assert_int_equal(crowds[i].had, 8);
    }
    assert_int_equal(stats_of(*state).running, 0);
    for (size_t i = 0; i < COUNT(wanted); i++)
        ask_fini(&wanted[i]);
}

/* ---- all tests ---- */

static size_t descriptors(const struct fixture *fixture)
{
    struct mw_preambles_stats stats;

    mw_preambles_snapshot(fixture->preambles, &stats);
    return world_descriptors() - (size_t)stats.kept; /* each is a file in memory */
}

static int isolate_setup(void **state)
{
    struct fixture *fixture = *state;

    fixture->descriptors = descriptors(fixture);
    isolate_begin(fixture, PLACES);
    return 0;
}

/* Broken when anything is left behind, by any test. */
static int isolate_teardown(void **state)
{
    struct fixture *fixture = *state;

    assert_true(isolate_end(fixture));
    assert_int_equal(descriptors(fixture), fixture->descriptors);
    return 0;
}

static int setup(void **state)
{
    static struct fixture fixture;
    void *world = NULL;

    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];

    if (world_setup(&world) || mw_preambles_new(&fixture.preambles, 0))
        return -1;
    fixture.world = world;
    /* It begins to watch its files here, not in a test. */
    if (mw_toolchain_stamp((void *)fixture.world->toolchain, stamp))
        return -1;
    mw_isolate_free(fixture.world->isolate); /* each test has its own */
    fixture.world->isolate = NULL;
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    void *world;

    if (!fixture) /* it could not be set up */
        return 0;
    world = fixture->world;
    mw_preambles_free(fixture->preambles);
    return world_teardown(&world);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, isolate_setup, isolate_teardown)
    static const struct CMUnitTest tests[] = {
        TEST(outputs_do_not_differ),
        TEST(texts_do_not_differ),
        TEST(complaints_do_not_differ),
        TEST(the_largest_main_file_has_one),
        TEST(control_differences_are_seen),
        TEST(control_no_place_no_head_start),
        TEST(other_requests_get_none),
        TEST(it_is_due_after_some_uses),
        TEST(places_are_bounded),
        TEST(limits_end_work_behind_a_prefix),
        TEST(output_limit_is_exact_behind_a_prefix),
        TEST(breakdowns_are_told_behind_a_prefix),
        TEST(stop_ends_a_compile_behind_a_prefix),
        TEST(a_killed_worker_is_answered_and_replaced),
        TEST(waiting_changes_nothing),
        TEST(a_dead_zygote_is_done_without),
        TEST(a_request_is_tried_again_without_its_prefix_zygote),
        TEST(what_cannot_be_prepared_leaves_nothing),
        TEST(threads_compile_behind_prefixes_at_once),
    };
#undef TEST

    return cmocka_run_group_tests(tests, setup, teardown);
}

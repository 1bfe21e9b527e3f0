/* What a host that compiles in its own process survives, each with the guard and without. Each case
 * is a host of its own: a child with one thread that compiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/guard.h>
#include <millwright/thread.h>

#include "clang_bridge.h"
#include "compile/trial.h"
#include "pools/thread_starts.h"
#include "support/sanitized.h"

static const struct mw_toolchain *toolchain;
static unsigned own_starts; /* threads that were started, the host's one among them */

enum { KILLED = 1000 /* and the signal on top */, NOT_PREPARED = 254, NOT_WELL = 253 };

struct host {
    bool recovers, enters;
    size_t stack_bytes; /* 0: what guard.h asks for */
    int (*work)(void);  /* 0..200 */
    int result;
};

static void host_thread(void *arg)
{
    struct host *host = arg;
    int error = host->enters ? mw_guard_enter() : 0;

    host->result = error ? NOT_PREPARED : host->work();
    mw_guard_leave();
}

/* Returns what its work returned, or KILLED and the signal. */
static int host_run(struct host host)
{
    struct mw_thread_options options = {.kind = MW_THREAD_LANE, .stack_bytes = host.stack_bytes};
    struct mw_thread thread;
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL); /* it is cmocka's */
        if (!options.stack_bytes)
            options.stack_bytes = MW_GUARD_STACK_BYTES_MIN;
        own_starts = thread_starts_count() + 1; /* it may be counted after it has begun */
        if ((host.recovers && mw_guard_recover_crashes()) ||
            mw_thread_start(&thread, &options, host_thread, &host))
            _exit(NOT_PREPARED);
        mw_thread_join(&thread);
        _exit(host.result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether a compile after all that happened is right. */
static bool is_well(void)
{
    static const struct trial trial = {
        .files = {{"a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\"); }\n"}}};
    struct mw_compile_result result;
    bool well = trial_leaf(mw_compile, toolchain, &trial, &result) == 0 && result.ok;

    mw_compile_result_fini(&result);
    return well;
}

/* Compile `trial`, which crashes the compiler by `signal`: 0 when the compile said so. */
static int crash_of(const struct trial *trial, int signal)
{
    struct mw_compile_result result;
    struct mw_guard_stats stats;
    int rc = trial_leaf(mw_compile, toolchain, trial, &result);
    bool said = diagnostic_find(&result.diagnostics, strsignal(signal)) != NULL;

    mw_guard_snapshot(&stats);
    if (rc || result.ok || !said || !result.not_storable)
        return 1;
    mw_compile_result_fini(&result);
    if (stats.recovered != 1 || (stats.leaked_bytes == 0 && !SANITIZED) || !stats.restart_advised)
        return 2;
    return is_well() ? 0 : NOT_WELL;
}

/* ---- crashes ---- */

static int nest_deeply(void)
{
    enum { DEPTH = 100000 };
    static char text[DEPTH + 64];
    struct trial trial = {.files = {{"a.c", text}}};
    size_t n = (size_t)snprintf(text, sizeof(text), "int a = ");

    memset(text + n, '!', DEPTH);
    strcpy(text + n + DEPTH, "1;\n");
    return crash_of(&trial, SIGSEGV);
}

/* Breaks when a stack that overflows takes the host along; the controls leave out one of the two
 * guards that it needs. */
static void overflow_of_the_stack_is_survived(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){true, true, 0, nest_deeply, 0}), 0);
    if (!SANITIZED) /* which has a signal stack for each thread */
        assert_int_equal(host_run((struct host){true, false, 0, nest_deeply, 0}), KILLED + SIGSEGV);
    assert_int_equal(host_run((struct host){false, true, 0, nest_deeply, 0}), KILLED + SIGSEGV);
}

static int fault_once(void *user, const struct mw_diagnostic *diagnostic)
{
    bool *faulted = user;

    (void)diagnostic;
    if (!*faulted) {
        *faulted = true;
        abort();
    }
    return 0;
}

/* clang's own ways to crash on request are off, so what takes the diagnostics does it. */
static int crash_inside(void)
{
    static const char text[] = "#warning here it comes\n";
    static const struct mw_source_file file = {"a.c", text, sizeof(text) - 1};
    bool faulted = false;
    struct mw_bridge_job job = {
        .clang_path = mw_toolchain_clang_path(toolchain),
        .directory = "/src",
        .main = "a.c",
        .files = &file,
        .file_count = 1,
        .emit = MW_EMIT_OBJECT,
        .artifact_bytes_max = 1 << 20,
        .on_diagnostic = fault_once,
        .user = &faulted,
    };
    struct mw_bridge_result result;

    if (mw_bridge_run(&job, &result) != -EIO || result.end != MW_BRIDGE_CRASHED || !faulted)
        return 1;
    return is_well() ? 0 : NOT_WELL;
}

/* Breaks when a crash on a stack with room takes the host along. */
static void crash_is_survived(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){true, false, 0, crash_inside, 0}), 0);
    assert_int_equal(host_run((struct host){false, false, 0, crash_inside, 0}), KILLED + SIGABRT);
}

static int crash_outside(void)
{
    if (!is_well())
        return NOT_WELL;
    raise(SIGSEGV);
    return 0;
}

/* Breaks when recovery swallows a fault of the host's own. */
static void crash_of_the_host_stays_one(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){true, true, 0, crash_outside, 0}), KILLED + SIGSEGV);
}

static void second_recovery_is_refused(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){true, true, 0, mw_guard_recover_crashes, 0}),
                     (uint8_t)-EBUSY);
}

/* ---- memory ---- */

/* Bytes that count against RLIMIT_DATA. */
static uint64_t data_bytes(void)
{
    unsigned long long pages = 0;
    FILE *in = fopen("/proc/self/statm", "r");

    assert_non_null(in);
    assert_int_equal(fscanf(in, "%*u %*u %*u %*u %*u %llu", &pages), 1);
    fclose(in);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int need_too_much(void)
{
    static const struct trial trial = {.files = {{"a.c", "#define A 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,\n"
                                                         "#define B A A A A A A A A A A\n"
                                                         "#define C B B B B B B B B B B\n"
                                                         "#define D C C C C C C C C C C\n"
                                                         "#define E D D D D D D D D D D\n"
                                                         "int a[] = {E E E E E};\n"}}};
    struct mw_compile_result result;
    struct rlimit limit, before;
    int rc;

    if (getrlimit(RLIMIT_DATA, &before) < 0 || !is_well())
        return 3;
    limit = (struct rlimit){data_bytes() + (16 << 20), before.rlim_max};
    if (setrlimit(RLIMIT_DATA, &limit) < 0)
        return 3;
    rc = trial_leaf(mw_compile, toolchain, &trial, &result);
    if (setrlimit(RLIMIT_DATA, &before) < 0)
        return 3;
    mw_compile_result_fini(&result);
    if (rc != -ENOMEM)
        return 1;
    return is_well() ? 0 : NOT_WELL;
}

/* Breaks when a compile that finds no memory takes the host along. */
static void lack_of_memory_is_survived(void **state)
{
    (void)state;
    if (SANITIZED) /* which takes a limit of memory for its own */
        skip();
    assert_int_equal(host_run((struct host){true, true, 0, need_too_much, 0}), 0);
    assert_int_equal(host_run((struct host){false, true, 0, need_too_much, 0}), KILLED + SIGABRT);
}

/* ---- threads of clang's own ---- */

static const struct trial deep = {.files = {{"a.cc", "template <int N> auto f()\n"
                                                     "{\n"
                                                     "    if constexpr (N == 0)\n"
                                                     "        return 0;\n"
                                                     "    else\n"
                                                     "        return f<N - 1>() + 1;\n"
                                                     "}\n"
                                                     "int a = f<1000>();\n"}},
                                  .args = {"-std=c++17"}};

static int threads_of_emit(void)
{
    struct mw_compile_result result;
    bool ok = trial_emit(toolchain, &deep, &result) == 0 && result.ok;

    mw_compile_result_fini(&result);
    return ok ? (int)(thread_starts_count() - own_starts) : NOT_WELL;
}

static int threads_of_diagnose(void)
{
    struct mw_compile_result result;
    bool ok = trial_diagnose(toolchain, &deep, false, &result) == 0;

    mw_compile_result_fini(&result);
    return ok ? (int)(thread_starts_count() - own_starts) : NOT_WELL;
}

/* Breaks when clang, or libclang's copy of it, thinks that a lane's stack is small. The control: a
 * thread that did not enter, where deep templates make it start threads. */
static void deep_source_starts_no_thread(void **state)
{
    int without;

    (void)state;
    assert_int_equal(host_run((struct host){false, true, 0, threads_of_emit, 0}), 0);
    assert_int_equal(host_run((struct host){false, true, 0, threads_of_diagnose, 0}), 0);
    without = host_run((struct host){false, false, 0, threads_of_emit, 0});
    assert_in_range(without, 1, 100);
    without = host_run((struct host){false, false, 0, threads_of_diagnose, 0});
    assert_in_range(without, 1, 100);
}

static int enter_refused(void)
{
    return mw_guard_enter() == -ENOSPC ? 0 : 1;
}

/* Breaks when a thread enters whose stack is as small as clang fears. */
static void small_stack_is_refused(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){false, false, 8 << 20, enter_refused, 0}), 0);
    assert_int_equal(host_run((struct host){false, false, 0, enter_refused, 0}), 1);
}

static int enter_beside_own_stack(void)
{
    static char own[64 << 10];
    stack_t mine = {.ss_sp = own, .ss_size = sizeof(own)};
    stack_t before, inside, after;

    if (sigaltstack(&mine, &before) < 0)
        return 1;
    if (mw_guard_enter() || sigaltstack(NULL, &inside) < 0)
        return 2;
    mw_guard_leave();
    if (sigaltstack(&before, &after) < 0) /* a sanitizer's, maybe */
        return 3;
    return inside.ss_sp == own && after.ss_sp == own ? 0 : 4;
}

/* Breaks when a host's own signal stack is taken away. */
static void signal_stack_of_the_host_stays(void **state)
{
    (void)state;
    assert_int_equal(host_run((struct host){false, false, 0, enter_beside_own_stack, 0}), 0);
}

/* ---- cancel ---- */

/* Says yes from the poll numbered `yes_from` on. */
struct poll {
    unsigned long count, yes_from;
};

static int poll_count(void *user)
{
    struct poll *poll = user;

    return poll->count++ >= poll->yes_from;
}

struct cancelled {
    int rc;
    unsigned long polls;
    double cpu_s;
    struct mw_compile_result result;
};

static struct cancelled compile_until(const struct trial *trial, unsigned long yes_from)
{
    struct poll poll = {0, yes_from};
    struct trial polled = *trial;
    struct cancelled out;
    struct timespec before, after;

    polled.cancelled = poll_count;
    polled.cancelled_user = &poll;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), 0);
    out.rc = trial_leaf(mw_compile, toolchain, &polled, &out.result);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), 0);
    out.cpu_s =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    out.polls = poll.count;
    return out;
}

static struct trial templates = {
    .files = {{"a.cc", "template <int D, long I> struct tree {\n"
                       "    static constexpr int v = tree<D - 1, 2 * I>::v\n"
                       "                           + tree<D - 1, 2 * I + 1>::v;\n"
                       "};\n"
                       "template <long I> struct tree<0, I> { static constexpr int v = 1; };\n"
                       "int f(void) { return tree<13, 1>::v; }\n"}},
    .args = {"-O0"}};

static const struct trial includes = {.files = {{"a.c", "#include \"twice.h\"\n"},
                                                {"twice.h", "#if __INCLUDE_LEVEL__ < 14\n"
                                                            "#include \"twice.h\"\n"
                                                            "#include \"twice.h\"\n"
                                                            "#endif\n"}},
                                      .emit = MW_EMIT_PREPROCESSED};

/* Breaks when a cancel is not heeded, or is heeded late; the controls are the same compiles that
 * nobody cancels. */
static void cancel_ends_a_compile_early(void **state)
{
    const struct trial *const trials[] = {&templates, &includes};

    (void)state;
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        struct cancelled whole = compile_until(trials[i], -1ul);
        struct cancelled early = compile_until(trials[i], whole.polls / 100);

        assert_int_equal(whole.rc, 0);
        assert_true(whole.result.ok);
        assert_true(whole.polls > 5000);
        assert_int_equal(early.rc, -ECANCELED);
        assert_false(early.result.ok);
        assert_null(early.result.artifact);
        assert_int_equal(early.result.diagnostics.count, 0);
        assert_int_equal(early.polls, whole.polls / 100 + 1);
        assert_true(early.cpu_s < whole.cpu_s / 2);
        mw_compile_result_fini(&whole.result);
        mw_compile_result_fini(&early.result);
    }
}

static struct trial code = {
    .files = {{"a.c", "#include <stdio.h>\n"
                      "static int sum(const int *p, int n)\n"
                      "{\n"
                      "    int s = 0;\n"
                      "    for (int i = 0; i < n; i++)\n"
                      "        s += p[i] * p[i];\n"
                      "    return s;\n"
                      "}\n"
                      "int main(int argc, char **argv)\n"
                      "{\n"
                      "    int p[9] = {argc};\n"
                      "    return printf(\"%s %d\\n\", argv[0], sum(p, 9));\n"
                      "}\n"}},
    .args = {"-O2"}};

/* Breaks when the optimiser does not heed a cancel. */
static void cancel_is_heeded_between_passes(void **state)
{
    struct trial parse = code;
    struct cancelled parsed, whole, early;

    (void)state;
    parse.emit = MW_EMIT_NONE;
    parsed = compile_until(&parse, -1ul);
    whole = compile_until(&code, -1ul);
    assert_true(whole.polls > parsed.polls + 10);
    early = compile_until(&code, parsed.polls + 5);
    assert_int_equal(early.rc, -ECANCELED);
    assert_null(early.result.artifact);
    mw_compile_result_fini(&parsed.result);
    mw_compile_result_fini(&whole.result);
    mw_compile_result_fini(&early.result);
}

/* Breaks when being asked changes what comes out. */
static void poll_changes_no_byte(void **state)
{
    static const char *const levels[] = {"-O0", "-O1", "-O2", "-Os"};

    (void)state;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        struct mw_compile_result plain;
        struct cancelled polled;

        code.args[0] = templates.args[0] = levels[i];
        for (int k = 0; k < 2; k++) {
            const struct trial *trial = k ? &code : &templates;

            assert_int_equal(trial_leaf(mw_compile, toolchain, trial, &plain), 0);
            polled = compile_until(trial, -1ul);
            assert_int_equal(plain.artifact_bytes, polled.result.artifact_bytes);
            assert_memory_equal(plain.artifact, polled.result.artifact, plain.artifact_bytes);
            mw_compile_result_fini(&plain);
            mw_compile_result_fini(&polled.result);
        }
    }
    code.args[0] = "-O2";
    templates.args[0] = "-O0";
}

static unsigned long polls_of_loop(unsigned steps)
{
    char text[256];
    struct trial trial = {.files = {{"a.cc", text}}};
    struct cancelled out;

    snprintf(text, sizeof(text),
             "constexpr int f(int n) { int s = 0; while (n-- > 0) s ^= n; return s; }\n"
             "constexpr int a = f(%u);\nint b = a;\n",
             steps);
    out = compile_until(&trial, -1ul);
    assert_true(out.result.ok);
    mw_compile_result_fini(&out.result);
    return out.polls;
}

/* What docs/security.md says: a constexpr loop never asks. When this breaks, mend the document. */
static void constexpr_loop_is_not_cancelled(void **state)
{
    (void)state;
    assert_int_equal(polls_of_loop(10), polls_of_loop(100000));
}

static int setup(void **state)
{
    void *made = NULL;

    if (trial_setup(&made))
        return -1;
    toolchain = made;
    *state = made;
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_of_the_stack_is_survived),
        cmocka_unit_test(crash_is_survived),
        cmocka_unit_test(crash_of_the_host_stays_one),
        cmocka_unit_test(second_recovery_is_refused),
        cmocka_unit_test(lack_of_memory_is_survived),
        cmocka_unit_test(deep_source_starts_no_thread),
        cmocka_unit_test(small_stack_is_refused),
        cmocka_unit_test(signal_stack_of_the_host_stays),
        cmocka_unit_test(cancel_ends_a_compile_early),
        cmocka_unit_test(cancel_is_heeded_between_passes),
        cmocka_unit_test(poll_changes_no_byte),
        cmocka_unit_test(constexpr_loop_is_not_cancelled),
    };

    return cmocka_run_group_tests(tests, setup, trial_teardown);
}

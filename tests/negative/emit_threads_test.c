/* An emit starts no thread, and neither does libclang while its threads are off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compile/trial.h"
#include "pools/thread_starts.h"

static const struct trial trial = {
    .files = {{"a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\"); }\n"}},
    .args = {"-O2"},
};

/* The checker of all tests here: "" when a compile and a diagnosis started no thread, else what
 * did and how often. */
static const char *thread_starter(const struct mw_toolchain *toolchain)
{
    static char reason[128];
    struct mw_compile_result result;
    unsigned before = thread_starts_count();
    unsigned emitted, diagnosed;

    assert_int_equal(trial_emit(toolchain, &trial, &result), 0);
    assert_true(result.ok);
    mw_compile_result_fini(&result);
    emitted = thread_starts_count() - before;
    assert_int_equal(trial_diagnose(toolchain, &trial, false, &result), 0);
    mw_compile_result_fini(&result);
    diagnosed = thread_starts_count() - before - emitted;

    reason[0] = '\0';
    if (emitted)
        snprintf(reason, sizeof(reason), "the emit started %u", emitted);
    else if (diagnosed)
        snprintf(reason, sizeof(reason), "libclang started %u", diagnosed);
    return reason;
}

/* Breaks when the bridge compiles on a thread of its own, or libclang's threads come back. */
static void emit_and_diagnose_start_no_thread(void **state)
{
    for (int i = 0; i < 5; i++)
        assert_string_equal(thread_starter(*state), "");
}

/* The control: libclang with its threads on is counted, which also shows that calls from inside
 * the libraries come to the counter. */
static void libclang_with_threads_on_is_caught(void **state)
{
    unsetenv("LIBCLANG_NOTHREADS");
    assert_string_equal(thread_starter(*state), "libclang started 1");
    assert_int_equal(mw_compile_init(), 0);
    assert_string_equal(thread_starter(*state), "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(emit_and_diagnose_start_no_thread),
        cmocka_unit_test(libclang_with_threads_on_is_caught),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

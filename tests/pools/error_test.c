#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/error.h>

/* Breaks when a code loses its text or shares one that does not say what to do. */
static void error_texts_are_our_own(void **state)
{
    (void)state;
    assert_string_equal(mw_strerror(0), "no error");
    assert_string_equal(mw_strerror(-EAGAIN), "no room right now: try again later");
    assert_string_equal(mw_strerror(-ESHUTDOWN), "shutting down: no new work is taken");
    assert_string_equal(mw_strerror(-ECANCELED), "cancelled before it started");
}

/* Breaks when an errno that we did not write a text for gets none at all. */
static void error_of_the_system_keeps_the_systems_text(void **state)
{
    (void)state;
    assert_string_equal(mw_strerror(-EXDEV), strerrordesc_np(EXDEV));
}

/* Breaks when a number that is no error reads past the table or comes back NULL. */
static void error_unknown_says_so(void **state)
{
    const int unknown[] = {1, EAGAIN, 100000, -100000, INT32_MIN, INT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_string_equal(mw_strerror(unknown[i]), "unknown error");
}

/* Breaks when two codes get the same words, so that a reader cannot tell them apart. */
static void error_texts_differ(void **state)
{
    (void)state;
    for (int a = 0; a < 134; a++)
        for (int b = a + 1; b < 134; b++)
            if (strcmp(mw_strerror(-a), "unknown error") != 0)
                assert_string_not_equal(mw_strerror(-a), mw_strerror(-b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_texts_are_our_own),
        cmocka_unit_test(error_of_the_system_keeps_the_systems_text),
        cmocka_unit_test(error_unknown_says_so),
        cmocka_unit_test(error_texts_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

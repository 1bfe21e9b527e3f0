#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/pool_min.h>

#define MAX       1024
#define UNTOUCHED 77
#define COUNT(a)  (sizeof(a) / sizeof *(a))

/* Breaks when what is plainly a number is refused, or read to another base than ten. */
static void decimal_numbers_are_read(void **state)
{
    static const struct {
        const char *text;
        unsigned value;
    } good[] = {{"1", 1}, {"8", 8}, {"010", 10}, {"500", 500}, {"1023", 1023}, {"1024", 1024}};

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        char why[128] = "nothing";
        unsigned value = UNTOUCHED;

        assert_int_equal(mw_pool_min_parse(good[i].text, MAX, &value, why, sizeof why), 0);
        assert_int_equal(value, good[i].value);
        assert_string_equal(why, "nothing");
    }
}

/* Breaks when something else than a number within the limits is taken, or the text does not say
 * what is wrong. */
static void all_else_is_refused_with_what_to_write(void **state)
{
    static const struct {
        const char *text;
        const char *why;
    } bad[] = {
        {"1F4", "must be a decimal number from 1 to 1024, not \"1F4\"; if you mean hexadecimal, "
                "write 500"},
        {"0x1f4", "must be a decimal number from 1 to 1024, not \"0x1f4\"; if you mean "
                  "hexadecimal, write 500"},
        {"0X8",
         "must be a decimal number from 1 to 1024, not \"0X8\"; if you mean hexadecimal, write 8"},
        {"0x0", "must be a decimal number from 1 to 1024, not \"0x0\""},
        {"ffff", "must be a decimal number from 1 to 1024, not \"ffff\"; if you mean hexadecimal, "
                 "write 65535"},
        {"0xfffffffffffffffffffffff",
         "must be a decimal number from 1 to 1024, not \"0xfffffffffffffffffffffff\""},
        {"", "must be a decimal number from 1 to 1024, not \"\""},
        {"0", "must be a decimal number from 1 to 1024, not \"0\""},
        {"-1", "must be a decimal number from 1 to 1024, not \"-1\""},
        {"+1", "must be a decimal number from 1 to 1024, not \"+1\""},
        {" 5", "must be a decimal number from 1 to 1024, not \" 5\""},
        {"5 ", "must be a decimal number from 1 to 1024, not \"5 \""},
        {"5.0", "must be a decimal number from 1 to 1024, not \"5.0\""},
        {"1e3x", "must be a decimal number from 1 to 1024, not \"1e3x\""},
        {"0x", "must be a decimal number from 1 to 1024, not \"0x\""},
        {"1025", "must be a decimal number from 1 to 1024, not \"1025\""},
        {"4294967297", "must be a decimal number from 1 to 1024, not \"4294967297\""},
        {"18446744073709551617",
         "must be a decimal number from 1 to 1024, not \"18446744073709551617\""},
        {"1111111111111111111111111111111111111111",
         "must be a decimal number from 1 to 1024, not \"11111111111111111111111111111111\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        char why[128] = "";
        unsigned value = UNTOUCHED;

        assert_int_equal(mw_pool_min_parse(bad[i].text, MAX, &value, why, sizeof why), -EINVAL);
        assert_string_equal(why, bad[i].why);
        assert_int_equal(value, UNTOUCHED);
    }
}

/* Breaks when the arithmetic runs over at the largest limit there can be. */
static void largest_limit_does_not_overflow(void **state)
{
    char why[128];
    unsigned value = UNTOUCHED;

    (void)state;
    assert_int_equal(mw_pool_min_parse("4294967295", UINT32_MAX, &value, why, sizeof why), 0);
    assert_int_equal(value, UINT32_MAX);
    assert_int_equal(mw_pool_min_parse("4294967296", UINT32_MAX, &value, why, sizeof why), -EINVAL);
    assert_int_equal(mw_pool_min_parse("2", 1, &value, why, sizeof why), -EINVAL);
    assert_int_equal(mw_pool_min_parse("1", 1, &value, why, sizeof why), 0);
}

/* Breaks when an unset or empty variable is an error, or one that is set is not read or not named.
 */
static void environment_is_read_and_named(void **state)
{
    char why[160] = "";
    unsigned value = UNTOUCHED;

    (void)state;
    assert_int_equal(unsetenv(MW_POOL_MIN_ENVIRONMENT), 0);
    assert_int_equal(mw_pool_min_environment(MAX, &value, why, sizeof why), -ENOENT);
    assert_int_equal(setenv(MW_POOL_MIN_ENVIRONMENT, "", 1), 0);
    assert_int_equal(mw_pool_min_environment(MAX, &value, why, sizeof why), -ENOENT);
    assert_int_equal(value, UNTOUCHED);

    assert_int_equal(setenv(MW_POOL_MIN_ENVIRONMENT, "12", 1), 0);
    assert_int_equal(mw_pool_min_environment(MAX, &value, why, sizeof why), 0);
    assert_int_equal(value, 12);
    assert_string_equal(why, "");

    assert_int_equal(setenv(MW_POOL_MIN_ENVIRONMENT, "1F4", 1), 0);
    assert_int_equal(mw_pool_min_environment(MAX, &value, why, sizeof why), -EINVAL);
    assert_string_equal(why, "MILLWRIGHT_POOL_MIN_THREADS must be a decimal number from 1 to 1024, "
                             "not \"1F4\"; if you mean hexadecimal, write 500");
    assert_int_equal(unsetenv(MW_POOL_MIN_ENVIRONMENT), 0);
}

/* Breaks when a text that does not fit is written past its room. */
static void text_is_cut_to_its_room(void **state)
{
    char why[64];
    unsigned value;

    (void)state;
    assert_int_equal(setenv(MW_POOL_MIN_ENVIRONMENT, "1F4", 1), 0);
    for (size_t room = 0; room < 60; room++) {
        memset(why, '#', sizeof why);
        assert_int_equal(mw_pool_min_environment(MAX, &value, why, room), -EINVAL);
        assert_int_equal(why[room], '#');
        if (room > 0)
            assert_int_equal(strlen(why), room - 1);
    }
    assert_int_equal(unsetenv(MW_POOL_MIN_ENVIRONMENT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimal_numbers_are_read),
        cmocka_unit_test(all_else_is_refused_with_what_to_write),
        cmocka_unit_test(largest_limit_does_not_overflow),
        cmocka_unit_test(environment_is_read_and_named),
        cmocka_unit_test(text_is_cut_to_its_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <millwright/histogram.h>

#define RECORDERS  4
#define PER_THREAD 20000

static int make(void **state)
{
    *state = calloc(1, sizeof(struct mw_histogram));
    return *state == NULL;
}

static int drop(void **state)
{
    free(*state);
    return 0;
}

static void *record_many(void *arg)
{
    for (uint64_t i = 1; i <= PER_THREAD; i++)
        mw_histogram_record(arg, i);
    return NULL;
}

/* Breaks when an empty histogram is not all zero bytes, or divides by its count. */
static void histogram_empty_is_zero(void **state)
{
    const struct mw_histogram *histogram = *state;

    assert_int_equal(mw_histogram_count(histogram), 0);
    assert_int_equal(mw_histogram_quantile(histogram, 0.5), 0);
    assert_int_equal(mw_histogram_sum(histogram), 0);
    assert_int_equal(mw_histogram_max(histogram), 0);
}

/* Breaks when a bucket is wider than 1/16 of its values, or a value lands in another's bucket: the
 * quantile of {v, a huge one} is then further from v than promised. */
static void histogram_knows_each_value_to_a_sixteenth(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 63; shift++) {
        for (int64_t offset = -1; offset <= 1; offset++) {
            struct mw_histogram histogram = {0};
            uint64_t value = (UINT64_C(1) << shift) + (uint64_t)offset;
            uint64_t told;

            mw_histogram_record(&histogram, value);
            mw_histogram_record(&histogram, UINT64_MAX);
            told = mw_histogram_quantile(&histogram, 0.5);
            assert_true(told >= value);
            assert_true(told - value <= value / 16);
        }
    }
}

/* Breaks when the largest value of all falls outside of the table. */
static void histogram_takes_the_largest_value(void **state)
{
    struct mw_histogram *histogram = *state;

    mw_histogram_record(histogram, UINT64_MAX);
    assert_int_equal(mw_histogram_count(histogram), 1);
    assert_true(mw_histogram_quantile(histogram, 1) == UINT64_MAX);
    assert_true(mw_histogram_max(histogram) == UINT64_MAX);
}

/* Breaks when ranks are off by one: of 1..16 the median is the 8th. */
static void histogram_quantiles_have_the_right_rank(void **state)
{
    struct mw_histogram *histogram = *state;

    for (uint64_t i = 1; i <= 16; i++)
        mw_histogram_record(histogram, i);
    assert_int_equal(mw_histogram_quantile(histogram, 0), 1);
    assert_int_equal(mw_histogram_quantile(histogram, 0.5), 8);
    assert_int_equal(mw_histogram_quantile(histogram, 0.51), 9);
    assert_int_equal(mw_histogram_quantile(histogram, 1), 16);
    assert_int_equal(mw_histogram_sum(histogram), 136);
}

/* Breaks when a quantile shows the bucket's bound where no value was that large. */
static void histogram_quantile_is_never_above_the_largest(void **state)
{
    struct mw_histogram *histogram = *state;

    mw_histogram_record(histogram, 1000);
    mw_histogram_record(histogram, 1000);
    assert_int_equal(mw_histogram_quantile(histogram, 0.5), 1000);
}

/* Breaks when values of a bucket that reaches above the bound are counted as below it. */
static void histogram_count_below_takes_whole_buckets(void **state)
{
    struct mw_histogram *histogram = *state;

    mw_histogram_record(histogram, 10);
    mw_histogram_record(histogram, 1000); /* its bucket is 992..1023 */
    assert_int_equal(mw_histogram_count_below(histogram, 9), 0);
    assert_int_equal(mw_histogram_count_below(histogram, 10), 1);
    assert_int_equal(mw_histogram_count_below(histogram, 1022), 1);
    assert_int_equal(mw_histogram_count_below(histogram, 1023), 2);
}

/* Breaks when a counter is not atomic: records of several threads get lost. */
static void histogram_loses_no_record_of_many_threads(void **state)
{
    pthread_t threads[RECORDERS];

    for (int i = 0; i < RECORDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, *state), 0);
    for (int i = 0; i < RECORDERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(mw_histogram_count(*state), RECORDERS * PER_THREAD);
    assert_int_equal(mw_histogram_sum(*state),
                     RECORDERS * (UINT64_C(1) * PER_THREAD * (PER_THREAD + 1) / 2));
    assert_int_equal(mw_histogram_max(*state), PER_THREAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(histogram_empty_is_zero, make, drop),
        cmocka_unit_test(histogram_knows_each_value_to_a_sixteenth),
        cmocka_unit_test_setup_teardown(histogram_takes_the_largest_value, make, drop),
        cmocka_unit_test_setup_teardown(histogram_quantiles_have_the_right_rank, make, drop),
        cmocka_unit_test_setup_teardown(histogram_quantile_is_never_above_the_largest, make, drop),
        cmocka_unit_test_setup_teardown(histogram_count_below_takes_whole_buckets, make, drop),
        cmocka_unit_test_setup_teardown(histogram_loses_no_record_of_many_threads, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

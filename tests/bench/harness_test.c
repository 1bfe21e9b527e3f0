/* harness_test.c - what the benchmarks rest on: order of the rounds, medians, the generated source.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench.h"
#include "source.h"

#define ORDER_MAX 64

/* A variant that notes its letter in the common order, and measures what it is told. */
struct scripted {
    double values[4]; /* by round */
    int error;
    char letter;
};

static char order[ORDER_MAX];
static size_t order_count;

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX]);
static int run(struct scripted *scripted, struct bench_variant *variants, size_t group_count,
               size_t group_size);

/* Broken by rounds that always begin with the same variant, or that run one variant's rounds
 * together, or that mix the groups. */
static void rounds_are_interleaved_and_begin_with_the_next_variant(void **state)
{
    struct scripted scripted[] = {{.letter = 'A'}, {.letter = 'B'}, {.letter = 'C'},
                                  {.letter = 'x'}, {.letter = 'y'}, {.letter = 'z'}};
    struct bench_variant variants[6] = {0};

    (void)state;
    assert_int_equal(run(scripted, variants, 2, 3), 0);
    assert_string_equal(order, "ABCxyz"
                               "BCAyzx"
                               "CABzxy"
                               "ABCxyz");
}

/* Broken by a warm-up that is counted, a mean in place of the median, or values that get into
 * another variant's. */
static void medians_leave_out_the_warm_up(void **state)
{
    struct scripted scripted[] = {{.letter = 'A', .values = {1000, 3, 1, 50}},
                                  {.letter = 'B', .values = {0, 7, 9, 8}}};
    struct bench_variant variants[2] = {0};

    (void)state;
    assert_int_equal(run(scripted, variants, 1, 2), 0);
    assert_true(variants[0].medians[0] == 3);
    assert_true(variants[0].medians[1] == -3);
    assert_true(variants[1].medians[0] == 8);
}

/* Broken by a benchmark that goes on after a measurement that failed. */
static void failed_measurement_ends_the_rounds(void **state)
{
    struct scripted scripted[] = {{.letter = 'A'}, {.letter = 'B', .error = -EIO}, {.letter = 'C'}};
    struct bench_variant variants[3] = {0};

    (void)state;
    assert_int_equal(run(scripted, variants, 1, 3), -EIO);
    assert_string_equal(order, "AB");
}

/* Broken by an index that is off by one. */
static void quantiles_lie_between_their_neighbours(void **state)
{
    double values[] = {4, 1, 3, 2};

    (void)state;
    assert_true(bench_quantile(values, 4, 0) == 1);
    assert_true(bench_quantile(values, 4, 0.5) == 2.5);
    assert_true(bench_quantile(values, 4, 1) == 4);
    assert_true(bench_quantile(values, 1, 0.99) == 1);
    assert_true(isnan(bench_quantile(values, 0, 0.5)));
}

/* Broken by a generator that takes its constants from the clock, or that miscounts its lines. */
static void generated_source_is_the_same_each_time_and_as_long_as_asked(void **state)
{
    static const unsigned sizes[] = {SOURCE_LINES_MIN, 101, 1000, 2000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *source = source_generate(sizes[i]);
        char *again = source_generate(sizes[i]);
        unsigned lines = 0;

        assert_non_null(source);
        assert_non_null(again);
        assert_string_equal(source, again);
        for (const char *at = source; *at != '\0'; at++)
            lines += *at == '\n';
        assert_int_equal(lines, sizes[i]);
        free(source);
        free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_are_interleaved_and_begin_with_the_next_variant),
        cmocka_unit_test(medians_leave_out_the_warm_up),
        cmocka_unit_test(failed_measurement_ends_the_rounds),
        cmocka_unit_test(quantiles_lie_between_their_neighbours),
        cmocka_unit_test(generated_source_is_the_same_each_time_and_as_long_as_asked),
    };

    return cmocka_run_group_tests_name("bench.harness", tests, NULL, NULL);
}

static int measure(void *context, unsigned round, double values[BENCH_VALUES_MAX])
{
    const struct scripted *scripted = context;

    assert_true(order_count < ORDER_MAX - 1);
    order[order_count++] = scripted->letter;
    values[0] = scripted->values[round];
    values[1] = -values[0];
    return scripted->error;
}

/* Three rounds and their warm-up. */
static int run(struct scripted *scripted, struct bench_variant *variants, size_t group_count,
               size_t group_size)
{
    const struct bench bench = {.name = "harness", .runs = 3};

    memset(order, 0, sizeof order);
    order_count = 0;
    for (size_t i = 0; i < group_count * group_size; i++)
        variants[i] =
            (struct bench_variant){.name = "", .measure = measure, .context = &scripted[i]};
    return bench_rounds(&bench, variants, group_count, group_size);
}

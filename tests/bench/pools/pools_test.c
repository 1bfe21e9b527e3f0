/* pools_test.c - what the report of ./dev bench pools rests on: intervals, goals' figures in a
 * document, columns. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "grid.h"
#include "interval.h"
#include "section.h"

#define PAIRS 30u

static void fill_pairs(double *over, double *under, double factor);
static void write_text(const char *path, const char *text);
static void read_text(const char *path, char text[256]);
static int set_up(void **state);
static int tear_down(void **state);

/* Broken by a mean of the ratios in place of the logarithms', by a wrong quantile of Student's t,
 * or by the variance of a population. */
static void the_interval_is_the_one_of_the_textbook(void **state)
{
    /* logarithms -0.1, 0 and 0.1: their mean is 0, its standard error 0.1 / sqrt(3), t 4.303 */
    const double over[] = {exp(-0.1), 1, exp(0.1)};
    const double under[] = {1, 1, 1};
    struct interval interval = interval_of_ratio(over, under, 3);

    (void)state;
    assert_true(fabs(interval.middle - 1) < 1e-12);
    assert_true(fabs(log(interval.high) - 4.303 * 0.1 / sqrt(3)) < 1e-9);
    assert_true(fabs(log(interval.low) + log(interval.high)) < 1e-12);
}

/* Broken by an interval that says nothing: of noise around no difference it holds 1, and of the
 * same noise around one of 2 % it does not. */
static void the_interval_tells_a_difference_from_none(void **state)
{
    double over[PAIRS], under[PAIRS];
    struct interval interval;

    (void)state;
    fill_pairs(over, under, 1);
    interval = interval_of_ratio(over, under, PAIRS);
    assert_true(interval.low < 1 && interval.high > 1);
    fill_pairs(over, under, 1.02);
    interval = interval_of_ratio(over, under, PAIRS);
    assert_true(interval.low > 1);
    assert_true(fabs(interval.middle - 1.02) < 0.005);
}

/* Broken by an interval that is made up from one pair, or from none. */
static void one_pair_has_no_interval(void **state)
{
    struct interval interval = interval_of_ratio((double[]){2}, (double[]){1}, 1);

    (void)state;
    assert_true(fabs(interval.middle - 2) < 1e-12);
    assert_true(isnan(interval.low) && isnan(interval.high));
    assert_true(isnan(interval_of_ratio(NULL, NULL, 0).middle));
}

/* Broken by an update that eats its own marks, so that there is no second one, or that touches what
 * stands around them. */
static void a_section_can_be_replaced_again_and_again(void **state)
{
    char text[256];

    write_text(*state, "before\n<begin>\nold\nold\n<end>\nafter <end>\n");
    assert_int_equal(section_replace(*state, "<begin>", "<end>", "new\n"), 0);
    read_text(*state, text);
    assert_string_equal(text, "before\n<begin>\nnew\n<end>\nafter <end>\n");
    assert_int_equal(section_find(*state, "<begin>", "<end>"), 0);
    assert_int_equal(section_replace(*state, "<begin>", "<end>", ""), 0);
    read_text(*state, text);
    assert_string_equal(text, "before\n<begin>\n<end>\nafter <end>\n");
}

/* Broken by an update that writes before it has found both lines, or that takes a part of a line
 * for one. */
static void a_document_without_the_marks_is_left_alone(void **state)
{
    static const char *const documents[] = {"", "<begin>\nold\n", "<end>\n<begin>\n",
                                            "<begin>\nsee <end>\n<end>.\n", "x<begin>\n<end>\n"};
    char text[256];

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        write_text(*state, documents[i]);
        assert_int_equal(section_find(*state, "<begin>", "<end>"), -ENOENT);
        assert_int_equal(section_replace(*state, "<begin>", "<end>", "new\n"), -ENOENT);
        read_text(*state, text);
        assert_string_equal(text, documents[i]);
    }
    assert_int_equal(unlink(*state), 0);
    assert_int_equal(section_replace(*state, "<begin>", "<end>", "new\n"), -ENOENT);
}

/* Broken by columns that do not line up, empty ones that take room, or blanks at a line's end. */
static void a_grid_lines_up_and_leaves_out_empty_columns(void **state)
{
    struct grid grid = {0};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    grid_set(&grid, 0, 1, "head");
    grid_set(&grid, 0, 3, "far");
    grid_set(&grid, 1, 0, "row");
    grid_set(&grid, 1, 1, "%d", 7);
    grid_print(&grid, out);
    fclose(out);
    assert_string_equal(text, "     head  far\n"
                              "row     7\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_is_the_one_of_the_textbook),
        cmocka_unit_test(the_interval_tells_a_difference_from_none),
        cmocka_unit_test(one_pair_has_no_interval),
        cmocka_unit_test_setup_teardown(a_section_can_be_replaced_again_and_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_document_without_the_marks_is_left_alone, set_up,
                                        tear_down),
        cmocka_unit_test(a_grid_lines_up_and_leaves_out_empty_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Noise of about 1 %, the same at each call. */
static void fill_pairs(double *over, double *under, double factor)
{
    uint32_t state = 1;

    for (unsigned i = 0; i < PAIRS; i++) {
        state = state * 1664525u + 1013904223u;
        under[i] = 100;
        over[i] = factor * (99 + 2.0 * (state >> 16) / 65535);
    }
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void read_text(const char *path, char text[256])
{
    FILE *file = fopen(path, "re");

    assert_non_null(file);
    text[fread(text, 1, 255, file)] = '\0';
    assert_int_equal(fclose(file), 0);
}

/* The state is the path of a file that may be written. */
static int set_up(void **state)
{
    char path[] = "/tmp/mw-bench-pools-XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0 || close(fd) != 0)
        return -1;
    *state = strdup(path);
    return *state == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    unlink(*state);
    free(*state);
    return 0;
}

/* settings_test.c - options of the command line and of the config file: what is taken, what is
 * refused, and what is said then. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "commands.h"
#include "support/process.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What a call wrote to standard error, in storage that the next capture reuses. */
static char said[1024];
static int saved_stderr;
static FILE *captured;

static void capture_begin(void)
{
    captured = tmpfile();
    assert_non_null(captured);
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0);
    assert_true(dup2(fileno(captured), STDERR_FILENO) >= 0);
}

static void capture_end(void)
{
    size_t bytes;

    fflush(stderr);
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    close(saved_stderr);
    assert_int_equal(fseek(captured, 0, SEEK_SET), 0);
    bytes = fread(said, 1, sizeof said - 1, captured);
    said[bytes] = '\0';
    fclose(captured);
}

static int take_serve(struct mw_serve_settings *values, const char *const *argv)
{
    struct mw_settings settings = mw_serve_settings_of(values);
    int argc = 0, used;

    while (argv[argc])
        argc++;
    capture_begin();
    used = mw_settings_argv(&settings, argc, (char *const *)argv);
    capture_end();
    return used;
}

static int take_compile(struct mw_compile_settings *values, const char *const *argv)
{
    struct mw_settings settings = mw_compile_settings_of(values);
    int argc = 0, used;

    while (argv[argc])
        argc++;
    capture_begin();
    used = mw_settings_argv(&settings, argc, (char *const *)argv);
    capture_end();
    return used;
}

static int take_file(struct mw_serve_settings *values, const char *text)
{
    struct mw_settings settings = mw_serve_settings_of(values);
    char path[] = "/tmp/mw-settings-XXXXXX";
    int fd = mkstemp(path), error;

    assert_true(fd >= 0);
    close(fd);
    file_write(path, text, strlen(text));
    capture_begin();
    error = mw_settings_file(&settings, path);
    capture_end();
    unlink(path);
    return error;
}

static void expect_said(const char *text)
{
    if (!strstr(said, text))
        fail_msg("'%s' does not say '%s'", said, text);
}

/* Broken when a name, its "=" form or a type is not taken, or a setting lands in another's place.
 */
static void command_line_fills_every_type(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;

    (void)state;
    assert_int_equal(take_serve(&values, (const char *[]){"--lane-cap", "7", "--listen=unix:/x",
                                                          "--emit-lane", "pool", "--help",
                                                          "--store-max-bytes=3M", "rest", NULL}),
                     7);
    assert_string_equal(said, "");
    assert_int_equal(values.lane_cap, 7);
    assert_string_equal(values.listen, "unix:/x");
    assert_int_equal(values.emit_lane, 1);
    assert_int_equal(values.help, 1);
    assert_int_equal(values.store_max_bytes, 3 << 20);
    assert_int_equal(values.lane_queue, mw_serve_defaults.lane_queue);
    assert_string_equal(values.data, "");
}

/* Broken when a short option loses its value, glued to it or apart. */
static void short_options_take_their_value_glued_or_apart(void **state)
{
    struct mw_compile_settings values = mw_compile_defaults;

    (void)state;
    assert_int_equal(
        take_compile(&values, (const char *[]){"-xc++", "-o", "out.o", "-j3", "-h", NULL}), 5);
    assert_int_equal(values.language, 2);
    assert_string_equal(values.output, "out.o");
    assert_int_equal(values.jobs, 3);
    assert_int_equal(values.help, 1);
    assert_int_equal(take_compile(&values, (const char *[]){"-o=a", NULL}), 1);
    assert_string_equal(values.output, "=a");
}

/* Broken when what is no option is eaten, or what follows `--` is read as an option. */
static void options_end_at_the_first_argument_or_two_dashes(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;

    (void)state;
    assert_int_equal(take_serve(&values, (const char *[]){"a", "--lane-cap", "7", NULL}), 0);
    assert_int_equal(take_serve(&values, (const char *[]){"--", "--lane-cap", "7", NULL}), 0);
    assert_int_equal(take_serve(&values, (const char *[]){"-", "--lane-cap", "7", NULL}), 0);
    assert_int_equal(take_serve(&values, (const char *[]){NULL}), 0);
    assert_int_equal(values.lane_cap, 0);
}

/* Broken when a wrong option is taken, or its refusal does not name it and say what to do. */
static void wrong_options_are_refused_with_what_to_do(void **state)
{
    static const struct {
        const char *argv[3];
        const char *says;
    } cases[] = {
        {{"--no-such"}, "millwright serve: --no-such is no option; see --help"},
        {{"--lan", "3"}, "--lan is no option"},
        {{"--lane", "3"}, "--lane must be NAME.KEY=VALUE, such as compile-cpu.cap=2, not '3'"},
        {{"--lane", "files"}, "must be NAME.KEY=VALUE"},
        {{"--lane", "files=3"}, "must be NAME.KEY=VALUE"},
        {{"--lane", "files.cap"}, "must be NAME.KEY=VALUE"},
        {{"--lane", "files.cap=1111111111111111111111111"}, "must be NAME.KEY=VALUE"},
        {{"--lane=a-name-that-is-one-more-than-allowed.cap=1"}, "must be NAME.KEY=VALUE"},
        {{"--lane-capx", "3"}, "--lane-capx is no option"},
        {{"-q"}, "-q is no option"},
        {{"--lane-cap"}, "--lane-cap needs a value: N"},
        {{"--help=yes"}, "--help=yes takes no value"},
        {{"-hx"}, "-hx takes no value"},
        {{"--lane-cap", "0"}, "must be a decimal number from 1 to 1024, not '0'"},
        {{"--lane-cap", "1025"}, "must be a decimal number from 1 to 1024, not '1025'"},
        {{"--emit-lane", "both"}, "must be one of dedicated|pool, not 'both'"},
        {{"--emit-lane", "dedicated|pool"}, "must be one of dedicated|pool"},
        {{"--emit-lane", "dedi"}, "must be one of dedicated|pool, not 'dedi'"},
        {{"--listen", ""}, "--listen must be 1 to 1023 bytes long"},
        {{"--store-max-bytes", "1"}, "(K, M and G may follow), not '1'"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_serve_settings values = mw_serve_defaults;

        assert_int_equal(take_serve(&values, cases[i].argv), -EINVAL);
        expect_said(cases[i].says);
        assert_memory_equal(&values, &mw_serve_defaults, sizeof values);
    }
}

/* Broken when anything but plain decimal digits is read as a number (`1F4` read as 1 or 500). */
static void numbers_are_decimal_only(void **state)
{
    static const char *const wrong[] = {
        "1F4",
        "0x10",
        "-1",
        "+5",
        " 5",
        "5 ",
        "5.0",
        "1e3",
        "",
        "five",
        "4K",
        "５",
        "\t5",
        "99999999999999999999999",
        "18446744073709551617",
        "4294967297",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct mw_serve_settings values = mw_serve_defaults;

        assert_int_equal(take_serve(&values, (const char *[]){"--lane-cap", wrong[i], NULL}),
                         -EINVAL);
        expect_said("must be a decimal number from 1 to 1024");
        assert_int_equal(values.lane_cap, 0);
    }
    struct mw_serve_settings values = mw_serve_defaults;
    assert_int_equal(take_serve(&values, (const char *[]){"--lane-cap", "010", NULL}), 2);
    assert_int_equal(values.lane_cap, 10);
}

/* Broken when a number that looks hexadecimal is refused without a word on how to write it, or one
 * that does not is called hexadecimal. */
static void what_looks_hexadecimal_is_told_in_decimal(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: no word */
    } cases[] = {
        {"1F4", "not '1F4'; if you mean hexadecimal, write 500"},
        {"0x1f4", "if you mean hexadecimal, write 500"},
        {"0X10", "if you mean hexadecimal, write 16"},
        {"ffffffffffffffff", "if you mean hexadecimal, write 18446744073709551615"},
        {"fffffffffffffffff", NULL},
        {"1025", NULL},
        {"five", NULL},
        {"0x", NULL},
        {"0x5 ", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_serve_settings values = mw_serve_defaults;

        assert_int_equal(take_serve(&values, (const char *[]){"--pool-min", cases[i].text, NULL}),
                         -EINVAL);
        expect_said(cases[i].says ? cases[i].says : "must be a decimal number");
        assert_true(cases[i].says || !strstr(said, "hexadecimal"));
    }
}

/* Broken when a unit means another power, or an overflow wraps round to a small number. */
static void bytes_take_units_of_1024_and_refuse_overflow(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"1048576", UINT64_C(1) << 20},
        {"2048K", UINT64_C(2) << 20},
        {"7M", UINT64_C(7) << 20},
        {"5G", UINT64_C(5) << 30},
        {"1048576G", UINT64_C(1) << 50},
        {"1048577G", 0},
        {"17179869185G", 0}, /* 2^64 + 1G, were it to wrap */
        {"18446744073709551616", 0},
        {"5k", 0},
        {"5T", 0},
        {"5GB", 0},
        {"5GG", 0},
        {"5 G", 0},
        {"G", 0},
        {"0x100000", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_serve_settings values = mw_serve_defaults;
        int used = take_serve(&values, (const char *[]){"--store-max-bytes", cases[i].text, NULL});

        assert_int_equal(used, cases[i].bytes ? 2 : -EINVAL);
        if (cases[i].bytes)
            assert_int_equal(values.store_max_bytes, cases[i].bytes);
        else
            expect_said("must be a decimal number");
    }
}

/* Broken when a text is cut at the bound instead of refused. */
static void texts_over_the_bound_are_refused(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    char text[MW_SETTING_TEXT_BYTES + 1];

    (void)state;
    memset(text, 'a', sizeof text);
    text[MW_SETTING_TEXT_BYTES] = '\0';
    assert_int_equal(take_serve(&values, (const char *[]){"--data", text, NULL}), -EINVAL);
    expect_said("must be 1 to 1023 bytes long");
    text[MW_SETTING_TEXT_BYTES - 1] = '\0';
    assert_int_equal(take_serve(&values, (const char *[]){"--data", text, NULL}), 2);
    assert_string_equal(values.data, text);
}

/* Broken when the file's section, comments or types are not read as the command line's are. */
static void config_file_fills_the_section_of_its_command(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;

    (void)state;
    assert_int_equal(take_file(&values, "; a comment\n"
                                        "[other]\nlane-cap = 9\nno-such = 1\n"
                                        "[serve]\n"
                                        "lane-cap = 3\n"
                                        "listen=unix:/run/mw\n"
                                        "store-max-bytes = 2G ; a remark\n"
                                        "emit-lane = pool\n"),
                     0);
    assert_string_equal(said, "");
    assert_int_equal(values.lane_cap, 3);
    assert_string_equal(values.listen, "unix:/run/mw");
    assert_int_equal(values.store_max_bytes, UINT64_C(2) << 30);
    assert_int_equal(values.emit_lane, 1);
}

static void expect_lane_setting(const struct mw_serve_settings *values, unsigned place,
                                const char *lane, const char *key, const char *value)
{
    assert_true(place < values->lanes.count);
    assert_string_equal(values->lanes.list[place].lane, lane);
    assert_string_equal(values->lanes.list[place].key, key);
    assert_string_equal(values->lanes.list[place].value, value);
}

/* Broken when an option of a lane is lost, cut, or put before one that was given earlier. */
static void options_of_lanes_add_up_in_order(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;

    (void)state;
    assert_int_equal(take_file(&values, "[lane files]\ncap = 6\n"
                                        "[serve]\nlane-cap = 3\n"
                                        "[lane compile-cpu]\nurgency = idle ; a remark\n"),
                     0);
    assert_int_equal(take_serve(&values, (const char *[]){"--lane", "files.cap=7",
                                                          "--lane=store.queue=9", NULL}),
                     3);
    assert_int_equal(values.lanes.count, 4);
    expect_lane_setting(&values, 0, "files", "cap", "6");
    expect_lane_setting(&values, 1, "compile-cpu", "urgency", "idle");
    expect_lane_setting(&values, 2, "files", "cap", "7");
    expect_lane_setting(&values, 3, "store", "queue", "9");
    assert_int_equal(values.lane_cap, 3);
}

/* Broken when the bound on options of lanes is not kept: the list is an array. */
static void more_options_of_lanes_than_fit_are_refused(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    const char *const one[] = {"--lane", "files.cap=7", NULL};

    (void)state;
    for (unsigned i = 0; i < MW_LANE_SETTINGS_MAX; i++)
        assert_int_equal(take_serve(&values, one), 2);
    assert_int_equal(take_serve(&values, one), -EINVAL);
    expect_said("--lane files.cap is one more than the 64 options of lanes that may be given");
    assert_int_equal(values.lanes.count, MW_LANE_SETTINGS_MAX);
}

static int take_cap_only(const char *lane, const char *key, const char *value, char *why,
                         size_t why_bytes)
{
    (void)lane;
    (void)value;
    snprintf(why, why_bytes, "is not what was asked for");
    return strcmp(key, "cap") == 0 ? 0 : -EINVAL;
}

/* Broken when what a lane does not take is kept all the same. */
static void options_of_lanes_are_checked_when_they_are_read(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    struct mw_settings settings = mw_serve_settings_of(&values);
    const char *const good[] = {"--lane", "files.cap=7"};
    const char *const wrong[] = {"--lane", "files.cup=7"};

    (void)state;
    settings.lane_check = take_cap_only;
    assert_int_equal(mw_settings_argv(&settings, 2, (char *const *)good), 2);
    capture_begin();
    assert_int_equal(mw_settings_argv(&settings, 2, (char *const *)wrong), -EINVAL);
    capture_end();
    expect_said("millwright serve: --lane files.cup is not what was asked for");
    assert_int_equal(values.lanes.count, 1);
}

/* Broken when a mistake in the file passes in silence, or its report does not name the place. */
static void mistakes_in_the_config_file_are_named(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"[serve]\nlane-kap = 3\nlane-cup = 3\n", "line 2: lane-kap is no setting"},
        {"[serve]\nlane-cap = 1F4\n",
         "lane-cap must be a decimal number from 1 to 1024, not '1F4'"},
        {"[serve]\nlane-cap =\n", "lane-cap must be a decimal number"},
        {"[serve]\nemit-lane = both\n", "emit-lane must be one of dedicated|pool"},
        {"[serve]\nhelp = 1\n", "help can be given on the command line only"},
        {"[serve]\nlane = files.cap=2\n", "lane has sections of its own here: [lane NAME]"},
        {"[lane files]\nan-option-that-is-long = 1\n",
         "line 2: an-option-that-is-long is too long"},
        {"[serve]\n\njust words\n", "line 3: it is neither a [section] nor name = value"},
        {"[serve\n", "line 1: it is neither"},
        {"lane-cap = 3\n", "lane-cap stands in no section; put it below [serve]"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_serve_settings values = mw_serve_defaults;

        assert_int_equal(take_file(&values, cases[i].text), -EINVAL);
        expect_said("millwright serve: /tmp/mw-settings-");
        expect_said(cases[i].says);
    }
}

/* Broken when a line longer than the parser's buffer is cut, or read as two. */
static void a_line_too_long_for_the_parser_is_refused(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    char text[1200], path[601];

    (void)state;
    memset(path, 'p', 600);
    path[0] = '/';
    path[600] = '\0';
    snprintf(text, sizeof text, "[serve]\ndata = %s\n", path);
    assert_int_equal(take_file(&values, text), -EINVAL);
    expect_said("line 2: it is too long");
    memset(path, ' ', 600); /* the rest would be read as a comment */
    path[250] = ';';
    snprintf(text, sizeof text, "[serve]\ndata = x%s\n", path);
    assert_int_equal(take_file(&values, text), -EINVAL);
    expect_said("line 2: it is too long");
    assert_string_equal(values.data, "");
}

/* Broken when a config file that cannot be read is taken for an empty one. */
static void an_unreadable_config_file_is_an_error(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    struct mw_settings settings = mw_serve_settings_of(&values);
    int error;

    (void)state;
    capture_begin();
    error = mw_settings_file(&settings, "/nowhere/millwright.ini");
    capture_end();
    assert_int_equal(error, -ENOENT);
    expect_said("cannot read /nowhere/millwright.ini");
}

/* Broken when the config file wins over the command line, in whatever order they are named. */
static void the_command_line_wins_over_the_config_file(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;

    (void)state;
    assert_int_equal(take_file(&values, "[serve]\nlane-cap = 3\nlane-queue = 5\n"), 0);
    assert_int_equal(take_serve(&values, (const char *[]){"--lane-cap", "8", NULL}), 2);
    assert_int_equal(values.lane_cap, 8);
    assert_int_equal(values.lane_queue, 5);
}

/* Broken when a setting is in no help, or a default named there is not the default. */
static void help_names_every_setting(void **state)
{
    struct mw_serve_settings values = mw_serve_defaults;
    struct mw_settings settings = mw_serve_settings_of(&values);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    mw_help_command(mw_command_find("serve"), out);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < settings.count; i++) {
        char option[64];

        snprintf(option, sizeof option, "--%s ", settings.table[i].name);
        assert_non_null(strstr(text, option));
    }
    assert_string_equal(mw_serve_defaults.listen, "127.0.0.1:7417");
    assert_non_null(strstr(text, "(127.0.0.1:7417)"));
    assert_int_equal(mw_serve_defaults.store_max_bytes, UINT64_C(5) << 30);
    assert_non_null(strstr(text, "(5G)"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_line_fills_every_type),
        cmocka_unit_test(short_options_take_their_value_glued_or_apart),
        cmocka_unit_test(options_end_at_the_first_argument_or_two_dashes),
        cmocka_unit_test(wrong_options_are_refused_with_what_to_do),
        cmocka_unit_test(numbers_are_decimal_only),
        cmocka_unit_test(what_looks_hexadecimal_is_told_in_decimal),
        cmocka_unit_test(bytes_take_units_of_1024_and_refuse_overflow),
        cmocka_unit_test(texts_over_the_bound_are_refused),
        cmocka_unit_test(config_file_fills_the_section_of_its_command),
        cmocka_unit_test(options_of_lanes_add_up_in_order),
        cmocka_unit_test(more_options_of_lanes_than_fit_are_refused),
        cmocka_unit_test(options_of_lanes_are_checked_when_they_are_read),
        cmocka_unit_test(mistakes_in_the_config_file_are_named),
        cmocka_unit_test(a_line_too_long_for_the_parser_is_refused),
        cmocka_unit_test(an_unreadable_config_file_is_an_error),
        cmocka_unit_test(the_command_line_wins_over_the_config_file),
        cmocka_unit_test(help_names_every_setting),
    };

    return cmocka_run_group_tests_name("service.settings", tests, NULL, NULL);
}

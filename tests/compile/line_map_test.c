/* line_map_test.c - the lines of real assembly find their lines of source, in both syntaxes and for
 * both forms of debug information; nonsense is passed over, and bounds hold. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/line_map.h>

#include "folder.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The map of `text`, malloc'ed. */
static char *map_of(const char *text)
{
    struct mw_text map;

    assert_int_equal(mw_line_map_make(&map, text, strlen(text), "/src"), 0);
    assert_int_equal(strlen(map.data), map.bytes);
    return map.data;
}

static void expect_map(const char *text, const char *expected)
{
    char *map = map_of(text);

    assert_string_equal(map, expected);
    free(map);
}

/* The number behind `name` in an entry. */
static unsigned long number_in(const char *entry, const char *name)
{
    const char *at = strstr(entry, name);

    assert_non_null(at);
    return strtoul(at + strlen(name), NULL, 10);
}

/* The text of line `number` of `text`, without its end. */
static char *line_of(const char *text, unsigned long number)
{
    for (; number > 1; number--) {
        text = strchr(text, '\n');
        assert_non_null(text);
        text++;
    }
    return strndup(text, strcspn(text, "\n"));
}

/* The entry of `map` for a source line, or NULL. */
static const char *entry_of(const char *map, const char *file, unsigned source_line)
{
    char wanted[128];
    const char *found;

    (void)snprintf(wanted, sizeof wanted, "\"file\":\"%s\",\"source_line\":%u,", file, source_line);
    found = strstr(map, wanted);
    while (found && found > map && *found != '{')
        found--;
    return found;
}

/* Broken when a form of .file that clang writes is not read, or the instruction that a source line
 * becomes is not the one that the map names. */
static void a_multiplication_is_found_in_assembly_of_each_form(void **state)
{
    static const struct {
        const char *debug, *syntax, *multiply;
    } forms[] = {
        {"-gdwarf-5", "-masm=att", "imull"},
        {"-gdwarf-5", "-masm=intel", "imul"},
        {"-gdwarf-4", "-masm=att", "imull"},
        {"-gdwarf-4", "-masm=intel", "imul"},
        {"-gline-directives-only", "-masm=att", "imull"},
    };
    struct mw_toolchain *toolchain = *state;

    for (size_t i = 0; i < COUNT(forms); i++) {
        struct folder folder;
        struct trial trial = {
            .files = {{"main.c", "#include \"part.h\"\nint g(int a)\n{\n    return sq(a) + 1;\n}\n"
                                 "#line 7 \"a \\\"\\\\b.y\"\nint h(void) { return 3; }\n"},
                      {"part.h", "static inline int sq(int x)\n{\n    return x * x;\n}\n"}},
            .args = {"-O1", forms[i].debug, forms[i].syntax},
        };
        const char *const flags[3] = {"-S", "--target=x86_64-linux-gnu"};
        struct bytes text;
        struct mw_text map;
        const char *entry;
        char *code;

        folder_make(&folder);
        text = trial_clang(toolchain, &trial, folder.path, flags, NULL);
        assert_true(text.count > 0);
        assert_int_equal(mw_line_map_make(&map, text.data, text.count, folder.path), 0);
        entry = entry_of(map.data, "part.h", 3);
        assert_non_null(entry);
        code = line_of(text.data, number_in(entry, "\"line\":"));
        assert_non_null(strstr(code, forms[i].multiply));
        assert_int_equal(number_in(entry, "\"source_column\":"), 14);
        free(code);
        assert_non_null(entry_of(map.data, "main.c", 4));
        assert_non_null(entry_of(map.data, "a \\\"\\\\b.y", 7));
        assert_null(entry_of(map.data, "part.h", 2)); /* control: no code is of that line */
        free(map.data);
        free(text.data);
        folder_remove(&folder);
    }
}

/* Broken when an entry stands at a directive instead of an instruction, or is repeated. */
static void entries_stand_where_the_place_changes(void **state)
{
    (void)state;
    expect_map("\t.file\t1 \"/src\" \"a.c\"\n"
               "f:\n"
               "\t.loc\t1 3 7 prologue_end # a.c:3:7\n"
               "\t.cfi_def_cfa_offset 16\n"
               ".Ltmp0:\n"
               "\tmovl\t$1, %eax\n"
               "\tincl\t%eax\n"
               "\t.loc\t1 3 7 is_stmt 0\n"
               "\tincl\t%eax\n"
               "\t.loc\t1 4\n"
               "\tretq\n",
               "[{\"line\":6,\"file\":\"a.c\",\"source_line\":3,\"source_column\":7},"
               "{\"line\":11,\"file\":\"a.c\",\"source_line\":4,\"source_column\":0}]");
}

/* Broken when data, or a function without debug lines, counts to the line before it. */
static void what_follows_a_function_is_of_no_line(void **state)
{
    (void)state;
    expect_map("\t.file 0 \"/src\" \"a.c\" md5 0x12\n"
               "\t.loc 0 1 1\n"
               "\tretq\n"
               "\t.cfi_endproc\n"
               "\tnop\n"
               "\t.loc 0 0 0\n"
               "\tnop\n",
               "[{\"line\":3,\"file\":\"a.c\",\"source_line\":1,\"source_column\":1},"
               "{\"line\":4,\"file\":\"\",\"source_line\":0,\"source_column\":0}]");
}

/* Broken when folder and name are joined wrongly, an escape is not undone, or what comes out is no
 * JSON any more. */
static void files_are_named_as_in_diagnostics(void **state)
{
    static const struct {
        const char *file, *named;
    } cases[] = {
        {"\"a.c\"", "a.c"},
        {"\"/src\" \"sub/a.c\"", "sub/a.c"},
        {"\"/src\" \"./sub/a.c\"", "sub/a.c"},
        {"\"./sub\" \"a.h\" md5 0x12", "sub/a.h"},
        {"\"/usr/include\" \"stdio.h\"", "/usr/include/stdio.h"},
        {"\"/src\" \"/abs/a.c\"", "/abs/a.c"},
        {"\"q\\303\\251\\\\x\\\"\\n.h\"", "q\303\251\\\\x\\\"\\u000a.h"},
        {"\"\\377\\303\"", "??"},
        {"\"\\355\\240\\200\"", "???"}, /* half of a surrogate pair */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256], expected[256];

        (void)snprintf(text, sizeof text, "\t.file 1 %s\n\t.loc 1 2 3\n\tnop\n", cases[i].file);
        (void)snprintf(expected, sizeof expected,
                       "[{\"line\":3,\"file\":\"%s\",\"source_line\":2,\"source_column\":3}]",
                       cases[i].named);
        expect_map(text, expected);
    }
}

/* Broken when nonsense, which inline assembly may hold, is taken for a directive. */
static void what_is_no_directive_is_passed_over(void **state)
{
    static const char *const texts[] = {
        "",
        "\n\n",
        "\t.loc\n\tnop\n",
        "\t.loc 1 1 1\n\tnop\n", /* of no file */
        "\t.file 1 \"a.c\n\t.loc 1 1 1\n\tnop\n",
        "\t.file 1 \"a.c\\\n\t.loc 1 1 1\n\tnop\n",
        "\t.file 1 \"a\\000.c\"\n\t.loc 1 1 1\n\tnop\n",
        "\t.file 1 a.c\n\t.loc 1 1 1\n\tnop\n",
        "\t.file \"a.c\"\n\t.loc 0 1 1\n\tnop\n",
        "\t.file 4294967296 \"a.c\"\n\t.loc 0 1 1\n\tnop\n",
        "\t.file 65536 \"a.c\"\n\t.loc 65536 1 1\n\tnop\n",
        "\t.file 1 \"a.c\"\n\t.loc 1 1x 1\n\tnop\n",
        "\t.file 1 \"a.c\"\n\t.loc 1 4294967296 1\n\tnop\n",
        "\t.file 1 \"a.c\"\n\t.loc 1 -1 1\n\tnop\n",
        "\t.file 1 \"a.c\"\n\t.loc 1 1 1\n\t# nop\n\t.byte 1\nlabel:\n\tx = 1\n\t.L1:\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        expect_map(texts[i], "[]");
    /* control: the same with nothing wrong */
    expect_map("\t.file 1 \"a.c\"\n\t.loc 1 1 1\n\tnop\n",
               "[{\"line\":3,\"file\":\"a.c\",\"source_line\":1,\"source_column\":1}]");
}

/* Broken when a text that does not end where a directive would is read past its end: for the
 * sanitizers. Each prefix lies in memory of its own. */
static void no_text_is_read_past_its_end(void **state)
{
    static const char text[] = "\t.file 1 \"/src\" \"a\\303\\251\\\\.c\"\n\t.loc 1 23 4 x\n\tnop\n"
                               "\t.file 77 \"b\"\n\t.loc 77 1\n\tnop";
    unsigned seed = 1;

    (void)state;
    for (size_t bytes = 0; bytes < 20 * sizeof text; bytes++) {
        size_t count = bytes < sizeof text ? bytes : bytes % sizeof text;
        char *copy = malloc(count + (count == 0));
        struct mw_text map;

        memcpy(copy, text, count);
        for (unsigned change = 0; bytes >= sizeof text && count > 0 && change < 3; change++) {
            seed = seed * 1103515245u + 12345u;
            copy[(seed >> 8) % count] = (char)(seed >> 20);
        }
        assert_int_equal(mw_line_map_make(&map, copy, count, "/src"), 0);
        assert_true(map.data[0] == '[' && map.data[map.bytes - 1] == ']');
        free(map.data);
        free(copy);
    }
}

/* Broken when a map grows past the bound of an extra. */
static void a_map_over_its_bound_is_refused(void **state)
{
    static const char pair[] = "\t.loc 1 1 1\n\tnop\n\t.loc 1 2 1\n\tnop\n";
    const size_t pairs = MW_EXTRA_BYTES_MAX / 100;
    char *text = NULL;
    size_t bytes;
    struct mw_text map;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    fputs("\t.file 1 \"a.c\"\n", out);
    for (size_t i = 0; i < pairs; i++)
        fputs(pair, out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(mw_line_map_make(&map, text, bytes, "/src"), -E2BIG);
    assert_null(map.data);
    /* control: a quarter of it is fine */
    assert_int_equal(mw_line_map_make(&map, text, bytes / 4, "/src"), 0);
    free(map.data);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_multiplication_is_found_in_assembly_of_each_form),
        cmocka_unit_test(entries_stand_where_the_place_changes),
        cmocka_unit_test(what_follows_a_function_is_of_no_line),
        cmocka_unit_test(files_are_named_as_in_diagnostics),
        cmocka_unit_test(what_is_no_directive_is_passed_over),
        cmocka_unit_test(no_text_is_read_past_its_end),
        cmocka_unit_test(a_map_over_its_bound_is_refused),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

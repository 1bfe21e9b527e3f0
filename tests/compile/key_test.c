#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/key.h>

#include "folder.h"
#include "toolchain_internal.h"

#define FILES_MAX   3
#define ARGS_MAX    3
#define CHANGES_MAX 32

/* All that a key is made of, and what it is not made of. */
struct inputs {
    struct folder folder; /* the toolchain's only directory */
    const char *identity;
    struct mw_source_file files[FILES_MAX];
    const char *args[ARGS_MAX];
    struct mw_compile_request request;
    struct mw_run_options run;
};

static void inputs_make(struct inputs *inputs)
{
    *inputs = (struct inputs){
        .identity = "clang 19",
        .files = {{"a.c", "int a;", 6}, {"b.h", "int b;", 6}, {"c.h", "", 0}},
        .args = {"-O2", "-DA=1", "-DB"},
        .run = {.timeout_ms = MW_RUN_TIMEOUT_MS_DEFAULT},
    };
    inputs->request = (struct mw_compile_request){.directory = "/src",
                                                  .main = "a.c",
                                                  .files = inputs->files,
                                                  .file_count = FILES_MAX,
                                                  .args = inputs->args,
                                                  .arg_count = ARGS_MAX};
    folder_make(&inputs->folder);
    folder_write(&inputs->folder, "stdio.h", "int printf();");
}

/* The key that `inputs` give, by a toolchain and options of their own. */
static void key_of(const struct inputs *inputs, struct mw_key *key)
{
    const char *dir = inputs->folder.path;
    struct mw_toolchain *toolchain;
    struct mw_options *options;
    struct mw_refusal refusal;

    if (mw_request_check(&inputs->request, &refusal) < 0)
        fail_msg("%s %s", refusal.subject, refusal.reason);
    if (mw_options_new(&options, &inputs->request, &refusal) < 0)
        fail_msg("%s %s", refusal.subject, refusal.reason);
    assert_int_equal(mw_toolchain_new_of(&toolchain, inputs->identity, &dir, 1), 0);
    assert_int_equal(mw_key_compute(key, toolchain, options, &inputs->request), 0);
    assert_true(mw_key_valid(key->text, strlen(key->text)));
    mw_toolchain_free(toolchain);
    mw_options_free(options);
}

/* --- what must move the key --- */

static void language(struct inputs *inputs)
{
    inputs->request.language = MW_LANGUAGE_CXX;
}

static void emit(struct inputs *inputs)
{
    inputs->request.emit = MW_EMIT_ASM;
}

static void arg_value(struct inputs *inputs)
{
    inputs->args[1] = "-DA=2";
}

static void arg_flag(struct inputs *inputs)
{
    inputs->args[0] = "-O3";
}

static void arg_less(struct inputs *inputs)
{
    inputs->request.arg_count--;
}

static void arg_order(struct inputs *inputs)
{
    inputs->args[1] = "-DB";
    inputs->args[2] = "-DA=1";
}

static void arg_split(struct inputs *inputs)
{
    inputs->args[1] = "-DA=1-DB";
    inputs->request.arg_count--;
}

static void target(struct inputs *inputs)
{
    inputs->args[2] = "--target=aarch64-linux-gnu";
}

static void directory(struct inputs *inputs)
{
    inputs->request.directory = "/src2";
}

static void main_file(struct inputs *inputs)
{
    inputs->request.language = MW_LANGUAGE_C;
    inputs->request.main = "b.h";
}

static void file_name(struct inputs *inputs)
{
    inputs->files[1].name = "bb.h";
}

static void file_content(struct inputs *inputs)
{
    inputs->files[1].data = "int B;";
}

static void file_empty_line(struct inputs *inputs)
{
    inputs->files[2] = (struct mw_source_file){"c.h", "\n", 1};
}

static void file_gone(struct inputs *inputs)
{
    inputs->request.file_count--;
}

static void files_swap_contents(struct inputs *inputs)
{
    inputs->files[1].data = "int a;";
    inputs->files[0].data = "int b;";
}

/* The same bytes in the same order, the border one byte later. */
static void byte_to_the_next_file(struct inputs *inputs)
{
    inputs->files[1].bytes = 5;
    inputs->files[2] = (struct mw_source_file){"c.h", ";", 1};
}

static void byte_from_name_to_content(struct inputs *inputs)
{
    inputs->files[2] = (struct mw_source_file){"c.", "h", 1};
}

static void header_of_the_system(struct inputs *inputs)
{
    folder_write(&inputs->folder, "stdio.h", "int printf(const char *, ...);");
}

static void header_that_shadows(struct inputs *inputs)
{
    folder_write(&inputs->folder, "b.h", "int other;");
}

static void compiler(struct inputs *inputs)
{
    inputs->identity = "clang 19 (another build)";
}

/* --- what must not --- */

static void nothing(struct inputs *inputs)
{
    (void)inputs;
}

static void run_options(struct inputs *inputs)
{
    inputs->run.timeout_ms++;
    inputs->run.include_artifact = true;
}

static void files_in_other_order(struct inputs *inputs)
{
    struct mw_source_file first = inputs->files[0];

    inputs->files[0] = inputs->files[2];
    inputs->files[2] = first;
}

static void language_that_the_ending_says(struct inputs *inputs)
{
    inputs->request.language = MW_LANGUAGE_C;
}

static void header_that_is_read(struct inputs *inputs)
{
    FILE *file = folder_open(&inputs->folder, "stdio.h", "r");

    assert_int_equal(fgetc(file), 'i');
    assert_int_equal(fclose(file), 0);
}

struct change {
    const char *shows;
    void (*make)(struct inputs *inputs);
};

static const struct change canonical[] = {
    {"language", language},
    {"emit kind", emit},
    {"value of a flag", arg_value},
    {"another flag", arg_flag},
    {"a flag less", arg_less},
    {"order of flags", arg_order},
    {"two flags run together", arg_split},
    {"target", target},
    {"directory", directory},
    {"main file", main_file},
    {"name of a file", file_name},
    {"content of a file", file_content},
    {"an empty file gets a line", file_empty_line},
    {"a file less", file_gone},
    {"two files swap contents", files_swap_contents},
    {"a byte moves to the next file", byte_to_the_next_file},
    {"a byte moves from name to content", byte_from_name_to_content},
    {"a system header", header_of_the_system},
    {"a system header that shadows", header_that_shadows},
    {"the compiler", compiler},
};

static const struct change irrelevant[] = {
    {"nothing", nothing},
    {"run options", run_options},
    {"order of files", files_in_other_order},
    {"language that the ending says too", language_that_the_ending_says},
    {"a header is read", header_that_is_read},
};

/* The changes that leave the key of the same inputs as it was; returns how many. */
static size_t find_unmoved(const struct change *table, size_t count,
                           const char *unmoved[CHANGES_MAX])
{
    size_t found = 0;

    assert_true(count <= CHANGES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct inputs inputs;
        struct mw_key before, after;

        inputs_make(&inputs);
        key_of(&inputs, &before);
        table[i].make(&inputs);
        key_of(&inputs, &after);
        if (strcmp(before.text, after.text) == 0)
            unmoved[found++] = table[i].shows;
        folder_remove(&inputs.folder);
    }
    return found;
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Broken by an input that decides the bytes and does not enter the key: a wrong hit. */
static void each_canonical_change_moves_the_key(void **state)
{
    const char *unmoved[CHANGES_MAX];

    (void)state;
    if (find_unmoved(canonical, COUNT(canonical), unmoved) > 0)
        fail_msg("the key did not move with: %s", unmoved[0]);
}

/* Broken by a run option, or an accident of writing, that enters the key: a needless miss. Also the
 * control of the test above: its checker finds every change here, and names it. */
static void what_decides_no_bytes_does_not_move_the_key(void **state)
{
    const char *unmoved[CHANGES_MAX];

    (void)state;
    assert_int_equal(find_unmoved(irrelevant, COUNT(irrelevant), unmoved), COUNT(irrelevant));
    for (size_t i = 0; i < COUNT(irrelevant); i++)
        assert_string_equal(unmoved[i], irrelevant[i].shows);
}

/* Broken by a scheme that changes by accident, which would orphan everything that is stored. The
 * expected key was computed by another program, from what key.h says. */
static void the_key_of_given_inputs_is_fixed(void **state)
{
    static const char expected[] =
        "27424a6e3ccae20bc99ef6dd73df1293aaa0b18a45bef4f8ce6a2246e18577f1";
    struct mw_source_file file = {"a.c", "int a;", 6};
    struct mw_compile_request request = {
        .directory = "/src", .main = "a.c", .files = &file, .file_count = 1};
    struct mw_toolchain *toolchain;
    struct mw_options *options;
    struct mw_key key;

    (void)state;
    assert_int_equal(mw_options_new(&options, &request, NULL), 0);
    assert_int_equal(mw_toolchain_new_of(&toolchain, "clang", NULL, 0), 0);
    assert_int_equal(mw_key_compute(&key, toolchain, options, &request), 0);
    assert_string_equal(key.text, expected);
    mw_toolchain_free(toolchain);
    mw_options_free(options);
}

/* Broken by a text from a URL that passes for a key and is none. */
static void only_a_key_has_the_form_of_a_key(void **state)
{
    static const char wrong[] = {'g', 'G', 'A', '/', '.', '%', '\n', '\0', ':', '`'};
    char text[MW_KEY_TEXT_BYTES + 1];

    (void)state;
    memset(text, 'a', sizeof text);
    assert_true(mw_key_valid(text, 64));
    assert_false(mw_key_valid(text, 63));
    assert_false(mw_key_valid(text, 65));
    assert_false(mw_key_valid(text, 0));
    for (size_t i = 0; i < sizeof wrong; i++) {
        text[40] = wrong[i];
        assert_false(mw_key_valid(text, 64));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_canonical_change_moves_the_key),
        cmocka_unit_test(what_decides_no_bytes_does_not_move_the_key),
        cmocka_unit_test(the_key_of_given_inputs_is_fixed),
        cmocka_unit_test(only_a_key_has_the_form_of_a_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

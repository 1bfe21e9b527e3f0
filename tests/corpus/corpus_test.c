/* corpus_test.c - the service compiles zlib and lua to the very bytes that clang makes of them,
 * and the programs linked from those bytes work.
 *
 * The first test that needs a package has the running service compile all of it; the tests after
 * it use the objects that this left. MW_CORPUS is the folder that `fetch` filled, MW_PROGRAM the
 * millwright program. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "compiled.h"

/* Text that deflate can shorten, but not to nothing. */
#define ROUND_TRIP_BYTES 100000

static const char *const package_names[] = {"zlib", "lua"};
enum { ZLIB, LUA, PACKAGES };

static char folder[] = "/tmp/mw-corpus-XXXXXX";
static struct server server;
static struct client client;
static struct package packages[PACKAGES];
static char *outputs[PACKAGES]; /* folder of the objects and programs, NULL until compiled */

static const char *compiled_package(int index);
static void link_package(int index);
static void assert_same_files(const char *directory, const char *a, const char *b);

/* Broken by any flag, directory, file name or clang option that the service loses or adds. */
static void each_object_equals_clangs(void **state)
{
    size_t compared = 0;
    size_t different = 0;

    (void)state;
    for (int index = 0; index < PACKAGES; index++) {
        const char *output = compiled_package(index);
        const struct list *commands = &packages[index].commands;

        for (size_t i = 0; i < commands->line_count; i++, compared++) {
            char *path = path_join(output, commands->lines[i].fields[COMMAND_OBJECT]);
            struct bytes ours = file_read(path);
            struct bytes reference = compiled_by_clang(folder, &commands->lines[i], NULL);
            char where[128];

            if (objects_differ(&ours, &reference, where, sizeof where)) {
                print_error("%s of %s: %s\n", commands->lines[i].fields[COMMAND_OBJECT],
                            package_names[index], where);
                different++;
            }
            free(reference.data);
            free(ours.data);
            free(path);
        }
    }
    if (different > 0)
        fail_msg("%zu of %zu objects differ from those of %s", different, compared, COMPILER);
}

/* Broken by a comparison that cannot see one flag: -O0 on one side alone must differ, and must be
 * what differs, since -O0 on both sides does not. */
static void one_other_flag_makes_another_object(void **state)
{
    const struct line *command = &packages[ZLIB].commands.lines[0];
    struct compiled other = compiled_by_service(&client, &packages[ZLIB], command, "-O0");
    struct bytes reference = compiled_by_clang(folder, command, NULL);
    struct bytes other_reference = compiled_by_clang(folder, command, "-O0");
    char where[128] = "";

    (void)state;
    assert_true(objects_differ(&other.object, &reference, where, sizeof where));
    assert_string_not_equal(where, "");
    if (objects_differ(&other.object, &other_reference, where, sizeof where))
        fail_msg("-O0 on both sides: %s", where);
    free(other.object.data);
    free(reference.data);
    free(other_reference.data);
}

/* Broken by objects that link and yet do not compute what zlib does. */
static void zlib_round_trips_data(void **state)
{
    static const char *const suffixes[] = {"", "64"};
    const char *output = compiled_package(ZLIB);
    static char data[ROUND_TRIP_BYTES];
    char *path = path_join(output, "data");
    uint32_t random = 1;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++) {
        random = random * 1664525 + 1013904223;
        data[i] = "etaoin shrdlu\n"[(random >> 24) % 14];
    }
    file_write(path, data, sizeof data);
    free(path);
    link_package(ZLIB);
    for (size_t i = 0; i < 2; i++) {
        char example[16], minigzip[16];

        snprintf(example, sizeof example, "./example%s", suffixes[i]);
        snprintf(minigzip, sizeof minigzip, "./minigzip%s", suffixes[i]);
        run_ok(output, (const char *[]){example, "example.gz", NULL}, NULL, "example.out");
        run_ok(output, (const char *[]){minigzip, NULL}, "data", "data.gz");
        run_ok(output, (const char *[]){minigzip, "-d", NULL}, "data.gz", "data.back");
        assert_same_files(output, "data", "data.back");
        /* Both directions wrong alike would still be the way back. */
        run_ok(output, (const char *[]){"gzip", "-dc", NULL}, "data.gz", "data.gzip");
        assert_same_files(output, "data", "data.gzip");
    }
}

/* Broken by objects that link and yet do not compute what lua does; luac's bytecode too. */
static void lua_runs_a_script(void **state)
{
    static const char script[] =
        "local sieve, sum = {}, 0\n"
        "for i = 2, 10000 do\n"
        "    if not sieve[i] then\n"
        "        sum = sum + i\n"
        "        for j = i * i, 10000, i do sieve[j] = true end\n"
        "    end\n"
        "end\n"
        "local words = {}\n"
        "for word in ('the quick brown fox'):gmatch('%a+') do words[#words + 1] = word end\n"
        "table.sort(words)\n"
        "local squares = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i ^ 2) end "
        "end)\n"
        "print(sum, table.concat(words, ','), squares() + squares() + squares())\n"
        "print((select(2, pcall(error, 'caught'))), 7 // 2, 1 << 40, string.format('%5.2f', "
        "math.pi))\n";
    static const char expected[] = "5736396\tbrown,fox,quick,the\t14.0\n"
                                   "caught\t3\t1099511627776\t 3.14\n";
    const char *output = compiled_package(LUA);
    char *path = path_join(output, "script.lua");
    char *expected_path = path_join(output, "expected");

    (void)state;
    file_write(path, script, strlen(script));
    file_write(expected_path, expected, strlen(expected));
    free(path);
    free(expected_path);
    link_package(LUA);
    run_ok(output, (const char *[]){"./lua", "script.lua", NULL}, NULL, "lua.out");
    assert_same_files(output, "expected", "lua.out");
    run_ok(output, (const char *[]){"./luac", "-o", "script.luac", "script.lua", NULL}, NULL,
           "luac.out");
    run_ok(output, (const char *[]){"./lua", "script.luac", NULL}, NULL, "bytecode.out");
    assert_same_files(output, "expected", "bytecode.out");
}

/* Broken by a key that moves between two equal requests, or an artifact that is not kept. */
static void second_pass_is_answered_from_the_store(void **state)
{
    (void)state;
    for (int index = 0; index < PACKAGES; index++) {
        const char *output = compiled_package(index);
        const struct list *commands = &packages[index].commands;

        for (size_t i = 0; i < commands->line_count; i++) {
            const char *object = commands->lines[i].fields[COMMAND_OBJECT];
            struct compiled again =
                compiled_by_service(&client, &packages[index], &commands->lines[i], NULL);
            char *path = path_join(output, object);
            struct bytes first = file_read(path);
            char where[128];

            if (!again.is_cached)
                fail_msg("%s of %s was compiled again", object, package_names[index]);
            if (objects_differ(&again.object, &first, where, sizeof where))
                fail_msg("the stored %s of %s: %s", object, package_names[index], where);
            free(again.object.data);
            free(first.data);
            free(path);
        }
    }
}

/* Broken by a shutdown that hangs, crashes or reports a failure after all this work. */
static void server_ends_well_when_told(void **state)
{
    (void)state;
    assert_int_equal(server_stop(&server), 0);
}

/* ---- fixture ---- */

static int start(void **state)
{
    const char *corpus = getenv("MW_CORPUS");
    const char *program = getenv("MW_PROGRAM");

    (void)state;
    if (corpus == NULL || program == NULL)
        fail_msg("set MW_CORPUS to the folder that fetch filled, and MW_PROGRAM to millwright");
    if (mkdtemp(folder) == NULL)
        fail_msg("cannot make '%s': %s", folder, strerror(errno));
    for (int index = 0; index < PACKAGES; index++)
        package_read(&packages[index], corpus, package_names[index]);
    server_start(&server, program, folder, NULL);
    client_open(&client, &server);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    client_close(&client);
    server_stop(&server);
    for (int index = 0; index < PACKAGES; index++) {
        package_fini(&packages[index]);
        free(outputs[index]);
    }
    if (process_run("/", (const char *[]){"rm", "-rf", folder, NULL}, NULL, NULL) != 0)
        print_error("cannot remove '%s'\n", folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_object_equals_clangs),
        cmocka_unit_test(one_other_flag_makes_another_object),
        cmocka_unit_test(zlib_round_trips_data),
        cmocka_unit_test(lua_runs_a_script),
        cmocka_unit_test(second_pass_is_answered_from_the_store),
        cmocka_unit_test(server_ends_well_when_told),
    };

    return cmocka_run_group_tests_name("corpus.debian_packages", tests, start, stop);
}

/* ---- what the tests share ---- */

/* The folder with the service's objects of a package, compiled by the first call. */
static const char *compiled_package(int index)
{
    const struct package *package = &packages[index];
    char *output = path_join(folder, package_names[index]);

    if (outputs[index] != NULL) {
        free(output);
        return outputs[index];
    }
    if (mkdir(output, 0777) != 0)
        fail_msg("cannot make '%s': %s", output, strerror(errno));
    for (size_t i = 0; i < package->commands.line_count; i++) {
        const struct line *command = &package->commands.lines[i];
        struct compiled first = compiled_by_service(&client, package, command, NULL);
        char *path = path_join(output, command->fields[COMMAND_OBJECT]);

        if (first.is_cached)
            fail_msg("%s came from a store that was empty", command->fields[COMMAND_OBJECT]);
        file_write(path, first.object.data, first.object.count);
        free(first.object.data);
        free(path);
    }
    outputs[index] = output;
    return output;
}

/* Archive and link as the package's own build does, from the service's objects. */
static void link_package(int index)
{
    const struct list *links = &packages[index].links;

    for (size_t i = 0; i < links->line_count; i++) {
        const char *const *fields = links->lines[i].fields;
        const char *product = fields[LINK_PRODUCT];
        bool is_archive = strlen(product) > 2 && strcmp(product + strlen(product) - 2, ".a") == 0;
        const char *argv[PACKAGE_FIELDS_MAX + 4] = {is_archive ? "ar" : COMPILER,
                                                    is_archive ? "rcs" : "-o", product};

        for (size_t arg = LINK_ARGS; fields[arg] != NULL; arg++)
            argv[3 + arg - LINK_ARGS] = fields[arg];
        run_ok(compiled_package(index), argv, NULL, "link.out");
    }
}

static void assert_same_files(const char *directory, const char *a, const char *b)
{
    char *a_path = path_join(directory, a);
    char *b_path = path_join(directory, b);
    struct bytes a_bytes = file_read(a_path);
    struct bytes b_bytes = file_read(b_path);
    char where[128];

    if (objects_differ(&a_bytes, &b_bytes, where, sizeof where))
        fail_msg("'%s' and '%s': %s", a, b, where);
    free(a_bytes.data);
    free(b_bytes.data);
    free(a_path);
    free(b_path);
}

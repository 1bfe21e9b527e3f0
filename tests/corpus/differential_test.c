/* differential_test.c - the service's objects against clang's, byte for byte: every source of a
 * package, with the package's own flags and one more, once by a service that has seen nothing, and
 * once in the opposite order by a service that has precompiled what the sources open with.
 *
 * usage: differential_test NAME [all]
 *
 * NAME is what `fetch` has put into MW_CORPUS; MW_PROGRAM is the millwright program. Without `all`
 * it takes few sources and flags. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compiled.h"

#define FLAGS_MAX        4
#define PREFIX_BYTES_MAX 1024
#define PREFIX_TRIES_MAX 100 /* to see one used, with a pause after each */
#define PAUSE_NS         100000000L

static const char *const all_flags[FLAGS_MAX + 1] = {"-O0", "-O2", "-g", "-fPIC", NULL};

/* What the quick run takes of a package. */
static const struct quick {
    const char *name;
    size_t stride; /* each so many-th source */
    const char *flags[FLAGS_MAX + 1];
} quicks[] = {
    {"zlib", 6, {"-O0", "-fPIC"}}, {"lua", 12, {"-O0", "-fPIC"}}, {"sqlite", 1, {"-O0"}},
    {"redis", 16, {"-O0", "-g"}},  {"ninja", 20, {"-fPIC"}},      {"re2", 16, {"-O0"}},
};

/* One source with one flag. */
struct pair {
    const struct line *command;
    const char *flag;
    char *reference; /* file with clang's object; NULL until compiled */
};

static char folder[] = "/tmp/mw-differential-XXXXXX";
static struct package package;
static struct pair *pairs;
static size_t pair_count;
static struct server server;
static struct client client;
static const char *const *arguments; /* the package, and NULL or "all" */

static void service_start(const char *name);
static void service_end(void);
static size_t pairs_compare(bool backwards);
static struct bytes reference_of(struct pair *pair, size_t index);
static bool prefixes_are_known(void);
static bool prefix_of(const struct line *command, char text[PREFIX_BYTES_MAX]);
static void prefix_await(const struct pair *pair, const char *prefix);
static bool can_have_prefix(const struct pair *pair);
static bool has_flag(const struct pair *pair, const char *beginning);

/* Broken by any flag, directory, file name or option of clang that the service loses or adds. */
static void objects_equal_clangs(void **state)
{
    (void)state;
    service_start("first");
    (void)pairs_compare(false);
    service_end();
}

/* Broken by a precompiled prefix that leaves a trace in an object; or by none being used where all
 * sources open with the same headers. */
static void objects_equal_clangs_after_precompiled_prefixes(void **state)
{
    static char prefix[PREFIX_BYTES_MAX], last[PREFIX_BYTES_MAX];
    const char *last_flag = "";
    size_t expected = 0, used;
    bool are_known;

    (void)state;
    service_start("second");
    are_known = prefixes_are_known();
    for (size_t i = 0; are_known && i < pair_count; i++) {
        if (!can_have_prefix(&pairs[i]) || !prefix_of(pairs[i].command, prefix))
            continue;
        if (strcmp(prefix, last) != 0 || strcmp(pairs[i].flag, last_flag) != 0)
            prefix_await(&pairs[i], prefix);
        memcpy(last, prefix, sizeof last);
        last_flag = pairs[i].flag;
        expected++;
    }
    used = pairs_compare(true);
    if (used < expected)
        fail_msg("%zu sources open so that a prefix serves them, but only %zu used one", expected,
                 used);
    service_end();
}

/* Broken by a comparison that cannot see one flag: the same source with another one must differ.
 * The last source, since sqlite's first takes a minute. */
static void another_flag_makes_another_object(void **state)
{
    const struct line *command = pairs[pair_count - 1].command;
    struct bytes one = compiled_by_clang(folder, command, "-O0");
    struct bytes other;
    struct compiled compiled;
    char where[128] = "";

    (void)state;
    service_start("control");
    compiled = compiled_by_service(&client, &package, command, "-O1");
    other = compiled_by_clang(folder, command, "-O1");
    assert_true(objects_differ(&compiled.object, &one, where, sizeof where));
    assert_string_not_equal(where, "");
    if (objects_differ(&compiled.object, &other, where, sizeof where))
        fail_msg("-O1 on both sides: %s", where);
    free(one.data);
    free(other.data);
    free(compiled.object.data);
    service_end();
}

/* ---- fixture ---- */

static const struct quick *quick_of(const char *name)
{
    for (size_t i = 0; i < sizeof quicks / sizeof *quicks; i++)
        if (strcmp(quicks[i].name, name) == 0)
            return &quicks[i];
    fail_msg("there is no package '%s'", name);
    return NULL;
}

static void pairs_make(const struct quick *quick, bool all)
{
    const char *const *flags = all ? all_flags : quick->flags;
    size_t stride = all ? 1 : quick->stride;

    pairs = calloc(package.commands.line_count * FLAGS_MAX, sizeof *pairs);
    assert_non_null(pairs);
    for (size_t flag = 0; flags[flag] != NULL; flag++)
        for (size_t i = 0; i < package.commands.line_count; i += stride)
            pairs[pair_count++] =
                (struct pair){.command = &package.commands.lines[i], .flag = flags[flag]};
}

static int start(void **state)
{
    const char *corpus = getenv("MW_CORPUS");

    (void)state;
    if (corpus == NULL || getenv("MW_PROGRAM") == NULL)
        fail_msg("set MW_CORPUS to the folder that fetch filled, and MW_PROGRAM to millwright");
    if (mkdtemp(folder) == NULL)
        fail_msg("cannot make '%s': %s", folder, strerror(errno));
    package_read(&package, corpus, arguments[0]);
    pairs_make(quick_of(arguments[0]), arguments[1] != NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    service_end();
    for (size_t i = 0; i < pair_count; i++)
        free(pairs[i].reference);
    free(pairs);
    package_fini(&package);
    if (process_run("/", (const char *[]){"rm", "-rf", folder, NULL}, NULL, NULL) != 0)
        print_error("cannot remove '%s'\n", folder);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_equal_clangs),
        cmocka_unit_test(objects_equal_clangs_after_precompiled_prefixes),
        cmocka_unit_test(another_flag_makes_another_object),
    };

    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "all") != 0)) {
        fprintf(stderr, "usage: differential_test NAME [all]\n");
        return 2;
    }
    arguments = (const char *const *)argv + 1;
    return cmocka_run_group_tests_name("corpus.differential", tests, start, stop);
}

/* ---- the service ---- */

static void service_start(const char *name)
{
    /* The amalgamation of sqlite takes a minute where it is optimised, and where the machine has
     * other work. As urgent as clang, or a busy machine takes hours. */
    static const char *const options[] = {"--timeout-max-ms",
                                          "600000",
                                          "--cpu-max-ms",
                                          "600000",
                                          "--memory-max-bytes",
                                          "2G",
                                          "--lane",
                                          "compile-cpu.urgency=equal",
                                          NULL};
    char *place = path_join(folder, name);

    run_ok("/", (const char *[]){"mkdir", place, NULL}, NULL, "/dev/null");
    server_start(&server, getenv("MW_PROGRAM"), place, options);
    client_open(&client, &server);
    free(place);
}

static void service_end(void)
{
    if (client.curl != NULL)
        client_close(&client);
    assert_int_equal(server_stop(&server), 0);
}

/* Compile all by the service and compare. Returns how many began with a precompiled prefix. */
static size_t pairs_compare(bool backwards)
{
    size_t different = 0, used = 0;

    for (size_t i = 0; i < pair_count; i++) {
        size_t index = backwards ? pair_count - 1 - i : i;
        struct pair *pair = &pairs[index];
        const char *file = pair->command->fields[COMMAND_FILE];
        struct compiled ours = compiled_by_service(&client, &package, pair->command, pair->flag);
        struct bytes reference = reference_of(pair, index);
        char where[128];

        if (ours.is_cached)
            fail_msg("%s came from a store that was empty", file);
        if (ours.used_preamble && has_flag(pair, "-g"))
            fail_msg("%s has debug information, which a precompiled prefix changes", file);
        used += ours.used_preamble;
        if (objects_differ(&ours.object, &reference, where, sizeof where)) {
            print_error("%s %s%s: %s\n", file, pair->flag,
                        ours.used_preamble ? " with a prefix" : "", where);
            different++;
        }
        free(ours.object.data);
        free(reference.data);
    }
    print_message("%zu objects compared, %zu with a precompiled prefix, %zu differ\n", pair_count,
                  used, different);
    if (different > 0)
        fail_msg("%zu of %zu objects differ from those of %s", different, pair_count, COMPILER);
    return used;
}

/* Clang's object, kept in a file for the next time. */
static struct bytes reference_of(struct pair *pair, size_t index)
{
    struct bytes object;

    if (pair->reference != NULL)
        return file_read(pair->reference);
    if (asprintf(&pair->reference, "%s/%zu.o", folder, index) < 0)
        fail_msg("no memory for the path of '%s'", pair->command->fields[COMMAND_FILE]);
    object = compiled_by_clang(folder, pair->command, pair->flag);
    file_write(pair->reference, object.data, object.count);
    return object;
}

/* ---- precompiled prefixes ---- */

/* Whether the service has such a thing. */
static bool prefixes_are_known(void)
{
    struct reply reply;
    const char *line;
    bool are_known;

    client_send(&client, &(struct request){.path = "/metrics"}, &reply);
    line = strstr(reply.body.data, "\nmillwright_preambles_max_bytes ");
    are_known = line != NULL && strtod(strchr(line, ' '), NULL) > 0;
    reply_free(&reply);
    return are_known;
}

/* The lines that a source opens with, if these are #include <...>, and nothing else. */
static bool prefix_of(const struct line *command, char text[PREFIX_BYTES_MAX])
{
    char *path = path_join(command->fields[COMMAND_DIRECTORY], command->fields[COMMAND_FILE]);
    struct bytes source = file_read(path);
    const char *end = source.data;

    while (strncmp(end, "#include <", 10) == 0)
        end += strcspn(end, "\n") + 1;
    assert_true(end - source.data < PREFIX_BYTES_MAX);
    memcpy(text, source.data, (size_t)(end - source.data));
    text[end - source.data] = '\0';
    free(source.data);
    free(path);
    return text[0] != '\0';
}

/* Compile other sources that open so until the service begins them with a precompiled prefix. */
static void prefix_await(const struct pair *pair, const char *prefix)
{
    static unsigned number;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const struct line *command = pair->command;

    for (int tries = 0; tries < PREFIX_TRIES_MAX; tries++) {
        json_t *args = json_array();
        json_t *request, *answer;
        char *source, *body;
        bool is_used;

        for (size_t i = COMMAND_FLAGS; command->fields[i] != NULL; i++)
            json_array_append_new(args, json_string(command->fields[i]));
        json_array_append_new(args, json_string(pair->flag));
        if (asprintf(&source, "%sint number_%u;\n", prefix, number++) < 0)
            fail_msg("no memory for a source");
        request = json_pack("{s:[{s:s, s:s}], s:s, s:s, s:o, s:i}", "files", "name", "opens.cc",
                            "content", source, "main", "opens.cc", "directory",
                            command->fields[COMMAND_DIRECTORY], "args", args, "timeout_ms",
                            PACKAGE_TIMEOUT_MS);
        body = json_dumps(request, JSON_COMPACT);
        answer = compiled_answer(&client, body, "opens.cc");
        is_used = json_is_true(json_object_get(json_object_get(answer, "timings"), "preamble"));
        json_decref(answer);
        json_decref(request);
        free(body);
        free(source);
        if (is_used)
            return;
        nanosleep(&pause, NULL);
    }
    fail_msg("no precompiled prefix is made of:\n%s", prefix);
}

/* With debug information an object shows how it came about; and with -I a header of the system may
 * be another one. */
static bool can_have_prefix(const struct pair *pair)
{
    return !has_flag(pair, "-g") && !has_flag(pair, "-I");
}

static bool has_flag(const struct pair *pair, const char *beginning)
{
    size_t length = strlen(beginning);
    bool has = strncmp(pair->flag, beginning, length) == 0;

    for (size_t i = COMMAND_FLAGS; pair->command->fields[i] != NULL; i++)
        has = has || strncmp(pair->command->fields[i], beginning, length) == 0;
    return has;
}

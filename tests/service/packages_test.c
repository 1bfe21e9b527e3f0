/* packages_test.c - "packages" of a request: installed packages are found, compiled with and linked
 * with; what is not installed is said; the environment of whoever asks has no say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service/support.h"

/* Compile `source` with `packages`, a list that is taken over (NULL: none). */
static struct answer compile(struct room *room, const char *source, json_t *packages)
{
    json_t *body =
        json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms", PATIENT_MS);

    assert_non_null(body);
    if (packages)
        json_object_set_new(body, "packages", packages);
    return post(room, body);
}

static void expect_status(const struct answer *answer, const char *status)
{
    if (answer->status != 200 || strcmp(text_of(answer->json, "status"), status) != 0)
        fail_msg("expected 200 %s, got %ld %s", status, answer->status, answer->reply.body.data);
}

static void expect_missing_header(const struct answer *answer, const char *header)
{
    const json_t *first = json_array_get(json_object_get(answer->json, "diagnostics"), 0);

    expect_status(answer, "failed");
    if (!strstr(text_of(first, "message"), header))
        fail_msg("%s is not missing: %s", header, answer->reply.body.data);
}

/* Write the object of `answer` to `name` in the room. */
static void fetch_to(struct room *room, const struct answer *answer, const char *name)
{
    char *path = path_join(room->folder, name);
    struct reply reply;

    client_send(
        &room->client,
        &(struct request){.path = text_of(json_object_get(answer->json, "artifact"), "url")},
        &reply);
    assert_int_equal(reply.status, 200);
    file_write(path, reply.body.data, reply.body.count);
    reply_free(&reply);
    free(path);
}

/* Broken when what packages make of a program does not link with them and run. */
static void a_program_with_packages_links_and_runs(void **state)
{
    static const char source[] = "#include <zlib.h>\n#include <sqlite3.h>\n#include <stdio.h>\n"
                                 "int main(void)\n{\n"
                                 "    printf(\"%s %s\\n\", zlibVersion(), sqlite3_libversion());\n"
                                 "    return zlibVersion()[0] != ZLIB_VERSION[0];\n}\n";
    const char *const link[] = {"clang-19", "main.o", "-o", "main", "-lz", "-lsqlite3", NULL};
    const char *const run[] = {"./main", NULL};
    struct room *room = *state;
    struct answer answer = compile(room, source, json_pack("[s, s]", "zlib", "sqlite3"));

    expect_status(&answer, "ok");
    fetch_to(room, &answer, "main.o");
    assert_int_equal(process_run(room->folder, link, NULL, NULL), 0);
    assert_int_equal(process_run(room->folder, run, NULL, NULL), 0);
    answer_free(&answer);
}

/* Broken when headers in folders of a package's own are not found, or are found without it. */
static void headers_of_a_package_need_it(void **state)
{
    static const char source[] =
        "#include <libpkgconf/libpkgconf.h>\nint version = LIBPKGCONF_VERSION;\n";
    struct room *room = *state;
    struct answer without = compile(room, source, NULL);
    struct answer with = compile(room, source, json_pack("[s]", "libpkgconf"));
    struct answer again = compile(room, source, json_pack("[s]", "libpkgconf"));

    expect_missing_header(&without, "libpkgconf/libpkgconf.h");
    expect_status(&with, "ok");
    assert_string_not_equal(text_of(with.json, "key"), text_of(without.json, "key"));
    assert_true(json_is_true(json_object_get(again.json, "cached")));
    answer_free(&without);
    answer_free(&with);
    answer_free(&again);
}

/* Broken when the sandbox of a compile keeps it from headers beside libraries, as in
 * /usr/lib/x86_64-linux-gnu/dbus-1.0/include. */
static void headers_beside_libraries_are_read(void **state)
{
    static const char source[] =
        "#include <dbus/dbus.h>\nint version(void) { return DBUS_MAJOR_VERSION; }\n";
    struct room *room = *state;
    struct answer with = compile(room, source, json_pack("[s]", "dbus-1"));
    struct answer without = compile(room, source, NULL);

    expect_status(&with, "ok");
    expect_missing_header(&without, "dbus/dbus.h"); /* control */
    answer_free(&with);
    answer_free(&without);
}

/* Broken when a package that is not installed is compiled without, or not named. */
static void a_missing_package_is_said(void **state)
{
    struct room *room = *state;

    expect_problem(compile(room, "", json_pack("[s, s]", "zlib", "no-such-package")), 422,
                   "no-package", "package", "no-such-package", "install its -dev package");
    expect_problem(compile(room, "", json_pack("[s]", "zlib.pc")), 400, "bad-field", "field",
                   "packages", "leave out the .pc");
}

/* Broken when a folder of the operator's is not looked in, the environment is, or flags that have
 * changed find what was stored for the former ones. */
static void packages_of_the_operator_are_found_by_option_only(void **state)
{
    static const char source[] = "int answer = TEAM;\n";
    static const char description[] = "Name: t\nDescription: t\nVersion: 1\nCflags: -DTEAM=";
    struct room *room = *state;
    char *path = path_join(room->folder, "team.pc");
    const char *const options[] = {"--pkg-config-path", room->folder, NULL};
    struct answer former, later;
    char text[128];

    (void)snprintf(text, sizeof text, "%s%d\n", description, 41);
    file_write(path, text, strlen(text));
    assert_int_equal(setenv("PKG_CONFIG_PATH", room->folder, 1), 0);
    room_start(room, NULL);
    expect_problem(compile(room, source, json_pack("[s]", "team")), 422, "no-package", "package",
                   "team", "installed");
    room_stop(room);
    unsetenv("PKG_CONFIG_PATH");
    room_start(room, options);
    former = compile(room, source, json_pack("[s]", "team"));
    expect_status(&former, "ok");
    (void)snprintf(text, sizeof text, "%s%d\n", description, 42);
    file_write(path, text, strlen(text));
    later = compile(room, source, json_pack("[s]", "team"));
    expect_status(&later, "ok");
    assert_true(json_is_false(json_object_get(later.json, "cached")));
    assert_string_not_equal(text_of(former.json, "key"), text_of(later.json, "key"));
    (void)snprintf(text, sizeof text, "%s%s\n", description, "1 -I/etc");
    file_write(path, text, strlen(text));
    expect_problem(compile(room, source, json_pack("[s]", "team")), 422, "flag-refused", "flag",
                   "/etc", "may not read");
    answer_free(&former);
    answer_free(&later);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_with_packages_links_and_runs, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(headers_of_a_package_need_it, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(headers_beside_libraries_are_read, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(a_missing_package_is_said, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(packages_of_the_operator_are_found_by_option_only,
                                        room_setup, room_teardown),
    };

    return cmocka_run_group_tests_name("service.packages", tests, NULL, NULL);
}

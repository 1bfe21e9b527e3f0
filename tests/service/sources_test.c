/* sources_test.c - debug sources: kept with an artifact, told in answers, fetched by their hashes,
 * as a debugger does that has nothing but the object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"
#include "support/process.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define MAIN_TEXT   "#include \"a.h\"\nint main(void) { return of_a(); }\n"
#define HEADER_TEXT "static inline int of_a(void) { return 42; }\n"

/* main.c, the header that it includes, and one that it does not. */
static json_t *body_of(const char *args, const char *unused)
{
    json_t *body = json_pack("{s:s, s:i, s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:o}", "main",
                             "main.c", "timeout_ms", PATIENT_MS, "files", "name", "main.c",
                             "content", MAIN_TEXT, "name", "a.h", "content", HEADER_TEXT, "name",
                             "b.h", "content", unused, "args", json_loads(args, 0, NULL));

    assert_non_null(body);
    return body;
}

static const json_t *sources_of(const struct answer *answer)
{
    if (answer->status != 200 || strcmp(text_of(answer->json, "status"), "ok") != 0)
        fail_msg("%ld %s", answer->status, answer->reply.body.data);
    return json_object_get(answer->json, "debug_sources");
}

static struct reply fetch(struct room *room, const char *path)
{
    struct reply reply;

    client_send(&room->client, &(struct request){.path = path}, &reply);
    return reply;
}

static void expect_text(struct room *room, const char *path, const char *text)
{
    struct reply reply = fetch(room, path);

    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.count, strlen(text));
    assert_memory_equal(reply.body.data, text, strlen(text));
    reply_free(&reply);
}

/* Broken when a file that was read is not kept, one that was not is, or their names are mixed up.
 */
static void what_a_debug_compile_read_can_be_fetched(void **state)
{
    static const struct {
        const char *name, *text;
    } expected[] = {{"a.h", HEADER_TEXT}, {"main.c", MAIN_TEXT}};
    struct room *room = *state;
    struct answer answer = post(room, body_of("[\"-g\"]", "int unused;\n"));
    const json_t *sources = sources_of(&answer);

    assert_int_equal(json_array_size(sources), COUNT(expected));
    for (size_t i = 0; i < COUNT(expected); i++) {
        const json_t *source = json_array_get(sources, i);
        char path[80];

        assert_int_equal(json_object_size(source), 4);
        assert_string_equal(text_of(source, "name"), expected[i].name);
        expect_text(room, text_of(source, "url"), expected[i].text);
        snprintf(path, sizeof path, "/v1/sources/%s", text_of(source, "sha256"));
        assert_string_equal(path, text_of(source, "url"));
        snprintf(path, sizeof path, "/v1/sources/md5/%s", text_of(source, "md5"));
        expect_text(room, path, expected[i].text);
    }
    answer_free(&answer);
}

/* Broken when a hit does not tell them, by its key or by its manifest. */
static void a_hit_tells_them_too(void **state)
{
    struct room *room = *state;
    struct answer first = post(room, body_of("[\"-g\", \"-O1\"]", "int unused;\n"));
    struct answer by_key = post(room, body_of("[\"-g\", \"-O1\"]", "int unused;\n"));
    struct answer by_manifest = post(room, body_of("[\"-g\", \"-O1\"]", "int others;\n"));

    assert_true(json_is_false(json_object_get(first.json, "cached")));
    assert_true(json_is_true(json_object_get(by_key.json, "cached")));
    assert_true(json_is_true(json_object_get(by_manifest.json, "cached")));
    assert_true(json_array_size(sources_of(&first)) > 0);
    assert_true(json_equal(sources_of(&first), sources_of(&by_key)));
    assert_true(json_equal(sources_of(&first), sources_of(&by_manifest)));
    answer_free(&first);
    answer_free(&by_key);
    answer_free(&by_manifest);
}

/* The MD5 that the line table of `object` has for main.c; false when there is no dwarfdump. */
static bool md5_of_line_table(const char *folder, const struct bytes *object, char md5[33])
{
    static const char dwarfdump[] = MW_LLVM_PREFIX "/bin/llvm-dwarfdump";
    char *path = path_join(folder, "main.o"), *said = path_join(folder, "said.txt");
    bool there = access(dwarfdump, X_OK) == 0;

    if (there) {
        struct bytes text;
        const char *at;

        file_write(path, object->data, object->count);
        assert_int_equal(process_run(folder,
                                     (const char *[]){dwarfdump, "--debug-line", path, NULL}, NULL,
                                     said),
                         0);
        text = file_read(said);
        at = strstr(text.data, "name: \"main.c\"");
        at = at ? strstr(at, "md5_checksum: ") : NULL;
        assert_non_null(at);
        snprintf(md5, 33, "%.32s", at + strlen("md5_checksum: "));
        free(text.data);
    }
    free(path);
    free(said);
    return there;
}

/* Broken when what is kept is not what the object was made from. */
static void a_debugger_finds_the_source_by_its_line_table(void **state)
{
    struct room *room = *state;
    json_t *body = body_of("[\"-g\", \"-gdwarf-5\"]", "");
    char *text = json_dumps(body, JSON_COMPACT), md5[33], path[80];
    struct answer answer =
        ask(room, &(struct request){.path = "/v1/compile?include=artifact", .body = text});
    const json_t *source = json_array_get(sources_of(&answer), 1);
    struct bytes object =
        base64_bytes(json_object_get(json_object_get(answer.json, "artifact"), "base64"));

    if (md5_of_line_table(room->folder, &object, md5))
        assert_string_equal(md5, text_of(source, "md5"));
    else
        snprintf(md5, sizeof md5, "%s", text_of(source, "md5"));
    snprintf(path, sizeof path, "/v1/sources/md5/%s", md5);
    expect_text(room, path, MAIN_TEXT);
    free(object.data);
    free(text);
    json_decref(body);
    answer_free(&answer);
}

/* Broken when sources are kept that no debugger asks for, or against the setting. */
static void without_debug_information_nothing_is_kept(void **state)
{
    static const struct {
        const char *args, *emit;
        size_t count;
    } cases[] = {
        {"[]", "object", 0},
        {"[\"-g0\"]", "object", 0},
        {"[\"-g\", \"-g0\"]", "object", 0},
        {"[\"-gcolumn-info\"]", "object", 0},
        {"[\"-g\"]", "preprocessed", 0},
        {"[\"-g\"]", "none", 0},
        {"[\"-g0\", \"-g1\"]", "object", 2},
        {"[\"-gline-tables-only\"]", "asm", 2},
        {"[\"-ggdb\", \"-gno-column-info\"]", "llvm-ir", 2},
    };
    void *own = NULL;
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        json_t *body = body_of(cases[i].args, "");
        struct answer answer;

        json_object_set_new(body, "emit", json_string(cases[i].emit));
        answer = post(room, body);
        if (json_array_size(sources_of(&answer)) != cases[i].count)
            fail_msg("%s %s: %s", cases[i].args, cases[i].emit, answer.reply.body.data);
        answer_free(&answer);
    }
    room_setup(&own);
    room = own;
    room_start(room, (const char *[]){"--debug-sources", "off", NULL});
    for (int round = 0; round < 2; round++) {
        struct answer answer = post(room, body_of("[\"-g\"]", ""));

        assert_null(sources_of(&answer));
        answer_free(&answer);
    }
    room_stop(room);
    room_teardown(&own);
}

/* Broken when an answer tells of sources that are not there, because the artifact is not. */
static void what_is_not_kept_has_none(void **state)
{
    struct room *room = *state;
    struct answer answer =
        post(room, json_pack("{s:s, s:s, s:[s], s:i}", "language", "c", "source",
                             "__asm__(\"nop\");\n", "args", "-g", "timeout_ms", PATIENT_MS));

    assert_null(sources_of(&answer));
    answer_free(&answer);
}

/* Broken by caching that is wrong for bytes that never change under their name. */
static void sources_can_be_cached_by_their_etag(void **state)
{
    struct room *room = *state;
    struct answer answer = post(room, body_of("[\"-g\"]", ""));
    const json_t *source = json_array_get(sources_of(&answer), 0);
    char path[80], etag[80], header[120];

    snprintf(etag, sizeof etag, "\"%s\"", text_of(source, "sha256"));
    snprintf(header, sizeof header, "If-None-Match: %s", etag);
    for (int by_md5 = 0; by_md5 < 2; by_md5++) {
        struct reply reply;

        snprintf(path, sizeof path, "/v1/sources/%s%s", by_md5 ? "md5/" : "",
                 text_of(source, by_md5 ? "md5" : "sha256"));
        reply = fetch(room, path);
        assert_string_equal(reply_header(&reply, "ETag"), etag);
        assert_string_equal(reply_header(&reply, "Content-Type"), "text/plain; charset=utf-8");
        assert_string_equal(reply_header(&reply, "X-Content-Type-Options"), "nosniff");
        assert_non_null(strstr(reply_header(&reply, "Cache-Control"), "immutable"));
        reply_free(&reply);
        client_send(&room->client, &(struct request){.path = path, .header = header}, &reply);
        assert_int_equal(reply.status, 304);
        assert_int_equal(reply.body.count, 0);
        reply_free(&reply);
        client_send(&room->client, &(struct request){.path = path, .method = "HEAD"}, &reply);
        assert_int_equal(reply.status, 200);
        assert_int_equal(atoi(reply_header(&reply, "Content-Length")), strlen(HEADER_TEXT));
        reply_free(&reply);
    }
    answer_free(&answer);
}

/* Broken when a name that is none reaches the store, or is answered with something. */
static void unknown_sources_are_not_found(void **state)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    static const char *const tails[] = {"", "md5/", "a", "../artifacts", "%00", "md5/%27"};
    struct room *room = *state;
    char path[160];

    for (size_t i = 0; i < COUNT(tails) + 3; i++) {
        if (i < COUNT(tails))
            snprintf(path, sizeof path, "/v1/sources/%s", tails[i]);
        else /* right, one digit short, a digit of the MD5 too much */
            snprintf(path, sizeof path, "/v1/sources/%s%.*s", i == COUNT(tails) + 2 ? "md5/" : "",
                     i == COUNT(tails)       ? 64
                     : i == COUNT(tails) + 1 ? 63
                                             : 33,
                     zeros);
        expect_problem(ask(room, &(struct request){.path = path}), 404, "not-found", NULL, NULL,
                       "");
    }
}

/* Broken when an answer comes before its sources are safe. (tests/compile/store_test.c kills in the
 * middle, and shows that they go with their artifact.) */
static void sources_survive_kill_minus_nine(void **state)
{
    void *own = NULL;
    struct room *room;
    struct answer answer;
    char url[80];

    (void)state;
    room_setup(&own);
    room = own;
    room_start(room, NULL);
    answer = post(room, body_of("[\"-g\"]", ""));
    snprintf(url, sizeof url, "%s", text_of(json_array_get(sources_of(&answer), 1), "url"));
    answer_free(&answer);
    client_close(&room->client);
    server_kill(&room->server);
    room_start(room, NULL);
    expect_text(room, url, MAIN_TEXT);
    room_stop(room);
    room_teardown(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_debug_compile_read_can_be_fetched),
        cmocka_unit_test(a_hit_tells_them_too),
        cmocka_unit_test(a_debugger_finds_the_source_by_its_line_table),
        cmocka_unit_test(without_debug_information_nothing_is_kept),
        cmocka_unit_test(what_is_not_kept_has_none),
        cmocka_unit_test(sources_can_be_cached_by_their_etag),
        cmocka_unit_test(unknown_sources_are_not_found),
        cmocka_unit_test(sources_survive_kill_minus_nine),
    };

    return cmocka_run_group_tests_name("service.sources", tests, room_setup_started, room_teardown);
}

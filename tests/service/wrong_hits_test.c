/* wrong_hits_test.c - what makes other caches answer with the bytes of another compile. Each case
 * runs over HTTP against the real service. Its control does the same to a store of its own with one
 * part of the key, or of the manifest, left out, and must get the wrong bytes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include <millwright/manifest.h>
#include <millwright/store.h>

#include "compile/folder.h"
#include "service/support.h"
#include "service/swarm.h"
#include "toolchain_internal.h"

#define FILES_MAX 4
#define ARGS_MAX  4
#define BANGS     200000u
#define TRIES_MAX 500u /* until a prefix is made; each is a compile */
#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))

#define SYSTEM_HEADERS "/usr/local/include"

/* A compile as data; what is left out takes its default. The first file is the main one. */
struct variant {
    struct {
        const char *name, *text;
    } files[FILES_MAX];
    const char *args[ARGS_MAX];
    const char *directory, *language;
    bool dependencies;
};

/* Two compiles that differ in one thing, and a word that only the assembly of each holds. */
struct row {
    const char *shows;
    struct variant before, after;
    const char *word_before, *word_after;
    void (*leave_out)(struct variant *variant); /* that thing, for the control */
    char input; /* the kind of input without which a manifest would not see it; 0: the base does */
};

static size_t file_count_of(const struct variant *variant)
{
    size_t count = 0;

    while (count < FILES_MAX && variant->files[count].name)
        count++;
    return count;
}

static json_t *body_of(const struct variant *variant)
{
    json_t *files = json_array(), *args = json_array();
    json_t *body = json_pack("{s:s, s:o, s:o, s:s, s:i, s:s}", "main", variant->files[0].name,
                             "files", files, "args", args, "emit", "asm", "timeout_ms", PATIENT_MS,
                             "directory", variant->directory ? variant->directory : "/src");

    assert_non_null(body);
    for (size_t i = 0; i < file_count_of(variant); i++)
        json_array_append_new(files, json_pack("{s:s, s:s}", "name", variant->files[i].name,
                                               "content", variant->files[i].text));
    for (size_t i = 0; i < ARGS_MAX && variant->args[i]; i++)
        json_array_append_new(args, json_string(variant->args[i]));
    if (variant->language)
        json_object_set_new(body, "language", json_string(variant->language));
    if (variant->dependencies)
        json_object_set_new(body, "also", json_pack("[s]", "dependencies"));
    return body;
}

/* Compile over HTTP. The answer's artifact goes into `bytes`. */
static struct answer compile(struct room *room, const struct variant *variant, struct bytes *bytes)
{
    json_t *body = body_of(variant);
    char *text = json_dumps(body, JSON_COMPACT);
    struct answer answer =
        ask(room, &(struct request){.path = "/v1/compile?include=artifact", .body = text});

    if (answer.status != 200 || strcmp(text_of(answer.json, "status"), "ok") != 0)
        fail_msg("%s: %ld %s", text, answer.status, answer.reply.body.data);
    *bytes = base64_bytes(json_object_get(json_object_get(answer.json, "artifact"), "base64"));
    free(text);
    json_decref(body);
    return answer;
}

static bool is_cached(const struct answer *answer)
{
    return json_is_true(json_object_get(answer->json, "cached"));
}

static bool is_stored(const struct answer *answer)
{
    return json_is_string(json_object_get(json_object_get(answer->json, "artifact"), "url"));
}

/* Compile and expect the word in what comes. Returns whether it was cached. */
static bool expect_word(struct room *room, const struct variant *variant, const char *word,
                        const char *never)
{
    struct bytes bytes;
    struct answer answer = compile(room, variant, &bytes);
    bool cached = is_cached(&answer);

    if (!bytes_contain(&bytes, word) || bytes_contain(&bytes, never))
        fail_msg("a wrong hit: '%s' is not in\n%s", word, bytes.data);
    if (!is_stored(&answer))
        print_message("not stored: %s\n",
                      text_of(json_object_get(answer.json, "artifact"), "not_stored"));
    free(bytes.data);
    answer_free(&answer);
    return cached;
}

/* ---- the same without HTTP, for the controls ---- */

/* A variant as the library takes it. */
struct prepared {
    struct mw_source_file files[FILES_MAX];
    struct mw_compile_request request;
    struct mw_options *options;
};

static void prepare(struct prepared *prepared, const struct variant *variant)
{
    size_t arg_count = 0;
    struct mw_refusal refusal;

    *prepared = (struct prepared){0};
    for (size_t i = 0; i < file_count_of(variant); i++)
        prepared->files[i] = (struct mw_source_file){variant->files[i].name, variant->files[i].text,
                                                     strlen(variant->files[i].text)};
    while (arg_count < ARGS_MAX && variant->args[arg_count])
        arg_count++;
    prepared->request = (struct mw_compile_request){
        .emit = MW_EMIT_ASM,
        .directory = variant->directory ? variant->directory : "/src",
        .main = variant->files[0].name,
        .files = prepared->files,
        .file_count = file_count_of(variant),
        .args = variant->args,
        .arg_count = arg_count,
        .extras = variant->dependencies ? 1u << MW_EXTRA_DEPENDENCIES : 0,
    };
    if (variant->language)
        assert_int_equal(mw_language_parse(variant->language, &prepared->request.language), 0);
    if (mw_request_check(&prepared->request, &refusal) ||
        mw_options_new(&prepared->options, &prepared->request, &refusal))
        fail_msg("refused: %s %s", refusal.subject, refusal.reason);
}

static struct mw_key key_of(struct mw_toolchain *toolchain, const struct variant *variant)
{
    struct prepared prepared;
    struct mw_key key;

    prepare(&prepared, variant);
    assert_int_equal(mw_key_compute(&key, toolchain, prepared.options, &prepared.request), 0);
    mw_options_free(prepared.options);
    return key;
}

/* What a store gives for `after` when `text` was stored for `before`, by keys that the toolchains
 * make: 0, or -ENOENT. */
static int stored_and_asked_for(struct mw_toolchain *then, const struct variant *before,
                                struct mw_toolchain *now, const struct variant *after)
{
    struct mw_key put = key_of(then, before), asked = key_of(now, after);
    char text[] = "the bytes of the first";
    struct mw_store_entry entry = {.artifact = text, .artifact_bytes = sizeof text}, found;
    struct mw_store *store;
    struct folder folder;
    int error;

    folder_make(&folder);
    assert_int_equal(mw_store_open(&store, folder.path, NULL), 0);
    assert_int_equal(mw_store_put(store, &put, &entry), 0);
    error = mw_store_get(store, &asked, &found);
    if (error == 0)
        assert_string_equal(found.artifact, text);
    mw_store_entry_fini(&found);
    mw_store_close(store);
    folder_remove(&folder);
    return error;
}

/* Whether the manifest of `before`, without its inputs of kind `without`, speaks for `after`. */
static int manifest_speaks_for(struct mw_toolchain *toolchain, const struct row *row, char without)
{
    struct prepared before, after;
    struct mw_compile_result result;
    struct mw_key key = key_of(toolchain, &row->before), found;
    struct mw_text kept = {0}, manifest;
    int matches;

    prepare(&before, &row->before);
    prepare(&after, &row->after);
    assert_int_equal(mw_emit(toolchain, before.options, &before.request, &result), 0);
    assert_true(result.ok);
    assert_true(result.inputs.bytes > 0);
    kept.data = malloc(result.inputs.bytes);
    assert_non_null(kept.data);
    for (size_t at = 0; at < result.inputs.bytes; at += strlen(result.inputs.data + at) + 1) {
        const char *input = result.inputs.data + at;
        const char *slash = strrchr(input, '/');

        assert_non_null(slash);
        if (input[0] == without && strcmp(slash + 1, row->before.files[0].name) != 0)
            continue;
        memcpy(kept.data + kept.bytes, input, strlen(input) + 1);
        kept.bytes += strlen(input) + 1;
    }
    assert_int_equal(mw_manifest_make(&before.request, &kept, &key, &manifest), 0);
    assert_int_equal(mw_manifest_match(&manifest, &before.request, &found), 1);
    matches = mw_manifest_match(&manifest, &after.request, &found);
    free(manifest.data);
    free(kept.data);
    mw_compile_result_fini(&result);
    mw_options_free(before.options);
    mw_options_free(after.options);
    return matches;
}

/* ---- what a request holds ---- */

static void drop_the_first_header(struct variant *variant)
{
    size_t last = file_count_of(variant) - 1;

    for (size_t i = 1; i <= last; i++) {
        if (strcmp(variant->files[i].name, "first/a.h") == 0 ||
            strcmp(variant->files[i].name, "a.h") == 0) {
            variant->files[i] = variant->files[last];
            variant->files[last].name = NULL;
            return;
        }
    }
}

static void drop_contents(struct variant *variant)
{
    for (size_t i = 1; i < file_count_of(variant); i++)
        variant->files[i].text = "";
}

static void drop_args(struct variant *variant)
{
    memset(variant->args, 0, sizeof variant->args);
}

static void drop_directory(struct variant *variant)
{
    variant->directory = NULL;
}

static void drop_language(struct variant *variant)
{
    variant->language = NULL;
}

#define MAIN_A     {"main.c", "#include \"a.h\"\n"}
#define FIRST_A    {"first/a.h", "int of_the_first = 1;\n"}
#define SECOND_A   {"second/a.h", "int of_the_second = 2;\n"}
#define BOTH_PATHS {"-Ifirst", "-Isecond"}

static const struct row rows[] = {
    {.shows = "a new header shadows the old one in the search path",
     .before = {.files = {MAIN_A, SECOND_A}, .args = BOTH_PATHS},
     .after = {.files = {MAIN_A, SECOND_A, FIRST_A}, .args = BOTH_PATHS},
     .word_before = "of_the_second",
     .word_after = "of_the_first",
     .leave_out = drop_the_first_header,
     .input = 'a'},
    {.shows = "the same where the directory was there",
     .before = {.files = {MAIN_A, SECOND_A, {"first/b.h", ""}}, .args = BOTH_PATHS},
     .after = {.files = {MAIN_A, SECOND_A, FIRST_A, {"first/b.h", ""}}, .args = BOTH_PATHS},
     .word_before = "of_the_second",
     .word_after = "of_the_first",
     .leave_out = drop_the_first_header,
     .input = 'a'},
    {.shows = "a new header beside the main file shadows the old one",
     .before = {.files = {MAIN_A, SECOND_A}, .args = BOTH_PATHS},
     .after = {.files = {MAIN_A, SECOND_A, {"a.h", "int of_main = 3;\n"}}, .args = BOTH_PATHS},
     .word_before = "of_the_second",
     .word_after = "of_main",
     .leave_out = drop_the_first_header,
     .input = 'a'},
    {.shows = "what __has_include asks for appears",
     .before = {.files = {{"main.c", "#if __has_include(\"a.h\")\nint there;\n#else\nint gone;\n"
                                     "#endif\n"}}},
     .after = {.files = {{"main.c", "#if __has_include(\"a.h\")\nint there;\n#else\nint gone;\n"
                                    "#endif\n"},
                         {"a.h", ""}}},
     .word_before = "gone",
     .word_after = "there",
     .leave_out = drop_the_first_header,
     .input = 'a'},
    {.shows = "the search path is flipped",
     .before = {.files = {MAIN_A, SECOND_A, FIRST_A}, .args = BOTH_PATHS},
     .after = {.files = {MAIN_A, SECOND_A, FIRST_A}, .args = {"-Isecond", "-Ifirst"}},
     .word_before = "of_the_first",
     .word_after = "of_the_second",
     .leave_out = drop_args},
    {.shows = "a header is deleted and another one takes its place",
     .before = {.files = {MAIN_A, SECOND_A, FIRST_A, {"first/b.h", ""}}, .args = BOTH_PATHS},
     .after = {.files = {MAIN_A, SECOND_A, {"first/b.h", ""}}, .args = BOTH_PATHS},
     .word_before = "of_the_first",
     .word_after = "of_the_second",
     .leave_out = drop_the_first_header,
     .input = 'r'},
    {.shows = "a header has other bytes",
     .before = {.files = {MAIN_A, {"a.h", "int one;\n"}}},
     .after = {.files = {MAIN_A, {"a.h", "int two;\n"}}},
     .word_before = "one",
     .word_after = "two",
     .leave_out = drop_contents,
     .input = 'r'},
    {.shows = "what #embed embeds has other bytes",
     .before = {.files = {{"main.c", "const char d[] = {\n#embed \"d.bin\"\n, 0};\n"},
                          {"d.bin", "older"}},
                .args = {"-std=c23"}},
     .after = {.files = {{"main.c", "const char d[] = {\n#embed \"d.bin\"\n, 0};\n"},
                         {"d.bin", "newer"}},
               .args = {"-std=c23"}},
     .word_before = "older",
     .word_after = "newer",
     .leave_out = drop_contents,
     .input = 'r'},
    {.shows = "another instruction set",
     .before = {.files = {{"main.c", "#ifdef __AVX2__\nint wide;\n#else\nint narrow;\n#endif\n"}},
                .args = {"--target=x86_64-linux-gnu", "-march=x86-64"}},
     .after = {.files = {{"main.c", "#ifdef __AVX2__\nint wide;\n#else\nint narrow;\n#endif\n"}},
               .args = {"--target=x86_64-linux-gnu", "-march=x86-64-v3"}},
     .word_before = "narrow",
     .word_after = "wide",
     .leave_out = drop_args},
    {.shows = "another language",
     .before = {.files = {{"main.c", "#ifdef __cplusplus\nint cxx;\n#else\nint plain;\n#endif\n"}},
                .language = "c"},
     .after = {.files = {{"main.c", "#ifdef __cplusplus\nint cxx;\n#else\nint plain;\n#endif\n"}},
               .language = "c++"},
     .word_before = "plain",
     .word_after = "cxx",
     .leave_out = drop_language},
    {.shows = "another working directory under -g",
     .before = {.files = {{"main.c", "int a;\n"}}, .args = {"-g"}, .directory = "/build/older"},
     .after = {.files = {{"main.c", "int a;\n"}}, .args = {"-g"}, .directory = "/build/newer"},
     .word_before = "/build/older",
     .word_after = "/build/newer",
     .leave_out = drop_directory},
    {.shows = "another prefix map under -g",
     .before = {.files = {{"main.c", "int a;\n"}},
                .args = {"-g", "-fdebug-prefix-map=/src=/older"}},
     .after = {.files = {{"main.c", "int a;\n"}}, .args = {"-g", "-fdebug-prefix-map=/src=/newer"}},
     .word_before = "/older",
     .word_after = "/newer",
     .leave_out = drop_args},
    {.shows = "another macro prefix map",
     .before = {.files = {{"main.c", "const char *f = __FILE__;\n"}},
                .args = {"-fmacro-prefix-map=main=older"}},
     .after = {.files = {{"main.c", "const char *f = __FILE__;\n"}},
               .args = {"-fmacro-prefix-map=main=newer"}},
     .word_before = "older.c",
     .word_after = "newer.c",
     .leave_out = drop_args},
};

/* Broken when something that decides the bytes is in neither key nor manifest. */
static void each_change_has_its_own_bytes(void **state)
{
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *row = &rows[i];

        print_message("%s\n", row->shows);
        (void)expect_word(room, &row->before, row->word_before, row->word_after);
        (void)expect_word(room, &row->after, row->word_after, row->word_before);
        assert_true(expect_word(room, &row->before, row->word_before, row->word_after));
        assert_true(expect_word(room, &row->after, row->word_after, row->word_before));
    }
}

/* The thing that changes is left out of the key: each row is a wrong hit now. */
static void control_left_out_of_the_key_each_is_a_wrong_hit(void **state)
{
    struct mw_toolchain *toolchain;

    (void)state;
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct variant before = row->before, after = row->after;

        print_message("%s\n", row->shows);
        assert_int_equal(stored_and_asked_for(toolchain, &before, toolchain, &after), -ENOENT);
        row->leave_out(&before);
        row->leave_out(&after);
        assert_int_equal(stored_and_asked_for(toolchain, &before, toolchain, &after), 0);
    }
    mw_toolchain_free(toolchain);
}

/* The names that were absent, or the files that were read, are left out of the manifest: each row
 * that rests on them is a wrong hit now. */
static void control_left_out_of_the_manifest_each_is_a_wrong_hit(void **state)
{
    struct mw_toolchain *toolchain;
    unsigned tried = 0;

    (void)state;
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!rows[i].input)
            continue;
        print_message("%s\n", rows[i].shows);
        assert_int_equal(manifest_speaks_for(toolchain, &rows[i], 0), 0);
        assert_int_equal(manifest_speaks_for(toolchain, &rows[i], rows[i].input), 1);
        tried++;
    }
    assert_int_equal(tried, 7);
    mw_toolchain_free(toolchain);
}

/* Broken when a manifest finds nothing (then all the rows above would pass without one), or another
 * artifact than its own. */
static void what_was_not_looked_at_does_not_matter(void **state)
{
    struct room *room = *state;
    struct variant variant = {.files = {{"main.c", "#include \"a.h\"\nint direct;\n"},
                                        {"a.h", "int of_a;\n"},
                                        {"b.h", "int of_b;\n"}}};
    double direct_hits = metric(room, "millwright_compile_direct_hits_total");
    struct bytes first_bytes, bytes;
    struct answer first = compile(room, &variant, &first_bytes), answer;

    assert_false(is_cached(&first));
    variant.files[2].text = "int of_b_2;\n";
    answer = compile(room, &variant, &bytes);
    assert_true(is_cached(&answer));
    assert_string_equal(text_of(answer.json, "key"), text_of(first.json, "key"));
    assert_int_equal(bytes.count, first_bytes.count);
    assert_memory_equal(bytes.data, first_bytes.data, bytes.count);
    assert_true(metric(room, "millwright_compile_direct_hits_total") == direct_hits + 1);
    free(bytes.data);
    answer_free(&answer);

    variant.files[1].text = "int of_a_2;\n"; /* this one was looked at */
    assert_false(expect_word(room, &variant, "of_a_2", "of_b"));
    assert_true(metric(room, "millwright_compile_direct_hits_total") == direct_hits + 1);
    free(first_bytes.data);
    answer_free(&first);
}

/* Broken when a precompiled prefix hides from the manifest what the rest of a source reads. */
static void a_preamble_hides_nothing_from_a_manifest(void **state)
{
    static const char head[] = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n";
    struct room *room = *state;
    struct variant variant = {.files = {{"main.c", NULL}, {"a.h", "int one;\n"}, {"b.h", ""}}};
    char source[160];
    bool used = false;

    for (unsigned tries = 0; !used && tries < TRIES_MAX; tries++) {
        struct bytes bytes;
        struct answer answer;

        snprintf(source, sizeof source, "%s#include \"a.h\"\nint try_%u;\n", head, tries);
        variant.files[0].text = source;
        answer = compile(room, &variant, &bytes);
        used = json_is_true(json_object_get(json_object_get(answer.json, "timings"), "preamble"));
        free(bytes.data);
        answer_free(&answer);
    }
    assert_true(used);
    variant.files[2].text = "\n";
    assert_true(expect_word(room, &variant, "one", "two"));
    variant.files[1].text = "int two;\n";
    assert_false(expect_word(room, &variant, "two", "one"));
    variant.files[1].name = "c.h"; /* and now nobody has it */
    {
        struct answer answer = post(room, body_of(&variant));

        assert_string_equal(text_of(answer.json, "status"), "failed");
        answer_free(&answer);
    }
}

/* Broken when the setting is not obeyed, or when strangers' workers are believed unasked. */
static void manifests_are_used_where_they_may_be(void **state)
{
    static const struct {
        const char *options[4];
        bool used;
    } settings[] = {
        {{NULL}, true},
        {{"--manifests", "off", NULL}, false},
        {{"--allow-remote", NULL}, false},
        {{"--allow-remote", "--manifests", "on", NULL}, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++) {
        struct variant variant = {.files = {{"main.c", "int a;\n"}, {"b.h", ""}}};
        void *own = NULL;
        struct room *room;

        room_setup(&own);
        room = own;
        room_start(room, settings[i].options);
        assert_false(expect_word(room, &variant, "a", "nothing"));
        variant.files[1].text = "\n";
        assert_int_equal(expect_word(room, &variant, "a", "nothing"), settings[i].used);
        room_stop(room);
        room_teardown(&own);
    }
}

/* ---- what is refused, or never kept ---- */

/* Broken when what depends on the machine, or on files that are in no key, is let in. */
static void what_no_key_can_hold_is_refused(void **state)
{
    static const char *const flags[] = {
        "-march=native",
        "-mcpu=native",
        "-mtune=native",
        "-include-pch",
        "-fmodules",
        "-fmodule-file=a=a.pcm",
        "-fprebuilt-module-path=.",
        "-xc-header",
        "-xc++-header",
        "-xc++-module",
        "-fpch-preprocess",
        "--embed-dir=/usr",
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct answer answer = post(room, json_pack("{s:s, s:s, s:[s]}", "language", "c", "source",
                                                    "int a;\n", "args", flags[i]));

        if (answer.status != 422 || strcmp(text_of(answer.json, "flag"), flags[i]) != 0)
            fail_msg("%s: %ld %s", flags[i], answer.status, answer.reply.body.data);
        answer_free(&answer);
    }
}

/* Control: the same words of flags that are allowed pass. */
static void control_their_harmless_relatives_are_not(void **state)
{
    static const char *const flags[] = {"-march=x86-64-v2", "-xc", "-fno-common"};
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct answer answer = post(room, json_pack("{s:s, s:s, s:[s]}", "language", "c", "source",
                                                    "int a;\n", "args", flags[i]));

        assert_int_equal(answer.status, 200);
        answer_free(&answer);
    }
}

/* Sources whose bytes depend on more than the request. */
static const struct {
    const char *source, *reason;
} unkeyed[] = {
    {"const char *t = __TIME__;\n", "__TIME__"},
    {"const char *d = __DATE__;\n", "__DATE__"},
    {"const char *s = __TIMESTAMP__;\n", "__TIME__"},
    {"__asm__(\"nop\");\n", "inline assembly"},
    {"void f(void) { __asm__(\"nop\"); }\n", "inline assembly"},
};

/* Broken when one of them is kept, and so answered for ever. */
static void what_depends_on_more_than_the_key_is_not_kept(void **state)
{
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(unkeyed); i++) {
        for (int round = 0; round < 2; round++) {
            struct variant variant = {.files = {{"main.c", unkeyed[i].source}}};
            struct bytes bytes;
            struct answer answer = compile(room, &variant, &bytes);

            assert_false(is_cached(&answer));
            assert_false(is_stored(&answer));
            assert_non_null(strstr(text_of(json_object_get(answer.json, "artifact"), "not_stored"),
                                   unkeyed[i].reason));
            free(bytes.data);
            answer_free(&answer);
        }
    }
}

/* What clang makes of `source` in this process, as assembly; its key goes into *key. */
static struct bytes emitted(struct mw_toolchain *toolchain, const struct variant *variant,
                            struct mw_key *key, bool *storable)
{
    struct prepared prepared;
    struct mw_compile_result result;
    struct bytes bytes;

    prepare(&prepared, variant);
    assert_int_equal(mw_key_compute(key, toolchain, prepared.options, &prepared.request), 0);
    assert_int_equal(mw_emit(toolchain, prepared.options, &prepared.request, &result), 0);
    assert_true(result.ok);
    bytes = (struct bytes){result.artifact, result.artifact_bytes};
    *storable = !result.not_storable;
    result.artifact = NULL;
    mw_compile_result_fini(&result);
    mw_options_free(prepared.options);
    return bytes;
}

/* The clock, and a file that the assembler includes, change the bytes and not the key. So without
 * the refusal to keep them they would be wrong hits. */
static void control_kept_all_the_same_they_are_wrong_hits(void **state)
{
    char include[160];
    struct folder folder;
    struct mw_toolchain *toolchain;
    const char *const sources[] = {"const char *when = __DATE__ __TIME__;\n", include};

    (void)state;
    folder_make(&folder);
    snprintf(include, sizeof include, "__asm__(\".include \\\"%s/a.s\\\"\");\n", folder.path);
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    for (size_t i = 0; i < COUNT(sources); i++) {
        struct variant variant = {.files = {{"main.c", sources[i]}}};
        struct bytes first, second;
        struct mw_key key, other_key;
        bool storable;

        setenv("SOURCE_DATE_EPOCH", "1000000000", 1);
        folder_write(&folder, "a.s", ".globl of_then\nof_then:\n");
        first = emitted(toolchain, &variant, &key, &storable);
        assert_false(storable);
        setenv("SOURCE_DATE_EPOCH", "1600000000", 1);
        folder_write(&folder, "a.s", ".globl of_now\nof_now:\n");
        second = emitted(toolchain, &variant, &other_key, &storable);
        assert_string_equal(key.text, other_key.text);
        assert_true(first.count != second.count ||
                    memcmp(first.data, second.data, first.count) != 0);
        free(first.data);
        free(second.data);
    }
    unsetenv("SOURCE_DATE_EPOCH");
    mw_toolchain_free(toolchain);
    folder_remove(&folder);
}

/* Broken when the variable reaches the compiler: it would decide bytes and is in no key. */
static void the_environment_decides_nothing(void **state)
{
    struct variant variant = {.files = {{"main.c", "const char *d = __DATE__;\n"}}};
    void *own = NULL;
    struct room *room;

    (void)state;
    room_setup(&own);
    room = own;
    setenv("SOURCE_DATE_EPOCH", "1000000000", 1); /* 9 September 2001 */
    setenv("CPATH", "/nowhere", 1);
    room_start(room, NULL);
    unsetenv("SOURCE_DATE_EPOCH");
    unsetenv("CPATH");
    (void)expect_word(room, &variant, " 20", "2001");
    room_stop(room);
    room_teardown(&own);
}

/* A source that sends the compiler's parser so deep down that it crashes. */
static json_t *deep_body(void)
{
    char *source = malloc(BANGS + 64);
    json_t *body;
    int used;

    assert_non_null(source);
    used = sprintf(source, "int f(void) { return ");
    memset(source + used, '!', BANGS);
    strcpy(source + used + BANGS, "1; }\n");
    body =
        json_pack("{s:s, s:s, s:i}", "language", "c", "source", source, "timeout_ms", PATIENT_MS);
    free(source);
    return body;
}

/* A body of its own for each way in which a compile does not come to its end. */
static json_t *body_that_ends_early(const char *how)
{
    static const char long_loop[] =
        "constexpr unsigned spin(unsigned n)\n"
        "{ unsigned s = 0; for (unsigned i = 0; i < n; i++) s = s * 31 + i; return s; }\n"
        "static_assert(spin(900000) != 7, \"\");\nstatic_assert(spin(900001) != 7, \"\");\n"
        "static_assert(spin(900002) != 7, \"\");\nstatic_assert(spin(900003) != 7, \"\");\n";

    if (strcmp(how, "timeout") == 0)
        return json_pack("{s:s, s:s, s:i}", "language", "c++", "source", long_loop, "timeout_ms",
                         300);
    if (strcmp(how, "cpu") == 0 || strcmp(how, "wall") == 0)
        return json_pack("{s:s, s:s, s:i, s:{s:i}}", "language", "c++", "source", long_loop,
                         "timeout_ms", PATIENT_MS, "limits",
                         strcmp(how, "cpu") == 0 ? "cpu_ms" : "wall_ms", 200);
    if (strcmp(how, "memory") == 0)
        return json_pack("{s:s, s:s, s:i, s:{s:i}}", "language", "c", "source",
                         "char a[64 << 20] = {1};\n", "timeout_ms", PATIENT_MS, "limits",
                         "memory_bytes", 16 << 20);
    if (strcmp(how, "output") == 0)
        return json_pack("{s:s, s:s, s:i, s:{s:i}}", "language", "c", "source",
                         "char a[1 << 20] = {1};\n", "timeout_ms", PATIENT_MS, "limits",
                         "output_bytes", 4096);
    return deep_body();
}

/* Broken when a compile that did not come to its end leaves anything in the store. */
static void what_does_not_come_to_its_end_is_not_kept(void **state)
{
    static const struct {
        const char *how;
        long status;
    } ends[] = {{"timeout", 504}, {"cpu", 422},    {"wall", 422},
                {"memory", 422},  {"output", 422}, {"crash", 200}};
    void *own = NULL;
    struct room *room;

    (void)state;
    room_setup(&own);
    room = own;
    room_start(room, NULL);
    for (size_t i = 0; i < COUNT(ends); i++) {
        for (int round = 0; round < 2; round++) { /* the second would be a hit */
            struct answer answer = post(room, body_that_ends_early(ends[i].how));

            print_message("%s: %ld\n", ends[i].how, answer.status);
            assert_int_equal(answer.status, ends[i].status);
            if (answer.status == 200) {
                assert_string_equal(text_of(answer.json, "status"), "failed");
                assert_false(is_cached(&answer));
            }
            answer_free(&answer);
        }
    }
    room_stop(room); /* what still ran is at its end, too */
    room_start(room, NULL);
    assert_true(metric(room, "millwright_store_entries") == 0);
    expect_service_goes_on(room); /* control: this one is kept */
    room_stop(room);
    room_start(room, NULL);
    assert_true(metric(room, "millwright_store_entries") == 1);
    room_stop(room);
    room_teardown(&own);
}

/* ---- the compiler, and the system's headers ---- */

/* Broken when an updated compiler is answered with what the old one made. */
static void an_updated_compiler_finds_nothing_of_the_old_one(void **state)
{
    static const struct variant variant = {.files = {{"main.c", "int a;\n"}}};
    struct mw_toolchain *older, *newer, *newer_as_older;

    (void)state;
    assert_int_equal(mw_toolchain_new_as(&older, "clang, build 1"), 0);
    assert_int_equal(mw_toolchain_new_as(&newer, "clang, build 2"), 0);
    assert_int_equal(mw_toolchain_new_as(&newer_as_older, "clang, build 1"), 0);
    assert_int_equal(stored_and_asked_for(older, &variant, newer, &variant), -ENOENT);
    /* control: without its identity */
    assert_int_equal(stored_and_asked_for(older, &variant, newer_as_older, &variant), 0);
    mw_toolchain_free(older);
    mw_toolchain_free(newer);
    mw_toolchain_free(newer_as_older);
}

/* A toolchain whose headers nobody stamps: the control of the tests below. */
static void control_without_the_stamp_headers_of_the_system_are_wrong_hits(void **state)
{
    static const struct variant variant = {.files = {{"main.c", "#include <a.h>\n"}}};
    struct mw_toolchain *stamped, *unstamped;
    struct mw_key then, then_unstamped, now, now_unstamped;
    struct folder folder;
    const char *dir;

    (void)state;
    folder_make(&folder);
    dir = folder.path;
    folder_write(&folder, "a.h", "int of_then;\n");
    assert_int_equal(mw_toolchain_new_of(&stamped, "clang", &dir, 1), 0);
    assert_int_equal(mw_toolchain_new_of(&unstamped, "clang", NULL, 0), 0);
    then = key_of(stamped, &variant);
    then_unstamped = key_of(unstamped, &variant);
    folder_write(&folder, "a.h", "int of_now;\n");
    now = key_of(stamped, &variant);
    now_unstamped = key_of(unstamped, &variant);
    assert_string_not_equal(then.text, now.text);
    assert_string_equal(then_unstamped.text, now_unstamped.text);
    mw_toolchain_free(stamped);
    mw_toolchain_free(unstamped);
    folder_remove(&folder);
}

static void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(file), 0);
}

/* Give this process, and the servers it starts, system headers of its own: what it writes below
 * /usr/local/include is seen by nobody else. Returns whether the machine lets us. */
static bool own_system_headers(void)
{
    static bool had;
    unsigned user = getuid(), group = getgid();
    char map[64];

    if (had)
        return true;
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1", user, user);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "%u %u 1", group, group);
        write_text("/proc/self/gid_map", map);
    }
    had = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
          mount("none", SYSTEM_HEADERS, "tmpfs", 0, NULL) == 0;
    return had;
}

/* A service among such headers, or NULL with a word that the test was not run. */
static struct room *room_with_own_headers(void **own)
{
    if (!own_system_headers()) {
        print_message("not run: this machine gives no mount namespace\n");
        return NULL;
    }
    write_text(SYSTEM_HEADERS "/config.h", "int of_then;\n");
    (void)unlink(SYSTEM_HEADERS "/new.h");
    room_setup(own);
    room_start(*own, NULL);
    return *own;
}

/* Broken when a header of the system that changes, shadows or goes is not seen. */
static void headers_of_the_system_are_watched(void **state)
{
    static const char source[] =
        "#include <config.h>\n"
        "#if __has_include(<new.h>)\nint new_there;\n#else\nint new_gone;\n"
        "#endif\n";
    struct variant variant = {.files = {{"main.c", source}}};
    void *own = NULL;
    struct room *room = room_with_own_headers(&own);

    (void)state;
    if (!room)
        return;
    assert_false(expect_word(room, &variant, "of_then", "of_now"));
    assert_true(expect_word(room, &variant, "new_gone", "new_there"));
    write_text(SYSTEM_HEADERS "/config.h", "int of_now;\n");
    assert_false(expect_word(room, &variant, "of_now", "of_then"));
    write_text(SYSTEM_HEADERS "/new.h", "");
    assert_false(expect_word(room, &variant, "new_there", "new_gone"));
    assert_int_equal(unlink(SYSTEM_HEADERS "/new.h"), 0); /* all is as it was, and a right hit */
    assert_true(expect_word(room, &variant, "new_gone", "new_there"));
    room_stop(room);
    room_teardown(&own);
}

/* Broken when what was compiled while a header of the system changed is kept: nobody knows which
 * one it has read. The request's own files cannot change: their bytes came with it. */
static void what_was_compiled_while_a_header_changed_is_not_kept(void **state)
{
    void *own = NULL;
    struct room *room = room_with_own_headers(&own);

    (void)state;
    if (!room)
        return;
    for (int round = 0; round < 2; round++) {
        json_t *body = slow_body(round, 10, PATIENT_MS), *json, *artifact;
        struct swarm *swarm = swarm_new(&room->server);
        json_int_t started = lane_number(room, "compile-cpu", "started");
        size_t number = swarm_post(swarm, "/v1/compile", body);
        long status;

        swarm_until_lane(swarm, room, "compile-cpu", "started", started + 1);
        if (round == 0) /* the second is the control */
            write_text(SYSTEM_HEADERS "/config.h", "int of_now;\n");
        assert_int_equal(lane_number(room, "compile-cpu", "running"), 1);
        swarm_finish(swarm);
        json = swarm_json(swarm, number, &status);
        assert_int_equal(status, 200);
        assert_string_equal(text_of(json, "status"), "ok");
        artifact = json_object_get(json, "artifact");
        if (round == 0)
            assert_non_null(strstr(text_of(artifact, "not_stored"), "changed while"));
        else
            assert_true(json_is_string(json_object_get(artifact, "url")));
        json_decref(json);
        swarm_free(swarm);
    }
    room_stop(room);
    room_teardown(&own);
}

/* ---- what comes with a hit ---- */

static json_t *dependencies_of(struct room *room, const struct variant *variant, bool *cached)
{
    struct bytes bytes;
    struct answer answer = compile(room, variant, &bytes);
    json_t *list = json_incref(json_object_get(answer.json, "dependencies"));

    *cached = is_cached(&answer);
    free(bytes.data);
    answer_free(&answer);
    return list;
}

static bool list_names(const json_t *list, const char *name)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry) if (strcmp(text_of(entry, "name"), name) == 0) return true;
    return false;
}

/* Broken when a hit has no dependency list, or that of another request. */
static void the_dependency_list_is_right_on_a_hit(void **state)
{
    struct room *room = *state;
    struct variant variant = {
        .files = {MAIN_A, SECOND_A, {"b.h", ""}}, .args = BOTH_PATHS, .dependencies = true};
    struct variant plain = variant;
    bool cached;
    json_t *first, *list;

    plain.dependencies = false;
    list = dependencies_of(room, &plain, &cached); /* the same without one is stored before */
    assert_null(list);
    first = dependencies_of(room, &variant, &cached);
    assert_false(cached);
    assert_true(list_names(first, "second/a.h"));
    list = dependencies_of(room, &variant, &cached);
    assert_true(cached);
    assert_true(json_equal(first, list));
    json_decref(list);
    variant.files[2].text = "int unrelated;\n"; /* found by its manifest */
    list = dependencies_of(room, &variant, &cached);
    assert_true(cached);
    assert_true(json_equal(first, list));
    json_decref(list);
    variant.files[3].name = "first/a.h";
    variant.files[3].text = "int of_the_first = 1;\n";
    list = dependencies_of(room, &variant, &cached);
    assert_false(cached);
    assert_true(list_names(list, "first/a.h"));
    assert_false(list_names(list, "second/a.h"));
    json_decref(list);
    json_decref(first);
}

static void drop_dependencies(struct variant *variant)
{
    variant->dependencies = false;
}

/* Control: without what was asked for in the key, who wants the list gets an entry without one. */
static void control_left_out_of_the_key_the_list_is_missing(void **state)
{
    struct variant plain = {.files = {{"main.c", "int a;\n"}}}, with = plain;
    struct mw_toolchain *toolchain;

    (void)state;
    with.dependencies = true;
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    assert_int_equal(stored_and_asked_for(toolchain, &plain, toolchain, &with), -ENOENT);
    drop_dependencies(&with);
    assert_int_equal(stored_and_asked_for(toolchain, &plain, toolchain, &with), 0);
    mw_toolchain_free(toolchain);
}

/* ---- an entry whose bytes are gone ---- */

/* Run SQL on the service's store behind its back. */
static void damage(const struct room *room, const char *sql)
{
    char path[80];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/data/store.db", room->folder);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 10000), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_true(sqlite3_changes(db) > 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Broken when an entry without its bytes is a hit, by its key or by its manifest, fails the
 * request, or is not replaced. */
static void an_entry_whose_bytes_are_gone_is_made_anew(void **state)
{
    static const char *const damages[] = {
        "DELETE FROM content",
        "UPDATE content SET artifact = NULL",
        "UPDATE content SET artifact = zeroblob(length(artifact))",
        "UPDATE content SET artifact = substr(artifact, 1, 10)",
        "UPDATE content SET meta = x'00'",
        "DELETE FROM entry",
    };
    struct variant variant = {.files = {{"main.c", "int restored;\n"}, {"b.h", ""}}};
    struct variant same = variant;
    void *own = NULL;
    struct room *room;

    (void)state;
    same.files[1].text = "\n";
    room_setup(&own);
    room = own;
    room_start(room, NULL);
    assert_false(expect_word(room, &variant, "restored", "nothing"));
    for (size_t i = 0; i < 2 * COUNT(damages); i++) {
        const struct variant *asked = i % 2 ? &same : &variant;

        print_message("%s\n", damages[i / 2]);
        assert_true(expect_word(room, asked, "restored", "nothing")); /* control: it was a hit */
        damage(room, damages[i / 2]);
        assert_false(expect_word(room, asked, "restored", "nothing"));
    }
    room_stop(room);
    room_teardown(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_has_its_own_bytes),
        cmocka_unit_test(control_left_out_of_the_key_each_is_a_wrong_hit),
        cmocka_unit_test(control_left_out_of_the_manifest_each_is_a_wrong_hit),
        cmocka_unit_test(what_was_not_looked_at_does_not_matter),
        cmocka_unit_test(a_preamble_hides_nothing_from_a_manifest),
        cmocka_unit_test(manifests_are_used_where_they_may_be),
        cmocka_unit_test(what_no_key_can_hold_is_refused),
        cmocka_unit_test(control_their_harmless_relatives_are_not),
        cmocka_unit_test(what_depends_on_more_than_the_key_is_not_kept),
        cmocka_unit_test(control_kept_all_the_same_they_are_wrong_hits),
        cmocka_unit_test(the_environment_decides_nothing),
        cmocka_unit_test(what_does_not_come_to_its_end_is_not_kept),
        cmocka_unit_test(an_updated_compiler_finds_nothing_of_the_old_one),
        cmocka_unit_test(control_without_the_stamp_headers_of_the_system_are_wrong_hits),
        cmocka_unit_test(the_dependency_list_is_right_on_a_hit),
        cmocka_unit_test(control_left_out_of_the_key_the_list_is_missing),
        cmocka_unit_test(an_entry_whose_bytes_are_gone_is_made_anew),
        /* the last: they leave the process in a namespace of its own */
        cmocka_unit_test(headers_of_the_system_are_watched),
        cmocka_unit_test(what_was_compiled_while_a_header_changed_is_not_kept),
    };

    if (mw_compile_init() != 0)
        return 1;
    return cmocka_run_group_tests_name("service.wrong_hits", tests, room_setup_started,
                                       room_teardown);
}

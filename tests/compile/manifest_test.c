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

#include <millwright/manifest.h>

#include "folder.h"
#include "toolchain_internal.h"

#define FILES_MAX    8
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Inputs as the bridge writes them: the literal's own NUL ends the last. */
#define INPUTS(literal) ((struct mw_text){(char[]){literal}, sizeof(literal)})

static const struct mw_key made_key = {
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};

/* What a compile of the request below looked at: -Ifirst -Isecond, main.c includes "a.h" (found in
 * `second`) and asks __has_include("b.h"). */
static const char looked_at[] = "r/src/main.c\0"
                                "a/src/a.h\0"
                                "d/src/first\0"
                                "a/src/first/a.h\0"
                                "r/src/second/a.h\0"
                                "d/src/b.h\0"
                                "a/src/third\0"
                                "a/usr/lib/x86_64-linux-gnu/a.h\0"
                                "d/usr";

struct scene {
    struct mw_source_file files[FILES_MAX];
    struct mw_compile_request request;
};

static void scene_make(struct scene *scene)
{
    *scene = (struct scene){.files = {{"main.c", "#include \"a.h\"\n", 15},
                                      {"second/a.h", "int a;", 6},
                                      {"first/other.h", "", 0},
                                      {"b.h", "int b;", 6},
                                      {"unrelated.h", "int u;", 6}}};
    scene->request = (struct mw_compile_request){
        .directory = "/src", .main = "main.c", .files = scene->files, .file_count = 5};
}

static void file_add(struct scene *scene, const char *name, const char *text)
{
    assert_true(scene->request.file_count < FILES_MAX);
    scene->files[scene->request.file_count++] = (struct mw_source_file){name, text, strlen(text)};
}

static struct mw_text make(const struct scene *scene, struct mw_text inputs)
{
    struct mw_text manifest;

    assert_int_equal(mw_manifest_make(&scene->request, &inputs, &made_key, &manifest), 0);
    return manifest;
}

static struct mw_text inputs_of_scene(void)
{
    return (struct mw_text){(char *)looked_at, sizeof looked_at};
}

/* --- what must be told apart --- */

static void header_changes(struct scene *scene)
{
    scene->files[1].data = "int A;";
}

static void header_gone(struct scene *scene)
{
    scene->files[1].name = "second/c.h";
}

static void header_shadows_beside_main(struct scene *scene)
{
    file_add(scene, "a.h", "int a;");
}

static void header_shadows_in_search_path(struct scene *scene)
{
    file_add(scene, "first/a.h", "int a;");
}

static void directory_of_search_path_appears(struct scene *scene)
{
    file_add(scene, "third/whatever.h", "");
}

static void directory_of_search_path_goes(struct scene *scene)
{
    scene->files[2].name = "fourth/other.h";
}

static void directory_becomes_a_file(struct scene *scene)
{
    scene->files[2].name = "first";
}

static void found_header_gone(struct scene *scene)
{
    scene->files[3].name = "c.h";
}

static void found_header_changes_its_size(struct scene *scene)
{
    scene->files[3].bytes = 0;
}

static void found_header_becomes_a_directory(struct scene *scene)
{
    scene->files[3].name = "b.h/b.h";
}

/* --- what must not be --- */

static void nothing(struct scene *scene)
{
    (void)scene;
}

static void unrelated_header_changes(struct scene *scene)
{
    scene->files[4].data = "int U;";
}

static void unrelated_header_goes(struct scene *scene)
{
    scene->request.file_count--;
}

static void unrelated_header_comes(struct scene *scene)
{
    file_add(scene, "a.hh", "");
    file_add(scene, "second/b.h", "");
}

static void other_order(struct scene *scene)
{
    struct mw_source_file first = scene->files[0];

    scene->files[0] = scene->files[3];
    scene->files[3] = first;
}

static void file_beside_the_one_in_the_search_path(struct scene *scene)
{
    scene->files[2].name = "first/another.h";
}

struct change {
    const char *shows;
    void (*make)(struct scene *scene);
};

static const struct change matters[] = {
    {"a header that was read changes", header_changes},
    {"a header that was read is gone", header_gone},
    {"a header appears beside the main file", header_shadows_beside_main},
    {"a header appears earlier in the search path", header_shadows_in_search_path},
    {"a directory of the search path appears", directory_of_search_path_appears},
    {"a directory of the search path is gone", directory_of_search_path_goes},
    {"a directory of the search path is a file now", directory_becomes_a_file},
    {"a header that was looked for is gone", found_header_gone},
    {"a header that was looked for is empty now", found_header_changes_its_size},
    {"a header that was looked for is a directory now", found_header_becomes_a_directory},
};

static const struct change does_not[] = {
    {"nothing", nothing},
    {"an unrelated header changes", unrelated_header_changes},
    {"an unrelated header goes", unrelated_header_goes},
    {"unrelated headers come", unrelated_header_comes},
    {"order of files", other_order},
    {"another file in a directory of the search path", file_beside_the_one_in_the_search_path},
};

/* Whether the manifest of the unchanged scene, without the inputs of letter `without`, matches the
 * changed one. */
static bool matches_after(const struct change *change, char without)
{
    char kept[sizeof looked_at];
    struct mw_text inputs = {kept, 0}, manifest;
    struct scene scene;
    struct mw_key key;
    int matches;

    for (size_t at = 0; at < sizeof looked_at; at += strlen(looked_at + at) + 1) {
        size_t bytes = strlen(looked_at + at) + 1;

        if (looked_at[at] == without && strcmp(looked_at + at, "r/src/main.c") != 0)
            continue;
        memcpy(kept + inputs.bytes, looked_at + at, bytes);
        inputs.bytes += bytes;
    }
    scene_make(&scene);
    manifest = make(&scene, inputs);
    change->make(&scene);
    matches = mw_manifest_match(&manifest, &scene.request, &key);
    assert_true(matches >= 0);
    if (matches)
        assert_string_equal(key.text, made_key.text);
    free(manifest.data);
    return matches == 1;
}

/* Broken by a change of what was looked at that a manifest does not see: a wrong hit. */
static void what_was_looked_at_decides(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(matters); i++) {
        if (matches_after(&matters[i], 0))
            fail_msg("it still matches when %s", matters[i].shows);
    }
}

/* Broken by a manifest that asks for more than was looked at: a needless miss. */
static void what_was_not_looked_at_does_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(does_not); i++) {
        if (!matches_after(&does_not[i], 0))
            fail_msg("it does not match any more when it is: %s", does_not[i].shows);
    }
}

/* Control of the first: each kind of input is what some row rests on. Without the names that were
 * absent, as in caches that leave them out, a header that shadows another is a wrong hit. */
static void control_each_kind_of_input_is_needed(void **state)
{
    static const struct {
        char without;
        void (*make)(struct scene *scene);
    } rows[] = {
        {'r', header_changes},
        {'r', header_gone},
        {'a', header_shadows_beside_main},
        {'a', header_shadows_in_search_path},
        {'a', directory_of_search_path_appears},
        {'d', directory_of_search_path_goes},
        {'d', found_header_gone},
        {'d', found_header_changes_its_size},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct change change = {"", rows[i].make};

        assert_true(matches_after(&change, rows[i].without));
    }
}

/* --- what a worker may say --- */

struct lie {
    const char *shows;
    struct mw_text inputs;
};

/* Broken by a manifest that is made of what no compile of the request can have seen. */
static void lies_make_no_manifest(void **state)
{
    static const char no_end[] = {'r', '/', 's', 'r', 'c', '/', 'm', 'a',
                                  'i', 'n', '.', 'c', 0,   'a', '/', 'x'};
    struct lie lies[] = {
        {"nothing at all", {NULL, 0}},
        {"the main file was not read", INPUTS("a/src/x.h")},
        {"the main file was only found", INPUTS("d/src/main.c")},
        {"a file that is not there was read", INPUTS("r/src/main.c\0r/src/x.h")},
        {"a directory was read", INPUTS("r/src/main.c\0r/src/second")},
        {"a file that is there was absent", INPUTS("r/src/main.c\0a/src/b.h")},
        {"a directory that is there was absent", INPUTS("r/src/main.c\0a/src/second")},
        {"a file that is not there was found", INPUTS("r/src/main.c\0d/src/x.h")},
        {"the request's directory was absent", INPUTS("r/src/main.c\0a/src")},
        {"the request's directory was read", INPUTS("r/src/main.c\0r/src")},
        {"a file of the machine was read", INPUTS("r/src/main.c\0r/etc/passwd")},
        {"a file beside the directory was read", INPUTS("r/src/main.c\0r/srcs/main.c")},
        {"by detours", INPUTS("r/src/main.c\0r/src/../etc/passwd")},
        {"by detours, absent", INPUTS("r/src/main.c\0a/src/./second//../b.h")},
        {"a directory was listed", INPUTS("r/src/main.c\0l/src")},
        {"a letter of no meaning", INPUTS("r/src/main.c\0x/src/x.h")},
        {"no path from the root", INPUTS("r/src/main.c\0asrc/x.h")},
        {"an empty input", INPUTS("r/src/main.c\0\0a/src/x.h")},
        {"an input without its end", {(char *)no_end, sizeof no_end}},
    };
    struct mw_text manifest;
    struct scene scene;

    (void)state;
    scene_make(&scene);
    for (size_t i = 0; i < COUNT(lies); i++) {
        if (mw_manifest_make(&scene.request, &lies[i].inputs, &made_key, &manifest) != -EBADMSG)
            fail_msg("taken for true: %s", lies[i].shows);
        assert_null(manifest.data);
    }
}

/* Control of the one above: paths by detours and names outside are told like all others. */
static void control_honest_inputs_make_one(void **state)
{
    struct lie honest[] = {
        {"the main file alone", INPUTS("r/src/main.c")},
        {"by detours", INPUTS("r/src/second/.././main.c\0a/src//x.h\0d/src/second/")},
        {"outside", INPUTS("r/src/main.c\0a/etc/x.h\0d/\0d/usr\0a/srcs/main.c\0a/../x.h")},
        {"below a file", INPUTS("r/src/main.c\0a/src/main.c/x.h")},
        {"the directory itself", INPUTS("r/src/main.c\0d/src\0d/src/.")},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < COUNT(honest); i++) {
        struct mw_text manifest;
        struct mw_key key;

        scene_make(&scene);
        print_message("%s\n", honest[i].shows);
        manifest = make(&scene, honest[i].inputs);
        assert_int_equal(mw_manifest_match(&manifest, &scene.request, &key), 1);
        free(manifest.data);
    }
}

/* Broken by inputs without bound. */
static void more_inputs_than_the_bound_make_none(void **state)
{
    struct mw_text inputs = {0}, manifest;
    FILE *out = open_memstream(&inputs.data, &inputs.bytes);
    struct scene scene;

    (void)state;
    assert_non_null(out);
    fprintf(out, "r/src/main.c%c", 0);
    for (unsigned i = 1; i < MW_MANIFEST_INPUTS_MAX; i++)
        fprintf(out, "a/src/%u.h%c", i, 0);
    assert_int_equal(fflush(out), 0);
    scene_make(&scene);
    manifest = make(&scene, inputs);
    free(manifest.data);
    fprintf(out, "a/src/one_more.h%c", 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(mw_manifest_make(&scene.request, &inputs, &made_key, &manifest), -E2BIG);
    free(inputs.data);
}

/* Broken by damage that reads as an answer, or beyond its end. Cut short at the end of a text it is
 * a manifest of fewer names: that the store's checksum must see. */
static void damaged_manifests_are_no_answer(void **state)
{
    struct mw_text manifest;
    struct scene scene;
    struct mw_key key;

    (void)state;
    scene_make(&scene);
    manifest = make(&scene, inputs_of_scene());
    for (size_t bytes = 0; bytes < manifest.bytes; bytes++) {
        struct mw_text cut = {malloc(bytes ? bytes : 1), bytes}; /* a sanitizer sees its end */

        assert_non_null(cut.data);
        memcpy(cut.data, manifest.data, bytes);
        if (bytes == 0 || cut.data[bytes - 1] != '\0' || bytes < 80)
            assert_int_equal(mw_manifest_match(&cut, &scene.request, &key), -EBADMSG);
        free(cut.data);
    }
    manifest.data[30] = 'x'; /* of the key */
    assert_int_equal(mw_manifest_match(&manifest, &scene.request, &key), -EBADMSG);
    free(manifest.data);
}

/* Broken by a file that was read and is not told, or the reverse: those are kept for debuggers. */
static void files_that_were_read_are_told_once_and_in_order(void **state)
{
    struct mw_text inputs = INPUTS("r/src/second/a.h\0r/src/main.c\0d/src/b.h\0r/src/second/a.h");
    struct mw_text lie = INPUTS("r/src/main.c\0r/src/x.h");
    const struct mw_source_file **files;
    struct scene scene;
    size_t count;

    (void)state;
    scene_make(&scene);
    assert_int_equal(mw_manifest_files_read(&scene.request, &inputs, &files, &count), 0);
    assert_int_equal(count, 2);
    assert_ptr_equal(files[0], &scene.files[0]);
    assert_ptr_equal(files[1], &scene.files[1]);
    free(files);
    assert_int_equal(mw_manifest_files_read(&scene.request, &lie, &files, &count), -EBADMSG);
    assert_null(files);
}

/* --- the base --- */

static struct mw_key base_of(const struct scene *scene, const struct folder *folder,
                             const char *identity)
{
    const char *dir = folder->path;
    struct mw_toolchain *toolchain;
    struct mw_options *options;
    struct mw_key base, key;

    assert_int_equal(mw_options_new(&options, &scene->request, NULL), 0);
    assert_int_equal(mw_toolchain_new_of(&toolchain, identity, &dir, 1), 0);
    assert_int_equal(mw_manifest_base(&base, toolchain, options, &scene->request), 0);
    assert_int_equal(mw_key_compute(&key, toolchain, options, &scene->request), 0);
    assert_string_not_equal(base.text, key.text);
    mw_toolchain_free(toolchain);
    mw_options_free(options);
    return base;
}

static void main_changes(struct scene *scene)
{
    scene->files[0].data = "#include \"A.h\"\n";
}

static void main_is_another(struct scene *scene)
{
    scene->files[0].name = "main2.c";
    scene->request.main = "main2.c";
}

static void directory_is_another(struct scene *scene)
{
    scene->request.directory = "/src2";
}

static void flag_is_another(struct scene *scene)
{
    static const char *const args[] = {"-O2"};

    scene->request.args = args;
    scene->request.arg_count = 1;
}

static void kind_is_another(struct scene *scene)
{
    scene->request.emit = MW_EMIT_ASM;
}

static void extra_is_asked_for(struct scene *scene)
{
    scene->request.extras = 1u << MW_EXTRA_DEPENDENCIES;
}

/* Broken by a base that other files than the main one move, or that something else does not. */
static void the_base_is_all_but_the_other_files(void **state)
{
    static const struct change moves[] = {
        {"the main file's bytes", main_changes}, {"the main file's name", main_is_another},
        {"directory", directory_is_another},     {"a flag", flag_is_another},
        {"kind of output", kind_is_another},     {"an extra", extra_is_asked_for},
    };
    static const struct change stays[] = {
        {"a header", header_changes},
        {"a header more", header_shadows_beside_main},
        {"a header less", unrelated_header_goes},
        {"order", other_order},
    };
    struct mw_key base, other;
    struct folder folder;
    struct scene scene;

    (void)state;
    folder_make(&folder);
    folder_write(&folder, "stdio.h", "int printf();");
    scene_make(&scene);
    base = base_of(&scene, &folder, "clang");
    for (size_t i = 0; i < COUNT(moves); i++) {
        scene_make(&scene);
        moves[i].make(&scene);
        other = base_of(&scene, &folder, "clang");
        if (strcmp(other.text, base.text) == 0)
            fail_msg("the base stayed with another %s", moves[i].shows);
    }
    for (size_t i = 0; i < COUNT(stays); i++) {
        scene_make(&scene);
        stays[i].make(&scene);
        other = base_of(&scene, &folder, "clang");
        if (strcmp(other.text, base.text) != 0)
            fail_msg("the base moved with %s", stays[i].shows);
    }
    scene_make(&scene);
    other = base_of(&scene, &folder, "another clang");
    assert_string_not_equal(other.text, base.text);
    folder_write(&folder, "stdio.h", "int puts();");
    other = base_of(&scene, &folder, "clang");
    assert_string_not_equal(other.text, base.text);
    folder_remove(&folder);
}

/* Broken by a request whose files stand among the toolchain's: lookups of them are not told. */
static void a_directory_among_the_toolchains_has_no_base(void **state)
{
    static const struct {
        const char *directory;
        int result;
    } rows[] = {
        {"/opt/headers", -ENOTSUP}, {"/opt/headers/src", -ENOTSUP},
        {"/opt", -ENOTSUP},         {"/", -ENOTSUP},
        {"/opt/headers2", 0},       {"/opt/src", 0},
    };
    const char *dir = "/opt/headers";
    struct mw_toolchain *toolchain;
    struct mw_options *options;
    struct scene scene;
    struct mw_key base;

    (void)state;
    assert_int_equal(mw_toolchain_new_of(&toolchain, "clang", &dir, 1), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        scene_make(&scene);
        scene.request.directory = rows[i].directory;
        assert_int_equal(mw_options_new(&options, &scene.request, NULL), 0);
        assert_int_equal(mw_manifest_base(&base, toolchain, options, &scene.request),
                         rows[i].result);
        mw_options_free(options);
    }
    mw_toolchain_free(toolchain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_looked_at_decides),
        cmocka_unit_test(what_was_not_looked_at_does_not),
        cmocka_unit_test(control_each_kind_of_input_is_needed),
        cmocka_unit_test(lies_make_no_manifest),
        cmocka_unit_test(control_honest_inputs_make_one),
        cmocka_unit_test(more_inputs_than_the_bound_make_none),
        cmocka_unit_test(damaged_manifests_are_no_answer),
        cmocka_unit_test(files_that_were_read_are_told_once_and_in_order),
        cmocka_unit_test(the_base_is_all_but_the_other_files),
        cmocka_unit_test(a_directory_among_the_toolchains_has_no_base),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

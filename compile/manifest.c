/* A manifest is a list of texts, each with its NUL: the scheme, the key, then one for each name of
 * the request that was looked at:
 *
 *   "r" SHA-256 NAME   a file with these bytes
 *   "d" NAME           a directory
 *   "a" NAME           neither
 *
 * where NAME is relative to the request's directory. */
#include <millwright/manifest.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/digest.h>

#include "key_internal.h"
#include "request_internal.h"

#define BASE_SCHEME "millwright base 1"
#define SCHEME      "millwright manifest 1"
#define HASH_DIGITS (MW_SHA256_TEXT_BYTES - 1)

/* The request as a tree of files. */
struct tree {
    const struct mw_compile_request *request;
    const struct mw_source_file **files; /* sorted */
};

enum presence { ABSENT, FILE_THERE, DIRECTORY_THERE };

/* One thing that a compile looked at. */
struct input {
    char what; /* as clang_bridge.h says */
    const char *name;
    enum presence presence;            /* in the request */
    const struct mw_source_file *file; /* NULL: no file */
};

/* A walk along the inputs that a worker reported. */
struct walk {
    const struct tree *tree;
    const struct mw_text *inputs;
    size_t at, seen;
    char *place; /* holds the name of the input at hand; as large as the inputs */
};

static int tree_init(struct tree *tree, const struct mw_compile_request *request);
static enum presence tree_look(const struct tree *tree, const char *name,
                               const struct mw_source_file **file);
static int walk_init(struct walk *walk, const struct tree *tree, const struct mw_text *inputs);
static int walk_next(struct walk *walk, struct input *input);
static int judge(const struct tree *tree, const char *place, struct input *input);
static const char *name_below(const char *directory, const char *path);
static void path_shorten(const char *path, char *place);
static int inputs_write(FILE *out, struct walk *walk);
static int file_write(FILE *out, const struct mw_source_file *file);
static const char *text_next(const struct mw_text *texts, size_t *at);
static int input_match(const struct tree *tree, const char *text);
static bool overlap(const char *one, const char *other);

int mw_manifest_base(struct mw_key *base, struct mw_toolchain *toolchain,
                     const struct mw_options *options, const struct mw_compile_request *request)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    int error = mw_toolchain_stamp(toolchain, stamp);

    return error < 0 ? error : mw_manifest_base_at(base, toolchain, stamp, options, request);
}

int mw_manifest_base_at(struct mw_key *base, const struct mw_toolchain *toolchain,
                        const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                        const struct mw_options *options, const struct mw_compile_request *request)
{
    const char *const *dirs = mw_toolchain_dirs(toolchain, NULL);
    const struct mw_source_file *main = mw_request_main(request);
    struct mw_compile_request alone = *request;

    for (size_t i = 0; dirs[i]; i++) {
        if (overlap(dirs[i], request->directory))
            return -ENOTSUP;
    }
    alone.file_count = 1;
    if (main)
        alone.files = main;
    return mw_key_compute_as(base, BASE_SCHEME, toolchain, stamp, options, &alone);
}

int mw_manifest_make(const struct mw_compile_request *request, const struct mw_text *inputs,
                     const struct mw_key *key, struct mw_text *manifest)
{
    struct walk walk = {0};
    struct tree tree;
    FILE *out = NULL;
    int error = tree_init(&tree, request);

    *manifest = (struct mw_text){0};
    if (error < 0)
        return error;
    if ((error = walk_init(&walk, &tree, inputs)) < 0)
        goto out;
    out = open_memstream(&manifest->data, &manifest->bytes);
    if (!out) {
        error = -ENOMEM;
        goto out;
    }
    (void)fwrite(SCHEME, 1, sizeof SCHEME, out);
    (void)fwrite(key->text, 1, sizeof key->text, out);
    error = inputs_write(out, &walk);
    if (ferror(out) | (fclose(out) != 0))
        error = -ENOMEM;
out:
    free(walk.place);
    free(tree.files);
    if (error < 0) {
        free(manifest->data);
        *manifest = (struct mw_text){0};
    }
    return error;
}

int mw_manifest_match(const struct mw_text *manifest, const struct mw_compile_request *request,
                      struct mw_key *key)
{
    struct tree tree;
    const char *text;
    size_t at = 0;
    int matches = tree_init(&tree, request);

    if (matches < 0)
        return matches;
    text = text_next(manifest, &at);
    matches = text && strcmp(text, SCHEME) == 0 ? 1 : -EBADMSG;
    if (matches == 1) {
        text = text_next(manifest, &at);
        if (text && mw_key_valid(text, strlen(text)))
            memcpy(key->text, text, sizeof key->text);
        else
            matches = -EBADMSG;
    }
    while (matches == 1 && at < manifest->bytes) {
        text = text_next(manifest, &at);
        matches = text ? input_match(&tree, text) : -EBADMSG;
    }
    free(tree.files);
    return matches;
}

int mw_manifest_files_read(const struct mw_compile_request *request, const struct mw_text *inputs,
                           const struct mw_source_file ***files, size_t *count)
{
    struct walk walk = {0};
    struct input input;
    struct tree tree;
    bool *read = NULL;
    int more, error = tree_init(&tree, request);

    *files = NULL;
    *count = 0;
    if (error < 0)
        return error;
    read = calloc(request->file_count, sizeof(*read));
    error = read ? walk_init(&walk, &tree, inputs) : -ENOMEM;
    if (error < 0)
        goto out;
    while ((more = walk_next(&walk, &input)) == 1) {
        if (input.what == 'r')
            read[mw_request_files_place(tree.files, request->file_count, input.name)] = true;
    }
    error = more;
    for (size_t i = 0; error == 0 && i < request->file_count; i++) {
        if (read[i])
            tree.files[(*count)++] = tree.files[i];
    }
out:
    free(read);
    free(walk.place);
    if (error < 0)
        free(tree.files);
    else
        *files = tree.files;
    return error;
}

/* --- the request as a tree --- */

static int tree_init(struct tree *tree, const struct mw_compile_request *request)
{
    tree->request = request;
    return mw_request_files_sort(request, &tree->files);
}

static enum presence tree_look(const struct tree *tree, const char *name,
                               const struct mw_source_file **file)
{
    size_t place = mw_request_files_place(tree->files, tree->request->file_count, name);
    size_t bytes = strlen(name);

    *file = NULL;
    if (place == tree->request->file_count || strncmp(tree->files[place]->name, name, bytes) != 0)
        return ABSENT;
    if (tree->files[place]->name[bytes] == '/')
        return DIRECTORY_THERE;
    if (tree->files[place]->name[bytes] != '\0')
        return ABSENT;
    *file = tree->files[place];
    return FILE_THERE;
}

/* --- what the worker reported --- */

static int walk_init(struct walk *walk, const struct tree *tree, const struct mw_text *inputs)
{
    *walk = (struct walk){.tree = tree, .inputs = inputs};
    if (inputs->bytes == 0) /* not even the main file was read */
        return -EBADMSG;
    walk->place = malloc(inputs->bytes + 1);
    return walk->place ? 0 : -ENOMEM;
}

/* The next input of which a manifest speaks. Returns 1; 0 at the end; -E2BIG or -EBADMSG. */
static int walk_next(struct walk *walk, struct input *input)
{
    while (walk->at < walk->inputs->bytes) {
        const char *text = text_next(walk->inputs, &walk->at);
        int counts;

        if (!text || text[0] == '\0' || text[1] != '/')
            return -EBADMSG;
        if (++walk->seen > MW_MANIFEST_INPUTS_MAX)
            return -E2BIG;
        path_shorten(text + 1, walk->place);
        input->what = text[0];
        counts = judge(walk->tree, walk->place, input);
        if (counts != 0)
            return counts;
    }
    return 0;
}

/* Returns 1; 0: it is so for every request of this base; -EBADMSG: it cannot be. */
static int judge(const struct tree *tree, const char *place, struct input *input)
{
    const char *name = name_below(tree->request->directory, place);
    bool absent = input->what == 'a';

    if (!absent && input->what != 'd' && input->what != 'r')
        return -EBADMSG;
    if (!name) /* outside of the directory: nothing can be read there */
        return input->what == 'r' ? -EBADMSG : 0;
    if (name[0] == '\0') /* the directory itself */
        return input->what == 'd' ? 0 : -EBADMSG;
    input->name = name;
    input->presence = tree_look(tree, name, &input->file);
    if (absent != (input->presence == ABSENT))
        return -EBADMSG;
    if (input->what == 'r' && input->presence != FILE_THERE)
        return -EBADMSG;
    if (strlen(name) > MW_REQUEST_NAME_BYTES_MAX) /* no request can have it */
        return 0;
    return 1;
}

/* What comes behind `directory` in `path`; "" for itself; NULL: it is not below. */
static const char *name_below(const char *directory, const char *path)
{
    size_t bytes = strlen(directory);

    if (bytes == 1) /* "/" */
        return path + 1;
    if (strncmp(path, directory, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0'))
        return NULL;
    return path[bytes] == '/' ? path + bytes + 1 : path + bytes;
}

/* Take empty, "." and ".." parts out of an absolute path. */
static void path_shorten(const char *path, char *place)
{
    size_t used = 0;

    while (*path) {
        size_t bytes;

        path += strspn(path, "/");
        bytes = strcspn(path, "/");
        if (bytes == 2 && path[0] == '.' && path[1] == '.') {
            while (used > 0 && place[--used] != '/') {
            }
        } else if (bytes > 0 && !(bytes == 1 && path[0] == '.')) {
            place[used++] = '/';
            memcpy(place + used, path, bytes);
            used += bytes;
        }
        path += bytes;
    }
    if (used == 0)
        place[used++] = '/';
    place[used] = '\0';
}

/* --- the manifest's text --- */

static int inputs_write(FILE *out, struct walk *walk)
{
    bool main_read = false;
    struct input input;
    int error = 0, more;

    while (error == 0 && (more = walk_next(walk, &input)) != 0) {
        if (more < 0)
            return more;
        if (input.file)
            error = file_write(out, input.file);
        else
            (void)fprintf(out, "%c%s%c", input.presence == ABSENT ? 'a' : 'd', input.name, '\0');
        if (input.what == 'r' && strcmp(input.name, walk->tree->request->main) == 0)
            main_read = true;
    }
    if (error == 0 && !main_read)
        return -EBADMSG;
    return error;
}

static int file_write(FILE *out, const struct mw_source_file *file)
{
    char hash[MW_SHA256_TEXT_BYTES];
    int error = mw_sha256_text(hash, file->data, file->bytes);

    if (error == 0)
        (void)fprintf(out, "r%s%s%c", hash, file->name, '\0');
    return error;
}

/* The text at *at, which moves behind it; NULL: there is none that ends. */
static const char *text_next(const struct mw_text *texts, size_t *at)
{
    const char *text = texts->data + *at;
    const char *end = *at < texts->bytes ? memchr(text, '\0', texts->bytes - *at) : NULL;

    if (!end)
        return NULL;
    *at += (size_t)(end - text) + 1;
    return text;
}

/* Returns 1, 0, -EBADMSG or -ENOMEM. */
static int input_match(const struct tree *tree, const char *text)
{
    const struct mw_source_file *file;
    char hash[MW_SHA256_TEXT_BYTES];
    int error;

    switch (text[0]) {
    case 'a':
        return tree_look(tree, text + 1, &file) == ABSENT;
    case 'd':
        return tree_look(tree, text + 1, &file) == DIRECTORY_THERE;
    case 'r':
        if (strlen(text) <= 1 + HASH_DIGITS)
            return -EBADMSG;
        if (tree_look(tree, text + 1 + HASH_DIGITS, &file) != FILE_THERE)
            return 0;
        error = mw_sha256_text(hash, file->data, file->bytes);
        return error < 0 ? error : memcmp(text + 1, hash, HASH_DIGITS) == 0;
    default:
        return -EBADMSG;
    }
}

/* Whether one of two directories lies in the other. */
static bool overlap(const char *one, const char *other)
{
    return name_below(one, other) || name_below(other, one);
}

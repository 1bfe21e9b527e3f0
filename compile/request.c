#include <millwright/request.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request_internal.h"

static int check_extras(const struct mw_compile_request *request, struct mw_refusal *refusal);
static int check_directory(const struct mw_compile_request *request, struct mw_refusal *refusal);
static int check_files(const struct mw_compile_request *request, struct mw_refusal *refusal);
static int check_file(const struct mw_compile_request *request, size_t index,
                      struct mw_refusal *refusal);
static int check_names_apart(const struct mw_compile_request *request, struct mw_refusal *refusal);
static int check_main(const struct mw_compile_request *request, struct mw_refusal *refusal);
static int check_args(const char *field, const char *const *args, size_t count, size_t max,
                      struct mw_refusal *refusal);
static const char *path_fault(const char *path);
static const char *part_fault(const char *part, size_t bytes, bool dots_fine);
static int order_by_name(const void *a, const void *b);
static int names_compare(const char *left, const char *right);
static unsigned order_of(char c);

static const struct {
    const char *name, *suffix;
} emit_kinds[MW_EMIT_KINDS] = {
    [MW_EMIT_OBJECT] = {"object", ".o"},    [MW_EMIT_ASM] = {"asm", ".s"},
    [MW_EMIT_LLVM_IR] = {"llvm-ir", ".ll"}, [MW_EMIT_BITCODE] = {"bitcode", ".bc"},
    [MW_EMIT_NONE] = {"none", ""},          [MW_EMIT_PREPROCESSED] = {"preprocessed", ".i"},
    [MW_EMIT_AST] = {"ast", ".ast"},        [MW_EMIT_AST_JSON] = {"ast-json", ".json"},
};

static const char *const extra_names[MW_EXTRAS] = {
    [MW_EXTRA_DEPENDENCIES] = "dependencies",
    [MW_EXTRA_REMARKS] = "remarks",
    [MW_EXTRA_TIME_TRACE] = "time-trace",
    [MW_EXTRA_LINE_MAP] = "line-map",
};

static const struct {
    const char *name, *main_name;
} languages[] = {
    [MW_LANGUAGE_AUTO] = {NULL, "main.c"},
    [MW_LANGUAGE_C] = {"c", "main.c"},
    [MW_LANGUAGE_CXX] = {"c++", "main.cc"},
};
#define LANGUAGES (sizeof languages / sizeof languages[0])

int mw_request_check(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    int error = 0;

    if ((unsigned)request->language >= LANGUAGES)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "language",
                         "is no language of ours; give \"c\" or \"c++\"");
    if ((unsigned)request->emit >= MW_EMIT_KINDS)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "emit",
                         "is no kind of output; give object, asm, llvm-ir, bitcode, preprocessed, "
                         "ast, ast-json or none");
    if ((error = check_extras(request, refusal)) < 0)
        return error;
    if ((error = check_directory(request, refusal)) < 0 ||
        (error = check_files(request, refusal)) < 0 || (error = check_main(request, refusal)) < 0)
        return error;
    error = check_args("packages", request->package_args, request->package_arg_count,
                       MW_REQUEST_PACKAGE_ARGS_MAX, refusal);
    if (error < 0)
        return error;
    return check_args("args", request->args, request->arg_count, MW_REQUEST_ARGS_MAX, refusal);
}

const struct mw_source_file *mw_request_main(const struct mw_compile_request *request)
{
    for (size_t i = 0; i < request->file_count; i++)
        if (strcmp(request->files[i].name, request->main) == 0)
            return &request->files[i];
    return NULL;
}

const char *mw_emit_kind_name(enum mw_emit_kind kind)
{
    return (unsigned)kind < MW_EMIT_KINDS ? emit_kinds[kind].name : "unknown";
}

const char *mw_emit_kind_suffix(enum mw_emit_kind kind)
{
    return (unsigned)kind < MW_EMIT_KINDS ? emit_kinds[kind].suffix : "";
}

int mw_emit_kind_parse(const char *name, enum mw_emit_kind *kind)
{
    for (unsigned i = 0; i < MW_EMIT_KINDS; i++) {
        if (strcmp(name, emit_kinds[i].name) == 0) {
            *kind = (enum mw_emit_kind)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *mw_extra_name(enum mw_extra extra)
{
    return (unsigned)extra < MW_EXTRAS ? extra_names[extra] : "unknown";
}

int mw_extra_parse(const char *name, enum mw_extra *extra)
{
    for (unsigned i = 0; i < MW_EXTRAS; i++) {
        if (strcmp(name, extra_names[i]) == 0) {
            *extra = (enum mw_extra)i;
            return 0;
        }
    }
    return -EINVAL;
}

int mw_language_parse(const char *name, enum mw_language *language)
{
    for (unsigned i = MW_LANGUAGE_C; i < LANGUAGES; i++) {
        if (strcmp(name, languages[i].name) == 0) {
            *language = (enum mw_language)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *mw_language_main_name(enum mw_language language)
{
    return (unsigned)language < LANGUAGES ? languages[language].main_name : "main.c";
}

int mw_request_files_sort(const struct mw_compile_request *request,
                          const struct mw_source_file ***out)
{
    const struct mw_source_file **files = malloc((request->file_count + 1) * sizeof(*files));

    if (!files)
        return -ENOMEM;
    for (size_t i = 0; i < request->file_count; i++)
        files[i] = &request->files[i];
    qsort(files, request->file_count, sizeof(*files), order_by_name);
    *out = files;
    return 0;
}

size_t mw_request_files_place(const struct mw_source_file *const *files, size_t count,
                              const char *name)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (names_compare(files[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int check_extras(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    if (request->extras >= 1u << MW_EXTRAS)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "also",
                         "holds what we cannot tell; give dependencies, remarks, time-trace or "
                         "line-map");
    if (request->extras & 1u << MW_EXTRA_LINE_MAP && request->emit != MW_EMIT_ASM)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "also",
                         "line-map is of assembly; ask for \"emit\": \"asm\"");
    return 0;
}

static int check_directory(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    const char *directory = request->directory;
    const char *fault;

    if (!directory || directory[0] != '/')
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "directory",
                         "is not absolute; give a path such as %s", MW_REQUEST_DIRECTORY_DEFAULT);
    if (strlen(directory) > MW_REQUEST_DIRECTORY_BYTES_MAX)
        return mw_refuse(refusal, MW_REFUSAL_SIZE, "directory",
                         "is longer than %u bytes; give a shorter path",
                         MW_REQUEST_DIRECTORY_BYTES_MAX);
    fault = directory[1] == '\0' ? NULL : path_fault(directory + 1);
    if (fault)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "directory",
                         "%s: '%.80s'; give an absolute path in its shortest form", fault,
                         directory);
    return 0;
}

static int check_files(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    size_t bytes_left = MW_REQUEST_SOURCE_BYTES_MAX;

    if (request->file_count == 0 || !request->files)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "files", "is empty; give at least one file");
    if (request->file_count > MW_REQUEST_FILES_MAX)
        return mw_refuse(refusal, MW_REFUSAL_SIZE, "files",
                         "has %zu entries and at most %u are taken; send fewer files",
                         request->file_count, MW_REQUEST_FILES_MAX);
    for (size_t i = 0; i < request->file_count; i++) {
        int error = check_file(request, i, refusal);

        if (error < 0)
            return error;
        if (request->files[i].bytes > bytes_left)
            return mw_refuse(refusal, MW_REFUSAL_SIZE, "files",
                             "have more than %u bytes together; send less source",
                             MW_REQUEST_SOURCE_BYTES_MAX);
        bytes_left -= request->files[i].bytes;
    }
    return check_names_apart(request, refusal);
}

static int check_file(const struct mw_compile_request *request, size_t index,
                      struct mw_refusal *refusal)
{
    const struct mw_source_file *file = &request->files[index];
    const char *fault;
    char field[64];

    (void)snprintf(field, sizeof field, "files[%zu].name", index);
    if (!file->name)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, field, "is missing; give the file's name");
    if (strlen(file->name) > MW_REQUEST_NAME_BYTES_MAX)
        return mw_refuse(refusal, MW_REFUSAL_SIZE, field,
                         "is longer than %u bytes: '%.40s...'; give a shorter name",
                         MW_REQUEST_NAME_BYTES_MAX, file->name);
    if (request->read_disk) /* a user's own files may lie anywhere */
        fault = part_fault(file->name, strlen(file->name), true);
    else
        fault = file->name[0] == '/' ? "is absolute" : path_fault(file->name);
    if (fault)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, field,
                         "%s: '%.80s'; give a name below \"directory\", such as src/a.c", fault,
                         file->name);
    if (!file->data && file->bytes > 0) {
        (void)snprintf(field, sizeof field, "files[%zu].content", index);
        return mw_refuse(refusal, MW_REFUSAL_FIELD, field,
                         "of '%.80s' is missing; give the file's text", file->name);
    }
    return 0;
}

/* In a file system no two files share a name, and a file is no directory. Sorted, each of the two
 * faults stands between neighbours: see mw_request_files_sort for why. */
static int check_names_apart(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    const struct mw_source_file **sorted = NULL;
    int error = mw_request_files_sort(request, &sorted);

    for (size_t i = 1; error == 0 && i < request->file_count; i++) {
        const char *first = sorted[i - 1]->name, *second = sorted[i]->name;
        size_t first_bytes = strlen(first);
        char field[64];

        if (strncmp(first, second, first_bytes) != 0)
            continue;
        (void)snprintf(field, sizeof field, "files[%zu].name",
                       (size_t)(sorted[i] - request->files));
        if (second[first_bytes] == '\0')
            error = mw_refuse(refusal, MW_REFUSAL_FIELD, field,
                              "is given twice: '%.80s'; send each file once", second);
        else if (second[first_bytes] == '/')
            error = mw_refuse(refusal, MW_REFUSAL_FIELD, field,
                              "lies below another file: '%.60s' and '%.60s'; rename one of them",
                              second, first);
    }
    free(sorted);
    return error;
}

static int check_main(const struct mw_compile_request *request, struct mw_refusal *refusal)
{
    const char *name = request->main;

    if (!name || name[0] == '\0')
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "main",
                         "is missing; name the one of \"files\" that is to be compiled");
    /* It is handed to the compiler driver as the input, which takes these for something else. */
    if (name[0] == '-' || name[0] == '@')
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "main",
                         "begins with '%c', as a flag would: '%.80s'; rename the file", name[0],
                         name);
    for (size_t i = 0; i < request->file_count; i++) {
        if (strcmp(name, request->files[i].name) == 0)
            return 0;
    }
    return mw_refuse(refusal, MW_REFUSAL_FIELD, "main",
                     "is none of \"files\": '%.80s'; give the name of one of them", name);
}

static int check_args(const char *field, const char *const *args, size_t count, size_t max,
                      struct mw_refusal *refusal)
{
    if (count > max)
        return mw_refuse(refusal, MW_REFUSAL_SIZE, field,
                         "has %zu entries and at most %zu are taken; send fewer flags", count, max);
    for (size_t i = 0; i < count; i++) {
        const char *arg = args ? args[i] : NULL;
        char entry[64];

        (void)snprintf(entry, sizeof entry, "%s[%zu]", field, i);
        if (!arg || arg[0] == '\0')
            return mw_refuse(refusal, MW_REFUSAL_FIELD, entry, "is empty; leave it out");
        if (strlen(arg) > MW_REQUEST_ARG_BYTES_MAX)
            return mw_refuse(refusal, MW_REFUSAL_SIZE, entry,
                             "is longer than %u bytes: '%.40s...'; put it into a file of the "
                             "request",
                             MW_REQUEST_ARG_BYTES_MAX, arg);
    }
    return 0;
}

/* What is wrong with a relative path, or NULL. */
static const char *path_fault(const char *path)
{
    for (;;) {
        size_t bytes = strcspn(path, "/");
        const char *fault = part_fault(path, bytes, false);

        if (fault || path[bytes] == '\0')
            return fault;
        path += bytes + 1;
    }
}

static const char *part_fault(const char *part, size_t bytes, bool dots_fine)
{
    if (bytes == 0)
        return "has an empty part";
    if (!dots_fine && bytes == 1 && part[0] == '.')
        return "has a '.' part";
    if (!dots_fine && bytes == 2 && part[0] == '.' && part[1] == '.')
        return "has a '..' part";
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)part[i];

        if (c < 0x20 || c == 0x7f)
            return "has a control character";
    }
    return NULL;
}

static int order_by_name(const void *a, const void *b)
{
    return names_compare((*(const struct mw_source_file *const *)a)->name,
                         (*(const struct mw_source_file *const *)b)->name);
}

static int names_compare(const char *left, const char *right)
{
    while (*left == *right && *left != '\0') {
        left++;
        right++;
    }
    return order_of(*left) < order_of(*right) ? -1 : order_of(*left) > order_of(*right);
}

/* '/' comes right after the end of a name: otherwise "a.c" would part "a" from "a/b". */
static unsigned order_of(char c)
{
    return c == '/' ? 1 : c == '\0' ? 0 : (unsigned char)c + 1u;
}

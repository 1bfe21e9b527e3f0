#include "sources.h"

#include <errno.h>
#include <jansson.h>
#include <millwright/manifest.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"

static bool makes_debug_information(const struct mw_options *options);
static int files_hash(struct mw_debug_sources *sources, const struct mw_source_file **files,
                      size_t count);
static json_t *source_json(const char *name, const struct mw_store_source *source);
static void drop_doubles(struct mw_debug_sources *sources);
static int order_by_hash(const void *a, const void *b);

int mw_debug_sources_collect(struct mw_debug_sources *sources, const struct mw_options *options,
                             const struct mw_compile_request *request, const struct mw_text *inputs)
{
    const struct mw_source_file **files;
    size_t count;
    *sources = (struct mw_debug_sources){0};
    if (!makes_debug_information(options))
        return 0;
    int error = mw_manifest_files_read(request, inputs, &files, &count);
    if (error < 0 || count == 0)
        return error == -ENOMEM ? error : 0;
    error = files_hash(sources, files, count);
    free(files);
    if (error < 0)
        mw_debug_sources_fini(sources);
    return error;
}

void mw_debug_sources_fini(struct mw_debug_sources *sources)
{
    free(sources->list);
    free(sources->json);
    *sources = (struct mw_debug_sources){0};
}

/* The last flag that says whether there is any decides. */
static bool makes_debug_information(const struct mw_options *options)
{
    static const char *const without[] = {"-g0", "-ggdb0", "-gline-directives-only"};
    static const char *const neither[] = {"-gcolumn-info", "-gno-column-info", "-gstrict-dwarf",
                                          "-gno-strict-dwarf"};
    enum mw_emit_kind kind = mw_options_emit(options);
    bool makes = false;
    size_t count;
    const char *const *args = mw_options_args(options, &count);
    if (kind != MW_EMIT_OBJECT && kind != MW_EMIT_ASM && kind != MW_EMIT_LLVM_IR &&
        kind != MW_EMIT_BITCODE)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(args[i], "-g", 2) != 0)
            continue;
        bool off = false, silent = false;
        for (size_t j = 0; j < sizeof without / sizeof without[0]; j++)
            off |= strcmp(args[i], without[j]) == 0;
        for (size_t j = 0; j < sizeof neither / sizeof neither[0]; j++)
            silent |= strcmp(args[i], neither[j]) == 0;
        if (!silent)
            makes = !off;
    }
    return makes;
}

static int files_hash(struct mw_debug_sources *sources, const struct mw_source_file **files,
                      size_t count)
{
    json_t *list = json_array();
    int error = 0;
    sources->list = calloc(count, sizeof *sources->list);
    sources->count = count;
    if (!list || !sources->list)
        error = -ENOMEM;
    for (size_t i = 0; !error && i < count; i++) {
        struct mw_store_source *source = &sources->list[i];
        source->data = files[i]->data;
        source->bytes = files[i]->bytes;
        error = mw_sha256_text(source->sha256, source->data, source->bytes);
        if (!error)
            error = mw_md5_text(source->md5, source->data, source->bytes);
        if (!error && json_array_append_new(list, source_json(files[i]->name, source)) != 0)
            error = -ENOMEM;
    }
    if (error) {
        json_decref(list);
        return error;
    }
    sources->json = mw_json_text(list, MW_JSON_COMPACT);
    drop_doubles(sources);
    return sources->json ? 0 : -ENOMEM;
}

static json_t *source_json(const char *name, const struct mw_store_source *source)
{
    char url[MW_SHA256_TEXT_BYTES + 16];
    snprintf(url, sizeof url, "/v1/sources/%s", source->sha256);
    return json_pack("{s:s, s:s, s:s, s:s}", "name", name, "sha256", source->sha256, "md5",
                     source->md5, "url", url);
}

static void drop_doubles(struct mw_debug_sources *sources)
{
    size_t kept = 0;
    qsort(sources->list, sources->count, sizeof *sources->list, order_by_hash);
    for (size_t i = 0; i < sources->count; i++)
        if (kept == 0 || strcmp(sources->list[kept - 1].sha256, sources->list[i].sha256) != 0)
            sources->list[kept++] = sources->list[i];
    sources->count = kept;
}

static int order_by_hash(const void *a, const void *b)
{
    const struct mw_store_source *left = a, *right = b;
    return strcmp(left->sha256, right->sha256);
}

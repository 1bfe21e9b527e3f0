/* diagnose.c - see diagnose.h.
 *
 * libclang takes no file system, so its view is made of real files: the request's are written to
 * a private folder, and an overlay description maps their places to them, lets the readable
 * directories through, and hides the rest. The working directory goes to the frontend alone
 * (-Xclang): given to the driver it would change the directory of the whole process.
 *
 * Where no folder can be made, as in a sandbox, the frontend of the code generator is asked
 * instead: it takes its files from memory, and it says the same. */
#include "diagnose.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <clang-c/Index.h>

#include <millwright/emit.h>

#include "guard_internal.h"

/* Notes to notes come out as notes; no deeper than this. */
#define NOTE_DEPTH_MAX 4

struct overlay {
    char folder[PATH_MAX / 2]; /* "" until it is made */
    char description[PATH_MAX];
    size_t written; /* how many of the request's files are in the folder */
};

struct arguments {
    const char **items;
    size_t count;
};

static int overlay_init(struct overlay *overlay, const struct mw_toolchain *toolchain,
                        const struct mw_compile_request *request);
static void overlay_fini(struct overlay *overlay);
static int arguments_init(struct arguments *arguments, const struct mw_toolchain *toolchain,
                          const struct mw_options *options,
                          const struct mw_compile_request *request, const struct overlay *overlay,
                          bool errors_only);
static int parse(const struct arguments *arguments, bool errors_only, struct mw_diagnostics *list);
static int parse_in_memory(const struct mw_toolchain *toolchain,
                           const struct mw_compile_request *request, bool errors_only,
                           struct mw_diagnostics *list);
static int diagnostic_take(CXTranslationUnit unit, CXDiagnostic diagnostic, int depth,
                           struct mw_diagnostics *list);

int mw_diagnose(const struct mw_toolchain *toolchain, const struct mw_options *options,
                const struct mw_compile_request *request, bool errors_only,
                struct mw_diagnostics *list)
{
    struct overlay overlay = {0};
    struct arguments arguments = {0};
    int rc = overlay_init(&overlay, toolchain, request);

    if (rc == 0)
        rc = arguments_init(&arguments, toolchain, options, request, &overlay, errors_only);
    if (rc == 0)
        rc = parse(&arguments, errors_only, list);
    else if (rc == -EIO)
        rc = parse_in_memory(toolchain, request, errors_only, list);
    free(arguments.items);
    overlay_fini(&overlay);
    return rc;
}

/* ---- the two ways to parse ---- */

static int parse(const struct arguments *arguments, bool errors_only, struct mw_diagnostics *list)
{
    CXIndex index = clang_createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    enum CXErrorCode error = CXError_Failure;
    uint64_t heap_bytes = mw_guard_heap_bytes();
    int rc = 0;

    if (index)
        error = clang_parseTranslationUnit2FullArgv(index, NULL, arguments->items,
                                                    (int)arguments->count, NULL, 0,
                                                    CXTranslationUnit_None, &unit);
    if (error == CXError_Crashed)
        mw_guard_note_loss(heap_bytes, true);
    if (error != CXError_Success)
        rc = -EIO;
    for (unsigned i = 0; rc == 0 && i < clang_getNumDiagnostics(unit); i++) {
        CXDiagnostic diagnostic = clang_getDiagnostic(unit, i);

        if (!errors_only || clang_getDiagnosticSeverity(diagnostic) >= CXDiagnostic_Error)
            rc = diagnostic_take(unit, diagnostic, 0, list);
        clang_disposeDiagnostic(diagnostic);
    }
    if (unit)
        clang_disposeTranslationUnit(unit);
    if (index)
        clang_disposeIndex(index);
    return rc;
}

static int copy(const struct mw_diagnostic *from, struct mw_diagnostics *list)
{
    int rc = mw_diagnostics_add(list, from);

    for (size_t i = 0; rc == 0 && i < from->note_count; i++)
        rc = mw_diagnostics_add(list, &from->notes[i]);
    return rc;
}

static int parse_in_memory(const struct mw_toolchain *toolchain,
                           const struct mw_compile_request *request, bool errors_only,
                           struct mw_diagnostics *list)
{
    struct mw_compile_request check = *request;
    struct mw_compile_result result = {0};
    struct mw_options *options = NULL;
    struct mw_refusal refusal = {0};
    int rc;

    check.emit = MW_EMIT_NONE;
    rc = mw_options_new(&options, &check, &refusal);
    if (rc)
        return rc == -ENOMEM ? rc : -EIO; /* they were made of this request before */
    rc = mw_emit(toolchain, options, &check, &result);
    for (size_t i = 0; rc == 0 && i < result.diagnostics.count; i++)
        if (!errors_only || result.diagnostics.items[i].severity >= MW_SEVERITY_ERROR)
            rc = copy(&result.diagnostics.items[i], list);
    mw_compile_result_fini(&result);
    mw_options_free(options);
    return rc;
}

/* ---- libclang's arguments ---- */

static int arguments_init(struct arguments *arguments, const struct mw_toolchain *toolchain,
                          const struct mw_options *options,
                          const struct mw_compile_request *request, const struct overlay *overlay,
                          bool errors_only)
{
    size_t option_count, n = 0;
    const char *const *option_args = mw_options_args(options, &option_count);
    const char **items = calloc(option_count + 12, sizeof(items[0]));

    if (!items)
        return -ENOMEM;
    items[n++] = mw_toolchain_clang_path(toolchain);
    items[n++] = "--no-default-config";
    for (size_t i = 0; i < option_count; i++)
        items[n++] = option_args[i];
    if (errors_only)
        items[n++] = "-w";
    items[n++] = "-ivfsoverlay";
    items[n++] = overlay->description;
    items[n++] = "-Xclang";
    items[n++] = "-working-directory";
    items[n++] = "-Xclang";
    items[n++] = request->directory;
    items[n++] = "-Xclang";
    items[n++] = "-disable-pragma-debug-crash";
    items[n++] = request->main;
    arguments->items = items;
    arguments->count = n;
    return 0;
}

/* ---- the view of the file system ---- */

static int file_write(const char *path, const char *data, size_t bytes)
{
    FILE *out = fopen(path, "wxe");
    bool ok;

    if (!out)
        return -EIO;
    ok = bytes == 0 || fwrite(data, 1, bytes, out) == bytes;
    ok = fclose(out) == 0 && ok;
    return ok ? 0 : -EIO;
}

/* Write `text` as the inside of a quoted JSON string. */
static void quote(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

static int description_write(const struct overlay *overlay, const struct mw_toolchain *toolchain,
                             const struct mw_compile_request *request)
{
    size_t dir_count;
    const char *const *dirs = mw_toolchain_dirs(toolchain, &dir_count);
    FILE *out = fopen(overlay->description, "wxe");
    bool ok;

    if (!out)
        return -EIO;
    fprintf(out,
            "{\"version\":0,\"case-sensitive\":\"true\",\"use-external-names\":\"false\","
            "\"redirecting-with\":\"%s\",\"roots\":[\n",
            request->read_disk ? "fallthrough" : "redirect-only");
    for (size_t i = 0; i < request->file_count; i++) {
        fputs("{\"type\":\"file\",\"name\":\"", out);
        quote(out, request->directory);
        if (request->directory[1]) /* not the root */
            fputc('/', out);
        quote(out, request->files[i].name);
        fputs("\",\"external-contents\":\"", out);
        quote(out, overlay->folder);
        fprintf(out, "/%zu\"},\n", i);
    }
    for (size_t i = 0; i < dir_count && !request->read_disk; i++) {
        fputs("{\"type\":\"directory-remap\",\"name\":\"", out);
        quote(out, dirs[i]);
        fputs("\",\"external-contents\":\"", out);
        quote(out, dirs[i]);
        fputs("\"},\n", out);
    }
    fputs("]}\n", out);
    ok = !ferror(out);
    ok = fclose(out) == 0 && ok;
    return ok ? 0 : -EIO;
}

static void file_path(char path[PATH_MAX], const struct overlay *overlay, size_t index)
{
    snprintf(path, PATH_MAX, "%s/%zu", overlay->folder, index);
}

static int overlay_init(struct overlay *overlay, const struct mw_toolchain *toolchain,
                        const struct mw_compile_request *request)
{
    const char *parent = getenv("TMPDIR");
    char path[PATH_MAX];
    int rc = 0;
    int length = snprintf(overlay->folder, sizeof(overlay->folder), "%s/millwright-XXXXXX",
                          parent && *parent == '/' ? parent : "/tmp");

    if (length < 0 || (size_t)length >= sizeof(overlay->folder) || !mkdtemp(overlay->folder)) {
        overlay->folder[0] = '\0';
        return -EIO;
    }
    snprintf(overlay->description, sizeof(overlay->description), "%s/overlay", overlay->folder);
    for (size_t i = 0; rc == 0 && i < request->file_count; i++) {
        file_path(path, overlay, i);
        overlay->written = i + 1;
        rc = file_write(path, request->files[i].data, request->files[i].bytes);
    }
    return rc ? rc : description_write(overlay, toolchain, request);
}

static void overlay_fini(struct overlay *overlay)
{
    char path[PATH_MAX];

    if (!overlay->folder[0])
        return;
    for (size_t i = 0; i < overlay->written; i++) {
        file_path(path, overlay, i);
        unlink(path);
    }
    unlink(overlay->description);
    rmdir(overlay->folder);
}

/* ---- diagnostics ---- */

static enum mw_severity severity_of(enum CXDiagnosticSeverity severity)
{
    switch (severity) {
    case CXDiagnostic_Fatal:
        return MW_SEVERITY_FATAL;
    case CXDiagnostic_Error:
        return MW_SEVERITY_ERROR;
    case CXDiagnostic_Warning:
        return MW_SEVERITY_WARNING;
    default:
        return MW_SEVERITY_NOTE;
    }
}

/* Where `location` stands in its file, as #line has it. Returns the file, or NULL. */
static CXFile place_of(CXTranslationUnit unit, CXSourceLocation location, struct mw_place *place,
                       CXString *name)
{
    CXFile file = NULL;
    unsigned line, column, offset;
    CXString presumed;

    clang_getFileLocation(location, &file, &line, &column, &offset);
    if (!file)
        return NULL;
    clang_getPresumedLocation(clang_getLocationForOffset(unit, file, offset), &presumed, &line,
                              &column);
    *place = (struct mw_place){line, column, offset};
    if (name)
        *name = presumed;
    else
        clang_disposeString(presumed);
    return file;
}

static bool span_of(CXTranslationUnit unit, CXSourceRange range, CXFile file,
                    struct mw_place *begin, struct mw_place *end)
{
    CXFile first = place_of(unit, clang_getRangeStart(range), begin, NULL);
    CXFile last = place_of(unit, clang_getRangeEnd(range), end, NULL);

    return first && last && clang_File_isEqual(first, file) && clang_File_isEqual(last, file) &&
           begin->byte_offset <= end->byte_offset;
}

/* The smallest stretch of the file that covers every range. */
static void ranges_take(CXTranslationUnit unit, CXDiagnostic diagnostic, CXFile file,
                        struct mw_diagnostic *out)
{
    struct mw_place begin, end;
    bool first = true;

    out->begin = out->end = out->at;
    for (unsigned i = 0; i < clang_getDiagnosticNumRanges(diagnostic); i++) {
        if (!span_of(unit, clang_getDiagnosticRange(diagnostic, i), file, &begin, &end))
            continue;
        if (first || begin.byte_offset < out->begin.byte_offset)
            out->begin = begin;
        if (first || end.byte_offset > out->end.byte_offset)
            out->end = end;
        first = false;
    }
}

/* The line of `file` that holds `offset`; allocated, NULL without memory. */
static char *line_take(CXTranslationUnit unit, CXFile file, size_t offset)
{
    size_t bytes = 0;
    const char *text = file ? clang_getFileContents(unit, file, &bytes) : NULL;
    size_t begin = offset;
    size_t end = offset;

    if (!text || offset > bytes)
        return strdup("");
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    while (end < bytes && end - begin <= MW_DIAGNOSTIC_TEXT_BYTES_MAX && text[end] != '\n' &&
           text[end] != '\r')
        end++;
    return strndup(text + begin, end - begin);
}

/* Add `out` with the fix-its, which are there for the time of the call, to `list`. */
static int deliver(CXTranslationUnit unit, CXDiagnostic diagnostic, CXFile file,
                   struct mw_diagnostic *out, struct mw_diagnostics *list)
{
    struct mw_fixit fixits[MW_DIAGNOSTIC_FIXITS_MAX];
    CXString texts[MW_DIAGNOSTIC_FIXITS_MAX];
    unsigned count = clang_getDiagnosticNumFixIts(diagnostic);
    unsigned taken = 0;
    bool whole = count <= MW_DIAGNOSTIC_FIXITS_MAX;
    int rc;

    for (; whole && taken < count; taken++) {
        CXSourceRange range;
        struct mw_fixit *fixit = &fixits[taken];

        texts[taken] = clang_getDiagnosticFixIt(diagnostic, taken, &range);
        fixit->file = out->file;
        fixit->text = clang_getCString(texts[taken]);
        whole = file && span_of(unit, range, file, &fixit->begin, &fixit->end);
    }
    out->fixits = fixits;
    out->fixit_count = whole ? taken : 0; /* a part of a fix may not be applied */
    rc = mw_diagnostics_add(list, out);
    out->fixits = NULL;
    out->fixit_count = 0;
    while (taken > 0)
        clang_disposeString(texts[--taken]);
    return rc;
}

static int children_take(CXTranslationUnit unit, CXDiagnostic diagnostic, int depth,
                         struct mw_diagnostics *list)
{
    CXDiagnosticSet children = clang_getChildDiagnostics(diagnostic); /* not to be disposed of */
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < clang_getNumDiagnosticsInSet(children); i++)
        rc = diagnostic_take(unit, clang_getDiagnosticInSet(children, i), depth + 1, list);
    return rc;
}

static int diagnostic_take(CXTranslationUnit unit, CXDiagnostic diagnostic, int depth,
                           struct mw_diagnostics *list)
{
    static const char included[] = "in file included from ";
    CXString name = {0};
    CXString message = clang_getDiagnosticSpelling(diagnostic);
    CXString flag = clang_getDiagnosticOption(diagnostic, NULL);
    CXString category = clang_getDiagnosticCategoryText(diagnostic);
    struct mw_diagnostic out = {
        .severity = depth ? MW_SEVERITY_NOTE : severity_of(clang_getDiagnosticSeverity(diagnostic)),
        .message = clang_getCString(message),
        .flag = depth ? "" : clang_getCString(flag),
        .category = depth ? "" : clang_getCString(category),
    };
    CXFile file = place_of(unit, clang_getDiagnosticLocation(diagnostic), &out.at, &name);
    char *line = line_take(unit, file, out.at.byte_offset);
    int rc = -ENOMEM;

    if (!line)
        goto out;
    out.file = file ? clang_getCString(name) : "";
    out.line_text = line;
    if (depth && out.message && strncmp(out.message, included, sizeof(included) - 1) == 0)
        out.message = MW_DIAGNOSTIC_INCLUDED_HERE;
    if (file)
        ranges_take(unit, diagnostic, file, &out);
    rc = deliver(unit, diagnostic, file, &out, list);
    if (rc == 0 && depth < NOTE_DEPTH_MAX)
        rc = children_take(unit, diagnostic, depth, list);
out:
    free(line);
    if (file)
        clang_disposeString(name);
    clang_disposeString(category);
    clang_disposeString(flag);
    clang_disposeString(message);
    return rc;
}

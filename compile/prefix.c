/* prefix.c - see prefix.h.
 *
 * What ends a prefix beside any other token: a backslash or a trigraph that joins lines, a comment
 * in a comment (a warning), a NUL or another end of file, a carriage return alone. */
#include "prefix.h"

#include <stdio.h>
#include <string.h>

struct scan {
    const char *at, *end;
    bool line_comments; /* there was one */
};

static bool space_skip(struct scan *scan, bool lines);
static bool include_take(struct scan *scan, const char **name, size_t *bytes);
static bool line_end_take(struct scan *scan);

void mw_prefix_scan(struct mw_prefix *prefix, const char *data, size_t bytes)
{
    struct scan scan = {.at = data};
    const char *name;
    size_t name_bytes;

    prefix->covers_bytes = prefix->text_bytes = 0;
    prefix->headers = 0;
    prefix->has_line_comments = false;
    if (bytes == 0) /* then there may be no text at all */
        return;
    scan.end = data + (bytes < MW_PREFIX_LOOK_BYTES ? bytes : MW_PREFIX_LOOK_BYTES);
    while (prefix->headers < MW_PREAMBLE_HEADERS_MAX && space_skip(&scan, true) &&
           include_take(&scan, &name, &name_bytes) && line_end_take(&scan)) {
        prefix->text_bytes += (size_t)sprintf(prefix->text + prefix->text_bytes,
                                              "#include <%.*s>\n", (int)name_bytes, name);
        prefix->headers++;
        prefix->covers_bytes = (size_t)(scan.at - data);
        prefix->has_line_comments = scan.line_comments;
    }
}

/* The next byte, or a NUL: at the end, and where there is one. */
static char peek(const struct scan *scan, size_t ahead)
{
    return (size_t)(scan->end - scan->at) > ahead ? scan->at[ahead] : '\0';
}

static bool starts(const struct scan *scan, const char *text)
{
    size_t bytes = strlen(text);

    return (size_t)(scan->end - scan->at) >= bytes && memcmp(scan->at, text, bytes) == 0;
}

static bool newline_take(struct scan *scan)
{
    size_t bytes = starts(scan, "\n") ? 1 : starts(scan, "\r\n") ? 2 : 0;

    scan->at += bytes;
    return bytes > 0;
}

/* No compiler takes these for part of a line. */
static bool ends_text(const struct scan *scan)
{
    char c = peek(scan, 0);

    return c == '\0' || c == '\x1a' || (c == '\r' && peek(scan, 1) != '\n');
}

/* A backslash at the end of its line, also with blanks behind it. */
static bool joins_lines(const struct scan *scan)
{
    size_t ahead = 1;

    if (starts(scan, "?\?/"))
        return true;
    if (peek(scan, 0) != '\\')
        return false;
    while (peek(scan, ahead) != '\0' && strchr(" \t\f\v", peek(scan, ahead)))
        ahead++;
    return peek(scan, ahead) == '\n' || peek(scan, ahead) == '\r';
}

/* From behind the slashes to the end of the line. */
static bool line_comment_skip(struct scan *scan)
{
    scan->line_comments = true;
    while (!ends_text(scan) && !joins_lines(scan)) {
        if (peek(scan, 0) == '\n' || peek(scan, 0) == '\r')
            return true;
        scan->at++;
    }
    return false;
}

/* From behind the opening to behind the end. */
static bool block_comment_skip(struct scan *scan)
{
    while (!ends_text(scan)) {
        if (starts(scan, "*/")) {
            scan->at += 2;
            return true;
        }
        if (starts(scan, "/*") || starts(scan, "*\\") || starts(scan, "*?\?/"))
            return false;
        scan->at++;
    }
    return false;
}

/* Skip blanks and comments, and with `lines` ends of lines too. False: something is not sound. */
static bool space_skip(struct scan *scan, bool lines)
{
    for (;;) {
        if (peek(scan, 0) == ' ' || peek(scan, 0) == '\t') {
            scan->at++;
        } else if (starts(scan, "//")) {
            scan->at += 2;
            if (!line_comment_skip(scan))
                return false;
        } else if (starts(scan, "/*")) {
            scan->at += 2;
            if (!block_comment_skip(scan))
                return false;
        } else if (!lines || !newline_take(scan)) {
            return true;
        }
    }
}

static void blanks_skip(struct scan *scan)
{
    while (peek(scan, 0) == ' ' || peek(scan, 0) == '\t')
        scan->at++;
}

/* A header's name in its plainest form: from some directory down, nothing hidden. */
static bool name_is_plain(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > MW_PREFIX_HEADER_BYTES_MAX || name[bytes - 1] == '/')
        return false;
    for (size_t i = 0; i < bytes; i++) {
        bool begins = i == 0 || name[i - 1] == '/';

        if (begins && (name[i] == '/' || name[i] == '.'))
            return false;
    }
    return true;
}

static bool include_take(struct scan *scan, const char **name, size_t *bytes)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.+-/";

    if (!starts(scan, "#"))
        return false;
    scan->at++;
    blanks_skip(scan);
    if (!starts(scan, "include"))
        return false;
    scan->at += strlen("include");
    blanks_skip(scan);
    if (!starts(scan, "<"))
        return false;
    *name = ++scan->at;
    while (peek(scan, 0) != '\0' && strchr(letters, peek(scan, 0)))
        scan->at++;
    *bytes = (size_t)(scan->at - *name);
    if (!starts(scan, ">") || !name_is_plain(*name, *bytes))
        return false;
    scan->at++;
    return true;
}

/* Nothing more on this line but comments. */
static bool line_end_take(struct scan *scan)
{
    return space_skip(scan, false) && newline_take(scan);
}

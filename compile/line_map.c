#include <millwright/line_map.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A part of the text. No part is read past its end, and none ends in NUL. */
struct span {
    const char *at, *end;
};

struct place {
    uint32_t file, line, column; /* a line of 0: none is known */
};

struct map {
    const char *directory;
    char **files; /* by number; NULL: not named. JSON texts */
    size_t file_count;
    struct place now;  /* what the last .loc said */
    struct place told; /* what the last entry says */
    FILE *out;
    size_t told_bytes;
};

typedef int line_taker(struct map *map, struct span line, size_t number);

static line_taker take_file, take_line;
static int lines_each(struct map *map, struct span text, line_taker *take);
static void take_loc(struct map *map, struct span rest);
static bool ends_code(struct span word);
static bool is_code(struct span line);
static int tell(struct map *map, size_t number);
static int file_name(struct map *map, uint32_t number, const char *folder, const char *name);
static char *path_join(const struct map *map, const char *folder, const char *name);
static char *path_json(const char *path);
static size_t character_bytes(const unsigned char *text);
static struct span next_word(struct span *rest);
static bool next_number(struct span *rest, uint32_t *number);
static bool next_quoted(struct span *rest, char out[MW_LINE_MAP_NAME_BYTES_MAX]);
static bool is(struct span word, const char *text);

/* Files first: some targets name them at the end. */
int mw_line_map_make(struct mw_text *map, const char *text, size_t bytes, const char *directory)
{
    struct map making = {.directory = directory};
    struct span all = {text, text + bytes};
    int error;

    *map = (struct mw_text){0};
    making.out = open_memstream(&map->data, &map->bytes);
    if (!making.out)
        return -ENOMEM;
    (void)fputc('[', making.out);
    error = lines_each(&making, all, take_file);
    if (error == 0)
        error = lines_each(&making, all, take_line);
    (void)fputc(']', making.out);
    if ((ferror(making.out) | (fclose(making.out) != 0)) && error == 0)
        error = -ENOMEM;
    for (size_t i = 0; i < making.file_count; i++)
        free(making.files[i]);
    free(making.files);
    if (error < 0) {
        free(map->data);
        *map = (struct mw_text){0};
    }
    return error;
}

static int lines_each(struct map *map, struct span text, line_taker *take)
{
    size_t number = 1;
    int error = 0;

    while (error == 0 && text.at < text.end) {
        const char *end = memchr(text.at, '\n', (size_t)(text.end - text.at));
        struct span line = {text.at, end ? end : text.end};

        error = take(map, line, number++);
        text.at = end ? end + 1 : text.end;
    }
    return error;
}

/* .file NUMBER "NAME", or .file NUMBER "FOLDER" "NAME". The one without a number is no entry of the
 * table. A number keeps its first name. */
static int take_file(struct map *map, struct span line, size_t number)
{
    char first[MW_LINE_MAP_NAME_BYTES_MAX], second[MW_LINE_MAP_NAME_BYTES_MAX];
    uint32_t file;

    (void)number;
    if (!is(next_word(&line), ".file") || !next_number(&line, &file) || !next_quoted(&line, first))
        return 0;
    if (next_quoted(&line, second))
        return file_name(map, file, first, second);
    return file_name(map, file, "", first);
}

static int take_line(struct map *map, struct span line, size_t number)
{
    struct span rest = line;
    struct span word = next_word(&rest);

    if (is(word, ".loc")) {
        take_loc(map, rest);
        return 0;
    }
    if (ends_code(word)) {
        map->now = (struct place){0};
        return tell(map, number);
    }
    return is_code(line) ? tell(map, number) : 0;
}

/* .loc FILE LINE [COLUMN] [what else there is to say] */
static void take_loc(struct map *map, struct span rest)
{
    struct place place = {0};

    if (!next_number(&rest, &place.file) || !next_number(&rest, &place.line))
        return;
    if (!next_number(&rest, &place.column))
        place.column = 0;
    if (place.line == 0 || place.file >= map->file_count || !map->files[place.file])
        place = (struct place){0};
    map->now = place;
}

/* What follows in another function or section is not of the last line of this one. */
static bool ends_code(struct span word)
{
    static const char *const directives[] = {".cfi_startproc", ".cfi_endproc", ".section", ".text",
                                             ".data",          ".bss",         ".type",    ".size"};

    for (size_t i = 0; i < sizeof directives / sizeof directives[0]; i++) {
        if (is(word, directives[i]))
            return true;
    }
    return false;
}

/* An instruction is set in from the left, and is no directive, comment, label or assignment. */
static bool is_code(struct span line)
{
    static const char others[] = ".#/;!*\"";
    struct span rest = line;
    struct span word = next_word(&rest);

    if (word.at == word.end || word.at == line.at || memchr(others, *word.at, sizeof others - 1))
        return false;
    if (*word.at == '@' && word.end - word.at == 1) /* a comment on ARM; a predicate on PTX */
        return false;
    return word.end[-1] != ':' && !is(next_word(&rest), "=");
}

/* Write an entry where the place is another than before. */
static int tell(struct map *map, size_t number)
{
    const struct place *now = &map->now, *told = &map->told;
    int bytes;

    if (now->file == told->file && now->line == told->line && now->column == told->column)
        return 0;
    bytes =
        fprintf(map->out, "%s{\"line\":%zu,\"file\":%s,\"source_line\":%u,\"source_column\":%u}",
                map->told_bytes ? "," : "", number, now->line ? map->files[now->file] : "\"\"",
                now->line, now->column);
    if (bytes < 0)
        return -ENOMEM;
    map->told = map->now;
    map->told_bytes += (unsigned)bytes;
    return map->told_bytes > MW_EXTRA_BYTES_MAX - sizeof "[]" ? -E2BIG : 0;
}

static int file_name(struct map *map, uint32_t number, const char *folder, const char *name)
{
    char *path;

    if (number >= MW_LINE_MAP_FILES_MAX)
        return 0;
    if (number >= map->file_count) {
        size_t count = number + 1 > 2 * map->file_count ? number + 1 : 2 * map->file_count;
        char **files = realloc(map->files, count * sizeof files[0]);

        if (!files)
            return -ENOMEM;
        memset(files + map->file_count, 0, (count - map->file_count) * sizeof files[0]);
        map->files = files;
        map->file_count = count;
    }
    if (map->files[number])
        return 0;
    path = path_join(map, folder, name);
    map->files[number] = path ? path_json(path) : NULL;
    free(path);
    return map->files[number] ? 0 : -ENOMEM;
}

static char *path_join(const struct map *map, const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + sizeof "/";
    char *path = malloc(bytes);

    if (!path)
        return NULL;
    if (name[0] == '/' || strcmp(folder, map->directory) == 0)
        folder = "";
    (void)snprintf(path, bytes, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
    while (strncmp(path, "./", 2) == 0)
        memmove(path, path + 2, strlen(path + 2) + 1);
    return path;
}

/* The path as a JSON text, with '?' for what is no UTF-8. */
static char *path_json(const char *path)
{
    char *json = malloc(strlen(path) * (sizeof "\\u0000" - 1) + sizeof "\"\"");
    char *out = json;

    if (!json)
        return NULL;
    *out++ = '"';
    while (*path != '\0') {
        unsigned char first = (unsigned char)*path;
        size_t bytes = character_bytes((const unsigned char *)path);

        if (first < 0x20) {
            out += sprintf(out, "\\u%04x", first);
        } else if (first == '"' || first == '\\') {
            *out++ = '\\';
            *out++ = *path;
        } else if (bytes == 0) {
            *out++ = '?';
        } else {
            memcpy(out, path, bytes);
            out += bytes;
        }
        path += bytes ? bytes : 1;
    }
    *out++ = '"';
    *out = '\0';
    return json;
}

/* How many bytes the UTF-8 character at `text` takes; 0 when it is none. */
static size_t character_bytes(const unsigned char *text)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = text[0];
    size_t bytes;

    if (code < 0x80)
        return 1;
    if (code < 0xc2 || code > 0xf4)
        return 0;
    bytes = code >= 0xf0 ? 4 : code >= 0xe0 ? 3 : 2;
    code &= 0x7fu >> bytes;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    return code < smallest[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0
                                                                                           : bytes;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Take the spaces and the word at the start of `rest`; it may be empty. */
static struct span next_word(struct span *rest)
{
    struct span word;

    while (rest->at < rest->end && is_space(*rest->at))
        rest->at++;
    word.at = rest->at;
    while (rest->at < rest->end && !is_space(*rest->at))
        rest->at++;
    word.end = rest->at;
    return word;
}

/* Take a decimal number that is a word of its own; otherwise nothing. */
static bool next_number(struct span *rest, uint32_t *number)
{
    struct span after = *rest;
    struct span word = next_word(&after);
    uint64_t value = 0;

    if (word.at == word.end)
        return false;
    for (; word.at < word.end; word.at++) {
        if (*word.at < '0' || *word.at > '9')
            return false;
        value = value * 10 + (uint64_t)(*word.at - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *rest = after;
    *number = (uint32_t)value;
    return true;
}

/* Take one character behind a backslash: three octal digits, a letter for a control character, or
 * itself. */
static char next_escaped(struct span *rest)
{
    static const char letters[] = "bfnrt", controls[] = "\b\f\n\r\t";
    const char *letter = memchr(letters, *rest->at, sizeof letters - 1);
    unsigned value = 0, digits = 0;

    while (digits < 3 && rest->at < rest->end && *rest->at >= '0' && *rest->at <= '7') {
        value = value * 8 + (unsigned)(*rest->at++ - '0');
        digits++;
    }
    if (digits > 0)
        return (char)value;
    rest->at++;
    return letter ? controls[letter - letters] : rest->at[-1];
}

/* Take a text in quotes, with its escapes undone; false when there is none, or it is too long, or
 * holds a NUL. */
static bool next_quoted(struct span *rest, char out[MW_LINE_MAP_NAME_BYTES_MAX])
{
    size_t count = 0;

    while (rest->at < rest->end && is_space(*rest->at))
        rest->at++;
    if (rest->at == rest->end || *rest->at != '"')
        return false;
    rest->at++;
    while (rest->at < rest->end && *rest->at != '"') {
        char c = *rest->at++;

        if (c == '\\' && rest->at < rest->end)
            c = next_escaped(rest);
        if (c == '\0' || count == MW_LINE_MAP_NAME_BYTES_MAX - 1)
            return false;
        out[count++] = c;
    }
    out[count] = '\0';
    if (rest->at == rest->end)
        return false;
    rest->at++; /* the quote */
    return true;
}

static bool is(struct span word, const char *text)
{
    size_t bytes = (size_t)(word.end - word.at);

    return bytes == strlen(text) && memcmp(word.at, text, bytes) == 0;
}

/* Theory. jansson takes some 14 ns for each byte, and nearly all bytes of a request are those of a
 * few long strings. So jansson reads a text in which a short token stands for each long string, and
 * then the strings are put in place of the tokens.
 *
 * 1. What jansson says of the short text is what it would say of the whole one: a token is a string
 *    where a string was, and only those are replaced of which it is certain what jansson would make
 *    of them: they are no names of members, and hold well-formed UTF-8, no control characters, and
 *    no escape but of one letter. All else is left for jansson to read, or to refuse.
 * 2. When it refuses the short text it is given the whole one, so that the place that it tells is
 *    right.
 * 3. Nobody can send a token: each text has its own, with 128 random bits. */
#include "json_read.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LONG_BYTES   256u /* at least, with quotes; longer than a token */
#define NONCE_BYTES  16u
#define PREFIX_BYTES (2 * NONCE_BYTES)
#define TOKEN_BYTES  (PREFIX_BYTES + 8)

struct reading {
    char prefix[PREFIX_BYTES + 1]; /* of all tokens; the rest is the string's index */
    char *brief;                   /* the text with tokens */
    size_t brief_bytes;
    char *scratch; /* a string without its escapes */
    json_t **strings;
    size_t count, capacity;
};

static bool shorten(struct reading *reading, const char *text, size_t bytes);
static bool prefix_make(char prefix[PREFIX_BYTES + 1]);
static size_t string_end(const char *text, size_t at, size_t bytes);
static bool is_name(const char *text, size_t at, size_t bytes);
static json_t *string_read(struct reading *reading, const char *text, size_t bytes);
static bool run_copy(char *out, const char *text, size_t bytes, bool *is_ascii);
static char letter_of(char escape);
static bool token_put(struct reading *reading, json_t *string);
static void copy(struct reading *reading, const char *text, size_t bytes);
static json_t *lengthen(const struct reading *reading, json_t *value);
static void lengthen_all(const struct reading *reading, json_t *value);

json_t *mw_json_read(const char *text, size_t bytes, json_error_t *where, size_t *spared)
{
    struct reading reading = {0};
    json_t *value = NULL;
    if (bytes > LONG_BYTES && shorten(&reading, text, bytes) && reading.count > 0)
        value = json_loadb(reading.brief, reading.brief_bytes, JSON_REJECT_DUPLICATES, where);
    if (value)
        lengthen_all(&reading, value);
    if (spared)
        *spared = value ? reading.count : 0;
    for (size_t i = 0; i < reading.count; i++)
        json_decref(reading.strings[i]);
    free(reading.strings);
    free(reading.brief);
    free(reading.scratch);
    return value ? value : json_loadb(text, bytes, JSON_REJECT_DUPLICATES, where);
}

/* False: memory is out. A string that does not end is left as it is, with all that follows. */
static bool shorten(struct reading *reading, const char *text, size_t bytes)
{
    reading->brief = malloc(bytes);
    reading->scratch = malloc(bytes);
    if (!reading->brief || !reading->scratch || !prefix_make(reading->prefix))
        return false;
    size_t at = 0;
    const char *quote;
    while (at < bytes && (quote = memchr(text + at, '"', bytes - at))) {
        size_t begin = (size_t)(quote - text);
        size_t end = string_end(text, begin + 1, bytes);
        json_t *string = NULL;
        copy(reading, text + at, begin - at);
        if (end - begin >= LONG_BYTES && text[end - 1] == '"' && !is_name(text, end, bytes))
            string = string_read(reading, text + begin + 1, end - begin - 2);
        if (!string)
            copy(reading, text + begin, end - begin);
        else if (!token_put(reading, string))
            return false;
        at = end;
    }
    copy(reading, text + at, bytes - at);
    return true;
}

static bool prefix_make(char prefix[PREFIX_BYTES + 1])
{
    uint8_t nonce[NONCE_BYTES];
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return false;
    for (size_t i = 0; i < NONCE_BYTES; i++)
        snprintf(prefix + 2 * i, 3, "%02x", nonce[i]);
    return true;
}

/* Behind the quote that ends the string of which text[at] is the first byte: one with an even
 * number of backslashes before it. `bytes` when there is none. */
static size_t string_end(const char *text, size_t at, size_t bytes)
{
    const char *begin = text + at, *quote;
    while (at < bytes && (quote = memchr(text + at, '"', bytes - at))) {
        const char *before = quote;
        while (before > begin && before[-1] == '\\')
            before--;
        at = (size_t)(quote - text) + 1;
        if ((quote - before) % 2 == 0)
            return at;
    }
    return bytes;
}

/* Of the string that ends before text[at]. */
static bool is_name(const char *text, size_t at, size_t bytes)
{
    while (at < bytes && text[at] != '\0' && strchr(" \t\r\n", text[at]))
        at++;
    return at < bytes && text[at] == ':';
}

/* Run by run from backslash to backslash. NULL: leave it to jansson. */
static json_t *string_read(struct reading *reading, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    char *out = reading->scratch;
    bool is_ascii = true;
    while (text < end) {
        const char *slash = memchr(text, '\\', (size_t)(end - text));
        size_t run = (size_t)((slash ? slash : end) - text);
        if (!run_copy(out, text, run, &is_ascii))
            return NULL;
        out += run;
        text += run;
        if (!slash)
            break;
        *out = end - text > 1 ? letter_of(text[1]) : '\0';
        if (*out++ == '\0')
            return NULL;
        text += 2;
    }
    size_t length = (size_t)(out - reading->scratch);
    return is_ascii ? json_stringn_nocheck(reading->scratch, length)
                    : json_stringn(reading->scratch, length); /* NULL: no UTF-8 */
}

/* Whether there are no control characters. */
static bool run_copy(char *out, const char *text, size_t bytes, bool *is_ascii)
{
    unsigned char controls = 0, high = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        controls |= byte < 0x20;
        high |= byte;
        out[i] = text[i];
    }
    if (high & 0x80)
        *is_ascii = false;
    return controls == 0;
}

/* '\0': none of one letter. */
static char letter_of(char escape)
{
    static const char escapes[] = "\"\\/bfnrt", letters[] = "\"\\/\b\f\n\r\t";
    const char *found = escape ? strchr(escapes, escape) : NULL;
    return found ? letters[found - escapes] : '\0';
}

/* Takes the reference over. False: memory is out. */
static bool token_put(struct reading *reading, json_t *string)
{
    char token[TOKEN_BYTES + sizeof "\"\""];
    if (reading->count == reading->capacity) {
        size_t capacity = reading->capacity ? 2 * reading->capacity : 16;
        json_t **strings = realloc(reading->strings, capacity * sizeof *strings);
        if (!strings) {
            json_decref(string);
            return false;
        }
        reading->strings = strings;
        reading->capacity = capacity;
    }
    snprintf(token, sizeof token, "\"%s%08x\"", reading->prefix, (unsigned)reading->count);
    copy(reading, token, sizeof token - 1);
    reading->strings[reading->count++] = string;
    return true;
}

/* There is room: what is copied is no longer than what it stands for. */
static void copy(struct reading *reading, const char *text, size_t bytes)
{
    memcpy(reading->brief + reading->brief_bytes, text, bytes);
    reading->brief_bytes += bytes;
}

/* Borrowed; NULL: `value` is no token. */
static json_t *lengthen(const struct reading *reading, json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) != TOKEN_BYTES ||
        memcmp(text, reading->prefix, PREFIX_BYTES) != 0)
        return NULL;
    size_t index = strtoul(text + PREFIX_BYTES, NULL, 16);
    return index < reading->count ? reading->strings[index] : NULL;
}

/* As deep as jansson lets a value be. */
static void lengthen_all(const struct reading *reading, json_t *value)
{
    json_t *string;
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);
        if ((string = lengthen(reading, item)))
            json_array_set(value, i, string);
        else
            lengthen_all(reading, item);
    }
    void *member = json_object_iter(value);
    for (; member; member = json_object_iter_next(value, member)) {
        json_t *item = json_object_iter_value(member);
        if ((string = lengthen(reading, item)))
            json_object_iter_set(value, member, string);
        else
            lengthen_all(reading, item);
    }
}

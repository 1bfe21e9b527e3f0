#include "json_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Where a text is read, and where what is read goes. Each function below takes one part of JSON's
 * grammar (RFC 8259); false: there is none of it here. */
struct pass {
    const char *at, *end;
    char *out;
};

static bool pass_value(struct pass *pass, unsigned depth);
static bool pass_list(struct pass *pass, unsigned depth);
static bool pass_string(struct pass *pass);
static bool pass_escape(struct pass *pass);
static bool pass_number(struct pass *pass);
static bool pass_word(struct pass *pass, const char *word);
static bool pass_digits(struct pass *pass);
static bool pass_byte(struct pass *pass, char byte);
static bool pass_any(struct pass *pass, size_t count);
static size_t character_bytes(const char *text, size_t room);

char *mw_json_text(json_t *value, enum mw_json_form form)
{
    static const size_t flags[] = {
        [MW_JSON_COMPACT] = JSON_COMPACT | JSON_REAL_PRECISION(9),
        [MW_JSON_INDENTED] = JSON_INDENT(2) | JSON_REAL_PRECISION(9),
    };
    char *text = value ? json_dumps(value, flags[form]) : NULL;

    json_decref(value);
    return text;
}

static void skip_spaces(struct pass *pass)
{
    while (pass->at < pass->end &&
           (*pass->at == ' ' || *pass->at == '\t' || *pass->at == '\n' || *pass->at == '\r'))
        pass->at++;
}

int mw_json_pass(const char *text, size_t bytes, char *out, size_t *out_bytes)
{
    struct pass pass = {text, text + bytes, out};
    skip_spaces(&pass);
    if (pass.at == pass.end || (*pass.at != '{' && *pass.at != '['))
        return -EINVAL;
    if (!pass_value(&pass, 0))
        return -EINVAL;
    skip_spaces(&pass);
    if (pass.at != pass.end)
        return -EINVAL;
    *out_bytes = (size_t)(pass.out - out);
    return 0;
}

static bool pass_value(struct pass *pass, unsigned depth)
{
    skip_spaces(pass);
    if (pass->at == pass->end)
        return false;
    switch (*pass->at) {
    case '{':
    case '[':
        return depth < MW_JSON_DEPTH_MAX && pass_list(pass, depth + 1);
    case '"':
        return pass_string(pass);
    case 't':
        return pass_word(pass, "true");
    case 'f':
        return pass_word(pass, "false");
    case 'n':
        return pass_word(pass, "null");
    default:
        return pass_number(pass);
    }
}

/* An array, or an object: the same with a name before each value. */
static bool pass_list(struct pass *pass, unsigned depth)
{
    bool named = *pass->at == '{';
    char close = named ? '}' : ']';
    pass_any(pass, 1);
    skip_spaces(pass);
    if (pass_byte(pass, close))
        return true;
    for (;;) {
        skip_spaces(pass);
        if (named && !pass_string(pass))
            return false;
        skip_spaces(pass);
        if (named && !pass_byte(pass, ':'))
            return false;
        if (!pass_value(pass, depth))
            return false;
        skip_spaces(pass);
        if (pass_byte(pass, close))
            return true;
        if (!pass_byte(pass, ','))
            return false;
    }
}

static bool pass_string(struct pass *pass)
{
    if (!pass_byte(pass, '"'))
        return false;
    while (pass->at < pass->end && *pass->at != '"') {
        if ((unsigned char)*pass->at < 0x20)
            return false;
        bool passed =
            *pass->at == '\\'
                ? pass_escape(pass)
                : pass_any(pass, character_bytes(pass->at, (size_t)(pass->end - pass->at)));
        if (!passed)
            return false;
    }
    return pass_byte(pass, '"');
}

/* Half of a surrogate pair is let through, as the grammar does. */
static bool pass_escape(struct pass *pass)
{
    size_t left = (size_t)(pass->end - pass->at);
    if (left < 2 || pass->at[1] == '\0' || !strchr("\"\\/bfnrtu", pass->at[1]))
        return false;
    if (pass->at[1] != 'u')
        return pass_any(pass, 2);
    for (size_t i = 2; i < 6; i++)
        if (i >= left || pass->at[i] == '\0' || !strchr("0123456789abcdefABCDEF", pass->at[i]))
            return false;
    return pass_any(pass, 6);
}

static bool pass_number(struct pass *pass)
{
    (void)pass_byte(pass, '-');
    if (!pass_byte(pass, '0') && !pass_digits(pass))
        return false;
    if (pass_byte(pass, '.') && !pass_digits(pass))
        return false;
    if (!pass_byte(pass, 'e') && !pass_byte(pass, 'E'))
        return true;
    if (!pass_byte(pass, '+'))
        (void)pass_byte(pass, '-');
    return pass_digits(pass);
}

static bool pass_word(struct pass *pass, const char *word)
{
    size_t count = strlen(word);
    if ((size_t)(pass->end - pass->at) < count || memcmp(pass->at, word, count) != 0)
        return false;
    return pass_any(pass, count);
}

static bool pass_digits(struct pass *pass)
{
    const char *begin = pass->at;
    while (pass->at < pass->end && *pass->at >= '0' && *pass->at <= '9')
        pass_any(pass, 1);
    return pass->at > begin;
}

static bool pass_byte(struct pass *pass, char byte)
{
    return pass->at < pass->end && *pass->at == byte && pass_any(pass, 1);
}

/* Copy `count` bytes, which are there. False when there are none to copy. */
static bool pass_any(struct pass *pass, size_t count)
{
    memcpy(pass->out, pass->at, count);
    pass->out += count;
    pass->at += count;
    return count > 0;
}

/* How many bytes the character at `text` takes in well-formed UTF-8; 0 when it is none. */
static size_t character_bytes(const char *text, size_t room)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = (unsigned char)text[0];
    if (code < 0x80)
        return 1;
    size_t bytes = code >= 0xf0 ? 4 : code >= 0xe0 ? 3 : 2;
    if (code < 0xc2 || code > 0xf4 || bytes > room)
        return 0;
    code &= 0x7fu >> bytes;
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    bool whole = code >= smallest[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return whole ? bytes : 0;
}

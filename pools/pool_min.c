#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool_min.h"

#define HEX_DIGITS "0123456789abcdefABCDEF"
#define DIGITS     "0123456789"

/* Enough for the longest text, of which at most 32 bytes are the user's. */
#define WHY_BYTES  160
#define HINT_BYTES 64

static bool is_hexadecimal(const char *text);
static void hint_decimal(const char *text, char hint[HINT_BYTES]);
static bool read_decimal(const char *text, unsigned max, unsigned *value);

int mw_pool_min_parse(const char *text, unsigned max, unsigned *min_threads, char *why,
                      size_t why_bytes)
{
    char hint[HINT_BYTES];
    unsigned value;

    assert(max >= 1);
    if (!read_decimal(text, max, &value)) {
        hint_decimal(text, hint);
        snprintf(why, why_bytes, "must be a decimal number from 1 to %u, not \"%.32s\"%s", max,
                 text, hint);
        return -EINVAL;
    }
    *min_threads = value;
    return 0;
}

int mw_pool_min_environment(unsigned max, unsigned *min_threads, char *why, size_t why_bytes)
{
    const char *text = getenv(MW_POOL_MIN_ENVIRONMENT);
    char must_be[WHY_BYTES];
    int error;

    if (text == NULL || *text == '\0')
        return -ENOENT;
    error = mw_pool_min_parse(text, max, min_threads, must_be, sizeof must_be);
    if (error != 0)
        snprintf(why, why_bytes, "%s %s", MW_POOL_MIN_ENVIRONMENT, must_be);
    return error;
}

/* With a prefix, or of hexadecimal digits with a letter among them. */
static bool is_hexadecimal(const char *text)
{
    bool has_prefix = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = has_prefix ? text + 2 : text;
    size_t bytes = strlen(digits);

    return bytes > 0 && strspn(digits, HEX_DIGITS) == bytes &&
           (has_prefix || strspn(digits, DIGITS) < bytes);
}

/* How to write what may be meant; "" when that is nothing. */
static void hint_decimal(const char *text, char hint[HINT_BYTES])
{
    unsigned long meant;

    errno = 0;
    meant = is_hexadecimal(text) ? strtoul(text, NULL, 16) : 0;
    hint[0] = '\0';
    if (meant != 0 && errno == 0)
        snprintf(hint, HINT_BYTES, "; if you mean hexadecimal, write %lu", meant);
}

/* Digits and nothing else: no sign, no space; leading zeros are decimal too. */
static bool read_decimal(const char *text, unsigned max, unsigned *value)
{
    unsigned sum = 0;

    for (const char *each = text; *each != '\0'; each++) {
        unsigned digit = (unsigned)*each - '0';

        if (digit > 9 || digit > max || sum > (max - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return sum >= 1;
}

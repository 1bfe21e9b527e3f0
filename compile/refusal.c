#include <millwright/refusal.h>

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void copy_printable(char *out, size_t out_bytes, const char *text);
static size_t character_bytes(const unsigned char *text);

int mw_refuse(struct mw_refusal *refusal, enum mw_refusal_kind kind, const char *subject,
              const char *reason_format, ...)
{
    static const int errors[] = {[MW_REFUSAL_FIELD] = -EINVAL,
                                 [MW_REFUSAL_FLAG] = -EPERM,
                                 [MW_REFUSAL_SIZE] = -E2BIG,
                                 [MW_REFUSAL_PACKAGE] = -ENOENT};

    assert(kind >= MW_REFUSAL_FIELD && kind <= MW_REFUSAL_PACKAGE);
    if (refusal) {
        char reason[4 * sizeof refusal->reason];
        va_list arguments;

        va_start(arguments, reason_format);
        (void)vsnprintf(reason, sizeof reason, reason_format, arguments);
        va_end(arguments);
        refusal->kind = kind;
        copy_printable(refusal->subject, sizeof refusal->subject, subject);
        copy_printable(refusal->reason, sizeof refusal->reason, reason);
    }
    return errors[kind];
}

/* Copy as many whole characters as fit. Both texts may carry bytes that a stranger chose, and
 * both end up in logs, terminals and JSON: only what prints, in well-formed UTF-8, passes. */
static void copy_printable(char *out, size_t out_bytes, const char *text)
{
    const unsigned char *in = (const unsigned char *)text;
    size_t used = 0;

    while (*in != '\0') {
        size_t bytes = character_bytes(in);
        size_t kept = bytes == 0 ? 1 : bytes;

        if (used + kept >= out_bytes)
            break;
        if (bytes == 0)
            out[used] = '?';
        else
            memcpy(out + used, in, bytes);
        used += kept;
        in += kept;
    }
    out[used] = '\0';
}

/* How many bytes the printable character at `text` takes; 0 when the byte there starts none. */
static size_t character_bytes(const unsigned char *text)
{
    static const unsigned long smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned long code = text[0];
    size_t bytes;

    if (code < 0x80)
        return code >= 0x20 && code != 0x7f;
    bytes = code >= 0xf0 ? 4 : code >= 0xe0 ? 3 : 2;
    if (code < 0xc2 || code > 0xf4)
        return 0;
    code &= 0x7fu >> bytes;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < smallest[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return code < 0xa0 ? 0 : bytes; /* U+0080..U+009F are control characters */
}

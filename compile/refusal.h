/* refusal.h - why an input was refused, as data: what kind of thing, which one, and the reason.
 *
 * Ownership:  plain storage of the caller; strings are copied in and cut at their bounds.
 * Threads:    any thread; nothing here blocks. */
#ifndef MILLWRIGHT_REFUSAL_H
#define MILLWRIGHT_REFUSAL_H

enum mw_refusal_kind {
    MW_REFUSAL_NONE = 0,
    MW_REFUSAL_FIELD,  /* a field of the request is missing, malformed or out of bounds */
    MW_REFUSAL_FLAG,   /* a compiler flag is not allowed */
    MW_REFUSAL_SIZE,   /* more than a documented bound */
    MW_REFUSAL_PACKAGE /* a package is not installed */
};

struct mw_refusal {
    enum mw_refusal_kind kind;
    char subject[256]; /* the field, file or flag, made printable */
    char reason[256];  /* lower case; ends with what to do */
};

/* Fill `refusal` (NULL is fine) and return the error that goes with `kind`: -EINVAL for a field,
 * -EPERM for a flag, -E2BIG for a size, -ENOENT for a package. Bytes of `subject` that do not print
 * become '?'. */
int mw_refuse(struct mw_refusal *refusal, enum mw_refusal_kind kind, const char *subject,
              const char *reason_format, ...) __attribute__((format(printf, 4, 5)));

#endif

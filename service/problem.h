/* problem.h - what goes wrong with a request, as an RFC 9457 problem document.
 *
 * Ownership:  a struct mw_problem is plain storage; mw_problem_render allocates the document.
 * Threads:    any thread; nothing here blocks. */
#ifndef MW_SERVICE_PROBLEM_H
#define MW_SERVICE_PROBLEM_H

#include <jansson.h>

#include <millwright/refusal.h>

enum mw_problem_kind {
    MW_PROBLEM_NONE = 0,
    MW_PROBLEM_BAD_JSON,
    MW_PROBLEM_BAD_FIELD,
    MW_PROBLEM_FLAG_REFUSED,
    MW_PROBLEM_PACKAGE,
    MW_PROBLEM_TOO_LARGE,
    MW_PROBLEM_QUEUE_FULL,
    MW_PROBLEM_NOT_FOUND,
    MW_PROBLEM_METHOD,
    MW_PROBLEM_FOREIGN,
    MW_PROBLEM_OPERATOR,
    MW_PROBLEM_TIMEOUT,
    MW_PROBLEM_LIMIT,
    MW_PROBLEM_STOPPING,
    MW_PROBLEM_INTERNAL,
    MW_PROBLEM_KINDS
};

struct mw_problem {
    enum mw_problem_kind kind;
    char detail[640];
    char subject[256];      /* the field, flag or path it is about; "" for none */
    int line, column;       /* place in the JSON text, counted from 1; 0 for none */
    unsigned retry_after_s; /* for the Retry-After header; 0 for none */
    const char *allow;      /* for the Allow header of 405; static text */
};

/* Fill `problem`. The detail says what happened and what to do. */
void mw_problem_set(struct mw_problem *problem, enum mw_problem_kind kind, const char *subject,
                    const char *detail_format, ...) __attribute__((format(printf, 4, 5)));

/* Fill `problem` from what a check in compile/ refused with `error`. */
void mw_problem_from_refusal(struct mw_problem *problem, int error,
                             const struct mw_refusal *refusal);

unsigned mw_problem_status(const struct mw_problem *problem);

/* The document as text, for the caller to free(). `extra` (borrowed, may be NULL) is an object
 * whose members are added. NULL when memory is out. */
char *mw_problem_render(const struct mw_problem *problem, json_t *extra);

#endif

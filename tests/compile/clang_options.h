/* clang_options.h - every option that clang's own parser knows, from the table that it is made of,
 * which comes with its headers.
 *
 * Threads: any; all is static. */
#ifndef MILLWRIGHT_TESTS_CLANG_OPTIONS_H
#define MILLWRIGHT_TESTS_CLANG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* How clang reads an option; in the words of its table. */
enum clang_kind {
    CLANG_GROUP,
    CLANG_INPUT,
    CLANG_UNKNOWN,
    CLANG_FLAG,
    CLANG_JOINED,
    CLANG_SEPARATE,
    CLANG_REMAINING,
    CLANG_REMAINING_JOINED,
    CLANG_COMMA_JOINED,
    CLANG_MULTI,
    CLANG_EITHER,
    CLANG_BOTH /* joined and one more */
};

struct clang_option {
    const char *name; /* "-include", as first spelled */
    const char *id;
    const char *alias; /* the id of what it stands for, or "INVALID" */
    enum clang_kind kind;
    const char *values;   /* "a,b", or NULL */
    const char *prefixes; /* what it may begin with, by the name of that set */
};

/* Option `index`, groups and inputs left out; NULL when there is none. */
const struct clang_option *clang_option_get(size_t index);

/* The option that `option` stands for; itself when it is no alias. */
const struct clang_option *clang_option_target(const struct clang_option *option);

/* The other spelling with one dash more or less, or NULL. The caller frees it. */
char *clang_option_respell(const struct clang_option *option);

#endif

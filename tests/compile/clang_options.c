#include "clang_options.h"

#include <stdio.h>
#include <string.h>

/* The table is written for C++. */
#define nullptr                 NULL
#define std_EQ_Values           "c11,c++17,gnu++20"
#define analyzer_checker_Values "core"

/* Its names for the kinds. */
#define KIND_Group               CLANG_GROUP
#define KIND_Input               CLANG_INPUT
#define KIND_Unknown             CLANG_UNKNOWN
#define KIND_Flag                CLANG_FLAG
#define KIND_Joined              CLANG_JOINED
#define KIND_Separate            CLANG_SEPARATE
#define KIND_RemainingArgs       CLANG_REMAINING
#define KIND_RemainingArgsJoined CLANG_REMAINING_JOINED
#define KIND_CommaJoined         CLANG_COMMA_JOINED
#define KIND_MultiArg            CLANG_MULTI
#define KIND_JoinedOrSeparate    CLANG_EITHER
#define KIND_JoinedAndSeparate   CLANG_BOTH

static const struct prefix {
    const char *name, *texts;
} prefixes[] = {
#define PREFIX(NAME, ...) {#NAME, #__VA_ARGS__},
#include <clang/Driver/Options.inc>
#undef PREFIX
};

static const struct clang_option options[] = {
#define OPTION(PREFIX, NAME, ID, KIND, GROUP, ALIAS, ALIASARGS, FLAGS, VISIBILITY, PARAM, HELP,    \
               HELPS, METAVAR, VALUES)                                                             \
    {NAME, #ID, #ALIAS, KIND_##KIND, VALUES, #PREFIX},
#include <clang/Driver/Options.inc>
#undef OPTION
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const struct clang_option *clang_option_get(size_t index)
{
    for (size_t i = 0; i < COUNT(options); i++) {
        if (options[i].kind > CLANG_UNKNOWN && index-- == 0)
            return &options[i];
    }
    return NULL;
}

const struct clang_option *clang_option_target(const struct clang_option *option)
{
    for (size_t i = 0; i < COUNT(options); i++) {
        if (strcmp(options[i].id, option->alias) == 0)
            return clang_option_target(&options[i]);
    }
    return option;
}

char *clang_option_respell(const struct clang_option *option)
{
    bool is_double = strncmp(option->name, "--", 2) == 0;
    const char *texts = "";
    char *other = NULL;

    for (size_t i = 0; i < COUNT(prefixes); i++) {
        if (strcmp(prefixes[i].name, option->prefixes) == 0)
            texts = prefixes[i].texts;
    }
    if (option->name[0] != '-' || !strstr(texts, is_double ? "\"-\"" : "\"--\""))
        return NULL;
    if (is_double)
        return strdup(option->name + 1);
    return asprintf(&other, "-%s", option->name) > 0 ? other : NULL;
}

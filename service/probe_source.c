#include "probe_source.h"

#include <stdio.h>

static const char *const loops[] = {
    "    for (unsigned i = count; i > 0; i--)\n"
    "        sum ^= sum << %u;\n",
    "    while (sum > %uu)\n"
    "        sum = sum / 2 + count;\n",
    "    while (sum > %uu)\n"
    "        sum = sum / 3 ^ count;\n",
    "    do\n"
    "        sum = sum / 5 + count;\n"
    "    while (sum > %uu);\n",
};

#define LOOPS     (sizeof loops / sizeof loops[0])
#define CONSTANTS 29u /* a prime: the functions differ from one another */

char *mw_probe_source(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (out == NULL)
        return NULL;
    for (unsigned function = 0; function < MW_PROBE_SOURCE_FUNCTIONS; function++) {
        fprintf(out, "unsigned function_%u(unsigned count, unsigned sum)\n{\n", function);
        for (unsigned loop = 0; loop < MW_PROBE_SOURCE_LOOPS; loop++)
            fprintf(out, loops[(function + loop) % LOOPS],
                    2 + (function * MW_PROBE_SOURCE_LOOPS + loop) % CONSTANTS);
        fputs("    return sum;\n}\n\n", out);
    }
    return fclose(out) == 0 ? text : NULL;
}

char *mw_probe_small_source(unsigned number)
{
    char *text;

    if (asprintf(&text,
                 "unsigned small_%u(const unsigned *words, unsigned count)\n"
                 "{\n"
                 "    unsigned sum = %u;\n"
                 "    for (unsigned i = 0; i < count; i++)\n"
                 "        sum = sum * 31u + words[i];\n"
                 "    return sum;\n"
                 "}\n",
                 number, number) < 0)
        return NULL;
    return text;
}

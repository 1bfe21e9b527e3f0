/* package.h - what `fetch` wrote down about one package, read back.
 *
 * Bounds: the PACKAGE_* numbers below; a list that has more ends the test. */
#ifndef CORPUS_PACKAGE_H
#define CORPUS_PACKAGE_H

#include <stddef.h>

#include <jansson.h>

#define PACKAGE_LINES_MAX  256
#define PACKAGE_FIELDS_MAX 128
#define PACKAGE_TIMEOUT_MS 600000 /* of a request; a service cuts it to what it allows */

struct line {
    const char *fields[PACKAGE_FIELDS_MAX + 1]; /* a NULL ends them */
};

struct list {
    char *text; /* what the fields point into */
    struct line lines[PACKAGE_LINES_MAX];
    size_t line_count;
};

/* The fields of a compile command, and of a link or an archive. */
enum { COMMAND_DIRECTORY, COMMAND_FILE, COMMAND_OBJECT, COMMAND_FLAGS };
enum { LINK_PRODUCT, LINK_ARGS };

struct package {
    struct list commands;
    struct list links; /* none, where only compiles were recorded */
    json_t *headers;   /* what the sources may include, as a request's files */
};

/* Read the lists of package `name` in `corpus`, and its headers. */
void package_read(struct package *package, const char *corpus, const char *name);
void package_fini(struct package *package);

/* The body of the request that compiles `command`, with `extra_flag` at the end unless NULL.
 * The caller frees it. */
char *package_request(const struct package *package, const struct line *command,
                      const char *extra_flag);

#endif

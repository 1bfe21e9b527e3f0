/* compiled.h - one command of a package, compiled by the service and by clang; what fails ends the
 * cmocka test.
 *
 * Ownership:  objects are the caller's.
 * Threads:    one. */
#ifndef CORPUS_COMPILED_H
#define CORPUS_COMPILED_H

#include <stdbool.h>

#include "package.h"
#include "support/process.h"
#include "support/server.h"

#define COMPILER "clang-19"

struct compiled {
    bool is_cached;
    bool used_preamble;
    struct bytes object;
};

/* Both take `extra_flag` at the end unless NULL. */
struct compiled compiled_by_service(struct client *client, const struct package *package,
                                    const struct line *command, const char *extra_flag);
/* Its files are put into `folder`. */
struct bytes compiled_by_clang(const char *folder, const struct line *command,
                               const char *extra_flag);

/* Post `body` and read its answer, which must be of a compile that worked. The caller frees it. */
json_t *compiled_answer(struct client *client, const char *body, const char *file);

/* Whether two objects differ, and if so the first place in words. */
bool objects_differ(const struct bytes *a, const struct bytes *b, char *where, size_t where_bytes);

/* Run a program that must end well; `output`, a file in `directory`, is shown when it does not. */
void run_ok(const char *directory, const char *const *argv, const char *input, const char *output);

#endif

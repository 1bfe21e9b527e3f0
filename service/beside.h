/* beside.h - what `millwright compile` writes beside an artifact: what --also and --deps ask for.
 *
 * Ownership:  everything is the caller's.
 * Threads:    one; writes files. */
#ifndef MW_SERVICE_BESIDE_H
#define MW_SERVICE_BESIDE_H

#include <stddef.h>

#include <millwright/emit.h>

/* Write the extra as JSON to "STEM.NAME.json", as main.remarks.json. On failure `path` is where.
 * Returns 0, -ENODATA (the compile told none), or what writing gives. */
int mw_beside_write_extra(const struct mw_compile_result *result, enum mw_extra extra,
                          const char *stem, char *path, size_t path_bytes);

/* Write a rule for make to `path` ("-": standard output): `target` depends on what was read.
 * Returns as above, or -EINVAL. */
int mw_beside_write_rule(const struct mw_compile_result *result, const char *target,
                         const char *path);

/* Write `bytes` to `path`, whole or not at all; to standard output when it is "-". Returns 0 or a
 * negative errno. */
int mw_beside_write_file(const char *path, const char *data, size_t bytes);

#endif

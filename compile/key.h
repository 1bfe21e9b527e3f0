/* key.h - the content key: SHA-256 over everything that decides the bytes of the answer.
 *
 * Into it go, each with its length in front so that no two inputs run together: the compiler's
 * build identity, the canonical options with the target, the directory, the main file's name,
 * every file of the request (sorted by name), and the stamp of the toolchain's directories.
 * Run options do not.
 *
 * Threads: any thread; blocks only where mw_toolchain_stamp does. */
#ifndef MILLWRIGHT_KEY_H
#define MILLWRIGHT_KEY_H

#include <stdbool.h>

#include <millwright/options.h>
#include <millwright/request.h>
#include <millwright/toolchain.h>

#define MW_KEY_TEXT_BYTES 65u /* 64 lower-case hexadecimal digits and a NUL */

struct mw_key {
    char text[MW_KEY_TEXT_BYTES];
};

/* Compute the key of a checked request. Returns 0, -ENOMEM, or what mw_toolchain_stamp returns. */
int mw_key_compute(struct mw_key *key, struct mw_toolchain *toolchain,
                   const struct mw_options *options, const struct mw_compile_request *request);

/* The same as of the moment when the toolchain had this stamp: several keys of one moment need the
 * look at the disk once. Returns 0 or -ENOMEM. Blocks on nothing. */
int mw_key_compute_at(struct mw_key *key, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request);

/* Whether `text` (of `length` bytes) has the form of a key. */
bool mw_key_valid(const char *text, size_t length);

#endif

/* direct.h - direct lookups: an artifact by what its compile looked at, where the files of a
 * request that it did not look at are others. manifest.h says how that is known.
 *
 * Threads: plain functions for the store's IO pool; they block on the store. */
#ifndef MW_SERVICE_DIRECT_H
#define MW_SERVICE_DIRECT_H

#include <millwright/emit.h>
#include <millwright/store.h>

/* What a manifest is found by, and its text: zeros where none can be made. */
struct mw_direct {
    struct mw_key base;
    struct mw_text manifest;
};

/* Look for an artifact that `request` would have, as of the toolchain's `stamp`. Returns 0 with
 * *key and `entry` set, -ENOENT, or an error of the store. */
int mw_direct_find(struct mw_store *store, const struct mw_toolchain *toolchain,
                   const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], const struct mw_options *options,
                   const struct mw_compile_request *request, struct mw_key *key,
                   struct mw_store_entry *entry);

/* Make what is kept beside the artifact of `request`, which is kept under `key` and was made while
 * it looked at `inputs`. The toolchain must be found to have `stamp` still, after the compile. */
void mw_direct_make(struct mw_direct *direct, const struct mw_toolchain *toolchain,
                    const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], const struct mw_options *options,
                    const struct mw_compile_request *request, const struct mw_text *inputs,
                    const struct mw_key *key);
void mw_direct_fini(struct mw_direct *direct);

#endif

#include "direct.h"

#include <errno.h>
#include <stdlib.h>

#include <millwright/manifest.h>

int mw_direct_find(struct mw_store *store, const struct mw_toolchain *toolchain,
                   const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], const struct mw_options *options,
                   const struct mw_compile_request *request, struct mw_key *key,
                   struct mw_store_entry *entry)
{
    struct mw_store_manifests manifests;
    struct mw_key base;
    if (mw_manifest_base_at(&base, toolchain, stamp, options, request) < 0)
        return -ENOENT;
    int error = mw_store_manifests(store, &base, &manifests);
    int found = error < 0 ? error : -ENOENT;
    for (size_t i = 0; found == -ENOENT && i < manifests.count; i++) {
        if (mw_manifest_match(&manifests.texts[i], request, key) != 1)
            continue;
        /* An artifact that is damaged leaves the store with its manifest: as if it were not there.
         */
        error = mw_store_get(store, key, entry);
        if (error != -ENOENT && error != -EIO)
            found = error;
    }
    mw_store_manifests_fini(&manifests);
    return found;
}

void mw_direct_make(struct mw_direct *direct, const struct mw_toolchain *toolchain,
                    const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], const struct mw_options *options,
                    const struct mw_compile_request *request, const struct mw_text *inputs,
                    const struct mw_key *key)
{
    *direct = (struct mw_direct){0};
    if (mw_manifest_base_at(&direct->base, toolchain, stamp, options, request) == 0)
        (void)mw_manifest_make(request, inputs, key, &direct->manifest);
}

void mw_direct_fini(struct mw_direct *direct)
{
    free(direct->manifest.data);
    *direct = (struct mw_direct){0};
}

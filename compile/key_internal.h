/* key_internal.h - private to compile/ and its tests: keys of other kinds. */
#ifndef MW_KEY_INTERNAL_H
#define MW_KEY_INTERNAL_H

#include <millwright/key.h>

/* As mw_key_compute_at; keys of different schemes never agree. */
int mw_key_compute_as(struct mw_key *key, const char *scheme, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request);

#endif

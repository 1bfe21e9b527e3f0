/* key_internal.h - private to compile/ and its tests: keys of other kinds. */
#ifndef MW_KEY_INTERNAL_H
#define MW_KEY_INTERNAL_H

#include <millwright/key.h>

/* As mw_key_compute; keys of different schemes never agree. */
int mw_key_compute_as(struct mw_key *key, const char *scheme, struct mw_toolchain *toolchain,
                      const struct mw_options *options, const struct mw_compile_request *request);

#endif

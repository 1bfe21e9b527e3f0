/* toolchain_internal.h - private to compile/ and its tests: a toolchain over given directories. */
#ifndef MW_TOOLCHAIN_INTERNAL_H
#define MW_TOOLCHAIN_INTERNAL_H

#include <stdbool.h>

#include <millwright/toolchain.h>

/* A toolchain that stamps `dirs` and whose identity is the text given; it compiles nothing.
 * Copies what it is given. Returns 0 or -ENOMEM. */
int mw_toolchain_new_of(struct mw_toolchain **out, const char *identity, const char *const *dirs,
                        size_t dir_count);

/* Let compiles read folder/NAME/include for each NAME in `folder`, sorted, or for those only that
 * name a machine; as many as there is room for (64 in all). Only while it is made. Returns 0 or
 * -ENOMEM. */
int mw_toolchain_dirs_below(struct mw_toolchain *toolchain, const char *folder, bool machines_only);

/* How often the directories were walked, in all. */
uint64_t mw_toolchain_walks(struct mw_toolchain *toolchain);

/* How many paths each look has to stat, because no watch covers them. */
size_t mw_toolchain_places(struct mw_toolchain *toolchain);

#endif

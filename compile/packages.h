/* packages.h - the compiler flags of installed packages, by their pkg-config names.
 *
 * The seed's package restore, for C: names become flags in the IO prefix of a compile, through
 * libpkgconf. Only what a compile needs is taken (-I, -D and flags the policy allows), and only
 * directories that the toolchain may read. These become -isystem, as for any other header of the
 * system. No environment variable is obeyed.
 *
 * Ownership:  mw_packages_flags allocates, mw_packages_flags_free releases.
 * Threads:    any thread, one at a time inside (libpkgconf is not made for more). Blocks on the
 *             disk: call it from an IO pool.
 * Bounds:     MW_PACKAGES_MAX names of MW_PACKAGE_NAME_BYTES_MAX; MW_PACKAGE_FLAGS_MAX flags. */
#ifndef MILLWRIGHT_PACKAGES_H
#define MILLWRIGHT_PACKAGES_H

#include <stddef.h>

#include <millwright/refusal.h>
#include <millwright/request.h>
#include <millwright/toolchain.h>

#define MW_PACKAGES_MAX           32u
#define MW_PACKAGE_NAME_BYTES_MAX 128u
#define MW_PACKAGE_FLAGS_MAX      MW_REQUEST_PACKAGE_ARGS_MAX

/* Where packages are looked for, and what compiles may read of them. */
struct mw_package_source {
    const struct mw_toolchain *toolchain;
    const char *path; /* NULL, or "DIR:DIR..." of .pc files, looked at before the system's */
};

struct mw_package_flags {
    char **flags; /* each one argument, for the package_args of a request */
    size_t count;
};

/* Returns 0; -ENOENT (a package is not installed: `refusal` names it and says what to do), -EINVAL
 * (a name that is none), -EPERM (it needs a directory or flag that a compile may not have), -E2BIG
 * or -ENOMEM. The free is due whatever it returned. */
int mw_packages_flags(struct mw_package_flags *out, const struct mw_package_source *source,
                      const char *const *names, size_t count, struct mw_refusal *refusal);
void mw_packages_flags_free(struct mw_package_flags *flags);

#endif

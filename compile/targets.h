/* targets.h - the machines that code can be made for.
 *
 * Ownership:  texts are static.
 * Threads:    any thread, after mw_toolchain_new; nothing here blocks. */
#ifndef MILLWRIGHT_TARGETS_H
#define MILLWRIGHT_TARGETS_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/diagnostic.h>
#include <millwright/options.h>

struct mw_target {
    const char *name; /* "aarch64", "x86-64" */
    const char *text; /* "AArch64 (little endian)" */
};

/* Target `index` of the installed LLVM. False when there is none. */
bool mw_target_get(size_t index, struct mw_target *target);

/* A compile for another machine has failed: where that is because the machine is unknown, or its
 * headers are not installed, add a note that says so and what to do. Returns 0 or -ENOMEM. */
int mw_target_explain(const struct mw_options *options, struct mw_diagnostics *diagnostics);

#endif

/* diagnose.h - diagnostics alone, through libclang: the failure path when an emit cannot explain
 * itself, and the second opinion on a parse.
 *
 * libclang takes its files from the disk: the request's are written to a private folder below
 * $TMPDIR (or /tmp) for the time of the call, and an overlay hides all but them and the toolchain's
 * directories (under read_disk it hides nothing). Only the driver, which looks for a GCC to take
 * headers from, sees the real file system. The pragma "clang __debug" can still print to the
 * process's standard error. Where no folder can be written, as in a sandbox, the code generator's
 * frontend says the same from memory.
 *
 * Ownership:  fills a caller's list; see diagnostic.h.
 * Threads:    any thread, many at once. libclang starts a thread of its own for each parse unless
 *             LIBCLANG_NOTHREADS is in the environment: mw_compile_init puts it there. */
#ifndef MILLWRIGHT_DIAGNOSE_H
#define MILLWRIGHT_DIAGNOSE_H

#include <millwright/diagnostic.h>
#include <millwright/options.h>
#include <millwright/request.h>
#include <millwright/toolchain.h>

/* Parse the request and add what libclang finds to `list`, warnings off when `errors_only`.
 * Returns 0, -ENOMEM, -EIO (the parse broke down), or -ECANCELED (from memory only: libclang does
 * not ask).
 * Runs on: any thread. Blocks for as long as the parse takes. */
int mw_diagnose(const struct mw_toolchain *toolchain, const struct mw_options *options,
                const struct mw_compile_request *request, bool errors_only,
                struct mw_diagnostics *list);

#endif

/* emit.h - one compile, from checked request to bytes and diagnostics: the CPU leaf.
 *
 * A plain blocking function: it starts no thread, knows no lane, reads the request's files from
 * memory and of the disk only the toolchain's directories (all of it under read_disk).
 *
 * Ownership:  the result is the caller's; release it with mw_compile_result_fini, whatever the
 *             call returned.
 * Threads:    any thread with at least 8 MiB of stack, many at once. Call mw_compile_init before
 *             any thread exists and before mw_toolchain_new.
 * Bounds:     artifacts of at most MW_ARTIFACT_BYTES_MAX; diagnostics as diagnostic.h says. */
#ifndef MILLWRIGHT_EMIT_H
#define MILLWRIGHT_EMIT_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/diagnostic.h>
#include <millwright/options.h>
#include <millwright/request.h>
#include <millwright/toolchain.h>

#define MW_ARTIFACT_BYTES_MAX (UINT64_C(512) << 20)

/* Text that is the result's own; NULL and 0: there is none. */
struct mw_text {
    char *data;
    size_t bytes;
};

struct mw_compile_result {
    bool ok;               /* the compiler succeeded; warnings do not matter */
    char *artifact;        /* NULL when there is none (failed, or MW_EMIT_NONE) */
    size_t artifact_bytes; /* after -E2BIG: how many there were to be */
    struct mw_diagnostics diagnostics;
    const char *not_storable;         /* NULL; or why the bytes depend on more than the key knows:
                                         static text such as "inline assembly may read files" */
    struct mw_text extras[MW_EXTRAS]; /* those that were asked for, as JSON */
    struct mw_text inputs;            /* what of the request was looked at: manifest.h reads it */
};

/* Make the process fit to compile: turn libclang's hidden per-parse thread off
 * (LIBCLANG_NOTHREADS, read at each parse, so it must be set before any thread exists) and
 * remove what clang would obey from the environment (CPATH, COMPILER_PATH, SOURCE_DATE_EPOCH ...).
 * Nothing here replaces a signal handler; libclang is told not to either.
 * Returns 0 or -ENOMEM. Runs on: the main thread, before any other exists. */
int mw_compile_init(void);

/* For a program that compiles often in its own process: compile a few texts of ours, so that what is
 * made at first use is made, and move the compiler's code onto huge pages where the system has them
 * (100 to 130 MiB; compiles are some 10 % faster, and a profiler does not find the code's symbols).
 * Blocks for about 0.3 s. Runs on: a thread that may compile, while no other does. */
void mw_compile_warm_up(const struct mw_toolchain *toolchain);

/* Compile and collect artifact and diagnostics from one parse (the emit leaf).
 * Returns 0 when the compiler ran, whatever it found; -ENOMEM; -E2BIG (artifact over the bound);
 * -ECANCELED; -EIO (the compiler broke down; the diagnostics say where).
 * Runs on: any thread. Blocks for as long as the compile takes. */
int mw_emit(const struct mw_toolchain *toolchain, const struct mw_options *options,
            const struct mw_compile_request *request, struct mw_compile_result *result);

/* The leaf that the lane runs: mw_emit; and where that broke down, or failed without an error,
 * mw_diagnose for the explanation (the failure path of seed 002). So a breakdown of the code
 * generator is a failed compile like others: 0, with its reason among the diagnostics.
 * Returns and runs as mw_emit, but for -EIO: libclang gave no answer either. */
int mw_compile(const struct mw_toolchain *toolchain, const struct mw_options *options,
               const struct mw_compile_request *request, struct mw_compile_result *result);

void mw_compile_result_fini(struct mw_compile_result *result);

#endif

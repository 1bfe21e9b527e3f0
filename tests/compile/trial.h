/* trial.h - one compile written as data, for the tests of emit and diagnose; and the same compile
 * by a clang of its own process, to compare with.
 *
 * Threads: trial_run from any thread, many at once; the rest from one. What fails ends the test. */
#ifndef MILLWRIGHT_TESTS_TRIAL_H
#define MILLWRIGHT_TESTS_TRIAL_H

#include <millwright/emit.h>

#include "support/process.h"

#define TRIAL_FILES_MAX 4
#define TRIAL_ARGS_MAX  8

struct trial {
    const char *directory; /* NULL: the default */
    struct {
        const char *name, *text;
    } files[TRIAL_FILES_MAX]; /* the first is the main file */
    const char *args[TRIAL_ARGS_MAX];
    enum mw_emit_kind emit;
    unsigned extras;
    bool read_disk;
    const struct mw_preamble_use *preamble;
    uint64_t artifact_bytes_max;  /* as in the request */
    int (*cancelled)(void *user); /* as in the request */
    void *cancelled_user;
};

/* A toolchain for the group of tests, as cmocka's state; mw_compile_init has run. */
int trial_setup(void **state);
int trial_teardown(void **state);

/* mw_emit or mw_compile. Returns what it returned. */
typedef int trial_leaf_fn(const struct mw_toolchain *toolchain, const struct mw_options *options,
                          const struct mw_compile_request *request,
                          struct mw_compile_result *result);
int trial_leaf(trial_leaf_fn *leaf, const struct mw_toolchain *toolchain, const struct trial *trial,
               struct mw_compile_result *result);

/* mw_emit, or mw_diagnose into result->diagnostics. Returns what it returned. */
int trial_emit(const struct mw_toolchain *toolchain, const struct trial *trial,
               struct mw_compile_result *result);
int trial_diagnose(const struct mw_toolchain *toolchain, const struct trial *trial,
                   bool errors_only, struct mw_compile_result *result);

/* Write the files of `trial` to `folder` and run the toolchain's clang there with its arguments
 * and `flags` ("-c" ...). Returns the output; with `said` also what it printed. */
struct bytes trial_clang(const struct mw_toolchain *toolchain, const struct trial *trial,
                         const char *folder, const char *const flags[3], struct bytes *said);

/* The first entry of `list` whose message holds `text`, or NULL. */
const struct mw_diagnostic *diagnostic_find(const struct mw_diagnostics *list, const char *text);

#endif

#include "trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/diagnose.h>

/* A trial as the library takes it. */
struct prepared {
    struct mw_source_file files[TRIAL_FILES_MAX];
    struct mw_compile_request request;
    struct mw_options *options;
};

int trial_setup(void **state)
{
    struct mw_toolchain *toolchain = NULL;

    if (mw_compile_init() || mw_toolchain_new(&toolchain))
        return -1;
    *state = toolchain;
    return 0;
}

int trial_teardown(void **state)
{
    mw_toolchain_free(*state);
    return 0;
}

static void prepare(struct prepared *prepared, const struct trial *trial)
{
    struct mw_refusal refusal = {0};
    size_t count = 0, args = 0;

    while (count < TRIAL_FILES_MAX && trial->files[count].name) {
        prepared->files[count] = (struct mw_source_file){
            .name = trial->files[count].name,
            .data = trial->files[count].text,
            .bytes = strlen(trial->files[count].text),
        };
        count++;
    }
    while (args < TRIAL_ARGS_MAX && trial->args[args])
        args++;
    prepared->request = (struct mw_compile_request){
        .emit = trial->emit,
        .artifact_bytes_max = trial->artifact_bytes_max,
        .directory = trial->directory ? trial->directory : MW_REQUEST_DIRECTORY_DEFAULT,
        .main = prepared->files[0].name,
        .files = prepared->files,
        .file_count = count,
        .args = trial->args,
        .arg_count = args,
        .extras = trial->extras,
        .read_disk = trial->read_disk,
        .preamble = trial->preamble,
        .cancelled = trial->cancelled,
        .cancelled_user = trial->cancelled_user,
    };
    if ((trial->emit != MW_EMIT_PREAMBLE && mw_request_check(&prepared->request, &refusal)) ||
        mw_options_new(&prepared->options, &prepared->request, &refusal))
        fail_msg("refused: %s %s", refusal.subject, refusal.reason);
}

int trial_emit(const struct mw_toolchain *toolchain, const struct trial *trial,
               struct mw_compile_result *result)
{
    return trial_leaf(mw_emit, toolchain, trial, result);
}

int trial_leaf(trial_leaf_fn *leaf, const struct mw_toolchain *toolchain, const struct trial *trial,
               struct mw_compile_result *result)
{
    struct prepared prepared = {0};
    int rc;

    prepare(&prepared, trial);
    rc = leaf(toolchain, prepared.options, &prepared.request, result);
    mw_options_free(prepared.options);
    return rc;
}

int trial_diagnose(const struct mw_toolchain *toolchain, const struct trial *trial,
                   bool errors_only, struct mw_compile_result *result)
{
    struct prepared prepared = {0};
    int rc;

    *result = (struct mw_compile_result){0};
    prepare(&prepared, trial);
    rc = mw_diagnose(toolchain, prepared.options, &prepared.request, errors_only,
                     &result->diagnostics);
    mw_options_free(prepared.options);
    return rc;
}

struct bytes trial_clang(const struct mw_toolchain *toolchain, const struct trial *trial,
                         const char *folder, const char *const flags[3], struct bytes *said)
{
    const char *argv[TRIAL_ARGS_MAX + 8] = {mw_toolchain_clang_path(toolchain)};
    char *output = path_join(folder, "output-of-clang");
    char *printed = path_join(folder, "words-of-clang");
    struct bytes bytes = {0};
    size_t n = 1;

    for (size_t i = 0; i < TRIAL_FILES_MAX && trial->files[i].name; i++) {
        char *path = path_join(folder, trial->files[i].name);

        file_write(path, trial->files[i].text, strlen(trial->files[i].text));
        free(path);
    }
    for (size_t i = 0; i < TRIAL_ARGS_MAX && trial->args[i]; i++)
        argv[n++] = trial->args[i];
    for (size_t i = 0; i < 3 && flags[i]; i++)
        argv[n++] = flags[i];
    argv[n++] = "-o";
    argv[n++] = output;
    argv[n++] = trial->files[0].name;
    process_run(folder, argv, NULL, printed);
    if (access(output, R_OK) == 0)
        bytes = file_read(output);
    if (said)
        *said = file_read(printed);
    unlink(output);
    unlink(printed);
    free(printed);
    free(output);
    return bytes;
}

const struct mw_diagnostic *diagnostic_find(const struct mw_diagnostics *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strstr(list->items[i].message, text))
            return &list->items[i];
    return NULL;
}

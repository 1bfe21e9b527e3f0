/* emit.c - see emit.h. */
#include "emit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <clang-c/Index.h>
#include <millwright/diagnose.h>
#include <millwright/line_map.h>
#include <millwright/targets.h>

#include "clang_bridge.h"
#include "guard_internal.h"

/* What the driver, the frontend, the assembler and libclang read from the environment. A '*' at
 * the end stands for any ending. LLVM_OVERRIDE_PRODUCER is not here: LLVM reads it when its library
 * is loaded, so it cannot be kept away, and the toolchain's identity holds it. */
static const char *const environment_names[] = {
    "AMD_SPLIT_MODULE_LOG_*",
    "AS_SECURE_LOG_FILE",
    "CCC_*",
    "CC_LOG_*",
    "CC_PRINT_*",
    "CL",
    "CLANG_*",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    "DRIVERKIT_DEPLOYMENT_TARGET",
    "EXTERNAL_INCLUDE",
    "FORCE_CLANG_*",
    "GCC_EXEC_PREFIX",
    "HIP_*",
    "INCLUDE",
    "IPHONEOS_DEPLOYMENT_TARGET",
    "LIBCLANG_*",
    "LIBRARY_PATH",
    "MACOSX_DEPLOYMENT_TARGET",
    "NCC_*",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "RC_DEBUG_*",
    "ROCM_PATH",
    "SCE_*",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
    "SUNPRO_DEPENDENCIES",
    "TVOS_DEPLOYMENT_TARGET",
    "VCINSTALLDIR",
    "VCToolsInstallDir",
    "WATCHOS_DEPLOYMENT_TARGET",
    "XCC_*",
    "XROS_DEPLOYMENT_TARGET",
    "_CL_",
};

/* What libclang must see: no thread for each parse, and the host's signal handlers left alone. */
static const char *const libclang_names[] = {
    "LIBCLANG_NOTHREADS",
    "LIBCLANG_DISABLE_CRASH_RECOVERY",
};

static int clean_environment(void);
static int emit(const struct mw_toolchain *toolchain, const struct mw_options *options,
                const struct mw_compile_request *request, struct mw_compile_result *result,
                enum mw_bridge_end *end);
static int explain(struct mw_diagnostics *diagnostics, bool broke_down);
static int collect(void *user, const struct mw_diagnostic *diagnostic);
static const char *why_not_storable(const struct mw_compile_request *request,
                                    const struct mw_bridge_result *ran);

int mw_compile_init(void)
{
    int rc = clean_environment();

    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof(libclang_names) / sizeof(libclang_names[0]); i++)
        if (setenv(libclang_names[i], "1", 1))
            return -ENOMEM;
    /* The first index takes LLVM's handler of fatal errors; mw_bridge_init takes it over later. */
    clang_disposeIndex(clang_createIndex(0, 0));
    return 0;
}

int mw_emit(const struct mw_toolchain *toolchain, const struct mw_options *options,
            const struct mw_compile_request *request, struct mw_compile_result *result)
{
    enum mw_bridge_end end;

    return emit(toolchain, options, request, result, &end);
}

int mw_compile(const struct mw_toolchain *toolchain, const struct mw_options *options,
               const struct mw_compile_request *request, struct mw_compile_result *result)
{
    enum mw_bridge_end end;
    int rc = emit(toolchain, options, request, result, &end);
    size_t errors = result->diagnostics.errors;
    bool broke_down = rc == -EIO;

    if (end == MW_BRIDGE_CRASHED) /* and would again, in libclang */
        return 0;
    if (result->ok || (rc != 0 && !broke_down))
        return rc;
    if (rc == 0 && errors > 0)
        return mw_target_explain(options, &result->diagnostics);
    rc = mw_diagnose(toolchain, options, request, true, &result->diagnostics);
    if (rc == 0 && result->diagnostics.errors == errors)
        rc = explain(&result->diagnostics, broke_down);
    return rc;
}

void mw_compile_result_fini(struct mw_compile_result *result)
{
    if (!result)
        return;
    free(result->artifact);
    for (size_t i = 0; i < MW_EXTRAS; i++)
        free(result->extras[i].data);
    free(result->inputs.data);
    mw_diagnostics_fini(&result->diagnostics);
    *result = (struct mw_compile_result){0};
}

static uint64_t artifact_bytes_max(const struct mw_compile_request *request)
{
    uint64_t asked = request->artifact_bytes_max;

    return asked > 0 && asked < MW_ARTIFACT_BYTES_MAX ? asked : MW_ARTIFACT_BYTES_MAX;
}

static int emit(const struct mw_toolchain *toolchain, const struct mw_options *options,
                const struct mw_compile_request *request, struct mw_compile_result *result,
                enum mw_bridge_end *end)
{
    struct mw_bridge_job job = {
        .clang_path = mw_toolchain_clang_path(toolchain),
        .directory = request->directory,
        .main = request->main,
        .files = request->files,
        .file_count = request->file_count,
        .emit = mw_options_emit(options),
        .extras = mw_options_extras(options),
        .preamble = request->preamble,
        .artifact_bytes_max = artifact_bytes_max(request),
        .on_diagnostic = collect,
        .user = &result->diagnostics,
        .cancelled = request->cancelled,
        .cancelled_user = request->cancelled_user,
    };
    uint64_t heap_bytes = mw_guard_heap_bytes();
    struct mw_bridge_result ran = {0};
    int rc;

    *result = (struct mw_compile_result){0};
    job.args = mw_options_args(options, &job.arg_count);
    if (!request->read_disk)
        job.readable_dirs = mw_toolchain_dirs(toolchain, &job.readable_count);
    rc = mw_bridge_run(&job, &ran);
    *end = ran.end;
    if (ran.end != MW_BRIDGE_RETURNED)
        mw_guard_note_loss(heap_bytes, ran.end == MW_BRIDGE_CRASHED);
    result->ok = rc == 0 && ran.ok;
    result->artifact = ran.artifact;
    result->artifact_bytes = ran.artifact_bytes;
    result->not_storable = why_not_storable(request, &ran);
    result->inputs = (struct mw_text){ran.inputs.data, ran.inputs.bytes};
    for (size_t i = 0; i < MW_EXTRAS; i++)
        result->extras[i] = (struct mw_text){ran.extras[i].data, ran.extras[i].bytes};
    if (result->ok && mw_options_extras(options) & 1u << MW_EXTRA_LINE_MAP)
        rc = mw_line_map_make(&result->extras[MW_EXTRA_LINE_MAP], result->artifact,
                              result->artifact_bytes, request->directory);
    return rc;
}

/* The source has no errors, and yet there is no artifact: say so, below what the compiler said. */
static int explain(struct mw_diagnostics *diagnostics, bool broke_down)
{
    struct mw_diagnostic why = {
        .severity = diagnostics->errors > 0 ? MW_SEVERITY_NOTE : MW_SEVERITY_ERROR,
        .file = "",
        .message = broke_down
                       ? "the source itself has no errors: the code generator cannot do this for "
                         "this target; try another target or optimisation level"
                       : "the compiler failed and did not say why, and the source itself has no "
                         "errors; try other flags",
        .flag = "",
        .category = "",
        .line_text = "",
    };

    return mw_diagnostics_add(diagnostics, &why);
}

static bool matches(const char *variable, const char *pattern)
{
    size_t length = strcspn(variable, "=");
    size_t prefix = strcspn(pattern, "*");

    if (strncmp(variable, pattern, prefix) != 0)
        return false;
    return pattern[prefix] == '*' ? length >= prefix : length == prefix;
}

static bool is_obeyed(const char *variable)
{
    for (size_t i = 0; i < sizeof(environment_names) / sizeof(environment_names[0]); i++)
        if (matches(variable, environment_names[i]))
            return true;
    return false;
}

/* Removing a variable moves the others, so look again from the start after each. */
static int clean_environment(void)
{
    for (char **at = environ; at && *at;) {
        char *name;

        if (!is_obeyed(*at)) {
            at++;
            continue;
        }
        name = strndup(*at, strcspn(*at, "="));
        if (!name)
            return -ENOMEM;
        unsetenv(name);
        free(name);
        at = environ;
    }
    return 0;
}

static int collect(void *user, const struct mw_diagnostic *diagnostic)
{
    return mw_diagnostics_add(user, diagnostic);
}

static const char *why_not_storable(const struct mw_compile_request *request,
                                    const struct mw_bridge_result *ran)
{
    if (ran->end != MW_BRIDGE_RETURNED)
        return "the compiler broke down";
    if (request->read_disk)
        return "read_disk: files outside the request may have been read";
    if (ran->has_inline_asm)
        return "inline assembly may read files";
    if (ran->reads_clock)
        return "__DATE__ or __TIME__ was used";
    return NULL;
}

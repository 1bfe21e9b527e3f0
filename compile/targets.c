#include <millwright/targets.h>

#include <llvm-c/TargetMachine.h>
#include <stdio.h>
#include <string.h>

static const char *machine_of(const struct mw_options *options);
static bool is_header_missing(const struct mw_diagnostic *diagnostic);

bool mw_target_get(size_t index, struct mw_target *target)
{
    LLVMTargetRef at = LLVMGetFirstTarget();

    for (; at; at = LLVMGetNextTarget(at)) {
        if (LLVMTargetHasTargetMachine(at) && LLVMTargetHasAsmBackend(at) && index-- == 0)
            break;
    }
    if (!at)
        return false;
    *target = (struct mw_target){LLVMGetTargetName(at), LLVMGetTargetDescription(at)};
    return true;
}

int mw_target_explain(const struct mw_options *options, struct mw_diagnostics *diagnostics)
{
    const char *machine = machine_of(options);
    const char *why = NULL;
    struct mw_diagnostic note = {
        .severity = MW_SEVERITY_NOTE, .file = "", .flag = "", .category = "", .line_text = ""};
    char message[512];

    for (size_t i = 0; machine && !why && i < diagnostics->count; i++) {
        const struct mw_diagnostic *found = &diagnostics->items[i];

        if (found->severity < MW_SEVERITY_ERROR)
            continue;
        if (strstr(found->message, "unknown target") ||
            strstr(found->message, "unable to create target"))
            why = "'%.64s' names no machine that this compiler makes code for; give one of those "
                  "that GET /v1/targets lists, as in --target=aarch64-linux-gnu";
        else if (is_header_missing(found))
            why = "the system's headers for '%.64s' are not installed here, or not all of them; "
                  "install its C library's (for Debian's arm64: libc6-dev-arm64-cross and "
                  "libgcc-12-dev-arm64-cross), or include only what comes with the compiler and "
                  "add -ffreestanding";
    }
    if (!why)
        return 0;
    (void)snprintf(message, sizeof message, why, machine);
    note.message = message;
    return mw_diagnostics_add(diagnostics, &note);
}

/* What the options name as the machine, if they do. */
static const char *machine_of(const struct mw_options *options)
{
    static const char target[] = "--target=";
    const char *machine = NULL;
    size_t count;
    const char *const *args = mw_options_args(options, &count);

    for (size_t i = 0; i < count; i++) {
        if (strncmp(args[i], target, sizeof target - 1) == 0)
            machine = args[i] + sizeof target - 1;
        else if (strcmp(args[i], "-m32") == 0 || strcmp(args[i], "-mx32") == 0)
            machine = args[i];
    }
    return machine;
}

/* One of the system, that is: asked for in angle brackets, or by a header of the system. */
static bool is_header_missing(const struct mw_diagnostic *diagnostic)
{
    return strstr(diagnostic->message, "' file not found") &&
           (diagnostic->file[0] == '/' || strchr(diagnostic->line_text, '<'));
}

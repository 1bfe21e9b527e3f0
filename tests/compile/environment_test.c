/* What clang obeys in the environment has no effect on a compile: each variable is set in a process
 * of its own before mw_compile_init, and the bytes are those without it. The control: clang itself,
 * asked for the same, obeys it.
 *
 * Called with "emit", "clean" or "identity" the program is that process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define VALUE_BYTES 256

/* Whether a header shows that only the variable leads to. */
#define LOOKS_FOR_SPY                                                                              \
    "#if __has_include(<spy.h>)\n"                                                                 \
    "int spy;\n"                                                                                   \
    "#else\n"                                                                                      \
    "int none;\n"                                                                                  \
    "#endif\n"

/* "%s" in a value is the folder. */
struct influence {
    const char *variable, *value;
    const char *also, *also_value; /* a second one, or NULL */
    const char *main, *text;
    const char *args[3];
    enum mw_emit_kind emit;
    const char *clang_arg; /* for clang alone: what the policy does not let through; or NULL */
    const char *left;      /* the file that clang leaves in the folder; NULL: its bytes differ */
};

static const struct influence influences[] = {
    {"CPATH", "%s/inc", .text = LOOKS_FOR_SPY},
    {"C_INCLUDE_PATH", "%s/inc", .text = LOOKS_FOR_SPY},
    {"CPLUS_INCLUDE_PATH", "%s/inc", .main = "a.cc", .text = LOOKS_FOR_SPY},
    {"OBJC_INCLUDE_PATH", "%s/inc", .text = LOOKS_FOR_SPY, .clang_arg = "-xobjective-c"},
    {"OBJCPLUS_INCLUDE_PATH", "%s/inc", .text = LOOKS_FOR_SPY, .clang_arg = "-xobjective-c++"},
    {"NCC_C_INCLUDE_PATH", "%s/inc", .text = LOOKS_FOR_SPY, .args = {"--target=ve-linux"}},
    {"NCC_CPLUS_INCLUDE_PATH", "%s/inc", .main = "a.cc", .text = LOOKS_FOR_SPY,
     .args = {"--target=ve-linux"}, .emit = MW_EMIT_LLVM_IR},
    {"XCC_C_INCLUDE_PATH", "%s/inc", .text = LOOKS_FOR_SPY, .args = {"--target=xcore"},
     .emit = MW_EMIT_ASM},
    {"INCLUDE", "%s/inc", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-pc-windows-msvc"}},
    {"EXTERNAL_INCLUDE", "%s/inc", .text = LOOKS_FOR_SPY,
     .args = {"--target=x86_64-pc-windows-msvc"}},
    {"VCToolsInstallDir", "%s", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-pc-windows-msvc"}},
    {"VCINSTALLDIR", "%s", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-pc-windows-msvc"}},
    {"SDKROOT", "%s", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-apple-macosx"}},
    /* for these two there is no code */
    {"SCE_ORBIS_SDK_DIR", "%s", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-scei-ps4"},
     .emit = MW_EMIT_PREPROCESSED},
    {"SCE_PROSPERO_SDK_DIR", "%s", .text = LOOKS_FOR_SPY, .args = {"--target=x86_64-sie-ps5"},
     .emit = MW_EMIT_PREPROCESSED},
    {"CCC_OVERRIDE_OPTIONS", "# +-I%s/inc", .text = LOOKS_FOR_SPY},
    {"MACOSX_DEPLOYMENT_TARGET", "10.9", .args = {"--target=x86_64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"IPHONEOS_DEPLOYMENT_TARGET", "12.0", .args = {"--target=arm64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"TVOS_DEPLOYMENT_TARGET", "12.0", .args = {"--target=arm64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"WATCHOS_DEPLOYMENT_TARGET", "5.0", .args = {"--target=arm64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"XROS_DEPLOYMENT_TARGET", "1.0", .args = {"--target=arm64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"DRIVERKIT_DEPLOYMENT_TARGET", "19.0", .args = {"--target=arm64-apple-darwin"},
     .emit = MW_EMIT_LLVM_IR},
    {"SOURCE_DATE_EPOCH", "0", .text = "const char *date = __DATE__;\n"},
    {"RC_DEBUG_OPTIONS", "1", .args = {"--target=x86_64-apple-macosx", "-g"},
     .emit = MW_EMIT_LLVM_IR},
    {"RC_DEBUG_PREFIX_MAP", "%s=/spy", .args = {"--target=x86_64-apple-macosx", "-g"},
     .emit = MW_EMIT_LLVM_IR},
    {"AS_SECURE_LOG_FILE", "%s/log", .text = "__asm__(\".secure_log_unique \\\"spy\\\"\");\n",
     .args = {"--target=x86_64-apple-macosx"}, .left = "log"},
    {"COMPILER_PATH", "%s/bin", .clang_arg = "-fno-integrated-as", .left = "as-ran"},
    {"CC_LOG_DIAGNOSTICS", "1", "CC_LOG_DIAGNOSTICS_FILE", "%s/log", .left = "log"},
    {"CC_PRINT_OPTIONS", "1", "CC_PRINT_OPTIONS_FILE", "%s/log", .left = "log"},
    {"CC_PRINT_HEADERS", "1", "CC_PRINT_HEADERS_FILE", "%s/log", .left = "log"},
    {"CC_PRINT_PROC_STAT", "1", "CC_PRINT_PROC_STAT_FILE", "%s/log", .left = "log"},
    {"CC_PRINT_INTERNAL_STAT", "1", "CC_PRINT_INTERNAL_STAT_FILE", "%s/log", .left = "log"},
};

/* Set too, though no plain compile shows what they do: they work with modules, when linking, on a
 * crash, in libclang's logs, or on a GPU's toolchain; or only older clangs obey them. */
static const char *const others[] = {"CLANG_MODULE_CACHE_PATH",
                                     "CLANG_CRASH_DIAGNOSTICS_DIR",
                                     "CLANG_NO_DEFAULT_CONFIG",
                                     "FORCE_CLANG_DIAGNOSTICS_CRASH",
                                     "LIBRARY_PATH",
                                     "GCC_EXEC_PREFIX",
                                     "DEPENDENCIES_OUTPUT",
                                     "SUNPRO_DEPENDENCIES",
                                     "HIP_PATH",
                                     "HIP_DEVICE_LIB_PATH",
                                     "ROCM_PATH",
                                     "CL",
                                     "_CL_",
                                     "XCC_CPLUS_INCLUDE_PATH",
                                     "AMD_SPLIT_MODULE_LOG_DIR",
                                     "LIBCLANG_LOGGING",
                                     "LIBCLANG_TIMING",
                                     "LIBCLANG_OBJTRACKING",
                                     "LIBCLANG_RESOURCE_USAGE",
                                     "LIBCLANG_DISABLE_PCH_VALIDATION",
                                     "LIBCLANG_BGPRIO_INDEX",
                                     "LIBCLANG_CODE_COMPLETION_LOGGING"};

static struct folder folder;
static char *self;

static struct trial trial_of(const struct influence *influence)
{
    struct trial trial = {.directory = folder.path, .emit = influence->emit};

    trial.files[0].name = influence->main ? influence->main : "a.c";
    trial.files[0].text = influence->text ? influence->text : "int a;\n";
    memcpy(trial.args, influence->args, sizeof influence->args);
    return trial;
}

static void variable_set(const char *name, const char *value)
{
    char text[VALUE_BYTES];
    const char *place = strstr(value, "%s");

    (void)snprintf(text, sizeof text, "%.*s%s%s", place ? (int)(place - value) : (int)sizeof text,
                   value, place ? folder.path : "", place ? place + 2 : "");
    assert_int_equal(setenv(name, text, 1), 0);
}

static void influence_set(const struct influence *influence, bool on)
{
    if (on) {
        variable_set(influence->variable, influence->value);
        if (influence->also)
            variable_set(influence->also, influence->also_value);
    } else {
        (void)unsetenv(influence->variable);
        if (influence->also)
            (void)unsetenv(influence->also);
    }
}

/* Whether the file is there; from now on it is not. */
static bool was_left(const char *name)
{
    char *path = folder_path(&folder, name);
    bool was = access(path, F_OK) == 0;

    if (was)
        (void)unlink(path);
    free(path);
    return was;
}

static struct bytes clang_run(const struct influence *influence)
{
    static const char *const kinds[MW_EMIT_KINDS][2] = {[MW_EMIT_OBJECT] = {"-c"},
                                                        [MW_EMIT_ASM] = {"-S"},
                                                        [MW_EMIT_LLVM_IR] = {"-S", "-emit-llvm"},
                                                        [MW_EMIT_BITCODE] = {"-c", "-emit-llvm"},
                                                        [MW_EMIT_PREPROCESSED] = {"-E"}};
    const char *flags[3] = {kinds[influence->emit][0], kinds[influence->emit][1]};
    struct mw_toolchain *toolchain = NULL;
    struct trial trial = trial_of(influence);
    struct bytes bytes;

    flags[flags[1] ? 2 : 1] = influence->clang_arg;
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    bytes = trial_clang(toolchain, &trial, folder.path, flags, NULL);
    mw_toolchain_free(toolchain);
    return bytes;
}

static struct bytes ours_run(size_t index)
{
    char number[24];
    char *output = folder_path(&folder, "output");
    const char *const argv[] = {self, "emit", number, output, folder.path, NULL};
    struct bytes bytes;

    (void)snprintf(number, sizeof number, "%zu", index);
    assert_int_equal(process_run(folder.path, argv, NULL, NULL), 0);
    bytes = file_read(output);
    (void)unlink(output);
    free(output);
    return bytes;
}

static bool same(struct bytes a, struct bytes b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.data, b.data, a.count) == 0);
}

/* Broken by a variable that the list in emit.c lacks: the bytes then depend on what the content key
 * does not know. */
static void no_variable_that_clang_obeys_has_an_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(influences); i++) {
        const struct influence *influence = &influences[i];
        struct bytes clang = clang_run(influence), ours = ours_run(i), clang_set, ours_set;
        bool obeyed;

        influence_set(influence, true);
        clang_set = clang_run(influence);
        obeyed = influence->left ? was_left(influence->left) : !same(clang, clang_set);
        if (!obeyed)
            fail_msg("the control fails: clang does not obey %s", influence->variable);
        ours_set = ours_run(i);
        influence_set(influence, false);
        if (!same(ours, ours_set) || (influence->left && was_left(influence->left)))
            fail_msg("%s has an effect", influence->variable);
        assert_true(ours.count > 0 || influence->left);
        free(clang.data);
        free(clang_set.data);
        free(ours.data);
        free(ours_set.data);
    }
}

/* Broken by a name in the list of emit.c that is misspelled, or by an environment that is not clean
 * after the first removal. */
static void nothing_that_clang_obeys_is_left_in_the_environment(void **state)
{
    const char *const argv[] = {self, "clean", NULL};

    (void)state;
    for (size_t i = 0; i < COUNT(influences); i++)
        influence_set(&influences[i], true);
    for (size_t i = 0; i < COUNT(others); i++)
        variable_set(others[i], "1");
    variable_set("LIBCLANG_NOTHREADS", "0"); /* whatever the host said */
    assert_int_equal(process_run(folder.path, argv, NULL, NULL), 0);
    for (size_t i = 0; i < COUNT(influences); i++)
        influence_set(&influences[i], false);
    for (size_t i = 0; i < COUNT(others); i++)
        (void)unsetenv(others[i]);
    (void)unsetenv("LIBCLANG_NOTHREADS");
}

/* Broken by an identity that lacks what LLVM took from the environment before anybody could keep it
 * away: bitcode would then differ under one key. */
static void what_llvm_reads_when_it_is_loaded_is_in_the_identity(void **state)
{
    struct influence influence = {"LLVM_OVERRIDE_PRODUCER", "spy", .emit = MW_EMIT_BITCODE};
    char *output = folder_path(&folder, "output");
    const char *const argv[] = {self, "identity", output, NULL};
    struct bytes clang[2], identity[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        influence_set(&influence, i == 1);
        clang[i] = clang_run(&influence);
        assert_int_equal(process_run(folder.path, argv, NULL, NULL), 0);
        identity[i] = file_read(output);
    }
    influence_set(&influence, false);
    assert_false(same(clang[0], clang[1]));
    assert_false(same(identity[0], identity[1]));
    assert_non_null(strstr(identity[1].data, "producer spy"));
    for (size_t i = 0; i < 2; i++) {
        free(clang[i].data);
        free(identity[i].data);
    }
    (void)unlink(output);
    free(output);
}

/* ---- the process of its own ---- */

static int emit_main(size_t index, const char *output, const char *directory)
{
    struct mw_compile_result result;
    struct trial trial;
    void *toolchain;

    (void)snprintf(folder.path, sizeof folder.path, "%s", directory);
    if (index >= COUNT(influences) || trial_setup(&toolchain))
        return 1;
    trial = trial_of(&influences[index]);
    if (trial_emit(toolchain, &trial, &result)) /* a compile that fails gives no bytes */
        return 2;
    file_write(output, result.artifact, result.artifact_bytes);
    mw_compile_result_fini(&result);
    return trial_teardown(&toolchain);
}

static int identity_main(const char *output)
{
    struct mw_toolchain *toolchain = NULL;

    if (mw_compile_init() || mw_toolchain_new(&toolchain))
        return 1;
    file_write(output, mw_toolchain_identity(toolchain), strlen(mw_toolchain_identity(toolchain)));
    mw_toolchain_free(toolchain);
    return 0;
}

static int clean_main(void)
{
    int left = 0;

    if (mw_compile_init())
        return 1;
    for (size_t i = 0; i < COUNT(influences); i++) {
        if (getenv(influences[i].variable) || (influences[i].also && getenv(influences[i].also)))
            left++;
    }
    for (size_t i = 0; i < COUNT(others); i++)
        left += getenv(others[i]) != NULL;
    for (char **variable = environ; *variable; variable++)
        left += strncmp(*variable, "LIBCLANG_", strlen("LIBCLANG_")) == 0 &&
                strcmp(*variable, "LIBCLANG_NOTHREADS=1") != 0 &&
                strcmp(*variable, "LIBCLANG_DISABLE_CRASH_RECOVERY=1") != 0;
    return left || !getenv("LIBCLANG_NOTHREADS") ? 2 : 0;
}

static int setup(void **state)
{
    static const char *const folders[] = {"inc",         "include", "bin",           "usr",
                                          "usr/include", "target",  "target/include"};
    static const char *const spies[] = {"inc/spy.h", "include/spy.h", "usr/include/spy.h",
                                        "target/include/spy.h"};
    char *as, script[VALUE_BYTES];

    (void)state;
    folder_make(&folder);
    for (size_t i = 0; i < COUNT(folders); i++)
        folder_mkdir(&folder, folders[i]);
    for (size_t i = 0; i < COUNT(spies); i++)
        folder_write(&folder, spies[i], "int spy_seen;\n");
    (void)snprintf(script, sizeof script, "#!/bin/sh\n: >'%s/as-ran'\n", folder.path);
    folder_write(&folder, "bin/as", script);
    as = folder_path(&folder, "bin/as");
    assert_int_equal(chmod(as, 0700), 0);
    free(as);
    self = realpath("/proc/self/exe", NULL);
    return self ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(self);
    folder_remove(&folder);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_variable_that_clang_obeys_has_an_effect),
        cmocka_unit_test(nothing_that_clang_obeys_is_left_in_the_environment),
        cmocka_unit_test(what_llvm_reads_when_it_is_loaded_is_in_the_identity),
    };

    if (argc == 5 && strcmp(argv[1], "emit") == 0)
        return emit_main(strtoul(argv[2], NULL, 10), argv[3], argv[4]);
    if (argc == 3 && strcmp(argv[1], "identity") == 0)
        return identity_main(argv[2]);
    if (argc == 2 && strcmp(argv[1], "clean") == 0)
        return clean_main();
    return cmocka_run_group_tests(tests, setup, teardown);
}

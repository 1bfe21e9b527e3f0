/* packages_test.c - names of installed packages become flags that a compile may have; what is not
 * installed, no name, or out of reach is refused with its reason; the environment has no say. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/packages.h>

#include "folder.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A package that the build itself needs, and that has a folder of its own for its headers. */
#define PACKAGE      "libpkgconf"
#define PACKAGE_FLAG "-isystem/usr/include/pkgconf"
#define PACKAGE_USE  "#include <libpkgconf/libpkgconf.h>\nint n = LIBPKGCONF_VERSION;\n"

static int resolve(const struct mw_toolchain *toolchain, const char *path, const char *name,
                   struct mw_package_flags *flags, struct mw_refusal *refusal)
{
    const struct mw_package_source source = {toolchain, path};

    *refusal = (struct mw_refusal){0};
    return mw_packages_flags(flags, &source, &name, 1, refusal);
}

static void expect_refused(const struct mw_toolchain *toolchain, const char *path, const char *name,
                           int error, enum mw_refusal_kind kind, const char *reason)
{
    struct mw_package_flags flags;
    struct mw_refusal refusal;

    assert_int_equal(resolve(toolchain, path, name, &flags, &refusal), error);
    assert_int_equal(refusal.kind, kind);
    if (!strstr(refusal.reason, reason))
        fail_msg("'%s' does not say '%s'", refusal.reason, reason);
    mw_packages_flags_free(&flags);
}

/* Compile PACKAGE_USE with `flags`. Returns whether that went well. */
static bool compiles(const struct mw_toolchain *toolchain, const struct mw_package_flags *flags)
{
    const struct mw_source_file file = {"main.c", PACKAGE_USE, sizeof PACKAGE_USE - 1};
    const struct mw_compile_request request = {
        .directory = MW_REQUEST_DIRECTORY_DEFAULT,
        .main = file.name,
        .files = &file,
        .file_count = 1,
        .package_args = (const char *const *)flags->flags,
        .package_arg_count = flags->count,
    };
    struct mw_compile_result result = {0};
    struct mw_options *options = NULL;
    bool ok;

    assert_int_equal(mw_request_check(&request, NULL), 0);
    assert_int_equal(mw_options_new(&options, &request, NULL), 0);
    assert_int_equal(mw_emit(toolchain, options, &request, &result), 0);
    ok = result.ok;
    if (!ok)
        assert_non_null(diagnostic_find(&result.diagnostics, "libpkgconf.h' file not found"));
    mw_compile_result_fini(&result);
    mw_options_free(options);
    return ok;
}

/* Broken when a package's include folder does not reach the compile. */
static void a_package_lets_its_headers_be_included(void **state)
{
    struct mw_package_flags flags, none = {0};
    struct mw_refusal refusal;

    assert_int_equal(resolve(*state, NULL, PACKAGE, &flags, &refusal), 0);
    assert_int_equal(flags.count, 1);
    assert_string_equal(flags.flags[0], PACKAGE_FLAG);
    assert_true(compiles(*state, &flags));
    assert_false(compiles(*state, &none)); /* control */
    mw_packages_flags_free(&flags);
}

/* Broken when packages that need no flags are taken for missing, or one that is named twice, or
 * with others, is lost. */
static void packages_are_resolved_together(void **state)
{
    static const char *const names[] = {"zlib", "sqlite3", PACKAGE, "zlib", PACKAGE};
    const struct mw_package_source source = {*state, NULL};
    struct mw_package_flags flags;

    assert_int_equal(mw_packages_flags(&flags, &source, names, COUNT(names), NULL), 0);
    assert_int_equal(flags.count, 1);
    assert_string_equal(flags.flags[0], PACKAGE_FLAG);
    mw_packages_flags_free(&flags);
    assert_int_equal(mw_packages_flags(&flags, &source, names, 0, NULL), 0);
    assert_int_equal(flags.count, 0);
    mw_packages_flags_free(&flags);
}

/* Broken when the flags are not among those that make the fingerprint, in front of the others. */
static void flags_of_packages_are_options_before_a_requests_own(void **state)
{
    static const char *const package_args[] = {"-isystem/usr/include/x", "-DA=1"};
    static const char *const args[] = {"-DA=2"};
    const struct mw_source_file file = {"main.c", "", 0};
    struct mw_compile_request request = {
        .directory = MW_REQUEST_DIRECTORY_DEFAULT,
        .main = file.name,
        .files = &file,
        .file_count = 1,
        .args = args,
        .arg_count = 1,
        .package_args = package_args,
        .package_arg_count = 2,
    };
    struct mw_options *options;
    const char *lines = "arg -isystem/usr/include/x\narg -DA=1\narg -DA=2\n";

    (void)state;
    assert_int_equal(mw_options_new(&options, &request, NULL), 0);
    assert_non_null(strstr(mw_options_fingerprint(options), lines));
    mw_options_free(options);
    request.package_arg_count = 0; /* control */
    assert_int_equal(mw_options_new(&options, &request, NULL), 0);
    assert_null(strstr(mw_options_fingerprint(options), "isystem"));
    mw_options_free(options);
    request.args = package_args; /* control: a request's own flags name no folder of the disk */
    assert_int_equal(mw_options_new(&options, &request, NULL), -EPERM);
}

/* Broken when a missing package passes, or its refusal does not say which and what to do. */
static void a_missing_package_is_named(void **state)
{
    struct mw_package_flags flags;
    struct mw_refusal refusal;

    assert_int_equal(resolve(*state, NULL, "no-such-package", &flags, &refusal), -ENOENT);
    assert_int_equal(refusal.kind, MW_REFUSAL_PACKAGE);
    assert_string_equal(refusal.subject, "no-such-package");
    assert_non_null(strstr(refusal.reason, "install its -dev package"));
    mw_packages_flags_free(&flags);
}

/* Broken when libpkgconf is handed what it takes for a path, a version or another thing. */
static void what_is_no_name_is_refused(void **state)
{
    static const char *const names[] = {
        "",        "-zlib", "../zlib",       "/usr/lib/x86_64-linux-gnu/pkgconfig/zlib.pc",
        "zlib.pc", ".",     "zlib >= 1.2",   "zlib,sqlite3",
        "zl\nib",  "zl'ib", "virtual:world", "\303\251",
    };
    char long_name[MW_PACKAGE_NAME_BYTES_MAX + 2];

    for (size_t i = 0; i < COUNT(names); i++)
        expect_refused(*state, NULL, names[i], -EINVAL, MW_REFUSAL_FIELD, "'; ");
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    expect_refused(*state, NULL, long_name, -EINVAL, MW_REFUSAL_FIELD, "at most 128");
    long_name[MW_PACKAGE_NAME_BYTES_MAX] = '\0'; /* control: a name, of no package */
    expect_refused(*state, NULL, long_name, -ENOENT, MW_REFUSAL_PACKAGE, "installed");
}

/* Broken when more names than the bound are looked for. */
static void more_names_than_the_bound_are_refused(void **state)
{
    const char *names[MW_PACKAGES_MAX + 1];
    const struct mw_package_source source = {*state, NULL};
    struct mw_package_flags flags;

    for (size_t i = 0; i < COUNT(names); i++)
        names[i] = "zlib";
    assert_int_equal(mw_packages_flags(&flags, &source, names, COUNT(names), NULL), -E2BIG);
    assert_int_equal(mw_packages_flags(&flags, &source, names, MW_PACKAGES_MAX, NULL), 0);
    mw_packages_flags_free(&flags);
}

/* Broken when a .pc file gives a compile what it may not have, or what it may is lost. */
static void a_description_gives_only_what_a_compile_may_have(void **state)
{
    static const struct {
        const char *cflags, *flag; /* flag NULL: none */
        int error;
        const char *reason;
    } cases[] = {
        {"-DTEAM=1", "-DTEAM=1", 0, ""},
        {"-DTEAM=\\\"a\\ b\\\"", "-DTEAM=\"a b\"", 0, ""},
        {"-pthread", "-pthread", 0, ""},
        {"-I/usr/include/linux", "-isystem/usr/include/linux", 0, ""},
        {"-isystem /usr/include/linux", "-isystem/usr/include/linux", 0, ""},
        {"-I/usr/include/../include/./linux/", "-isystem/usr/include/linux", 0, ""},
        {"-I/usr/include", NULL, 0, ""},
        {"-I/usr/include/x86_64-linux-gnu", NULL, 0, ""},
        {"-I/usr/include/no-such-folder", NULL, 0, ""},
        {"-I/etc", NULL, -EPERM, "may not read"},
        {"-I/usr/include/../../etc", NULL, -EPERM, "may not read"},
        {"-I/usr/includes", NULL, 0, ""}, /* not there */
        {"-I/usr", NULL, -EPERM, "may not read"},
        {"-Iinclude", NULL, -EPERM, "not absolute"},
        {"-fplugin=/tmp/x.so", NULL, -EPERM, "loads or runs"},
        {"-include /etc/passwd", NULL, -EPERM, "\"files\""},
        {"@/etc/passwd", NULL, -EPERM, "from a file"},
        {"-Wl,-rpath,/x", NULL, -EPERM, "linking"},
    };
    struct folder folder;

    folder_make(&folder);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        struct mw_package_flags flags;
        struct mw_refusal refusal;

        (void)snprintf(text, sizeof text, "Name: t\nDescription: t\nVersion: 1\nCflags: %s\n",
                       cases[i].cflags);
        folder_write(&folder, "team.pc", text);
        if (cases[i].error) {
            expect_refused(*state, folder.path, "team", cases[i].error, MW_REFUSAL_FLAG,
                           cases[i].reason);
            continue;
        }
        if (resolve(*state, folder.path, "team", &flags, &refusal) != 0)
            fail_msg("%s: %s %s", cases[i].cflags, refusal.subject, refusal.reason);
        assert_int_equal(flags.count, cases[i].flag ? 1 : 0);
        if (cases[i].flag)
            assert_string_equal(flags.flags[0], cases[i].flag);
        mw_packages_flags_free(&flags);
    }
    folder_remove(&folder);
}

/* Broken when what a package needs is not looked for, or is missing and not named. */
static void what_a_package_needs_comes_with_it(void **state)
{
    struct folder folder;
    struct mw_package_flags flags;
    struct mw_refusal refusal;

    folder_make(&folder);
    folder_write(&folder, "team.pc",
                 "Name: t\nDescription: t\nVersion: 1\nRequires: " PACKAGE "\nCflags: -DTEAM\n");
    folder_write(&folder, "lone.pc",
                 "Name: t\nDescription: t\nVersion: 1\nRequires: no-such-package\n");
    folder_write(&folder, "late.pc",
                 "Name: t\nDescription: t\nVersion: 1\nRequires: " PACKAGE " >= 99999\n");
    assert_int_equal(resolve(*state, folder.path, "team", &flags, &refusal), 0);
    assert_int_equal(flags.count, 2);
    assert_string_equal(flags.flags[0], "-DTEAM");
    assert_string_equal(flags.flags[1], PACKAGE_FLAG);
    mw_packages_flags_free(&flags);
    expect_refused(*state, folder.path, "lone", -ENOENT, MW_REFUSAL_PACKAGE, "no-such-package");
    expect_refused(*state, folder.path, "late", -ENOENT, MW_REFUSAL_PACKAGE, "99999");
    folder_remove(&folder);
}

/* Broken when a variable of the environment decides where packages are looked for, or what of them
 * is left out. */
static void the_environment_has_no_say(void **state)
{
    static const char *const empty_ones[] = {"PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR",
                                             "PKG_CONFIG_SYSTEM_INCLUDE_PATH"};
    struct folder folder;
    struct mw_package_flags flags;
    struct mw_refusal refusal;

    folder_make(&folder);
    folder_write(&folder, "team.pc", "Name: t\nDescription: t\nVersion: 1\nCflags: -DTEAM\n");
    assert_int_equal(setenv("PKG_CONFIG_PATH", folder.path, 1), 0);
    for (size_t i = 0; i < COUNT(empty_ones); i++)
        assert_int_equal(setenv(empty_ones[i], "/usr/include/pkgconf", 1), 0);
    expect_refused(*state, NULL, "team", -ENOENT, MW_REFUSAL_PACKAGE, "installed");
    assert_int_equal(resolve(*state, NULL, PACKAGE, &flags, &refusal), 0);
    assert_int_equal(flags.count, 1);
    assert_string_equal(flags.flags[0], PACKAGE_FLAG);
    mw_packages_flags_free(&flags);
    /* control: where one is told to look, the package is found */
    assert_int_equal(resolve(*state, folder.path, "team", &flags, &refusal), 0);
    mw_packages_flags_free(&flags);
    unsetenv("PKG_CONFIG_PATH");
    for (size_t i = 0; i < COUNT(empty_ones); i++)
        unsetenv(empty_ones[i]);
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_package_lets_its_headers_be_included),
        cmocka_unit_test(packages_are_resolved_together),
        cmocka_unit_test(flags_of_packages_are_options_before_a_requests_own),
        cmocka_unit_test(a_missing_package_is_named),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(more_names_than_the_bound_are_refused),
        cmocka_unit_test(a_description_gives_only_what_a_compile_may_have),
        cmocka_unit_test(what_a_package_needs_comes_with_it),
        cmocka_unit_test(the_environment_has_no_say),
    };

    return cmocka_run_group_tests(tests, trial_setup, trial_teardown);
}

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/flags.h>

#define ENTRIES_MIN 150 /* the table holds more rows than this */

struct taken {
    const char *args[2];
    const char *canonical;
};

/* Each allowed family, in each way of writing it. */
static const struct taken taken[] = {
    {{"-O"}, "-O"},
    {{"-O0"}, "-O0"},
    {{"-O3"}, "-O3"},
    {{"-Os"}, "-Os"},
    {{"-Og"}, "-Og"},
    {{"-Oz"}, "-Oz"},
    {{"-std=c11"}, "-std=c11"},
    {{"-std=gnu++20"}, "-std=gnu++20"},
    {{"-ansi"}, "-ansi"},
    {{"-x", "c"}, "-xc"},
    {{"-xc++"}, "-xc++"},
    {{"-W"}, "-W"},
    {{"-Wall"}, "-Wall"},
    {{"-Wno-unused-variable"}, "-Wno-unused-variable"},
    {{"-Werror"}, "-Werror"},
    {{"-Werror=format-security"}, "-Werror=format-security"},
    {{"-Wno-error=c++11-compat"}, "-Wno-error=c++11-compat"},
    {{"-Wframe-larger-than=1024"}, "-Wframe-larger-than=1024"},
    {{"-w"}, "-w"},
    {{"-pedantic"}, "-pedantic"},
    {{"-pedantic-errors"}, "-pedantic-errors"},
    {{"-DA"}, "-DA"},
    {{"-D", "A=1"}, "-DA=1"},
    {{"-DF(x)=(x, \"y\" = 'z')"}, "-DF(x)=(x, \"y\" = 'z')"},
    {{"-DA="}, "-DA="},
    {{"-U", "A"}, "-UA"},
    {{"-g"}, "-g"},
    {{"-g0"}, "-g0"},
    {{"-g3"}, "-g3"},
    {{"-ggdb"}, "-ggdb"},
    {{"-gdwarf-2"}, "-gdwarf-2"},
    {{"-gdwarf-5"}, "-gdwarf-5"},
    {{"-gline-tables-only"}, "-gline-tables-only"},
    {{"-fPIC"}, "-fPIC"},
    {{"-fno-pic"}, "-fno-pic"},
    {{"-fPIE"}, "-fPIE"},
    {{"-fomit-frame-pointer"}, "-fomit-frame-pointer"},
    {{"-fno-strict-aliasing"}, "-fno-strict-aliasing"},
    {{"-fwrapv"}, "-fwrapv"},
    {{"-ftrapv"}, "-ftrapv"},
    {{"-fno-exceptions"}, "-fno-exceptions"},
    {{"-fno-rtti"}, "-fno-rtti"},
    {{"-fno-common"}, "-fno-common"},
    {{"-fsigned-char"}, "-fsigned-char"},
    {{"-funsigned-char"}, "-funsigned-char"},
    {{"-fvisibility=hidden"}, "-fvisibility=hidden"},
    {{"-fvisibility-inlines-hidden"}, "-fvisibility-inlines-hidden"},
    {{"-fstack-protector-strong"}, "-fstack-protector-strong"},
    {{"-fno-stack-protector"}, "-fno-stack-protector"},
    {{"-ffunction-sections"}, "-ffunction-sections"},
    {{"-fdata-sections"}, "-fdata-sections"},
    {{"-ffast-math"}, "-ffast-math"},
    {{"-fno-math-errno"}, "-fno-math-errno"},
    {{"-ffp-contract=off"}, "-ffp-contract=off"},
    {{"-fno-inline"}, "-fno-inline"},
    {{"-fno-builtin"}, "-fno-builtin"},
    {{"-fno-builtin-memcpy"}, "-fno-builtin-memcpy"},
    {{"-fshort-enums"}, "-fshort-enums"},
    {{"-ferror-limit=1"}, "-ferror-limit=1"},
    {{"-ffile-prefix-map=/build/lua=."}, "-ffile-prefix-map=/build/lua=."},
    {{"-march=x86-64-v3"}, "-march=x86-64-v3"},
    {{"-march=armv8.2-a+crypto"}, "-march=armv8.2-a+crypto"},
    {{"-mtune=generic"}, "-mtune=generic"},
    {{"-msse4.2"}, "-msse4.2"},
    {{"-mno-avx2"}, "-mno-avx2"},
    {{"-m32"}, "-m32"},
    {{"-m64"}, "-m64"},
    {{"-mno-red-zone"}, "-mno-red-zone"},
    {{"--target=aarch64-linux-gnu"}, "--target=aarch64-linux-gnu"},
    {{"-target", "riscv64-linux-gnu"}, "--target=riscv64-linux-gnu"},
    {{"-I."}, "-I."},
    {{"-I", "include/a"}, "-Iinclude/a"},
    {{"-Ia/../b"}, "-Ia/../b"},
    {{"-iquote", "a"}, "-iquotea"},
    {{"-isystem", "a"}, "-isystema"},
    {{"-include", "config.h"}, "-includeconfig.h"},
    {{"-pthread"}, "-pthread"},
    {{"-nostdinc"}, "-nostdinc"},
    {{"-nostdinc++"}, "-nostdinc++"},
    {{"-ffreestanding"}, "-ffreestanding"},
    {{"-P"}, "-P"},
    {{"-C"}, "-C"},
    {{"-CC"}, "-CC"},
    /* dropped */
    {{"-pipe"}, ""},
    {{"-fcolor-diagnostics"}, ""},
    {{"-fno-color-diagnostics"}, ""},
    {{"-fdiagnostics-color=always"}, ""},
    {{"-fdiagnostics-show-option"}, ""},
    {{"-fmessage-length=0"}, ""},
};

struct refused {
    const char *args[2];
    const char *reason; /* a part of it */
};

/* Every line of what hostile flags do, and each way around the checks that we know of. */
static const struct refused refused[] = {
    /* run or load */
    {{"-fplugin=/tmp/x.so"}, "loads or runs other code"},
    {{"-fplugin-arg-x-y"}, "loads or runs other code"},
    {{"-fpass-plugin=/tmp/x.so"}, "loads or runs other code"},
    {{"-Xclang", "-load"}, "past this list"},
    {{"-cc1"}, "compiler's inside"},
    {{"-cc1as"}, "compiler's inside"},
    {{"-load", "/tmp/x.so"}, "loads or runs other code"},
    {{"-mllvm", "-debug"}, "whole process"},
    {{"-mllvm=-debug"}, "whole process"},
    {{"-B/tmp"}, "loads or runs other code"},
    {{"-B", "/tmp"}, "loads or runs other code"},
    {{"--ld-path=/tmp/ld"}, "loads or runs other code"},
    {{"-fuse-ld=/tmp/ld"}, "loads or runs other code"},
    {{"-fno-integrated-as"}, "another assembler"},
    {{"-no-integrated-as"}, "another assembler"},
    {{"--gcc-toolchain=/tmp"}, "loads or runs other code"},
    {{"--gcc-install-dir=/tmp"}, "loads or runs other code"},
    {{"-ccc-gcc-name", "x"}, "loads or runs other code"},
    {{"-Xlinker", "x"}, "past this list"},
    {{"-Xassembler", "x"}, "past this list"},
    {{"-Xpreprocessor", "x"}, "past this list"},
    {{"-Xanalyzer", "x"}, "past this list"},
    {{"-Xarch_host", "x"}, "past this list"},
    {{"-specs=/tmp/x"}, "loads or runs other code"},
    {{"--specs=/tmp/x"}, "loads or runs other code"},
    {{"-wrapper", "/tmp/x"}, "loads or runs other code"},
    {{"--driver-mode=cl"}, "use the field \"language\""},
    {{"-Wl,-rpath"}, "for linking"},
    {{"-Wa,-I/etc"}, "to the assembler"},
    {{"-Wp,-MD,/tmp/x"}, "to the preprocessor"},
    {{"-Wfoo,bar"}, "no warning's name"},
    /* read */
    {{"@/etc/passwd"}, "flags from a file"},
    {{"--config=/tmp/x"}, "flags from a file"},
    {{"--config", "/tmp/x"}, "flags from a file"},
    {{"-include", "/etc/passwd"}, "leaves the request's files"},
    {{"-include/etc/passwd"}, "leaves the request's files"},
    {{"-imacros", "../x.h"}, "leaves the request's files"},
    {{"-include-pch", "x.pch"}, "reads files that the request does not hold"},
    {{"-I/usr/include/secret"}, "leaves the request's files"},
    {{"-I", "/"}, "leaves the request's files"},
    {{"-I", ".."}, "leaves the request's files"},
    {{"-Ia/../../b"}, "leaves the request's files"},
    {{"-Ia/./.././../b"}, "leaves the request's files"},
    {{"-I=/x"}, "leaves the request's files"},
    {{"-I", "-fplugin=x"}, "leaves the request's files"},
    {{"-I", ""}, "leaves the request's files"},
    {{"-iquote", "/etc"}, "leaves the request's files"},
    {{"-isystem", "/etc"}, "leaves the request's files"},
    {{"-isystem/etc"}, "leaves the request's files"},
    {{"-idirafter", "/etc"}, "leaves the request's files"},
    {{"-F/etc"}, "reads files that the request does not hold"},
    {{"--embed-dir=/etc"}, "reads files that the request does not hold"},
    {{"--sysroot=/tmp"}, "reads files that the request does not hold"},
    {{"--sysroot", "/tmp"}, "reads files that the request does not hold"},
    {{"-isysroot", "/tmp"}, "reads files that the request does not hold"},
    {{"-resource-dir", "/tmp"}, "reads files that the request does not hold"},
    {{"-resource-dir=/tmp"}, "reads files that the request does not hold"},
    {{"-ivfsoverlay", "x"}, "reads files that the request does not hold"},
    {{"-fmodules"}, "module files"},
    {{"-fmodule-map-file=x"}, "module files"},
    {{"-fprebuilt-module-path=/tmp"}, "module files"},
    {{"-fprofile-use=/tmp/x"}, "profiles"},
    {{"-fprofile-instr-use=/tmp/x"}, "profiles"},
    {{"-fprofile-sample-use=/tmp/x"}, "profiles"},
    {{"-fsanitize-ignorelist=/etc/passwd"}, "reads lists"},
    {{"-fsanitize-coverage-allowlist=x"}, "reads lists"},
    {{"-fxray-always-instrument=x"}, "reads files that the request does not hold"},
    {{"-fthinlto-index=x"}, "reads files that the request does not hold"},
    {{"-x", "c-header"}, "choose one of: c c++"},
    {{"-xassembler-with-cpp"}, "choose one of: c c++"},
    {{"-x", "ir"}, "choose one of: c c++"},
    {{"-x", "none"}, "choose one of: c c++"},
    {{"other.c"}, "put it into \"files\""},
    {{"/etc/passwd"}, "put it into \"files\""},
    {{""}, "put it into \"files\""},
    {{"-"}, "standard input"},
    {{"--"}, "is no flag"},
    /* write */
    {{"-o", "x"}, "choose by \"emit\""},
    {{"-o/tmp/x"}, "choose by \"emit\""},
    {{"-MD"}, "writes files"},
    {{"-MF", "/tmp/x"}, "writes files"},
    {{"-MJ/tmp/x"}, "writes files"},
    {{"-MMD"}, "writes files"},
    {{"-M"}, "writes files"},
    {{"-save-temps"}, "writes files"},
    {{"-save-temps=obj"}, "writes files"},
    {{"--save-temps"}, "writes files"},
    {{"-ftime-trace"}, "writes files"},
    {{"-ftime-trace=/tmp/x"}, "writes files"},
    {{"-fproc-stat-report=/tmp/x"}, "writes files"},
    {{"--serialize-diagnostics", "/tmp/x"}, "writes files"},
    {{"-fsave-optimization-record"}, "writes files"},
    {{"-foptimization-record-file=/tmp/x"}, "writes files"},
    {{"-ftest-coverage"}, "writes files"},
    {{"--coverage"}, "writes files"},
    {{"-fprofile-arcs"}, "profiles"},
    {{"-gsplit-dwarf"}, "writes files"},
    {{"-gsplit-dwarf=single"}, "writes files"},
    {{"-gen-cdb-fragment-path", "/tmp"}, "writes files"},
    {{"-fmodules-cache-path=/tmp"}, "module files"},
    {{"-fmodule-output=/tmp/x"}, "module files"},
    {{"-fcrash-diagnostics-dir=/tmp"}, "writes files"},
    {{"-fcrash-diagnostics=all"}, "writes files"},
    {{"-gen-reproducer"}, "writes files"},
    {{"-index-store-path", "/tmp"}, "writes files"},
    /* raise limits or leak */
    {{"-ftemplate-depth=100000"}, "limit that guards"},
    {{"-ftemplate-depth-100000"}, "limit that guards"},
    {{"-fconstexpr-steps=2000000000"}, "limit that guards"},
    {{"-fconstexpr-depth=100000"}, "limit that guards"},
    {{"-fbracket-depth=100000"}, "limit that guards"},
    {{"-ferror-limit=0"}, "number from 1 to 4096"},
    {{"-ferror-limit=4097"}, "number from 1 to 4096"},
    {{"-ferror-limit=-1"}, "number from 1 to 4096"},
    {{"-ferror-limit="}, "number from 1 to 4096"},
    {{"-march=native"}, "never native"},
    {{"-mcpu=native+crypto"}, "never native"},
    {{"-mtune=native"}, "never native"},
    {{"-march=x/../y"}, "never native"},
    {{"-v"}, "only prints"},
    {{"-###"}, "only prints"},
    {{"-print-search-dirs"}, "only prints"},
    {{"--print-resource-dir"}, "only prints"},
    {{"--version"}, "only prints"},
    {{"-H"}, "only prints"},
    /* what to make */
    {{"-c"}, "use the field \"emit\""},
    {{"-S"}, "use the field \"emit\""},
    {{"-E"}, "use the field \"emit\""},
    {{"-emit-llvm"}, "use the field \"emit\""},
    {{"-fsyntax-only"}, "use the field \"emit\""},
    {{"-flto"}, "\"emit\": \"bitcode\""},
    {{"-flto=thin"}, "\"emit\": \"bitcode\""},
    {{"-shared"}, "nothing is linked"},
    {{"-lm"}, "nothing is linked"},
    {{"-L/tmp"}, "nothing is linked"},
    /* default deny, and near misses of what is allowed */
    {{"-O4"}, "not on the list"},
    {{"-Ofast"}, "-O3 -ffast-math"},
    {{"-g4"}, "not on the list"},
    {{"-fno-such-flag"}, "not on the list"},
    {{"-f"}, "not on the list"},
    {{"-mno-such-flag"}, "not on the list"},
    {{"-std=c++99"}, "choose one of: c89"},
    {{"-std="}, "choose one of: c89"},
    {{"-std"}, "not on the list"},
    {{"-pipes"}, "not on the list"},
    {{"--define-macro=A"}, "not on the list"},
    {{"--include=/etc/passwd"}, "not on the list"},
    {{"-target=x"}, "not on the list"},
    {{"--target=/x"}, "letters, digits"},
    {{"--target="}, "letters, digits"},
    {{"-D=1"}, "no valid name"},
    {{"-D1A"}, "no valid name"},
    {{"-DA\n#include"}, "control character"},
    {{"-D", "A=\x1b"}, "control character"},
    {{"-UA=1"}, "no macro's name"},
    {{"-ffile-prefix-map=a"}, "OLD=NEW"},
    {{"-fdiagnostics-format=sarif"}, "choose one of"},
    {{"-fdiagnostics-add-output=sarif:file=/tmp/x"}, "not on the list"},
};

static int check(const char *const *args, size_t count, bool read_disk, char **canonical,
                 struct mw_refusal *refusal)
{
    *canonical = NULL;
    *refusal = (struct mw_refusal){0};
    return mw_flag_check(args, count, read_disk, canonical, refusal);
}

/* Broken by an allowed family that is refused, or a separate value that is not joined. */
static void each_allowed_family_is_taken_and_made_canonical(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        size_t count = taken[i].args[1] ? 2 : 1;
        struct mw_refusal refusal;
        char *canonical;
        int used = check(taken[i].args, count, false, &canonical, &refusal);

        if (used < 0)
            fail_msg("'%s' is refused: %s", taken[i].args[0], refusal.reason);
        assert_int_equal(used, count);
        assert_string_equal(canonical, taken[i].canonical);
        free(canonical);
    }
}

/* Broken by any hole in the policy, and by a reason that is another family's. */
static void each_hostile_flag_is_refused_with_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        size_t count = refused[i].args[1] ? 2 : 1;
        struct mw_refusal refusal;
        char *canonical;
        int used = check(refused[i].args, count, false, &canonical, &refusal);

        if (used >= 0)
            fail_msg("'%s' is taken as '%s'", refused[i].args[0], canonical);
        assert_int_equal(used, -EPERM);
        assert_int_equal(refusal.kind, MW_REFUSAL_FLAG);
        assert_null(canonical);
        if (!strstr(refusal.reason, refused[i].reason))
            fail_msg("'%s' is refused with '%s'", refused[i].args[0], refusal.reason);
    }
}

/* Broken by a value taken from behind the end, or from the next flag. */
static void a_flag_without_its_value_is_refused(void **state)
{
    static const char *const flags[] = {"-D", "-U", "-I", "-isystem", "-include", "-x", "-target"};

    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct mw_refusal refusal;
        char *canonical;

        assert_int_equal(check(&flags[i], 1, false, &canonical, &refusal), -EPERM);
        assert_string_equal(refusal.subject, flags[i]);
        assert_non_null(strstr(refusal.reason, "needs a value"));
    }
}

/* Broken by a subject that does not show which of several -I is meant. */
static void a_refusal_shows_a_separate_value_too(void **state)
{
    static const char *const args[] = {"-I", "/etc"};
    struct mw_refusal refusal;
    char *canonical;

    (void)state;
    assert_int_equal(check(args, 2, false, &canonical, &refusal), -EPERM);
    assert_string_equal(refusal.subject, "-I /etc");
}

/* Broken by read_disk opening more than include paths. */
static void read_disk_allows_paths_outside_and_nothing_else(void **state)
{
    static const char *const paths[] = {"-I/usr/include/x", "-I../x", "-include/etc/x.h",
                                        "-isystem/opt/include"};
    struct mw_refusal refusal;
    char *canonical;

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(check(&paths[i], 1, true, &canonical, &refusal), 1);
        assert_string_equal(canonical, paths[i]);
        free(canonical);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        size_t count = refused[i].args[1] ? 2 : 1;

        if (strcmp(refused[i].reason, "leaves the request's files") != 0)
            assert_int_equal(check(refused[i].args, count, true, &canonical, &refusal), -EPERM);
    }
}

/* A flag that an entry of the table stands for, with the first `bytes` of `value`. */
static char *flag_of(const struct mw_flag_entry *entry, const char *value, size_t bytes)
{
    static const char *const samples[][2] = {
        {"NUMBER", "8"},    {"WORD", "x"},  {"CPU", "x86-64"},
        {"NAME", "all"},    {"MACRO", "A"}, {"MACRO[=TEXT]", "A=1"},
        {"OLD=NEW", "a=b"}, {"PATH", "a"},  {"*", ""}};
    const char *optional = strstr(entry->name, "[no-]");
    size_t head = optional ? (size_t)(optional - entry->name) : strlen(entry->name);
    char *flag;

    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        if (strlen(samples[i][0]) == bytes && memcmp(samples[i][0], value, bytes) == 0) {
            value = samples[i][1];
            bytes = strlen(value);
            break;
        }
    }
    assert_true(asprintf(&flag, "%.*s%.*s", (int)head, entry->name, (int)bytes, value) > 0);
    return flag;
}

/* Check one value of an entry: taken when the entry says so, refused with its text otherwise. */
static void entry_value_check(const struct mw_flag_entry *entry, const char *value, size_t bytes)
{
    char *flag = flag_of(entry, value, bytes), *canonical;
    bool separate = strcmp(entry->name, "-target") == 0;
    const char *args[] = {flag, "x"};
    struct mw_refusal refusal;
    int used;

    if (separate)
        flag[strlen(entry->name)] = '\0';
    used = check(args, 2, false, &canonical, &refusal);
    if (entry->use == MW_FLAG_REFUSED) {
        assert_int_equal(used, -EPERM);
        assert_string_equal(refusal.reason, entry->text);
    } else {
        if (used < 0)
            fail_msg("'%s' is refused: %s", flag, refusal.reason);
        assert_int_equal(used, separate ? 2 : 1);
        assert_int_equal(canonical[0] == '\0', entry->use == MW_FLAG_DROPPED);
        free(canonical);
    }
    free(flag);
}

/* Broken by a row that hides another: a refused prefix over an allowed flag, or the reverse. */
static void every_row_of_the_table_does_what_it_says(void **state)
{
    struct mw_flag_entry entry;
    size_t count = 0;

    (void)state;
    for (; mw_flag_entry_get(count, &entry); count++) {
        const char *value = entry.values;

        do {
            size_t bytes = strcspn(value, " ");

            entry_value_check(&entry, value, bytes);
            value += bytes + (value[bytes] == ' ');
        } while (*value != '\0');
    }
    assert_true(count > ENTRIES_MIN);
}

/* The whole of docs/flags.md. The caller frees it. */
static char *docs_read(void)
{
    FILE *file = fopen(MW_SOURCE_DIR "/docs/flags.md", "r");
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;

    if (!file) {
        fail_msg("cannot open docs/flags.md");
        abort(); /* not reached: fail_msg leaves the test */
    }
    bytes = getdelim(&text, &room, '\0', file);
    assert_true(bytes > 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* The row that docs/flags.md must have for an entry. The caller frees it. */
static char *docs_row(const struct mw_flag_entry *entry)
{
    char *row;

    if (entry->values[0] == '\0')
        assert_true(asprintf(&row, "\n| `%s` | | %s |\n", entry->name, entry->text) > 0);
    else
        assert_true(asprintf(&row, "\n| `%s` | `%s` | %s |\n", entry->name, entry->values,
                             entry->text) > 0);
    return row;
}

/* Broken by a row of the table that the documentation lacks or shows otherwise. The control: a row
 * that does not exist is missed. */
static void docs_show_every_row_of_the_table(void **state)
{
    static const struct mw_flag_entry unknown = {MW_FLAG_ALLOWED, "-fmoon", "", "the moon"};
    char *docs = docs_read(), *row = docs_row(&unknown);
    struct mw_flag_entry entry;

    (void)state;
    assert_null(strstr(docs, row));
    free(row);
    for (size_t i = 0; mw_flag_entry_get(i, &entry); i++) {
        row = docs_row(&entry);
        if (!strstr(docs, row))
            fail_msg("docs/flags.md lacks this row: %s", row);
        free(row);
    }
    free(docs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allowed_family_is_taken_and_made_canonical),
        cmocka_unit_test(each_hostile_flag_is_refused_with_its_reason),
        cmocka_unit_test(a_flag_without_its_value_is_refused),
        cmocka_unit_test(a_refusal_shows_a_separate_value_too),
        cmocka_unit_test(read_disk_allows_paths_outside_and_nothing_else),
        cmocka_unit_test(every_row_of_the_table_does_what_it_says),
        cmocka_unit_test(docs_show_every_row_of_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli_test.c - the `millwright` program: compiles like the compiler, says clearly what is wrong,
 * and loads LLVM only when it compiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define ARGUMENTS_MAX 16

/* What a run printed (both streams), and its exit status. */
struct run {
    int status;
    struct bytes text;
};

static const char hello[] = "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n";

static void write_in(const struct room *room, const char *name, const char *text)
{
    char *path = path_join(room->folder, name);

    file_write(path, text, strlen(text));
    free(path);
}

static struct bytes read_in(const struct room *room, const char *name)
{
    char *path = path_join(room->folder, name);
    struct bytes bytes = file_read(path);

    free(path);
    return bytes;
}

static bool exists_in(const struct room *room, const char *name)
{
    char *path = path_join(room->folder, name);
    bool exists = access(path, F_OK) == 0;

    free(path);
    return exists;
}

/* Runs argv in `folder` below the room ("": the room itself). */
static struct run run_in(const struct room *room, const char *folder, const char *const *argv)
{
    char *directory = path_join(room->folder, folder);
    char *log = path_join(room->folder, "printed.log");
    struct run run = {.status = process_run(directory, argv, "/dev/null", log)};

    run.text = file_read(log);
    free(directory);
    free(log);
    return run;
}

/* Runs `millwright` with the arguments, up to a NULL. */
static struct run millwright_in(const struct room *room, const char *folder,
                                const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX + 2] = {program_path()};

    for (size_t i = 0; arguments[i]; i++) {
        assert_true(i < ARGUMENTS_MAX);
        argv[i + 1] = arguments[i];
    }
    return run_in(room, folder, argv);
}

#define MILLWRIGHT(room, ...) millwright_in(room, "", (const char *[]){__VA_ARGS__, NULL})

/* Expects an exit status and a text in what was printed, and frees the run. */
static void expect_run(struct run run, int status, const char *says)
{
    if (run.status != status || !bytes_contain(&run.text, says))
        fail_msg("exit status %d, expected %d; it printed '%s', expected '%s'", run.status, status,
                 run.text.data, says);
    free(run.text.data);
}

static void expect_same_files(const struct room *room, const char *one, const char *other)
{
    struct bytes a = read_in(room, one), b = read_in(room, other);

    if (a.count != b.count || memcmp(a.data, b.data, a.count) != 0)
        fail_msg("%s and %s differ", one, other);
    free(a.data);
    free(b.data);
}

/* ---- compiling ---- */

/* Broken when an object differs from the compiler's, or lies elsewhere. */
static void an_object_equals_that_of_the_compiler(void **state)
{
    struct room *room = *state;

    write_in(room, "hello.c", hello);
    expect_run(MILLWRIGHT(room, "compile", "hello.c", "--", "-O2", "-g"), 0, "");
    expect_run(
        run_in(room, "",
               (const char *[]){"clang-19", "-c", "-O2", "-g", "hello.c", "-o", "theirs.o", NULL}),
        0, "");
    expect_same_files(room, "hello.o", "theirs.o");
}

/* Broken when one of several files is lost, or gets another's object. */
static void several_files_become_an_object_each(void **state)
{
    struct room *room = *state;

    for (unsigned i = 0; i < 9; i++) {
        char name[16], text[32];

        snprintf(name, sizeof name, "f%u.c", i);
        snprintf(text, sizeof text, "int number_%u;\n", i);
        write_in(room, name, text);
    }
    expect_run(MILLWRIGHT(room, "compile", "-j2", "f0.c", "f1.c", "f2.c", "f3.c", "f4.c", "f5.c",
                          "f6.c", "f7.c", "f8.c"),
               0, "");
    for (unsigned i = 0; i < 9; i++) {
        char name[16], symbol[32];
        struct bytes object;

        snprintf(name, sizeof name, "f%u.o", i);
        snprintf(symbol, sizeof symbol, "number_%u", i);
        object = read_in(room, name);
        assert_true(bytes_contain(&object, symbol));
        free(object.data);
    }
}

/* Broken when a kind of output is another, or its file another's name. */
static void every_kind_has_its_file(void **state)
{
    static const struct {
        const char *emit, *file, *contains;
    } cases[] = {
        {"object", "k.o", "\177ELF"}, {"asm", "k.s", ".globl\tkind"},
        {"llvm-ir", "k.ll", "@kind"}, {"bitcode", "k.bc", "BC\xc0\xde"},
        {"ast", "k.ast", "CPCH"},     {"ast-json", "k.json", "\"TranslationUnitDecl\""},
    };
    struct room *room = *state;

    write_in(room, "k.c", "#define KIND kind\nint KIND = 1;\n");
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct bytes bytes;

        expect_run(MILLWRIGHT(room, "compile", "--emit", cases[i].emit, "k.c"), 0, "");
        bytes = read_in(room, cases[i].file);
        assert_true(bytes_contain(&bytes, cases[i].contains));
        free(bytes.data);
    }
    expect_run(MILLWRIGHT(room, "compile", "--emit=preprocessed", "k.c"), 0, "int kind = 1;");
    expect_run(MILLWRIGHT(room, "compile", "--emit=asm", "-o", "-", "k.c"), 0, ".globl\tkind");
    expect_run(MILLWRIGHT(room, "compile", "--emit=none", "k.c", "-o", "none.o"), 0, "");
    assert_false(exists_in(room, "none.o"));
}

/* Broken when what is told beside an artifact lies elsewhere, under another name, or is another
 * thing; or when it is written although nobody asked. */
static void what_is_told_beside_lies_beside(void **state)
{
    static const struct {
        const char *also, *file, *begins;
    } cases[] = {
        {"line-map", "out/t.line-map.json", "[{\"line\":"},
        {"dependencies", "out/t.dependencies.json", "[{\"name\":\"t.c\""},
        {"remarks", "out/t.remarks.json", "["},
        {"time-trace", "out/t.time-trace.json", "{\"traceEvents\""},
    };
    struct room *room = *state;
    char *out = path_join(room->folder, "out");

    assert_int_equal(mkdir(out, 0755), 0);
    free(out);
    write_in(room, "t.c", "int t(int a) { return a + 1; }\n");
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct bytes bytes;

        assert_false(exists_in(room, cases[i].file));
        expect_run(MILLWRIGHT(room, "compile", "t.c", "--emit=asm", "-o", "out/t.s", "--also",
                              cases[i].also, "--", "-g", "-O1"),
                   0, "");
        bytes = read_in(room, cases[i].file);
        assert_int_equal(strncmp(bytes.data, cases[i].begins, strlen(cases[i].begins)), 0);
        free(bytes.data);
    }
    expect_run(
        MILLWRIGHT(room, "compile", "t.c", "--also=remarks,time-trace", "--also", "dependencies"),
        0, "");
    assert_true(exists_in(room, "t.remarks.json"));
    assert_true(exists_in(room, "t.time-trace.json"));
    assert_true(exists_in(room, "t.dependencies.json"));
    assert_false(exists_in(room, "t.line-map.json"));
}

/* Broken when make does not see a header that has changed, or cannot read the rule. */
static void make_follows_the_rule(void **state)
{
    static const char makefile[] = "all: m.o\n"
                                   "m.o: ; @echo compiling; \"$(MW)\" compile m.c -o m.o "
                                   "--deps m.d\n"
                                   "-include m.d\n";
    struct room *room = *state;
    char setting[4200];
    const char *const make[] = {"make", "-f", "rules", setting, NULL};
    struct bytes rule;

    (void)snprintf(setting, sizeof setting, "MW=%s", program_path());
    write_in(room, "rules", makefile);
    write_in(room, "a $b#.h", "#define N 1\n");
    write_in(room, "m.c", "#include \"a $b#.h\"\nint m = N;\n");
    expect_run(run_in(room, "", make), 0, "compiling");
    rule = read_in(room, "m.d");
    assert_int_equal(strncmp(rule.data, "m.o: m.c a\\ $$b\\#.h", 19), 0);
    free(rule.data);
    expect_run(run_in(room, "", make), 0, "Nothing to be done");
    write_in(room, "a $b#.h", "#define N 2\n");
    expect_run(run_in(room, "", (const char *[]){"touch", "-d", "+2 sec", "a $b#.h", NULL}), 0, "");
    expect_run(run_in(room, "", make), 0, "compiling");
    expect_run(MILLWRIGHT(room, "compile", "m.c", "--emit=none", "--deps", "-"), 0, "m.o: m.c ");
}

/* Broken when -o is not where it goes, or a failed compile damages what lies there. */
static void the_output_is_written_whole_or_not_at_all(void **state)
{
    struct room *room = *state;

    write_in(room, "good.c", "int good;\n");
    write_in(room, "bad.c", "int bad = ;\n");
    expect_run(MILLWRIGHT(room, "compile", "good.c", "-o", "out.o"), 0, "");
    struct bytes before = read_in(room, "out.o");
    expect_run(MILLWRIGHT(room, "compile", "bad.c", "-oout.o"), 1, "expected expression");
    struct bytes after = read_in(room, "out.o");
    assert_int_equal(before.count, after.count);
    assert_memory_equal(before.data, after.data, after.count);
    free(before.data);
    free(after.data);
    expect_run(MILLWRIGHT(room, "compile", "good.c", "-o", "nowhere/out.o"), 1,
               "millwright compile: nowhere/out.o: ");
    expect_run(MILLWRIGHT(room, "compile", "good.c", "-o", "/dev/null"), 0, "");
    struct stat status;
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
}

/* Broken when names outside the folder, or headers beside a source, are not found. */
static void own_files_may_lie_anywhere(void **state)
{
    struct room *room = *state;
    char *below = path_join(room->folder, "below");
    char *absolute = path_join(room->folder, "up.c");

    assert_int_equal(mkdir(below, 0755), 0);
    write_in(room, "up.c", "#include \"up.h\"\nint up = UP;\n");
    write_in(room, "up.h", "#define UP 1\n");
    expect_run(millwright_in(room, "below", (const char *[]){"compile", "../up.c", NULL}), 0, "");
    expect_run(run_in(room, "below",
                      (const char *[]){"clang-19", "-c", "../up.c", "-o", "theirs.o", NULL}),
               0, "");
    expect_same_files(room, "below/up.o", "below/theirs.o");
    expect_run(MILLWRIGHT(room, "compile", absolute, "-o", "abs.o"), 0, "");
    assert_true(exists_in(room, "abs.o"));
    write_in(room, "below/deep.c", "#include <up.h>\nint deep = UP;\n");
    expect_run(MILLWRIGHT(room, "compile", "below/deep.c", "--", "-I."), 0, "");
    assert_true(exists_in(room, "deep.o"));
    free(below);
    free(absolute);
}

/* Broken when the language is not taken from the ending, or -x does not win over it. */
static void the_language_comes_from_the_ending_or_x(void **state)
{
    struct room *room = *state;

    write_in(room, "a.cc", "namespace n { int x; }\n");
    write_in(room, "b.c", "namespace n { int x; }\n");
    expect_run(MILLWRIGHT(room, "compile", "a.cc"), 0, "");
    expect_run(MILLWRIGHT(room, "compile", "b.c"), 1, "unknown type name 'namespace'");
    expect_run(MILLWRIGHT(room, "compile", "-x", "c++", "b.c"), 0, "");
}

/* ---- diagnostics ---- */

/* Removes the spaces at the ends of lines: the compiler pads the lines below the source. */
static void strip_line_ends(char *text)
{
    char *out = text;

    for (const char *in = text; *in; in++) {
        if (*in == '\n')
            while (out > text && out[-1] == ' ')
                out--;
        *out++ = *in;
    }
    *out = '\0';
}

/* Broken when diagnostics differ from the compiler's form, or colour goes to what is no terminal.
 */
static void diagnostics_are_printed_as_the_compiler_does(void **state)
{
    struct room *room = *state;
    struct run ours, theirs;

    write_in(room, "d.c", "int f(int x)\n{\n    if (x = 1) return y;\n    return 0\n}\n");
    ours = MILLWRIGHT(room, "compile", "d.c", "--", "-Wall");
    assert_int_equal(ours.status, 1);
    theirs = run_in(room, "", (const char *[]){"clang-19", "-c", "-Wall", "d.c", NULL});
    /* the compiler ends with a count, which belongs to no diagnostic */
    char *count = strstr(theirs.text.data, "1 warning and ");
    assert_non_null(count);
    *count = '\0';
    strip_line_ends(theirs.text.data);
    strip_line_ends(ours.text.data);
    assert_string_equal(ours.text.data, theirs.text.data);
    assert_null(strchr(ours.text.data, '\033'));
    free(ours.text.data);
    free(theirs.text.data);
}

/* Broken when --color does not decide. */
static void colour_is_as_asked_for(void **state)
{
    struct room *room = *state;
    struct run never;

    write_in(room, "c.c", "int f(void) { return y; }\n");
    expect_run(MILLWRIGHT(room, "compile", "--color", "always", "c.c"), 1, "\033[");
    never = MILLWRIGHT(room, "compile", "--color", "never", "c.c");
    assert_null(strchr(never.text.data, '\033'));
    expect_run(never, 1, "c.c:1:22: error: use of undeclared identifier 'y'");
}

/* Broken when a warning fails a compile, or one bad file hides the others' objects or status. */
static void exit_statuses_tell_what_happened(void **state)
{
    struct room *room = *state;

    write_in(room, "good.c", "int good;\n");
    write_in(room, "warns.c", "int f(void) { int unused; return 0; }\n");
    write_in(room, "bad.c", "int bad = ;\n");
    expect_run(MILLWRIGHT(room, "compile", "warns.c", "--", "-Wall"), 0, "unused variable");
    expect_run(MILLWRIGHT(room, "compile", "warns.c", "--", "-Wall", "-Werror"), 1, "error:");
    expect_run(MILLWRIGHT(room, "compile", "bad.c", "good.c"), 1, "bad.c:1:11: error:");
    assert_true(exists_in(room, "good.o"));
    assert_false(exists_in(room, "bad.o"));
}

/* ---- mistakes ---- */

/* Broken when a mistake is not named, exits with another status, or leaves a file behind. */
static void mistakes_are_named(void **state)
{
    struct room *room = *state;
    char *folder = path_join(room->folder, "folder.c");

    assert_int_equal(mkdir(folder, 0755), 0);
    write_in(room, "a.c", "int a;\n");
    expect_run(MILLWRIGHT(room, "compile"), 2, "name a file to compile; see --help");
    expect_run(MILLWRIGHT(room, "compile", "missing.c"), 1, "millwright compile: missing.c: ");
    expect_run(MILLWRIGHT(room, "compile", "folder.c"), 1, "millwright compile: folder.c: ");
    expect_run(MILLWRIGHT(room, "compile", "/dev/zero"), 1, "millwright compile: /dev/zero: ");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--", "-fplugin=evil.so"), 2,
               "-fplugin=evil.so: loads or runs other code");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--", "--no-such"), 2, "--no-such");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--no-such"), 2, "--no-such is no option");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--emit", "exe"), 2, "must be one of object|");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "a.c", "-o", "b.o"), 2,
               "--output goes with one file only");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "a.c", "--deps", "b.d"), 2,
               "--deps goes with one file only");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--also", "remarks,all"), 2,
               "--also must be some of dependencies|");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "--also", "line-map"), 2, "ask for \"emit\"");
    expect_run(MILLWRIGHT(room, "serve", "--pkg-config-path", "/a:b"), 1, "holds 'b', which is");
    expect_run(MILLWRIGHT(room, "compile", "a.c", "-j", "0"), 2, "-j must be a decimal number");
    expect_run(MILLWRIGHT(room, "no-such"), 2, "there is no command 'no-such'");
    expect_run(MILLWRIGHT(room, "help", "no-such"), 2, "there is no command 'no-such'");
    expect_run(MILLWRIGHT(room, "serve", "stray"), 2, "takes no argument 'stray'");
    expect_run(MILLWRIGHT(room, "serve", "--config", "/nowhere/x.ini"), 2,
               "cannot read /nowhere/x.ini");
    assert_false(exists_in(room, "a.o"));
    free(folder);
}

/* Broken when the config file is not read, a mistake in it passes, or it wins over the command
 * line. */
static void the_config_file_is_read_and_checked(void **state)
{
    struct room *room = *state;
    struct answer answer;

    write_in(room, "bad.ini", "[serve]\nlane-cap = 1F4\n");
    expect_run(MILLWRIGHT(room, "serve", "--config", "bad.ini"), 2, "bad.ini: line 2: lane-cap");
    write_in(room, "good.ini", "[serve]\nlane-cap = 3\nlane-queue = 17\n");
    room_start(room, (const char *[]){"--config", "good.ini", "--lane-cap", "1", NULL});
    assert_int_equal(lane_number(room, "compile-cpu", "cap"), 1);
    assert_int_equal(lane_number(room, "compile-cpu", "queue_max"), 17);
    answer = ask(room, &(struct request){.path = "/healthz"});
    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    room_stop(room);
}

/* ---- what is loaded ---- */

/* Whether a run of `millwright` with these arguments loads LLVM, as the dynamic linker tells. */
static bool loads_llvm(const struct room *room, const char *const *arguments, const char *says)
{
    const char *argv[ARGUMENTS_MAX + 4] = {"env", "LD_DEBUG=files", program_path()};
    struct run run;
    bool loads;

    for (size_t i = 0; arguments[i]; i++)
        argv[i + 3] = arguments[i];
    run = run_in(room, "", argv);
    loads = bytes_contain(&run.text, "libLLVM") || bytes_contain(&run.text, "libclang");
    /* the check is worth something only if the linker did tell, and the command ran */
    assert_true(bytes_contain(&run.text, "file=libc.so.6"));
    expect_run(run, 0, says);
    return loads;
}

/* Broken when a command that does not compile links or loads what costs 40 ms. */
static void only_what_compiles_loads_llvm(void **state)
{
    static const struct {
        const char *arguments[3];
        const char *says;
    } light[] = {
        {{"help"}, "usage: millwright COMMAND"},
        {{"--help"}, "usage: millwright COMMAND"},
        {{"version"}, "millwright 0."},
        {{"--version"}, "millwright 0."},
        {{"help", "serve"}, "usage: millwright serve"},
        {{"help", "compile"}, "usage: millwright compile"},
        {{"serve", "--help"}, "--store-max-bytes"},
        {{"compile", "-h"}, "--emit"},
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(light); i++)
        if (loads_llvm(room, light[i].arguments, light[i].says))
            fail_msg("%s %s loads LLVM", light[i].arguments[0],
                     light[i].arguments[1] ? light[i].arguments[1] : "");
}

/* The control: what does compile is seen to load it. */
static void what_compiles_is_seen_to_load_llvm(void **state)
{
    struct room *room = *state;

    write_in(room, "l.c", "int l;\n");
    assert_true(loads_llvm(room, (const char *[]){"compile", "l.c", NULL}, ""));
}

int main(void)
{
#define IN_A_ROOM(test) cmocka_unit_test_setup_teardown(test, room_setup, room_teardown)
    const struct CMUnitTest tests[] = {
        IN_A_ROOM(an_object_equals_that_of_the_compiler),
        IN_A_ROOM(several_files_become_an_object_each),
        IN_A_ROOM(every_kind_has_its_file),
        IN_A_ROOM(what_is_told_beside_lies_beside),
        IN_A_ROOM(make_follows_the_rule),
        IN_A_ROOM(the_output_is_written_whole_or_not_at_all),
        IN_A_ROOM(own_files_may_lie_anywhere),
        IN_A_ROOM(the_language_comes_from_the_ending_or_x),
        IN_A_ROOM(diagnostics_are_printed_as_the_compiler_does),
        IN_A_ROOM(colour_is_as_asked_for),
        IN_A_ROOM(exit_statuses_tell_what_happened),
        IN_A_ROOM(mistakes_are_named),
        IN_A_ROOM(the_config_file_is_read_and_checked),
        IN_A_ROOM(only_what_compiles_loads_llvm),
        IN_A_ROOM(what_compiles_is_seen_to_load_llvm),
    };

    return cmocka_run_group_tests_name("service.cli", tests, NULL, NULL);
}

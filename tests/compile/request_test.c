#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/request.h>

#define NAMES_MAX 3

/* A request that differs from a good one in the fields that are set. */
struct fault {
    const char *shows;
    const char *directory;
    const char *main;
    const char *names[NAMES_MAX];
    const char *args[2];
    size_t bytes; /* of each file */
    int language, emit;
    unsigned extras;
    int error;
    enum mw_refusal_kind kind;
    const char *subject;
    const char *reason; /* a part of it */
};

static const struct fault faults[] = {
    {.shows = "directory relative",
     .directory = "src",
     .subject = "directory",
     .reason = "not absolute"},
    {.shows = "directory empty", .directory = "", .subject = "directory", .reason = "not absolute"},
    {.shows = "directory with ..",
     .directory = "/src/../etc",
     .subject = "directory",
     .reason = "'..' part: '/src/../etc'"},
    {.shows = "directory with .",
     .directory = "/src/.",
     .subject = "directory",
     .reason = "'.' part"},
    {.shows = "directory with //",
     .directory = "/src//a",
     .subject = "directory",
     .reason = "empty part"},
    {.shows = "directory with a slash at its end",
     .directory = "/src/",
     .subject = "directory",
     .reason = "empty part"},
    {.shows = "directory with a line end",
     .directory = "/s\nrc",
     .subject = "directory",
     .reason = "control character: '/s?rc'"},
    {.shows = "name empty",
     .names = {"a.c", ""},
     .subject = "files[1].name",
     .reason = "empty part"},
    {.shows = "name absolute",
     .names = {"a.c", "/etc/passwd"},
     .subject = "files[1].name",
     .reason = "is absolute: '/etc/passwd'; give a name below \"directory\""},
    {.shows = "name that leaves",
     .names = {"a.c", "../b.h"},
     .subject = "files[1].name",
     .reason = "'..' part: '../b.h'"},
    {.shows = "name that leaves and comes back",
     .names = {"a.c", "x/../b.h"},
     .subject = "files[1].name",
     .reason = "'..' part"},
    {.shows = "name with .",
     .names = {"a.c", "./b.h"},
     .subject = "files[1].name",
     .reason = "'.' part"},
    {.shows = "name of a directory",
     .names = {"a.c", "b/"},
     .subject = "files[1].name",
     .reason = "empty part"},
    {.shows = "name with an escape",
     .names = {"a.c", "\x1b[31m.h"},
     .subject = "files[1].name",
     .reason = "control character: '?[31m.h'"},
    {.shows = "name twice",
     .names = {"a.c", "b.h", "b.h"},
     .subject = "].name",
     .reason = "given twice: 'b.h'"},
    {.shows = "main twice",
     .names = {"a.c", "b.h", "a.c"},
     .subject = "].name",
     .reason = "given twice: 'a.c'"},
    {.shows = "file that is a directory",
     .names = {"a.c", "x", "x/b.h"},
     .subject = "files[2].name",
     .reason = "below another file: 'x/b.h' and 'x'"},
    /* In plain byte order "x.h" stands between the two. */
    {.shows = "file that is a directory, others between",
     .names = {"x/a.c", "x.h", "x"},
     .main = "x/a.c",
     .subject = "files[0].name",
     .reason = "below another file: 'x/a.c' and 'x'"},
    {.shows = "main unknown",
     .main = "b.c",
     .subject = "main",
     .reason = "none of \"files\": 'b.c'"},
    {.shows = "main empty", .main = "", .subject = "main", .reason = "is missing"},
    {.shows = "main like a flag",
     .main = "-fplugin=x.c",
     .names = {"-fplugin=x.c"},
     .subject = "main",
     .reason = "begins with '-'"},
    {.shows = "main like a response file",
     .main = "@a.c",
     .names = {"@a.c"},
     .subject = "main",
     .reason = "begins with '@'"},
    {.shows = "argument empty", .args = {"-O2", ""}, .subject = "args[1]", .reason = "is empty"},
    {.shows = "language out of range",
     .language = 3,
     .subject = "language",
     .reason = "give \"c\""},
    {.shows = "language negative", .language = -1, .subject = "language", .reason = "give \"c\""},
    {.shows = "emit out of range",
     .emit = MW_EMIT_KINDS,
     .subject = "emit",
     .reason = "give object"},
    {.shows = "a kind that is no request's",
     .emit = MW_EMIT_PREAMBLE,
     .subject = "emit",
     .reason = "give object"},
    {.shows = "an extra out of range",
     .extras = 1u << MW_EXTRAS,
     .subject = "also",
     .reason = "give dependencies"},
    {.shows = "a line map of no assembly",
     .extras = 1u << MW_EXTRA_LINE_MAP,
     .emit = MW_EMIT_LLVM_IR,
     .subject = "also",
     .reason = "\"asm\""},
    {.shows = "too much source",
     .names = {"a.c", "b.c"},
     .bytes = 40u << 20,
     .error = -E2BIG,
     .kind = MW_REFUSAL_SIZE,
     .subject = "files",
     .reason = "more than 67108864 bytes"},
    {.shows = "sizes that overflow a sum",
     .names = {"a.c", "b.c"},
     .bytes = SIZE_MAX / 2 + 1,
     .error = -E2BIG,
     .kind = MW_REFUSAL_SIZE,
     .subject = "files",
     .reason = "more than"},
};

/* Fill `request` with a good request in which `fault` has its say. Its files are not read. */
static void fault_apply(const struct fault *fault, struct mw_compile_request *request,
                        struct mw_source_file *files)
{
    size_t count = 0, args = 0;

    while (count < NAMES_MAX && fault->names[count]) {
        files[count].name = fault->names[count];
        count++;
    }
    if (count == 0)
        files[count++].name = "a.c";
    for (size_t i = 0; i < count; i++) {
        files[i].data = "int a;";
        files[i].bytes = fault->bytes ? fault->bytes : strlen("int a;");
    }
    while (args < 2 && fault->args[args])
        args++;
    *request = (struct mw_compile_request){
        .language = (enum mw_language)fault->language,
        .emit = (enum mw_emit_kind)fault->emit,
        .extras = fault->extras,
        .directory = fault->directory ? fault->directory : MW_REQUEST_DIRECTORY_DEFAULT,
        .main = fault->main ? fault->main : "a.c",
        .files = files,
        .file_count = count,
        .args = fault->args,
        .arg_count = args,
    };
}

/* Broken by a check that is missing, or that names another field. */
static void a_malformed_request_is_refused_by_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const struct fault *fault = &faults[i];
        struct mw_source_file files[NAMES_MAX];
        struct mw_compile_request request;
        struct mw_refusal refusal = {0};

        fault_apply(fault, &request, files);
        print_message("%s\n", fault->shows);
        assert_int_equal(mw_request_check(&request, &refusal),
                         fault->error ? fault->error : -EINVAL);
        assert_int_equal(refusal.kind, fault->kind ? fault->kind : MW_REFUSAL_FIELD);
        if (!strstr(refusal.subject, fault->subject))
            fail_msg("subject is '%s'", refusal.subject);
        if (!strstr(refusal.reason, fault->reason))
            fail_msg("reason is '%s'", refusal.reason);
    }
}

/* The control of the table above: without a fault the same request passes. */
static void a_request_without_fault_passes(void **state)
{
    static const struct fault good[] = {
        {.shows = "plain"},
        {.shows = "root", .directory = "/"},
        {.shows = "names alike", .names = {"a.c", "a", "a.c.h"}},
        {.shows = "dots within parts", .names = {"a.c", "..b/...", ".c"}, .directory = "/..a/.b"},
        {.shows = "letters of the world", .names = {"a.c", "größe/尺.h"}},
        {.shows = "empty files", .names = {"a.c"}, .args = {"-O2"}},
        {.shows = "all source there may be", .bytes = MW_REQUEST_SOURCE_BYTES_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct mw_source_file files[NAMES_MAX];
        struct mw_compile_request request;
        struct mw_refusal refusal = {0};

        fault_apply(&good[i], &request, files);
        print_message("%s\n", good[i].shows);
        assert_int_equal(mw_request_check(&request, &refusal), 0);
        assert_int_equal(mw_request_check(&request, NULL), 0);
        assert_int_equal(refusal.kind, MW_REFUSAL_NONE);
    }
}

/* Broken by a bound that is off by one, or by a number that the message does not name. */
static void each_bound_holds_to_the_byte(void **state)
{
    static const struct fault plain = {0};
    struct mw_source_file files[NAMES_MAX];
    struct mw_compile_request request;
    struct mw_refusal refusal;
    char *text = malloc(MW_REQUEST_ARG_BYTES_MAX + 2);
    const char *arg = text;

    (void)state;
    assert_non_null(text);
    fault_apply(&plain, &request, files);
    request.args = &arg;
    request.arg_count = 1;
    memset(text, 'x', MW_REQUEST_ARG_BYTES_MAX + 1);
    text[MW_REQUEST_ARG_BYTES_MAX + 1] = '\0';
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "args[0]");
    assert_non_null(strstr(refusal.reason, "8192"));
    text[MW_REQUEST_ARG_BYTES_MAX] = '\0';
    assert_int_equal(mw_request_check(&request, &refusal), 0);

    request.arg_count = 0;
    text[MW_REQUEST_NAME_BYTES_MAX + 1] = '\0';
    files[0].name = request.main = text;
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "files[0].name");
    text[MW_REQUEST_NAME_BYTES_MAX] = '\0';
    assert_int_equal(mw_request_check(&request, &refusal), 0);

    files[0].name = request.main = "a.c";
    text[0] = '/';
    text[MW_REQUEST_DIRECTORY_BYTES_MAX] = '\0';
    request.directory = text;
    assert_int_equal(mw_request_check(&request, &refusal), 0);
    text[MW_REQUEST_DIRECTORY_BYTES_MAX] = 'x';
    text[MW_REQUEST_DIRECTORY_BYTES_MAX + 1] = '\0';
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "directory");
    free(text);
}

/* Broken by a count that is not looked at before the files are. */
static void more_files_or_flags_than_allowed_are_refused(void **state)
{
    struct mw_source_file *files = calloc(MW_REQUEST_FILES_MAX + 1, sizeof(*files));
    char(*names)[16] = calloc(MW_REQUEST_FILES_MAX + 1, sizeof(*names));
    struct mw_compile_request request = {.directory = "/src", .main = "f0.c", .files = files};
    struct mw_refusal refusal;

    (void)state;
    assert_non_null(files);
    assert_non_null(names);
    for (unsigned i = 0; i <= MW_REQUEST_FILES_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "f%u.c", i);
        files[i].name = names[i];
    }
    request.file_count = MW_REQUEST_FILES_MAX;
    assert_int_equal(mw_request_check(&request, &refusal), 0);
    request.file_count++;
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "files");
    request.file_count = 1;
    request.arg_count = MW_REQUEST_ARGS_MAX + 1; /* refused before they are read */
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "args");
    request.arg_count = 0;
    request.package_arg_count = MW_REQUEST_PACKAGE_ARGS_MAX + 1;
    assert_int_equal(mw_request_check(&request, &refusal), -E2BIG);
    assert_string_equal(refusal.subject, "packages");
    request.package_arg_count = 0;
    request.file_count = 0;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "files");
    free(names);
    free(files);
}

/* Broken by a missing pointer that is followed. */
static void missing_fields_are_refused_by_name(void **state)
{
    static const struct fault plain = {0};
    static const char *const no_arg[] = {NULL};
    struct mw_source_file files[NAMES_MAX];
    struct mw_compile_request request;
    struct mw_refusal refusal;

    (void)state;
    fault_apply(&plain, &request, files);
    request.directory = NULL;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "directory");
    fault_apply(&plain, &request, files);
    request.main = NULL;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "main");
    fault_apply(&plain, &request, files);
    files[0].name = NULL;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "files[0].name");
    fault_apply(&plain, &request, files);
    files[0].data = NULL;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "files[0].content");
    files[0].bytes = 0; /* an empty file needs no data */
    assert_int_equal(mw_request_check(&request, &refusal), 0);
    request.args = no_arg;
    request.arg_count = 1;
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_string_equal(refusal.subject, "args[0]");
}

/* Broken by a user's own compile being held to the rules for strangers, or to none. */
static void under_read_disk_files_may_lie_anywhere(void **state)
{
    static const struct fault anywhere = {.names = {"../a.c", "/usr/x.h", "./b.h"},
                                          .main = "../a.c"};
    struct mw_source_file files[NAMES_MAX];
    struct mw_compile_request request;
    struct mw_refusal refusal;

    (void)state;
    fault_apply(&anywhere, &request, files);
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    request.read_disk = true;
    assert_int_equal(mw_request_check(&request, &refusal), 0);
    files[1].name = "x\n.h";
    assert_int_equal(mw_request_check(&request, &refusal), -EINVAL);
    assert_non_null(strstr(refusal.reason, "control character"));
}

/* Broken by a text that is cut inside a character, or that lets control bytes through. */
static void a_refusal_is_made_printable(void **state)
{
    struct mw_refusal refusal;
    char text[600];

    (void)state;
    assert_int_equal(mw_refuse(&refusal, MW_REFUSAL_FLAG, "a\x1b\xff\xc3(\xe2\x82\xac\xc2\x9b",
                               "%s", "\xed\xa0\x80\r\xf0\x9f\x98\x80"),
                     -EPERM);
    assert_string_equal(refusal.subject, "a??"
                                         "?(\xe2\x82\xac??");
    assert_string_equal(refusal.reason, "????\xf0\x9f\x98\x80");
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = "\xe2\x82\xac"[i % 3];
    text[sizeof text - 1] = '\0';
    assert_int_equal(mw_refuse(&refusal, MW_REFUSAL_SIZE, text, "%s", text), -E2BIG);
    assert_int_equal(strlen(refusal.subject), 255); /* 85 whole characters */
    assert_int_equal(strlen(refusal.reason), 255);
    assert_int_equal(mw_refuse(NULL, MW_REFUSAL_FIELD, "a", "b"), -EINVAL);
}

/* Broken by a name in one table and not in the other. */
static void names_of_kinds_and_languages_parse_back(void **state)
{
    enum mw_language language;
    enum mw_emit_kind kind;
    enum mw_extra extra;

    (void)state;
    for (int i = 0; i < MW_EMIT_KINDS; i++) {
        assert_int_equal(mw_emit_kind_parse(mw_emit_kind_name((enum mw_emit_kind)i), &kind), 0);
        assert_int_equal(kind, i);
    }
    for (int i = 0; i < MW_EXTRAS; i++) {
        assert_int_equal(mw_extra_parse(mw_extra_name((enum mw_extra)i), &extra), 0);
        assert_int_equal(extra, i);
    }
    assert_int_equal(mw_extra_parse("line_map", &extra), -EINVAL);
    assert_int_equal(mw_emit_kind_parse("obj", &kind), -EINVAL);
    assert_int_equal(mw_emit_kind_parse("preamble", &kind), -EINVAL);
    assert_string_equal(mw_emit_kind_suffix(MW_EMIT_BITCODE), ".bc");
    assert_int_equal(mw_language_parse("c", &language), 0);
    assert_int_equal(language, MW_LANGUAGE_C);
    assert_int_equal(mw_language_parse("c++", &language), 0);
    assert_int_equal(language, MW_LANGUAGE_CXX);
    assert_int_equal(mw_language_parse("C", &language), -EINVAL);
    assert_string_equal(mw_language_main_name(MW_LANGUAGE_CXX), "main.cc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_malformed_request_is_refused_by_field),
        cmocka_unit_test(a_request_without_fault_passes),
        cmocka_unit_test(each_bound_holds_to_the_byte),
        cmocka_unit_test(more_files_or_flags_than_allowed_are_refused),
        cmocka_unit_test(missing_fields_are_refused_by_name),
        cmocka_unit_test(under_read_disk_files_may_lie_anywhere),
        cmocka_unit_test(a_refusal_is_made_printable),
        cmocka_unit_test(names_of_kinds_and_languages_parse_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

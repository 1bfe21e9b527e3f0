#include "wire.h"

#include <errno.h>
#include <limits.h>
#include <millwright/clock.h>
#include <millwright/emit.h>
#include <millwright/error.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "json_read.h"

typedef int field_parser(struct mw_submission *submission, const json_t *value,
                         struct mw_problem *problem);

static field_parser parse_language, parse_source, parse_files, parse_main, parse_directory,
    parse_args, parse_timeout, parse_limits, parse_emit, parse_also, parse_packages;

/* Every field of the body. "source" follows "language", whose file name it needs. */
static const struct field {
    const char *name;
    field_parser *parse;
} fields[] = {
    {"language", parse_language},  {"main", parse_main},         {"source", parse_source},
    {"files", parse_files},        {"args", parse_args},         {"directory", parse_directory},
    {"timeout_ms", parse_timeout}, {"limits", parse_limits},     {"emit", parse_emit},
    {"also", parse_also},          {"packages", parse_packages},
};

/* Every member of "limits". What is over the service's own ceiling is not refused here, but cut to
 * it by who knows that. */
static const struct limit_field {
    const char *name;
    size_t offset;  /* into struct mw_submission */
    uint64_t unit;  /* what one of it is in there */
    json_int_t max; /* past it it is no limit any more, but a mistake */
    bool is_small;  /* an unsigned, not a uint64_t */
} limit_fields[] = {
    {"wall_ms", offsetof(struct mw_submission, limits.wall_ns), MW_NS_PER_MS, 600000, false},
    {"cpu_ms", offsetof(struct mw_submission, limits.cpu_ns), MW_NS_PER_MS, 3600000, false},
    {"memory_bytes", offsetof(struct mw_submission, limits.memory_bytes), 1, (json_int_t)1 << 40,
     false},
    {"output_bytes", offsetof(struct mw_submission, limits.output_bytes), 1,
     (json_int_t)MW_ARTIFACT_BYTES_MAX, false},
    {"diagnostics", offsetof(struct mw_submission, diagnostics_max), 1, MW_DIAGNOSTICS_MAX, true},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int parse_body(struct mw_submission *submission, const char *body, size_t bytes,
                      struct mw_problem *problem);
static bool find_timeout(const char *body, size_t at, size_t end, size_t body_bytes,
                         uint32_t *timeout_ms);
static size_t skip_spaces(const char *text, size_t at, size_t bytes);
static int check_members(const json_t *object, struct mw_problem *problem);
static int check_submission(struct mw_submission *submission,
                            const struct mw_package_source *source, struct mw_problem *problem);
static int parse_strings(const json_t *value, const char *field, size_t max, const char ***out,
                         size_t *out_count, struct mw_problem *problem);
static int bad_field(struct mw_problem *problem, const char *field, const char *reason);
static int parse_file(struct mw_submission *submission, size_t index, const json_t *value,
                      struct mw_problem *problem);
static int decode_base64(const json_t *text, char **data, size_t *bytes);
static int parse_limit(struct mw_submission *submission, const struct limit_field *field,
                       const json_t *value, struct mw_problem *problem);
static json_t *first_error(json_t *list, size_t begin, size_t end);
static json_t *diagnostic_json(const struct mw_diagnostic *diagnostic);
static json_t *text_json(const char *text);

int mw_submission_parse(struct mw_submission **out, const char *body, size_t body_bytes,
                        const struct mw_package_source *source, struct mw_problem *problem)
{
    struct mw_submission *submission = calloc(1, sizeof *submission);
    if (!submission) {
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        return -ENOMEM;
    }
    submission->request.directory = MW_REQUEST_DIRECTORY_DEFAULT;
    submission->run.timeout_ms = MW_RUN_TIMEOUT_MS_DEFAULT;
    int error = parse_body(submission, body, body_bytes, problem);
    if (!error)
        error = check_submission(submission, source, problem);
    if (error) {
        mw_submission_free(submission);
        return error;
    }
    *out = submission;
    return 0;
}

void mw_submission_free(struct mw_submission *submission)
{
    if (!submission)
        return;
    if (submission->decoded)
        for (size_t i = 0; i < submission->request.file_count; i++)
            free(submission->decoded[i]);
    free(submission->decoded);
    free(submission->files);
    free(submission->args);
    free(submission->packages);
    mw_packages_flags_free(&submission->package_flags);
    mw_options_free(submission->options);
    json_decref(submission->body);
    free(submission);
}

uint32_t mw_submission_timeout_look(const char *body, size_t body_bytes)
{
    uint32_t timeout_ms = 0;
    if (body_bytes <= 2 * MW_TIMEOUT_LOOK_BYTES)
        return find_timeout(body, 0, body_bytes, body_bytes, &timeout_ms)
                   ? timeout_ms
                   : MW_RUN_TIMEOUT_MS_DEFAULT;
    if (!find_timeout(body, 0, MW_TIMEOUT_LOOK_BYTES, body_bytes, &timeout_ms))
        (void)find_timeout(body, body_bytes - MW_TIMEOUT_LOOK_BYTES, body_bytes, body_bytes,
                           &timeout_ms);
    return timeout_ms;
}

/* Whether the member's name stands in body[at..end); its value, or 0 when that is none. In JSON a
 * quote that ends or begins a name can only be preceded by a backslash inside a string. */
static bool find_timeout(const char *body, size_t at, size_t end, size_t body_bytes,
                         uint32_t *timeout_ms)
{
    static const char name[] = "\"timeout_ms\"";
    const char *found = NULL;
    while (at < end && (found = memmem(body + at, end - at, name, sizeof name - 1))) {
        at = (size_t)(found - body) + sizeof name - 1;
        if (found == body || found[-1] != '\\')
            break;
        found = NULL;
    }
    if (!found)
        return false;
    uint64_t number = 0;
    at = skip_spaces(body, at, body_bytes);
    if (at < body_bytes && body[at] == ':')
        at = skip_spaces(body, at + 1, body_bytes);
    while (at < body_bytes && body[at] >= '0' && body[at] <= '9' && number <= MW_RUN_TIMEOUT_MS_MAX)
        number = number * 10 + (uint64_t)(body[at++] - '0');
    at = skip_spaces(body, at, body_bytes);
    bool ends = at < body_bytes && (body[at] == ',' || body[at] == '}');
    *timeout_ms = ends && number <= MW_RUN_TIMEOUT_MS_MAX ? (uint32_t)number : 0;
    return true;
}

static size_t skip_spaces(const char *text, size_t at, size_t bytes)
{
    while (at < bytes && text[at] != '\0' && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

static int parse_body(struct mw_submission *submission, const char *body, size_t bytes,
                      struct mw_problem *problem)
{
    json_error_t where;
    if (bytes == 0)
        return bad_field(problem, "body", "is empty; send a JSON object");
    submission->body = mw_json_read(body, bytes, &where, NULL);
    if (!submission->body) {
        mw_problem_set(problem, MW_PROBLEM_BAD_JSON, NULL, "line %d, column %d: %s", where.line,
                       where.column, where.text);
        problem->line = where.line;
        problem->column = where.column;
        return -EINVAL;
    }
    if (!json_is_object(submission->body))
        return bad_field(problem, "body", "must be a JSON object");
    int error = check_members(submission->body, problem);
    for (size_t i = 0; !error && i < COUNT(fields); i++) {
        const json_t *value = json_object_get(submission->body, fields[i].name);
        if (value)
            error = fields[i].parse(submission, value, problem);
    }
    return error;
}

static int check_members(const json_t *object, struct mw_problem *problem)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        size_t i = 0;
        while (i < COUNT(fields) && strcmp(name, fields[i].name) != 0)
            i++;
        if (i == COUNT(fields))
            return bad_field(problem, name,
                             "is not a field of a compile request; there are language, source, "
                             "files, main, directory, args, packages, emit, also, timeout_ms and "
                             "limits");
    }
    return 0;
}

static int check_submission(struct mw_submission *submission,
                            const struct mw_package_source *source, struct mw_problem *problem)
{
    struct mw_compile_request *request = &submission->request;
    if (!submission->files)
        return bad_field(problem, "source",
                         "is missing; give \"source\", or \"files\" with \"main\"");
    if (!request->main)
        return bad_field(problem, "main", "is missing; name the file to compile");
    struct mw_refusal refusal = {0};
    size_t packages = 0;
    while (submission->packages && submission->packages[packages])
        packages++;
    int error = mw_packages_flags(&submission->package_flags, source, submission->packages,
                                  packages, &refusal);
    request->package_args = (const char *const *)submission->package_flags.flags;
    request->package_arg_count = submission->package_flags.count;
    if (!error)
        error = mw_request_check(request, &refusal);
    if (!error)
        error = mw_options_new(&submission->options, request, &refusal);
    if (error)
        mw_problem_from_refusal(problem, error, &refusal);
    return error;
}

static int bad_field(struct mw_problem *problem, const char *field, const char *reason)
{
    mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, field, "%s: %s", field, reason);
    return -EINVAL;
}

static int parse_language(struct mw_submission *submission, const json_t *value,
                          struct mw_problem *problem)
{
    const char *name = json_string_value(value);
    if (!name || mw_language_parse(name, &submission->request.language) != 0)
        return bad_field(problem, "language", "must be \"c\" or \"c++\"");
    return 0;
}

static int parse_main(struct mw_submission *submission, const json_t *value,
                      struct mw_problem *problem)
{
    submission->request.main = json_string_value(value);
    return submission->request.main ? 0 : bad_field(problem, "main", "must be a string");
}

static int parse_source(struct mw_submission *submission, const json_t *value,
                        struct mw_problem *problem)
{
    if (!json_is_string(value))
        return bad_field(problem, "source", "must be a string");
    if (json_object_get(submission->body, "files"))
        return bad_field(problem, "source", "cannot be given together with \"files\"");
    if (!submission->request.main) {
        if (submission->request.language == MW_LANGUAGE_AUTO)
            return bad_field(problem, "language", "is missing; give \"c\" or \"c++\"");
        submission->request.main = mw_language_main_name(submission->request.language);
    }
    submission->files = calloc(1, sizeof *submission->files);
    if (!submission->files) {
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        return -ENOMEM;
    }
    submission->files[0].name = submission->request.main;
    submission->files[0].data = json_string_value(value);
    submission->files[0].bytes = json_string_length(value);
    submission->request.files = submission->files;
    submission->request.file_count = 1;
    return 0;
}

static int parse_files(struct mw_submission *submission, const json_t *value,
                       struct mw_problem *problem)
{
    size_t count = json_array_size(value);
    if (count == 0)
        return bad_field(problem, "files", "must be a list of at least one file");
    if (count > MW_REQUEST_FILES_MAX) {
        mw_problem_set(problem, MW_PROBLEM_TOO_LARGE, "files", "files: at most %u are taken",
                       MW_REQUEST_FILES_MAX);
        return -E2BIG;
    }
    submission->files = calloc(count, sizeof *submission->files);
    submission->decoded = calloc(count, sizeof *submission->decoded);
    if (!submission->files || !submission->decoded) {
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        return -ENOMEM;
    }
    submission->request.files = submission->files;
    submission->request.file_count = count;
    for (size_t i = 0; i < count; i++) {
        int error = parse_file(submission, i, json_array_get(value, i), problem);
        if (error)
            return error;
    }
    return 0;
}

static int parse_file(struct mw_submission *submission, size_t index, const json_t *value,
                      struct mw_problem *problem)
{
    static const char *const members[] = {"name", "content", "content_base64"};
    char field[64];
    snprintf(field, sizeof field, "files[%zu]", index);
    if (!json_is_object(value))
        return bad_field(problem, field, "must be an object with \"name\" and \"content\"");
    size_t known = 0;
    for (size_t i = 0; i < COUNT(members); i++)
        known += json_object_get(value, members[i]) != NULL;
    const json_t *content = json_object_get(value, "content");
    const json_t *base64 = json_object_get(value, "content_base64");
    const char *name = json_string_value(json_object_get(value, "name"));
    if (json_object_size(value) != known)
        return bad_field(problem, field,
                         "has a member other than \"name\", \"content\", \"content_base64\"");
    if (!name)
        return bad_field(problem, field, "must have a \"name\", a string");
    if ((content != NULL) == (base64 != NULL) || !json_is_string(content ? content : base64))
        return bad_field(problem, field,
                         "must have either \"content\" or \"content_base64\", a string");

    struct mw_source_file *file = &submission->files[index];
    file->name = name;
    file->data = json_string_value(content);
    file->bytes = json_string_length(content);
    if (!base64)
        return 0;
    int error = decode_base64(base64, &submission->decoded[index], &file->bytes);
    if (error == -EINVAL)
        return bad_field(
            problem, field,
            "has a \"content_base64\" that is not base64 (RFC 4648, padded, one line)");
    if (error)
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(error));
    file->data = submission->decoded[index];
    return error;
}

static int parse_args(struct mw_submission *submission, const json_t *value,
                      struct mw_problem *problem)
{
    int error = parse_strings(value, "args", MW_REQUEST_ARGS_MAX, &submission->args,
                              &submission->request.arg_count, problem);
    submission->request.args = submission->args;
    return error;
}

static int parse_packages(struct mw_submission *submission, const json_t *value,
                          struct mw_problem *problem)
{
    size_t count;
    return parse_strings(value, "packages", MW_PACKAGES_MAX, &submission->packages, &count,
                         problem);
}

/* A list of strings, which stay those of `value`; up to a NULL. */
static int parse_strings(const json_t *value, const char *field, size_t max, const char ***out,
                         size_t *out_count, struct mw_problem *problem)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value))
        return bad_field(problem, field, "must be a list of strings");
    if (count > max) {
        mw_problem_set(problem, MW_PROBLEM_TOO_LARGE, field, "%s: at most %zu are taken", field,
                       max);
        return -E2BIG;
    }
    const char **strings = *out = calloc(count + 1, sizeof **out);
    if (!strings) {
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        strings[i] = json_string_value(json_array_get(value, i));
        if (!strings[i])
            return bad_field(problem, field, "must be a list of strings");
    }
    *out_count = count;
    return 0;
}

static int parse_directory(struct mw_submission *submission, const json_t *value,
                           struct mw_problem *problem)
{
    submission->request.directory = json_string_value(value);
    return submission->request.directory ? 0 : bad_field(problem, "directory", "must be a string");
}

static int parse_timeout(struct mw_submission *submission, const json_t *value,
                         struct mw_problem *problem)
{
    json_int_t timeout_ms = json_integer_value(value);
    if (!json_is_integer(value) || timeout_ms < 1 || timeout_ms > MW_RUN_TIMEOUT_MS_MAX) {
        mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, "timeout_ms",
                       "timeout_ms: must be a whole number of milliseconds from 1 to %u",
                       MW_RUN_TIMEOUT_MS_MAX);
        return -EINVAL;
    }
    submission->run.timeout_ms = (uint32_t)timeout_ms;
    return 0;
}

static int parse_limits(struct mw_submission *submission, const json_t *value,
                        struct mw_problem *problem)
{
    size_t known = 0;
    int error = 0;
    if (!json_is_object(value))
        return bad_field(problem, "limits", "must be an object");
    for (size_t i = 0; !error && i < COUNT(limit_fields); i++) {
        const json_t *limit = json_object_get(value, limit_fields[i].name);
        known += limit != NULL;
        if (limit)
            error = parse_limit(submission, &limit_fields[i], limit, problem);
    }
    if (!error && json_object_size(value) != known)
        return bad_field(problem, "limits",
                         "has a member other than wall_ms, cpu_ms, memory_bytes, output_bytes and "
                         "diagnostics");
    return error;
}

static int parse_limit(struct mw_submission *submission, const struct limit_field *field,
                       const json_t *value, struct mw_problem *problem)
{
    json_int_t number = json_integer_value(value);
    char *target = (char *)submission + field->offset;
    if (!json_is_integer(value) || number < 1 || number > field->max) {
        char subject[64];
        snprintf(subject, sizeof subject, "limits.%s", field->name);
        mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, subject,
                       "%s: must be a whole number from 1 to %lld", subject, (long long)field->max);
        return -EINVAL;
    }
    uint64_t large = (uint64_t)number * field->unit;
    unsigned small = (unsigned)number;
    if (field->is_small)
        memcpy(target, &small, sizeof small);
    else
        memcpy(target, &large, sizeof large);
    return 0;
}

static int parse_emit(struct mw_submission *submission, const json_t *value,
                      struct mw_problem *problem)
{
    const char *name = json_string_value(value);
    if (!name || mw_emit_kind_parse(name, &submission->request.emit) != 0)
        return bad_field(problem, "emit",
                         "must be \"object\", \"asm\", \"llvm-ir\", \"bitcode\", "
                         "\"preprocessed\", \"ast\", \"ast-json\" or \"none\"");
    return 0;
}

/* What stands twice is told once. */
static int parse_also(struct mw_submission *submission, const json_t *value,
                      struct mw_problem *problem)
{
    static const char expected[] = "must be a list of \"dependencies\", \"remarks\", "
                                   "\"time-trace\" and \"line-map\"";
    size_t i;
    json_t *item;
    if (!json_is_array(value))
        return bad_field(problem, "also", expected);
    json_array_foreach((json_t *)value, i, item)
    {
        const char *name = json_string_value(item);
        enum mw_extra extra;
        if (!name || mw_extra_parse(name, &extra) != 0)
            return bad_field(problem, "also", expected);
        submission->request.extras |= 1u << extra;
    }
    return 0;
}

/* EVP_DecodeBlock takes whole groups of four and counts the padding as bytes. */
static int decode_base64(const json_t *text, char **data, size_t *bytes)
{
    size_t length = json_string_length(text);
    const char *source = json_string_value(text);
    if (length % 4 != 0 || length > INT_MAX)
        return -EINVAL;
    size_t padding = 0;
    while (padding < 2 && padding < length && source[length - 1 - padding] == '=')
        padding++;
    unsigned char *target = malloc(length / 4 * 3 + 1);
    if (!target)
        return -ENOMEM;
    int decoded = EVP_DecodeBlock(target, (const unsigned char *)source, (int)length);
    bool stray =
        memchr(source, '=', length - padding) != NULL || strpbrk(source, " \t\r\n-") != NULL;
    if (decoded < 0 || stray) {
        free(target);
        return -EINVAL;
    }
    *bytes = (size_t)decoded - padding;
    *data = (char *)target;
    return 0;
}

json_t *mw_wire_base64(const char *data, size_t bytes)
{
    if (bytes > (size_t)INT_MAX / 4 * 3)
        return NULL;
    char *text = malloc((bytes + 2) / 3 * 4 + 1);
    if (!text)
        return NULL;
    int length = EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)data, (int)bytes);
    json_t *value = json_stringn_nocheck(text, (size_t)length);
    free(text);
    return value;
}

json_t *mw_wire_diagnostics(const struct mw_diagnostics *diagnostics)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < diagnostics->count; i++) {
        if (json_array_append_new(list, diagnostic_json(&diagnostics->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *mw_wire_diagnostics_cut(json_t *list, unsigned max)
{
    size_t count = json_array_size(list);
    if (max == 0 || count <= max)
        return json_incref(list);
    json_t *cut = json_array();
    for (size_t i = 0; cut && i < max; i++)
        json_array_append(cut, json_array_get(list, i));
    json_t *error = first_error(list, max, count);
    if (cut && error && !first_error(list, 0, max))
        json_array_set(cut, max - 1, error);
    return cut;
}

/* Borrowed; NULL: none. */
static json_t *first_error(json_t *list, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        json_t *item = json_array_get(list, i);
        const char *severity = json_string_value(json_object_get(item, "severity"));
        if (severity && (strcmp(severity, mw_severity_name(MW_SEVERITY_ERROR)) == 0 ||
                         strcmp(severity, mw_severity_name(MW_SEVERITY_FATAL)) == 0))
            return item;
    }
    return NULL;
}

static json_t *diagnostic_json(const struct mw_diagnostic *diagnostic)
{
    json_t *fixits = json_array();
    json_t *notes = json_array();
    for (size_t i = 0; i < diagnostic->fixit_count; i++) {
        const struct mw_fixit *fixit = &diagnostic->fixits[i];
        json_array_append_new(fixits,
                              json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "file",
                                        text_json(fixit->file), "line", fixit->begin.line, "column",
                                        fixit->begin.column, "byte_offset",
                                        fixit->begin.byte_offset, "end_line", fixit->end.line,
                                        "end_column", fixit->end.column, "end_byte_offset",
                                        fixit->end.byte_offset, "text", text_json(fixit->text)));
    }
    for (size_t i = 0; i < diagnostic->note_count; i++)
        json_array_append_new(notes, diagnostic_json(&diagnostic->notes[i]));
    return json_pack(
        "{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "file",
        text_json(diagnostic->file), "line", diagnostic->at.line, "column", diagnostic->at.column,
        "byte_offset", diagnostic->at.byte_offset, "begin_line", diagnostic->begin.line,
        "begin_column", diagnostic->begin.column, "begin_byte_offset",
        diagnostic->begin.byte_offset, "end_line", diagnostic->end.line, "end_column",
        diagnostic->end.column, "end_byte_offset", diagnostic->end.byte_offset, "severity",
        mw_severity_name(diagnostic->severity), "message", text_json(diagnostic->message), "flag",
        text_json(diagnostic->flag), "category", text_json(diagnostic->category), "fixits", fixits,
        "notes", notes);
}

/* Source text may be no UTF-8; what is not ASCII becomes '?' then. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    char *ascii = strdup(text);
    if (!ascii)
        return NULL;
    for (char *c = ascii; *c; c++)
        if (*c & 0x80)
            *c = '?';
    value = json_string(ascii);
    free(ascii);
    return value;
}

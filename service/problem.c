#include "problem.h"

#include <millwright/error.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json_text.h"

static const struct kind {
    unsigned status;
    const char *slug;
    const char *title;
    const char *subject_member;
} kinds[MW_PROBLEM_KINDS] = {
    [MW_PROBLEM_NONE] = {500, "internal", "something went wrong in the service", NULL},
    [MW_PROBLEM_BAD_JSON] = {400, "bad-json", "the body is not valid JSON", NULL},
    [MW_PROBLEM_BAD_FIELD] = {400, "bad-field", "a field of the request is not valid", "field"},
    [MW_PROBLEM_FLAG_REFUSED] = {422, "flag-refused", "a compiler flag is refused", "flag"},
    [MW_PROBLEM_PACKAGE] = {422, "no-package", "a package is not installed", "package"},
    [MW_PROBLEM_TOO_LARGE] = {413, "too-large", "the request is too large", "field"},
    [MW_PROBLEM_QUEUE_FULL] = {503, "queue-full", "too much work is waiting", "queue"},
    [MW_PROBLEM_NOT_FOUND] = {404, "not-found", "there is nothing here", "path"},
    [MW_PROBLEM_METHOD] = {405, "method-not-allowed", "this path takes other methods", "method"},
    [MW_PROBLEM_FOREIGN] = {403, "foreign-page", "web pages from elsewhere are not served",
                            "header"},
    [MW_PROBLEM_OPERATOR] = {403, "operator-only", "only the operator may change the service",
                             "path"},
    [MW_PROBLEM_TIMEOUT] = {504, "timeout", "the compile did not end in time", NULL},
    [MW_PROBLEM_LIMIT] = {422, "limit", "the compile used more than it may", "limit"},
    [MW_PROBLEM_STOPPING] = {503, "stopping", "the service is shutting down", NULL},
    [MW_PROBLEM_INTERNAL] = {500, "internal", "something went wrong in the service", NULL},
};

static json_t *to_json(const struct mw_problem *problem);
static void set_text(json_t *object, const char *member, const char *text);

void mw_problem_set(struct mw_problem *problem, enum mw_problem_kind kind, const char *subject,
                    const char *detail_format, ...)
{
    memset(problem, 0, sizeof *problem);
    problem->kind = kind;
    snprintf(problem->subject, sizeof problem->subject, "%s", subject ? subject : "");
    va_list arguments;
    va_start(arguments, detail_format);
    vsnprintf(problem->detail, sizeof problem->detail, detail_format, arguments);
    va_end(arguments);
}

void mw_problem_from_refusal(struct mw_problem *problem, int error,
                             const struct mw_refusal *refusal)
{
    static const enum mw_problem_kind of_refusal[] = {
        [MW_REFUSAL_NONE] = MW_PROBLEM_INTERNAL,     [MW_REFUSAL_FIELD] = MW_PROBLEM_BAD_FIELD,
        [MW_REFUSAL_FLAG] = MW_PROBLEM_FLAG_REFUSED, [MW_REFUSAL_SIZE] = MW_PROBLEM_TOO_LARGE,
        [MW_REFUSAL_PACKAGE] = MW_PROBLEM_PACKAGE,
    };
    if (refusal->kind == MW_REFUSAL_NONE)
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(error));
    else
        mw_problem_set(problem, of_refusal[refusal->kind], refusal->subject, "%s: %s",
                       refusal->subject, refusal->reason);
}

unsigned mw_problem_status(const struct mw_problem *problem)
{
    return kinds[problem->kind].status;
}

char *mw_problem_render(const struct mw_problem *problem, json_t *extra)
{
    json_t *object = to_json(problem);
    if (!object)
        return NULL;
    if (extra)
        json_object_update_missing(object, extra);
    return mw_json_text(object, MW_JSON_COMPACT);
}

static json_t *to_json(const struct mw_problem *problem)
{
    const struct kind *kind = &kinds[problem->kind];
    char type[64];
    snprintf(type, sizeof type, "urn:millwright:problem:%s", kind->slug);
    json_t *object = json_pack("{s:s, s:s, s:i}", "type", type, "title", kind->title, "status",
                               (int)kind->status);
    if (!object)
        return NULL;
    set_text(object, "detail", problem->detail);
    if (kind->subject_member && problem->subject[0])
        set_text(object, kind->subject_member, problem->subject);
    if (problem->line) {
        json_object_set_new(object, "line", json_integer(problem->line));
        json_object_set_new(object, "column", json_integer(problem->column));
    }
    return object;
}

/* The text may quote bytes of the request that are no UTF-8; those become '?'. */
static void set_text(json_t *object, const char *member, const char *text)
{
    json_t *value = json_string(text);
    if (!value) {
        char ascii[sizeof(((struct mw_problem *)0)->detail)];
        size_t length = 0;
        for (; text[length] && length + 1 < sizeof ascii; length++)
            ascii[length] = (text[length] & 0x80) ? '?' : text[length];
        ascii[length] = '\0';
        value = json_string(ascii);
    }
    json_object_set_new(object, member, value);
}

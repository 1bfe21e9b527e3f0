/* routes.c - what each path answers. */
#include <errno.h>
#include <jansson.h>
#include <millwright/error.h>
#include <millwright/targets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "log.h"
#include "report.h"
#include "service_internal.h"
#include "step.h"

static void post_compile(void *user, struct mw_http_request *request, const char *tail);
static void get_artifact(void *user, struct mw_http_request *request, const char *tail);
static void get_source(void *user, struct mw_http_request *request, const char *tail);
static void get_lanes(void *user, struct mw_http_request *request, const char *tail);
static void get_pools(void *user, struct mw_http_request *request, const char *tail);
static void patch_pool(void *user, struct mw_http_request *request, const char *tail);
static int parse_min(const char *body, size_t bytes, unsigned max, unsigned *min_threads,
                     struct mw_problem *problem);
static void get_audit(void *user, struct mw_http_request *request, const char *tail);
static void get_isolation(void *user, struct mw_http_request *request, const char *tail);
static void get_targets(void *user, struct mw_http_request *request, const char *tail);
static void get_health(void *user, struct mw_http_request *request, const char *tail);
static void get_metrics(void *user, struct mw_http_request *request, const char *tail);

const struct mw_route mw_service_routes[] = {
    /* the last column: of the operator alone */
    {"POST", "/v1/compile", post_compile, false},
    {"GET", "/v1/artifacts/", get_artifact, false},
    {"HEAD", "/v1/artifacts/", get_artifact, false},
    {"GET", "/v1/lanes", get_lanes, false},
    {"HEAD", "/v1/lanes", get_lanes, false},
    {"GET", "/v1/pools", get_pools, false},
    {"HEAD", "/v1/pools", get_pools, false},
    {"PATCH", "/v1/pools/shared", patch_pool, true},
    {"GET", "/v1/audit", get_audit, false},
    {"HEAD", "/v1/audit", get_audit, false},
    {"GET", "/v1/isolation", get_isolation, false},
    {"HEAD", "/v1/isolation", get_isolation, false},
    {"GET", "/v1/targets", get_targets, false},
    {"HEAD", "/v1/targets", get_targets, false},
    {"GET", "/v1/sources/", get_source, false},
    {"HEAD", "/v1/sources/", get_source, false},
    {"GET", "/healthz", get_health, false},
    {"HEAD", "/healthz", get_health, false},
    {"GET", "/metrics", get_metrics, false},
    {"HEAD", "/metrics", get_metrics, false},
};
const size_t mw_service_route_count = sizeof mw_service_routes / sizeof mw_service_routes[0];

#define PATCH_BYTES_MAX 4096u /* it is parsed on the loop */

/* A GET of an artifact or a source, from the request until the store has answered. */
struct fetch {
    struct mw_service *service;
    struct mw_http_request *request; /* NULL when the client is gone */
    struct mw_step step;
    bool is_source;
    char name[MW_KEY_TEXT_BYTES]; /* its key, or one of its hashes */
    struct mw_store_entry entry;  /* of a source only the bytes, as artifact */
    char sha256[MW_SHA256_TEXT_BYTES];
};

static bool refuse_when_stopping(struct mw_service *service, struct mw_http_request *request);
static void on_answered(void *user, const struct mw_answer *answer);
static void on_compile_gone(void *user);
static void fetch_start(struct mw_service *service, struct mw_http_request *request,
                        const char *name, bool is_source);
static int work_fetch(struct mw_step *step);
static void after_fetch(struct mw_step *step, int status);
static void reply_kept(struct fetch *fetch);
static void on_fetch_gone(void *user);
static void reply_json(struct mw_http_request *request, json_t *object);
static void reply_text(struct mw_http_request *request, char *text, const char *content_type);

#define FETCH_OF(step_pointer)                                                                     \
    ((struct fetch *)((char *)(step_pointer) - offsetof(struct fetch, step)))

static void post_compile(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    struct mw_problem problem;
    (void)tail;
    const char *include = mw_http_request_query(request, "include");
    if (refuse_when_stopping(service, request))
        return;
    if (include && strcmp(include, "artifact") != 0) {
        mw_problem_set(&problem, MW_PROBLEM_BAD_FIELD, "include",
                       "include: '%.64s' cannot be included; there is include=artifact", include);
        mw_http_reply_problem(request, &problem);
        return;
    }
    size_t bytes;
    struct mw_ticket *ticket;
    char *body = mw_http_request_take_body(request, &bytes);
    if (mw_pipeline_submit(service->pipeline, body, bytes, include != NULL, on_answered, request,
                           &ticket, &problem) != 0)
        mw_http_reply_problem(request, &problem);
    else
        mw_http_request_on_gone(request, on_compile_gone, ticket);
}

static void on_answered(void *user, const struct mw_answer *answer)
{
    char retry_after[16];
    struct mw_http_reply reply = {
        .status = answer->status,
        .content_type = answer->status == 200 ? "application/json" : "application/problem+json",
        .body = answer->body,
        .body_bytes = answer->body_bytes,
    };
    if (answer->retry_after_s) {
        snprintf(retry_after, sizeof retry_after, "%u", answer->retry_after_s);
        reply.headers[0] = (struct mw_http_header){"Retry-After", retry_after};
    }
    mw_http_reply(user, &reply);
}

static void on_compile_gone(void *user)
{
    mw_ticket_abandon(user);
}

static bool refuse_when_stopping(struct mw_service *service, struct mw_http_request *request)
{
    if (!service->stopping)
        return false;
    struct mw_problem problem;
    mw_problem_set(&problem, MW_PROBLEM_STOPPING, NULL,
                   "the service is shutting down; try again when it is back");
    problem.retry_after_s = 5;
    mw_http_reply_problem(request, &problem);
    return true;
}

static void get_artifact(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    struct mw_problem problem;
    if (!mw_key_valid(tail, strlen(tail))) {
        mw_problem_set(&problem, MW_PROBLEM_NOT_FOUND, tail,
                       "a key is 64 lower-case hexadecimal digits, as POST /v1/compile gives it");
        mw_http_reply_problem(request, &problem);
        return;
    }
    fetch_start(service, request, tail, false);
}

/* By the SHA-256, or by the MD5 that stands in line tables. */
static void get_source(void *user, struct mw_http_request *request, const char *tail)
{
    static const char md5[] = "md5/";
    bool by_md5 = strncmp(tail, md5, strlen(md5)) == 0;
    const char *hash = by_md5 ? tail + strlen(md5) : tail;
    struct mw_problem problem;
    if (mw_hex_valid(hash, by_md5 ? MW_MD5_TEXT_BYTES - 1 : MW_SHA256_TEXT_BYTES - 1)) {
        fetch_start(user, request, hash, true);
        return;
    }
    mw_problem_set(&problem, MW_PROBLEM_NOT_FOUND, tail,
                   "a source is named by its SHA-256, 64 lower-case hexadecimal digits, or by "
                   "md5/ and the 32 of its MD5");
    mw_http_reply_problem(request, &problem);
}

static void fetch_start(struct mw_service *service, struct mw_http_request *request,
                        const char *name, bool is_source)
{
    struct mw_problem problem;
    struct fetch *fetch = calloc(1, sizeof *fetch);
    int error = fetch ? 0 : -ENOMEM;
    if (fetch) {
        fetch->service = service;
        fetch->request = request;
        fetch->is_source = is_source;
        memcpy(fetch->name, name, strlen(name) + 1); /* its length was checked */
        error = mw_step_start(&fetch->step, &service->adapter, service->lanes[MW_LANE_STORE],
                              work_fetch, after_fetch);
    }
    if (error) {
        free(fetch);
        mw_problem_set(&problem, error == -EAGAIN ? MW_PROBLEM_QUEUE_FULL : MW_PROBLEM_INTERNAL,
                       "store", "the store cannot be asked now: %s", mw_strerror(error));
        problem.retry_after_s = error == -EAGAIN;
        mw_http_reply_problem(request, &problem);
        return;
    }
    service->fetches++;
    mw_http_request_on_gone(request, on_fetch_gone, fetch);
}

static int work_fetch(struct mw_step *step)
{
    struct fetch *fetch = FETCH_OF(step);
    struct mw_store_entry *entry = &fetch->entry;
    struct mw_key key;
    int error;
    mw_block_begin();
    if (fetch->is_source) {
        error = mw_store_source_get(fetch->service->store, fetch->name, &entry->artifact,
                                    &entry->artifact_bytes, fetch->sha256);
    } else {
        memcpy(key.text, fetch->name, sizeof key.text);
        error = mw_store_get(fetch->service->store, &key, entry);
    }
    mw_block_end();
    return error;
}

static void after_fetch(struct mw_step *step, int status)
{
    struct fetch *fetch = FETCH_OF(step);
    const char *what = fetch->is_source ? "source" : "artifact";
    struct mw_problem problem;
    fetch->service->fetches--;
    if (!fetch->request) {
        /* nobody waits any more */
    } else if (status == 0 && (fetch->is_source || fetch->entry.kind != MW_EMIT_NONE)) {
        reply_kept(fetch);
    } else if (status == 0 || status == -ENOENT) {
        mw_problem_set(&problem, MW_PROBLEM_NOT_FOUND, fetch->name,
                       "no %s is stored under this name; compile again to make it", what);
        mw_http_reply_problem(fetch->request, &problem);
    } else {
        mw_log("store: fetching %s %s failed: %s", what, fetch->name, mw_strerror(status));
        mw_problem_set(&problem, MW_PROBLEM_INTERNAL, NULL, "the store failed: %s; compile again",
                       mw_strerror(status));
        mw_http_reply_problem(fetch->request, &problem);
    }
    mw_store_entry_fini(&fetch->entry);
    free(fetch);
}

/* The bytes under a name never change, so a client may keep them as long as it likes. */
static void reply_kept(struct fetch *fetch)
{
    static const char *const content_types[MW_EMIT_KINDS] = {
        [MW_EMIT_OBJECT] = "application/octet-stream",
        [MW_EMIT_ASM] = "text/plain; charset=utf-8",
        [MW_EMIT_LLVM_IR] = "text/plain; charset=utf-8",
        [MW_EMIT_BITCODE] = "application/octet-stream",
        [MW_EMIT_PREPROCESSED] = "text/plain; charset=utf-8",
        [MW_EMIT_AST] = "application/octet-stream",
        [MW_EMIT_AST_JSON] = "application/json",
    };
    char etag[MW_KEY_TEXT_BYTES + 2];
    snprintf(etag, sizeof etag, "\"%s\"", fetch->is_source ? fetch->sha256 : fetch->name);
    struct mw_http_reply reply = {
        .status = 200,
        .content_type =
            fetch->is_source ? "text/plain; charset=utf-8" : content_types[fetch->entry.kind],
        .headers = {{"ETag", etag},
                    {"Cache-Control", "public, max-age=31536000, immutable"},
                    {"X-Content-Type-Options", "nosniff"}},
    };
    const char *known = mw_http_request_header(fetch->request, "If-None-Match");
    if (known && (strstr(known, etag) || strcmp(known, "*") == 0)) {
        reply.status = 304;
        reply.content_type = NULL;
    } else {
        reply.body = fetch->entry.artifact;
        reply.body_bytes = fetch->entry.artifact_bytes;
        fetch->entry.artifact = NULL;
    }
    mw_http_reply(fetch->request, &reply);
}

static void on_fetch_gone(void *user)
{
    struct fetch *fetch = user;
    fetch->request = NULL;
}

static void get_lanes(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    reply_json(request,
               json_pack("{s:o}", "lanes", mw_report_lanes(service->lanes, MW_SERVICE_LANES)));
}

static void get_pools(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    reply_json(request, json_pack("{s:[o], s:o}", "pools", mw_report_shared_pool(&service->shared),
                                  "loop", mw_report_loop(&service->shared)));
}

/* JSON merge patch (RFC 7396) of the one member that can be set. */
static void patch_pool(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    struct mw_problem problem;
    unsigned min_threads, before, after;
    size_t bytes;
    (void)tail;
    if (refuse_when_stopping(service, request))
        return;
    char *body = mw_http_request_take_body(request, &bytes);
    int error = parse_min(body, bytes, service->settings.pool_max, &min_threads, &problem);
    free(body);
    if (error) {
        mw_http_reply_problem(request, &problem);
        return;
    }
    error = mw_shared_pool_set_min(&service->shared, min_threads, &before, &after);
    if (error) {
        mw_problem_set(&problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(error));
        mw_http_reply_problem(request, &problem);
        return;
    }
    reply_json(request,
               json_pack("{s:s, s:i, s:i, s:s}", "name", "shared", "min_threads_before",
                         (int)before, "min_threads", (int)after, "min_threads_from",
                         mw_pool_min_source_member(mw_shared_pool_min_source(&service->shared))));
}

/* {"min_threads": N}, or null (0) for what it was started with. Returns 0 or -EINVAL. */
static int parse_min(const char *body, size_t bytes, unsigned max, unsigned *min_threads,
                     struct mw_problem *problem)
{
    json_error_t where;
    if (bytes > PATCH_BYTES_MAX) {
        mw_problem_set(problem, MW_PROBLEM_TOO_LARGE, "body", "body: must be at most %u bytes",
                       PATCH_BYTES_MAX);
        return -EINVAL;
    }
    json_t *object = json_loadb(bytes ? body : "", bytes, JSON_REJECT_DUPLICATES, &where);
    if (!object) {
        mw_problem_set(problem, MW_PROBLEM_BAD_JSON, NULL, "line %d, column %d: %s", where.line,
                       where.column, where.text);
        problem->line = where.line;
        problem->column = where.column;
        return -EINVAL;
    }
    const json_t *min = json_object_get(object, "min_threads");
    json_int_t number = json_is_integer(min) ? json_integer_value(min) : 0;
    bool good = json_object_size(object) == 1 &&
                (json_is_null(min) || (number >= 1 && number <= (json_int_t)max));
    json_decref(object);
    *min_threads = (unsigned)number;
    if (good)
        return 0;
    mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, "min_threads",
                   "min_threads: must be the only member, and a number from 1 to %u, or null for "
                   "what the service was started with",
                   max);
    return -EINVAL;
}

static void get_audit(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    reply_json(request, mw_report_audit(service->registry));
}

static void get_isolation(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    reply_json(request, mw_report_isolation(service->isolate, service->preambles));
}

/* What --target= can name the machine of, as the compiler's library has it. */
static void get_targets(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    struct mw_target target;
    json_t *list = json_array();
    (void)tail;
    for (size_t i = 0; mw_target_get(i, &target); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", target.name, "description", target.text));
    reply_json(request, json_pack("{s:s, s:s, s:o}", "default",
                                  mw_toolchain_target(service->toolchain), "llvm_version",
                                  mw_toolchain_version(service->toolchain), "targets", list));
}

static void get_health(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    if (!refuse_when_stopping(service, request))
        reply_json(request, json_pack("{s:s, s:s}", "status", "ok", "version", MW_VERSION));
}

static void get_metrics(void *user, struct mw_http_request *request, const char *tail)
{
    struct mw_service *service = user;
    (void)tail;
    reply_text(request,
               mw_report_metrics(&service->shared, service->registry, service->isolate,
                                 service->preambles, mw_pipeline_stats(service->pipeline),
                                 &service->store_stats),
               "text/plain; version=0.0.4; charset=utf-8");
}

static void reply_json(struct mw_http_request *request, json_t *object)
{
    reply_text(request, mw_json_text(object, MW_JSON_INDENTED), "application/json");
}

static void reply_text(struct mw_http_request *request, char *text, const char *content_type)
{
    struct mw_problem problem;
    if (!text) {
        mw_problem_set(&problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        mw_http_reply_problem(request, &problem);
        return;
    }
    mw_http_reply(request, &(struct mw_http_reply){.status = 200,
                                                   .content_type = content_type,
                                                   .body = text,
                                                   .body_bytes = strlen(text)});
}

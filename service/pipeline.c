#include "pipeline.h"

#include <errno.h>
#include <jansson.h>
#include <millwright/audit.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "log.h"
#include "meta.h"
#include "preambles.h"
#include "report.h"
#include "shared_pool.h"
#include "sources.h"
#include "step.h"
#include "wire.h"

#define FLIGHT_BUCKETS 1024u /* a power of two; flights are bounded by the connections */

/* Why an artifact has no URL, where the reason is not the compile's own. */
#define NOT_KEPT_STORE "the store could not keep it"
#define NOT_KEPT_EXTRA "something of \"also\" is missing or over its bound"
#define NOT_KEPT_MOVED "a system header changed while it was compiled"

enum ticket_state {
    TICKET_PREFIX, /* its own step is out: parse, check, key */
    TICKET_ABOARD, /* waits for its flight */
    TICKET_RENDER, /* its own step is out: the answer's JSON */
    TICKET_CLOSING /* answered or abandoned; waits for its step and its timer to be back */
};

struct mw_ticket {
    struct mw_pipeline *pipeline;
    enum ticket_state state;
    bool include_artifact;
    unsigned diagnostics_max;                                     /* of the answer; 0: all */
    void (*answered)(void *user, const struct mw_answer *answer); /* NULL: done or abandoned */
    void *user;
    struct mw_step step;
    uv_timer_t timer;
    bool timer_open; /* the timer's handle is not closed yet */
    struct mw_flight *flight;
    struct mw_ticket *prev, *next; /* aboard the same flight */
    uint64_t arrived_ns;
    /* lent to the prefix step */
    char *body;
    size_t body_bytes;
    struct mw_submission *submission;
    struct mw_problem problem;
    /* made by the render step */
    char *answer;
};

struct mw_flight {
    struct mw_pipeline *pipeline;
    struct mw_flight *next_in_bucket;
    bool findable;
    struct mw_submission *submission;
    struct mw_ticket *tickets; /* those aboard */
    unsigned aboard;
    struct mw_step step;
    /* the result; complete when the flight lands */
    struct mw_compile_result result; /* moved into `entry` and `meta` by the keep step */
    struct mw_store_entry entry;
    struct mw_key key; /* where the result is, or would be, stored */
    bool ok;
    bool cached;
    bool direct; /* found by a manifest, under the key of another request */
    bool stored;
    const char *not_kept; /* why there is no URL; NULL when there is one */
    int store_error;
    enum mw_thread_kind ran_on;
    uint64_t queued_ns, started_ns, ended_ns; /* of the CPU leaf */
    struct mw_leaf leaf;                      /* lent to its step while `in_leaf` */
    bool in_leaf;
    struct mw_preamble_use preamble; /* held while `has_preamble` */
    struct mw_preamble_plan *plan;   /* of one that is to be made */
    bool has_preamble, used_preamble;
};

struct mw_pipeline {
    struct mw_pipeline_parts parts;
    struct mw_pipeline_stats stats;
    struct mw_flight *buckets[FLIGHT_BUCKETS];
};

static int work_prefix(struct mw_step *step);
static int work_lookup(struct mw_step *step);
static int work_leaf(struct mw_step *step);
static int work_keep(struct mw_step *step);
static int work_render(struct mw_step *step);
static void after_prefix(struct mw_step *step, int status);
static void after_lookup(struct mw_step *step, int status);
static void after_leaf(struct mw_step *step, int status);
static void after_keep(struct mw_step *step, int status);
static void after_render(struct mw_step *step, int status);

static void ticket_board(struct mw_ticket *ticket, struct mw_flight *flight);
static void ticket_leave(struct mw_ticket *ticket);
static void ticket_render(struct mw_ticket *ticket);
static void ticket_answer(struct mw_ticket *ticket, unsigned status, char *body,
                          unsigned retry_after_s);
static void ticket_answer_problem(struct mw_ticket *ticket, const struct mw_problem *problem,
                                  json_t *extra);
static void ticket_close(struct mw_ticket *ticket);
static void ticket_free_if_back(struct mw_ticket *ticket);
static void on_timeout(uv_timer_t *timer);
static void on_timer_closed(uv_handle_t *handle);

static struct mw_flight *flight_new(struct mw_pipeline *pipeline, struct mw_ticket *ticket);
static struct mw_flight *flight_find(struct mw_pipeline *pipeline,
                                     const struct mw_submission *submission);
static int flight_find_direct(struct mw_flight *flight);
static void flight_keep(struct mw_flight *flight);
static void flight_put(struct mw_flight *flight, const struct mw_store_more *more);
static void flight_hide(struct mw_flight *flight);
static void flight_land(struct mw_flight *flight);
static void flight_fail(struct mw_flight *flight, const struct mw_problem *problem);
static void flight_fail_with(struct mw_flight *flight, const struct mw_problem *problem,
                             json_t *extra);
static void flight_free_if_empty(struct mw_flight *flight);
static void flight_find_preamble(struct mw_flight *flight);
static void flight_plan_head_start(struct mw_flight *flight);
static void flight_drop_preamble(struct mw_flight *flight);
static struct mw_flight **bucket_of(struct mw_pipeline *pipeline, const struct mw_key *key);
static bool key_moved(const struct mw_flight *flight);
static unsigned retry_after_s_of(struct mw_lane *lane);
static void lane_refused(struct mw_problem *problem, struct mw_lane *lane, const char *name,
                         int error);
static json_t *answer_json(const struct mw_ticket *ticket, const struct mw_flight *flight);

#define TICKET_OF(step_pointer)                                                                    \
    ((struct mw_ticket *)((char *)(step_pointer) - offsetof(struct mw_ticket, step)))
#define FLIGHT_OF(step_pointer)                                                                    \
    ((struct mw_flight *)((char *)(step_pointer) - offsetof(struct mw_flight, step)))

int mw_pipeline_new(struct mw_pipeline **out, const struct mw_pipeline_parts *parts)
{
    struct mw_pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (!pipeline)
        return -ENOMEM;
    pipeline->parts = *parts;
    if (pipeline->parts.timeout_ms_max == 0)
        pipeline->parts.timeout_ms_max = MW_RUN_TIMEOUT_MS_MAX;
    *out = pipeline;
    return 0;
}

void mw_pipeline_free(struct mw_pipeline *pipeline)
{
    free(pipeline);
}

const struct mw_pipeline_stats *mw_pipeline_stats(const struct mw_pipeline *pipeline)
{
    return &pipeline->stats;
}

int mw_pipeline_submit(struct mw_pipeline *pipeline, char *body, size_t body_bytes,
                       bool include_artifact,
                       void (*answered)(void *user, const struct mw_answer *answer), void *user,
                       struct mw_ticket **out, struct mw_problem *problem)
{
    struct mw_ticket *ticket = calloc(1, sizeof *ticket);
    if (!ticket) {
        free(body);
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        return -ENOMEM;
    }
    ticket->pipeline = pipeline;
    ticket->state = TICKET_PREFIX;
    ticket->include_artifact = include_artifact;
    ticket->answered = answered;
    ticket->user = user;
    ticket->arrived_ns = mw_clock_ns();
    ticket->body = body;
    ticket->body_bytes = body_bytes;
    /* The clock must run before a worker has time to parse the body: that is when it matters. */
    uint32_t timeout_ms = mw_submission_timeout_look(body, body_bytes);
    if (timeout_ms == 0 || timeout_ms > pipeline->parts.timeout_ms_max)
        timeout_ms = pipeline->parts.timeout_ms_max;
    int error = mw_step_start(&ticket->step, pipeline->parts.adapter, pipeline->parts.files,
                              work_prefix, after_prefix);
    if (error) {
        lane_refused(problem, pipeline->parts.files, "files", error);
        pipeline->stats.refused++;
        free(ticket->body);
        free(ticket);
        return error;
    }
    uv_timer_init(pipeline->parts.loop, &ticket->timer); /* only sets fields: cannot fail */
    ticket->timer.data = ticket;
    ticket->timer_open = true;
    uv_update_time(pipeline->parts.loop);
    uv_timer_start(&ticket->timer, on_timeout, timeout_ms, 0);
    pipeline->stats.requests++;
    pipeline->stats.tickets++;
    *out = ticket;
    return 0;
}

void mw_ticket_abandon(struct mw_ticket *ticket)
{
    ticket->answered = NULL;
    ticket->pipeline->stats.abandoned++;
    ticket_close(ticket);
}

/* ---- the way, arrow by arrow: work_* runs on a lane, after_* on the loop ---- */

static int work_prefix(struct mw_step *step)
{
    struct mw_ticket *ticket = TICKET_OF(step);
    const struct mw_pipeline_parts *parts = &ticket->pipeline->parts;
    const struct mw_package_source packages = {parts->place.toolchain, parts->pkg_config_path};
    struct mw_submission *submission;
    int error = mw_submission_parse(&submission, ticket->body, ticket->body_bytes, &packages,
                                    &ticket->problem);
    free(ticket->body);
    ticket->body = NULL;
    if (error)
        return error;
    if (submission->run.timeout_ms > ticket->pipeline->parts.timeout_ms_max)
        submission->run.timeout_ms = ticket->pipeline->parts.timeout_ms_max;
    ticket->diagnostics_max = submission->diagnostics_max;
    error = mw_leaf_limits(&ticket->pipeline->parts.place, &submission->limits, &submission->limits,
                           &ticket->problem);
    if (error) {
        mw_submission_free(submission);
        return error;
    }
    error = mw_toolchain_stamp(parts->place.toolchain, submission->stamp);
    if (!error)
        error = mw_key_compute_at(&submission->key, parts->place.toolchain, submission->stamp,
                                  submission->options, &submission->request);
    if (error) {
        mw_problem_set(&ticket->problem, MW_PROBLEM_INTERNAL, NULL,
                       "the toolchain's headers could not be read: %s", mw_strerror(error));
        mw_submission_free(submission);
        return error;
    }
    ticket->submission = submission;
    return 0;
}

static void after_prefix(struct mw_step *step, int status)
{
    struct mw_ticket *ticket = TICKET_OF(step);
    struct mw_pipeline *pipeline = ticket->pipeline;
    if (ticket->state == TICKET_CLOSING) {
        ticket_free_if_back(ticket);
        return;
    }
    if (status) {
        pipeline->stats.refused++;
        ticket_answer_problem(ticket, &ticket->problem, NULL);
        return;
    }
    /* The clock of the time-out began when the request arrived. */
    uint64_t spent_ms = (mw_clock_ns() - ticket->arrived_ns) / MW_NS_PER_MS;
    uint64_t timeout_ms = ticket->submission->run.timeout_ms;
    uv_update_time(pipeline->parts.loop);
    uv_timer_start(&ticket->timer, on_timeout, timeout_ms > spent_ms ? timeout_ms - spent_ms : 0,
                   0);

    struct mw_flight *flight = flight_find(pipeline, ticket->submission);
    if (flight) {
        pipeline->stats.joined++;
        ticket_board(ticket, flight);
        return;
    }
    flight = flight_new(pipeline, ticket);
    if (!flight) {
        mw_problem_set(&ticket->problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(-ENOMEM));
        ticket_answer_problem(ticket, &ticket->problem, NULL);
        return;
    }
    ticket_board(ticket, flight);
    int error = mw_step_start(&flight->step, pipeline->parts.adapter, pipeline->parts.store_io,
                              work_lookup, after_lookup);
    if (error) {
        struct mw_problem problem;
        lane_refused(&problem, pipeline->parts.store_io, "store", error);
        flight_fail(flight, &problem);
    }
}

static int work_lookup(struct mw_step *step)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    mw_block_begin();
    int error =
        mw_store_get(flight->pipeline->parts.store, &flight->submission->key, &flight->entry);
    if (error == -ENOENT && flight->pipeline->parts.manifests)
        error = flight_find_direct(flight);
    if (error)
        flight_find_preamble(flight);
    mw_block_end();
    return error;
}

static void after_lookup(struct mw_step *step, int status)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    struct mw_pipeline *pipeline = flight->pipeline;
    if (flight->plan)
        mw_preamble_maker_take(pipeline->parts.preamble_maker, flight->plan);
    flight->plan = NULL;
    if (status == 0) {
        flight->ok = true;
        flight->cached = true;
        flight->stored = true;
        pipeline->stats.hits++;
        pipeline->stats.direct_hits += flight->direct;
        flight_land(flight);
        return;
    }
    if (flight->aboard == 0) {
        flight_free_if_empty(flight);
        return;
    }
    if (status != -ENOENT) {
        /* A broken store must not stop a compile: it goes on as a miss. */
        pipeline->stats.store_errors++;
        mw_log("store: looking up %s failed: %s; compiling it anew", flight->submission->key.text,
               mw_strerror(status));
    }
    int error = mw_step_start(&flight->step, pipeline->parts.adapter, pipeline->parts.cpu,
                              work_leaf, after_leaf);
    flight->in_leaf = error == 0;
    if (error) {
        struct mw_problem problem;
        lane_refused(&problem, pipeline->parts.cpu, "compile-cpu", error);
        flight_fail(flight, &problem);
    }
}

/* The CPU leaf: it computes, and does nothing else (seed 002). */
static int work_leaf(struct mw_step *step)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    (void)mw_audit_expect(MW_THREAD_LANE); /* counted, never a reason to fail a compile */
    return mw_leaf_run(&flight->leaf, &flight->pipeline->parts.place, flight->submission->options,
                       &flight->submission->request, &flight->result);
}

static void after_leaf(struct mw_step *step, int status)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    struct mw_pipeline *pipeline = flight->pipeline;
    flight->ran_on = step->req.job.ran_on;
    flight->queued_ns = step->req.job.queued_ns;
    flight->started_ns = step->req.job.started_ns;
    flight->ended_ns = step->req.job.ended_ns;
    struct mw_problem problem;
    flight->in_leaf = false;
    if (flight->leaf.usage.head_start_due)
        flight_plan_head_start(flight);
    flight_drop_preamble(flight);
    if (status) {
        json_t *extra = mw_leaf_explain(&flight->leaf, status, &problem);
        flight_fail_with(flight, &problem, extra);
        json_decref(extra);
        return;
    }
    flight->ok = flight->result.ok;
    if (flight->ok)
        pipeline->stats.compiled++;
    else
        pipeline->stats.failed++;
    int error = mw_step_start(&flight->step, pipeline->parts.adapter, pipeline->parts.store_io,
                              work_keep, after_keep);
    if (error) {
        lane_refused(&problem, pipeline->parts.store_io, "store", error);
        flight_fail(flight, &problem);
    }
}

/* Turns the result into what is stored and answered, and stores it if that is sound. */
static int work_keep(struct mw_step *step)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    struct mw_compile_result *result = &flight->result;
    bool complete;
    flight->entry.meta = mw_meta_make(result, mw_options_extras(flight->submission->options),
                                      &flight->entry.meta_bytes, &complete);
    if (!flight->entry.meta)
        return -ENOMEM;
    flight->entry.kind = mw_options_emit(flight->submission->options);
    flight->entry.artifact = result->artifact;
    flight->entry.artifact_bytes = result->artifact_bytes;
    result->artifact = NULL;
    flight->not_kept = result->not_storable;
    if (!result->ok || result->not_storable)
        return 0;
    if (!complete) {
        flight->not_kept = NOT_KEPT_EXTRA;
        return 0;
    }
    flight_keep(flight);
    return 0;
}

static void after_keep(struct mw_step *step, int status)
{
    struct mw_flight *flight = FLIGHT_OF(step);
    mw_compile_result_fini(&flight->result);
    if (status) {
        struct mw_problem problem;
        mw_problem_set(&problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(status));
        flight_fail(flight, &problem);
        return;
    }
    if (flight->store_error) {
        flight->pipeline->stats.store_errors++;
        mw_log("store: keeping %s failed: %s; it was answered all the same",
               flight->submission->key.text, mw_strerror(flight->store_error));
    }
    flight_land(flight);
}

/* Keep what is answered, with the sources of its debug information and a manifest. The manifest's
 * base must be made before the last look at the headers: it speaks of those that the leaf read. */
static void flight_keep(struct mw_flight *flight)
{
    const struct mw_pipeline_parts *parts = &flight->pipeline->parts;
    const struct mw_submission *submission = flight->submission;
    size_t meta_bytes = flight->entry.meta_bytes;
    struct mw_debug_sources sources = {0};
    struct mw_direct direct = {0};
    if (parts->debug_sources &&
        (mw_debug_sources_collect(&sources, submission->options, &submission->request,
                                  &flight->result.inputs) != 0 ||
         (sources.json && mw_meta_add(&flight->entry.meta, &flight->entry.meta_bytes,
                                      "debug_sources", sources.json) != 0)))
        mw_debug_sources_fini(&sources);
    if (parts->manifests)
        mw_direct_make(&direct, parts->place.toolchain, submission->stamp, submission->options,
                       &submission->request, &flight->result.inputs, &flight->key);
    if (key_moved(flight))
        flight->not_kept = NOT_KEPT_MOVED;
    else
        flight_put(flight, &(struct mw_store_more){.base = &direct.base,
                                                   .manifest = direct.manifest,
                                                   .sources = sources.list,
                                                   .source_count = sources.count});
    if (!flight->stored && sources.json) { /* what it says of the sources is not so */
        flight->entry.meta_bytes = meta_bytes;
        flight->entry.meta[meta_bytes] = '\0';
    }
    mw_direct_fini(&direct);
    mw_debug_sources_fini(&sources);
}

static void flight_put(struct mw_flight *flight, const struct mw_store_more *more)
{
    mw_block_begin(); /* one process writes at a time */
    flight->store_error =
        mw_store_keep(flight->pipeline->parts.store, &flight->key, &flight->entry, more);
    mw_block_end();
    flight->stored = flight->store_error == 0;
    if (!flight->stored)
        flight->not_kept = NOT_KEPT_STORE;
}

/* Whether a system header changed since the key was made: then nobody knows which one the leaf
 * has read. */
static bool key_moved(const struct mw_flight *flight)
{
    const struct mw_submission *submission = flight->submission;
    uint8_t now[MW_TOOLCHAIN_STAMP_BYTES];
    return mw_toolchain_stamp(flight->pipeline->parts.place.toolchain, now) != 0 ||
           memcmp(now, submission->stamp, sizeof now) != 0;
}

static int work_render(struct mw_step *step)
{
    struct mw_ticket *ticket = TICKET_OF(step);
    const struct mw_store_entry *entry = &ticket->flight->entry;
    ticket->answer =
        mw_meta_answer(answer_json(ticket, ticket->flight), entry->meta, entry->meta_bytes);
    return ticket->answer ? 0 : -ENOMEM;
}

static void after_render(struct mw_step *step, int status)
{
    struct mw_ticket *ticket = TICKET_OF(step);
    struct mw_flight *flight = ticket->flight;
    /* A ticket that left meanwhile stayed aboard until now, because its step read the flight. */
    ticket_leave(ticket);
    flight_free_if_empty(flight);
    if (ticket->state == TICKET_CLOSING) {
        free(ticket->answer);
        ticket_free_if_back(ticket);
        return;
    }
    if (status) {
        mw_problem_set(&ticket->problem, MW_PROBLEM_INTERNAL, NULL, "%s", mw_strerror(status));
        ticket_answer_problem(ticket, &ticket->problem, NULL);
        return;
    }
    ticket_answer(ticket, 200, ticket->answer, 0);
}

/* ---- tickets ---- */

static void ticket_board(struct mw_ticket *ticket, struct mw_flight *flight)
{
    ticket->state = TICKET_ABOARD;
    ticket->flight = flight;
    ticket->prev = NULL;
    ticket->next = flight->tickets;
    if (flight->tickets)
        flight->tickets->prev = ticket;
    flight->tickets = ticket;
    flight->aboard++;
    mw_submission_free(ticket->submission); /* NULL when the flight was made from it */
    ticket->submission = NULL;
}

static void ticket_leave(struct mw_ticket *ticket)
{
    struct mw_flight *flight = ticket->flight;
    if (ticket->prev)
        ticket->prev->next = ticket->next;
    else
        flight->tickets = ticket->next;
    if (ticket->next)
        ticket->next->prev = ticket->prev;
    flight->aboard--;
    ticket->flight = NULL;
}

static void ticket_render(struct mw_ticket *ticket)
{
    struct mw_pipeline *pipeline = ticket->pipeline;
    ticket->state = TICKET_RENDER;
    int error = mw_step_start(&ticket->step, pipeline->parts.adapter, pipeline->parts.files,
                              work_render, after_render);
    if (error) {
        lane_refused(&ticket->problem, pipeline->parts.files, "files", error);
        ticket_leave(ticket);
        ticket_answer_problem(ticket, &ticket->problem, NULL);
    }
}

static void ticket_answer(struct mw_ticket *ticket, unsigned status, char *body,
                          unsigned retry_after_s)
{
    struct mw_answer answer = {
        .status = status,
        .body = body,
        .body_bytes = body ? strlen(body) : 0,
        .retry_after_s = retry_after_s,
    };
    void (*answered)(void *, const struct mw_answer *) = ticket->answered;
    ticket->answered = NULL;
    answered(ticket->user, &answer);
    ticket_close(ticket);
}

static void ticket_answer_problem(struct mw_ticket *ticket, const struct mw_problem *problem,
                                  json_t *extra)
{
    /* A body of NULL, when memory is out, is answered as an empty one: the status says enough. */
    ticket_answer(ticket, mw_problem_status(problem), mw_problem_render(problem, extra),
                  problem->retry_after_s);
}

/* Answered or abandoned: leave the flight, take back what is queued, and go when all is back. */
static void ticket_close(struct mw_ticket *ticket)
{
    enum ticket_state state = ticket->state;
    struct mw_flight *flight = ticket->flight;
    ticket->state = TICKET_CLOSING;
    if (state == TICKET_ABOARD && flight) {
        ticket_leave(ticket);
        flight_free_if_empty(flight);
    } else {
        (void)mw_step_cancel(&ticket->step);
    }
    if (ticket->timer_open)
        uv_close((uv_handle_t *)&ticket->timer, on_timer_closed);
}

static void ticket_free_if_back(struct mw_ticket *ticket)
{
    if (ticket->state != TICKET_CLOSING || ticket->step.out || ticket->timer_open)
        return;
    ticket->pipeline->stats.tickets--;
    mw_submission_free(ticket->submission);
    free(ticket->body);
    free(ticket);
}

static void on_timeout(uv_timer_t *timer)
{
    struct mw_ticket *ticket = timer->data;
    struct mw_pipeline *pipeline = ticket->pipeline;
    pipeline->stats.timeouts++;
    struct mw_lane *const lanes[] = {pipeline->parts.cpu, pipeline->parts.files,
                                     pipeline->parts.store_io};
    size_t lane_count = sizeof lanes / sizeof lanes[0];
    char why[320];
    (void)mw_shared_pool_explain(pipeline->parts.shared, lanes, lane_count, why, sizeof why);
    struct mw_problem problem; /* the ticket's own may be lent to a step */
    mw_problem_set(&problem, MW_PROBLEM_TIMEOUT, NULL,
                   "the time asked for is up after %llu ms; give a larger timeout_ms, or try again "
                   "when less is queued%s",
                   (unsigned long long)((mw_clock_ns() - ticket->arrived_ns) / MW_NS_PER_MS), why);
    json_t *extra =
        json_pack("{s:o, s:o, s:o}", "pool", mw_report_pool(pipeline->parts.shared->pool),
                  "pool_monitor", mw_report_monitor(pipeline->parts.shared->monitor), "lanes",
                  mw_report_lanes(lanes, lane_count));
    ticket_answer_problem(ticket, &problem, extra);
    json_decref(extra);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mw_ticket *ticket = handle->data;
    ticket->timer_open = false;
    ticket_free_if_back(ticket);
}

/* ---- flights ---- */

static struct mw_flight *flight_new(struct mw_pipeline *pipeline, struct mw_ticket *ticket)
{
    struct mw_flight *flight = calloc(1, sizeof *flight);
    if (!flight)
        return NULL;
    flight->pipeline = pipeline;
    flight->submission = ticket->submission;
    flight->key = flight->submission->key;
    flight->leaf.limits = flight->submission->limits;
    ticket->submission = NULL;
    struct mw_flight **bucket = bucket_of(pipeline, &flight->submission->key);
    flight->next_in_bucket = *bucket;
    *bucket = flight;
    flight->findable = true;
    pipeline->stats.flights++;
    return flight;
}

/* One with other limits may fail where this one would not, or the other way round. */
static struct mw_flight *flight_find(struct mw_pipeline *pipeline,
                                     const struct mw_submission *submission)
{
    struct mw_flight *flight = *bucket_of(pipeline, &submission->key);
    while (flight && (strcmp(flight->submission->key.text, submission->key.text) != 0 ||
                      !mw_leaf_limits_equal(&flight->submission->limits, &submission->limits)))
        flight = flight->next_in_bucket;
    return flight;
}

/* As mw_store_get. Nobody knows of the other key but who is aboard this flight. */
static int flight_find_direct(struct mw_flight *flight)
{
    const struct mw_pipeline_parts *parts = &flight->pipeline->parts;
    const struct mw_submission *submission = flight->submission;
    struct mw_key key;
    int error = mw_direct_find(parts->store, parts->place.toolchain, submission->stamp,
                               submission->options, &submission->request, &key, &flight->entry);
    flight->direct = error == 0;
    if (!error)
        flight->key = key;
    return error;
}

static void flight_hide(struct mw_flight *flight)
{
    if (!flight->findable)
        return;
    struct mw_flight **link = bucket_of(flight->pipeline, &flight->submission->key);
    while (*link != flight)
        link = &(*link)->next_in_bucket;
    *link = flight->next_in_bucket;
    flight->findable = false;
}

/* The result is complete: everyone aboard gets an answer made from it. */
static void flight_land(struct mw_flight *flight)
{
    flight_hide(flight);
    struct mw_ticket *ticket = flight->tickets;
    while (ticket) {
        struct mw_ticket *next = ticket->next;
        ticket_render(ticket);
        ticket = next;
    }
    flight_free_if_empty(flight);
}

static void flight_fail(struct mw_flight *flight, const struct mw_problem *problem)
{
    flight_fail_with(flight, problem, NULL);
}

static void flight_fail_with(struct mw_flight *flight, const struct mw_problem *problem,
                             json_t *extra)
{
    flight_hide(flight);
    while (flight->tickets) {
        struct mw_ticket *ticket = flight->tickets;
        ticket_leave(ticket);
        ticket_answer_problem(ticket, problem, extra);
    }
    flight_free_if_empty(flight);
}

/* Nobody is aboard: take back what is queued, and go when no step is out. */
static void flight_free_if_empty(struct mw_flight *flight)
{
    if (flight->aboard > 0)
        return;
    if (flight->step.out) {
        /* What was taken back or is ended yields no result, so nobody may board any more. What runs
         * in this process does, and what has been compiled is kept. */
        if (flight->ended_ns == 0 && mw_step_cancel(&flight->step)) {
            flight_hide(flight);
        } else if (flight->in_leaf && flight->pipeline->parts.place.isolate) {
            flight_hide(flight);
            mw_leaf_stop(&flight->leaf, &flight->pipeline->parts.place);
        }
        return;
    }
    flight_hide(flight);
    flight_drop_preamble(flight);
    flight->pipeline->stats.flights--;
    mw_leaf_fini(&flight->leaf);
    mw_compile_result_fini(&flight->result);
    mw_store_entry_fini(&flight->entry);
    mw_submission_free(flight->submission);
    free(flight);
}

/* Runs on: the store's lane. Whatever goes wrong, the compile does without. */
static void flight_find_preamble(struct mw_flight *flight)
{
    const struct mw_pipeline_parts *parts = &flight->pipeline->parts;
    struct mw_submission *submission = flight->submission;
    if (!parts->preambles)
        return;
    flight->has_preamble =
        mw_preambles_find(parts->preambles, parts->place.toolchain, submission->stamp,
                          submission->options, &submission->request, &flight->preamble,
                          &flight->plan) == 1;
    flight->used_preamble = flight->has_preamble;
    submission->request.preamble = flight->has_preamble ? &flight->preamble : NULL;
}

static void flight_plan_head_start(struct mw_flight *flight)
{
    const struct mw_submission *submission = flight->submission;
    struct mw_preamble_plan *plan;

    if (mw_preamble_plan_head_start(&plan, submission->options, &submission->request) == 0)
        mw_preamble_maker_take(flight->pipeline->parts.preamble_maker, plan);
}

static void flight_drop_preamble(struct mw_flight *flight)
{
    if (!flight->has_preamble)
        return;
    flight->submission->request.preamble = NULL;
    mw_preambles_drop(flight->pipeline->parts.preambles, &flight->preamble);
    flight->has_preamble = false;
}

static struct mw_flight **bucket_of(struct mw_pipeline *pipeline, const struct mw_key *key)
{
    char first_digits[9] = {0};
    memcpy(first_digits, key->text, sizeof first_digits - 1);
    return &pipeline->buckets[strtoul(first_digits, NULL, 16) % FLIGHT_BUCKETS];
}

/* Whole seconds until a job queued now would likely start: 1 to an hour. */
static unsigned retry_after_s_of(struct mw_lane *lane)
{
    uint64_t wait_s = (mw_lane_wait_estimate_ns(lane) + MW_NS_PER_S - 1) / MW_NS_PER_S;
    return wait_s < 1 ? 1 : wait_s > 3600 ? 3600 : (unsigned)wait_s;
}

static void lane_refused(struct mw_problem *problem, struct mw_lane *lane, const char *name,
                         int error)
{
    if (error == -EAGAIN) {
        unsigned retry_after_s = retry_after_s_of(lane);
        mw_problem_set(problem, MW_PROBLEM_QUEUE_FULL, name,
                       "the queue of the %s lane is full; try again in about %u s", name,
                       retry_after_s);
        problem->retry_after_s = retry_after_s;
    } else {
        mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "the %s lane refused: %s", name,
                       mw_strerror(error));
    }
}

/* ---- the answer ---- */

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / MW_NS_PER_US : 0;
    return (double)us / 1e3;
}

static json_t *timings_json(const struct mw_ticket *ticket, const struct mw_flight *flight)
{
    uint64_t now_ns = mw_clock_ns();
    uint64_t leaf_end_ns = flight->cached ? now_ns : flight->ended_ns;
    return json_pack("{s:f, s:f, s:f, s:f, s:b, s:b}", "prefix_ms",
                     ms_between(ticket->arrived_ns, flight->cached ? now_ns : flight->queued_ns),
                     "queued_ms", ms_between(flight->queued_ns, flight->started_ns), "leaf_ms",
                     ms_between(flight->started_ns, flight->ended_ns), "suffix_ms",
                     ms_between(leaf_end_ns, now_ns), "preamble", flight->used_preamble,
                     "head_start", flight->leaf.usage.has_head_start);
}

static json_t *artifact_json(const struct mw_ticket *ticket, const struct mw_flight *flight)
{
    const struct mw_store_entry *entry = &flight->entry;
    if (!flight->ok || entry->kind == MW_EMIT_NONE)
        return json_null();
    char url[MW_KEY_TEXT_BYTES + 16];
    snprintf(url, sizeof url, "/v1/artifacts/%s", flight->key.text);
    json_t *artifact =
        json_pack("{s:s, s:I, s:s?}", "kind", mw_emit_kind_name(entry->kind), "bytes",
                  (json_int_t)entry->artifact_bytes, "url", flight->stored ? url : NULL);
    if (!flight->stored)
        json_object_set_new(artifact, "not_stored", json_string(flight->not_kept));
    if (ticket->include_artifact || !flight->stored)
        json_object_set_new(
            artifact, "base64",
            mw_wire_base64(entry->artifact ? entry->artifact : "", entry->artifact_bytes));
    return artifact;
}

static json_t *answer_json(const struct mw_ticket *ticket, const struct mw_flight *flight)
{
    json_t *meta = mw_meta_head(flight->entry.meta, flight->entry.meta_bytes);
    json_t *list = json_object_get(meta, "diagnostics");
    json_t *shown = mw_wire_diagnostics_cut(list, ticket->diagnostics_max);
    json_int_t dropped = json_integer_value(json_object_get(meta, "dropped")) +
                         (json_int_t)(json_array_size(list) - json_array_size(shown));
    json_t *answer =
        json_pack("{s:s, s:s, s:b, s:o, s:I, s:o, s:s?, s:o}", "key", flight->key.text, "status",
                  flight->ok ? "ok" : "failed", "cached", flight->cached, "diagnostics", shown,
                  "diagnostics_dropped", dropped, "artifact", artifact_json(ticket, flight),
                  "thread", flight->cached ? NULL : mw_thread_kind_name(flight->ran_on), "timings",
                  timings_json(ticket, flight));
    if (!flight->cached)
        json_object_set_new(answer, "usage",
                            mw_leaf_usage_json(&flight->leaf, &flight->pipeline->parts.place));
    json_decref(meta);
    return answer;
}

#include "leaf.h"

#include <errno.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <stddef.h>
#include <string.h>

/* What a person is told of a limit. */
static const struct {
    const char *what;
    const char *unit;
    uint64_t divisor;
    const char *advice;
} limit_texts[MW_LIMITS] = {
    [MW_LIMIT_WALL] = {"time", "ms", MW_NS_PER_MS, "try again when less runs"},
    [MW_LIMIT_CPU] = {"CPU time", "ms", MW_NS_PER_MS,
                      "split the source, or lower the optimisation level"},
    [MW_LIMIT_MEMORY] = {"memory", "bytes", 1, "split the source; big arrays belong into .bss"},
    [MW_LIMIT_OUTPUT] = {"output", "bytes", 1, "split the source"},
};

static const size_t limit_offsets[] = {
    offsetof(struct mw_limits, wall_ns),
    offsetof(struct mw_limits, cpu_ns),
    offsetof(struct mw_limits, memory_bytes),
    offsetof(struct mw_limits, output_bytes),
};

#define LIMITS (sizeof limit_offsets / sizeof limit_offsets[0])

/* What is kept in this process too. */
static bool is_kept(const struct mw_leaf_place *place, size_t which)
{
    return place->isolate || limit_offsets[which] == offsetof(struct mw_limits, output_bytes);
}

static json_t *usage_json(const struct mw_usage *usage);

static uint64_t limit_of(const struct mw_limits *limits, size_t which)
{
    uint64_t value;
    memcpy(&value, (const char *)limits + limit_offsets[which], sizeof value);
    return value;
}

int mw_leaf_limits(const struct mw_leaf_place *place, const struct mw_limits *asked,
                   struct mw_limits *limits, struct mw_problem *problem)
{
    const struct mw_limits given = *asked; /* `limits` may be the same */
    *limits = (struct mw_limits){0};
    for (size_t i = 0; i < LIMITS; i++) {
        uint64_t value = limit_of(&given, i), ceiling = limit_of(&place->ceilings, i);
        if (!is_kept(place, i) && value) {
            mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, "limits",
                           "limits: this service compiles in its own process and can keep none but "
                           "\"output_bytes\" and \"diagnostics\"; leave the others out");
            return -ENOTSUP;
        }
        if (!is_kept(place, i))
            continue;
        if (value == 0)
            value = limit_of(&place->defaults, i);
        if (value > ceiling)
            value = ceiling;
        memcpy((char *)limits + limit_offsets[i], &value, sizeof value);
    }
    return 0;
}

bool mw_leaf_limits_equal(const struct mw_limits *one, const struct mw_limits *other)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (limit_of(one, i) != limit_of(other, i))
            return false;
    return true;
}

static int run_isolated(struct mw_leaf *leaf, const struct mw_leaf_place *place,
                        const struct mw_options *options, const struct mw_compile_request *request,
                        struct mw_compile_result *result)
{
    struct mw_compile_request without = *request;
    int error = mw_isolate_compile(place->isolate, options, request, &leaf->limits, &leaf->stop,
                                   result, &leaf->usage);

    if (!request->preamble || (error != -EIO && leaf->usage.signal == 0))
        return error;
    /* It broke down, and a preamble is to change nothing: not even that. */
    without.preamble = NULL;
    mw_compile_result_fini(result);
    return mw_isolate_compile(place->isolate, options, &without, &leaf->limits, &leaf->stop, result,
                              &leaf->usage);
}

int mw_leaf_run(struct mw_leaf *leaf, const struct mw_leaf_place *place,
                const struct mw_options *options, const struct mw_compile_request *request,
                struct mw_compile_result *result)
{
    struct mw_compile_request here = *request;
    int rc;

    if (place->isolate)
        return run_isolated(leaf, place, options, request, result);
    here.artifact_bytes_max = leaf->limits.output_bytes;
    rc = mw_compile(place->toolchain, options, &here, result);
    if (rc == -E2BIG) {
        leaf->usage.hit = MW_LIMIT_OUTPUT;
        leaf->usage.hit_value = leaf->limits.output_bytes;
        rc = -EDQUOT;
    }
    return rc;
}

void mw_leaf_stop(struct mw_leaf *leaf, const struct mw_leaf_place *place)
{
    if (place->isolate)
        mw_isolate_stop(&leaf->stop);
}

void mw_leaf_fini(struct mw_leaf *leaf)
{
    mw_isolate_stop_fini(&leaf->stop);
}

json_t *mw_leaf_explain(const struct mw_leaf *leaf, int status, struct mw_problem *problem)
{
    enum mw_limit hit = leaf->usage.hit;

    if ((status == -ETIMEDOUT || status == -EDQUOT) && hit > MW_LIMIT_NONE && hit < MW_LIMITS) {
        unsigned long long value = leaf->usage.hit_value / limit_texts[hit].divisor;

        mw_problem_set(
            problem, MW_PROBLEM_LIMIT, mw_limit_name(hit),
            "the compile needs more %s than it may have: %llu %s; %s, or ask for a larger "
            "limit if the service has one",
            limit_texts[hit].what, value, limit_texts[hit].unit, limit_texts[hit].advice);
        json_t *members = leaf->usage.wall_ns ? usage_json(&leaf->usage) : json_object();
        json_object_set_new(members, "limit_value", json_integer((json_int_t)value));
        return members;
    }
    if (status == -EAGAIN) {
        mw_problem_set(problem, MW_PROBLEM_QUEUE_FULL, "workers",
                       "no worker process could be started; try again in about 1 s");
        problem->retry_after_s = 1;
        return NULL;
    }
    /* -ECANCELED: the last client has left, so nobody reads the problem. */
    mw_problem_set(problem, MW_PROBLEM_INTERNAL, NULL, "the compiler broke down: %s",
                   mw_strerror(status));
    return NULL;
}

json_t *mw_leaf_usage_json(const struct mw_leaf *leaf, const struct mw_leaf_place *place)
{
    if (!place->isolate)
        return NULL;
    return usage_json(&leaf->usage);
}

static json_t *usage_json(const struct mw_usage *usage)
{
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:I}", "wall_ms", (double)usage->wall_ns / MW_NS_PER_MS,
        "take_ms", (double)usage->take_ns / MW_NS_PER_MS, "hand_over_ms",
        (double)usage->hand_ns / MW_NS_PER_MS, "run_ms", (double)usage->run_ns / MW_NS_PER_MS,
        "cpu_ms", (double)usage->cpu_ns / MW_NS_PER_MS, "memory_peak_bytes",
        (json_int_t)usage->memory_peak_bytes);
}

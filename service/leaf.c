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
        if (!place->isolate && value) {
            mw_problem_set(problem, MW_PROBLEM_BAD_FIELD, "limits",
                           "limits: this service compiles in its own process and can keep none but "
                           "\"diagnostics\"; leave the others out");
            return -ENOTSUP;
        }
        if (!place->isolate)
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

int mw_leaf_run(struct mw_leaf *leaf, const struct mw_leaf_place *place,
                const struct mw_options *options, const struct mw_compile_request *request,
                struct mw_compile_result *result)
{
    if (!place->isolate)
        return mw_compile(place->toolchain, options, request, result);
    int error = mw_isolate_compile(place->isolate, options, request, &leaf->limits, &leaf->stop,
                                   result, &leaf->usage);
    if (!request->preamble || (error != -EIO && leaf->usage.signal == 0))
        return error;
    /* It broke down, and a preamble is to change nothing: not even that. */
    struct mw_compile_request without = *request;
    without.preamble = NULL;
    mw_compile_result_fini(result);
    return mw_isolate_compile(place->isolate, options, &without, &leaf->limits, &leaf->stop, result,
                              &leaf->usage);
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

    if (status == -E2BIG) {
        mw_problem_set(problem, MW_PROBLEM_TOO_LARGE, "artifact",
                       "artifact: it would be larger than %llu bytes; split the source",
                       (unsigned long long)MW_ARTIFACT_BYTES_MAX);
        return NULL;
    }
    if ((status == -ETIMEDOUT || status == -EDQUOT) && hit > MW_LIMIT_NONE && hit < MW_LIMITS) {
        unsigned long long value = leaf->usage.hit_value / limit_texts[hit].divisor;

        mw_problem_set(
            problem, MW_PROBLEM_LIMIT, mw_limit_name(hit),
            "the compile needs more %s than it may have: %llu %s; %s, or ask for a larger "
            "limit if the service has one",
            limit_texts[hit].what, value, limit_texts[hit].unit, limit_texts[hit].advice);
        json_t *members = usage_json(&leaf->usage);
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
    return json_pack("{s:f, s:f, s:I}", "wall_ms", (double)usage->wall_ns / MW_NS_PER_MS, "cpu_ms",
                     (double)usage->cpu_ns / MW_NS_PER_MS, "memory_peak_bytes",
                     (json_int_t)usage->memory_peak_bytes);
}

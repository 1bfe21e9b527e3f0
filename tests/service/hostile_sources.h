/* hostile_sources.h - sources that kill, hang or fill whoever compiles them, with what a service
 * may make of each.
 *
 * Threads: any; the table does not change. */
#ifndef MILLWRIGHT_TESTS_SERVICE_HOSTILE_SOURCES_H
#define MILLWRIGHT_TESTS_SERVICE_HOSTILE_SOURCES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct hostile_source {
    const char *name;
    const char *language;
    const char *text; /* NULL: written by: */
    void (*write)(FILE *out);
    const char *outcomes; /* "ok", "failed", or limits; any of these, spaces between */
    bool ends_host;       /* compiled in process it ends the process */
};

extern const struct hostile_source hostile_sources[];
extern const size_t hostile_source_count;

struct hostile_limits {
    json_int_t wall_ms, cpu_ms, memory_bytes, output_bytes;
};

/* Far less than they want: all of it, so that CPU time mostly ends first; and of wall time only, so
 * that they may grow until then. */
extern const struct hostile_limits hostile_tight, hostile_wall;

/* A body that compiles it with limits, or (NULL) with none. A number makes its key its own. */
json_t *hostile_body(const struct hostile_source *source, unsigned number,
                     const struct hostile_limits *limits);

/* How the service answered: "ok", "failed", the limit's name, or "?" with the detail in the answer.
 */
const char *hostile_outcome(long status, const json_t *answer);

/* Whether `outcome` is one of the source's, or wall time, which may end any of them. */
bool hostile_allows(const struct hostile_source *source, const char *outcome);

/* Whether nothing but a limit ends the source. */
bool hostile_is_endless(const struct hostile_source *source);

#endif

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

/* What each is given: far less than they want. */
#define HOSTILE_WALL_MS      20000
#define HOSTILE_CPU_MS       600
#define HOSTILE_MEMORY_BYTES (256 << 20)
#define HOSTILE_OUTPUT_BYTES (4 << 20)

/* A body that compiles it, with the limits above or (`limited` false) with none. A number makes its
 * key its own. */
json_t *hostile_body(const struct hostile_source *source, unsigned number, bool limited);

/* How the service answered: "ok", "failed", the limit's name, or "?" with the detail in the answer.
 */
const char *hostile_outcome(long status, const json_t *answer);

/* Whether `outcome` is one of the source's. */
bool hostile_allows(const struct hostile_source *source, const char *outcome);

#endif

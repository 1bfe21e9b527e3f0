/* meta.h - what is kept beside an artifact, and told in each answer: the diagnostics, and what else
 * the request asked for (its extras).
 *
 * As a text: one line of JSON with the diagnostics, then a line for each extra that was asked for:
 * the name of its member in answers, a space, and its JSON, which has no line end. Extras may be
 * large and come from a worker that may be hostile; so they are checked, once, and never built.
 *
 * Ownership:  texts are malloc'ed and the caller's.
 * Threads:    plain functions for the IO pools.
 * Bounds:     those of diagnostic.h, and MW_EXTRA_BYTES_MAX for an extra. */
#ifndef MW_SERVICE_META_H
#define MW_SERVICE_META_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <millwright/emit.h>

/* The text for `result`, with `extras` (bits of mw_extra). An extra that is not there, too large or
 * no JSON is null, and *complete is false then. NULL when memory is out. */
char *mw_meta_make(const struct mw_compile_result *result, unsigned extras, size_t *bytes,
                   bool *complete);

/* Add the line of another member; `json` has no line end. Returns 0 or -ENOMEM. */
int mw_meta_add(char **meta, size_t *bytes, const char *member, const char *json);

/* The first line, as an object of "diagnostics" and "dropped". NULL when it is none. */
json_t *mw_meta_head(const char *meta, size_t bytes);

/* The text of `answer`, an object (taken over; NULL is fine), with the extras as further members.
 * NULL when memory is out. */
char *mw_meta_answer(json_t *answer, const char *meta, size_t bytes);

/* The member of answers that holds `extra`: "dependencies", "remarks", "time_trace", "line_map".
 * Static text. */
const char *mw_meta_member(enum mw_extra extra);

#endif

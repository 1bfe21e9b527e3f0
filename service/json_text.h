/* json_text.h - a JSON value as text, the same way everywhere: numbers with the nine digits that
 * they really have; and JSON text of others that is passed on without being built. */
#ifndef MW_SERVICE_JSON_TEXT_H
#define MW_SERVICE_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

#define MW_JSON_DEPTH_MAX 64u /* of mw_json_pass */

enum mw_json_form { MW_JSON_COMPACT, MW_JSON_INDENTED };

/* The text of `value`, for the caller to free(); the reference to `value` is taken over. NULL when
 * `value` is NULL or memory is out. */
char *mw_json_text(json_t *value, enum mw_json_form form);

/* Copy `text`, an object or array from somebody who is not trusted, without the spaces between its
 * parts: so on one line. `out` has room for `bytes`. A tree of it would take many times its size,
 * so none is made.
 * Returns 0 with *out_bytes set, or -EINVAL: it is no JSON, no UTF-8, or nested deeper than
 * MW_JSON_DEPTH_MAX. */
int mw_json_pass(const char *text, size_t bytes, char *out, size_t *out_bytes);

#endif

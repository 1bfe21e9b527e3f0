/* json_text.h - a JSON value as text, the same way everywhere: numbers with the nine digits that
 * they really have. */
#ifndef MW_SERVICE_JSON_TEXT_H
#define MW_SERVICE_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

enum mw_json_form { MW_JSON_COMPACT, MW_JSON_INDENTED };

/* The text of `value`, for the caller to free(); the reference to `value` is taken over. NULL when
 * `value` is NULL or memory is out. */
char *mw_json_text(json_t *value, enum mw_json_form form);

#endif

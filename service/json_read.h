/* json_read.h - JSON as jansson reads it, several times as fast where it holds long strings.
 *
 * Threads: any.
 * Bounds:  those of jansson; up to twice the text's size more of memory meanwhile. */
#ifndef MW_SERVICE_JSON_READ_H
#define MW_SERVICE_JSON_READ_H

#include <jansson.h>
#include <stddef.h>

/* Exactly json_loadb with JSON_REJECT_DUPLICATES: the same value, or NULL and the same words in
 * `where`. `spared`, unless NULL, gets the number of strings that jansson did not read. */
json_t *mw_json_read(const char *text, size_t bytes, json_error_t *where, size_t *spared);

#endif

/* probe_table.h - what `millwright probe` prints: a table with bars, or JSON.
 *
 * Threads: one. */
#ifndef MW_SERVICE_PROBE_TABLE_H
#define MW_SERVICE_PROBE_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "probe_row.h"

/* "12 emits on lane isolated, compiler threads off" */
void mw_probe_row_describe(const struct mw_probe_row *row, char *text, size_t bytes);

/* What was measured on. */
void mw_probe_print_machine(FILE *out);

/* The text above the rows of one kind, and one row. */
void mw_probe_print_head(FILE *out, const struct mw_probe_row *row);
void mw_probe_print_row(FILE *out, const struct mw_probe_row *row,
                        const struct mw_probe_result *result);

/* The rows as one JSON document with a line end. Returns 0 or -ENOMEM. */
int mw_probe_print_json(FILE *out, const struct mw_probe_row *rows,
                        const struct mw_probe_result *results, size_t count, bool interrupted);

#endif

/* grid.h - text in aligned columns: the first to the left, the others to the right.
 *
 * Ownership:  the caller's storage; zero bytes are an empty grid.
 * Threads:    one at a time.
 * Bounds:     as the array says; text that is longer is cut. */
#ifndef BENCH_POOLS_GRID_H
#define BENCH_POOLS_GRID_H

#include <stdio.h>

#define GRID_ROWS_MAX    24u
#define GRID_COLUMNS_MAX 12u
#define GRID_CELL_BYTES  48u

struct grid {
    unsigned rows, columns; /* as many as have been set */
    char cells[GRID_ROWS_MAX][GRID_COLUMNS_MAX][GRID_CELL_BYTES];
};

__attribute__((format(printf, 4, 5))) void grid_set(struct grid *grid, unsigned row,
                                                    unsigned column, const char *format, ...);

void grid_print(const struct grid *grid, FILE *out);

#endif

#include "grid.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

static int width_of(const struct grid *grid, unsigned column);
static unsigned used_columns(const struct grid *grid, unsigned row);

void grid_set(struct grid *grid, unsigned row, unsigned column, const char *format, ...)
{
    va_list arguments;

    assert(row < GRID_ROWS_MAX);
    assert(column < GRID_COLUMNS_MAX);
    va_start(arguments, format);
    vsnprintf(grid->cells[row][column], GRID_CELL_BYTES, format, arguments);
    va_end(arguments);
    if (row >= grid->rows)
        grid->rows = row + 1;
    if (column >= grid->columns)
        grid->columns = column + 1;
}

void grid_print(const struct grid *grid, FILE *out)
{
    for (unsigned row = 0; row < grid->rows; row++) {
        fprintf(out, "%-*s", width_of(grid, 0), grid->cells[row][0]);
        for (unsigned column = 1; column < used_columns(grid, row); column++)
            if (width_of(grid, column) > 0)
                fprintf(out, "  %*s", width_of(grid, column), grid->cells[row][column]);
        fprintf(out, "\n");
    }
}

static int width_of(const struct grid *grid, unsigned column)
{
    size_t width = 0;

    for (unsigned row = 0; row < grid->rows; row++)
        if (strlen(grid->cells[row][column]) > width)
            width = strlen(grid->cells[row][column]);
    return (int)width;
}

/* Without the empty ones at the end, so that no line ends with blanks. */
static unsigned used_columns(const struct grid *grid, unsigned row)
{
    unsigned used = grid->columns;

    while (used > 0 && grid->cells[row][used - 1][0] == '\0')
        used--;
    return used;
}

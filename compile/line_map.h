/* line_map.h - which line of a source the lines of its assembly come from.
 *
 * Read from the .file and .loc directives that clang writes with -g: DWARF 5's (a directory, a
 * name, a checksum) and older ones, whatever the syntax of the instructions between them. What is
 * no well-formed directive is passed over: inline assembly may hold anything.
 *
 * Ownership:  the map is the caller's to free().
 * Threads:    any thread; nothing here blocks.
 * Bounds:     MW_LINE_MAP_FILES_MAX files, names of MW_LINE_MAP_NAME_BYTES_MAX; what is over is
 *             unknown. A map of at most MW_EXTRA_BYTES_MAX. */
#ifndef MILLWRIGHT_LINE_MAP_H
#define MILLWRIGHT_LINE_MAP_H

#include <stddef.h>

#include <millwright/emit.h>

#define MW_LINE_MAP_FILES_MAX      65536u
#define MW_LINE_MAP_NAME_BYTES_MAX 4096u

/* Make the JSON of MW_EXTRA_LINE_MAP from `bytes` of assembly that was compiled in `directory`:
 * a list of {"line", "file", "source_line", "source_column"}, in the order of "line". Each holds
 * from its line of assembly to the next entry's; a "source_line" of 0 (with "file" empty) says that
 * no line of a source is known from there on. Files are named as in diagnostics: below `directory`
 * without it. Returns 0, -E2BIG or -ENOMEM. */
int mw_line_map_make(struct mw_text *map, const char *text, size_t bytes, const char *directory);

#endif

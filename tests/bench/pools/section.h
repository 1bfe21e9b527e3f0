/* section.h - replaces what a program wrote into a document the time before.
 *
 * Threads: one at a time. Bounds: SECTION_FILE_BYTES_MAX. */
#ifndef BENCH_POOLS_SECTION_H
#define BENCH_POOLS_SECTION_H

#define SECTION_FILE_BYTES_MAX 4194304u

/* In the file at `path`, put `text` in place of what stands between the line that is `begin` and
 * the next one that is `end`. The file is changed as a whole or not at all.
 * Returns 0, -ENOENT (no such lines), -EFBIG, or a negative errno of reading or writing. */
int section_replace(const char *path, const char *begin, const char *end, const char *text);

/* Whether section_replace would find the lines; returns what it would. */
int section_find(const char *path, const char *begin, const char *end);

#endif

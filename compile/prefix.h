/* prefix.h - where a main file's first #includes end. Private to compile/.
 *
 * A prefix is what the compiler may skip when it has a precompiled form of its headers, so nothing
 * may be in it that the compiler would say something about, and nothing whose meaning depends on
 * more than the line it stands in: who reads it stops before what it is not sure of.
 *
 * Threads:  any thread; nothing blocks.
 * Bounds:   the numbers below. */
#ifndef MW_COMPILE_PREFIX_H
#define MW_COMPILE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/preamble.h>

#define MW_PREFIX_LOOK_BYTES       65536u /* of the main file */
#define MW_PREFIX_HEADER_BYTES_MAX 120u
#define MW_PREFIX_LINE_BYTES_MAX   (MW_PREFIX_HEADER_BYTES_MAX + sizeof "#include <>\n")

struct mw_prefix {
    size_t covers_bytes;    /* to the end of the last #include's line; 0: there is none */
    unsigned headers;       /* how many */
    bool has_line_comments; /* which not every C has */
    size_t text_bytes;
    char text[MW_PREAMBLE_HEADERS_MAX * MW_PREFIX_LINE_BYTES_MAX]; /* a line for each header */
};

void mw_prefix_scan(struct mw_prefix *prefix, const char *data, size_t bytes);

#endif

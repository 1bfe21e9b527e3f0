/* preamble.h - precompiled prefixes: a main file that opens with system includes need not parse
 * them each time.
 *
 * A *prefix* is the longest run of lines `#include <...>`, comments and blank lines at the start of
 * the main file. It is made from the list of its headers and the compile's flags alone, never from
 * anybody's text: the compile of it is a request like any other (mw_preamble_request), for a worker
 * that is used once. What comes out is kept here, in sealed memory files which workers map.
 *
 * A prefix changes no byte of the result, so nothing of this is in the content key. Where that is
 * not certain there is none: with debug information (which differs), with kinds of output that show
 * headers (preprocessed, AST), with extras but the line map, where flags add headers or search
 * directories or define more than plain words, and where a file of the request has the name of
 * anything that the prefix has read or has looked for (it might stand before that).
 *
 * Ownership:  mw_preambles_new allocates, free releases. A use that was taken is held until drop.
 * Threads:    any thread; find reads the main file's first bytes and hashes, put maps a file.
 * Bounds:     bytes_max of prefixes (least recently used leave when nobody holds them), one of at
 *             most a quarter of that; MW_PREAMBLE_SIGHTINGS_MAX prefixes that are not kept are
 *             remembered; MW_PREAMBLE_PLANS_MAX plans out at once; MW_PREAMBLE_HEADERS_MAX headers
 *             in a prefix, in the first 64 KiB of a main file. */
#ifndef MILLWRIGHT_PREAMBLE_H
#define MILLWRIGHT_PREAMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <millwright/emit.h>
#include <millwright/key.h>
#include <millwright/options.h>
#include <millwright/request.h>
#include <millwright/toolchain.h>

#define MW_PREAMBLE_BYTES_MAX_DEFAULT (UINT64_C(256) << 20)
#define MW_PREAMBLE_HEADERS_MAX       64u
#define MW_PREAMBLE_SIGHTINGS_MAX     1024u
#define MW_PREAMBLE_PLANS_MAX         4u
#define MW_PREAMBLE_MAIN              "millwright-preamble"
#define MW_PREAMBLE_HEAD_START_MAIN   "millwright-prefix" /* and the main file's ending */

struct mw_preambles;

/* A prefix to be made. Owns what it points to. */
struct mw_preamble_plan {
    struct mw_key key; /* toolchain and its stamp, flags, headers */
    char *text;        /* "#include <stdio.h>\n...": a line for each #include of the prefix */
    const char **args;
    size_t arg_count;
    struct mw_source_file file;
    struct mw_compile_request request; /* what makes it: emit is MW_EMIT_PREAMBLE */
    struct mw_options *options;

    /* Of a head start (isolate.h), which is prepared, not made and put; else NULL and zeros. */
    char *main, *directory;
    struct mw_preamble_use use;
};

struct mw_preambles_stats {
    uint64_t kept, bytes, bytes_max;       /* now */
    uint64_t used, built, failed, evicted; /* ever */
};

/* bytes_max 0: the default. Returns 0 or -ENOMEM. */
int mw_preambles_new(struct mw_preambles **out, uint64_t bytes_max);
void mw_preambles_free(struct mw_preambles *preambles); /* nobody holds a use */

/* Look for the prefix of a checked request, as of the moment when the toolchain had this stamp.
 * Returns 1 with `use` held; 0: there is none, or none that serves; then *plan is set when this
 * caller is to make it (second sighting, nobody else is at it), and mw_preambles_put is due.
 * -ENOMEM. Runs on: any thread. Blocks on nothing. */
int mw_preambles_find(struct mw_preambles *preambles, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request,
                      struct mw_preamble_use *use, struct mw_preamble_plan **plan);
void mw_preambles_drop(struct mw_preambles *preambles, const struct mw_preamble_use *use);

/* Plan a head start for requests as this one, which holds a use. Returns 0, -ENOMEM or -EINVAL. To
 * be freed. Runs on: any thread. Does not block. */
int mw_preamble_plan_head_start(struct mw_preamble_plan **plan, const struct mw_options *options,
                                const struct mw_compile_request *request);
void mw_preamble_plan_free(struct mw_preamble_plan *plan); /* one that is not put */

/* The most that a plan's artifact may have. */
uint64_t mw_preambles_one_bytes_max(const struct mw_preambles *preambles);

/* What came of a plan (its artifact and its inputs; NULL: nothing, do not try again soon). The
 * plan is freed. Nothing is kept of a compile that said anything at all, or used the clock.
 * Returns 0, -EFBIG, -ENOMEM (also: all that is kept is held), -ESTALE (the headers have changed
 * meanwhile), -EBADMSG (the inputs do not fit the plan), -EINVAL (a compile that is not clean), and
 * what mw_toolchain_stamp returns. May block as that does. */
int mw_preambles_put(struct mw_preambles *preambles, struct mw_toolchain *toolchain,
                     struct mw_preamble_plan *plan, const struct mw_compile_result *result);

void mw_preambles_snapshot(struct mw_preambles *preambles, struct mw_preambles_stats *stats);

#endif

/* sources.h - debug sources: what a debugger will want to show of a compile with debug information.
 *
 * Each file of the request that such a compile has read is kept with its artifact, by content. Line
 * tables of DWARF 5 hold the MD5 of each source, so a debugger that has the object can ask for what
 * it was made from; SHA-256 is the name that nobody can forge.
 *
 * Threads: plain functions for the IO pools. */
#ifndef MW_SERVICE_SOURCES_H
#define MW_SERVICE_SOURCES_H

#include <millwright/emit.h>
#include <millwright/store.h>

struct mw_debug_sources {
    struct mw_store_source *list; /* no two alike; the data is the request's */
    size_t count;
    char *
        json; /* [{"name", "sha256", "md5", "url"}]: each file, in the order of names; NULL: none */
};

/* Those of a compile that looked at `inputs`; none where it made no debug information, or where the
 * inputs cannot be. Returns 0 or -ENOMEM. */
int mw_debug_sources_collect(struct mw_debug_sources *sources, const struct mw_options *options,
                             const struct mw_compile_request *request,
                             const struct mw_text *inputs);
void mw_debug_sources_fini(struct mw_debug_sources *sources);

#endif

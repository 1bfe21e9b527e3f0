/* store.h - the artifact store: content-addressed, compressed, bounded, in one SQLite file.
 *
 * With an entry go its manifest (manifest.h), by which it is found without its key, and the sources
 * that a debugger will ask for. Manifests are found by their base, sources by their hashes; a
 * source is kept once, for as long as one of its entries is. Neither outlives its entries, and an
 * entry whose sources are gone is damaged.
 *
 * An entry is written in one transaction, so after a kill -9 it is there whole or not at all, and
 * an entry whose put returned is there. (After a power cut the newest entries may be missing.)
 * The least recently used entries leave when max_bytes is passed. A put is noted at once; a hit is
 * kept in memory until the next put, or until MW_STORE_TOUCHES_MAX entries were hit: so eviction
 * knows every hit of its own process, and those of others up to that number late.
 *
 * Ownership:  mw_store_open allocates, mw_store_close releases; an entry filled by mw_store_get
 *             is released with mw_store_entry_fini.
 * Threads:    any thread, many at once; every call blocks on the disk, so call from an IO pool.
 *             Several processes may share a directory.
 * Bounds:     max_bytes of compressed content; each entry, manifest and source is counted with
 *             MW_STORE_ENTRY_BYTES more for its row (the file keeps its largest size and reuses the
 *             room); MW_STORE_CONNECTIONS_MAX connections, for which callers wait their turn; an
 *             entry that with all that comes with it is more than a quarter of max_bytes is refused
 *             with -EFBIG, and so is one of which a part is more than MW_STORE_RAW_BYTES_MAX before
 *             compression; the MW_STORE_MANIFESTS_OF_BASE newest manifests of a base are kept.
 *             Another process may hold the file for MW_STORE_BUSY_MS_MAX, then a call returns
 *             -EBUSY. */
#ifndef MILLWRIGHT_STORE_H
#define MILLWRIGHT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <millwright/digest.h>
#include <millwright/emit.h>
#include <millwright/key.h>

#define MW_STORE_MAX_BYTES_DEFAULT (UINT64_C(5) << 30)
#define MW_STORE_CONNECTIONS_MAX   8u
#define MW_STORE_TOUCHES_MAX       256u
#define MW_STORE_ENTRY_BYTES       512u
#define MW_STORE_RAW_BYTES_MAX     (UINT64_C(768) << 20) /* below what one SQLite row holds */
#define MW_STORE_BUSY_MS_MAX       10000u
#define MW_STORE_MANIFESTS_OF_BASE 8u

struct mw_store;

/* Zero means the default of each; so does a NULL pointer to it. */
struct mw_store_options {
    uint64_t max_bytes;
};

struct mw_store_entry {
    enum mw_emit_kind kind;
    char *meta; /* what the caller keeps beside the bytes (the service: diagnostics, JSON) */
    size_t meta_bytes;
    char *artifact; /* NULL and 0 when the compile had none */
    size_t artifact_bytes;
};

/* A source by its hashes, which are the caller's word. */
struct mw_store_source {
    const char *data;
    size_t bytes;
    char sha256[MW_SHA256_TEXT_BYTES];
    char md5[MW_MD5_TEXT_BYTES];
};

/* What goes with an entry; zeros: nothing. */
struct mw_store_more {
    const struct mw_key *base;
    struct mw_text manifest;
    const struct mw_store_source *sources; /* no two alike */
    size_t source_count;
};

/* Manifests of one base, the newest first. */
struct mw_store_manifests {
    size_t count;
    struct mw_text texts[MW_STORE_MANIFESTS_OF_BASE];
};

struct mw_store_stats {
    uint64_t entries;
    uint64_t bytes; /* all that is counted to max_bytes */
    uint64_t max_bytes;
    uint64_t hits, misses, puts, evictions, errors; /* of entries, since this process opened it */
};

/* Open the store in `directory` (made with mode 0700 when missing, parents too): the file
 * "store.db" there. One of an earlier version is brought to this one. Not to be carried across a
 * fork.
 * Returns 0, -EACCES, -ENOTDIR or what else making the directory gave, -ENOSPC, -ENOMEM, -EBUSY,
 * -EIO, or -EBADMSG (the file is no store of this version; it is left alone: move it away). */
int mw_store_open(struct mw_store **out, const char *directory,
                  const struct mw_store_options *options);
void mw_store_close(struct mw_store *store);

/* Fetch the entry of `key`; its texts have a NUL behind them that does not count.
 * Returns 0, -ENOENT, -ENOMEM, -EBUSY, or -EIO (the disk, or the entry is damaged: it is then
 * removed, so that the next compile replaces it). */
int mw_store_get(struct mw_store *store, const struct mw_key *key, struct mw_store_entry *entry);

/* Keep `entry` under `key`; when there is one already it is left as it is.
 * Returns 0, -EFBIG, -ENOSPC, -ENOMEM, -EBUSY or -EIO. */
int mw_store_put(struct mw_store *store, const struct mw_key *key,
                 const struct mw_store_entry *entry);

/* The same, with what goes with the entry; of one that is there already that is left as it is, too.
 */
int mw_store_keep(struct mw_store *store, const struct mw_key *key,
                  const struct mw_store_entry *entry, const struct mw_store_more *more);

void mw_store_entry_fini(struct mw_store_entry *entry);

/* The manifests of `base`; a damaged one is removed and left out. Release them whatever was
 * returned: 0 (also when there are none), -ENOMEM, -EBUSY or -EIO. */
int mw_store_manifests(struct mw_store *store, const struct mw_key *base,
                       struct mw_store_manifests *manifests);
void mw_store_manifests_fini(struct mw_store_manifests *manifests);

/* The source whose SHA-256 or MD5 is `hash` (by its length; of several with one MD5 the oldest).
 * *data is malloc'ed, with a NUL behind it. Returns as mw_store_get; with a damaged source its
 * entries are removed. */
int mw_store_source_get(struct mw_store *store, const char *hash, char **data, size_t *bytes,
                        char sha256[MW_SHA256_TEXT_BYTES]);

/* Returns 0, -ENOMEM, -EBUSY or -EIO. */
int mw_store_stats(struct mw_store *store, struct mw_store_stats *stats);

#endif

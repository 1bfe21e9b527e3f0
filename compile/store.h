/* store.h - the artifact store: content-addressed, compressed, bounded, in one SQLite file.
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
 * Bounds:     max_bytes of compressed content, each entry counted with MW_STORE_ENTRY_BYTES more
 *             for its row (the file keeps its largest size and reuses the room);
 *             MW_STORE_CONNECTIONS_MAX connections, for which callers wait their turn; an entry of
 *             more than a quarter of max_bytes is refused with -EFBIG, and so is one of more than
 *             MW_STORE_RAW_BYTES_MAX before compression. Another process may hold the file for
 *             MW_STORE_BUSY_MS_MAX, then a call returns -EBUSY. */
#ifndef MILLWRIGHT_STORE_H
#define MILLWRIGHT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <millwright/key.h>

#define MW_STORE_MAX_BYTES_DEFAULT (UINT64_C(5) << 30)
#define MW_STORE_CONNECTIONS_MAX   8u
#define MW_STORE_TOUCHES_MAX       256u
#define MW_STORE_ENTRY_BYTES       512u
#define MW_STORE_RAW_BYTES_MAX     (UINT64_C(768) << 20) /* below what one SQLite row holds */
#define MW_STORE_BUSY_MS_MAX       10000u

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

struct mw_store_stats {
    uint64_t entries;
    uint64_t bytes; /* compressed, with MW_STORE_ENTRY_BYTES for each */
    uint64_t max_bytes;
    uint64_t hits, misses, puts, evictions, errors; /* since this process opened it */
};

/* Open the store in `directory` (made with mode 0700 when missing, parents too): the file
 * "store.db" there. Not to be carried across a fork.
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

void mw_store_entry_fini(struct mw_store_entry *entry);

/* Returns 0, -ENOMEM, -EBUSY or -EIO. */
int mw_store_stats(struct mw_store *store, struct mw_store_stats *stats);

#endif

/* store.h - the artifact store: content-addressed, compressed, bounded, in one SQLite file.
 *
 * An entry is written in one transaction, so after a kill -9 it is there whole or not at all.
 * The least recently used entries leave when max_bytes is passed.
 *
 * Ownership:  mw_store_open allocates, mw_store_close releases; an entry filled by mw_store_get
 *             is released with mw_store_entry_fini.
 * Threads:    any thread, many at once; every call blocks on the disk, so call from an IO pool.
 *             Several processes may share a directory.
 * Bounds:     max_bytes of compressed content; MW_STORE_CONNECTIONS_MAX connections; an entry of
 *             more than a quarter of max_bytes is refused with -EFBIG. */
#ifndef MILLWRIGHT_STORE_H
#define MILLWRIGHT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <millwright/key.h>

#define MW_STORE_MAX_BYTES_DEFAULT (UINT64_C(5) << 30)
#define MW_STORE_CONNECTIONS_MAX   8u

struct mw_store;

/* Zero means the default of each. */
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
    uint64_t bytes; /* compressed */
    uint64_t max_bytes;
    uint64_t hits, misses, puts, evictions, errors; /* since this process opened it */
};

/* Open the store in `directory` (made with mode 0700 when missing, parents too).
 * Returns 0, -EACCES, -ENOSPC, -ENOMEM, -EIO, or -EBADMSG (the file is no store of this version;
 * it is left alone: move it away). */
int mw_store_open(struct mw_store **out, const char *directory,
                  const struct mw_store_options *options);
void mw_store_close(struct mw_store *store);

/* Fetch the entry of `key`. Returns 0, -ENOENT, -ENOMEM, or -EIO (the disk, or the entry is
 * damaged: it is then removed, so that the next compile replaces it). */
int mw_store_get(struct mw_store *store, const struct mw_key *key, struct mw_store_entry *entry);

/* Keep `entry` under `key`; when there is one already it is left as it is.
 * Returns 0, -EFBIG, -ENOSPC, -ENOMEM or -EIO. */
int mw_store_put(struct mw_store *store, const struct mw_key *key,
                 const struct mw_store_entry *entry);

void mw_store_entry_fini(struct mw_store_entry *entry);

/* Returns 0 or -EIO. */
int mw_store_stats(struct mw_store *store, struct mw_store_stats *stats);

#endif

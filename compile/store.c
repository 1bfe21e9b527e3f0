/* Theory of the store.
 * 1. `entry` is small and is what the LRU order rewrites; `content` holds the bytes and is written
 *    once. An entry without its content, or the reverse, cannot be seen: both go in one
 *    transaction, and the content leaves by a trigger.
 * 2. `total` is kept by triggers, in the transactions that change it: it cannot drift.
 * 3. `total.clock` only rises. It numbers the entries and orders their uses; an id is never given
 *    twice, so a late touch cannot hit a stranger.
 * 4. The checksum covers the key, the sizes and the bytes as stored: nothing damaged reaches the
 *    decompressor, and nothing is answered for another key. A source's hash does the same for it.
 * 5. What goes with an entry comes in its transaction, and leaves by triggers: its manifest has its
 *    id, and a source goes when the last entry that is linked to it does. An entry counts its
 *    sources, so one that has lost some is seen. */
#include <millwright/store.h>

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <zstd.h>

#include <millwright/clock.h>
#include <millwright/mutex.h>

#define FILE_NAME      "store.db"
#define APPLICATION_ID 0x4d575354 /* "MWST" */
#define COMPRESS_LEVEL 3
#define SMALL_BYTES    2048u /* to compress less takes longer than to write it */
#define CHECKSUM_BYTES 32u
#define ENTRY_PART_MAX 4u /* an entry takes at most one part in so many of max_bytes */
#define DIRECTORY_MODE 0700

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    FIND,
    CLOCK,
    SET_CLOCK,
    INSERT_ENTRY,
    INSERT_CONTENT,
    INSERT_MANIFEST,
    TRIM_MANIFESTS,
    FIND_MANIFESTS,
    REMOVE_MANIFEST,
    EXISTS_SOURCE,
    LINK_SOURCE,
    INSERT_SOURCE,
    FIND_SOURCE,
    REMOVE_USERS,
    TOUCH,
    EVICT,
    REMOVE,
    TOTAL,
    STATEMENTS
};

static const char *const sql[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [FIND] = ("SELECT id, kind, meta_bytes, artifact_bytes, checksum, meta, artifact,"
              " sources = (SELECT count(*) FROM entry_source JOIN source ON source.id = source_id"
              " WHERE entry_id = entry.id)"
              " FROM entry LEFT JOIN content USING (id) WHERE key = ?1"),
    [CLOCK] = "SELECT clock + 1 FROM total",
    [SET_CLOCK] = "UPDATE total SET clock = ?1",
    [INSERT_ENTRY] = ("INSERT OR IGNORE INTO entry"
                      " (id, used, key, kind, meta_bytes, artifact_bytes, stored_bytes, checksum,"
                      " sources) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
    [INSERT_CONTENT] = "INSERT INTO content (id, meta, artifact) VALUES (?1, ?2, ?3)",
    [INSERT_MANIFEST] = ("INSERT INTO manifest (id, base, text_bytes, stored_bytes, checksum, text)"
                         " VALUES (?1, ?2, ?3, ?4, ?5, ?6)"),
    [TRIM_MANIFESTS] = ("DELETE FROM manifest WHERE base = ?1 AND id <= (SELECT id FROM manifest"
                        " WHERE base = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"),
    [FIND_MANIFESTS] = ("SELECT id, text_bytes, checksum, text FROM manifest WHERE base = ?1"
                        " ORDER BY id DESC LIMIT ?2"),
    [REMOVE_MANIFEST] = "DELETE FROM manifest WHERE id = ?1",
    [EXISTS_SOURCE] = "SELECT 1 FROM source WHERE sha256 = ?1",
    [LINK_SOURCE] = ("INSERT INTO entry_source (entry_id, source_id)"
                     " SELECT ?1, id FROM source WHERE sha256 = ?2"),
    [INSERT_SOURCE] = ("INSERT INTO source (id, sha256, md5, text_bytes, stored_bytes, text)"
                       " VALUES (?1, ?2, ?3, ?4, ?5, ?6)"),
    [FIND_SOURCE] = ("SELECT id, sha256, text_bytes, text FROM source"
                     " WHERE sha256 = ?1 OR md5 = ?1 ORDER BY id LIMIT 1"),
    [REMOVE_USERS] = ("DELETE FROM entry WHERE id IN"
                      " (SELECT entry_id FROM entry_source WHERE source_id = ?1)"),
    [TOUCH] = "UPDATE entry SET used = ?2 WHERE id = ?1",
    [EVICT] = "DELETE FROM entry WHERE id = (SELECT id FROM entry ORDER BY used LIMIT 1)",
    [REMOVE] = "DELETE FROM entry WHERE id = ?1",
    [TOTAL] = "SELECT bytes, entries FROM total",
};

/* What makes a store of version i one of version i + 1: each is run once, in a transaction. */
static const char *const schema[] = {
    "CREATE TABLE entry (id INTEGER PRIMARY KEY, used INTEGER NOT NULL, key TEXT NOT NULL UNIQUE,"
    " kind INTEGER NOT NULL, meta_bytes INTEGER NOT NULL, artifact_bytes INTEGER NOT NULL,"
    " stored_bytes INTEGER NOT NULL, checksum BLOB NOT NULL);"
    "CREATE INDEX entry_by_use ON entry (used);"
    "CREATE TABLE content (id INTEGER PRIMARY KEY, meta BLOB NOT NULL, artifact BLOB);"
    "CREATE TABLE total (bytes INTEGER NOT NULL, entries INTEGER NOT NULL, clock INTEGER NOT NULL);"
    "INSERT INTO total VALUES (0, 0, 0);"
    "CREATE TRIGGER entry_comes AFTER INSERT ON entry BEGIN"
    " UPDATE total SET bytes = bytes + new.stored_bytes, entries = entries + 1; END;"
    "CREATE TRIGGER entry_leaves AFTER DELETE ON entry BEGIN"
    " DELETE FROM content WHERE id = old.id;"
    " UPDATE total SET bytes = bytes - old.stored_bytes, entries = entries - 1; END;",

    "ALTER TABLE entry ADD COLUMN sources INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, base TEXT NOT NULL,"
    " text_bytes INTEGER NOT NULL, stored_bytes INTEGER NOT NULL, checksum BLOB NOT NULL,"
    " text BLOB NOT NULL);"
    "CREATE INDEX manifest_by_base ON manifest (base, id);"
    "CREATE TABLE source (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, md5 TEXT NOT NULL,"
    " text_bytes INTEGER NOT NULL, stored_bytes INTEGER NOT NULL, text BLOB NOT NULL);"
    "CREATE INDEX source_by_md5 ON source (md5);"
    "CREATE TABLE entry_source (entry_id INTEGER NOT NULL, source_id INTEGER NOT NULL,"
    " PRIMARY KEY (entry_id, source_id)) WITHOUT ROWID;"
    "CREATE INDEX entry_source_by_source ON entry_source (source_id);"
    "CREATE TRIGGER manifest_comes AFTER INSERT ON manifest BEGIN"
    " UPDATE total SET bytes = bytes + new.stored_bytes; END;"
    "CREATE TRIGGER manifest_leaves AFTER DELETE ON manifest BEGIN"
    " UPDATE total SET bytes = bytes - old.stored_bytes; END;"
    "CREATE TRIGGER source_comes AFTER INSERT ON source BEGIN"
    " UPDATE total SET bytes = bytes + new.stored_bytes; END;"
    "CREATE TRIGGER source_leaves AFTER DELETE ON source BEGIN"
    " UPDATE total SET bytes = bytes - old.stored_bytes; END;"
    "CREATE TRIGGER entry_takes_along AFTER DELETE ON entry BEGIN"
    " DELETE FROM manifest WHERE id = old.id;"
    " DELETE FROM entry_source WHERE entry_id = old.id; END;"
    "CREATE TRIGGER link_leaves AFTER DELETE ON entry_source BEGIN"
    " DELETE FROM source WHERE id = old.source_id AND NOT EXISTS"
    " (SELECT 1 FROM entry_source WHERE source_id = old.source_id); END;",
};
#define SCHEMA_VERSION ((int)(sizeof schema / sizeof schema[0]))

struct connection {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
};

struct mw_store {
    /* Immutable once open. */
    char *path;
    uint64_t max_bytes;

    /* Held through each write transaction of this process: a mutex hands over at once, where
     * SQLite's own lock is polled. Taken before `lock`. */
    struct mw_mutex write_lock;

    struct mw_mutex lock; /* guards the rest, but for the counters; never held across SQL */
    struct mw_cond returned;
    struct connection *idle[MW_STORE_CONNECTIONS_MAX];
    unsigned idle_count, open_count;
    int64_t touches[MW_STORE_TOUCHES_MAX]; /* ids that were hit, each once, in order of use */
    unsigned touch_count;

    /* Counted relaxed: nothing is read by them but the numbers. */
    _Atomic uint64_t hits, misses, puts, evictions, errors;
};

/* A part of an entry as it is stored: compressed exactly when bytes < raw_bytes. */
struct packed {
    const void *data; /* NULL: there is none */
    size_t bytes, raw_bytes;
    void *owned; /* to be freed */
};

/* An entry and all that goes with it, as it is written. */
struct parcel {
    const struct mw_key *key;
    enum mw_emit_kind kind;
    struct packed meta, artifact;
    const struct mw_store_more *more;
    struct packed manifest;
    struct packed *sources; /* of more->sources; no data yet: it was in the store already */
};

static int directories_make(const char *path);
static int directory_make(const char *path);
static int store_init(struct mw_store *store, const char *directory,
                      const struct mw_store_options *options);
static int connection_open(struct connection **out, const char *path);
static void connection_close(struct connection *connection);
static int file_identify(sqlite3 *db);
static int file_make(sqlite3 *db);
static int file_version(sqlite3 *db, const char *begin, int *out);
static int journal_switch(sqlite3 *db);
static int number_query(sqlite3 *db, const char *text, int64_t *number);
static int connection_take(struct mw_store *store, struct connection **out);
static void connection_return(struct mw_store *store, struct connection *connection);
static int entry_read(struct connection *connection, const struct mw_key *key,
                      struct mw_store_entry *entry, int64_t *id);
static int entry_unpack(sqlite3_stmt *row, const struct mw_key *key, struct mw_store_entry *entry);
static int remove_one(struct mw_store *store, struct connection *connection, enum statement which,
                      int64_t id);
static int manifest_unpack(sqlite3_stmt *row, const struct mw_key *base, struct mw_text *text);
static int source_unpack(sqlite3_stmt *row, const char *hash, char **data, size_t *bytes,
                         char sha256[MW_SHA256_TEXT_BYTES]);
static int column_packed(sqlite3_stmt *row, int column, int64_t raw_bytes, struct packed *packed);
static bool column_equals(sqlite3_stmt *row, int column, const uint8_t sum[CHECKSUM_BYTES]);
static bool exists(struct connection *connection, enum statement which, const char *key);
static int parcel_pack(struct parcel *parcel, struct connection *connection,
                       const struct mw_store_entry *entry);
static uint64_t parcel_bytes(const struct parcel *parcel);
static void parcel_fini(struct parcel *parcel);
static int source_pack(struct packed *packed, const struct mw_store_source *source);
static int parcel_write(struct mw_store *store, struct connection *connection,
                        struct parcel *parcel);
static int parcel_insert(struct connection *connection, struct parcel *parcel);
static int entry_insert(struct connection *connection, const struct parcel *parcel, int64_t id);
static int content_insert(struct connection *connection, const struct parcel *parcel, int64_t id);
static int manifest_insert(struct connection *connection, const struct parcel *parcel, int64_t id);
static int source_link(struct connection *connection, const struct mw_store_source *source,
                       struct packed *packed, int64_t entry_id);
static int source_insert(struct connection *connection, const struct mw_store_source *source,
                         const struct packed *packed);
static int bind_packed(sqlite3_stmt *statement, int parameter, const struct packed *packed);
static int trim(struct mw_store *store, struct connection *connection);
static int evict(struct mw_store *store, struct connection *connection, uint64_t *evicted)
    MW_REQUIRES(store->write_lock);
static void touch(struct mw_store *store, struct connection *connection, int64_t id);
static int touches_write(struct mw_store *store, struct connection *connection)
    MW_REQUIRES(store->write_lock);
static int checksum(uint8_t sum[CHECKSUM_BYTES], const struct mw_key *key, enum mw_emit_kind kind,
                    const struct packed *meta, const struct packed *artifact);
static int pack(struct packed *packed, const char *data, size_t bytes);
static int unpack(const struct packed *packed, char **data, size_t *bytes);
static int run(struct connection *connection, enum statement which, int64_t *first,
               int64_t *second);
static int tick(struct connection *connection, int64_t *now);
static int finish(struct connection *connection, int error);
static int count_error(struct mw_store *store, int error);
static int error_of(int result);

int mw_store_open(struct mw_store **out, const char *directory,
                  const struct mw_store_options *options)
{
    struct mw_store *store;
    struct connection *connection = NULL;
    int error = directories_make(directory);

    if (error < 0)
        return error;
    store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    error = store_init(store, directory, options);
    if (error < 0) {
        free(store->path);
        free(store);
        return error;
    }
    error = connection_take(store, &connection);
    if (error == 0) {
        error = trim(store, connection);
        connection_return(store, connection);
    }
    if (error < 0) {
        mw_store_close(store);
        return error;
    }
    *out = store;
    return 0;
}

void mw_store_close(struct mw_store *store)
{
    if (!store)
        return;
    assert(store->idle_count == store->open_count); /* nobody is inside */
    if (store->idle_count > 0) {
        struct connection *connection = store->idle[0];

        /* Best effort: what is lost is only the order of the last uses. */
        mw_mutex_lock(&store->write_lock);
        if (store->touch_count > 0 && run(connection, BEGIN, NULL, NULL) == 0)
            (void)finish(connection, touches_write(store, connection));
        mw_mutex_unlock(&store->write_lock);
    }
    for (unsigned i = 0; i < store->idle_count; i++)
        connection_close(store->idle[i]);
    mw_cond_fini(&store->returned);
    mw_mutex_fini(&store->lock);
    mw_mutex_fini(&store->write_lock);
    free(store->path);
    free(store);
}

int mw_store_get(struct mw_store *store, const struct mw_key *key, struct mw_store_entry *entry)
{
    struct connection *connection;
    int64_t id = 0;
    int error = connection_take(store, &connection);

    *entry = (struct mw_store_entry){0};
    if (error < 0)
        return count_error(store, error);
    error = entry_read(connection, key, entry, &id);
    if (error == 0)
        touch(store, connection, id);
    else if (error == -EBADMSG)
        (void)remove_one(store, connection, REMOVE, id);
    connection_return(store, connection);
    if (error == 0)
        atomic_fetch_add_explicit(&store->hits, 1, memory_order_relaxed);
    else if (error == -ENOENT)
        atomic_fetch_add_explicit(&store->misses, 1, memory_order_relaxed);
    else
        (void)count_error(store, error);
    return error == -EBADMSG ? -EIO : error;
}

int mw_store_put(struct mw_store *store, const struct mw_key *key,
                 const struct mw_store_entry *entry)
{
    return mw_store_keep(store, key, entry, &(const struct mw_store_more){0});
}

int mw_store_keep(struct mw_store *store, const struct mw_key *key,
                  const struct mw_store_entry *entry, const struct mw_store_more *more)
{
    struct parcel parcel = {.key = key, .kind = entry->kind, .more = more};
    struct connection *connection = NULL;
    int error;

    if (entry->meta_bytes > MW_STORE_RAW_BYTES_MAX ||
        entry->artifact_bytes > MW_STORE_RAW_BYTES_MAX)
        return -EFBIG;
    error = connection_take(store, &connection);
    if (error < 0)
        return count_error(store, error);
    error = parcel_pack(&parcel, connection, entry);
    if (error == 0 && parcel_bytes(&parcel) > store->max_bytes / ENTRY_PART_MAX)
        error = -EFBIG;
    if (error == 0)
        error = parcel_write(store, connection, &parcel);
    connection_return(store, connection);
    parcel_fini(&parcel);
    if (error == 0)
        atomic_fetch_add_explicit(&store->puts, 1, memory_order_relaxed);
    return error == -EFBIG ? error : count_error(store, error);
}

void mw_store_entry_fini(struct mw_store_entry *entry)
{
    if (!entry)
        return;
    free(entry->meta);
    free(entry->artifact);
    *entry = (struct mw_store_entry){0};
}

int mw_store_manifests(struct mw_store *store, const struct mw_key *base,
                       struct mw_store_manifests *manifests)
{
    int64_t damaged[MW_STORE_MANIFESTS_OF_BASE];
    struct connection *connection;
    size_t damaged_count = 0;
    sqlite3_stmt *row;
    int result, error = connection_take(store, &connection);

    *manifests = (struct mw_store_manifests){0};
    if (error < 0)
        return count_error(store, error);
    row = connection->statements[FIND_MANIFESTS];
    (void)sqlite3_bind_text(row, 1, base->text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(row, 2, MW_STORE_MANIFESTS_OF_BASE);
    while (error == 0 && (result = sqlite3_step(row)) == SQLITE_ROW) {
        error = manifest_unpack(row, base, &manifests->texts[manifests->count]);
        if (error == 0) {
            manifests->count++;
        } else if (error == -EBADMSG) {
            damaged[damaged_count++] = sqlite3_column_int64(row, 0);
            error = 0;
        }
    }
    if (error == 0)
        error = error_of(result);
    (void)sqlite3_reset(row);
    (void)sqlite3_clear_bindings(row);
    for (size_t i = 0; i < damaged_count; i++) {
        (void)count_error(store, -EIO);
        (void)remove_one(store, connection, REMOVE_MANIFEST, damaged[i]);
    }
    connection_return(store, connection);
    return count_error(store, error);
}

void mw_store_manifests_fini(struct mw_store_manifests *manifests)
{
    if (!manifests)
        return;
    for (size_t i = 0; i < manifests->count; i++)
        free(manifests->texts[i].data);
    *manifests = (struct mw_store_manifests){0};
}

int mw_store_source_get(struct mw_store *store, const char *hash, char **data, size_t *bytes,
                        char sha256[MW_SHA256_TEXT_BYTES])
{
    struct connection *connection;
    sqlite3_stmt *row;
    int64_t id = 0;
    int result, error = connection_take(store, &connection);

    *data = NULL;
    if (error < 0)
        return count_error(store, error);
    row = connection->statements[FIND_SOURCE];
    (void)sqlite3_bind_text(row, 1, hash, -1, SQLITE_STATIC);
    result = sqlite3_step(row);
    if (result == SQLITE_ROW) {
        id = sqlite3_column_int64(row, 0);
        error = source_unpack(row, hash, data, bytes, sha256);
    } else {
        error = result == SQLITE_DONE ? -ENOENT : error_of(result);
    }
    (void)sqlite3_reset(row);
    (void)sqlite3_clear_bindings(row);
    if (error == -EBADMSG) {
        (void)remove_one(store, connection, REMOVE_USERS, id);
        error = -EIO;
    }
    connection_return(store, connection);
    return error == -ENOENT ? error : count_error(store, error);
}

int mw_store_stats(struct mw_store *store, struct mw_store_stats *stats)
{
    struct connection *connection;
    int64_t bytes = 0, entries = 0;
    int error = connection_take(store, &connection);

    if (error == 0) {
        error = run(connection, TOTAL, &bytes, &entries);
        connection_return(store, connection);
    }
    *stats = (struct mw_store_stats){
        .entries = (uint64_t)entries,
        .bytes = (uint64_t)bytes,
        .max_bytes = store->max_bytes,
        .hits = atomic_load_explicit(&store->hits, memory_order_relaxed),
        .misses = atomic_load_explicit(&store->misses, memory_order_relaxed),
        .puts = atomic_load_explicit(&store->puts, memory_order_relaxed),
        .evictions = atomic_load_explicit(&store->evictions, memory_order_relaxed),
        .errors = atomic_load_explicit(&store->errors, memory_order_relaxed)};
    return error;
}

/* --- opening --- */

/* `path` and its parents, as far as they are missing. */
static int directories_make(const char *path)
{
    char *copy = strdup(path);
    int error = 0;

    if (!copy)
        return -ENOMEM;
    for (char *slash = strchr(copy + (copy[0] == '/'), '/'); error == 0 && slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        error = directory_make(copy);
        *slash = '/';
    }
    if (error == 0)
        error = directory_make(copy);
    free(copy);
    return error;
}

static int directory_make(const char *path)
{
    struct stat found;

    if (mkdir(path, DIRECTORY_MODE) == 0)
        return 0;
    /* Whatever mkdir says of what is there already (EEXIST, EROFS, EACCES), there it is. */
    if (stat(path, &found) == 0)
        return S_ISDIR(found.st_mode) ? 0 : -ENOTDIR;
    return -errno;
}

/* Everything but connections; undoes itself on failure, except for `path`. */
static int store_init(struct mw_store *store, const char *directory,
                      const struct mw_store_options *options)
{
    int error;

    store->max_bytes =
        options && options->max_bytes ? options->max_bytes : MW_STORE_MAX_BYTES_DEFAULT;
    if (asprintf(&store->path, "%s/" FILE_NAME, directory) < 0) {
        store->path = NULL;
        return -ENOMEM;
    }
    if ((error = mw_mutex_init(&store->write_lock)) < 0)
        return error;
    if ((error = mw_mutex_init(&store->lock)) < 0)
        goto fini_write_lock;
    if ((error = mw_cond_init(&store->returned)) < 0)
        goto fini_lock;
    return 0;
fini_lock:
    mw_mutex_fini(&store->lock);
fini_write_lock:
    mw_mutex_fini(&store->write_lock);
    return error;
}

static int connection_open(struct connection **out, const char *path)
{
    static const char pragmas[] = "PRAGMA synchronous = NORMAL;"
                                  "PRAGMA journal_size_limit = 67108864;"
                                  "PRAGMA trusted_schema = OFF";
    struct connection *connection = calloc(1, sizeof(*connection));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int error;

    if (!connection)
        return -ENOMEM;
    error = error_of(sqlite3_open_v2(path, &connection->db, flags, NULL));
    if (error == -EIO && connection->db && sqlite3_system_errno(connection->db) != 0)
        error = -sqlite3_system_errno(connection->db);
    if (error == 0 && sqlite3_db_readonly(connection->db, "main") == 1)
        error = -EACCES; /* SQLite would go on and fail at the first put */
    if (error == 0)
        error = error_of(sqlite3_busy_timeout(connection->db, MW_STORE_BUSY_MS_MAX));
    if (error == 0)
        error = file_identify(connection->db);
    if (error == 0)
        error = journal_switch(connection->db);
    if (error == 0)
        error = error_of(sqlite3_exec(connection->db, pragmas, NULL, NULL, NULL));
    for (unsigned i = 0; error == 0 && i < STATEMENTS; i++)
        error = error_of(sqlite3_prepare_v3(connection->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &connection->statements[i], NULL));
    if (error < 0) {
        connection_close(connection);
        return error;
    }
    *out = connection;
    return 0;
}

static void connection_close(struct connection *connection)
{
    for (unsigned i = 0; i < STATEMENTS; i++)
        (void)sqlite3_finalize(connection->statements[i]);
    (void)sqlite3_close(connection->db);
    free(connection);
}

/* Make sure that the file is a store, and make it one when it is new. Until that is known nothing
 * may be written: not even the checkpoint that closing a stranger's file would make. */
static int file_identify(sqlite3 *db)
{
    int version = 0, error;

    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    error = file_version(db, "BEGIN", &version);
    if (error == 0 && version < SCHEMA_VERSION)
        error = file_make(db);
    if (error == 0)
        (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, (int *)NULL);
    return error;
}

/* Make a new file, or a store of an earlier version, one of this version, unless another process
 * was faster. */
static int file_make(sqlite3 *db)
{
    char identify[96];
    int version = 0, error;

    (void)snprintf(identify, sizeof identify,
                   "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID,
                   SCHEMA_VERSION);
    error = error_of(sqlite3_exec(db, "PRAGMA page_size = 8192", NULL, NULL, NULL));
    if (error == 0)
        error = error_of(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    if (error == 0)
        error = file_version(db, NULL, &version);
    for (int i = version; error == 0 && i < SCHEMA_VERSION; i++)
        error = error_of(sqlite3_exec(db, schema[i], NULL, NULL, NULL));
    if (error == 0 && version < SCHEMA_VERSION)
        error = error_of(sqlite3_exec(db, identify, NULL, NULL, NULL));
    if (error == 0)
        error = error_of(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL));
    if (!sqlite3_get_autocommit(db))
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return error;
}

/* The version of the store in the file, 0 when there is nothing yet; -EBADMSG: something else, or a
 * later one. The three questions must be answered by one state of the file: in the transaction that
 * the caller is in, or in one of their own, started by `begin`. */
static int file_version(sqlite3 *db, const char *begin, int *out)
{
    int64_t application = 0, version = 0, objects = 0;
    int error = begin ? error_of(sqlite3_exec(db, begin, NULL, NULL, NULL)) : 0;

    if (error == 0)
        error = number_query(db, "PRAGMA application_id", &application);
    if (error == 0)
        error = number_query(db, "PRAGMA user_version", &version);
    if (error == 0)
        error = number_query(db, "SELECT count(*) FROM sqlite_schema", &objects);
    if (begin && !sqlite3_get_autocommit(db))
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    if (error < 0)
        return error;
    *out = (int)version;
    if (application == 0 && version == 0 && objects == 0)
        return 0;
    if (application != APPLICATION_ID || version < 1 || version > SCHEMA_VERSION)
        return -EBADMSG;
    return 0;
}

/* To write-ahead logging, where the file is not there yet. This is the one step for which SQLite
 * does not wait itself when another process is at the file. */
static int journal_switch(sqlite3 *db)
{
    static const struct timespec pause = {.tv_nsec = 10000000};
    uint64_t give_up_ns = mw_clock_ns() + MW_STORE_BUSY_MS_MAX * MW_NS_PER_MS;

    for (;;) {
        int error = error_of(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL));

        if (error != -EBUSY || mw_clock_ns() > give_up_ns)
            return error;
        (void)nanosleep(&pause, NULL);
    }
}

static int number_query(sqlite3 *db, const char *text, int64_t *number)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(db, text, -1, &statement, NULL);

    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        result = SQLITE_OK;
    }
    (void)sqlite3_finalize(statement);
    return error_of(result);
}

/* --- connections --- */

/* An idle connection, a new one while there are fewer than allowed, or the next that returns. */
static int connection_take(struct mw_store *store, struct connection **out)
{
    int error;

    mw_mutex_lock(&store->lock);
    while (store->idle_count == 0 && store->open_count == MW_STORE_CONNECTIONS_MAX)
        mw_cond_wait(&store->returned, &store->lock);
    if (store->idle_count > 0) {
        *out = store->idle[--store->idle_count];
        mw_mutex_unlock(&store->lock);
        return 0;
    }
    store->open_count++;
    mw_mutex_unlock(&store->lock);
    error = connection_open(out, store->path);
    if (error < 0) {
        mw_mutex_lock(&store->lock);
        store->open_count--;
        mw_cond_signal(&store->returned); /* whoever waits may try to open one */
        mw_mutex_unlock(&store->lock);
    }
    return error;
}

static void connection_return(struct mw_store *store, struct connection *connection)
{
    mw_mutex_lock(&store->lock);
    store->idle[store->idle_count++] = connection;
    mw_cond_signal(&store->returned);
    mw_mutex_unlock(&store->lock);
}

/* --- entries --- */

/* Returns 0, -ENOENT, -EBADMSG with the id of the damaged entry, or another error. */
static int entry_read(struct connection *connection, const struct mw_key *key,
                      struct mw_store_entry *entry, int64_t *id)
{
    sqlite3_stmt *row = connection->statements[FIND];
    int error, result;

    (void)sqlite3_bind_text(row, 1, key->text, -1, SQLITE_STATIC);
    result = sqlite3_step(row);
    if (result == SQLITE_ROW) {
        *id = sqlite3_column_int64(row, 0);
        error = entry_unpack(row, key, entry);
    } else {
        error = result == SQLITE_DONE ? -ENOENT : error_of(result);
    }
    (void)sqlite3_reset(row);
    (void)sqlite3_clear_bindings(row);
    if (error < 0)
        mw_store_entry_fini(entry);
    return error;
}

/* Check the found row and copy what it holds. */
static int entry_unpack(sqlite3_stmt *row, const struct mw_key *key, struct mw_store_entry *entry)
{
    struct packed parts[2];
    uint8_t sum[CHECKSUM_BYTES];
    int64_t kind = sqlite3_column_int64(row, 1);
    int error;

    for (int i = 0; i < 2; i++) {
        error = column_packed(row, 5 + i, sqlite3_column_int64(row, 2 + i), &parts[i]);
        if (error < 0)
            return error;
    }
    error = checksum(sum, key, (enum mw_emit_kind)kind, &parts[0], &parts[1]);
    if (error < 0)
        return error;
    if (!parts[0].data || !column_equals(row, 4, sum) || sqlite3_column_int64(row, 7) != 1)
        return -EBADMSG;
    entry->kind = (enum mw_emit_kind)kind;
    error = unpack(&parts[0], &entry->meta, &entry->meta_bytes);
    return error < 0 ? error : unpack(&parts[1], &entry->artifact, &entry->artifact_bytes);
}

static int manifest_unpack(sqlite3_stmt *row, const struct mw_key *base, struct mw_text *text)
{
    static const struct packed none;
    struct packed packed;
    uint8_t sum[CHECKSUM_BYTES];
    int error = column_packed(row, 3, sqlite3_column_int64(row, 1), &packed);

    if (error == 0)
        error = checksum(sum, base, MW_EMIT_NONE, &packed, &none);
    if (error < 0)
        return error;
    if (!packed.data || !column_equals(row, 2, sum))
        return -EBADMSG;
    return unpack(&packed, &text->data, &text->bytes);
}

/* The hash is the checksum, of what comes out of the unpacking. */
static int source_unpack(sqlite3_stmt *row, const char *hash, char **data, size_t *bytes,
                         char sha256[MW_SHA256_TEXT_BYTES])
{
    char md5[MW_MD5_TEXT_BYTES];
    bool by_md5 = strlen(hash) == sizeof md5 - 1;
    struct packed packed;
    int error = column_packed(row, 3, sqlite3_column_int64(row, 2), &packed);

    if (error == 0)
        error = packed.data ? unpack(&packed, data, bytes) : -EBADMSG;
    if (error == 0)
        error = mw_sha256_text(sha256, *data, *bytes);
    if (error == 0 && by_md5)
        error = mw_md5_text(md5, *data, *bytes);
    if (error == 0 && strcmp(by_md5 ? md5 : sha256, hash) != 0)
        error = -EBADMSG;
    if (error < 0) {
        free(*data);
        *data = NULL;
    }
    return error;
}

/* Borrow a part from a row; no data when there is none. */
static int column_packed(sqlite3_stmt *row, int column, int64_t raw_bytes, struct packed *packed)
{
    *packed = (struct packed){0};
    if (raw_bytes < 0 || (uint64_t)raw_bytes > MW_STORE_RAW_BYTES_MAX)
        return -EBADMSG;
    if (sqlite3_column_type(row, column) == SQLITE_NULL)
        return 0;
    packed->data = sqlite3_column_blob(row, column);
    packed->bytes = (size_t)sqlite3_column_bytes(row, column);
    packed->raw_bytes = (size_t)raw_bytes;
    if (!packed->data && packed->bytes > 0)
        return -ENOMEM;
    if (!packed->data)
        packed->data = ""; /* SQLite has no address for an empty blob */
    return 0;
}

static bool column_equals(sqlite3_stmt *row, int column, const uint8_t sum[CHECKSUM_BYTES])
{
    return sqlite3_column_bytes(row, column) == CHECKSUM_BYTES &&
           memcmp(sqlite3_column_blob(row, column), sum, CHECKSUM_BYTES) == 0;
}

/* Run one of the statements that remove by an id. */
static int remove_one(struct mw_store *store, struct connection *connection, enum statement which,
                      int64_t id)
{
    int error;

    mw_mutex_lock(&store->write_lock);
    (void)sqlite3_bind_int64(connection->statements[which], 1, id);
    error = run(connection, which, NULL, NULL);
    mw_mutex_unlock(&store->write_lock);
    return error;
}

/* Spares the work of compressing; the insert decides. */
static bool exists(struct connection *connection, enum statement which, const char *key)
{
    int64_t one = 0;

    (void)sqlite3_bind_text(connection->statements[which], 1, key, -1, SQLITE_STATIC);
    return run(connection, which, &one, NULL) == 0 && one == 1;
}

/* --- what is written --- */

/* A NULL meta is an empty one; a NULL artifact is none, and so is a NULL manifest. */
static int parcel_pack(struct parcel *parcel, struct connection *connection,
                       const struct mw_store_entry *entry)
{
    const struct mw_store_more *more = parcel->more;
    int error = pack(&parcel->meta, entry->meta ? entry->meta : "", entry->meta_bytes);

    if (error == 0)
        error = pack(&parcel->artifact, entry->artifact, entry->artifact_bytes);
    if (error == 0)
        error = pack(&parcel->manifest, more->manifest.data, more->manifest.bytes);
    if (error == 0 && more->source_count > 0) {
        parcel->sources = calloc(more->source_count, sizeof(*parcel->sources));
        error = parcel->sources ? 0 : -ENOMEM;
    }
    for (size_t i = 0; error == 0 && i < more->source_count; i++) {
        if (!exists(connection, EXISTS_SOURCE, more->sources[i].sha256))
            error = source_pack(&parcel->sources[i], &more->sources[i]);
    }
    return error;
}

static int source_pack(struct packed *packed, const struct mw_store_source *source)
{
    return pack(packed, source->bytes > 0 ? source->data : "", source->bytes);
}

/* As it will be counted. */
static uint64_t parcel_bytes(const struct parcel *parcel)
{
    uint64_t bytes = parcel->meta.bytes + parcel->artifact.bytes + MW_STORE_ENTRY_BYTES;

    if (parcel->manifest.data)
        bytes += parcel->manifest.bytes + MW_STORE_ENTRY_BYTES;
    for (size_t i = 0; i < parcel->more->source_count; i++) {
        if (parcel->sources[i].data)
            bytes += parcel->sources[i].bytes + MW_STORE_ENTRY_BYTES;
    }
    return bytes;
}

static void parcel_fini(struct parcel *parcel)
{
    free(parcel->meta.owned);
    free(parcel->artifact.owned);
    free(parcel->manifest.owned);
    for (size_t i = 0; parcel->sources && i < parcel->more->source_count; i++)
        free(parcel->sources[i].owned);
    free(parcel->sources);
}

static int parcel_write(struct mw_store *store, struct connection *connection,
                        struct parcel *parcel)
{
    uint64_t evicted = 0;
    int error;

    mw_mutex_lock(&store->write_lock);
    error = run(connection, BEGIN, NULL, NULL);
    if (error == 0) {
        error = touches_write(store, connection);
        if (error == 0)
            error = parcel_insert(connection, parcel);
        if (error == 0)
            error = evict(store, connection, &evicted);
        error = finish(connection, error);
    }
    mw_mutex_unlock(&store->write_lock);
    if (error == 0)
        atomic_fetch_add_explicit(&store->evictions, evicted, memory_order_relaxed);
    return error;
}

/* All of a parcel, or nothing when its entry is there. */
static int parcel_insert(struct connection *connection, struct parcel *parcel)
{
    int64_t id = 0;
    int error = tick(connection, &id);

    if (error == 0)
        error = entry_insert(connection, parcel, id);
    if (error < 0 || sqlite3_changes(connection->db) == 0) /* somebody else was faster */
        return error;
    error = content_insert(connection, parcel, id);
    if (error == 0 && parcel->manifest.data)
        error = manifest_insert(connection, parcel, id);
    for (size_t i = 0; error == 0 && i < parcel->more->source_count; i++)
        error = source_link(connection, &parcel->more->sources[i], &parcel->sources[i], id);
    return error;
}

static int entry_insert(struct connection *connection, const struct parcel *parcel, int64_t id)
{
    sqlite3_stmt *insert = connection->statements[INSERT_ENTRY];
    uint8_t sum[CHECKSUM_BYTES];
    int error = checksum(sum, parcel->key, parcel->kind, &parcel->meta, &parcel->artifact);

    if (error < 0)
        return error;
    (void)sqlite3_bind_int64(insert, 1, id);
    (void)sqlite3_bind_text(insert, 2, parcel->key->text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(insert, 3, (int64_t)parcel->kind);
    (void)sqlite3_bind_int64(insert, 4, (int64_t)parcel->meta.raw_bytes);
    (void)sqlite3_bind_int64(insert, 5, (int64_t)parcel->artifact.raw_bytes);
    (void)sqlite3_bind_int64(
        insert, 6, (int64_t)(parcel->meta.bytes + parcel->artifact.bytes + MW_STORE_ENTRY_BYTES));
    (void)sqlite3_bind_blob(insert, 7, sum, sizeof sum, SQLITE_STATIC);
    (void)sqlite3_bind_int64(insert, 8, (int64_t)parcel->more->source_count);
    return run(connection, INSERT_ENTRY, NULL, NULL);
}

static int content_insert(struct connection *connection, const struct parcel *parcel, int64_t id)
{
    sqlite3_stmt *insert = connection->statements[INSERT_CONTENT];
    int error;

    (void)sqlite3_bind_int64(insert, 1, id);
    error = bind_packed(insert, 2, &parcel->meta);
    if (error == 0)
        error = bind_packed(insert, 3, &parcel->artifact);
    return error < 0 ? error : run(connection, INSERT_CONTENT, NULL, NULL);
}

/* The manifest, which may drive out an older one of the same base. */
static int manifest_insert(struct connection *connection, const struct parcel *parcel, int64_t id)
{
    static const struct packed none;
    sqlite3_stmt *insert = connection->statements[INSERT_MANIFEST];
    sqlite3_stmt *trim_base = connection->statements[TRIM_MANIFESTS];
    const struct packed *manifest = &parcel->manifest;
    const struct mw_key *base = parcel->more->base;
    uint8_t sum[CHECKSUM_BYTES];
    int error = checksum(sum, base, MW_EMIT_NONE, manifest, &none);

    if (error < 0)
        return error;
    (void)sqlite3_bind_int64(insert, 1, id);
    (void)sqlite3_bind_text(insert, 2, base->text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(insert, 3, (int64_t)manifest->raw_bytes);
    (void)sqlite3_bind_int64(insert, 4, (int64_t)(manifest->bytes + MW_STORE_ENTRY_BYTES));
    (void)sqlite3_bind_blob(insert, 5, sum, sizeof sum, SQLITE_STATIC);
    error = bind_packed(insert, 6, manifest);
    if (error == 0)
        error = run(connection, INSERT_MANIFEST, NULL, NULL);
    if (error < 0)
        return error;
    (void)sqlite3_bind_text(trim_base, 1, base->text, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(trim_base, 2, MW_STORE_MANIFESTS_OF_BASE);
    return run(connection, TRIM_MANIFESTS, NULL, NULL);
}

/* Link the entry to a source, which is inserted where it is not there (any more). */
static int source_link(struct connection *connection, const struct mw_store_source *source,
                       struct packed *packed, int64_t entry_id)
{
    sqlite3_stmt *link = connection->statements[LINK_SOURCE];
    int error = 0;

    if (!exists(connection, EXISTS_SOURCE, source->sha256)) {
        if (!packed->data)
            error = source_pack(packed, source);
        if (error == 0)
            error = source_insert(connection, source, packed);
    }
    if (error < 0)
        return error;
    (void)sqlite3_bind_int64(link, 1, entry_id);
    (void)sqlite3_bind_text(link, 2, source->sha256, -1, SQLITE_STATIC);
    return run(connection, LINK_SOURCE, NULL, NULL);
}

static int source_insert(struct connection *connection, const struct mw_store_source *source,
                         const struct packed *packed)
{
    sqlite3_stmt *insert = connection->statements[INSERT_SOURCE];
    int64_t id = 0;
    int error = tick(connection, &id);

    if (error < 0)
        return error;
    (void)sqlite3_bind_int64(insert, 1, id);
    (void)sqlite3_bind_text(insert, 2, source->sha256, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(insert, 3, source->md5, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(insert, 4, (int64_t)packed->raw_bytes);
    (void)sqlite3_bind_int64(insert, 5, (int64_t)(packed->bytes + MW_STORE_ENTRY_BYTES));
    error = bind_packed(insert, 6, packed);
    return error < 0 ? error : run(connection, INSERT_SOURCE, NULL, NULL);
}

static int bind_packed(sqlite3_stmt *statement, int parameter, const struct packed *packed)
{
    return error_of(
        sqlite3_bind_blob64(statement, parameter, packed->data, packed->bytes, SQLITE_STATIC));
}

/* --- the bound --- */

/* The bound may be smaller than when the file was last open. */
static int trim(struct mw_store *store, struct connection *connection)
{
    int64_t bytes = 0;
    uint64_t evicted = 0;
    int error = run(connection, TOTAL, &bytes, NULL);

    if (error < 0 || (uint64_t)bytes <= store->max_bytes)
        return error;
    mw_mutex_lock(&store->write_lock);
    error = run(connection, BEGIN, NULL, NULL);
    if (error == 0)
        error = finish(connection, evict(store, connection, &evicted));
    mw_mutex_unlock(&store->write_lock);
    if (error == 0)
        atomic_fetch_add_explicit(&store->evictions, evicted, memory_order_relaxed);
    return error;
}

/* Remove the least recently used until the bound holds. Inside a transaction. */
static int evict(struct mw_store *store, struct connection *connection, uint64_t *evicted)
{
    for (;;) {
        int64_t bytes = 0, entries = 0;
        int error = run(connection, TOTAL, &bytes, &entries);

        if (error < 0 || (uint64_t)bytes <= store->max_bytes || entries == 0)
            return error;
        error = run(connection, EVICT, NULL, NULL);
        if (error < 0)
            return error;
        ++*evicted;
    }
}

/* --- the order of use --- */

/* Note a hit. When that fills the list it is written here and now. */
static void touch(struct mw_store *store, struct connection *connection, int64_t id)
{
    unsigned at = 0;
    bool full;

    mw_mutex_lock(&store->lock);
    while (at < store->touch_count && store->touches[at] != id)
        at++;
    if (at == MW_STORE_TOUCHES_MAX) /* it could not be written the last time: */
        at = 0;                     /* the oldest is lost */
    if (at < store->touch_count) {
        store->touch_count--;
        memmove(&store->touches[at], &store->touches[at + 1],
                (store->touch_count - at) * sizeof(store->touches[0]));
    }
    store->touches[store->touch_count++] = id;
    full = store->touch_count == MW_STORE_TOUCHES_MAX;
    mw_mutex_unlock(&store->lock);
    if (!full)
        return;
    mw_mutex_lock(&store->write_lock);
    if (run(connection, BEGIN, NULL, NULL) == 0)
        (void)finish(connection, touches_write(store, connection));
    mw_mutex_unlock(&store->write_lock);
}

/* Write the noted hits, in their order. Inside a transaction. */
static int touches_write(struct mw_store *store, struct connection *connection)
{
    int64_t ids[MW_STORE_TOUCHES_MAX];
    unsigned count;
    int error = 0;

    mw_mutex_lock(&store->lock);
    count = store->touch_count;
    memcpy(ids, store->touches, count * sizeof(ids[0]));
    store->touch_count = 0;
    mw_mutex_unlock(&store->lock);
    for (unsigned i = 0; error == 0 && i < count; i++) {
        int64_t now = 0;

        error = tick(connection, &now);
        if (error == 0) {
            (void)sqlite3_bind_int64(connection->statements[TOUCH], 1, ids[i]);
            (void)sqlite3_bind_int64(connection->statements[TOUCH], 2, now);
            error = run(connection, TOUCH, NULL, NULL);
        }
    }
    return error;
}

/* --- bytes --- */

static int checksum(uint8_t sum[CHECKSUM_BYTES], const struct mw_key *key, enum mw_emit_kind kind,
                    const struct packed *meta, const struct packed *artifact)
{
    uint64_t sizes[] = {(uint64_t)kind,         meta->bytes,     meta->raw_bytes,
                        artifact->data != NULL, artifact->bytes, artifact->raw_bytes};
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool done = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(hash, key->text, strlen(key->text) + 1) == 1 &&
                EVP_DigestUpdate(hash, sizes, sizeof sizes) == 1 &&
                EVP_DigestUpdate(hash, meta->data, meta->bytes) == 1 &&
                EVP_DigestUpdate(hash, artifact->data, artifact->bytes) == 1 &&
                EVP_DigestFinal_ex(hash, sum, NULL) == 1;

    EVP_MD_CTX_free(hash);
    return done ? 0 : -ENOMEM;
}

/* Compress, unless it is small or would not shrink. */
static int pack(struct packed *packed, const char *data, size_t bytes)
{
    size_t room = ZSTD_compressBound(bytes), used;

    *packed = (struct packed){.data = data, .bytes = bytes, .raw_bytes = bytes};
    if (bytes < SMALL_BYTES)
        return 0;
    packed->owned = malloc(room);
    if (!packed->owned)
        return -ENOMEM;
    used = ZSTD_compress(packed->owned, room, data, bytes, COMPRESS_LEVEL);
    if (ZSTD_isError(used))
        return -ENOMEM;
    if (used < bytes) {
        packed->data = packed->owned;
        packed->bytes = used;
    }
    return 0;
}

static int unpack(const struct packed *packed, char **data, size_t *bytes)
{
    if (!packed->data)
        return 0;
    if (packed->bytes > packed->raw_bytes)
        return -EBADMSG;
    *data = malloc(packed->raw_bytes + 1);
    if (!*data)
        return -ENOMEM;
    if (packed->bytes == packed->raw_bytes)
        memcpy(*data, packed->data, packed->bytes);
    else if (ZSTD_decompress(*data, packed->raw_bytes, packed->data, packed->bytes) !=
             packed->raw_bytes)
        return -EBADMSG;
    (*data)[packed->raw_bytes] = '\0';
    *bytes = packed->raw_bytes;
    return 0;
}

/* --- SQL --- */

/* Run a statement whose parameters are bound; up to two numbers of its first row go out. */
static int run(struct connection *connection, enum statement which, int64_t *first, int64_t *second)
{
    sqlite3_stmt *statement = connection->statements[which];
    int result = sqlite3_step(statement);

    if (result == SQLITE_ROW) {
        if (first)
            *first = sqlite3_column_int64(statement, 0);
        if (second)
            *second = sqlite3_column_int64(statement, 1);
        result = SQLITE_OK;
    }
    (void)sqlite3_reset(statement);
    (void)sqlite3_clear_bindings(statement);
    return error_of(result);
}

/* The next time of the store's own clock. RETURNING would build a table for that each time. */
static int tick(struct connection *connection, int64_t *now)
{
    int error = run(connection, CLOCK, now, NULL);

    if (error < 0)
        return error;
    (void)sqlite3_bind_int64(connection->statements[SET_CLOCK], 1, *now);
    return run(connection, SET_CLOCK, NULL, NULL);
}

/* Commit when `error` is 0, roll back otherwise or when the commit fails. */
static int finish(struct connection *connection, int error)
{
    if (error == 0)
        error = run(connection, COMMIT, NULL, NULL);
    if (!sqlite3_get_autocommit(connection->db))
        (void)run(connection, ROLLBACK, NULL, NULL);
    return error;
}

static int count_error(struct mw_store *store, int error)
{
    if (error < 0)
        atomic_fetch_add_explicit(&store->errors, 1, memory_order_relaxed);
    return error;
}

static int error_of(int result)
{
    static const struct {
        int result, error;
    } errors[] = {
        {SQLITE_OK, 0},         {SQLITE_DONE, 0},           {SQLITE_NOMEM, -ENOMEM},
        {SQLITE_FULL, -ENOSPC}, {SQLITE_TOOBIG, -EFBIG},    {SQLITE_PERM, -EACCES},
        {SQLITE_AUTH, -EACCES}, {SQLITE_READONLY, -EACCES}, {SQLITE_NOTADB, -EBADMSG},
        {SQLITE_BUSY, -EBUSY},  {SQLITE_LOCKED, -EBUSY},
    };

    if (result == SQLITE_IOERR_NOMEM)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if ((result & 0xff) == errors[i].result)
            return errors[i].error;
    }
    return -EIO;
}

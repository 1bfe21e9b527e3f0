#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include <millwright/store.h>

#include "folder.h"

#define KIB             ((size_t)1 << 10)
#define MIB             ((size_t)1 << 20)
#define PROCESSES       3
#define OPEN_ROUNDS     20
#define FIRST_PROCESSES 4
#define FIRST_ROUNDS    100
#define SHARED_KEYS     60u
#define KILL_ROUNDS     30
#define THREADS         16 /* twice the connections */
#define THREAD_ROUNDS   60u
#define THREAD_KEYS     25u

/* --- contents that can be told from their number --- */

static struct mw_key key_of(unsigned n)
{
    struct mw_key key;

    (void)snprintf(key.text, sizeof key.text, "%064x", n);
    return key;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* `bytes` bytes that no compressor shrinks. */
static char *noise(unsigned n, size_t bytes)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (n + 1);
    char *data = malloc(bytes + 1);

    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(random_next(&state) >> 32);
    return data;
}

/* Bytes that shrink to about a fifth. */
static char *prose(unsigned n, size_t bytes)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (n + 1);
    char *data = malloc(bytes + 1);

    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = "mov eax,"[random_next(&state) >> 62];
    return data;
}

static int put(struct mw_store *store, unsigned n, size_t bytes)
{
    char *artifact = noise(n, bytes), meta[32];
    struct mw_key key = key_of(n);
    struct mw_store_entry entry = {.kind = (enum mw_emit_kind)(n % MW_EMIT_KINDS),
                                   .meta = meta,
                                   .artifact = artifact,
                                   .artifact_bytes = bytes};
    int error;

    entry.meta_bytes = (size_t)snprintf(meta, sizeof meta, "{\"n\":%u}", n);
    error = mw_store_put(store, &key, &entry);
    free(artifact);
    return error;
}

/* Get what put(n, bytes) kept; what comes must be that. Returns what mw_store_get did. */
static int get(struct mw_store *store, unsigned n, size_t bytes)
{
    struct mw_key key = key_of(n);
    struct mw_store_entry entry;
    int error = mw_store_get(store, &key, &entry);

    if (error == 0) {
        char *artifact = noise(n, bytes), meta[32];
        int meta_bytes = snprintf(meta, sizeof meta, "{\"n\":%u}", n);

        assert_int_equal(entry.kind, n % MW_EMIT_KINDS);
        assert_int_equal(entry.meta_bytes, meta_bytes);
        assert_string_equal(entry.meta, meta);
        assert_int_equal(entry.artifact_bytes, bytes);
        assert_memory_equal(entry.artifact, artifact, bytes);
        free(artifact);
    } else {
        assert_null(entry.meta);
        assert_null(entry.artifact);
    }
    mw_store_entry_fini(&entry);
    return error;
}

static struct mw_store *open_store(const struct folder *folder, uint64_t max_bytes)
{
    struct mw_store_options options = {.max_bytes = max_bytes};
    struct mw_store *store = NULL;

    assert_int_equal(mw_store_open(&store, folder->path, &options), 0);
    return store;
}

static struct mw_store_stats stats_of(struct mw_store *store)
{
    struct mw_store_stats stats;

    assert_int_equal(mw_store_stats(store, &stats), 0);
    return stats;
}

/* Run SQL on the store's file behind its back. Returns the first number of the first row. */
static int64_t sql(const struct folder *folder, const char *text)
{
    char *path = folder_path(folder, "store.db");
    sqlite3_stmt *statement;
    int64_t number = 0;
    sqlite3 *db;
    int result;

    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 10000), SQLITE_OK);
    if (sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(db));
    result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    else
        assert_int_equal(result, SQLITE_DONE);
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    free(path);
    return number;
}

/* The file as a whole is sound, and what is counted is what is there. */
static void file_check(const struct folder *folder)
{
    assert_int_equal(sql(folder, "SELECT count(*) FROM pragma_integrity_check"
                                 " WHERE integrity_check = 'ok'"),
                     1);
    assert_int_equal(sql(folder, "SELECT (SELECT bytes FROM total) = (SELECT ifnull(sum(b), 0) FROM"
                                 " (SELECT stored_bytes AS b FROM entry UNION ALL"
                                 " SELECT stored_bytes FROM manifest UNION ALL"
                                 " SELECT stored_bytes FROM source))"),
                     1);
    assert_int_equal(
        sql(folder, "SELECT (SELECT entries FROM total) = (SELECT count(*) FROM entry)"), 1);
    assert_int_equal(sql(folder, "SELECT count(*) FROM entry FULL JOIN content USING (id)"
                                 " WHERE entry.key IS NULL OR content.meta IS NULL"),
                     0);
    assert_int_equal(sql(folder, "SELECT count(*) FROM entry JOIN content USING (id)"
                                 " WHERE stored_bytes <> length(meta) +"
                                 " ifnull(length(artifact), 0) + 512"),
                     0);
    assert_int_equal(sql(folder,
                         "SELECT count(*) FROM manifest LEFT JOIN entry USING (id)"
                         " WHERE key IS NULL OR manifest.stored_bytes <> length(text) + 512"),
                     0);
    assert_int_equal(sql(folder, "SELECT count(*) FROM source LEFT JOIN entry_source"
                                 " ON source_id = source.id LEFT JOIN entry ON entry.id = entry_id"
                                 " WHERE key IS NULL OR source.stored_bytes <> length(text) + 512"),
                     0);
    assert_int_equal(sql(folder, "SELECT count(*) FROM entry WHERE sources <>"
                                 " (SELECT count(*) FROM entry_source JOIN source"
                                 " ON source.id = source_id WHERE entry_id = entry.id)"),
                     0);
}

/* --- what goes with an entry --- */

static struct mw_store_source source_of(const char *data, size_t bytes)
{
    struct mw_store_source source = {.data = data, .bytes = bytes};

    assert_int_equal(mw_sha256_text(source.sha256, data, bytes), 0);
    assert_int_equal(mw_md5_text(source.md5, data, bytes), 0);
    return source;
}

/* Entry n with the manifest "manifest n" of `base` and sources n / 2 and n + 1000, so that each two
 * entries share one. */
static int keep(struct mw_store *store, unsigned n, unsigned base, size_t bytes)
{
    char *artifact = noise(n, bytes), *shared = prose(n / 2, 300), *own = prose(n + 1000, 5000);
    char meta[32], manifest[32];
    struct mw_key key = key_of(n), base_key = key_of(base);
    struct mw_store_entry entry = {.kind = (enum mw_emit_kind)(n % MW_EMIT_KINDS),
                                   .meta = meta,
                                   .artifact = artifact,
                                   .artifact_bytes = bytes};
    struct mw_store_source sources[] = {source_of(shared, 300), source_of(own, 5000)};
    struct mw_store_more more = {
        .base = &base_key, .manifest = {.data = manifest}, .sources = sources, .source_count = 2};
    int error;

    entry.meta_bytes = (size_t)snprintf(meta, sizeof meta, "{\"n\":%u}", n);
    more.manifest.bytes = (size_t)snprintf(manifest, sizeof manifest, "manifest %u", n);
    error = mw_store_keep(store, &key, &entry, &more);
    free(artifact);
    free(shared);
    free(own);
    return error;
}

/* What mw_store_source_get says about the `bytes` bytes of prose(n), by either hash; what comes
 * must be them. */
static int source_get(struct mw_store *store, unsigned n, size_t bytes)
{
    char *expected = prose(n, bytes), sha256[MW_SHA256_TEXT_BYTES], *data;
    struct mw_store_source source = source_of(expected, bytes);
    const char *const hashes[] = {source.sha256, source.md5};
    int error = 0;

    for (int i = 0; i < 2 && error == 0; i++) {
        size_t count = 0;

        error = mw_store_source_get(store, hashes[i], &data, &count, sha256);
        if (error == 0) {
            assert_int_equal(count, bytes);
            assert_memory_equal(data, expected, bytes);
            assert_string_equal(sha256, source.sha256);
            assert_int_equal(data[count], 0);
        } else {
            assert_null(data);
        }
        free(data);
    }
    free(expected);
    return error;
}

/* How many manifests `base` has; what comes must be "manifest N" for falling N. */
static size_t manifests_of(struct mw_store *store, unsigned base, unsigned newest)
{
    struct mw_store_manifests manifests;
    struct mw_key key = key_of(base);
    size_t count;

    assert_int_equal(mw_store_manifests(store, &key, &manifests), 0);
    count = manifests.count;
    for (unsigned i = 0; i < count; i++) {
        char expected[32];

        assert_int_equal(snprintf(expected, sizeof expected, "manifest %u", newest - i),
                         manifests.texts[i].bytes);
        assert_string_equal(manifests.texts[i].data, expected);
    }
    mw_store_manifests_fini(&manifests);
    return count;
}

static int folder_setup(void **state)
{
    struct folder *folder = malloc(sizeof(*folder));

    assert_non_null(folder);
    folder_make(folder);
    *state = folder;
    return 0;
}

static int folder_teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

/* --- one store --- */

/* Broken by a size at which packing, binding or unpacking goes wrong. */
static void what_was_put_comes_back_to_the_byte(void **state)
{
    static const struct {
        const char *shows;
        char *(*make)(unsigned n, size_t bytes);
        size_t bytes;
        bool shrinks;
    } contents[] = {
        {"empty", noise, 0, false},
        {"one byte", noise, 1, false},
        {"small", prose, 2000, false}, /* not worth it */
        {"incompressible", noise, 100 * KIB, false},
        {"a page", prose, 8192, true},
        {"20 MiB of noise", noise, 20 * MIB, false},
        {"20 MiB of code", prose, 20 * MIB, true},
    };
    struct mw_store *store = open_store(*state, 0);
    uint64_t before = 0;

    for (unsigned i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        size_t bytes = contents[i].bytes;
        char *artifact = contents[i].make(i, bytes), *meta = contents[i].make(i + 100, bytes / 2);
        struct mw_store_entry entry = {.kind = MW_EMIT_ASM,
                                       .meta = meta,
                                       .meta_bytes = bytes / 2,
                                       .artifact = artifact,
                                       .artifact_bytes = bytes};
        struct mw_store_entry found;
        struct mw_key key = key_of(i);
        uint64_t stored;

        print_message("%s\n", contents[i].shows);
        assert_int_equal(mw_store_put(store, &key, &entry), 0);
        assert_int_equal(mw_store_get(store, &key, &found), 0);
        assert_int_equal(found.kind, MW_EMIT_ASM);
        assert_int_equal(found.meta_bytes, bytes / 2);
        assert_memory_equal(found.meta, meta, bytes / 2);
        assert_int_equal(found.artifact_bytes, bytes);
        assert_non_null(found.artifact);
        assert_memory_equal(found.artifact, artifact, bytes);
        mw_store_entry_fini(&found);
        stored = stats_of(store).bytes - before - MW_STORE_ENTRY_BYTES;
        if (contents[i].shrinks)
            assert_true(stored < bytes + bytes / 2);
        else
            assert_int_equal(stored, bytes + bytes / 2);
        before = stats_of(store).bytes;
        free(artifact);
        free(meta);
    }
    mw_store_close(store);
    file_check(*state);
}

/* Broken by "no artifact" and "an empty artifact" becoming the same. */
static void no_artifact_is_not_an_empty_one(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    struct mw_store_entry none = {.kind = MW_EMIT_NONE}, found;
    char empty[1] = "";
    struct mw_store_entry with = {.artifact = empty};
    struct mw_key one = key_of(1), two = key_of(2);

    assert_int_equal(mw_store_put(store, &one, &none), 0);
    assert_int_equal(mw_store_put(store, &two, &with), 0);
    assert_int_equal(mw_store_get(store, &one, &found), 0);
    assert_null(found.artifact);
    assert_int_equal(found.kind, MW_EMIT_NONE);
    assert_string_equal(found.meta, "");
    mw_store_entry_fini(&found);
    assert_int_equal(mw_store_get(store, &two, &found), 0);
    assert_non_null(found.artifact);
    assert_int_equal(found.artifact_bytes, 0);
    mw_store_entry_fini(&found);
    mw_store_entry_fini(NULL);
    mw_store_close(store);
    mw_store_close(NULL);
}

/* Broken by a second compile that overwrites what a client may just be reading. */
static void a_second_put_leaves_the_first(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    struct mw_store_entry other = {.meta = (char[]){"other"}, .meta_bytes = 5};
    struct mw_key key = key_of(7);

    assert_int_equal(put(store, 7, 1000), 0);
    assert_int_equal(mw_store_put(store, &key, &other), 0);
    assert_int_equal(get(store, 7, 1000), 0);
    assert_int_equal(stats_of(store).entries, 1);
    mw_store_close(store);
    file_check(*state);
}

/* Broken by a counter that counts something else than it says. */
static void stats_count_hits_misses_and_puts(void **state)
{
    struct mw_store *store = open_store(*state, 123456789);
    struct mw_store_stats stats;

    assert_int_equal(get(store, 1, 10), -ENOENT);
    assert_int_equal(put(store, 1, 10), 0);
    assert_int_equal(get(store, 1, 10), 0);
    assert_int_equal(get(store, 1, 10), 0);
    stats = stats_of(store);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.puts, 1);
    assert_int_equal(stats.hits, 2);
    assert_int_equal(stats.errors, 0);
    assert_int_equal(stats.evictions, 0);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.max_bytes, 123456789);
    assert_true(stats.bytes >= 10 + MW_STORE_ENTRY_BYTES);
    mw_store_close(store);
}

/* --- the bound --- */

/* Broken by eviction in the order of insertion. The control is entry 1: it is the oldest put. */
static void the_least_recently_used_entry_leaves_first(void **state)
{
    struct mw_store *store = open_store(*state, 5 * (10 * KIB + 600));

    for (unsigned n = 1; n <= 5; n++)
        assert_int_equal(put(store, n, 10 * KIB), 0);
    assert_int_equal(stats_of(store).evictions, 0);
    assert_int_equal(get(store, 1, 10 * KIB), 0);
    assert_int_equal(get(store, 3, 10 * KIB), 0);
    assert_int_equal(get(store, 1, 10 * KIB), 0);
    assert_int_equal(put(store, 6, 10 * KIB), 0); /* 2 leaves */
    assert_int_equal(put(store, 7, 10 * KIB), 0); /* 4 */
    assert_int_equal(stats_of(store).evictions, 2);
    mw_store_close(store);
    assert_int_equal(sql(*state, "SELECT group_concat(CAST(ltrim(key, '0') AS INTEGER), '') FROM"
                                 " (SELECT key FROM entry ORDER BY used)"),
                     53167);
    file_check(*state);
}

/* Broken by hits that are forgotten when the store is closed, or when more are noted than fit. */
static void hits_outlive_the_list_and_the_process(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    unsigned count = MW_STORE_TOUCHES_MAX + 10;

    for (unsigned n = 0; n < count; n++)
        assert_int_equal(put(store, n, 1), 0);
    for (unsigned n = count; n-- > 1;)
        assert_int_equal(get(store, n, 1), 0);
    mw_store_close(store);
    assert_int_equal(sql(*state, "SELECT count(*) FROM (SELECT key, row_number() OVER"
                                 " (ORDER BY used) AS place FROM entry) WHERE key = printf('%064x',"
                                 " (267 - place) % 266)"),
                     count);
}

/* Broken by bytes that are counted wrongly, or by a bound that is passed even for a moment. */
static void the_bound_holds_after_each_put(void **state)
{
    uint64_t max_bytes = 2 * MIB;
    struct mw_store *store = open_store(*state, max_bytes);
    uint64_t state_of_sizes = 42;

    for (unsigned n = 0; n < 200; n++) {
        struct mw_store_stats stats;

        assert_int_equal(put(store, n, random_next(&state_of_sizes) % (max_bytes / 5)), 0);
        stats = stats_of(store);
        assert_true(stats.bytes <= max_bytes);
        assert_int_equal(stats.entries + stats.evictions, n + 1);
    }
    assert_true(stats_of(store).bytes > max_bytes / 2); /* it is used, too */
    mw_store_close(store);
    file_check(*state);
}

/* Broken by a file that grows with every put although entries leave: their pages are used again. */
static void the_file_stays_near_the_bound(void **state)
{
    struct mw_store *store = open_store(*state, 2 * MIB);
    char *path = folder_path(*state, "store.db");
    struct stat found;

    for (unsigned n = 0; n < 300; n++)
        assert_int_equal(put(store, n, 100 * KIB), 0);
    mw_store_close(store);
    assert_int_equal(stat(path, &found), 0);
    assert_true(found.st_size < (off_t)(3 * MIB));
    free(path);
}

/* Broken by one giant that drives everything else out. */
static void an_entry_over_a_quarter_of_the_bound_is_refused(void **state)
{
    struct mw_store *store = open_store(*state, MIB);
    struct mw_store_entry huge = {.artifact = (char[]){""},
                                  .artifact_bytes = MW_STORE_RAW_BYTES_MAX + 1};
    struct mw_key key = key_of(9);
    char *code = prose(3, MIB);
    struct mw_store_entry shrinks = {.artifact = code, .artifact_bytes = 512 * KIB};

    assert_int_equal(put(store, 1, MIB / 4), -EFBIG);
    assert_int_equal(mw_store_put(store, &key, &huge), -EFBIG);
    assert_int_equal(stats_of(store).entries, 0);
    assert_int_equal(put(store, 1, MIB / 4 - MW_STORE_ENTRY_BYTES - 32), 0);
    assert_int_equal(mw_store_put(store, &key, &shrinks), 0); /* it counts compressed */
    free(code);
    mw_store_close(store);
}

/* Broken by anything that lives in memory only. */
static void entries_are_there_after_a_reopen(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    struct mw_store_stats before;

    for (unsigned n = 0; n < 20; n++)
        assert_int_equal(put(store, n, 1000 * n), 0);
    before = stats_of(store);
    mw_store_close(store);
    store = open_store(*state, 0);
    for (unsigned n = 0; n < 20; n++)
        assert_int_equal(get(store, n, 1000 * n), 0);
    assert_int_equal(stats_of(store).bytes, before.bytes);
    assert_int_equal(stats_of(store).puts, 0);
    mw_store_close(store);
    store = open_store(*state, 50 * KIB); /* a smaller bound holds at once */
    assert_true(stats_of(store).bytes <= 50 * KIB);
    assert_int_equal(stats_of(store).entries + stats_of(store).evictions, 20);
    assert_int_equal(get(store, 19, 19000), 0);
    mw_store_close(store);
    file_check(*state);
}

/* --- what is damaged, foreign or in the way --- */

static const struct {
    const char *shows, *sql;
} damages[] = {
    {"a byte of the artifact",
     "UPDATE content SET artifact = CAST(substr(artifact, 1, 500) || x'00' || substr(artifact, 502)"
     " AS BLOB)"},
    {"a byte of the meta", "UPDATE content SET meta = CAST('x' || substr(meta, 2) AS BLOB)"},
    {"an artifact cut short",
     "UPDATE content SET artifact = CAST(substr(artifact, 1, 999) AS BLOB)"},
    {"an artifact gone", "UPDATE content SET artifact = NULL"},
    {"the content gone", "DELETE FROM content"},
    {"the kind", "UPDATE entry SET kind = kind + 1"},
    {"a size", "UPDATE entry SET artifact_bytes = artifact_bytes + 1"},
    {"a size beyond memory", "UPDATE entry SET artifact_bytes = 1 << 60"},
    {"a negative size", "UPDATE entry SET meta_bytes = -1"},
    {"the checksum", "UPDATE entry SET checksum = zeroblob(32)"},
    {"a checksum cut short", "UPDATE entry SET checksum = x'00'"},
    {"the content of another key", "UPDATE entry SET key = printf('%064x', 5)"},
};

/* Broken by damage that reaches a client, or that stays and blocks the key. */
static void a_damaged_entry_fails_once_and_is_gone(void **state)
{
    struct mw_store *store = open_store(*state, 0);

    for (unsigned i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        print_message("%s\n", damages[i].shows);
        assert_int_equal(put(store, 5, 1000), 0);
        assert_int_equal(get(store, 5, 1000), 0);
        if (strstr(damages[i].sql, "SET key")) {
            (void)sql(*state, "DELETE FROM entry");
            assert_int_equal(put(store, 6, 1000), 0);
        }
        (void)sql(*state, damages[i].sql);
        assert_int_equal(get(store, 5, 1000), -EIO);
        assert_int_equal(stats_of(store).errors, i + 1);
        assert_int_equal(get(store, 5, 1000), -ENOENT);
        assert_int_equal(stats_of(store).entries, 0);
    }
    assert_int_equal(put(store, 5, 1000), 0);
    assert_int_equal(get(store, 5, 1000), 0);
    mw_store_close(store);
    file_check(*state);
}

static char *slurp(const struct folder *folder, const char *name, size_t *bytes)
{
    FILE *file = folder_open(folder, name, "rb");
    char *data = malloc(MIB);

    assert_non_null(data);
    *bytes = fread(data, 1, MIB, file);
    assert_int_equal(fclose(file), 0);
    return data;
}

/* Make store.db something that is no store of ours. */
static void foreign_make(const struct folder *folder, int which)
{
    static const char *const statements[] = {
        "CREATE TABLE entry (id INTEGER)",  /* another program's, with the same names */
        "PRAGMA application_id = 12345678", /* another program's, empty */
        "PRAGMA user_version = 1",
    };

    if (which == 0) {
        folder_write(folder, "store.db", "Dear diary, today I compiled a kernel. It went well.\n");
    } else if (which == 1) { /* a store of another version */
        mw_store_close(open_store(folder, 0));
        (void)sql(folder, "PRAGMA user_version = 99");
    } else {
        folder_write(folder, "store.db", "");
        (void)sql(folder, statements[which - 2]);
    }
}

/* Broken by another program's file being taken, or touched. */
static void a_foreign_file_is_refused_and_left_alone(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) {
        size_t before_bytes, after_bytes;
        char *before, *after;
        struct folder folder;
        struct mw_store *store = NULL;

        folder_make(&folder);
        foreign_make(&folder, which);
        before = slurp(&folder, "store.db", &before_bytes);
        assert_int_equal(mw_store_open(&store, folder.path, NULL), -EBADMSG);
        assert_null(store);
        after = slurp(&folder, "store.db", &after_bytes);
        assert_int_equal(before_bytes, after_bytes);
        assert_memory_equal(before, after, before_bytes);
        free(before);
        free(after);
        folder_remove(&folder);
    }
}

/* Broken by a directory that others can read, or by parents that are not made. */
static void the_directory_is_made_for_its_owner_only(void **state)
{
    char *path = folder_path(*state, "deep/er/store"), *middle = folder_path(*state, "deep/er");
    struct mw_store *store;
    struct stat found;

    assert_int_equal(mw_store_open(&store, path, NULL), 0);
    mw_store_close(store);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    assert_int_equal(stat(middle, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    free(path);
    free(middle);
}

/* Broken by an error that does not say what is wrong, or by what a failed open leaves behind. */
static void a_directory_that_cannot_be_is_refused(void **state)
{
    const struct folder *folder = *state;
    struct mw_store *store = NULL;
    char *path;

    folder_write(folder, "file", "");
    path = folder_path(folder, "file/store");
    assert_int_equal(mw_store_open(&store, path, NULL), -ENOTDIR);
    free(path);
    path = folder_path(folder, "file");
    assert_int_equal(mw_store_open(&store, path, NULL), -ENOTDIR);
    free(path);
    folder_mkdir(folder, "store.db");
    assert_true(mw_store_open(&store, folder->path, NULL) < 0);
    assert_null(store);
    assert_int_equal(mw_store_open(&store, "", NULL), -ENOENT);
}

/* --- manifests and sources --- */

/* Broken by manifests of another base, in another order, or more of them than the bound. */
static void the_newest_manifests_of_a_base_are_found(void **state)
{
    struct mw_store *store = open_store(*state, 0);

    assert_int_equal(manifests_of(store, 100, 0), 0);
    for (unsigned n = 1; n <= 3; n++)
        assert_int_equal(keep(store, n, 100, 1000), 0);
    assert_int_equal(keep(store, 4, 101, 1000), 0);
    assert_int_equal(manifests_of(store, 100, 3), 3);
    assert_int_equal(manifests_of(store, 101, 4), 1);
    for (unsigned n = 5; n <= 15; n++)
        assert_int_equal(keep(store, n, 100, 1000), 0);
    assert_int_equal(manifests_of(store, 100, 15), MW_STORE_MANIFESTS_OF_BASE);
    assert_int_equal(get(store, 1, 1000), 0);       /* the entry itself stays */
    assert_int_equal(keep(store, 1, 100, 1000), 0); /* and is left as it is */
    assert_int_equal(manifests_of(store, 100, 15), MW_STORE_MANIFESTS_OF_BASE);
    mw_store_close(store);
    file_check(*state);
}

/* Broken by a source that is kept twice, that goes too early, or that never goes. */
static void a_source_is_there_once_for_as_long_as_an_entry_has_it(void **state)
{
    struct mw_store *store = open_store(*state, 4 * (10 * KIB + 4500));

    assert_int_equal(keep(store, 2, 100, 10 * KIB), 0);
    assert_int_equal(keep(store, 3, 100, 10 * KIB), 0);
    assert_int_equal(sql(*state, "SELECT count(*) FROM source"), 3);
    assert_int_equal(source_get(store, 1, 300), 0);
    assert_int_equal(source_get(store, 1002, 5000), 0);
    for (unsigned n = 50; n <= 52; n++)
        assert_int_equal(put(store, n, 10 * KIB), 0); /* 2 leaves */
    assert_int_equal(get(store, 2, 10 * KIB), -ENOENT);
    assert_int_equal(source_get(store, 1, 300), 0);
    assert_int_equal(source_get(store, 1002, 5000), -ENOENT);
    assert_int_equal(source_get(store, 1003, 5000), 0);
    assert_int_equal(manifests_of(store, 100, 3), 1);
    for (unsigned n = 53; n <= 54; n++)
        assert_int_equal(put(store, n, 10 * KIB), 0); /* 3 leaves */
    assert_int_equal(get(store, 3, 10 * KIB), -ENOENT);
    assert_int_equal(source_get(store, 1, 300), -ENOENT);
    assert_int_equal(manifests_of(store, 100, 0), 0);
    assert_int_equal(sql(*state, "SELECT count(*) FROM source"), 0);
    mw_store_close(store);
    file_check(*state);
}

/* Broken by sources that do not count to the bound on an entry. */
static void what_goes_with_an_entry_counts_to_its_bound(void **state)
{
    struct mw_store *store = open_store(*state, MIB);
    char *bytes = noise(1, 300 * KIB);
    struct mw_store_source source = source_of(bytes, 300 * KIB);
    struct mw_store_entry entry = {0};
    struct mw_store_more more = {.sources = &source, .source_count = 1};
    struct mw_key key = key_of(1);

    assert_int_equal(mw_store_keep(store, &key, &entry, &more), -EFBIG);
    assert_int_equal(stats_of(store).entries, 0);
    source = source_of(bytes, 200 * KIB);
    assert_int_equal(mw_store_keep(store, &key, &entry, &more), 0);
    assert_true(stats_of(store).bytes > 200 * KIB);
    free(bytes);
    mw_store_close(store);
    file_check(*state);
}

/* Broken by an empty file of a request that cannot be kept. */
static void an_empty_source_is_kept(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    struct mw_store_source source = source_of("", 0);
    struct mw_store_entry entry = {0};
    struct mw_store_more more = {.sources = &source, .source_count = 1};
    struct mw_key key = key_of(1);

    source.data = NULL;
    assert_int_equal(mw_store_keep(store, &key, &entry, &more), 0);
    assert_int_equal(source_get(store, 1, 0), 0);
    mw_store_close(store);
    file_check(*state);
}

/* Broken by a damaged manifest that is believed, or that takes its entry with it. */
static void a_damaged_manifest_is_left_out_and_gone(void **state)
{
    static const char *const manifest_damages[] = {
        "UPDATE manifest SET text = x'00' WHERE id = (SELECT max(id) FROM manifest)",
        "UPDATE manifest SET text = '' WHERE id = (SELECT max(id) FROM manifest)",
        "UPDATE manifest SET text_bytes = 5 WHERE id = (SELECT max(id) FROM manifest)",
        "UPDATE manifest SET checksum = x'00' WHERE id = (SELECT max(id) FROM manifest)",
        "UPDATE manifest SET base = printf('%064x', 100) WHERE base = printf('%064x', 101)",
    };
    struct mw_store *store = open_store(*state, 0);

    assert_int_equal(keep(store, 1, 100, 1000), 0);
    for (unsigned i = 0; i < sizeof manifest_damages / sizeof manifest_damages[0]; i++) {
        unsigned n = 10 + i;

        assert_int_equal(keep(store, n, i == 4 ? 101 : 100, 1000), 0);
        (void)sql(*state, manifest_damages[i]);
        assert_int_equal(manifests_of(store, 100, 1), 1);
        assert_int_equal(stats_of(store).errors, i + 1);
        assert_int_equal(sql(*state, "SELECT count(*) FROM manifest"), 1);
        assert_int_equal(get(store, n, 1000), 0);
    }
    mw_store_close(store);
    file_check(*state);
}

/* Broken by a damaged source that is handed out, or whose entries stay and are hits for ever. */
static void entries_of_damaged_or_lost_sources_are_gone(void **state)
{
    static const char *const source_damages[] = {
        "UPDATE source SET text = x'00'",
        "UPDATE source SET text_bytes = text_bytes + 1",
        "UPDATE source SET text_bytes = -1",
        "UPDATE source SET sha256 = printf('%064x', id), md5 = printf('%032x', id)",
        "DELETE FROM source",
        "DELETE FROM entry_source",
    };
    struct mw_store *store = open_store(*state, 0);

    for (unsigned i = 0; i < sizeof source_damages / sizeof source_damages[0]; i++) {
        print_message("%s\n", source_damages[i]);
        assert_int_equal(keep(store, 2, 100, 1000), 0);
        assert_int_equal(keep(store, 3, 100, 1000), 0);
        assert_int_equal(manifests_of(store, 100, 3), 2);
        (void)sql(*state, source_damages[i]);
        if (i < 3) {
            assert_int_equal(source_get(store, 1, 300), -EIO); /* the one that both have */
        } else if (i == 3) {                                   /* known by other names */
            assert_int_equal(source_get(store, 1, 300), -ENOENT);
            (void)sql(*state, "DELETE FROM entry");
        } else {
            assert_int_equal(get(store, 2, 1000), -EIO);
            assert_int_equal(get(store, 3, 1000), -EIO);
        }
        assert_int_equal(get(store, 2, 1000), -ENOENT);
        assert_int_equal(get(store, 3, 1000), -ENOENT);
        assert_int_equal(manifests_of(store, 100, 0), 0);
        assert_int_equal(source_get(store, 1, 300), -ENOENT);
    }
    assert_int_equal(keep(store, 2, 100, 1000), 0);
    assert_int_equal(source_get(store, 1, 300), 0);
    mw_store_close(store);
    file_check(*state);
}

/* The tables of the first version, with entry 1 as that version kept it. */
static const char first_version[] =
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
    " UPDATE total SET bytes = bytes - old.stored_bytes, entries = entries - 1; END;"
    "ATTACH '%s' AS now;"
    "INSERT INTO entry SELECT id, used, key, kind, meta_bytes, artifact_bytes, stored_bytes,"
    " checksum FROM now.entry;"
    "INSERT INTO content SELECT id, meta, artifact FROM now.content;"
    "UPDATE total SET clock = (SELECT clock FROM now.total);"
    "PRAGMA application_id = 1297568596; PRAGMA user_version = 1";

/* Broken by an update of this program that throws away, or refuses, what was stored before. */
static void a_store_of_the_first_version_goes_on(void **state)
{
    struct mw_store *store = open_store(*state, 0);
    char *now = folder_path(*state, "store.db"), *then = folder_path(*state, "then.db");
    char *text;
    sqlite3 *db;

    assert_int_equal(put(store, 1, 1000), 0);
    mw_store_close(store);
    assert_true(asprintf(&text, first_version, now) > 0);
    assert_int_equal(sqlite3_open(then, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    folder_rename(*state, "then.db", "store.db");
    store = open_store(*state, 0);
    assert_int_equal(get(store, 1, 1000), 0);
    assert_int_equal(keep(store, 2, 100, 1000), 0);
    assert_int_equal(get(store, 2, 1000), 0);
    assert_int_equal(manifests_of(store, 100, 2), 1);
    mw_store_close(store);
    file_check(*state);
    free(text);
    free(now);
    free(then);
}

/* --- several at once --- */

/* Run `fn` in a child whose exit status says whether it went well. */
static pid_t spawn(int (*fn)(const struct folder *folder, unsigned n), const struct folder *folder,
                   unsigned n)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(folder, n));
    return pid;
}

static void expect_exit(pid_t pid, int expected)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
}

/* cmocka's asserts do not work in a child: this one returns the line of what went wrong. */
#define CHILD_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 255 + 1;                                                             \
    } while (0)

static int child_share(const struct folder *folder, unsigned n)
{
    struct mw_store *store = NULL;

    CHILD_CHECK(mw_store_open(&store, folder->path, NULL) == 0);
    for (unsigned i = 0; i < SHARED_KEYS; i++) {
        unsigned mine = (i * 7 + n * 13) % SHARED_KEYS;
        int error;

        CHILD_CHECK(put(store, mine, 1000 + mine) == 0);
        CHILD_CHECK(get(store, mine, 1000 + mine) == 0);
        error = get(store, (mine + 1) % SHARED_KEYS, 1000 + (mine + 1) % SHARED_KEYS);
        CHILD_CHECK(error == 0 || error == -ENOENT);
    }
    mw_store_close(store);
    return 0;
}

/* Broken by "database is locked", or by two processes that both make the file. */
static void several_processes_share_a_store(void **state)
{
    for (int round = 0; round < OPEN_ROUNDS; round++) {
        struct folder folder;
        pid_t pids[PROCESSES];
        struct mw_store *store;

        (void)state;
        folder_make(&folder);
        for (unsigned i = 0; i < PROCESSES; i++)
            pids[i] = spawn(child_share, &folder, i);
        for (unsigned i = 0; i < PROCESSES; i++)
            expect_exit(pids[i], 0);
        store = open_store(&folder, 0);
        for (unsigned n = 0; n < SHARED_KEYS; n++)
            assert_int_equal(get(store, n, 1000 + n), 0);
        assert_int_equal(stats_of(store).entries, SHARED_KEYS);
        mw_store_close(store);
        file_check(&folder);
        folder_remove(&folder);
    }
}

static int child_open(const struct folder *folder, int gate)
{
    struct mw_store *store = NULL;
    char byte;

    CHILD_CHECK(read(gate, &byte, 1) == 0); /* until the parent lets all go */
    CHILD_CHECK(mw_store_open(&store, folder->path, NULL) == 0);
    mw_store_close(store);
    return 0;
}

/* Broken by processes that judge or make a new file while another one makes it. */
static void several_processes_may_be_the_first(void **state)
{
    (void)state;
    for (int round = 0; round < FIRST_ROUNDS; round++) {
        pid_t pids[FIRST_PROCESSES];
        struct folder folder;
        int ends[2];

        folder_make(&folder);
        assert_int_equal(pipe(ends), 0);
        for (int i = 0; i < FIRST_PROCESSES; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                (void)close(ends[1]);
                _exit(child_open(&folder, ends[0]));
            }
        }
        assert_int_equal(close(ends[1]), 0);
        for (int i = 0; i < FIRST_PROCESSES; i++)
            expect_exit(pids[i], 0);
        assert_int_equal(close(ends[0]), 0);
        file_check(&folder);
        folder_remove(&folder);
    }
}

static void *open_and_close(void *folder)
{
    struct mw_store *store = NULL;
    int error = mw_store_open(&store, ((const struct folder *)folder)->path, NULL);

    mw_store_close(store);
    return (void *)(intptr_t)error;
}

/* Broken by a switch to write-ahead logging that fails at once when somebody writes the file. */
static void opening_waits_for_who_is_at_the_file(void **state)
{
    static const struct timespec meanwhile = {.tv_nsec = 100000000};
    char *path = folder_path(*state, "store.db");
    pthread_t opener;
    sqlite3 *writer;
    void *error;

    mw_store_close(open_store(*state, 0));
    (void)sql(*state, "PRAGMA journal_mode = DELETE");
    assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
    assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(pthread_create(&opener, NULL, open_and_close, *state), 0);
    (void)nanosleep(&meanwhile, NULL); /* without it this passes too, but may show nothing */
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
    assert_int_equal(pthread_join(opener, &error), 0);
    assert_null(error);
    free(path);
}

static size_t killed_bytes(unsigned n)
{
    return 100 + (size_t)n * 7919 % (40 * KIB);
}

/* Put for ever from number `first`, and write each number to `out` once its put has returned. */
static void put_for_ever(const struct folder *folder, unsigned first, int out)
{
    struct mw_store *store = NULL;

    if (mw_store_open(&store, folder->path, NULL) < 0)
        _exit(1);
    for (unsigned n = first;; n++) {
        if (keep(store, n, n % 50, killed_bytes(n)) < 0 || write(out, &n, sizeof n) != sizeof n)
            _exit(1);
    }
}

/* One child, killed after it reported `reports` puts. Returns the last number it reported. */
static unsigned put_and_kill(const struct folder *folder, unsigned first, unsigned reports)
{
    unsigned last = first, n;
    int ends[2], status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(ends[0]);
        put_for_ever(folder, first, ends[1]);
    }
    assert_int_equal(close(ends[1]), 0);
    for (unsigned i = 0; i < reports; i++) {
        assert_int_equal(read(ends[0], &n, sizeof n), sizeof n);
        last = n;
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    while (read(ends[0], &n, sizeof n) == sizeof n) /* what it reported while being killed */
        last = n;
    assert_int_equal(close(ends[0]), 0);
    return last;
}

/* Broken by a put that returns before its entry is safe, or by half an entry after a kill. */
static void a_killed_process_loses_nothing_that_it_reported(void **state)
{
    uint64_t random = 20240607;
    unsigned first = 0;

    for (int round = 0; round < KILL_ROUNDS; round++) {
        unsigned reports = 1 + (unsigned)(random_next(&random) % 40);
        unsigned last = put_and_kill(*state, first, reports);
        struct mw_store *store = open_store(*state, 0);
        int error;

        for (unsigned n = 0; n <= last; n++) {
            assert_int_equal(get(store, n, killed_bytes(n)), 0);
            assert_int_equal(source_get(store, n / 2, 300), 0);
            assert_int_equal(source_get(store, n + 1000, 5000), 0);
        }
        error = get(store, last + 1, killed_bytes(last + 1)); /* the one that was cut off */
        assert_true(error == 0 || error == -ENOENT);
        first = last + 1;
        mw_store_close(store);
        file_check(*state);
    }
    print_message("%u puts survived %d kills\n", first, KILL_ROUNDS);
}

struct crowd {
    struct mw_store *store;
    _Atomic unsigned next; /* relaxed: only gives each thread its number */
};

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    unsigned me = atomic_fetch_add_explicit(&crowd->next, 1, memory_order_relaxed);

    for (unsigned i = 0; i < THREAD_ROUNDS; i++) {
        unsigned n = (i * 11 + me * 17) % THREAD_KEYS;
        int error = get(crowd->store, n, 500 * (size_t)n);

        if (error == -ENOENT)
            error = put(crowd->store, n, 500 * (size_t)n);
        if (error < 0)
            return (void *)(intptr_t)error;
    }
    return NULL;
}

/* Broken by a connection that two threads use, or a waiter that nobody wakes; ThreadSanitizer
 * sees more. */
static void more_threads_than_connections_take_turns(void **state)
{
    struct crowd crowd = {.store = open_store(*state, 0)};
    pthread_t threads[THREADS];
    struct mw_store_stats stats;

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;

        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    stats = stats_of(crowd.store);
    assert_int_equal(stats.entries, THREAD_KEYS);
    assert_int_equal(stats.hits + stats.misses, THREADS * THREAD_ROUNDS);
    assert_int_equal(stats.errors, 0);
    mw_store_close(crowd.store);
    file_check(*state);
}

/* In a child: a disk on which files cannot grow beyond 1 MiB. */
static int child_full_disk(const struct folder *folder, unsigned unused)
{
    struct rlimit limit = {MIB, MIB};
    struct mw_store *store = NULL;
    unsigned kept = 0, n = 0;
    int error = 0;

    (void)unused;
    CHILD_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHILD_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHILD_CHECK(mw_store_open(&store, folder->path, NULL) == 0);
    for (; n < 100 && error == 0; n++)
        error = put(store, n, 50 * KIB);
    CHILD_CHECK(error == -EIO || error == -ENOSPC);
    for (kept = 0; kept < n - 1; kept++)
        CHILD_CHECK(get(store, kept, 50 * KIB) == 0);
    CHILD_CHECK(get(store, n - 1, 50 * KIB) == -ENOENT);
    mw_store_close(store);
    return 0;
}

/* Broken by a failed put that takes earlier entries with it, or that stays half done. */
static void a_put_that_the_disk_refuses_leaves_the_rest(void **state)
{
    struct mw_store *store;

    expect_exit(spawn(child_full_disk, *state, 0), 0);
    file_check(*state);
    store = open_store(*state, 0);
    assert_true(stats_of(store).entries > 5);
    assert_int_equal(put(store, 1000, 50 * KIB), 0); /* there is room again */
    assert_int_equal(get(store, 1000, 50 * KIB), 0);
    mw_store_close(store);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_was_put_comes_back_to_the_byte),
        IN_FOLDER(no_artifact_is_not_an_empty_one),
        IN_FOLDER(a_second_put_leaves_the_first),
        IN_FOLDER(stats_count_hits_misses_and_puts),
        IN_FOLDER(the_least_recently_used_entry_leaves_first),
        IN_FOLDER(hits_outlive_the_list_and_the_process),
        IN_FOLDER(the_bound_holds_after_each_put),
        IN_FOLDER(the_file_stays_near_the_bound),
        IN_FOLDER(an_entry_over_a_quarter_of_the_bound_is_refused),
        IN_FOLDER(entries_are_there_after_a_reopen),
        IN_FOLDER(a_damaged_entry_fails_once_and_is_gone),
        IN_FOLDER(the_newest_manifests_of_a_base_are_found),
        IN_FOLDER(a_source_is_there_once_for_as_long_as_an_entry_has_it),
        IN_FOLDER(what_goes_with_an_entry_counts_to_its_bound),
        IN_FOLDER(an_empty_source_is_kept),
        IN_FOLDER(a_damaged_manifest_is_left_out_and_gone),
        IN_FOLDER(entries_of_damaged_or_lost_sources_are_gone),
        IN_FOLDER(a_store_of_the_first_version_goes_on),
        cmocka_unit_test(a_foreign_file_is_refused_and_left_alone),
        IN_FOLDER(the_directory_is_made_for_its_owner_only),
        IN_FOLDER(a_directory_that_cannot_be_is_refused),
        cmocka_unit_test(several_processes_share_a_store),
        cmocka_unit_test(several_processes_may_be_the_first),
        IN_FOLDER(opening_waits_for_who_is_at_the_file),
        IN_FOLDER(a_killed_process_loses_nothing_that_it_reported),
        IN_FOLDER(more_threads_than_connections_take_turns),
        IN_FOLDER(a_put_that_the_disk_refuses_leaves_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

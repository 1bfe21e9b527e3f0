/* Theory of the stamp. A walk hashes what it finds and leaves behind it (a) an inotify watch on
 * each directory, (b) watches on the trail of each path that such a watch does not cover: the
 * directories themselves, and symbolic links; trail.c says how, and (c) a list of places, the paths
 * that have no trail: dangling links, mostly. As long as no mount came or went on their way,
 * no event came and no place on the list moved, the hash is what a walk would find now. One poll
 * tells; only places cost a stat each.
 *
 * 1. A directory is watched before it is read, and a path is watched or noted before it is
 *    followed: a change during the walk is either found by the walk or by the next look.
 * 2. When a directory's watch cannot be had, or a change came during the walk, the stamp is not
 *    kept and the next call walks again. What else cannot be watched becomes a place. */
#include <millwright/toolchain.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <link.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <millwright/digest.h>
#include <millwright/mutex.h>

#include "clang_bridge.h"
#include "toolchain_internal.h"
#include "trail.h"

#define DIRS_MAX         96u
#define PACKAGE_DIRS_MAX 64u /* of those, for packages and other machines */
#define WATCHED                                                                                    \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM |              \
     IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* What a path led to, links followed, when it was noted. */
struct place {
    char *path;
    int error; /* 0, or the errno of stat */
    struct stat found;
};

struct mw_toolchain {
    /* Immutable once made. */
    char *identity, *version, *target, *clang_path;
    char *dirs[DIRS_MAX + 1];
    size_t dir_count;
    size_t package_dir_count; /* of them, those of mw_toolchain_dirs_below */

    struct mw_mutex lock; /* guards all below; held during a walk, so that one walk serves all */
    bool current;         /* `stamp` is what a walk would find, unless a look says no */
    bool covered;         /* every watch of the last walk could be had */
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    uint64_t walks;
    int inotify; /* of directories and what they hold; -1: none */
    struct mw_trails trails;
    struct place *places;
    size_t place_count, place_capacity;
};

static int dirs_find(struct mw_toolchain *toolchain);
static int dirs_identify(struct mw_toolchain *toolchain);
static int library_dirs_find(struct mw_toolchain *toolchain, const char *folder);
static bool is_dir(const char *path);
static int is_folder(const struct dirent *entry);
static int is_machine(const struct dirent *entry);
static int dir_add(struct mw_toolchain *toolchain, const char *path);
static char *identity_make(void);
static int library_describe(struct dl_phdr_info *info, size_t bytes, void *text);
static bool moved(struct mw_toolchain *toolchain, bool in_walk) MW_REQUIRES(toolchain->lock);
static int walk(struct mw_toolchain *toolchain) MW_REQUIRES(toolchain->lock);
static int walk_dirs(struct mw_toolchain *toolchain, EVP_MD_CTX *hash) MW_REQUIRES(toolchain->lock);
static int visit(struct mw_toolchain *toolchain, EVP_MD_CTX *hash, FTS *fts, FTSENT *entry)
    MW_REQUIRES(toolchain->lock);
static int hash_entry(EVP_MD_CTX *hash, const FTSENT *entry);
static int watch(struct mw_toolchain *toolchain, const char *path) MW_REQUIRES(toolchain->lock);
static int place_watch(struct mw_toolchain *toolchain, const char *path)
    MW_REQUIRES(toolchain->lock);
static int place_note(struct mw_toolchain *toolchain, const char *path)
    MW_REQUIRES(toolchain->lock);
static bool place_moved(const struct place *place);
static void forget(struct mw_toolchain *toolchain) MW_REQUIRES(toolchain->lock);
static int order_by_name(const FTSENT **a, const FTSENT **b);

int mw_toolchain_new(struct mw_toolchain **out)
{
    char *identity;
    int error;

    *out = NULL;
    mw_bridge_init();
    identity = identity_make();
    if (!identity)
        return -ENOMEM;
    error = mw_toolchain_new_as(out, identity);
    free(identity);
    if (error == 0)
        error = dirs_identify(*out);
    if (error < 0) {
        mw_toolchain_free(*out);
        *out = NULL;
    }
    return error;
}

int mw_toolchain_new_as(struct mw_toolchain **out, const char *identity)
{
    struct mw_toolchain *toolchain = NULL;
    int error;

    mw_bridge_init();
    error = mw_toolchain_new_of(&toolchain, identity, NULL, 0);
    if (error < 0)
        return error;
    free(toolchain->version);
    free(toolchain->target);
    toolchain->version = strdup(mw_bridge_version());
    toolchain->target = strdup(mw_bridge_target());
    toolchain->clang_path = strdup(MW_LLVM_PREFIX "/bin/clang");
    error = toolchain->version && toolchain->target && toolchain->clang_path ? dirs_find(toolchain)
                                                                             : -ENOMEM;
    if (error < 0) {
        mw_toolchain_free(toolchain);
        return error;
    }
    *out = toolchain;
    return 0;
}

int mw_toolchain_new_of(struct mw_toolchain **out, const char *identity, const char *const *dirs,
                        size_t dir_count)
{
    struct mw_toolchain *toolchain = calloc(1, sizeof(*toolchain));
    int error;

    if (!toolchain)
        return -ENOMEM;
    error = mw_mutex_init(&toolchain->lock);
    if (error < 0) {
        free(toolchain);
        return error;
    }
    mw_mutex_lock(&toolchain->lock);
    toolchain->inotify = -1;
    toolchain->trails = (struct mw_trails){.events = -1, .mounts = -1};
    mw_mutex_unlock(&toolchain->lock);
    toolchain->identity = strdup(identity);
    toolchain->version = strdup("");
    toolchain->target = strdup("");
    if (!toolchain->identity || !toolchain->version || !toolchain->target)
        error = -ENOMEM;
    for (size_t i = 0; error == 0 && i < dir_count; i++)
        error = dir_add(toolchain, dirs[i]);
    if (error < 0) {
        mw_toolchain_free(toolchain);
        return error;
    }
    *out = toolchain;
    return 0;
}

void mw_toolchain_free(struct mw_toolchain *toolchain)
{
    if (!toolchain)
        return;
    mw_mutex_lock(&toolchain->lock);
    forget(toolchain);
    free(toolchain->places);
    mw_mutex_unlock(&toolchain->lock);
    mw_mutex_fini(&toolchain->lock);
    for (size_t i = 0; i < toolchain->dir_count; i++)
        free(toolchain->dirs[i]);
    free(toolchain->identity);
    free(toolchain->version);
    free(toolchain->target);
    free(toolchain->clang_path);
    free(toolchain);
}

const char *mw_toolchain_identity(const struct mw_toolchain *toolchain)
{
    return toolchain->identity;
}

const char *mw_toolchain_version(const struct mw_toolchain *toolchain)
{
    return toolchain->version;
}

const char *mw_toolchain_target(const struct mw_toolchain *toolchain)
{
    return toolchain->target;
}

const char *mw_toolchain_clang_path(const struct mw_toolchain *toolchain)
{
    return toolchain->clang_path;
}

const char *const *mw_toolchain_dirs(const struct mw_toolchain *toolchain, size_t *count)
{
    if (count)
        *count = toolchain->dir_count;
    return (const char *const *)toolchain->dirs;
}

int mw_toolchain_stamp(struct mw_toolchain *toolchain, uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES])
{
    int error = 0;

    mw_mutex_lock(&toolchain->lock);
    if (!toolchain->current || moved(toolchain, false))
        error = walk(toolchain);
    if (error == 0)
        memcpy(stamp, toolchain->stamp, MW_TOOLCHAIN_STAMP_BYTES);
    mw_mutex_unlock(&toolchain->lock);
    return error;
}

uint64_t mw_toolchain_walks(struct mw_toolchain *toolchain)
{
    uint64_t walks;

    mw_mutex_lock(&toolchain->lock);
    walks = toolchain->walks;
    mw_mutex_unlock(&toolchain->lock);
    return walks;
}

size_t mw_toolchain_places(struct mw_toolchain *toolchain)
{
    size_t count;

    mw_mutex_lock(&toolchain->lock);
    count = toolchain->place_count;
    mw_mutex_unlock(&toolchain->lock);
    return count;
}

/* The compiler's own headers, which must be there, and the system's, as far as they are. */
static int dirs_find(struct mw_toolchain *toolchain)
{
    static const char *const system_dirs[] = {"/usr/lib/gcc", "/usr/lib/gcc-cross", "/usr/include",
                                              "/usr/local/include"};
    unsigned long major = strtoul(toolchain->version, NULL, 10);
    char resource[sizeof MW_LLVM_PREFIX "/lib/clang/" + 24];
    int error;

    (void)snprintf(resource, sizeof resource, MW_LLVM_PREFIX "/lib/clang/%lu", major);
    if (!is_dir(resource))
        return -ENOENT;
    error = dir_add(toolchain, resource);
    for (size_t i = 0; error == 0 && i < sizeof system_dirs / sizeof system_dirs[0]; i++) {
        if (is_dir(system_dirs[i]))
            error = dir_add(toolchain, system_dirs[i]);
    }
    if (error == 0) /* headers for other machines: /usr/aarch64-linux-gnu/include */
        error = mw_toolchain_dirs_below(toolchain, "/usr", true);
    return error < 0 ? error : library_dirs_find(toolchain, "/usr/lib");
}

/* Some packages have headers for one machine only, beside their libraries: as in
 * /usr/lib/x86_64-linux-gnu/glib-2.0/include. */
static int library_dirs_find(struct mw_toolchain *toolchain, const char *folder)
{
    struct dirent **names = NULL;
    int count = scandir(folder, &names, is_machine, alphasort);
    int error = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];

        if (error == 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name) < (int)sizeof path)
            error = mw_toolchain_dirs_below(toolchain, path, false);
        free(names[i]);
    }
    free(names);
    return error;
}

int mw_toolchain_dirs_below(struct mw_toolchain *toolchain, const char *folder, bool machines_only)
{
    struct dirent **names = NULL;
    int count = scandir(folder, &names, machines_only ? is_machine : is_folder, alphasort);
    int error = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int bytes = snprintf(path, sizeof path, "%s/%s/include", folder, names[i]->d_name);

        if (error == 0 && bytes < (int)sizeof path && is_dir(path) &&
            toolchain->package_dir_count < PACKAGE_DIRS_MAX) {
            error = dir_add(toolchain, path);
            toolchain->package_dir_count++;
        }
        free(names[i]);
    }
    free(names);
    return error;
}

/* Which directories there are decides what is found. */
static int dirs_identify(struct mw_toolchain *toolchain)
{
    char sum[MW_SHA256_TEXT_BYTES];
    char *all = NULL, *identity = NULL;
    size_t bytes;
    FILE *text = open_memstream(&all, &bytes);
    int error = text ? 0 : -ENOMEM;

    for (size_t i = 0; text && i < toolchain->dir_count; i++)
        (void)fprintf(text, "%s\n", toolchain->dirs[i]);
    if (text && (ferror(text) | (fclose(text) != 0)))
        error = -ENOMEM;
    if (error == 0)
        error = mw_sha256_text(sum, all, bytes);
    free(all);
    if (error == 0 && asprintf(&identity, "%sdirectories %.16s\n", toolchain->identity, sum) < 0)
        error = -ENOMEM;
    if (error < 0)
        return error;
    free(toolchain->identity);
    toolchain->identity = identity;
    return 0;
}

static bool is_dir(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* Links are left out: what they lead to may be anywhere. */
static int is_folder(const struct dirent *entry)
{
    return (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) && entry->d_name[0] != '.';
}

/* A triple as Debian names folders: x86_64-linux-gnu, arm-linux-gnueabihf. */
static int is_machine(const struct dirent *entry)
{
    return is_folder(entry) && strstr(entry->d_name, "-linux-gnu") != NULL;
}

static int dir_add(struct mw_toolchain *toolchain, const char *path)
{
    assert(toolchain->dir_count < DIRS_MAX);
    toolchain->dirs[toolchain->dir_count] = strdup(path);
    if (!toolchain->dirs[toolchain->dir_count])
        return -ENOMEM;
    toolchain->dir_count++;
    return 0;
}

static char *identity_make(void)
{
    const char *producer = getenv("LLVM_OVERRIDE_PRODUCER"); /* goes into bitcode */
    char *identity = NULL;
    size_t bytes = 0;
    FILE *text = open_memstream(&identity, &bytes);

    if (!text)
        return NULL;
    (void)fprintf(text, "%s\n%s\n", mw_bridge_full_version(), mw_bridge_target());
    if (producer)
        (void)fprintf(text, "producer %s\n", producer);
    (void)dl_iterate_phdr(library_describe, text);
    if (ferror(text) | (fclose(text) != 0)) {
        free(identity);
        return NULL;
    }
    return identity;
}

/* Versions do not tell two builds of one version apart; size and time of their files do. */
static int library_describe(struct dl_phdr_info *info, size_t bytes, void *text)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    struct stat found;

    (void)bytes;
    if (strncmp(name, "libclang-cpp", strlen("libclang-cpp")) != 0 &&
        strncmp(name, "libLLVM", strlen("libLLVM")) != 0)
        return 0;
    if (stat(info->dlpi_name, &found) == 0)
        (void)fprintf(text, "%s %lld %lld.%09ld\n", name, (long long)found.st_size,
                      (long long)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    return 0;
}

/* Whether anything changed since the last walk, or since this one began. Events are not read: a
 * walk that follows starts with new queues, and what they would have told it finds on the disk. */
static bool moved(struct mw_toolchain *toolchain, bool in_walk)
{
    struct pollfd queues[] = {{.fd = toolchain->inotify, .events = POLLIN},
                              {.fd = toolchain->trails.mounts, .events = POLLPRI},
                              {.fd = toolchain->trails.events, .events = POLLIN}};

    if (poll(queues, sizeof queues / sizeof queues[0], 0) < 0 || queues[0].revents != 0 ||
        (queues[1].revents != 0 && (in_walk || mw_trails_mounted(&toolchain->trails))) ||
        (queues[2].revents != 0 && mw_trails_moved(&toolchain->trails)))
        return true;
    for (size_t i = 0; i < toolchain->place_count; i++) {
        if (place_moved(&toolchain->places[i]))
            return true;
    }
    return false;
}

static int walk(struct mw_toolchain *toolchain)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    int error = 0;

    forget(toolchain);
    toolchain->walks++;
    toolchain->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    toolchain->covered = toolchain->inotify >= 0;
    mw_trails_open(&toolchain->trails);
    if (!hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
        error = -ENOMEM;
    if (error == 0)
        error = walk_dirs(toolchain, hash);
    if (error == 0 && EVP_DigestFinal_ex(hash, toolchain->stamp, NULL) != 1)
        error = -ENOMEM;
    EVP_MD_CTX_free(hash);
    toolchain->current = error == 0 && toolchain->covered && !moved(toolchain, true);
    return error;
}

static int walk_dirs(struct mw_toolchain *toolchain, EVP_MD_CTX *hash)
{
    FTSENT *entry;
    FTS *fts;
    int error = 0;
    size_t visited = 0;

    for (size_t i = 0; error == 0 && i < toolchain->dir_count; i++)
        error = place_watch(toolchain, toolchain->dirs[i]);
    if (error < 0 || toolchain->dir_count == 0)
        return error;
    /* Physical, links followed one by one in visit(): so they are known to be links. */
    fts = fts_open(toolchain->dirs, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, order_by_name);
    if (!fts)
        return -errno;
    while (errno = 0, error == 0 && (entry = fts_read(fts)) != NULL) {
        if (++visited > 2 * (size_t)MW_TOOLCHAIN_FILES_MAX)
            error = -E2BIG;
        else
            error = visit(toolchain, hash, fts, entry);
    }
    if (error == 0 && errno != 0)
        error = -errno;
    (void)fts_close(fts);
    return error;
}

static int visit(struct mw_toolchain *toolchain, EVP_MD_CTX *hash, FTS *fts, FTSENT *entry)
{
    int error = 0;

    switch (entry->fts_info) {
    case FTS_DP: /* a directory once more, after what it holds */
        return 0;
    case FTS_D: /* read only at the next fts_read */
        error = watch(toolchain, entry->fts_path);
        break;
    case FTS_SL:
        error = place_watch(toolchain, entry->fts_path);
        (void)fts_set(fts, entry, FTS_FOLLOW); /* comes again as what it leads to */
        break;
    case FTS_F:
        /* A file with several names may be changed through one in a directory not watched. */
        if (entry->fts_statp->st_nlink > 1)
            error = watch(toolchain, entry->fts_path);
        break;
    default: /* unreadable, gone, a cycle, a dangling link: in the hash as such */
        break;
    }
    return error < 0 ? error : hash_entry(hash, entry);
}

static int hash_entry(EVP_MD_CTX *hash, const FTSENT *entry)
{
    const struct stat *found = entry->fts_statp;
    struct {
        uint64_t info, error, path_bytes, size, inode;
        uint64_t modified_s, modified_ns, changed_s, changed_ns;
    } record = {.info = entry->fts_info,
                .error = (uint64_t)(unsigned)entry->fts_errno,
                .path_bytes = entry->fts_pathlen};

    if (entry->fts_info == FTS_F || entry->fts_info == FTS_DEFAULT) {
        record.size = (uint64_t)found->st_size;
        record.inode = found->st_ino;
        record.modified_s = (uint64_t)found->st_mtim.tv_sec;
        record.modified_ns = (uint64_t)found->st_mtim.tv_nsec;
        record.changed_s = (uint64_t)found->st_ctim.tv_sec;
        record.changed_ns = (uint64_t)found->st_ctim.tv_nsec;
    }
    if (EVP_DigestUpdate(hash, &record, sizeof record) != 1 ||
        EVP_DigestUpdate(hash, entry->fts_path, entry->fts_pathlen) != 1)
        return -ENOMEM;
    return 0;
}

/* What may not be read may not be watched either; its place shows when that changes. */
static int watch(struct mw_toolchain *toolchain, const char *path)
{
    if (!toolchain->covered || inotify_add_watch(toolchain->inotify, path, WATCHED) >= 0)
        return 0;
    if (errno == EACCES || errno == ENOENT)
        return place_note(toolchain, path);
    toolchain->covered = false;
    return 0;
}

/* Where `path` leads, links followed. */
static int place_watch(struct mw_toolchain *toolchain, const char *path)
{
    return mw_trails_follow(&toolchain->trails, path, toolchain->inotify, WATCHED)
               ? 0
               : place_note(toolchain, path);
}

static int place_note(struct mw_toolchain *toolchain, const char *path)
{
    struct place *place;

    if (toolchain->place_count == toolchain->place_capacity) {
        size_t capacity = toolchain->place_capacity ? 2 * toolchain->place_capacity : 64;
        struct place *places = realloc(toolchain->places, capacity * sizeof(*places));

        if (!places)
            return -ENOMEM;
        toolchain->places = places;
        toolchain->place_capacity = capacity;
    }
    place = &toolchain->places[toolchain->place_count];
    *place = (struct place){.path = strdup(path)};
    if (!place->path)
        return -ENOMEM;
    place->error = stat(path, &place->found) == 0 ? 0 : errno;
    toolchain->place_count++;
    return 0;
}

static bool place_moved(const struct place *place)
{
    const struct stat *then = &place->found;
    struct stat now;
    int error = stat(place->path, &now) == 0 ? 0 : errno;

    if (error != place->error)
        return true;
    return error == 0 && (now.st_dev != then->st_dev || now.st_ino != then->st_ino ||
                          now.st_size != then->st_size || now.st_mode != then->st_mode ||
                          now.st_mtim.tv_sec != then->st_mtim.tv_sec ||
                          now.st_mtim.tv_nsec != then->st_mtim.tv_nsec ||
                          now.st_ctim.tv_sec != then->st_ctim.tv_sec ||
                          now.st_ctim.tv_nsec != then->st_ctim.tv_nsec);
}

/* Closing the descriptor removes all its watches, those on directories that are gone too. */
static void forget(struct mw_toolchain *toolchain)
{
    toolchain->current = false;
    if (toolchain->inotify >= 0)
        (void)close(toolchain->inotify);
    toolchain->inotify = -1;
    mw_trails_close(&toolchain->trails);
    for (size_t i = 0; i < toolchain->place_count; i++)
        free(toolchain->places[i].path);
    toolchain->place_count = 0;
}

static int order_by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

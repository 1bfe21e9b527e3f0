/* Theory. A path is resolved entry by entry: a name in a directory, which leads to an inode. Where
 * a path leads changes only when an entry of its trail does, and the watches are on what the
 * entries lead to:
 *
 * 1. An entry that is a file or a link ends by unlink, or by a rename onto it: both change the
 *    number of its links, IN_ATTRIB; or by a rename away, IN_MOVE_SELF. A link never changes
 *    otherwise. One with several names has no trail: overlayfs may make a second inode of it, and
 *    have its events there.
 * 2. An entry that is a directory ends by a rename away, IN_MOVE_SELF; or, once it is empty, by
 *    rmdir or a rename onto it. Of that there may be no event as long as somebody has it open. But
 *    what is passed is not empty: its next entry must end first (1, 2). At the end of a trail there
 *    is no next entry, so the directory must hold something, and that is watched.
 * 3. A mount over an entry, or the end of one, shows at `mounts`. There are machines that mount
 *    something each second, so what that is decides: but for mounts below directories of the root
 *    that no trail passes, all must be as it was. What came and went left the watches as they
 *    were. A mount's own root is not what its entry holds below it, and that can be renamed in
 *    another namespace: its directory's IN_MOVED_FROM shows it.
 * 4. An entry is watched before it is looked at. When it changes in between, the watch may be on
 *    what was there before, but then 1 or 2 has left its event. */
#include "trail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define REST_BYTES        (4 * PATH_MAX)
#define MOUNTED_BYTES_MIN (64u << 10)
#define MOUNTED_BYTES_MAX (4u << 20)
#define POINT_FIELD       4 /* of a line about a mount: where it is mounted */
#define PASSED            (IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB)
#define ENDED             (PASSED | IN_MODIFY | IN_CLOSE_WRITE)
#define XFS_MAGIC         0x58465342

/* A path on its way. */
struct trail {
    struct mw_trails *trails;
    char at[PATH_MAX]; /* absolute, without links; "" is the root */
    size_t at_bytes;
    char rest_text[REST_BYTES]; /* what is still to go, at its end */
    char *rest;
    int links;
    mode_t mode; /* of what `at` is */
};

static bool next_name(struct trail *trail, char name[NAME_MAX + 1]);
static bool go(struct trail *trail, const char *name);
static bool pass(struct trail *trail);
static bool pass_link(struct trail *trail);
static bool pass_mount(struct trail *trail);
static bool end(struct trail *trail, int contents, unsigned contents_mask);
static bool rest_add(struct trail *trail, const char *text);
static const char *place(const struct trail *trail);
static void go_back(struct trail *trail);
static bool watch(const struct trail *trail, unsigned mask);
static bool is_local(struct mw_trails *trails, const char *path, dev_t device);
static bool is_empty(const char *path);
static void top_note(struct trail *trail);
static char *mounted_read(int mounts);
static const char *next_mount(const struct mw_trails *trails, const char **text, size_t *bytes);
static bool is_on_trail(const struct mw_trails *trails, const char *mount);

void mw_trails_open(struct mw_trails *trails)
{
    *trails = (struct mw_trails){.events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC),
                                 .mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)};
    if (trails->mounts >= 0)
        trails->mounted = mounted_read(trails->mounts);
}

void mw_trails_close(struct mw_trails *trails)
{
    if (trails->events >= 0)
        (void)close(trails->events);
    if (trails->mounts >= 0)
        (void)close(trails->mounts);
    trails->events = trails->mounts = -1;
    free(trails->mounted);
    trails->mounted = NULL;
}

bool mw_trails_follow(struct mw_trails *trails, const char *path, int contents,
                      unsigned contents_mask)
{
    struct trail trail = {.trails = trails};
    char name[NAME_MAX + 1];

    trail.rest = trail.rest_text + sizeof trail.rest_text - 1;
    if (trails->events < 0 || trails->mounts < 0 || path[0] != '/' || !rest_add(&trail, path) ||
        !pass(&trail))
        return false;
    while (trail.rest[0] != '\0') {
        if (!next_name(&trail, name) || !go(&trail, name))
            return false;
    }
    return end(&trail, contents, contents_mask);
}

/* One read brings at most some hundred events, and the queue holds a bounded number. */
bool mw_trails_moved(const struct mw_trails *trails)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t bytes;

    while ((bytes = read(trails->events, events, sizeof events)) > 0) {
        for (const char *at = events; at < events + bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;

            /* With a name it is about an entry of a directory: the attributes of any. */
            if (event->len == 0 || (event->mask & ~(unsigned)IN_ISDIR) != IN_ATTRIB)
                return true;
            at += sizeof *event + event->len;
        }
    }
    return bytes == 0 || errno != EAGAIN;
}

bool mw_trails_mounted(const struct mw_trails *trails)
{
    char *mounted = mounted_read(trails->mounts);
    const char *then = trails->mounted, *now = mounted;
    bool is_same = then && now;

    while (is_same) {
        size_t then_bytes, now_bytes;
        const char *was = next_mount(trails, &then, &then_bytes);
        const char *is = next_mount(trails, &now, &now_bytes);

        if (!was && !is)
            break;
        is_same = was && is && then_bytes == now_bytes && memcmp(was, is, now_bytes) == 0;
    }
    free(mounted);
    return !is_same;
}

/* "" at the end of a path. */
static bool next_name(struct trail *trail, char name[NAME_MAX + 1])
{
    size_t bytes;

    trail->rest += strspn(trail->rest, "/");
    bytes = strcspn(trail->rest, "/");
    if (bytes > NAME_MAX)
        return false;
    memcpy(name, trail->rest, bytes);
    name[bytes] = '\0';
    trail->rest += bytes;
    return true;
}

static bool go(struct trail *trail, const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || strcmp(name, ".") == 0)
        return true;
    if (strcmp(name, "..") == 0) {
        go_back(trail);
        return true;
    }
    if (trail->at_bytes + 1 + bytes >= sizeof trail->at)
        return false;
    trail->at[trail->at_bytes] = '/';
    memcpy(trail->at + trail->at_bytes + 1, name, bytes + 1);
    trail->at_bytes += 1 + bytes;
    return pass(trail);
}

static bool pass(struct trail *trail)
{
    struct statx found;

    if (!watch(trail, PASSED) ||
        statx(AT_FDCWD, place(trail), AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_NLINK, &found) != 0 ||
        !is_local(trail->trails, place(trail), makedev(found.stx_dev_major, found.stx_dev_minor)) ||
        !(found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)) /* the kernel does not tell */
        return false;
    top_note(trail);
    trail->mode = found.stx_mode;
    if (!S_ISDIR(trail->mode) && found.stx_nlink > 1)
        return false;
    if ((found.stx_attributes & STATX_ATTR_MOUNT_ROOT) && !pass_mount(trail))
        return false;
    if (S_ISLNK(trail->mode))
        return pass_link(trail);
    return S_ISDIR(trail->mode) || trail->rest[0] == '\0';
}

/* Goes back to the link's directory, from where it leads on. */
static bool pass_link(struct trail *trail)
{
    char text[PATH_MAX];
    ssize_t bytes = readlink(place(trail), text, sizeof text);

    if (bytes <= 0 || (size_t)bytes >= sizeof text || trail->links++ == MW_TRAIL_LINKS_MAX)
        return false;
    text[bytes] = '\0';
    go_back(trail);
    if (text[0] == '/')
        trail->at[trail->at_bytes = 0] = '\0';
    return rest_add(trail, text);
}

static bool pass_mount(struct trail *trail)
{
    char *slash = strrchr(trail->at, '/');
    bool is_watched;

    if (!slash)
        return true;
    *slash = '\0';
    is_watched = inotify_add_watch(trail->trails->events, slash > trail->at ? trail->at : "/",
                                   PASSED | IN_MOVED_FROM | IN_MASK_ADD) >= 0;
    *slash = '/';
    return is_watched;
}

static bool end(struct trail *trail, int contents, unsigned contents_mask)
{
    if (S_ISREG(trail->mode))
        return watch(trail, ENDED);
    return S_ISDIR(trail->mode) &&
           inotify_add_watch(contents, place(trail), contents_mask | IN_DONT_FOLLOW) >= 0 &&
           !is_empty(place(trail));
}

/* Before what is still to go. */
static bool rest_add(struct trail *trail, const char *text)
{
    size_t bytes = strlen(text);

    if (bytes > (size_t)(trail->rest - trail->rest_text))
        return false;
    trail->rest -= bytes;
    memcpy(trail->rest, text, bytes);
    return true;
}

static const char *place(const struct trail *trail)
{
    return trail->at_bytes > 0 ? trail->at : "/";
}

/* No entry of `at` is a link, so it is in the directory that its text says. */
static void go_back(struct trail *trail)
{
    const char *slash = strrchr(trail->at, '/');

    trail->at_bytes = slash ? (size_t)(slash - trail->at) : 0;
    trail->at[trail->at_bytes] = '\0';
    trail->mode = S_IFDIR;
}

/* IN_MASK_ADD: the inode may be on another trail. */
static bool watch(const struct trail *trail, unsigned mask)
{
    return inotify_add_watch(trail->trails->events, place(trail),
                             mask | IN_DONT_FOLLOW | IN_MASK_ADD) >= 0;
}

/* Others may be changed by another machine, or by a process that is no writer: no event tells. */
static bool is_local(struct mw_trails *trails, const char *path, dev_t device)
{
    static const unsigned long types[] = {
        EXT4_SUPER_MAGIC,      XFS_MAGIC,   BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
        OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC,       SQUASHFS_MAGIC,
        EROFS_SUPER_MAGIC_V1,
    };
    struct statfs found;

    if (trails->has_local && trails->local == device)
        return true;
    if (statfs(path, &found) != 0)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if ((unsigned long)found.f_type == types[i]) {
            trails->local = device;
            return trails->has_local = true;
        }
    }
    return false;
}

static bool is_empty(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)))
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (dir)
        (void)closedir(dir);
    return !found;
}

static void top_note(struct trail *trail)
{
    struct mw_trails *trails = trail->trails;
    const char *name = trail->at_bytes > 0 ? trail->at + 1 : "";
    size_t bytes = strcspn(name, "/");

    for (unsigned i = 0; i < trails->top_count; i++) {
        if (strlen(trails->tops[i]) == bytes && memcmp(trails->tops[i], name, bytes) == 0)
            return;
    }
    if (bytes >= MW_TRAIL_TOP_BYTES || trails->top_count == MW_TRAIL_TOPS_MAX)
        trails->has_other_tops = true;
    else if (bytes > 0)
        memcpy(trails->tops[trails->top_count++], name, bytes); /* behind it are zeros */
}

/* A line for each mount. NULL: cannot be read, or is too long. */
static char *mounted_read(int mounts)
{
    size_t bytes = 0, capacity = MOUNTED_BYTES_MIN;
    char *text = malloc(capacity);
    ssize_t got = lseek(mounts, 0, SEEK_SET) == 0 ? 1 : -1;

    while (text && got > 0) {
        if (bytes + 1 == capacity) {
            char *larger = capacity < MOUNTED_BYTES_MAX ? realloc(text, 2 * capacity) : NULL;

            if (!larger)
                break;
            text = larger;
            capacity *= 2;
        }
        got = read(mounts, text + bytes, capacity - 1 - bytes);
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (!text || got != 0) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return text;
}

/* The next line about a mount that matters, or NULL; moves `text` behind it. */
static const char *next_mount(const struct mw_trails *trails, const char **text, size_t *bytes)
{
    while (**text != '\0') {
        const char *line = *text;

        *bytes = strcspn(line, "\n");
        *text += *bytes + (line[*bytes] == '\n');
        if (is_on_trail(trails, line))
            return line;
    }
    return NULL;
}

/* In doubt it is. With a backslash the name is not as it stands there. */
static bool is_on_trail(const struct mw_trails *trails, const char *mount)
{
    size_t bytes;

    for (int field = 0; field < POINT_FIELD; field++) {
        mount += strcspn(mount, " \n");
        if (*mount != ' ')
            return true;
        mount++;
    }
    if (trails->has_other_tops || *mount++ != '/')
        return true;
    bytes = strcspn(mount, "/ \n");
    if (bytes == 0 || memchr(mount, '\\', bytes))
        return true;
    for (unsigned i = 0; i < trails->top_count; i++) {
        if (strlen(trails->tops[i]) == bytes && memcmp(trails->tops[i], mount, bytes) == 0)
            return true;
    }
    return false;
}

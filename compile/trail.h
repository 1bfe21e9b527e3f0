/* trail.h - private to toolchain.c: paths that are watched, so that nobody needs to look at them.
 *
 * A trail is all that the kernel passes when it resolves a path, directories and symbolic links,
 * and the file or directory at the end. Each gets a watch; none moves without an event of its own.
 *
 * Ownership:  mw_trails_open takes descriptors, mw_trails_close gives them back.
 * Threads:    one at a time.
 * Bounds:     a path of PATH_MAX - 1 bytes, MW_TRAIL_LINKS_MAX links; what has more has no trail.
 */
#ifndef MW_TRAIL_H
#define MW_TRAIL_H

#include <stdbool.h>
#include <sys/types.h>

#define MW_TRAIL_LINKS_MAX 40 /* the kernel's own bound */
#define MW_TRAIL_TOPS_MAX  8
#define MW_TRAIL_TOP_BYTES 32

struct mw_trails {
    int events;  /* inotify; for poll(POLLIN) */
    int mounts;  /* for poll(POLLPRI): anything at all was mounted, moved or unmounted */
    dev_t local; /* a device whose changes all pass this kernel; where has_local */
    bool has_local;
    char *mounted; /* what was mounted at mw_trails_open, as the kernel tells it; NULL: not known */
    char tops[MW_TRAIL_TOPS_MAX][MW_TRAIL_TOP_BYTES]; /* in the root, passed by trails: "usr" */
    unsigned top_count;
    bool has_other_tops; /* more, or longer ones */
};

/* What cannot be had is -1 then; poll passes over it, and mw_trails_follow finds no trails. */
void mw_trails_open(struct mw_trails *trails);
void mw_trails_close(struct mw_trails *trails);

/* Follow `path` and watch what is passed. Where it ends at a directory, what that holds is watched
 * by `contents`, the caller's inotify, with the mask `contents_mask`.
 *
 * Returns whether all that can make stat(path) differ, and every change of a file at the end,
 * begins with an event from now on: at `events`, `contents` or `mounts`. Not so where nothing is at
 * the end, or an empty directory, or neither file nor directory; where something may not be
 * watched; and on file systems that others change too. Blocks on the disk. */
bool mw_trails_follow(struct mw_trails *trails, const char *path, int contents,
                      unsigned contents_mask);

/* Whether what waits at `events` tells of a trail. Empties it, as far as it does not. */
bool mw_trails_moved(const struct mw_trails *trails);

/* Whether other mounts than at mw_trails_open lie where trails begin. For when poll says so of
 * `mounts`; not while trails are followed, as it does not see what came and went. */
bool mw_trails_mounted(const struct mw_trails *trails);

#endif

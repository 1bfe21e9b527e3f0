/* toolchain.h - the compiler this process holds, and the directories it may read.
 *
 * A compile of a request reads the request's files and these directories, nothing else; so the
 * content key is known before the parse. The stamp covers every file below the directories; it is
 * taken once and kept exact by inotify: the kernel queues an event before the call that changes a
 * file returns, and the next mw_toolchain_stamp sees it and walks again. So does one after
 * something was mounted or unmounted on the way there. The few paths that inotify cannot cover
 * (dangling links, and what leads through network file systems) are looked at each time. Not seen:
 * writes through a mapping until the file is closed, and changes made on another machine to a
 * network file system below the directories.
 *
 * Ownership:  mw_toolchain_new allocates, mw_toolchain_free releases.
 * Threads:    any thread. mw_toolchain_stamp blocks on the disk after a change (a walk of some
 *             thousand files), else not; call it from an IO pool.
 * Bounds:     at most MW_TOOLCHAIN_FILES_MAX files are stamped; more is -E2BIG. */
#ifndef MILLWRIGHT_TOOLCHAIN_H
#define MILLWRIGHT_TOOLCHAIN_H

#include <stddef.h>
#include <stdint.h>

#define MW_TOOLCHAIN_STAMP_BYTES 32u
#define MW_TOOLCHAIN_FILES_MAX   1000000u

struct mw_toolchain;

/* Load the code generator's targets (once per process) and find the directories.
 * Returns 0, -ENOENT (no clang resource directory: install libclang-common), -ENOMEM. */
int mw_toolchain_new(struct mw_toolchain **out);

/* The same toolchain under another identity: what is stored under one is not found by the other.
 * For those who try out beforehand what a new compiler will do to a store. */
int mw_toolchain_new_as(struct mw_toolchain **out, const char *identity);

void mw_toolchain_free(struct mw_toolchain *toolchain);

/* The compiler's build identity: full version, default target, size and time of its library files,
 * and which directories it may read. Two builds that may emit different bytes differ here. */
const char *mw_toolchain_identity(const struct mw_toolchain *toolchain);

/* "19.1.7" */
const char *mw_toolchain_version(const struct mw_toolchain *toolchain);

/* "x86_64-pc-linux-gnu" */
const char *mw_toolchain_target(const struct mw_toolchain *toolchain);

/* The path the driver believes it was started as; it derives the resource directory from it. */
const char *mw_toolchain_clang_path(const struct mw_toolchain *toolchain);

/* Absolute directories that a compile may read, as they were found at the start: clang's own,
 * /usr/include, /usr/local/include, gcc's, and of the folders of a machine (/usr/TRIPLE/include,
 * /usr/lib/TRIPLE/NAME/include) the first 64. NULL-terminated. */
const char *const *mw_toolchain_dirs(const struct mw_toolchain *toolchain, size_t *count);

/* SHA-256 over path, size, times and inode of every file below the directories. A header may
 * still change between this call and the end of a parse: who keeps a result takes the stamp again
 * after it, and keeps nothing when the two differ.
 * Returns 0, -E2BIG, -ENOMEM or an error of the disk. */
int mw_toolchain_stamp(struct mw_toolchain *toolchain, uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES]);

#endif

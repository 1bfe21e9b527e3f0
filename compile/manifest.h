/* manifest.h - direct lookups: the same source and options, among other files that do not matter.
 *
 * A content key covers every file of a request. Clients send whole trees, and an edit to a header
 * that a source does not include must not compile it again. So for each *base* (toolchain and its
 * stamp, options, directory, main file's name and bytes) the store keeps a few manifests: each says
 * what a compile looked at (files read with their hashes, names that were there, names that were
 * not), and under which key its artifact is. A later request with that base whose files agree with
 * all of it has the same artifact. (The idea is ccache's direct mode, with the absent names that it
 * leaves out.)
 *
 * Invariants:
 *  1. A directory of a request is there exactly when a file lies below it; so a name is a file, a
 *     directory or absent by the list of files alone. A file that was only found counts as read:
 *     its size can be told too.
 *  2. What lies outside of the request's directory and of the toolchain's is the same for every
 *     request of a base: it is left out. What lies in the toolchain's is in the stamp.
 *  3. Inputs come from a worker that may have been taken over. What it says about names that the
 *     request has not, or has, is checked; what it keeps silent about cannot be.
 *
 * Ownership:  texts are the caller's.
 * Threads:    any thread; hashing only, nothing blocks but what mw_toolchain_stamp does.
 * Bounds:     MW_MANIFEST_INPUTS_MAX names; more: none is made. */
#ifndef MILLWRIGHT_MANIFEST_H
#define MILLWRIGHT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/emit.h>
#include <millwright/key.h>

#define MW_MANIFEST_INPUTS_MAX 8192u

/* The base of a checked request. Returns as mw_key_compute, or -ENOTSUP: its directory and one of
 * the toolchain's lie in each other, so a name does not tell whose it is; do without manifests. */
int mw_manifest_base(struct mw_key *base, struct mw_toolchain *toolchain,
                     const struct mw_options *options, const struct mw_compile_request *request);

/* The same as of the moment when the toolchain had this stamp. */
int mw_manifest_base_at(struct mw_key *base, const struct mw_toolchain *toolchain,
                        const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                        const struct mw_options *options, const struct mw_compile_request *request);

/* Make the manifest of a compile of `request` that looked at `inputs` and is kept under `key`.
 * Returns 0, -ENOMEM, -E2BIG, or -EBADMSG (inputs say what no compile of this request can: the
 * worker lied, or a directory was listed; keep none). */
int mw_manifest_make(const struct mw_compile_request *request, const struct mw_text *inputs,
                     const struct mw_key *key, struct mw_text *manifest);

/* Whether `manifest` speaks of what `request` has; then *key is where its artifact is.
 * Returns 1, 0, -EBADMSG (it is damaged) or -ENOMEM. */
int mw_manifest_match(const struct mw_text *manifest, const struct mw_compile_request *request,
                      struct mw_key *key);

/* The files of `request` that `inputs` say were read, in the order of their names, once each;
 * *files is malloc'ed. Returns as mw_manifest_make. */
int mw_manifest_files_read(const struct mw_compile_request *request, const struct mw_text *inputs,
                           const struct mw_source_file ***files, size_t *count);

#endif

/* huge_pages.h - memory that is in use, moved onto huge pages of this process's own. Private to
 * compile/.
 *
 * Threads: while no other thread of the process uses what is moved: for a moment it is not there.
 */
#ifndef MW_COMPILE_HUGE_PAGES_H
#define MW_COMPILE_HUGE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MW_HUGE_PAGE_BYTES ((uintptr_t)2 << 20) /* of x86-64, and of arm64 with pages of 4 KiB */

/* Whether whoever runs this machine, or this process, wants them. */
bool mw_huge_pages_wanted(void);

/* Put a copy of whole huge pages in the place of what is there. Returns false when it cannot be
 * had; then nothing has changed. */
bool mw_huge_pages_move(uintptr_t begin, size_t bytes, int protection);

#endif

#include "huge_pages.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define THP_ENABLED "/sys/kernel/mm/transparent_hugepage/enabled"
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

bool mw_huge_pages_wanted(void)
{
    char text[64] = "[never]";
    int enabled = open(THP_ENABLED, O_RDONLY | O_CLOEXEC);

    if (enabled < 0)
        return false;
    if (read(enabled, text, sizeof(text) - 1) <= 0)
        text[0] = '\0';
    close(enabled);
    return text[0] && !strstr(text, "[never]") && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0;
}

bool mw_huge_pages_move(uintptr_t begin, size_t bytes, int protection)
{
    char *room = mmap(NULL, bytes + MW_HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *copy = room + (-(uintptr_t)room & (MW_HUGE_PAGE_BYTES - 1));
    bool moved = false;

    if (room == MAP_FAILED)
        return false;
    if (madvise(copy, bytes, MADV_HUGEPAGE) == 0) {
        memcpy(copy, (const void *)begin, bytes);
        /* Small pages in its place would only cost: so make sure. */
        moved =
            madvise(copy, bytes, MADV_COLLAPSE) == 0 && mprotect(copy, bytes, protection) == 0 &&
            mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)begin) != MAP_FAILED;
    }
    (void)munmap(room, (size_t)(copy - room));
    if (!moved)
        (void)munmap(copy, bytes);
    (void)munmap(copy + bytes, MW_HUGE_PAGE_BYTES - (size_t)(copy - room));
    return moved;
}

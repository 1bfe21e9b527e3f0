#include "text_pages.h"

#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "huge_pages.h"

#define PAGES_MAX      512u /* in one huge page */
#define USED_PAGES_MIN 32u  /* two faults: the kernel maps 16 pages around each */

/* Of an entry in /proc/self/pagemap. */
#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_OF_FILE (UINT64_C(1) << 61)

/* Whole huge pages of what of a library is never written to once it is loaded: code with constants,
 * or pointers that were made right at the start. */
struct part {
    uintptr_t begin, end;
    int protection;
    bool is_of_file; /* its pages can be had again from there */
};

/* Returns the bytes that it moved. */
typedef size_t part_visitor(const struct part *part);
struct visit {
    part_visitor *part;
    size_t moved_bytes; /* by all of them */
};

static size_t each_part(part_visitor *part);
static int library_visit(struct dl_phdr_info *info, size_t bytes, void *user);
static part_visitor part_forget, part_enlarge;
static unsigned pages_used(uintptr_t begin, bool *has_own);

void mw_text_pages_forget(void)
{
    if (mw_huge_pages_wanted())
        (void)each_part(part_forget);
}

size_t mw_text_pages_enlarge(void)
{
    return mw_huge_pages_wanted() ? each_part(part_enlarge) : 0;
}

static size_t each_part(part_visitor *part)
{
    struct visit visit = {.part = part};

    (void)dl_iterate_phdr(library_visit, &visit);
    return visit.moved_bytes;
}

/* Visit the whole huge pages of what fits. */
static int library_visit(struct dl_phdr_info *info, size_t bytes, void *user)
{
    struct visit *visit = user;

    (void)bytes;
    if (!strstr(info->dlpi_name, "libLLVM") && !strstr(info->dlpi_name, "libclang"))
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;
        const struct part part = {
            .begin = (begin + MW_HUGE_PAGE_BYTES - 1) & ~(MW_HUGE_PAGE_BYTES - 1),
            .end = end & ~(MW_HUGE_PAGE_BYTES - 1),
            .protection = PROT_READ | (header->p_flags & PF_X ? PROT_EXEC : 0),
            .is_of_file = header->p_type == PT_LOAD,
        };

        if (part.begin < part.end && (header->p_type == PT_GNU_RELRO ||
                                      (header->p_type == PT_LOAD && !(header->p_flags & PF_W))))
            visit->moved_bytes += visit->part(&part);
    }
    return 0;
}

/* Take back which pages were used until now: the dynamic linker reads many that nobody needs again.
 * Pages that somebody wrote to, a debugger or that linker, would be lost. */
static size_t part_forget(const struct part *part)
{
    for (uintptr_t at = part->begin; part->is_of_file && at < part->end; at += MW_HUGE_PAGE_BYTES) {
        bool has_own;

        if (pages_used(at, &has_own) > 0 && !has_own)
            (void)madvise((void *)at, MW_HUGE_PAGE_BYTES, MADV_DONTNEED);
    }
    return 0;
}

/* Neighbours move together: each mapping costs every fork something. */
static size_t part_enlarge(const struct part *part)
{
    size_t moved_bytes = 0;
    bool has_own;

    for (uintptr_t begin = part->begin, end; begin < part->end; begin = end + MW_HUGE_PAGE_BYTES) {
        end = begin;
        while (end < part->end && pages_used(end, &has_own) >= USED_PAGES_MIN)
            end += MW_HUGE_PAGE_BYTES;
        if (end > begin && mw_huge_pages_move(begin, end - begin, part->protection))
            moved_bytes += end - begin;
    }
    return moved_bytes;
}

/* How many of the pages at `begin` are mapped, and whether any of them is not the file's. */
static unsigned pages_used(uintptr_t begin, bool *has_own)
{
    uint64_t pages[PAGES_MAX];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), count = MW_HUGE_PAGE_BYTES / page_bytes;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    unsigned used = 0;

    *has_own = false;
    if (pagemap < 0)
        return 0;
    if (count <= PAGES_MAX)
        got = pread(pagemap, pages, count * sizeof(pages[0]),
                    (off_t)(begin / page_bytes * sizeof(pages[0])));
    close(pagemap);
    for (size_t i = 0; got == (ssize_t)(count * sizeof(pages[0])) && i < count; i++) {
        if (!(pages[i] & PAGE_PRESENT))
            continue;
        used++;
        *has_own = *has_own || !(pages[i] & PAGE_OF_FILE);
    }
    return used;
}

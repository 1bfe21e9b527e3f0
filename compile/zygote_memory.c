#include "zygote_memory.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HUGE_BYTES     ((uintptr_t)2 << 20) /* of x86-64, and of arm64 with pages of 4 KiB */
#define PAGES_MAX      512u                 /* in one huge page */
#define USED_PAGES_MIN 32u                  /* two faults: the kernel maps 16 pages around each */
#define LARGE_BYTES    (32 << 20)           /* the most that glibc allows */
#define PLUG_BYTES_MAX 65536u               /* what is larger is few, and may stay free */
#define THP_ENABLED    "/sys/kernel/mm/transparent_hugepage/enabled"
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

/* Of an entry in /proc/self/pagemap. */
#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_OF_FILE (UINT64_C(1) << 61)

/* What of a library is never written to once it is loaded: code with constants, and pointers that
 * were made right at the start. */
static const struct part {
    uint32_t type, not_flags;
    int protection;
    bool is_forgotten; /* its pages can be had again from the file */
} parts[] = {
    {PT_LOAD, PF_W, PROT_READ | PROT_EXEC, true},
    {PT_GNU_RELRO, 0, PROT_READ, false},
};

typedef void part_visitor(const struct part *part, uintptr_t begin, uintptr_t end);
struct visit {
    part_visitor *part;
};

static void each_part(part_visitor *visit);
static int library_visit(struct dl_phdr_info *info, size_t bytes, void *user);
static part_visitor part_forget, part_enlarge;
static bool run_move(uintptr_t begin, size_t bytes, int protection);
static unsigned pages_used(uintptr_t begin, bool *has_own);
static bool has_huge_pages(void);
static void holes_fill(uintptr_t top);
static void top_align(uintptr_t top);
static uintptr_t heap_top(void);

/* A worker's large blocks come from its heap, which grows by huge pages, and stay there: no pages
 * are had, given back and had again. */
void mw_zygote_memory_begin(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES);
    if (has_huge_pages())
        each_part(part_forget);
}

void mw_zygote_memory_settle(void)
{
    if (has_huge_pages())
        each_part(part_enlarge);
    (void)malloc_trim(0);
    holes_fill(heap_top());
    top_align(heap_top());
}

/* ---- code ---- */

static void each_part(part_visitor *visit)
{
    (void)dl_iterate_phdr(library_visit, &(struct visit){visit});
}

/* Visit the whole huge pages of what fits. */
static int library_visit(struct dl_phdr_info *info, size_t bytes, void *user)
{
    const struct visit *visit = user;

    (void)bytes;
    if (!strstr(info->dlpi_name, "libLLVM") && !strstr(info->dlpi_name, "libclang"))
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;

        begin = (begin + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
        end &= ~(HUGE_BYTES - 1);
        for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++)
            if (header->p_type == parts[k].type && !(header->p_flags & parts[k].not_flags) &&
                begin < end)
                visit->part(&parts[k], begin, end);
    }
    return 0;
}

/* Take back which pages were used until now: the dynamic linker reads many that nobody needs again.
 * Pages that somebody wrote to, a debugger or that linker, would be lost. */
static void part_forget(const struct part *part, uintptr_t begin, uintptr_t end)
{
    for (uintptr_t at = begin; part->is_forgotten && at < end; at += HUGE_BYTES) {
        bool has_own;

        if (pages_used(at, &has_own) > 0 && !has_own)
            (void)madvise((void *)at, HUGE_BYTES, MADV_DONTNEED);
    }
}

/* Neighbours move together: each mapping costs every fork something. */
static void part_enlarge(const struct part *part, uintptr_t begin, uintptr_t end)
{
    bool has_own;

    while (begin < end) {
        uintptr_t run = begin;

        while (run < end && pages_used(run, &has_own) >= USED_PAGES_MIN)
            run += HUGE_BYTES;
        if (run > begin && !run_move(begin, run - begin, part->protection))
            return;
        begin = run + HUGE_BYTES;
    }
}

/* Put a copy on huge pages in the place of what is there. */
static bool run_move(uintptr_t begin, size_t bytes, int protection)
{
    char *room =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *copy = room + (-(uintptr_t)room & (HUGE_BYTES - 1));
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
    (void)munmap(copy + bytes, HUGE_BYTES - (size_t)(copy - room));
    return moved;
}

/* How many of the pages at `begin` are mapped, and whether any of them is not the file's. */
static unsigned pages_used(uintptr_t begin, bool *has_own)
{
    uint64_t pages[PAGES_MAX];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), count = HUGE_BYTES / page_bytes;
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

/* Whether whoever runs this machine, or this process, wants them. */
static bool has_huge_pages(void)
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

/* ---- heap ---- */

/* Allocate from what was freed until a size is only to be had at the top. The blocks are kept. */
static void holes_fill(uintptr_t top)
{
    for (size_t bytes = PLUG_BYTES_MAX; bytes >= 16;
         bytes = bytes > 1024 ? bytes / 2 : bytes - 16) {
        void *block;

        do
            block = malloc(bytes);
        while (block && (uintptr_t)block < top);
        free(block); /* this one is of the top: no hole was large enough */
    }
}

/* Let the heap end just before a huge page begins, of which nothing was touched yet. What is left
 * before it holds the allocator's own note of where the top is: that would touch the page. */
static void top_align(uintptr_t top)
{
    const uintptr_t note_bytes = 2048, least_bytes = 8192;
    const uintptr_t end = ((top + least_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1)) - note_bytes;
    static void *volatile filling; /* so that no compiler takes this for nothing */

    if (top > 0)
        filling = malloc(end - top - sizeof(size_t) * 2);
    (void)filling;
}

/* Where the part of the heap begins that was not handed out; 0 with an allocator of a sanitizer's.
 */
static uintptr_t heap_top(void)
{
    size_t left_bytes = mallinfo2().keepcost;

    return left_bytes > 0 ? (uintptr_t)sbrk(0) - left_bytes : 0;
}

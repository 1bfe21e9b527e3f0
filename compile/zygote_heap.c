#include "zygote_heap.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "huge_pages.h"

#define PLUG_BYTES_MAX 65536u                /* what is larger is few, and may stay free */
#define OWN_BYTES_MAX  ((uintptr_t)64 << 20) /* as much for each process that waits */

/* What is forked later cannot ask the system any more. */
static bool has_huge_pages;
static uintptr_t heap_begin; /* 0: not known */

static uintptr_t heap_find(void);
static void holes_fill(uintptr_t top);
static void top_align(uintptr_t top);
static void top_touch(void);
static uintptr_t heap_top(void);

void mw_zygote_heap_settle(void)
{
    has_huge_pages = mw_huge_pages_wanted();
    heap_begin = heap_find();
    (void)malloc_trim(0);
    holes_fill(heap_top());
    top_align(heap_top());
}

void mw_zygote_heap_own(void)
{
    uintptr_t begin = (heap_begin + MW_HUGE_PAGE_BYTES - 1) & ~(MW_HUGE_PAGE_BYTES - 1);
    uintptr_t end = (uintptr_t)sbrk(0) & ~(MW_HUGE_PAGE_BYTES - 1);

    if (has_huge_pages && begin > 0 && begin < end && end - begin <= OWN_BYTES_MAX)
        (void)mw_huge_pages_move(begin, end - begin, PROT_READ | PROT_WRITE);
    top_touch();
}

/* Where the first of its mappings begins. */
static uintptr_t heap_find(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uintptr_t begin = 0;

    while (maps && begin == 0 && fgets(line, sizeof(line), maps))
        if (strstr(line, "[heap]"))
            begin = (uintptr_t)strtoull(line, NULL, 16);
    if (maps)
        (void)fclose(maps);
    return begin;
}

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
    const uintptr_t end =
        ((top + least_bytes + MW_HUGE_PAGE_BYTES - 1) & ~(MW_HUGE_PAGE_BYTES - 1)) - note_bytes;
    static void *volatile filling; /* so that no compiler takes this for nothing */

    if (top > 0)
        filling = malloc(end - top - sizeof(size_t) * 2);
    (void)filling;
}

/* Have the first huge page of what will be allocated: not so much that the allocator gives it back.
 */
static void top_touch(void)
{
    const size_t block_bytes = 65536;
    void *volatile blocks[MW_HUGE_PAGE_BYTES / 65536 - 1];

    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        blocks[i] = malloc(block_bytes);
        for (size_t at = 0; blocks[i] && at < block_bytes; at += 4096)
            ((volatile char *)blocks[i])[at] = 0;
    }
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        free(blocks[i]);
}

/* Where the part of the heap begins that was not handed out; 0 with an allocator of a sanitizer's.
 */
static uintptr_t heap_top(void)
{
    size_t left_bytes = mallinfo2().keepcost;

    return left_bytes > 0 ? (uintptr_t)sbrk(0) - left_bytes : 0;
}

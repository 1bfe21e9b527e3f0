/* zygote_heap.h - the heap of the process that workers are forked from.
 *
 * What the zygote freed lies between what it keeps, and a worker that allocates there copies page
 * after page. So the holes are filled, and a worker's first allocation begins new memory, huge
 * pages where the system has them.
 *
 * Threads: for a process that has one thread. */
#ifndef MW_COMPILE_ZYGOTE_HEAP_H
#define MW_COMPILE_ZYGOTE_HEAP_H

/* After all that the zygote needs is allocated, and before the first fork. */
void mw_zygote_heap_settle(void);

/* In what was forked: have the heap for itself, on huge pages, and not page by page as it is
 * written to. Where the system gives none the heap stays what it is. */
void mw_zygote_heap_own(void);

#endif

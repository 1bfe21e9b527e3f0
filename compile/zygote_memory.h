/* zygote_memory.h - the memory of the process that workers are forked from, laid out so that a
 * worker is cheap to fork, to run and to take down.
 *
 * Code: LLVM and clang are 200 MB of it, of which a compile runs through a good part. On pages of
 * 4 KiB each new worker takes a fault for every sixteen of them, the processor looks up their
 * addresses again and again, and the kernel takes them down one by one when the worker is killed.
 * Copied onto huge pages of the zygote, which all workers share, there is nothing to fault in,
 * little to look up and little to take down. Addresses stay what they are; a profiler, though, does
 * not find the symbols any more. It costs 100 to 130 MiB, once for all workers.
 *
 * Heap: what the zygote freed lies between what it keeps, and a worker that allocates there copies
 * page after page. So the holes are filled, and a worker's first allocation begins new memory.
 *
 * Threads: for a process that has one thread, which runs nothing of LLVM meanwhile. */
#ifndef MW_COMPILE_ZYGOTE_MEMORY_H
#define MW_COMPILE_ZYGOTE_MEMORY_H

#include <stddef.h>

/* Before the zygote compiles what its workers will need. */
void mw_zygote_memory_begin(void);

/* After it has, and before the first fork: settle code and heap. Where the system has no huge
 * pages, or does not allow to copy code, that stays as it is. Returns the bytes of code that were
 * moved, which every worker has as resident memory from its start. */
size_t mw_zygote_memory_settle(void);

#endif

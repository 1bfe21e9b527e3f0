/* text_pages.h - the compiler's code on huge pages.
 *
 * LLVM and clang are 200 MB of code, of which a compile runs through a good part. On pages of 4 KiB
 * each new process takes a fault for every sixteen of them, the processor looks up their addresses
 * again and again, and the kernel takes them down one by one when the process ends. Copied onto
 * huge pages of this process, which what it forks shares, there is nothing to fault in, little to
 * look up and little to take down. Addresses stay what they are; a profiler, though, does not find
 * the symbols any more. It costs 100 to 130 MiB, once for all that is forked.
 *
 * Threads: while no thread of the process runs the compiler: for a moment its code is not there. */
#ifndef MW_COMPILE_TEXT_PAGES_H
#define MW_COMPILE_TEXT_PAGES_H

#include <stddef.h>

/* Take back which pages were used until now: the dynamic linker reads many that nobody needs
 * again. */
void mw_text_pages_forget(void);

/* Move the code that was used since onto huge pages. Where the system has none, or does not allow
 * to copy code, it stays where it is. Returns the bytes that were moved. */
size_t mw_text_pages_enlarge(void);

#endif

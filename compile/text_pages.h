/* text_pages.h - the compiler's code on huge pages, in the process that workers are forked from.
 *
 * LLVM and clang are 200 MB of code, of which a compile runs through a good part. On pages of 4 KiB
 * each new worker takes a fault for every sixteen of them, the processor looks up their addresses
 * again and again, and the kernel takes them down one by one when the worker is killed. Copied onto
 * huge pages of this process, which all its children share, there is nothing to fault in, little to
 * look up and little to take down. The addresses stay what they were; a profiler, though, does not
 * find the symbols any more.
 *
 * It costs as much memory as the pages have, once for all workers: about 100 MiB.
 *
 * Threads: for a process that has one thread, which runs nothing of LLVM meanwhile. */
#ifndef MW_COMPILE_TEXT_PAGES_H
#define MW_COMPILE_TEXT_PAGES_H

/* Forget which pages of the compiler's code were used: the dynamic linker reads many that nobody
 * needs again. */
void mw_text_pages_forget(void);

/* Move the code that was used since onto huge pages. Where the system has none, or does not allow
 * to copy code, nothing happens. */
void mw_text_pages_enlarge(void);

#endif

/* futex.h - sleep on a word of memory, and wake who sleeps there.
 *
 * Threads: any; wait blocks. Waking an address whose memory has gone is harmless, as with every
 *          futex: whoever sleeps on what came after wakes for no reason, and looks again. */
#ifndef MILLWRIGHT_FUTEX_H
#define MILLWRIGHT_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleep while `word` holds `expected`, until woken or until `deadline_ns` on mw_clock_ns
 * (UINT64_MAX: never). Returns false when the time was up. May wake for no reason: look again. */
bool mw_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);

/* Wake up to `count` of those who sleep on `word`. Change the word before. */
void mw_futex_wake(_Atomic uint32_t *word, int count);

/* Tell the CPU that this is a loop which waits for another CPU. */
static inline void mw_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif

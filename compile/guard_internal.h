/* guard_internal.h - how a compile tells the guard what it left behind. Private to compile/.
 *
 * Threads: any. */
#ifndef MW_GUARD_INTERNAL_H
#define MW_GUARD_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of heap in use in this process; 0 unless crashes are recovered from: it takes some time. */
uint64_t mw_guard_heap_bytes(void);

/* A compile that began at `heap_bytes` ended without giving back its heap; `crashed`: and its
 * process is in a state that nobody knows. */
void mw_guard_note_loss(uint64_t heap_bytes, bool crashed);

#endif

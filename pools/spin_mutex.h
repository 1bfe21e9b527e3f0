/* spin_mutex.h - a mutex of one word for sections of a few dozen instructions: whoever finds it
 * held tries again for a moment, and then sleeps. With many threads on few CPUs a sleep and a wake
 * cost far more than such a section.
 *
 * Zero bytes are a free mutex; there is nothing to release, and nothing can fail. Nobody may lock
 * it twice, nor unlock it for another: unlike mw_mutex this is not noticed. It may be destroyed by
 * whoever got it last, as soon as the one before has unlocked.
 *
 * Theory (Drepper, "Futexes are tricky", 2011, its third mutex): 0 free, 1 held, 2 held and
 * somebody may sleep. Whoever slept takes it as 2, for there may be others.
 *
 * Threads: any; lock blocks. */
#ifndef MILLWRIGHT_SPIN_MUTEX_H
#define MILLWRIGHT_SPIN_MUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#include <millwright/mutex.h>

struct MW_THREAD_ATTRIBUTE(capability("mutex")) mw_spin_mutex {
    _Atomic uint32_t word;
};

/* The slow halves; call the functions below. */
void mw_spin_mutex_lock_slowly(struct mw_spin_mutex *mutex);
void mw_spin_mutex_wake(struct mw_spin_mutex *mutex);

MW_THREAD_ATTRIBUTE(no_thread_safety_analysis)
static inline void mw_spin_mutex_lock(struct mw_spin_mutex *mutex) MW_ACQUIRE(*mutex)
{
    uint32_t found = 0;

    /* acquire: partner of the release in unlock */
    if (!atomic_compare_exchange_strong_explicit(&mutex->word, &found, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        mw_spin_mutex_lock_slowly(mutex);
}

MW_THREAD_ATTRIBUTE(no_thread_safety_analysis)
static inline void mw_spin_mutex_unlock(struct mw_spin_mutex *mutex) MW_RELEASE(*mutex)
{
    /* release: partner of every acquire of the next owner */
    if (atomic_exchange_explicit(&mutex->word, 0, memory_order_release) == 2)
        mw_spin_mutex_wake(mutex);
}

#endif

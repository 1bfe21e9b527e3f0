#include "spin_mutex.h"
#include "futex.h"

/* About 2 us: several of the sections that it is meant for, and less than a sleep and a wake. On
 * one CPU it is lost, but so short that nobody asks how many there are. */
#define SPINS_MAX 60

void mw_spin_mutex_lock_slowly(struct mw_spin_mutex *mutex)
{
    for (int i = 0; i < SPINS_MAX; i++) {
        uint32_t found = atomic_load_explicit(&mutex->word, memory_order_relaxed);

        /* acquire: partner of the release in unlock */
        if (found == 0 && atomic_compare_exchange_weak_explicit(
                              &mutex->word, &found, 1, memory_order_acquire, memory_order_relaxed))
            return;
        mw_cpu_relax();
    }
    while (atomic_exchange_explicit(&mutex->word, 2, memory_order_acquire) != 0) /* as above */
        (void)mw_futex_wait(&mutex->word, 2, UINT64_MAX);
}

/* The mutex may be gone meanwhile; see futex.h. */
void mw_spin_mutex_wake(struct mw_spin_mutex *mutex)
{
    mw_futex_wake(&mutex->word, 1);
}

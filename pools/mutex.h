/* mutex.h - a pthread mutex and condition variable whose misuse stops the program at once.
 *
 * A failing lock is a programmer's error (an uninitialised or destroyed mutex), so it asserts, in
 * release builds too. The attributes let clang prove at compile time that a function which needs
 * a lock (MW_REQUIRES) is called with it, and that no lock leaks. MW_GUARDED_BY is for variables of
 * file scope: in C, clang 19 cannot tie a field to a lock of its own struct, so there a comment
 * says what the lock guards.
 *
 * Threads: any thread; mw_mutex_lock and mw_cond_wait* block. Condition variables use
 *          CLOCK_MONOTONIC. */
#ifndef MILLWRIGHT_MUTEX_H
#define MILLWRIGHT_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define MW_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define MW_THREAD_ATTRIBUTE(x)
#endif
#define MW_GUARDED_BY(lock) MW_THREAD_ATTRIBUTE(guarded_by(lock))
#define MW_REQUIRES(lock)   MW_THREAD_ATTRIBUTE(requires_capability(lock))
#define MW_ACQUIRE(lock)    MW_THREAD_ATTRIBUTE(acquire_capability(lock))
#define MW_RELEASE(lock)    MW_THREAD_ATTRIBUTE(release_capability(lock))

struct MW_THREAD_ATTRIBUTE(capability("mutex")) mw_mutex {
    pthread_mutex_t os;
};

struct mw_cond {
    pthread_cond_t os;
};

/* Prepare a mutex in the caller's storage. Returns 0, or -ENOMEM/-EAGAIN from the system. */
int mw_mutex_init(struct mw_mutex *mutex);
void mw_mutex_fini(struct mw_mutex *mutex);
void mw_mutex_lock(struct mw_mutex *mutex) MW_ACQUIRE(*mutex);
void mw_mutex_unlock(struct mw_mutex *mutex) MW_RELEASE(*mutex);

/* Prepare a condition variable in the caller's storage. Returns 0, or -ENOMEM/-EAGAIN. */
int mw_cond_init(struct mw_cond *cond);
void mw_cond_fini(struct mw_cond *cond);
void mw_cond_signal(struct mw_cond *cond);
void mw_cond_broadcast(struct mw_cond *cond);
void mw_cond_wait(struct mw_cond *cond, struct mw_mutex *mutex) MW_REQUIRES(*mutex);

/* Wait until signalled or until `deadline_ns` on mw_clock_ns. Returns false when the time was up.
 * Like every wait it may wake for no reason: check the predicate again. */
bool mw_cond_wait_until(struct mw_cond *cond, struct mw_mutex *mutex, uint64_t deadline_ns)
    MW_REQUIRES(*mutex);

#endif

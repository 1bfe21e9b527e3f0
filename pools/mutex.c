#include <assert.h>
#include <errno.h>
#include <time.h>

#include "clock.h"
#include "mutex.h"

/* These are the locking primitives themselves: the analysis knows them by their declarations and
 * cannot look inside. */
#define PRIMITIVE MW_THREAD_ATTRIBUTE(no_thread_safety_analysis)

static void must(int error);

int mw_mutex_init(struct mw_mutex *mutex)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);

    if (error != 0)
        return -error;
    /* a second lock by the owner, or an unlock by another, is reported instead of hanging */
    must(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK));
    error = pthread_mutex_init(&mutex->os, &attributes);
    must(pthread_mutexattr_destroy(&attributes));
    return -error;
}

void mw_mutex_fini(struct mw_mutex *mutex)
{
    must(pthread_mutex_destroy(&mutex->os));
}

PRIMITIVE void mw_mutex_lock(struct mw_mutex *mutex)
{
    must(pthread_mutex_lock(&mutex->os));
}

PRIMITIVE void mw_mutex_unlock(struct mw_mutex *mutex)
{
    must(pthread_mutex_unlock(&mutex->os));
}

int mw_cond_init(struct mw_cond *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);

    if (error != 0)
        return -error;
    must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    error = pthread_cond_init(&cond->os, &attributes);
    must(pthread_condattr_destroy(&attributes));
    return -error;
}

void mw_cond_fini(struct mw_cond *cond)
{
    must(pthread_cond_destroy(&cond->os));
}

void mw_cond_signal(struct mw_cond *cond)
{
    must(pthread_cond_signal(&cond->os));
}

void mw_cond_broadcast(struct mw_cond *cond)
{
    must(pthread_cond_broadcast(&cond->os));
}

void mw_cond_wait(struct mw_cond *cond, struct mw_mutex *mutex)
{
    must(pthread_cond_wait(&cond->os, &mutex->os));
}

bool mw_cond_wait_until(struct mw_cond *cond, struct mw_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / MW_NS_PER_S),
                                .tv_nsec = (long)(deadline_ns % MW_NS_PER_S)};
    int error = pthread_cond_timedwait(&cond->os, &mutex->os, &deadline);

    if (error == ETIMEDOUT)
        return false;
    must(error);
    return true;
}

static void must(int error)
{
    assert(error == 0);
    (void)error;
}

#include <assert.h>
#include <pthread.h>

#include "process.h"

_Atomic unsigned mw_process_forks;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watch_error; /* written once, under `once` */

static void watch(void);
static void count_fork(void);

int mw_process_watch(void)
{
    int error = pthread_once(&once, watch);

    assert(error == 0);
    (void)error;
    return watch_error;
}

static void watch(void)
{
    watch_error = -pthread_atfork(NULL, NULL, count_fork);
}

static void count_fork(void)
{
    atomic_fetch_add_explicit(&mw_process_forks, 1, memory_order_relaxed); /* see the header */
}

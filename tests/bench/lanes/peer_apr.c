/* peer_apr.c - the Apache Portable Runtime's thread pool, with all its threads from the start. */
#include <apr_general.h>
#include <apr_thread_pool.h>
#include <errno.h>

#include "peer_optional.h"
#include "peers.h"

static apr_thread_pool_t *pool;

static void *APR_THREAD_FUNC run(apr_thread_t *thread, void *data);

int peer_apr_open(const struct peer_options *options)
{
    apr_pool_t *memory;

    if (apr_initialize() != APR_SUCCESS || apr_pool_create(&memory, NULL) != APR_SUCCESS)
        return -ENOMEM;
    return apr_thread_pool_create(&pool, options->threads, options->threads, memory) == APR_SUCCESS
               ? 0
               : -EAGAIN;
}

int peer_apr_submit(unsigned producer, struct task *task)
{
    (void)producer;
    return apr_thread_pool_push(pool, run, task, APR_THREAD_TASK_PRIORITY_NORMAL, NULL) ==
                   APR_SUCCESS
               ? 0
               : -EAGAIN;
}

static void *APR_THREAD_FUNC run(apr_thread_t *thread, void *data)
{
    (void)thread;
    task_run(data);
    return NULL;
}

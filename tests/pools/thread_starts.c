#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <millwright/flow.h>

#include "thread_starts.h"

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Where a sanitizer keeps its own pthread_create when somebody defines another. */
__attribute__((weak)) create_fn __interceptor_pthread_create;

/* Numbers of their own, publishing nothing: relaxed order, no partner. */
static _Atomic unsigned started;
static _Atomic unsigned started_under_leaf;
static _Atomic int allowed = -1;
static _Atomic int refused_after = -1; /* so many more succeed, then one fails; -1: none does */
static _Atomic unsigned held;
static _Atomic bool holding;

static bool take_leave(void);
static bool is_refused(void);
static void be_held(void);

unsigned thread_starts_count(void)
{
    return atomic_load_explicit(&started, memory_order_relaxed);
}

unsigned thread_starts_under_leaf(void)
{
    return atomic_load_explicit(&started_under_leaf, memory_order_relaxed);
}

void thread_starts_allow(int n)
{
    atomic_store_explicit(&allowed, n, memory_order_relaxed);
}

void thread_starts_refuse_one(int n)
{
    atomic_store_explicit(&refused_after, n, memory_order_relaxed);
}

void thread_starts_hold(void)
{
    atomic_store_explicit(&holding, true, memory_order_relaxed);
}

void thread_starts_let_go(void)
{
    atomic_store_explicit(&holding, false, memory_order_relaxed);
}

unsigned thread_starts_held(void)
{
    return atomic_load_explicit(&held, memory_order_relaxed);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                   void *arg)
{
    create_fn *create = __interceptor_pthread_create;
    int error;

    if (!take_leave() || is_refused())
        return EAGAIN;
    be_held();
    if (create == NULL)
        create = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
    assert(create != NULL);
    error = create(thread, attributes, fn, arg);
    if (error == 0) {
        atomic_fetch_add_explicit(&started, 1, memory_order_relaxed);
        if (mw_flow_current() != 0)
            atomic_fetch_add_explicit(&started_under_leaf, 1, memory_order_relaxed);
    }
    return error;
}

static bool take_leave(void)
{
    int left = atomic_load_explicit(&allowed, memory_order_relaxed);

    while (left > 0)
        if (atomic_compare_exchange_weak_explicit(&allowed, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return left < 0;
}

static bool is_refused(void)
{
    int left = atomic_load_explicit(&refused_after, memory_order_relaxed);

    while (left >= 0)
        if (atomic_compare_exchange_weak_explicit(&refused_after, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return left == 0;
    return false;
}

static void be_held(void)
{
    if (!atomic_load_explicit(&holding, memory_order_relaxed))
        return;
    atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    while (atomic_load_explicit(&holding, memory_order_relaxed))
        sched_yield();
    atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
}

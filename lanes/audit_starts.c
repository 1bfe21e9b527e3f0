/* audit_starts.c - libmillwright-audit: stands in front of pthread_create, and tells audit.h of
 * each thread that is started under a leaf. See there for how to load it. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <millwright/flow.h>

#include "audit.h"

/* ThreadSanitizer's own pthread_create calls this one, and its threads know nothing of it until
 * their entry: there they do not flow from the leaf, and calls are counted all the same. */
#if defined(__SANITIZE_THREAD__)
#define THREADS_FLOW false
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_FLOW false
#endif
#endif
#ifndef THREADS_FLOW
#define THREADS_FLOW true
#endif

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* What a thread that flows from a leaf needs at its entry. Made by the starter, freed by it. */
struct entry {
    void *(*fn)(void *arg);
    void *arg;
    uint64_t leaf;
};

static create_fn *next_create(void);
static void *run_entry(void *arg);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                   void *arg)
{
    create_fn *create = next_create();
    uint64_t leaf = mw_flow_current();
    struct entry *entry = THREADS_FLOW && leaf != 0 ? malloc(sizeof *entry) : NULL;
    int error;

    if (entry != NULL) { /* else the thread is started all the same, and flows from nobody */
        *entry = (struct entry){fn, arg, leaf};
        fn = run_entry;
        arg = entry;
    }
    error = create(thread, attributes, fn, arg);
    if (error != 0)
        free(entry);
    mw_audit_foreign_start(error == 0 ? leaf : 0);
    return error;
}

/* Found once; two threads that look at once find the same. */
static create_fn *next_create(void)
{
    /* The address is all there is to publish: relaxed order, no partner. */
    static _Atomic(create_fn *) found;
    create_fn *create = atomic_load_explicit(&found, memory_order_relaxed);

    if (create == NULL) {
        create = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
        assert(create != NULL); /* libc has one */
        atomic_store_explicit(&found, create, memory_order_relaxed);
    }
    return create;
}

static void *run_entry(void *arg)
{
    struct entry entry = *(struct entry *)arg;

    free(arg);
    mw_flow_enter(entry.leaf);
    return entry.fn(entry.arg);
}

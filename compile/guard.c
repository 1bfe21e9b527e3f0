/* guard.c - see guard.h.
 *
 * clang measures its stack by the distance of two addresses and starts a thread of its own when
 * that comes near 8 MiB, whatever there really is. When the bottom that it noted is further away
 * than that at all times, it takes the stack for one that it does not understand and lets it be.
 * So the bottom is noted while the thread runs, for a moment, on a stack far from its own. libclang
 * holds a copy of clang that must be told the same. */
#include "guard.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <clang-c/Index.h>

#include "clang_bridge.h"
#include "guard_internal.h"

#define SIGNAL_STACK_BYTES (UINT64_C(128) << 10)
#define FAR_STACK_BYTES    (UINT64_C(1) << 20)
#define FAR_BYTES          (UINT64_C(16) << 20) /* twice what clang wants */

/* Relaxed: numbers of their own, which publish nothing. */
static _Atomic bool recovery;
static _Atomic uint64_t recovered;
static _Atomic uint64_t leaked_bytes;

/* The calling thread's. NULL: not entered, or the host's own signal stack is used. */
static _Thread_local void *signal_stack;
static _Thread_local bool entered;

static int stack_check(void);
static int signal_stack_enter(void);
static int note_far_stack(void);

int mw_guard_recover_crashes(void)
{
    int error = mw_bridge_recover();

    if (error == 0)
        atomic_store_explicit(&recovery, true, memory_order_relaxed);
    return error;
}

int mw_guard_enter(void)
{
    int error;

    if (entered)
        return 0;
    error = stack_check();
    if (error == 0)
        error = signal_stack_enter();
    if (error)
        return error;
    error = note_far_stack();
    entered = true;
    if (error)
        mw_guard_leave();
    return error;
}

void mw_guard_leave(void)
{
    const stack_t none = {.ss_flags = SS_DISABLE};

    entered = false;
    if (!signal_stack)
        return;
    if (sigaltstack(&none, NULL) == 0)
        munmap(signal_stack, SIGNAL_STACK_BYTES);
    signal_stack = NULL;
}

void mw_guard_snapshot(struct mw_guard_stats *stats)
{
    *stats = (struct mw_guard_stats){
        .crash_recovery = atomic_load_explicit(&recovery, memory_order_relaxed),
        .recovered = atomic_load_explicit(&recovered, memory_order_relaxed),
        .leaked_bytes = atomic_load_explicit(&leaked_bytes, memory_order_relaxed),
    };
    stats->restart_advised =
        stats->recovered > 0 || stats->leaked_bytes >= MW_GUARD_LEAKED_BYTES_ADVISED;
}

uint64_t mw_guard_heap_bytes(void)
{
    struct mallinfo2 info;

    if (!atomic_load_explicit(&recovery, memory_order_relaxed))
        return 0;
    info = mallinfo2();
    return (uint64_t)info.uordblks + (uint64_t)info.hblkhd;
}

void mw_guard_note_loss(uint64_t heap_bytes, bool crashed)
{
    uint64_t now = mw_guard_heap_bytes();

    if (now > heap_bytes)
        atomic_fetch_add_explicit(&leaked_bytes, now - heap_bytes, memory_order_relaxed);
    if (crashed)
        atomic_fetch_add_explicit(&recovered, 1, memory_order_relaxed);
}

/* Where the calling thread's stack lies. Returns 0 or a negative errno. */
static int stack_find(uint64_t *base, uint64_t *bytes)
{
    pthread_attr_t attributes;
    void *address = NULL;
    size_t size = 0, guard = 0;
    int error = pthread_getattr_np(pthread_self(), &attributes);

    if (error)
        return -error;
    error = pthread_attr_getstack(&attributes, &address, &size);
    if (error == 0)
        error = pthread_attr_getguardsize(&attributes, &guard);
    if (pthread_attr_destroy(&attributes) || error)
        return error ? -error : -EINVAL;
    *base = (uint64_t)address;
    *bytes = size + guard; /* the guard was taken from what was asked for */
    return 0;
}

static int stack_check(void)
{
    uint64_t base, bytes;
    int error = stack_find(&base, &bytes);

    if (error)
        return error;
    return bytes < MW_GUARD_STACK_BYTES_MIN ? -ENOSPC : 0;
}

static int signal_stack_enter(void)
{
    stack_t stack = {.ss_size = SIGNAL_STACK_BYTES};
    stack_t present;

    if (sigaltstack(NULL, &present) == 0 && !(present.ss_flags & SS_DISABLE))
        return 0;
    stack.ss_sp =
        mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack.ss_sp == MAP_FAILED)
        return -ENOMEM;
    if (sigaltstack(&stack, NULL) < 0) {
        int error = -errno;

        munmap(stack.ss_sp, stack.ss_size);
        return error;
    }
    signal_stack = stack.ss_sp;
    return 0;
}

/* Runs on the far stack. The call of libclang notes its stack before it finds that there is
 * nothing to parse. */
static void note_stack(void)
{
    CXTranslationUnit unit = NULL;

    mw_bridge_note_stack();
    (void)clang_parseTranslationUnit2FullArgv(NULL, NULL, NULL, 0, NULL, 0, 0, &unit);
}

/* One end of a stretch this long is far from the thread's stack, wherever the kernel puts it. */
static int note_far_stack(void)
{
    const uint64_t stretch = 2 * FAR_BYTES + FAR_STACK_BYTES;
    ucontext_t here, there;
    uint64_t base, bytes;
    char *place, *stack;
    int error = stack_find(&base, &bytes);

    if (error)
        return error;
    place = mmap(NULL, stretch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return -ENOMEM;
    stack = (uint64_t)place < base ? place : place + stretch - FAR_STACK_BYTES;
    if (mprotect(stack, FAR_STACK_BYTES, PROT_READ | PROT_WRITE) < 0 || getcontext(&there) < 0) {
        error = -ENOMEM;
        goto out;
    }
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = FAR_STACK_BYTES;
    there.uc_link = &here;
    makecontext(&there, note_stack, 0);
    if (swapcontext(&here, &there) < 0)
        error = -errno;
out:
    munmap(place, stretch);
    return error;
}

/* isolate_world.h - compiles in processes of their own, written as data, and a look at those
 * processes from outside, for the tests of isolate.h.
 *
 * Threads: world_compile from any thread; the rest from one. What fails ends the test. */
#ifndef MILLWRIGHT_TESTS_ISOLATE_WORLD_H
#define MILLWRIGHT_TESTS_ISOLATE_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include <millwright/isolate.h>

#include "trial.h"

#define WORLD_MS            UINT64_C(1000000)
#define WORLD_PROCESSES_MAX 64

struct world {
    const struct mw_toolchain *toolchain;
    struct mw_isolate *isolate;
};

/* One compile, and what came of it. */
struct world_run {
    struct world *world;
    const struct trial *trial;
    struct mw_limits limits;
    struct mw_isolate_stop *stop;
    int rc;
    struct mw_compile_result result;
    struct mw_usage usage;
    pthread_t thread; /* of world_begin */
};

struct world_processes {
    pid_t pids[WORLD_PROCESSES_MAX];
    size_t count;
};

/* Sources: plain ones, and those that do harm. */
extern const struct trial world_c, world_cxx, world_warns, world_fails;
extern const struct trial world_endless; /* computes for many seconds and looks at nothing else */
extern const struct trial world_hungry;  /* asks for 2 GiB at once */
extern const struct trial world_hungry_bit_by_bit;
extern const struct trial world_large;   /* an object of a megabyte */
extern const struct trial world_larger;  /* an object of 32 MiB */
extern const struct trial world_refused; /* for a target that needs -mllvm */
extern const struct trial world_breaks;  /* right, and LLVM has no instructions for it */
extern struct trial world_crashes;       /* filled by world_setup */

/* A world as cmocka's state: its options are the worker's path and two workers ready. */
int world_setup(void **state);
int world_teardown(void **state);
struct mw_isolate_options world_options(const struct world *world);

/* Compile on this thread; or on one of its own that is called `name`, and wait for that. */
void world_compile(struct world_run *run);
void world_begin(struct world_run *run, const char *name);
void world_join(struct world_run *run);
void world_run_fini(struct world_run *run);

/* Check that a plain source compiles to the bytes that mw_compile makes of it. */
void world_check_compiles(struct world *world, const struct trial *trial);

/* The children of a process; the one zygote of this one, and the worker of a zygote that is called
 * `name`, both awaited. */
struct world_processes world_children(pid_t parent);
pid_t world_zygote(void);
pid_t world_worker_await(pid_t zygote, const char *name);

/* False as well when it is gone. */
bool world_is_called(pid_t pid, const char *name);

/* The pages that a process has touched for the first time, ever. 0 when it is gone. */
unsigned long world_faults(pid_t pid);

/* KiB of its memory that are on huge pages. */
unsigned long world_huge_kib(pid_t pid);

/* Wait until `pid` has used CPU for `ms`; until it runs no more (reaped or not). */
void world_cpu_await(pid_t pid, unsigned ms);
bool world_gone_await(pid_t pid);

/* How many descriptors this process has open. */
size_t world_descriptors(void);

#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "isolate_world.h"
#include "support/sanitized.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct mw_isolate_stats stats_of(const struct world *world)
{
    struct mw_isolate_stats stats;

    mw_isolate_snapshot(world->isolate, &stats);
    return stats;
}

/* Breaks when a worker compiles anything else, or otherwise, than this process does. */
static void isolated_compile_is_that_of_this_process(void **state)
{
    const struct trial *const trials[] = {&world_c, &world_cxx, &world_warns, &world_fails,
                                          &world_refused};

    for (unsigned emit = 0; emit < MW_EMIT_KINDS; emit++) {
        struct trial trial = world_c;

        trial.emit = (enum mw_emit_kind)emit;
        world_check_compiles(*state, &trial);
    }
    for (size_t i = 0; i < COUNT(trials); i++)
        world_check_compiles(*state, trials[i]);
}

/* Breaks when an answer does not say what the compile used. */
static void usage_is_told(void **state)
{
    struct world_run run = {.world = *state, .trial = &world_c};

    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_in_range(run.usage.cpu_ns, 1, run.usage.wall_ns * 2);
    assert_in_range(run.usage.memory_peak_bytes, 1 << 20, 1u << 30);
    assert_int_equal(run.usage.output_bytes, run.result.artifact_bytes);
    assert_int_equal(run.usage.hit, MW_LIMIT_NONE);
    assert_int_equal(run.usage.signal, 0);
    world_run_fini(&run);
}

/* Breaks when source that kills the compiler does more than that, or is not told of. */
static void crash_is_answered_and_the_next_compile_right(void **state)
{
    struct world_run run = {.world = *state, .trial = &world_crashes};
    uint64_t crashed = stats_of(*state).crashed;
    const struct mw_diagnostic *said;

    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_false(run.result.ok);
    assert_null(run.result.artifact);
    assert_int_equal(run.usage.signal, SIGSEGV);
    said = diagnostic_find(&run.result.diagnostics, "SIGSEGV");
    assert_non_null(said);
    assert_non_null(strstr(said->message, "nest less deeply"));
    assert_int_equal(stats_of(*state).crashed, crashed + 1);
    world_run_fini(&run);
    world_check_compiles(*state, &world_c);
}

/* Breaks when the explanation that a process with a folder to write gives is lost in a sandbox. */
static void breakdown_is_explained(void **state)
{
    struct world_run run = {.world = *state, .trial = &world_breaks};
    const struct mw_diagnostic *reason;

    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_false(run.result.ok);
    reason = diagnostic_find(&run.result.diagnostics, "error in backend: Cannot select");
    assert_non_null(reason);
    assert_int_equal(reason->note_count, 1);
    assert_non_null(strstr(reason->notes[0].message, "the source itself has no errors"));
    world_run_fini(&run);
}

/* Breaks when work without end outlives its deadline, or the answer hides which one that was. */
static void wall_limit_ends_endless_work(void **state)
{
    struct world_run run = {
        .world = *state, .trial = &world_endless, .limits = {.wall_ns = 300 * WORLD_MS}};

    world_compile(&run);
    assert_int_equal(run.rc, -ETIMEDOUT);
    assert_int_equal(run.usage.hit, MW_LIMIT_WALL);
    assert_int_equal(run.usage.hit_value, run.limits.wall_ns);
    assert_null(run.result.artifact);
    world_run_fini(&run);
}

/* Breaks when CPU time is taken for wall time, or counted in whole seconds. */
static void cpu_limit_ends_endless_work(void **state)
{
    struct world_run run = {
        .world = *state, .trial = &world_endless, .limits = {.cpu_ns = 200 * WORLD_MS}};

    world_compile(&run);
    assert_int_equal(run.rc, -EDQUOT);
    assert_int_equal(run.usage.hit, MW_LIMIT_CPU);
    assert_int_equal(run.usage.hit_value, run.limits.cpu_ns);
    assert_in_range(run.usage.cpu_ns, run.limits.cpu_ns, UINT64_C(900) * WORLD_MS);
    world_run_fini(&run);
}

/* Breaks when a compile can have more memory than it may, whether it asks for all at once or bit by
 * bit, or when that is taken for a crash. */
static void memory_limit_ends_hungry_work(void **state)
{
    const struct trial *const trials[] = {&world_hungry, &world_hungry_bit_by_bit};

    if (SANITIZED) /* there the memory of a process cannot be limited */
        skip();
    for (size_t i = 0; i < COUNT(trials); i++) {
        struct world_run run = {
            .world = *state, .trial = trials[i], .limits = {.memory_bytes = 64u << 20}};

        world_compile(&run);
        assert_int_equal(run.rc, -EDQUOT);
        assert_int_equal(run.usage.hit, MW_LIMIT_MEMORY);
        assert_int_equal(run.usage.hit_value, run.limits.memory_bytes);
        assert_in_range(run.usage.memory_peak_bytes, 1 << 20, 400u << 20);
        world_run_fini(&run);
    }
}

/* Breaks when an artifact over its bound is answered, or one just at the bound is not. */
static void output_limit_is_exact(void **state)
{
    struct world_run run = {.world = *state, .trial = &world_large};
    uint64_t bytes;

    world_compile(&run);
    assert_int_equal(run.rc, 0);
    bytes = run.result.artifact_bytes;
    world_run_fini(&run);

    run.limits.output_bytes = bytes;
    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.result.artifact_bytes, bytes);
    world_run_fini(&run);

    run.limits.output_bytes = bytes - 1;
    world_compile(&run);
    assert_int_equal(run.rc, -EDQUOT);
    assert_int_equal(run.usage.hit, MW_LIMIT_OUTPUT);
    assert_int_equal(run.usage.output_bytes, bytes);
    assert_null(run.result.artifact);
    world_run_fini(&run);
}

/* Breaks when a stop from another thread, or one that came before, does not end the compile. */
static void stop_ends_a_compile_at_any_time(void **state)
{
    struct mw_isolate_stop stop = {0};
    struct world_run run = {.world = *state, .trial = &world_endless, .stop = &stop};
    uint64_t stopped = stats_of(*state).stopped;
    pid_t worker;

    world_begin(&run, "driver-stop");
    worker = world_worker_await(world_zygote(), "driver-stop");
    world_cpu_await(worker, 50);
    mw_isolate_stop(&stop);
    world_join(&run);
    assert_int_equal(run.rc, -ECANCELED);
    assert_true(world_gone_await(worker));

    world_compile(&run); /* it is still set */
    assert_int_equal(run.rc, -ECANCELED);
    assert_int_equal(stats_of(*state).stopped, stopped + 2);
    mw_isolate_stop_fini(&stop);

    run.trial = &world_c; /* and now it is not */
    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_true(run.result.ok);
    mw_isolate_stop_fini(&stop);
    world_run_fini(&run);
}

/* Breaks when `top` would show a compile as anything but the thread that drives it. */
static void worker_has_name_and_nice_of_its_thread(void **state)
{
    struct mw_isolate_stop stop = {0};
    struct world_run run = {.world = *state, .trial = &world_endless, .stop = &stop};
    int nice_before = getpriority(PRIO_PROCESS, 0);
    int nice_wanted = nice_before < 19 ? nice_before + 1 : 19;
    pid_t worker;

    assert_int_equal(setpriority(PRIO_PROCESS, 0, nice_wanted), 0); /* inherited by the thread */
    world_begin(&run, "driver-named");
    worker = world_worker_await(world_zygote(), "driver-named");
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)worker), nice_wanted);
    mw_isolate_stop(&stop);
    world_join(&run);
    mw_isolate_stop_fini(&stop);
    (void)setpriority(PRIO_PROCESS, 0, nice_before); /* without privilege it stays */
}

/* Breaks when a worker that somebody kills hangs its thread, or goes unanswered. */
static void killed_worker_is_answered(void **state)
{
    struct world_run run = {.world = *state, .trial = &world_endless};
    pid_t worker;

    world_begin(&run, "driver-kill");
    worker = world_worker_await(world_zygote(), "driver-kill");
    world_cpu_await(worker, 20);
    assert_int_equal(kill(worker, SIGKILL), 0);
    world_join(&run);
    assert_int_equal(run.rc, 0);
    assert_false(run.result.ok);
    assert_int_equal(run.usage.signal, SIGKILL);
    assert_non_null(diagnostic_find(&run.result.diagnostics, "from outside"));
    world_run_fini(&run);
    world_check_compiles(*state, &world_c);
}

/* What on_work told. */
struct told {
    unsigned begun, ended;
    pid_t pid;
    bool alive; /* it was there when it ended */
};

static void on_work(void *user, pid_t worker, bool begins)
{
    struct told *told = user;

    if (begins) {
        assert_int_equal(told->begun++, told->ended);
        told->pid = worker;
    } else {
        assert_int_equal(++told->ended, told->begun);
        assert_int_equal(worker, told->pid);
    }
    told->alive = kill(worker, 0) == 0;
}

/* Breaks when whoever accounts for workers does not hear of each, of its begin and its end, or too
 * late to ask what it used. */
static void work_is_told_to_who_accounts_for_it(void **state)
{
    struct world *first = *state, world = {.toolchain = first->toolchain};
    struct mw_isolate_options options = world_options(&world);
    struct world_run run = {.world = &world, .trial = &world_endless};
    struct told told = {0};
    char why[256];

    options.on_work = on_work;
    options.user = &told;
    assert_int_equal(mw_isolate_new(&world.isolate, &options, why, sizeof(why)), 0);
    world_check_compiles(&world, &world_c);
    assert_int_equal(told.begun, 1);
    assert_int_equal(told.ended, 1);
    assert_true(told.alive);
    run.limits.cpu_ns = 20 * WORLD_MS;
    world_compile(&run);
    assert_int_equal(run.rc, -EDQUOT);
    assert_int_equal(told.ended, 2);
    world_run_fini(&run);
    mw_isolate_free(world.isolate);
}

/* Breaks when workers that die while they wait take a request along. */
static void killed_waiting_workers_are_replaced(void **state)
{
    struct world_processes workers = world_children(world_zygote());

    assert_true(workers.count > 0);
    for (size_t i = 0; i < workers.count; i++)
        (void)kill(workers.pids[i], SIGKILL);
    world_check_compiles(*state, &world_c);
}

/* Breaks when the end of the zygote takes a request along, or the service. */
static void killed_zygote_is_replaced_and_the_request_tried_again(void **state)
{
    struct mw_isolate_stop stop = {0};
    struct world_run run = {.world = *state, .trial = &world_endless, .stop = &stop};
    struct mw_isolate_stats before = stats_of(*state);
    pid_t zygote = world_zygote(), worker;

    world_begin(&run, "driver-zygote");
    worker = world_worker_await(zygote, "driver-zygote");
    world_cpu_await(worker, 20);
    assert_int_equal(kill(zygote, SIGKILL), 0);
    assert_true(world_gone_await(worker));
    while (stats_of(*state).retries == before.retries) /* until it is tried again */
        (void)usleep(10000);
    worker = world_worker_await(world_zygote(), "driver-zygote");
    mw_isolate_stop(&stop);
    world_join(&run);
    assert_int_equal(run.rc, -ECANCELED);
    assert_int_equal(stats_of(*state).zygote_restarts, before.zygote_restarts + 1);
    assert_true(world_gone_await(zygote));
    mw_isolate_stop_fini(&stop);
    world_check_compiles(*state, &world_c);
}

/* Breaks when threads that compile at once get one another's answers, or one that waits for a
 * worker sleeps on while another has heard of it. */
static void threads_compile_at_once(void **state)
{
    struct world_run runs[12];
    struct mw_compile_result here[2];
    const struct trial *const trials[] = {&world_c, &world_cxx};
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(runs); i++) {
        runs[i] = (struct world_run){.world = world, .trial = trials[i % 2]};
        world_begin(&runs[i], "driver-many");
    }
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(trial_leaf(mw_compile, world->toolchain, trials[i], &here[i]), 0);
    for (size_t i = 0; i < COUNT(runs); i++) {
        world_join(&runs[i]);
        assert_int_equal(runs[i].rc, 0);
        assert_int_equal(runs[i].result.artifact_bytes, here[i % 2].artifact_bytes);
        assert_memory_equal(runs[i].result.artifact, here[i % 2].artifact,
                            here[i % 2].artifact_bytes);
        world_run_fini(&runs[i]);
    }
    mw_compile_result_fini(&here[0]);
    mw_compile_result_fini(&here[1]);
}

struct harassed {
    struct world *world;
    pthread_t thread;
    _Atomic bool *over;
    unsigned right, killed, other;
};

static void *compile_harassed(void *arg)
{
    struct harassed *harassed = arg;

    while (
        !atomic_load_explicit(harassed->over, memory_order_relaxed)) { /* partner: main's store */
        struct world_run run = {.world = harassed->world, .trial = &world_warns};

        world_compile(&run);
        if (run.rc == 0 && run.result.ok)
            harassed->right++;
        else if (run.rc == -EAGAIN || (run.rc == 0 && run.usage.signal == SIGKILL))
            harassed->killed++;
        else
            harassed->other++;
        world_run_fini(&run);
    }
    return NULL;
}

/* Kill a worker, mostly, or else the zygote. */
static void kill_somebody(unsigned round)
{
    struct world_processes zygotes = world_children(getpid()), workers;

    if (zygotes.count == 0)
        return;
    workers = world_children(zygotes.pids[0]);
    if (round % 5 == 4 || workers.count == 0)
        (void)kill(zygotes.pids[0], SIGKILL);
    else
        (void)kill(workers.pids[round % workers.count], SIGKILL);
}

/* Breaks when a kill at any moment wedges a thread, gives a wrong answer, or leaves something. */
static void kills_at_any_moment_wedge_nothing(void **state)
{
    struct harassed threads[3] = {{0}};
    _Atomic bool over = false;
    unsigned right = 0;

    for (size_t i = 0; i < COUNT(threads); i++) {
        threads[i] = (struct harassed){.world = *state, .over = &over};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, compile_harassed, &threads[i]),
                         0);
    }
    for (unsigned round = 0; round < 60; round++) {
        (void)usleep(1000 * (20 + 37 * round % 61));
        kill_somebody(round);
    }
    atomic_store_explicit(&over, true, memory_order_relaxed); /* partner: the threads' load */
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
        assert_int_equal(threads[i].other, 0);
        right += threads[i].right;
    }
    assert_true(right > 0);
    assert_int_equal(stats_of(*state).running, 0);
    world_check_compiles(*state, &world_c);
}

/* Breaks when compiles leave a descriptor, a zombie or a process behind. */
static void many_compiles_leave_nothing(void **state)
{
    struct world *world = *state;
    struct world own = {.toolchain = world->toolchain};
    struct mw_isolate_options options = world_options(world);
    size_t descriptors = world_descriptors(), between = 0;
    struct world_processes workers;
    struct mw_isolate_stats stats;
    char why[256] = "";
    pid_t zygote;

    mw_isolate_free(world->isolate); /* so that ours are the only ones */
    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    zygote = world_zygote();
    for (unsigned i = 0; i < 300; i++) {
        struct world_run run = {.world = &own, .trial = &world_warns};

        if (i % 20 == 0)
            run.trial = &world_crashes;
        world_compile(&run);
        assert_int_equal(run.rc, 0);
        assert_int_equal(run.result.ok, i % 20 != 0);
        world_run_fini(&run);
        if (i == 10)
            between = world_descriptors();
    }
    stats = stats_of(&own);
    assert_int_equal(stats.running, 0);
    assert_true(world_descriptors() <= between + 2 * 3); /* two more may wait, three each */
    workers = world_children(zygote);
    assert_true(workers.count <= 2 + 2); /* those that wait, and those that end */
    mw_isolate_free(own.isolate);
    for (size_t i = 0; i < workers.count; i++)
        assert_int_equal(kill(workers.pids[i], 0), -1);
    assert_int_equal(world_children(getpid()).count, 0);
    assert_int_equal(mw_isolate_new(&world->isolate, &options, why, sizeof(why)), 0);
    assert_in_range(world_descriptors(), 1, descriptors + 2 * 3);
}

/* The host of host_killed_leaves_no_process: it compiles without end, and has a child that holds a
 * copy of each of its sockets. */
static void host_run(const struct world *world, int tell)
{
    struct world own = {.toolchain = world->toolchain};
    struct mw_isolate_options options = world_options(world);
    struct world_run run = {.world = &own, .trial = &world_endless};
    char why[256] = "";
    pid_t zygote, pids[3];

    if (mw_isolate_new(&own.isolate, &options, why, sizeof(why)))
        _exit(1);
    zygote = world_zygote();
    pids[2] = fork(); /* with a copy of all sockets */
    if (pids[2] == 0) {
        for (;;)
            pause();
    }
    world_begin(&run, "driver-host");
    pids[0] = zygote;
    pids[1] = world_worker_await(pids[0], "driver-host");
    world_cpu_await(pids[1], 50);
    if (write(tell, pids, sizeof(pids)) != sizeof(pids))
        _exit(1);
    for (;;)
        pause();
}

static void check_host_killed(const struct world *world, bool with_zygote)
{
    struct world_processes workers;
    int tell[2], status;
    pid_t host, pids[3];
    bool gone;

    assert_int_equal(pipe(tell), 0);
    host = fork();
    assert_true(host >= 0);
    if (host == 0)
        host_run(world, tell[1]);
    close(tell[1]);
    assert_int_equal(read(tell[0], pids, sizeof(pids)), sizeof(pids));
    close(tell[0]);
    workers = world_children(pids[0]);
    assert_true(workers.count >= 2);
    assert_int_equal(kill(host, SIGKILL), 0);
    if (with_zygote)
        (void)kill(pids[0], SIGKILL);
    assert_int_equal(waitpid(host, &status, 0), host);
    gone = world_gone_await(pids[0]);
    for (size_t i = 0; i < workers.count; i++)
        gone = world_gone_await(workers.pids[i]) && gone;
    assert_int_equal(kill(pids[2], SIGKILL), 0); /* it was there all the time */
    assert_true(gone);
}

/* Breaks when anything outlives a host that had no time to end it: the zygote, who waits, and who
 * is deep in a compile; also when a forked child of the host lives on. */
static void host_killed_leaves_no_process(void **state)
{
    check_host_killed(*state, false);
}

/* Breaks when a worker that computes needs the zygote, or the host, to end it. */
static void host_and_zygote_killed_leave_no_process(void **state)
{
    check_host_killed(*state, true);
}

/* Breaks when a forked child of the host would share, or end, its parent's workers. */
static void forked_child_is_refused(void **state)
{
    struct world *world = *state;
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        struct world_run run = {.world = world, .trial = &world_c};

        world_compile(&run);
        mw_isolate_free(world->isolate);
        _exit(run.rc == -EOWNERDEAD ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    world_check_compiles(world, &world_c);
}

/* Breaks when a worker that may be used again is not, or is used too often, or after a fault. */
static void persistent_worker_is_used_again_until_its_bound(void **state)
{
    const struct world *world = *state;
    struct world own = {.toolchain = world->toolchain};
    struct mw_isolate_options options = world_options(world);
    uint64_t began;
    char why[256] = "";

    options.ready = 1;
    options.requests_max = 4;
    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    began = stats_of(&own).started;
    for (unsigned i = 0; i < 3; i++)
        world_check_compiles(&own, i == 1 ? &world_fails : &world_c);
    assert_int_equal(stats_of(&own).started, began);
    world_check_compiles(&own, &world_warns); /* its fourth and last */
    world_check_compiles(&own, &world_cxx);
    assert_int_equal(stats_of(&own).started, began + 1);
    for (unsigned i = 0; i < 2; i++) {
        struct world_run run = {.world = &own, .trial = &world_crashes};

        world_compile(&run);
        assert_int_equal(run.rc, 0);
        world_run_fini(&run);
    }
    world_check_compiles(&own, &world_warns);
    assert_int_equal(stats_of(&own).started, began + 3);
    mw_isolate_free(own.isolate);
}

/* Breaks when one request answers for the memory of an earlier one of the same worker. */
static void persistent_worker_peaks_anew(void **state)
{
    const struct world *world = *state;
    struct world own = {.toolchain = world->toolchain};
    struct mw_isolate_options options = world_options(world);
    const struct trial *const trials[] = {&world_c, &world_larger, &world_c};
    uint64_t peaks[COUNT(trials)], began;
    char why[256] = "";

    if (SANITIZED) /* which keeps what is freed */
        skip();
    options.ready = 1;
    options.requests_max = 100;
    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    began = stats_of(&own).started;
    for (size_t i = 0; i < COUNT(trials); i++) {
        struct world_run run = {.world = &own, .trial = trials[i]};

        world_compile(&run);
        assert_int_equal(run.rc, 0);
        peaks[i] = run.usage.memory_peak_bytes;
        world_run_fini(&run);
    }
    assert_int_equal(stats_of(&own).started, began);
    assert_true(peaks[1] > peaks[0] + (32u << 20));
    assert_true(peaks[2] < peaks[0] + (16u << 20));
    mw_isolate_free(own.isolate);
}

/* Breaks when a worker that nobody needs at once does not use the time to warm up: then it touches
 * as many pages as the first one, which did so before it was ready. */
static void waiting_worker_warms_up(void **state)
{
    const struct world *world = *state;
    struct world own = {.toolchain = world->toolchain};
    struct mw_isolate_options options = world_options(world);
    struct world_processes zygotes = world_children(getpid()), workers = {.count = 0};
    unsigned long first = 0, second = 0;
    char why[256] = "";

    assert_int_equal(zygotes.count, 1); /* the world's */
    assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
    for (size_t i = 0; i < 2; i++)
        if (world_children(getpid()).pids[i] != zygotes.pids[0])
            zygotes.pids[1] = world_children(getpid()).pids[i];
    for (int i = 0; i < 3000 && (first == 0 || second < first / 4 * 3); i++) {
        (void)usleep(10000);
        workers = world_children(zygotes.pids[1]);
        first = workers.count > 0 ? world_faults(workers.pids[0]) : 0;
        second = workers.count > 1 ? world_faults(workers.pids[1]) : 0;
    }
    assert_int_equal(workers.count, 2);
    assert_true(first > 0 && second >= first / 4 * 3);
    mw_isolate_free(own.isolate);
}

/* Whether this system gives huge pages to who asks, as the zygote does. */
static bool has_huge_pages(void)
{
    const size_t bytes = 4u << 20;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool has = memory != MAP_FAILED && madvise(memory, bytes, MADV_HUGEPAGE) == 0;

    if (has) {
        unsigned long before = world_huge_kib(getpid());

        memset(memory, 1, bytes);
        has = world_huge_kib(getpid()) > before;
    }
    (void)munmap(memory, bytes);
    return has;
}

/* Breaks when workers run the compiler from small pages where there are huge ones, or from huge
 * ones where nobody wants them: then the same compiles, on small ones. */
static void zygote_uses_huge_pages_where_wanted(void **state)
{
    const struct world *world = *state;
    pid_t others = world_children(getpid()).pids[0];

    if (SANITIZED || !has_huge_pages())
        skip();
    for (int unwanted = 0; unwanted < 2; unwanted++) {
        struct world own = {.toolchain = world->toolchain};
        struct mw_isolate_options options = world_options(world);
        struct world_processes zygotes;
        unsigned long code_kib;
        char why[256] = "";

        assert_int_equal(prctl(PR_SET_THP_DISABLE, unwanted, 0, 0, 0), 0);
        assert_int_equal(mw_isolate_new(&own.isolate, &options, why, sizeof(why)), 0);
        assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
        zygotes = world_children(getpid());
        assert_int_equal(zygotes.count, 2);
        code_kib = world_huge_kib(zygotes.pids[zygotes.pids[0] == others]);
        if (unwanted)
            assert_int_equal(code_kib, 0);
        else
            assert_true(code_kib > 32u << 10);
        world_check_compiles(&own, &world_cxx);
        mw_isolate_free(own.isolate);
    }
}

static bool children_await(pid_t parent, size_t count)
{
    for (unsigned looks = 0; looks < 2000; looks++) {
        if (world_children(parent).count == count)
            return true;
        usleep(5000);
    }
    return false;
}

/* More than RLIMIT_NOFILE of a worker. Broken when each keeps a descriptor under way to its host:
 * the system counts those of all processes of a user, and refuses the next. */
static void many_workers_wait_at_once(void **state)
{
    enum { HOSTS = 2, READY = 40 };
    const struct world *world = *state;
    struct world own[HOSTS];
    struct mw_isolate_options options = world_options(world);
    pid_t other = world_zygote();
    struct world_processes zygotes;

    options.ready = READY;
    for (size_t i = 0; i < HOSTS; i++) {
        char why[256] = "";

        own[i] = (struct world){.toolchain = world->toolchain};
        assert_int_equal(mw_isolate_new(&own[i].isolate, &options, why, sizeof(why)), 0);
    }
    zygotes = world_children(getpid());
    assert_int_equal(zygotes.count, 1 + HOSTS);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < HOSTS; i++)
            world_check_compiles(&own[i], &world_c);
        for (size_t i = 0; i < zygotes.count; i++)
            if (zygotes.pids[i] != other)
                assert_true(children_await(zygotes.pids[i], READY));
    }
    for (size_t i = 0; i < HOSTS; i++)
        mw_isolate_free(own[i].isolate);
}

/* Breaks when a host is not told why isolation does not start. */
static void start_without_a_worker_says_why(void **state)
{
    struct mw_isolate_options options = world_options(*state);
    struct mw_isolate *isolate = NULL;
    char why[256] = "";

    options.worker = "/nowhere/millwright-worker";
    assert_int_equal(mw_isolate_new(&isolate, &options, why, sizeof(why)), -ENOENT);
    assert_non_null(strstr(why, "/nowhere/millwright-worker"));
    options.worker = "/bin/true"; /* a program, and not the right one */
    assert_int_not_equal(mw_isolate_new(&isolate, &options, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "gave no worker"));
    options = world_options(*state);
    options.ready = MW_ISOLATE_READY_MAX + 1;
    assert_int_equal(mw_isolate_new(&isolate, &options, why, sizeof(why)), -EINVAL);
    assert_null(isolate);
}

/* Breaks when a compile of the user's own disk, which a worker cannot see, is tried all the same.
 */
static void read_disk_is_refused(void **state)
{
    struct trial trial = world_c;
    struct world_run run = {.world = *state, .trial = &trial};

    trial.read_disk = true;
    world_compile(&run);
    assert_int_equal(run.rc, -EINVAL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(isolated_compile_is_that_of_this_process),
        cmocka_unit_test(usage_is_told),
        cmocka_unit_test(crash_is_answered_and_the_next_compile_right),
        cmocka_unit_test(breakdown_is_explained),
        cmocka_unit_test(wall_limit_ends_endless_work),
        cmocka_unit_test(cpu_limit_ends_endless_work),
        cmocka_unit_test(memory_limit_ends_hungry_work),
        cmocka_unit_test(output_limit_is_exact),
        cmocka_unit_test(stop_ends_a_compile_at_any_time),
        cmocka_unit_test(worker_has_name_and_nice_of_its_thread),
        cmocka_unit_test(killed_worker_is_answered),
        cmocka_unit_test(work_is_told_to_who_accounts_for_it),
        cmocka_unit_test(killed_waiting_workers_are_replaced),
        cmocka_unit_test(killed_zygote_is_replaced_and_the_request_tried_again),
        cmocka_unit_test(threads_compile_at_once),
        cmocka_unit_test(kills_at_any_moment_wedge_nothing),
        cmocka_unit_test(many_compiles_leave_nothing),
        cmocka_unit_test(host_killed_leaves_no_process),
        cmocka_unit_test(host_and_zygote_killed_leave_no_process),
        cmocka_unit_test(forked_child_is_refused),
        cmocka_unit_test(persistent_worker_is_used_again_until_its_bound),
        cmocka_unit_test(persistent_worker_peaks_anew),
        cmocka_unit_test(waiting_worker_warms_up),
        cmocka_unit_test(zygote_uses_huge_pages_where_wanted),
        cmocka_unit_test(many_workers_wait_at_once),
        cmocka_unit_test(start_without_a_worker_says_why),
        cmocka_unit_test(read_disk_is_refused),
    };

    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}

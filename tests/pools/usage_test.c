/* usage_test.c - the CPU time of this process and of real children: they compute until they have
 * used what they are asked to, by their own clock, and say so. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/clock.h>

#include "usage.h"

#define BURN_NS     (30 * MW_NS_PER_MS)
#define ROUNDING_NS (2 * MW_NS_PER_US) /* rusage counts microseconds, in two parts */

/* A child that is told when to go on. */
struct child {
    pid_t pid;
    int go;   /* write end */
    int done; /* read end */
};

static uint64_t own_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * MW_NS_PER_S + (uint64_t)used.tv_nsec;
}

static void burn(uint64_t ns)
{
    uint64_t before = own_ns();

    while (own_ns() - before < ns)
        ;
}

static void child_start(struct child *child)
{
    int go[2];
    int done[2];
    char order;

    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        close(go[1]); /* so that it ends when its parent does */
        while (read(go[0], &order, 1) == 1) {
            burn(BURN_NS);
            if (write(done[1], &order, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(go[0]);
    close(done[1]);
    child->go = go[1];
    child->done = done[0];
}

static void child_burn(const struct child *child)
{
    char order = 'b';

    assert_int_equal(write(child->go, &order, 1), 1);
    assert_int_equal(read(child->done, &order, 1), 1);
}

/* It has ended then, and is not reaped. */
static void child_end(const struct child *child)
{
    siginfo_t info;

    close(child->go);
    close(child->done);
    assert_int_equal(waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT), 0);
}

/* Returns all that it has used in its life. */
static uint64_t child_reap(const struct child *child)
{
    struct rusage used;
    int status;

    assert_int_equal(wait4(child->pid, &status, 0, &used), child->pid);
    assert_int_equal(status, 0);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * MW_NS_PER_S +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * MW_NS_PER_US;
}

static uint64_t children_ns(struct mw_usage_table *usage)
{
    uint64_t children;

    mw_usage_read_ns(usage, &children);
    return children;
}

static int set_up(void **state)
{
    *state = malloc(sizeof(struct mw_usage_table));
    return *state == NULL ? -1 : mw_usage_init(*state);
}

static int tear_down(void **state)
{
    mw_usage_fini(*state);
    free(*state);
    return 0;
}

/* Breaks when the process's own time is missing, or a child's that nobody named is counted. */
static void usage_counts_this_process(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;
    uint64_t before = mw_usage_read_ns(usage, NULL);

    burn(BURN_NS);
    assert_true(mw_usage_read_ns(usage, NULL) - before >= BURN_NS);
    child_start(&child);
    child_burn(&child);
    assert_int_equal(children_ns(usage), 0);
    child_end(&child);
    child_reap(&child);
    assert_int_equal(children_ns(usage), 0);
}

/* Breaks when what a child used before it was watched counts, or what it used since does not. */
static void usage_counts_a_child_from_when_it_is_watched(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;
    uint64_t total;

    child_start(&child);
    child_burn(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    assert_true(children_ns(usage) < BURN_NS);
    child_burn(&child);
    assert_true(children_ns(usage) >= BURN_NS);
    child_end(&child);
    total = children_ns(usage);
    assert_true(child_reap(&child) - total >= BURN_NS - ROUNDING_NS);
}

/* Breaks when the sum goes back, or counts a child twice, once that has ended and is reaped. */
static void usage_keeps_what_an_ended_child_used(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;
    uint64_t seen;

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    child_burn(&child);
    seen = children_ns(usage);
    child_end(&child);
    assert_true(children_ns(usage) >= seen); /* it can still be asked */
    assert_int_equal(mw_usage_count(usage), 1);
    seen = children_ns(usage);
    assert_true(seen <= child_reap(&child) + ROUNDING_NS);
    assert_int_equal(children_ns(usage), seen);
    assert_int_equal(mw_usage_count(usage), 0);
    assert_int_equal(children_ns(usage), seen);
}

/* Breaks when a child's last moments are lost though it is forgotten before it is reaped; reaped
 * first, the control, they are. */
static void usage_looks_once_more_at_a_child_that_it_forgets(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;
    uint64_t before;

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    child_burn(&child);
    child_end(&child);
    mw_usage_forget(usage, child.pid);
    assert_int_equal(mw_usage_count(usage), 0);
    before = children_ns(usage);
    assert_true(before >= BURN_NS);
    child_reap(&child);

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    child_burn(&child);
    child_end(&child);
    child_reap(&child);
    mw_usage_forget(usage, child.pid);
    assert_int_equal(children_ns(usage), before);
}

/* Breaks when the time of a process that got an ended one's id is counted. */
static void usage_tells_a_process_from_a_later_one_of_its_id(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    usage->processes[0].began--; /* as if another one had been watched */
    child_burn(&child);
    assert_int_equal(children_ns(usage), 0);
    assert_int_equal(mw_usage_count(usage), 0);

    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    usage->processes[0].began--;
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0); /* takes its place */
    child_burn(&child);
    assert_true(children_ns(usage) >= BURN_NS);
    child_end(&child);
    child_reap(&child);
}

/* Breaks when a child that no worker waits for explains why workers block; or, the control, when
 * one that a worker waits for does not. */
static void usage_tells_whom_a_child_works_for(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;
    uint64_t before;

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, false), 0);
    before = mw_usage_read_ns(usage, NULL);
    child_burn(&child);
    assert_int_equal(children_ns(usage), 0);
    assert_true(mw_usage_read_ns(usage, NULL) - before >= BURN_NS);
    mw_usage_forget(usage, child.pid);

    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    child_burn(&child);
    assert_true(children_ns(usage) >= BURN_NS);
    child_end(&child);
    child_reap(&child);
}

/* Breaks when what cannot be watched is taken, or a child is listed twice. */
static void usage_refuses_what_it_cannot_watch(void **state)
{
    struct mw_usage_table *usage = *state;
    struct child child;

    child_start(&child);
    assert_int_equal(mw_usage_watch(usage, getpid(), true), -EINVAL);
    assert_int_equal(mw_usage_watch(usage, 0, true), -ESRCH);
    assert_int_equal(mw_usage_watch(usage, -1, true), -ESRCH);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), 0);
    assert_int_equal(mw_usage_count(usage), 1);
    mw_usage_forget(usage, child.pid);
    mw_usage_forget(usage, child.pid);
    usage->count = MW_USAGE_PROCESSES_MAX; /* of nobody */
    for (unsigned i = 0; i < MW_USAGE_PROCESSES_MAX; i++)
        usage->processes[i] = (struct mw_usage_process){.pid = -1, .clock = -1};
    assert_int_equal(mw_usage_watch(usage, child.pid, true), -ENOSPC);
    child_end(&child);
    child_reap(&child);
    assert_int_equal(mw_usage_watch(usage, child.pid, true), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(usage_counts_this_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usage_counts_a_child_from_when_it_is_watched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(usage_keeps_what_an_ended_child_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usage_looks_once_more_at_a_child_that_it_forgets, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(usage_tells_a_process_from_a_later_one_of_its_id, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(usage_tells_whom_a_child_works_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usage_refuses_what_it_cannot_watch, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

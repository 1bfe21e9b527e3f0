#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/thread.h>

#include "pools/support.h"
#include "pools/thread_starts.h"

/* What a thread found out about itself. */
struct report {
    char name[16];
    enum mw_thread_kind kind;
    int nice;
    int policy;
    sigset_t blocked;
    size_t stack_bytes;
};

static void look_around(void *arg)
{
    struct report *report = arg;
    pthread_attr_t attributes;

    pthread_getname_np(pthread_self(), report->name, sizeof report->name);
    report->kind = mw_thread_kind_current();
    report->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    report->policy = sched_getscheduler(0);
    pthread_sigmask(SIG_SETMASK, NULL, &report->blocked);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &report->stack_bytes);
    pthread_attr_destroy(&attributes);
}

static void run(const struct mw_thread_options *options, void (*fn)(void *), void *arg)
{
    struct mw_thread thread;

    assert_int_equal(mw_thread_start(&thread, options, fn, arg), 0);
    mw_thread_join(&thread);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void wait_for_gate(void *arg)
{
    counter_await(arg, 1);
}

static void start_from_inside(void *arg)
{
    run(&(struct mw_thread_options){.kind = MW_THREAD_POOL}, look_around, arg);
}

/* Breaks when a kind's own name is not the one that ps, top and the audits know. */
static void thread_has_its_kinds_name(void **state)
{
    static const char *const names[] = {[MW_THREAD_LOOP] = "mw-loop",
                                        [MW_THREAD_POOL] = "mw-pool",
                                        [MW_THREAD_LANE] = "mw-cpu-lane",
                                        [MW_THREAD_MONITOR] = "mw-monitor",
                                        [MW_THREAD_PROBE] = "mw-probe",
                                        [MW_THREAD_GATE] = "mw-pool-gate"};

    (void)state;
    for (int kind = MW_THREAD_LOOP; kind < MW_THREAD_KINDS; kind++) {
        struct report report = {0};

        run(&(struct mw_thread_options){.kind = (enum mw_thread_kind)kind}, look_around, &report);
        assert_string_equal(report.name, names[kind]);
        assert_string_equal(mw_thread_kind_name((enum mw_thread_kind)kind), names[kind]);
        assert_int_equal(report.kind, kind);
    }
}

/* Breaks when a thread keeps what it inherited from the one that started it. */
static void thread_inherits_neither_name_nor_kind_nor_urgency(void **state)
{
    struct report report = {0};
    int own = getpriority(PRIO_PROCESS, (id_t)getpid());

    (void)state;
    if (geteuid() != 0)
        skip(); /* without privilege no thread gets below its creator's nice value */
    run(&(struct mw_thread_options){.name = "outer", .kind = MW_THREAD_LANE, .nice = 19},
        start_from_inside, &report);
    assert_string_equal(report.name, "mw-pool");
    assert_int_equal(report.kind, MW_THREAD_POOL);
    assert_int_equal(report.nice, own);
    run(&(struct mw_thread_options){.name = "outer", .kind = MW_THREAD_LANE, .idle = true},
        start_from_inside, &report);
    assert_int_equal(report.policy, SCHED_OTHER);
}

/* Breaks when the policy is set for the whole process, or not at all. */
static void thread_runs_idle_if_asked(void **state)
{
    struct report report = {0};
    int before = sched_getscheduler(0);

    (void)state;
    run(&(struct mw_thread_options){.idle = true}, look_around, &report);
    assert_int_equal(report.policy, SCHED_IDLE);
    assert_int_equal(sched_getscheduler(0), before);
}

/* Breaks when the nice value is set for the whole process, or not at all. */
static void thread_nice_is_its_own(void **state)
{
    struct report report = {0};
    int before = getpriority(PRIO_PROCESS, 0);

    (void)state;
    run(&(struct mw_thread_options){.nice = 19}, look_around, &report);
    assert_int_equal(report.nice, 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

/* Breaks when a signal meant for the host can land on one of our threads, when a crash can no
 * longer reach the host's handler, or when the starter's own mask is not put back. */
static void thread_blocks_signals_but_its_own_faults(void **state)
{
    struct report report = {0};
    sigset_t before;
    sigset_t after;

    (void)state;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    run(&(struct mw_thread_options){.kind = MW_THREAD_LANE}, look_around, &report);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < SIGRTMAX; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));

    assert_true(sigismember(&report.blocked, SIGTERM));
    assert_true(sigismember(&report.blocked, SIGINT));
    assert_true(sigismember(&report.blocked, SIGCHLD));
    assert_true(sigismember(&report.blocked, SIGPIPE));
    assert_true(sigismember(&report.blocked, SIGUSR1));
    assert_true(sigismember(&report.blocked, SIGRTMIN));
    assert_false(sigismember(&report.blocked, SIGSEGV));
    assert_false(sigismember(&report.blocked, SIGBUS));
    assert_false(sigismember(&report.blocked, SIGABRT));
}

/* Breaks when the stack asked for is not the stack given. */
static void thread_gets_the_stack_it_asks_for(void **state)
{
    struct report report = {0};

    (void)state;
    run(&(struct mw_thread_options){.stack_bytes = 48u << 20}, look_around, &report);
    assert_true(report.stack_bytes >= 48u << 20);
    run(&(struct mw_thread_options){.stack_bytes = 1}, nothing, NULL);
}

/* Breaks when options out of range start a thread under another name or nice value. */
static void thread_refuses_what_it_cannot_set(void **state)
{
    static const struct mw_thread_options bad[] = {
        {.name = ""}, {.name = "sixteen-bytes-xx"}, {.nice = 20}, {.nice = -1}};
    unsigned started = thread_starts_count();
    struct mw_thread thread;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mw_thread_start(&thread, &bad[i], nothing, NULL), -EINVAL);
    assert_int_equal(thread_starts_count(), started);
    run(&(struct mw_thread_options){.name = "fifteen-bytes-x"}, nothing, NULL);
}

/* Breaks when the count forgets a thread that lives, or keeps one that ended. */
static void thread_count_follows_start_and_join(void **state)
{
    struct mw_thread_options options = {.kind = MW_THREAD_LANE};
    struct mw_thread threads[2];
    struct counter gate;

    (void)state;
    counter_init(&gate);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mw_thread_start(&threads[i], &options, wait_for_gate, &gate), 0);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 2);
    assert_int_equal(mw_thread_count(MW_THREAD_POOL), 0);
    counter_add(&gate, 1);
    for (int i = 0; i < 2; i++)
        mw_thread_join(&threads[i]);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
    counter_fini(&gate);
}

/* Breaks when a start that the system refuses leaks its memory, is counted, or is not told. */
static void thread_start_failure_is_reported_and_not_counted(void **state)
{
    struct mw_thread thread;

    (void)state;
    thread_starts_allow(0);
    assert_int_equal(mw_thread_start(&thread, &(struct mw_thread_options){.kind = MW_THREAD_LANE},
                                     nothing, NULL),
                     -EAGAIN);
    thread_starts_allow(-1);
    assert_int_equal(mw_thread_count(MW_THREAD_LANE), 0);
}

static void adopt_loop(void *arg)
{
    mw_thread_adopt(MW_THREAD_LOOP);
    look_around(arg);
}

/* Breaks when the loop's thread cannot say what it is, or a host's thread is taken for ours. */
static void thread_adopts_a_kind(void **state)
{
    struct report report = {0};

    (void)state;
    assert_int_equal(mw_thread_kind_current(), MW_THREAD_HOST);
    run(&(struct mw_thread_options){.name = "stranger"}, adopt_loop, &report);
    assert_int_equal(report.kind, MW_THREAD_LOOP);
    assert_string_equal(report.name, "mw-loop");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_has_its_kinds_name),
        cmocka_unit_test(thread_inherits_neither_name_nor_kind_nor_urgency),
        cmocka_unit_test(thread_runs_idle_if_asked),
        cmocka_unit_test(thread_nice_is_its_own),
        cmocka_unit_test(thread_blocks_signals_but_its_own_faults),
        cmocka_unit_test(thread_gets_the_stack_it_asks_for),
        cmocka_unit_test(thread_refuses_what_it_cannot_set),
        cmocka_unit_test(thread_count_follows_start_and_join),
        cmocka_unit_test(thread_start_failure_is_reported_and_not_counted),
        cmocka_unit_test(thread_adopts_a_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* audit_test.c - the leak audit: what it counts, what it finds, and what it must not find.
 *
 * The counts are those of the whole process, so each scenario runs in a child of its own. It ends
 * with the audit's finding, which the test compares. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/audit.h>

#include "pools/support.h"

#define CHILD_S 60 /* far above anything a healthy scenario takes */

/* In a child a failed check ends the child, with the line as its finding. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            snprintf(finding, sizeof finding, "line %d: %s", __LINE__, #condition);                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static char finding[256];

/* Run `scenario` in a child. Returns what it left in `finding`; "" is an audit that found
 * nothing. */
static const char *finding_of(void (*scenario)(void))
{
    size_t used = 0;
    ssize_t bytes;
    int ends[2];
    int status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_S);
        finding[0] = '\0';
        tasks_baseline(); /* before anybody has a name that a sanitizer's thread could inherit */
        scenario();
        _exit(write(ends[1], finding, strlen(finding)) < 0);
    }
    close(ends[1]);
    while (used < sizeof finding - 1 &&
           (bytes = read(ends[0], finding + used, sizeof finding - 1 - used)) > 0)
        used += (size_t)bytes;
    finding[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return finding;
}

/* Leaves the audit's finding in `finding`. */
static void audit(const struct mw_registry *registry)
{
    struct mw_audit report;

    CHECK(mw_audit_report(&report, registry) == 0);
    if (mw_audit_finding(&report, finding, sizeof finding) == NULL)
        finding[0] = '\0';
}

/* ---- a leaf, and a room for it ---- */

struct scene {
    struct mw_pool *pool;
    struct mw_registry *registry;
    struct counter inside; /* leaves that have begun */
    struct counter gate;   /* what they wait for */
    struct counter done;
};

struct leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct scene *scene;
    struct mw_pool_item item;
    int expected; /* what mw_audit_expect returned */
};

static void scene_open(struct scene *scene)
{
    /* equal: a busy machine must not hold the test up */
    static const struct mw_registry_lane lanes[] = {
        {.options = {.name = "compile-cpu", .cap = 3, .urgency = MW_LANE_EQUAL}, .computes = true},
        {.options = {.name = "files", .cap = 2, .runner = MW_LANE_POOL}},
        {.options = {.name = "emit-on-pool", .cap = 2, .runner = MW_LANE_POOL}, .computes = true},
    };

    counter_init(&scene->inside);
    counter_init(&scene->gate);
    counter_init(&scene->done);
    CHECK(mw_pool_new(&scene->pool, &(struct mw_pool_options){.max_threads = 4}) == 0);
    CHECK(mw_registry_new(&scene->registry, scene->pool) == 0);
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        CHECK(mw_registry_add(scene->registry, &lanes[i], finding, sizeof finding) == 0);
}

static void scene_close(struct scene *scene)
{
    mw_registry_free(scene->registry, false);
    mw_pool_free(scene->pool);
}

static void note_done(struct mw_job *job, int status)
{
    (void)status;
    counter_add(&((struct leaf *)job)->scene->done, 1);
}

static void start(struct scene *scene, struct leaf *leaf, const char *lane,
                  int (*fn)(struct mw_job *))
{
    *leaf = (struct leaf){.job = {.fn = fn, .done = note_done}, .scene = scene};
    CHECK(mw_lane_submit(mw_registry_find(scene->registry, lane), &leaf->job) == 0);
}

/* Run one leaf to its end, close the lanes (so that every count is in), and audit. */
static void audit_one_leaf(const char *lane, int (*fn)(struct mw_job *))
{
    struct scene scene;
    struct leaf leaf;

    scene_open(&scene);
    start(&scene, &leaf, lane, fn);
    CHECK(counter_await(&scene.done, 1));
    while (mw_registry_strayed(scene.registry) == 0 && strcmp(lane, "emit-on-pool") == 0)
        ; /* it is counted a moment after its done() */
    audit(scene.registry);
    scene_close(&scene);
}

/* ---- leaves, honest and not ---- */

static int compute(struct mw_job *job)
{
    return ((struct leaf *)job)->expected = mw_audit_expect(MW_THREAD_LANE);
}

static int read_files(struct mw_job *job)
{
    return ((struct leaf *)job)->expected = mw_audit_expect(MW_THREAD_POOL);
}

static int say_nothing(struct mw_job *job)
{
    (void)job;
    return 0;
}

static int wait_at_gate(struct mw_job *job)
{
    struct scene *scene = ((struct leaf *)job)->scene;

    counter_add(&scene->inside, 1);
    counter_await(&scene->gate, 1);
    return 0;
}

static void item_run(struct mw_pool_item *item)
{
    struct leaf *leaf = (struct leaf *)((char *)item - offsetof(struct leaf, item));

    counter_add(&leaf->scene->inside, 1);
}

static int fan_out(struct mw_job *job)
{
    struct leaf *leaf = (struct leaf *)job;

    leaf->item.fn = item_run;
    if (mw_pool_submit(leaf->scene->pool, &leaf->item) == 0)
        counter_await(&leaf->scene->inside, 1);
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

static int start_one_of_ours(struct mw_job *job)
{
    struct mw_thread thread;

    (void)job;
    if (mw_thread_start(&thread, &(struct mw_thread_options){.kind = MW_THREAD_POOL}, nothing,
                        NULL) == 0)
        mw_thread_join(&thread);
    return 0;
}

static void *live_on(void *scene)
{
    counter_add(&((struct scene *)scene)->inside, 1);
    counter_await(&((struct scene *)scene)->gate, 1);
    return NULL;
}

static void *live_on_under_a_name(void *scene)
{
    pthread_setname_np(pthread_self(), "a-library");
    return live_on(scene);
}

static int leave_a_thread(struct mw_job *job, void *(*fn)(void *))
{
    struct scene *scene = ((struct leaf *)job)->scene;
    pthread_t thread;

    if (pthread_create(&thread, NULL, fn, scene) == 0) {
        pthread_detach(thread);
        counter_await(&scene->inside, 1);
    }
    return 0;
}

static int leave_a_nameless_thread(struct mw_job *job)
{
    return leave_a_thread(job, live_on);
}

static int leave_a_named_thread(struct mw_job *job)
{
    return leave_a_thread(job, live_on_under_a_name);
}

/* ---- scenarios ---- */

static void nothing_happens(void)
{
    audit(NULL);
}

static void cpu_leaf_computes(void)
{
    audit_one_leaf("compile-cpu", compute);
}

static void io_leaf_reads(void)
{
    audit_one_leaf("files", read_files);
}

static void cpu_leaf_is_on_the_pool(void)
{
    audit_one_leaf("files", compute);
}

static void io_leaf_is_on_the_lane(void)
{
    audit_one_leaf("compile-cpu", read_files);
}

static void computing_lane_is_pool_run(void)
{
    audit_one_leaf("emit-on-pool", say_nothing);
}

static void leaf_fans_out(void)
{
    audit_one_leaf("compile-cpu", fan_out);
}

static void leaf_starts_one_of_ours(void)
{
    audit_one_leaf("compile-cpu", start_one_of_ours);
}

static void leaf_leaves_a_nameless_thread(void)
{
    audit_one_leaf("compile-cpu", leave_a_nameless_thread);
}

static void io_leaf_leaves_a_nameless_thread(void)
{
    audit_one_leaf("files", leave_a_nameless_thread);
}

static void leaf_leaves_a_named_thread(void)
{
    audit_one_leaf("compile-cpu", leave_a_named_thread);
}

/* Breaks when honest work is called a leak. */
static void honest_work_has_no_finding(void **state)
{
    (void)state;
    assert_string_equal(finding_of(nothing_happens), "");
    assert_string_equal(finding_of(cpu_leaf_computes), "");
    assert_string_equal(finding_of(io_leaf_reads), "");
}

/* Controls: breaks when a leak passes, or is found for another reason than its own. */
static void each_leak_is_found_for_its_own_reason(void **state)
{
    static const struct {
        void (*scenario)(void);
        const char *finding;
    } cases[] = {
        {computing_lane_is_pool_run,
         "leaves that compute and ran on other threads than a lane's own: 1"},
        {cpu_leaf_is_on_the_pool, "leaves that ran where they did not expect to: 1, the last on "
                                  "mw-pool instead of mw-cpu-lane"},
        {io_leaf_is_on_the_lane, "leaves that ran where they did not expect to: 1, the last on "
                                 "mw-cpu-lane instead of mw-pool"},
        {leaf_fans_out, "items from under a leaf that ran on pool workers: 1"},
        {leaf_starts_one_of_ours, "threads of ours that were started under a leaf: 1"},
        {leaf_leaves_a_nameless_thread, "threads of others that a mw-cpu-lane thread started: 1"},
        {io_leaf_leaves_a_nameless_thread, "threads of others that a mw-pool thread started: 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(finding_of(cases[i].scenario), cases[i].finding);
}

/* Breaks when the documents are wrong about what is not seen without libmillwright-audit;
 * audit_starts_test.c has the same leak found. */
static void named_thread_of_a_leaf_is_not_seen_from_within(void **state)
{
    (void)state;
    assert_string_equal(finding_of(leaf_leaves_a_named_thread), "");
}

static void expectation_speaks(void)
{
    struct scene scene;
    struct leaf right, wrong;
    struct mw_audit report;

    scene_open(&scene);
    start(&scene, &right, "compile-cpu", compute);
    start(&scene, &wrong, "files", compute);
    CHECK(counter_await(&scene.done, 2));
    CHECK(right.expected == 0);
    CHECK(wrong.expected == -EXDEV);
    CHECK(mw_audit_expect(MW_THREAD_HOST) == 0);
    CHECK(mw_audit_report(&report, NULL) == 0);
    CHECK(report.expectations == 3);
    CHECK(report.wrong_expectations == 1);
    CHECK(!report.foreign_starts_seen);
    scene_close(&scene);
}

/* Breaks when a leaf is not told that it runs on the wrong thread, or is ended for it. */
static void leaf_learns_that_it_runs_elsewhere(void **state)
{
    (void)state;
    assert_string_equal(finding_of(expectation_speaks), "");
}

/* ---- the census ---- */

static void census_sees_parked_leaves(void)
{
    struct mw_census before, during, after;
    struct scene scene;
    struct leaf leaves[5];

    scene_open(&scene);
    CHECK(mw_census_take(&before) == 0);
    for (unsigned i = 0; i < 5; i++)
        start(&scene, &leaves[i], i < 3 ? "compile-cpu" : "files", wait_at_gate);
    CHECK(counter_await(&scene.inside, 5));
    CHECK(mw_census_take(&during) == 0);
    CHECK(during.threads[MW_THREAD_LANE] == 3);
    CHECK(during.threads[MW_THREAD_POOL] == 2);
    CHECK(during.threads[MW_THREAD_HOST] == before.threads[MW_THREAD_HOST]);
    CHECK(during.tasks == before.tasks + 5);
    /* a sanitizer brings a thread of its own */
    CHECK(during.strangers == before.strangers);
    CHECK(during.starting == 0);

    counter_add(&scene.gate, 1);
    scene_close(&scene);
    CHECK(mw_census_take(&after) == 0);
    CHECK(after.threads[MW_THREAD_LANE] == 0);
    CHECK(after.threads[MW_THREAD_POOL] == 0);
    CHECK(after.tasks == before.tasks);
    CHECK(after.strangers == before.strangers);
}

/* Breaks when a thread is counted as another kind, twice, or after it ended; or when one is left
 * behind by a lane or pool that was freed. */
static void census_counts_each_thread_under_its_kind(void **state)
{
    (void)state;
    assert_string_equal(finding_of(census_sees_parked_leaves), "");
}

static unsigned named_in_proc(const char *name)
{
    char command[128];
    unsigned count = 0;
    FILE *list;

    snprintf(command, sizeof command, "cat /proc/%d/task/*/comm | grep -cx %s", (int)getpid(),
             name);
    list = popen(command, "r");
    if (list == NULL || fscanf(list, "%u", &count) != 1)
        count = UINT32_MAX;
    if (list != NULL)
        pclose(list);
    return count;
}

static void names_of_parked_leaves(void)
{
    struct scene scene;
    struct leaf leaves[4];

    scene_open(&scene);
    for (unsigned i = 0; i < 4; i++)
        start(&scene, &leaves[i], i < 3 ? "compile-cpu" : "files", wait_at_gate);
    CHECK(counter_await(&scene.inside, 4));
    CHECK(named_in_proc("mw-cpu-lane") == 3);
    CHECK(named_in_proc("mw-pool") == 1);
    counter_add(&scene.gate, 1);
    scene_close(&scene);
    CHECK(named_in_proc("mw-cpu-lane") == 0);
}

/* Breaks when `top -H` and `ps -L`, which read the same files, show other names or other numbers
 * than the lanes have. */
static void names_are_right_from_outside(void **state)
{
    (void)state;
    assert_string_equal(finding_of(names_of_parked_leaves), "");
}

static void census_names_strangers(void)
{
    struct mw_census before, census;
    struct scene scene;
    struct leaf leaf;
    const struct mw_census_stranger *stranger = NULL;

    scene_open(&scene);
    CHECK(mw_census_take(&before) == 0);
    start(&scene, &leaf, "compile-cpu", leave_a_named_thread);
    CHECK(counter_await(&scene.done, 1));
    CHECK(mw_census_take(&census) == 0);
    CHECK(census.strangers == before.strangers + 1);
    CHECK(census.listed == census.strangers);
    for (unsigned i = 0; i < census.listed; i++)
        if (strcmp(census.list[i].name, "a-library") == 0)
            stranger = &census.list[i];
    CHECK(stranger != NULL);
    CHECK(stranger->heir_of == MW_THREAD_HOST);
    CHECK(stranger->tid != getpid());
    CHECK(census.heirs[MW_THREAD_LANE] == 0);
    counter_add(&scene.gate, 1);
    scene_close(&scene);
}

/* Breaks when a thread of no kind of ours goes uncounted, or is called an heir for no reason. */
static void census_tells_strangers_by_name(void **state)
{
    (void)state;
    assert_string_equal(finding_of(census_names_strangers), "");
}

static void *adopt_and_live_on(void *scene)
{
    mw_thread_adopt(MW_THREAD_LOOP);
    return live_on(scene);
}

static void adopted_thread_ends(void)
{
    struct mw_census census;
    struct scene scene;
    pthread_t thread;

    scene_open(&scene);
    mw_thread_adopt(MW_THREAD_LOOP);
    CHECK(pthread_create(&thread, NULL, adopt_and_live_on, &scene) == 0);
    CHECK(counter_await(&scene.inside, 1));
    CHECK(mw_census_take(&census) == 0);
    CHECK(census.threads[MW_THREAD_LOOP] == 2);
    CHECK(census.threads[MW_THREAD_HOST] == 0);
    counter_add(&scene.gate, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(mw_census_take(&census) == 0);
    CHECK(census.threads[MW_THREAD_LOOP] == 1);
    CHECK(census.heirs[MW_THREAD_LOOP] == 0);
    scene_close(&scene);
}

/* Breaks when the record of an adopted thread outlives it (it lies in the thread's own storage). */
static void census_forgets_an_adopted_thread_that_ends(void **state)
{
    (void)state;
    assert_string_equal(finding_of(adopted_thread_ends), "");
}

/* What the child of a busy process finds; its exit status is the line of what is wrong, or 0. */
static int look_from_a_fork(struct mw_registry *of_parent)
{
    struct mw_census census;
    struct scene scene;
    struct leaf leaf;

    if (mw_census_take(&census) != 0 || census.tasks != 1 || census.threads[MW_THREAD_LANE] != 0 ||
        census.threads[MW_THREAD_POOL] != 0 || census.threads[MW_THREAD_LOOP] != 1)
        return 1;
    scene_open(&scene);
    start(&scene, &leaf, "compile-cpu", wait_at_gate);
    if (!counter_await(&scene.inside, 1) || mw_census_take(&census) != 0)
        return 2;
    if (census.threads[MW_THREAD_LANE] != 1 || census.strangers > 1 /* a sanitizer's */)
        return 3;
    counter_add(&scene.gate, 1);
    scene_close(&scene);
    mw_registry_free(of_parent, false); /* nobody is there to end its leaves: it must not wait */
    return 0;
}

static void busy_process_forks(void)
{
    struct scene scene;
    struct leaf leaves[2];
    int status;
    pid_t pid;

    mw_thread_adopt(MW_THREAD_LOOP);
    scene_open(&scene);
    start(&scene, &leaves[0], "compile-cpu", wait_at_gate);
    start(&scene, &leaves[1], "files", wait_at_gate);
    CHECK(counter_await(&scene.inside, 2));
    pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        _exit(look_from_a_fork(scene.registry));
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    counter_add(&scene.gate, 1);
    scene_close(&scene);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0)
        snprintf(finding, sizeof finding, "the child ended with %d", WEXITSTATUS(status));
}

/* Breaks when a forked child takes its parent's threads for its own, cannot use lanes anew, or
 * waits for its parent's to end. */
static void forked_child_counts_its_own_threads(void **state)
{
    (void)state;
    if (SANITIZED_THREADS)
        skip(); /* it ends a child that starts threads */
    assert_string_equal(finding_of(busy_process_forks), "");
}

#define CHURNERS 4
#define CHURNS   200

static void churn(void *arg)
{
    (void)arg;
    for (int i = 0; i < CHURNS; i++) {
        struct mw_thread thread;

        if (mw_thread_start(&thread, &(struct mw_thread_options){.kind = MW_THREAD_LANE}, nothing,
                            NULL) == 0)
            mw_thread_join(&thread);
    }
}

static void census_under_churn(void)
{
    struct mw_thread threads[CHURNERS];
    struct mw_census before, census;
    unsigned strangers = 0, heirs = 0;
    bool counted = true;

    CHECK(mw_census_take(&before) == 0);
    for (int i = 0; i < CHURNERS; i++)
        CHECK(mw_thread_start(&threads[i], &(struct mw_thread_options){.kind = MW_THREAD_LANE},
                              churn, NULL) == 0);
    for (int i = 0; i < CHURNS; i++) {
        counted &= mw_census_take(&census) == 0;
        counted &= census.threads[MW_THREAD_LANE] <= 2 * CHURNERS;
        if (census.starting > 0)
            continue;
        strangers += census.strangers - before.strangers;
        heirs += census.heirs[MW_THREAD_LANE];
    }
    for (int i = 0; i < CHURNERS; i++)
        mw_thread_join(&threads[i]);
    CHECK(counted);
    CHECK(strangers == 0);
    CHECK(heirs == 0);
    CHECK(mw_census_take(&census) == 0);
    CHECK(census.threads[MW_THREAD_LANE] == 0);
}

/* Breaks when a thread of ours that begins or ends just now is taken for a stranger. */
static void threads_that_come_and_go_are_no_strangers(void **state)
{
    (void)state;
    assert_string_equal(finding_of(census_under_churn), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_work_has_no_finding),
        cmocka_unit_test(each_leak_is_found_for_its_own_reason),
        cmocka_unit_test(named_thread_of_a_leaf_is_not_seen_from_within),
        cmocka_unit_test(leaf_learns_that_it_runs_elsewhere),
        cmocka_unit_test(census_counts_each_thread_under_its_kind),
        cmocka_unit_test(names_are_right_from_outside),
        cmocka_unit_test(census_tells_strangers_by_name),
        cmocka_unit_test(census_forgets_an_adopted_thread_that_ends),
        cmocka_unit_test(forked_child_counts_its_own_threads),
        cmocka_unit_test(threads_that_come_and_go_are_no_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

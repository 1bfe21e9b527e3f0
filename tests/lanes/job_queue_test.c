#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/clock.h>

#include "../lanes/job_queue.h"

#define JOBS_MAX 4096
#define TENANTS  8

static struct mw_job jobs[JOBS_MAX];

static struct mw_job *push(struct job_queue *queue, unsigned number, enum mw_job_priority priority,
                           uint32_t tenant)
{
    struct mw_job *job = &jobs[number];

    memset(job, 0, sizeof *job);
    job->priority = priority;
    job->tenant = tenant;
    job_queue_push(queue, job, job, 1);
    return job;
}

/* Take the next job, as if it ran for so long. Returns its number. */
static unsigned run_next(struct job_queue *queue, uint64_t run_ns)
{
    struct mw_job *job = job_queue_take(queue);

    assert_non_null(job);
    job_queue_charge(queue, job->priority, job->tenant, run_ns);
    return (unsigned)(job - jobs);
}

/* How many jobs are taken before this one, each running for so long. */
static unsigned taken_before(struct job_queue *queue, unsigned number, uint64_t run_ns)
{
    unsigned count = 0;

    while (run_next(queue, run_ns) != number)
        count++;
    return count;
}

/* Breaks when jobs of one class and tenant leave in another order than they came, or one that was
 * taken out of the middle still comes. */
static void queue_keeps_the_order(void **state)
{
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, 1), 0);
    assert_null(job_queue_take(&queue));
    for (unsigned i = 0; i < 6; i++)
        push(&queue, i, MW_JOB_NORMAL, 0);
    job_queue_remove(&queue, &jobs[0]);
    job_queue_remove(&queue, &jobs[3]);
    job_queue_remove(&queue, &jobs[5]);
    assert_int_equal(run_next(&queue, 0), 1);
    assert_int_equal(run_next(&queue, 0), 2);
    assert_int_equal(run_next(&queue, 0), 4);
    assert_null(job_queue_take(&queue));
    assert_int_equal(queue.queued, 0);
    job_queue_fini(&queue);
}

/* Breaks when a class goes before a more urgent one. */
static void queue_takes_the_urgent_first(void **state)
{
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, 1), 0);
    push(&queue, 0, MW_JOB_BATCH, 0);
    push(&queue, 1, MW_JOB_NORMAL, 0);
    push(&queue, 2, MW_JOB_INTERACTIVE, 0);
    push(&queue, 3, MW_JOB_NORMAL, 0);
    assert_int_equal(run_next(&queue, 0), 2);
    assert_int_equal(run_next(&queue, 0), 1);
    assert_int_equal(run_next(&queue, 0), 3);
    assert_int_equal(run_next(&queue, 0), 0);
    job_queue_fini(&queue);
}

static unsigned wait_of_a_batch_job(unsigned interactive)
{
    struct job_queue queue;
    unsigned before;

    assert_int_equal(job_queue_init(&queue, 1), 0);
    push(&queue, 0, MW_JOB_BATCH, 0);
    for (unsigned i = 1; i <= interactive; i++)
        push(&queue, i, MW_JOB_INTERACTIVE, 0);
    before = taken_before(&queue, 0, 0);
    while (job_queue_take(&queue) != NULL)
        ;
    job_queue_fini(&queue);
    return before;
}

/* Breaks when a class that always has company starves, or goes sooner than it should. */
static void queue_lets_no_class_starve(void **state)
{
    (void)state;
    assert_int_equal(wait_of_a_batch_job(1000), MW_LANE_PASSES_MAX);
}

/* The control of the one above: one pass less, and ageing does not help, so the batch job is last.
 * Breaks when that test would pass without ageing. */
static void queue_leaves_batch_last_without_ageing(void **state)
{
    (void)state;
    assert_int_equal(wait_of_a_batch_job(MW_LANE_PASSES_MAX - 1), MW_LANE_PASSES_MAX - 1);
}

/* Breaks when of two classes that were passed over too often one keeps the other from its turn. */
static void queue_ages_both_lower_classes(void **state)
{
    unsigned counts[MW_JOB_PRIORITIES] = {0};
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, 1), 0);
    for (unsigned i = 0; i < 3000; i++)
        push(&queue, i, (enum mw_job_priority)(i % MW_JOB_PRIORITIES), 0);
    for (unsigned i = 0; i < 10 * MW_LANE_PASSES_MAX; i++)
        counts[jobs[run_next(&queue, 0)].priority]++;
    assert_in_range(counts[MW_JOB_NORMAL], 8, 10);
    assert_in_range(counts[MW_JOB_BATCH], 8, 10);
    job_queue_fini(&queue);
}

/* Jobs of the flooder before the newcomer's single one. */
static unsigned wait_of_a_newcomer(uint32_t newcomer, uint64_t run_ns)
{
    struct job_queue queue;
    unsigned before;

    assert_int_equal(job_queue_init(&queue, TENANTS), 0);
    for (unsigned i = 1; i < JOBS_MAX; i++)
        push(&queue, i, MW_JOB_NORMAL, 1);
    for (unsigned i = 1; i < 10; i++)
        assert_int_equal(run_next(&queue, run_ns), i);
    push(&queue, 0, MW_JOB_NORMAL, newcomer);
    before = taken_before(&queue, 0, run_ns);
    job_queue_fini(&queue);
    return before;
}

/* Breaks when a single job waits for the turn of a tenant that floods the lane, be its leaves short
 * or long. */
static void queue_lets_a_newcomer_in(void **state)
{
    (void)state;
    assert_int_equal(wait_of_a_newcomer(2, 1), 0);
    assert_int_equal(wait_of_a_newcomer(2, MW_NS_PER_S), 0);
}

/* The control: the same job under the flooder's own number is last. */
static void queue_makes_a_tenant_wait_for_itself(void **state)
{
    (void)state;
    assert_int_equal(wait_of_a_newcomer(1, 1), JOBS_MAX - 10);
}

/* Breaks when tenants get turns and not time: one whose leaves take ten times as long would get ten
 * times as much. */
static void queue_shares_by_run_time(void **state)
{
    const uint64_t run_ns[2] = {20 * MW_NS_PER_MS, 2 * MW_NS_PER_MS};
    uint64_t used_ns[2] = {0};
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, TENANTS), 0);
    for (unsigned i = 0; i < JOBS_MAX; i++)
        push(&queue, i, MW_JOB_NORMAL, i % 2);
    for (unsigned i = 0; i < 1000; i++) {
        struct mw_job *job = job_queue_take(&queue);

        used_ns[job->tenant] += run_ns[job->tenant];
        job_queue_charge(&queue, job->priority, job->tenant, run_ns[job->tenant]);
    }
    assert_in_range(used_ns[0] * 100 / used_ns[1], 90, 110);
    job_queue_fini(&queue);
}

/* Breaks when a tenant that has one job at a time is new each time, and so always first. */
static void queue_lets_nobody_be_new_for_ever(void **state)
{
    unsigned flooder = 0;
    unsigned trickler = 0;
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, TENANTS), 0);
    for (unsigned i = 1; i < JOBS_MAX; i++)
        push(&queue, i, MW_JOB_NORMAL, 1);
    push(&queue, 0, MW_JOB_NORMAL, 2);
    for (unsigned i = 0; i < 1000; i++) {
        if (run_next(&queue, MW_LANE_SHARE_QUANTUM_NS) == 0) {
            trickler++;
            push(&queue, 0, MW_JOB_NORMAL, 2);
        } else {
            flooder++;
        }
    }
    assert_in_range(flooder, 450, 550);
    assert_in_range(trickler, 450, 550);
    job_queue_fini(&queue);
}

/* Breaks when debts of hours are paid in rounds one by one, under the lane's lock, or never. */
static void queue_pays_long_debts_at_once(void **state)
{
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, MW_LANE_TENANTS_LIMIT), 0);
    for (unsigned i = 0; i < MW_LANE_TENANTS_LIMIT; i++) {
        push(&queue, i, MW_JOB_NORMAL, i);
        job_queue_charge(&queue, MW_JOB_NORMAL, i, (i + 1) * 3600 * MW_NS_PER_S);
        job_queue_charge(&queue, MW_JOB_NORMAL, i, UINT64_MAX);
    }
    for (unsigned i = 0; i < MW_LANE_TENANTS_LIMIT; i++)
        run_next(&queue, 3600 * MW_NS_PER_S);
    assert_null(job_queue_take(&queue));
    job_queue_fini(&queue);
}

/* Breaks when a debt is forgotten because its tenant had nothing queued when the charge came. */
static void queue_remembers_a_debt(void **state)
{
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, TENANTS), 0);
    for (unsigned i = 1; i < 100; i++)
        push(&queue, i, MW_JOB_NORMAL, 1);
    job_queue_charge(&queue, MW_JOB_NORMAL, 2, 10 * MW_LANE_SHARE_QUANTUM_NS);
    push(&queue, 0, MW_JOB_NORMAL, 2);
    assert_in_range(taken_before(&queue, 0, MW_LANE_SHARE_QUANTUM_NS), 8, 12);
    job_queue_fini(&queue);
}

/* Breaks when a number out of bounds is used as an index. */
static void queue_knows_its_bounds(void **state)
{
    struct job_queue queue;

    (void)state;
    assert_int_equal(job_queue_init(&queue, TENANTS), 0);
    assert_true(job_queue_fits(&queue, &(struct mw_job){.tenant = TENANTS - 1}));
    assert_false(job_queue_fits(&queue, &(struct mw_job){.tenant = TENANTS}));
    assert_false(job_queue_fits(&queue, &(struct mw_job){.priority = (enum mw_job_priority) - 1}));
    assert_false(job_queue_fits(&queue, &(struct mw_job){.priority = MW_JOB_PRIORITIES}));
    job_queue_fini(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_keeps_the_order),
        cmocka_unit_test(queue_takes_the_urgent_first),
        cmocka_unit_test(queue_lets_no_class_starve),
        cmocka_unit_test(queue_leaves_batch_last_without_ageing),
        cmocka_unit_test(queue_ages_both_lower_classes),
        cmocka_unit_test(queue_lets_a_newcomer_in),
        cmocka_unit_test(queue_makes_a_tenant_wait_for_itself),
        cmocka_unit_test(queue_shares_by_run_time),
        cmocka_unit_test(queue_lets_nobody_be_new_for_ever),
        cmocka_unit_test(queue_pays_long_debts_at_once),
        cmocka_unit_test(queue_remembers_a_debt),
        cmocka_unit_test(queue_knows_its_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

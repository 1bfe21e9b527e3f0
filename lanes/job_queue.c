#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "job_queue.h"

#define QUANTUM_NS ((int64_t)MW_LANE_SHARE_QUANTUM_NS)

/* More than a job can run; keeps a debt far from the end of its type. */
#define CHARGE_NS_MAX (UINT64_C(1) << 52)

/* The order of the classes, first one first. */
static const enum mw_job_priority order[MW_JOB_PRIORITIES] = {MW_JOB_INTERACTIVE, MW_JOB_NORMAL,
                                                              MW_JOB_BATCH};

static struct job_class *class_next(struct job_queue *queue);
static struct job_share *share_next(struct job_class *class);
static struct job_share *share_in_turn(struct job_class *class);
static void share_list(struct job_class *class, struct job_share *share);
static void debts_lower(struct job_class *class);
static int64_t rounds_owed(const struct job_share *share);
static void ring_append(struct job_ring *ring, struct job_share *share);
static void ring_pop(struct job_ring *ring);

int job_queue_init(struct job_queue *queue, unsigned tenants_max)
{
    *queue = (struct job_queue){.tenants_max = tenants_max};
    queue->shares = calloc((size_t)tenants_max * MW_JOB_PRIORITIES, sizeof *queue->shares);
    if (queue->shares == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < (size_t)tenants_max * MW_JOB_PRIORITIES; i++)
        queue->shares[i].credit_ns = QUANTUM_NS;
    for (unsigned i = 0; i < MW_JOB_PRIORITIES; i++)
        queue->classes[i].shares = &queue->shares[(size_t)i * tenants_max];
    return 0;
}

void job_queue_fini(struct job_queue *queue)
{
    free(queue->shares);
    queue->shares = NULL;
}

void job_queue_push(struct job_queue *queue, struct mw_job *oldest, struct mw_job *newest,
                    unsigned count)
{
    struct job_class *class = &queue->classes[oldest->priority];
    struct job_share *share = &class->shares[oldest->tenant];

    newest->next = NULL;
    oldest->prev = share->tail;
    if (share->tail != NULL)
        share->tail->next = oldest;
    else
        share->head = oldest;
    share->tail = newest;
    class->queued += count;
    queue->queued += count;
    if (!share->listed && queue->tenants_max > 1)
        share_list(class, share);
}

struct mw_job *job_queue_choose(struct job_queue *queue)
{
    struct job_class *class = class_next(queue);

    return (queue->tenants_max > 1 ? share_next(class) : class->shares)->head;
}

void job_queue_debit(struct job_class *class, struct job_share *share, uint64_t run_ns)
{
    share->credit_ns -= (int64_t)(run_ns < CHARGE_NS_MAX ? run_ns : CHARGE_NS_MAX);
    if (share->credit_ns < -(int64_t)CHARGE_NS_MAX)
        share->credit_ns = -(int64_t)CHARGE_NS_MAX;
    if (share->credit_ns <= 0 && !share->listed)
        share_list(class, share);
}

uint64_t job_queue_oldest_ns(const struct job_queue *queue)
{
    uint64_t oldest = UINT64_MAX;

    for (size_t i = 0; i < (size_t)queue->tenants_max * MW_JOB_PRIORITIES; i++) {
        const struct mw_job *head = queue->shares[i].head;

        if (head != NULL && head->queued_ns < oldest)
            oldest = head->queued_ns;
    }
    return oldest;
}

/* ---- classes ---- */

/* The queue is not empty. */
static struct job_class *class_next(struct job_queue *queue)
{
    struct job_class *next = NULL;
    unsigned passes = 0; /* of the one that was passed over most often, if too often */

    for (unsigned i = 0; i < MW_JOB_PRIORITIES; i++) {
        struct job_class *class = &queue->classes[order[i]];

        if (class->queued == queue->queued) { /* the usual case: nobody is passed over */
            class->passes = 0;
            return class;
        }
        if (class->queued == 0)
            continue;
        if (next == NULL || (class->passes >= MW_LANE_PASSES_MAX && class->passes > passes))
            next = class;
        if (next == class && class->passes >= MW_LANE_PASSES_MAX)
            passes = class->passes;
    }
    assert(next != NULL);
    for (unsigned i = 0; i < MW_JOB_PRIORITIES; i++)
        if (queue->classes[i].queued > 0)
            queue->classes[i].passes++;
    next->passes = 0;
    return next;
}

/* ---- shares ---- */

/* The share whose job is next; the class has jobs. After the debts were lowered a round finds one
 * for certain. */
static struct job_share *share_next(struct job_class *class)
{
    struct job_share *share = share_in_turn(class);

    if (share == NULL)
        share = share_in_turn(class); /* the round has paid everybody a turn */
    if (share == NULL) {
        debts_lower(class);
        share = share_in_turn(class);
    }
    if (share == NULL)
        share = share_in_turn(class);
    assert(share != NULL);
    return share;
}

/* Go round once, until somebody has both a job and credit. A fresh one has its first job only
 * before the others, and then stands in line: also an empty one, or it could be fresh again at
 * once. */
static struct job_share *share_in_turn(struct job_class *class)
{
    for (unsigned left = class->listed; left > 0; left--) {
        bool is_fresh = class->fresh.head != NULL;
        struct job_ring *ring = is_fresh ? &class->fresh : &class->standing;
        struct job_share *share = ring->head;
        bool is_next;

        assert(share != NULL); /* `listed` counts those in both rings */
        is_next = share->credit_ns > 0 && share->head != NULL;
        if (is_next && !is_fresh)
            return share; /* its turn goes on while it has credit */
        ring_pop(ring);
        if (is_fresh || share->credit_ns <= 0) {
            if (share->credit_ns <= 0)
                share->credit_ns += QUANTUM_NS;
            ring_append(&class->standing, share);
        } else {
            share->listed = false;
            class->listed--;
        }
        if (is_next)
            return share;
    }
    return NULL;
}

static void share_list(struct job_class *class, struct job_share *share)
{
    if (share->credit_ns > 0) {
        share->credit_ns = QUANTUM_NS; /* what is left of an old turn is not saved up */
        ring_append(&class->fresh, share);
    } else {
        ring_append(&class->standing, share);
    }
    share->listed = true;
    class->listed++;
}

/* Everybody who has jobs is in debt by more than a turn: let as many rounds pass at once as it
 * takes the first of them to get out. A round has just emptied `fresh`. */
static void debts_lower(struct job_class *class)
{
    int64_t rounds = INT64_MAX;

    assert(class->fresh.head == NULL);
    for (struct job_share *share = class->standing.head; share != NULL; share = share->next)
        if (share->head != NULL && rounds_owed(share) < rounds)
            rounds = rounds_owed(share);
    for (struct job_share *share = class->standing.head; share != NULL; share = share->next) {
        int64_t owed = rounds_owed(share);

        share->credit_ns += QUANTUM_NS * (owed < rounds ? owed : rounds);
    }
}

static int64_t rounds_owed(const struct job_share *share)
{
    return share->credit_ns > 0 ? 0 : -share->credit_ns / QUANTUM_NS + 1;
}

static void ring_append(struct job_ring *ring, struct job_share *share)
{
    share->next = NULL;
    if (ring->tail != NULL)
        ring->tail->next = share;
    else
        ring->head = share;
    ring->tail = share;
}

static void ring_pop(struct job_ring *ring)
{
    struct job_share *share = ring->head;

    ring->head = share->next;
    if (ring->head == NULL)
        ring->tail = NULL;
    share->next = NULL;
}

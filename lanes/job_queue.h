/* job_queue.h - which of the waiting jobs is next. Private to lanes/.
 *
 * Three classes, one for each priority; interactive before normal before batch, but a class that
 * was passed over MW_LANE_PASSES_MAX times in a row goes next.
 *
 * Within a class the tenants share by deficit round robin (Shreedhar and Varghese, 1995) with a
 * list of new ones, as FQ-CoDel has (RFC 8290): a tenant that has just come goes before those that
 * stand in line, once, so that its single job does not wait for a turn of everybody. What a job
 * costs is known only when it has run: a tenant's turn lasts while its credit is above 0, and the
 * run time is taken off after. A debt is paid in rounds, also by a tenant that has nothing queued.
 *
 * Ownership:  jobs stay the caller's; linked by their `prev` and `next`.
 * Threads:    none: the caller holds the lane's lock.
 * Bounds:     tenants_max shares for each class, allocated at init. Each function is done in a
 *             number of steps that only tenants_max bounds, and never the number of jobs. */
#ifndef MW_JOB_QUEUE_H
#define MW_JOB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "lane.h"

/* One tenant's part of a class. */
struct job_share {
    struct mw_job *head; /* oldest */
    struct mw_job *tail;
    struct job_share *next; /* in the ring that it is listed in */
    int64_t credit_ns;      /* run time that is left of its turn; below 0: a debt */
    bool listed;
};

struct job_ring {
    struct job_share *head;
    struct job_share *tail;
};

struct job_class {
    struct job_share *shares; /* by tenant */
    unsigned queued;
    unsigned passes;       /* how often in a row another class went first while this one had jobs */
    unsigned listed;       /* in both rings */
    struct job_ring fresh; /* tenants that have just come */
    struct job_ring standing; /* the others that have jobs or a debt */
};

struct job_queue {
    unsigned queued;
    unsigned tenants_max;
    struct job_share *shares; /* of all classes: one allocation */
    struct job_class classes[MW_JOB_PRIORITIES];
};

/* Returns 0 or -ENOMEM. */
int job_queue_init(struct job_queue *queue, unsigned tenants_max);
void job_queue_fini(struct job_queue *queue);

/* Whether the job's priority and tenant are within bounds. */
static inline bool job_queue_fits(const struct job_queue *queue, const struct mw_job *job);

/* Queue `count` jobs of one priority and tenant: from `oldest` to `newest` by `next`, and back by
 * `prev`. */
void job_queue_push(struct job_queue *queue, struct mw_job *oldest, struct mw_job *newest,
                    unsigned count);

/* Take the next job out; NULL when there is none. */
static inline struct mw_job *job_queue_take(struct job_queue *queue);

/* Take this job out, wherever it stands. */
static inline void job_queue_remove(struct job_queue *queue, struct mw_job *job);

/* A job of this tenant and class has run for so long. */
static inline void job_queue_charge(struct job_queue *queue, enum mw_job_priority priority,
                                    uint32_t tenant, uint64_t run_ns);

/* When the job was queued that has waited longest; UINT64_MAX when none waits. */
uint64_t job_queue_oldest_ns(const struct job_queue *queue);

/* ---- what each job passes through, and the usual case: one tenant, and one class has all ---- */

struct mw_job *job_queue_choose(struct job_queue *queue); /* the queue is not empty */
void job_queue_debit(struct job_class *class, struct job_share *share, uint64_t run_ns);

static inline bool job_queue_fits(const struct job_queue *queue, const struct mw_job *job)
{
    return (unsigned)job->priority < MW_JOB_PRIORITIES && job->tenant < queue->tenants_max;
}

static inline struct mw_job *job_queue_take(struct job_queue *queue)
{
    struct job_class *usual = &queue->classes[MW_JOB_NORMAL];
    struct mw_job *job;

    if (queue->queued == 0)
        return NULL;
    if (queue->tenants_max == 1 && usual->queued == queue->queued) {
        usual->passes = 0;
        job = usual->shares->head;
    } else {
        job = job_queue_choose(queue);
    }
    job_queue_remove(queue, job);
    return job;
}

static inline void job_queue_remove(struct job_queue *queue, struct mw_job *job)
{
    struct job_class *class = &queue->classes[job->priority];
    struct job_share *share = &class->shares[job->tenant];

    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        share->head = job->next;
    if (job->next != NULL)
        job->next->prev = job->prev;
    else
        share->tail = job->prev;
    job->prev = NULL;
    job->next = NULL;
    queue->queued--;
    class->queued--;
    if (class->queued == 0)
        class->passes = 0;
}

static inline void job_queue_charge(struct job_queue *queue, enum mw_job_priority priority,
                                    uint32_t tenant, uint64_t run_ns)
{
    struct job_class *class = &queue->classes[priority];

    if (queue->tenants_max > 1)
        job_queue_debit(class, &class->shares[tenant], run_ns);
}

#endif

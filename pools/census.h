/* census.h - who is who among the tasks of this process, from /proc and from what each thread
 * recorded at its entry.
 *
 * Theory. A thread that mw_thread_start starts, or that mw_thread_adopt adopts, is recorded with
 * its kernel id. Every other task of the process, but the initial one, is a *stranger*: a thread
 * of the host or of a library. A Linux thread inherits its creator's name, so a stranger that bears
 * one of our kinds' names was started by a thread of that kind and did not name itself: it is
 * counted as that kind's *heir*.
 *
 * What it cannot see: a thread that has ended, and, among strangers, who started one that has given
 * itself a name. audit.h tells of a closer look.
 *
 * Fork:    a child starts with the record of its only thread.
 * Threads: any thread; the census reads small files of /proc, and the rest holds a lock for
 *          moments.
 * Bounds:  MW_CENSUS_STRANGERS_MAX strangers by name, all of them by number. */
#ifndef MILLWRIGHT_CENSUS_H
#define MILLWRIGHT_CENSUS_H

#include <stdbool.h>
#include <sys/types.h>

#include <millwright/thread.h>

#define MW_CENSUS_STRANGERS_MAX 16u
#define MW_CENSUS_NAME_BYTES    16u

struct mw_census_stranger {
    pid_t tid;
    char name[MW_CENSUS_NAME_BYTES];
    enum mw_thread_kind heir_of; /* the kind whose name it bears; MW_THREAD_HOST: none */
};

struct mw_census {
    unsigned tasks;                    /* all of the process */
    unsigned threads[MW_THREAD_KINDS]; /* by recorded kind; [MW_THREAD_HOST] holds the initial one,
                                          unless it is adopted as another */
    unsigned starting; /* of ours, on their way: for moments they may show as strangers */
    unsigned strangers;
    unsigned heirs[MW_THREAD_KINDS]; /* strangers that bear a kind's name; [MW_THREAD_HOST]: 0 */
    unsigned listed;
    struct mw_census_stranger list[MW_CENSUS_STRANGERS_MAX]; /* the first `listed` strangers */
};

/* Count the tasks of this process. Returns 0, -ENOMEM, or what reading /proc gave.
 * Runs on: any thread. */
int mw_census_take(struct mw_census *census);

/* The kernel's ids of the recorded threads of `kind`, the first `room` of them. Returns how many
 * there are in all. Runs on: any thread. Does not block, but for a lock held for moments. */
unsigned mw_census_list(enum mw_thread_kind kind, pid_t *tids, unsigned room);

/* For thread.c, which starts and adopts threads: one of ours is about to be created; that failed;
 * it has begun, or was adopted (once more: under another kind); it is about to end. */
void mw_census_starting(void);
void mw_census_not_started(void);
void mw_census_enter(enum mw_thread_kind kind, bool was_starting);
void mw_census_leave(void);

#endif

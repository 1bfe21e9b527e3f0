#include "timers.h"

#include <millwright/clock.h>
#include <millwright/mutex.h>
#include <millwright/thread.h>

#include "scene.h"

static void timers_main(void *unused);

static struct mw_mutex lock; /* guards the list */
static struct mw_cond added;
static struct timer *head MW_GUARDED_BY(lock);
static struct timer *tail MW_GUARDED_BY(lock);
static uint64_t delay_ns; /* set before the thread is started */

int timers_start(unsigned delay_ms)
{
    static struct mw_thread thread;
    int error = mw_mutex_init(&lock);

    delay_ns = delay_ms * MW_NS_PER_MS;
    if (error == 0)
        error = mw_cond_init(&added);
    if (error == 0)
        error = mw_thread_start(&thread, &(struct mw_thread_options){.name = "timers"}, timers_main,
                                NULL);
    return error;
}

void timers_add(struct timer *timer)
{
    mw_mutex_lock(&lock);
    timer->due_ns = mw_clock_ns() + delay_ns;
    timer->next = NULL;
    if (head == NULL)
        head = timer;
    else
        tail->next = timer;
    tail = timer;
    mw_cond_signal(&added);
    mw_mutex_unlock(&lock);
}

static void timers_main(void *unused)
{
    (void)unused;
    for (;;) {
        struct timer *timer;

        mw_mutex_lock(&lock);
        while (head == NULL)
            mw_cond_wait(&added, &lock);
        timer = head;
        head = timer->next;
        mw_mutex_unlock(&lock);
        scene_sleep_until(timer->due_ns);
        scene_submit(&timer->item);
    }
}

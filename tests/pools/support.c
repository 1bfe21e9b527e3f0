#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <millwright/clock.h>

#include "support.h"

#define STILL_READS 5u /* a millisecond apart */

static unsigned tasks_settled(void);
static void *tell_tid(void *arg);

void counter_init(struct counter *counter)
{
    int error = mw_mutex_init(&counter->lock);

    assert(error == 0);
    error = mw_cond_init(&counter->grown);
    assert(error == 0);
    (void)error;
    counter->value = 0;
}

void counter_fini(struct counter *counter)
{
    mw_cond_fini(&counter->grown);
    mw_mutex_fini(&counter->lock);
}

void counter_add(struct counter *counter, unsigned n)
{
    mw_mutex_lock(&counter->lock);
    counter->value += n;
    mw_cond_broadcast(&counter->grown);
    mw_mutex_unlock(&counter->lock);
}

unsigned counter_value(struct counter *counter)
{
    unsigned value;

    mw_mutex_lock(&counter->lock);
    value = counter->value;
    mw_mutex_unlock(&counter->lock);
    return value;
}

bool counter_await(struct counter *counter, unsigned value)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;
    bool in_time = true;
    bool reached;

    mw_mutex_lock(&counter->lock);
    while (counter->value < value && in_time)
        in_time = mw_cond_wait_until(&counter->grown, &counter->lock, deadline);
    reached = counter->value >= value;
    mw_mutex_unlock(&counter->lock);
    return reached;
}

/* Not by listing /proc/self/task: a listing may skip a thread when another one ends meanwhile. */
unsigned tasks_count(void)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    unsigned count = 0;

    assert(status != NULL);
    while (count == 0 && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "Threads: %u", &count) != 1)
            count = 0;
    fclose(status);
    assert(count > 0);
    return count;
}

unsigned tasks_baseline(void)
{
    pthread_t thread;
    pid_t tid;
    int error = pthread_create(&thread, NULL, tell_tid, &tid);

    assert(error == 0);
    error = pthread_join(thread, NULL);
    assert(error == 0);
    (void)error;
    while (tgkill(getpid(), tid, 0) == 0) /* joined, so this lasts for moments only */
        sched_yield();
    return tasks_settled();
}

bool tasks_await(unsigned count)
{
    uint64_t deadline = mw_clock_ns() + SUPPORT_WAIT_S * MW_NS_PER_S;

    while (tasks_count() != count) {
        if (mw_clock_ns() > deadline)
            return false;
        sched_yield();
    }
    return true;
}

/* The count once it has stood still: a thread of the test before may have been joined and be in
 * /proc for moments. One thread is the least there can be, and is sure at once. */
static unsigned tasks_settled(void)
{
    unsigned least = tasks_count();

    for (unsigned still = 0; still < STILL_READS && least > 1; still++) {
        const struct timespec pause = {.tv_nsec = MW_NS_PER_MS};
        unsigned now;

        nanosleep(&pause, NULL);
        now = tasks_count();
        if (now < least) {
            least = now;
            still = 0;
        }
    }
    return least;
}

static void *tell_tid(void *arg)
{
    *(pid_t *)arg = gettid();
    return NULL;
}

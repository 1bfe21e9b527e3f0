#include <assert.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include <millwright/clock.h>

#include "support.h"

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

unsigned tasks_count(void)
{
    DIR *directory = opendir("/proc/self/task");
    unsigned count = 0;
    const struct dirent *entry;

    assert(directory != NULL);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(directory);
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
    return tasks_count();
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

static void *tell_tid(void *arg)
{
    *(pid_t *)arg = gettid();
    return NULL;
}

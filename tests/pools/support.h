/* support.h - what the tests of pools and lanes share: a counter to wait for, and a look at the
 * process's threads.
 *
 * Threads: all of it from any thread. Waits end after SUPPORT_WAIT_S at the latest. */
#ifndef MILLWRIGHT_TESTS_SUPPORT_H
#define MILLWRIGHT_TESTS_SUPPORT_H

#include <stdbool.h>

#include <millwright/mutex.h>

#include "support/sanitized.h"

#define SUPPORT_WAIT_S 60 /* far above anything a healthy run takes, sanitizers included */

/* Counts what happened. A gate is a counter that everybody waits to reach 1. */
struct counter {
    struct mw_mutex lock; /* guards `value` */
    struct mw_cond grown;
    unsigned value;
};

void counter_init(struct counter *counter);
void counter_fini(struct counter *counter);
void counter_add(struct counter *counter, unsigned n);
unsigned counter_value(struct counter *counter);

/* Wait until the counter is at least `value`. Returns false when it does not get there in time. */
bool counter_await(struct counter *counter, unsigned value);

/* How many threads the process has, as the kernel counts them. */
unsigned tasks_count(void);

/* The same, once the process has its first thread behind it: ThreadSanitizer brings one of its own
 * then, which stays. */
unsigned tasks_baseline(void);

/* Wait until the process has exactly `count` threads: a joined thread stays in /proc for moments.
 * Returns false when it does not get there in time. */
bool tasks_await(unsigned count);

#endif

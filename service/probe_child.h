/* probe_child.h - a row of `millwright probe` in a process of its own, so that each has a fresh
 * pool, fresh workers of libuv, the environment that it needs before any thread exists, and a
 * folder for temporary files that is gone afterwards, whatever becomes of it.
 *
 * Threads: one, and the process has no other. */
#ifndef MW_SERVICE_PROBE_CHILD_H
#define MW_SERVICE_PROBE_CHILD_H

#include <stdint.h>

#include "probe_row.h"

/* A row that has not ended so long after its time is ended. */
#define MW_PROBE_CHILD_GRACE_S 60u
/* A roll's time begins when it has stored what becomes stale, for which it gets so long. */
#define MW_PROBE_CHILD_FILL_S 240u

/* Run `row` in a child and wait for it. While it runs `tick` (NULL: nobody) is called once a
 * second with the time since it began. When `stop_fd` (-1: none) becomes readable, or a signal
 * handler ran, the child is killed and what it had is lost.
 * Returns 0 with `result` filled, whose error may be set; -EINTR; or why there was no child. */
int mw_probe_child_run(const struct mw_probe_row *row, int stop_fd,
                       void (*tick)(void *user, uint64_t elapsed_ns), void *user,
                       struct mw_probe_result *result);

#endif

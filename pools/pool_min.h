/* pool_min.h - the minimum of a pool, from whoever may set it (seed 003). Precedence: code
 * (mw_pool_set_min, at any time) over the environment over a config file over the default.
 *
 * Values are decimal everywhere. What could be meant as hexadecimal is refused with a text that
 * says how to write it: .NET reads its variable as hexadecimal, and 500 became 1,280 threads. */
#ifndef MILLWRIGHT_POOL_MIN_H
#define MILLWRIGHT_POOL_MIN_H

#include <stddef.h>

#define MW_POOL_MIN_ENVIRONMENT "MILLWRIGHT_POOL_MIN_THREADS"

/* Read 1 to `max`. Returns 0, or -EINVAL with a text in `why`: "must be ...", to be put after the
 * name of where it stands. */
int mw_pool_min_parse(const char *text, unsigned max, unsigned *min_threads, char *why,
                      size_t why_bytes);

/* What MILLWRIGHT_POOL_MIN_THREADS says: 0 with `min_threads` set, -ENOENT when it is unset or
 * empty, or -EINVAL with `why`, which names it. */
int mw_pool_min_environment(unsigned max, unsigned *min_threads, char *why, size_t why_bytes);

#endif

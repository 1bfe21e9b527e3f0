/* service.h - the compile service: pools, lanes, toolchain, store, pipeline and HTTP on one loop.
 *
 * Threads:  everything on the loop's thread. mw_service_new may block (it opens the store);
 *           mw_service_free blocks until every lane and pool thread has ended.
 * Use:      mw_compile_init before any thread exists; mw_service_new; uv_run; meanwhile
 *           mw_service_stop, which lets uv_run return; mw_service_free. */
#ifndef MW_SERVICE_SERVICE_H
#define MW_SERVICE_SERVICE_H

#include <stddef.h>
#include <uv.h>

#include "commands.h"

struct mw_service;

/* Returns 0, or a negative errno with `why` filled: what is wrong and what to do. */
int mw_service_new(struct mw_service **out, uv_loop_t *loop,
                   const struct mw_serve_settings *settings, char *why, size_t why_bytes);

/* One line: where it listens, what it may use, where it stores. */
const char *mw_service_banner(const struct mw_service *service);

/* Take no new connection, finish what is there, then let go of the loop. When `grace_ms` of the
 * settings is over, `late(user)` is called once with requests still unanswered. */
void mw_service_stop(struct mw_service *service, void (*late)(void *user), void *user);

/* After uv_run has returned. NULL is fine. */
void mw_service_free(struct mw_service *service);

#endif

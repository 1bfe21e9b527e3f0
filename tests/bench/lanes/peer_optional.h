/* peer_optional.h - pools that are measured when they were installed at build time. peers.h has the
 * meaning of the functions. For C and C++. */
#ifndef BENCH_PEER_OPTIONAL_H
#define BENCH_PEER_OPTIONAL_H

struct peer_options;
struct task;

#ifdef BENCH_GLIB
#define PEER_GLIB_OPEN   peer_glib_open
#define PEER_GLIB_SUBMIT peer_glib_submit
int peer_glib_open(const struct peer_options *options);
int peer_glib_submit(unsigned producer, struct task *task);
#else
#define PEER_GLIB_OPEN   NULL
#define PEER_GLIB_SUBMIT NULL
#endif

#ifdef BENCH_APR
#define PEER_APR_OPEN   peer_apr_open
#define PEER_APR_SUBMIT peer_apr_submit
int peer_apr_open(const struct peer_options *options);
int peer_apr_submit(unsigned producer, struct task *task);
#else
#define PEER_APR_OPEN   NULL
#define PEER_APR_SUBMIT NULL
#endif

#ifdef BENCH_TBB
#define PEER_TBB_OPEN   tbb_open /* in peers.c */
#define PEER_TBB_SUBMIT peer_tbb_submit
#ifdef __cplusplus
extern "C" {
#endif
int peer_tbb_start(unsigned threads, void (*run)(struct task *task));
int peer_tbb_submit(unsigned producer, struct task *task);
#ifdef __cplusplus
}
#endif
#else
#define PEER_TBB_OPEN   NULL
#define PEER_TBB_SUBMIT NULL
#endif

#endif

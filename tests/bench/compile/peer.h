/* peer.h - what the service is compared with: a compile by a process of clang.
 *
 * Threads: any. */
#ifndef BENCH_COMPILE_PEER_H
#define BENCH_COMPILE_PEER_H

#include "subject.h"

/* Compile the main file of `subject`, which subject_write has put into `folder`, into `object`
 * there. Returns 0, or a negative errno, and said why. Blocks until it is done. */
int peer_compile(const struct subject *subject, const char *folder, const char *object);

#endif

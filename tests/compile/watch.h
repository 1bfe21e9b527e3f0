/* watch.h - sees every file that this process opens, changes or (in one folder) looks at, and every
 * process that it starts.
 *
 * Theory. A seccomp filter makes each system call that names a file end in a signal on the thread
 * that made it. The handler notes the call when it breaks a rule, and refuses it; else it makes the
 * call itself, with a mark in the sixth argument, which none of these calls has, by which the
 * filter knows it. So it needs no privilege, no tracer and no preloaded library, and nothing that
 * the process calls, libraries and bare system calls alike, gets around it.
 *
 * Threads:  watch_begin by a process that has one thread; what it sees comes from any.
 * Bounds:   WATCH_EVENTS_MAX events are kept, all are counted. */
#ifndef MILLWRIGHT_TESTS_WATCH_H
#define MILLWRIGHT_TESTS_WATCH_H

#include <stdatomic.h>
#include <stddef.h>

#define WATCH_EVENTS_MAX 64u
#define WATCH_PATH_BYTES 256u

struct watch_event {
    char call[16]; /* "openat" */
    char path[WATCH_PATH_BYTES];
};

/* Zero bytes at first; in shared memory, so that others see what a child did. */
struct watch_log {
    _Atomic size_t count; /* an event is written before it is counted, by one thread at a time */
    struct watch_event events[WATCH_EVENTS_MAX];
};

struct watch_rules {
    const char *const
        *readable;        /* folders where files may be opened for reading; NULL-terminated */
    const char *listable; /* NULL, or where folders may be listed, and no file opened */
    const char *scratch;  /* NULL, or the folder where anything may be done */
    const char *secret;   /* NULL, or the folder that may not even be looked at */
};

/* From now on, for this process and for good. `rules` and `log` must stay. Returns 0 or a negative
 * errno. */
int watch_begin(const struct watch_rules *rules, struct watch_log *log);

#endif

/* error.h - one way to say what went wrong: 0, or a negative errno.
 *
 * Ownership:  texts are static; nothing is freed.
 * Threads:    any thread; nothing here blocks. */
#ifndef MILLWRIGHT_ERROR_H
#define MILLWRIGHT_ERROR_H

/* Text for `error` (0 or a negative errno), in Millwright's own words where a bare errno would
 * not say what to do. Never NULL; an unknown number gives "unknown error".
 * Runs on: any thread. Does not block. */
const char *mw_strerror(int error);

#endif

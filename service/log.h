/* log.h - one line to stderr, with the time, for what an operator should know. */
#ifndef MW_SERVICE_LOG_H
#define MW_SERVICE_LOG_H

#include <stddef.h>
#include <time.h>

#define MW_LOG_STAMP_BYTES 32u

/* Write "<UTC time> millwright: <text>". Runs on: any thread. May block on stderr. */
void mw_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "2026-11-30T12:00:00Z", or "" when it cannot be told. Returns `stamp`. */
const char *mw_log_stamp(char stamp[MW_LOG_STAMP_BYTES], time_t at);

#endif

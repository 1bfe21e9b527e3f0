/* log.h - one line to stderr, with the time, for what an operator should know. */
#ifndef MW_SERVICE_LOG_H
#define MW_SERVICE_LOG_H

/* Write "<UTC time> millwright: <text>". Runs on: any thread. May block on stderr. */
void mw_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void mw_log(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);

    char stamp[MW_LOG_STAMP_BYTES];
    /* One call for the line, so that two threads do not mix theirs. */
    fprintf(stderr, "%s millwright: %s\n", mw_log_stamp(stamp, time(NULL)), text);
}

const char *mw_log_stamp(char stamp[MW_LOG_STAMP_BYTES], time_t at)
{
    struct tm utc;
    if (!gmtime_r(&at, &utc) ||
        strftime(stamp, MW_LOG_STAMP_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        stamp[0] = '\0';
    return stamp;
}

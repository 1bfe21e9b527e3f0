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

    char stamp[32] = "";
    struct tm utc;
    time_t now = time(NULL);
    if (gmtime_r(&now, &utc))
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    /* One call for the line, so that two threads do not mix theirs. */
    fprintf(stderr, "%s millwright: %s\n", stamp, text);
}

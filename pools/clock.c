#include <assert.h>
#include <time.h>

#include "clock.h"

uint64_t mw_clock_ns(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_MONOTONIC, &now);

    assert(failed == 0);
    (void)failed;
    return (uint64_t)now.tv_sec * MW_NS_PER_S + (uint64_t)now.tv_nsec;
}

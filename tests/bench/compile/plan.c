#include "plan.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

#define PAUSE_NS       80000000L /* some times what a worker takes to get ready */
#define QUICK_PAUSE_NS 10000000L

void plan_options(const struct plan *plan, const char *const *more,
                  const char *options[PLAN_OPTIONS_MAX])
{
    size_t count = 0;

    if (plan->equal) {
        options[count++] = "--lane";
        options[count++] = "compile-cpu.urgency=equal";
    }
    for (; more != NULL && *more != NULL; more++) {
        assert(count + 1 < PLAN_OPTIONS_MAX);
        options[count++] = *more;
    }
    options[count] = NULL;
}

void plan_pause(const struct plan *plan)
{
    struct timespec pause = {.tv_nsec = plan->quick ? QUICK_PAUSE_NS : PAUSE_NS};

    nanosleep(&pause, NULL);
}

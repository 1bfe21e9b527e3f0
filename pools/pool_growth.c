#include <assert.h>

#include "clock.h"
#include "pool_growth.h"

static unsigned least(unsigned a, unsigned b);
static unsigned greatest(unsigned a, unsigned b);
static bool compensate_one(struct growth *growth);

unsigned growth_goal(const struct growth *growth)
{
    return least(growth->max, growth->min + growth->injected + growth->compensated);
}

void growth_block(struct growth *growth, unsigned threads, uint64_t now)
{
    if (growth->blocked == growth->compensated)
        growth->step_ns = now; /* whatever is short from here on has waited for nothing yet */
    growth->blocked++;
    growth_compensate(growth, threads, now);
}

void growth_unblock(struct growth *growth)
{
    assert(growth->blocked > 0);
    growth->blocked--;
    growth->compensated = least(growth->compensated, growth->blocked);
}

bool growth_is_short(const struct growth *growth)
{
    return growth->compensated < growth->blocked && growth_goal(growth) < growth->max;
}

uint64_t growth_step_due(const struct growth *growth)
{
    unsigned goal = growth_goal(growth);
    unsigned at_once = growth->min + growth->cpus;
    unsigned above = goal > at_once ? goal - at_once : 0;
    unsigned step_ms = GROWTH_STEP_MS * (1 + above / growth->cpus); /* at most 1024 of them */

    return growth->step_ns + least(step_ms, GROWTH_STEP_MS_MAX) * MW_NS_PER_MS;
}

void growth_compensate(struct growth *growth, unsigned threads, uint64_t now)
{
    unsigned at_once = greatest(growth->min + growth->cpus, threads);

    while (growth_goal(growth) < at_once && compensate_one(growth))
        growth->step_ns = now;
    while (growth_is_short(growth) && now >= growth_step_due(growth)) {
        growth->step_ns = growth_step_due(growth); /* not `now`: nobody may have looked since */
        (void)compensate_one(growth);
    }
}

bool growth_inject(struct growth *growth)
{
    if (growth_goal(growth) == growth->max)
        return false;
    growth->injected++;
    return true;
}

void growth_set_min(struct growth *growth, unsigned min, unsigned threads, uint64_t now)
{
    assert(min >= 1 && min <= growth->max);
    if (min > growth->min)
        growth->injected -= least(growth->injected, min - growth->min);
    growth->min = min;
    growth_compensate(growth, threads, now);
}

void growth_shrink(struct growth *growth, unsigned threads)
{
    growth->injected = least(growth->injected, threads > growth->min ? threads - growth->min : 0);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned greatest(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

static bool compensate_one(struct growth *growth)
{
    if (!growth_is_short(growth))
        return false;
    growth->compensated++;
    return true;
}

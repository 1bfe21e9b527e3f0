#include "work.h"

#include <millwright/clock.h>

#define CALIBRATE_ROUNDS 50u
#define CALIBRATE_LOOPS  10000u

uint64_t work_loops;

uint64_t work_calibrate(uint64_t ns)
{
    uint64_t least_ns = UINT64_MAX;

    for (unsigned i = 0; i < CALIBRATE_ROUNDS; i++) {
        uint64_t begin_ns = mw_clock_ns();
        uint64_t took_ns;

        work_run(CALIBRATE_LOOPS);
        took_ns = mw_clock_ns() - begin_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return CALIBRATE_LOOPS * ns / (least_ns > 0 ? least_ns : 1);
}

void work_compute(struct task *task)
{
    (void)task;
    work_run(work_loops);
}

/* A chain of multiplications. */
void work_run(uint64_t loops)
{
    uint64_t value = 1;

    for (uint64_t i = 0; i < loops; i++) {
        value = value * UINT64_C(6364136223846793005) + i;
        __asm__ volatile("" : "+r"(value)); /* neither left out nor shortened */
    }
}

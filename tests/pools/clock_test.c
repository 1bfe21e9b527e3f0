/* The near clock against the one of the system. A read of it is held between two of the system's:
 * then a thread that is interrupted meanwhile proves nothing against it, for the two reads are
 * apart by as much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <millwright/clock.h>
#include <millwright/thread.h>

#include "pools/support.h"

#define READERS      4
#define READS        (SANITIZED_THREADS ? 20000u : 200000u) /* of each, and as many after each sleep */
#define READS_NAPPED 200u
#define NAPS         40u
#define NEAR_NS      (5 * MW_NS_PER_US)   /* "a few microseconds" */
#define FAR_NS       (100 * MW_NS_PER_US) /* nothing excuses more */
#define OFF_NS       MW_NS_PER_MS         /* of the control */
#define MOSTLY       95u                  /* in the hundred */

/* How far off a clock was. */
struct tally {
    uint64_t reads;
    uint64_t near;
    uint64_t too_early;
    uint64_t too_late;
};

struct reader {
    uint64_t (*clock)(void);
    struct tally tally;
    struct mw_thread thread;
};

static uint64_t near_clock(void)
{
    return mw_clock_near_ns();
}

/* What a near clock would tell whose anchor is wrong. */
static uint64_t late_clock(void)
{
    return mw_clock_ns() + OFF_NS;
}

static uint64_t early_clock(void)
{
    return mw_clock_ns() - OFF_NS;
}

static void read_clock(uint64_t (*clock)(void), unsigned count, struct tally *tally)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t before = mw_clock_ns();
        uint64_t told = clock();
        uint64_t after = mw_clock_ns();

        tally->reads++;
        tally->near += before <= told + NEAR_NS && told <= after + NEAR_NS;
        tally->too_early += told + FAR_NS < before;
        tally->too_late += told > after + FAR_NS;
    }
}

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Busy first, so that most reads are from an anchor; then after sleeps that no anchor survives, or
 * only just. */
static void read_and_nap(void *arg)
{
    struct reader *reader = arg;

    read_clock(reader->clock, READS, &reader->tally);
    for (unsigned i = 0; i < NAPS; i++) {
        nap(i % 4 * MW_NS_PER_MS + MW_NS_PER_MS / 4);
        read_clock(reader->clock, READS_NAPPED, &reader->tally);
    }
}

/* Read the clock on several threads at once; what they saw goes into one tally. */
static struct tally tally_of(uint64_t (*clock)(void))
{
    struct reader readers[READERS];
    struct tally all = {0};

    memset(readers, 0, sizeof readers);
    for (unsigned i = 0; i < READERS; i++) {
        readers[i].clock = clock;
        assert_int_equal(mw_thread_start(&readers[i].thread,
                                         &(struct mw_thread_options){.name = "reader"},
                                         read_and_nap, &readers[i]),
                         0);
    }
    for (unsigned i = 0; i < READERS; i++) {
        mw_thread_join(&readers[i].thread);
        all.reads += readers[i].tally.reads;
        all.near += readers[i].tally.near;
        all.too_early += readers[i].tally.too_early;
        all.too_late += readers[i].tally.too_late;
    }
    return all;
}

static bool is_mostly_near(const struct tally *tally)
{
    return tally->near * 100 >= tally->reads * MOSTLY;
}

/* Breaks when the rate is wrong, or an anchor is taken badly or used for too long. */
static void near_clock_stays_near(void **state)
{
    struct tally tally = tally_of(near_clock);

    (void)state;
    assert_int_equal(tally.too_early, 0);
    assert_int_equal(tally.too_late, 0);
    assert_true(is_mostly_near(&tally));
}

/* Control for the one above: a clock that is off by a millisecond is found, either way. */
static void clock_that_is_off_is_found(void **state)
{
    struct tally late = tally_of(late_clock);
    struct tally early = tally_of(early_clock);

    (void)state;
    assert_true(late.too_late > 0);
    assert_int_equal(late.too_early, 0);
    assert_false(is_mostly_near(&late));
    assert_true(early.too_early > 0);
    assert_int_equal(early.too_late, 0);
    assert_false(is_mostly_near(&early));
}

/* Breaks when the clock of the system is not the monotonic one. */
static void clock_does_not_go_back(void **state)
{
    uint64_t before = mw_clock_ns();

    (void)state;
    for (unsigned i = 0; i < READS; i++) {
        uint64_t now = mw_clock_ns();

        assert_true(now >= before);
        before = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_clock_stays_near),
        cmocka_unit_test(clock_that_is_off_is_found),
        cmocka_unit_test(clock_does_not_go_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

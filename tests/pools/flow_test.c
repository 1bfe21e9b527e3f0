#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <millwright/flow.h>

static void *read_current(void *arg)
{
    *(uint64_t *)arg = mw_flow_current();
    return NULL;
}

/* Breaks when ids repeat, or 0 ("none") is handed out. */
static void flow_ids_are_new_each_time(void **state)
{
    uint64_t first = mw_flow_next();
    uint64_t second = mw_flow_next();

    (void)state;
    assert_int_not_equal(first, 0);
    assert_true(second > first);
}

/* Breaks when leaving a leaf does not bring back the one around it. */
static void flow_enter_nests(void **state)
{
    uint64_t outer = mw_flow_next();
    uint64_t inner = mw_flow_next();
    uint64_t before = mw_flow_enter(outer);

    (void)state;
    assert_int_equal(before, 0);
    assert_int_equal(mw_flow_enter(inner), outer);
    assert_int_equal(mw_flow_current(), inner);
    assert_int_equal(mw_flow_enter(outer), inner);
    assert_int_equal(mw_flow_enter(before), outer);
    assert_int_equal(mw_flow_current(), 0);
}

/* Breaks when the current leaf is shared between threads: every thread would seem to escape. */
static void flow_current_is_per_thread(void **state)
{
    uint64_t seen = UINT64_MAX;
    pthread_t thread;

    (void)state;
    mw_flow_enter(mw_flow_next());
    assert_int_equal(pthread_create(&thread, NULL, read_current, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mw_flow_enter(0);
    assert_int_equal(seen, 0);
}

/* Breaks when honest work is counted, or an escape is not. */
static void flow_arrive_counts_leaves_only(void **state)
{
    uint64_t leaf = mw_flow_next();
    uint64_t before = mw_flow_escapes();

    (void)state;
    mw_flow_arrive(0);
    assert_int_equal(mw_flow_escapes(), before);
    mw_flow_arrive(leaf);
    assert_int_equal(mw_flow_escapes(), before + 1);
    assert_int_equal(mw_flow_escaped_leaf(), leaf);
}

/* Breaks when events of one kind are counted as another, or those of no leaf are counted. */
static void flow_events_are_counted_apart(void **state)
{
    uint64_t before[MW_FLOW_EVENTS];

    (void)state;
    for (int event = 0; event < MW_FLOW_EVENTS; event++)
        before[event] = mw_flow_count((enum mw_flow_event)event);
    for (int event = 0; event < MW_FLOW_EVENTS; event++) {
        uint64_t leaf = mw_flow_next();

        mw_flow_note((enum mw_flow_event)event, 0);
        for (int i = 0; i <= event; i++)
            mw_flow_note((enum mw_flow_event)event, leaf);
        assert_int_equal(mw_flow_newest_leaf((enum mw_flow_event)event), leaf);
    }
    for (int event = 0; event < MW_FLOW_EVENTS; event++)
        assert_int_equal(mw_flow_count((enum mw_flow_event)event),
                         before[event] + (uint64_t)event + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flow_ids_are_new_each_time),
        cmocka_unit_test(flow_enter_nests),
        cmocka_unit_test(flow_current_is_per_thread),
        cmocka_unit_test(flow_arrive_counts_leaves_only),
        cmocka_unit_test(flow_events_are_counted_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* registry_test.c - named lanes over one shared pool: what is taken, what is refused and what is
 * said then, and options from text. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <millwright/registry.h>

#include "pools/support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char why[512];

static void expect_why(const char *text)
{
    if (strstr(why, text) == NULL)
        fail_msg("'%s' does not say '%s'", why, text);
}

static int add(struct mw_registry *registry, struct mw_registry_lane lane)
{
    why[0] = '\0';
    return mw_registry_add(registry, &lane, why, sizeof why);
}

/* A registry over a pool of `threads` at most. */
struct scene {
    struct mw_pool *pool;
    struct mw_registry *registry;
};

static void scene_open(struct scene *scene, unsigned threads)
{
    assert_int_equal(mw_pool_new(&scene->pool, &(struct mw_pool_options){.min_threads = 1,
                                                                         .max_threads = threads}),
                     0);
    assert_int_equal(mw_registry_new(&scene->registry, scene->pool), 0);
}

static void scene_close(struct scene *scene)
{
    mw_registry_free(scene->registry, false);
    mw_pool_free(scene->pool);
}

static struct mw_registry_lane io_lane(const char *name, unsigned cap, bool leaves_wait)
{
    return (struct mw_registry_lane){.options = {.name = name, .runner = MW_LANE_POOL, .cap = cap},
                                     .leaves_wait = leaves_wait};
}

static struct mw_registry_lane cpu_lane(const char *name, unsigned cap)
{
    return (struct mw_registry_lane){
        .options = {.name = name, .cap = cap, .urgency = MW_LANE_EQUAL}, .computes = true};
}

/* Breaks when a lane is found under another name, or the order of adding is lost. */
static void lanes_are_found_by_name_and_in_order(void **state)
{
    static const char *const names[] = {"compile-cpu", "compile", "files", "store"};
    struct scene scene;

    (void)state;
    scene_open(&scene, 8);
    assert_null(mw_registry_find(scene.registry, "compile-cpu"));
    assert_int_equal(add(scene.registry, cpu_lane(names[0], 1)), 0);
    for (unsigned i = 1; i < COUNT(names); i++)
        assert_int_equal(add(scene.registry, io_lane(names[i], i, false)), 0);

    assert_int_equal(mw_registry_count(scene.registry), COUNT(names));
    for (unsigned i = 0; i < COUNT(names); i++) {
        struct mw_lane *lane = mw_registry_at(scene.registry, i);
        struct mw_lane_stats stats;

        assert_ptr_equal(mw_registry_find(scene.registry, names[i]), lane);
        mw_lane_snapshot(lane, &stats);
        assert_string_equal(stats.name, names[i]);
        assert_int_equal(stats.runner, i == 0 ? MW_LANE_DEDICATED : MW_LANE_POOL);
        assert_int_equal(stats.cap, i == 0 ? 1 : i);
    }
    assert_null(mw_registry_at(scene.registry, COUNT(names)));
    assert_null(mw_registry_find(scene.registry, "compil"));
    assert_null(mw_registry_find(scene.registry, "compile-cpu2"));
    assert_null(mw_registry_find(scene.registry, ""));
    scene_close(&scene);
}

/* Breaks when a name that a label or a config section could not carry is taken. */
static void names_are_letters_digits_and_dashes(void **state)
{
    static const char *const wrong[] = {
        "",    "a b",      "a.b", "a=b", "a]",
        "a_b", "\xc3\xa4", "a\n", "\"",  "32-bytes-are-one-more-than-may-be"};
    struct scene scene;

    (void)state;
    scene_open(&scene, 4);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(add(scene.registry, cpu_lane(wrong[i], 1)), -EINVAL);
        expect_why("is no name for a lane; take 1 to 31 letters, digits and '-'");
    }
    assert_int_equal(add(scene.registry, cpu_lane(NULL, 1)), -EINVAL);
    assert_int_equal(add(scene.registry, cpu_lane("this-has-31-bytes-and-fits-0001", 1)), 0);
    assert_int_equal(mw_registry_count(scene.registry), 1);
    scene_close(&scene);
}

/* Breaks when two lanes share a name, so that one of them could never be found. */
static void name_is_given_once(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 4);
    assert_int_equal(add(scene.registry, cpu_lane("files", 1)), 0);
    assert_int_equal(add(scene.registry, io_lane("files", 1, false)), -EEXIST);
    expect_why("there is a lane 'files' already");
    assert_int_equal(mw_registry_count(scene.registry), 1);
    scene_close(&scene);
}

/* Breaks when the bound on lanes is not kept, or is one off. */
static void registry_takes_sixty_four_lanes(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 4);
    for (unsigned i = 0; i < MW_REGISTRY_LANES_MAX; i++) {
        char name[16];

        snprintf(name, sizeof name, "lane-%u", i);
        assert_int_equal(add(scene.registry, cpu_lane(name, 1)), 0);
    }
    assert_int_equal(add(scene.registry, cpu_lane("one-more", 1)), -ENOSPC);
    expect_why("'one-more' would be one more than the 64");
    assert_non_null(mw_registry_find(scene.registry, "lane-63"));
    scene_close(&scene);
}

/* Breaks when leaves that wait could hold every worker of the pool, or the refusal does not name
 * the numbers. The control is the same lane with one less. */
static void waiting_lanes_leave_a_worker_free(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 8);
    assert_int_equal(add(scene.registry, io_lane("files", 8, false)),
                     0); /* never wait: not summed */
    assert_int_equal(add(scene.registry, io_lane("compile", 3, true)), 0);
    assert_int_equal(add(scene.registry, io_lane("scripts", 5, true)), -EDEADLK);
    expect_why("lane 'scripts' has a cap of 5 and its leaves may wait; with 3 of other such lanes "
               "that is 8, which must be less than the 8 threads of the shared pool");
    assert_null(mw_registry_find(scene.registry, "scripts"));
    assert_int_equal(add(scene.registry, io_lane("scripts", 4, true)), 0);
    assert_int_equal(add(scene.registry, io_lane("more", 1, true)), -EDEADLK);
    scene_close(&scene);
}

/* Breaks when the sum counts a default cap as nothing. */
static void default_cap_counts_among_the_waiting(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    assert_int_equal(add(scene.registry, io_lane("compile", 0, true)), -EDEADLK);
    scene_close(&scene);
}

/* Breaks when a CPU lane is allowed to wait: its leaves must only compute (seed 002). */
static void dedicated_lane_may_not_wait(void **state)
{
    struct scene scene;
    struct mw_registry_lane lane = cpu_lane("compile-cpu", 1);

    (void)state;
    scene_open(&scene, 8);
    lane.leaves_wait = true;
    assert_int_equal(add(scene.registry, lane), -EINVAL);
    expect_why("lane 'compile-cpu': leaves of a lane with threads of its own may not wait");
    scene_close(&scene);
}

/* Breaks when a lane gets a pool other than the registry's, or none. */
static void pool_run_lane_takes_the_pool_of_the_registry(void **state)
{
    struct mw_registry *without;
    struct scene scene;
    struct mw_registry_lane lane = io_lane("files", 1, false);

    (void)state;
    scene_open(&scene, 4);
    lane.options.pool = scene.pool;
    assert_int_equal(add(scene.registry, lane), -EINVAL);
    expect_why("takes the registry's pool");
    assert_int_equal(mw_registry_new(&without, NULL), 0);
    assert_int_equal(add(without, io_lane("files", 1, false)), -EINVAL);
    assert_int_equal(add(without, cpu_lane("compile-cpu", 1)), 0);
    mw_registry_free(without, false);
    mw_registry_free(NULL, false);
    scene_close(&scene);
}

/* Breaks when an option that the lane refuses goes unsaid. */
static void what_a_lane_refuses_is_told(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 4);
    assert_int_equal(add(scene.registry, cpu_lane("compile-cpu", MW_LANE_CAP_LIMIT + 1)), -EINVAL);
    expect_why("lane 'compile-cpu' cannot be made: an argument is missing or out of range");
    assert_int_equal(mw_registry_count(scene.registry), 0);
    scene_close(&scene);
}

/* ---- leaves on the lanes ---- */

struct leaf {
    struct mw_job job; /* first, so that fn can cast */
    struct counter *done;
    struct counter *gate;  /* opened when the job is done; NULL: none */
    struct counter *order; /* how many were done before this one */
    unsigned place;
};

static int compute(struct mw_job *job)
{
    (void)job;
    return 0;
}

static void note_done(struct mw_job *job, int status)
{
    struct leaf *leaf = (struct leaf *)job;

    (void)status;
    if (leaf->order != NULL) {
        counter_add(leaf->order, 1);
        leaf->place = counter_value(leaf->order);
    }
    if (leaf->gate != NULL)
        counter_add(leaf->gate, 1);
    counter_add(leaf->done, 1);
}

static void run_one(struct mw_lane *lane)
{
    struct counter done;
    struct leaf leaf = {.job = {.fn = compute, .done = note_done}, .done = &done};

    counter_init(&done);
    assert_int_equal(mw_lane_submit(lane, &leaf.job), 0);
    assert_true(counter_await(&done, 1));
    counter_fini(&done);
}

/* Breaks when a CPU leaf that ran on a pool worker is not counted, or an honest one is. The lane
 * that is pool-run on purpose is the control. */
static void leaves_that_stray_are_counted(void **state)
{
    struct mw_registry_lane stray = io_lane("emit-on-pool", 1, false);
    struct scene scene;

    (void)state;
    scene_open(&scene, 4);
    stray.computes = true;
    assert_int_equal(add(scene.registry, cpu_lane("compile-cpu", 1)), 0);
    assert_int_equal(add(scene.registry, io_lane("files", 1, false)), 0);
    run_one(mw_registry_find(scene.registry, "compile-cpu"));
    run_one(mw_registry_find(scene.registry, "files"));
    assert_int_equal(mw_registry_strayed(scene.registry), 0);

    assert_int_equal(add(scene.registry, stray), 0);
    for (int i = 0; i < 3; i++)
        run_one(mw_registry_find(scene.registry, "emit-on-pool"));
    assert_true(mw_registry_strayed(scene.registry) >= 2); /* the last may not be counted yet */
    scene_close(&scene);
}

/* Holds the pool's only worker. */
struct holder {
    struct mw_pool_item item; /* first, so that fn can cast */
    struct counter gate;
};

static void hold(struct mw_pool_item *item)
{
    counter_await(&((struct holder *)item)->gate, 1);
}

/* Breaks when lanes are freed in another order than the newest first: one may rely on those before
 * it. The jobs wait behind a held worker; freeing a lane cancels its job. */
static void newest_lane_is_freed_first(void **state)
{
    static const char *const names[] = {"oldest", "middle", "newest"};
    struct leaf leaves[COUNT(names)] = {0};
    struct holder holder = {.item = {.fn = hold}};
    struct counter done, order;
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    counter_init(&holder.gate);
    counter_init(&done);
    counter_init(&order);
    assert_int_equal(mw_pool_submit(scene.pool, &holder.item), 0);
    for (unsigned i = 0; i < COUNT(names); i++) {
        assert_int_equal(add(scene.registry, io_lane(names[i], 1, false)), 0);
        leaves[i] = (struct leaf){.job = {.fn = compute, .done = note_done},
                                  .done = &done,
                                  .order = &order,
                                  .gate = &holder.gate};
        assert_int_equal(mw_lane_submit(mw_registry_find(scene.registry, names[i]), &leaves[i].job),
                         0);
    }
    mw_registry_free(scene.registry, true);
    assert_int_equal(counter_value(&done), COUNT(names));
    assert_int_equal(leaves[2].place, 1);
    assert_int_equal(leaves[2].job.started_ns, 0);
    mw_pool_free(scene.pool);
    counter_fini(&order);
    counter_fini(&done);
    counter_fini(&holder.gate);
}

/* ---- options from text ---- */

/* Breaks when a key sets another field, or a bound is one off. */
static void options_are_set_from_text(void **state)
{
    struct mw_lane_options options = {0};
    static const struct {
        const char *key, *value;
    } settings[] = {
        {"cap", "1024"},     {"queue", "1000000"},     {"tenants", "7"},
        {"urgency", "idle"}, {"linger-ms", "3600000"}, {"spin-us", "10"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++)
        assert_int_equal(
            mw_lane_options_set(&options, settings[i].key, settings[i].value, why, sizeof why), 0);
    assert_int_equal(options.cap, 1024);
    assert_int_equal(options.queue_max, 1000000);
    assert_int_equal(options.tenants_max, 7);
    assert_int_equal(options.urgency, MW_LANE_IDLE);
    assert_int_equal(options.linger_ms, 3600000);
    assert_int_equal(options.spin_us, 10);
    assert_int_equal(mw_lane_options_set(&options, "urgency", "idle", why, sizeof why), 0);
    assert_int_equal(options.urgency, MW_LANE_IDLE);
    assert_int_equal(mw_lane_options_set(&options, "spin-us", "0", why, sizeof why), 0);
    assert_int_equal(options.spin_us, 0);
}

/* Breaks when a wrong option is taken, or its refusal does not say what would be right. */
static void wrong_options_are_refused_with_what_to_do(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"cap", "0", "must be a decimal number from 1 to 1024, not '0'"},
        {"cap", "1025", "must be a decimal number from 1 to 1024, not '1025'"},
        {"cap", "1F4", "must be a decimal number from 1 to 1024, not '1F4'"},
        {"cap", "0x10", "not '0x10'"},
        {"cap", "+5", "not '+5'"},
        {"cap", " 5", "not ' 5'"},
        {"cap", "5 ", "not '5 '"},
        {"cap", "-1", "not '-1'"},
        {"cap", "", "not ''"},
        {"cap", "4294967297", "not '4294967297'"},
        {"cap", "99999999999999999999999", "from 1 to 1024"},
        {"queue", "1000001", "from 1 to 1000000"},
        {"tenants", "1025", "from 1 to 1024"},
        {"linger-ms", "0", "from 1 to 3600000"},
        {"spin-us", "11", "from 0 to 10"},
        {"urgency", "high", "must be one of nice-19, idle, equal, not 'high'"},
        {"urgency", "", "must be one of nice-19"},
        {"urgency", "1", "must be one of nice-19"},
        {"runner", "pool",
         "is no option of a lane; there are cap, queue, tenants, urgency, linger-ms, spin-us"},
        {"", "1", "is no option of a lane"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_lane_options options = {0};
        const struct mw_lane_options before = {0};

        assert_int_equal(
            mw_lane_options_set(&options, cases[i].key, cases[i].value, why, sizeof why), -EINVAL);
        expect_why(cases[i].says);
        assert_memory_equal(&options, &before, sizeof options);
    }
}

/* Breaks when a setting that would do nothing is taken in silence. */
static void pool_run_lane_takes_no_option_of_threads(void **state)
{
    static const char *const settings[][2] = {
        {"urgency", "idle"}, {"linger-ms", "5"}, {"spin-us", "5"}};
    struct mw_lane_options options = {.runner = MW_LANE_POOL};

    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++) {
        assert_int_equal(
            mw_lane_options_set(&options, settings[i][0], settings[i][1], why, sizeof why),
            -EINVAL);
        expect_why("is for lanes with threads of their own; this one runs on the shared pool");
    }
    assert_int_equal(mw_lane_options_set(&options, "cap", "3", why, sizeof why), 0);
    assert_int_equal(options.cap, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_found_by_name_and_in_order),
        cmocka_unit_test(names_are_letters_digits_and_dashes),
        cmocka_unit_test(name_is_given_once),
        cmocka_unit_test(registry_takes_sixty_four_lanes),
        cmocka_unit_test(waiting_lanes_leave_a_worker_free),
        cmocka_unit_test(default_cap_counts_among_the_waiting),
        cmocka_unit_test(dedicated_lane_may_not_wait),
        cmocka_unit_test(pool_run_lane_takes_the_pool_of_the_registry),
        cmocka_unit_test(what_a_lane_refuses_is_told),
        cmocka_unit_test(leaves_that_stray_are_counted),
        cmocka_unit_test(newest_lane_is_freed_first),
        cmocka_unit_test(options_are_set_from_text),
        cmocka_unit_test(wrong_options_are_refused_with_what_to_do),
        cmocka_unit_test(pool_run_lane_takes_no_option_of_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "head_starts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/clock.h>
#include <millwright/mutex.h>

/* A prefix that workers wait behind. */
struct start {
    char *key; /* NULL: this place is free */
    struct mw_worker_pool *pool;
    unsigned holds;
    uint64_t used_ns; /* last */
    bool is_dead;     /* not to be held any more */
};

/* One that none waits behind. */
struct sighting {
    char *key; /* NULL: this place is free */
    unsigned uses;
    uint64_t used_ns;  /* last */
    uint64_t retry_ns; /* not due before */
};

struct mw_head_starts {
    struct mw_worker_pool *zygotes; /* immutable */
    unsigned max;                   /* immutable */

    struct mw_mutex lock; /* guards all below */
    uint64_t started;     /* workers of the pools that are gone */
    struct sighting sightings[MW_HEAD_START_SIGHTINGS_MAX];
    struct start starts[]; /* max */
};

static bool sight(struct mw_head_starts *starts, const char *key) MW_REQUIRES(starts->lock);
static struct start *start_find(struct mw_head_starts *starts, const char *key)
    MW_REQUIRES(starts->lock);
static struct start *place_find(struct mw_head_starts *starts) MW_REQUIRES(starts->lock);
static struct start start_take(struct mw_head_starts *starts, struct start *start)
    MW_REQUIRES(starts->lock);
static void start_end(struct start *taken);

int mw_head_starts_new(struct mw_head_starts **out, struct mw_worker_pool *zygotes, unsigned max)
{
    struct mw_head_starts *starts = calloc(1, sizeof(*starts) + max * sizeof(starts->starts[0]));

    if (!starts)
        return -ENOMEM;
    if (mw_mutex_init(&starts->lock)) {
        free(starts);
        return -ENOMEM;
    }
    starts->zygotes = zygotes;
    starts->max = max;
    *out = starts;
    return 0;
}

static void sightings_fini(struct mw_head_starts *starts)
{
    for (size_t i = 0; i < MW_HEAD_START_SIGHTINGS_MAX; i++)
        free(starts->sightings[i].key);
}

void mw_head_starts_free(struct mw_head_starts *starts)
{
    if (!starts)
        return;
    for (unsigned i = 0; i < starts->max; i++) {
        assert(starts->starts[i].holds == 0);
        start_end(&starts->starts[i]);
    }
    sightings_fini(starts);
    mw_mutex_fini(&starts->lock);
    free(starts);
}

/* The lock may have been held when this process was forked, so it is not taken. */
void mw_head_starts_abandon(struct mw_head_starts *starts)
{
    if (!starts)
        return;
    for (unsigned i = 0; i < starts->max; i++) {
        if (starts->starts[i].pool)
            mw_worker_pool_abandon(starts->starts[i].pool);
        free(starts->starts[i].key);
    }
    sightings_fini(starts);
    free(starts);
}

struct mw_worker_pool *mw_head_starts_hold(struct mw_head_starts *starts, const char *key,
                                           bool *due)
{
    struct mw_worker_pool *pool = NULL;
    struct start *start;

    *due = false;
    mw_mutex_lock(&starts->lock);
    start = start_find(starts, key);
    if (start) {
        start->holds++;
        start->used_ns = mw_clock_ns();
        pool = start->pool;
    } else {
        *due = sight(starts, key);
    }
    mw_mutex_unlock(&starts->lock);
    return pool;
}

void mw_head_starts_release(struct mw_head_starts *starts, struct mw_worker_pool *pool,
                            bool is_dead)
{
    struct start *start, dead = {0};

    mw_mutex_lock(&starts->lock);
    start = starts->starts;
    while (start->pool != pool)
        start++;
    assert(start < starts->starts + starts->max && start->holds > 0);
    start->holds--;
    start->is_dead = start->is_dead || is_dead;
    if (start->is_dead && start->holds == 0)
        dead = start_take(starts, start);
    mw_mutex_unlock(&starts->lock);
    start_end(&dead);
}

int mw_head_starts_make(struct mw_head_starts *starts, const char *key, int request_file,
                        const struct mw_wire_scheduling *scheduling, uint64_t deadline_ns, int stop)
{
    struct start made = {.key = strdup(key), .used_ns = mw_clock_ns()}, gone = {0}, *place;
    int rc = made.key ? mw_worker_pool_of_prefix(&made.pool, starts->zygotes, request_file,
                                                 scheduling, deadline_ns, stop)
                      : -ENOMEM;

    mw_mutex_lock(&starts->lock);
    if (rc == 0 && !start_find(starts, key)) {
        place = place_find(starts);
        rc = place ? 0 : -EBUSY;
        if (place) {
            gone = start_take(starts, place);
            *place = made;
            made = (struct start){0};
        }
    }
    mw_mutex_unlock(&starts->lock);
    start_end(&gone);
    start_end(&made);
    return rc;
}

void mw_head_starts_snapshot(struct mw_head_starts *starts, struct mw_isolate_stats *stats)
{
    mw_mutex_lock(&starts->lock);
    stats->started += starts->started;
    for (unsigned i = 0; i < starts->max; i++) {
        if (!starts->starts[i].pool)
            continue;
        stats->head_starts++;
        mw_worker_pool_snapshot(starts->starts[i].pool, stats);
    }
    mw_mutex_unlock(&starts->lock);
}

/* The place of `key`, or the one to forget for it. */
static struct sighting *sighting_find(struct mw_head_starts *starts, const char *key)
    MW_REQUIRES(starts->lock)
{
    struct sighting *oldest = starts->sightings;

    for (struct sighting *at = oldest; at < starts->sightings + MW_HEAD_START_SIGHTINGS_MAX; at++) {
        if (at->key && strcmp(at->key, key) == 0)
            return at;
        if (oldest->key && (!at->key || at->used_ns < oldest->used_ns))
            oldest = at;
    }
    return oldest;
}

/* Returns whether it is due. */
static bool sight(struct mw_head_starts *starts, const char *key)
{
    struct sighting *sighting = sighting_find(starts, key);
    uint64_t now_ns = mw_clock_ns();

    if (!sighting->key || strcmp(sighting->key, key) != 0) {
        free(sighting->key);
        *sighting = (struct sighting){.key = strdup(key)}; /* without memory it is not remembered */
    }
    sighting->uses++;
    sighting->used_ns = now_ns;
    if (sighting->uses < MW_HEAD_START_USES || now_ns < sighting->retry_ns || !place_find(starts))
        return false;
    sighting->retry_ns = now_ns + MW_HEAD_START_RETRY_NS;
    return true;
}

static struct start *start_find(struct mw_head_starts *starts, const char *key)
{
    for (unsigned i = 0; i < starts->max; i++) {
        struct start *start = &starts->starts[i];

        if (start->key && !start->is_dead && strcmp(start->key, key) == 0)
            return start;
    }
    return NULL;
}

/* A free place, or one of which nobody has made use for long; NULL: none. */
static struct start *place_find(struct mw_head_starts *starts)
{
    uint64_t now_ns = mw_clock_ns();
    struct start *oldest = NULL;

    for (unsigned i = 0; i < starts->max; i++) {
        struct start *start = &starts->starts[i];

        if (!start->key)
            return start;
        if (start->holds == 0 && (!oldest || start->used_ns < oldest->used_ns))
            oldest = start;
    }
    return oldest && now_ns - oldest->used_ns >= MW_HEAD_START_IDLE_NS ? oldest : NULL;
}

static struct start start_take(struct mw_head_starts *starts, struct start *start)
{
    struct start taken = *start;
    struct mw_isolate_stats stats = {0};

    if (taken.pool)
        mw_worker_pool_snapshot(taken.pool, &stats);
    starts->started += stats.started;
    *start = (struct start){0};
    return taken;
}

static void start_end(struct start *taken)
{
    mw_worker_pool_free(taken->pool);
    free(taken->key);
    *taken = (struct start){0};
}

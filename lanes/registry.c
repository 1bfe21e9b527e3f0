#include "registry.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/error.h>
#include <millwright/mutex.h>

#define NAME_BYTES_MAX 31u
#define QUEUE_MAX      1000000u
#define LINGER_MS_MAX  3600000u

struct entry {
    struct mw_lane *lane;
    bool leaves_wait;
    bool computes;
    unsigned cap;
    char name[NAME_BYTES_MAX + 1];
};

struct mw_registry {
    struct mw_pool *pool; /* immutable */

    struct mw_mutex adding; /* held by the one thread that adds a lane */

    /* An entry below `count` never changes. Release store when one is complete; its partners are
     * the acquire loads of readers. */
    _Atomic unsigned count;
    struct entry entries[MW_REGISTRY_LANES_MAX];
};

/* What text can set. */
struct option {
    const char *key;
    size_t offset; /* of an unsigned, or of an enum of that size, in struct mw_lane_options */
    unsigned min, max;
    const char *const *choices; /* NULL: a number; else up to a NULL, in the order of the enum */
    bool dedicated;             /* says nothing to a pool-run lane */
};

static const char *const urgencies[] = {[MW_LANE_NICE_19] = "nice-19",
                                        [MW_LANE_IDLE] = "idle",
                                        [MW_LANE_EQUAL] = "equal",
                                        [MW_LANE_EQUAL + 1] = NULL};

#define AT(member) offsetof(struct mw_lane_options, member)
static const struct option options_table[] = {
    {"cap", AT(cap), 1, MW_LANE_CAP_LIMIT, NULL, false},
    {"queue", AT(queue_max), 1, QUEUE_MAX, NULL, false},
    {"tenants", AT(tenants_max), 1, MW_LANE_TENANTS_LIMIT, NULL, false},
    {"urgency", AT(urgency), 0, 0, urgencies, true},
    {"linger-ms", AT(linger_ms), 1, LINGER_MS_MAX, NULL, true},
    {"spin-us", AT(spin_us), 0, MW_LANE_SPIN_US_MAX, NULL, true},
};
#undef AT

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int add(struct mw_registry *registry, const struct mw_registry_lane *lane, char *why,
               size_t why_bytes);
static bool name_is_good(const char *name);
static int entry_open(struct mw_registry *registry, struct entry *entry,
                      const struct mw_registry_lane *lane, char *why, size_t why_bytes);
static int waits_check(const struct mw_registry *registry, const struct entry *entry, char *why,
                       size_t why_bytes);
static const struct option *option_find(const char *key);
static int number_read(const struct option *option, const char *text, unsigned *number);
static int choice_read(const struct option *option, const char *text, unsigned *place);
static void list_options(char *text, size_t bytes);
static void list_choices(const struct option *option, char *text, size_t bytes);
static void list_word(char *text, size_t bytes, const char *word);

_Static_assert(sizeof(enum mw_lane_urgency) == sizeof(unsigned), "options are set as unsigned");

int mw_registry_new(struct mw_registry **out, struct mw_pool *pool)
{
    struct mw_registry *registry = calloc(1, sizeof *registry);
    int error;

    if (registry == NULL)
        return -ENOMEM;
    error = mw_mutex_init(&registry->adding);
    if (error != 0) {
        free(registry);
        return error;
    }
    registry->pool = pool;
    *out = registry;
    return 0;
}

void mw_registry_free(struct mw_registry *registry, bool cancel_queued)
{
    if (registry == NULL)
        return;
    for (unsigned i = mw_registry_count(registry); i > 0; i--)
        mw_lane_free(registry->entries[i - 1].lane, cancel_queued);
    mw_mutex_fini(&registry->adding);
    free(registry);
}

int mw_registry_add(struct mw_registry *registry, const struct mw_registry_lane *lane, char *why,
                    size_t why_bytes)
{
    int error;

    mw_mutex_lock(&registry->adding);
    error = add(registry, lane, why, why_bytes);
    mw_mutex_unlock(&registry->adding);
    return error;
}

struct mw_lane *mw_registry_find(const struct mw_registry *registry, const char *name)
{
    unsigned count = mw_registry_count(registry);

    for (unsigned i = 0; i < count; i++)
        if (strcmp(registry->entries[i].name, name) == 0)
            return registry->entries[i].lane;
    return NULL;
}

unsigned mw_registry_count(const struct mw_registry *registry)
{
    return atomic_load_explicit(&registry->count, memory_order_acquire);
}

struct mw_lane *mw_registry_at(const struct mw_registry *registry, unsigned place)
{
    return place < mw_registry_count(registry) ? registry->entries[place].lane : NULL;
}

uint64_t mw_registry_strayed(const struct mw_registry *registry)
{
    unsigned count = mw_registry_count(registry);
    uint64_t strayed = 0;

    for (unsigned i = 0; i < count; i++) {
        struct mw_lane_stats stats;

        if (!registry->entries[i].computes)
            continue;
        mw_lane_snapshot(registry->entries[i].lane, &stats);
        strayed += stats.completed - stats.ran_on_lane;
    }
    return strayed;
}

int mw_lane_options_set(struct mw_lane_options *options, const char *key, const char *value,
                        char *why, size_t why_bytes)
{
    const struct option *option = option_find(key);
    unsigned number;
    char list[128] = "";

    if (option == NULL) {
        list_options(list, sizeof list);
        snprintf(why, why_bytes, "is no option of a lane; there are %s", list);
        return -EINVAL;
    }
    if (option->dedicated && options->runner != MW_LANE_DEDICATED) {
        snprintf(why, why_bytes,
                 "is for lanes with threads of their own; this one runs on the shared pool");
        return -EINVAL;
    }
    if (option->choices != NULL && choice_read(option, value, &number) != 0) {
        list_choices(option, list, sizeof list);
        snprintf(why, why_bytes, "must be one of %s, not '%.64s'", list, value);
        return -EINVAL;
    }
    if (option->choices == NULL && number_read(option, value, &number) != 0) {
        snprintf(why, why_bytes, "must be a decimal number from %u to %u, not '%.64s'", option->min,
                 option->max, value);
        return -EINVAL;
    }
    memcpy((char *)options + option->offset, &number, sizeof number);
    return 0;
}

/* By the thread that holds `adding`. */
static int add(struct mw_registry *registry, const struct mw_registry_lane *lane, char *why,
               size_t why_bytes)
{
    unsigned count = mw_registry_count(registry);
    const char *name = lane->options.name;
    struct entry entry;
    int error;

    if (name == NULL || !name_is_good(name)) {
        snprintf(why, why_bytes,
                 "'%.64s' is no name for a lane; take 1 to %u letters, digits and '-'",
                 name != NULL ? name : "", NAME_BYTES_MAX);
        return -EINVAL;
    }
    if (mw_registry_find(registry, name) != NULL) {
        snprintf(why, why_bytes, "there is a lane '%s' already; choose another name", name);
        return -EEXIST;
    }
    if (count == MW_REGISTRY_LANES_MAX) {
        snprintf(why, why_bytes, "lane '%s' would be one more than the %u that a registry takes",
                 name, MW_REGISTRY_LANES_MAX);
        return -ENOSPC;
    }
    error = entry_open(registry, &entry, lane, why, why_bytes);
    if (error != 0)
        return error;
    registry->entries[count] = entry;
    atomic_store_explicit(&registry->count, count + 1, memory_order_release);
    return 0;
}

static bool name_is_good(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    size_t bytes = strlen(name);

    return bytes > 0 && bytes <= NAME_BYTES_MAX && strspn(name, letters) == bytes;
}

/* Make the lane; its snapshot tells the cap, with the default filled in. */
static int entry_open(struct mw_registry *registry, struct entry *entry,
                      const struct mw_registry_lane *lane, char *why, size_t why_bytes)
{
    struct mw_lane_options options = lane->options;
    struct mw_lane_stats stats;
    int error = -EINVAL;

    if (options.pool != NULL || (options.runner == MW_LANE_POOL && registry->pool == NULL)) {
        snprintf(why, why_bytes,
                 "lane '%s': a pool-run lane takes the registry's pool; give it to the registry",
                 options.name);
        return error;
    }
    if (options.runner == MW_LANE_POOL)
        options.pool = registry->pool;
    memset(entry, 0, sizeof *entry);
    error = mw_lane_new(&entry->lane, &options);
    if (error != 0) {
        snprintf(why, why_bytes, "lane '%s' cannot be made: %s", options.name, mw_strerror(error));
        return error;
    }
    mw_lane_snapshot(entry->lane, &stats);
    entry->leaves_wait = lane->leaves_wait;
    entry->computes = lane->computes;
    entry->cap = stats.cap;
    snprintf(entry->name, sizeof entry->name, "%s", options.name);
    if (lane->leaves_wait && options.runner != MW_LANE_POOL) {
        snprintf(why, why_bytes,
                 "lane '%s': leaves of a lane with threads of its own may not wait; make it "
                 "pool-run, or let it compute only",
                 options.name);
        error = -EINVAL;
    } else if (lane->leaves_wait) {
        error = waits_check(registry, entry, why, why_bytes);
    }
    if (error != 0)
        mw_lane_free(entry->lane, true);
    return error;
}

static int waits_check(const struct mw_registry *registry, const struct entry *entry, char *why,
                       size_t why_bytes)
{
    unsigned count = mw_registry_count(registry);
    unsigned others = 0; /* at most MW_REGISTRY_LANES_MAX * MW_LANE_CAP_LIMIT */
    struct mw_pool_stats pool;

    for (unsigned i = 0; i < count; i++)
        if (registry->entries[i].leaves_wait)
            others += registry->entries[i].cap;
    mw_pool_snapshot(registry->pool, &pool);
    if (others + entry->cap < pool.max_threads)
        return 0;
    snprintf(why, why_bytes,
             "lane '%s' has a cap of %u and its leaves may wait; with %u of other such lanes that "
             "is %u, which must be less than the %u threads of the shared pool, or nobody may be "
             "left to run what they wait for; lower a cap, or raise the pool's maximum",
             entry->name, entry->cap, others, others + entry->cap, pool.max_threads);
    return -EDEADLK;
}

static const struct option *option_find(const char *key)
{
    for (size_t i = 0; i < COUNT(options_table); i++)
        if (strcmp(options_table[i].key, key) == 0)
            return &options_table[i];
    return NULL;
}

/* Digits only: what strtoul takes beside them (blanks, signs, 0x) is ambiguous in a setting. */
static int number_read(const struct option *option, const char *text, unsigned *number)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long long value;

    if (digits == 0 || text[digits] != '\0')
        return -EINVAL;
    errno = 0;
    value = strtoull(text, NULL, 10);
    if (errno != 0 || value < option->min || value > option->max)
        return -EINVAL;
    *number = (unsigned)value;
    return 0;
}

static int choice_read(const struct option *option, const char *text, unsigned *place)
{
    for (*place = 0; option->choices[*place] != NULL; (*place)++)
        if (strcmp(option->choices[*place], text) == 0)
            return 0;
    return -EINVAL;
}

static void list_options(char *text, size_t bytes)
{
    for (size_t i = 0; i < COUNT(options_table); i++)
        list_word(text, bytes, options_table[i].key);
}

static void list_choices(const struct option *option, char *text, size_t bytes)
{
    for (size_t i = 0; option->choices[i] != NULL; i++)
        list_word(text, bytes, option->choices[i]);
}

static void list_word(char *text, size_t bytes, const char *word)
{
    size_t used = strlen(text);

    snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", word);
}

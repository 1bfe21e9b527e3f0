/* lane_table.h - the lanes that the service has: their names, what they are for, and their options
 * from the settings.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MW_SERVICE_LANE_TABLE_H
#define MW_SERVICE_LANE_TABLE_H

#include <stddef.h>

#include <millwright/registry.h>

#include "commands.h"

/* In the order in which they are made and shown. */
enum mw_service_lane {
    MW_LANE_COMPILE_CPU, /* the CPU lane: emit and diagnostic leaves; they only compute */
    MW_LANE_COMPILE, /* IO pool for what runs around compiles, and may wait for one (seed 002) */
    MW_LANE_FILES,   /* IO pool: parsing, keys, answers */
    MW_LANE_STORE,   /* IO pool: the store */
    MW_SERVICE_LANES
};

/* What the registry takes for this lane: the defaults, then --lane-cap and its like, then what
 * [lane NAME] and --lane say, the later over the earlier. The settings were checked when read;
 * returns 0, or -EINVAL with `why` when they were not. */
int mw_service_lane_of(struct mw_registry_lane *lane, enum mw_service_lane which,
                       const struct mw_serve_settings *settings, char *why, size_t why_bytes);

/* Whether there is this lane, and takes this option: for struct mw_settings. Returns 0, or -EINVAL
 * with `why`. */
int mw_service_lane_check(const char *lane, const char *key, const char *value, char *why,
                          size_t why_bytes);

#endif

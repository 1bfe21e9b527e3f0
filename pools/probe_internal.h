/* probe_internal.h - private to pools/ and its tests: what one wait adds to a probe's histogram. */
#ifndef MW_PROBE_INTERNAL_H
#define MW_PROBE_INTERNAL_H

#include <stdint.h>

#include <millwright/histogram.h>

/* Record the wait of an item, and for each interval that ended before the item started the wait
 * that an item sent then would have seen: wait - interval, wait - 2 interval ... as long as
 * something is left, at most MW_PROBE_MISSED_MAX of them. Nobody else writes the histogram. */
void mw_probe_record_wait(struct mw_histogram *histogram, uint64_t wait_ns, uint64_t interval_ns);

#endif

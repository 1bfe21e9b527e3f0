/* monitor_rules.h - when the monitor raises a pool's minimum, and to what: a step from one sample
 * to the next that reads no clock and no file, so that each rule can be tested by itself.
 *
 * Theory. A piece of work waits although the CPUs have room: then the workers are blocked, and more
 * of them help. A long queue says nothing of the kind (a busy pool keeps one), so what counts is
 * how long a probe item has waited, and what the CPUs and the workers did meanwhile. The rules:
 *
 *  1. A sample is *discarded* when the monitor woke more than half an interval late (others got
 *     the CPUs, so a wait proves nothing), when the process's cgroup was throttled since the one
 *     before, and when there is none before.
 *  2. *Calm*: the item waited for less than MW_MONITOR_AGE_MS.
 *  3. *Busy*: no worker is blocked. Idle CPUs prove nothing then: perhaps another process has them.
 *  4. *Starved*: less than half of the effective CPUs (a fraction) was used since the sample
 *     before.
 *  5. *Starved*, whatever the CPUs do: a worker is blocked, and those that are awake, with the
 *     children that work for them, could use at most half of the CPUs, in two samples in a row. On
 *     two CPUs that is one spinner and one blocked worker, which rule 4 measures as half or a
 *     little more; and a pool whose workers all block while a lane computes. What the CPUs do then
 *     does not explain the wait; the blocked workers do.
 *  6. *Busy* otherwise.
 *
 * If starved, the minimum rises to parallel_limit + CPUs in one step, or, when it has risen before
 * or is as high from the start, to its double, once the pool has as many threads as its minimum.
 * Never above 64 per CPU or the pool's maximum, and never down. When somebody else sets the
 * minimum, also to what it is, that is the user's from then on, and all begins anew. */
#ifndef MW_POOLS_MONITOR_RULES_H
#define MW_POOLS_MONITOR_RULES_H

#include <stdbool.h>
#include <stdint.h>

struct mw_monitor_sample {
    uint64_t now_ns;
    uint64_t age_ns;      /* how long the probe item has waited, or did */
    uint64_t cpu_ns;      /* used so far by the process and the children it names */
    uint64_t children_ns; /* of that, by the children that work for workers */
    uint64_t throttled;   /* how often its cgroups were throttled so far */
    double cpus;          /* effective; a fraction */
    /* of the pool */
    unsigned threads;
    unsigned busy;
    unsigned declared; /* workers that said that they block */
    unsigned min_threads;
    uint64_t min_changes; /* how often that was set; min_threads is no older */
    unsigned max_threads;
    /* of all threads of workers' kind; see mw_monitor_rules_wants_awake */
    bool awake_known;
    unsigned awake;
};

struct mw_monitor_state {
    unsigned parallel_limit; /* immutable */
    /* the sample before */
    bool begun;
    uint64_t now_ns;
    uint64_t cpu_ns;
    uint64_t children_ns;
    uint64_t throttled;
    bool explained; /* its blocked workers explained the wait, rule 5 */
    /* the minimum */
    uint64_t min_changes; /* as of the sample before, or of the raise since */
    bool stepped;         /* the first step is made, or was not needed */
    unsigned min_user;    /* before the first raise; 0: not seen yet */
    unsigned min_raised;  /* what it was raised to last; 0: it was not */
};

enum mw_monitor_verdict {
    MW_MONITOR_CALM = 0,
    MW_MONITOR_DISCARDED,
    MW_MONITOR_BUSY,
    MW_MONITOR_STARVED,
    MW_MONITOR_VERDICTS /* how many there are */
};

struct mw_monitor_decision {
    enum mw_monitor_verdict verdict;
    bool left;           /* somebody has set the minimum since the last raise */
    unsigned min_left;   /* if so: what it had been raised to */
    unsigned min_target; /* raise to this; 0: do not */
    unsigned blocked;    /* workers that are, as far as is known */
    double cpu_used;     /* of the effective CPUs since the sample before, 0 to 1 */
};

/* `parallel_limit`: how many items may block at once. */
void mw_monitor_rules_init(struct mw_monitor_state *state, unsigned parallel_limit);

/* Whether the verdict on `sample` hangs on `awake`, which costs a moment to find out. */
bool mw_monitor_rules_wants_awake(const struct mw_monitor_state *state,
                                  const struct mw_monitor_sample *sample);

/* Judge `sample`, which becomes the sample before. */
void mw_monitor_rules_step(struct mw_monitor_state *state, const struct mw_monitor_sample *sample,
                           struct mw_monitor_decision *decision);

/* The minimum was raised from `before` to `after`, which counts as one change of it. */
void mw_monitor_rules_raised(struct mw_monitor_state *state, unsigned before, unsigned after);

#endif

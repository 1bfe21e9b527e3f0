/* monitor_model.h - a pool on paper: a queue, workers and a clock of whole milliseconds, to feed
 * the monitor's rules, and rivals of theirs, with the same samples every time.
 *
 * It grows as .NET's pool does: to its minimum at once, by one for each 500 ms in which nothing was
 * taken off the queue, and for workers that wait cooperatively first by as many as there are CPUs,
 * then by one for each delay of 25 to 250 ms. A new minimum is handed to that slower rule while any
 * worker waits cooperatively: that is what seed 000 saw its small raises get stuck in.
 *
 * Bounds: MODEL_ITEMS_MAX items in all. */
#ifndef MILLWRIGHT_TESTS_MONITOR_MODEL_H
#define MILLWRIGHT_TESTS_MONITOR_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "monitor_rules.h"

#define MODEL_ITEMS_MAX 8192u

enum model_kind {
    MODEL_COMPUTES = 0,
    MODEL_SLEEPS, /* blocks, and does not say so */
    MODEL_WAITS,  /* blocks cooperatively */
    MODEL_PROBES  /* takes no time */
};

struct model_item {
    enum model_kind kind;
    unsigned left_ms;
    unsigned queued_ms;
};

struct model {
    unsigned cpus;
    unsigned min;
    unsigned min_changes;
    unsigned max;
    unsigned now_ms;
    unsigned goal; /* how many workers there may be */
    unsigned threads;
    unsigned for_blocked; /* of the goal */
    unsigned step_ms;     /* when the last worker was added for blocked ones after a delay */
    unsigned taken_ms;    /* when an item was last taken off the queue, or it was empty */
    uint64_t cpu_ns;
    bool probing;
    unsigned probe_sent_ms;
    unsigned probe_wait_ms; /* of the last one that started */
    unsigned head, tail;    /* the queue lies between them */
    unsigned running;
    struct model_item items[MODEL_ITEMS_MAX];
    struct model_item workers[MODEL_ITEMS_MAX];
};

void model_init(struct model *model, unsigned cpus, unsigned max);
void model_submit(struct model *model, enum model_kind kind, unsigned ms);
void model_tick(struct model *model); /* a millisecond passes */

/* What the monitor would see now; then it sends its probe again if that has come back. */
void model_sample(struct model *model, struct mw_monitor_sample *sample);

void model_set_min(struct model *model, unsigned min);
unsigned model_pending(const struct model *model);

#endif

/* head_start_samples.h - requests with a prefix that a worker can have read ahead, as data, for
 * head_start_test.c.
 *
 * Threads: any; the tables do not change. */
#ifndef MILLWRIGHT_TESTS_HEAD_START_SAMPLES_H
#define MILLWRIGHT_TESTS_HEAD_START_SAMPLES_H

#include <stddef.h>

#include "trial.h"

struct head_start_sample {
    struct trial trial;
    const char *says; /* part of a diagnostic of it, or of a note; NULL: it compiles in silence */
};

/* What comes out; what can stand in a main file, and around it; what the compiler speaks of. */
extern const struct head_start_sample head_start_outputs[];
extern const size_t head_start_output_count;
extern const struct head_start_sample head_start_texts[];
extern const size_t head_start_text_count;
extern const struct head_start_sample head_start_complaints[];
extern const size_t head_start_complaint_count;

#endif

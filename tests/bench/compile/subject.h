/* subject.h - what ./dev bench compile compiles: sources at a level of optimisation, and the bodies
 * of requests that ask for them.
 *
 * Ownership:  subjects are static; what a call returns is the caller's.
 * Threads:    bodies from any thread; the rest before and after all others.
 * Bounds:     SUBJECTS. */
#ifndef BENCH_COMPILE_SUBJECT_H
#define BENCH_COMPILE_SUBJECT_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "support/process.h"

enum {
    HELLO_O0,
    HELLO_O2,
    WORDS_O0,
    WORDS_O2,
    DEFLATE_O2,
    GENERATED_O2, /* four fifths of its time are the code generator's */
    SUBJECTS
};

struct subject {
    const char *name; /* with its flag */
    const char *file; /* the main file */
    const char *language;
    const char *flag;
    double goal;     /* times as fast as the process, at least */
    bool has_prefix; /* it opens with headers of the system, and with nothing else */
    bool is_quick;

    char *source;         /* of the main file */
    json_t *others;       /* its other files, as a request's */
    struct bytes object;  /* of the first compile; all others must give the same */
    atomic_uint variants; /* how many bodies were made */
};

extern struct subject subjects[SUBJECTS];

/* Make the sources. deflate.c is taken from `corpus`, a folder that tests/corpus/fetch filled, with
 * the headers that it includes, as the compiler tells by -MM into a file in `folder`; when it is
 * not there something generated stands in for it, and the name says so. Returns 0 or -ENOMEM. */
int subjects_make(const char *corpus, const char *folder);
void subjects_free(void);

/* The body of a request that nobody has made before: a comment at the end is another each time,
 * which changes no byte of the object. NULL: out of memory. */
char *subject_body(struct subject *subject);

/* The same, and asks for a time trace, for which no prefix is used. */
char *subject_body_traced(struct subject *subject);

/* Write all files into `folder`. */
void subject_write(const struct subject *subject, const char *folder);

/* The object of one more compile. Returns 0, or -EBADMSG when it is not that of those before. */
int subject_check(struct subject *subject, const void *object, size_t bytes);

#endif

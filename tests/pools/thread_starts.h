/* thread_starts.h - stands in front of pthread_create: counts thread starts, and lets them fail.
 *
 * Link thread_starts.c into the test's own executable with ENABLE_EXPORTS, so that the libraries'
 * calls come here too.
 *
 * Threads: all of it from any thread. */
#ifndef MILLWRIGHT_TESTS_THREAD_STARTS_H
#define MILLWRIGHT_TESTS_THREAD_STARTS_H

/* How many threads were started so far, by anybody in the process. */
unsigned thread_starts_count(void);

/* How many of them were started from inside a leaf: by the leaf's own thread while it ran. */
unsigned thread_starts_under_leaf(void);

/* Let `n` more starts succeed, and each later one fail with EAGAIN; a negative `n` means that all
 * succeed again. */
void thread_starts_allow(int n);

/* Let `n` more starts succeed and the one after them fail with EAGAIN; all later ones succeed. */
void thread_starts_refuse_one(int n);

/* Keep whoever starts a thread inside pthread_create, from now on and until let go. */
void thread_starts_hold(void);
void thread_starts_let_go(void);

/* How many are held there. */
unsigned thread_starts_held(void);

#endif

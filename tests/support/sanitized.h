/* sanitized.h - whether a test was built with a sanitizer: each takes memory and time of its own,
 * and memory cannot be limited under one. ThreadSanitizer also has a thread of its own (so no
 * sandbox is entered there), and ends a forked child that starts one. */
#ifndef MILLWRIGHT_TESTS_SUPPORT_SANITIZED_H
#define MILLWRIGHT_TESTS_SUPPORT_SANITIZED_H

#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#endif
#endif
#ifndef SANITIZED_THREADS
#define SANITIZED_THREADS 0
#endif

#if SANITIZED_THREADS || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif

/* source.h - the programs that the benchmarks compile.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef BENCH_SOURCE_H
#define BENCH_SOURCE_H

#define SOURCE_LINES_MIN 100u
#define SOURCE_LINES_MAX 100000u

extern const char source_hello_c[];  /* 7 lines */
extern const char source_words_cc[]; /* <map>, <string>, <vector> */

/* A C file of exactly `lines` lines: units of some 40 lines, each with a struct, helpers and an
 * entry function that calls an earlier unit, from a handful of templates with other constants each
 * time. The same `lines` give the same text. The caller frees it; NULL when out of memory. */
char *source_generate(unsigned lines);

#endif

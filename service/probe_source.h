/* probe_source.h - the programs that `millwright probe` compiles.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MW_SERVICE_PROBE_SOURCE_H
#define MW_SERVICE_PROBE_SOURCE_H

#define MW_PROBE_SOURCE_FUNCTIONS 20u
#define MW_PROBE_SOURCE_LOOPS     20u

/* A C file of 20 functions with 20 loops each, without an include: the shape of the source that
 * seed 002 measured with. Always the same text. The caller frees it; NULL when memory is out. */
char *mw_probe_source(void);

/* A C file of one small function, another for each `number`. The caller frees it; NULL as above. */
char *mw_probe_small_source(unsigned number);

#endif

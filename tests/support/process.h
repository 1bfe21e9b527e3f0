/* process.h - run programs and read and write whole files; what fails ends the cmocka test.
 *
 * Threads: one; a child is made by fork. */
#ifndef MILLWRIGHT_TESTS_PROCESS_H
#define MILLWRIGHT_TESTS_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

struct bytes {
    char *data; /* one NUL more than `count`; the caller frees it */
    size_t count;
};

/* Start argv[0], found by PATH, in `directory`. `input` and `output` are files for its standard
 * streams (output takes errors too), or NULL for ours. The child dies with this process. */
pid_t process_start(const char *directory, const char *const *argv, const char *input,
                    const char *output);

/* Wait for `pid`. Returns its exit status, or 128 and its signal. */
int process_wait(pid_t pid);

/* Start and wait. */
int process_run(const char *directory, const char *const *argv, const char *input,
                const char *output);

struct bytes file_read(const char *path);
void file_write(const char *path, const void *data, size_t count);

/* Join two parts with '/'. The caller frees it. */
char *path_join(const char *folder, const char *name);

#endif

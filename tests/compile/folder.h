/* folder.h - a temporary folder, and files in it; what fails ends the cmocka test.
 *
 * Paths are relative to the folder. Threads: one at a time. */
#ifndef MILLWRIGHT_TESTS_FOLDER_H
#define MILLWRIGHT_TESTS_FOLDER_H

#include <stddef.h>
#include <stdio.h>

struct folder {
    char path[64]; /* absolute */
};

void folder_make(struct folder *folder);
void folder_remove(struct folder *folder);

/* "PATH/name", malloc'ed. */
char *folder_path(const struct folder *folder, const char *name);

/* fopen; never NULL. */
FILE *folder_open(const struct folder *folder, const char *name, const char *mode);

void folder_mkdir(const struct folder *folder, const char *name);
void folder_write(const struct folder *folder, const char *name, const char *text);
void folder_rename(const struct folder *folder, const char *from, const char *to);
void folder_unlink(const struct folder *folder, const char *name);
void folder_symlink(const struct folder *folder, const char *target, const char *name);

#endif

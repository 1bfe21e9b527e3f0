#include "folder.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OPEN_MAX_DIRS 16

static int entry_remove(const char *path, const struct stat *found, int type, struct FTW *place);

void folder_make(struct folder *folder)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(folder->path, sizeof folder->path, "%s/mw-test-XXXXXX",
                   base && strlen(base) < 32 ? base : "/tmp");
    assert_non_null(mkdtemp(folder->path));
}

void folder_remove(struct folder *folder)
{
    assert_int_equal(nftw(folder->path, entry_remove, OPEN_MAX_DIRS, FTW_DEPTH | FTW_PHYS), 0);
}

char *folder_path(const struct folder *folder, const char *name)
{
    char *path = NULL;

    assert_true(asprintf(&path, "%s/%s", folder->path, name) > 0);
    return path;
}

FILE *folder_open(const struct folder *folder, const char *name, const char *mode)
{
    char *path = folder_path(folder, name);
    FILE *file = fopen(path, mode);

    if (!file) {
        fail_msg("cannot open '%s'", path);
        abort(); /* not reached: fail_msg leaves the test */
    }
    free(path);
    return file;
}

void folder_mkdir(const struct folder *folder, const char *name)
{
    char *path = folder_path(folder, name);

    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
}

void folder_write(const struct folder *folder, const char *name, const char *text)
{
    FILE *file = folder_open(folder, name, "w");

    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

void folder_rename(const struct folder *folder, const char *from, const char *to)
{
    char *old_path = folder_path(folder, from), *new_path = folder_path(folder, to);

    assert_int_equal(rename(old_path, new_path), 0);
    free(old_path);
    free(new_path);
}

void folder_unlink(const struct folder *folder, const char *name)
{
    char *path = folder_path(folder, name);

    assert_int_equal(remove(path), 0);
    free(path);
}

void folder_symlink(const struct folder *folder, const char *target, const char *name)
{
    char *path = folder_path(folder, name);

    assert_int_equal(symlink(target, path), 0);
    free(path);
}

static int entry_remove(const char *path, const struct stat *found, int type, struct FTW *place)
{
    (void)found;
    (void)type;
    (void)place;
    return remove(path);
}

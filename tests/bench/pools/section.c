#include "section.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file in memory, and where its section begins and ends. */
struct section {
    char *file;
    char *from, *to;
};

static int load(struct section *section, const char *path, const char *begin, const char *end);
static int read_file(const char *path, char **text);
static char *find_line(char *text, const char *line);
static int write_file(const char *path, const struct section *section, const char *text);

int section_find(const char *path, const char *begin, const char *end)
{
    struct section section;
    int error = load(&section, path, begin, end);

    free(section.file);
    return error;
}

int section_replace(const char *path, const char *begin, const char *end, const char *text)
{
    struct section section;
    int error = load(&section, path, begin, end);

    if (error == 0)
        error = write_file(path, &section, text);
    free(section.file);
    return error;
}

static int load(struct section *section, const char *path, const char *begin, const char *end)
{
    int error;

    *section = (struct section){0};
    error = read_file(path, &section->file);
    if (error != 0)
        return error;
    section->from = find_line(section->file, begin);
    if (section->from == NULL)
        return -ENOENT;
    section->from += strlen(begin) + 1;
    section->to = find_line(section->from, end);
    return section->to == NULL ? -ENOENT : 0;
}

static int read_file(const char *path, char **text)
{
    FILE *file = fopen(path, "re");
    size_t got;

    if (file == NULL)
        return -errno;
    *text = malloc(SECTION_FILE_BYTES_MAX + 1);
    if (*text == NULL) {
        fclose(file);
        return -ENOMEM;
    }
    got = fread(*text, 1, SECTION_FILE_BYTES_MAX + 1, file);
    (*text)[got <= SECTION_FILE_BYTES_MAX ? got : 0] = '\0';
    fclose(file);
    return got <= SECTION_FILE_BYTES_MAX ? 0 : -EFBIG;
}

/* A whole line with its end; NULL when there is none. */
static char *find_line(char *text, const char *line)
{
    size_t length = strlen(line);

    while (text != NULL && (strncmp(text, line, length) != 0 || text[length] != '\n')) {
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return text;
}

static int write_file(const char *path, const struct section *section, const char *text)
{
    const char *const parts[] = {section->file, text, section->to};
    const size_t sizes[] = {(size_t)(section->from - section->file), strlen(text),
                            strlen(section->to)};
    char next[PATH_MAX];
    struct stat old;
    FILE *file;
    int error = 0;

    if (snprintf(next, sizeof next, "%s.new", path) >= (int)sizeof next)
        return -ENAMETOOLONG;
    file = fopen(next, "we");
    if (file == NULL)
        return -errno;
    for (int i = 0; error == 0 && i < 3; i++)
        if (fwrite(parts[i], 1, sizes[i], file) != sizes[i])
            error = -EIO;
    if (stat(path, &old) != 0 || fchmod(fileno(file), old.st_mode & 07777) != 0)
        error = -errno;
    if (fclose(file) != 0 && error == 0)
        error = -errno;
    if (error == 0 && rename(next, path) != 0)
        error = -errno;
    if (error != 0)
        unlink(next);
    return error;
}

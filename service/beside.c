#include "beside.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULE_COLUMNS_MAX 100u

static int rule_make(char **rule, size_t *bytes, const char *target, const json_t *list);
static char *make_escaped(const char *name);
static int write_all(FILE *file, const char *data, size_t bytes);

int mw_beside_write_extra(const struct mw_compile_result *result, enum mw_extra extra,
                          const char *stem, char *path, size_t path_bytes)
{
    const struct mw_text *text = &result->extras[extra];
    int length = snprintf(path, path_bytes, "%s.%s.json", stem, mw_extra_name(extra));
    if (length < 0 || (size_t)length >= path_bytes)
        return -ENAMETOOLONG;
    return text->data ? mw_beside_write_file(path, text->data, text->bytes) : -ENODATA;
}

int mw_beside_write_rule(const struct mw_compile_result *result, const char *target,
                         const char *path)
{
    const struct mw_text *text = &result->extras[MW_EXTRA_DEPENDENCIES];
    char *rule = NULL;
    size_t bytes;
    json_t *list = text->data ? json_loadb(text->data, text->bytes, 0, NULL) : NULL;
    int error = !text->data ? -ENODATA : json_is_array(list) ? 0 : -EINVAL;
    if (!error)
        error = rule_make(&rule, &bytes, target, list);
    if (!error)
        error = mw_beside_write_file(path, rule, bytes);
    free(rule);
    json_decref(list);
    return error;
}

/* A file is written beside its place and renamed, so that nobody ever sees half of it. Devices and
 * pipes are written as they are. */
int mw_beside_write_file(const char *path, const char *data, size_t bytes)
{
    struct stat status;
    char beside[PATH_MAX + 32];
    if (strcmp(path, "-") == 0)
        return write_all(stdout, data, bytes);
    bool in_place = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
    snprintf(beside, sizeof beside, in_place ? "%s" : "%s.mw%ld", path, (long)getpid());
    FILE *file = fopen(beside, "we");
    if (!file)
        return -errno;
    int error = write_all(file, data, bytes);
    if (fclose(file) != 0 && !error)
        error = -errno;
    if (!in_place && !error && rename(beside, path) != 0)
        error = -errno;
    if (!in_place && error)
        (void)unlink(beside);
    return error;
}

static int write_all(FILE *file, const char *data, size_t bytes)
{
    return fwrite(data, 1, bytes, file) == bytes && fflush(file) == 0 ? 0 : -EIO;
}

/* As compilers write it: lines that go on end in a backslash. */
static int rule_make(char **rule, size_t *bytes, const char *target, const json_t *list)
{
    FILE *out = open_memstream(rule, bytes);
    char *name = make_escaped(target);
    size_t i, column = 0;
    json_t *item;
    int error = out && name ? 0 : -ENOMEM;
    if (!error)
        column = (size_t)fprintf(out, "%s:", name);
    json_array_foreach((json_t *)list, i, item)
    {
        const char *text = json_string_value(json_object_get(item, "name"));
        free(name);
        name = text ? make_escaped(text) : NULL;
        if (!error && !name)
            error = text ? -ENOMEM : -EINVAL;
        if (error)
            break;
        if (column + strlen(name) > RULE_COLUMNS_MAX - strlen(" \\"))
            column = (fputs(" \\\n ", out), 1);
        column += (size_t)fprintf(out, " %s", name);
    }
    free(name);
    if (out)
        fputc('\n', out);
    if (out && (ferror(out) | (fclose(out) != 0)) && !error)
        error = -ENOMEM;
    return error;
}

/* What make would take for something else. NULL when memory is out. */
static char *make_escaped(const char *name)
{
    char *text = malloc(2 * strlen(name) + 1);
    char *out = text;
    for (; text && *name; name++) {
        if (strchr(" #", *name))
            *out++ = '\\';
        else if (*name == '$')
            *out++ = '$';
        *out++ = *name;
    }
    if (text)
        *out = '\0';
    return text;
}

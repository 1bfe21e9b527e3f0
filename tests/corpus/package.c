#include "package.h"

#include <fts.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/process.h"

static void list_read(struct list *list, const char *corpus, const char *package, const char *what);
static void line_split(struct line *line, char *text);
static json_t *headers_read(const char *directory);
static json_t *request_file(const char *directory, const char *name);
static int by_name(const FTSENT **a, const FTSENT **b);

void package_read(struct package *package, const char *corpus, const char *name)
{
    const char *directory;

    list_read(&package->commands, corpus, name, "commands");
    list_read(&package->links, corpus, name, "links");
    directory = package->commands.lines[0].fields[COMMAND_DIRECTORY];
    for (size_t i = 0; i < package->commands.line_count; i++) {
        const struct line *command = &package->commands.lines[i];

        for (size_t field = 0; field < COMMAND_FLAGS; field++)
            assert_non_null(command->fields[field]);
        assert_string_equal(command->fields[COMMAND_DIRECTORY], directory);
    }
    package->headers = headers_read(directory);
}

void package_fini(struct package *package)
{
    json_decref(package->headers);
    free(package->commands.text);
    free(package->links.text);
    memset(package, 0, sizeof *package);
}

char *package_request(const struct package *package, const struct line *command,
                      const char *extra_flag)
{
    const char *directory = command->fields[COMMAND_DIRECTORY];
    const char *file = command->fields[COMMAND_FILE];
    json_t *files = json_copy(package->headers);
    json_t *args = json_array();
    json_t *request;
    char *body;

    json_array_append_new(files, request_file(directory, file));
    for (size_t i = COMMAND_FLAGS; command->fields[i] != NULL; i++)
        json_array_append_new(args, json_string(command->fields[i]));
    if (extra_flag != NULL)
        json_array_append_new(args, json_string(extra_flag));
    request = json_pack("{s:o, s:s, s:s, s:o, s:s}", "files", files, "main", file, "directory",
                        directory, "args", args, "emit", "object");
    body = json_dumps(request, JSON_COMPACT);
    assert_non_null(body);
    json_decref(request);
    return body;
}

static void list_read(struct list *list, const char *corpus, const char *package, const char *what)
{
    char *rest = NULL;
    char *path;

    if (asprintf(&path, "%s/%s.%s", corpus, package, what) < 0)
        fail_msg("no memory for the path of '%s'", package);
    list->text = file_read(path).data;
    list->line_count = 0;
    for (char *text = strtok_r(list->text, "\n", &rest); text != NULL;
         text = strtok_r(NULL, "\n", &rest)) {
        if (list->line_count == PACKAGE_LINES_MAX)
            fail_msg("'%s' has more than %d lines", path, PACKAGE_LINES_MAX);
        line_split(&list->lines[list->line_count++], text);
    }
    if (list->line_count == 0)
        fail_msg("'%s' is empty: remove its folder and run fetch again", path);
    free(path);
}

static void line_split(struct line *line, char *text)
{
    size_t count = 0;

    for (char *field; (field = strsep(&text, "\t")) != NULL; count++) {
        if (count == PACKAGE_FIELDS_MAX)
            fail_msg("a line for '%s' has more than %d fields", line->fields[0],
                     PACKAGE_FIELDS_MAX);
        line->fields[count] = field;
    }
    line->fields[count] = NULL;
}

/* In order of their names, so that two runs ask for the same thing. */
static json_t *headers_read(const char *directory)
{
    FTS *tree = fts_open((char *const[]){(char *)directory, NULL}, FTS_PHYSICAL, by_name);
    json_t *headers = json_array();

    assert_non_null(tree);
    for (FTSENT *entry; (entry = fts_read(tree)) != NULL;) {
        size_t length = strlen(entry->fts_name);

        if (entry->fts_info != FTS_F || length < 2 ||
            strcmp(entry->fts_name + length - 2, ".h") != 0)
            continue;
        json_array_append_new(headers,
                              request_file(directory, entry->fts_path + strlen(directory) + 1));
    }
    fts_close(tree);
    assert_true(json_array_size(headers) > 0);
    return headers;
}

static json_t *request_file(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    struct bytes content = file_read(path);
    json_t *text = json_stringn(content.data, content.count);

    if (text == NULL)
        fail_msg("'%s' is not UTF-8: it cannot be sent as text", path);
    free(content.data);
    free(path);
    return json_pack("{s:s, s:o}", "name", name, "content", text);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

#include "package.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/process.h"

static char *list_path(const char *corpus, const char *package, const char *what);
static void list_read(struct list *list, const char *corpus, const char *package, const char *what);
static void line_split(struct line *line, char *text);
static json_t *headers_read(const struct list *names, const char *directory);
static json_t *request_file(const char *directory, const char *name);
static json_t *files_beside(const json_t *headers, const char *file);

void package_read(struct package *package, const char *corpus, const char *name)
{
    static struct list names;
    char *links = list_path(corpus, name, "links");
    const char *directory;

    memset(package, 0, sizeof *package);
    list_read(&package->commands, corpus, name, "commands");
    if (access(links, F_OK) == 0)
        list_read(&package->links, corpus, name, "links");
    free(links);
    directory = package->commands.lines[0].fields[COMMAND_DIRECTORY];
    for (size_t i = 0; i < package->commands.line_count; i++) {
        const struct line *command = &package->commands.lines[i];

        for (size_t field = 0; field < COMMAND_FLAGS; field++)
            assert_non_null(command->fields[field]);
        assert_string_equal(command->fields[COMMAND_DIRECTORY], directory);
    }
    list_read(&names, corpus, name, "files");
    package->headers = headers_read(&names, directory);
    free(names.text);
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
    json_t *files = files_beside(package->headers, file);
    json_t *args = json_array();
    json_t *request;
    char *body;

    json_array_append_new(files, request_file(directory, file));
    for (size_t i = COMMAND_FLAGS; command->fields[i] != NULL; i++)
        json_array_append_new(args, json_string(command->fields[i]));
    if (extra_flag != NULL)
        json_array_append_new(args, json_string(extra_flag));
    request =
        json_pack("{s:o, s:s, s:s, s:o, s:s, s:i}", "files", files, "main", file, "directory",
                  directory, "args", args, "emit", "object", "timeout_ms", PACKAGE_TIMEOUT_MS);
    body = json_dumps(request, JSON_COMPACT);
    assert_non_null(body);
    json_decref(request);
    return body;
}

static char *list_path(const char *corpus, const char *package, const char *what)
{
    char *path;

    if (asprintf(&path, "%s/%s.%s", corpus, package, what) < 0)
        fail_msg("no memory for the path of '%s'", package);
    return path;
}

static void list_read(struct list *list, const char *corpus, const char *package, const char *what)
{
    char *rest = NULL;
    char *path = list_path(corpus, package, what);

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

/* In the order of the list, so that two runs ask for the same thing. */
static json_t *headers_read(const struct list *names, const char *directory)
{
    json_t *headers = json_array();

    for (size_t i = 0; i < names->line_count; i++)
        json_array_append_new(headers, request_file(directory, names->lines[i].fields[0]));
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

/* A source that others include is among the headers too. */
static json_t *files_beside(const json_t *headers, const char *file)
{
    json_t *files = json_array();
    json_t *header;
    size_t i;

    json_array_foreach(headers, i,
                       header) if (strcmp(json_string_value(json_object_get(header, "name")),
                                          file) != 0) json_array_append(files, header);
    return files;
}

#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct compiled compiled_by_service(struct client *client, const struct package *package,
                                    const struct line *command, const char *extra_flag)
{
    char *body = package_request(package, command, extra_flag);
    const char *file = command->fields[COMMAND_FILE];
    json_t *answer = compiled_answer(client, body, file);
    struct compiled compiled = {.is_cached = json_is_true(json_object_get(answer, "cached"))};
    const json_t *timings = json_object_get(answer, "timings");
    const char *url = NULL;
    struct reply reply;

    compiled.used_preamble = json_is_true(json_object_get(timings, "preamble"));
    if (json_unpack(answer, "{s:{s:s}}", "artifact", "url", &url) != 0)
        fail_msg("%s: the answer names no artifact that was kept", file);
    client_send(client, &(struct request){.path = url}, &reply);
    if (reply.status != 200)
        fail_msg("%s: status %ld for its artifact %s", file, reply.status, url);
    compiled.object = reply.body;
    reply.body.data = NULL;
    json_decref(answer);
    reply_free(&reply);
    free(body);
    return compiled;
}

struct bytes compiled_by_clang(const char *folder, const struct line *command,
                               const char *extra_flag)
{
    const char *directory = command->fields[COMMAND_DIRECTORY];
    const char *argv[PACKAGE_FIELDS_MAX + 8] = {COMPILER, "-c", command->fields[COMMAND_FILE],
                                                "-o"};
    char *path = path_join(folder, "reference.o");
    char *log = path_join(folder, "reference.log");
    size_t count = 4;
    struct bytes object;

    argv[count++] = path;
    for (size_t i = COMMAND_FLAGS; command->fields[i] != NULL; i++)
        argv[count++] = command->fields[i];
    argv[count] = extra_flag;
    run_ok(directory, argv, NULL, log);
    object = file_read(path);
    free(log);
    free(path);
    return object;
}

json_t *compiled_answer(struct client *client, const char *body, const char *file)
{
    const char *outcome = "";
    struct reply reply;
    json_t *json;

    client_send(client, &(struct request){.path = "/v1/compile", .body = body}, &reply);
    json = json_loadb(reply.body.data, reply.body.count, 0, NULL);
    if (reply.status != 200 || json == NULL || json_unpack(json, "{s:s}", "status", &outcome) ||
        strcmp(outcome, "ok") != 0)
        fail_msg("%s was not compiled: %ld %s", file, reply.status, reply.body.data);
    reply_free(&reply);
    return json;
}

bool objects_differ(const struct bytes *a, const struct bytes *b, char *where, size_t where_bytes)
{
    size_t common = a->count < b->count ? a->count : b->count;
    size_t i = 0;

    while (i < common && a->data[i] == b->data[i])
        i++;
    if (i == common && a->count == b->count)
        return false;
    snprintf(where, where_bytes, "%zu bytes against %zu, first difference at byte %zu", a->count,
             b->count, i);
    return true;
}

void run_ok(const char *directory, const char *const *argv, const char *input, const char *output)
{
    char *path = output[0] == '/' ? path_join("", output + 1) : path_join(directory, output);
    int status = process_run(directory, argv, input, path);

    if (status != 0)
        fail_msg("'%s' in '%s' ended with %d: %s", argv[0], directory, status,
                 file_read(path).data);
    free(path);
}

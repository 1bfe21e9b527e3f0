#include "subject.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan.h"
#include "source.h"

#define GENERATED_LINES 2000u
#define STAND_IN_LINES  1200u
#define TIMEOUT_MS      120000 /* on a busy machine a leaf at nice 19 gets little */

#define LANGUAGE_C   .language = "c", .file = "main.c"
#define LANGUAGE_CXX .language = "c++", .file = "main.cc"

struct subject subjects[SUBJECTS] = {
    [HELLO_O0] = {.name = "hello.c -O0",
                  LANGUAGE_C,
                  .flag = "-O0",
                  .goal = 10,
                  .has_prefix = true,
                  .is_quick = true},
    [HELLO_O2] = {.name = "hello.c -O2", LANGUAGE_C, .flag = "-O2", .goal = 5, .has_prefix = true},
    [WORDS_O0] = {.name = "C++ vector string map -O0",
                  LANGUAGE_CXX,
                  .flag = "-O0",
                  .goal = 2.5,
                  .has_prefix = true,
                  .is_quick = true},
    [WORDS_O2] = {.name = "C++ vector string map -O2",
                  LANGUAGE_CXX,
                  .flag = "-O2",
                  .goal = 1.8,
                  .has_prefix = true},
    [DEFLATE_O2] =
        {.name = "deflate.c -O2", .language = "c", .file = "deflate.c", .flag = "-O2", .goal = 1},
    [GENERATED_O2] =
        {.name = "2,000 lines of C -O2", LANGUAGE_C, .flag = "-O2", .goal = 1, .has_prefix = true},
};

static char *body_of(struct subject *subject, bool is_traced);
static char *source_of(unsigned number);
static int zlib_read(struct subject *subject, const char *corpus, const char *folder);
static void headers_read(struct subject *subject, const char *folder, const char *list);
static json_t *file_json(const char *name, const char *content);

int subjects_make(const char *corpus, const char *folder)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        struct subject *subject = &subjects[i];

        subject->others = json_array();
        if (i == DEFLATE_O2 && zlib_read(subject, corpus, folder) == 0)
            continue;
        subject->source = source_of(i);
        if (subject->source == NULL || subject->others == NULL)
            return -ENOMEM;
    }
    return 0;
}

void subjects_free(void)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        free(subjects[i].source);
        free(subjects[i].object.data);
        json_decref(subjects[i].others);
        subjects[i].source = NULL;
        subjects[i].object.data = NULL;
        subjects[i].others = NULL;
    }
}

char *subject_body(struct subject *subject)
{
    return body_of(subject, false);
}

char *subject_body_traced(struct subject *subject)
{
    return body_of(subject, true);
}

static char *body_of(struct subject *subject, bool is_traced)
{
    unsigned number = atomic_fetch_add_explicit(&subject->variants, 1, memory_order_relaxed);
    json_t *files = json_copy(subject->others);
    json_t *json;
    char *source;
    char *body;

    if (asprintf(&source, "%s// run %u\n", subject->source, number) < 0)
        return NULL;
    json_array_append_new(files, file_json(subject->file, source));
    json = json_pack("{s:s, s:o, s:s, s:[s], s:i}", "language", subject->language, "files", files,
                     "main", subject->file, "args", subject->flag, "timeout_ms", TIMEOUT_MS);
    if (is_traced)
        json_object_set_new(json, "also", json_pack("[s]", "time-trace"));
    body = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    free(source);
    return body;
}

void subject_write(const struct subject *subject, const char *folder)
{
    char *path = path_join(folder, subject->file);
    size_t i;
    json_t *file;

    file_write(path, subject->source, strlen(subject->source));
    free(path);
    json_array_foreach(subject->others, i, file)
    {
        json_t *content = json_object_get(file, "content");

        path = path_join(folder, json_string_value(json_object_get(file, "name")));
        file_write(path, json_string_value(content), json_string_length(content));
        free(path);
    }
}

int subject_check(struct subject *subject, const void *object, size_t bytes)
{
    if (subject->object.data == NULL) {
        subject->object = (struct bytes){malloc(bytes), bytes};
        if (subject->object.data == NULL)
            return -ENOMEM;
        memcpy(subject->object.data, object, bytes);
    }
    return bytes == subject->object.count && memcmp(object, subject->object.data, bytes) == 0
               ? 0
               : -EBADMSG;
}

static char *source_of(unsigned number)
{
    switch (number) {
    case HELLO_O0:
    case HELLO_O2:
        return strdup(source_hello_c);
    case WORDS_O0:
    case WORDS_O2:
        return strdup(source_words_cc);
    case DEFLATE_O2:
        subjects[DEFLATE_O2].name = "stand-in for deflate.c -O2";
        subjects[DEFLATE_O2].has_prefix = true;
        return source_generate(STAND_IN_LINES);
    default:
        return source_generate(GENERATED_LINES);
    }
}

/* deflate.c and the headers beside it that it includes: who sends a request has the list from the
 * compiler, and sends no other. Returns 0 or -ENOENT. */
static int zlib_read(struct subject *subject, const char *corpus, const char *folder)
{
    char *zlib = path_join(corpus, "zlib");
    char *path = path_join(zlib, subject->file);
    char *list = path_join(folder, "headers");
    const char *const argv[] = {COMPILER, "-MM", subject->file, NULL};

    if (access(path, R_OK) == 0 && process_run(zlib, argv, NULL, list) == 0) {
        subject->source = file_read(path).data;
        headers_read(subject, zlib, list);
    }
    free(list);
    free(path);
    free(zlib);
    return subject->source == NULL ? -ENOENT : 0;
}

/* `list` is a rule of make: an object, a colon, the main file and the headers, on lines that end
 * with a backslash. */
static void headers_read(struct subject *subject, const char *folder, const char *list)
{
    struct bytes rule = file_read(list);
    char *rest = NULL;

    for (char *name = strtok_r(rule.data, " \\\n", &rest); name != NULL;
         name = strtok_r(NULL, " \\\n", &rest)) {
        char *path;
        struct bytes text;

        if (fnmatch("*.h", name, 0) != 0)
            continue;
        path = path_join(folder, name);
        text = file_read(path);
        json_array_append_new(subject->others, file_json(name, text.data));
        free(text.data);
        free(path);
    }
    free(rule.data);
}

static json_t *file_json(const char *name, const char *content)
{
    return json_pack("{s:s, s:s}", "name", name, "content", content);
}

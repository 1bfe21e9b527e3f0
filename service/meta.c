#include "meta.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "wire.h"

static bool extra_write(FILE *out, enum mw_extra extra, const struct mw_text *text);
static const char *line_end(const char *at, const char *end);
static void members_write(FILE *out, const char *at, const char *end);

static const char *const members[MW_EXTRAS] = {
    [MW_EXTRA_DEPENDENCIES] = "dependencies",
    [MW_EXTRA_REMARKS] = "remarks",
    [MW_EXTRA_TIME_TRACE] = "time_trace",
    [MW_EXTRA_LINE_MAP] = "line_map",
};

char *mw_meta_make(const struct mw_compile_result *result, unsigned extras, size_t *bytes,
                   bool *complete)
{
    char *head = mw_json_text(json_pack("{s:o, s:I}", "diagnostics",
                                        mw_wire_diagnostics(&result->diagnostics), "dropped",
                                        (json_int_t)result->diagnostics.dropped),
                              MW_JSON_COMPACT);
    char *meta = NULL;
    FILE *out = head ? open_memstream(&meta, bytes) : NULL;
    *complete = true;
    if (out)
        fputs(head, out);
    free(head);
    if (!out)
        return NULL;
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        if (extras & 1u << i && !extra_write(out, (enum mw_extra)i, &result->extras[i]))
            *complete = false;
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return meta;
    free(meta);
    return NULL;
}

int mw_meta_add(char **meta, size_t *bytes, const char *member, const char *json)
{
    size_t line_bytes = strlen(member) + strlen(json) + 2;
    char *longer = realloc(*meta, *bytes + line_bytes + 1);
    if (!longer)
        return -ENOMEM;
    snprintf(longer + *bytes, line_bytes + 1, "\n%s %s", member, json);
    *meta = longer;
    *bytes += line_bytes;
    return 0;
}

json_t *mw_meta_head(const char *meta, size_t bytes)
{
    return json_loadb(meta, (size_t)(line_end(meta, meta + bytes) - meta), 0, NULL);
}

char *mw_meta_answer(json_t *answer, const char *meta, size_t bytes)
{
    char *head = mw_json_text(answer, MW_JSON_COMPACT);
    const char *begin = line_end(meta, meta + bytes), *end = meta + bytes;
    char *text = NULL;
    size_t text_bytes;
    if (!head || begin == end)
        return head;
    FILE *out = open_memstream(&text, &text_bytes);
    if (out) {
        fwrite(head, 1, strlen(head) - 1, out); /* all but the brace at its end */
        members_write(out, begin, end);
        fputc('}', out);
    }
    free(head);
    bool failed = !out || ferror(out);
    if (out && fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

const char *mw_meta_member(enum mw_extra extra)
{
    return (unsigned)extra < MW_EXTRAS ? members[extra] : "unknown";
}

/* Write one line. Returns false when there is nothing to tell in it. */
static bool extra_write(FILE *out, enum mw_extra extra, const struct mw_text *text)
{
    size_t bytes = 0;
    char *passed = text->data && text->bytes <= MW_EXTRA_BYTES_MAX ? malloc(text->bytes + 1) : NULL;
    bool told = passed && mw_json_pass(text->data, text->bytes, passed, &bytes) == 0;
    fprintf(out, "\n%s ", members[extra]);
    if (told)
        fwrite(passed, 1, bytes, out);
    else
        fputs("null", out);
    free(passed);
    return told;
}

static const char *line_end(const char *at, const char *end)
{
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found ? found : end;
}

/* `at` is where a line ends, before each extra's. */
static void members_write(FILE *out, const char *at, const char *end)
{
    while (at < end) {
        const char *line = at + 1;
        at = line_end(line, end);
        const char *space = memchr(line, ' ', (size_t)(at - line));
        if (space)
            fprintf(out, ",\"%.*s\":%.*s", (int)(space - line), line, (int)(at - space - 1),
                    space + 1);
    }
}

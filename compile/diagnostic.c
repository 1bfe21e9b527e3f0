/* diagnostic.c - see diagnostic.h. Printing stands in the lower half. */
#include "diagnostic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Mutable views of what a list owns: the public type is read-only for its readers. */
static void diagnostic_fini(struct mw_diagnostic *item);
static int diagnostic_copy(struct mw_diagnostic *out, const struct mw_diagnostic *from,
                           size_t *dropped);
static int note_add(struct mw_diagnostics *list, const struct mw_diagnostic *note);
static bool room_make(struct mw_diagnostics *list, enum mw_severity severity);
static int list_grow(struct mw_diagnostics *list);

static bool is_error(enum mw_severity severity)
{
    return severity >= MW_SEVERITY_ERROR;
}

int mw_diagnostics_add(struct mw_diagnostics *list, const struct mw_diagnostic *diagnostic)
{
    int rc;

    if (diagnostic->severity == MW_SEVERITY_NOTE && (list->count || list->skip_notes))
        return note_add(list, diagnostic);
    if (!room_make(list, diagnostic->severity)) {
        list->dropped++;
        list->skip_notes = true;
        return 0;
    }
    rc = list_grow(list);
    if (rc == 0)
        rc = diagnostic_copy(&list->items[list->count], diagnostic, &list->dropped);
    list->skip_notes = rc != 0;
    if (rc)
        return rc;
    list->count++;
    list->errors += is_error(diagnostic->severity);
    return 0;
}

void mw_diagnostics_fini(struct mw_diagnostics *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        diagnostic_fini(&list->items[i]);
    free(list->items);
    *list = (struct mw_diagnostics){0};
}

const char *mw_severity_name(enum mw_severity severity)
{
    static const char *const names[] = {
        [MW_SEVERITY_NOTE] = "note",         [MW_SEVERITY_REMARK] = "remark",
        [MW_SEVERITY_WARNING] = "warning",   [MW_SEVERITY_ERROR] = "error",
        [MW_SEVERITY_FATAL] = "fatal error",
    };

    return (size_t)severity < sizeof(names) / sizeof(names[0]) ? names[severity] : "unknown";
}

/* Whether there is room for an entry of `severity`; for an error a lesser entry makes some. */
static bool room_make(struct mw_diagnostics *list, enum mw_severity severity)
{
    size_t victim = list->count;

    if (list->count < MW_DIAGNOSTICS_MAX)
        return true;
    if (!is_error(severity))
        return false;
    while (victim > 0 && is_error(list->items[victim - 1].severity))
        victim--;
    if (victim == 0)
        return false;
    victim--;
    diagnostic_fini(&list->items[victim]);
    memmove(&list->items[victim], &list->items[victim + 1],
            (list->count - victim - 1) * sizeof(list->items[0]));
    list->count--;
    list->dropped++;
    return true;
}

static int list_grow(struct mw_diagnostics *list)
{
    size_t capacity = list->capacity ? 2 * list->capacity : 8;
    struct mw_diagnostic *items;

    if (list->count < list->capacity)
        return 0;
    items = realloc(list->items, capacity * sizeof(items[0]));
    if (!items)
        return -ENOMEM;
    list->items = items;
    list->capacity = capacity;
    return 0;
}

static int note_add(struct mw_diagnostics *list, const struct mw_diagnostic *note)
{
    struct mw_diagnostic *owner;
    struct mw_diagnostic *notes;
    int rc;

    if (list->skip_notes || list->items[list->count - 1].note_count >= MW_DIAGNOSTIC_NOTES_MAX) {
        list->dropped++;
        return 0;
    }
    owner = &list->items[list->count - 1];
    notes = (struct mw_diagnostic *)owner->notes;
    if ((owner->note_count & (owner->note_count - 1)) == 0) { /* full at each power of two */
        size_t capacity = owner->note_count ? 2 * owner->note_count : 1;

        notes = realloc(notes, capacity * sizeof(notes[0]));
        if (!notes)
            return -ENOMEM;
        owner->notes = notes;
    }
    rc = diagnostic_copy(&notes[owner->note_count], note, &list->dropped);
    if (rc == 0)
        owner->note_count++;
    return rc;
}

/* A copy of at most MW_DIAGNOSTIC_TEXT_BYTES_MAX bytes that ends with a whole character. */
static char *text_copy(const char *text)
{
    size_t bytes;

    if (!text)
        text = "";
    bytes = strnlen(text, MW_DIAGNOSTIC_TEXT_BYTES_MAX + 1);
    if (bytes > MW_DIAGNOSTIC_TEXT_BYTES_MAX) {
        bytes = MW_DIAGNOSTIC_TEXT_BYTES_MAX;
        for (int i = 0; i < 3 && ((unsigned char)text[bytes] & 0xc0) == 0x80; i++)
            bytes--;
    }
    return strndup(text, bytes);
}

static int fixits_copy(struct mw_diagnostic *out, const struct mw_diagnostic *from)
{
    struct mw_fixit *fixits;

    /* All or none: a part of a fix may not be applied. */
    if (from->fixit_count == 0 || from->fixit_count > MW_DIAGNOSTIC_FIXITS_MAX)
        return 0;
    fixits = calloc(from->fixit_count, sizeof(fixits[0]));
    if (!fixits)
        return -ENOMEM;
    out->fixits = fixits;
    out->fixit_count = from->fixit_count;
    for (size_t i = 0; i < from->fixit_count; i++) {
        fixits[i] = from->fixits[i];
        fixits[i].file = text_copy(from->fixits[i].file);
        fixits[i].text = text_copy(from->fixits[i].text);
        if (!fixits[i].file || !fixits[i].text) {
            out->fixit_count = i + 1;
            return -ENOMEM;
        }
    }
    return 0;
}

static int diagnostic_copy(struct mw_diagnostic *out, const struct mw_diagnostic *from,
                           size_t *dropped)
{
    *out = (struct mw_diagnostic){
        .severity = from->severity,
        .file = text_copy(from->file),
        .at = from->at,
        .begin = from->begin,
        .end = from->end,
        .message = text_copy(from->message),
        .flag = text_copy(from->flag),
        .category = text_copy(from->category),
        .line_text = text_copy(from->line_text),
    };
    if (!out->file || !out->message || !out->flag || !out->category || !out->line_text ||
        fixits_copy(out, from)) {
        diagnostic_fini(out);
        return -ENOMEM;
    }
    *dropped += from->fixit_count - out->fixit_count;
    return 0;
}

static void diagnostic_fini(struct mw_diagnostic *item)
{
    for (size_t i = 0; i < item->fixit_count; i++) {
        free((char *)item->fixits[i].file);
        free((char *)item->fixits[i].text);
    }
    free((struct mw_fixit *)item->fixits);
    for (size_t i = 0; i < item->note_count; i++)
        diagnostic_fini((struct mw_diagnostic *)&item->notes[i]);
    free((struct mw_diagnostic *)item->notes);
    free((char *)item->file);
    free((char *)item->message);
    free((char *)item->flag);
    free((char *)item->category);
    free((char *)item->line_text);
}

/* ---- printing ---- */

int mw_diagnostics_print(const struct mw_diagnostics *list, FILE *out, bool colour)
{
    (void)list;
    (void)out;
    (void)colour;
    return 0;
}

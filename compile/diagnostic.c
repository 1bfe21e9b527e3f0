/* diagnostic.c - see diagnostic.h. Printing stands in the lower half. */
#include "diagnostic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    if ((owner->note_count & (owner->note_count - 1)) == 0) { /* full at each power of two */
        size_t capacity = owner->note_count ? 2 * owner->note_count : 1;

        notes = realloc((void *)owner->notes, capacity * sizeof(notes[0]));
        if (!notes)
            return -ENOMEM;
        owner->notes = notes;
    }
    notes = (struct mw_diagnostic *)owner->notes;
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

/* ---- printing ----
 * Places count bytes; a terminal counts columns. column_of turns one into the other, with a tab
 * to the next multiple of eight and wide characters two columns wide. */

#define TAB_COLUMNS 8u

enum colour { PLAIN, BOLD, CARET, FIXIT, SEVERITY };

struct printer {
    FILE *out;
    bool colour;
};

static void item_print(struct printer *printer, const struct mw_diagnostic *item);
static void snippet_print(struct printer *printer, const struct mw_diagnostic *item);

static bool is_include_note(const struct mw_diagnostic *note)
{
    return strcmp(note->message, MW_DIAGNOSTIC_INCLUDED_HERE) == 0;
}

int mw_diagnostics_print(const struct mw_diagnostics *list, FILE *out, bool colour)
{
    struct printer printer = {.out = out, .colour = colour};

    for (size_t i = 0; i < list->count; i++) {
        const struct mw_diagnostic *item = &list->items[i];

        for (size_t n = 0; n < item->note_count; n++)
            if (is_include_note(&item->notes[n]))
                fprintf(out, "In file included from %s:%u:\n", item->notes[n].file,
                        item->notes[n].at.line);
        item_print(&printer, item);
        for (size_t n = 0; n < item->note_count; n++)
            if (!is_include_note(&item->notes[n]))
                item_print(&printer, &item->notes[n]);
    }
    if (list->dropped)
        fprintf(out, "note: %zu more are not shown\n", list->dropped);
    return fflush(out) || ferror(out) ? -EIO : 0;
}

static void set_colour(struct printer *printer, enum colour colour, enum mw_severity severity)
{
    static const char *const codes[] = {
        [PLAIN] = "\033[0m",
        [BOLD] = "\033[1m",
        [CARET] = "\033[0;1;32m",
        [FIXIT] = "\033[0;32m",
        [SEVERITY + MW_SEVERITY_NOTE] = "\033[0;1;36m",
        [SEVERITY + MW_SEVERITY_REMARK] = "\033[0;1;34m",
        [SEVERITY + MW_SEVERITY_WARNING] = "\033[0;1;35m",
        [SEVERITY + MW_SEVERITY_ERROR] = "\033[0;1;31m",
        [SEVERITY + MW_SEVERITY_FATAL] = "\033[0;1;31m",
    };

    if (printer->colour)
        fputs(codes[colour == SEVERITY ? SEVERITY + severity : colour], printer->out);
}

/* Decode the character at `text`: 1 for a byte that starts none, with `code` U+FFFD. */
static size_t character_at(const char *text, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t bytes = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;

    *code = bytes == 1 ? s[0] : s[0] & (0xffu >> (bytes + 1));
    if (s[0] >= 0xf8 || (s[0] & 0xc0) == 0x80)
        bytes = 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            bytes = 0; /* also at the NUL that ends the text */
        else
            *code = *code << 6 | (s[i] & 0x3f);
    }
    if (bytes)
        return bytes;
    *code = 0xfffd;
    return 1;
}

/* What must not reach a terminal: controls, and what turns the direction of writing. */
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200e && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfffd || code == 0xfeff;
}

static unsigned columns_of_code(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } wide[] = {
        {0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3}, {0xf900, 0xfaff},
        {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6}, {0x1f300, 0x1f64f},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
    };

    if (code >= 0x300 && code <= 0x36f) /* combining marks */
        return 0;
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
        if (code >= wide[i].first && code <= wide[i].last)
            return 2;
    return 1;
}

/* Print up to `bytes` bytes of `text` and return the column behind it. With `out` NULL only
 * count. Tabs become spaces; a line end is kept only when `lines`. */
static unsigned text_put(FILE *out, const char *text, size_t bytes, bool lines)
{
    unsigned column = 0;

    for (const char *end = text + bytes; text < end && *text;) {
        uint32_t code;
        size_t length = character_at(text, &code);
        unsigned columns = code == '\t' ? TAB_COLUMNS - column % TAB_COLUMNS
                                        : columns_of_code(is_control(code) ? '?' : code);

        if (out && code == '\t')
            fprintf(out, "%*s", (int)columns, "");
        else if (out && code == '\n' && lines)
            fputc('\n', out);
        else if (out && is_control(code))
            fputc('?', out);
        else if (out)
            fwrite(text, 1, length, out);
        column += columns;
        text += length;
    }
    return column;
}

static unsigned column_of(const char *line, size_t byte)
{
    return text_put(NULL, line, byte, false);
}

static void item_print(struct printer *printer, const struct mw_diagnostic *item)
{
    FILE *out = printer->out;

    set_colour(printer, BOLD, item->severity);
    if (*item->file) {
        text_put(out, item->file, strlen(item->file), false);
        if (item->at.line)
            fprintf(out, ":%u:%u", item->at.line, item->at.column);
        fputs(": ", out);
    }
    set_colour(printer, PLAIN, item->severity);
    set_colour(printer, SEVERITY, item->severity);
    fprintf(out, "%s: ", mw_severity_name(item->severity));
    set_colour(printer, PLAIN, item->severity);
    if (item->severity != MW_SEVERITY_NOTE)
        set_colour(printer, BOLD, item->severity);
    text_put(out, item->message, strlen(item->message), true);
    if (*item->flag)
        fprintf(out, " [%s]", item->flag);
    set_colour(printer, PLAIN, item->severity);
    fputc('\n', out);
    snippet_print(printer, item);
}

/* Draw tildes below the part of begin..end that stands in the item's line. */
static void range_draw(char *marks, const struct mw_diagnostic *item, struct mw_place begin,
                       struct mw_place end)
{
    const char *line = item->line_text;
    size_t bytes = strlen(line);
    size_t from = begin.line == item->at.line && begin.column ? begin.column - 1 : 0;
    size_t to = end.line == item->at.line && end.column ? end.column - 1 : bytes;

    if (begin.line > item->at.line || end.line < item->at.line || to > bytes)
        return;
    while (from < to && (line[from] == ' ' || line[from] == '\t'))
        from++;
    while (to > from && (line[to - 1] == ' ' || line[to - 1] == '\t'))
        to--;
    if (from < to)
        memset(marks + column_of(line, from), '~', column_of(line, to) - column_of(line, from));
}

/* Below the carets: the text that each fix-it puts there. */
static void fixits_print(struct printer *printer, const struct mw_diagnostic *item, unsigned gutter)
{
    unsigned end = 0;
    bool started = false;

    for (size_t i = 0; i < item->fixit_count; i++) {
        const struct mw_fixit *fixit = &item->fixits[i];
        unsigned column;

        if (fixit->begin.line != item->at.line || !*fixit->text || strpbrk(fixit->text, "\n\v\f\r"))
            continue;
        if (!started) {
            fprintf(printer->out, "%*s| ", (int)gutter, "");
            set_colour(printer, FIXIT, item->severity);
            started = true;
        }
        column = column_of(item->line_text, fixit->begin.column ? fixit->begin.column - 1 : 0);
        if (column < end)
            column = end + 1;
        fprintf(printer->out, "%*s", (int)(column - end), "");
        end = column + text_put(printer->out, fixit->text, strlen(fixit->text), false);
    }
    if (started) {
        set_colour(printer, PLAIN, item->severity);
        fputc('\n', printer->out);
    }
}

/* The source line, a line of marks below it, and the fix-its. */
static void snippet_print(struct printer *printer, const struct mw_diagnostic *item)
{
    const char *line = item->line_text;
    size_t bytes = strlen(line);
    size_t columns = column_of(line, bytes) + 1; /* the caret may stand behind the line */
    unsigned digits = (unsigned)snprintf(NULL, 0, "%u", item->at.line);
    unsigned gutter = (digits > 4 ? digits : 4) + 2;
    char *marks;

    /* A line that was cut may not reach to the caret. */
    if (item->at.line == 0 || item->at.column == 0 || item->at.column > bytes + 1)
        return;
    marks = malloc(columns + 1);
    if (!marks)
        return;
    memset(marks, ' ', columns);
    range_draw(marks, item, item->begin, item->end);
    for (size_t i = 0; i < item->fixit_count; i++)
        range_draw(marks, item, item->fixits[i].begin, item->fixits[i].end);
    marks[column_of(line, item->at.column - 1)] = '^';
    while (columns > 0 && marks[columns - 1] == ' ')
        columns--;
    marks[columns] = '\0';

    fprintf(printer->out, "%*u | ", (int)gutter - 1, item->at.line);
    text_put(printer->out, line, bytes, false);
    fprintf(printer->out, "\n%*s| ", (int)gutter, "");
    set_colour(printer, CARET, item->severity);
    fputs(marks, printer->out);
    set_colour(printer, PLAIN, item->severity);
    fputc('\n', printer->out);
    fixits_print(printer, item, gutter);
    free(marks);
}

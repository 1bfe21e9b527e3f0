/* diagnostic.h - what the compiler has to say, as data.
 *
 * Ownership:  a list owns all it holds; mw_diagnostics_fini releases it. Strings are never NULL.
 * Threads:    one thread at a time; nothing here blocks.
 * Bounds:     MW_DIAGNOSTICS_MAX top-level entries, MW_DIAGNOSTIC_NOTES_MAX notes below one,
 *             MW_DIAGNOSTIC_FIXITS_MAX fix-its, texts cut at MW_DIAGNOSTIC_TEXT_BYTES_MAX (at a
 *             character); what is over is counted in `dropped`. */
#ifndef MILLWRIGHT_DIAGNOSTIC_H
#define MILLWRIGHT_DIAGNOSTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MW_DIAGNOSTICS_MAX           1000u
#define MW_DIAGNOSTIC_NOTES_MAX      64u
#define MW_DIAGNOSTIC_FIXITS_MAX     16u
#define MW_DIAGNOSTIC_TEXT_BYTES_MAX 4096u

/* The message of the note that says by which line a file came in, outermost first. Printing shows
 * these notes as clang does: as "In file included from", before the entry that they belong to. */
#define MW_DIAGNOSTIC_INCLUDED_HERE "in file included from here"

enum mw_severity {
    MW_SEVERITY_NOTE = 0,
    MW_SEVERITY_REMARK,
    MW_SEVERITY_WARNING,
    MW_SEVERITY_ERROR,
    MW_SEVERITY_FATAL
};

/* A place in a file. Lines and columns count from 1, in bytes; 0 means unknown. */
struct mw_place {
    uint32_t line;
    uint32_t column;
    uint32_t byte_offset;
};

struct mw_fixit {
    const char *file;
    struct mw_place begin, end; /* what to replace: up to, not including, end */
    const char *text;           /* what to put there */
};

struct mw_diagnostic {
    enum mw_severity severity;
    const char *file;           /* "" when it is about no file */
    struct mw_place at;         /* where the caret stands */
    struct mw_place begin, end; /* the range it is about; equal to `at` when there is none */
    const char *message;
    const char *flag;      /* "-Wunused-variable", or "" */
    const char *category;  /* "Semantic Issue", or "" */
    const char *line_text; /* the source line, without its end; "" when unknown */
    const struct mw_fixit *fixits;
    size_t fixit_count;
    const struct mw_diagnostic *notes; /* of severity note or remark; have no notes themselves */
    size_t note_count;
};

struct mw_diagnostics {
    struct mw_diagnostic *items;
    size_t count, capacity;
    size_t errors;   /* kept entries of severity error or fatal */
    size_t dropped;  /* over the bounds */
    bool skip_notes; /* the last entry was dropped, and so are the notes to it */
};

/* Copy `diagnostic` (without its notes) to the end of the list; a note goes below the last entry
 * when there is one. When the list is full it is only counted; an error found then takes the
 * place of the last entry that is none, so that a failure is explained. Returns 0 or -ENOMEM. */
int mw_diagnostics_add(struct mw_diagnostics *list, const struct mw_diagnostic *diagnostic);
void mw_diagnostics_fini(struct mw_diagnostics *list);

/* "note", "remark", "warning", "error", "fatal error". Static text. */
const char *mw_severity_name(enum mw_severity severity);

/* Print the list as clang does, with the source line, the caret and the fix-its; in colour when
 * `colour`. Control characters of the source print as '?'. Returns 0, or -EIO when `out` fails. */
int mw_diagnostics_print(const struct mw_diagnostics *list, FILE *out, bool colour);

#endif

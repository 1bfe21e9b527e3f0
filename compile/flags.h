/* flags.h - the flag policy: an allow-list from one table; what is not on it is refused.
 *
 * Each entry says how the flag takes its value, what the value must look like, and for known
 * dangerous families why they are refused. Everything else is refused as unknown.
 *
 * Threads: any thread; nothing here blocks. */
#ifndef MILLWRIGHT_FLAGS_H
#define MILLWRIGHT_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

#include <millwright/refusal.h>

/* Look at args[0] and, where the flag takes its value separately, args[1].
 * `read_disk` allows include paths outside the request (a user's own compile).
 * Returns how many arguments were used (1 or 2) with the canonical single argument allocated in
 * *canonical (the caller frees it; "" when the flag changes nothing and is dropped); -EPERM with
 * the flag and the reason in `refusal`; -ENOMEM. */
int mw_flag_check(const char *const *args, size_t count, bool read_disk, char **canonical,
                  struct mw_refusal *refusal);

enum mw_flag_use {
    MW_FLAG_ALLOWED = 0,
    MW_FLAG_DROPPED, /* taken and ignored: it changes nothing that comes out */
    MW_FLAG_REFUSED
};

/* One entry of the table, for docs/flags.md. All texts are static. */
struct mw_flag_entry {
    enum mw_flag_use use;
    const char *name;    /* "-std="; "-f[no-]inline" stands for both */
    const char *written; /* how it takes its value: "alone", "joined", "apart" (in the next
                            argument), "joined or apart", "begins so" */
    const char *values;  /* what may follow: listed words with spaces between, or the name of a kind
                            such as "PATH", or "*": anything; "" when nothing may */
    bool in_key;         /* it enters the content key */
    const char *text;    /* what it is for, or why it is refused */
};

/* A kind of value: its name, what it takes, and why anything else is refused. Static texts. */
struct mw_flag_kind {
    const char *name, *takes, *reason;
};

/* Entry `index` of the table, and kind `index` of value. Return false when there is none. */
bool mw_flag_entry_get(size_t index, struct mw_flag_entry *entry);
bool mw_flag_kind_get(size_t index, struct mw_flag_kind *kind);

#endif

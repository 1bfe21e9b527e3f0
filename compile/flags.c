#include <millwright/flags.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags_table.h"

#define NUMBER_MAX     4096u
#define LETTERS_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const struct rule *rule_find(const char *arg, const char **value);
static size_t rule_match(const struct rule *rule, const char *arg, const char **value);
static const char *name_skip(const char *name, const char *arg);
static int value_check(const struct rule *rule, const char *value, bool read_disk,
                       const char *shown, struct mw_refusal *refusal);
static int unknown_refuse(const char *arg, struct mw_refusal *refusal);
static int canonical_make(char **out, const struct rule *rule, const char *arg, size_t name_bytes,
                          const char *value);
static bool has_control(const char *text);
static bool is_listed(const char *values, const char *value);
static bool is_number(const char *value, bool read_disk);
static bool is_word(const char *value, bool read_disk);
static bool is_cpu(const char *value, bool read_disk);
static bool is_warning(const char *value, bool read_disk);
static bool is_macro(const char *value, bool read_disk);
static bool is_macro_name(const char *value, bool read_disk);
static bool is_path(const char *value, bool read_disk);
static bool is_path_map(const char *value, bool read_disk);
static size_t identifier_bytes(const char *text);

/* The kinds of value that the table names. */
static const struct kind {
    const char *name;
    bool (*accepts)(const char *value, bool read_disk);
    const char *takes, *reason;
} kinds[] = {
    {"NUMBER", is_number, "1 to 4096", "needs a number from 1 to 4096; give one"},
    {"WORD", is_word, "letters, digits and `.+-_`",
     "needs a word of letters, digits and .+-_; give one"},
    {"CPU", is_cpu, "a WORD in which neither `native` nor `help` occurs",
     "needs a processor by name, never native (which differs from machine to machine) nor help; "
     "name it"},
    {"NAME", is_warning, "letters, digits and `.+-_=`", "is no warning's name; check its spelling"},
    {"MACRO[=TEXT]", is_macro, "a name of the language, then nothing, `=` or `(` and any text",
     "defines no valid name; write NAME or NAME=TEXT"},
    {"MACRO", is_macro_name, "a name of the language", "is no macro's name; check its spelling"},
    {"PATH", is_path,
     "relative to `directory`, not leaving it, not beginning with `-` or `=`; any path where the "
     "user's own disk is read (`millwright compile`)",
     "leaves the request's files; add what it names to \"files\" and give a path relative to "
     "\"directory\""},
    {"OLD=NEW", is_path_map, "two texts with `=` between, the first not empty",
     "needs a value of the form OLD=NEW; give one"},
};

static const struct kind *kind_find(const char *values);

int mw_flag_check(const char *const *args, size_t count, bool read_disk, char **canonical,
                  struct mw_refusal *refusal)
{
    const char *arg = args[0], *value = arg;
    const struct rule *rule = rule_find(arg, &value);
    char shown[sizeof refusal->subject];
    size_t name_bytes;
    bool separate;
    int error;

    if (!rule)
        return unknown_refuse(arg, refusal);
    name_bytes = (size_t)(value - arg);
    separate = value[0] == '\0' && (rule->style == SEPARATE || rule->style == EITHER);
    if (separate && count < 2)
        return mw_refuse(refusal, MW_REFUSAL_FLAG, arg,
                         "needs a value; give it in the next argument");
    if (separate)
        value = args[1];
    (void)snprintf(shown, sizeof shown, "%s%s%s", arg, separate ? " " : "", separate ? value : "");
    if (has_control(arg) || has_control(value))
        return mw_refuse(refusal, MW_REFUSAL_FLAG, shown, "has a control character; leave it out");
    error = value_check(rule, value, read_disk, shown, refusal);
    if (error == 0)
        error = canonical_make(canonical, rule, arg, name_bytes, value);
    return error < 0 ? error : separate ? 2 : 1;
}

bool mw_flag_entry_get(size_t index, struct mw_flag_entry *entry)
{
    static const char *const written[] = {[ALONE] = "alone",
                                          [JOINED] = "joined",
                                          [SEPARATE] = "apart",
                                          [EITHER] = "joined or apart",
                                          [PREFIX] = "begins so"};
    const struct rule *rule;

    if (index >= RULES)
        return false;
    rule = &rules[index];
    *entry = (struct mw_flag_entry){
        .use = rule->use,
        .name = rule->name,
        .written = written[rule->style],
        .values = rule->values,
        .in_key = rule->use == MW_FLAG_ALLOWED, /* what is dropped is not there to be hashed */
        .text = rule->text,
    };
    return true;
}

bool mw_flag_kind_get(size_t index, struct mw_flag_kind *kind)
{
    if (index >= sizeof kinds / sizeof kinds[0])
        return false;
    *kind = (struct mw_flag_kind){kinds[index].name, kinds[index].takes, kinds[index].reason};
    return true;
}

/* The row that matches most of `arg`; the first of those that match as much. */
static const struct rule *rule_find(const char *arg, const char **value)
{
    const struct rule *best = NULL;
    size_t best_bytes = 0;

    for (size_t i = 0; i < RULES; i++) {
        const char *rest = NULL;
        size_t bytes = rule_match(&rules[i], arg, &rest);

        if (bytes > best_bytes) {
            best = &rules[i];
            best_bytes = bytes;
            *value = rest;
        }
    }
    return best;
}

/* How many bytes of `arg` the row matches; 0 when it does not match. */
static size_t rule_match(const struct rule *rule, const char *arg, const char **value)
{
    const char *rest = name_skip(rule->name, arg);

    if (!rest)
        return 0;
    if ((rule->style == ALONE || rule->style == SEPARATE) && rest[0] != '\0')
        return 0;
    if (rule->style == JOINED && rest[0] == '\0' && rest[-1] != '=')
        return 0;
    *value = rest;
    if (!kind_find(rule->values) && is_listed(rule->values, rest))
        return strlen(arg);
    return (size_t)(rest - arg);
}

/* What stands behind `name` in `arg`; NULL when it does not begin so. "[no-]" in a name may be
 * there or not. */
static const char *name_skip(const char *name, const char *arg)
{
    size_t at = 0;

    for (; *name != '\0'; name++) {
        if (*name == '[') {
            name += strlen("[no-]") - 1;
            if (strncmp(arg + at, "no-", 3) == 0)
                at += 3;
        } else if (arg[at++] != *name) {
            return NULL;
        }
    }
    return arg + at;
}

static int value_check(const struct rule *rule, const char *value, bool read_disk,
                       const char *shown, struct mw_refusal *refusal)
{
    const struct kind *kind = kind_find(rule->values);
    size_t name_bytes = strlen(rule->name);

    if (rule->use == MW_FLAG_REFUSED)
        return mw_refuse(refusal, MW_REFUSAL_FLAG, shown, "%s", rule->text);
    if (kind && !kind->accepts(value, read_disk))
        return mw_refuse(refusal, MW_REFUSAL_FLAG, shown, "%s", kind->reason);
    if (kind || rule->values[0] == '\0' || is_listed(rule->values, value))
        return 0;
    /* A family such as -f[no-] or -m: its "value" is most of the flag. */
    if (rule->name[name_bytes - 1] == ']' || (name_bytes == 2 && rule->style == JOINED))
        return unknown_refuse(shown, refusal);
    return mw_refuse(refusal, MW_REFUSAL_FLAG, shown,
                     "has a value that is not allowed; choose one of: %s", rule->values);
}

static int unknown_refuse(const char *arg, struct mw_refusal *refusal)
{
    if (arg[0] != '-')
        return mw_refuse(refusal, MW_REFUSAL_FLAG, arg,
                         "is an input and no flag; put it into \"files\" and name what to compile "
                         "in \"main\"");
    return mw_refuse(refusal, MW_REFUSAL_FLAG, arg,
                     "is not on the list of allowed flags (docs/flags.md); leave it out");
}

/* The flag as one argument; an empty one when it is dropped. */
static int canonical_make(char **out, const struct rule *rule, const char *arg, size_t name_bytes,
                          const char *value)
{
    size_t bytes = name_bytes + strlen(value) + sizeof "-=";
    char *text = malloc(bytes);

    if (!text)
        return -ENOMEM;
    if (rule->use == MW_FLAG_DROPPED)
        text[0] = '\0';
    else if (rule->style == SEPARATE)
        (void)snprintf(text, bytes, "-%s=%s", rule->name, value);
    else
        (void)snprintf(text, bytes, "%.*s%s", (int)name_bytes, arg, value);
    *out = text;
    return 0;
}

/* The kind of value called `values`; NULL when the row lists the values themselves. */
static const struct kind *kind_find(const char *values)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(values, kinds[i].name) == 0)
            return &kinds[i];
    }
    return NULL;
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    }
    return false;
}

/* Whether `value` is one of `values`, which have one space between them. */
static bool is_listed(const char *values, const char *value)
{
    size_t bytes = strlen(value);

    for (; *values != '\0'; values += *values == ' ') {
        size_t listed = strcspn(values, " ");

        if (listed == bytes && memcmp(values, value, bytes) == 0)
            return true;
        values += listed;
    }
    return false;
}

static bool is_number(const char *value, bool read_disk)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long number;

    (void)read_disk;
    if (digits == 0 || digits > 4 || value[digits] != '\0' || value[0] == '0')
        return false;
    number = strtoul(value, NULL, 10);
    return number <= NUMBER_MAX;
}

static bool is_word(const char *value, bool read_disk)
{
    (void)read_disk;
    return value[0] != '\0' && value[strspn(value, LETTERS_DIGITS ".+-_")] == '\0';
}

/* "help" is another spelling of --print-supported-cpus. */
static bool is_cpu(const char *value, bool read_disk)
{
    return is_word(value, read_disk) && !strstr(value, "native") && !strstr(value, "help");
}

/* "name", "no-name", "error", "error=name", "name=2": never a comma, which is how flags are handed
 * to other programs. */
static bool is_warning(const char *value, bool read_disk)
{
    (void)read_disk;
    return value[0] != '\0' && value[strspn(value, LETTERS_DIGITS "+-_=.")] == '\0';
}

static bool is_macro(const char *value, bool read_disk)
{
    size_t bytes = identifier_bytes(value);

    (void)read_disk;
    return bytes > 0 && (value[bytes] == '\0' || value[bytes] == '=' || value[bytes] == '(');
}

static bool is_macro_name(const char *value, bool read_disk)
{
    size_t bytes = identifier_bytes(value);

    (void)read_disk;
    return bytes > 0 && value[bytes] == '\0';
}

/* A path that stays below the directory it starts from. A leading '=' would stand for the system
 * root. A leading '-' is a flag whose value was forgotten, or another flag once it is joined
 * ("-include" and "-pch"): never on any disk. */
static bool is_path(const char *value, bool read_disk)
{
    int depth = 0;

    if (value[0] == '\0' || value[0] == '-')
        return false;
    if (read_disk)
        return true;
    if (value[0] == '/' || value[0] == '=')
        return false;
    while (*value != '\0') {
        size_t bytes = strcspn(value, "/");

        if (bytes == 2 && value[0] == '.' && value[1] == '.')
            depth--;
        else if (bytes > 1 || (bytes == 1 && value[0] != '.'))
            depth++;
        if (depth < 0)
            return false;
        value += bytes + (value[bytes] == '/');
    }
    return true;
}

static bool is_path_map(const char *value, bool read_disk)
{
    (void)read_disk;
    return value[0] != '=' && strchr(value, '=') != NULL;
}

/* How many bytes at `text` make a name: letters, digits, '_', '$' and what is not ASCII. */
static size_t identifier_bytes(const char *text)
{
    size_t bytes = 0;

    if (text[0] >= '0' && text[0] <= '9')
        return 0;
    while (text[bytes] != '\0' &&
           (strchr(LETTERS_DIGITS "_$", text[bytes]) || (unsigned char)text[bytes] >= 0x80))
        bytes++;
    return bytes;
}

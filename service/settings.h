/* settings.h - options of a command from one table: parsing, checks, help and the config file.
 *
 * Each setting is named once. On the command line it is `--name VALUE` or `--name=VALUE`, in a
 * config file `name = VALUE`; the command line wins.
 *
 * Ownership:  values go into the caller's struct, texts into fixed arrays in it.
 * Threads:    one thread; reads the config file. */
#ifndef MW_SERVICE_SETTINGS_H
#define MW_SERVICE_SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MW_SETTING_TEXT_BYTES 1024u

enum mw_setting_type {
    MW_SETTING_TEXT,   /* char[MW_SETTING_TEXT_BYTES] */
    MW_SETTING_NUMBER, /* unsigned, in min..max; decimal */
    MW_SETTING_BYTES,  /* uint64_t, in min..max; decimal, with K, M or G for powers of 1024 */
    MW_SETTING_CHOICE, /* unsigned, the place of the value in `choices` */
    MW_SETTING_SWITCH  /* unsigned, 1 when given; takes no value */
};

struct mw_setting {
    const char *name;
    char letter; /* for -x on the command line; 0: none */
    enum mw_setting_type type;
    size_t offset; /* into the caller's struct */
    uint64_t min, max;
    const char *choices; /* "one|two", MW_SETTING_CHOICE only */
    const char *argument;
    const char *help;
};

struct mw_settings {
    const char *command; /* "serve" */
    const struct mw_setting *table;
    size_t count;
    void *values;
};

/* Take options from argv (without the program and the command) until the first that is none.
 * `--` ends them. Returns how many arguments were used, or -EINVAL with a line on stderr. */
int mw_settings_argv(const struct mw_settings *settings, int argc, char *const *argv);

/* Read the section of the command's name from an INI file. Unknown names are refused.
 * Returns 0, or a negative errno with a line on stderr that names the place. */
int mw_settings_file(const struct mw_settings *settings, const char *path);

/* One paragraph per setting. */
void mw_settings_help(const struct mw_settings *settings, FILE *out);

#endif

/* settings.h - options of a command from one table: parsing, checks, help and the config file.
 *
 * Each setting is named once. On the command line it is `--name VALUE` or `--name=VALUE`, in a
 * config file `name = VALUE`; the command line wins. Options of lanes have sections of their own.
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
    MW_SETTING_SET,   /* unsigned, a bit for each of `choices`; "one,two", and may be given again */
    MW_SETTING_LANE,  /* struct mw_lane_settings; one more at each time it is given */
    MW_SETTING_SWITCH /* unsigned, 1 when given; takes no value */
};

/* An option of a lane: `--lane NAME.KEY=VALUE`, or `KEY = VALUE` in a file's section [lane NAME].
 */
#define MW_LANE_SETTINGS_MAX        64u
#define MW_LANE_SETTING_NAME_BYTES  32u
#define MW_LANE_SETTING_KEY_BYTES   16u
#define MW_LANE_SETTING_VALUE_BYTES 24u

struct mw_lane_setting {
    char lane[MW_LANE_SETTING_NAME_BYTES];
    char key[MW_LANE_SETTING_KEY_BYTES];
    char value[MW_LANE_SETTING_VALUE_BYTES];
};

struct mw_lane_settings {
    unsigned count;
    struct mw_lane_setting list[MW_LANE_SETTINGS_MAX]; /* in the order given; the later wins */
};

struct mw_setting {
    const char *name;
    char letter; /* for -x on the command line; 0: none */
    enum mw_setting_type type;
    size_t offset; /* into the caller's struct */
    uint64_t min, max;
    const char *choices; /* "one|two", MW_SETTING_CHOICE and MW_SETTING_SET only */
    const char *argument;
    const char *help;
};

struct mw_settings {
    const char *command; /* "serve" */
    const struct mw_setting *table;
    size_t count;
    void *values;
    /* What lanes there are and what each takes; NULL: any. Returns 0, or -EINVAL with `why`. */
    int (*lane_check)(const char *lane, const char *key, const char *value, char *why,
                      size_t why_bytes);
};

/* Take options from argv (without the program and the command) until the first that is none.
 * `--` ends them. Returns how many arguments were used, or -EINVAL with a line on stderr. */
int mw_settings_argv(const struct mw_settings *settings, int argc, char *const *argv);

/* Read the section of the command's name from an INI file, and those of lanes if the command takes
 * any. Unknown names are refused.
 * Returns 0, or a negative errno with a line on stderr that names the place. */
int mw_settings_file(const struct mw_settings *settings, const char *path);

/* One paragraph per setting. */
void mw_settings_help(const struct mw_settings *settings, FILE *out);

#endif

#include "settings.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct mw_setting *find_argument(const struct mw_settings *settings,
                                              const char *argument, const char **value);
static const struct mw_setting *find(const struct mw_settings *settings, const char *name,
                                     size_t length);
static const struct mw_setting *find_letter(const struct mw_settings *settings, char letter);
static int set(const struct mw_settings *settings, const struct mw_setting *setting,
               const char *value, char *why, size_t why_bytes);
static int parse_number(const struct mw_setting *setting, const char *value, uint64_t *number,
                        char *why, size_t why_bytes);
static bool reads_as_hexadecimal(const char *value, uint64_t *number);
static int parse_choice(const char *choices, const char *value, size_t length, unsigned *place);
static int parse_set(const char *choices, const char *value, unsigned *bits);
static int set_lane(const struct mw_settings *settings, struct mw_lane_settings *lanes,
                    const char *text, char *why, size_t why_bytes);
static int add_lane_setting(const struct mw_settings *settings, struct mw_lane_settings *lanes,
                            const struct mw_lane_setting *setting, char *why, size_t why_bytes);
static bool copy_part(char *target, size_t target_bytes, const char *text, size_t bytes);

struct file_reader {
    const struct mw_settings *settings;
    const char *path;
    FILE *file;
    unsigned line;
    bool refused; /* and said so */
};

static void complain(struct file_reader *reader, const char *name, const char *why);
static char *read_line(char *line, int bytes, void *stream);
static int on_ini(void *user, const char *section, const char *name, const char *value);
static int on_ini_lane(struct file_reader *reader, const char *lane, const char *name,
                       const char *value);

int mw_settings_argv(const struct mw_settings *settings, int argc, char *const *argv)
{
    int at = 0;
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        const char *argument = argv[at++];
        if (strcmp(argument, "--") == 0)
            return at - 1;
        const char *value; /* what is written in the same argument: --name=value, -xvalue */
        const struct mw_setting *setting = find_argument(settings, argument, &value);
        char why[256] = "is no option; see --help";
        int error = -EINVAL;
        if (setting && setting->type == MW_SETTING_SWITCH && value) {
            snprintf(why, sizeof why, "takes no value");
        } else if (setting && setting->type != MW_SETTING_SWITCH && !value && at >= argc) {
            snprintf(why, sizeof why, "needs a value: %s", setting->argument);
        } else if (setting) {
            if (setting->type != MW_SETTING_SWITCH && !value)
                value = argv[at++];
            error = set(settings, setting, value, why, sizeof why);
        }
        if (error) {
            fprintf(stderr, "millwright %s: %s %s\n", settings->command, argument, why);
            return error;
        }
    }
    return at;
}

int mw_settings_file(const struct mw_settings *settings, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        int error = -errno;
        fprintf(stderr, "millwright %s: cannot read %s: %s\n", settings->command, path,
                strerror(-error));
        return error;
    }
    struct file_reader reader = {.settings = settings, .path = path, .file = file};
    int bad_line = ini_parse_stream(read_line, &reader, on_ini, &reader);
    fclose(file);
    if (bad_line > 0) {
        reader.line = (unsigned)bad_line;
        complain(&reader, "it", "is neither a [section] nor name = value");
    }
    return reader.refused ? -EINVAL : 0;
}

void mw_settings_help(const struct mw_settings *settings, FILE *out)
{
    for (size_t i = 0; i < settings->count; i++) {
        const struct mw_setting *setting = &settings->table[i];
        char left[64];
        int used = setting->letter ? snprintf(left, sizeof left, "-%c, ", setting->letter)
                                   : snprintf(left, sizeof left, "    ");
        snprintf(left + used, sizeof left - (size_t)used, "--%s %s", setting->name,
                 setting->argument ? setting->argument : "");
        fprintf(out, "  %-32s %s\n", left, setting->help);
    }
}

static const struct mw_setting *find_argument(const struct mw_settings *settings,
                                              const char *argument, const char **value)
{
    if (argument[1] != '-') {
        *value = argument[2] ? argument + 2 : NULL;
        return find_letter(settings, argument[1]);
    }
    const char *name = argument + 2;
    const char *equals = strchr(name, '=');
    *value = equals ? equals + 1 : NULL;
    return find(settings, name, equals ? (size_t)(equals - name) : strlen(name));
}

static const struct mw_setting *find(const struct mw_settings *settings, const char *name,
                                     size_t length)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strlen(settings->table[i].name) == length &&
            memcmp(settings->table[i].name, name, length) == 0)
            return &settings->table[i];
    return NULL;
}

static const struct mw_setting *find_letter(const struct mw_settings *settings, char letter)
{
    for (size_t i = 0; i < settings->count; i++)
        if (settings->table[i].letter && settings->table[i].letter == letter)
            return &settings->table[i];
    return NULL;
}

static int set(const struct mw_settings *settings, const struct mw_setting *setting,
               const char *value, char *why, size_t why_bytes)
{
    char *target = (char *)settings->values + setting->offset;
    unsigned small = 1;
    uint64_t large = 0;
    switch (setting->type) {
    case MW_SETTING_TEXT:
        if (strlen(value) >= MW_SETTING_TEXT_BYTES || value[0] == '\0') {
            snprintf(why, why_bytes, "must be 1 to %u bytes long", MW_SETTING_TEXT_BYTES - 1);
            return -EINVAL;
        }
        memcpy(target, value, strlen(value) + 1);
        return 0;
    case MW_SETTING_CHOICE:
        if (parse_choice(setting->choices, value, strlen(value), &small) != 0) {
            snprintf(why, why_bytes, "must be one of %s, not '%.64s'", setting->choices, value);
            return -EINVAL;
        }
        break;
    case MW_SETTING_SET:
        memcpy(&small, target, sizeof small);
        if (parse_set(setting->choices, value, &small) != 0) {
            snprintf(why, why_bytes, "must be some of %s with commas between, not '%.64s'",
                     setting->choices, value);
            return -EINVAL;
        }
        break;
    case MW_SETTING_NUMBER:
    case MW_SETTING_BYTES:
        if (parse_number(setting, value, &large, why, why_bytes) != 0)
            return -EINVAL;
        small = (unsigned)large;
        break;
    case MW_SETTING_LANE:
        return set_lane(settings, (struct mw_lane_settings *)target, value, why, why_bytes);
    case MW_SETTING_SWITCH:
        break;
    }
    if (setting->type == MW_SETTING_BYTES)
        memcpy(target, &large, sizeof large);
    else
        memcpy(target, &small, sizeof small);
    return 0;
}

static int parse_number(const struct mw_setting *setting, const char *value, uint64_t *number,
                        char *why, size_t why_bytes)
{
    static const char units[] = "KMG";
    char *end = (char *)value;
    errno = 0;
    if (value[0] >= '0' && value[0] <= '9')
        *number = strtoull(value, &end, 10);
    bool good = end != value && errno == 0;
    const char *unit = setting->type == MW_SETTING_BYTES && *end ? strchr(units, *end) : NULL;
    if (unit) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        good = good && *number <= UINT64_MAX >> shift;
        *number <<= shift;
        end++;
    }
    if (good && *end == '\0' && *number >= setting->min && *number <= setting->max)
        return 0;
    char hint[64] = "";
    if (reads_as_hexadecimal(value, number))
        snprintf(hint, sizeof hint, "; if you mean hexadecimal, write %llu",
                 (unsigned long long)*number);
    snprintf(why, why_bytes, "must be a decimal number from %llu to %llu%s, not '%.64s'%s",
             (unsigned long long)setting->min, (unsigned long long)setting->max,
             setting->type == MW_SETTING_BYTES ? " (K, M and G may follow)" : "", value, hint);
    return -EINVAL;
}

/* `1F4` or `0x1f4`: nobody can mean that as decimal (seed 003). */
static bool reads_as_hexadecimal(const char *value, uint64_t *number)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *first = strncasecmp(value, "0x", 2) == 0 ? value + 2 : value;
    size_t length = strspn(first, digits);
    if (length == 0 || length > 16 || first[length] != '\0')
        return false;
    *number = strtoull(first, NULL, 16);
    return first != value || strpbrk(value, "abcdefABCDEF") != NULL;
}

static int parse_choice(const char *choices, const char *value, size_t length, unsigned *place)
{
    *place = 0;
    for (const char *choice = choices; choice; (*place)++) {
        const char *bar = strchr(choice, '|');
        size_t choice_length = bar ? (size_t)(bar - choice) : strlen(choice);
        if (choice_length == length && memcmp(choice, value, length) == 0)
            return 0;
        choice = bar ? bar + 1 : NULL;
    }
    return -EINVAL;
}

static int parse_set(const char *choices, const char *value, unsigned *bits)
{
    for (;;) {
        size_t length = strcspn(value, ",");
        unsigned place;
        if (parse_choice(choices, value, length, &place) != 0)
            return -EINVAL;
        *bits |= 1u << place;
        if (value[length] == '\0')
            return 0;
        value += length + 1;
    }
}

/* NAME.KEY=VALUE */
static int set_lane(const struct mw_settings *settings, struct mw_lane_settings *lanes,
                    const char *text, char *why, size_t why_bytes)
{
    struct mw_lane_setting setting;
    const char *dot = strchr(text, '.');
    const char *equals = dot ? strchr(dot, '=') : NULL;
    if (!equals || !copy_part(setting.lane, sizeof setting.lane, text, (size_t)(dot - text)) ||
        !copy_part(setting.key, sizeof setting.key, dot + 1, (size_t)(equals - dot - 1)) ||
        !copy_part(setting.value, sizeof setting.value, equals + 1, strlen(equals + 1))) {
        snprintf(why, why_bytes, "must be NAME.KEY=VALUE, such as compile-cpu.cap=2, not '%.64s'",
                 text);
        return -EINVAL;
    }
    char what[208]; /* with NAME.KEY it fits into why[256] */
    int error = add_lane_setting(settings, lanes, &setting, what, sizeof what);
    if (error)
        snprintf(why, why_bytes, "%s.%s %s", setting.lane, setting.key, what);
    return error;
}

static int add_lane_setting(const struct mw_settings *settings, struct mw_lane_settings *lanes,
                            const struct mw_lane_setting *setting, char *why, size_t why_bytes)
{
    if (settings->lane_check &&
        settings->lane_check(setting->lane, setting->key, setting->value, why, why_bytes) != 0)
        return -EINVAL;
    if (lanes->count == MW_LANE_SETTINGS_MAX) {
        snprintf(why, why_bytes, "is one more than the %u options of lanes that may be given",
                 MW_LANE_SETTINGS_MAX);
        return -EINVAL;
    }
    lanes->list[lanes->count++] = *setting;
    return 0;
}

/* False when it does not fit: no name, key or value of a lane is as long. */
static bool copy_part(char *target, size_t target_bytes, const char *text, size_t bytes)
{
    if (bytes >= target_bytes)
        return false;
    memset(target, 0, target_bytes);
    memcpy(target, text, bytes);
    return true;
}

/* Says what is wrong with the line at hand, if it is the first that is wrong. */
static void complain(struct file_reader *reader, const char *name, const char *why)
{
    if (!reader->refused)
        fprintf(stderr, "millwright %s: %s: line %u: %s %s\n", reader->settings->command,
                reader->path, reader->line, name, why);
    reader->refused = true;
}

/* As fgets, but a line longer than the parser's buffer is refused: it would be read as two. */
static char *read_line(char *line, int bytes, void *stream)
{
    struct file_reader *reader = stream;
    if (!fgets(line, bytes, reader->file))
        return NULL;
    reader->line++;
    if (strchr(line, '\n') || getc(reader->file) == EOF)
        return line;
    complain(reader, "it", "is too long for a config file; use the command line");
    return NULL;
}

static int on_ini(void *user, const char *section, const char *name, const char *value)
{
    static const char lane[] = "lane ";
    struct file_reader *reader = user;
    if (strncmp(section, lane, strlen(lane)) == 0)
        return on_ini_lane(reader, section + strlen(lane), name, value);
    if (section[0] && strcmp(section, reader->settings->command) != 0)
        return 1; /* another command's section */
    const struct mw_setting *setting = find(reader->settings, name, strlen(name));
    char why[256] = "is no setting; see --help for those there are";
    if (!section[0])
        snprintf(why, sizeof why, "stands in no section; put it below [%s]",
                 reader->settings->command);
    else if (setting && setting->type == MW_SETTING_SWITCH)
        snprintf(why, sizeof why, "can be given on the command line only");
    else if (setting && setting->type == MW_SETTING_LANE)
        snprintf(why, sizeof why, "has sections of its own here: [lane NAME], and KEY = VALUE");
    else if (setting && set(reader->settings, setting, value, why, sizeof why) == 0)
        return 1;
    complain(reader, name, why);
    return 1; /* complain keeps count; 0 would be taken for a line that is no INI */
}

static int on_ini_lane(struct file_reader *reader, const char *lane, const char *name,
                       const char *value)
{
    const struct mw_settings *settings = reader->settings;
    const struct mw_setting *lanes = find(settings, "lane", strlen("lane"));
    struct mw_lane_setting setting;
    char why[256] = "is too long for an option of a lane; see docs/lanes.md for those there are";
    if (!lanes || lanes->type != MW_SETTING_LANE)
        return 1; /* for another command */
    if (copy_part(setting.lane, sizeof setting.lane, lane, strlen(lane)) &&
        copy_part(setting.key, sizeof setting.key, name, strlen(name)) &&
        copy_part(setting.value, sizeof setting.value, value, strlen(value)) &&
        add_lane_setting(settings,
                         (struct mw_lane_settings *)((char *)settings->values + lanes->offset),
                         &setting, why, sizeof why) == 0)
        return 1;
    complain(reader, name, why);
    return 1;
}

/* A cgroup's quota binds every cgroup below it, so each level from the process's own up to the
 * mount point counts. Which directory that is takes two files: /proc/self/cgroup gives the path
 * within the hierarchy, /proc/self/mountinfo gives where the hierarchy is mounted and which part
 * of it ("root"). In a container without a cgroup namespace, path and root share a prefix that
 * the mount does not show. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpus.h"
#include "cpus_internal.h"

#define AFFINITY_CPUS_MAX (1 << 20)
#define CGROUP_DEPTH_MAX  64 /* levels looked at, the innermost first */
#define MICRO             1000000

/* The fields of a mountinfo line that matter, as in proc(5); they point into the line. */
struct mount {
    char *root;
    char *point;
    char *type;
    char *options;
};

static unsigned affinity_count(void);
static bool mount_parse(char *line, struct mount *mount);
static char *unescape(char *text);
static char *own_path(const char *root, bool unified);
static const char *visible_part(const char *path, const char *mount_root);
static void mount_read(const char *root, const struct mount *mount, struct mw_cpus *cpus);
static void level_read(const char *directory, bool unified, struct mw_cpus *cpus);
static uint64_t level_throttled(const char *directory);
static bool read_numbers(const char *directory, const char *file, long long *first,
                         long long *second);
static bool list_has(const char *list, const char *word);
static unsigned round_up(double cpus);

unsigned mw_cpus_effective(void)
{
    return round_up(mw_cpus_fraction());
}

double mw_cpus_fraction(void)
{
    struct mw_cpus cpus;

    mw_cpus_read(&cpus);
    return cpus.fraction;
}

void mw_cpus_read(struct mw_cpus *cpus)
{
    mw_cpus_read_at("", affinity_count(), cpus);
}

unsigned mw_cpus_effective_at(const char *root, unsigned affinity)
{
    struct mw_cpus cpus;

    mw_cpus_read_at(root, affinity, &cpus);
    return round_up(cpus.fraction);
}

void mw_cpus_read_at(const char *root, unsigned affinity, struct mw_cpus *cpus)
{
    char path[PATH_MAX];
    char *line = NULL;
    size_t line_bytes = 0;
    struct mount mount;
    FILE *file;

    *cpus = (struct mw_cpus){.fraction = affinity > 0 ? affinity : 1};
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    file = fopen(path, "re");
    while (file != NULL && getline(&line, &line_bytes, file) > 0)
        if (mount_parse(line, &mount))
            mount_read(root, &mount, cpus);
    free(line);
    if (file != NULL)
        fclose(file);
}

static unsigned affinity_count(void)
{
    long online;

    /* the kernel refuses a set smaller than its own, whose size it does not tell */
    for (int cpus = CPU_SETSIZE; cpus <= AFFINITY_CPUS_MAX; cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        int count = 0;
        bool too_small = false;

        if (set == NULL)
            break;
        if (sched_getaffinity(0, bytes, set) == 0)
            count = CPU_COUNT_S(bytes, set);
        else
            too_small = errno == EINVAL;
        CPU_FREE(set);
        if (count > 0)
            return (unsigned)count;
        if (!too_small)
            break;
    }
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Cut `line` into fields. Returns false when it is no mount of a cgroup with a CPU quota. */
static bool mount_parse(char *line, struct mount *mount)
{
    enum { ROOT = 3, POINT = 4, HEAD_FIELDS = 5 };
    char *tail = strstr(line, " - ");
    char *fields[HEAD_FIELDS];
    char *rest = line;

    if (tail == NULL)
        return false;
    *tail = '\0';
    tail += strlen(" - ");
    for (int i = 0; i < HEAD_FIELDS; i++) {
        fields[i] = strsep(&rest, " ");
        if (fields[i] == NULL)
            return false;
    }
    mount->root = unescape(fields[ROOT]);
    mount->point = unescape(fields[POINT]);
    tail[strcspn(tail, "\n")] = '\0';
    mount->type = strsep(&tail, " ");
    strsep(&tail, " "); /* the source, of no use here */
    mount->options = tail != NULL ? tail : "";
    return strcmp(mount->type, "cgroup2") == 0 ||
           (strcmp(mount->type, "cgroup") == 0 && list_has(mount->options, "cpu"));
}

/* mountinfo writes blanks and backslashes as three octal digits. Works in place. */
static char *unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0';) {
        unsigned code;

        if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1 && strlen(from) >= 4) {
            *to++ = (char)code;
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return text;
}

/* Each level from the process's own cgroup up to the mount point. */
static void mount_read(const char *root, const struct mount *mount, struct mw_cpus *cpus)
{
    bool unified = strcmp(mount->type, "cgroup2") == 0;
    char *path = own_path(root, unified);
    char directory[PATH_MAX];
    size_t top; /* bytes of the mount point itself */
    int bytes;

    if (path == NULL)
        return;
    top = strlen(root) + strlen(mount->point);
    bytes = snprintf(directory, sizeof directory, "%s%s%s", root, mount->point,
                     visible_part(path, mount->root));
    free(path);
    if (bytes < 0 || (size_t)bytes >= sizeof directory)
        return;
    for (int level = 0; level < CGROUP_DEPTH_MAX; level++) {
        char *slash;

        level_read(directory, unified, cpus);
        slash = strrchr(directory, '/');
        if (slash == NULL || slash < directory + top)
            break;
        *slash = '\0';
    }
}

/* The process's path in the unified hierarchy, or in the one that has the `cpu` controller. To be
 * freed; NULL when there is none. */
static char *own_path(const char *root, bool unified)
{
    char file_name[PATH_MAX];
    char *line = NULL;
    char *path = NULL;
    size_t line_bytes = 0;
    FILE *file;

    snprintf(file_name, sizeof file_name, "%s/proc/self/cgroup", root);
    file = fopen(file_name, "re");
    while (file != NULL && path == NULL && getline(&line, &line_bytes, file) > 0) {
        char *rest = line;
        const char *number = strsep(&rest, ":");
        const char *controllers = strsep(&rest, ":");

        if (controllers == NULL || rest == NULL)
            continue;
        rest[strcspn(rest, "\n")] = '\0';
        if (unified ? strcmp(number, "0") == 0 && *controllers == '\0'
                    : list_has(controllers, "cpu"))
            path = strdup(rest);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return path;
}

/* What of `path` lies below the part of the hierarchy that is mounted: "" or "/a/b". */
static const char *visible_part(const char *path, const char *mount_root)
{
    size_t root_bytes = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);

    if (strstr(path, "/..") != NULL) /* outside of this cgroup namespace */
        return "";
    if (strncmp(path, mount_root, root_bytes) != 0)
        return "";
    path += root_bytes;
    if (*path != '/' || path[1] == '\0')
        return "";
    return path;
}

/* The least quota and the sum of the throttlings count: each level counts only its own. */
static void level_read(const char *directory, bool unified, struct mw_cpus *cpus)
{
    long long quota;
    long long period;
    long long micros; /* of a CPU; the kernel's periods are not longer than a second */
    bool known;

    cpus->throttled += level_throttled(directory);
    if (unified) {
        known = read_numbers(directory, "cpu.max", &quota, &period);
    } else {
        known = read_numbers(directory, "cpu.cfs_quota_us", &quota, NULL) &&
                read_numbers(directory, "cpu.cfs_period_us", &period, NULL);
    }
    if (!known || quota <= 0 || quota > LLONG_MAX / MICRO || period <= 0)
        return;
    micros = quota * MICRO / period;
    if (micros == 0)
        micros = 1;
    if ((double)micros / MICRO < cpus->fraction)
        cpus->fraction = (double)micros / MICRO;
}

/* The line "nr_throttled N" of cpu.stat, the same in v1 and v2; 0 without one. */
static uint64_t level_throttled(const char *directory)
{
    char text[PATH_MAX];
    unsigned long long times = 0;
    int bytes = snprintf(text, sizeof text, "%s/cpu.stat", directory);
    FILE *file;

    if (bytes < 0 || (size_t)bytes >= sizeof text)
        return 0;
    file = fopen(text, "re");
    if (file == NULL)
        return 0;
    while (fgets(text, sizeof text, file) != NULL && sscanf(text, "nr_throttled %llu", &times) != 1)
        ;
    fclose(file);
    return times;
}

/* Returns false when the file or one of the numbers is missing ("max" is no number). */
static bool read_numbers(const char *directory, const char *file_name, long long *first,
                         long long *second)
{
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/%s", directory, file_name);
    FILE *file;
    bool known;

    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return false;
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    known =
        fscanf(file, "%lld", first) == 1 && (second == NULL || fscanf(file, "%lld", second) == 1);
    fclose(file);
    return known;
}

/* Is `word` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *word)
{
    size_t word_bytes = strlen(word);

    while (*list != '\0') {
        size_t bytes = strcspn(list, ",");

        if (bytes == word_bytes && strncmp(list, word, bytes) == 0)
            return true;
        list += bytes + (list[bytes] == ',');
    }
    return false;
}

static unsigned round_up(double cpus)
{
    unsigned whole = (unsigned)cpus;

    return whole + (whole < cpus);
}

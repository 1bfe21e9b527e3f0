#include <millwright/packages.h>

#include <errno.h>
#include <libpkgconf/libpkgconf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <millwright/flags.h>
#include <millwright/mutex.h>

#define DEPTH_MAX 256 /* of packages that need others */

/* One call, on its way through libpkgconf. */
struct search {
    const struct mw_package_source *source;
    struct mw_package_flags *out;
    struct mw_refusal *refusal;
    char said[256]; /* the last of libpkgconf's complaints */
    int error;
};

static int name_check(const char *name, struct mw_refusal *refusal);
static int search_run(struct search *search, const char *const *names, size_t count);
static pkgconf_client_t *client_new(struct search *search);
static bool hear(const char *text, const pkgconf_client_t *client, const void *search);
static bool world_run(struct search *search, pkgconf_client_t *client, pkgconf_list_t *queue);
static bool collect(pkgconf_client_t *client, pkgconf_pkg_t *world, struct search *search);
static int fragment_take(struct search *search, const pkgconf_fragment_t *fragment);
static const char *directory_of(const pkgconf_fragment_t *fragment);
static int directory_take(struct search *search, const char *path);
static bool is_searched_anyway(const char *path);
static bool is_readable(const struct mw_toolchain *toolchain, const char *path);
static bool is_shortest(const char *path);
static int flag_take(struct search *search, const pkgconf_fragment_t *fragment);
static int flag_add(struct search *search, const char *name, const char *value);

/* libpkgconf keeps its default search path in static storage, made at first use. */
static struct mw_mutex library_lock = {PTHREAD_MUTEX_INITIALIZER};

int mw_packages_flags(struct mw_package_flags *out, const struct mw_package_source *source,
                      const char *const *names, size_t count, struct mw_refusal *refusal)
{
    struct search search = {.source = source, .out = out, .refusal = refusal};
    int error = 0;

    *out = (struct mw_package_flags){0};
    if (count == 0)
        return 0;
    if (count > MW_PACKAGES_MAX)
        return mw_refuse(refusal, MW_REFUSAL_SIZE, "packages",
                         "has %zu entries and at most %u are taken; name fewer", count,
                         MW_PACKAGES_MAX);
    for (size_t i = 0; error == 0 && i < count; i++)
        error = name_check(names[i], refusal);
    if (error < 0)
        return error;
    out->flags = calloc(MW_PACKAGE_FLAGS_MAX, sizeof out->flags[0]);
    if (!out->flags)
        return -ENOMEM;
    mw_mutex_lock(&library_lock);
    error = search_run(&search, names, count);
    mw_mutex_unlock(&library_lock);
    return error;
}

void mw_packages_flags_free(struct mw_package_flags *flags)
{
    if (!flags)
        return;
    for (size_t i = 0; i < flags->count; i++)
        free(flags->flags[i]);
    free(flags->flags);
    *flags = (struct mw_package_flags){0};
}

/* What ends in ".pc" libpkgconf would take for the path of a file. */
static int name_check(const char *name, struct mw_refusal *refusal)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t bytes = strlen(name);
    size_t plain = 0;

    while (name[plain] != '\0' && (strchr(first, name[plain]) || strchr("+-._", name[plain])))
        plain++;
    if (bytes == 0 || bytes > MW_PACKAGE_NAME_BYTES_MAX || plain < bytes || !strchr(first, name[0]))
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "packages",
                         "holds what is no package's name: '%.80s'; give a name as `pkg-config "
                         "--list-all` shows it, at most %u letters, digits and +-._",
                         name, MW_PACKAGE_NAME_BYTES_MAX);
    if (bytes > 3 && strcmp(name + bytes - 3, ".pc") == 0)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "packages",
                         "holds the name of a file: '%.80s'; leave out the .pc", name);
    return 0;
}

static int search_run(struct search *search, const char *const *names, size_t count)
{
    pkgconf_list_t queue = PKGCONF_LIST_INITIALIZER;
    pkgconf_client_t *client = client_new(search);
    bool found = true;

    if (!client)
        return -ENOMEM;
    for (size_t i = 0; found && i < count; i++) {
        pkgconf_pkg_t *package = pkgconf_pkg_find(client, names[i]);

        found = package != NULL;
        if (!found)
            search->error = mw_refuse(search->refusal, MW_REFUSAL_PACKAGE, names[i],
                                      "no package of this name is installed here; install its "
                                      "-dev package, or see `pkg-config --list-all` for the name");
        if (package)
            pkgconf_pkg_unref(client, package);
        pkgconf_queue_push(&queue, names[i]);
    }
    if (found && !world_run(search, client, &queue) && search->error == 0)
        search->error =
            mw_refuse(search->refusal, MW_REFUSAL_PACKAGE, "packages",
                      "cannot all be used: %.160s; install what is missing", search->said);
    pkgconf_queue_free(&queue);
    pkgconf_client_free(client);
    return search->error;
}

/* As pkgconf_queue_apply, which leaks all it has found where something is missing. False when that
 * is so, or a flag is refused. */
static bool world_run(struct search *search, pkgconf_client_t *client, pkgconf_list_t *queue)
{
    pkgconf_pkg_t world = {
        .id = "virtual:world",
        .realname = "virtual world package",
        .flags = PKGCONF_PKG_PROPF_STATIC | PKGCONF_PKG_PROPF_VIRTUAL,
    };
    bool good = pkgconf_queue_compile(client, &world, queue) &&
                pkgconf_pkg_verify_graph(client, &world, DEPTH_MAX) == PKGCONF_PKG_ERRF_OK &&
                collect(client, &world, search);

    pkgconf_pkg_free(client, &world);
    return good;
}

/* As `pkg-config --cflags`, but for the environment: what that says is not asked for. */
static pkgconf_client_t *client_new(struct search *search)
{
    pkgconf_cross_personality_t *system = pkgconf_cross_personality_default();
    pkgconf_client_t *client = pkgconf_client_new(hear, search, system);

    if (!client)
        return NULL;
    pkgconf_client_set_warn_handler(client, hear, search);
    pkgconf_client_set_flags(client, PKGCONF_PKG_PKGF_SEARCH_PRIVATE |
                                         PKGCONF_PKG_PKGF_NO_UNINSTALLED |
                                         PKGCONF_PKG_PKGF_SIMPLIFY_ERRORS);
    pkgconf_client_set_sysroot_dir(client, NULL);
    if (search->source->path)
        (void)pkgconf_path_split(search->source->path, &client->dir_list, true);
    pkgconf_path_copy_list(&client->dir_list, &system->dir_list);
    return client;
}

static bool hear(const char *text, const pkgconf_client_t *client, const void *search)
{
    struct search *hearing = (struct search *)search;

    (void)client;
    (void)snprintf(hearing->said, sizeof hearing->said, "%.*s", (int)strcspn(text, "\n"), text);
    return true;
}

static bool collect(pkgconf_client_t *client, pkgconf_pkg_t *world, struct search *search)
{
    pkgconf_list_t list = PKGCONF_LIST_INITIALIZER;
    pkgconf_node_t *node;

    if (pkgconf_pkg_cflags(client, world, &list, DEPTH_MAX) != PKGCONF_PKG_ERRF_OK) {
        pkgconf_fragment_free(&list);
        return false;
    }
    PKGCONF_FOREACH_LIST_ENTRY(list.head, node)
    {
        if (search->error == 0)
            search->error = fragment_take(search, node->data);
    }
    pkgconf_fragment_free(&list);
    return search->error == 0;
}

static int fragment_take(struct search *search, const pkgconf_fragment_t *fragment)
{
    const char *directory = fragment->data ? directory_of(fragment) : NULL;

    if (!fragment->data)
        return 0;
    return directory ? directory_take(search, directory) : flag_take(search, fragment);
}

/* The include directory that a fragment names, or NULL. */
static const char *directory_of(const pkgconf_fragment_t *fragment)
{
    static const char *const flags[] = {"-isystem", "-idirafter", "-iquote"};

    if (fragment->type == 'I')
        return fragment->data;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        size_t bytes = strlen(flags[i]);

        if (fragment->type == 0 && strncmp(fragment->data, flags[i], bytes) == 0)
            return fragment->data + bytes + strspn(fragment->data + bytes, " =");
    }
    return NULL;
}

/* One that is not there is left out, as a compiler does; when it comes, the flags are others, and
 * so is the key. */
static int directory_take(struct search *search, const char *path)
{
    char *real = realpath(path, NULL);
    int error = real ? 0 : errno;

    if (path[0] == '/' && !is_shortest(path) && real)
        path = real;
    if (path[0] != '/')
        error = mw_refuse(search->refusal, MW_REFUSAL_FLAG, path,
                          "is a package's include directory that is not absolute; mend its .pc "
                          "file");
    else if (error == ENOENT || error == ENOTDIR || (real && is_searched_anyway(real)))
        error = 0;
    else if (error == ENOMEM)
        error = -ENOMEM;
    else if (!real || !is_readable(search->source->toolchain, path) ||
             !is_readable(search->source->toolchain, real))
        error = mw_refuse(search->refusal, MW_REFUSAL_FLAG, path,
                          "is a package's include directory that compiles may not read; install "
                          "its headers below /usr/include or /usr/local/include, and restart the "
                          "service when they are newer than it");
    else
        error = flag_add(search, "-isystem", path);
    free(real);
    return error;
}

/* To name these once more would only change the order of the search. */
static bool is_searched_anyway(const char *path)
{
    static const char *const paths[] = {"/usr/include", "/usr/local/include"};
    const char *multiarch = "/usr/include/";
    size_t bytes = strlen(multiarch);

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (strcmp(path, paths[i]) == 0)
            return true;
    }
    return strncmp(path, multiarch, bytes) == 0 && !strchr(path + bytes, '/') &&
           strstr(path + bytes, "-linux-gnu");
}

static bool is_readable(const struct mw_toolchain *toolchain, const char *path)
{
    size_t count;
    const char *const *dirs = mw_toolchain_dirs(toolchain, &count);

    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(dirs[i]);

        if (strncmp(path, dirs[i], bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '/'))
            return true;
    }
    return false;
}

/* Whether a path has no empty, "." or ".." part: what a compile looks at is the text of a path. */
static bool is_shortest(const char *path)
{
    while (*path == '/') {
        size_t bytes = strcspn(++path, "/");

        if (bytes == 0 || (bytes == 1 && path[0] == '.') ||
            (bytes == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += bytes;
    }
    return true;
}

/* Another flag than that of a directory: the policy for everybody's flags has the say. libpkgconf
 * hands over some with their value behind a space. */
static int flag_take(struct search *search, const pkgconf_fragment_t *fragment)
{
    const char letter[] = {'-', fragment->type, '\0'};
    size_t bytes = strlen(fragment->data) + sizeof letter;
    char *text = malloc(bytes), *canonical = NULL;
    const char *args[] = {text, NULL};
    int used;

    if (!text)
        return -ENOMEM;
    (void)snprintf(text, bytes, "%s%s", fragment->type ? letter : "", fragment->data);
    if (!fragment->type && text[0] == '-' && strchr(text, ' ')) {
        args[1] = strchr(text, ' ') + 1;
        text[strcspn(text, " ")] = '\0';
    }
    used = mw_flag_check(args, args[1] ? 2 : 1, false, &canonical, search->refusal);
    if (used > 0 && canonical[0] != '\0')
        used = flag_add(search, canonical, "");
    free(canonical);
    free(text);
    return used < 0 ? used : 0;
}

/* Add a flag that is not there yet. */
static int flag_add(struct search *search, const char *name, const char *value)
{
    struct mw_package_flags *out = search->out;
    size_t bytes = strlen(name) + strlen(value) + 1;
    char *flag = malloc(bytes);
    bool there = false;

    if (!flag)
        return -ENOMEM;
    (void)snprintf(flag, bytes, "%s%s", name, value);
    for (size_t i = 0; i < out->count && !there; i++)
        there = strcmp(out->flags[i], flag) == 0;
    if (there) {
        free(flag);
        return 0;
    }
    if (out->count == MW_PACKAGE_FLAGS_MAX || bytes > MW_REQUEST_ARG_BYTES_MAX) {
        free(flag);
        return mw_refuse(search->refusal, MW_REFUSAL_SIZE, "packages",
                         "need more than %u flags, or one of more than %u bytes; name fewer",
                         MW_PACKAGE_FLAGS_MAX, MW_REQUEST_ARG_BYTES_MAX);
    }
    out->flags[out->count++] = flag;
    return 0;
}

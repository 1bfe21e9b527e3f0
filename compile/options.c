#include <millwright/options.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/flags.h>

struct mw_options {
    enum mw_emit_kind emit;
    unsigned extras;
    char *fingerprint;
    size_t arg_count;
    const char **args; /* owned, each malloc'ed; NULL-terminated */
};

static int args_collect(struct mw_options *options, const char *const *args, size_t count,
                        bool read_disk, struct mw_refusal *refusal);
static int language_settle(struct mw_options *options, const struct mw_compile_request *request,
                           const char **language, struct mw_refusal *refusal);
static int language_from_flags(struct mw_options *options, const char **wanted,
                               struct mw_refusal *refusal);
static const char *language_of_file(const char *name);
static int extras_check(const struct mw_options *options, struct mw_refusal *refusal);
static bool sets_level(const char *flag);
static int fingerprint_make(struct mw_options *options, const char *language);

/* The endings that the compiler driver knows, and what it takes such a file for: the names are
 * those of its -x flag. */
static const struct {
    const char *ending, *language;
} endings[] = {
    {".c", "c"},     {".i", "cpp-output"}, {".cc", "c++"},  {".cp", "c++"},
    {".cpp", "c++"}, {".cxx", "c++"},      {".c++", "c++"}, {".CPP", "c++"},
    {".C", "c++"},   {".CXX", "c++"},      {".CC", "c++"},  {".ii", "c++-cpp-output"},
};

static const char *const language_names[] = {
    [MW_LANGUAGE_AUTO] = NULL, [MW_LANGUAGE_C] = "c", [MW_LANGUAGE_CXX] = "c++"};

int mw_options_new(struct mw_options **out, const struct mw_compile_request *request,
                   struct mw_refusal *refusal)
{
    struct mw_options *options = calloc(1, sizeof(*options));
    const char *language = NULL;
    int error;

    if (!options)
        return -ENOMEM;
    options->emit = request->emit;
    options->extras = request->extras;
    /* One more for an -x in front, one for the NULL. */
    options->args =
        calloc(request->package_arg_count + request->arg_count + 2, sizeof(*options->args));
    if (!options->args) {
        error = -ENOMEM;
        goto out;
    }
    /* Packages may have include directories on the disk, and no other right. */
    if ((error = args_collect(options, request->package_args, request->package_arg_count, true,
                              refusal)) < 0 ||
        (error = args_collect(options, request->args, request->arg_count, request->read_disk,
                              refusal)) < 0 ||
        (error = language_settle(options, request, &language, refusal)) < 0 ||
        (error = extras_check(options, refusal)) < 0)
        goto out;
    error = fingerprint_make(options, language);
out:
    if (error < 0) {
        mw_options_free(options);
        return error;
    }
    *out = options;
    return 0;
}

void mw_options_free(struct mw_options *options)
{
    if (!options)
        return;
    for (size_t i = 0; i < options->arg_count; i++)
        free((char *)options->args[i]);
    free(options->args);
    free(options->fingerprint);
    free(options);
}

const char *mw_options_fingerprint(const struct mw_options *options)
{
    return options->fingerprint;
}

const char *const *mw_options_args(const struct mw_options *options, size_t *count)
{
    if (count)
        *count = options->arg_count;
    return options->args;
}

enum mw_emit_kind mw_options_emit(const struct mw_options *options)
{
    return options->emit;
}

unsigned mw_options_extras(const struct mw_options *options)
{
    return options->extras;
}

static int args_collect(struct mw_options *options, const char *const *args, size_t count,
                        bool read_disk, struct mw_refusal *refusal)
{
    size_t i = 0;

    while (i < count) {
        char *canonical = NULL;
        int used = mw_flag_check(args + i, count - i, read_disk, &canonical, refusal);

        if (used < 0)
            return used;
        if (canonical[0] == '\0')
            free(canonical);
        else
            options->args[options->arg_count++] = canonical;
        i += (size_t)used;
    }
    return 0;
}

/* Find the language, and put an -x in front where the main file's ending says another. */
static int language_settle(struct mw_options *options, const struct mw_compile_request *request,
                           const char **language, struct mw_refusal *refusal)
{
    const char *of_file = language_of_file(request->main);
    const char *wanted = language_names[request->language];
    char *arg;
    int error = language_from_flags(options, &wanted, refusal);

    if (error < 0)
        return error;
    if (!wanted && !of_file)
        return mw_refuse(refusal, MW_REFUSAL_FIELD, "language",
                         "is not given and the ending of '%.80s' does not tell it; give \"c\" or "
                         "\"c++\"",
                         request->main);
    *language = wanted ? wanted : of_file;
    if (of_file && strcmp(*language, of_file) == 0)
        return 0;
    arg = malloc(strlen(*language) + sizeof "-x");
    if (!arg)
        return -ENOMEM;
    (void)sprintf(arg, "-x%s", *language);
    memmove(options->args + 1, options->args, options->arg_count * sizeof(*options->args));
    options->args[0] = arg;
    options->arg_count++;
    return 0;
}

/* Take the -x flags out of the arguments. They must agree with `*wanted` and set it when it is
 * NULL: of two voices on one matter, neither can be the right one to follow. */
static int language_from_flags(struct mw_options *options, const char **wanted,
                               struct mw_refusal *refusal)
{
    size_t kept = 0;
    int error = 0;

    for (size_t i = 0; i < options->arg_count; i++) {
        const char *arg = options->args[i];
        enum mw_language language;

        if (strncmp(arg, "-x", 2) != 0 || mw_language_parse(arg + 2, &language) < 0) {
            options->args[kept++] = arg;
            continue;
        }
        if (error == 0 && *wanted && strcmp(*wanted, language_names[language]) != 0)
            error = mw_refuse(refusal, MW_REFUSAL_FLAG, arg,
                              "disagrees with the language given before, %s; name the language "
                              "once",
                              *wanted);
        *wanted = language_names[language];
        free((char *)arg);
    }
    options->arg_count = kept;
    options->args[kept] = NULL;
    return error;
}

static const char *language_of_file(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strrchr(slash ? slash : name, '.');

    for (size_t i = 0; dot && i < sizeof endings / sizeof endings[0]; i++) {
        if (strcmp(dot, endings[i].ending) == 0)
            return endings[i].language;
    }
    return NULL;
}

/* Lines of assembly are told by its debug lines. To add those silently would make other bytes than
 * those asked for. */
static int extras_check(const struct mw_options *options, struct mw_refusal *refusal)
{
    bool lines = false;

    for (size_t i = 0; i < options->arg_count; i++) {
        if (strncmp(options->args[i], "-g", 2) == 0 && sets_level(options->args[i]))
            lines = strcmp(options->args[i], "-g0") != 0 && strcmp(options->args[i], "-ggdb0") != 0;
    }
    if (lines || !(options->extras & 1u << MW_EXTRA_LINE_MAP))
        return 0;
    return mw_refuse(refusal, MW_REFUSAL_FIELD, "also",
                     "holds line-map, which is made of debug lines; add -gline-tables-only or -g "
                     "to \"args\"");
}

/* Whether a -g flag says how much debug information there is. */
static bool sets_level(const char *flag)
{
    static const char *const others[] = {"-gcolumn-info", "-gno-column-info", "-gstrict-dwarf",
                                         "-gno-strict-dwarf"};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(flag, others[i]) == 0)
            return false;
    }
    return true;
}

static int fingerprint_make(struct mw_options *options, const char *language)
{
    const char *target = "default";
    size_t bytes = 0;
    FILE *text;

    for (size_t i = 0; i < options->arg_count; i++) {
        if (strncmp(options->args[i], "--target=", strlen("--target=")) == 0)
            target = options->args[i] + strlen("--target="); /* the last one counts */
    }
    text = open_memstream(&options->fingerprint, &bytes);
    if (!text)
        return -ENOMEM;
    (void)fprintf(text, "language %s\nemit %s\ntarget %s\n", language,
                  mw_emit_kind_name(options->emit), target);
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        if (options->extras & 1u << i)
            (void)fprintf(text, "also %s\n", mw_extra_name((enum mw_extra)i));
    for (size_t i = 0; i < options->arg_count; i++)
        (void)fprintf(text, "arg %s\n", options->args[i]);
    if (ferror(text)) {
        (void)fclose(text);
        return -ENOMEM;
    }
    return fclose(text) == 0 ? 0 : -ENOMEM;
}

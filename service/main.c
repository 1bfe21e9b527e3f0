/* millwright - the program that people call. It is small on purpose: loading LLVM costs a process
 * about 40 ms, so the commands that compile live in millwright-engine, which this one becomes. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static int run_here(const struct mw_command *command, int argc, char **argv);
static bool asks_for_help(int argc, char **argv);
static int become_engine(char **argv);

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    const struct mw_command *command = mw_command_find(name);
    if (!command) {
        fprintf(stderr, "millwright: there is no command '%.64s'\n", name);
        mw_help_overview(stderr);
        return MW_EXIT_USAGE;
    }
    if (!command->in_engine)
        return run_here(command, argc, argv);
    if (asks_for_help(argc - 2, argv + 2)) {
        mw_help_command(command, stdout);
        return MW_EXIT_OK;
    }
    return become_engine(argv);
}

static int run_here(const struct mw_command *command, int argc, char **argv)
{
    if (strcmp(command->name, "version") == 0) {
        printf("millwright %s (LLVM %s)\n", MW_VERSION, MW_LLVM_VERSION);
        return MW_EXIT_OK;
    }
    if (argc <= 2) {
        mw_help_overview(stdout);
        return MW_EXIT_OK;
    }
    const struct mw_command *about = mw_command_find(argv[2]);
    if (!about) {
        fprintf(stderr, "millwright: there is no command '%.64s'\n", argv[2]);
        return MW_EXIT_USAGE;
    }
    mw_help_command(about, stdout);
    return MW_EXIT_OK;
}

/* Before `--`; what follows it is for the compiler. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* The engine lies beside this program in the build folder, in libexec once installed. */
static int become_engine(char **argv)
{
    static const char *const places[] = {"%s/millwright-engine",
                                         "%s/../libexec/millwright/millwright-engine"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        fprintf(stderr, "millwright: cannot find my own path: %s\n", strerror(errno));
        return MW_EXIT_FAILED;
    }
    self[length] = '\0';
    const char *directory = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[PATH_MAX + 64];
        snprintf(path, sizeof path, places[i], directory);
        execv(path, argv);
        if (errno != ENOENT) {
            fprintf(stderr, "millwright: cannot run %s: %s\n", path, strerror(errno));
            return MW_EXIT_FAILED;
        }
    }
    fprintf(stderr, "millwright: millwright-engine is not beside %s; is it installed whole?\n",
            directory);
    return MW_EXIT_FAILED;
}

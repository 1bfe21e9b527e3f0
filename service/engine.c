/* millwright-engine - the program behind the commands of `millwright` that compile. */
#include "engine.h"

#include <millwright/emit.h>
#include <millwright/error.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} engine_commands[] = {
    {"serve", mw_command_serve},
    {"compile", mw_command_compile},
    {"probe", mw_command_probe},
};

int main(int argc, char **argv)
{
    int error = mw_compile_init(); /* before any thread exists */
    if (error) {
        fprintf(stderr, "millwright: %s\n", mw_strerror(error));
        return MW_EXIT_FAILED;
    }
    for (size_t i = 0; argc > 1 && i < sizeof engine_commands / sizeof engine_commands[0]; i++)
        if (strcmp(argv[1], engine_commands[i].name) == 0)
            return engine_commands[i].run(argc - 2, argv + 2);
    fputs("millwright-engine: run `millwright` instead; it calls this program\n", stderr);
    return MW_EXIT_USAGE;
}

/* engine.h - the commands that millwright-engine runs.
 *
 * Each takes the arguments after its name and returns an exit status (commands.h). */
#ifndef MW_SERVICE_ENGINE_H
#define MW_SERVICE_ENGINE_H

int mw_command_serve(int argc, char **argv);
int mw_command_compile(int argc, char **argv);
int mw_command_probe(int argc, char **argv);

#endif

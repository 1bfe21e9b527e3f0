#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan.h"

int peer_compile(const struct subject *subject, const char *folder, const char *object)
{
    const char *argv[] = {COMPILER, "-c", subject->file, subject->flag, "-o", object, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    int error;

    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addchdir_np(&actions, folder) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0)
        return -ENOMEM; /* its warnings are many */
    error = posix_spawnp(&pid, COMPILER, &actions, NULL, (char **)argv, environ);
    if (error == 0)
        status = process_wait(pid);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        fprintf(stderr, "compile: cannot run '%s': %s: install it\n", COMPILER, strerror(error));
    else if (status != 0)
        fprintf(stderr, "compile: %s ended with %d\n", COMPILER, status);
    return error != 0 ? -error : status != 0 ? -EBADMSG : 0;
}

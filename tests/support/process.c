#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void become(const char *directory, const char *const *argv, const char *input,
                   const char *output);
static int redirect(const char *path, int flags, int target);

pid_t process_start(const char *directory, const char *const *argv, const char *input,
                    const char *output)
{
    pid_t pid = fork();

    if (pid < 0)
        fail_msg("cannot fork for '%s': %s", argv[0], strerror(errno));
    if (pid == 0)
        become(directory, argv, input, output);
    return pid;
}

int process_wait(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail_msg("cannot wait for process %d: %s", (int)pid, strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int process_run(const char *directory, const char *const *argv, const char *input,
                const char *output)
{
    return process_wait(process_start(directory, argv, input, output));
}

struct bytes file_read(const char *path)
{
    struct bytes bytes = {0};
    FILE *file = fopen(path, "rb");

    if (file == NULL)
        fail_msg("cannot open '%s': %s", path, strerror(errno));
    if (fseek(file, 0, SEEK_END) != 0)
        fail_msg("cannot seek in '%s': %s", path, strerror(errno));
    bytes.count = (size_t)ftell(file);
    if (fseek(file, 0, SEEK_SET) != 0)
        fail_msg("cannot seek in '%s': %s", path, strerror(errno));
    bytes.data = malloc(bytes.count + 1);
    if (bytes.data == NULL || fread(bytes.data, 1, bytes.count, file) != bytes.count)
        fail_msg("cannot read the %zu bytes of '%s'", bytes.count, path);
    bytes.data[bytes.count] = '\0';
    fclose(file);
    return bytes;
}

void file_write(const char *path, const void *data, size_t count)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        fail_msg("cannot create '%s': %s", path, strerror(errno));
    if (fwrite(data, 1, count, file) != count || fclose(file) != 0)
        fail_msg("cannot write %zu bytes to '%s': %s", count, path, strerror(errno));
}

char *path_join(const char *folder, const char *name)
{
    char *path;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        fail_msg("no memory for the path of '%s'", name);
    return path;
}

static void become(const char *directory, const char *const *argv, const char *input,
                   const char *output)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && chdir(directory) == 0 &&
        redirect(input, O_RDONLY, STDIN_FILENO) == 0 &&
        redirect(output, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO) == 0 &&
        (output == NULL || dup2(STDOUT_FILENO, STDERR_FILENO) >= 0))
        execvp(argv[0], (char *const *)argv);
    fprintf(stderr, "cannot run '%s' in '%s': %s\n", argv[0], directory, strerror(errno));
    _exit(127);
}

static int redirect(const char *path, int flags, int target)
{
    int fd;

    if (path == NULL)
        return 0;
    fd = open(path, flags | O_CLOEXEC, 0666);
    if (fd < 0 || dup2(fd, target) < 0)
        return -errno;
    close(fd);
    return 0;
}

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "error.h"

/* What Millwright says of the errors it returns on purpose. All else is the system's own text. */
static const struct {
    int code;
    const char *text;
} texts[] = {
    {0, "no error"},
    {E2BIG, "too many arguments or too long: send less"},
    {EACCES, "permission denied: check the owner and the mode"},
    {EADDRINUSE, "the address is in use: stop its owner or choose another"},
    {EAGAIN, "no room right now: try again later"},
    {EBADMSG, "what was read is damaged: remove it and make it anew"},
    {EBUSY, "queued or running already: wait until it is done"},
    {ECANCELED, "cancelled before it started"},
    {ECONNREFUSED, "nobody listens there: start the server or check the address"},
    {EDEADLK, "it would wait for itself: do not wait for a lane or pool from inside it"},
    {EEXIST, "it exists already"},
    {EFBIG, "the file is too large"},
    {EINVAL, "an argument is missing or out of range"},
    {EIO, "reading or writing failed: check the disk"},
    {EISDIR, "it is a directory: name a file"},
    {EMFILE, "too many open files: raise the limit (ulimit -n)"},
    {EMSGSIZE, "larger than its limit allows"},
    {ENAMETOOLONG, "the name is too long"},
    {ENOENT, "there is no such thing"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no space left: free some or choose another place"},
    {ENOSYS, "this system cannot do it"},
    {ENOTDIR, "a part of the path is not a directory"},
    {ENOTSUP, "not supported"},
    {EOWNERDEAD, "it belongs to the process before the fork: make a new one in the child"},
    {EPERM, "not permitted"},
    {EPIPE, "the other side has gone"},
    {EPROTO, "the other side broke the protocol"},
    {ESHUTDOWN, "shutting down: no new work is taken"},
    {ETIMEDOUT, "its time ran out"},
};

const char *mw_strerror(int error)
{
    const char *text = NULL;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (error == -texts[i].code)
            return texts[i].text;
    if (error < 0 && error > -4096) /* the kernel's own bound on error numbers */
        text = strerrordesc_np(-error);
    return text != NULL ? text : "unknown error";
}

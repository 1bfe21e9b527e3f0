/* server.h - a real `millwright serve` on a Unix socket, and requests to it; what fails ends the
 * cmocka test.
 *
 * Threads: one. */
#ifndef CORPUS_SERVER_H
#define CORPUS_SERVER_H

#include <sys/types.h>

#include <curl/curl.h>

#include "process.h"

struct server {
    pid_t pid;
    CURL *curl;
    char *socket;
    char *log; /* file with what the server printed */
};

/* Start `program` with its socket, data and log in `folder`; returns once it answers. */
void server_start(struct server *server, const char *program, const char *folder);

/* Ask it to end. Returns its exit status, or 0 if it never ran. */
int server_stop(struct server *server);

/* Send a GET, or with a `body` a POST of JSON. Returns the HTTP status; the caller frees the
 * answer's bytes. */
long server_request(struct server *server, const char *path, const char *body,
                    struct bytes *answer);

#endif

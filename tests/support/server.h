/* server.h - a real `millwright serve` on a Unix socket, and requests to it; what fails ends the
 * cmocka test.
 *
 * Threads: a client is one thread's; the server's struct is read by all. */
#ifndef MILLWRIGHT_TESTS_SERVER_H
#define MILLWRIGHT_TESTS_SERVER_H

#include <curl/curl.h>
#include <sys/types.h>

#include "process.h"

struct server {
    pid_t pid;
    char *socket;
    char *log; /* file with what the server printed */
};

/* One kept-alive connection, as a user's client would have. */
struct client {
    const struct server *server;
    CURL *curl;
};

struct request {
    const char *method; /* NULL: GET, or POST when there is a body */
    const char *path;
    const char *body;   /* NULL: none */
    size_t body_bytes;  /* 0: strlen(body) */
    const char *header; /* one more header line, or NULL */
};

struct reply {
    long status;
    struct bytes body;    /* data is never NULL */
    struct bytes headers; /* as received, each line with its CRLF */
};

/* Start `program` with its socket, data and log in `folder`, and with `options` more (NULL, or up
 * to a NULL); returns once it answers. */
void server_start(struct server *server, const char *program, const char *folder,
                  const char *const *options);

/* Ask it to end. Returns its exit status, or 0 if it never ran. */
int server_stop(struct server *server);

/* End it with SIGKILL. */
void server_kill(struct server *server);

void client_open(struct client *client, const struct server *server);
void client_close(struct client *client);

/* Send and fill `reply`, for reply_free. Fails the test when there is no answer at all. */
void client_send(struct client *client, const struct request *request, struct reply *reply);
void reply_free(struct reply *reply);

/* The value of a header of the reply in storage that the next call reuses, or NULL. */
const char *reply_header(const struct reply *reply, const char *name);

#endif

/* http.h - libmicrohttpd on the uv loop: connections, bodies, answers that come later.
 *
 * The daemon's epoll descriptor is watched by a uv_poll_t and its time-out by a uv_timer_t, so
 * HTTP needs no thread of its own. A handler may answer at once or later; until then the
 * connection is suspended, and its socket is watched for the client's hang-up, which
 * libmicrohttpd does not see while suspended.
 *
 * Ownership:  a request lives from its first header until its answer is sent or its client gone;
 *             a handler may use it until it answers or its gone() is called, not after.
 * Threads:    the loop's thread, for everything.
 * Bounds:     connections_max connections; body_bytes_max for one body, body_bytes_total_max for
 *             all that are held; read_ms from the end of one request to the last byte of the next
 *             (a byte drip cannot hold a connection); 60 s while nothing of an answer is taken. */
#ifndef MW_SERVICE_HTTP_H
#define MW_SERVICE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "problem.h"

#define MW_HTTP_CONNECTIONS_MAX_DEFAULT      1024u
#define MW_HTTP_BODY_BYTES_MAX_DEFAULT       (16u << 20)
#define MW_HTTP_BODY_BYTES_TOTAL_MAX_DEFAULT (256u << 20)
#define MW_HTTP_READ_MS_DEFAULT              60000u
/* A body over the bound is still read up to this many bytes, so that its sender sees the 413. */
#define MW_HTTP_DISCARD_BYTES_MAX (256u << 20)

struct mw_http;
struct mw_http_request;

struct mw_route {
    const char *method;
    const char *path; /* ends in '/': everything below it, the rest is `tail` */
    void (*handle)(void *user, struct mw_http_request *request, const char *tail);
    bool of_operator; /* changes the service: only for who comes from this machine, unforwarded */
};

struct mw_http_options {
    uv_loop_t *loop;
    int listen_fd; /* listening and not blocking; taken over */
    const struct mw_route *routes;
    size_t route_count;
    void *user;
    bool check_host;         /* the listener is TCP: Host must be a name of this service: */
    bool remote;             /* addresses are, not loopback names only */
    const char *public_name; /* and so is this one; "" or NULL: none */
    unsigned connections_max;
    size_t body_bytes_max;
    size_t body_bytes_total_max;
    unsigned read_ms;
};

struct mw_http_header {
    const char *name, *value;
};

#define MW_HTTP_HEADERS_MAX 4u

struct mw_http_reply {
    unsigned status;
    const char *content_type; /* NULL: none */
    char *body;               /* malloc'ed, taken over; may be NULL */
    size_t body_bytes;
    struct mw_http_header headers[MW_HTTP_HEADERS_MAX]; /* up to the first NULL name; copied */
};

/* Start serving. Returns 0, -ENOMEM or -EIO. */
int mw_http_new(struct mw_http **out, const struct mw_http_options *options);

/* Accept nobody any more; what is connected goes on. */
void mw_http_quiesce(struct mw_http *http);

/* Requests between their last byte and the end of their answer. */
unsigned mw_http_requests(const struct mw_http *http);

/* Close every connection and the daemon. No request may wait for its answer any more. The storage
 * is freed when the loop has turned. NULL is fine. */
void mw_http_free(struct mw_http *http);

/* The body, for the caller to free(); it can be taken once. It counts to body_bytes_total_max until
 * the request ends, since what is made of it is as large. */
char *mw_http_request_take_body(struct mw_http_request *request, size_t *bytes);
const char *mw_http_request_query(const struct mw_http_request *request, const char *name);
const char *mw_http_request_header(const struct mw_http_request *request, const char *name);

/* Call gone(user) when the client hangs up before the answer; then no answer is due any more. */
void mw_http_request_on_gone(struct mw_http_request *request, void (*gone)(void *user), void *user);

/* Answer, now or later; once. */
void mw_http_reply(struct mw_http_request *request, const struct mw_http_reply *reply);
void mw_http_reply_problem(struct mw_http_request *request, const struct mw_problem *problem);

#endif

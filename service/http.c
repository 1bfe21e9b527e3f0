#include "http.h"

#include <errno.h>
#include <microhttpd.h>
#include <millwright/clock.h>
#include <millwright/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listener.h"
#include "log.h"

#define SWEEP_MS                1000u
#define CONNECTION_MEMORY_BYTES ((size_t)128 << 10)
#define STALL_S                 60u /* a client that takes none of its answer is cut off then */
#define STATUS_CLIENT_GONE      499 /* never seen by anyone; nginx's number for it */

struct connection {
    struct connection *prev, *next;
    int fd;
    uint64_t reading_since_ns; /* 0 while a request is being answered */
};

struct mw_http {
    struct mw_http_options options;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;   /* the daemon's epoll descriptor */
    uv_timer_t timer; /* when the daemon wants to run next */
    uv_timer_t sweep; /* closes connections that take too long to send a request */
    unsigned handles; /* of the three, still open */
    struct connection *connections;
    unsigned requests;
    size_t body_bytes_total;
};

struct mw_http_request {
    struct mw_http *http;
    struct MHD_Connection *connection;
    const struct mw_route *route;
    const char *tail;
    bool dispatched; /* the handler was called */
    bool suspended;
    bool replied;
    struct MHD_Response *response; /* made, not yet queued */
    unsigned status;
    char *body;
    size_t body_bytes, body_capacity;
    size_t discarded;
    struct mw_problem refused; /* kind is not NONE: the answer when the body has been read */
    char allow[64];            /* for the Allow header of a 405 */
    void (*gone)(void *user);
    void *gone_user;
    struct hangup *hangup;
};

/* Watches a suspended connection's socket. Freed by its own close callback, since a request may
 * be gone by then. */
struct hangup {
    uv_poll_t poll;
    struct mw_http_request *request;
};

static struct MHD_Daemon *start_daemon(struct mw_http *http);
static int open_handles(struct mw_http *http);
static void pump(struct mw_http *http);
static void pump_soon(struct mw_http *http);
static void on_pollable(uv_poll_t *poll, int status, int events);
static void on_timer(uv_timer_t *timer);
static void on_sweep(uv_timer_t *timer);
static void on_handle_closed(uv_handle_t *handle);
static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code);
static enum MHD_Result on_access(void *user, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_bytes, void **request);
static void on_completed(void *user, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code);
static void on_daemon_log(void *user, const char *format, va_list arguments);

static struct mw_http_request *request_new(struct mw_http *http, struct MHD_Connection *connection,
                                           const char *method, const char *url);
static void route(struct mw_http_request *request, const char *method, const char *url);
static void refuse_stranger(struct mw_http_request *request);
static const char *stranger_of(const struct mw_http_request *request);
static bool is_named(const struct mw_http_options *options, const char *authority);
static void refuse_foreign_page(struct mw_http_request *request);
static bool take_upload(struct mw_http_request *request, const char *data, size_t bytes);
static void refuse_size(struct mw_http_request *request);
static enum MHD_Result dispatch(struct mw_http_request *request);
static enum MHD_Result queue_response(struct mw_http_request *request);
static struct connection *connection_of(struct mw_http_request *request);
static int watch_hangup(struct mw_http_request *request);
static void unwatch_hangup(struct mw_http_request *request);
static void on_hangup(uv_poll_t *poll, int status, int events);
static void on_hangup_closed(uv_handle_t *handle);

int mw_http_new(struct mw_http **out, const struct mw_http_options *options)
{
    struct mw_http *http = calloc(1, sizeof *http);
    if (!http)
        return -ENOMEM;
    http->options = *options;
    http->daemon = start_daemon(http);
    if (!http->daemon) {
        free(http);
        return -EIO;
    }
    int error = open_handles(http);
    if (error) {
        MHD_stop_daemon(http->daemon);
        free(http);
        return error;
    }
    pump(http);
    *out = http;
    return 0;
}

void mw_http_quiesce(struct mw_http *http)
{
    MHD_socket fd = MHD_quiesce_daemon(http->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

unsigned mw_http_requests(const struct mw_http *http)
{
    return http->requests;
}

void mw_http_free(struct mw_http *http)
{
    if (!http)
        return;
    uv_poll_stop(&http->poll); /* before the daemon closes the descriptor */
    MHD_stop_daemon(http->daemon);
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->timer, on_handle_closed);
    uv_close((uv_handle_t *)&http->sweep, on_handle_closed);
}

char *mw_http_request_take_body(struct mw_http_request *request, size_t *bytes)
{
    char *body = request->body;
    *bytes = request->body_bytes;
    /* It counts until the request ends: whoever took it holds it, or what was made of it. */
    request->body = NULL;
    request->body_bytes = 0;
    return body;
}

const char *mw_http_request_query(const struct mw_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *mw_http_request_header(const struct mw_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

void mw_http_request_on_gone(struct mw_http_request *request, void (*gone)(void *user), void *user)
{
    request->gone = gone;
    request->gone_user = user;
}

void mw_http_reply(struct mw_http_request *request, const struct mw_http_reply *reply)
{
    request->replied = true;
    request->gone = NULL;
    request->status = reply->status;
    request->response = MHD_create_response_from_buffer(reply->body_bytes, reply->body,
                                                        reply->body ? MHD_RESPMEM_MUST_FREE
                                                                    : MHD_RESPMEM_PERSISTENT);
    if (!request->response)
        free(reply->body);
    for (size_t i = 0; request->response && i < MW_HTTP_HEADERS_MAX && reply->headers[i].name; i++)
        (void)MHD_add_response_header(request->response, reply->headers[i].name,
                                      reply->headers[i].value);
    if (request->response && reply->content_type)
        (void)MHD_add_response_header(request->response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                      reply->content_type);
    if (request->suspended) {
        unwatch_hangup(request);
        request->suspended = false;
        MHD_resume_connection(request->connection);
        pump_soon(request->http);
    }
}

void mw_http_reply_problem(struct mw_http_request *request, const struct mw_problem *problem)
{
    char retry_after[16];
    struct mw_http_reply reply = {
        .status = mw_problem_status(problem),
        .content_type = "application/problem+json",
        .body = mw_problem_render(problem, NULL),
    };
    reply.body_bytes = reply.body ? strlen(reply.body) : 0;
    size_t headers = 0;
    if (problem->retry_after_s) {
        snprintf(retry_after, sizeof retry_after, "%u", problem->retry_after_s);
        reply.headers[headers++] = (struct mw_http_header){"Retry-After", retry_after};
    }
    if (problem->allow)
        reply.headers[headers++] = (struct mw_http_header){"Allow", problem->allow};
    mw_http_reply(request, &reply);
}

/* ---- the daemon on the loop ---- */

static struct MHD_Daemon *start_daemon(struct mw_http *http)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access,
        http, MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        http->options.listen_fd, MHD_OPTION_CONNECTION_LIMIT, http->options.connections_max,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_CONNECTION_TIMEOUT, STALL_S, MHD_OPTION_END);
}

static int open_handles(struct mw_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    int error = uv_poll_init(http->options.loop, &http->poll, info->epoll_fd);
    if (error)
        return error;
    uv_timer_init(http->options.loop, &http->timer);
    uv_timer_init(http->options.loop, &http->sweep);
    http->poll.data = http->timer.data = http->sweep.data = http;
    http->handles = 3;
    uv_poll_start(&http->poll, UV_READABLE, on_pollable);
    uv_timer_start(&http->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    return 0;
}

static void pump(struct mw_http *http)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    MHD_run(http->daemon);
    if (MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES)
        uv_timer_start(&http->timer, on_timer, timeout_ms, 0);
    else
        uv_timer_stop(&http->timer);
}

/* From inside a callback of the daemon it must not be run again: let the loop come round. */
static void pump_soon(struct mw_http *http)
{
    uv_timer_start(&http->timer, on_timer, 0, 0);
}

static void on_pollable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    pump(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    pump(timer->data);
}

static void on_sweep(uv_timer_t *timer)
{
    struct mw_http *http = timer->data;
    uint64_t now_ns = mw_clock_ns();
    for (struct connection *c = http->connections; c; c = c->next)
        if (c->reading_since_ns &&
            now_ns - c->reading_since_ns > http->options.read_ms * MW_NS_PER_MS)
            (void)shutdown(c->fd, SHUT_RDWR); /* the daemon sees the end and closes it */
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct mw_http *http = handle->data;
    if (--http->handles == 0)
        free(http);
}

static void on_daemon_log(void *user, const char *format, va_list arguments)
{
    (void)user;
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    mw_log("http: %s", text);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct mw_http *http = user;
    struct connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = calloc(1, sizeof *c);
        if (!c)
            return; /* it is served all the same, without the sweep's protection */
        c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->reading_since_ns = mw_clock_ns();
        c->next = http->connections;
        if (c->next)
            c->next->prev = c;
        http->connections = c;
        *context = c;
    } else if (c) {
        if (c->prev)
            c->prev->next = c->next;
        else
            http->connections = c->next;
        if (c->next)
            c->next->prev = c->prev;
        free(c);
    }
}

/* ---- one request ---- */

/* The daemon calls this when the headers are in, for each piece of the body, when the body is
 * complete, and again when a suspended connection was resumed. */
static enum MHD_Result on_access(void *user, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_bytes, void **context)
{
    (void)version;
    struct mw_http_request *request = *context;
    if (!request) {
        request = request_new(user, connection, method, url);
        *context = request;
        if (!request)
            return MHD_NO;
        /* Who asks first whether to send the body is told at once; others send it regardless. */
        bool asks_first = mw_http_request_header(request, MHD_HTTP_HEADER_EXPECT) != NULL;
        return request->refused.kind != MW_PROBLEM_NONE && asks_first ? dispatch(request) : MHD_YES;
    }
    if (*upload_bytes > 0) {
        bool go_on = take_upload(request, upload, *upload_bytes);
        *upload_bytes = 0;
        return go_on ? MHD_YES : MHD_NO;
    }
    if (!request->dispatched)
        return dispatch(request);
    return request->replied ? queue_response(request) : MHD_YES;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct mw_http *http = user;
    struct mw_http_request *request = *context;
    (void)connection;
    (void)code;
    if (!request)
        return;
    if (request->gone)
        request->gone(request->gone_user);
    struct connection *c = connection_of(request);
    if (c)
        c->reading_since_ns = mw_clock_ns();
    unwatch_hangup(request);
    if (request->response)
        MHD_destroy_response(request->response);
    http->body_bytes_total -= request->body_capacity;
    http->requests -= request->dispatched;
    free(request->body);
    free(request);
}

static struct mw_http_request *request_new(struct mw_http *http, struct MHD_Connection *connection,
                                           const char *method, const char *url)
{
    struct mw_http_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->http = http;
    request->connection = connection;
    route(request, method, url);
    refuse_stranger(request);
    refuse_foreign_page(request);
    const char *length = mw_http_request_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (request->refused.kind == MW_PROBLEM_NONE && length &&
        strtoull(length, NULL, 10) > http->options.body_bytes_max)
        refuse_size(request);
    return request;
}

/* Finds the route, or what to answer without one. */
static void route(struct mw_http_request *request, const char *method, const char *url)
{
    char *allow = request->allow;
    const struct mw_http_options *options = &request->http->options;
    for (size_t i = 0; i < options->route_count; i++) {
        const struct mw_route *candidate = &options->routes[i];
        size_t length = strlen(candidate->path);
        bool below = candidate->path[length - 1] == '/';
        if (below ? strncmp(url, candidate->path, length) != 0 : strcmp(url, candidate->path) != 0)
            continue;
        if (strcmp(method, candidate->method) == 0) {
            request->route = candidate;
            request->tail = url + length; /* the daemon keeps `url` until the request ends */
            return;
        }
        size_t used = strlen(allow);
        snprintf(allow + used, sizeof request->allow - used, "%s%s", used ? ", " : "",
                 candidate->method);
    }
    if (allow[0]) {
        mw_problem_set(&request->refused, MW_PROBLEM_METHOD, method, "%.200s takes %s", url, allow);
        request->refused.allow = allow;
    } else {
        mw_problem_set(&request->refused, MW_PROBLEM_NOT_FOUND, url,
                       "there is no %.200s; see docs/http.md for the paths there are", url);
    }
}

/* Beyond loopback anybody may ask for a compile; what changes the service is the operator's.
 * Checked however it listens, since a proxy in front of loopback brings strangers too. */
static void refuse_stranger(struct mw_http_request *request)
{
    const char *stranger =
        request->route && request->route->of_operator ? stranger_of(request) : NULL;
    if (stranger)
        mw_problem_set(&request->refused, MW_PROBLEM_OPERATOR, request->route->path,
                       "%s changes the service for all, and is taken only from the machine it runs "
                       "on, not %s; send it there, to a loopback address or the unix socket",
                       request->route->path, stranger);
}

/* What says that it comes from elsewhere; NULL: nothing does. */
static const char *stranger_of(const struct mw_http_request *request)
{
    static const struct {
        const char *header, *says;
    } marks[] = {
        {"Forwarded", "through a proxy (Forwarded)"},
        {"X-Forwarded-For", "through a proxy (X-Forwarded-For)"},
        {"Via", "through a proxy (Via)"},
    };
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (request->http->options.check_host && /* else a unix socket */
        !(peer && peer->client_addr && mw_listener_is_loopback_peer(peer->client_addr)))
        return "from another address";
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (mw_http_request_header(request, marks[i].header))
            return marks[i].says;
    return NULL;
}

/* Any page that a person opens may send requests to loopback ports: directly, which its Origin
 * tells, or by pointing a name of its own there, which Host tells. Neither may reach a compiler. */
static void refuse_foreign_page(struct mw_http_request *request)
{
    const char *origin = mw_http_request_header(request, MHD_HTTP_HEADER_ORIGIN);
    const char *host = mw_http_request_header(request, MHD_HTTP_HEADER_HOST);
    const struct mw_http_options *options = &request->http->options;
    if (origin) {
        const char *authority = strstr(origin, "://");
        if (authority && is_named(options, authority + 3))
            origin = NULL;
    }
    /* An address as Host cannot be a name that somebody has pointed here. */
    if (!options->check_host || !host || is_named(options, host) ||
        (options->remote && mw_listener_is_address(host)))
        host = NULL;
    if (origin)
        mw_problem_set(&request->refused, MW_PROBLEM_FOREIGN, "Origin",
                       "Origin: '%.200s' is a page from elsewhere; only pages from this machine's "
                       "loopback%s may use this service",
                       origin, options->remote ? " and from its public-name" : "");
    else if (host)
        mw_problem_set(&request->refused, MW_PROBLEM_FOREIGN, "Host",
                       options->remote
                           ? "Host: '%.200s' is no name of this service; call it by its address, "
                             "or give it this one with --public-name"
                           : "Host: '%.200s' is no loopback name; call the service as 127.0.0.1, "
                             "localhost or [::1]",
                       host);
}

/* Whether it names this service, by its text alone. */
static bool is_named(const struct mw_http_options *options, const char *authority)
{
    return mw_listener_is_loopback_name(authority) ||
           (options->public_name && mw_listener_is_name(authority, options->public_name));
}

/* Keeps the piece, or drops it when the request is refused anyway. False: too much, hang up. */
static bool take_upload(struct mw_http_request *request, const char *data, size_t bytes)
{
    struct mw_http *http = request->http;
    size_t needed = request->body_bytes + bytes;
    if (request->refused.kind == MW_PROBLEM_NONE && needed > http->options.body_bytes_max)
        refuse_size(request);
    if (request->refused.kind == MW_PROBLEM_NONE && needed > request->body_capacity) {
        size_t capacity = request->body_capacity ? request->body_capacity * 2 : 16384;
        if (capacity < needed)
            capacity = needed;
        size_t total = http->body_bytes_total - request->body_capacity + capacity;
        char *body =
            total > http->options.body_bytes_total_max ? NULL : realloc(request->body, capacity);
        if (body) {
            http->body_bytes_total = total;
            request->body = body;
            request->body_capacity = capacity;
        } else {
            mw_problem_set(&request->refused, MW_PROBLEM_QUEUE_FULL, "bodies",
                           "too many request bodies are held already; try again later");
            request->refused.retry_after_s = 1;
        }
    }
    if (request->refused.kind != MW_PROBLEM_NONE) {
        request->discarded += bytes;
        return request->discarded <= MW_HTTP_DISCARD_BYTES_MAX;
    }
    memcpy(request->body + request->body_bytes, data, bytes);
    request->body_bytes = needed;
    return true;
}

static void refuse_size(struct mw_http_request *request)
{
    mw_problem_set(&request->refused, MW_PROBLEM_TOO_LARGE, "body",
                   "body: larger than the %zu bytes that this service takes; send fewer files, or "
                   "have body-max-bytes raised",
                   request->http->options.body_bytes_max);
}

static enum MHD_Result dispatch(struct mw_http_request *request)
{
    request->dispatched = true;
    request->http->requests++;
    struct connection *c = connection_of(request);
    if (c)
        c->reading_since_ns = 0;
    if (request->refused.kind != MW_PROBLEM_NONE)
        mw_http_reply_problem(request, &request->refused);
    else
        request->route->handle(request->http->options.user, request, request->tail);
    if (request->replied)
        return queue_response(request);
    if (watch_hangup(request) != 0)
        return MHD_NO;
    request->suspended = true;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

static enum MHD_Result queue_response(struct mw_http_request *request)
{
    if (!request->response)
        return MHD_NO; /* no memory for one: hang up */
    enum MHD_Result result =
        MHD_queue_response(request->connection, request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static struct connection *connection_of(struct mw_http_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- the client's hang-up ---- */

static int watch_hangup(struct mw_http_request *request)
{
    struct hangup *hangup = calloc(1, sizeof *hangup);
    if (!hangup)
        return -ENOMEM;
    int fd =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    int error = uv_poll_init(request->http->options.loop, &hangup->poll, fd);
    if (error) {
        free(hangup);
        return error;
    }
    hangup->request = request;
    hangup->poll.data = hangup;
    uv_poll_start(&hangup->poll, UV_DISCONNECT, on_hangup);
    request->hangup = hangup;
    return 0;
}

static void unwatch_hangup(struct mw_http_request *request)
{
    if (!request->hangup)
        return;
    request->hangup->request = NULL;
    uv_poll_stop(&request->hangup->poll); /* at once: the daemon may close the socket next */
    uv_close((uv_handle_t *)&request->hangup->poll, on_hangup_closed);
    request->hangup = NULL;
}

static void on_hangup(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct hangup *hangup = poll->data;
    struct mw_http_request *request = hangup->request;
    if (!request)
        return;
    void (*gone)(void *) = request->gone;
    request->gone = NULL;
    if (gone)
        gone(request->gone_user);
    /* An answer that nobody reads lets the daemon find the closed socket and clean up. */
    mw_http_reply(request, &(struct mw_http_reply){.status = STATUS_CLIENT_GONE});
}

static void on_hangup_closed(uv_handle_t *handle)
{
    free(handle->data);
}

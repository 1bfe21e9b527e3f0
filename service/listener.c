#include "listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 512

static int open_unix(struct mw_listener *listener, const char *path, char *why, size_t why_bytes);
static int open_tcp(struct mw_listener *listener, const char *text, bool remote, char *why,
                    size_t why_bytes);
static size_t host_length(const char *authority);
static int resolve(const char *text, struct addrinfo **found, char *why, size_t why_bytes);
static bool is_port(const char *text);
static bool is_loopback(const struct sockaddr *address);
static bool is_loopback_four(uint32_t address);
static bool is_stale(const struct sockaddr_un *address);
static bool is_socket(const char *path);
static int listen_on(const struct sockaddr *address, socklen_t length);
static int describe_tcp(struct mw_listener *listener);

int mw_listener_open(struct mw_listener *listener, const char *text, bool remote, char *why,
                     size_t why_bytes)
{
    memset(listener, 0, sizeof *listener);
    listener->fd = -1;
    if (strncmp(text, "unix:", 5) == 0)
        return open_unix(listener, text + 5, why, why_bytes);
    return open_tcp(listener, text, remote, why, why_bytes);
}

bool mw_listener_is_loopback_peer(const struct sockaddr *address)
{
    struct sockaddr_in6 six;
    uint32_t four;
    if (address->sa_family != AF_INET6)
        return is_loopback(address);
    memcpy(&six, address, sizeof six);
    if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return is_loopback(address);
    memcpy(&four, &six.sin6_addr.s6_addr[12], sizeof four);
    return is_loopback_four(four);
}

bool mw_listener_is_loopback_name(const char *authority)
{
    static const char *const names[] = {"localhost", "[::1]"};
    size_t length = host_length(authority);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncasecmp(names[i], authority, length) == 0)
            return true;
    /* Digits and dots only: "127.0.0.1.example.org" is somebody else. */
    return strncmp(authority, "127.", 4) == 0 && strspn(authority, "0123456789.") == length;
}

bool mw_listener_is_address(const char *authority)
{
    char host[INET6_ADDRSTRLEN + 2] = "";
    unsigned char address[sizeof(struct in6_addr)];
    size_t length = host_length(authority);
    if (length >= sizeof host)
        return false;
    memcpy(host, authority, length);
    if (host[0] != '[')
        return inet_pton(AF_INET, host, address) == 1;
    if (host[length - 1] != ']')
        return false;
    host[length - 1] = '\0';
    return inet_pton(AF_INET6, host + 1, address) == 1;
}

bool mw_listener_is_name(const char *authority, const char *name)
{
    size_t length = host_length(authority);
    return length > 0 && strlen(name) == length && strncasecmp(authority, name, length) == 0;
}

/* Without the port, if there is one. */
static size_t host_length(const char *authority)
{
    const char *colon = strrchr(authority, ':');
    bool has_port = colon && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
                    (authority[0] != '[' || (colon > authority && colon[-1] == ']'));
    return has_port ? (size_t)(colon - authority) : strlen(authority);
}

void mw_listener_unlink(const struct mw_listener *listener)
{
    if (listener->unix_path[0])
        (void)unlink(listener->unix_path);
}

static int open_unix(struct mw_listener *listener, const char *path, char *why, size_t why_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_bytes, "the path of a unix socket must be 1 to %zu bytes long",
                 sizeof address.sun_path - 1);
        return -EINVAL;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (is_stale(&address))
        (void)unlink(path);
    /* Only the owner may connect; the mask is set before the file exists. */
    mode_t mask = umask(0177);
    int fd = listen_on((const struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (fd < 0) {
        const char *reason = fd != -EADDRINUSE ? strerror(-fd)
                             : is_socket(path) ? "another service is using it"
                                               : "a file is there that is no socket; move it away";
        snprintf(why, why_bytes, "cannot listen on unix:%s: %s", path, reason);
        return fd;
    }
    listener->fd = fd;
    snprintf(listener->url, sizeof listener->url, "unix:%s", path);
    snprintf(listener->unix_path, sizeof listener->unix_path, "%s", path);
    return 0;
}

/* A socket file that nobody listens on any more, left by a service that was killed. */
static bool is_stale(const struct sockaddr_un *address)
{
    if (!is_socket(address->sun_path))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                 errno == ECONNREFUSED;
    close(fd);
    return stale;
}

static bool is_socket(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

static int open_tcp(struct mw_listener *listener, const char *text, bool remote, char *why,
                    size_t why_bytes)
{
    struct addrinfo *found;
    int error = resolve(text, &found, why, why_bytes);
    if (error)
        return error;
    if (!remote && !is_loopback(found->ai_addr)) {
        snprintf(why, why_bytes,
                 "%s is not a loopback address; listen on 127.0.0.1, [::1] or unix:PATH, or say "
                 "--allow-remote where a proxy in front asks clients who they are",
                 text);
        freeaddrinfo(found);
        return -EPERM;
    }
    int fd = listen_on(found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (fd < 0) {
        snprintf(why, why_bytes, "cannot listen on %s: %s", text,
                 fd == -EADDRINUSE ? "the port is taken; choose another, or 0 for any free one"
                                   : strerror(-fd));
        return fd;
    }
    listener->fd = fd;
    error = describe_tcp(listener);
    if (error) {
        snprintf(why, why_bytes, "cannot tell the address of %s: %s", text, strerror(-error));
        close(fd);
        listener->fd = -1;
    }
    return error;
}

static int resolve(const char *text, struct addrinfo **found, char *why, size_t why_bytes)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    snprintf(why, why_bytes, "'%.200s' must be 127.0.0.1:PORT, [::1]:PORT or unix:PATH", text);
    if (!colon || length == 0 || length >= sizeof host || !is_port(colon + 1))
        return -EINVAL;
    memcpy(host, text, length);
    host[length] = '\0';
    const char *name = host;
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        name = host + 1;
    } else if (strcmp(host, "localhost") == 0) {
        name = "127.0.0.1";
    }
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, /* never ask a name server */
    };
    return getaddrinfo(name, colon + 1, &hints, found) == 0 ? 0 : -EINVAL;
}

/* getaddrinfo would take 99999 and wrap it round. */
static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 5 && text[digits] == '\0' && atoi(text) <= UINT16_MAX;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return is_loopback_four(four.sin_addr.s_addr);
    }
    struct sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

/* In the order of the network. */
static bool is_loopback_four(uint32_t address)
{
    return ntohl(address) >> 24 == 127;
}

/* A listening socket that does not block, or a negative errno. */
static int listen_on(const struct sockaddr *address, socklen_t length)
{
    int one = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, length) != 0 || listen(fd, BACKLOG) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

static int describe_tcp(struct mw_listener *listener)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN + 1], port[8];
    if (getsockname(listener->fd, (struct sockaddr *)&address, &length) != 0)
        return -errno;
    if (getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EINVAL;
    snprintf(listener->url, sizeof listener->url,
             address.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
    return 0;
}

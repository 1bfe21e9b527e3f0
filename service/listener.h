/* listener.h - the listening socket, from the text of `listen`.
 *
 * Loopback addresses and unix sockets are taken; others only where strangers may come. */
#ifndef MW_SERVICE_LISTENER_H
#define MW_SERVICE_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct mw_listener {
    int fd;
    char url[1100];       /* "http://127.0.0.1:7417" or "unix:/path", the port as it really is */
    char unix_path[1024]; /* to unlink at the end; "" for TCP */
};

/* `remote`: any address. Returns 0, or a negative errno with `why` filled: what is wrong and what
 * to do. */
int mw_listener_open(struct mw_listener *listener, const char *text, bool remote, char *why,
                     size_t why_bytes);

/* Whether a peer comes from this machine's loopback: 127.0.0.0/8, also as an IPv6 socket shows it
 * (::ffff:127.0.0.1), or ::1. */
bool mw_listener_is_loopback_peer(const struct sockaddr *address);

/* Whether `authority` ("127.0.0.1:7417", "localhost", "[::1]:80") names this machine's loopback, by
 * its text alone. */
bool mw_listener_is_loopback_name(const char *authority);

/* Whether it is an address, which no name server can point elsewhere, and whether its host is
 * `name`, both with or without a port. */
bool mw_listener_is_address(const char *authority);
bool mw_listener_is_name(const char *authority, const char *name);

/* Removes the unix socket's file. The descriptor belongs to whoever serves on it. */
void mw_listener_unlink(const struct mw_listener *listener);

#endif

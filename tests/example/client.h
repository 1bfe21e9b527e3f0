/* client.h - the load of the example: clients on a loop and a thread of their own.
 *
 * A client sends a message, waits for the answer, and sends the next one. */
#ifndef EXAMPLE_CLIENT_H
#define EXAMPLE_CLIENT_H

#include <netinet/in.h>
#include <stdint.h>

#include "host.h"

#define MESSAGE_BYTES 8u

/* `ms` of computing before the answer; 0: answered at once. */
struct message {
    uint32_t ms;
    uint32_t number;
};

struct client_load;

/* Start clients for the server at `address`; they go on for load->seconds and hang up.
 * Returns 0, or a code of libuv. */
int client_load_start(struct client_load **out, const struct sockaddr_in *address,
                      const struct load *load, struct times *times);

/* Wait for the end of it. Returns 0, or the first error that a client met. */
int client_load_join(struct client_load *clients);

#endif

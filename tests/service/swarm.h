/* swarm.h - many requests at once over real connections, from one thread; a request may hang up.
 *
 * Bounds: SWARM_MAX requests; a wait that comes to nothing ends the cmocka test. */
#ifndef MILLWRIGHT_TESTS_SERVICE_SWARM_H
#define MILLWRIGHT_TESTS_SERVICE_SWARM_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#include "support.h"

#define SWARM_MAX 512

struct swarm_request {
    CURL *curl; /* NULL: left */
    char *body;
    struct reply reply;
    bool done;
    CURLcode code; /* once done: CURLE_OK when there is an answer */
};

struct swarm {
    const struct server *server;
    CURLM *multi;
    struct curl_slist *headers;
    struct swarm_request requests[SWARM_MAX];
    size_t count;
};

struct swarm *swarm_new(const struct server *server);
void swarm_free(struct swarm *swarm);

/* POST `body` (taken over) to `path`. Returns the request's number. Nothing is sent before the
 * next turn. */
size_t swarm_post(struct swarm *swarm, const char *path, json_t *body);

/* Hang up without waiting for the answer. */
void swarm_leave(struct swarm *swarm, size_t number);

/* Send and receive for at most `ms`. Returns how many requests wait for their answer. */
unsigned swarm_turn(struct swarm *swarm, int ms);

/* Turn until every request is done. */
void swarm_finish(struct swarm *swarm);

/* Turn until the lane's number is at least `least`. */
void swarm_until_lane(struct swarm *swarm, struct room *room, const char *lane, const char *member,
                      json_int_t least);

/* Turn until the metric is at least `least`. */
void swarm_until_metric(struct swarm *swarm, struct room *room, const char *name, double least);

/* The answer of a request that is done; its JSON is the caller's. */
json_t *swarm_json(struct swarm *swarm, size_t number, long *status);

#endif

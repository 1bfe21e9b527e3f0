#include "swarm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TURN_MS   10
#define TURNS_MAX 30000 /* far above what a slow machine needs */

static size_t append(char *data, size_t size, size_t count, void *context);
static void note_done(struct swarm *swarm);

struct swarm *swarm_new(const struct server *server)
{
    struct swarm *swarm = calloc(1, sizeof *swarm);

    assert_non_null(swarm);
    swarm->server = server;
    swarm->multi = curl_multi_init();
    assert_non_null(swarm->multi);
    /* no "Expect: 100-continue", which would delay each request */
    swarm->headers = curl_slist_append(NULL, "Expect:");
    return swarm;
}

void swarm_free(struct swarm *swarm)
{
    for (size_t i = 0; i < swarm->count; i++) {
        swarm_leave(swarm, i);
        reply_free(&swarm->requests[i].reply);
        free(swarm->requests[i].body);
    }
    curl_multi_cleanup(swarm->multi);
    curl_slist_free_all(swarm->headers);
    free(swarm);
}

size_t swarm_post(struct swarm *swarm, const char *path, json_t *body)
{
    struct swarm_request *request = &swarm->requests[swarm->count];
    CURL *curl = curl_easy_init();
    char url[256];

    assert_true(swarm->count < SWARM_MAX);
    assert_non_null(curl);
    request->curl = curl;
    request->body = json_dumps(body, JSON_COMPACT);
    assert_non_null(request->body);
    json_decref(body);
    snprintf(url, sizeof url, "http://localhost%s", path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, swarm->server->socket);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, swarm->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &request->reply.body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &request->reply.headers);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
    assert_int_equal(curl_multi_add_handle(swarm->multi, curl), CURLM_OK);
    return swarm->count++;
}

void swarm_leave(struct swarm *swarm, size_t number)
{
    struct swarm_request *request = &swarm->requests[number];

    if (!request->curl)
        return;
    curl_multi_remove_handle(swarm->multi, request->curl); /* closes it when in the middle */
    curl_easy_cleanup(request->curl);
    request->curl = NULL;
}

unsigned swarm_turn(struct swarm *swarm, int ms)
{
    int running;

    assert_int_equal(curl_multi_perform(swarm->multi, &running), CURLM_OK);
    if (running > 0 && ms > 0) {
        assert_int_equal(curl_multi_poll(swarm->multi, NULL, 0, ms, NULL), CURLM_OK);
        assert_int_equal(curl_multi_perform(swarm->multi, &running), CURLM_OK);
    }
    note_done(swarm);
    return (unsigned)running;
}

void swarm_finish(struct swarm *swarm)
{
    for (unsigned turns = 0; swarm_turn(swarm, TURN_MS) > 0; turns++)
        if (turns > TURNS_MAX)
            fail_msg("requests are still not answered");
}

void swarm_until_lane(struct swarm *swarm, struct room *room, const char *lane, const char *member,
                      json_int_t least)
{
    for (unsigned turns = 0; lane_number(room, lane, member) < least; turns++) {
        if (turns > TURNS_MAX)
            fail_msg("%s of %s does not come to %lld", member, lane, (long long)least);
        swarm_turn(swarm, TURN_MS);
    }
}

void swarm_until_metric(struct swarm *swarm, struct room *room, const char *name, double least)
{
    for (unsigned turns = 0; metric(room, name) < least; turns++) {
        if (turns > TURNS_MAX)
            fail_msg("%s does not come to %g", name, least);
        swarm_turn(swarm, TURN_MS);
    }
}

json_t *swarm_json(struct swarm *swarm, size_t number, long *status)
{
    struct swarm_request *request = &swarm->requests[number];
    json_t *json;

    if (!request->done || request->code != CURLE_OK)
        fail_msg("request %zu has no answer: %s", number,
                 request->done ? curl_easy_strerror(request->code) : "it waits");
    json = json_loadb(request->reply.body.data ? request->reply.body.data : "",
                      request->reply.body.count, 0, NULL);
    if (!json)
        fail_msg("request %zu is answered with %ld and no JSON", number, request->reply.status);
    *status = request->reply.status;
    return json;
}

static size_t append(char *data, size_t size, size_t count, void *context)
{
    struct bytes *answer = context;
    char *grown = realloc(answer->data, answer->count + size * count + 1);

    if (!grown)
        return 0;
    memcpy(grown + answer->count, data, size * count);
    answer->data = grown;
    answer->count += size * count;
    grown[answer->count] = '\0';
    return size * count;
}

static void note_done(struct swarm *swarm)
{
    int left;

    for (const CURLMsg *message; (message = curl_multi_info_read(swarm->multi, &left));) {
        struct swarm_request *request;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &request->reply.status);
        request->done = true;
        request->code = message->data.result;
    }
}

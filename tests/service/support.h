/* support.h - what the tests of the service share: a room with a server, compiles as JSON, numbers
 * of the running service. What fails ends the cmocka test.
 *
 * Threads: one. */
#ifndef MILLWRIGHT_TESTS_SERVICE_SUPPORT_H
#define MILLWRIGHT_TESTS_SERVICE_SUPPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/server.h"

/* A folder of its own, with a server in it once room_start was called. */
struct room {
    char folder[40];
    struct server server; /* pid 0: not running */
    struct client client;
};

/* For cmocka: the state is a struct room. The first starts no server; the second starts one with
 * two lanes' threads, whatever the machine has. room_teardown ends what still runs. */
int room_setup(void **state);
int room_setup_started(void **state);
int room_teardown(void **state);

/* Start a server with `options` (NULL, or up to a NULL). */
void room_start(struct room *room, const char *const *options);

/* End the server with SIGTERM and expect exit status 0. */
void room_stop(struct room *room);

/* The program under test. */
const char *program_path(void);

/* An answer: the status and, when the body is JSON, the body. Free with answer_free. */
struct answer {
    long status;
    json_t *json; /* NULL: no JSON */
    struct reply reply;
};

/* POST to /v1/compile: a body of any bytes, or one made from `body` (taken over). */
struct answer post_bytes(struct room *room, const char *body, size_t bytes);
struct answer post(struct room *room, json_t *body);

/* Any other request. */
struct answer ask(struct room *room, const struct request *request);
void answer_free(struct answer *answer);

/* The text or number at a member; "" or -1 when there is none. */
const char *text_of(const json_t *object, const char *member);
json_int_t number_of(const json_t *object, const char *member);

/* The bytes of a JSON string of base64; the caller frees them. */
struct bytes base64_bytes(const json_t *text);
bool bytes_contain(const struct bytes *bytes, const char *text);

/* Expect a problem document of `status` and urn:millwright:problem:`slug`, whose `member` (NULL:
 * none) is `subject` and whose detail contains `detail`. Frees the answer. */
void expect_problem(struct answer answer, long status, const char *slug, const char *member,
                    const char *subject, const char *detail);

/* What is wrong with the service's work, or NULL: it compiles a source nobody compiled before, and
 * the object must hold the symbol of that source. The text is static. */
const char *what_is_wrong(struct room *room);
void expect_service_goes_on(struct room *room);

/* A C++ source on which clang works about a fifth of a second for each of `rounds`, with a symbol
 * `slow_<tag>`. The text is the caller's. */
char *slow_source(unsigned tag, unsigned rounds);

/* The time-out that a test gives to what must not run out of time: the service's longest. On a
 * busy machine the lane's threads, which give way to all others, may starve for long. */
#define PATIENT_MS 120000

/* A body that compiles slow_source. */
json_t *slow_body(unsigned tag, unsigned rounds, unsigned timeout_ms);

/* A number of GET /v1/lanes, of GET /metrics, and of /proc/PID/status (in the unit used there). */
json_int_t lane_number(struct room *room, const char *lane, const char *member);
double metric(struct room *room, const char *name);
long process_number(pid_t pid, const char *name);

/* Processes below a process: its children, theirs, and so on; and what of them is resident, shared
 * pages counted for each. */
struct family {
    unsigned processes;
    long resident_kb;
};
struct family process_family(pid_t pid);
unsigned process_descendants(pid_t pid);

/* Descriptors that a process has open. */
unsigned process_descriptors(pid_t pid);

/* The processes, descriptors and memory of a room_setup_started's service while nothing is in work,
 * which this waits for; one line on two of them; and the expectation that they are as they were,
 * but for `growth_kb` of resident memory each for the service and for all that it started. */
struct house_mark {
    unsigned processes, descriptors;
    long resident_kb;
    long family_kb;
};
struct house_mark house_mark(struct room *room);
void house_say(const struct house_mark *before, const struct house_mark *now);
struct house_mark expect_house_as_marked(struct room *room, const struct house_mark *mark,
                                         long growth_kb);

/* A number of GET /v1/isolation. */
json_int_t isolation_number(struct room *room, const char *member);

/* Tasks in /proc/PID/task. */
unsigned process_threads(pid_t pid);

#endif

/* bad_input_test.c - what strangers and broken clients send: a clear error, and the service goes
 * on. Each test ends by compiling something new. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define HUGE_BODY_BYTES (100u << 20)
/* What refused bodies may cost: the 16 MiB that are held at most, twice while they move, and twice
 * again where a sanitizer keeps freed memory. */
#define MEMORY_GROWTH_KB (64 << 10)
#define CONNECTIONS      200
#define PATIENCE_MS      30000 /* far above what a slow machine needs */

/* ---- raw connections ---- */

static int raw_connect(const struct room *room)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(strlen(room->server.socket) < sizeof address.sun_path);
    memcpy(address.sun_path, room->server.socket, strlen(room->server.socket) + 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        fail_msg("cannot connect: %s", strerror(errno));
    return fd;
}

/* Sends what the other side takes; it may hang up in the middle. */
static void raw_send(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        data += sent;
        bytes -= (size_t)sent;
    }
}

/* The status of the first answer, 0 when the other side hangs up without one. */
static int raw_status(int fd)
{
    char text[64] = "";
    size_t used = 0;

    while (used < sizeof text - 1) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (poll(&wait, 1, PATIENCE_MS) != 1)
            fail_msg("neither an answer nor a hang-up comes");
        got = recv(fd, text + used, sizeof text - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
        if (strchr(text, '\n'))
            break;
    }
    return strncmp(text, "HTTP/1.1 ", 9) == 0 ? atoi(text + 9) : 0;
}

static unsigned open_files(const struct room *room)
{
    char path[64];
    unsigned count = 0;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)room->server.pid);
    folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* ---- bodies ---- */

static json_t *good_body(void)
{
    return json_pack("{s:s, s:s}", "language", "c", "source", "int good;\n");
}

/* A good body with one more field. */
static json_t *body_with(const char *field, json_t *value)
{
    json_t *body = good_body();

    assert_non_null(value);
    json_object_set_new(body, field, value);
    return body;
}

/* A body of one file called `name`, which is also `main`. */
static json_t *body_named(const char *name)
{
    return json_pack("{s:[{s:s, s:s}], s:s}", "files", "name", name, "content", "int x;\n", "main",
                     name);
}

static struct answer post_text(struct room *room, const char *text)
{
    return post_bytes(room, text, strlen(text));
}

/* Broken when the place of a mistake in the JSON is lost on the way. */
static void broken_json_is_answered_with_its_place(void **state)
{
    struct room *room = *state;
    struct answer answer = post_text(room, "{\"language\":\"c\",\n\"source\":\"int x;");

    assert_int_equal(number_of(answer.json, "line"), 2);
    assert_true(number_of(answer.json, "column") > 0);
    expect_problem(answer, 400, "bad-json", NULL, NULL, "line 2, column");
    expect_problem(post_bytes(room, "{\"language\":\0\"c\"}", 17), 400, "bad-json", NULL, NULL,
                   "line 1");
    expect_problem(post_text(room, "{\"language\":\"c\",\"source\":\"a\\u0000b\"}"), 400,
                   "bad-json", NULL, NULL, "\\u0000");
    expect_problem(post_text(room, "{\"language\":\"c\",\"source\":\"\",\"source\":\"\"}"), 400,
                   "bad-json", NULL, NULL, "duplicate");
    expect_problem(post_text(room, "\xff\xfe"), 400, "bad-json", NULL, NULL, "line 1");
    expect_problem(post_text(room, "<xml/>"), 400, "bad-json", NULL, NULL, "line 1");
    expect_problem(post_text(room, "null"), 400, "bad-json", NULL, NULL, "");
    expect_problem(post_text(room, "[1]"), 400, "bad-field", "field", "body", "object");
    expect_service_goes_on(room);
}

/* Broken when a body of nothing reaches the JSON reader, or an absent one the memory. */
static void an_empty_body_is_refused(void **state)
{
    struct room *room = *state;

    expect_problem(ask(room, &(struct request){.method = "POST", .path = "/v1/compile"}), 400,
                   "bad-field", "field", "body", "is empty");
    expect_problem(ask(room, &(struct request){.path = "/v1/compile", .body = ""}), 400,
                   "bad-field", "field", "body", "is empty");
    expect_service_goes_on(room);
}

/* Broken when a JSON text nested without bound takes the service's stack. */
static void deep_nesting_is_refused(void **state)
{
    enum { DEPTH = 1 << 20 };
    static const char *const opens[] = {"[", "{\"a\":"};
    struct room *room = *state;
    char *text = malloc(DEPTH + 1);

    assert_non_null(text);
    for (size_t i = 0; i < COUNT(opens); i++) {
        size_t bytes = strlen(opens[i]);

        for (size_t at = 0; at + bytes <= DEPTH; at += bytes)
            memcpy(text + at, opens[i], bytes);
        expect_problem(post_bytes(room, text, DEPTH / bytes * bytes), 400, "bad-json", NULL, NULL,
                       "depth");
    }
    free(text);
    expect_service_goes_on(room);
}

/* Broken when NUL bytes end a source, which may hold any bytes as base64. */
static void nul_bytes_in_base64_content_are_content(void **state)
{
    struct room *room = *state;
    /* "int a;\n\0\0\nint after_nul;\n" */
    json_t *body = json_pack("{s:[{s:s, s:s}], s:s, s:s}", "files", "name", "a.c", "content_base64",
                             "aW50IGE7CgAACmludCBhZnRlcl9udWw7Cg==", "main", "a.c", "emit", "asm");
    struct answer answer = post(room, body);
    struct reply reply;

    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(answer.json, "status"), "ok");
    client_send(&room->client,
                &(struct request){.path = text_of(json_object_get(answer.json, "artifact"), "url")},
                &reply);
    assert_true(bytes_contain(&reply.body, "after_nul"));
    reply_free(&reply);
    answer_free(&answer);
    expect_service_goes_on(room);
}

/* Broken when a name can lead out of the request's directory, or is not named in the refusal. */
static void names_that_lead_elsewhere_are_refused(void **state)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"../a.c", "'..' part"},
        {"a/../../b.c", "'..' part"},
        {"/etc/passwd", "is absolute"},
        {"./a.c", "'.' part"},
        {"a//b.c", "empty part"},
        {"a/", "empty part"},
        {"", "empty part"},
        {"..", "'..' part"},
        {"a\nb.c", "control character"},
        {"a\x7f.c", "control character"},
    };
    struct room *room = *state;
    char name[1100];

    for (size_t i = 0; i < COUNT(cases); i++)
        expect_problem(post(room, body_named(cases[i].name)), 400, "bad-field", "field",
                       "files[0].name", cases[i].says);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    expect_problem(post(room, body_named(name)), 413, "too-large", "field", "files[0].name",
                   "1024 bytes");
    expect_problem(post(room, body_named("-x.c")), 400, "bad-field", "field", "main", "as a flag");
    expect_problem(post(room, body_named("@x.c")), 400, "bad-field", "field", "main", "as a flag");
    expect_problem(post(room, body_with("directory", json_string("src"))), 400, "bad-field",
                   "field", "directory", "not absolute");
    expect_problem(post(room, body_with("directory", json_string("/a/../b"))), 400, "bad-field",
                   "field", "directory", "'..' part");
    expect_service_goes_on(room);
}

/* Broken when two files share a name, or one is the other's directory. */
static void names_that_collide_are_refused(void **state)
{
    static const char format[] = "{s:[{s:s, s:s}, {s:s, s:s}], s:s}";
    struct room *room = *state;

    expect_problem(post(room, json_pack(format, "files", "name", "a.c", "content", "int x;", "name",
                                        "a.c", "content", "int y;", "main", "a.c")),
                   400, "bad-field", "field", "files[1].name", "given twice");
    expect_problem(post(room, json_pack(format, "files", "name", "a.c", "content", "int x;", "name",
                                        "a.c/b.h", "content", "", "main", "a.c")),
                   400, "bad-field", "field", "files[1].name", "below another file");
    expect_service_goes_on(room);
}

/* Broken when a source reads the host's files. */
static void a_source_sees_nothing_of_the_host(void **state)
{
    static const char *const sources[] = {
        "#include \"/etc/passwd\"\n",
        "#include \"../../../../../etc/passwd\"\n",
        "#include </etc/hostname>\n",
        "#if __has_include(\"/etc/passwd\")\n#error it is seen\n#endif\n#error as it must be\n",
        "const char text[] = {\n#embed \"/etc/passwd\"\n};\n",
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(sources); i++) {
        struct answer answer = post(room, json_pack("{s:s, s:s, s:i}", "language", "c", "source",
                                                    sources[i], "timeout_ms", PATIENT_MS));

        if (answer.status != 200 || strcmp(text_of(answer.json, "status"), "failed") != 0 ||
            strstr(answer.reply.body.data, "root:") || strstr(answer.reply.body.data, "is seen"))
            fail_msg("%s: %s", sources[i], answer.reply.body.data);
        answer_free(&answer);
    }
    expect_service_goes_on(room);
}

/* Broken when a wrong field is dropped in silence, or another one is blamed. */
static void wrong_fields_are_refused_by_name(void **state)
{
    struct room *room = *state;

    expect_problem(post(room, body_with("flags", json_array())), 400, "bad-field", "field", "flags",
                   "is not a field");
    expect_problem(post(room, body_with("", json_true())), 400, "bad-field", NULL, NULL,
                   "is not a field");
    expect_problem(post(room, body_with("args", json_string("-O2"))), 400, "bad-field", "field",
                   "args", "list of strings");
    expect_problem(post(room, body_with("timeout_ms", json_string("1"))), 400, "bad-field", "field",
                   "timeout_ms", "from 1 to");
    expect_problem(post(room, body_with("timeout_ms", json_integer(INT64_MAX))), 400, "bad-field",
                   "field", "timeout_ms", "from 1 to");
    expect_problem(post(room, body_with("emit", json_string("executable"))), 400, "bad-field",
                   "field", "emit", "must be");
    expect_problem(post(room, body_with("language", json_string("fortran"))), 400, "bad-field",
                   "field", "language", "must be");
    expect_problem(post(room, json_pack("{s:[{s:s, s:s, s:b}], s:s}", "files", "name", "a.c",
                                        "content", "", "executable", 1, "main", "a.c")),
                   400, "bad-field", "field", "files[0]", "a member other than");
    expect_problem(post(room, json_pack("{s:[{s:s, s:s, s:i}], s:s}", "files", "name", "a.c",
                                        "content", "", "content_base64", 5, "main", "a.c")),
                   400, "bad-field", "field", "files[0]", "either");
    expect_problem(post(room, json_pack("{s:[{s:s, s:s}], s:s}", "files", "name", "a.c",
                                        "content_base64", "?", "main", "a.c")),
                   400, "bad-field", "field", "files[0]", "not base64");
    expect_problem(ask(room, &(struct request){.path = "/v1/compile?include=other", .body = "{}"}),
                   400, "bad-field", "field", "include", "'other'");
    expect_service_goes_on(room);
}

/* Broken when a flag outside the allow-list reaches the compiler, or is refused without a reason.
 */
static void flags_outside_the_list_are_refused_by_name(void **state)
{
    static const char *const flags[] = {
        "--no-such-flag", "-fplugin=evil.so", "-Xclang",       "-o",         "-mllvm",
        "-march=native",  "-fprofile-use",    "-save-temps",   "-B/tmp",     "@file",
        "other.c",        "-fmodules",        "-ftime-report", "--config=x", "-wrapper",
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(flags); i++) {
        struct answer answer = post(room, body_with("args", json_pack("[s]", flags[i])));
        const char *flag = text_of(answer.json, "flag");
        const char *reason = strchr(text_of(answer.json, "detail"), ':');

        if (answer.status != 422 || strncmp(flag, flags[i], strlen(flags[i])) != 0 || !reason ||
            strlen(reason) < 15)
            fail_msg("%s: %ld %s", flags[i], answer.status, answer.reply.body.data);
        expect_problem(answer, 422, "flag-refused", NULL, NULL, flags[i]);
    }
    expect_service_goes_on(room);
}

/* Broken when any page in somebody's browser can reach the compiler through the loopback port: the
 * page's own requests carry Origin. Control: a page of the service's own machine is answered. */
static void pages_from_elsewhere_are_refused(void **state)
{
    static const char *const foreign[] = {
        "Origin: https://example.org",
        "Origin: http://127.0.0.1.example.org",
        "Origin: http://localhost.example.org:7417",
        "Origin: null",
    };
    static const char *const local[] = {
        "Origin: http://127.0.0.1:7417",
        "Origin: http://localhost",
        "Origin: http://[::1]:8080",
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(foreign); i++)
        expect_problem(
            ask(room, &(struct request){.path = "/v1/compile", .body = "{}", .header = foreign[i]}),
            403, "foreign-page", "header", "Origin", "from elsewhere");
    for (size_t i = 0; i < COUNT(local); i++) {
        struct answer answer = ask(room, &(struct request){.path = "/healthz", .header = local[i]});

        assert_int_equal(answer.status, 200);
        answer_free(&answer);
    }
}

/* Broken when a path or method that is not there is answered as one that is. */
static void unknown_paths_and_methods_are_refused(void **state)
{
    static const struct {
        const char *method, *path, *allow;
    } methods[] = {
        {"GET", "/v1/compile", "POST"},
        {"DELETE", "/v1/compile", "POST"},
        {"OPTIONS", "/v1/compile", "POST"},
        {"PUT", "/healthz", "GET, HEAD"},
        {"DELETE", "/v1/artifacts/00", "GET, HEAD"},
        {"BREW", "/metrics", "GET, HEAD"},
    };
    static const char *const paths[] = {
        "/",           "/v1",  "/v1/compile/", "/v1/Compile",       "/v1/lanes/x",
        "/etc/passwd", "/%00", "//v1/compile", "/healthz%0d%0aX:y",
    };
    static const char *const keys[] = {
        "",
        "x",

        "%2e%2e%2fstore.db",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0",
        "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
    };
    struct room *room = *state;

    for (size_t i = 0; i < COUNT(methods); i++) {
        struct answer answer =
            ask(room, &(struct request){.method = methods[i].method, .path = methods[i].path});

        assert_string_equal(reply_header(&answer.reply, "Allow"), methods[i].allow);
        expect_problem(answer, 405, "method-not-allowed", "method", methods[i].method,
                       methods[i].allow);
    }
    for (size_t i = 0; i < COUNT(paths); i++)
        expect_problem(ask(room, &(struct request){.path = paths[i]}), 404, "not-found", NULL, NULL,
                       "");
    for (size_t i = 0; i < COUNT(keys); i++) {
        char path[128];

        snprintf(path, sizeof path, "/v1/artifacts/%s", keys[i]);
        expect_problem(ask(room, &(struct request){.path = path}), 404, "not-found", NULL, NULL,
                       "64 lower-case hexadecimal digits");
    }
    expect_problem(ask(room, &(struct request){.path = "/v1/artifacts/0000000000000000000000000000"
                                                       "000000000000000000000000000000000000"}),
                   404, "not-found", NULL, NULL, "compile again");
    expect_service_goes_on(room);
}

/* Broken when a sender of too much never sees why, or what it sends is held in memory. */
static void a_huge_body_is_refused_and_never_held(void **state)
{
    static const char *const headers[] = {
        "Expect:",                    /* sends all of it */
        "Expect: 100-continue",       /* asks first */
        "Transfer-Encoding: chunked", /* does not say how much */
    };
    struct room *room = *state;
    char *body = malloc(HUGE_BODY_BYTES);

    assert_non_null(body);
    memset(body, ' ', HUGE_BODY_BYTES);
    expect_service_goes_on(room);
    long before_kb = process_number(room->server.pid, "VmHWM");
    for (size_t i = 0; i < COUNT(headers); i++)
        expect_problem(ask(room, &(struct request){.path = "/v1/compile",
                                                   .body = body,
                                                   .body_bytes = HUGE_BODY_BYTES,
                                                   .header = headers[i]}),
                       413, "too-large", "field", "body", "16777216 bytes");
    long growth_kb = process_number(room->server.pid, "VmHWM") - before_kb;
    if (growth_kb > MEMORY_GROWTH_KB)
        fail_msg("the refused bodies cost %ld KiB", growth_kb);
    free(body);
    expect_service_goes_on(room);
}

/* Broken when the bound on a body is off by one, or not the one that was set. */
static void the_bound_on_a_body_is_exact(void **state)
{
    static const char source[] = "{\"language\":\"c\",\"source\":\"int x;\"}";
    struct room *room = *state;
    char body[1025];

    room_start(room, (const char *[]){"--body-max-bytes", "1024", NULL});
    memset(body, ' ', sizeof body);
    for (size_t i = 0; source[i]; i++) /* no NUL: the blanks go on to the end */
        body[i] = source[i];
    struct answer answer = post_bytes(room, body, 1024);
    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    expect_problem(post_bytes(room, body, 1025), 413, "too-large", "field", "body", "1024 bytes");
    answer = ask(room, &(struct request){.path = "/v1/compile",
                                         .body = body,
                                         .body_bytes = 1024,
                                         .header = "Transfer-Encoding: chunked"});
    assert_int_equal(answer.status, 200);
    answer_free(&answer);
    expect_problem(ask(room, &(struct request){.path = "/v1/compile",
                                               .body = body,
                                               .body_bytes = 1025,
                                               .header = "Transfer-Encoding: chunked"}),
                   413, "too-large", "field", "body", "1024 bytes");
    expect_service_goes_on(room);
    room_stop(room);
}

/* Broken when bytes that are no HTTP end the service or are answered as if they were. */
static void bytes_that_are_no_http_are_refused(void **state)
{
    static const char *const answered[] = {
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /v1/compile HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    };
    struct room *room = *state;
    char noise[200000];
    unsigned seed = 1;

    for (size_t i = 0; i < COUNT(answered); i++) {
        int fd = raw_connect(room), status;

        raw_send(fd, answered[i], strlen(answered[i]));
        status = raw_status(fd);
        if (status != 0 && status < 400)
            fail_msg("'%s' is answered with %d", answered[i], status);
        close(fd);
    }
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)((seed = seed * 1103515245u + 12345u) >> 16);
    for (size_t start = 0; start < 10; start++) {
        int fd = raw_connect(room);

        raw_send(fd, noise + start, sizeof noise - start);
        close(fd);
    }
    expect_service_goes_on(room);
}

/* Broken when a client that leaves in the middle of a request keeps its connection or its buffers
 * for ever. */
static void half_a_request_leaves_nothing_behind(void **state)
{
    static const char whole[] =
        "POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        "{\"language\":\"c\",\"source\":\"int x;";
    struct room *room = *state;
    unsigned before;

    expect_service_goes_on(room);
    /* a worker that is there only later has files, too */
    for (int tries = 0; isolation_number(room, "ready") < 2 && tries * 10 < PATIENCE_MS; tries++)
        poll(NULL, 0, 10);
    before = open_files(room);
    for (size_t bytes = 1; bytes < sizeof whole; bytes += 7) {
        int fd = raw_connect(room);

        raw_send(fd, whole, bytes);
        close(fd);
    }
    expect_service_goes_on(room);
    /* the loop needs a moment to see every end */
    for (int tries = 0; open_files(room) > before; tries++) {
        if (tries * 10 > PATIENCE_MS)
            fail_msg("%u files are open, %u were", open_files(room), before);
        poll(NULL, 0, 10);
    }
    assert_true(metric(room, "millwright_compile_tickets") == 0);
    expect_service_goes_on(room);
}

/* Broken when headers without bound are stored, or refused by ending the service. */
static void endless_headers_are_refused(void **state)
{
    struct room *room = *state;
    static const char start[26] = "GET /healthz HTTP/1.1\r\nX: ";
    static char header[300000];
    int fd = raw_connect(room), status;

    memset(header, 'h', sizeof header);
    memcpy(header, start, sizeof start);
    raw_send(fd, header, sizeof header);
    shutdown(fd, SHUT_WR);
    status = raw_status(fd);
    assert_true(status == 0 || status >= 400);
    close(fd);
    expect_service_goes_on(room);
}

/* Broken when connections that are silent keep others from being served. */
static void many_connections_at_once_are_all_served(void **state)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    struct room *room = *state;
    int fds[CONNECTIONS];

    for (size_t i = 0; i < CONNECTIONS; i++)
        fds[i] = raw_connect(room);
    expect_service_goes_on(room); /* they are open and silent */
    for (size_t i = 0; i < CONNECTIONS; i++)
        raw_send(fds[i], request, sizeof request - 1);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        assert_int_equal(raw_status(fds[i]), 200);
        close(fds[i]);
    }
    expect_service_goes_on(room);
}

/* Broken when connections take the descriptors that compiles need for headers: a missing one would
 * be reported as the user's mistake. */
static void connections_never_take_the_last_file(void **state)
{
    static const char script[] = "#!/bin/sh\nulimit -n 220\nexec \"$MW_PROGRAM\" \"$@\"\n";
    struct room *room = *state;
    char *program = path_join(room->folder, "few-files");
    int fds[CONNECTIONS];

    file_write(program, script, sizeof script - 1);
    assert_int_equal(
        process_run(room->folder, (const char *[]){"chmod", "+x", program, NULL}, NULL, NULL), 0);
    server_start(&room->server, program, room->folder,
                 (const char *[]){"--lane-cap", "2", "--pool-max", "8", NULL});
    client_open(&room->client, &room->server);
    expect_service_goes_on(room); /* its connection stays */
    for (size_t i = 0; i < CONNECTIONS; i++)
        fds[i] = raw_connect(room); /* those over the bound wait to be accepted */
    expect_service_goes_on(room);
    for (size_t i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    expect_service_goes_on(room);
    room_stop(room);
    free(program);
}

/* The control: a service that is gone is noticed, by its name. */
static void a_killed_service_is_noticed(void **state)
{
    struct room *room = *state;
    siginfo_t ended;

    room_start(room, NULL);
    assert_null(what_is_wrong(room));
    kill(room->server.pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)room->server.pid, &ended, WEXITED | WNOWAIT), 0);
    assert_string_equal(what_is_wrong(room), "the process is gone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_json_is_answered_with_its_place),
        cmocka_unit_test(an_empty_body_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(nul_bytes_in_base64_content_are_content),
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
        cmocka_unit_test(names_that_collide_are_refused),
        cmocka_unit_test(a_source_sees_nothing_of_the_host),
        cmocka_unit_test(wrong_fields_are_refused_by_name),
        cmocka_unit_test(flags_outside_the_list_are_refused_by_name),
        cmocka_unit_test(pages_from_elsewhere_are_refused),
        cmocka_unit_test(unknown_paths_and_methods_are_refused),
        cmocka_unit_test(a_huge_body_is_refused_and_never_held),
        cmocka_unit_test_setup_teardown(the_bound_on_a_body_is_exact, room_setup, room_teardown),
        cmocka_unit_test(bytes_that_are_no_http_are_refused),
        cmocka_unit_test(half_a_request_leaves_nothing_behind),
        cmocka_unit_test(endless_headers_are_refused),
        cmocka_unit_test(many_connections_at_once_are_all_served),
        cmocka_unit_test_setup_teardown(connections_never_take_the_last_file, room_setup,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(a_killed_service_is_noticed, room_setup, room_teardown),
    };

    return cmocka_run_group_tests_name("service.bad_input", tests, room_setup_started,
                                       room_teardown);
}

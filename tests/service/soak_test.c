/* soak_test.c - many compiles of all kinds with hostile ones among them: no wrong answer, and
 * nothing left behind. MW_SOAK_COMPILES says how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "service/hostile_sources.h"
#include "service/support.h"
#include "service/swarm.h"
#include "support/sanitized.h"

#define COMPILES_DEFAULT 240
#define AT_ONCE          40
#define HOSTILE_EVERY    20 /* 5 % */
#define REPEAT_EVERY     7  /* asks again for what was just compiled */

#define GROWTH_KB_MAX (SANITIZED ? 1024 << 10 : 96 << 10) /* a sanitizer keeps what is freed */

/* %u: a number that makes the symbol its own. */
static const struct kind {
    const char *language, *source, *emit, *flag;
    const char *status;
} kinds[] = {
    {"c", "int soak_%u;\n", "object", "-O0", "ok"},
    {"c", "#include <stdio.h>\nint soak_%u(int a) { return printf(\"%%d\", a); }\n", "object",
     "-O2", "ok"},
    {"c", "int soak_%u(int a) { return a * 3; }\n", "asm", "-O1", "ok"},
    {"c++",
     "template <class T> T twice(T t) { return t + t; }\n"
     "extern \"C\" int soak_%u(int a) { return twice(a); }\n",
     "llvm-ir", "-O1", "ok"},
    {"c", "int soak_%u = undeclared;\n", "object", "-O0", "failed"},
    {"c", "#define soak_%u 1\n#if\n", "preprocessed", "-O0", "failed"},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* One compile of the soak, by its number. */
static const struct hostile_source *hostile_at(unsigned number)
{
    return number % HOSTILE_EVERY == HOSTILE_EVERY - 1
               ? &hostile_sources[number / HOSTILE_EVERY % hostile_source_count]
               : NULL;
}

static unsigned symbol_at(unsigned number)
{
    return number % REPEAT_EVERY == REPEAT_EVERY - 1 && !hostile_at(number - 1) ? number - 1
                                                                                : number;
}

static json_t *body_at(unsigned number)
{
    const struct kind *kind = &kinds[symbol_at(number) % KINDS];
    char source[256];

    if (hostile_at(number))
        return hostile_body(hostile_at(number), number, &hostile_tight);
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
    snprintf(source, sizeof source, kind->source, symbol_at(number));
#pragma clang diagnostic pop
    return json_pack("{s:s, s:s, s:s, s:[s], s:i}", "language", kind->language, "source", source,
                     "emit", kind->emit, "args", kind->flag, "timeout_ms", PATIENT_MS);
}

/* What is wrong with an answer, or NULL. */
static const char *what_is_wrong_at(unsigned number, long status, const json_t *answer)
{
    const char *outcome = hostile_outcome(status, answer);
    const struct kind *kind = &kinds[symbol_at(number) % KINDS];
    struct bytes made;
    char symbol[32];
    bool found;

    if (hostile_at(number))
        return strcmp(outcome, "?") != 0 &&
                       (SANITIZED || hostile_allows(hostile_at(number), outcome))
                   ? NULL
                   : "a hostile one got another answer than it should";
    if (strcmp(outcome, kind->status) != 0)
        return "its status is wrong";
    if (strcmp(outcome, "ok") != 0)
        return json_array_size(json_object_get(answer, "diagnostics")) > 0 ? NULL
                                                                           : "it does not say why";
    made = base64_bytes(json_object_get(json_object_get(answer, "artifact"), "base64"));
    snprintf(symbol, sizeof symbol, "soak_%u", symbol_at(number));
    found = bytes_contain(&made, symbol);
    free(made.data);
    return found ? NULL : "it is the artifact of another source";
}

static void compile_some(struct room *room, unsigned begin, unsigned count)
{
    struct swarm *swarm = swarm_new(&room->server);

    for (unsigned i = 0; i < count; i++)
        swarm_post(swarm, "/v1/compile?include=artifact", body_at(begin + i));
    swarm_finish(swarm);
    for (unsigned i = 0; i < count; i++) {
        long status;
        json_t *answer = swarm_json(swarm, i, &status);
        const char *wrong = what_is_wrong_at(begin + i, status, answer);

        if (wrong) {
            char *text = json_dumps(answer, JSON_COMPACT);

            fail_msg("compile %u: %s: %ld %s", begin + i, wrong, status, text);
        }
        json_decref(answer);
    }
    swarm_free(swarm);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void say_what_happened(struct room *room, unsigned compiles, double begin_s)
{
    printf("%u compiles, 0 wrong, in %.0f s; workers started %lld, killed by a limit %lld, crashed "
           "%lld, zygote started again %lld times\n",
           compiles, now_s() - begin_s, (long long)isolation_number(room, "started"),
           (long long)isolation_number(room, "killed_by_limit"),
           (long long)isolation_number(room, "crashed"),
           (long long)isolation_number(room, "zygote_restarts"));
    fflush(stdout);
}

/* Broken when any answer is wrong, or the service keeps processes, descriptors or memory of what it
 * has compiled. Looked at after each tenth, so that a slow leak shows as a slope. */
static void many_compiles_some_hostile_leave_nothing(void **state)
{
    const char *given = getenv("MW_SOAK_COMPILES");
    unsigned compiles = given ? (unsigned)strtoul(given, NULL, 10) : COMPILES_DEFAULT;
    unsigned warm = compiles / 4; /* by then each cache is as large as it gets */
    unsigned looked = warm;
    double begin_s = now_s();
    struct room *room = *state;
    struct house_mark mark = {0}, now;

    for (unsigned done = 0; done < compiles; done += AT_ONCE) {
        if (done >= warm && mark.processes == 0) {
            mark = house_mark(room);
        } else if (done >= looked + compiles / 10) {
            looked = done;
            say_what_happened(room, done, begin_s);
            now = expect_house_as_marked(room, &mark, GROWTH_KB_MAX);
            house_say(&mark, &now);
        }
        compile_some(room, done, AT_ONCE);
    }
    say_what_happened(room, compiles, begin_s);
    now = expect_house_as_marked(room, &mark, GROWTH_KB_MAX);
    house_say(&mark, &now);
    assert_int_equal(isolation_number(room, "zygote_restarts"), 0);
    assert_true(isolation_number(room, "killed_by_limit") > 0);
}

/* Control: the check of an answer sees the artifact of another source, and a wrong status. */
static void control_a_wrong_answer_is_seen(void **state)
{
    struct room *room = *state;
    struct answer answer = {0};
    struct request request = {.path = "/v1/compile?include=artifact"};
    json_t *body = body_at(0);
    char *text = json_dumps(body, JSON_COMPACT);

    request.body = text;
    answer = ask(room, &request);
    assert_null(what_is_wrong_at(0, answer.status, answer.json));
    assert_string_equal(what_is_wrong_at(KINDS * HOSTILE_EVERY, answer.status, answer.json),
                        "it is the artifact of another source");
    assert_string_equal(what_is_wrong_at(4, answer.status, answer.json), "its status is wrong");
    answer_free(&answer);
    free(text);
    json_decref(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(control_a_wrong_answer_is_seen, room_setup_started,
                                        room_teardown),
        cmocka_unit_test_setup_teardown(many_compiles_some_hostile_leave_nothing,
                                        room_setup_started, room_teardown),
    };

    return cmocka_run_group_tests_name("service.soak", tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker_wire.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define OUTPUT_BYTES 4096u
#define MUTATIONS    20000u
#define FINGERPRINT  "language c\nemit object\n"
#define EXTRAS       (1u << MW_EXTRA_REMARKS | 1u << MW_EXTRA_LINE_MAP)
#define INPUTS       "r/src/main.c\0a/src/stdio.h"

static const struct mw_wire_bounds bounds = {OUTPUT_BYTES, EXTRAS};

static const struct mw_source_file files[] = {
    {"main.c", "int main;\n", 10}, {"sub/empty.h", NULL, 0}, {"odd.h", "a\0b", 3}};
static const char *const args[] = {"-O2", "-DX=1"};
static const struct mw_compile_request request = {
    .language = MW_LANGUAGE_C,
    .emit = MW_EMIT_ASM,
    .directory = "/src",
    .main = "main.c",
    .files = files,
    .file_count = COUNT(files),
    .args = args,
    .arg_count = COUNT(args),
    .extras = EXTRAS,
};

static const struct mw_fixit fixits[] = {{"main.c", {1, 2, 1}, {1, 3, 2}, ";"}};
static const struct mw_diagnostic warning = {
    .severity = MW_SEVERITY_WARNING,
    .file = "main.c",
    .at = {1, 2, 1},
    .begin = {1, 2, 1},
    .end = {1, 4, 3},
    .message = "a warning",
    .flag = "-Wx",
    .category = "Semantic Issue",
    .line_text = "int main;",
    .fixits = fixits,
    .fixit_count = COUNT(fixits),
};
static const struct mw_diagnostic note = {.severity = MW_SEVERITY_NOTE, .message = "a note"};
static const struct mw_diagnostic error = {.severity = MW_SEVERITY_ERROR, .message = "an error"};

/* The bytes of a file, in memory of exactly that size, so that a sanitizer sees each step beyond.
 */
static uint8_t *bytes_of(int file, size_t *count)
{
    struct stat found;
    uint8_t *bytes;

    assert_int_equal(fstat(file, &found), 0);
    *count = (size_t)found.st_size;
    bytes = malloc(*count);
    assert_non_null(bytes);
    assert_int_equal(pread(file, bytes, *count, 0), *count);
    return bytes;
}

static uint32_t random_next(void)
{
    static uint64_t state = 42;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

/* Change a byte or a number, in a way that is likely to hurt. */
static void mutate(uint8_t *bytes, size_t count)
{
    static const uint32_t evil[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 1000, 4097, 65};
    size_t changes = 1 + random_next() % 3;

    for (size_t i = 0; i < changes; i++) {
        size_t at = random_next() % count;

        if (random_next() % 2 && at + 4 <= count)
            memcpy(bytes + at, &evil[random_next() % COUNT(evil)], 4);
        else
            bytes[at] = (uint8_t)random_next();
    }
}

static struct mw_compile_result result_make(void)
{
    struct mw_compile_result result = {.ok = true, .artifact = strdup("artifact")};

    result.artifact_bytes = strlen("artifact");
    result.not_storable = "inline assembly may read files";
    assert_int_equal(mw_diagnostics_add(&result.diagnostics, &warning), 0);
    assert_int_equal(mw_diagnostics_add(&result.diagnostics, &note), 0);
    assert_int_equal(mw_diagnostics_add(&result.diagnostics, &error), 0);
    result.diagnostics.dropped = 7;
    result.extras[MW_EXTRA_REMARKS] = (struct mw_text){strdup("[1]"), 3};
    result.extras[MW_EXTRA_TIME_TRACE] = (struct mw_text){strdup("[2]"), 3}; /* not asked for */
    result.inputs = (struct mw_text){malloc(sizeof(INPUTS)), sizeof(INPUTS)};
    memcpy(result.inputs.data, INPUTS, sizeof(INPUTS));
    return result;
}

/* An answer with `result` in it. */
static int answer_make(int rc, const struct mw_compile_result *result)
{
    int file = mw_wire_answer_make(&bounds);

    assert_true(file >= 0);
    assert_int_equal(mw_wire_answer_write(file, &bounds, rc, result), 0);
    return file;
}

/* Breaks when the worker would compile anything else than what was asked. */
static void request_comes_out_as_it_went_in(void **state)
{
    struct mw_wire_request read;
    size_t count;
    int file = mw_wire_request_make(&request, FINGERPRINT, 99);
    uint8_t *bytes;

    (void)state;
    assert_true(file >= 0);
    bytes = bytes_of(file, &count);
    assert_int_equal(mw_wire_request_read(&read, bytes, count), 0);
    assert_int_equal(read.request.language, request.language);
    assert_int_equal(read.request.emit, request.emit);
    assert_string_equal(read.request.directory, "/src");
    assert_string_equal(read.request.main, "main.c");
    assert_string_equal(read.fingerprint, FINGERPRINT);
    assert_int_equal(read.bounds.output_bytes, 99);
    assert_int_equal(read.bounds.extras, EXTRAS);
    assert_int_equal(read.request.extras, EXTRAS);
    assert_int_equal(read.preamble.count, 0);
    assert_null(read.request.preamble);
    assert_int_equal(read.request.arg_count, 2);
    assert_string_equal(read.request.args[1], "-DX=1");
    assert_int_equal(read.request.file_count, 3);
    for (size_t i = 0; i < COUNT(files); i++) {
        assert_string_equal(read.request.files[i].name, files[i].name);
        assert_int_equal(read.request.files[i].bytes, files[i].bytes);
        if (files[i].bytes > 0)
            assert_memory_equal(read.request.files[i].data, files[i].data, files[i].bytes);
    }
    mw_wire_request_fini(&read);
    free(bytes);
    close(file);
}

/* Breaks when the host could change a request that a worker reads, or anybody its size. */
static void request_is_sealed(void **state)
{
    int file = mw_wire_request_make(&request, FINGERPRINT, 99);

    (void)state;
    assert_int_equal(pwrite(file, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(file, 1), -1);
    close(file);
}

/* Breaks when a request that is cut off, or has a byte too many, is taken for a whole one. */
static void request_must_be_whole(void **state)
{
    struct mw_wire_request read;
    size_t count;
    int file = mw_wire_request_make(&request, FINGERPRINT, 99);
    uint8_t *bytes = bytes_of(file, &count);

    (void)state;
    for (size_t cut = 0; cut < count; cut++) {
        uint8_t *part = malloc(cut + 1);

        assert_non_null(part);
        memcpy(part, bytes, cut);
        assert_int_equal(mw_wire_request_read(&read, part, cut), -EPROTO);
        mw_wire_request_fini(&read);
        free(part);
    }
    bytes = realloc(bytes, count + 1);
    assert_non_null(bytes);
    bytes[count] = 0;
    assert_int_equal(mw_wire_request_read(&read, bytes, count + 1), -EPROTO);
    mw_wire_request_fini(&read);
    free(bytes);
    close(file);
}

/* Breaks when mutated bytes of a request make the reader look beyond them or give what is none. */
static void request_reader_withstands_mutations(void **state)
{
    size_t count, taken = 0;
    int file = mw_wire_request_make(&request, FINGERPRINT, 99);
    uint8_t *good = bytes_of(file, &count), *bytes = malloc(count);

    (void)state;
    assert_non_null(bytes);
    for (unsigned i = 0; i < MUTATIONS; i++) {
        struct mw_wire_request read;

        memcpy(bytes, good, count);
        mutate(bytes, count);
        if (mw_wire_request_read(&read, bytes, count) == 0) {
            taken++;
            for (size_t f = 0; f < read.request.file_count; f++)
                assert_in_range((uintptr_t)read.request.files[f].data, (uintptr_t)bytes,
                                (uintptr_t)bytes + count - read.request.files[f].bytes);
        }
        mw_wire_request_fini(&read);
    }
    assert_in_range(taken, 1, MUTATIONS - 1); /* else the mutations reach nothing */
    free(bytes);
    free(good);
    close(file);
}

/* Breaks when an answer loses or changes anything. */
static void answer_comes_out_as_it_went_in(void **state)
{
    struct mw_compile_result result = result_make(), read = {0};
    struct mw_wire_outcome outcome = {0};
    int file = answer_make(0, &result);

    (void)state;
    assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), 0);
    assert_int_equal(outcome.rc, 0);
    assert_int_equal(outcome.artifact_bytes, result.artifact_bytes);
    assert_true(read.ok);
    assert_int_equal(read.artifact_bytes, result.artifact_bytes);
    assert_memory_equal(read.artifact, result.artifact, result.artifact_bytes);
    assert_string_equal(read.not_storable, result.not_storable);
    assert_int_equal(read.diagnostics.count, 2);
    assert_int_equal(read.diagnostics.errors, 1);
    assert_int_equal(read.diagnostics.dropped, 7);
    assert_string_equal(read.diagnostics.items[0].message, "a warning");
    assert_string_equal(read.diagnostics.items[0].flag, "-Wx");
    assert_int_equal(read.diagnostics.items[0].end.column, 4);
    assert_int_equal(read.diagnostics.items[0].fixit_count, 1);
    assert_string_equal(read.diagnostics.items[0].fixits[0].text, ";");
    assert_int_equal(read.diagnostics.items[0].note_count, 1);
    assert_string_equal(read.diagnostics.items[0].notes[0].message, "a note");
    assert_string_equal(read.extras[MW_EXTRA_REMARKS].data, "[1]");
    assert_int_equal(read.extras[MW_EXTRA_REMARKS].bytes, 3);
    assert_null(read.extras[MW_EXTRA_TIME_TRACE].data);
    assert_null(read.extras[MW_EXTRA_LINE_MAP].data);
    assert_int_equal(read.inputs.bytes, sizeof(INPUTS));
    assert_memory_equal(read.inputs.data, INPUTS, sizeof(INPUTS));
    mw_compile_result_fini(&read);
    mw_compile_result_fini(&result);
    close(file);
}

/* Breaks when a preamble is told of that does not come along, or its size or place is lost. */
static void request_tells_of_a_preamble_that_is_a_file(void **state)
{
    static const struct {
        int file;
        size_t count;
    } cases[] = {{0, 12345}, {-1, 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_preamble_use use = {
            .bytes = "x", .count = 12345, .file = cases[i].file, .covers_bytes = 7};
        struct mw_compile_request with = request;
        struct mw_wire_request read;
        size_t count;
        uint8_t *bytes;
        int file;

        with.preamble = &use;
        file = mw_wire_request_make(&with, FINGERPRINT, 99);
        bytes = bytes_of(file, &count);
        assert_int_equal(mw_wire_request_read(&read, bytes, count), 0);
        assert_int_equal(read.preamble.count, cases[i].count);
        assert_int_equal(read.preamble.covers_bytes, cases[i].count ? 7 : 0);
        assert_null(read.request.preamble); /* until its file is there */
        mw_wire_request_fini(&read);
        free(bytes);
        close(file);
    }
}

/* Breaks when a worker would map a file that can change under it, or of another size. */
static void file_is_mapped_only_when_it_is_sealed_and_of_its_size(void **state)
{
    int sealed = mw_wire_file_make("test", "bytes", 5);
    int open_file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const void *bytes = mw_wire_file_map(sealed, 5);

    (void)state;
    assert_non_null(bytes);
    assert_memory_equal(bytes, "bytes", 5);
    assert_int_equal(munmap((void *)bytes, 5), 0);
    assert_null(mw_wire_file_map(sealed, 4));
    assert_null(mw_wire_file_map(sealed, 6));
    assert_null(mw_wire_file_map(sealed, 0));
    assert_int_equal(pwrite(open_file, "bytes", 5, 0), 5);
    assert_null(mw_wire_file_map(open_file, 5)); /* the same bytes, but not sealed */
    close(sealed);
    close(open_file);
}

/* Breaks when inputs that name no path, or end without their NUL, are taken from a worker. */
static void answer_with_unsound_inputs_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        int rc;
    } cases[] = {
        {"r/a", 4, 0},      {"r/a\0d/", 7, 0}, {"r/a", 3, -EPROTO},   {"x/a", 4, -EPROTO},
        {"ra", 3, -EPROTO}, {"r", 2, -EPROTO}, {"r/a\0", 5, -EPROTO}, {"", 1, -EPROTO},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mw_compile_result result = {.ok = true}, read = {0};
        struct mw_wire_outcome outcome;
        int file;

        result.inputs = (struct mw_text){(char *)cases[i].bytes, cases[i].count};
        file = answer_make(0, &result);
        assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), cases[i].rc);
        assert_int_equal(read.ok, cases[i].rc == 0);
        mw_compile_result_fini(&read);
        close(file);
    }
}

/* Breaks when extras or inputs over their bounds make an answer fail, or are cut off in silence. */
static void answer_leaves_out_extras_and_inputs_that_are_too_large(void **state)
{
    struct mw_compile_result result = {.ok = true}, read = {0};
    struct mw_wire_outcome outcome;
    int file;

    (void)state;
    result.extras[MW_EXTRA_REMARKS] =
        (struct mw_text){calloc(1, MW_EXTRA_BYTES_MAX + 1), MW_EXTRA_BYTES_MAX + 1};
    result.inputs =
        (struct mw_text){calloc(1, MW_WIRE_INPUTS_BYTES_MAX + 1), MW_WIRE_INPUTS_BYTES_MAX + 1};
    file = answer_make(0, &result);
    assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), 0);
    assert_true(read.ok);
    assert_null(read.extras[MW_EXTRA_REMARKS].data);
    assert_null(read.inputs.data);
    mw_compile_result_fini(&read);
    mw_compile_result_fini(&result);
    close(file);
}

/* Breaks when a reason of a later version is taken for none, and the result stored. */
static void answer_keeps_an_unknown_reason_not_to_store(void **state)
{
    struct mw_compile_result result = {.ok = true, .not_storable = "a new reason"}, read = {0};
    struct mw_wire_outcome outcome;
    int file = answer_make(0, &result);

    (void)state;
    assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), 0);
    assert_non_null(read.not_storable);
    mw_compile_result_fini(&read);
    close(file);
}

/* Breaks when an artifact over the bound is sent, or its size not told. */
static void answer_leaves_out_what_is_too_large(void **state)
{
    struct mw_compile_result result = {.ok = true, .artifact_bytes = OUTPUT_BYTES + 1}, read = {0};
    struct mw_wire_outcome outcome = {0};
    int file;

    (void)state;
    result.artifact = calloc(1, result.artifact_bytes);
    file = answer_make(0, &result);
    assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), 0);
    assert_int_equal(outcome.rc, -E2BIG);
    assert_int_equal(outcome.artifact_bytes, OUTPUT_BYTES + 1);
    assert_null(read.artifact);
    assert_false(read.ok);
    mw_compile_result_fini(&read);
    mw_compile_result_fini(&result);
    close(file);
}

/* Breaks when diagnostics without end make an answer fail, or hide the one error. */
static void answer_bounds_diagnostics(void **state)
{
    char text[MW_DIAGNOSTIC_TEXT_BYTES_MAX + 1];
    struct mw_diagnostic large = {.severity = MW_SEVERITY_WARNING,
                                  .file = text,
                                  .message = text,
                                  .category = text,
                                  .flag = text,
                                  .line_text = text};
    struct mw_compile_result result = {0}, read = {0};
    struct mw_wire_outcome outcome = {0};
    int file;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (unsigned i = 0; i < MW_DIAGNOSTICS_MAX - 1; i++)
        assert_int_equal(mw_diagnostics_add(&result.diagnostics, &large), 0);
    assert_int_equal(mw_diagnostics_add(&result.diagnostics, &error), 0);
    file = answer_make(0, &result);
    assert_int_equal(mw_wire_answer_read(file, &bounds, &read, &outcome), 0);
    assert_in_range(read.diagnostics.count, 1, MW_DIAGNOSTICS_MAX - 1);
    assert_int_equal(read.diagnostics.count + read.diagnostics.dropped, MW_DIAGNOSTICS_MAX);
    assert_int_equal(read.diagnostics.errors, 1);
    mw_compile_result_fini(&read);
    mw_compile_result_fini(&result);
    close(file);
}

/* Breaks when a worker could make its answer's file larger than the host allows, or cut it off
 * under the host's eyes. */
static void answer_file_keeps_its_size(void **state)
{
    int file = mw_wire_answer_make(&bounds);
    struct stat found;

    (void)state;
    assert_int_equal(fstat(file, &found), 0);
    assert_int_equal(ftruncate(file, found.st_size + 1), -1);
    assert_int_equal(ftruncate(file, 0), -1);
    assert_int_equal(pwrite(file, "x", 1, found.st_size), -1);
    close(file);
}

/* What holds for every answer that the reader takes, whoever wrote it. */
static void result_check(const struct mw_compile_result *result)
{
    assert_true(result->artifact_bytes <= OUTPUT_BYTES);
    assert_true(result->artifact_bytes == 0 || result->artifact);
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        assert_true(result->extras[i].bytes == 0 || EXTRAS & 1u << i);
    assert_true(result->diagnostics.count <= MW_DIAGNOSTICS_MAX);
    for (size_t i = 0; i < result->diagnostics.count; i++) {
        const struct mw_diagnostic *item = &result->diagnostics.items[i];

        assert_true((unsigned)item->severity <= MW_SEVERITY_FATAL);
        assert_true(item->note_count <= MW_DIAGNOSTIC_NOTES_MAX);
        assert_true(item->fixit_count <= MW_DIAGNOSTIC_FIXITS_MAX);
        assert_true(strlen(item->message) <= MW_DIAGNOSTIC_TEXT_BYTES_MAX);
        assert_non_null(item->file);
    }
}

/* Breaks when a hostile answer makes the host read beyond, crash, leak, or take what is none. */
static void answer_reader_withstands_mutations(void **state)
{
    struct mw_compile_result result = result_make();
    int file = answer_make(0, &result);
    uint8_t good[1024], bytes[sizeof(good)];
    size_t taken = 0;

    (void)state;
    assert_int_equal(pread(file, good, sizeof(good), 0), sizeof(good));
    for (unsigned i = 0; i < MUTATIONS; i++) {
        struct mw_compile_result read = {0};
        struct mw_wire_outcome outcome;
        int rc;

        memcpy(bytes, good, sizeof(good));
        mutate(bytes, i % 4 == 0 ? MW_WIRE_HEAD_BYTES : 440);
        assert_int_equal(pwrite(file, bytes, sizeof(bytes), 0), sizeof(bytes));
        rc = mw_wire_answer_read(file, &bounds, &read, &outcome);
        assert_true(rc == 0 || rc == -EPROTO);
        taken += rc == 0;
        result_check(&read);
        mw_compile_result_fini(&read);
    }
    assert_in_range(taken, 1, MUTATIONS - 1);
    mw_compile_result_fini(&result);
    close(file);
}

/* Breaks when a message with another size, magic or number of descriptors is taken, or when the
 * descriptors of a refused one stay open. */
static void message_of_another_shape_is_refused(void **state)
{
    struct mw_message message = {.magic = MW_WIRE_MAGIC, .kind = MW_MESSAGE_READY, .number = 5};
    struct mw_message read;
    int pair[2], got[2], before, after;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    before = dup(0);
    close(before);
    assert_int_equal(mw_message_send(pair[0], &message, NULL, 0), 0);
    assert_int_equal(mw_message_receive(pair[1], &read, NULL, 0, 0), 1);
    assert_int_equal(read.number, 5);
    assert_int_equal(mw_message_receive(pair[1], &read, NULL, 0, MSG_DONTWAIT), -EAGAIN);
    assert_int_equal(mw_message_send(pair[0], &message, (int[]){0, 0, 0}, 3), 0);
    assert_int_equal(mw_message_receive(pair[1], &read, got, 1, 0), 1); /* one taken, two closed */
    close(got[0]);
    assert_int_equal(mw_message_send(pair[0], &message, (int[]){0}, 1), 0);
    assert_int_equal(mw_message_receive(pair[1], &read, got, 2, 0), -EPROTO);
    message.magic = 0;
    assert_int_equal(mw_message_send(pair[0], &message, NULL, 0), 0);
    assert_int_equal(mw_message_receive(pair[1], &read, NULL, 0, 0), -EPROTO);
    assert_int_equal(send(pair[0], "x", 1, 0), 1);
    assert_int_equal(mw_message_receive(pair[1], &read, NULL, 0, 0), -EPROTO);
    close(pair[0]);
    assert_int_equal(mw_message_receive(pair[1], &read, NULL, 0, 0), 0);
    after = dup(0);
    assert_int_equal(after, before < pair[0] ? before : pair[0]); /* lowest free: nothing leaked */
    close(after);
    close(pair[1]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_comes_out_as_it_went_in),
        cmocka_unit_test(request_is_sealed),
        cmocka_unit_test(request_must_be_whole),
        cmocka_unit_test(request_reader_withstands_mutations),
        cmocka_unit_test(request_tells_of_a_preamble_that_is_a_file),
        cmocka_unit_test(file_is_mapped_only_when_it_is_sealed_and_of_its_size),
        cmocka_unit_test(answer_comes_out_as_it_went_in),
        cmocka_unit_test(answer_keeps_an_unknown_reason_not_to_store),
        cmocka_unit_test(answer_leaves_out_what_is_too_large),
        cmocka_unit_test(answer_bounds_diagnostics),
        cmocka_unit_test(answer_with_unsound_inputs_is_refused),
        cmocka_unit_test(answer_leaves_out_extras_and_inputs_that_are_too_large),
        cmocka_unit_test(answer_file_keeps_its_size),
        cmocka_unit_test(answer_reader_withstands_mutations),
        cmocka_unit_test(message_of_another_shape_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

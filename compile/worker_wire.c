/* worker_wire.c - see worker_wire.h.
 *
 * Numbers go in little-endian order, texts with their length in front and a NUL behind, so that a
 * reader can point to them. Whatever is written is written twice: once to nowhere, which tells how
 * long it is, and once to its place. */
#include "worker_wire.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REQUEST_MAGIC         UINT32_C(0x3152574d)
#define BEGUN_MAGIC           UINT32_C(0x3142574d)
#define ANSWER_MAGIC          UINT32_C(0x3141574d)
#define FINGERPRINT_BYTES_MAX (MW_REQUEST_ARGS_MAX * (MW_REQUEST_ARG_BYTES_MAX + 8u))
#define COUNT(array)          (sizeof(array) / sizeof((array)[0]))

/* Where bytes go: nowhere as long as `at` is NULL. */
struct writer {
    uint8_t *at;
    uint64_t bytes;
};

/* Where bytes come from. Once something is wrong, all that follows is zero. */
struct reader {
    const uint8_t *at;
    size_t left;
    bool wrong;
};

/* Why a result must not be stored: emit.h gives static texts, which cannot cross as pointers. The
 * last stands for any other. */
static const char *const not_storable_texts[] = {
    NULL,
    "inline assembly may read files",
    "__DATE__ or __TIME__ was used",
    "the compiler broke down",
    "it depends on more than the key knows",
};

static void request_put(struct writer *out, const struct mw_compile_request *request,
                        const char *fingerprint, uint64_t output_bytes);
static void files_take(struct reader *in, struct mw_wire_request *out);
static void args_take(struct reader *in, struct mw_wire_request *out);
static void diagnostics_put(struct writer *out, const struct mw_diagnostics *list,
                            uint32_t *dropped);
static int diagnostics_take(struct reader *in, uint32_t dropped, struct mw_diagnostics *list);

/* ---- messages ---- */

static size_t message_bytes(uint32_t kind)
{
    return kind == MW_MESSAGE_HELLO ? sizeof(struct mw_message)
                                    : offsetof(struct mw_message, identity);
}

int mw_message_send(int socket, const struct mw_message *message, const int *descriptors,
                    size_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MW_WIRE_DESCRIPTORS_MAX * sizeof(int))] = {0};
    struct iovec part = {(void *)message, message_bytes(message->kind)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    assert(count <= MW_WIRE_DESCRIPTORS_MAX);
    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *CMSG_FIRSTHDR(&header) = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                                   .cmsg_type = SCM_RIGHTS,
                                                   .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), descriptors, count * sizeof(int));
    }
    while (sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return errno == ECONNRESET ? -EPIPE : -errno;
    return 0;
}

/* Take the descriptors that came along; those for which there is no room are closed. */
static size_t descriptors_take(struct msghdr *header, int *descriptors, size_t room)
{
    size_t taken = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int descriptor;

            memcpy(&descriptor, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
            if (taken < room)
                descriptors[taken++] = descriptor;
            else
                close(descriptor);
        }
    }
    return taken;
}

int mw_message_receive(int socket, struct mw_message *message, int *descriptors, size_t count,
                       int flags)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MW_WIRE_DESCRIPTORS_MAX * sizeof(int))];
    struct iovec part = {message, sizeof(*message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    size_t taken;
    ssize_t got;

    memset(message, 0, sizeof(*message));
    do
        got = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == ECONNRESET ? 0 : -errno;
    taken = descriptors_take(&header, descriptors, count);
    message->identity[sizeof(message->identity) - 1] = '\0';
    message->scheduling.name[MW_WIRE_NAME_BYTES - 1] = '\0';
    if (got > 0 && message->magic == MW_WIRE_MAGIC && (size_t)got == message_bytes(message->kind) &&
        (taken == 0 || taken == count) && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 1;
    for (size_t i = 0; i < taken; i++)
        close(descriptors[i]);
    return got == 0 ? 0 : -EPROTO;
}

/* ---- bytes ---- */

static void put(struct writer *out, const void *bytes, size_t count)
{
    if (out->at && count > 0)
        memcpy(out->at + out->bytes, bytes, count);
    out->bytes += count;
}

static void put_number(struct writer *out, uint64_t number, unsigned bytes)
{
    uint8_t text[8];

    for (unsigned i = 0; i < bytes; i++)
        text[i] = (uint8_t)(number >> (8 * i));
    put(out, text, bytes);
}

static void put_u32(struct writer *out, uint32_t number)
{
    put_number(out, number, 4);
}

static void put_u64(struct writer *out, uint64_t number)
{
    put_number(out, number, 8);
}

static void put_text(struct writer *out, const char *text)
{
    size_t bytes = text ? strlen(text) : 0;

    put_u32(out, (uint32_t)bytes);
    put(out, text, bytes);
    put(out, "", 1);
}

static const uint8_t *take(struct reader *in, size_t count)
{
    const uint8_t *at = in->at;

    if (in->wrong || count > in->left) {
        in->wrong = true;
        return NULL;
    }
    in->at += count;
    in->left -= count;
    return at;
}

static uint64_t take_number(struct reader *in, unsigned bytes)
{
    const uint8_t *at = take(in, bytes);
    uint64_t number = 0;

    for (unsigned i = 0; at && i < bytes; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

static uint32_t take_u32(struct reader *in)
{
    return (uint32_t)take_number(in, 4);
}

static uint64_t take_u64(struct reader *in)
{
    return take_number(in, 8);
}

/* A number of at most `max`. */
static uint32_t take_count(struct reader *in, uint32_t max)
{
    uint32_t count = take_u32(in);

    if (count > max)
        in->wrong = true;
    return in->wrong ? 0 : count;
}

/* Never NULL. */
static const char *take_text(struct reader *in, size_t bytes_max)
{
    size_t bytes = take_count(in, (uint32_t)bytes_max);
    const uint8_t *text = take(in, bytes + 1);

    if (!text || text[bytes] != '\0' || memchr(text, '\0', bytes)) {
        in->wrong = true;
        return "";
    }
    return (const char *)text;
}

/* ---- request ---- */

/* A memory file of `bytes` bytes that keeps this size for ever. */
static int file_make(const char *name, uint64_t bytes)
{
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error;

    if (file < 0)
        return -errno;
    if (ftruncate(file, (off_t)bytes) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return file;
    error = -errno;
    close(file);
    return error;
}

int mw_wire_request_make(const struct mw_compile_request *request, const char *fingerprint,
                         uint64_t output_bytes)
{
    struct writer out = {0};
    int file, error = 0;
    uint8_t *bytes;

    request_put(&out, request, fingerprint, output_bytes);
    file = file_make("millwright-request", out.bytes);
    if (file < 0)
        return file;
    bytes = mmap(NULL, out.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        error = -errno;
    } else {
        out = (struct writer){.at = bytes};
        request_put(&out, request, fingerprint, output_bytes);
        (void)munmap(bytes, out.bytes);
        if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0)
            error = -errno;
    }
    if (error == 0)
        return file;
    close(file);
    return error;
}

static void request_put(struct writer *out, const struct mw_compile_request *request,
                        const char *fingerprint, uint64_t output_bytes)
{
    put_u32(out, REQUEST_MAGIC);
    put_u32(out, request->language);
    put_u32(out, request->emit);
    put_u64(out, output_bytes);
    put_text(out, request->directory);
    put_text(out, request->main);
    put_text(out, fingerprint);
    put_u32(out, (uint32_t)request->arg_count);
    for (size_t i = 0; i < request->arg_count; i++)
        put_text(out, request->args[i]);
    put_u32(out, (uint32_t)request->file_count);
    for (size_t i = 0; i < request->file_count; i++) {
        put_text(out, request->files[i].name);
        put_u64(out, request->files[i].bytes);
        put(out, request->files[i].data, request->files[i].bytes);
    }
}

int mw_wire_request_read(struct mw_wire_request *out, const void *bytes, size_t count)
{
    struct reader in = {.at = bytes, .left = count};
    struct mw_compile_request *request = &out->request;

    *out = (struct mw_wire_request){0};
    if (take_u32(&in) != REQUEST_MAGIC)
        in.wrong = true;
    request->language = (enum mw_language)take_count(&in, MW_LANGUAGE_CXX);
    request->emit = (enum mw_emit_kind)take_count(&in, MW_EMIT_KINDS - 1);
    out->output_bytes = take_u64(&in);
    request->directory = take_text(&in, MW_REQUEST_DIRECTORY_BYTES_MAX);
    request->main = take_text(&in, MW_REQUEST_NAME_BYTES_MAX);
    out->fingerprint = take_text(&in, FINGERPRINT_BYTES_MAX);
    args_take(&in, out);
    files_take(&in, out);
    if (in.wrong || in.left > 0)
        return -EPROTO;
    if (!out->args || !out->files)
        return -ENOMEM;
    request->args = out->args;
    request->files = out->files;
    return 0;
}

void mw_wire_request_fini(struct mw_wire_request *request)
{
    free(request->files);
    free(request->args);
    *request = (struct mw_wire_request){0};
}

static void args_take(struct reader *in, struct mw_wire_request *out)
{
    uint32_t count = take_count(in, MW_REQUEST_ARGS_MAX);

    out->args = calloc(count + 1, sizeof(out->args[0]));
    for (uint32_t i = 0; out->args && i < count; i++)
        out->args[i] = take_text(in, MW_REQUEST_ARG_BYTES_MAX);
    out->request.arg_count = count;
}

static void files_take(struct reader *in, struct mw_wire_request *out)
{
    uint32_t count = take_count(in, MW_REQUEST_FILES_MAX);

    out->files = calloc(count + 1, sizeof(out->files[0]));
    for (uint32_t i = 0; out->files && i < count; i++) {
        uint64_t bytes;

        out->files[i].name = take_text(in, MW_REQUEST_NAME_BYTES_MAX);
        bytes = take_u64(in);
        out->files[i].data = (const char *)take(in, bytes);
        out->files[i].bytes = bytes;
    }
    out->request.file_count = count;
}

/* ---- answer: a head, diagnostics, artifact ---- */

struct head {
    int32_t rc;
    uint32_t ok;
    uint32_t not_storable; /* which of not_storable_texts */
    uint32_t dropped;      /* diagnostics */
    uint64_t diagnostics_bytes;
    uint64_t artifact_bytes; /* that follow; in case of -E2BIG, that would have */
};

int mw_wire_answer_make(uint64_t output_bytes)
{
    return file_make("millwright-answer",
                     MW_WIRE_HEAD_BYTES + MW_WIRE_DIAGNOSTICS_BYTES_MAX + output_bytes);
}

int mw_wire_answer_begin(int file)
{
    uint32_t magic = BEGUN_MAGIC;

    return pwrite(file, &magic, sizeof(magic), 0) == sizeof(magic) ? 0 : -EIO;
}

bool mw_wire_answer_is_begun(int file)
{
    uint32_t magic = 0;

    return pread(file, &magic, sizeof(magic), 0) == sizeof(magic) && magic != 0;
}

static uint32_t not_storable_index(const char *text)
{
    uint32_t index = 1;

    if (!text)
        return 0;
    while (index < COUNT(not_storable_texts) - 1 && strcmp(text, not_storable_texts[index]) != 0)
        index++;
    return index;
}

static void answer_put(struct writer *out, const struct head *head,
                       const struct mw_compile_result *result)
{
    uint32_t dropped = 0; /* counted before */

    put_u32(out, ANSWER_MAGIC);
    put_u32(out, (uint32_t)head->rc);
    put_u32(out, head->ok);
    put_u32(out, head->not_storable);
    put_u32(out, head->dropped);
    put_u32(out, 0);
    put_u64(out, head->diagnostics_bytes);
    put_u64(out, head->artifact_bytes);
    assert(out->bytes == MW_WIRE_HEAD_BYTES);
    diagnostics_put(out, &result->diagnostics, &dropped);
    if (head->rc == 0)
        put(out, result->artifact, result->artifact_bytes);
}

int mw_wire_answer_write(int file, uint64_t output_bytes, int rc,
                         const struct mw_compile_result *result)
{
    struct head head = {.rc = rc,
                        .ok = rc == 0 && result->ok,
                        .not_storable = not_storable_index(result->not_storable),
                        .artifact_bytes = result->artifact_bytes};
    struct writer out = {0};
    uint8_t *bytes;

    if (rc == 0 && result->artifact_bytes > output_bytes) {
        head.rc = -E2BIG;
        head.ok = 0;
    }
    head.dropped = (uint32_t)result->diagnostics.dropped;
    diagnostics_put(&out, &result->diagnostics, &head.dropped);
    head.diagnostics_bytes = out.bytes;
    out.bytes += MW_WIRE_HEAD_BYTES + (head.rc == 0 ? result->artifact_bytes : 0);
    bytes = mmap(NULL, out.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    out = (struct writer){.at = bytes};
    answer_put(&out, &head, result);
    (void)munmap(bytes, out.bytes);
    return 0;
}

/* Read all of `count` bytes. Returns 0 or -EPROTO. */
static int file_read(int file, void *bytes, size_t count, uint64_t offset)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = pread(file, (char *)bytes + done, count - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -EPROTO;
        done += (size_t)got;
    }
    return 0;
}

static int head_read(int file, uint64_t output_bytes, struct head *head)
{
    uint8_t bytes[MW_WIRE_HEAD_BYTES];
    struct reader in = {.at = bytes, .left = sizeof(bytes)};

    if (file_read(file, bytes, sizeof(bytes), 0) || take_u32(&in) != ANSWER_MAGIC)
        return -EPROTO;
    head->rc = (int32_t)take_u32(&in);
    head->ok = take_count(&in, 1);
    head->not_storable = take_count(&in, COUNT(not_storable_texts) - 1);
    head->dropped = take_u32(&in);
    (void)take_u32(&in);
    head->diagnostics_bytes = take_u64(&in);
    head->artifact_bytes = take_u64(&in);
    if (in.wrong || head->rc > 0 || (head->rc < 0 && head->ok) ||
        head->diagnostics_bytes > MW_WIRE_DIAGNOSTICS_BYTES_MAX ||
        (head->rc == 0 && head->artifact_bytes > output_bytes))
        return -EPROTO;
    return 0;
}

static int diagnostics_read(int file, const struct head *head, struct mw_diagnostics *list)
{
    struct reader in = {.left = head->diagnostics_bytes};
    uint8_t *bytes = malloc(head->diagnostics_bytes + 1);
    int rc;

    if (!bytes)
        return -ENOMEM;
    in.at = bytes;
    rc = file_read(file, bytes, in.left, MW_WIRE_HEAD_BYTES);
    if (rc == 0)
        rc = diagnostics_take(&in, head->dropped, list);
    free(bytes);
    return rc;
}

int mw_wire_answer_read(int file, uint64_t output_bytes, struct mw_compile_result *result,
                        struct mw_wire_outcome *outcome)
{
    struct head head;
    int rc = head_read(file, output_bytes, &head);

    if (rc)
        return rc;
    *outcome = (struct mw_wire_outcome){head.rc, head.artifact_bytes};
    rc = diagnostics_read(file, &head, &result->diagnostics);
    if (rc || head.rc)
        return rc;
    result->not_storable = not_storable_texts[head.not_storable];
    if (head.artifact_bytes > 0) {
        result->artifact = malloc(head.artifact_bytes);
        if (!result->artifact)
            return -ENOMEM;
        rc = file_read(file, result->artifact, head.artifact_bytes,
                       MW_WIRE_HEAD_BYTES + head.diagnostics_bytes);
        result->artifact_bytes = head.artifact_bytes;
    }
    result->ok = rc == 0 && head.ok;
    return rc;
}

/* ---- diagnostics: each entry with the notes below it ---- */

static void place_put(struct writer *out, const struct mw_place *place)
{
    put_u32(out, place->line);
    put_u32(out, place->column);
    put_u32(out, place->byte_offset);
}

static struct mw_place place_take(struct reader *in)
{
    struct mw_place place;

    place.line = take_u32(in);
    place.column = take_u32(in);
    place.byte_offset = take_u32(in);
    return place;
}

static void diagnostic_put(struct writer *out, const struct mw_diagnostic *item)
{
    put_u32(out, item->severity);
    put_text(out, item->file);
    place_put(out, &item->at);
    place_put(out, &item->begin);
    place_put(out, &item->end);
    put_text(out, item->message);
    put_text(out, item->flag);
    put_text(out, item->category);
    put_text(out, item->line_text);
    put_u32(out, (uint32_t)item->fixit_count);
    for (size_t i = 0; i < item->fixit_count; i++) {
        put_text(out, item->fixits[i].file);
        place_put(out, &item->fixits[i].begin);
        place_put(out, &item->fixits[i].end);
        put_text(out, item->fixits[i].text);
    }
    put_u32(out, (uint32_t)item->note_count);
    for (size_t i = 0; i < item->note_count; i++)
        diagnostic_put(out, &item->notes[i]);
}

/* What finds no room is left out. Half of the room is for errors only: a failure is explained. */
static void diagnostics_put(struct writer *out, const struct mw_diagnostics *list,
                            uint32_t *dropped)
{
    uint64_t begin = out->bytes;

    for (size_t i = 0; i < list->count; i++) {
        const struct mw_diagnostic *item = &list->items[i];
        bool is_error = item->severity >= MW_SEVERITY_ERROR;
        uint64_t room = MW_WIRE_DIAGNOSTICS_BYTES_MAX / (is_error ? 1 : 2);
        struct writer size = {0};

        diagnostic_put(&size, item);
        if (out->bytes - begin + size.bytes > room)
            *dropped += 1 + (uint32_t)item->note_count;
        else
            diagnostic_put(out, item);
    }
}

/* One entry without its notes, the texts in the reader's bytes. Returns how many notes follow. */
static uint32_t diagnostic_take(struct reader *in, struct mw_diagnostic *item,
                                struct mw_fixit fixits[MW_DIAGNOSTIC_FIXITS_MAX])
{
    *item = (struct mw_diagnostic){
        .severity = (enum mw_severity)take_count(in, MW_SEVERITY_FATAL),
        .file = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX),
    };
    item->at = place_take(in);
    item->begin = place_take(in);
    item->end = place_take(in);
    item->message = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    item->flag = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    item->category = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    item->line_text = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    item->fixit_count = take_count(in, MW_DIAGNOSTIC_FIXITS_MAX);
    item->fixits = fixits;
    for (size_t i = 0; i < item->fixit_count; i++) {
        fixits[i].file = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
        fixits[i].begin = place_take(in);
        fixits[i].end = place_take(in);
        fixits[i].text = take_text(in, MW_DIAGNOSTIC_TEXT_BYTES_MAX);
    }
    return take_count(in, MW_DIAGNOSTIC_NOTES_MAX);
}

/* The list's own rules hold for what came from outside too: each entry goes through its add, and
 * where that would put it elsewhere than the worker said, the worker is wrong. */
static int diagnostics_take(struct reader *in, uint32_t dropped, struct mw_diagnostics *list)
{
    struct mw_fixit fixits[MW_DIAGNOSTIC_FIXITS_MAX];
    struct mw_diagnostic item;
    int rc = 0;

    for (uint32_t at = 0; rc == 0 && in->left > 0; at++) {
        uint32_t notes = diagnostic_take(in, &item, fixits);

        if (in->wrong || at >= MW_DIAGNOSTICS_MAX || (item.severity == MW_SEVERITY_NOTE && at > 0))
            return -EPROTO;
        rc = mw_diagnostics_add(list, &item);
        for (uint32_t i = 0; rc == 0 && i < notes; i++) {
            uint32_t below = diagnostic_take(in, &item, fixits);

            if (in->wrong || below > 0 || item.severity != MW_SEVERITY_NOTE)
                return -EPROTO;
            rc = mw_diagnostics_add(list, &item);
        }
    }
    list->dropped += dropped;
    return rc;
}

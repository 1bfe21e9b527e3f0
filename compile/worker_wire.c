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

#define REQUEST_MAGIC UINT32_C(0x3152574d)
#define BEGUN_MAGIC   UINT32_C(0x3142574d)
#define ANSWER_MAGIC  UINT32_C(0x3141574d)
#define FINGERPRINT_BYTES_MAX                                                                      \
    ((MW_REQUEST_ARGS_MAX + MW_REQUEST_PACKAGE_ARGS_MAX) * (MW_REQUEST_ARG_BYTES_MAX + 8u))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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

static void request_put(struct writer *out, const void *what);
static void files_take(struct reader *in, struct mw_wire_request *out);
static void args_put(struct writer *out, const char *const *args, size_t arg_count);
static const char **args_take(struct reader *in, uint32_t max, size_t *arg_count);
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

/* Receive one with `min` to `max` descriptors when it has any; *count gets how many. */
static int receive(int socket, struct mw_message *message, int *descriptors, size_t min, size_t max,
                   size_t *count, int flags)
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
    taken = descriptors_take(&header, descriptors, max);
    message->identity[sizeof(message->identity) - 1] = '\0';
    message->scheduling.name[MW_WIRE_NAME_BYTES - 1] = '\0';
    if (got > 0 && message->magic == MW_WIRE_MAGIC && (size_t)got == message_bytes(message->kind) &&
        (taken == 0 || taken >= min) && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        *count = taken;
        return 1;
    }
    for (size_t i = 0; i < taken; i++)
        close(descriptors[i]);
    return got == 0 ? 0 : -EPROTO;
}

int mw_message_receive(int socket, struct mw_message *message, int *descriptors, size_t count,
                       int flags)
{
    size_t taken;

    return receive(socket, message, descriptors, count, count, &taken, flags);
}

int mw_message_receive_request(int socket, struct mw_message *message,
                               int descriptors[MW_WIRE_DESCRIPTORS_MAX], size_t *count, int flags)
{
    return receive(socket, message, descriptors, 2, MW_WIRE_DESCRIPTORS_MAX, count, flags);
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

/* The same of eight bytes. */
static uint64_t take_size(struct reader *in, uint64_t max)
{
    uint64_t size = take_u64(in);

    if (size > max)
        in->wrong = true;
    return in->wrong ? 0 : size;
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

/* Write into a file that nobody has yet, and let nobody write into it again. */
static int file_fill(int file, uint64_t count, void (*fill)(struct writer *out, const void *what),
                     const void *what)
{
    uint8_t *bytes = mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct writer out = {.at = bytes};

    if (bytes == MAP_FAILED)
        return -errno;
    fill(&out, what);
    (void)munmap(bytes, count);
    return fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0 ? -errno : 0;
}

/* A sealed memory file of what `fill` writes. */
static int sealed_make(const char *name, void (*fill)(struct writer *out, const void *what),
                       const void *what)
{
    struct writer size = {0};
    int file, error;

    fill(&size, what);
    file = file_make(name, size.bytes);
    if (file < 0)
        return file;
    error = file_fill(file, size.bytes, fill, what);
    if (error == 0)
        return file;
    close(file);
    return error;
}

struct span {
    const void *bytes;
    size_t count;
};

static void span_put(struct writer *out, const void *what)
{
    const struct span *span = what;

    put(out, span->bytes, span->count);
}

int mw_wire_file_make(const char *name, const void *bytes, size_t count)
{
    return sealed_make(name, span_put, &(struct span){bytes, count});
}

const void *mw_wire_file_map(int file, size_t count)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat found;
    const void *bytes;

    if (count == 0 || fstat(file, &found) < 0 || (uint64_t)found.st_size != count ||
        (fcntl(file, F_GET_SEALS) & seals) != seals)
        return NULL;
    bytes = mmap(NULL, count, PROT_READ, MAP_SHARED, file, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

/* What a request's file is made of. */
struct request_parts {
    const struct mw_compile_request *request;
    const char *fingerprint;
    uint64_t output_bytes;
};

int mw_wire_request_make(const struct mw_compile_request *request, const char *fingerprint,
                         uint64_t output_bytes)
{
    return sealed_make("millwright-request", request_put,
                       &(struct request_parts){request, fingerprint, output_bytes});
}

static void request_put(struct writer *out, const void *what)
{
    const struct request_parts *parts = what;
    const struct mw_compile_request *request = parts->request;
    const struct mw_preamble_use *preamble = request->preamble;
    bool has_preamble = preamble && preamble->file >= 0;

    put_u32(out, REQUEST_MAGIC);
    put_u32(out, request->language);
    put_u32(out, request->emit);
    put_u32(out, request->extras);
    put_u64(out, parts->output_bytes);
    put_u64(out, has_preamble ? preamble->count : 0);
    put_u64(out, has_preamble ? preamble->covers_bytes : 0);
    put_text(out, request->directory);
    put_text(out, request->main);
    put_text(out, parts->fingerprint);
    args_put(out, request->package_args, request->package_arg_count);
    args_put(out, request->args, request->arg_count);
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
    request->emit = (enum mw_emit_kind)take_count(&in, MW_EMIT_PREAMBLE);
    request->extras = take_count(&in, (1u << MW_EXTRAS) - 1);
    out->bounds.extras = request->extras;
    out->bounds.output_bytes = take_u64(&in);
    out->preamble.file = -1;
    out->preamble.count = take_size(&in, MW_WIRE_PREAMBLE_BYTES_MAX);
    out->preamble.covers_bytes = take_size(&in, MW_REQUEST_SOURCE_BYTES_MAX);
    request->directory = take_text(&in, MW_REQUEST_DIRECTORY_BYTES_MAX);
    request->main = take_text(&in, MW_REQUEST_NAME_BYTES_MAX);
    out->fingerprint = take_text(&in, FINGERPRINT_BYTES_MAX);
    out->package_args =
        args_take(&in, MW_REQUEST_PACKAGE_ARGS_MAX, &out->request.package_arg_count);
    out->args = args_take(&in, MW_REQUEST_ARGS_MAX, &out->request.arg_count);
    files_take(&in, out);
    if (in.wrong || in.left > 0)
        return -EPROTO;
    if (!out->package_args || !out->args || !out->files)
        return -ENOMEM;
    request->package_args = out->package_args;
    request->args = out->args;
    request->files = out->files;
    return 0;
}

void mw_wire_request_fini(struct mw_wire_request *request)
{
    free(request->files);
    free(request->args);
    free(request->package_args);
    *request = (struct mw_wire_request){0};
}

static void args_put(struct writer *out, const char *const *args, size_t arg_count)
{
    put_u32(out, (uint32_t)arg_count);
    for (size_t i = 0; i < arg_count; i++)
        put_text(out, args[i]);
}

/* NULL when memory is out. */
static const char **args_take(struct reader *in, uint32_t max, size_t *arg_count)
{
    uint32_t count = take_count(in, max);
    const char **args = calloc(count + 1, sizeof(args[0]));

    for (uint32_t i = 0; args && i < count; i++)
        args[i] = take_text(in, MW_REQUEST_ARG_BYTES_MAX);
    *arg_count = count;
    return args;
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

/* ---- answer: a head, diagnostics, extras, inputs, artifact ---- */

/* Of each part the bytes that follow; in case of -E2BIG those of the artifact that would have. */
struct head {
    int32_t rc;
    uint32_t ok;
    uint32_t not_storable; /* which of not_storable_texts */
    uint32_t dropped;      /* diagnostics */
    uint64_t diagnostics_bytes;
    uint64_t extra_bytes[MW_EXTRAS];
    uint64_t inputs_bytes;
    uint64_t artifact_bytes;
};

uint64_t mw_wire_answer_bytes(const struct mw_wire_bounds *bounds)
{
    uint64_t bytes = MW_WIRE_HEAD_BYTES + MW_WIRE_DIAGNOSTICS_BYTES_MAX + MW_WIRE_INPUTS_BYTES_MAX +
                     bounds->output_bytes;

    for (unsigned i = 0; i < MW_EXTRAS; i++)
        bytes += bounds->extras & 1u << i ? MW_EXTRA_BYTES_MAX : 0;
    return bytes;
}

int mw_wire_answer_make(const struct mw_wire_bounds *bounds)
{
    return file_make("millwright-answer", mw_wire_answer_bytes(bounds));
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

/* What goes before the artifact. */
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
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        put_u64(out, head->extra_bytes[i]);
    put_u64(out, head->inputs_bytes);
    put_u64(out, head->artifact_bytes);
    assert(out->bytes == MW_WIRE_HEAD_BYTES);
    diagnostics_put(out, &result->diagnostics, &dropped);
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        put(out, result->extras[i].data, head->extra_bytes[i]);
    put(out, result->inputs.data, head->inputs_bytes);
}

static struct head head_of(const struct mw_wire_bounds *bounds, int rc,
                           const struct mw_compile_result *result)
{
    struct head head = {.rc = rc,
                        .ok = rc == 0 && result->ok,
                        .not_storable = not_storable_index(result->not_storable),
                        .dropped = (uint32_t)result->diagnostics.dropped,
                        .artifact_bytes = result->artifact_bytes};
    struct writer size = {0};

    if (rc == 0 && result->artifact_bytes > bounds->output_bytes) {
        head.rc = -E2BIG;
        head.ok = 0;
    }
    diagnostics_put(&size, &result->diagnostics, &head.dropped);
    head.diagnostics_bytes = size.bytes;
    if (head.rc)
        return head;
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        if (bounds->extras & 1u << i && result->extras[i].bytes <= MW_EXTRA_BYTES_MAX)
            head.extra_bytes[i] = result->extras[i].bytes;
    if (result->inputs.bytes <= MW_WIRE_INPUTS_BYTES_MAX)
        head.inputs_bytes = result->inputs.bytes;
    return head;
}

int mw_wire_answer_write(int file, const struct mw_wire_bounds *bounds, int rc,
                         const struct mw_compile_result *result)
{
    struct head head = head_of(bounds, rc, result);
    uint64_t artifact_bytes = head.rc == 0 ? result->artifact_bytes : 0;
    struct writer out = {0};
    uint8_t *bytes;

    answer_put(&out, &head, result);
    out.bytes += artifact_bytes;
    bytes = mmap(NULL, out.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    out = (struct writer){.at = bytes};
    answer_put(&out, &head, result);
    put(&out, result->artifact, artifact_bytes);
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

static int head_read(int file, const struct mw_wire_bounds *bounds, struct head *head)
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
    head->diagnostics_bytes = take_size(&in, MW_WIRE_DIAGNOSTICS_BYTES_MAX);
    for (unsigned i = 0; i < MW_EXTRAS; i++)
        head->extra_bytes[i] = take_size(&in, bounds->extras & 1u << i ? MW_EXTRA_BYTES_MAX : 0);
    head->inputs_bytes = take_size(&in, MW_WIRE_INPUTS_BYTES_MAX);
    head->artifact_bytes = take_u64(&in);
    if (in.wrong || head->rc > 0 || (head->rc < 0 && head->ok) ||
        (head->rc == 0 && head->artifact_bytes > bounds->output_bytes))
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

/* Read `bytes` bytes at *offset, which moves behind them, and put a NUL there. Of none: NULL. */
static int text_read(int file, uint64_t *offset, uint64_t bytes, struct mw_text *text)
{
    int rc;

    if (bytes == 0)
        return 0;
    text->data = malloc(bytes + 1);
    if (!text->data)
        return -ENOMEM;
    rc = file_read(file, text->data, bytes, *offset);
    text->data[rc == 0 ? bytes : 0] = '\0';
    text->bytes = rc == 0 ? bytes : 0;
    *offset += bytes;
    return rc;
}

/* Whether each entry has a known letter, an absolute path and its NUL. */
static bool inputs_are_sound(const struct mw_text *inputs)
{
    const char *at = inputs->data, *end = at ? at + inputs->bytes : NULL;

    while (at < end) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));

        if (!nul || nul - at < 2 || !memchr("rdal", at[0], 4) || at[1] != '/')
            return false;
        at = nul + 1;
    }
    return true;
}

/* Extras, inputs, artifact. */
static int texts_read(int file, const struct head *head, struct mw_compile_result *result)
{
    uint64_t offset = MW_WIRE_HEAD_BYTES + head->diagnostics_bytes;
    struct mw_text artifact = {0};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < MW_EXTRAS; i++) {
        rc = text_read(file, &offset, head->extra_bytes[i], &result->extras[i]);
        if (rc == 0 && result->extras[i].data &&
            strlen(result->extras[i].data) != result->extras[i].bytes)
            rc = -EPROTO;
    }
    if (rc == 0)
        rc = text_read(file, &offset, head->inputs_bytes, &result->inputs);
    if (rc == 0 && !inputs_are_sound(&result->inputs))
        rc = -EPROTO;
    if (rc == 0)
        rc = text_read(file, &offset, head->artifact_bytes, &artifact);
    result->artifact = artifact.data;
    result->artifact_bytes = artifact.bytes;
    return rc;
}

int mw_wire_answer_read(int file, const struct mw_wire_bounds *bounds,
                        struct mw_compile_result *result, struct mw_wire_outcome *outcome)
{
    struct head head;
    int rc = head_read(file, bounds, &head);

    if (rc)
        return rc;
    *outcome = (struct mw_wire_outcome){head.rc, head.artifact_bytes};
    rc = diagnostics_read(file, &head, &result->diagnostics);
    if (rc || head.rc)
        return rc;
    result->not_storable = not_storable_texts[head.not_storable];
    rc = texts_read(file, &head, result);
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

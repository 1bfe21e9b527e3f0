/* worker_wire.h - what the host, the zygote and the compile workers say to one another, as bytes.
 * Private to compile/.
 *
 * A request is a sealed memory file that the host makes; an answer is a memory file of a fixed size
 * that the host makes and the worker fills. Between them go short messages over sockets that keep
 * their borders. Of all this an answer is hostile: a worker may have been taken over by what it
 * compiled. So each byte of it is read once, into memory of the reader's own, and checked. A
 * request is checked as well, though it comes from a friend.
 *
 * Ownership:  a request that was read points into the bytes it was read from.
 * Threads:    any thread; nothing here waits for anybody.
 * Bounds:     a request: those of request.h. An answer: MW_WIRE_DIAGNOSTICS_BYTES_MAX of
 *             diagnostics, MW_WIRE_INPUTS_BYTES_MAX of inputs, MW_EXTRA_BYTES_MAX of each extra
 *             that was asked for, and what the host allows of output. */
#ifndef MW_COMPILE_WORKER_WIRE_H
#define MW_COMPILE_WORKER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <millwright/emit.h>

#define MW_WIRE_DIAGNOSTICS_BYTES_MAX (UINT64_C(16) << 20)
#define MW_WIRE_INPUTS_BYTES_MAX      (UINT64_C(4) << 20)
#define MW_WIRE_PREAMBLE_BYTES_MAX    (UINT64_C(1) << 30)
#define MW_WIRE_HEAD_BYTES            (48u + 8u * MW_EXTRAS)
#define MW_WIRE_NAME_BYTES            16u
#define MW_WIRE_IDENTITY_BYTES_MAX    2048u
#define MW_WIRE_DESCRIPTORS_MAX       3u
#define MW_WIRE_CONTROL_FD            3 /* where zygote and worker find their socket */
#define MW_WIRE_MAGIC                 UINT32_C(0x314d574d)

/* How a worker ends itself where it cannot answer. */
enum mw_worker_exit {
    MW_WORKER_EXIT_DONE = 0,
    MW_WORKER_EXIT_USAGE = 64,
    MW_WORKER_EXIT_SANDBOX = 81, /* the sandbox could not be entered */
    MW_WORKER_EXIT_MEMORY,       /* its memory limit is reached */
    MW_WORKER_EXIT_REQUEST,      /* what it was handed is none of ours */
    MW_WORKER_EXIT_START         /* no toolchain, or the system has no room */
};

enum mw_message_kind {
    MW_MESSAGE_HELLO = 1, /* zygote to host: `identity` */
    MW_MESSAGE_FORK,      /* host to zygote: one worker, with `scheduling`; `number` is the time in
                             ms that it waits for a request before it warms up, 0: it does at once */
    MW_MESSAGE_WORKER,    /* zygote to host: `number` is its pid; socket, report, pidfd */
    MW_MESSAGE_NO_WORKER, /* zygote to host: `number` is the errno */
    MW_MESSAGE_QUIT,      /* host to zygote */
    MW_MESSAGE_READY,     /* worker to host: `number` is the bytes of data that it began with; with
                             its memory's clear_refs, when it gets several requests */
    MW_MESSAGE_REQUEST,   /* host to worker: `number`, `scheduling`; request, answer, and the
                             preamble if it has one */
    MW_MESSAGE_ANSWER,    /* worker to host: `number` is the request's */
    MW_MESSAGE_WARMING,   /* worker to host: not ready for a moment */
    MW_MESSAGE_PREFIX,    /* host to zygote: a prefix zygote, with `scheduling`, that reads this
                             request's prefix; its socket, the request. It says HELLO as well, when
                             it has: `number` is its pid; its pidfd */
};

/* What a thread's worker takes over from it. */
struct mw_wire_scheduling {
    int32_t policy; /* SCHED_OTHER, SCHED_BATCH or SCHED_IDLE */
    int32_t nice;
    char name[MW_WIRE_NAME_BYTES];
};

struct mw_message {
    uint32_t magic;
    uint32_t kind;
    uint64_t number;
    uint64_t shared_bytes; /* with READY: of its memory, the code that all workers share */
    uint32_t is_last; /* of a fork: the worker gets one request; of a request: no other after it */
    struct mw_wire_scheduling scheduling;
    char identity[MW_WIRE_IDENTITY_BYTES_MAX]; /* of a hello; not sent with others */
};

/* What the zygote reports of a worker that has ended, over that worker's own pipe. */
struct mw_wire_report {
    int32_t status; /* as wait4 gives it */
    uint64_t cpu_ns;
    uint64_t memory_peak_bytes;
};

/* What an answer has room for. */
struct mw_wire_bounds {
    uint64_t output_bytes; /* of the artifact */
    unsigned extras;       /* bits */
};

/* A request as it was read. */
struct mw_wire_request {
    struct mw_compile_request request;
    const char *fingerprint;         /* of the options that the host made of it */
    struct mw_wire_bounds bounds;    /* of its answer */
    struct mw_preamble_use preamble; /* `count` 0: none; what it holds comes as a file beside */
    struct mw_source_file *files;    /* the request's, owned */
    const char **args;               /* the request's, owned */
    const char **package_args;       /* the request's, owned */
};

/* What the worker has to tell beside the bytes. */
struct mw_wire_outcome {
    int rc; /* of the compile */
    uint64_t artifact_bytes;
};

/* Send `message` with `count` descriptors. Returns 0 or a negative errno; -EPIPE: nobody reads. */
int mw_message_send(int socket, const struct mw_message *message, const int *descriptors,
                    size_t count);

/* Receive one with exactly `count` descriptors, close-on-exec, when it has any. `flags` are
 * recvmsg's. Returns 1, 0 (the other side has closed), or a negative errno: -EAGAIN, -EPROTO. */
int mw_message_receive(int socket, struct mw_message *message, int *descriptors, size_t count,
                       int flags);

/* The same for a request: two descriptors or three, *count says which. */
int mw_message_receive_request(int socket, struct mw_message *message,
                               int descriptors[MW_WIRE_DESCRIPTORS_MAX], size_t *count, int flags);

/* Make a sealed memory file of `count` bytes. Returns its descriptor, or a negative errno. */
int mw_wire_file_make(const char *name, const void *bytes, size_t count);

/* Map a sealed memory file for reading. Returns NULL when it is none, or has not `count` bytes. */
const void *mw_wire_file_map(int file, size_t count);

/* Make a sealed memory file of a request. Its preamble is told of where that is a file. Returns its
 * descriptor, or a negative errno. */
int mw_wire_request_make(const struct mw_compile_request *request, const char *fingerprint,
                         uint64_t output_bytes);

/* Read a request. Returns 0, -EPROTO or -ENOMEM. The fini is due whatever it returned. */
int mw_wire_request_read(struct mw_wire_request *out, const void *bytes, size_t count);
void mw_wire_request_fini(struct mw_wire_request *request);

/* Make the file for an answer: empty room for what it may hold, which nobody can make larger or
 * smaller. Returns its descriptor, or a negative errno. */
int mw_wire_answer_make(const struct mw_wire_bounds *bounds);
uint64_t mw_wire_answer_bytes(const struct mw_wire_bounds *bounds);

/* Mark it: from here on a worker that ends has ended over this request. */
int mw_wire_answer_begin(int file);
bool mw_wire_answer_is_begun(int file);

/* Put into it what the compile gave. An artifact over its bound is left out and `rc` becomes
 * -E2BIG; diagnostics over theirs are counted as dropped; extras and inputs over theirs are left
 * out, as if there were none. Returns 0 or a negative errno. */
int mw_wire_answer_write(int file, const struct mw_wire_bounds *bounds, int rc,
                         const struct mw_compile_result *result);

/* Take it out again. `result` is empty before, and the caller's to release whatever is returned.
 * Returns 0, -EPROTO (nonsense) or -ENOMEM. */
int mw_wire_answer_read(int file, const struct mw_wire_bounds *bounds,
                        struct mw_compile_result *result, struct mw_wire_outcome *outcome);

#endif

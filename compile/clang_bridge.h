/* clang_bridge.h - the C face of the one C++ file: clang's code generator has no C API.
 *
 * Private to compile/. No exception leaves it; no C++ type shows in it.
 *
 * Ownership:  a job only points; on_diagnostic's argument lives during the call only; the
 *             artifact is malloc'ed and goes to the caller.
 * Threads:    any thread, many at once, after mw_bridge_init; but one with -masm=intel waits until
 *             no other runs, and then they wait for it.
 * Bounds:     the artifact by the job, each extra and the inputs by MW_EXTRA_BYTES_MAX. */
#ifndef MW_CLANG_BRIDGE_H
#define MW_CLANG_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

#include <millwright/diagnostic.h>
#include <millwright/request.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mw_bridge_job {
    const char *clang_path;
    const char *directory;
    const char *main;
    const struct mw_source_file *files;
    size_t file_count;
    const char *const *args;
    size_t arg_count;
    const char *const *readable_dirs; /* NULL: the whole file system */
    size_t readable_count;
    enum mw_emit_kind emit; /* MW_EMIT_PREAMBLE: the main file is `#include <...>` lines */
    unsigned extras;        /* bits; the line map is not the bridge's */
    /* NULL, or what was made with the same arguments, of one line for each #include in the bytes
     * that it covers. Not used where it would show: with -g, extras, preprocessed text, trees. */
    const struct mw_preamble_use *preamble;
    uint64_t artifact_bytes_max;
    int (*on_diagnostic)(void *user, const struct mw_diagnostic *diagnostic);
    void *user;
    int (*cancelled)(void *user); /* NULL, or asked at poll points: not 0 ends the run */
    void *cancelled_user;
};

/* What a run goes on with behind its prefix. */
struct mw_bridge_rest {
    const char *main;
    const struct mw_source_file *files;
    size_t file_count;
    size_t covers_bytes; /* of the main file: the same includes, at least as many bytes */
};
#define MW_BRIDGE_REST_BYTES_MAX (UINT64_C(1) << 20) /* of that main file */

/* malloc'ed, and the receiver's. */
struct mw_bridge_text {
    char *data;
    size_t bytes;
};

/* How a run ended. After all but the first its heap is lost to the process. */
enum mw_bridge_end {
    MW_BRIDGE_RETURNED = 0,
    MW_BRIDGE_FATAL,  /* a fatal error of LLVM */
    MW_BRIDGE_MEMORY, /* an allocation failed */
    MW_BRIDGE_CRASHED
};

struct mw_bridge_result {
    int ok;
    char *artifact;
    size_t artifact_bytes; /* with -E2BIG and no artifact: how many there were to be */
    int has_inline_asm;    /* the unit holds inline assembly, which may read any file */
    int reads_clock;       /* __DATE__, __TIME__ or __TIMESTAMP__ was expanded */
    enum mw_bridge_end end;
    struct mw_bridge_text extras[MW_EXTRAS];
    /* What was looked for outside the readable directories (for a preamble everywhere), once each,
     * by path: 'r' (read), 'd' (found, or a directory), 'a' (not there) or 'l' (a directory was
     * listed), the path from the root, NUL. Empty: unknown (over MW_EXTRA_BYTES_MAX; a failed
     * compile; the whole file system was readable). */
    struct mw_bridge_text inputs;
};

/* Register targets; once per process, from any thread. */
void mw_bridge_init(void);

/* From now on runs give nothing back that they allocated but what they hand to the caller: for a
 * process that ends after its next run. */
void mw_bridge_leave_memory(void);

/* The calling thread's next run has one file, of `#include <...>` lines, as the beginning of others:
 * when the last of its headers has been read, `fn` is called in the middle of the run, which then
 * goes on with what `rest` names as if that had been its file from the start. Its name and text
 * have to stay. For a process that forks in `fn`. The kinds of output and the flags are those that
 * a preamble goes with. Not called when a header cannot be read. */
void mw_bridge_pause_after_prefix(void (*fn)(void *user, struct mw_bridge_rest *rest), void *user);

/* "Debian clang version 19.1.7 (3~deb12u1)", "19.1.7", "x86_64-pc-linux-gnu": static texts. */
const char *mw_bridge_full_version(void);
const char *mw_bridge_version(void);
const char *mw_bridge_target(void);

/* Call `fn`, which does not return, when memory cannot be had: for a process that compiles and does
 * nothing else, since it stands for all threads. Without it LLVM aborts. */
void mw_bridge_on_out_of_memory(void (*fn)(void));

/* From now on a run that crashes, or finds no memory, ends and the process goes on: the handlers of
 * the process's faults and its std::new_handler are replaced. What comes from elsewhere goes to
 * those that were there before. Once, before threads exist. Returns 0 or a negative errno. */
int mw_bridge_recover(void);

/* Take the address of the calling function's stack for the bottom of its thread's. */
void mw_bridge_note_stack(void);

/* Returns 0 when the compiler ran, -ENOMEM, -E2BIG (artifact, or an extra), -ECANCELED, or -EIO
 * (result->end says why). */
int mw_bridge_run(const struct mw_bridge_job *job, struct mw_bridge_result *result);

#ifdef __cplusplus
}
#endif

#endif

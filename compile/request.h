/* request.h - what a compile is asked to do, and whether that is well formed.
 *
 * Ownership:  a request only points; everything it points to stays the caller's and must outlive
 *             each call that takes the request.
 * Threads:    any thread; nothing here blocks.
 * Bounds:     the MW_REQUEST_* numbers below; more is refused with the number named. */
#ifndef MILLWRIGHT_REQUEST_H
#define MILLWRIGHT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <millwright/refusal.h>

#define MW_REQUEST_FILES_MAX           4096u
#define MW_REQUEST_NAME_BYTES_MAX      1024u
#define MW_REQUEST_DIRECTORY_BYTES_MAX 1024u
#define MW_REQUEST_ARGS_MAX            1024u
#define MW_REQUEST_ARG_BYTES_MAX       8192u
#define MW_REQUEST_SOURCE_BYTES_MAX    (64u << 20)

#define MW_REQUEST_DIRECTORY_DEFAULT "/src"

enum mw_language {
    MW_LANGUAGE_AUTO = 0, /* by the main file's ending, as the compiler does */
    MW_LANGUAGE_C,
    MW_LANGUAGE_CXX
};

enum mw_emit_kind {
    MW_EMIT_OBJECT = 0,
    MW_EMIT_ASM,
    MW_EMIT_LLVM_IR,
    MW_EMIT_BITCODE,
    MW_EMIT_PREPROCESSED,
    MW_EMIT_NONE, /* diagnostics only */
    MW_EMIT_KINDS /* how many there are */
};

struct mw_source_file {
    const char *name; /* relative to the directory, '/' between parts, no "." or ".." parts;
                         under read_disk any path */
    const char *data; /* any bytes; need not end in NUL */
    size_t bytes;
};

struct mw_compile_request {
    enum mw_language language;
    enum mw_emit_kind emit;
    const char *directory; /* absolute: the compilation directory; debug info shows it */
    const char *main;      /* name of the file to compile, one of `files` */
    const struct mw_source_file *files;
    size_t file_count;
    const char *const *args; /* compiler flags, without the compiler, the input and the output */
    size_t arg_count;
    bool read_disk; /* a host's or a user's own compile: the whole file system can be included,
                       and the result is never stored */
    uint64_t artifact_bytes_max; /* 0: MW_ARTIFACT_BYTES_MAX; over it -E2BIG. No part of the key */
    /* NULL, or asked at clang's poll points, on the thread that compiles: not 0 ends the compile
     * with -ECANCELED. Some sources never come to such a point: see docs/security.md. */
    int (*cancelled)(void *user);
    void *cancelled_user;
};

/* Check every field against the rules above; duplicates among file names too.
 * Returns 0; -EINVAL or -E2BIG with `refusal` filled; -ENOMEM. Runs on: any thread. */
int mw_request_check(const struct mw_compile_request *request, struct mw_refusal *refusal);

/* "object", "asm", "llvm-ir", "bitcode", "preprocessed", "none", and the ending of such a file
 * (".o", ".s", ".ll", ".bc", ".i", ""). Static text. */
const char *mw_emit_kind_name(enum mw_emit_kind kind);
const char *mw_emit_kind_suffix(enum mw_emit_kind kind);

/* The kind called `name`. Returns 0 or -EINVAL. */
int mw_emit_kind_parse(const char *name, enum mw_emit_kind *kind);

/* The language called `name` ("c", "c++"). Returns 0 or -EINVAL. */
int mw_language_parse(const char *name, enum mw_language *language);

/* The name of a main file of `language` whose name was not given: "main.c", "main.cc". */
const char *mw_language_main_name(enum mw_language language);

#endif

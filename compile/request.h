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
#define MW_REQUEST_PACKAGE_ARGS_MAX    256u
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
    MW_EMIT_AST,                     /* serialized, for clang and libclang to load */
    MW_EMIT_AST_JSON,                /* as `clang -Xclang -ast-dump=json` */
    MW_EMIT_NONE,                    /* diagnostics only */
    MW_EMIT_KINDS,                   /* how many there are to ask for */
    MW_EMIT_PREAMBLE = MW_EMIT_KINDS /* a precompiled prefix: preamble.h makes it, no request */
};

/* What a compile can tell beside its artifact, each as a JSON text. They are part of what is asked
 * for, so they enter the key and are kept with the artifact. */
enum mw_extra {
    MW_EXTRA_DEPENDENCIES = 0, /* [{"name", "system"}]: what was read, in order, main file first */
    MW_EXTRA_REMARKS,          /* [{"type", "pass", "name", "function", "file", "line", "column",
                                  "arguments": [{"key", "value"}]}] of the optimiser */
    MW_EXTRA_TIME_TRACE,       /* as -ftime-trace writes it */
    MW_EXTRA_LINE_MAP,         /* [{"line", "file", "source_line", "source_column"}]: of assembly */
    MW_EXTRAS                  /* how many there are */
};
#define MW_EXTRA_BYTES_MAX (UINT64_C(16) << 20)

/* A precompiled prefix at work: it stands for the first `covers_bytes` of the main file. */
struct mw_preamble_use {
    const void *bytes; /* mapped memory, or NULL where only `file` is known */
    size_t count;
    int file; /* a sealed memory file that holds them, or -1 */
    size_t covers_bytes;
    size_t text_bytes; /* of its includes, a plain line each */
    const char *key;   /* stands for toolchain, headers, flags and includes; NULL: not told */
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
    const char *const *package_args; /* those of installed packages, before `args`: as packages.h
                                        makes them, so -isystem may name a directory of the disk */
    size_t package_arg_count;
    unsigned extras; /* bit 1 << mw_extra of each wanted */
    bool read_disk;  /* a host's or a user's own compile: the whole file system can be included,
                        and the result is never stored */
    uint64_t artifact_bytes_max; /* 0: MW_ARTIFACT_BYTES_MAX; over it -E2BIG. No part of the key */
    /* NULL, or asked at clang's poll points, on the thread that compiles: not 0 ends the compile
     * with -ECANCELED. Some sources never come to such a point: see docs/security.md. */
    int (*cancelled)(void *user);
    void *cancelled_user;
    /* NULL, or what saves the parse of the first includes. It changes no byte of the result, so it
     * is no part of the key. */
    const struct mw_preamble_use *preamble;
};

/* Check every field against the rules above; duplicates among file names too.
 * Returns 0; -EINVAL or -E2BIG with `refusal` filled; -ENOMEM. Runs on: any thread. */
int mw_request_check(const struct mw_compile_request *request, struct mw_refusal *refusal);

/* The main file among those of the request, or NULL. Runs on: any thread. */
const struct mw_source_file *mw_request_main(const struct mw_compile_request *request);

/* "object", "asm", "llvm-ir", "bitcode", "preprocessed", "ast", "ast-json", "none", and the ending
 * of such a file (".o", ".s", ".ll", ".bc", ".i", ".ast", ".json", ""). Static text. */
const char *mw_emit_kind_name(enum mw_emit_kind kind);
const char *mw_emit_kind_suffix(enum mw_emit_kind kind);

/* The kind called `name`. Returns 0 or -EINVAL. */
int mw_emit_kind_parse(const char *name, enum mw_emit_kind *kind);

/* "dependencies", "remarks", "time-trace", "line-map". Static text. */
const char *mw_extra_name(enum mw_extra extra);

/* The extra called `name`. Returns 0 or -EINVAL. */
int mw_extra_parse(const char *name, enum mw_extra *extra);

/* The language called `name` ("c", "c++"). Returns 0 or -EINVAL. */
int mw_language_parse(const char *name, enum mw_language *language);

/* The name of a main file of `language` whose name was not given: "main.c", "main.cc". */
const char *mw_language_main_name(enum mw_language language);

#endif

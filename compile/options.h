/* options.h - canonical options: what decides the bytes that come out; and run options: what only
 * decides how and when they are made.
 *
 * Canonical options are rendered as a fingerprint that enters the content key. Run options never
 * do (seed 002: a scheduling choice must not re-key what is stored).
 *
 * Ownership:  mw_options_new copies what it needs; free with mw_options_free.
 * Threads:    immutable once made, so any thread may read; nothing here blocks. */
#ifndef MILLWRIGHT_OPTIONS_H
#define MILLWRIGHT_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include <millwright/request.h>

#define MW_RUN_TIMEOUT_MS_DEFAULT 30000u
#define MW_RUN_TIMEOUT_MS_MAX     600000u

struct mw_options;

struct mw_run_options {
    uint32_t timeout_ms;   /* 1..MW_RUN_TIMEOUT_MS_MAX */
    bool include_artifact; /* put the bytes into the answer */
};

/* Check the request's flags against the policy (flags.h) and make them canonical: separate
 * arguments joined ("-D", "A=1" becomes "-DA=1"), their order kept. The language is the request's,
 * or that of an -x flag, or what the main file's ending says; -x is passed on, as the first
 * argument, only where the ending does not say the same.
 * Returns 0; -EPERM with the flag and the reason in `refusal`; -EINVAL when nothing tells the
 * language; -ENOMEM. */
int mw_options_new(struct mw_options **out, const struct mw_compile_request *request,
                   struct mw_refusal *refusal);
void mw_options_free(struct mw_options *options);

/* The canonical options as text, one a line, language, emit kind and target among them. No option
 * holds a line end, so two that differ never give the same text. A default target shows as
 * "default": which one that is stands in mw_toolchain_identity. */
const char *mw_options_fingerprint(const struct mw_options *options);

/* The arguments for the compiler driver, without program, input and output. NULL-terminated. */
const char *const *mw_options_args(const struct mw_options *options, size_t *count);

enum mw_emit_kind mw_options_emit(const struct mw_options *options);

/* Bits of mw_extra. */
unsigned mw_options_extras(const struct mw_options *options);

#endif

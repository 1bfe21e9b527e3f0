/* warm_up.h - compile a few texts of our own, so that what is made at first use is made, and what
 * the driver says to the commonest flags is known.
 *
 * Whether a text compiles does not matter: no compile depends on it.
 *
 * Threads: the calling thread only; it needs the stack that a compile needs. */
#ifndef MW_COMPILE_WARM_UP_H
#define MW_COMPILE_WARM_UP_H

#include <millwright/emit.h>

struct mw_warm_up {
    const struct mw_toolchain *toolchain;   /* must stay */
    struct mw_compile_result preamble_made; /* what mw_warm_up_again starts from */
};

/* All of them; takes about 0.2 s. */
void mw_warm_up_begin(struct mw_warm_up *warm_up, const struct mw_toolchain *toolchain);

/* One that opens with a preamble, in a forked child: what the parent wrote to is copied at the
 * first write, and a request should not be the one to wait for that. */
void mw_warm_up_again(const struct mw_warm_up *warm_up);

void mw_warm_up_fini(struct mw_warm_up *warm_up);

#endif

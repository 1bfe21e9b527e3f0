#include "audit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <millwright/flow.h>

/* Numbers of their own, publishing nothing: relaxed order, no partner. */
static _Atomic uint64_t expectations;
static _Atomic uint64_t wrong_expectations;
static _Atomic int
    wrong_pair; /* expected * MW_THREAD_KINDS + found, so that the two belong together */
static _Atomic bool foreign_starts_seen;

static const char *heirs_finding(const struct mw_census *census, char *text, size_t bytes);

int mw_audit_expect(enum mw_thread_kind kind)
{
    enum mw_thread_kind found = mw_thread_kind_current();

    atomic_fetch_add_explicit(&expectations, 1, memory_order_relaxed);
    if (found == kind)
        return 0;
    atomic_store_explicit(&wrong_pair, (int)kind * MW_THREAD_KINDS + (int)found,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&wrong_expectations, 1, memory_order_relaxed);
    return -EXDEV;
}

int mw_audit_report(struct mw_audit *audit, const struct mw_registry *registry)
{
    int pair = atomic_load_explicit(&wrong_pair, memory_order_relaxed);

    memset(audit, 0, sizeof *audit);
    audit->expectations = atomic_load_explicit(&expectations, memory_order_relaxed);
    audit->wrong_expectations = atomic_load_explicit(&wrong_expectations, memory_order_relaxed);
    audit->wrong_expected = (enum mw_thread_kind)(pair / MW_THREAD_KINDS);
    audit->wrong_found = (enum mw_thread_kind)(pair % MW_THREAD_KINDS);
    audit->strayed = registry != NULL ? mw_registry_strayed(registry) : 0;
    audit->escapes = mw_flow_count(MW_FLOW_ESCAPE);
    audit->escaped_leaf = mw_flow_newest_leaf(MW_FLOW_ESCAPE);
    audit->thread_starts = mw_flow_count(MW_FLOW_THREAD_START);
    audit->thread_start_leaf = mw_flow_newest_leaf(MW_FLOW_THREAD_START);
    audit->foreign_starts = mw_flow_count(MW_FLOW_FOREIGN_START);
    audit->foreign_start_leaf = mw_flow_newest_leaf(MW_FLOW_FOREIGN_START);
    audit->foreign_starts_seen = atomic_load_explicit(&foreign_starts_seen, memory_order_relaxed);
    return mw_census_take(&audit->census);
}

const char *mw_audit_finding(const struct mw_audit *audit, char *text, size_t bytes)
{
    if (audit->strayed > 0)
        snprintf(text, bytes,
                 "leaves that compute and ran on other threads than a lane's own: %llu",
                 (unsigned long long)audit->strayed);
    else if (audit->wrong_expectations > 0)
        snprintf(text, bytes,
                 "leaves that ran where they did not expect to: %llu, the last on %s "
                 "instead of %s",
                 (unsigned long long)audit->wrong_expectations,
                 mw_thread_kind_name(audit->wrong_found),
                 mw_thread_kind_name(audit->wrong_expected));
    else if (audit->escapes > 0)
        snprintf(text, bytes, "items from under a leaf that ran on pool workers: %llu",
                 (unsigned long long)audit->escapes);
    else if (audit->thread_starts > 0)
        snprintf(text, bytes, "threads of ours that were started under a leaf: %llu",
                 (unsigned long long)audit->thread_starts);
    else if (audit->foreign_starts > 0)
        snprintf(text, bytes, "threads of others that were started under a leaf: %llu",
                 (unsigned long long)audit->foreign_starts);
    else
        return heirs_finding(&audit->census, text, bytes);
    return text;
}

void mw_audit_foreign_start(uint64_t leaf)
{
    atomic_store_explicit(&foreign_starts_seen, true, memory_order_relaxed);
    mw_flow_note(MW_FLOW_FOREIGN_START, leaf);
}

/* What the loop's thread or a host's starts is no leak. While threads of ours are on their way, an
 * heir may be one of them. */
static const char *heirs_finding(const struct mw_census *census, char *text, size_t bytes)
{
    static const enum mw_thread_kind kinds[] = {MW_THREAD_LANE, MW_THREAD_POOL};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && census->starting == 0; i++) {
        if (census->heirs[kinds[i]] == 0)
            continue;
        snprintf(text, bytes, "threads of others that a %s thread started: %u",
                 mw_thread_kind_name(kinds[i]), census->heirs[kinds[i]]);
        return text;
    }
    return NULL;
}

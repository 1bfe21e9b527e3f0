/* commands.h - what `millwright` can be told to do, with the settings of each command.
 *
 * Linked into both programs: the small `millwright`, which prints help without loading LLVM, and
 * `millwright-engine`, which does the work of the commands that compile. */
#ifndef MW_SERVICE_COMMANDS_H
#define MW_SERVICE_COMMANDS_H

#include <stdint.h>
#include <stdio.h>

#include "settings.h"

/* Who may set the minimum of the shared pool; a later one wins over those before it. */
enum mw_pool_min_source {
    MW_POOL_MIN_DEFAULT = 0,
    MW_POOL_MIN_CONFIG_FILE,
    MW_POOL_MIN_OF_ENVIRONMENT,
    MW_POOL_MIN_COMMAND_LINE,
    MW_POOL_MIN_REQUEST, /* PATCH /v1/pools/shared */
    MW_POOL_MIN_SOURCES  /* how many there are */
};

#define MW_SERVE_UNSET (~0u) /* the option was not given */

struct mw_serve_settings {
    char config[MW_SETTING_TEXT_BYTES];
    char listen[MW_SETTING_TEXT_BYTES];
    unsigned allow_remote;
    char public_name[MW_SETTING_TEXT_BYTES]; /* "": none */
    char data[MW_SETTING_TEXT_BYTES];        /* "": the default, see mw_default_data_dir */
    unsigned lane_cap, lane_queue;
    unsigned pool_min;                         /* what was read last; see pool_min_by */
    unsigned pool_min_by[MW_POOL_MIN_SOURCES]; /* what each source says; 0: nothing */
    unsigned pool_max;
    unsigned pool_tuning;       /* 0: on, 1: off */
    unsigned probe_interval_ms; /* 0: no probe */
    unsigned files_cap, store_cap;
    uint64_t store_max_bytes;
    unsigned manifests;           /* 0: on, 1: off; MW_SERVE_UNSET: off with allow_remote */
    unsigned debug_sources;       /* 0: on, 1: off */
    uint64_t preambles_max_bytes; /* 0: none */
    unsigned head_starts;         /* 0: none */
    uint64_t body_max_bytes;
    char pkg_config_path[MW_SETTING_TEXT_BYTES]; /* "": the system's only */
    unsigned connections_max;
    unsigned timeout_max_ms;
    unsigned grace_ms;
    unsigned emit_lane;     /* 0: dedicated, 1: pool */
    unsigned isolation;     /* 0: isolated, 1: in-process */
    unsigned workers_ready; /* 0: one for each compile at once */
    unsigned unguarded;
    char worker[MW_SETTING_TEXT_BYTES]; /* "": where it is installed */
    unsigned cpu_max_ms;
    uint64_t memory_max_bytes, output_max_bytes;
    unsigned cpu_default_ms; /* 0: cpu_max_ms, and so on */
    uint64_t memory_default_bytes, output_default_bytes;
    struct mw_lane_settings lanes;
    unsigned help;
};

struct mw_compile_settings {
    unsigned emit; /* an enum mw_emit_kind */
    char output[MW_SETTING_TEXT_BYTES];
    unsigned also; /* bits of enum mw_extra */
    char deps[MW_SETTING_TEXT_BYTES];
    unsigned language; /* an enum mw_language */
    unsigned jobs;
    unsigned color; /* 0: auto, 1: always, 2: never */
    unsigned help;
};

#define MW_PROBE_ANY (~0u) /* the option was not given: all of them */

struct mw_probe_settings {
    unsigned emits;
    unsigned lane;             /* an enum mw_probe_lane_choice */
    unsigned isolation;        /* 0: isolated, 1: in-process */
    unsigned compiler_threads; /* 0: on, 1: off */
    unsigned seconds;
    unsigned json;
    unsigned help;
};

/* The defaults, and the table that fills them. */
extern const struct mw_serve_settings mw_serve_defaults;
extern const struct mw_compile_settings mw_compile_defaults;
extern const struct mw_probe_settings mw_probe_defaults;
struct mw_settings mw_serve_settings_of(struct mw_serve_settings *values);
struct mw_settings mw_compile_settings_of(struct mw_compile_settings *values);
struct mw_settings mw_probe_settings_of(struct mw_probe_settings *values);

struct mw_command {
    const char *name;
    const char *usage;
    const char *summary;
    const char *text; /* more help, printed after the options; NULL: none */
    int in_engine;    /* run by millwright-engine */
};

const struct mw_command *mw_command_find(const char *name);

/* The overview, and the page of one command. */
void mw_help_overview(FILE *out);
void mw_help_command(const struct mw_command *command, FILE *out);

#define MW_EXIT_OK     0
#define MW_EXIT_FAILED 1 /* the compile found errors, or the service could not go on */
#define MW_EXIT_USAGE  2 /* the command line or the config file is wrong */

#endif

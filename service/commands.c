#include "commands.h"

#include <stddef.h>
#include <string.h>

const struct mw_serve_settings mw_serve_defaults = {
    .listen = "127.0.0.1:7417",
    .lane_queue = 1024,
    .pool_max = 16,
    .probe_interval_ms = 5,
    .files_cap = 4,
    .store_cap = 4,
    .store_max_bytes = UINT64_C(5) << 30,
    .manifests = MW_SERVE_UNSET,
    .preambles_max_bytes = UINT64_C(256) << 20,
    .head_starts = 6,
    .body_max_bytes = UINT64_C(16) << 20,
    .connections_max = 1024,
    .timeout_max_ms = 120000,
    .grace_ms = 30000,
    .cpu_max_ms = 60000,
    .memory_max_bytes = UINT64_C(1) << 30,
    .output_max_bytes = UINT64_C(64) << 20,
};

const struct mw_compile_settings mw_compile_defaults = {0};

const struct mw_probe_settings mw_probe_defaults = {
    .emits = MW_PROBE_ANY,
    .lane = MW_PROBE_ANY,
    .isolation = MW_PROBE_ANY,
    .compiler_threads = MW_PROBE_ANY,
    .seconds = 10,
};

#define AT(member) offsetof(struct mw_serve_settings, member)

static const struct mw_setting serve_table[] = {
    {"listen", 0, MW_SETTING_TEXT, AT(listen), 0, 0, NULL, "ADDRESS",
     "127.0.0.1:PORT, [::1]:PORT or unix:PATH (127.0.0.1:7417)"},
    {"allow-remote", 0, MW_SETTING_SWITCH, AT(allow_remote), 0, 0, NULL, NULL,
     "listen on any address, for a proxy in front: nobody is asked who he is"},
    {"public-name", 0, MW_SETTING_TEXT, AT(public_name), 0, 0, NULL, "NAME",
     "a host name that clients call this service by, beside addresses"},
    {"data", 0, MW_SETTING_TEXT, AT(data), 0, 0, NULL, "DIR",
     "where artifacts are stored ($XDG_STATE_HOME/millwright)"},
    {"config", 0, MW_SETTING_TEXT, AT(config), 0, 0, NULL, "FILE",
     "read settings from [serve] and [lane NAME] in FILE first"},
    {"lane-cap", 0, MW_SETTING_NUMBER, AT(lane_cap), 1, 1024, NULL, "N",
     "compiles at once (the effective CPUs)"},
    {"lane-queue", 0, MW_SETTING_NUMBER, AT(lane_queue), 1, 1000000, NULL, "N",
     "compiles that may wait for the CPU lane (1024)"},
    {"pool-min", 0, MW_SETTING_NUMBER, AT(pool_min), 1, 1024, NULL, "N",
     "shared pool workers that start at once, and stay (the effective CPUs)"},
    {"pool-max", 0, MW_SETTING_NUMBER, AT(pool_max), 2, 1024, NULL, "N",
     "shared pool workers at most (16)"},
    {"pool-tuning", 0, MW_SETTING_CHOICE, AT(pool_tuning), 0, 0, "on|off", "WHETHER",
     "raise the shared pool's minimum while its workers block: on (default), off"},
    {"probe-interval-ms", 0, MW_SETTING_NUMBER, AT(probe_interval_ms), 0, 60000, NULL, "MS",
     "time between two probes of the pool and of the loop; 0: none (5)"},
    {"files-cap", 0, MW_SETTING_NUMBER, AT(files_cap), 1, 512, NULL, "N",
     "leaves of the `files` IO pool at once (4)"},
    {"store-cap", 0, MW_SETTING_NUMBER, AT(store_cap), 1, 512, NULL, "N",
     "leaves of the `store` IO pool at once (4)"},
    {"store-max-bytes", 0, MW_SETTING_BYTES, AT(store_max_bytes), 1 << 20, UINT64_C(1) << 50, NULL,
     "BYTES", "size of the artifact store; K, M and G may follow (5G)"},
    {"preambles-max-bytes", 0, MW_SETTING_BYTES, AT(preambles_max_bytes), 0, UINT64_C(1) << 40,
     NULL, "BYTES", "precompiled first includes kept in memory; 0: none (256M)"},
    {"head-starts", 0, MW_SETTING_NUMBER, AT(head_starts), 0, 64, NULL, "N",
     "isolated: first includes that workers have read before they are used, at most (6)"},
    {"manifests", 0, MW_SETTING_CHOICE, AT(manifests), 0, 0, "on|off", "WHETHER",
     "find artifacts by what their compiles read: on (default), off (with --allow-remote)"},
    {"debug-sources", 0, MW_SETTING_CHOICE, AT(debug_sources), 0, 0, "on|off", "WHETHER",
     "keep the sources of debug information for debuggers: on (default), off"},
    {"body-max-bytes", 0, MW_SETTING_BYTES, AT(body_max_bytes), 1024, 128 << 20, NULL, "BYTES",
     "largest request body (16M)"},
    {"pkg-config-path", 0, MW_SETTING_TEXT, AT(pkg_config_path), 0, 0, NULL, "DIR:DIR",
     "folders of .pc files to look for `packages` in, before the system's"},
    {"connections-max", 0, MW_SETTING_NUMBER, AT(connections_max), 1, 65536, NULL, "N",
     "open connections (1024)"},
    {"timeout-max-ms", 0, MW_SETTING_NUMBER, AT(timeout_max_ms), 1, 600000, NULL, "MS",
     "longest timeout_ms that a request gets (120000)"},
    {"grace-ms", 0, MW_SETTING_NUMBER, AT(grace_ms), 0, 3600000, NULL, "MS",
     "time to finish requests after SIGTERM (30000)"},
    {"isolation", 0, MW_SETTING_CHOICE, AT(isolation), 0, 0, "isolated|in-process", "WHERE",
     "compile isolated (default): each in a sandboxed process of its own; or in-process"},
    {"worker", 0, MW_SETTING_TEXT, AT(worker), 0, 0, NULL, "FILE",
     "isolated: millwright-worker (beside the program, or in ../libexec/millwright)"},
    {"workers-ready", 0, MW_SETTING_NUMBER, AT(workers_ready), 1, 64, NULL, "N",
     "isolated: processes kept ready (one for each compile at once)"},
    {"cpu-max-ms", 0, MW_SETTING_NUMBER, AT(cpu_max_ms), 1, 3600000, NULL, "MS",
     "isolated: CPU time of one compile at most (60000)"},
    {"cpu-default-ms", 0, MW_SETTING_NUMBER, AT(cpu_default_ms), 1, 3600000, NULL, "MS",
     "isolated: the same where a request asks for none (cpu-max-ms)"},
    {"memory-max-bytes", 0, MW_SETTING_BYTES, AT(memory_max_bytes), 16 << 20, UINT64_C(1) << 40,
     NULL, "BYTES", "isolated: memory of one compile at most (1G)"},
    {"memory-default-bytes", 0, MW_SETTING_BYTES, AT(memory_default_bytes), 16 << 20,
     UINT64_C(1) << 40, NULL, "BYTES",
     "isolated: the same where a request asks for none (memory-max-bytes)"},
    {"output-max-bytes", 0, MW_SETTING_BYTES, AT(output_max_bytes), 4096, 512 << 20, NULL, "BYTES",
     "largest artifact (64M)"},
    {"output-default-bytes", 0, MW_SETTING_BYTES, AT(output_default_bytes), 4096, 512 << 20, NULL,
     "BYTES", "the same where a request asks for none (output-max-bytes)"},
    {"unguarded", 0, MW_SETTING_SWITCH, AT(unguarded), 0, 0, NULL, NULL,
     "isolated: go on where the kernel lacks a guard of the sandbox"},
    {"lane", 0, MW_SETTING_LANE, AT(lanes), 0, 0, NULL, "NAME.KEY=VALUE",
     "an option of a lane, as files.cap=8; docs/lanes.md lists them"},
    {"emit-lane", 0, MW_SETTING_CHOICE, AT(emit_lane), 0, 0, "dedicated|pool", "RUNNER",
     "dedicated; `pool` shows what the lane prevents"},
    {"help", 'h', MW_SETTING_SWITCH, AT(help), 0, 0, NULL, NULL, "print this"},
};

#undef AT
#define AT(member) offsetof(struct mw_compile_settings, member)

static const struct mw_setting compile_table[] = {
    {"emit", 0, MW_SETTING_CHOICE, AT(emit), 0, 0,
     "object|asm|llvm-ir|bitcode|preprocessed|ast|ast-json|none", "KIND",
     "object (default), asm, llvm-ir, bitcode, preprocessed, ast, ast-json or none"},
    {"output", 'o', MW_SETTING_TEXT, AT(output), 0, 0, NULL, "FILE",
     "write to FILE, `-` for stdout (the source's name with .o, .s, ...)"},
    {"also", 0, MW_SETTING_SET, AT(also), 0, 0, "dependencies|remarks|time-trace|line-map", "WHAT",
     "write dependencies, remarks, time-trace, line-map beside it, as NAME.WHAT.json"},
    {"deps", 0, MW_SETTING_TEXT, AT(deps), 0, 0, NULL, "FILE",
     "write a rule for make to FILE: what the output depends on"},
    {"language", 'x', MW_SETTING_CHOICE, AT(language), 0, 0, "auto|c|c++", "LANGUAGE",
     "c or c++ (by the file's ending)"},
    {"jobs", 'j', MW_SETTING_NUMBER, AT(jobs), 1, 1024, NULL, "N",
     "compiles at once (the effective CPUs)"},
    {"color", 0, MW_SETTING_CHOICE, AT(color), 0, 0, "auto|always|never", "WHEN",
     "colour diagnostics: auto (on a terminal), always, never"},
    {"help", 'h', MW_SETTING_SWITCH, AT(help), 0, 0, NULL, NULL, "print this"},
};

#undef AT
#define AT(member) offsetof(struct mw_probe_settings, member)

static const struct mw_setting probe_table[] = {
    {"emits", 0, MW_SETTING_NUMBER, AT(emits), 0, 1024, NULL, "N",
     "only rows with N emits at once (0, 1, 6, 12 and 24)"},
    {"lane", 0, MW_SETTING_CHOICE, AT(lane), 0, 0, "dedicated|pool|uv", "WHERE",
     "only rows whose emits run there: dedicated, pool or uv (all)"},
    {"isolation", 0, MW_SETTING_CHOICE, AT(isolation), 0, 0, "isolated|in-process", "WHERE",
     "only rows whose emits run isolated, each in a process of its own, or in-process (both)"},
    {"compiler-threads", 0, MW_SETTING_CHOICE, AT(compiler_threads), 0, 0, "on|off", "WHETHER",
     "only rows in which the compiler starts threads, or starts none (both)"},
    {"seconds", 0, MW_SETTING_NUMBER, AT(seconds), 1, 3600, NULL, "S",
     "the most that a row may take (10)"},
    {"json", 0, MW_SETTING_SWITCH, AT(json), 0, 0, NULL, NULL, "print JSON instead of the table"},
    {"help", 'h', MW_SETTING_SWITCH, AT(help), 0, 0, NULL, NULL, "print this"},
};

#undef AT

static const struct mw_command commands[] = {
    {"serve", "[OPTION...]", "run the compile service",
     "It answers on POST /v1/compile; docs/http.md describes every path. SIGTERM or SIGINT stops\n"
     "it: it takes no new connection, finishes what it has, and exits with 0. A second signal\n"
     "ends it at once. It listens on loopback or a unix socket, unless --allow-remote is given.\n",
     1},
    {"compile", "FILE... [OPTION...] [-- FLAG...]", "compile files here, without a server",
     "FLAGs go to the compiler; those that run programs or write files are refused "
     "(docs/flags.md).\n"
     "Exit status: 0 compiled, 1 errors found, 2 wrong usage.\n",
     1},
    {"probe", "[OPTION...]", "show what waits while compiles run, here and now",
     "It compiles N times at once, on libuv's workers, on the shared pool and on a lane of its "
     "own\n"
     "threads, in this process and isolated, and shows how long other work waited to start\n"
     "meanwhile. All rows take some two minutes; Ctrl-C ends it with what it has. docs/probe.md "
     "says how to\n"
     "read it.\n",
     1},
    {"version", "", "print the version", NULL, 0},
    {"help", "[COMMAND]", "print this, or a command's options", NULL, 0},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct mw_settings mw_serve_settings_of(struct mw_serve_settings *values)
{
    return (struct mw_settings){"serve", serve_table, COUNT(serve_table), values, NULL};
}

struct mw_settings mw_compile_settings_of(struct mw_compile_settings *values)
{
    return (struct mw_settings){"compile", compile_table, COUNT(compile_table), values, NULL};
}

struct mw_settings mw_probe_settings_of(struct mw_probe_settings *values)
{
    return (struct mw_settings){"probe", probe_table, COUNT(probe_table), values, NULL};
}

const struct mw_command *mw_command_find(const char *name)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

void mw_help_overview(FILE *out)
{
    fputs("usage: millwright COMMAND [ARGUMENT...]\n\n"
          "Compiles C and C++ on a CPU lane of its own threads, off the shared pool.\n\n",
          out);
    for (size_t i = 0; i < COUNT(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`millwright help COMMAND` prints a command's options.\n", out);
}

void mw_help_command(const struct mw_command *command, FILE *out)
{
    fprintf(out, "usage: millwright %s %s\n\n%s\n", command->name, command->usage,
            command->summary);
    struct mw_settings settings = {0};
    if (strcmp(command->name, "serve") == 0)
        settings = mw_serve_settings_of(NULL);
    else if (strcmp(command->name, "compile") == 0)
        settings = mw_compile_settings_of(NULL);
    else if (strcmp(command->name, "probe") == 0)
        settings = mw_probe_settings_of(NULL);
    if (settings.count) {
        fputc('\n', out);
        mw_settings_help(&settings, out);
    }
    if (command->text)
        fprintf(out, "\n%s", command->text);
}

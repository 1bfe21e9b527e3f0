#include "isolate_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define POLLS_MAX 3000 /* of POLL_MS each, then a wait has failed */
#define POLL_MS   10
#define BANGS     20000

static char crash_text[BANGS + 64];

const struct trial world_c = {
    .files = {{"a.c", "#include <stdio.h>\n#include \"n.h\"\n"
                      "int main(void) { return printf(\"%d\", N); }\n"},
              {"n.h", "#define N 3\n"}},
    .args = {"-O2", "-g"},
};
const struct trial world_cxx = {
    .files = {{"b.cc", "#include <string>\n"
                       "std::string f(int n) { return std::string(n, 'x') + \"y\"; }\n"}},
    .emit = MW_EMIT_ASM,
};
const struct trial world_warns = {
    .files = {{"w.c", "int f(void) { int unused; if (1) ; return \"\" == 0; }\n"}},
    .args = {"-Wall", "-Wextra"},
};
const struct trial world_fails = {
    .files = {{"f.c", "struct s { int a };\nint f(void) { return g(x) + ; }\n"}},
};
const struct trial world_endless = {
    .files = {{"endless.c", "int f(unsigned _BitInt(8388608) a) { return (int)(a * a); }"}},
};
const struct trial world_hungry = {.files = {{"hungry.c", "char a[1ul << 31] = {1};\n"}}};
const struct trial world_hungry_bit_by_bit = {
    .files = {{"bits.c", "#define A 1,1,1,1,1,1,1,1,\n#define B A A A A A A A A\n"
                         "#define C B B B B B B B B\n#define D C C C C C C C C\n"
                         "#define E D D D D D D D D\n#define F E E E E E E E E\n"
                         "int a[] = { F F F F F F F F };\n"}},
};
const struct trial world_large = {.files = {{"large.c", "char a[1 << 20] = {1};\n"}}};
const struct trial world_larger = {.files = {{"larger.c", "char a[32 << 20] = {1};\n"}}};
const struct trial world_refused = {.files = {{"refused.c", "int x;\n"}},
                                    .args = {"--target=hexagon"}};
const struct trial world_breaks = {
    .files = {{"breaks.c", "int f(int *x) { return __sync_fetch_and_nand(x, 1); }\n"}},
    .args = {"--target=bpf", "-mcpu=v1"},
};
struct trial world_crashes = {.files = {{"crashes.c", crash_text}}};

int world_setup(void **state)
{
    static struct world world;
    struct mw_isolate_options options;
    char why[256] = "";
    void *toolchain = NULL;

    memcpy(crash_text, "int x = ", 8);
    memset(crash_text + 8, '!', BANGS);
    strcpy(crash_text + 8 + BANGS, "1;\n");
    if (trial_setup(&toolchain))
        return -1;
    world.toolchain = toolchain;
    options = world_options(&world);
    if (mw_isolate_new(&world.isolate, &options, why, sizeof(why))) {
        print_error("%s\n", why);
        return -1;
    }
    *state = &world;
    return 0;
}

int world_teardown(void **state)
{
    struct world *world = *state;
    void *toolchain;

    if (!world) /* it could not be set up */
        return 0;
    toolchain = (void *)world->toolchain;
    mw_isolate_free(world->isolate);
    return trial_teardown(&toolchain);
}

struct mw_isolate_options world_options(const struct world *world)
{
    return (struct mw_isolate_options){
        .toolchain = world->toolchain,
        .worker = getenv("MW_WORKER"),
        .ready = 2,
        .unguarded = true,
    };
}

/* What trial_leaf hands on beside its own arguments. */
static _Thread_local struct world_run *current;

static int isolated_leaf(const struct mw_toolchain *toolchain, const struct mw_options *options,
                         const struct mw_compile_request *request, struct mw_compile_result *result)
{
    (void)toolchain;
    return mw_isolate_compile(current->world->isolate, options, request, &current->limits,
                              current->stop, result, &current->usage);
}

void world_compile(struct world_run *run)
{
    current = run;
    run->rc = trial_leaf(isolated_leaf, run->world->toolchain, run->trial, &run->result);
}

struct start {
    struct world_run *run;
    char name[16];
};

static void *run_thread(void *arg)
{
    struct start *start = arg;

    (void)prctl(PR_SET_NAME, start->name);
    world_compile(start->run);
    free(start);
    return NULL;
}

void world_begin(struct world_run *run, const char *name)
{
    struct start *start = calloc(1, sizeof(*start));

    assert_non_null(start);
    start->run = run;
    (void)snprintf(start->name, sizeof(start->name), "%s", name);
    assert_int_equal(pthread_create(&run->thread, NULL, run_thread, start), 0);
}

void world_join(struct world_run *run)
{
    assert_int_equal(pthread_join(run->thread, NULL), 0);
}

void world_run_fini(struct world_run *run)
{
    mw_compile_result_fini(&run->result);
}

static void diagnostics_equal(const struct mw_diagnostics *a, const struct mw_diagnostics *b)
{
    char *text[2] = {0};
    size_t bytes[2];
    const struct mw_diagnostics *lists[] = {a, b};

    for (size_t i = 0; i < 2; i++) {
        FILE *out = open_memstream(&text[i], &bytes[i]);

        assert_non_null(out);
        assert_int_equal(mw_diagnostics_print(lists[i], out, false), 0);
        (void)fclose(out);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

void world_check_compiles(struct world *world, const struct trial *trial)
{
    struct world_run run = {.world = world, .trial = trial};
    struct mw_compile_result here = {0};

    world_compile(&run);
    assert_int_equal(run.rc, 0);
    assert_int_equal(trial_leaf(mw_compile, world->toolchain, trial, &here), 0);
    assert_int_equal(run.result.ok, here.ok);
    assert_int_equal(run.result.artifact_bytes, here.artifact_bytes);
    if (here.artifact_bytes > 0)
        assert_memory_equal(run.result.artifact, here.artifact, here.artifact_bytes);
    diagnostics_equal(&run.result.diagnostics, &here.diagnostics);
    mw_compile_result_fini(&here);
    world_run_fini(&run);
}

/* ---- processes ---- */

struct stat_line {
    char name[32], state;
    pid_t parent;
    unsigned long ticks, faults;
};

static bool stat_read(pid_t pid, struct stat_line *out)
{
    unsigned long user = 0, system = 0;
    char path[64], text[512] = "";
    char *end;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void)fclose(file);
    end = strrchr(text, ')');
    if (!end || sscanf(text, "%*d (%31[^)]", out->name) != 1 ||
        sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %lu %*u %*u %*u %lu %lu", &out->state,
               &out->parent, &out->faults, &user, &system) != 5)
        return false;
    out->ticks = user + system;
    return true;
}

struct world_processes world_children(pid_t parent)
{
    struct world_processes found = {.count = 0};
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    assert_non_null(proc);
    while ((entry = readdir(proc)) != NULL && found.count < WORLD_PROCESSES_MAX) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        struct stat_line line;

        if (pid > 0 && stat_read(pid, &line) && line.parent == parent)
            found.pids[found.count++] = pid;
    }
    (void)closedir(proc);
    return found;
}

static void pause_briefly(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * (long)WORLD_MS}, NULL);
}

pid_t world_zygote(void)
{
    for (int i = 0; i < POLLS_MAX; i++) {
        struct world_processes children = world_children(getpid());

        if (children.count == 1)
            return children.pids[0];
        pause_briefly();
    }
    fail_msg("there is no zygote, or more than one");
    return -1;
}

pid_t world_worker_await(pid_t zygote, const char *name)
{
    for (int i = 0; i < POLLS_MAX; i++) {
        struct world_processes workers = world_children(zygote);

        for (size_t k = 0; k < workers.count; k++) {
            struct stat_line line;

            if (stat_read(workers.pids[k], &line) && strcmp(line.name, name) == 0)
                return workers.pids[k];
        }
        pause_briefly();
    }
    fail_msg("no worker is called %s", name);
    return -1;
}

unsigned long world_faults(pid_t pid)
{
    struct stat_line line;

    return stat_read(pid, &line) ? line.faults : 0;
}

unsigned long world_huge_kib(pid_t pid)
{
    unsigned long kib = 0;
    char path[64], line[256];
    FILE *rollup;

    (void)snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", (long)pid);
    rollup = fopen(path, "re");
    assert_non_null(rollup);
    while (fgets(line, sizeof(line), rollup) && sscanf(line, "AnonHugePages: %lu kB", &kib) != 1)
        ;
    (void)fclose(rollup);
    return kib;
}

void world_cpu_await(pid_t pid, unsigned ms)
{
    unsigned long wanted = 0;
    struct stat_line line;

    if (stat_read(pid, &line))
        wanted = line.ticks + ms * (unsigned long)sysconf(_SC_CLK_TCK) / 1000;
    for (int i = 0; i < POLLS_MAX; i++) {
        if (stat_read(pid, &line) && line.ticks >= wanted)
            return;
        pause_briefly();
    }
    fail_msg("process %ld does not compute", (long)pid);
}

bool world_is_called(pid_t pid, const char *name)
{
    struct stat_line line;

    return stat_read(pid, &line) && strcmp(line.name, name) == 0;
}

bool world_gone_await(pid_t pid)
{
    struct stat_line line;

    /* Shorter than any endless source takes to end by itself. */
    for (int i = 0; i < POLLS_MAX / 6; i++) {
        if (!stat_read(pid, &line) || line.state == 'Z' || line.state == 'X')
            return true;
        pause_briefly();
    }
    return false;
}

size_t world_descriptors(void)
{
    DIR *fds = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(fds);
    while (readdir(fds))
        count++;
    (void)closedir(fds);
    return count;
}

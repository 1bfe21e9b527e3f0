/* Argument vectors made of clang's own table of options and of ours, misspelled in all ways: each
 * that the policy takes is compiled by a process that is watched, and opens nothing outside of the
 * request and the toolchain, changes nothing and starts nothing.
 *
 * A case is a number: its vector follows from it alone, so that any one can be looked at again.
 * MW_FUZZ_CASES and MW_FUZZ_SEED change how many there are and what they are. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/flags.h>

#include "clang_bridge.h"
#include "clang_options.h"
#include "folder.h"
#include "trial.h"
#include "watch.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define CASES_DEFAULT 1000u
#define SEED_DEFAULT  87232857u
#define SECONDS_EACH  20u /* a compile that takes longer is ended; nobody waits for it */

#define ENDED_MAX 5u /* cases on which the compiler crashes: no hole, and few */

#define HOLE_CASES 200u /* enough to find one */

#define ARGS_MAX      24u
#define ARG_BYTES     256u
#define PIECES_MAX    6u
#define COMPILED_PART 4u /* at least one case in so many is taken and compiled */

struct vector {
    char texts[ARGS_MAX][ARG_BYTES];
    const char *args[ARGS_MAX];
    size_t count;
};

/* What the children tell. */
struct shared {
    struct watch_log log;
    _Atomic size_t at; /* the case that runs */
    _Atomic size_t compiled, worked;
};

/* Makes the vector of a case. */
typedef void vector_fn(size_t index, struct vector *vector);

static const struct mw_toolchain *toolchain;
static struct folder folder;
static char *secret, *secret_header, *scratch;
static char *installation; /* of the compiler: its driver lists what may hold a GCC */
static struct shared *shared;
static struct watch_rules rules;
static bool has_hole; /* the policy lets every include through: a host's own compile */

/* ---- vectors ---- */

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static size_t random_below(uint64_t *state, size_t bound)
{
    return random_next(state) % bound;
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void vector_add(struct vector *vector, const char *first, const char *second)
{
    if (vector->count == ARGS_MAX)
        return;
    (void)snprintf(vector->texts[vector->count], ARG_BYTES, "%s%s", first, second);
    vector->args[vector->count] = vector->texts[vector->count];
    vector->count++;
}

/* What an option may be asked to read, write or run, and what it may be told else. */
static const char *value_pick(uint64_t *state)
{
    enum { OUTSIDE = 4 }; /* the first ones lead out */
    const char *const values[] = {secret_header,
                                  secret,
                                  "/etc/passwd",
                                  "../../secret.h",
                                  "x",
                                  "main.c",
                                  "part.h",
                                  ".",
                                  "native",
                                  "help",
                                  "a=b",
                                  "8",
                                  "0",
                                  "all",
                                  "",
                                  "-",
                                  "A=1",
                                  "generic",
                                  "=/etc",
                                  "@x"};

    return values[random_below(state, random_below(state, 2) ? OUTSIDE : COUNT(values))];
}

/* One of `list`, whose words end at any of `ends`. */
static void word_pick(uint64_t *state, const char *list, const char *ends, char word[ARG_BYTES])
{
    size_t count = 1, pick;

    for (const char *at = list; *at; at++)
        count += strchr(ends, *at) != NULL;
    for (pick = random_below(state, count); pick > 0; pick--)
        list += strcspn(list, ends) + 1;
    (void)snprintf(word, ARG_BYTES, "%.*s", (int)strcspn(list, ends), list);
}

static void option_add(uint64_t *state, struct vector *vector)
{
    const struct clang_option *option = NULL;
    char value[ARG_BYTES];
    size_t count = 0;

    while (clang_option_get(count))
        count++;
    option = clang_option_get(random_below(state, count));
    if (option->values && random_below(state, 4) > 0)
        word_pick(state, option->values, ",", value);
    else
        (void)snprintf(value, sizeof value, "%s", value_pick(state));
    switch (option->kind) {
    case CLANG_FLAG:
        vector_add(vector, option->name, "");
        break;
    case CLANG_JOINED:
    case CLANG_COMMA_JOINED:
    case CLANG_REMAINING_JOINED:
        vector_add(vector, option->name, value);
        break;
    case CLANG_EITHER:
    case CLANG_BOTH:
        vector_add(vector, option->name, random_below(state, 2) ? value : "");
        vector_add(vector, value, "");
        break;
    default:
        vector_add(vector, option->name, "");
        vector_add(vector, value, "");
        break;
    }
}

/* Whether an entry's values are a kind, and not listed. */
static bool is_kind(const char *values)
{
    struct mw_flag_kind kind;

    for (size_t i = 0; mw_flag_kind_get(i, &kind); i++) {
        if (strcmp(values, kind.name) == 0)
            return true;
    }
    return false;
}

static void entry_add(uint64_t *state, struct vector *vector)
{
    static const char *const targets[] = {"x86_64-linux-gnu",
                                          "aarch64-linux-gnu",
                                          "armv7-linux-gnueabihf",
                                          "riscv64-unknown-elf",
                                          "wasm32-wasi",
                                          "x86_64-apple-macosx",
                                          "x86_64-pc-windows-msvc",
                                          "i686-w64-mingw32",
                                          "nvptx64-cuda",
                                          "amdgcn-amd-amdhsa",
                                          "hexagon",
                                          "avr",
                                          "mips64-linux",
                                          "x86_64-scei-ps4",
                                          "ve-linux",
                                          "xcore",
                                          "arm-none-eabi",
                                          "s390x-linux-gnu",
                                          "powerpc64-ibm-aix",
                                          "sparc-sun-solaris",
                                          "x86_64-fuchsia",
                                          "aarch64-linux-android",
                                          "x86_64-haiku",
                                          "spirv64"};
    struct mw_flag_entry entry;
    char name[ARG_BYTES], value[ARG_BYTES];
    const char *no;
    size_t count = 0;

    while (mw_flag_entry_get(count, &entry))
        count++;
    do
        mw_flag_entry_get(random_below(state, count), &entry);
    while ((entry.use == MW_FLAG_REFUSED && random_below(state, 8) > 0) ||
           (!is_kind(entry.values) && random_below(state, 2)));
    if (strstr(entry.name, "-target"))
        (void)snprintf(value, sizeof value, "%s", targets[random_below(state, COUNT(targets))]);
    else if (strcmp(entry.values, "PATH") == 0 && random_below(state, 2))
        (void)snprintf(value, sizeof value, "%s", random_below(state, 2) ? "part.h" : "inc");
    else if (is_kind(entry.values))
        (void)snprintf(value, sizeof value, "%s", value_pick(state));
    else
        word_pick(state, entry.values, " ", value);
    no = strstr(entry.name, "[no-]");
    (void)snprintf(name, sizeof name, "%.*s%s", no ? (int)(no - entry.name) : (int)ARG_BYTES,
                   entry.name, no && random_below(state, 2) ? "no-" : "");
    if (strstr(entry.written, "apart") && random_below(state, 2)) {
        vector_add(vector, name, "");
        vector_add(vector, value, "");
    } else {
        vector_add(vector, name, value);
    }
}

static void wild_add(uint64_t *state, struct vector *vector)
{
    static const char *const texts[] = {"--",     "-",    "",     "@",   "-Xclang",
                                        "-mllvm", "-Wp,", "-Wa,", "-I",  "-include",
                                        "-cc1",   "-x",   "-###", "---", "/c"};

    if (random_below(state, 4) == 0)
        vector_add(vector, "@", secret_header);
    else
        vector_add(vector, texts[random_below(state, COUNT(texts))],
                   random_below(state, 2) ? "" : value_pick(state));
}

/* Misspell the last argument. */
static void argument_mutate(uint64_t *state, struct vector *vector)
{
    static const char odd[] = "-=,:/.@ \n\"\\%A";
    char *text = vector->texts[vector->count - 1], old[ARG_BYTES];
    size_t bytes = strlen(text), at = random_below(state, bytes + 1);

    memcpy(old, text, sizeof old);
    switch (random_below(state, 9)) {
    case 0: /* one dash more */
        (void)snprintf(text, ARG_BYTES, "-%.250s", old);
        break;
    case 1: /* or less */
        (void)snprintf(text, ARG_BYTES, "%s", old + (old[0] == '-'));
        break;
    case 2:
        (void)snprintf(text, ARG_BYTES, "%.*s%c%.250s", (int)at, old,
                       odd[random_below(state, sizeof odd - 1)], old + at);
        break;
    case 3: /* a character less */
        (void)snprintf(text, ARG_BYTES, "%.*s%s", (int)at, old, old + at + (at < bytes));
        break;
    case 4: /* the beginning of an option, as a shell would complete */
        text[at] = '\0';
        break;
    case 5:
        (void)snprintf(text, ARG_BYTES, "%.100s=%.100s", old, value_pick(state));
        break;
    case 6:
        (void)snprintf(text, ARG_BYTES, "%.100s,%.100s", old, value_pick(state));
        break;
    case 7:
        (void)snprintf(text, ARG_BYTES, "-%s%.240s", random_below(state, 2) ? "Xclang=" : "Wp,",
                       old);
        break;
    default: /* joined to the one before */
        if (vector->count > 1) {
            vector->count--;
            (void)strncat(vector->texts[vector->count - 1], old,
                          ARG_BYTES - 1 - strlen(vector->texts[vector->count - 1]));
        }
        break;
    }
}

static bool is_taken(const struct vector *vector, struct mw_options **options,
                     struct mw_compile_request *request)
{
    struct mw_refusal refusal = {0};

    request->args = vector->args;
    request->arg_count = vector->count;
    return mw_request_check(request, &refusal) == 0 &&
           mw_options_new(options, request, &refusal) == 0;
}

/* The request that each vector comes with. Its source finds out whether it can see the secret. */
static struct mw_compile_request request_make(size_t index)
{
    static const char text[] = "#include <stddef.h>\n"
                               "#include \"part.h\"\n"
                               "#if __has_include(\"secret.h\") || __has_include(<secret.h>)\n"
                               "#error the secret shows\n"
                               "#endif\n"
                               "int f(int a, float b) { size_t c = a; return PART + c * b; }\n";
    static const char part[] = "#define PART 3\n";
    static const struct mw_source_file files[] = {{"main.c", text, sizeof text - 1},
                                                  {"main.cc", text, sizeof text - 1},
                                                  {"part.h", part, sizeof part - 1},
                                                  {"inc/part.h", part, sizeof part - 1}};

    return (struct mw_compile_request){.emit = (enum mw_emit_kind)(index / 2 % MW_EMIT_KINDS),
                                       .directory = MW_REQUEST_DIRECTORY_DEFAULT,
                                       .main = files[index % 2].name,
                                       .files = files,
                                       .file_count = COUNT(files),
                                       .read_disk = has_hole};
}

/* Several pieces, each of them as likely as not misspelled. Most that are refused alone are left
 * out again, or hardly any vector of several would be taken. */
static void mixture_make(size_t index, struct vector *vector)
{
    uint64_t state = number_from("MW_FUZZ_SEED", SEED_DEFAULT) * UINT64_C(0x100000001b3) + index;
    size_t pieces = 1 + random_below(&state, PIECES_MAX);
    struct mw_compile_request request = request_make(index);

    vector->count = 0;
    while (pieces-- > 0) {
        struct vector piece = {.count = 0};
        struct mw_options *options = NULL;
        size_t source = random_below(&state, 16);

        if (source < 5)
            option_add(&state, &piece);
        else if (source < 15)
            entry_add(&state, &piece);
        else
            wild_add(&state, &piece);
        if (random_below(&state, 3) == 0)
            argument_mutate(&state, &piece);
        if (!is_taken(&piece, &options, &request) && random_below(&state, 16) > 0)
            continue;
        mw_options_free(options);
        for (size_t i = 0; i < piece.count; i++)
            vector_add(vector, piece.args[i], "");
    }
}

/* Each option of clang's, in each of these ways. */
static const struct {
    const char *between;
    enum { NONE, JOINED, NEXT } value;
    bool leads_out; /* the value names a file outside */
} ways[] = {{"", NONE, false},   {"", JOINED, false}, {"", JOINED, true}, {"=", JOINED, false},
            {"=", JOINED, true}, {"", NEXT, false},   {"", NEXT, true}};

static size_t sweep_count(void)
{
    size_t count = 0;

    while (clang_option_get(count))
        count++;
    return count * COUNT(ways);
}

static void sweep_make(size_t index, struct vector *vector)
{
    const struct clang_option *option = clang_option_get(index / COUNT(ways));
    size_t way = index % COUNT(ways);
    const char *value = ways[way].leads_out ? secret_header : "x";
    char first[ARG_BYTES];

    vector->count = 0;
    (void)snprintf(first, sizeof first, "%s%s", option->name, ways[way].between);
    vector_add(vector, first, ways[way].value == JOINED ? value : "");
    if (ways[way].value == NEXT)
        vector_add(vector, value, "");
}

/* ---- children ---- */

static void child_prepare(void)
{
    int nowhere = open("/dev/null", O_WRONLY);

    if (nowhere < 0 || dup2(nowhere, 1) < 0 || dup2(nowhere, 2) < 0 || chdir(scratch) < 0 ||
        setenv("TMPDIR", scratch, 1) < 0 || watch_begin(&rules, &shared->log) < 0)
        _exit(90);
}

/* Compile with `vector` when the policy takes it. */
static void vector_try(const struct vector *vector, size_t index)
{
    struct mw_compile_request request = request_make(index);
    struct mw_options *options = NULL;
    struct mw_compile_result result;

    if (!is_taken(vector, &options, &request))
        return;
    (void)mw_compile(toolchain, options, &request, &result);
    /* Read by the parent after the child's end: relaxed. */
    atomic_fetch_add_explicit(&shared->compiled, 1, memory_order_relaxed);
    if (result.ok)
        atomic_fetch_add_explicit(&shared->worked, 1, memory_order_relaxed);
    for (size_t i = 0; i < result.diagnostics.count; i++) {
        if (strstr(result.diagnostics.items[i].message, "the secret shows"))
            _exit(91);
    }
    mw_compile_result_fini(&result);
    mw_options_free(options);
}

/* Run the cases from shared->at on, until one breaks a rule. */
static void child_run(vector_fn *make, size_t count)
{
    child_prepare();
    for (;;) {
        size_t index = atomic_load_explicit(&shared->at, memory_order_relaxed);
        struct vector vector;

        if (index == count)
            _exit(0);
        (void)alarm(SECONDS_EACH);
        make(index, &vector);
        vector_try(&vector, index);
        if (atomic_load_explicit(&shared->log.count, memory_order_relaxed) > 0)
            _exit(92);
        atomic_store_explicit(&shared->at, index + 1, memory_order_relaxed);
    }
}

static void shared_clear(void)
{
    memset(shared, 0, sizeof *shared);
}

static void vector_show(const struct vector *vector)
{
    for (size_t i = 0; i < vector->count; i++)
        print_error("'%s' ", vector->args[i]);
    print_error("\n");
}

/* Run `count` cases in children; a case that ends its child is counted and passed over. Returns
 * how many ended so. */
static size_t cases_run(vector_fn *make, size_t count)
{
    size_t ended = 0;

    shared_clear();
    for (;;) {
        size_t index;
        int status = 0;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0)
            child_run(make, count);
        assert_int_equal(waitpid(child, &status, 0), child);
        index = atomic_load_explicit(&shared->at, memory_order_relaxed);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return ended;
        struct vector vector;
        make(index, &vector);
        vector_show(&vector);
        /* SIGSYS: a call was seen where signals are blocked, as where a process is started. */
        if (WIFEXITED(status) || WTERMSIG(status) == SIGSYS) {
            const struct watch_event *event = &shared->log.events[0];

            fail_msg("case %zu ends with %x: %s %s", index, (unsigned)status, event->call,
                     event->path);
        }
        print_error("case %zu is ended by signal %d\n", index, WTERMSIG(status));
        ended++;
        atomic_store_explicit(&shared->at, index + 1, memory_order_relaxed);
    }
}

/* ---- tests ---- */

static int try_open_secret(void)
{
    return open(secret_header, O_RDONLY);
}
static int try_open_elsewhere(void)
{
    return open("/etc/passwd", O_RDONLY);
}
static int try_open_around(void)
{
    return open("/usr/include/../../etc/passwd", O_RDONLY);
}
static int try_look(void)
{
    return access(secret_header, R_OK);
}
static int try_write(void)
{
    return open("/usr/include/mw-test", O_WRONLY | O_CREAT, 0600);
}
static int try_mkdir(void)
{
    return mkdir(secret, 0700);
}
static int try_rename(void)
{
    return rename(scratch, secret);
}
static int try_exec(void)
{
    char *const args[] = {"true", NULL};

    return execv("/bin/true", args);
}
static int try_spawn(void)
{
    char *const args[] = {"true", NULL};
    pid_t pid;

    return posix_spawn(&pid, "/bin/true", NULL, NULL, args, NULL) ? -1 : 0;
}
static int try_read_toolchain(void)
{
    return open("/usr/include/stdio.h", O_RDONLY);
}
static int try_list(void)
{
    return open(installation, O_RDONLY | O_DIRECTORY);
}
static int try_open_installation(void)
{
    return open(installation, O_RDONLY);
}
static int try_scratch(void)
{
    return mkdir("there", 0700);
}

/* Broken by a watcher that lets a way through unseen, or cries at what a compile must do. */
static void the_watcher_sees_each_way_and_lets_the_rest_be(void **state)
{
    static const struct {
        int (*try)(void);
        const char *call; /* noted; NULL: it works, and nothing is */
    } tries[] = {{try_open_secret, "openat"},
                 {try_open_elsewhere, "openat"},
                 {try_open_around, "openat"},
                 {try_look, "access"},
                 {try_write, "openat"},
                 {try_mkdir, "mkdir"},
                 {try_rename, "rename"},
                 {try_exec, "execve"},
                 {try_spawn, "clone"},
                 {try_read_toolchain, NULL},
                 {try_open_installation, "openat"},
                 {try_list, NULL},
                 {try_scratch, NULL}};

    (void)state;
    for (size_t i = 0; i < COUNT(tries); i++) {
        int status = 0;
        pid_t child;

        shared_clear();
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            child_prepare();
            _exit(tries[i].try() >= 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && tries[i].try == try_spawn)
            continue; /* it starts processes with all signals blocked: the watcher kills it then */
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (tries[i].call ? 1 : 0) ||
            (shared->log.count > 0) != (tries[i].call != NULL))
            fail_msg("try %zu ends with %x, %zu events, the first of them %s %s", i, status,
                     shared->log.count, shared->log.events[0].call, shared->log.events[0].path);
        if (tries[i].call) /* machines differ in which of a family they call */
            assert_memory_equal(shared->log.events[0].call, tries[i].call, 4);
    }
}

/* Whether an event was of `path` or below it. */
static bool is_seen(const char *path)
{
    size_t count = atomic_load_explicit(&shared->log.count, memory_order_acquire);

    for (size_t i = 0; i < count && i < WATCH_EVENTS_MAX; i++) {
        if (strncmp(shared->log.events[i].path, path, strlen(path)) == 0)
            return true;
    }
    return false;
}

/* Run `job` in a watched child, and look for an event of `path` or below it. */
static bool is_caught(void (*job)(const struct vector *vector), const struct vector *vector,
                      const char *path)
{
    int status = 0;
    pid_t child;

    shared_clear();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        child_prepare();
        job(vector);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return is_seen(path);
}

static void compile_reading_disk(const struct vector *vector)
{
    rules.secret = NULL; /* so that it comes as far as to open the file */
    has_hole = true;
    vector_try(vector, 0);
}

static void compile_past_policy(const struct vector *vector)
{
    struct mw_compile_request request = request_make(0);
    struct mw_bridge_result result;
    struct mw_bridge_job job = {
        .clang_path = mw_toolchain_clang_path(toolchain),
        .directory = request.directory,
        .main = request.main,
        .files = request.files,
        .file_count = request.file_count,
        .args = vector->args,
        .arg_count = vector->count,
        .artifact_bytes_max = MW_ARTIFACT_BYTES_MAX,
    };

    rules.secret = NULL;
    job.readable_dirs = mw_toolchain_dirs(toolchain, &job.readable_count);
    (void)mw_bridge_run(&job, &result);
}

/* Broken by a watcher that does not see what the compiler does. The controls of all cases below:
 * the same compile under a policy that lets every include through, and with flags that no policy
 * saw. */
static void a_policy_with_a_hole_is_caught(void **state)
{
    static const char *const flags[][2] = {
        {"-fprofile-instr-use=", ""},
        {"-MF", "-MD"},
        {"--serialize-diagnostics", ""},
        {"-foptimization-record-file=", "-fsave-optimization-record"}};
    struct vector vector = {.count = 0};

    (void)state;
    vector_add(&vector, "-include", secret_header);
    assert_true(is_caught(compile_reading_disk, &vector, secret_header));
    for (size_t i = 0; i < COUNT(flags); i++) {
        vector.count = 0;
        if (flags[i][1][0])
            vector_add(&vector, flags[i][1], "");
        vector_add(&vector, flags[i][0], strchr(flags[i][0], '=') ? secret_header : "");
        if (!strchr(flags[i][0], '='))
            vector_add(&vector, secret_header, "");
        if (!is_caught(compile_past_policy, &vector, secret_header))
            fail_msg("%s goes unseen", flags[i][0]);
    }
}

static void mixtures_reading_disk(const struct vector *none)
{
    static const char *const wide[] = {"/etc", "/usr", "/lib", "/src", NULL};

    (void)none;
    has_hole = true;
    rules.readable = wide; /* so that only what the vectors name is seen */
    for (size_t i = 0; i < HOLE_CASES && !is_seen(secret); i++) {
        struct vector vector;

        memset(&shared->log, 0, sizeof shared->log);
        mixture_make(i, &vector);
        vector_try(&vector, i);
    }
}

/* Broken by vectors that never come to what would lead out: under a policy with a hole they do. */
static void the_mixtures_find_a_hole(void **state)
{
    (void)state;
    assert_true(is_caught(mixtures_reading_disk, NULL, secret));
}

/* Broken by any option of clang's, written in any plain way, that is taken and should not be. */
static void no_option_of_clang_leads_out_of_the_request(void **state)
{
    size_t count = sweep_count();

    (void)state;
    assert_true(count > 10000);
    assert_true(cases_run(sweep_make, count) <= ENDED_MAX);
    print_message("%zu vectors, %zu taken and compiled, %zu of them with success\n", count,
                  shared->compiled, shared->worked);
    assert_true(shared->worked > 100);
}

/* Broken by a combination or a misspelling that the policy reads other than clang does. */
static void no_mixture_leads_out_of_the_request(void **state)
{
    size_t count = number_from("MW_FUZZ_CASES", CASES_DEFAULT);

    (void)state;
    assert_true(cases_run(mixture_make, count) <= ENDED_MAX);
    print_message("%zu vectors, %zu taken and compiled, %zu of them with success\n", count,
                  shared->compiled, shared->worked);
    assert_true(shared->compiled > count / COMPILED_PART);
    assert_true(shared->worked > count / COMPILED_PART / 2);
}

static int setup(void **state)
{
    int rc = trial_setup(state);

    if (rc)
        return rc;
    toolchain = *state;
    folder_make(&folder);
    folder_mkdir(&folder, "scratch");
    folder_mkdir(&folder, "secret");
    folder_write(&folder, "secret/secret.h", "#define SECRET 1\n");
    secret = folder_path(&folder, "secret");
    secret_header = folder_path(&folder, "secret/secret.h");
    scratch = folder_path(&folder, "scratch");
    installation = strdup(mw_toolchain_clang_path(toolchain));
    assert_non_null(installation);
    installation[strlen(installation) - strlen("/bin/clang")] = '\0';
    rules = (struct watch_rules){.readable = mw_toolchain_dirs(toolchain, NULL),
                                 .listable = installation,
                                 .scratch = scratch,
                                 .secret = secret};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
    (void)munmap(shared, sizeof *shared);
    free(secret);
    free(secret_header);
    free(scratch);
    free(installation);
    folder_remove(&folder);
    return trial_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_watcher_sees_each_way_and_lets_the_rest_be),
        cmocka_unit_test(a_policy_with_a_hole_is_caught),
        cmocka_unit_test(the_mixtures_find_a_hole),
        cmocka_unit_test(no_option_of_clang_leads_out_of_the_request),
        cmocka_unit_test(no_mixture_leads_out_of_the_request),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

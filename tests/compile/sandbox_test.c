/* Each guard stops what it is there for: the same attempt by a process that lacks only that guard
 * goes through. Where two guards stop one attempt, the other is off in both runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "sandbox.h"
#include "support/sanitized.h"
#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define DATA_BYTES (UINT64_C(1) << 30)
#define FILE_BYTES (UINT64_C(1) << 20)

/* What the children try things on; made before the fork. */
static const struct mw_toolchain *toolchain;
static struct folder folder;
static int open_file = -1;    /* in the folder, to write to */
static int listener = -1;     /* of TCP, on this machine only */
static struct sockaddr_in at; /* where it listens */

/* How an attempt ends: it returns 0, or an errno; or it is killed. */
enum { KILLED = 1000 }; /* and the signal on top */

struct attempt {
    const char *name;
    int (*try)(void);
    unsigned guard;  /* stops it */
    unsigned others; /* that would, too */
    int end;         /* with the guard */
    int abi;         /* of landlock, that it needs; 0: any */
};

/* Run `try` in a child inside a sandbox of `guards` and `cpu_s`. Returns how it ended. */
static int run_for(uint64_t cpu_s, int (*try)(void), unsigned guards, bool *core)
{
    struct mw_sandbox sandbox = {
        .data_bytes = DATA_BYTES,
        .cpu_s = cpu_s,
        .file_bytes = FILE_BYTES,
        .descriptors = 64,
        .guards = guards,
    };
    int status = 0;
    pid_t child;

    sandbox.readable_dirs = mw_toolchain_dirs(toolchain, &sandbox.readable_count);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int error = mw_sandbox_enter(&sandbox);

        if (error)
            fprintf(stderr, "mw_sandbox_enter: %s\n", strerror(-error));
        _exit(error ? 255 : try());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (core)
        *core = WIFSIGNALED(status) && WCOREDUMP(status);
    return WIFSIGNALED(status) ? KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run(int (*try)(void), unsigned guards, bool *core)
{
    return run_for(1, try, guards, core);
}

/* ---- attempts ---- */

static int result_of(long returned)
{
    return returned < 0 ? errno : 0;
}

static int read_passwd(void)
{
    return result_of(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int list_root(void)
{
    return result_of(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int write_new_file(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/made", folder.path);
    return result_of(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int truncate_file(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/file", folder.path);
    return result_of(truncate(path, 0));
}

static int run_program(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return errno;
}

static int connect_tcp(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd < 0 ? errno : result_of(connect(fd, (struct sockaddr *)&at, sizeof(at)));
}

static int open_socket(void)
{
    return result_of(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int fork_once(void)
{
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    return child < 0 ? errno : result_of(waitpid(child, NULL, 0));
}

/* By the call itself, with `flags`, as no function of libc would. */
static int clone_once(uint64_t flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0);

    if (child == 0)
        _exit(0);
    return child < 0 ? errno : result_of(waitpid((pid_t)child, NULL, 0));
}

static int clone_plainly(void)
{
    return clone_once(0);
}

static int clone_into_new_user(void)
{
    return clone_once(CLONE_NEWUSER);
}

static int clone_by_third_call(void)
{
    struct clone_args how = {.exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &how, sizeof(how));

    if (child == 0)
        _exit(0);
    return child < 0 ? errno : result_of(waitpid((pid_t)child, NULL, 0));
}

static int fork_by_its_own_call(void)
{
    long child = syscall(SYS_fork);

    if (child == 0)
        _exit(0);
    return child < 0 ? errno : result_of(waitpid((pid_t)child, NULL, 0));
}

static void *end_at_once(void *nothing)
{
    return nothing;
}

static int start_thread(void)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, end_at_once, NULL);

    return error ? error : pthread_join(thread, NULL);
}

/* Ends by itself when this process does. */
static int trace_parent(void)
{
    return result_of(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL));
}

static int signal_parent(void)
{
    return result_of(kill(getppid(), 0));
}

static int tgkill_parent(void)
{
    return result_of(tgkill(getppid(), getppid(), SIGURG)); /* which nobody heeds */
}

static int own_parent_by_descriptor(void)
{
    return result_of(fcntl(open_file, F_SETOWN, getppid()));
}

static int lower_limit_of_parent(void)
{
    struct rlimit same;

    if (getrlimit(RLIMIT_MEMLOCK, &same) < 0)
        return errno;
    return result_of(prlimit(getppid(), RLIMIT_MEMLOCK, &same, NULL));
}

static int make_code(void)
{
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? errno : 0;
}

static int allocate_too_much(void)
{
    void *pages = mmap(NULL, DATA_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return pages == MAP_FAILED ? errno : 0;
}

/* Of a kind that RLIMIT_DATA does not count. */
static int allocate_shared(void)
{
    void *pages = mmap(NULL, DATA_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return pages == MAP_FAILED ? errno : 0;
}

static int spin_too_long(void)
{
    struct timespec used = {0};

    while (used.tv_sec * 10 + used.tv_nsec / 100000000 < 15)
        if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) < 0)
            return errno;
    return 0;
}

static int write_too_much(void)
{
    signal(SIGXFSZ, SIG_IGN);
    return result_of(ftruncate(open_file, FILE_BYTES + 1));
}

static int open_too_many(void)
{
    for (int i = 0; i < 100; i++)
        if (open("/usr/include", O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0)
            return errno;
    return 0;
}

static int crash(void)
{
    if (chdir(folder.path) < 0)
        return errno;
    abort();
}

enum { QUOTED = 100 }; /* the diagnostics say what is in a file */

/* Compile `trial`: 0 when that gave an object. */
static int compile_of(const struct trial *trial)
{
    struct mw_compile_result result;
    int rc = trial_leaf(mw_compile, toolchain, trial, &result);

    for (size_t i = 0; i < result.diagnostics.count; i++)
        if (strstr(result.diagnostics.items[i].message, "root:") ||
            strstr(result.diagnostics.items[i].line_text, "root:"))
            return QUOTED;
    if (rc)
        return -rc;
    return result.ok && result.artifact_bytes > 0 ? 0 : ENOEXEC;
}

static int compile_passwd(void)
{
    static const struct trial trial = {
        .files = {{"a.c", "__asm__(\".data\\n.incbin \\\"/etc/passwd\\\"\\n\");\n"}}};

    return compile_of(&trial);
}

/* As assembly, so that the assembler complains of each line that it finds in there. */
static int compile_passwd_as_source(void)
{
    static const struct trial trial = {
        .files = {{"a.c", "__asm__(\".include \\\"/etc/passwd\\\"\\n\");\n"}}};

    close(STDERR_FILENO); /* the assembler prints where it is to it */
    return compile_of(&trial);
}

static int compile_c(void)
{
    static const struct trial trials[] = {
        {.files = {{"a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\"); }\n"}},
         .args = {"-O0", "-g"}},
        {.files = {{"a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\"); }\n"}},
         .args = {"-O2"},
         .emit = MW_EMIT_ASM},
    };
    int end = 0;

    for (size_t i = 0; end == 0 && i < COUNT(trials); i++)
        end = compile_of(&trials[i]);
    return end;
}

static int compile_cxx(const char *level)
{
    struct trial trial = {
        .files = {{"a.cc", "#include <map>\n#include <string>\n#include <vector>\n"
                           "std::map<std::string, std::vector<int>> all;\n"
                           "void add(const std::string &to, int n) { all[to].push_back(n); }\n"}},
        .args = {level, "-g"}};

    return compile_of(&trial);
}

static int compile_cxx_fast(void)
{
    return compile_cxx("-O0");
}

static int compile_cxx_well(void)
{
    return compile_cxx("-O2");
}

/* Every kind of output, every target that Debian's headers do not matter to, every header. */
static int compile_kinds(void)
{
    static const char *const targets[] = {"x86_64-linux-gnu", "aarch64-linux-gnu", "bpf",
                                          "riscv64-linux-gnu", "wasm32"};
    static const struct trial headers = {.files = {{"a.cc", "#include <bits/stdc++.h>\n"}},
                                         .args = {"-std=c++20"}};
    struct trial trial = {.files = {{"a.c", "static const char *const when = __DATE__ __TIME__;\n"
                                            "const char *f(int n) { return when + n; }\n"}},
                          .args = {"-O2", "-g", NULL}};
    int end = compile_of(&headers);

    for (int kind = 0; end == 0 && kind < MW_EMIT_NONE; kind++)
        for (size_t i = 0; end == 0 && i < COUNT(targets); i++) {
            char target[64];

            snprintf(target, sizeof(target), "--target=%s", targets[i]);
            trial.emit = (enum mw_emit_kind)kind;
            trial.args[2] = target;
            end = compile_of(&trial);
        }
    return end;
}

static int compile_nonsense(void)
{
    static const struct trial trial = {
        .files = {{"a.c", "#include <none.h>\nint f(void) { return no; }\n"}}};

    return compile_of(&trial);
}

/* ---- tests ---- */

#define SYSCALLS MW_GUARD_SECCOMP
#define FILES    MW_GUARD_LANDLOCK
#define LIMITS   MW_GUARD_LIMITS

static const struct attempt attempts[] = {
    {"read a file", read_passwd, FILES, 0, EACCES, 0},
    {"read a file by a compile", compile_passwd, FILES, 0, ENOEXEC, 0},
    {"list a folder", list_root, FILES, 0, EACCES, 0},
    {"write a file", write_new_file, FILES, 0, EACCES, 0},
    {"truncate a file", truncate_file, FILES, SYSCALLS, EACCES, 3},
    {"truncate a file, as a call", truncate_file, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"run a program", run_program, FILES, SYSCALLS, EACCES, 0},
    {"run a program, as a call", run_program, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"connect", connect_tcp, FILES, SYSCALLS, EACCES, 4},
    {"connect, as a call", connect_tcp, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"open a socket", open_socket, SYSCALLS, 0, KILLED + SIGSYS, 0},
    {"fork", fork_once, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"clone", clone_plainly, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"clone, new user", clone_into_new_user, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"clone3", clone_by_third_call, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"fork, as a call", fork_by_its_own_call, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"start a thread", start_thread, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"trace the parent", trace_parent, FILES, SYSCALLS | LIMITS, EPERM, 0},
    {"trace the parent, as a call", trace_parent, SYSCALLS, FILES | LIMITS, KILLED + SIGSYS, 0},
    {"signal the parent", signal_parent, FILES, SYSCALLS, EPERM, 6},
    {"signal the parent, as a call", signal_parent, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"signal a thread of the parent", tgkill_parent, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"signal by a descriptor", own_parent_by_descriptor, SYSCALLS, FILES, KILLED + SIGSYS, 0},
    {"lower a limit of the parent", lower_limit_of_parent, SYSCALLS, LIMITS, KILLED + SIGSYS, 0},
    {"make code", make_code, SYSCALLS, 0, KILLED + SIGSYS, 0},
    {"allocate too much", allocate_too_much, LIMITS, 0, SANITIZED ? 0 : ENOMEM, 0},
    {"allocate shared memory", allocate_shared, SYSCALLS, 0, KILLED + SIGSYS, 0},
    {"spin too long", spin_too_long, LIMITS, 0, KILLED + SIGKILL, 0},
    {"write too much", write_too_much, LIMITS, 0, EFBIG, 0},
    {"open too many", open_too_many, LIMITS, 0, EMFILE, 0},
};

/* Breaks when a guard lets through what it is there for, and, as the control, when the attempt
 * would fail without it. */
static void each_guard_stops_what_it_is_there_for(void **state)
{
    int abi;

    (void)state;
    mw_sandbox_available(&abi);
    for (size_t i = 0; i < COUNT(attempts); i++) {
        const struct attempt *attempt = &attempts[i];
        unsigned guards = MW_GUARDS_ALL & ~attempt->others;
        int with, without;

        if (abi < attempt->abi)
            continue;
        with = run(attempt->try, guards, NULL);
        without = run(attempt->try, guards & ~attempt->guard, NULL);
        if (with != attempt->end || without != 0)
            fail_msg("%s: ended with %d, wanted %d; without its guard %d, wanted 0", attempt->name,
                     with, attempt->end, without);
    }
}

/* Breaks when a worker that crashes leaves its memory, and the source in it, on the disk. */
static void crash_leaves_no_core(void **state)
{
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit before;
    bool with, without;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_CORE, &before), 0);
    if (setrlimit(RLIMIT_CORE, &unlimited) < 0)
        unlimited.rlim_cur = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_CORE, &unlimited), 0);
    assert_int_equal(run(crash, LIMITS, &with), KILLED + SIGABRT);
    assert_int_equal(run(crash, 0, &without), KILLED + SIGABRT);
    assert_int_equal(setrlimit(RLIMIT_CORE, &(struct rlimit){before.rlim_cur, unlimited.rlim_max}),
                     0);
    assert_false(with);
    if (!without) /* a machine that makes none can show nothing */
        skip();
}

/* Breaks when an honest compile needs more than it gets, or the sandbox ends one that fails. */
static void compiles_work_inside(void **state)
{
    static int (*const compiles[])(void) = {compile_c, compile_cxx_fast, compile_cxx_well,
                                            compile_kinds};

    (void)state;
    for (size_t i = 0; i < COUNT(compiles); i++)
        assert_int_equal(run_for(60, compiles[i], MW_GUARDS_ALL, NULL), 0);
    assert_int_equal(run_for(60, compile_nonsense, MW_GUARDS_ALL, NULL), ENOEXEC);
}

/* Breaks when diagnostics quote a file that may not be read; the control shows that they would. */
static void diagnostics_quote_no_file(void **state)
{
    (void)state;
    assert_int_equal(run_for(60, compile_passwd_as_source, MW_GUARDS_ALL, NULL), ENOEXEC);
    assert_int_equal(run_for(60, compile_passwd_as_source, MW_GUARDS_ALL & ~FILES, NULL), QUOTED);
}

static void *wait_for(void *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

/* Breaks when a process enters of which one thread would stay outside. */
static void process_with_threads_is_refused(void **state)
{
    struct mw_sandbox sandbox = {.guards = 0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;

    (void)state;
    pthread_mutex_lock(&mutex);
    assert_int_equal(pthread_create(&thread, NULL, wait_for, &mutex), 0);
    assert_int_equal(mw_sandbox_enter(&sandbox), -EBUSY);
    pthread_mutex_unlock(&mutex);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Run inside a sandbox with a hard limit that the sandbox would raise. */
static int keeps_hard_limit(void)
{
    struct mw_sandbox sandbox = {.descriptors = 64, .cpu_s = 1, .guards = LIMITS};
    struct rlimit few = {32, 32};

    if (setrlimit(RLIMIT_NOFILE, &few) < 0 || mw_sandbox_enter(&sandbox) ||
        getrlimit(RLIMIT_NOFILE, &few) < 0)
        return EINVAL;
    return few.rlim_cur == 32 && few.rlim_max == 32 ? 0 : ERANGE;
}

/* Breaks when a limit that is stricter already is raised, or cannot be kept. */
static void stricter_limit_stays(void **state)
{
    (void)state;
    assert_int_equal(run(keeps_hard_limit, 0, NULL), 0);
}

/* Breaks when the check of what the kernel gives, gives nothing. */
static void this_kernel_gives_the_guards(void **state)
{
    int abi = -1;
    unsigned guards = mw_sandbox_available(&abi);

    (void)state;
    assert_int_equal(guards, MW_GUARDS_ALL);
    assert_true(abi >= 1);
}

static int setup(void **state)
{
    socklen_t bytes = sizeof(at);
    void *made = NULL;

    if (trial_setup(&made))
        return -1;
    toolchain = made;
    *state = made;
    folder_make(&folder);
    folder_write(&folder, "file", "some text\n");
    open_file = open(folder.path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (open_file < 0 || bind(listener, (struct sockaddr *)&at, bytes) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &bytes) < 0 || listen(listener, 4) < 0)
        return -1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* where it is not so anyway */
    return 0;
}

static int teardown(void **state)
{
    close(listener);
    close(open_file);
    folder_remove(&folder);
    return trial_teardown(state);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_kernel_gives_the_guards),
        cmocka_unit_test(each_guard_stops_what_it_is_there_for),
        cmocka_unit_test(crash_leaves_no_core),
        cmocka_unit_test(compiles_work_inside),
        cmocka_unit_test(diagnostics_quote_no_file),
        cmocka_unit_test(process_with_threads_is_refused),
        cmocka_unit_test(stricter_limit_stays),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

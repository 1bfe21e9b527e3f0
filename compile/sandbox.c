/* sandbox.c - see sandbox.h.
 *
 * Entered from the outside inwards, since each step needs calls that a later one takes away:
 * limits and privileges, then the file system, then the system calls. */
#include "sandbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int landlock_abi_read(void);
static bool has_other_threads(void);
static int limits_enter(const struct mw_sandbox *sandbox);
static int landlock_enter(const struct mw_sandbox *sandbox);
static int seccomp_enter(void);

unsigned mw_sandbox_available(int *landlock_abi)
{
    unsigned guards = MW_GUARD_LIMITS;
    uint32_t kill_process = SECCOMP_RET_KILL_PROCESS;
    int abi = landlock_abi_read();
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (landlock_abi)
        *landlock_abi = abi;
    if (abi > 0)
        guards |= MW_GUARD_LANDLOCK;
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill_process) == 0)
        guards |= MW_GUARD_SECCOMP;
    if (pidfd >= 0) {
        guards |= MW_GUARD_PIDFD;
        close(pidfd);
    }
    return guards;
}

int mw_sandbox_enter(const struct mw_sandbox *sandbox)
{
    int error = 0;

    if (has_other_threads())
        return -EBUSY;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    if (sandbox->guards & MW_GUARD_LIMITS)
        error = limits_enter(sandbox);
    if (error == 0 && (sandbox->guards & MW_GUARD_LANDLOCK))
        error = landlock_enter(sandbox);
    if (error == 0 && (sandbox->guards & MW_GUARD_SECCOMP))
        error = seccomp_enter();
    return error;
}

/* Landlock is a thread's: what other threads there are would stay outside. */
static bool has_other_threads(void)
{
    struct stat found;

    /* Where /proc is not mounted, who calls must know. */
    return stat("/proc/self/task", &found) == 0 && found.st_nlink > 2 + 1;
}

/* ---- limits and privileges ---- */

/* Root's privileges go too: a service in a container often runs as root. */
static int capabilities_drop(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static int limits_enter(const struct mw_sandbox *sandbox)
{
    const struct {
        int resource;
        rlim_t value;
    } limits[] = {
        /* The shadow of a sanitizer counts as data, terabytes of it. */
        {RLIMIT_DATA, SANITIZED ? RLIM_INFINITY : sandbox->data_bytes},
        {RLIMIT_CPU, sandbox->cpu_s},
        {RLIMIT_FSIZE, sandbox->file_bytes},
        {RLIMIT_NOFILE, sandbox->descriptors},
        {RLIMIT_CORE, 0},
        {RLIMIT_NPROC, 0}, /* does not bind root; no call of seccomp's list starts anything */
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit limit = {.rlim_cur = limits[i].value, .rlim_max = limits[i].value};
        struct rlimit now;

        if (getrlimit((__rlimit_resource_t)limits[i].resource, &now) < 0)
            return -errno;
        if (limit.rlim_max > now.rlim_max) /* what is stricter already stays so */
            limit.rlim_cur = limit.rlim_max = now.rlim_max;
        if (setrlimit((__rlimit_resource_t)limits[i].resource, &limit) < 0)
            return -errno;
    }
    /* A core that goes to a program knows no limit; and others of this user shall not look in. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -errno;
    return capabilities_drop();
}

/* ---- the file system ---- */

/* The kernel's interface of today; Debian 12's header knows the first two versions only. A kernel
 * takes a longer attribute than its own when the rest is zero. */
struct ruleset_attribute {
    uint64_t handled_access_fs, handled_access_net, scoped;
};

struct path_beneath_attribute {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

enum {
    CREATE_RULESET_VERSION = 1,
    RULE_PATH_BENEATH = 1,
    ACCESS_FS_READ_FILE = 1 << 2,
    ACCESS_FS_READ_DIR = 1 << 3,
};

/* What each version of landlock can forbid more than the one before. */
static const struct {
    int abi;
    struct ruleset_attribute rights;
} landlock_rights[] = {
    {1, {.handled_access_fs = (1u << 13) - 1}}, /* execute, write, read, remove, make */
    {2, {.handled_access_fs = 1u << 13}},       /* move between directories */
    {3, {.handled_access_fs = 1u << 14}},       /* truncate */
    {4, {.handled_access_net = 3}},             /* TCP: bind, connect */
    {5, {.handled_access_fs = 1u << 15}},       /* ioctl on devices */
    {6, {.scoped = 3}},                         /* abstract Unix sockets; signals */
};

static int landlock_abi_read(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

    return abi < 0 ? 0 : (int)abi;
}

static int directory_allow(int ruleset, const char *path)
{
    struct path_beneath_attribute rule = {
        .allowed_access = ACCESS_FS_READ_FILE | ACCESS_FS_READ_DIR,
        .parent_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC),
    };
    int error = 0;

    if (rule.parent_fd < 0)
        return -errno;
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0)
        error = -errno;
    close(rule.parent_fd);
    return error;
}

static int landlock_enter(const struct mw_sandbox *sandbox)
{
    struct ruleset_attribute handled = {0};
    int abi = landlock_abi_read();
    int ruleset, error = 0;

    if (abi == 0)
        return -ENOTSUP;
    for (size_t i = 0; i < sizeof(landlock_rights) / sizeof(landlock_rights[0]); i++) {
        if (abi < landlock_rights[i].abi)
            break;
        handled.handled_access_fs |= landlock_rights[i].rights.handled_access_fs;
        handled.handled_access_net |= landlock_rights[i].rights.handled_access_net;
        handled.scoped |= landlock_rights[i].rights.scoped;
    }
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
    if (ruleset < 0)
        return -errno;
    for (size_t i = 0; error == 0 && i < sandbox->readable_count; i++)
        error = directory_allow(ruleset, sandbox->readable_dirs[i]);
    if (error == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        error = -errno;
    close(ruleset);
    return error;
}

/* ---- system calls ---- */

#define ANY {0}
#define END (-1) /* no call has this number, nor any of libseccomp's for one that is not there */

/* What a compile may ask of the kernel, whatever the arguments. */
static const struct {
    const char *reason;
    int calls[20];
} allowed[] = {
    {"headers, and what the assembler reads: landlock decides which",
     {SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(fstat),
      SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(access), SCMP_SYS(faccessat),
      SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getdents64),
      SCMP_SYS(getcwd), END}},
    {"bytes in and out of open files and of the descriptors it was given",
     {SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(readv), SCMP_SYS(write), SCMP_SYS(pwrite64),
      SCMP_SYS(writev), SCMP_SYS(lseek), SCMP_SYS(ftruncate), SCMP_SYS(close), SCMP_SYS(recvmsg),
      SCMP_SYS(sendmsg), SCMP_SYS(poll), SCMP_SYS(ppoll), END}},
    {"memory", {SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), END}},
    {"locks, also where nobody else holds them", {SCMP_SYS(futex), END}},
    {"its own faults: an alternate stack, handlers, the way back out",
     {SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
      SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall), END}},
    {"what time it is, who and where it is, how much there is",
     {SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(getpid),
      SCMP_SYS(gettid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrusage),
      SCMP_SYS(sched_getaffinity), END}},
    {"seeds of hash tables and names of temporary files", {SCMP_SYS(getrandom), END}},
    {"the end", {SCMP_SYS(exit), SCMP_SYS(exit_group), END}},
};

/* What it may ask with these arguments only. The rows of one call add up. `self` stands for the
 * process's own id. */
enum { ARGUMENTS_MAX = 2 };

static const struct {
    const char *reason;
    int call;
    bool self; /* argument 0 is the process */
    struct {
        unsigned index;
        enum scmp_compare how;
        uint64_t a, b;
    } where[ARGUMENTS_MAX];
} conditional[] = {
    {"memory, none of it to be run",
     SCMP_SYS(mmap),
     false,
     {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}, {3, SCMP_CMP_MASKED_EQ, MAP_SHARED, 0}}},
    /* Shared memory that is no file's is counted by no limit. */
    {"the answer's file, none of it to be run",
     SCMP_SYS(mmap),
     false,
     {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}, {3, SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, 0}}},
    {"memory, none of it to be run",
     SCMP_SYS(mprotect),
     false,
     {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
    {"abort(): a signal to itself", SCMP_SYS(tgkill), true, {{0}}},
    {"its limits, to look at",
     SCMP_SYS(prlimit64),
     false,
     {{0, SCMP_CMP_EQ, 0, 0}, {2, SCMP_CMP_EQ, 0, 0}}},
    /* F_SETOWN would send signals to others. */
    {"flags of a descriptor", SCMP_SYS(fcntl), false, {{1, SCMP_CMP_EQ, F_GETFD, 0}}},
    {"flags of a descriptor", SCMP_SYS(fcntl), false, {{1, SCMP_CMP_EQ, F_SETFD, 0}}},
    {"flags of a descriptor", SCMP_SYS(fcntl), false, {{1, SCMP_CMP_EQ, F_GETFL, 0}}},
    {"flags of a descriptor", SCMP_SYS(fcntl), false, {{1, SCMP_CMP_EQ, F_DUPFD_CLOEXEC, 0}}},
    {"whether a memory file can change",
     SCMP_SYS(fcntl),
     false,
     {{1, SCMP_CMP_EQ, F_GET_SEALS, 0}}},
    {"the name of the thread that drives it",
     SCMP_SYS(prctl),
     false,
     {{0, SCMP_CMP_EQ, PR_SET_NAME, 0}}},
    {"the same, for a time trace", SCMP_SYS(prctl), false, {{0, SCMP_CMP_EQ, PR_GET_NAME, 0}}},
    {"the scheduling of that thread",
     SCMP_SYS(setpriority),
     false,
     {{0, SCMP_CMP_EQ, PRIO_PROCESS, 0}, {1, SCMP_CMP_EQ, 0, 0}}},
    {"the scheduling of that thread",
     SCMP_SYS(sched_setscheduler),
     false,
     {{0, SCMP_CMP_EQ, 0, 0}}},
};

/* What an honest compile asks for and can do without: it gets an error instead of its end. */
static const struct {
    const char *reason;
    int call;
    unsigned error;
} refused[] = {
    {"whether an output is a terminal", SCMP_SYS(ioctl), ENOTTY},
    {"libclang's folder for the explanation of a compile that broke down", SCMP_SYS(mkdir), EACCES},
};

static int allowed_add(scmp_filter_ctx filter)
{
    int error = 0;

    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        for (const int *call = allowed[i].calls; error == 0 && *call != END; call++)
            error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, *call, 0);
    return error;
}

static int conditional_add(scmp_filter_ctx filter)
{
    int error = 0;

    for (size_t i = 0; error == 0 && i < sizeof(conditional) / sizeof(conditional[0]); i++) {
        struct scmp_arg_cmp where[ARGUMENTS_MAX];
        unsigned count = 0;

        if (conditional[i].self)
            where[count++] = SCMP_A0(SCMP_CMP_EQ, (uint64_t)getpid(), 0);
        for (size_t k = 0; !conditional[i].self && k < ARGUMENTS_MAX; k++) {
            if (conditional[i].where[k].how == 0)
                break;
            where[count++] = (struct scmp_arg_cmp){
                .arg = conditional[i].where[k].index,
                .op = conditional[i].where[k].how,
                .datum_a = conditional[i].where[k].a,
                .datum_b = conditional[i].where[k].b,
            };
        }
        assert(count > 0);
        error = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, conditional[i].call, count, where);
    }
    return error;
}

static int refused_add(scmp_filter_ctx filter)
{
    int error = 0;

    for (size_t i = 0; error == 0 && i < sizeof(refused) / sizeof(refused[0]); i++)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(refused[i].error), refused[i].call, 0);
    return error;
}

static int seccomp_enter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int error;

    if (!filter)
        return -ENOMEM;
    /* Calls by another architecture's numbers; and the many rules as a tree. */
    error = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (error == 0)
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (error == 0)
        error = allowed_add(filter);
    if (error == 0)
        error = conditional_add(filter);
    if (error == 0)
        error = refused_add(filter);
    if (error == 0)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error;
}

#include <dirent.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <millwright/cpus.h>

#include "cpus_internal.h"

#define FILES_MAX 8
#define UNIFIED   "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID_V1                                                                                  \
    "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"                  \
    "32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"

/* A made-up system: what the process sees in /proc/self, and the cgroups' files. */
struct machine {
    const char *shows;
    const char *cgroup;
    const char *mountinfo;
    const char *files[FILES_MAX][2];
    unsigned affinity;
    unsigned expected;
    double fraction;    /* 0: as `expected` */
    uint64_t throttled; /* how often, in all */
};

static const struct machine machines[] = {
    {
        .shows = "nothing readable leaves the affinity",
        .affinity = 6,
        .expected = 6,
    },
    {
        .shows = "an affinity of 0 counts as 1",
        .affinity = 0,
        .expected = 1,
    },
    {
        .shows = "v2: a quota is rounded up",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.max", "150000 100000\n"}},
        .affinity = 8,
        .expected = 2,
        .fraction = 1.5,
    },
    {
        .shows = "v2: a quota below one CPU gives 1",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.max", "1000 100000\n"}},
        .affinity = 8,
        .expected = 1,
        .fraction = 0.01,
    },
    {
        .shows = "v2: a quota as small as none is more than none",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.max", "1 10000000\n"}},
        .affinity = 8,
        .expected = 1,
        .fraction = 0.000001,
    },
    {
        .shows = "v2: max is no limit",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.max", "max 100000\n"}},
        .affinity = 8,
        .expected = 8,
    },
    {
        .shows = "v2: the affinity is the less of the two",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.max", "800000 100000\n"}},
        .affinity = 2,
        .expected = 2,
    },
    {
        .shows = "v2: an ancestor's quota binds",
        .cgroup = "0::/a/b/c\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/a/b/c/cpu.max", "700000 100000\n"},
                  {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
                  {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
        .affinity = 8,
        .expected = 3,
    },
    {
        .shows = "v2: in a namespace the mount point itself holds the quota",
        .cgroup = "0::/\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/cpu.max", "400000 100000\n"}},
        .affinity = 8,
        .expected = 4,
    },
    {
        .shows = "v2: a level with no file is passed over",
        .cgroup = "0::/a/b\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
        .affinity = 8,
        .expected = 2,
    },
    {
        .shows = "v2: a path outside of the namespace reads no file above the mount",
        .cgroup = "0::/../other\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/other/cpu.max", "100000 100000\n"},
                  {"/sys/fs/cgroup/cpu.max", "500000 100000\n"}},
        .affinity = 8,
        .expected = 5,
    },
    {
        .shows = "v2: nothing above the mount point is read",
        .cgroup = "0::/a\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cpu.max", "100000 100000\n"},
                  {"/sys/fs/cgroup/a/cpu.max", "600000 100000\n"}},
        .affinity = 8,
        .expected = 6,
    },
    {
        .shows = "v1: quota and period in their own files",
        .cgroup = "5:cpu,cpuacct:/app\n4:cpuset:/\n",
        .mountinfo = HYBRID_V1,
        .files = {{"/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "250000\n"},
                  {"/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n"}},
        .affinity = 8,
        .expected = 3,
        .fraction = 2.5,
    },
    {
        .shows = "v1: -1 is no limit, an ancestor's quota binds",
        .cgroup = "5:cpu,cpuacct:/a/b\n",
        .mountinfo = HYBRID_V1,
        .files = {{"/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"},
                  {"/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"},
                  {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n"},
                  {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000\n"}},
        .affinity = 8,
        .expected = 2,
    },
    {
        .shows = "v1: cpuset is not taken for cpu",
        .cgroup = "4:cpuset:/app\n",
        .mountinfo = HYBRID_V1,
        .files = {{"/sys/fs/cgroup/cpuset/app/cpu.cfs_quota_us", "100000\n"},
                  {"/sys/fs/cgroup/cpuset/app/cpu.cfs_period_us", "100000\n"}},
        .affinity = 8,
        .expected = 8,
    },
    {
        .shows = "v1: a container's mount shows its own part of the hierarchy as the top",
        .cgroup = "5:cpu,cpuacct:/docker/abc/inner\n",
        .mountinfo =
            "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        .files = {{"/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "600000\n"},
                  {"/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n"},
                  {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"},
                  {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
        .affinity = 8,
        .expected = 4,
    },
    {
        .shows = "hybrid: v1 and v2 both count",
        .cgroup = "5:cpu,cpuacct:/app\n0::/app\n",
        .mountinfo = HYBRID_V1 UNIFIED,
        .files = {{"/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "500000\n"},
                  {"/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n"},
                  {"/sys/fs/cgroup/app/cpu.max", "300000 100000\n"}},
        .affinity = 8,
        .expected = 3,
    },
    {
        .shows = "v2: throttled here and above, each level counts its own",
        .cgroup = "0::/a/b\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 3\n"},
                  {"/sys/fs/cgroup/a/cpu.stat", "nr_throttled 40\nthrottled_usec 7\n"},
                  {"/sys/fs/cgroup/cpu.stat", "usage_usec 5\nuser_usec 3\n"}},
        .affinity = 2,
        .expected = 2,
        .throttled = 43,
    },
    {
        .shows = "v1: throttled, and another controller's file is not asked",
        .cgroup = "5:cpu,cpuacct:/app\n4:cpuset:/app\n",
        .mountinfo = HYBRID_V1,
        .files = {{"/sys/fs/cgroup/cpu,cpuacct/app/cpu.stat",
                   "nr_periods 12\nnr_throttled 6\nthrottled_time 99\n"},
                  {"/sys/fs/cgroup/cpuset/app/cpu.stat", "nr_throttled 100\n"}},
        .affinity = 2,
        .expected = 2,
        .throttled = 6,
    },
    {
        .shows = "a damaged cpu.stat counts no throttling",
        .cgroup = "0::/app\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/app/cpu.stat", "nr_throttled\nnr_throttled_too 9\n\n"}},
        .affinity = 2,
        .expected = 2,
    },
    {
        .shows = "a mount point with a blank in its name",
        .cgroup = "0::/app\n",
        .mountinfo = "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
        .files = {{"/my groups/app/cpu.max", "200000 100000\n"}},
        .affinity = 8,
        .expected = 2,
    },
    {
        .shows = "damaged files set no limit",
        .cgroup = "0\n0:\n\n0::\n",
        .mountinfo = "30\n - \n - cgroup2\n30 23 0:26 / - cgroup2\n" UNIFIED,
        .files = {{"/sys/fs/cgroup/cpu.max", "a lot\n"}},
        .affinity = 8,
        .expected = 8,
    },
    {
        .shows = "a period of 0 sets no limit",
        .cgroup = "0::/\n",
        .mountinfo = UNIFIED,
        .files = {{"/sys/fs/cgroup/cpu.max", "100000 0\n"}},
        .affinity = 8,
        .expected = 8,
    },
};

static void file_write(const char *root, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    if (text == NULL)
        return;
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    if (file == NULL) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

/* Breaks when one form of cgroup file, mount or path is read wrongly; the row says which. */
static void cpus_of_a_made_up_machine(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *machine = &machines[i];
        double fraction = machine->fraction > 0 ? machine->fraction : machine->expected;
        char root[] = "/tmp/mw-cpus-XXXXXX";
        struct mw_cpus cpus;
        unsigned count;

        assert_non_null(mkdtemp(root));
        file_write(root, "/proc/self/cgroup", machine->cgroup);
        file_write(root, "/proc/self/mountinfo", machine->mountinfo);
        for (size_t f = 0; f < FILES_MAX && machine->files[f][0] != NULL; f++)
            file_write(root, machine->files[f][0], machine->files[f][1]);
        count = mw_cpus_effective_at(root, machine->affinity);
        mw_cpus_read_at(root, machine->affinity, &cpus);
        assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        if (count != machine->expected)
            fail_msg("%s: expected %u, got %u", machine->shows, machine->expected, count);
        if (cpus.fraction < fraction || cpus.fraction > fraction)
            fail_msg("%s: expected %g CPUs, got %g", machine->shows, fraction, cpus.fraction);
        if (cpus.throttled != machine->throttled)
            fail_msg("%s: expected %u throttlings, got %u", machine->shows,
                     (unsigned)machine->throttled, (unsigned)cpus.throttled);
    }
}

/* Breaks when the affinity of the process is not read anew, or not at all. */
static void cpus_follow_the_affinity(void **state)
{
    unsigned before = mw_cpus_effective();
    cpu_set_t all;
    cpu_set_t one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(before, 1, (unsigned)CPU_COUNT(&all));
    assert_true(mw_cpus_fraction() > before - 1 && mw_cpus_fraction() <= before);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mw_cpus_effective(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(mw_cpus_effective(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_of_a_made_up_machine),
        cmocka_unit_test(cpus_follow_the_affinity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

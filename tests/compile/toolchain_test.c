#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h> /* <limits.h> would be that of compile/ */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/toolchain.h>

#include "folder.h"
#include "toolchain_internal.h"

#define STAMPERS      4
#define STAMPS_EACH   200
#define DEEP_LEVELS   40
#define LINKS         200
#define NO_NAMESPACE  77    /* what a child ends with when it may not have one of its own */
#define QUEUE_OVERRUN 20000 /* more than the kernel's queue of events (16384) holds */

/* Two watched directories, "a" and "p/b", beside one that is not, "elsewhere". */
struct fixture {
    struct folder folder;
    struct mw_toolchain *toolchain;
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    uint64_t walks;
};

static int fixture_make(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    char *dirs[2];

    assert_non_null(fixture);
    folder_make(&fixture->folder);
    folder_mkdir(&fixture->folder, "elsewhere");
    folder_write(&fixture->folder, "elsewhere/target.h", "int t;");
    folder_write(&fixture->folder, "elsewhere/other.h", "int other;");
    folder_symlink(&fixture->folder, "target.h", "elsewhere/hop.h");
    folder_mkdir(&fixture->folder, "elsewhere/dir");
    folder_write(&fixture->folder, "elsewhere/dir/in.h", "int in;");
    folder_mkdir(&fixture->folder, "elsewhere/empty");
    folder_mkdir(&fixture->folder, "elsewhere/way");
    folder_mkdir(&fixture->folder, "elsewhere/way/on");
    folder_write(&fixture->folder, "elsewhere/way/on/target.h", "int on;");
    folder_write(&fixture->folder, "elsewhere/way/back.h", "int back;");
    folder_mkdir(&fixture->folder, "a");
    folder_mkdir(&fixture->folder, "a/sub");
    folder_write(&fixture->folder, "a/one.h", "int one;");
    folder_write(&fixture->folder, "a/sub/two.h", "int two;");
    folder_symlink(&fixture->folder, "../elsewhere/hop.h", "a/link.h");
    folder_symlink(&fixture->folder, "../elsewhere/dir", "a/dirlink");
    folder_symlink(&fixture->folder, "nowhere", "a/dangling.h");
    folder_symlink(&fixture->folder, "../elsewhere/none/x.h", "a/far.h");
    folder_symlink(&fixture->folder, "../elsewhere/empty", "a/emptylink");
    folder_symlink(&fixture->folder, "../elsewhere/way/on/target.h", "a/on.h");
    folder_symlink(&fixture->folder, "../elsewhere/way/on/../back.h", "a/back.h");
    folder_symlink(&fixture->folder, "..", "a/sub/cycle");
    folder_mkdir(&fixture->folder, "p");
    folder_mkdir(&fixture->folder, "p/b");
    dirs[0] = folder_path(&fixture->folder, "a");
    dirs[1] = folder_path(&fixture->folder, "p/b");
    assert_int_equal(mw_toolchain_new_of(&fixture->toolchain, "test", (const char *const *)dirs, 2),
                     0);
    free(dirs[0]);
    free(dirs[1]);
    assert_int_equal(mw_toolchain_stamp(fixture->toolchain, fixture->stamp), 0);
    fixture->walks = mw_toolchain_walks(fixture->toolchain);
    assert_int_equal(fixture->walks, 1);
    *state = fixture;
    return 0;
}

static int fixture_end(void **state)
{
    struct fixture *fixture = *state;

    mw_toolchain_free(fixture->toolchain);
    folder_remove(&fixture->folder);
    free(fixture);
    return 0;
}

/* Whether the stamp moved since the last look; what a second toolchain finds must be the same. */
static bool stamp_moved(struct fixture *fixture)
{
    uint8_t now[MW_TOOLCHAIN_STAMP_BYTES], fresh[MW_TOOLCHAIN_STAMP_BYTES];
    struct mw_toolchain *second;
    bool moved;
    size_t count;
    const char *const *dirs = mw_toolchain_dirs(fixture->toolchain, &count);

    assert_int_equal(mw_toolchain_stamp(fixture->toolchain, now), 0);
    assert_int_equal(mw_toolchain_new_of(&second, "second", dirs, count), 0);
    assert_int_equal(mw_toolchain_stamp(second, fresh), 0);
    mw_toolchain_free(second);
    assert_memory_equal(now, fresh, sizeof now);
    moved = memcmp(now, fixture->stamp, sizeof now) != 0;
    memcpy(fixture->stamp, now, sizeof now);
    return moved;
}

static void walks_expect(struct fixture *fixture, unsigned more)
{
    uint64_t walks = mw_toolchain_walks(fixture->toolchain);

    assert_int_equal(walks, fixture->walks + more);
    fixture->walks = walks;
}

/* --- what is done to the directories --- */

static void header_add(const struct folder *folder)
{
    folder_write(folder, "a/new.h", "");
}

static void header_add_to_the_empty_directory(const struct folder *folder)
{
    folder_write(folder, "p/b/first.h", "");
}

static void header_append(const struct folder *folder)
{
    folder_write(folder, "a/one.h", "int one, more;");
}

/* Same size and, as far as a program can make it so, same time. */
static void header_change_in_secret(const struct folder *folder)
{
    char *path = folder_path(folder, "a/sub/two.h");
    struct stat before;
    struct timespec times[2];

    assert_int_equal(stat(path, &before), 0);
    folder_write(folder, "a/sub/two.h", "int TWO;");
    times[0] = before.st_atim;
    times[1] = before.st_mtim;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(path);
}

static void header_remove(const struct folder *folder)
{
    folder_unlink(folder, "a/sub/two.h");
}

static void header_replace_by_rename(const struct folder *folder)
{
    folder_write(folder, "elsewhere/fresh.h", "int one;");
    folder_rename(folder, "elsewhere/fresh.h", "a/one.h");
}

static void header_rename(const struct folder *folder)
{
    folder_rename(folder, "a/one.h", "a/uno.h");
}

static void header_touch(const struct folder *folder)
{
    char *path = folder_path(folder, "a/one.h");

    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    free(path);
}

static void header_swap(const struct folder *folder)
{
    folder_write(folder, "p/b/x.h", "int one;");
    folder_rename(folder, "a/one.h", "a/tmp.h");
    folder_rename(folder, "p/b/x.h", "a/one.h");
    folder_unlink(folder, "a/tmp.h");
}

static void directory_add_with_header(const struct folder *folder)
{
    folder_mkdir(folder, "a/sub/new");
    folder_write(folder, "a/sub/new/x.h", "");
}

static void directory_move_in(const struct folder *folder)
{
    folder_rename(folder, "elsewhere/dir", "p/b/dir");
}

static void directory_move_out(const struct folder *folder)
{
    folder_rename(folder, "a/sub", "elsewhere/sub");
}

static void root_replace(const struct folder *folder)
{
    folder_rename(folder, "a", "elsewhere/a");
    folder_mkdir(folder, "a");
}

static void parent_replace(const struct folder *folder)
{
    folder_rename(folder, "p", "elsewhere/p");
    folder_mkdir(folder, "p");
    folder_mkdir(folder, "p/b");
    folder_write(folder, "p/b/x.h", "");
}

static void root_remove(const struct folder *folder)
{
    folder_unlink(folder, "p/b");
}

static void link_target_change(const struct folder *folder)
{
    folder_write(folder, "elsewhere/target.h", "int target;");
}

static void link_retarget_midway(const struct folder *folder)
{
    folder_symlink(folder, "other.h", "elsewhere/hop.new");
    folder_rename(folder, "elsewhere/hop.new", "elsewhere/hop.h");
}

static void link_target_touch(const struct folder *folder)
{
    char *path = folder_path(folder, "elsewhere/target.h");

    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    free(path);
}

static void link_target_replace_by_rename(const struct folder *folder)
{
    folder_rename(folder, "elsewhere/other.h", "elsewhere/target.h");
}

static void link_target_remove(const struct folder *folder)
{
    folder_unlink(folder, "elsewhere/target.h");
}

static void link_target_get_another_name(const struct folder *folder)
{
    char *target = folder_path(folder, "elsewhere/target.h");
    char *name = folder_path(folder, "elsewhere/name.h");

    assert_int_equal(link(target, name), 0);
    folder_write(folder, "elsewhere/name.h", "int through_the_other_name;");
    free(target);
    free(name);
}

static void link_make_anew_midway(const struct folder *folder)
{
    folder_unlink(folder, "elsewhere/hop.h");
    folder_symlink(folder, "other.h", "elsewhere/hop.h");
}

static void link_rename_away_midway(const struct folder *folder)
{
    folder_rename(folder, "elsewhere/hop.h", "elsewhere/hop.old");
    folder_symlink(folder, "other.h", "elsewhere/hop.h");
}

static void way_swap(const struct folder *folder)
{
    folder_rename(folder, "elsewhere/way/on", "elsewhere/way/was");
    folder_mkdir(folder, "elsewhere/way/on");
    folder_write(folder, "elsewhere/way/on/target.h", "int other;");
}

static void way_exchange(const struct folder *folder)
{
    char *on = folder_path(folder, "elsewhere/way/on");
    char *dir = folder_path(folder, "elsewhere/dir");

    assert_int_equal(renameat2(AT_FDCWD, on, AT_FDCWD, dir, RENAME_EXCHANGE), 0);
    free(on);
    free(dir);
}

/* The way back from "on" leads elsewhere, though nothing on its own way does. */
static void way_back_change(const struct folder *folder)
{
    folder_mkdir(folder, "elsewhere/other");
    folder_mkdir(folder, "elsewhere/other/on");
    folder_write(folder, "elsewhere/other/back.h", "int another;");
    folder_write(folder, "elsewhere/other/on/target.h", "int on;");
    folder_rename(folder, "elsewhere/way/on", "elsewhere/on");
    folder_symlink(folder, "../other/on", "elsewhere/way/on");
}

static void way_close(const struct folder *folder)
{
    folder_unlink(folder, "elsewhere/way/back.h");
    folder_unlink(folder, "elsewhere/way/on/target.h");
    folder_unlink(folder, "elsewhere/way/on");
}

static void link_far_undangle(const struct folder *folder)
{
    folder_mkdir(folder, "elsewhere/none");
    folder_write(folder, "elsewhere/none/x.h", "int x;");
}

/* The kernel tells of the end of a directory only when nobody has it open any more. */
static void empty_directory_replace_while_open(const struct folder *folder)
{
    char *path = folder_path(folder, "elsewhere/empty");
    int held = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(held >= 0);
    folder_unlink(folder, "elsewhere/empty");
    folder_mkdir(folder, "elsewhere/empty");
    folder_write(folder, "elsewhere/empty/x.h", "int x;");
    /* Stays open: to close it would tell. Ends with the process. */
    free(path);
}

static void link_directory_add(const struct folder *folder)
{
    folder_write(folder, "elsewhere/dir/more.h", "");
}

static void link_directory_replace(const struct folder *folder)
{
    folder_rename(folder, "elsewhere/dir", "elsewhere/old");
    folder_mkdir(folder, "elsewhere/dir");
}

static void link_undangle(const struct folder *folder)
{
    folder_symlink(folder, "../elsewhere/other.h", "a/nowhere");
}

static void directory_of_deep_levels_add(const struct folder *folder)
{
    char name[2 * DEEP_LEVELS + sizeof "p/b/x.h"] = "p/b";
    size_t bytes = strlen(name);

    for (int i = 0; i < DEEP_LEVELS; i++) {
        memcpy(name + bytes, "/d", sizeof "/d");
        bytes += strlen("/d");
        folder_mkdir(folder, name);
    }
    memcpy(name + bytes, "/x.h", sizeof "/x.h");
    folder_write(folder, name, "");
}

static void events_overrun(const struct folder *folder)
{
    char *one = folder_path(folder, "a/one.h"), *two = folder_path(folder, "a/two.h");

    for (int i = 0; i < QUEUE_OVERRUN / 2; i++)
        assert_int_equal(rename(i % 2 ? two : one, i % 2 ? one : two), 0);
    folder_write(folder, "p/b/late.h", "");
    free(one);
    free(two);
}

static const struct {
    const char *shows;
    void (*change)(const struct folder *folder);
} changes[] = {
    {"a header comes", header_add},
    {"the first header of a directory", header_add_to_the_empty_directory},
    {"a header grows", header_append},
    {"a header changes, size and time do not", header_change_in_secret},
    {"a header goes", header_remove},
    {"a header is replaced by rename", header_replace_by_rename},
    {"a header is renamed", header_rename},
    {"a header is touched", header_touch},
    {"a header gives way to one from beside", header_swap},
    {"a directory comes with a header", directory_add_with_header},
    {"a directory is moved in", directory_move_in},
    {"a directory is moved out", directory_move_out},
    {"a watched directory is replaced", root_replace},
    {"the parent of a watched directory is replaced", parent_replace},
    {"a watched directory goes", root_remove},
    {"the target of a link changes", link_target_change},
    {"a link in the middle leads elsewhere", link_retarget_midway},
    {"a link in the middle is made anew", link_make_anew_midway},
    {"a link in the middle gives way to another", link_rename_away_midway},
    {"the target of a link is touched", link_target_touch},
    {"the target of a link is replaced by rename", link_target_replace_by_rename},
    {"the target of a link goes", link_target_remove},
    {"the target of a link is changed by another name", link_target_get_another_name},
    {"a directory on the way of a link gives way to another", way_swap},
    {"a directory on the way of a link changes places", way_exchange},
    {"a directory on the way of a link is left by another", way_back_change},
    {"a directory on the way of a link goes", way_close},
    {"a link finds its target where nothing was watched", link_far_undangle},
    {"the empty directory behind a link is replaced, and was open",
     empty_directory_replace_while_open},
    {"a header comes behind a link", link_directory_add},
    {"the directory behind a link is replaced", link_directory_replace},
    {"a dangling link finds its target", link_undangle},
    {"a deep directory comes", directory_of_deep_levels_add},
    {"more events than the queue holds", events_overrun},
};

/* --- tests --- */

/* Broken by a walk that finds another hash on the same disk, or by needless walks. */
static void a_stamp_when_nothing_changed_is_equal_and_walks_not(void **state)
{
    struct fixture *fixture = *state;
    char *unrelated;
    FILE *file;

    for (int i = 0; i < 3; i++) {
        assert_false(stamp_moved(fixture));
        walks_expect(fixture, 0);
    }
    /* Reading a header, and changes where nothing looks, are no change. */
    file = folder_open(&fixture->folder, "a/one.h", "r");
    (void)fgetc(file);
    (void)fclose(file);
    folder_write(&fixture->folder, "elsewhere/unrelated.h", "");
    unrelated = folder_path(&fixture->folder, "elsewhere/unrelated.h");
    assert_int_equal(chmod(unrelated, 0600), 0);
    free(unrelated);
    folder_rename(&fixture->folder, "elsewhere/unrelated.h", "elsewhere/way/unrelated.h");
    folder_unlink(&fixture->folder, "elsewhere/way/unrelated.h");
    assert_false(stamp_moved(fixture));
    walks_expect(fixture, 0);
}

/* Broken by a look that costs a system call for each link; by one that costs none for a link that
 * nothing watches, as each_change_moves_the_stamp has it. */
static void links_are_watched_and_not_looked_at(void **state)
{
    struct fixture *fixture = *state;
    size_t places = mw_toolchain_places(fixture->toolchain);

    assert_int_equal(places, 4); /* dangling.h, far.h, and what is empty: elsewhere/empty, p/b */
    for (int i = 0; i < LINKS; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "a/sub/%d.h", i);
        folder_symlink(&fixture->folder, i % 2 ? "../../elsewhere/hop.h" : "../dirlink/in.h", name);
    }
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places);
    folder_symlink(&fixture->folder, "/nowhere/at/all", "a/sub/lost.h");
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places + 1);
    folder_symlink(&fixture->folder, "/proc/self/status", "a/sub/proc.h"); /* has no events */
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places + 2);
}

/* Broken by a watch that trusts an inode with several names: overlayfs may have two of it. */
static void a_target_with_two_names_is_looked_at(void **state)
{
    struct fixture *fixture = *state;
    size_t places = mw_toolchain_places(fixture->toolchain);

    link_target_get_another_name(&fixture->folder);
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places + 1);
    folder_unlink(&fixture->folder, "elsewhere/name.h");
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places);
}

/* Broken by a file that is read as one thing with a slash behind it and another without, or by
 * links that lead on without end. */
static void links_that_lead_nowhere_are_part_of_the_stamp(void **state)
{
    struct fixture *fixture = *state;
    size_t places = mw_toolchain_places(fixture->toolchain);

    folder_symlink(&fixture->folder, "one.h/", "a/slash.h");
    folder_symlink(&fixture->folder, "one.h/x", "a/below.h");
    folder_symlink(&fixture->folder, "loop.h", "a/loop.h");
    folder_symlink(&fixture->folder, "sub/./..//one.h", "a/round.h");
    assert_true(stamp_moved(fixture));
    assert_int_equal(mw_toolchain_places(fixture->toolchain), places + 3);
    assert_false(stamp_moved(fixture));
    walks_expect(fixture, 1);
}

/* Broken by a change of the headers that the stamp does not see: a wrong hit. */
static void each_change_moves_the_stamp(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct fixture *fixture;

        (void)fixture_make((void **)&fixture);
        print_message("%s\n", changes[i].shows);
        changes[i].change(&fixture->folder);
        assert_true(stamp_moved(fixture));
        walks_expect(fixture, 1);
        assert_false(stamp_moved(fixture));
        walks_expect(fixture, 0);
        (void)fixture_end((void **)&fixture);
    }
}

/* Broken by watches that end with the first change, or that new directories do not get. */
static void changes_are_seen_again_and_again(void **state)
{
    struct fixture *fixture = *state;

    directory_of_deep_levels_add(&fixture->folder);
    assert_true(stamp_moved(fixture));
    folder_write(&fixture->folder, "p/b/d/d/d/d/y.h", "");
    assert_true(stamp_moved(fixture));
    folder_write(&fixture->folder, "p/b/d/d/d/d/y.h", "int y;");
    assert_true(stamp_moved(fixture));
    folder_unlink(&fixture->folder, "p/b/d/d/d/d/y.h");
    assert_true(stamp_moved(fixture));
    walks_expect(fixture, 4);
}

/* Broken by watching directories only: the other name of the file lies in none that is watched. */
static void a_change_through_another_name_of_a_file_is_seen(void **state)
{
    struct fixture *fixture = *state;
    char *inside = folder_path(&fixture->folder, "a/hard.h");
    char *outside = folder_path(&fixture->folder, "elsewhere/other.h");

    assert_int_equal(link(outside, inside), 0);
    assert_true(stamp_moved(fixture));
    folder_write(&fixture->folder, "elsewhere/other.h", "int through_the_other_name;");
    assert_true(stamp_moved(fixture));
    free(inside);
    free(outside);
}

/* Broken by an unreadable directory that ends the walk, or that forces one at each stamp. */
static void an_unreadable_directory_is_part_of_the_stamp(void **state)
{
    struct fixture *fixture = *state;
    char *path = folder_path(&fixture->folder, "a/sub");

    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(stamp_moved(fixture), geteuid() != 0); /* root can read it still */
    assert_false(stamp_moved(fixture));
    walks_expect(fixture, 1);
    assert_int_equal(chmod(path, 0700), 0);
    (void)stamp_moved(fixture);
    walks_expect(fixture, 1);
    free(path);
}

/* 0, or the errno of the first that may not be had. */
static int mounts_of_ones_own(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return errno;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : errno;
}

/* A process that keeps its namespace, and there renames one to the other when told to. */
static pid_t outsider_start(const char *folder_name, int tell[2])
{
    char from[PATH_MAX], to[PATH_MAX];
    pid_t outsider;

    (void)snprintf(from, sizeof from, "%s/elsewhere/way/on", folder_name);
    (void)snprintf(to, sizeof to, "%s/elsewhere/way/off", folder_name);
    if (pipe2(tell, O_CLOEXEC) != 0 || (outsider = fork()) < 0)
        _exit(EXIT_FAILURE);
    if (outsider > 0)
        return outsider;
    (void)close(tell[1]); /* the end of the other process ends the read */
    _exit(read(tell[0], &(char){0}, 1) == 1 && rename(from, to) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* What a mount is on is renamed where it is not mounted, and the mount goes with it. */
static void mount_carry_off(void)
{
    struct fixture *fixture;
    char *from, *onto;
    pid_t outsider;
    int tell[2], status;

    (void)fixture_make((void **)&fixture);
    outsider = outsider_start(fixture->folder.path, tell);
    from = folder_path(&fixture->folder, "elsewhere/dir");
    onto = folder_path(&fixture->folder, "elsewhere/way/on");
    if (mounts_of_ones_own() != 0 || mount(from, onto, NULL, MS_BIND, NULL) != 0)
        _exit(NO_NAMESPACE);
    folder_write(&fixture->folder, "elsewhere/way/on/target.h", "int on;");
    if (!stamp_moved(fixture) || stamp_moved(fixture) || write(tell[1], "", 1) != 1 ||
        waitpid(outsider, &status, 0) != outsider || status != 0 || !stamp_moved(fixture))
        _exit(EXIT_FAILURE);
    free(onto);
    onto = folder_path(&fixture->folder, "elsewhere/way/off");
    if (umount(onto) != 0)
        _exit(EXIT_FAILURE);
    free(from);
    free(onto);
    (void)fixture_end((void **)&fixture);
    _exit(EXIT_SUCCESS);
}

/* A mount over a directory on a link's way, its end, one over a link's target, and one below a
 * header directory; then one where no link leads, which costs no walk. Ends the process. */
static void mounts_make_and_end(void)
{
    static const struct {
        const char *from, *onto;
    } mounts[] = {{"elsewhere/other", "elsewhere/way/on"},
                  {"elsewhere/other.h", "elsewhere/target.h"},
                  {"elsewhere/dir", "a/sub"}};
    struct fixture *fixture;

    if (mounts_of_ones_own() != 0)
        _exit(NO_NAMESPACE);
    (void)fixture_make((void **)&fixture);
    folder_mkdir(&fixture->folder, "elsewhere/other");
    folder_write(&fixture->folder, "elsewhere/other/target.h", "int other;");
    (void)stamp_moved(fixture);
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        char *from = folder_path(&fixture->folder, mounts[i].from);
        char *onto = folder_path(&fixture->folder, mounts[i].onto);

        if (mount(from, onto, NULL, MS_BIND, NULL) != 0)
            _exit(NO_NAMESPACE);
        if (!stamp_moved(fixture) || stamp_moved(fixture))
            _exit(EXIT_FAILURE);
        if (umount(onto) != 0 || !stamp_moved(fixture) || stamp_moved(fixture))
            _exit(EXIT_FAILURE);
        free(from);
        free(onto);
    }
    fixture->walks = mw_toolchain_walks(fixture->toolchain);
    if (mount(fixture->folder.path, "/mnt", NULL, MS_BIND, NULL) != 0)
        _exit(NO_NAMESPACE);
    (void)stamp_moved(fixture);
    if (umount("/mnt") != 0)
        _exit(EXIT_FAILURE);
    (void)stamp_moved(fixture);
    if (mw_toolchain_walks(fixture->toolchain) != fixture->walks)
        _exit(EXIT_FAILURE);
    (void)fixture_end((void **)&fixture);
    _exit(EXIT_SUCCESS);
}

static void in_a_process_of_its_own(void (*act)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        act();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_NAMESPACE) {
        print_message("no mounts may be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), EXIT_SUCCESS);
}

/* Broken by watches only: a mount changes where a path leads, and no inode has an event. */
static void a_mount_on_the_way_of_a_link_moves_the_stamp(void **state)
{
    (void)state;
    in_a_process_of_its_own(mounts_make_and_end);
}

/* Broken by a watch on a mount's root alone: nothing happens to it. */
static void a_mount_that_is_carried_off_moves_the_stamp(void **state)
{
    (void)state;
    in_a_process_of_its_own(mount_carry_off);
}

static void *stamp_often(void *toolchain)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];

    for (int i = 0; i < STAMPS_EACH; i++)
        assert_int_equal(mw_toolchain_stamp(toolchain, stamp), 0);
    return NULL;
}

/* Broken by state that is touched outside the lock (seen by ThreadSanitizer), or by a change that
 * a concurrent caller takes from the queue without walking. */
static void many_threads_may_stamp_while_headers_change(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[STAMPERS];

    for (int i = 0; i < STAMPERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, stamp_often, fixture->toolchain), 0);
    for (int i = 0; i < STAMPS_EACH; i++)
        folder_write(&fixture->folder, i % 2 ? "a/one.h" : "p/b/x.h", "int x;");
    for (int i = 0; i < STAMPERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)stamp_moved(fixture); /* compares with a fresh walk */
    assert_false(stamp_moved(fixture));
}

/* Broken by an order of the directories, or a name, that does not enter the hash. */
static void the_stamp_tells_directories_apart(void **state)
{
    struct fixture *fixture = *state;
    uint8_t one[MW_TOOLCHAIN_STAMP_BYTES], other[MW_TOOLCHAIN_STAMP_BYTES];
    const char *const *dirs = mw_toolchain_dirs(fixture->toolchain, NULL);
    struct mw_toolchain *toolchain;

    assert_int_equal(mw_toolchain_new_of(&toolchain, "a", &dirs[0], 1), 0);
    assert_int_equal(mw_toolchain_stamp(toolchain, one), 0);
    mw_toolchain_free(toolchain);
    assert_int_equal(mw_toolchain_new_of(&toolchain, "b", &dirs[1], 1), 0);
    assert_int_equal(mw_toolchain_stamp(toolchain, other), 0);
    mw_toolchain_free(toolchain);
    assert_memory_not_equal(one, other, sizeof one);
    assert_int_equal(mw_toolchain_new_of(&toolchain, "none", NULL, 0), 0);
    assert_int_equal(mw_toolchain_stamp(toolchain, other), 0);
    mw_toolchain_free(toolchain);
    assert_memory_not_equal(one, other, sizeof one);
    mw_toolchain_free(NULL);
}

/* Broken when headers that packages keep beside their libraries cannot be read, when a link leads
 * elsewhere, or when there is no end to such folders. */
static void headers_beside_libraries_are_found_and_bounded(void **state)
{
    struct folder folder;
    struct mw_toolchain *toolchain;
    const char *const *dirs;
    size_t count;

    (void)state;
    folder_make(&folder);
    folder_mkdir(&folder, "b-1.0");
    folder_mkdir(&folder, "b-1.0/include");
    folder_mkdir(&folder, "arm-linux-gnueabihf");
    folder_mkdir(&folder, "arm-linux-gnueabihf/include");
    folder_mkdir(&folder, "without");
    folder_symlink(&folder, "b-1.0", "link");
    folder_write(&folder, "file", "");
    assert_int_equal(mw_toolchain_new_of(&toolchain, "a", NULL, 0), 0);
    assert_int_equal(mw_toolchain_dirs_below(toolchain, folder.path, true), 0);
    dirs = mw_toolchain_dirs(toolchain, &count);
    assert_int_equal(count, 1);
    assert_non_null(strstr(dirs[0], "/arm-linux-gnueabihf/include"));
    mw_toolchain_free(toolchain);

    assert_int_equal(mw_toolchain_new_of(&toolchain, "a", NULL, 0), 0);
    assert_int_equal(mw_toolchain_dirs_below(toolchain, folder.path, false), 0);
    dirs = mw_toolchain_dirs(toolchain, &count);
    assert_int_equal(count, 2);
    assert_non_null(strstr(dirs[1], "/b-1.0/include"));
    for (unsigned i = 0; i < 100; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "n%u", i);
        folder_mkdir(&folder, name);
        (void)snprintf(name, sizeof name, "n%u/include", i);
        folder_mkdir(&folder, name);
    }
    assert_int_equal(mw_toolchain_dirs_below(toolchain, folder.path, false), 0);
    assert_int_equal((mw_toolchain_dirs(toolchain, &count), count), 64);
    mw_toolchain_free(toolchain);
    folder_remove(&folder);
}

/* Broken by a toolchain that does not describe the compiler that the process really holds. */
static void the_real_toolchain_knows_itself(void **state)
{
    struct mw_toolchain *toolchain;
    uint8_t first[MW_TOOLCHAIN_STAMP_BYTES], second[MW_TOOLCHAIN_STAMP_BYTES];
    const char *const *dirs;
    size_t count;

    (void)state;
    assert_int_equal(mw_toolchain_new(&toolchain), 0);
    assert_non_null(strstr(mw_toolchain_identity(toolchain), mw_toolchain_version(toolchain)));
    assert_non_null(strstr(mw_toolchain_identity(toolchain), mw_toolchain_target(toolchain)));
    assert_non_null(strstr(mw_toolchain_identity(toolchain), "libclang-cpp"));
    assert_non_null(strstr(mw_toolchain_identity(toolchain), "libLLVM"));
    assert_non_null(strstr(mw_toolchain_identity(toolchain), "directories "));
    assert_non_null(strstr(mw_toolchain_clang_path(toolchain), "/bin/clang"));
    dirs = mw_toolchain_dirs(toolchain, &count);
    assert_true(count >= 2);
    assert_non_null(strstr(dirs[0], "/lib/clang/"));
    assert_null(dirs[count]);
    assert_int_equal(mw_toolchain_stamp(toolchain, first), 0);
    assert_int_equal(mw_toolchain_stamp(toolchain, second), 0);
    assert_memory_equal(first, second, sizeof first);
    mw_toolchain_free(toolchain);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_make, fixture_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_stamp_when_nothing_changed_is_equal_and_walks_not),
        WITH_FIXTURE(links_are_watched_and_not_looked_at),
        WITH_FIXTURE(links_that_lead_nowhere_are_part_of_the_stamp),
        WITH_FIXTURE(a_target_with_two_names_is_looked_at),
        cmocka_unit_test(a_mount_on_the_way_of_a_link_moves_the_stamp),
        cmocka_unit_test(a_mount_that_is_carried_off_moves_the_stamp),
        cmocka_unit_test(each_change_moves_the_stamp),
        WITH_FIXTURE(changes_are_seen_again_and_again),
        WITH_FIXTURE(a_change_through_another_name_of_a_file_is_seen),
        WITH_FIXTURE(an_unreadable_directory_is_part_of_the_stamp),
        WITH_FIXTURE(many_threads_may_stamp_while_headers_change),
        WITH_FIXTURE(the_stamp_tells_directories_apart),
        cmocka_unit_test(headers_beside_libraries_are_found_and_bounded),
        cmocka_unit_test(the_real_toolchain_knows_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

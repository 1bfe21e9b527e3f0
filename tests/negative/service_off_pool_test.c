/* service_off_pool_test.c - a real compile through the whole service reaches clang on a thread of
 * the CPU lane, starts no thread, and leaks nothing onto the shared pool.
 *
 * "Reaches clang" is taken literally: this executable stands in front of clang's own entry point,
 * CompilerInstance::ExecuteAction, and notes which thread called it. Isolated, clang runs in a
 * worker process, which bears the name of the thread that drives it: there that name is what is
 * watched. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <millwright/emit.h>
#include <millwright/flow.h>
#include <millwright/pool.h>
#include <millwright/thread.h>

#include "pools/thread_starts.h"
#include "service.h"
#include "support/process.h"
#include "support/server.h"

#define COMPILES 5

/* ---- in front of clang ---- */

#define EXECUTE_ACTION "_ZN5clang16CompilerInstance13ExecuteActionERNS_14FrontendActionE"

bool execute_action(void *compiler, void *action) __asm__(EXECUTE_ACTION);

/* Numbers of their own, publishing nothing: relaxed order, no partner. */
static _Atomic unsigned reached_on[MW_THREAD_KINDS];
static _Atomic unsigned reached_by_name; /* on a thread that the kernel calls mw-cpu-lane */
static _Atomic bool fan_out;             /* the control: the leaf gives work to the pool */

static void leak_to_pool(void);

bool execute_action(void *compiler, void *action)
{
    bool (*next)(void *, void *) = (bool (*)(void *, void *))dlsym(RTLD_NEXT, EXECUTE_ACTION);
    char name[16] = "";

    pthread_getname_np(pthread_self(), name, sizeof name);
    atomic_fetch_add_explicit(&reached_on[mw_thread_kind_current()], 1, memory_order_relaxed);
    if (strcmp(name, "mw-cpu-lane") == 0)
        atomic_fetch_add_explicit(&reached_by_name, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fan_out, memory_order_relaxed))
        leak_to_pool();
    return next(compiler, action);
}

/* ---- a service in this process ---- */

struct house {
    char folder[32];
    struct server server; /* pid 0: it has no process of its own */
    struct client client;
    uv_loop_t loop;
    uv_async_t stop;
    struct mw_service *service;
    pthread_t thread;
};

static void *run_loop(void *arg)
{
    struct house *house = arg;

    mw_thread_adopt(MW_THREAD_LOOP);
    uv_run(&house->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void on_stop(uv_async_t *async)
{
    struct house *house = async->data;

    mw_service_stop(house->service, NULL, NULL);
    uv_close((uv_handle_t *)async, NULL);
}

static void house_open(struct house *house, bool on_pool, bool isolated)
{
    struct mw_serve_settings settings = mw_serve_defaults;
    char why[600] = "";

    memset(house, 0, sizeof *house);
    strcpy(house->folder, "/tmp/mw-negative-XXXXXX");
    assert_non_null(mkdtemp(house->folder));
    house->server.socket = path_join(house->folder, "socket");
    snprintf(settings.listen, sizeof settings.listen, "unix:%s", house->server.socket);
    snprintf(settings.data, sizeof settings.data, "%s/data", house->folder);
    settings.lane_cap = 2;
    settings.emit_lane = on_pool;
    settings.isolation = isolated ? 0 : 1;
    settings.preambles_max_bytes = 0; /* making one comes to clang when nobody asked */
    if (isolated && getenv("MW_WORKER"))
        snprintf(settings.worker, sizeof settings.worker, "%s", getenv("MW_WORKER"));
    assert_int_equal(uv_loop_init(&house->loop), 0);
    if (mw_service_new(&house->service, &house->loop, &settings, why, sizeof why) != 0)
        fail_msg("no service: %s", why);
    assert_int_equal(uv_async_init(&house->loop, &house->stop, on_stop), 0);
    house->stop.data = house;
    assert_int_equal(pthread_create(&house->thread, NULL, run_loop, house), 0);
    client_open(&house->client, &house->server);
}

static void house_close(struct house *house)
{
    client_close(&house->client);
    uv_async_send(&house->stop);
    assert_int_equal(pthread_join(house->thread, NULL), 0);
    mw_service_free(house->service);
    assert_int_equal(uv_loop_close(&house->loop), 0);
    free(house->server.socket);
    process_run("/", (const char *[]){"rm", "-rf", house->folder, NULL}, NULL, NULL);
}

/* Compiles a source that nobody has compiled before; returns the `thread` of the answer. */
static char *compile_new(struct house *house)
{
    static unsigned number;
    char body[256], *thread;
    struct reply reply;

    snprintf(body, sizeof body,
             "{\"language\":\"c\",\"source\":\"#include <stdio.h>\\nint f%u(void)"
             "{return puts(\\\"x\\\");}\",\"args\":[\"-O2\"]}",
             number++);
    client_send(&house->client, &(struct request){.path = "/v1/compile", .body = body}, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.body.data, "\"status\":\"ok\""));
    assert_non_null(strstr(reply.body.data, "\"cached\":false"));
    thread = strstr(reply.body.data, "\"thread\":\"");
    assert_non_null(thread);
    thread += strlen("\"thread\":\"");
    thread = strndup(thread, strcspn(thread, "\""));
    reply_free(&reply);
    return thread;
}

/* ---- the checker ---- */

/* Compiles through the service and says what is wrong with where clang ran, or NULL. */
static const char *what_leaked(struct house *house)
{
    unsigned starts = thread_starts_under_leaf();
    uint64_t escapes = mw_flow_escapes();
    bool named = true;

    for (int kind = 0; kind < MW_THREAD_KINDS; kind++)
        atomic_store_explicit(&reached_on[kind], 0, memory_order_relaxed);
    atomic_store_explicit(&reached_by_name, 0, memory_order_relaxed);
    for (int i = 0; i < COMPILES; i++) {
        char *thread = compile_new(house);

        named = named && strcmp(thread, "mw-cpu-lane") == 0;
        free(thread);
    }
    if (atomic_load_explicit(&reached_on[MW_THREAD_POOL], memory_order_relaxed) > 0)
        return named ? "clang ran on a pool worker, and the answer hides it"
                     : "clang ran on a pool worker";
    if (atomic_load_explicit(&reached_on[MW_THREAD_LANE], memory_order_relaxed) != COMPILES)
        return "clang was not reached once per compile";
    if (atomic_load_explicit(&reached_by_name, memory_order_relaxed) != COMPILES)
        return "clang ran on a thread that is not named mw-cpu-lane";
    if (!named)
        return "the answer does not name mw-cpu-lane";
    if (thread_starts_under_leaf() != starts)
        return "an emit started a thread";
    if (mw_flow_escapes() != escapes)
        return "a leaf gave work to the shared pool";
    return NULL;
}

/* ---- the checker of isolated compiles ---- */

/* Reads the first line of /proc/PID/NAME; "" when there is none. */
static void proc_line(const char *pid, const char *name, char *line, int bytes)
{
    char path[64];
    FILE *file;

    line[0] = '\0';
    snprintf(path, sizeof path, "/proc/%.20s/%s", pid, name);
    file = fopen(path, "re");
    if (file && !fgets(line, bytes, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
}

static pid_t parent_of(const char *pid)
{
    char line[256];
    int parent = 0;

    proc_line(pid, "stat", line, sizeof line);
    if (strrchr(line, ')'))
        (void)sscanf(strrchr(line, ')'), ") %*c %d", &parent);
    return (pid_t)parent;
}

/* Looks at the workers of this process, its grandchildren, until told to stop. */
struct watch {
    pthread_t thread;
    _Atomic bool stop;         /* relaxed: whoever set it joins the thread */
    unsigned on_lane, on_pool; /* looks at a worker of such a name; after the join the joiner's */
};

static void look_at_workers(struct watch *watch)
{
    DIR *folder = opendir("/proc");
    char name[64], parent[16];

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(parent, sizeof parent, "%d", (int)parent_of(entry->d_name));
        if (parent_of(parent) != getpid())
            continue;
        proc_line(entry->d_name, "comm", name, sizeof name);
        watch->on_lane += strcmp(name, "mw-cpu-lane") == 0;
        watch->on_pool += strcmp(name, "mw-pool") == 0;
    }
    closedir(folder);
}

static void *watch_workers(void *arg)
{
    struct watch *watch = arg;

    while (!atomic_load_explicit(&watch->stop, memory_order_relaxed)) {
        look_at_workers(watch);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    return NULL;
}

/* Compiles in a worker for long enough to be seen. Returns the `thread` of the answer. */
static char *compile_long(struct house *house)
{
    static const char body[] =
        "{\"language\":\"c++\",\"emit\":\"none\",\"timeout_ms\":120000,\"source\":\""
        "constexpr unsigned spin(unsigned n)"
        "{ unsigned s = 0; for (unsigned i = 0; i < n; i++) s = s * 31 + i; return s; }\\n"
        "static_assert(spin(90000) != 7, \\\"\\\"); static_assert(spin(90001) != 7, \\\"\\\");"
        "static_assert(spin(90002) != 7, \\\"\\\"); static_assert(spin(90003) != 7, \\\"\\\");"
        "\"}";
    struct reply reply;
    char *thread;

    client_send(&house->client, &(struct request){.path = "/v1/compile", .body = body}, &reply);
    if (reply.status != 200 || !strstr(reply.body.data, "\"cached\":false"))
        fail_msg("%ld %s", reply.status, reply.body.data);
    thread = strstr(reply.body.data, "\"thread\":\"");
    assert_non_null(thread);
    thread += strlen("\"thread\":\"");
    thread = strndup(thread, strcspn(thread, "\""));
    reply_free(&reply);
    return thread;
}

/* Compiles isolated and says what is wrong with who drove the worker, or NULL. */
static const char *what_drove_the_worker(struct house *house)
{
    struct watch watch = {0};
    unsigned starts = thread_starts_under_leaf();
    bool lane;
    char *thread;

    for (int kind = 0; kind < MW_THREAD_KINDS; kind++)
        atomic_store_explicit(&reached_on[kind], 0, memory_order_relaxed);
    assert_int_equal(pthread_create(&watch.thread, NULL, watch_workers, &watch), 0);
    thread = compile_long(house);
    lane = strcmp(thread, "mw-cpu-lane") == 0;
    free(thread);
    atomic_store_explicit(&watch.stop, true, memory_order_relaxed);
    assert_int_equal(pthread_join(watch.thread, NULL), 0);
    for (int kind = 0; kind < MW_THREAD_KINDS; kind++)
        if (atomic_load_explicit(&reached_on[kind], memory_order_relaxed) > 0)
            return "clang ran in the service's process";
    if (watch.on_pool > 0)
        return lane ? "a pool worker drove it, and the answer hides it" : "a pool worker drove it";
    if (watch.on_lane == 0)
        return "no worker was seen under the lane's name";
    if (!lane)
        return "the answer does not name mw-cpu-lane";
    return thread_starts_under_leaf() != starts ? "the leaf started a thread" : NULL;
}

/* What `look` finds in a service of its own. */
static const char *look_at(bool on_pool, bool isolated, const char *(*look)(struct house *))
{
    struct house house;
    const char *found;

    house_open(&house, on_pool, isolated);
    found = look(&house);
    house_close(&house);
    return found;
}

/* ---- tests ---- */

/* Broken by an emit that runs anywhere but on the lane, or that starts threads of its own. */
static void compile_reaches_clang_on_the_lane_and_starts_no_thread(void **state)
{
    const char *leak = look_at(false, false, what_leaked);

    (void)state;
    if (leak)
        fail_msg("%s", leak);
}

/* Control: the same service with the same cap, its emits routed to workers of the shared pool. */
static void control_emit_routed_to_the_pool_is_caught(void **state)
{
    const char *leak = look_at(true, false, what_leaked);

    (void)state;
    assert_non_null(leak);
    assert_string_equal(leak, "clang ran on a pool worker");
}

/* Broken when an isolated compile is driven from anywhere but the lane, or reaches clang in the
 * service's own process. */
static void isolated_compile_is_driven_by_the_lane(void **state)
{
    const char *wrong = look_at(false, true, what_drove_the_worker);

    (void)state;
    if (wrong)
        fail_msg("%s", wrong);
}

/* Control: the same service, its isolated compiles driven by workers of the shared pool. */
static void control_isolated_compile_driven_by_the_pool_is_caught(void **state)
{
    const char *wrong = look_at(true, true, what_drove_the_worker);

    (void)state;
    assert_non_null(wrong);
    assert_string_equal(wrong, "a pool worker drove it");
}

/* Control: a compile that is not isolated at all. */
static void control_compile_in_the_process_is_no_isolated_one(void **state)
{
    const char *wrong = look_at(false, false, what_drove_the_worker);

    (void)state;
    assert_non_null(wrong);
    assert_string_equal(wrong, "clang ran in the service's process");
}

static struct mw_pool *leak_pool;
static sem_t leaked;

static void leaked_item(struct mw_pool_item *item)
{
    (void)item;
    sem_post(&leaked);
}

/* Waits for the item, as a leaf that fans out does, so that it has surely been counted. */
static void leak_to_pool(void)
{
    struct mw_pool_item item = {.fn = leaked_item};

    if (mw_pool_submit(leak_pool, &item) == 0)
        while (sem_wait(&leaked) != 0)
            ;
}

/* Control: a leaf on the right thread that fans out onto a pool on purpose. */
static void control_leaf_that_fans_out_is_caught(void **state)
{
    struct house house;
    const char *leak;

    (void)state;
    assert_int_equal(sem_init(&leaked, 0, 0), 0);
    assert_int_equal(mw_pool_new(&leak_pool, &(struct mw_pool_options){0}), 0);
    leak_to_pool(); /* not from a leaf: it only brings the worker that the leaves will find idle */
    house_open(&house, false, false);
    atomic_store_explicit(&fan_out, true, memory_order_relaxed);
    leak = what_leaked(&house);
    atomic_store_explicit(&fan_out, false, memory_order_relaxed);
    house_close(&house);
    mw_pool_free(leak_pool);
    assert_non_null(leak);
    assert_string_equal(leak, "a leaf gave work to the shared pool");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compile_reaches_clang_on_the_lane_and_starts_no_thread),
        cmocka_unit_test(control_emit_routed_to_the_pool_is_caught),
        cmocka_unit_test(control_leaf_that_fans_out_is_caught),
        cmocka_unit_test(isolated_compile_is_driven_by_the_lane),
        cmocka_unit_test(control_isolated_compile_driven_by_the_pool_is_caught),
        cmocka_unit_test(control_compile_in_the_process_is_no_isolated_one),
    };

    if (mw_compile_init() != 0)
        return 1;
    return cmocka_run_group_tests_name("negative.service_off_pool", tests, NULL, NULL);
}

#include "load.h"

#include <errno.h>
#include <math.h>
#include <millwright/clock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "peer.h"

#define THROUGHPUT_CLIENTS 4u /* so that the lane always has something to do */
#define THROUGHPUT_RUNS    7u /* at most */
#define QUEUED             64u
#define QUICK_QUEUED       6u
#define SAMPLE_PAUSE_NS    10000000L
#define STACK_BYTES        (1u << 20) /* for JSON and curl */

/* Compiles of one subject, which the clients take one after another. */
struct batch {
    struct site *site;
    const char *folder; /* of the subject's files, and then by clang; NULL: by the site */
    struct subject *subject;
    char **bodies;
    unsigned count;
    atomic_uint next, done; /* relaxed: numbers; what clients leave is read after their join */
    struct load_client {
        struct batch *batch;
        pthread_t thread;
        int error;
        double worker_peak_bytes;
    } clients[LOAD_CLIENTS_MAX];
};

static int throughput_of(const struct plan *plan, struct site sites[LOAD_THREADS_MAX],
                         struct subject *subject, struct throughput *result);
static int batch_by_site(struct site *site, struct subject *subject, unsigned count,
                         unsigned clients, double *ms, struct load_memory *memory);
static int batch_by_clang(const char *folder, struct subject *subject, unsigned count,
                          unsigned clients, double *ms);
static int batch_run(struct batch *batch, unsigned clients, double *ms, struct load_memory *memory);
static int batch_start(struct batch *batch, unsigned clients);
static void *client_post(void *context);
static void *client_spawn(void *context);
static void memory_watch(struct batch *batch, struct load_memory *memory);
static void memory_raise(struct site_memory *most, const struct site_memory *now);
static int bodies_make(struct batch *batch);

int load_throughput(const struct plan *plan, struct throughput results[LOAD_BATCHES])
{
    static const struct {
        unsigned subject, compiles, runs; /* more runs where they are short */
    } batches[LOAD_BATCHES] = {
        {HELLO_O0, 32, THROUGHPUT_RUNS}, {WORDS_O0, 8, 5}, {GENERATED_O2, 6, 3}};
    struct site sites[LOAD_THREADS_MAX] = {0};
    int error = 0;

    for (unsigned i = 0; error == 0 && i < LOAD_THREADS_MAX; i++) {
        const char *options[PLAN_OPTIONS_MAX];
        char cap[16], name[16];

        snprintf(cap, sizeof cap, "%u", i + 1);
        snprintf(name, sizeof name, "cap-%u", i + 1);
        plan_options(plan, (const char *[]){"--lane-cap", cap, NULL}, options);
        error = site_open(&sites[i], plan->program, plan->folder, name, options);
    }
    for (unsigned i = 0; i < LOAD_BATCHES; i++) {
        struct subject *subject = &subjects[batches[i].subject];

        results[i] = (struct throughput){.compiles = plan->quick ? 2 : batches[i].compiles,
                                         .runs = plan->quick ? 1 : batches[i].runs};
        if (error != 0 || (plan->quick && !subject->is_quick))
            continue;
        results[i].name = subject->name;
        error = throughput_of(plan, sites, subject, &results[i]);
    }
    for (unsigned i = 0; i < LOAD_THREADS_MAX; i++)
        site_close(&sites[i]);
    return error;
}

int load_memory(const struct plan *plan, struct load_memory results[LOAD_LEVELS])
{
    const unsigned at_once[LOAD_LEVELS] = {0, 2, plan->quick ? QUICK_QUEUED : QUEUED};
    struct subject *subject = &subjects[WORDS_O0];
    const char *options[PLAN_OPTIONS_MAX];
    struct site site;
    int error;

    plan_options(plan, (const char *[]){"--lane-cap", "2", NULL}, options);
    error = site_open(&site, plan->program, plan->folder, "memory", options);
    if (error == 0)
        error = site_warm(&site, subject);
    plan_pause(plan);
    for (unsigned i = 0; i < LOAD_LEVELS; i++) {
        results[i] = (struct load_memory){.at_once = at_once[i]};
        if (error == 0 && at_once[i] == 0)
            results[i].most = site_memory(&site);
        else if (error == 0)
            error =
                batch_by_site(&site, subject, at_once[i], at_once[i], &results[i].ms, &results[i]);
    }
    site_close(&site);
    return error;
}

/* The medians of a few batches, with one thread or process and with two, in turn. Each round begins
 * with the next. */
static int throughput_of(const struct plan *plan, struct site sites[LOAD_THREADS_MAX],
                         struct subject *subject, struct throughput *result)
{
    double samples[LOAD_WAYS][LOAD_THREADS_MAX][THROUGHPUT_RUNS];
    const unsigned kinds = LOAD_WAYS * LOAD_THREADS_MAX;
    char *folder = path_join(plan->folder, subject->name);
    int error = mkdir(folder, 0777) == 0 ? 0 : -errno;

    if (error == 0)
        subject_write(subject, folder);
    for (unsigned i = 0; error == 0 && i < LOAD_THREADS_MAX; i++)
        error = site_warm(&sites[i], subject);
    for (unsigned i = 0; error == 0 && i < result->runs * kinds; i++) {
        unsigned run = i / kinds, kind = (i + run) % kinds, way = kind % LOAD_WAYS;
        unsigned at_once = kind / LOAD_WAYS;
        double *ms = &samples[way][at_once][run];

        plan_pause(plan);
        error = way == LOAD_CLANG
                    ? batch_by_clang(folder, subject, result->compiles, at_once + 1, ms)
                    : batch_by_site(&sites[at_once], subject, result->compiles, THROUGHPUT_CLIENTS,
                                    ms, NULL);
    }
    for (unsigned i = 0; i < kinds; i++)
        result->ms[i % LOAD_WAYS][i / LOAD_WAYS] =
            error == 0 ? bench_quantile(samples[i % LOAD_WAYS][i / LOAD_WAYS], result->runs, 0.5)
                       : NAN;
    free(folder);
    return error;
}

/* With `memory`, watch what the site's processes take meanwhile. */
static int batch_by_site(struct site *site, struct subject *subject, unsigned count,
                         unsigned clients, double *ms, struct load_memory *memory)
{
    struct batch batch = {.site = site, .subject = subject, .count = count};
    int error = bodies_make(&batch);

    if (error == 0)
        error = batch_run(&batch, clients, ms, memory);
    for (unsigned i = 0; batch.bodies != NULL && i < count; i++)
        free(batch.bodies[i]);
    free(batch.bodies);
    return error;
}

static int batch_by_clang(const char *folder, struct subject *subject, unsigned count,
                          unsigned clients, double *ms)
{
    struct batch batch = {.folder = folder, .subject = subject, .count = count};

    return batch_run(&batch, clients, ms, NULL);
}

static int batch_run(struct batch *batch, unsigned clients, double *ms, struct load_memory *memory)
{
    uint64_t begin_ns = mw_clock_ns();
    int error = batch_start(batch, clients);

    if (error == 0 && memory != NULL)
        memory_watch(batch, memory);
    for (unsigned i = 0; i < clients && batch->clients[i].batch != NULL; i++) {
        const struct load_client *client = &batch->clients[i];

        pthread_join(client->thread, NULL);
        error = error == 0 ? client->error : error;
        if (memory != NULL && client->worker_peak_bytes > memory->worker_peak_bytes)
            memory->worker_peak_bytes = client->worker_peak_bytes;
    }
    *ms = (double)(mw_clock_ns() - begin_ns) / MW_NS_PER_MS;
    return error;
}

static int batch_start(struct batch *batch, unsigned clients)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);

    if (error == 0)
        error = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (unsigned i = 0; error == 0 && i < clients; i++) {
        struct load_client *client = &batch->clients[i];

        client->batch = batch;
        error = pthread_create(&client->thread, &attributes,
                               batch->folder != NULL ? client_spawn : client_post, client);
        if (error != 0) {
            client->batch = NULL;
            fprintf(stderr, "compile: cannot start a thread: %s\n", strerror(error));
        }
    }
    pthread_attr_destroy(&attributes);
    return -error;
}

static void *client_post(void *context)
{
    struct load_client *self = context;
    struct batch *batch = self->batch;
    struct site site = {.server = batch->site->server};
    unsigned index;

    client_open(&site.client, &site.server);
    while ((index = atomic_fetch_add_explicit(&batch->next, 1, memory_order_relaxed)) <
           batch->count) {
        struct site_answer answer = {0};

        if (self->error == 0)
            self->error = site_compile(&site, batch->subject, batch->bodies[index], &answer);
        if (answer.memory_peak_bytes > self->worker_peak_bytes)
            self->worker_peak_bytes = answer.memory_peak_bytes;
        atomic_fetch_add_explicit(&batch->done, 1, memory_order_relaxed);
    }
    client_close(&site.client);
    return NULL;
}

static void *client_spawn(void *context)
{
    struct load_client *self = context;
    struct batch *batch = self->batch;
    char object[32];

    snprintf(object, sizeof object, "%td.o", self - batch->clients);
    while (self->error == 0 &&
           atomic_fetch_add_explicit(&batch->next, 1, memory_order_relaxed) < batch->count)
        self->error = peer_compile(batch->subject, batch->folder, object);
    return NULL;
}

static void memory_watch(struct batch *batch, struct load_memory *memory)
{
    const struct timespec pause = {.tv_nsec = SAMPLE_PAUSE_NS};

    while (atomic_load_explicit(&batch->done, memory_order_relaxed) < batch->count) {
        struct site_memory now = site_memory(batch->site);

        memory_raise(&memory->most, &now);
        nanosleep(&pause, NULL);
    }
}

static void memory_raise(struct site_memory *most, const struct site_memory *now)
{
    most->service = fmax(most->service, now->service);
    most->zygotes = fmax(most->zygotes, now->zygotes);
    most->workers = fmax(most->workers, now->workers);
    if (now->worker_count > most->worker_count)
        most->worker_count = now->worker_count;
}

static int bodies_make(struct batch *batch)
{
    batch->bodies = calloc(batch->count, sizeof *batch->bodies);
    for (unsigned i = 0; batch->bodies != NULL && i < batch->count; i++)
        batch->bodies[i] = subject_body(batch->subject);
    return batch->bodies == NULL ? -ENOMEM : 0;
}

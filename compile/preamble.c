/* preamble.c - see preamble.h; prefix.c says where a prefix ends.
 *
 * An *entry* stands for one key, in one of four states: seen once, planned (a caller makes it),
 * kept, or failed (and not to be tried again for a while). Entries stand in buckets by key, and in
 * one list by the time of their last use.
 *
 * 1. Only a kept entry has a file, and only a kept one is held.
 * 2. A planned entry stays until its plan is put, and a held one until it is dropped; any other may
 *    leave at any time. So between two calls nothing may rest on an entry that is neither.
 * 3. When the toolchain's stamp moves, no key of before can come again: what may leave leaves. */
#include "preamble.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <millwright/clock.h>
#include <millwright/digest.h>
#include <millwright/mutex.h>

#include "prefix.h"
#include "worker_wire.h"

/* Changes whenever what is made of the same headers and flags is to be another one. */
#define KEY_SCHEME "millwright preamble 1"

#define BUCKETS         1024u /* a power of two */
#define RETRY_NS        (UINT64_C(60) * MW_NS_PER_S)
#define WORD_BYTES_MAX  64u  /* of a macro's name, and of its value */
#define ARG_BYTES_MAX   128u /* of any other flag */
#define ARGS_MAX        256u
#define HASH_BYTES      32u
#define PART_OF_ALL_MAX 4u /* one prefix may have this part of all the room */

enum state { SEEN, PLANNED, KEPT, FAILED };

/* Last parts of paths, in order, once each; `list` points into `text`. */
struct names {
    char *text;
    const char **list;
    size_t count;
};

struct entry {
    struct entry *next_in_bucket;
    struct entry *newer, *older;
    struct mw_key key;
    enum state state;
    unsigned holds;
    uint64_t retry_ns; /* FAILED: planned again after that */
    /* KEPT; immutable while it is held */
    int file;
    const void *bytes; /* mapped */
    size_t count;
    struct names names; /* of all that its compile read or looked for */
};

struct mw_preambles {
    uint64_t bytes_max; /* immutable */

    struct mw_mutex lock; /* guards all below */
    struct entry *buckets[BUCKETS];
    struct entry *newest, *oldest;
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    unsigned sightings; /* entries that are not kept */
    unsigned plans;     /* out */
    struct mw_preambles_stats stats;
};

/* What of a request decides about its prefix. */
struct subject {
    enum mw_language language;
    const char *args[ARGS_MAX];
    size_t arg_count;
    struct mw_prefix prefix;
};

static bool subject_read(struct subject *subject, const struct mw_options *options,
                         const struct mw_compile_request *request);
static int key_make(struct mw_key *key, const struct mw_toolchain *toolchain,
                    const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], enum mw_language language,
                    const char *const *args, size_t arg_count, const char *text);
static int plan_new(struct mw_preamble_plan **out, const struct subject *subject,
                    const struct mw_key *key, const struct mw_compile_request *like);
static int result_check(const struct mw_preambles *preambles, struct mw_toolchain *toolchain,
                        const struct mw_preamble_plan *plan,
                        const struct mw_compile_result *result);
static int names_make(struct names *names, const struct mw_text *inputs);
static bool names_meet(const struct names *names, const struct mw_compile_request *request);
static void names_fini(struct names *names);
static struct entry *entry_find(struct mw_preambles *preambles, const struct mw_key *key)
    MW_REQUIRES(preambles->lock);
static int entry_new(struct mw_preambles *preambles, const struct mw_key *key)
    MW_REQUIRES(preambles->lock);
static void entry_use(struct mw_preambles *preambles, struct entry *entry)
    MW_REQUIRES(preambles->lock);
static void entry_remove(struct mw_preambles *preambles, struct entry *entry)
    MW_REQUIRES(preambles->lock);
static int entry_fill(struct mw_preambles *preambles, struct entry *entry, struct entry *made)
    MW_REQUIRES(preambles->lock);
static void stamp_take(struct mw_preambles *preambles,
                       const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES]) MW_REQUIRES(preambles->lock);
static void file_fini(struct entry *entry);

int mw_preambles_new(struct mw_preambles **out, uint64_t bytes_max)
{
    struct mw_preambles *preambles = calloc(1, sizeof(*preambles));
    int error;

    if (!preambles)
        return -ENOMEM;
    error = mw_mutex_init(&preambles->lock);
    if (error) {
        free(preambles);
        return -ENOMEM;
    }
    preambles->bytes_max = bytes_max > 0 ? bytes_max : MW_PREAMBLE_BYTES_MAX_DEFAULT;
    *out = preambles;
    return 0;
}

void mw_preambles_free(struct mw_preambles *preambles)
{
    if (!preambles)
        return;
    mw_mutex_lock(&preambles->lock);
    while (preambles->oldest) {
        assert(preambles->oldest->holds == 0);
        entry_remove(preambles, preambles->oldest);
    }
    mw_mutex_unlock(&preambles->lock);
    mw_mutex_fini(&preambles->lock);
    free(preambles);
}

uint64_t mw_preambles_one_bytes_max(const struct mw_preambles *preambles)
{
    return preambles->bytes_max / PART_OF_ALL_MAX;
}

void mw_preambles_snapshot(struct mw_preambles *preambles, struct mw_preambles_stats *stats)
{
    mw_mutex_lock(&preambles->lock);
    *stats = preambles->stats;
    mw_mutex_unlock(&preambles->lock);
    stats->bytes_max = preambles->bytes_max;
}

/* ---- find ---- */

/* Note that `key` was asked for. Returns its entry, held, when that is kept; else NULL, and *due
 * says whether the caller is to make it. */
static struct entry *sight(struct mw_preambles *preambles, const struct mw_key *key, bool *due)
    MW_REQUIRES(preambles->lock)
{
    struct entry *entry = entry_find(preambles, key);

    *due = false;
    if (!entry) {
        (void)entry_new(preambles, key); /* without memory it is not remembered */
        return NULL;
    }
    entry_use(preambles, entry);
    if (entry->state == KEPT) {
        entry->holds++;
        return entry;
    }
    *due = preambles->plans < MW_PREAMBLE_PLANS_MAX &&
           (entry->state == SEEN || (entry->state == FAILED && mw_clock_ns() >= entry->retry_ns));
    if (*due) {
        entry->state = PLANNED;
        preambles->plans++;
    }
    return NULL;
}

static void plan_settle(struct mw_preambles *preambles, struct entry *entry, enum state state)
    MW_REQUIRES(preambles->lock)
{
    assert(entry && entry->state == PLANNED && preambles->plans > 0);
    preambles->plans--;
    entry->state = state;
    entry->retry_ns = mw_clock_ns() + RETRY_NS;
}

static int plan_make(struct mw_preambles *preambles, const struct subject *subject,
                     const struct mw_key *key, struct mw_preamble_plan **plan)
{
    int error = plan_new(plan, subject, key, NULL);

    if (error) {
        mw_mutex_lock(&preambles->lock);
        plan_settle(preambles, entry_find(preambles, key), FAILED);
        mw_mutex_unlock(&preambles->lock);
    }
    return error;
}

int mw_preambles_find(struct mw_preambles *preambles, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request,
                      struct mw_preamble_use *use, struct mw_preamble_plan **plan)
{
    struct subject subject;
    struct entry *entry;
    struct mw_key key;
    bool due;
    int error;

    *use = (struct mw_preamble_use){.file = -1};
    *plan = NULL;
    if (!subject_read(&subject, options, request))
        return 0;
    error = key_make(&key, toolchain, stamp, subject.language, subject.args, subject.arg_count,
                     subject.prefix.text);
    if (error)
        return error;
    mw_mutex_lock(&preambles->lock);
    stamp_take(preambles, stamp);
    entry = sight(preambles, &key, &due);
    mw_mutex_unlock(&preambles->lock);
    if (due)
        return plan_make(preambles, &subject, &key, plan);
    if (!entry)
        return 0;
    *use = (struct mw_preamble_use){.bytes = entry->bytes,
                                    .count = entry->count,
                                    .file = entry->file,
                                    .covers_bytes = subject.prefix.covers_bytes,
                                    .text_bytes = subject.prefix.text_bytes,
                                    .key = entry->key.text};
    if (names_meet(&entry->names, request)) {
        mw_preambles_drop(preambles, use);
        *use = (struct mw_preamble_use){.file = -1};
        return 0;
    }
    mw_mutex_lock(&preambles->lock);
    preambles->stats.used++;
    mw_mutex_unlock(&preambles->lock);
    return 1;
}

int mw_preamble_plan_head_start(struct mw_preamble_plan **plan, const struct mw_options *options,
                                const struct mw_compile_request *request)
{
    struct subject subject;
    struct mw_key key;
    int error;

    if (!request->preamble || !request->preamble->key || !subject_read(&subject, options, request))
        return -EINVAL;
    (void)snprintf(key.text, sizeof(key.text), "%s", request->preamble->key);
    error = plan_new(plan, &subject, &key, request);
    if (error == 0 &&
        strcmp(mw_options_fingerprint((*plan)->options), mw_options_fingerprint(options)) != 0) {
        mw_preamble_plan_free(*plan);
        error = -EINVAL;
    }
    return error;
}

void mw_preambles_drop(struct mw_preambles *preambles, const struct mw_preamble_use *use)
{
    struct entry *entry;

    mw_mutex_lock(&preambles->lock);
    entry = preambles->newest;
    while (entry && (entry->state != KEPT || entry->file != use->file))
        entry = entry->older;
    assert(entry && entry->holds > 0);
    entry->holds--;
    mw_mutex_unlock(&preambles->lock);
}

/* ---- put ---- */

int mw_preambles_put(struct mw_preambles *preambles, struct mw_toolchain *toolchain,
                     struct mw_preamble_plan *plan, const struct mw_compile_result *result)
{
    struct entry made = {.file = -1}, *entry;
    int error = result ? result_check(preambles, toolchain, plan, result) : -EINVAL;

    if (error == 0)
        error = names_make(&made.names, &result->inputs);
    if (error == 0) {
        made.count = result->artifact_bytes;
        made.file = mw_wire_file_make("millwright-preamble", result->artifact, made.count);
        made.bytes = made.file >= 0 ? mw_wire_file_map(made.file, made.count) : NULL;
        error = made.bytes ? 0 : -ENOMEM;
    }
    mw_mutex_lock(&preambles->lock);
    entry = entry_find(preambles, &plan->key);
    plan_settle(preambles, entry, FAILED);
    if (error == 0)
        error = entry_fill(preambles, entry, &made);
    if (error)
        preambles->stats.failed++;
    else
        preambles->stats.built++;
    mw_mutex_unlock(&preambles->lock);
    if (error)
        file_fini(&made);
    mw_preamble_plan_free(plan);
    return result ? error : 0;
}

/* Whether the compile of a plan read the header called `name`. */
static bool inputs_have(const struct mw_text *inputs, const char *name, size_t name_bytes)
{
    const char *end = inputs->data + inputs->bytes;

    for (const char *at = inputs->data; at < end; at += strlen(at) + 1) {
        size_t bytes = strlen(at);

        if (at[0] == 'r' && bytes > name_bytes + 1 && at[bytes - name_bytes - 1] == '/' &&
            memcmp(at + bytes - name_bytes, name, name_bytes) == 0)
            return true;
    }
    return false;
}

/* Each header of the plan was read, or else the list of inputs is not what we need. */
static bool inputs_fit(const struct mw_text *inputs, const char *text)
{
    if (inputs->bytes == 0 || inputs->data[inputs->bytes - 1] != '\0')
        return false;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *name = strchr(line, '<') + 1;

        if (!inputs_have(inputs, name, (size_t)(strchr(name, '>') - name)))
            return false;
    }
    return true;
}

static int result_check(const struct mw_preambles *preambles, struct mw_toolchain *toolchain,
                        const struct mw_preamble_plan *plan, const struct mw_compile_result *result)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    struct mw_key now;
    int error;

    /* What is said about the headers would have to be said again each time. */
    if (!result->ok || result->not_storable || result->diagnostics.count > 0 ||
        result->diagnostics.dropped > 0 || result->artifact_bytes == 0)
        return -EINVAL;
    if (result->artifact_bytes > mw_preambles_one_bytes_max(preambles))
        return -EFBIG;
    if (!inputs_fit(&result->inputs, plan->text))
        return -EBADMSG;
    error = mw_toolchain_stamp(toolchain, stamp);
    if (error == 0)
        error = key_make(&now, toolchain, stamp, plan->request.language, plan->args,
                         plan->arg_count, plan->text);
    if (error)
        return error;
    return strcmp(now.text, plan->key.text) == 0 ? 0 : -ESTALE;
}

/* ---- which requests have a prefix ---- */

/* Flags with which there is none. A '*' at the end stands for any ending. */
static const struct {
    const char *reason;
    const char *flags[8];
} without[] = {
    {"debug information tells where each header's lines stand", {"-g*", NULL}},
    {"they put more in front, or find other headers",
     {"-I*", "-iquote*", "-isystem*", "-idirafter*", "-include*", "-imacros*", NULL}},
    {"they rename the main file or its headers",
     {"-ffile-prefix-map*", "-fmacro-prefix-map*", "-fdebug-prefix-map*", NULL}},
    {"they are for preprocessed text", {"-P", "-C", "-CC", NULL}},
    {"they have the compiler speak of system headers, or of comments",
     {"-Wsystem-headers*", "-Weverything", "-Wdocumentation*", "-Winvalid-utf8",
      "-Werror=documentation*", "-Werror=invalid-utf8", "-Werror=system-headers*", NULL}},
};

static bool flag_is(const char *arg, const char *pattern)
{
    size_t bytes = strcspn(pattern, "*");

    return pattern[bytes] == '*' ? strncmp(arg, pattern, bytes) == 0 : strcmp(arg, pattern) == 0;
}

static bool flag_is_without(const char *arg)
{
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        for (const char *const *flag = without[i].flags; *flag; flag++)
            if (flag_is(arg, *flag) && strcmp(arg, "-g0") != 0)
                return true;
    return false;
}

/* How many bytes of `text` are letters, digits and '_' or one of `others`. */
static size_t word_bytes(const char *text, const char *others)
{
    size_t bytes = 0;

    while ((text[bytes] >= 'a' && text[bytes] <= 'z') ||
           (text[bytes] >= 'A' && text[bytes] <= 'Z') ||
           (text[bytes] >= '0' && text[bytes] <= '9') || text[bytes] == '_' ||
           (text[bytes] != '\0' && strchr(others, text[bytes])))
        bytes++;
    return bytes;
}

/* -DNAME, -DNAME=VALUE, -UNAME: nothing that a stranger could say more with. */
static bool macro_is_plain(const char *arg)
{
    size_t name = word_bytes(arg + 2, "");
    const char *value = arg + 2 + name;

    if (name == 0 || name > WORD_BYTES_MAX)
        return false;
    if (arg[1] == 'D' && *value == '=') {
        size_t bytes = word_bytes(++value, "");

        value += bytes <= WORD_BYTES_MAX ? bytes : 0;
    }
    return *value == '\0';
}

static bool flag_is_plain(const char *arg)
{
    if (strncmp(arg, "-D", 2) == 0 || strncmp(arg, "-U", 2) == 0)
        return macro_is_plain(arg);
    return strlen(arg) <= ARG_BYTES_MAX && arg[word_bytes(arg, "-+=.,:")] == '\0';
}

/* The flags for a C that may not know line comments, which it then speaks of. */
static bool flag_is_old_c(const char *arg)
{
    return strcmp(arg, "-ansi") == 0 ||
           (strncmp(arg, "-std=", 5) == 0 && (strstr(arg, "89") || strstr(arg, "90")));
}

/* The fingerprint's first line tells which one it came to. */
static enum mw_language language_of(const struct mw_options *options)
{
    const char *text = mw_options_fingerprint(options);

    if (strncmp(text, "language c\n", strlen("language c\n")) == 0)
        return MW_LANGUAGE_C;
    return strncmp(text, "language c++\n", strlen("language c++\n")) == 0 ? MW_LANGUAGE_CXX
                                                                          : MW_LANGUAGE_AUTO;
}

/* Returns false when a flag forbids it. The language's own flag is not taken over: whether there is
 * one depends on the main file's ending. */
static bool args_read(struct subject *subject, const struct mw_options *options, bool *is_old_c)
{
    const char *const *args;
    size_t count;

    args = mw_options_args(options, &count);
    subject->arg_count = 0;
    *is_old_c = false;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(args[i], "-x", 2) == 0)
            continue;
        if (subject->arg_count == ARGS_MAX || flag_is_without(args[i]) || !flag_is_plain(args[i]))
            return false;
        *is_old_c = *is_old_c || flag_is_old_c(args[i]);
        subject->args[subject->arg_count++] = args[i];
    }
    return true;
}

static bool subject_read(struct subject *subject, const struct mw_options *options,
                         const struct mw_compile_request *request)
{
    const struct mw_source_file *file = mw_request_main(request);
    bool is_old_c;

    subject->language = language_of(options);
    if (request->read_disk || !file || subject->language == MW_LANGUAGE_AUTO ||
        (request->emit > MW_EMIT_BITCODE && request->emit != MW_EMIT_NONE) ||
        (request->extras & ~(1u << MW_EXTRA_LINE_MAP)) || !args_read(subject, options, &is_old_c))
        return false;
    mw_prefix_scan(&subject->prefix, file->data, file->bytes);
    if (subject->prefix.covers_bytes == 0 ||
        (subject->prefix.has_line_comments && subject->language == MW_LANGUAGE_C && is_old_c))
        return false;
    /* A unit in which nothing is declared is something to speak of; with headers precompiled clang
     * is silent. No declaration is without one of these. */
    return memchr(file->data + subject->prefix.covers_bytes, ';',
                  file->bytes - subject->prefix.covers_bytes) ||
           memchr(file->data + subject->prefix.covers_bytes, '}',
                  file->bytes - subject->prefix.covers_bytes);
}

/* ---- keys and plans ---- */

/* With its end, so that no two texts run together. */
static bool hash_text(EVP_MD_CTX *hash, const char *text)
{
    return EVP_DigestUpdate(hash, text, strlen(text) + 1) == 1;
}

static int key_make(struct mw_key *key, const struct mw_toolchain *toolchain,
                    const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES], enum mw_language language,
                    const char *const *args, size_t arg_count, const char *text)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    uint8_t sum[HASH_BYTES];
    bool good;

    good = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
           hash_text(hash, KEY_SCHEME) && hash_text(hash, mw_toolchain_identity(toolchain)) &&
           EVP_DigestUpdate(hash, stamp, MW_TOOLCHAIN_STAMP_BYTES) == 1 &&
           hash_text(hash, language == MW_LANGUAGE_CXX ? "c++" : "c");
    for (size_t i = 0; good && i < arg_count; i++)
        good = hash_text(hash, args[i]);
    good = good && hash_text(hash, "") && hash_text(hash, text) &&
           EVP_DigestFinal_ex(hash, sum, NULL) == 1;
    EVP_MD_CTX_free(hash);
    if (!good)
        return -ENOMEM;
    mw_hex_text(key->text, sum, HASH_BYTES);
    return 0;
}

/* As a request for a preamble; or, with `like`, as that one with the prefix for its main file. */
static void plan_request(struct mw_preamble_plan *plan, const struct subject *subject,
                         const struct mw_compile_request *like)
{
    const char *ending = like ? strrchr(like->main, '.') : NULL;

    plan->request = (struct mw_compile_request){.language = subject->language,
                                                .emit = MW_EMIT_PREAMBLE,
                                                .directory = MW_REQUEST_DIRECTORY_DEFAULT,
                                                .main = MW_PREAMBLE_MAIN,
                                                .files = &plan->file,
                                                .file_count = 1,
                                                .args = plan->args,
                                                .arg_count = plan->arg_count};
    if (like) {
        if (asprintf(&plan->main, MW_PREAMBLE_HEAD_START_MAIN "%s", ending ? ending : "") < 0)
            plan->main = NULL;
        plan->directory = strdup(like->directory);
        plan->use = (struct mw_preamble_use){.file = -1,
                                             .covers_bytes = subject->prefix.text_bytes,
                                             .text_bytes = subject->prefix.text_bytes,
                                             .key = plan->key.text};
        plan->request.emit = like->emit;
        plan->request.extras = like->extras;
        plan->request.main = plan->main;
        plan->request.directory = plan->directory;
        plan->request.preamble = &plan->use;
    }
    plan->file = (struct mw_source_file){plan->request.main, plan->text, strlen(plan->text)};
}

static int plan_new(struct mw_preamble_plan **out, const struct subject *subject,
                    const struct mw_key *key, const struct mw_compile_request *like)
{
    struct mw_preamble_plan *plan = calloc(1, sizeof(*plan));
    struct mw_refusal refusal = {0};
    int error = -ENOMEM;

    if (!plan)
        return -ENOMEM;
    plan->key = *key;
    plan->text = strdup(subject->prefix.text);
    plan->args = calloc(subject->arg_count + 1, sizeof(*plan->args));
    while (plan->args && plan->arg_count < subject->arg_count &&
           (plan->args[plan->arg_count] = strdup(subject->args[plan->arg_count])))
        plan->arg_count++;
    if (plan->text && plan->args && plan->arg_count == subject->arg_count) {
        plan_request(plan, subject, like);
        if (plan->request.main && plan->request.directory)
            error = mw_options_new(&plan->options, &plan->request, &refusal);
    }
    if (error) {
        mw_preamble_plan_free(plan);
        return error;
    }
    *out = plan;
    return 0;
}

void mw_preamble_plan_free(struct mw_preamble_plan *plan)
{
    mw_options_free(plan->options);
    for (size_t i = 0; i < plan->arg_count; i++)
        free((char *)plan->args[i]);
    free(plan->args);
    free(plan->text);
    free(plan->main);
    free(plan->directory);
    free(plan);
}

/* ---- names ---- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int names_make(struct names *names, const struct mw_text *inputs)
{
    size_t count = 0, kept = 0;

    names->text = malloc(inputs->bytes);
    if (!names->text)
        return -ENOMEM;
    memcpy(names->text, inputs->data, inputs->bytes);
    for (size_t at = 0; at < inputs->bytes; at += strlen(names->text + at) + 1)
        count++;
    names->list = calloc(count, sizeof(*names->list));
    if (!names->list)
        return -ENOMEM;
    count = 0;
    for (size_t at = 0; at < inputs->bytes; at += strlen(names->text + at) + 1)
        names->list[count++] = last_part(names->text + at);
    qsort(names->list, count, sizeof(*names->list), by_name);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names->list[i], names->list[kept - 1]) != 0)
            names->list[kept++] = names->list[i];
    names->count = kept;
    return 0;
}

/* Whether a file of the request might be found instead of one of these. The main file's name counts
 * too: a header might include it. */
static bool names_meet(const struct names *names, const struct mw_compile_request *request)
{
    for (size_t i = 0; i < request->file_count; i++) {
        const char *name = last_part(request->files[i].name);

        if (bsearch(&name, names->list, names->count, sizeof(*names->list), by_name))
            return true;
    }
    return false;
}

static void names_fini(struct names *names)
{
    free(names->list);
    free(names->text);
    *names = (struct names){0};
}

/* ---- entries ---- */

static struct entry **bucket_of(struct mw_preambles *preambles, const struct mw_key *key)
{
    char digits[9] = {0};

    memcpy(digits, key->text, sizeof(digits) - 1);
    return &preambles->buckets[strtoul(digits, NULL, 16) % BUCKETS];
}

static struct entry *entry_find(struct mw_preambles *preambles, const struct mw_key *key)
{
    struct entry *entry = *bucket_of(preambles, key);

    while (entry && strcmp(entry->key.text, key->text) != 0)
        entry = entry->next_in_bucket;
    return entry;
}

static bool may_leave(const struct entry *entry)
{
    return entry->state != PLANNED && entry->holds == 0;
}

/* The one that was used longest ago, of those that are kept or of the others; NULL: none. */
static struct entry *oldest_of(const struct mw_preambles *preambles, bool kept)
{
    struct entry *entry = preambles->oldest;

    while (entry && ((entry->state == KEPT) != kept || !may_leave(entry)))
        entry = entry->newer;
    return entry;
}

static void list_remove(struct mw_preambles *preambles, struct entry *entry)
{
    *(entry->newer ? &entry->newer->older : &preambles->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &preambles->oldest) = entry->newer;
}

static void list_add(struct mw_preambles *preambles, struct entry *entry)
{
    entry->newer = NULL;
    entry->older = preambles->newest;
    *(preambles->newest ? &preambles->newest->newer : &preambles->oldest) = entry;
    preambles->newest = entry;
}

static int entry_new(struct mw_preambles *preambles, const struct mw_key *key)
{
    struct entry **bucket = bucket_of(preambles, key);
    struct entry *entry;

    if (preambles->sightings >= MW_PREAMBLE_SIGHTINGS_MAX && oldest_of(preambles, false))
        entry_remove(preambles, oldest_of(preambles, false));
    entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    *entry = (struct entry){.next_in_bucket = *bucket, .key = *key, .state = SEEN, .file = -1};
    *bucket = entry;
    list_add(preambles, entry);
    preambles->sightings++;
    return 0;
}

static void entry_use(struct mw_preambles *preambles, struct entry *entry)
{
    list_remove(preambles, entry);
    list_add(preambles, entry);
}

static void entry_remove(struct mw_preambles *preambles, struct entry *entry)
{
    struct entry **link = bucket_of(preambles, &entry->key);

    while (*link != entry)
        link = &(*link)->next_in_bucket;
    *link = entry->next_in_bucket;
    list_remove(preambles, entry);
    if (entry->state == KEPT) {
        preambles->stats.kept--;
        preambles->stats.bytes -= entry->count;
    } else {
        preambles->sightings--;
    }
    file_fini(entry);
    free(entry);
}

/* Make room and keep what was made. Returns 0, or -ENOMEM: what is held leaves no room. */
static int entry_fill(struct mw_preambles *preambles, struct entry *entry, struct entry *made)
{
    while (preambles->stats.bytes + made->count > preambles->bytes_max) {
        struct entry *oldest = oldest_of(preambles, true);

        if (!oldest)
            return -ENOMEM;
        entry_remove(preambles, oldest);
        preambles->stats.evicted++;
    }
    entry->state = KEPT;
    entry->file = made->file;
    entry->bytes = made->bytes;
    entry->count = made->count;
    entry->names = made->names;
    preambles->sightings--;
    preambles->stats.kept++;
    preambles->stats.bytes += entry->count;
    return 0;
}

static void stamp_take(struct mw_preambles *preambles,
                       const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES])
{
    struct entry *entry = preambles->oldest;

    if (memcmp(preambles->stamp, stamp, sizeof(preambles->stamp)) == 0)
        return;
    memcpy(preambles->stamp, stamp, sizeof(preambles->stamp));
    while (entry) {
        struct entry *newer = entry->newer;

        if (may_leave(entry)) {
            preambles->stats.evicted += entry->state == KEPT;
            entry_remove(preambles, entry);
        }
        entry = newer;
    }
}

static void file_fini(struct entry *entry)
{
    if (entry->bytes)
        (void)munmap((void *)entry->bytes, entry->count);
    if (entry->file >= 0)
        close(entry->file);
    names_fini(&entry->names);
}

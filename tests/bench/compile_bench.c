/* compile_bench.c - compiles by `millwright serve` against `clang-19 -c` as a process.
 *
 * What is measured stands in compile/, a file for each part; here is in which order. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "compile/report.h"
#include "pools/section.h"

#define SECTION_BEGIN "<!-- begin: ./dev bench compile -- --update -->"
#define SECTION_END   "<!-- end -->"

static const char *program, *corpus, *only, *quick, *equal, *update;
static const struct bench_option options[] = {
    {"--program", "PATH", "the millwright to start (MW_PROGRAM, or the one built beside this)",
     &program},
    {"--corpus", "DIR", "where tests/corpus/fetch has put zlib (the build's)", &corpus},
    {"--part", "NAME", "only this part: speed, throughput, memory or where", &only},
    {"--quick", NULL, "a small part: for the form, not for the figures", &quick},
    {"--equal", NULL, "leaves as urgent as the process, not at nice 19: for a busy machine",
     &equal},
    {"--update", "FILE", "also put the tables into FILE, in place of those before", &update},
};

static char folder[] = "/tmp/mw-bench-XXXXXX";

static const char *beside_this(char path[4096], const char *from_here);
static int set_up(struct plan *plan);
static void clean_up(void);
static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk);
static int measure(const struct plan *plan, struct findings *findings);
static bool is_wanted(const char *part);
static int show(const struct plan *plan, const struct findings *findings);
static int update_file(const char *text);
static int tell_update(int error);

int main(int argc, char **argv)
{
    struct bench bench = {.name = "compile",
                          .summary = "POST /v1/compile against " COMPILER " -c as a process",
                          .options = options,
                          .option_count = sizeof options / sizeof *options};
    struct plan plan = {.bench = &bench};
    static struct findings findings;
    int status;

    if (!bench_parse(&bench, argc, argv, &status))
        return status;
    if (update != NULL && (only != NULL || quick != NULL)) {
        fprintf(stderr, "compile: --update takes the whole: leave out --part and --quick\n");
        return 2;
    }
    if (update != NULL && tell_update(section_find(update, SECTION_BEGIN, SECTION_END)) != 0)
        return 1; /* before minutes have gone by */
    status = set_up(&plan);
    if (status == 0)
        status = measure(&plan, &findings);
    if (status == 0)
        status = show(&plan, &findings);
    return status == -EINVAL ? 2 : status != 0;
}

/* ---- set up and clean up ---- */

static const char *beside_this(char path[4096], const char *from_here)
{
    ssize_t length = readlink("/proc/self/exe", path, 4096 - strlen(from_here) - 1);
    char *slash;

    path[length < 0 ? 0 : length] = '\0';
    slash = strrchr(path, '/');
    strcpy(slash == NULL ? path : slash, from_here);
    return path;
}

static int set_up(struct plan *plan)
{
    static char program_path[4096], corpus_path[4096];

    if (program == NULL)
        program = getenv("MW_PROGRAM");
    if (program == NULL)
        program = beside_this(program_path, "/../../bin/millwright");
    if (corpus == NULL)
        corpus = beside_this(corpus_path, "/../../corpus");
    if (access(program, X_OK) != 0) {
        fprintf(stderr, "compile: cannot run '%s': build millwright, or give --program PATH\n",
                program);
        return -ENOENT;
    }
    if (mkdtemp(folder) == NULL) {
        fprintf(stderr, "compile: cannot make '%s': %s\n", folder, strerror(errno));
        return -EIO;
    }
    atexit(clean_up);
    *plan = (struct plan){.bench = plan->bench,
                          .program = program,
                          .folder = folder,
                          .quick = quick != NULL,
                          .equal = equal != NULL};
    if (subjects_make(corpus, folder) != 0) {
        fprintf(stderr, "compile: out of memory\n");
        return -ENOMEM;
    }
    return 0;
}

/* Also when something failed; services die with this process. */
static void clean_up(void)
{
    subjects_free();
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

/* ---- the parts ---- */

static int measure(const struct plan *plan, struct findings *findings)
{
    int error = 0;

    findings->has_speed = is_wanted("speed");
    findings->has_throughput = is_wanted("throughput");
    findings->has_memory = is_wanted("memory");
    findings->has_where = is_wanted("where");
    if (!findings->has_speed && !findings->has_throughput && !findings->has_memory &&
        !findings->has_where) {
        fprintf(stderr, "compile: there is no part '%s'; see --help\n", only);
        return -EINVAL;
    }
    if (findings->has_speed)
        error = speed_measure(plan, findings->speeds);
    if (error == 0 && findings->has_throughput)
        error = load_throughput(plan, findings->throughput);
    if (error == 0 && findings->has_memory)
        error = load_memory(plan, findings->memory);
    if (error == 0 && findings->has_where)
        error = where_measure(plan, findings->where);
    return error;
}

static bool is_wanted(const char *part)
{
    return only == NULL || strcmp(only, part) == 0;
}

/* ---- the answer ---- */

static int show(const struct plan *plan, const struct findings *findings)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    int error = 0;

    if (out == NULL)
        return -errno;
    report_text(out, plan, findings);
    if (plan->quick)
        fputs("\nThis was --quick: a small part, for which the goals are not meant.\n", out);
    if (fclose(out) != 0)
        error = -ENOMEM;
    if (error == 0 && plan->bench->json)
        error = report_json(plan, findings);
    else if (error == 0 && (fputs(text, stdout) < 0 || fflush(stdout) != 0))
        error = -EIO;
    if (error == 0 && update != NULL)
        error = update_file(text);
    free(text);
    return error;
}

static int update_file(const char *text)
{
    char *block = NULL;
    int error;

    if (asprintf(&block, "\n```\n%s```\n\n", text) < 0)
        return -ENOMEM;
    error = section_replace(update, SECTION_BEGIN, SECTION_END, block);
    free(block);
    return tell_update(error);
}

static int tell_update(int error)
{
    if (error == -ENOENT)
        fprintf(stderr, "compile: '%s' is not there or has no lines '%s' and '%s'\n", update,
                SECTION_BEGIN, SECTION_END);
    else if (error != 0)
        fprintf(stderr, "compile: cannot update '%s': %s\n", update, strerror(-error));
    return error;
}

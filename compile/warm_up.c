#include "warm_up.h"

#include <string.h>

#include <millwright/options.h>
#include <millwright/preamble.h>

#include "text_pages.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A text to compile in order to have compiled. */
struct warm_text {
    const char *name, *text, *flag; /* flag NULL: none */
    enum mw_emit_kind emit;
};

/* What most sources begin with, and most compiles need not read any more. */
#define WARM_HEADERS "#include <stdio.h>\n"

static const struct warm_text again = {
    "warm.c",
    WARM_HEADERS "int main(int argc, char **argv)\n"
                 "{\n"
                 "    for (int i = 0; i < argc; i++)\n"
                 "        printf(\"%d %s\\n\", i, argv[i]);\n"
                 "    return 0;\n"
                 "}\n",
    "-O0",
    MW_EMIT_OBJECT,
};
static const struct warm_text once[] = {
    {"warm.c",
     "#include <stdio.h>\n"
     "int f(int a, double b) { for (int i = 0; i < a; i++) b += i; printf(\"%f\", b); return b; "
     "}\n",
     "-O2", MW_EMIT_OBJECT},
    {"warm.cc",
     "template <class T> struct box { T t; T *operator->() { return &t; } };\n"
     "struct a { virtual ~a() {} int n = 1; };\n"
     "int g(box<a> b) { auto f = [&](auto x) { return b->n + x; }; return f(1); }\n",
     "-O2", MW_EMIT_OBJECT},
};

static void preamble_make(struct mw_warm_up *warm_up);
static void driver_ask(const struct mw_toolchain *toolchain);
static void text_compile(const struct mw_toolchain *toolchain, const struct warm_text *text,
                         const struct mw_preamble_use *preamble);
static void compile(const struct mw_toolchain *toolchain, const struct mw_compile_request *request,
                    struct mw_compile_result *result);

void mw_warm_up_begin(struct mw_warm_up *warm_up, const struct mw_toolchain *toolchain)
{
    *warm_up = (struct mw_warm_up){.toolchain = toolchain};
    preamble_make(warm_up);
    mw_warm_up_again(warm_up);
    for (size_t i = 0; i < COUNT(once); i++)
        text_compile(toolchain, &once[i], NULL);
    driver_ask(toolchain);
}

void mw_warm_up_again(const struct mw_warm_up *warm_up)
{
    const struct mw_compile_result *made = &warm_up->preamble_made;
    struct mw_preamble_use preamble = {.bytes = made->artifact,
                                       .count = made->artifact_bytes,
                                       .file = -1,
                                       .covers_bytes = strlen(WARM_HEADERS)};

    text_compile(warm_up->toolchain, &again, made->ok ? &preamble : NULL);
}

void mw_warm_up_fini(struct mw_warm_up *warm_up)
{
    mw_compile_result_fini(&warm_up->preamble_made);
}

void mw_compile_warm_up(const struct mw_toolchain *toolchain)
{
    struct mw_warm_up warm_up;

    mw_text_pages_forget();
    mw_warm_up_begin(&warm_up, toolchain);
    mw_warm_up_fini(&warm_up);
    (void)mw_text_pages_enlarge();
}

/* To use a preamble touches other memory than to read headers does, and is done in less time. */
static void preamble_make(struct mw_warm_up *warm_up)
{
    struct mw_source_file file = {MW_PREAMBLE_MAIN, WARM_HEADERS, strlen(WARM_HEADERS)};
    struct mw_compile_request request = {.language = MW_LANGUAGE_C,
                                         .emit = MW_EMIT_PREAMBLE,
                                         .directory = MW_REQUEST_DIRECTORY_DEFAULT,
                                         .main = file.name,
                                         .files = &file,
                                         .file_count = 1,
                                         .args = &again.flag,
                                         .arg_count = 1};

    compile(warm_up->toolchain, &request, &warm_up->preamble_made);
}

static void driver_ask(const struct mw_toolchain *toolchain)
{
    static const char *const names[] = {"warm.c", "warm.cc", "warm.cpp"};
    static const char *const flags[] = {NULL, "-O0", "-O1", "-O2", "-O3", "-Os"};

    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t k = 0; k < COUNT(flags); k++)
            text_compile(toolchain,
                         &(struct warm_text){names[i], "int a;\n", flags[k], MW_EMIT_NONE}, NULL);
}

static void text_compile(const struct mw_toolchain *toolchain, const struct warm_text *text,
                         const struct mw_preamble_use *preamble)
{
    struct mw_source_file file = {text->name, text->text, strlen(text->text)};
    struct mw_compile_request request = {.directory = MW_REQUEST_DIRECTORY_DEFAULT,
                                         .main = text->name,
                                         .files = &file,
                                         .file_count = 1,
                                         .args = &text->flag,
                                         .arg_count = text->flag ? 1 : 0,
                                         .emit = text->emit,
                                         .preamble = preamble};
    struct mw_compile_result result = {0};

    compile(toolchain, &request, &result);
    mw_compile_result_fini(&result);
}

static void compile(const struct mw_toolchain *toolchain, const struct mw_compile_request *request,
                    struct mw_compile_result *result)
{
    struct mw_options *options = NULL;
    struct mw_refusal refusal = {0};

    if (mw_options_new(&options, request, &refusal))
        return;
    (void)mw_emit(toolchain, options, request, result);
    mw_options_free(options);
}

#include "hostile_sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service/support.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void write_repeated(FILE *out, unsigned times, const char *text)
{
    for (unsigned i = 0; i < times; i++)
        fputs(text, out);
}

static void write_bangs(FILE *out, unsigned count)
{
    fputs("int f(void) { return ", out);
    write_repeated(out, count, "!");
    fputs("1; }\n", out);
}

static void write_few_bangs(FILE *out)
{
    write_bangs(out, 2000);
}

static void write_many_bangs(FILE *out)
{
    write_bangs(out, 200000);
}

static void write_else_ifs(FILE *out)
{
    fputs("int f(int a) { if (a == 0) return 1;\n", out);
    for (unsigned i = 1; i < 7000; i++)
        fprintf(out, "else if (a == %u) return %u;\n", i, i);
    fputs("return 0; }\n", out);
}

static void write_terms(FILE *out)
{
    fputs("int f(int a) { return a", out);
    write_repeated(out, 80000, "+a");
    fputs("; }\n", out);
}

static void write_brackets(FILE *out)
{
    fputs("int f(void) { return ", out);
    write_repeated(out, 100000, "(");
    fputs("1", out);
    write_repeated(out, 100000, ")");
    fputs("; }\n", out);
}

static void write_macros(FILE *out)
{
    fputs("#define A0 +1\n", out);
    for (unsigned i = 1; i <= 40; i++)
        fprintf(out, "#define A%u A%u A%u\n", i, i - 1, i - 1);
    fputs("int x = A40;\n", out);
}

const struct hostile_limits hostile_tight = {20000, 600, 256 << 20, 4 << 20};
const struct hostile_limits hostile_wall = {600, 30000, 1 << 30, 64 << 20};

const struct hostile_source hostile_sources[] = {
    {"few bangs", "c", NULL, write_few_bangs, "ok failed", false},
    {"many bangs", "c", NULL, write_many_bangs, "failed cpu memory", true},
    {"else ifs", "c", NULL, write_else_ifs, "ok failed cpu", false},
    {"terms", "c", NULL, write_terms, "ok failed cpu memory", false},
    {"brackets", "c", NULL, write_brackets, "failed", false},
    {"two gigabytes", "c", "char a[1UL << 31] = {1};\n", NULL, "output memory cpu", false},
    {"repetition", "c", "__asm__(\".rept 100000000\\nnop\\n.endr\");\n", NULL, "output memory cpu",
     false},
    {"fill", "c", "__asm__(\".fill 1000000000\");\n", NULL, "output memory cpu", false},
    {"zeros", "c", "__asm__(\".zero 4000000000\");\n", NULL, "output memory cpu", false},
    {"endless macro of the assembler", "c", "__asm__(\".macro a\\nnop\\na\\na\\n.endm\\na\");\n",
     NULL, "failed output memory cpu", false},
    {"header within itself", "c",
     "#if __INCLUDE_LEVEL__ < 60\n#include __FILE__\n#include __FILE__\n#endif\n", NULL,
     "cpu memory", false},
    {"tree of templates", "c++",
     "template <int N, long I> struct T { T<N - 1, 2 * I> l; T<N - 1, 2 * I + 1> r; };\n"
     "template <long I> struct T<0, I> {};\nT<30, 1> t;\n",
     NULL, "cpu memory", false},
    {"templates without end", "c++",
     "template <int N> struct T { enum { v = T<N + 1>::v }; };\nint x = T<0>::v;\n", NULL, "failed",
     false},
    {"macros within macros", "c", NULL, write_macros, "cpu memory", false},
    {"great product", "c", "_BitInt(8388608) a, b;\nvoid f(void) { a = a * b; }\n", NULL,
     "cpu memory failed", false},
    {"constexpr loop", "c++",
     "constexpr long f() { long s = 0; for (long i = 0; i < 100000000; i++) s += i; return s; }\n"
     "constexpr long x = f();\n",
     NULL, "failed cpu", false},
    {"constexpr loop of dear steps", "c++",
     "struct S { int a[4096]; };\n"
     "constexpr int f() { S s{}; for (int i = 0; i < 1000000; i++) { S t = s; s = t; }\n"
     "return s.a[0]; }\nconstexpr int x = f();\n",
     NULL, "cpu memory", false},
    {"device of chance", "c", "#include \"/dev/random\"\n", NULL, "failed", false},
    {"device of zeros", "c", "#include \"/dev/zero\"\n", NULL, "failed", false},
    {"device of zeros, embedded", "c", "const char a[] = {\n#embed \"/dev/zero\"\n};\n", NULL,
     "failed", false},
    {"device of zeros, looked for", "c", "#if __has_include(\"/dev/zero\")\nnone\n#endif\n", NULL,
     "ok", false},
    {"zeros by the assembler", "c", "__asm__(\".incbin \\\"/dev/zero\\\"\");\n", NULL, "failed",
     false},
    {"itself, as a process", "c", "__asm__(\".incbin \\\"/proc/self/mem\\\"\");\n", NULL, "failed",
     false},
    {"pragma overflow_stack", "c", "#pragma clang __debug overflow_stack\nint x;\n", NULL,
     "ok failed", false},
    {"pragma crash", "c", "#pragma clang __debug crash\nint x;\n", NULL, "ok failed", false},
    {"pragma llvm_fatal_error", "c", "#pragma clang __debug llvm_fatal_error\nint x;\n", NULL,
     "ok failed", false},
    {"pragma parser_crash", "c", "#pragma clang __debug parser_crash\nint x;\n", NULL, "ok failed",
     false},
};
const size_t hostile_source_count = COUNT(hostile_sources);

/* The number goes last, since some of these are about their first line. */
static char *text_of_source(const struct hostile_source *source, unsigned number)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    if (source->write)
        source->write(out);
    else
        fputs(source->text, out);
    fprintf(out, "/* %u */\n", number);
    assert_int_equal(fclose(out), 0);
    return text;
}

json_t *hostile_body(const struct hostile_source *source, unsigned number,
                     const struct hostile_limits *limits)
{
    char *text = text_of_source(source, number);
    json_t *body = json_pack("{s:s, s:s, s:i}", "language", source->language, "source", text,
                             "timeout_ms", PATIENT_MS);

    free(text);
    assert_non_null(body);
    if (limits)
        json_object_set_new(body, "limits",
                            json_pack("{s:I, s:I, s:I, s:I}", "wall_ms", limits->wall_ms, "cpu_ms",
                                      limits->cpu_ms, "memory_bytes", limits->memory_bytes,
                                      "output_bytes", limits->output_bytes));
    return body;
}

const char *hostile_outcome(long status, const json_t *answer)
{
    const char *name = text_of(answer, status == 200 ? "status" : "limit");

    return (status == 200 || status == 422) && name[0] ? name : "?";
}

static bool is_listed(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

bool hostile_allows(const struct hostile_source *source, const char *outcome)
{
    /* where a machine is busy, time may be up before anything has happened */
    return is_listed(source->outcomes, outcome) || strcmp(outcome, "wall") == 0;
}

bool hostile_is_endless(const struct hostile_source *source)
{
    return !is_listed(source->outcomes, "ok") && !is_listed(source->outcomes, "failed");
}

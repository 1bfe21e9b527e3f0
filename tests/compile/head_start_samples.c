#include "head_start_samples.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WORDS        "#include <map>\n#include <string>\n#include <vector>\n"
#define ERRNO_8                                                                                    \
    "#include <errno.h>\n#include <errno.h>\n#include <errno.h>\n#include <errno.h>\n"             \
    "#include <errno.h>\n#include <errno.h>\n#include <errno.h>\n#include <errno.h>\n"

const struct head_start_sample head_start_outputs[] = {
    {.trial = {.files = {{"hello.c",
                          "#include <stdio.h>\n"
                          "int main(void) { return printf(\"%s %s %d\", __FILE__, __FILE_NAME__, "
                          "__LINE__ + __INCLUDE_LEVEL__); }\n"}},
               .args = {"-O0"}}},
    {.trial = {.files = {{"in/folder/hello.c",
                          "#include <stdio.h>\n"
                          "int main(void) { return puts(__BASE_FILE__ __FILE__); }\n"}},
               .args = {"-O2", "-fPIC"}}},
    {.trial =
         {.files = {{"src/words.cc", WORDS
                     "std::map<std::string, std::vector<int>> words;\n"
                     "int count(const char *w) { words[w].push_back(1); return words.size(); }"}},
          .args = {"-O0"}}},
    /* a constructor, whose function is named after the file */
    {.trial = {.files = {{"src/a.cc", WORDS "struct once { once(); ~once(); } first;\n"
                                            "static std::map<std::string, int> n{{\"a\", 1}};\n"
                                            "int f(const std::string &s) { return n.at(s); }\n"}},
               .args = {"-O2", "-std=c++20"}}},
    {.trial = {.files = {{"b.cc", WORDS "struct once { once(); ~once(); } first;\n"
                                        "static std::map<std::string, int> n{{\"a\", 1}};\n"
                                        "int f(const std::string &s) { return n.at(s); }\n"}},
               .args = {"-O2", "-std=c++20"}}},
    {.trial = {.files = {{"asm.c",
                          "#include <stdlib.h>\nint f(void) { return abs(3) + rand(); }\n"}},
               .args = {"-O1", "-masm=intel"},
               .emit = MW_EMIT_ASM}},
    {.trial = {.files = {{"asm.cc", "#include <utility>\nint f(int a) { return std::move(a); }\n"}},
               .emit = MW_EMIT_ASM}},
    {.trial = {.files = {{"src/ir.cc", WORDS "static std::string s = \"ir\";\n"
                                             "const char *f() { return s.c_str(); }\n"}},
               .args = {"-O2"},
               .emit = MW_EMIT_LLVM_IR}},
    {.trial = {.files = {{"src/bitcode.cc",
                          "#include <new>\nint *f() { return new (std::nothrow) int; }"}},
               .emit = MW_EMIT_BITCODE}},
    {.trial = {.files = {{"none.cc", WORDS "int f(std::vector<int> a) { return a.at(0); }\n"}},
               .emit = MW_EMIT_NONE}},
    {.trial = {.files = {{"location.cc",
                          "#include <source_location>\n"
                          "int f(std::source_location at = std::source_location::current());\n"
                          "int g() { return f() + f(); }\n"}},
               .args = {"-O1", "-std=c++20"}}},
    {.trial = {.files = {{"cross.c", "#include <stdint.h>\n#include <stddef.h>\n"
                                     "uintptr_t f(void) { return sizeof(ptrdiff_t); }\n"}},
               .args = {"--target=aarch64-linux-gnu", "-ffreestanding", "-O2"}}},
    {.trial = {.files = {{"elsewhere.c", "#include <assert.h>\nvoid f(int a) { assert(a); }\n"}},
               .directory = "/somewhere/else"}},
    /* bytes that are not to be kept */
    {.trial =
         {.files =
              {{"clock.c",
                "#include <stdio.h>\nint f(void) { return puts(__DATE__ __TIMESTAMP__); }\n"}}}},
    {.trial = {.files = {{"inline.c",
                          "#include <stdio.h>\nvoid f(void) { __asm__(\"nop\"); }\n"}}}},
};
const size_t head_start_output_count = COUNT(head_start_outputs);

const struct head_start_sample head_start_texts[] = {
    {.trial =
         {.files = {{"comments.cc",
                     "// comments and blank lines between\n\n#include <map>\n/* #include <set>\n "
                     "two */\n"
                     "#include <string>\n\n\n#include <vector> // and behind\n"
                     "std::map<std::string, std::vector<int>> words;\nint line = __LINE__;\n"}}}},
    {.trial = {.files = {{"dense.c", "\n\n\n\n\n\n\n#\tinclude<stdio.h>\n#include\t<stdlib.h>/**/\n"
                                     "int line(void) { return puts(__FILE__) + __LINE__; }\n"}}}},
    {.trial = {.files = {{"returns.c",
                          "#include <stdio.h>\r\n#include <errno.h>\r\n\r\nint main(void)\r\n{"
                          "\r\n  return errno + __LINE__;\r\n}"}}}},
    /* a header that is skipped, at the end of the list: its name is all there is of it */
    {.trial = {.files = {{"twice.cc", "#include <string>\n#include <vector>\n#include <string>\n"
                                      "std::vector<std::string> f() { return {\"a\"}; }\n"}}}},
    {.trial = {.files = {{"within.cc", "#include <vector>\n#include <initializer_list>\n"
                                       "std::vector<int> f() { return {1, 2}; }\n"}}}},
    {.trial = {.files = {{"again.c", "#include <assert.h>\n#include <assert.h>\n#undef NDEBUG\n"
                                     "#include <assert.h>\nvoid f(int a) { assert(a); }\n"}}}},
    {.trial = {.files = {{"many.c", ERRNO_8 ERRNO_8 ERRNO_8 ERRNO_8 ERRNO_8 ERRNO_8 ERRNO_8
                                        ERRNO_8 ERRNO_8 "int f(void) { return errno; }\n"}}}},
    /* itself, under a guard, and never */
    {.trial = {.files = {{"self.c",
                          "#include <stdio.h>\n#ifndef AGAIN\n#define AGAIN\n#include \"self.c\"\n"
                          "int f(void) { return N + __COUNTER__; }\n#else\n"
                          "enum { N = __INCLUDE_LEVEL__ * 8 + __COUNTER__ };\n#endif\n"}}}},
    {.trial = {.files = {{"named.c", "#include <stdio.h>\n#ifndef AGAIN\n#define AGAIN\n"
                                     "#include \"named.c\"\n#else\n"
                                     "const char *a = __FILE__;\n#endif\n"}}}},
    {.trial = {.files = {{"guards.c", "#include <stdio.h>\n#ifndef GUARD_OF_THIS\n"
                                      "#define GUARD_OF_THAT\nint a;\n#endif\n"}}}},
    {.trial = {.files = {{"import.c",
                          "#include <stdio.h>\n#import \"import.c\"\nint a = __COUNTER__;\n"}}}},
    {.trial = {.files = {{"src/own.c", "#include <stdio.h>\n#include \"own.h\"\n#include <math.h>\n"
                                       "double f(void) { return fabs(OWN + BELOW * .5); }\n"},
                         {"src/own.h", "#include \"below/own.h\"\n#define OWN 3\n"},
                         {"src/below/own.h", "#define BELOW 4\n"},
                         {"own.h", "#error nobody reads this\n"}}}},
    {.trial = {.files = {{"names.c", "#include <stdio.h>\n#include \"names.h\"\n"
                                     "#include \"below/names.h\"\nconst char *c = __FILE__;\n"},
                         {"names.h", "const char *a = __FILE__;\n"},
                         {"below/names.h", "#pragma once\n#include \"names.h\"\n"
                                           "const char *b = __FILE__;\n"}}}},
    {.trial = {.files = {{"src/a b\"c\\%d\xc3\xa4.cc",
                          "#include <string>\nstd::string s = __FILE__;\n"}}}},
    {.trial = {.files = {{"asks.c",
                          "#include <stdio.h>\n#if __has_include(\"millwright-prefix.c\") || "
                          "__has_include(\"none.h\") || !__has_include(\"asks.c\")\n"
                          "#error what is there?\n#endif\nint x;\n"}}}},
    {.trial = {.files = {{"millwright-prefix.c",
                          "#include <stdio.h>\nint f(void) { return puts(__FILE__); }"
                          "\n"}}}},
    {.trial = {.files = {{"line.c",
                          "#include <stdio.h>\n#line 70 \"other.c\"\n"
                          "int f(void) { return printf(\"%s%d\", __FILE__, __LINE__); }\n"}}}},
    {.trial = {.files = {{"embeds.c", "#include <stdio.h>\nint a[] = {\n#embed \"own.txt\"\n};\n"},
                         {"own.txt", "text"}},
               .args = {"-std=c23"}}},
    {.trial = {.files = {{"plain", "#include <string>\nstd::string s = __FILE__;\n"}},
               .args = {"-xc++"}}},
    {.trial = {.files = {{"really.c", "#include <string>\nstd::string s = __FILE__;\n"}},
               .args = {"-xc++"}}},
    {.trial = {.files = {{"folder.d/plain",
                          "#include <stdio.h>\nint f(void) { return puts(__FILE__); }\n"}},
               .args = {"-xc"}}},
    {.trial = {.files = {{"macros.c",
                          "#include <stdio.h>\n#if N != 3\n#error N\n#endif\nint f(void) {\n"
                          "#pragma omp parallel for\nfor (int i = 0; i < N; i++) puts(\"a\");\n"
                          "return 0; }\n"}},
               .args = {"-DN=3", "-DNDEBUG", "-fopenmp"}}},
};
const size_t head_start_text_count = COUNT(head_start_texts);

/* Where only the text differs, one worker's prefix does for all. */
#define TELL(name, text, said)                                                                     \
    {.trial = {.files = {{name, text}}, .args = {"-Wall", "-Wextra"}, .emit = MW_EMIT_NONE},       \
     .says = (said)}

const struct head_start_sample head_start_complaints[] = {
    TELL("ends.c", "#include <stdio.h>\nint f(void) {\n  return 1;\n", "expected '}'"),
    TELL("begins.c", "#include <stdio.h>\nint f(int a) { return 1; }\n#if 1\nint b;\n",
         "unterminated conditional"),
    TELL("joins.c", "#include <stdio.h>\n\\\nint a = b;\n", "undeclared identifier 'b'"),
    TELL("behind.c", "#include <stdio.h> /* a\n\n b */\nint a = b;\n", "undeclared identifier 'b'"),
    TELL("pops.c", "#include <stdio.h>\n#pragma GCC diagnostic pop\nint a;\n", "could not pop"),
    TELL("redefines.c", "#include <stdio.h>\nstruct _IO_FILE { int a; };\ntypedef int size_t;\n",
         "redefinition of '_IO_FILE'"),
    TELL("closes.c", "#include <stdio.h>\nint b;\n#endif\n", "#endif without #if"),
    TELL("comment.c", "#include <stdio.h>\nint b;\n/* and so on", "unterminated /* comment"),
    TELL("returns.c",
         "#include <stdio.h>\r\nstatic int unused(int x)\r\n{\r\n  int y;\r\n  return x = 1;\r\n}"
         "\r\nint f(char *a) { return printf(\"%d\", a); }",
         "format specifies type 'int'"),
    TELL("typo.c", "#include <stdio.h>\nint f(char *a) { return prinf(a, stdotu); }\n",
         "did you mean 'stdout'"),
    TELL("semicolon.c", "#include <stdio.h>\nint f(void) { int a = 1 return a; }\n",
         "expected ';'"),
    TELL("conflict.c", "#include <stdio.h>\n\nint printf(int a);\n", "conflicting types"),
    TELL("macro.c", "#include <stdio.h>\n#define EOF 3\nint a;\n", "'EOF' macro redefined"),
    TELL("expands.c", "#include <stdio.h>\nint a = NULL;\n", "expression of type 'void *'"),
    TELL("next.c", "#include <stdio.h>\n#include_next <errno.h>\nint a;\n",
         "in primary source file"),
    TELL("once.c", "#include <stdio.h>\n#pragma once\nint a;\n", "#pragma once in main file"),
    TELL("system.c", "#include <stdio.h>\n#pragma GCC system_header\nint a;\n", "ignored in main"),
    TELL("warning.c", "#include <stdio.h>\n#warning so\n#pragma message \"it\"\nint a;\n", "so"),
    TELL("absent.c", "#include <stdio.h>\nint a;\n#include <none.h>\n", "file not found"),
    TELL("hint.c", "#include <stdio.h>\ndouble f(double a) { return fabs(a); }\n", "<math.h>"),
    TELL("self.c",
         "#include <stdio.h>\n#ifndef AGAIN\n#define AGAIN\n\n#include \"self.c\"\n#else\n"
         "int a = \"a\";\n#endif\n",
         "incompatible pointer to integer"),
    TELL("packs.c", "#include <stdio.h>\n#pragma pack(push, 1)\nint a;\n", "unterminated '#pragma"),
    TELL("guess.c",
         "#include <stdio.h>\nint a[];\nstatic int f(void);\nint g(void) { return f(); }"
         "\n",
         "assumed to have one element"),
    {.trial = {.files = {{"src/own.c", "#include <stdio.h>\n\n\n#include \"own.h\"\nint b;\n"},
                         {"src/own.h", "int a = \"a\";\n"}},
               .args = {"-Wall", "-Wextra"},
               .emit = MW_EMIT_NONE},
     .says = "incompatible pointer to integer"},
    {.trial = {.files = {{"no-end.c", "#include <stdio.h>\n#import \"no-end.c\"\nint a;"}},
               .args = {"-Wunused-macros", "-Wundef", "-Wnewline-eof", "-pedantic"},
               .emit = MW_EMIT_NONE},
     .says = "no newline at end of file"},
    {.trial = {.files = {{"pragma.c",
                          "#include <stdio.h>\n#pragma GCC diagnostic push\n"
                          "#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
                          "int f(void) { int a; return 0; }\n#pragma GCC diagnostic pop\n"
                          "int g(void) { int b; return 0; }\n"}},
               .args = {"-Wall", "-Werror"}},
     .says = "unused variable 'b'"},
    {.trial = {.files = {{"limit.c",
                          "#include <stdio.h>\nint a = b;\nint c = d;\nint e = f;\nint g = h;\n"}},
               .args = {"-ferror-limit=2"}},
     .says = "too many errors"},
    {.trial = {.files = {{"macros.c", "#include <stdio.h>\n#define USED 1\n#define UNUSED 2\n"
                                      "int a = USED;\n#if NONE\n#endif"}},
               .args = {"-Wunused-macros", "-Wundef", "-Wnewline-eof", "-pedantic"},
               .emit = MW_EMIT_NONE},
     .says = "macro is not used"},
    {.trial = {.files = {{"dated.cc", "#include <memory>\nstd::auto_ptr<int> p;\n"}},
               .args = {"-Wall"}},
     .says = "explicitly marked deprecated here"},
    {.trial = {.files = {{"tokens.c",
                          "#include <stdio.h>\n#pragma clang max_tokens_here 3\nint a;\n"}},
               .args = {"-Wmax-tokens"}},
     .says = "exceeds this token limit"},
    /* errors in headers, which the notes lead to from the right line of the main file */
    {.trial = {.files = {{"inside.cc",
                          "\n\n\n\n\n\n\n\n/*#*/\n#include <map>\n\n\n#include <string>\n"
                          "#include <vector>\nstruct none {};\n"
                          "int f() { std::map<none, int> m; return m[none()]; }\n"}}},
     .says = "invalid operands to binary expression"},
    {.trial = {.files = {{"asserts.cc",
                          "#include <map>\n// one\n// two\n#include <string>\n#include <vector>"
                          "\nstd::vector<const int> v;\nstd::string s = 3;\n"}}},
     .says = "must have a non-const"},
    {.trial = {.files = {{"lambda.cc", "#include <map>\n#include <string>\n#include <vector>\n"
                                       "int a = [] { return 1; };\nstd::strin b;\n"}}},
     .says = "(lambda at lambda.cc:4:9)"},
    {.trial = {.files = {{"src/skipped.cc",
                          "#include <vector>\n#include <vector>\n\n#include <vector>\n"
                          "std::vector<void> v;\n"}}},
     .says = "void"},
};
const size_t head_start_complaint_count = COUNT(head_start_complaints);

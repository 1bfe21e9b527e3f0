/* flags_table.h - private to flags.c: every flag that is known, one row each.
 *
 * The longest match wins, and a listed value counts to the match: "-fprofile-arcs" is refused by
 * its own row although "-f[no-]" matches as well. docs/flags.md is made of this table: ./dev docs
 * after a change. */
#ifndef MW_FLAGS_TABLE_H
#define MW_FLAGS_TABLE_H

#include <millwright/flags.h>

/* How a flag is written. */
enum style {
    ALONE,    /* the name and nothing else */
    JOINED,   /* the value right behind the name */
    SEPARATE, /* the value is the next argument; "-NAME", "x" becomes "--NAME=x" */
    EITHER,   /* joined or separate */
    PREFIX    /* whatever begins so; for refusals and dropped families */
};

struct rule {
    enum mw_flag_use use;
    enum style style;
    const char *name;   /* "[no-]" in it may be there or not */
    const char *values; /* the allowed ones, with a space between; or what kind of value it takes,
                           in capitals: one of `kinds` in flags.c; or "" for none */
    const char *text;   /* what it is for, or why it is refused: ends with what to do */
};

#define ALLOW MW_FLAG_ALLOWED
#define DROP  MW_FLAG_DROPPED
#define DENY  MW_FLAG_REFUSED

#define LOADS    "loads or runs other code in the compiler; leave it out"
#define READS    "reads files that the request does not hold; put them into \"files\""
#define WRITES   "writes files beside the output; leave it out"
#define LIMITS   "moves a limit that guards the compiler; leave it out"
#define PRINTS   "only prints what the compiler would do; leave it out"
#define LINKS    "is for linking and nothing is linked here; leave it out"
#define PASSES   "hands flags past this list to a part of the compiler; leave it out"
#define OUTPUT   "says what to make; use the field \"emit\" instead"
#define PROCESS  "sets options of the whole process, for everybody's compiles; leave it out"
#define MODULES  "reads and writes module files; include headers instead"
#define PROFILES "reads or writes profiles; leave it out"

/* clang-format off */
static const struct rule rules[] = {
    /* Language */
    {ALLOW, JOINED, "-std=",
     "c89 c90 iso9899:1990 iso9899:199409 gnu89 gnu90 c99 c9x iso9899:1999 gnu99 gnu9x c11 c1x "
     "iso9899:2011 gnu11 gnu1x c17 c18 iso9899:2017 iso9899:2018 gnu17 gnu18 c23 c2x "
     "gnu23 gnu2x c2y gnu2y c++98 c++03 gnu++98 gnu++03 c++11 c++0x gnu++11 gnu++0x "
     "c++14 c++1y gnu++14 gnu++1y c++17 c++1z gnu++17 gnu++1z c++20 c++2a gnu++20 gnu++2a c++23 "
     "c++2b gnu++23 gnu++2b c++26 c++2c gnu++26 gnu++2c",
     "the language standard"},
    {ALLOW, ALONE, "-ansi", "", "C90, or C++98"},
    {ALLOW, EITHER, "-x", "c c++", "the language of the main file"},
    {ALLOW, ALONE, "-trigraphs", "", "trigraphs"},
    {ALLOW, ALONE, "-ffreestanding", "", "no hosted library is assumed"},
    {ALLOW, ALONE, "-fhosted", "", "a hosted library is assumed"},
    {ALLOW, ALONE, "-pthread", "", "POSIX threads"},
    {ALLOW, JOINED, "-stdlib=", "libstdc++ libc++", "the C++ library"},
    {ALLOW, JOINED, "-f[no-]",
     "access-control aligned-allocation aligned-new asm blocks builtin char8_t check-new common "
     "cxx-exceptions declspec dollars-in-identifiers exceptions gnu-keywords gnu89-inline "
     "lax-vector-conversions ms-compatibility ms-extensions operator-names openmp "
     "openmp-simd rtti short-enums short-wchar signed-char sized-deallocation "
     "strict-enums threadsafe-statics trigraphs unsigned-char",
     "language and dialect"},
    {ALLOW, JOINED, "-fno-builtin-", "WORD", "one function is no builtin"},
    {ALLOW, JOINED, "-flax-vector-conversions=", "none integer all",
     "implicit conversions between vectors"},
    {ALLOW, JOINED, "-fstrict-flex-arrays=", "0 1 2 3", "which trailing arrays are flexible"},
    {ALLOW, JOINED, "-fpack-struct=", "NUMBER", "largest alignment of members"},

    /* Preprocessor */
    {ALLOW, EITHER, "-D", "MACRO[=TEXT]", "define a macro"},
    {ALLOW, EITHER, "-U", "MACRO", "undefine a macro"},
    {ALLOW, ALONE, "-undef", "", "no predefined macros"},
    {ALLOW, EITHER, "-I", "PATH", "include directory among the request's files"},
    {ALLOW, EITHER, "-iquote", "PATH", "the same, for \"quoted\" includes"},
    {ALLOW, EITHER, "-isystem", "PATH", "the same, as system headers"},
    {ALLOW, EITHER, "-idirafter", "PATH", "the same, searched last"},
    {ALLOW, EITHER, "-include", "PATH", "include a file first"},
    {ALLOW, EITHER, "-imacros", "PATH", "take a file's macros first"},
    {ALLOW, ALONE, "-nostdinc", "", "no system headers"},
    {ALLOW, ALONE, "-nostdinc++", "", "no C++ library headers"},
    {ALLOW, ALONE, "-nostdlibinc", "", "only the compiler's own headers"},
    {ALLOW, ALONE, "-nobuiltininc", "", "none of the compiler's own headers"},
    {ALLOW, ALONE, "-P", "", "no line markers in preprocessed text"},
    {ALLOW, ALONE, "-C", "", "keep comments in preprocessed text"},
    {ALLOW, ALONE, "-CC", "", "keep comments of macros too"},

    /* Warnings */
    {ALLOW, ALONE, "-W", "", "the same as -Wextra"},
    {ALLOW, JOINED, "-W", "NAME", "warnings by name, -Wno-NAME and -Werror among them"},
    {ALLOW, ALONE, "-w", "", "no warnings"},
    {ALLOW, ALONE, "-pedantic", "", "warn as the standard demands"},
    {ALLOW, ALONE, "-pedantic-errors", "", "fail where the standard demands"},
    {ALLOW, JOINED, "-ferror-limit=", "NUMBER", "stop after so many errors"},

    /* Optimisation and floating point */
    {ALLOW, ALONE, "-O", "", "the same as -O1"},
    {ALLOW, JOINED, "-O", "0 1 2 3 s g z", "how hard to optimise"},
    {ALLOW, JOINED, "-f[no-]",
     "approx-func associative-math cx-limited-range fast-math finite-math-only honor-infinities "
     "honor-nans math-errno protect-parens reciprocal-math rounding-math signed-zeros "
     "trapping-math unsafe-math-optimizations",
     "floating point"},
    {ALLOW, JOINED, "-ffp-contract=", "fast on off fast-honor-pragmas", "fused operations"},
    {ALLOW, JOINED, "-ffp-model=", "precise strict fast", "floating point as a whole"},
    {ALLOW, JOINED, "-ffp-exception-behavior=", "ignore maytrap strict",
     "floating point exceptions"},
    {ALLOW, JOINED, "-fexcess-precision=", "standard fast 16", "excess precision"},
    {ALLOW, JOINED, "-f[no-]",
     "delete-null-pointer-checks inline inline-functions merge-all-constants "
     "optimize-sibling-calls slp-vectorize strict-aliasing strict-overflow strict-return "
     "strict-vtable-pointers tree-slp-vectorize tree-vectorize unroll-loops vectorize wrapv",
     "optimisation"},

    /* Code */
    {ALLOW, JOINED, "-f[no-]",
     "PIC PIE addrsig asynchronous-unwind-tables data-sections emulated-tls function-sections "
     "ident jump-tables keep-static-consts omit-frame-pointer pic pie plt semantic-interposition "
     "stack-clash-protection stack-protector unique-section-names unwind-tables "
     "visibility-inlines-hidden zero-initialized-in-bss",
     "code generation"},
    {ALLOW, JOINED, "-f",
     "inline-hint-functions instrument-functions signed-bitfields stack-protector-all "
     "stack-protector-strong trapv",
     "the same, where there is no opposite"},
    {ALLOW, JOINED, "-fvisibility=", "default hidden internal protected", "visibility of symbols"},
    {ALLOW, ALONE, "-fcf-protection", "", "control-flow protection"},
    {ALLOW, JOINED, "-fcf-protection=", "none branch return full", "control-flow protection"},
    {ALLOW, JOINED, "-ftls-model=", "global-dynamic local-dynamic initial-exec local-exec",
     "thread-local storage"},
    {ALLOW, JOINED, "-ftrivial-auto-var-init=", "uninitialized zero pattern",
     "what automatic variables start as"},
    {ALLOW, JOINED, "-fzero-call-used-regs=",
     "skip used-gpr-arg used-gpr used-arg used all-gpr-arg all-gpr all-arg all",
     "registers cleared on return"},
    {ALLOW, ALONE, "-falign-functions", "", "alignment of functions"},
    {ALLOW, ALONE, "-fno-align-functions", "", "alignment of functions"},
    {ALLOW, JOINED, "-falign-functions=", "NUMBER", "alignment of functions"},

    /* Debug information */
    {ALLOW, ALONE, "-g", "", "debug information"},
    {ALLOW, JOINED, "-g",
     "0 1 2 3 gdb gdb0 gdb1 gdb2 gdb3 dwarf dwarf-2 dwarf-3 dwarf-4 dwarf-5 line-tables-only "
     "mlt line-directives-only column-info no-column-info strict-dwarf no-strict-dwarf",
     "debug information"},
    {ALLOW, JOINED, "-ffile-prefix-map=", "OLD=NEW", "rename paths in the output"},
    {ALLOW, JOINED, "-fdebug-prefix-map=", "OLD=NEW", "rename paths in debug information"},
    {ALLOW, JOINED, "-fmacro-prefix-map=", "OLD=NEW", "rename paths in __FILE__"},

    /* Machine */
    {ALLOW, JOINED, "--target=", "WORD", "the machine to compile for"},
    {ALLOW, SEPARATE, "-target", "WORD", "the same"},
    {ALLOW, JOINED, "-march=", "CPU", "instruction set; never native"},
    {ALLOW, JOINED, "-mcpu=", "CPU", "processor; never native"},
    {ALLOW, JOINED, "-mtune=", "CPU", "processor to tune for; never native"},
    {ALLOW, JOINED, "-m",
     "16 32 64 x32 arm thumb big-endian little-endian general-regs-only hard-float soft-float "
     "long-double-64 long-double-80 long-double-128",
     "word size, byte order, registers"},
    {ALLOW, JOINED, "-m[no-]",
     "3dnow adx aes amx-bf16 amx-int8 amx-tile avx avx10.1-256 avx10.1-512 avx2 avx512bf16 "
     "avx512bitalg avx512bw avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi "
     "avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq avxifma avxneconvert "
     "avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cldemote clflushopt clwb clzero crc32 cx16 f16c "
     "fma fma4 fsgsbase gfni invpcid lzcnt mmx movbe movdir64b movdiri pclmul pku popcnt prfchw "
     "ptwrite rdpid rdrnd rdseed sahf serialize sha sha512 shstk sm3 sm4 sse sse2 sse3 sse4 "
     "sse4.1 sse4.2 sse4a ssse3 tbm vaes vpclmulqdq waitpkg xop xsave xsavec xsaveopt xsaves",
     "instruction set extensions of x86"},
    {ALLOW, JOINED, "-m[no-]",
     "implicit-float lvi-cfi lvi-hardening ms-bitfields omit-leaf-frame-pointer "
     "outline-atomics red-zone relax retpoline speculative-load-hardening stackrealign "
     "strict-align tls-direct-seg-refs unaligned-access",
     "code generation of a machine"},
    {ALLOW, JOINED, "-mabi=", "WORD", "calling convention"},
    {ALLOW, JOINED, "-masm=", "att intel", "syntax of x86 assembly, inline and as output"},
    {ALLOW, JOINED, "-mbranch-protection=", "WORD", "branch protection"},
    {ALLOW, JOINED, "-mcmodel=", "small kernel medium large medlow medany", "code model"},
    {ALLOW, JOINED, "-mfloat-abi=", "soft softfp hard", "floating point on ARM"},
    {ALLOW, JOINED, "-mfpmath=", "sse 387", "floating point on x86"},
    {ALLOW, JOINED, "-mfpu=", "WORD", "floating point on ARM"},
    {ALLOW, JOINED, "-mprefer-vector-width=", "none 128 256 512", "vector width"},
    {ALLOW, JOINED, "-mstack-alignment=", "NUMBER", "stack alignment"},
    {ALLOW, JOINED, "-mtls-dialect=", "gnu gnu2 trad desc", "thread-local storage"},

    /* Taken and ignored: how messages look is the caller's affair, they come as data */
    {DROP, ALONE, "-pipe", "", "no files are used between stages anyway"},
    {DROP, ALONE, "-fintegrated-as", "", "the only assembler there is"},
    {DROP, ALONE, "-fno-lto", "", "the only way there is"},
    {DROP, JOINED, "-f[no-]",
     "ansi-escape-codes caret-diagnostics color-diagnostics diagnostics-color "
     "diagnostics-fixit-info diagnostics-show-option show-column show-source-location",
     "how messages look; they come as data"},
    {DROP, JOINED, "-fdiagnostics-color=", "always auto never",
     "how messages look; they come as data"},
    {DROP, JOINED, "-fdiagnostics-format=", "clang msvc vi",
     "how messages look; they come as data"},
    {DROP, JOINED, "-fdiagnostics-show-category=", "none id name",
     "how messages look; they come as data"},
    {DROP, JOINED, "-fmessage-length=", "WORD", "how messages look; they come as data"},
    {DROP, JOINED, "-ftabstop=", "NUMBER", "how messages look; they come as data"},

    /* Refused: what to make, and from what */
    {DENY, ALONE, "-c", "", OUTPUT},
    {DENY, ALONE, "-S", "", OUTPUT},
    {DENY, ALONE, "-E", "", OUTPUT},
    {DENY, PREFIX, "-emit-", "*", OUTPUT},
    {DENY, PREFIX, "--emit-", "*", OUTPUT},
    {DENY, ALONE, "-fsyntax-only", "", OUTPUT},
    {DENY, PREFIX, "--analyze", "*", OUTPUT},
    {DENY, ALONE, "--assemble", "", OUTPUT},
    {DENY, ALONE, "--compile", "", OUTPUT},
    {DENY, ALONE, "--preprocess", "", OUTPUT},
    {DENY, PREFIX, "-flto", "*", "makes bitcode; ask for \"emit\": \"bitcode\" instead"},
    {DENY, PREFIX, "-fembed-bitcode", "*",
     "hides bitcode in the object; ask for \"emit\": \"bitcode\" instead"},
    {DENY, PREFIX, "-o", "*",
     "names an output and the service owns those; leave it out and choose by \"emit\""},
    {DENY, PREFIX, "--output", "*",
     "names an output and the service owns those; leave it out and choose by \"emit\""},
    {DENY, ALONE, "-", "", "reads standard input; put the source into \"files\""},
    {DENY, ALONE, "--", "", "is no flag; leave it out"},
    {DENY, PREFIX, "@", "*", "reads flags from a file; give them in \"args\""},
    {DENY, ALONE, "-Ofast", "", "is deprecated; give -O3 -ffast-math"},

    /* Refused: run or load */
    {DENY, PREFIX, "-fplugin", "*", LOADS},
    {DENY, PREFIX, "-fpass-plugin", "*", LOADS},
    {DENY, PREFIX, "-load", "*", LOADS},
    {DENY, PREFIX, "-X", "*", PASSES},
    {DENY, PREFIX, "--for-linker", "*", PASSES},
    {DENY, PREFIX, "-Wa,", "*", "hands flags past this list to the assembler; leave it out"},
    {DENY, PREFIX, "-Wp,", "*",
     "hands flags past this list to the preprocessor; give them directly"},
    {DENY, PREFIX, "-Wl,", "*", LINKS},
    {DENY, PREFIX, "-cc1", "*", "calls the compiler's inside; leave it out"},
    {DENY, PREFIX, "-mllvm", "*", PROCESS},
    {DENY, ALONE, "-moutline", "", PROCESS},
    {DENY, ALONE, "-mno-outline", "", PROCESS},
    {DENY, PREFIX, "-B", "*", LOADS},
    {DENY, PREFIX, "--prefix", "*", LOADS},
    {DENY, PREFIX, "--ld-path", "*", LOADS},
    {DENY, PREFIX, "-fuse-ld", "*", LOADS},
    {DENY, ALONE, "-fno-integrated-as", "", "runs another assembler; leave it out"},
    {DENY, ALONE, "-no-integrated-as", "", "runs another assembler; leave it out"},
    {DENY, PREFIX, "--gcc-toolchain", "*", LOADS},
    {DENY, PREFIX, "-gcc-toolchain", "*", LOADS},
    {DENY, PREFIX, "--gcc-install-dir", "*", LOADS},
    {DENY, PREFIX, "--gcc-triple", "*", LOADS},
    {DENY, PREFIX, "-ccc-", "*", LOADS},
    {DENY, PREFIX, "-specs", "*", LOADS},
    {DENY, PREFIX, "--specs", "*", LOADS},
    {DENY, PREFIX, "-wrapper", "*", LOADS},
    {DENY, PREFIX, "--driver-mode", "*", "changes how flags are read; use the field \"language\""},

    /* Refused: read */
    {DENY, PREFIX, "--config", "*", "reads flags from a file; give them in \"args\""},
    {DENY, PREFIX, "-include-pch", "*", READS},
    {DENY, PREFIX, "--include", "*", READS},
    {DENY, PREFIX, "--imacros", "*", READS},
    {DENY, PREFIX, "-F", "*", READS},
    {DENY, PREFIX, "-iframework", "*", READS},
    {DENY, PREFIX, "-iprefix", "*", READS},
    {DENY, PREFIX, "-iwithprefix", "*", READS},
    {DENY, PREFIX, "-iwithsysroot", "*", READS},
    {DENY, PREFIX, "-isystem-after", "*", READS},
    {DENY, PREFIX, "-cxx-isystem", "*", READS},
    {DENY, PREFIX, "-stdlib++-isystem", "*", READS},
    {DENY, PREFIX, "--embed-dir", "*", READS},
    {DENY, PREFIX, "--sysroot", "*", READS},
    {DENY, PREFIX, "-isysroot", "*", READS},
    {DENY, PREFIX, "-resource-dir", "*", READS},
    {DENY, PREFIX, "-ivfsoverlay", "*", READS},
    {DENY, PREFIX, "-vfsoverlay", "*", READS},
    {DENY, PREFIX, "--vfsoverlay", "*", READS},
    {DENY, PREFIX, "-fmodule", "*", MODULES},
    {DENY, PREFIX, "-fprebuilt", "*", MODULES},
    {DENY, PREFIX, "-fprofile-", "*", PROFILES},
    {DENY, PREFIX, "-fauto-profile", "*", PROFILES},
    {DENY, PREFIX, "-fcoverage-", "*", PROFILES},
    {DENY, PREFIX, "-fsanitize", "*",
     "reads lists beside the compiler and needs its run-times; leave it out"},
    {DENY, PREFIX, "-fxray-", "*", READS},
    {DENY, PREFIX, "-fthinlto-index", "*", READS},

    /* Refused: write */
    {DENY, PREFIX, "-M", "*", WRITES},
    {DENY, PREFIX, "--dependencies", "*", WRITES},
    {DENY, PREFIX, "--user-dependencies", "*", WRITES},
    {DENY, PREFIX, "--write-", "*", WRITES},
    {DENY, PREFIX, "--print-missing-file-dependencies", "*", WRITES},
    {DENY, PREFIX, "-save-temps", "*", WRITES},
    {DENY, PREFIX, "--save-temps", "*", WRITES},
    {DENY, PREFIX, "-ftime-trace", "*", WRITES},
    {DENY, PREFIX, "-ftime-report", "*", PRINTS},
    {DENY, PREFIX, "-fproc-stat-report", "*", WRITES},
    {DENY, PREFIX, "--serialize-diagnostics", "*", WRITES},
    {DENY, PREFIX, "-serialize-diagnostics", "*", WRITES},
    {DENY, PREFIX, "-fsave-optimization-record", "*", WRITES},
    {DENY, PREFIX, "-foptimization-record", "*", WRITES},
    {DENY, PREFIX, "-ftest-coverage", "*", WRITES},
    {DENY, PREFIX, "--coverage", "*", WRITES},
    {DENY, PREFIX, "-coverage", "*", WRITES},
    {DENY, PREFIX, "-gsplit-dwarf", "*", WRITES},
    {DENY, PREFIX, "-gen-cdb-fragment-path", "*", WRITES},
    {DENY, PREFIX, "-gen-reproducer", "*", WRITES},
    {DENY, PREFIX, "-fcrash-diagnostics", "*", WRITES},
    {DENY, ALONE, "-fno-crash-diagnostics", "", WRITES},
    {DENY, PREFIX, "-index-store-path", "*", WRITES},
    {DENY, PREFIX, "-fstack-usage", "*", WRITES},
    {DENY, PREFIX, "-fdump-", "*", WRITES},

    /* Refused: limits, and what tells about the machine */
    {DENY, PREFIX, "-ftemplate-depth", "*", LIMITS},
    {DENY, PREFIX, "-fconstexpr-", "*", LIMITS},
    {DENY, PREFIX, "-fbracket-depth", "*", LIMITS},
    {DENY, PREFIX, "-foperator-arrow-depth", "*", LIMITS},
    {DENY, ALONE, "-v", "", PRINTS},
    {DENY, ALONE, "--verbose", "", PRINTS},
    {DENY, ALONE, "-###", "", PRINTS},
    {DENY, ALONE, "-H", "", PRINTS},
    {DENY, ALONE, "--trace-includes", "", PRINTS},
    {DENY, PREFIX, "-print-", "*", PRINTS},
    {DENY, ALONE, "-mcpu=help", "", PRINTS},
    {DENY, ALONE, "-mtune=help", "", PRINTS},
    {DENY, PREFIX, "--print-", "*", PRINTS},
    {DENY, PREFIX, "-dump", "*", PRINTS},
    {DENY, PREFIX, "--version", "*", PRINTS},
    {DENY, PREFIX, "--help", "*", PRINTS},

    /* Refused: for the linker */
    {DENY, PREFIX, "-l", "*", LINKS},
    {DENY, PREFIX, "-L", "*", LINKS},
    {DENY, PREFIX, "--library-directory", "*", LINKS},
    {DENY, PREFIX, "-shared", "*", LINKS},
    {DENY, PREFIX, "--shared", "*", LINKS},
    {DENY, PREFIX, "-static", "*", LINKS},
    {DENY, PREFIX, "--static", "*", LINKS},
    {DENY, ALONE, "-rdynamic", "", LINKS},
    {DENY, ALONE, "-pie", "", LINKS},
    {DENY, ALONE, "-s", "", LINKS},
    {DENY, PREFIX, "-nostdlib", "*", LINKS},
    {DENY, ALONE, "--no-standard-libraries", "", LINKS},
    {DENY, ALONE, "-nodefaultlibs", "", LINKS},
    {DENY, ALONE, "-nostartfiles", "", LINKS},
};
/* clang-format on */

#define RULES (sizeof rules / sizeof rules[0])

#endif

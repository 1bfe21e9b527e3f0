/* clang_bridge.cc - see clang_bridge.h.
 *
 * One run: a view of the file system made of the request's files above the readable directories;
 * the driver, asked for what `clang -c` would hand to its compiler; one frontend action whose
 * output stays in memory and whose diagnostics go out as data.
 *
 * 1. The bytes equal those of `clang` with the same arguments, directory and relative name, so
 *    nothing that code generation can see is changed: the driver gets the flags a person would
 *    give, and the main file is looked up by name as any other.
 * 2. The frontend opens no file but through that view. Inline assembly does (.incbin, .include):
 *    it is found in the IR, which holds just what the assembler will see.
 * 3. Nothing here outlives a run but what mw_bridge_init registers. */
#include "clang_bridge.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <clang/Basic/DiagnosticFrontend.h>
#include <clang/Basic/Stack.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/DiagnosticRenderer.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Frontend/MultiplexConsumer.h>
#include <clang/Frontend/Utils.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <clang/Sema/Sema.h>
#include <clang/Sema/SemaConsumer.h>
#include <clang/Sema/TemplateInstCallback.h>
#include <clang/Serialization/ASTWriter.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/Path.h>
#include <llvm/Support/PrettyStackTrace.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/TargetParser/Host.h>

namespace
{

/* Where a run finds its preamble: no source can spell that name. */
const char preamble_path[] = "/millwright\npreamble";

namespace vfs = llvm::vfs;
using clang::CharSourceRange;
using clang::DiagnosticsEngine;
using clang::SourceLocation;
using llvm::StringRef;

/* The disk, as far as a request may read it: regular files and directories below the readable
 * directories. It keeps a working directory of its own, which need not exist. */
class ReadableFiles : public vfs::ProxyFileSystem
{
  public:
    explicit ReadableFiles(const mw_bridge_job &job)
        : ProxyFileSystem(vfs::getRealFileSystem()), directory(job.directory),
          everything(!job.readable_dirs)
    {
        for (size_t i = 0; i < job.readable_count; i++) {
            llvm::SmallString<256> dir(job.readable_dirs[i]);
            llvm::sys::path::remove_dots(dir, true);
            dirs.push_back(dir.str().rtrim('/').str());
        }
    }

    llvm::ErrorOr<vfs::Status> status(const llvm::Twine &path) override
    {
        llvm::SmallString<256> place;
        /* The driver looks for /usr/lib before it looks for /usr/lib/gcc. */
        if (!locate(path, place, /*parents=*/true))
            return std::make_error_code(std::errc::no_such_file_or_directory);
        auto found = getUnderlyingFS().status(place);
        return found ? vfs::Status::copyWithNewName(*found, path) : found;
    }

    bool exists(const llvm::Twine &path) override
    {
        return bool(status(path));
    }

    llvm::ErrorOr<std::unique_ptr<vfs::File>> openFileForRead(const llvm::Twine &path) override
    {
        auto found = status(path);
        if (!found)
            return found.getError();
        if (!found->isRegularFile()) /* a FIFO blocks, /dev/zero never ends */
            return std::make_error_code(found->isDirectory() ? std::errc::is_a_directory
                                                             : std::errc::not_supported);
        llvm::SmallString<256> place;
        locate(path, place);
        return vfs::File::getWithPath(getUnderlyingFS().openFileForRead(place), path);
    }

    vfs::directory_iterator dir_begin(const llvm::Twine &path, std::error_code &error) override
    {
        llvm::SmallString<256> place;
        if (locate(path, place))
            return getUnderlyingFS().dir_begin(place, error);
        error = std::make_error_code(std::errc::no_such_file_or_directory);
        return {};
    }

    std::error_code getRealPath(const llvm::Twine &path, llvm::SmallVectorImpl<char> &real) override
    {
        llvm::SmallString<256> place;
        if (!locate(path, place))
            return std::make_error_code(std::errc::no_such_file_or_directory);
        return getUnderlyingFS().getRealPath(place, real);
    }

    llvm::ErrorOr<std::string> getCurrentWorkingDirectory() const override
    {
        return directory;
    }

    std::error_code setCurrentWorkingDirectory(const llvm::Twine &path) override
    {
        directory = path.str();
        return {};
    }

  private:
    static bool below(StringRef path, StringRef dir)
    {
        return path.starts_with(dir) && (path.size() == dir.size() || path[dir.size()] == '/');
    }

    /* Give the absolute path that is opened for `path`; false when it may not be read. What is
     * checked is what is opened: without "..", that a symbolic link could turn elsewhere. */
    bool locate(const llvm::Twine &path, llvm::SmallVectorImpl<char> &place,
                bool parents = false) const
    {
        path.toVector(place);
        llvm::sys::fs::make_absolute(directory, place);
        if (everything)
            return true;
        llvm::sys::path::remove_dots(place, true);
        StringRef text(place.data(), place.size());
        return llvm::any_of(dirs, [&](const std::string &dir) {
            return below(text, dir) || (parents && below(dir, text));
        });
    }

    std::string directory;
    std::vector<std::string> dirs;
    bool everything;
};

/* Ends a run that nobody wants any more. clang has no call for that: a fatal error, of which nobody
 * hears, makes it skip template instantiations, no further file is entered, no further declaration
 * taken, no optional pass run. */
class Cancel : public llvm::OptPassGate
{
  public:
    explicit Cancel(const mw_bridge_job &job) : job(job)
    {
    }

    /* Ask, once it is no more than a flag to look at. */
    bool asked()
    {
        if (!seen && job.cancelled && job.cancelled(job.cancelled_user))
            seen = true;
        return seen;
    }

    /* The same where clang parses. */
    bool poll(DiagnosticsEngine &engine, clang::PreprocessorOptions &options)
    {
        if (!asked() || engine.hasFatalErrorOccurred() || engine.isDiagnosticInFlight())
            return seen;
        engine.Report(clang::diag::fatal_too_many_errors);
        options.SingleFileParseMode = true;
        return true;
    }

    bool isEnabled() const override
    {
        return true;
    }

    bool shouldRunPass(StringRef, StringRef) override
    {
        return !asked();
    }

    const mw_bridge_job &job;
    bool seen = false;
};

/* The text of a preamble has one line for each #include that its stretch of the main file has. Give
 * the place in the main file that `at`, in such a line, stands for; or `at` when it is elsewhere.
 */
SourceLocation in_main_file(clang::FullSourceLoc at, const clang::LangOptions &language)
{
    const clang::SourceManager &sources = at.getManager();
    auto [file, offset] = at.getDecomposedLoc();
    if (file != sources.getPreambleFileID())
        return at;
    clang::FileID main = sources.getMainFileID();
    clang::Lexer lexer(main, sources.getBufferOrFake(main), sources, language);
    clang::Token token;
    unsigned line = sources.getLineNumber(file, offset);
    do {
        lexer.LexFromRawLexer(token);
        if (token.is(clang::tok::hash) && token.isAtStartOfLine())
            line--;
    } while (line > 0 && token.isNot(clang::tok::eof));
    lexer.LexFromRawLexer(token); /* include */
    lexer.LexFromRawLexer(token); /* < */
    return token.getLocation();
}

/* The diagnostics of a run, as data. clang's own renderer finds macro expansions and includes. */
class DiagnosticSink : public clang::DiagnosticConsumer
{
  public:
    DiagnosticSink(const mw_bridge_job &job, const Cancel &cancel) : job(job), cancel(cancel)
    {
    }

    void use(const clang::LangOptions &language, clang::DiagnosticOptions &options)
    {
        renderer = std::make_unique<Renderer>(*this, language, options);
    }

    void HandleDiagnostic(DiagnosticsEngine::Level level, const clang::Diagnostic &info) override
    {
        DiagnosticConsumer::HandleDiagnostic(level, info);
        if (cancel.seen)
            return;
        llvm::SmallString<256> message;
        info.FormatDiagnostic(message);
        if (!renderer || !info.getLocation().isValid()) {
            deliver(level, message, nullptr, {}, &info);
            return;
        }
        clang::FullSourceLoc at(info.getLocation(), info.getSourceManager());
        renderer->emitDiagnostic(at, level, message, info.getRanges(), info.getFixItHints(), &info);
        renderer->flush_includes();
    }

    /* The first error that on_diagnostic returned. */
    int error = 0;

  private:
    class Renderer : public clang::DiagnosticRenderer
    {
      public:
        Renderer(DiagnosticSink &sink, const clang::LangOptions &language,
                 clang::DiagnosticOptions &options)
            : DiagnosticRenderer(language, &options), sink(sink)
        {
        }

        void emitDiagnosticMessage(clang::FullSourceLoc at, clang::PresumedLoc,
                                   DiagnosticsEngine::Level level, StringRef message,
                                   llvm::ArrayRef<CharSourceRange> ranges,
                                   clang::DiagOrStoredDiag info) override
        {
            const auto *diagnostic = llvm::dyn_cast_if_present<const clang::Diagnostic *>(info);
            Text text{at.getManager(), LangOpts, at};
            sink.deliver(level, message, &text, ranges, diagnostic);
        }

        void emitIncludeLocation(clang::FullSourceLoc at, clang::PresumedLoc) override
        {
            if (at.getDecomposedLoc() == std::pair(at.getManager().getMainFileID(), 0u))
                return; /* where a preamble comes in; no file name stands there */
            includes.emplace_back(in_main_file(at, LangOpts), at.getManager());
        }

        /* Includes come before what they lead to; a note comes after what it is a note to. */
        void flush_includes()
        {
            for (const clang::FullSourceLoc &at : includes) {
                Text text{at.getManager(), LangOpts, at};
                sink.deliver(DiagnosticsEngine::Note, MW_DIAGNOSTIC_INCLUDED_HERE, &text, {},
                             nullptr);
            }
            includes.clear();
        }

        void emitDiagnosticLoc(clang::FullSourceLoc, clang::PresumedLoc, DiagnosticsEngine::Level,
                               llvm::ArrayRef<CharSourceRange>) override
        {
        }
        void emitCodeContext(clang::FullSourceLoc, DiagnosticsEngine::Level,
                             llvm::SmallVectorImpl<CharSourceRange> &,
                             llvm::ArrayRef<clang::FixItHint>) override
        {
        }
        void emitImportLocation(clang::FullSourceLoc, clang::PresumedLoc, StringRef) override
        {
        }
        void emitBuildingModuleLocation(clang::FullSourceLoc, clang::PresumedLoc,
                                        StringRef) override
        {
        }

      private:
        DiagnosticSink &sink;
        std::vector<clang::FullSourceLoc> includes;
    };

    /* Where something stands in the text of a unit. */
    struct Text {
        const clang::SourceManager &sources;
        const clang::LangOptions &language;
        SourceLocation at;

        mw_place place(SourceLocation where) const;
        bool span(CharSourceRange range, mw_place &begin, mw_place &end, bool expand = false) const;
        void cover(llvm::ArrayRef<CharSourceRange> ranges, mw_diagnostic &out) const;
        std::vector<mw_fixit> fixits(const clang::Diagnostic &info, const char *file) const;
        std::string line() const;
    };

    void deliver(DiagnosticsEngine::Level level, StringRef message, const Text *text,
                 llvm::ArrayRef<CharSourceRange> ranges, const clang::Diagnostic *info);

    const mw_bridge_job &job;
    const Cancel &cancel;
    std::unique_ptr<Renderer> renderer;
};

mw_place DiagnosticSink::Text::place(SourceLocation where) const
{
    clang::PresumedLoc presumed = sources.getPresumedLoc(where);
    bool known = presumed.isValid();
    return {known ? presumed.getLine() : 0, known ? presumed.getColumn() : 0,
            sources.getFileOffset(where)};
}

/* The bytes of `range`, when it stands in the same file. Of a range that a macro makes there are
 * none, but with `expand` those of the macro's use. */
bool DiagnosticSink::Text::span(CharSourceRange range, mw_place &begin, mw_place &end,
                                bool expand) const
{
    using clang::Lexer;
    CharSourceRange bytes = Lexer::makeFileCharRange(range, sources, language);
    if (bytes.isInvalid() && range.isValid() && expand)
        bytes = Lexer::getAsCharRange(sources.getExpansionRange(range), sources, language);
    if (bytes.isInvalid() || !sources.isWrittenInSameFile(bytes.getBegin(), at) ||
        !sources.isWrittenInSameFile(bytes.getEnd(), at))
        return false;
    begin = place(bytes.getBegin());
    end = place(bytes.getEnd());
    return begin.byte_offset <= end.byte_offset;
}

/* Make begin..end of `out` the smallest stretch that covers every range. */
void DiagnosticSink::Text::cover(llvm::ArrayRef<CharSourceRange> ranges, mw_diagnostic &out) const
{
    bool first = true;
    mw_place begin, end;
    for (CharSourceRange range : ranges) {
        if (!span(range, begin, end, /*expand=*/true))
            continue;
        if (first || begin.byte_offset < out.begin.byte_offset)
            out.begin = begin;
        if (first || end.byte_offset > out.end.byte_offset)
            out.end = end;
        first = false;
    }
}

/* All fix-its or none: a part of a fix may not be applied. */
std::vector<mw_fixit> DiagnosticSink::Text::fixits(const clang::Diagnostic &info,
                                                   const char *file) const
{
    std::vector<mw_fixit> all;
    mw_place begin, end;
    for (const clang::FixItHint &hint : info.getFixItHints()) {
        if (!span(hint.RemoveRange, begin, end))
            return {};
        all.push_back({file, begin, end, hint.CodeToInsert.c_str()});
    }
    return all;
}

std::string DiagnosticSink::Text::line() const
{
    auto [file, offset] = sources.getDecomposedLoc(at);
    StringRef text = sources.getBufferDataOrNone(file).value_or("");
    if (offset > text.size())
        return {};
    size_t begin = text.rfind('\n', offset) + 1; /* npos + 1 is 0 */
    /* One byte over the list's bound, so that the list sees that it must cut. */
    return text.substr(begin, MW_DIAGNOSTIC_TEXT_BYTES_MAX + 1)
        .take_until([](char c) { return c == '\n' || c == '\r' || c == '\0'; })
        .str();
}

void DiagnosticSink::deliver(DiagnosticsEngine::Level level, StringRef message, const Text *text,
                             llvm::ArrayRef<CharSourceRange> ranges, const clang::Diagnostic *info)
{
    std::string message_text = message.str(), file, line, flag, category;
    std::vector<mw_fixit> fixits;
    mw_diagnostic out = {};
    if (info && level != DiagnosticsEngine::Note) {
        using clang::DiagnosticIDs;
        StringRef name = DiagnosticIDs::getWarningOptionForDiag(info->getID());
        unsigned number = DiagnosticIDs::getCategoryNumberForDiag(info->getID());
        if (!name.empty())
            flag = (llvm::Twine(level == DiagnosticsEngine::Remark ? "-R" : "-W") + name).str();
        category = DiagnosticIDs::getCategoryNameFromID(number).str();
    }
    if (text) {
        clang::PresumedLoc presumed = text->sources.getPresumedLoc(text->at);
        file = presumed.isValid() ? presumed.getFilename() : "";
        line = text->line();
        out.at = out.begin = out.end = text->place(text->at);
        text->cover(ranges, out);
        if (info)
            fixits = text->fixits(*info, file.c_str());
    }
    out.severity = static_cast<mw_severity>(level - DiagnosticsEngine::Note);
    out.file = file.c_str();
    out.message = message_text.c_str();
    out.flag = flag.c_str();
    out.category = category.c_str();
    out.line_text = line.c_str();
    out.fixits = fixits.data();
    out.fixit_count = fixits.size();
    int rc = job.on_diagnostic ? job.on_diagnostic(job.user, &out) : 0;
    if (rc && !error)
        error = rc;
}

/* What the code generator writes, up to the job's bound; what is over is counted, not kept. */
class BoundedStream : public llvm::raw_pwrite_stream
{
  public:
    struct Kept {
        uint64_t bytes_max;
        char *data = nullptr;
        size_t bytes = 0, capacity = 0;
        int error = 0;
    };

    explicit BoundedStream(Kept &kept) : raw_pwrite_stream(/*Unbuffered=*/true), kept(kept)
    {
        reserve(0);
    }

  private:
    bool reserve(size_t more)
    {
        if (kept.error)
            return false;
        if (more > kept.bytes_max - kept.bytes) {
            kept.error = -E2BIG;
            return false;
        }
        if (kept.data && kept.bytes + more <= kept.capacity)
            return true;
        size_t capacity =
            std::max<uint64_t>(4096, std::min<uint64_t>(2 * kept.capacity, kept.bytes_max));
        capacity = std::max(capacity, kept.bytes + more);
        auto *data = static_cast<char *>(realloc(kept.data, capacity));
        if (!data) {
            kept.error = -ENOMEM;
            return false;
        }
        kept.data = data;
        kept.capacity = capacity;
        return true;
    }

    void write_impl(const char *text, size_t bytes) override
    {
        position += bytes;
        if (!reserve(bytes))
            return;
        memcpy(kept.data + kept.bytes, text, bytes);
        kept.bytes += bytes;
    }

    void pwrite_impl(const char *text, size_t bytes, uint64_t offset) override
    {
        if (!kept.error && offset + bytes <= kept.bytes)
            memcpy(kept.data + offset, text, bytes);
    }

    uint64_t current_pos() const override
    {
        return position;
    }

    Kept &kept;
    uint64_t position = 0;
};

/* Notes what makes the bytes depend on more than the files; and asks whether to go on. */
class Watch : public clang::PPCallbacks
{
  public:
    Watch(mw_bridge_result &result, Cancel &cancel, clang::CompilerInstance &compiler)
        : result(result), cancel(cancel), compiler(compiler)
    {
    }

    void FileChanged(SourceLocation, FileChangeReason, clang::SrcMgr::CharacteristicKind,
                     clang::FileID) override
    {
        cancel.poll(compiler.getDiagnostics(), compiler.getPreprocessorOpts());
    }

    void MacroExpands(const clang::Token &name, const clang::MacroDefinition &macro,
                      clang::SourceRange, const clang::MacroArgs *) override
    {
        const clang::MacroInfo *info = macro.getMacroInfo();
        cancel.poll(compiler.getDiagnostics(), compiler.getPreprocessorOpts());
        if (!info || !info->isBuiltinMacro())
            return;
        StringRef text = name.getIdentifierInfo()->getName();
        if (text == "__DATE__" || text == "__TIME__" || text == "__TIMESTAMP__")
            result.reads_clock = 1;
    }

  private:
    mw_bridge_result &result;
    Cancel &cancel;
    clang::CompilerInstance &compiler;
};

/* Asks whether to go on at each declaration and each template. Comes before who takes them. */
class CancelConsumer : public clang::SemaConsumer
{
  public:
    CancelConsumer(Cancel &cancel, clang::CompilerInstance &compiler)
        : cancel(cancel), compiler(compiler)
    {
    }

    void InitializeSema(clang::Sema &sema) override
    {
        sema.TemplateInstCallbacks.push_back(std::make_unique<Templates>(*this));
    }

    bool HandleTopLevelDecl(clang::DeclGroupRef) override
    {
        return !poll();
    }

  private:
    struct Templates : clang::TemplateInstantiationCallback {
        explicit Templates(CancelConsumer &owner) : owner(owner)
        {
        }
        void initialize(const clang::Sema &) override
        {
        }
        void finalize(const clang::Sema &) override
        {
        }
        void atTemplateBegin(const clang::Sema &,
                             const clang::Sema::CodeSynthesisContext &) override
        {
            owner.poll();
        }
        void atTemplateEnd(const clang::Sema &, const clang::Sema::CodeSynthesisContext &) override
        {
        }
        CancelConsumer &owner;
    };

    bool poll()
    {
        return cancel.poll(compiler.getDiagnostics(), compiler.getPreprocessorOpts());
    }

    Cancel &cancel;
    clang::CompilerInstance &compiler;
};

template <class Action> class Watched : public Action
{
  public:
    template <class... Args>
    Watched(mw_bridge_result &result, Cancel &cancel, Args &&...args)
        : Action(std::forward<Args>(args)...), result(result), cancel(cancel)
    {
    }

    bool BeginSourceFileAction(clang::CompilerInstance &compiler) override
    {
        clang::Preprocessor &preprocessor = compiler.getPreprocessor();
        preprocessor.addPPCallbacks(std::make_unique<Watch>(result, cancel, compiler));
        /* In place of the handler that prints to the host's standard error. */
        preprocessor.AddPragmaHandler("clang", new clang::EmptyPragmaHandler("__debug"));
        /* An MS block is assembled while it is parsed, so it may be gone from the IR. */
        if (compiler.getLangOpts().AsmBlocks)
            preprocessor.setTokenWatcher([this](const clang::Token &token) {
                if (token.is(clang::tok::kw_asm))
                    result.has_inline_asm = 1;
            });
        return Action::BeginSourceFileAction(compiler);
    }

    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance &compiler,
                                                          StringRef file) override
    {
        auto taker = Action::CreateASTConsumer(compiler, file);
        if (!taker || !cancel.job.cancelled)
            return taker;
        std::vector<std::unique_ptr<clang::ASTConsumer>> both;
        both.push_back(std::make_unique<CancelConsumer>(cancel, compiler));
        both.push_back(std::move(taker));
        return std::make_unique<clang::MultiplexConsumer>(std::move(both));
    }

  private:
    mw_bridge_result &result;
    Cancel &cancel;
};

/* As clang's own action for -E, which can write to a file only. */
class PreprocessAction : public clang::PreprocessorFrontendAction
{
  public:
    explicit PreprocessAction(llvm::raw_ostream &out) : out(out)
    {
    }

  private:
    void ExecuteAction() override
    {
        clang::CompilerInstance &compiler = getCompilerInstance();
        clang::DoPrintPreprocessedInput(compiler.getPreprocessor(), &out,
                                        compiler.getPreprocessorOutputOpts());
    }

    llvm::raw_ostream &out;
};

/* As clang's own action for -emit-ast and for headers, which can write to a file only. */
class SerializeAction : public clang::ASTFrontendAction
{
  public:
    explicit SerializeAction(std::shared_ptr<clang::PCHBuffer> buffer) : buffer(std::move(buffer))
    {
    }

    bool BeginSourceFileAction(clang::CompilerInstance &compiler) override
    {
        compiler.getLangOpts().CompilingPCH = true;
        return true;
    }

    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance &compiler,
                                                          StringRef) override
    {
        return std::make_unique<clang::PCHGenerator>(
            compiler.getPreprocessor(), compiler.getModuleCache(), /*OutputFile=*/"",
            /*isysroot=*/"", buffer, compiler.getFrontendOpts().ModuleFileExtensions,
            /*AllowASTWithErrors=*/false, /*IncludeTimestamps=*/false);
    }

    clang::TranslationUnitKind getTranslationUnitKind() override
    {
        return clang::TU_Prefix;
    }

    bool hasASTFileSupport() const override
    {
        return false;
    }

  private:
    std::shared_ptr<clang::PCHBuffer> buffer;
};

struct Run {
    const mw_bridge_job &job;
    mw_bridge_result &result;
    BoundedStream::Kept kept;
    Cancel cancel;
    DiagnosticSink sink;
    llvm::LLVMContext context;

    Run(const mw_bridge_job &job, mw_bridge_result &result)
        : job(job), result(result), kept{job.artifact_bytes_max}, cancel(job), sink(job, cancel)
    {
        if (job.cancelled)
            context.setOptPassGate(cancel);
    }

    ~Run()
    {
        free(kept.data);
    }

    int run();

  private:
    llvm::IntrusiveRefCntPtr<vfs::FileSystem> files();
    std::shared_ptr<clang::CompilerInvocation>
    invocation(llvm::IntrusiveRefCntPtr<vfs::FileSystem> files);
    void use_preamble(clang::CompilerInvocation &made);
    bool serialize(clang::CompilerInstance &compiler);
    bool needs_process_options(const clang::CompilerInvocation &made, DiagnosticsEngine &engine);
    bool generate(clang::CompilerInstance &compiler);
    bool execute(clang::CompilerInstance &compiler);
};

/* Null when memory runs out. */
llvm::IntrusiveRefCntPtr<vfs::FileSystem> Run::files()
{
    auto memory = llvm::makeIntrusiveRefCnt<vfs::InMemoryFileSystem>();
    memory->setCurrentWorkingDirectory(job.directory);
    for (size_t i = 0; i < job.file_count; i++) {
        const mw_source_file &file = job.files[i];
        /* A copy, because the lexer wants a NUL at the end. */
        auto text =
            llvm::MemoryBuffer::getMemBufferCopy(StringRef(file.data, file.bytes), file.name);
        if (!text)
            return nullptr;
        memory->addFile(file.name, 0, std::move(text));
    }
    if (job.preamble && job.preamble->bytes)
        memory->addFile(
            preamble_path, 0,
            llvm::MemoryBuffer::getMemBuffer(
                StringRef(static_cast<const char *>(job.preamble->bytes), job.preamble->count),
                preamble_path, /*RequiresNullTerminator=*/false));
    auto all = llvm::makeIntrusiveRefCnt<vfs::OverlayFileSystem>(
        llvm::makeIntrusiveRefCnt<ReadableFiles>(job));
    all->pushOverlay(memory);
    return all;
}

/* For some targets the driver sets options of LLVM's that are the whole process's (-mllvm): other
 * compiles would obey them too, and without them the code is not what clang makes. */
bool Run::needs_process_options(const clang::CompilerInvocation &made, DiagnosticsEngine &engine)
{
    const std::vector<std::string> &options = made.getFrontendOpts().LLVMArgs;
    if (options.empty() || job.emit == MW_EMIT_NONE || job.emit == MW_EMIT_PREPROCESSED)
        return false;
    engine.Report(engine.getCustomDiagID(
        DiagnosticsEngine::Error,
        "code for target '%0' needs an option of the whole compiler process ('-mllvm %1'), which "
        "would change other compiles; choose another target, or ask for no code"))
        << made.getTargetOpts().Triple << options.front();
    return true;
}

/* Ask the driver. Null when it found an error, which it has reported. */
std::shared_ptr<clang::CompilerInvocation>
Run::invocation(llvm::IntrusiveRefCntPtr<vfs::FileSystem> files)
{
    std::vector<const char *> args{job.clang_path, "--no-default-config"};
    args.insert(args.end(), job.args, job.args + job.arg_count);
    if (job.emit == MW_EMIT_PREPROCESSED)
        args.push_back("-E");
    /* createInvocation adds -fsyntax-only before the "--": not for the user to hear about. */
    args.insert(args.end(), {"--start-no-unused-arguments", "--", job.main});

    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(
        clang::CreateAndPopulateDiagOpts(args).release());
    auto diagnostics = llvm::makeIntrusiveRefCnt<DiagnosticsEngine>(
        llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), options, &sink,
        /*ShouldOwnClient=*/false);
    clang::ProcessWarningOptions(*diagnostics, *options, /*ReportDiags=*/false);
    clang::CreateInvocationOptions how;
    how.Diags = diagnostics;
    how.VFS = files;
    std::shared_ptr<clang::CompilerInvocation> made = clang::createInvocation(args, how);
    if (!made || diagnostics->hasErrorOccurred() || needs_process_options(*made, *diagnostics))
        return nullptr;
    made->getFrontendOpts().DisableFree = false; /* this process goes on */
    made->getCodeGenOpts().DisableFree = false;
    made->getCodeGenOpts().EmitLLVMUseLists = job.emit == MW_EMIT_BITCODE; /* as the driver does */
    made->getPreprocessorOpts().DisablePragmaDebugCrash = true;
    if (job.preamble)
        use_preamble(*made);
    return made;
}

/* The main file that the job names. */
const mw_source_file *main_file(const mw_bridge_job &job)
{
    return std::find_if(job.files, job.files + job.file_count, [&](const mw_source_file &file) {
        return StringRef(file.name) == job.main;
    });
}

/* As clang::PrecompiledPreamble does. Not where headers can be seen in what comes out. */
void Run::use_preamble(clang::CompilerInvocation &made)
{
    const mw_preamble_use &use = *job.preamble;
    const mw_source_file *main = main_file(job);
    bool hidden = job.emit <= MW_EMIT_BITCODE || job.emit == MW_EMIT_NONE;
    if (!hidden || made.getCodeGenOpts().getDebugInfo() != llvm::codegenoptions::NoDebugInfo ||
        (job.extras & ~(1u << MW_EXTRA_LINE_MAP)) || !use.bytes || !use.covers_bytes ||
        main == job.files + job.file_count || use.covers_bytes > main->bytes)
        return;
    clang::PreprocessorOptions &options = made.getPreprocessorOpts();
    options.ImplicitPCHInclude = preamble_path;
    options.PrecompiledPreambleBytes = {use.covers_bytes, main->data[use.covers_bytes - 1] == '\n'};
    options.DisablePCHOrModuleValidation = clang::DisableValidationForModuleKind::PCH;
    options.UsePredefines = false; /* it has them */
}

bool holds_inline_asm(const llvm::Module &module)
{
    if (!module.getModuleInlineAsm().empty())
        return true;
    for (const llvm::Function &function : module)
        for (const llvm::BasicBlock &block : function)
            for (const llvm::Instruction &instruction : block)
                if (const auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction))
                    if (call->isInlineAsm())
                        return true;
    return false;
}

bool Run::generate(clang::CompilerInstance &compiler)
{
    std::unique_ptr<clang::CodeGenAction> action;
    switch (job.emit) {
    case MW_EMIT_ASM:
        action = std::make_unique<Watched<clang::EmitAssemblyAction>>(result, cancel, &context);
        break;
    case MW_EMIT_LLVM_IR:
        action = std::make_unique<Watched<clang::EmitLLVMAction>>(result, cancel, &context);
        break;
    case MW_EMIT_BITCODE:
        action = std::make_unique<Watched<clang::EmitBCAction>>(result, cancel, &context);
        break;
    default:
        action = std::make_unique<Watched<clang::EmitObjAction>>(result, cancel, &context);
        break;
    }
    compiler.setOutputStream(std::make_unique<BoundedStream>(kept));
    bool ok = compiler.ExecuteAction(*action);
    std::unique_ptr<llvm::Module> module = action->takeModule();
    if (module && holds_inline_asm(*module))
        result.has_inline_asm = 1;
    return ok;
}

/* A preamble keeps the text of its own main file, which nobody has who uses it. */
bool Run::serialize(clang::CompilerInstance &compiler)
{
    auto buffer = std::make_shared<clang::PCHBuffer>();
    std::unique_ptr<llvm::MemoryBuffer> text;
    if (job.emit == MW_EMIT_PREAMBLE) {
        clang::PreprocessorOptions &options = compiler.getPreprocessorOpts();
        const mw_source_file *main = main_file(job);
        text = llvm::MemoryBuffer::getMemBufferCopy(StringRef(main->data, main->bytes), job.main);
        options.addRemappedFile(job.main, text.get());
        options.RetainRemappedFileBuffers = true;
        options.GeneratePreamble = true;
    }
    Watched<SerializeAction> action(result, cancel, buffer);
    bool ok = compiler.ExecuteAction(action) && buffer->IsComplete;
    if (ok)
        BoundedStream(kept).write(buffer->Data.data(), buffer->Data.size());
    return ok;
}

bool Run::execute(clang::CompilerInstance &compiler)
{
    if (job.emit == MW_EMIT_AST || job.emit == MW_EMIT_PREAMBLE)
        return serialize(compiler);
    if (job.emit == MW_EMIT_NONE) {
        Watched<clang::SyntaxOnlyAction> action(result, cancel);
        return compiler.ExecuteAction(action);
    }
    if (job.emit == MW_EMIT_PREPROCESSED) {
        BoundedStream out(kept);
        Watched<PreprocessAction> action(result, cancel, out);
        return compiler.ExecuteAction(action);
    }
    return generate(compiler);
}

int Run::run()
{
    auto view = files();
    if (!view)
        return -ENOMEM;
    auto made = invocation(view);
    if (made) {
        clang::CompilerInstance compiler;
        compiler.setInvocation(made);
        compiler.setVerboseOutputStream(llvm::nulls());
        compiler.createDiagnostics(&sink, /*ShouldOwnClient=*/false);
        compiler.createFileManager(view);
        sink.use(compiler.getLangOpts(), compiler.getDiagnosticOpts());
        result.ok = execute(compiler);
    } else if (!sink.getNumErrors()) {
        return -EIO;
    }
    if (cancel.seen) {
        result.ok = 0;
        return -ECANCELED;
    }
    if (sink.error || kept.error) {
        result.ok = 0;
        return sink.error ? sink.error : kept.error;
    }
    if (result.ok && kept.data) {
        result.artifact = std::exchange(kept.data, nullptr);
        result.artifact_bytes = kept.bytes;
    }
    return 0;
}

/* A fatal error of LLVM, or the lack of memory, would end the process: on a thread that compiles it
 * ends the run instead, and what the run had allocated is lost. */
struct Breakdown {
    jmp_buf out;
    mw_bridge_end end;
    char reason[1024];
};
thread_local Breakdown *breakdown;

[[noreturn]] void break_down(mw_bridge_end end, const char *before, const char *reason)
{
    breakdown->end = end;
    snprintf(breakdown->reason, sizeof(breakdown->reason), "%s%s", before, reason);
    longjmp(breakdown->out, 1);
}

void end_run(void *, const char *reason, bool)
{
    if (breakdown)
        break_down(MW_BRIDGE_FATAL, "error in backend: ", reason);
    llvm::errs() << "LLVM ERROR: " << reason << "\n"; /* LLVM ends the process */
}

void end_run_for_memory(void *, const char *, bool)
{
    if (breakdown)
        break_down(MW_BRIDGE_MEMORY, "no memory left for this source", "");
    abort();
}

/* What an operator new calls when there is no memory, before it tries again. */
std::atomic<std::new_handler> new_handler_before; /* set once, before threads exist: relaxed */

void no_memory()
{
    if (breakdown)
        break_down(MW_BRIDGE_MEMORY, "no memory left for this source", "");
    std::new_handler before = new_handler_before.load(std::memory_order_relaxed);
    if (before)
        before();
    else
        std::set_new_handler(nullptr); /* so that it throws; the next run puts this back */
}

std::atomic<bool> recovering; /* set once, before threads exist: relaxed */

int run_unguarded(const mw_bridge_job &job, mw_bridge_result &result)
{
    Run run(job, result);
    return run.run();
}

void say(const mw_bridge_job &job, const char *reason)
{
    mw_diagnostic fatal = {};
    fatal.severity = MW_SEVERITY_FATAL;
    fatal.message = reason;
    fatal.file = fatal.flag = fatal.category = fatal.line_text = "";
    if (job.on_diagnostic)
        job.on_diagnostic(job.user, &fatal);
}

int run_until_breakdown(const mw_bridge_job &job, mw_bridge_result &result)
{
    Breakdown here;
    if (setjmp(here.out)) {
        breakdown = nullptr;
        result = {};
        result.end = here.end;
        say(job, here.reason);
        return here.end == MW_BRIDGE_MEMORY ? -ENOMEM : -EIO;
    }
    breakdown = &here;
    int rc = run_unguarded(job, result);
    breakdown = nullptr;
    return rc;
}

} // namespace

extern "C" void mw_bridge_init(void)
{
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::InitializeAllTargetInfos();
        llvm::InitializeAllTargets();
        llvm::InitializeAllTargetMCs();
        llvm::InitializeAllAsmPrinters();
        llvm::InitializeAllAsmParsers();
        llvm::remove_fatal_error_handler();
        llvm::install_fatal_error_handler(end_run);
        /* one for all threads, made at its first use: ThreadSanitizer, which cannot see how LLVM
         * guards that, took the second thread's use for a race */
        (void)vfs::getRealFileSystem();
    });
}

extern "C" void mw_bridge_on_out_of_memory(void (*fn)(void))
{
    static void (*give_up)(void);
    give_up = fn;
    std::set_new_handler(fn);
    llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { give_up(); });
}

extern "C" const char *mw_bridge_full_version(void)
{
    static const std::string text = clang::getClangFullVersion();
    return text.c_str();
}

extern "C" const char *mw_bridge_version(void)
{
    static const std::string text = [] {
        StringRef full(mw_bridge_full_version());
        return full.split("version ").second.split(' ').first.str();
    }();
    return text.c_str();
}

extern "C" const char *mw_bridge_target(void)
{
    static const std::string text = llvm::sys::getDefaultTargetTriple();
    return text.c_str();
}

extern "C" int mw_bridge_recover(void)
{
    static const int signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    if (recovering.exchange(true, std::memory_order_relaxed))
        return -EBUSY;
    llvm::remove_bad_alloc_error_handler();
    llvm::install_bad_alloc_error_handler(end_run_for_memory);
    new_handler_before.store(std::set_new_handler(no_memory), std::memory_order_relaxed);
    llvm::CrashRecoveryContext::Enable();
    for (int number : signals) { /* a stack that is full has no room for a handler */
        struct sigaction action;
        if (sigaction(number, nullptr, &action))
            return -errno;
        action.sa_flags |= SA_ONSTACK;
        if (sigaction(number, &action, nullptr))
            return -errno;
    }
    return 0;
}

extern "C" void mw_bridge_note_stack(void)
{
    clang::noteBottomOfStack();
}

extern "C" int mw_bridge_run(const struct mw_bridge_job *job, struct mw_bridge_result *result)
{
    const void *trace = llvm::SavePrettyStackState();
    int rc = 0;
    *result = {};
    if (recovering.load(std::memory_order_relaxed))
        std::set_new_handler(no_memory);
    llvm::CrashRecoveryContext context; /* does nothing until mw_bridge_recover */
    if (!context.RunSafely([&] { rc = run_until_breakdown(*job, *result); })) {
        char reason[128];
        breakdown = nullptr;
        *result = {};
        result->end = MW_BRIDGE_CRASHED;
        snprintf(reason, sizeof(reason), "the compiler crashed on this source: %s",
                 strsignal(context.RetCode - 128));
        say(*job, reason);
        rc = -EIO;
    }
    if (result->end != MW_BRIDGE_RETURNED)
        llvm::RestorePrettyStackState(trace);
    return rc;
}

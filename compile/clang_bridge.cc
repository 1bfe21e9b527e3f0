/* clang_bridge.cc - see clang_bridge.h.
 *
 * One run: a view of the file system made of the request's files above the readable directories,
 * which remembers what was looked for; the driver, asked for what `clang -c` would hand to its
 * compiler; one frontend action whose output stays in memory and whose diagnostics go out as data.
 *
 * 1. The bytes equal those of `clang` with the same arguments, directory and relative name, so
 *    nothing that code generation can see is changed: the driver gets the flags a person would
 *    give, and the main file is looked up by name as any other.
 * 2. The frontend opens no file but through that view. Inline assembly does (.incbin, .include):
 *    it is found in the IR, which holds just what the assembler will see.
 * 3. Nothing here outlives a run but what mw_bridge_init registers, and the driver's answers, which
 *    serve only while all that the driver had looked for is as it was.
 * 4. Options of LLVM belong to the process. The one that is used (x86-asm-syntax) is set under a
 *    lock that every run holds, alone or with others. */
#include "clang_bridge.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <clang/Basic/DiagnosticFrontend.h>
#include <clang/Basic/Stack.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/BackendUtil.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/CodeGen/ModuleBuilder.h>
#include <clang/Frontend/ASTConsumers.h>
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
#include <llvm/IR/LLVMRemarkStreamer.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/Remarks/Remark.h>
#include <llvm/Remarks/RemarkSerializer.h>
#include <llvm/Remarks/RemarkStreamer.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/Path.h>
#include <llvm/Support/PrettyStackTrace.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/TimeProfiler.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <pthread.h>

namespace
{

/* Shorter steps are in a time trace's sums only; as -ftime-trace. */
const unsigned TIME_TRACE_US_MIN = 500;

/* Where a run finds its preamble, or its prefix: no source can spell such a name. */
const char preamble_path[] = "/millwright\npreamble";
const char prefix_path[] = "/millwright\nprefix";

namespace vfs = llvm::vfs;
using clang::CharSourceRange;
using clang::DiagnosticsEngine;
using clang::SourceLocation;
using llvm::StringRef;

/* See mw_bridge_leave_memory. */
std::atomic<bool> memory_is_left; /* set once, before the run: relaxed */

bool is_left()
{
    return memory_is_left.load(std::memory_order_relaxed);
}

struct DeleteUnlessLeft {
    template <typename T> void operator()(T *object) const
    {
        if (!is_left())
            delete object;
    }
};
template <typename T> using Owned = std::unique_ptr<T, DeleteUnlessLeft>;

/* A preamble, where it lies. clang's file system in memory hashes what it is given, which here is
 * megabytes that are read nowhere else. */
class PreambleFile : public vfs::File
{
  public:
    explicit PreambleFile(StringRef bytes) : bytes(bytes)
    {
    }

    static vfs::Status status_of(StringRef bytes)
    {
        return vfs::Status(preamble_path, {UINT64_MAX, 1}, llvm::sys::TimePoint<>(), 0, 0,
                           bytes.size(), llvm::sys::fs::file_type::regular_file,
                           llvm::sys::fs::owner_read);
    }

    llvm::ErrorOr<vfs::Status> status() override
    {
        return status_of(bytes);
    }

    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> getBuffer(const llvm::Twine &, int64_t, bool,
                                                                 bool) override
    {
        return llvm::MemoryBuffer::getMemBuffer(bytes, preamble_path,
                                                /*RequiresNullTerminator=*/false);
    }

    std::error_code close() override
    {
        return {};
    }

  private:
    StringRef bytes;
};

/* What a run sees of files: the request's own, in memory, and of the disk regular files and
 * directories below the readable directories. It keeps a working directory of its own, which need
 * not exist, and remembers everything that was looked for. */
class View : public vfs::FileSystem
{
  public:
    explicit View(const mw_bridge_job &job)
        : memory(llvm::makeIntrusiveRefCnt<vfs::InMemoryFileSystem>()),
          disk(vfs::getRealFileSystem()), directory(job.directory), everything(!job.readable_dirs)
    {
        memory->setCurrentWorkingDirectory(directory);
        for (size_t i = 0; i < job.readable_count; i++) {
            llvm::SmallString<256> dir(job.readable_dirs[i]);
            llvm::sys::path::remove_dots(dir, true);
            dirs.push_back(dir.str().rtrim('/').str());
        }
    }

    llvm::ErrorOr<vfs::Status> status(const llvm::Twine &path) override
    {
        llvm::SmallString<256> place;
        if (is_preamble(path))
            return PreambleFile::status_of(preamble);
        bool here = locate(path, place);
        auto found = memory->status(place);
        /* The driver looks for /usr/lib before it looks for /usr/lib/gcc. */
        if (!found && (here || leads_to_readable(place)))
            found = disk->status(place);
        note(place, found ? 'd' : 'a');
        return found ? vfs::Status::copyWithNewName(*found, path) : found;
    }

    llvm::ErrorOr<std::unique_ptr<vfs::File>> openFileForRead(const llvm::Twine &path) override
    {
        if (is_preamble(path))
            return std::make_unique<PreambleFile>(preamble);
        auto found = status(path);
        if (!found)
            return found.getError();
        if (!found->isRegularFile()) /* a FIFO blocks, /dev/zero never ends */
            return std::make_error_code(found->isDirectory() ? std::errc::is_a_directory
                                                             : std::errc::not_supported);
        llvm::SmallString<256> place;
        bool here = locate(path, place);
        note(place, 'r');
        if (memory->exists(place))
            return vfs::File::getWithPath(memory->openFileForRead(place), path);
        if (!here)
            return std::make_error_code(std::errc::no_such_file_or_directory);
        return vfs::File::getWithPath(disk->openFileForRead(place), path);
    }

    vfs::directory_iterator dir_begin(const llvm::Twine &path, std::error_code &error) override
    {
        llvm::SmallString<256> place;
        bool here = locate(path, place);
        note(place, 'l');
        return here && disk->exists(place) ? disk->dir_begin(place, error)
                                           : memory->dir_begin(place, error);
    }

    std::error_code getRealPath(const llvm::Twine &path, llvm::SmallVectorImpl<char> &real) override
    {
        llvm::SmallString<256> place;
        bool here = locate(path, place);
        if (here && !memory->exists(place))
            return disk->getRealPath(place, real);
        return memory->getRealPath(place, real);
    }

    llvm::ErrorOr<std::string> getCurrentWorkingDirectory() const override
    {
        return directory;
    }

    std::error_code setCurrentWorkingDirectory(const llvm::Twine &path) override
    {
        directory = path.str();
        return memory->setCurrentWorkingDirectory(path);
    }

    /* What a place on the disk is, links followed. */
    struct Stamp {
        bool there;
        uint64_t size, device, file;
        llvm::sys::TimePoint<> changed;

        bool operator==(const Stamp &other) const
        {
            return there == other.there && size == other.size && device == other.device &&
                   file == other.file && changed == other.changed;
        }
    };

    /* `place` is absolute. A file of the run's own there is like none on the disk. */
    Stamp look(const std::string &place) const
    {
        llvm::sys::fs::file_status found;
        if (below(place, directory) && memory->exists(place))
            return {true, UINT64_MAX, UINT64_MAX, 0, {}};
        if (!(readable(place) || leads_to_readable(place)) || llvm::sys::fs::status(place, found))
            return {};
        return {true, found.getSize(), found.getUniqueID().getDevice(),
                found.getUniqueID().getFile(), found.getLastModificationTime()};
    }

    void note(StringRef place, char what)
    {
        static const char order[] = "adrl"; /* the later says more */
        char &known = lookups.try_emplace(place.str(), what).first->second;
        if (strchr(order, what) > strchr(order, known))
            known = what;
    }

    void add_preamble(const mw_preamble_use &use)
    {
        preamble = StringRef(static_cast<const char *>(use.bytes), use.count);
    }

    /* The run's own files were others. */
    void start_over(llvm::ArrayRef<StringRef> gone)
    {
        memory = llvm::makeIntrusiveRefCnt<vfs::InMemoryFileSystem>();
        memory->setCurrentWorkingDirectory(directory);
        for (StringRef name : gone) {
            llvm::SmallString<256> place;
            locate(name, place);
            lookups.erase(place.str().str());
        }
    }

    /* A file of the run's own. */
    void add(StringRef name, std::unique_ptr<llvm::MemoryBuffer> text)
    {
        memory->addFile(name, 0, std::move(text));
    }

    /* The same, as it was given. The lexer wants a NUL at the end, so a copy. False when memory
     * runs out. */
    bool add(const mw_source_file &file)
    {
        auto text =
            llvm::MemoryBuffer::getMemBufferCopy(StringRef(file.data, file.bytes), file.name);
        if (!text)
            return false;
        add(file.name, std::move(text));
        return true;
    }

    bool holds(const std::string &place) const
    {
        return memory->exists(place);
    }

    bool readable(StringRef place) const
    {
        return everything ||
               llvm::any_of(dirs, [&](const std::string &dir) { return below(place, dir); });
    }

    static bool below(StringRef path, StringRef dir)
    {
        return path.starts_with(dir) && (path.size() == dir.size() || path[dir.size()] == '/');
    }

    /* What was looked for, by its absolute path: 'a', 'd', 'r' or 'l', as clang_bridge.h says. */
    std::map<std::string, char> lookups;

  private:
    bool is_preamble(const llvm::Twine &path) const
    {
        return !preamble.empty() && path.isSingleStringRef() &&
               path.getSingleStringRef() == preamble_path;
    }

    /* Give the absolute path that is opened for `path`; false when it may not be read on the disk.
     * What is checked is what is opened: without "..", that a symbolic link could turn elsewhere.
     */
    bool locate(const llvm::Twine &path, llvm::SmallVectorImpl<char> &place) const
    {
        path.toVector(place);
        llvm::sys::fs::make_absolute(directory, place);
        if (!everything)
            llvm::sys::path::remove_dots(place, true);
        return readable(StringRef(place.data(), place.size()));
    }

    bool leads_to_readable(StringRef place) const
    {
        return llvm::any_of(dirs, [&](const std::string &dir) { return below(dir, place); });
    }

    llvm::IntrusiveRefCntPtr<vfs::InMemoryFileSystem> memory;
    llvm::IntrusiveRefCntPtr<vfs::FileSystem> disk;
    std::string directory;
    std::vector<std::string> dirs;
    bool everything;
    StringRef preamble; /* empty: none */
};

/* The driver's answers, by what it was asked; they cost it a millisecond and a half each. An answer
 * serves while every path that it looked for is what it was, with the same size and time. */
class Answers
{
  public:
    using Invocation = std::shared_ptr<const clang::CompilerInvocation>;

    Invocation find(const std::string &question, View &view)
    {
        std::shared_ptr<const Answer> known;
        {
            std::lock_guard<std::mutex> hold(lock);
            for (const auto &answer : kept)
                if (answer && answer->question == question)
                    known = answer;
        }
        if (!known)
            return nullptr;
        for (const Place &place : known->looked_for)
            if (!place.is_implied && !(view.look(place.path) == place.stamp))
                return nullptr;
        for (const Place &place : known->looked_for)
            view.note(place.path, place.what);
        return known->invocation;
    }

    /* The driver looks whether the main file exists. Where it found another of the run's own files,
     * these lie in the toolchain's directories, and the answer is for nobody else. */
    void keep(const std::string &question, View &view, Invocation invocation)
    {
        auto answer = std::make_shared<Answer>();
        answer->question = question;
        answer->invocation = std::move(invocation);
        unsigned own = 0;
        for (const auto &[path, what] : view.lookups)
            if (view.holds(path))
                own++;
            else
                answer->looked_for.push_back(
                    {path, what, is_below_absent(path, view.lookups), view.look(path)});
        if (own > 1)
            return;
        std::lock_guard<std::mutex> hold(lock); /* nothing is allocated under it */
        std::shared_ptr<const Answer> *place = &kept[next++ % std::size(kept)];
        for (auto &old : kept)
            if (old && old->question == question)
                place = &old;
        *place = std::move(answer);
    }

  private:
    struct Place {
        std::string path;
        char what;
        bool is_implied; /* not there, as a directory above it is not */
        View::Stamp stamp;
    };

    struct Answer {
        std::string question;
        Invocation invocation;
        std::vector<Place> looked_for;
    };

    static bool is_below_absent(StringRef path, const std::map<std::string, char> &lookups)
    {
        for (path = llvm::sys::path::parent_path(path); path.size() > 1;
             path = llvm::sys::path::parent_path(path)) {
            auto above = lookups.find(path.str());
            if (above != lookups.end() && above->second == 'a')
                return true;
        }
        return false;
    }

    std::mutex lock; /* guards what follows */
    std::shared_ptr<const Answer> kept[64];
    size_t next = 0;
};

Answers &answers()
{
    static auto *all = new Answers; /* never destroyed: threads may outlive main */
    return *all;
}

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

/* Of the same kind as the one that the driver was asked about. */
void name_main_file(clang::CompilerInvocation &made, StringRef main)
{
    clang::FrontendInputFile &input = made.getFrontendOpts().Inputs[0];
    input = clang::FrontendInputFile(main, input.getKind(), input.isSystem());
    made.getCodeGenOpts().MainFileName = llvm::sys::path::filename(main).str();
}

/* A lexer that begins behind a prefix would take a guard there for one of the whole file. */
void forget_guard(clang::Lexer &lexer)
{
    struct Opened : clang::Lexer {
        static constexpr clang::MultipleIncludeOpt clang::PreprocessorLexer::*guard()
        {
            return &Opened::MIOpt;
        }
    };
    (lexer.*Opened::guard()).Invalidate();
}

/* See mw_bridge_pause_after_prefix. The main file's place is taken by the prefix, in a buffer with
 * room for any rest. When the last header of the prefix has been read, clang's lexer of the main
 * file is made anew, over the text of the real one and behind the includes in it; whatever else
 * knows the main file's name or text is told. */
class HeadStart
{
  public:
    explicit HeadStart(View &view) : pause(std::exchange(next_pause, {})), view(view)
    {
    }

    bool is_wanted() const
    {
        return pause.fn;
    }

    /* False when memory runs out. */
    bool begin(const mw_source_file &file)
    {
        room = llvm::WritableMemoryBuffer::getNewMemBuffer(MW_BRIDGE_REST_BYTES_MAX);
        if (!room || file.bytes > MW_BRIDGE_REST_BYTES_MAX)
            return false;
        memcpy(room->getBufferStart(), file.data, file.bytes);
        view.add(prefix_path, llvm::MemoryBuffer::getMemBuffer(*room));
        name = file.name;
        prefix = StringRef(file.data, file.bytes).str();
        headers_left = StringRef(prefix).count('\n');
        return true;
    }

    /* The driver has looked at the name, whose ending tells the language. */
    void use(clang::CompilerInvocation &made) const
    {
        name_main_file(made, prefix_path);
    }

    /* Of the main file the byte at `offset` is one of the prefix: where no other text was, though
     * that has taken its place. */
    bool holds(unsigned offset) const
    {
        return offset < prefix.size();
    }

    unsigned line(unsigned offset) const
    {
        return 1 + StringRef(prefix).take_front(offset).count('\n');
    }

    /* A header was read, or skipped because it had been: `at` is in the file that includes it. */
    void header_done(SourceLocation at, clang::CompilerInstance &compiler)
    {
        const clang::SourceManager &sources = compiler.getSourceManager();
        if (headers_left > 0 && sources.getFileID(at) == sources.getMainFileID() &&
            --headers_left == 0)
            go_on(compiler);
    }

    clang::CodeGenerator *generator = nullptr; /* of a run that has one */

    static void set_pause(void (*fn)(void *user, mw_bridge_rest *rest), void *user)
    {
        next_pause = {fn, user};
    }

  private:
    struct Pause {
        void (*fn)(void *user, mw_bridge_rest *rest) = nullptr;
        void *user = nullptr;
    };

    void go_on(clang::CompilerInstance &compiler)
    {
        mw_bridge_rest rest = {};
        pause.fn(pause.user, &rest);
        view.start_over({name, prefix_path});
        for (size_t i = 0; i < rest.file_count; i++)
            if (!view.add(rest.files[i]))
                llvm::report_bad_alloc_error("the rest of a compile");
        auto entry = compiler.getFileManager().getOptionalFileRef(rest.main);
        if (!entry)
            not_the_rest();
        replace_text(compiler, *entry, rest.covers_bytes);
        replace_name(compiler, rest.main);
    }

    void replace_text(clang::CompilerInstance &compiler, clang::FileEntryRef entry,
                      size_t covers_bytes)
    {
        clang::SourceManager &sources = compiler.getSourceManager();
        clang::Preprocessor &preprocessor = compiler.getPreprocessor();
        clang::FileID file = sources.getMainFileID();
        /* Known by its entry, so that a file which includes itself is known again. */
        clang::FileID twin = sources.createFileID(entry, {}, clang::SrcMgr::C_User);
        llvm::MemoryBufferRef text = sources.getBufferOrFake(twin);
        if (text.getBufferSize() > MW_BRIDGE_REST_BYTES_MAX || covers_bytes > text.getBufferSize())
            not_the_rest();
        auto &content = const_cast<clang::SrcMgr::ContentCache &>(
            sources.getSLocEntry(twin).getFile().getContentCache());
        auto &place = const_cast<clang::SrcMgr::SLocEntry &>(sources.getSLocEntry(file));
        place = clang::SrcMgr::SLocEntry::get(
            place.getOffset(),
            clang::SrcMgr::FileInfo::get({}, content, clang::SrcMgr::C_User, entry.getName()));
        preprocessor.markIncluded(entry);
        auto *lexer = static_cast<clang::Lexer *>(preprocessor.getCurrentFileLexer());
        lexer->~Lexer();
        new (lexer) clang::Lexer(file, text, preprocessor);
        lexer->seek(covers_bytes, text.getBufferStart()[covers_bytes - 1] == '\n');
        forget_guard(*lexer);
    }

    [[noreturn]] static void not_the_rest()
    {
        llvm::report_fatal_error("the rest does not go with its prefix");
    }

    void replace_name(clang::CompilerInstance &compiler, StringRef main)
    {
        name_main_file(compiler.getInvocation(), main);
        if (!generator)
            return;
        generator->GetModule()->setModuleIdentifier(main);
        generator->GetModule()->setSourceFileName(main);
    }

    static thread_local Pause next_pause;

    Pause pause;
    View &view;
    std::string name, prefix;
    /* Stays: clang may be about to say more of the last header's name, which stands in it. */
    std::unique_ptr<llvm::WritableMemoryBuffer> room;
    unsigned headers_left = 0;
};

thread_local HeadStart::Pause HeadStart::next_pause;

/* The text of a prefix has one line for each #include that its stretch of the main file has. Give
 * the place in the main file that `at`, in such a line, stands for; or `at` when it is elsewhere.
 */
SourceLocation in_main_file(clang::FullSourceLoc at, const clang::LangOptions &language,
                            const HeadStart &head_start)
{
    const clang::SourceManager &sources = at.getManager();
    auto [file, offset] = at.getDecomposedLoc();
    clang::FileID main = sources.getMainFileID();
    unsigned line;
    if (file == sources.getPreambleFileID())
        line = sources.getLineNumber(file, offset);
    else if (file == main && head_start.holds(offset))
        line = head_start.line(offset);
    else
        return at;
    clang::Lexer lexer(main, sources.getBufferOrFake(main), sources, language);
    clang::Token token;
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
    DiagnosticSink(const mw_bridge_job &job, const Cancel &cancel, const HeadStart &head_start)
        : job(job), cancel(cancel), head_start(head_start)
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
    bool delivered = false; /* there was a diagnostic */

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
            includes.emplace_back(in_main_file(at, LangOpts, sink.head_start), at.getManager());
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
    const HeadStart &head_start;
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
    delivered = true;
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
        uint64_t wanted = 0; /* with what is over */
        int error = 0;

        ~Kept()
        {
            free(data);
        }

        void give(char *&to, size_t &to_bytes)
        {
            to = std::exchange(data, nullptr);
            to_bytes = to ? bytes : 0;
        }
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
        kept.wanted = std::max(kept.wanted, position);
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

/* Text as JSON may hold it. */
std::string json_text(StringRef text)
{
    return llvm::json::isUTF8(text) ? text.str() : llvm::json::fixUTF8(text);
}

/* The files that were read, as JSON: those of the request by the names that they have there. */
class Dependencies : public clang::DependencyCollector
{
  public:
    explicit Dependencies(const mw_bridge_job &job) : job(job)
    {
    }

    bool needSystemDependencies() override
    {
        return true;
    }

    bool sawDependency(StringRef name, bool, bool is_system, bool is_module, bool missing) override
    {
        if (is_module || missing || name.starts_with("<"))
            return false;
        llvm::SmallString<256> path(name);
        llvm::sys::fs::make_absolute(job.directory, path);
        llvm::sys::path::remove_dots(path, true);
        StringRef shown = path, directory = StringRef(job.directory).rtrim('/');
        if (View::below(shown, directory) && shown.size() > directory.size())
            shown = shown.drop_front(directory.size() + 1);
        if (seen.insert(shown.str()).second)
            all.emplace_back(json_text(shown), is_system);
        return true;
    }

    void write(llvm::raw_ostream &out) const
    {
        llvm::json::OStream json(out);
        json.array([&] {
            for (const auto &file : all)
                json.object([&] {
                    json.attribute("name", file.first);
                    json.attribute("system", file.second);
                });
        });
    }

  private:
    const mw_bridge_job &job;
    std::set<std::string> seen;
    std::vector<std::pair<std::string, bool>> all;
};

/* Remarks of the optimiser, as JSON. */
class RemarkWriter : public llvm::remarks::RemarkSerializer
{
  public:
    explicit RemarkWriter(llvm::raw_ostream &out)
        : RemarkSerializer(llvm::remarks::Format::YAML, out,
                           llvm::remarks::SerializerMode::Standalone),
          json(out)
    {
        json.arrayBegin();
    }

    ~RemarkWriter() override
    {
        json.arrayEnd();
    }

    void emit(const llvm::remarks::Remark &remark) override
    {
        json.object([&] {
            json.attribute("type", llvm::remarks::typeToStr(remark.RemarkType));
            json.attribute("pass", json_text(remark.PassName));
            json.attribute("name", json_text(remark.RemarkName));
            json.attribute("function", json_text(remark.FunctionName));
            if (remark.Loc) {
                json.attribute("file", json_text(remark.Loc->SourceFilePath));
                json.attribute("line", remark.Loc->SourceLine);
                json.attribute("column", remark.Loc->SourceColumn);
            }
            json.attributeArray("arguments", [&] {
                for (const llvm::remarks::Argument &argument : remark.Args)
                    json.object([&] {
                        json.attribute("key", json_text(argument.Key));
                        json.attribute("value", json_text(argument.Val));
                    });
            });
        });
    }

    std::unique_ptr<llvm::remarks::MetaSerializer> metaSerializer(llvm::raw_ostream &,
                                                                  std::optional<StringRef>) override
    {
        return nullptr; /* asked for when a section of the object is written: not in this mode */
    }

  private:
    llvm::json::OStream json;
};

/* Notes what makes the bytes depend on more than the files; and asks whether to go on. */
class Watch : public clang::PPCallbacks
{
  public:
    Watch(mw_bridge_result &result, Cancel &cancel, HeadStart &head_start,
          clang::CompilerInstance &compiler)
        : result(result), cancel(cancel), head_start(head_start), compiler(compiler)
    {
    }

    void FileChanged(SourceLocation at, FileChangeReason reason, clang::SrcMgr::CharacteristicKind,
                     clang::FileID left) override
    {
        cancel.poll(compiler.getDiagnostics(), compiler.getPreprocessorOpts());
        if (reason == EnterFile)
            main_entered(at);
        if (reason == ExitFile && left != compiler.getPreprocessor().getPredefinesFileID())
            head_start.header_done(at, compiler);
    }

    void FileSkipped(const clang::FileEntryRef &, const clang::Token &name,
                     clang::SrcMgr::CharacteristicKind) override
    {
        head_start.header_done(name.getLocation(), compiler);
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
    /* The lexer begins behind the preamble, if there is one. */
    void main_entered(SourceLocation at)
    {
        const clang::SourceManager &sources = compiler.getSourceManager();
        clang::Preprocessor &preprocessor = compiler.getPreprocessor();
        if (compiler.getPreprocessorOpts().PrecompiledPreambleBytes.first > 0 &&
            sources.getFileID(at) == sources.getMainFileID())
            forget_guard(*static_cast<clang::Lexer *>(preprocessor.getCurrentFileLexer()));
    }

    mw_bridge_result &result;
    Cancel &cancel;
    HeadStart &head_start;
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
    Watched(mw_bridge_result &result, Cancel &cancel, HeadStart &head_start, Args &&...args)
        : Action(std::forward<Args>(args)...), result(result), cancel(cancel),
          head_start(head_start)
    {
    }

    bool BeginSourceFileAction(clang::CompilerInstance &compiler) override
    {
        clang::Preprocessor &preprocessor = compiler.getPreprocessor();
        preprocessor.addPPCallbacks(std::make_unique<Watch>(result, cancel, head_start, compiler));
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
        if constexpr (std::is_base_of_v<clang::CodeGenAction, Action>)
            head_start.generator = this->getCodeGenerator();
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
    HeadStart &head_start;
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

/* As clang's own action for -ast-dump=json, which can write to standard output only. */
class DumpAction : public clang::ASTFrontendAction
{
  public:
    explicit DumpAction(BoundedStream::Kept &kept) : kept(kept)
    {
    }

    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance &,
                                                          StringRef) override
    {
        return clang::CreateASTDumper(std::make_unique<BoundedStream>(kept), /*FilterString=*/"",
                                      /*DumpDecls=*/true, /*Deserialize=*/false,
                                      /*DumpLookups=*/false, /*DumpDeclTypes=*/false,
                                      clang::ADOF_JSON);
    }

  private:
    BoundedStream::Kept &kept;
};

/* The ids in clang's JSON are addresses. Make them numbers in the order in which they come, which
 * are the same each time and no longer. */
void number_ids(char *text, size_t &bytes)
{
    llvm::DenseMap<uint64_t, unsigned> numbers;
    StringRef rest(text, bytes);
    char *to = text;
    auto move = [&](size_t count) {
        memmove(to, rest.data(), count);
        to += count;
        rest = rest.drop_front(count);
    };
    for (size_t at; (at = rest.find(": \"0x")) != StringRef::npos;) {
        bool comment = rest.take_front(at).ends_with("\"text\"");
        uint64_t id;
        move(at + strlen(": \""));
        StringRef digits = rest.take_while([](char c) { return c != '"'; });
        if (comment || digits.size() < strlen("0x1234") || digits.getAsInteger(0, id))
            continue;
        to += snprintf(to, digits.size() + 1, "0x%x",
                       numbers.try_emplace(id, numbers.size() + 1).first->second);
        rest = rest.drop_front(digits.size());
    }
    move(rest.size());
    bytes = to - text;
}

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

void say(const mw_bridge_job &job, const char *reason)
{
    mw_diagnostic fatal = {};
    fatal.severity = MW_SEVERITY_FATAL;
    fatal.message = reason;
    fatal.file = fatal.flag = fatal.category = fatal.line_text = "";
    if (job.on_diagnostic)
        job.on_diagnostic(job.user, &fatal);
}

struct Run {
    const mw_bridge_job &job;
    mw_bridge_result &result;
    BoundedStream::Kept kept;
    BoundedStream::Kept extras[MW_EXTRAS];
    Cancel cancel;
    llvm::IntrusiveRefCntPtr<View> view;
    HeadStart head_start;
    DiagnosticSink sink;
    std::shared_ptr<Dependencies> dependencies;
    llvm::LLVMContext context;

    Run(const mw_bridge_job &job, mw_bridge_result &result);
    ~Run();
    int run();

  private:
    bool wants(mw_extra extra) const
    {
        return job.extras & 1u << extra;
    }

    bool add_files();
    std::vector<const char *> arguments() const;
    std::shared_ptr<clang::CompilerInvocation> ask_driver();
    std::shared_ptr<clang::CompilerInvocation> invocation();
    void use_preamble(clang::CompilerInvocation &made);
    bool serialize(clang::CompilerInstance &compiler);
    bool needs_process_options(const clang::CompilerInvocation &made, DiagnosticsEngine &engine);
    bool generate(clang::CompilerInstance &compiler);
    bool execute(clang::CompilerInstance &compiler);
    void compile(std::shared_ptr<clang::CompilerInvocation> made);
    int finish();
    int write_extras();
    int write_inputs();
};

Run::Run(const mw_bridge_job &job, mw_bridge_result &result)
    : job(job), result(result), kept{job.artifact_bytes_max}, cancel(job),
      view(llvm::makeIntrusiveRefCnt<View>(job)), head_start(*view), sink(job, cancel, head_start)
{
    for (BoundedStream::Kept &extra : extras)
        extra.bytes_max = MW_EXTRA_BYTES_MAX;
    if (job.cancelled)
        context.setOptPassGate(cancel);
    if (wants(MW_EXTRA_TIME_TRACE))
        llvm::timeTraceProfilerInitialize(TIME_TRACE_US_MIN, "millwright");
}

Run::~Run()
{
    if (wants(MW_EXTRA_TIME_TRACE))
        llvm::timeTraceProfilerCleanup();
}

/* False when memory runs out. */
bool Run::add_files()
{
    for (size_t i = 0; i < job.file_count; i++) {
        const mw_source_file &file = job.files[i];
        if (!view->add(file) || (head_start.is_wanted() && !head_start.begin(file)))
            return false;
    }
    if (job.preamble && job.preamble->bytes)
        view->add_preamble(*job.preamble);
    return true;
}

/* For some targets the driver sets options of LLVM's that are the whole process's (-mllvm): other
 * compiles would obey them too, and without them the code is not what clang makes. The syntax of
 * assembly is one as well, but see AsmSyntax. */
bool Run::needs_process_options(const clang::CompilerInvocation &made, DiagnosticsEngine &engine)
{
    const std::vector<std::string> &options = made.getFrontendOpts().LLVMArgs;
    auto found = llvm::find_if(options, [](const std::string &option) {
        return !StringRef(option).starts_with("-x86-asm-syntax=");
    });
    if (found == options.end() || job.emit == MW_EMIT_NONE || job.emit == MW_EMIT_PREPROCESSED)
        return false;
    engine.Report(engine.getCustomDiagID(
        DiagnosticsEngine::Error,
        "code for target '%0' needs an option of the whole compiler process ('-mllvm %1'), which "
        "would change other compiles; choose another target, or ask for no code"))
        << made.getTargetOpts().Triple << *found;
    return true;
}

std::vector<const char *> Run::arguments() const
{
    std::vector<const char *> args{job.clang_path, "--no-default-config"};
    args.insert(args.end(), job.args, job.args + job.arg_count);
    if (job.emit == MW_EMIT_PREPROCESSED)
        args.push_back("-E");
    /* createInvocation adds -fsyntax-only before the "--": not for the user to hear about. */
    args.insert(args.end(), {"--start-no-unused-arguments", "--", job.main});
    return args;
}

/* Null when the driver found an error, which it has reported. */
std::shared_ptr<clang::CompilerInvocation> Run::ask_driver()
{
    llvm::TimeTraceScope scope("Driver");
    std::vector<const char *> args = arguments();
    /* Of the name of the main file only the ending matters, so the rest can be put in later. */
    std::string question = std::string(job.directory) + '\n';
    for (char **variable = environ; variable && *variable; variable++) /* some are obeyed */
        question += std::string(*variable) + '\n';
    for (const char *arg : llvm::ArrayRef(args).drop_back())
        question += std::string(arg) + '\n';
    question += llvm::sys::path::extension(job.main);
    if (Answers::Invocation known = answers().find(question, *view)) {
        auto made = std::make_shared<clang::CompilerInvocation>(*known);
        name_main_file(*made, job.main);
        return made;
    }
    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(
        clang::CreateAndPopulateDiagOpts(args).release());
    auto diagnostics = llvm::makeIntrusiveRefCnt<DiagnosticsEngine>(
        llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), options, &sink,
        /*ShouldOwnClient=*/false);
    clang::ProcessWarningOptions(*diagnostics, *options, /*ReportDiags=*/false);
    clang::CreateInvocationOptions how;
    how.Diags = diagnostics;
    how.VFS = view;
    std::shared_ptr<clang::CompilerInvocation> made = clang::createInvocation(args, how);
    if (!made || diagnostics->hasErrorOccurred() || needs_process_options(*made, *diagnostics))
        return nullptr;
    /* For MinGW and AVR the driver looks at the disk past the view, so that who asks again could
     * get an old answer; and what it warned of, or wants of LLVM's options, is for each run to
     * hear. */
    if (!sink.delivered && made->getFrontendOpts().LLVMArgs.empty() &&
        llvm::Triple(made->getTargetOpts().Triple).isOSLinux())
        answers().keep(question, *view, std::make_shared<clang::CompilerInvocation>(*made));
    return made;
}

std::shared_ptr<clang::CompilerInvocation> Run::invocation()
{
    auto made = ask_driver();
    if (!made)
        return nullptr;
    clang::CodeGenOptions &code = made->getCodeGenOpts();
    made->getFrontendOpts().DisableFree = code.DisableFree = is_left();
    code.EmitLLVMUseLists = job.emit == MW_EMIT_BITCODE; /* as the driver does */
    made->getPreprocessorOpts().DisablePragmaDebugCrash = true;
    if (job.preamble)
        use_preamble(*made);
    if (head_start.is_wanted())
        head_start.use(*made);
    /* As clang does for remarks: instructions know their places, and nobody writes them down. */
    if (wants(MW_EXTRA_REMARKS) && code.getDebugInfo() == llvm::codegenoptions::NoDebugInfo)
        code.setDebugInfo(llvm::codegenoptions::LocTrackingOnly);
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

/* As clang's own five, which differ in that number only. */
struct GenerateAction : clang::CodeGenAction {
    GenerateAction(mw_emit_kind emit, llvm::LLVMContext *context)
        : CodeGenAction(emit == MW_EMIT_ASM       ? clang::Backend_EmitAssembly
                        : emit == MW_EMIT_LLVM_IR ? clang::Backend_EmitLL
                        : emit == MW_EMIT_BITCODE ? clang::Backend_EmitBC
                                                  : clang::Backend_EmitObj,
                        context)
    {
    }
};

bool Run::generate(clang::CompilerInstance &compiler)
{
    BoundedStream remarks(extras[MW_EXTRA_REMARKS]);
    Watched<GenerateAction> action(result, cancel, head_start, job.emit, &context);
    if (wants(MW_EXTRA_REMARKS)) {
        context.setMainRemarkStreamer(std::make_unique<llvm::remarks::RemarkStreamer>(
            std::make_unique<RemarkWriter>(remarks)));
        context.setLLVMRemarkStreamer(
            std::make_unique<llvm::LLVMRemarkStreamer>(*context.getMainRemarkStreamer()));
    }
    compiler.setOutputStream(std::make_unique<BoundedStream>(kept));
    bool ok = compiler.ExecuteAction(action);
    context.setLLVMRemarkStreamer(nullptr);
    context.setMainRemarkStreamer(nullptr); /* ends the list */
    std::unique_ptr<llvm::Module> module = action.takeModule();
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
    Watched<SerializeAction> action(result, cancel, head_start, buffer);
    bool ok = compiler.ExecuteAction(action) && buffer->IsComplete;
    if (ok)
        BoundedStream(kept).write(buffer->Data.data(), buffer->Data.size());
    return ok;
}

bool Run::execute(clang::CompilerInstance &compiler)
{
    if (job.emit == MW_EMIT_AST || job.emit == MW_EMIT_PREAMBLE)
        return serialize(compiler);
    if (job.emit == MW_EMIT_AST_JSON) {
        Watched<DumpAction> action(result, cancel, head_start, kept);
        bool ok = compiler.ExecuteAction(action);
        if (kept.data)
            number_ids(kept.data, kept.bytes);
        return ok;
    }
    if (job.emit == MW_EMIT_NONE) {
        Watched<clang::SyntaxOnlyAction> action(result, cancel, head_start);
        return compiler.ExecuteAction(action);
    }
    if (job.emit == MW_EMIT_PREPROCESSED) {
        BoundedStream out(kept);
        Watched<PreprocessAction> action(result, cancel, head_start, out);
        return compiler.ExecuteAction(action);
    }
    return generate(compiler);
}

void Run::compile(std::shared_ptr<clang::CompilerInvocation> made)
{
    Owned<clang::CompilerInstance> owned(new clang::CompilerInstance);
    clang::CompilerInstance &compiler = *owned;
    compiler.setInvocation(std::move(made));
    compiler.setVerboseOutputStream(llvm::nulls());
    compiler.createDiagnostics(&sink, /*ShouldOwnClient=*/false);
    compiler.createFileManager(view);
    sink.use(compiler.getLangOpts(), compiler.getDiagnosticOpts());
    if (wants(MW_EXTRA_DEPENDENCIES)) {
        dependencies = std::make_shared<Dependencies>(job);
        compiler.addDependencyCollector(dependencies);
    }
    result.ok = execute(compiler);
}

int Run::run()
{
    if (!add_files())
        return -ENOMEM;
    if (auto made = invocation())
        compile(std::move(made));
    else if (!sink.getNumErrors())
        return -EIO;
    int rc = finish();
    if (rc)
        result.ok = 0;
    return rc;
}

int Run::finish()
{
    if (cancel.seen)
        return -ECANCELED;
    if (kept.error)
        result.artifact_bytes = kept.wanted;
    if (sink.error || kept.error)
        return sink.error ? sink.error : kept.error;
    if (!result.ok)
        return 0;
    int rc = write_extras();
    if (!rc)
        rc = write_inputs();
    if (!rc)
        kept.give(result.artifact, result.artifact_bytes);
    return rc;
}

int Run::write_extras()
{
    if (dependencies) {
        BoundedStream out(extras[MW_EXTRA_DEPENDENCIES]);
        dependencies->write(out);
    }
    if (wants(MW_EXTRA_TIME_TRACE)) {
        BoundedStream out(extras[MW_EXTRA_TIME_TRACE]);
        llvm::timeTraceProfilerWrite(out);
    }
    for (size_t i = 0; i < MW_EXTRAS; i++) {
        if (!wants(static_cast<mw_extra>(i)))
            continue;
        if (extras[i].error == -E2BIG)
            say(job,
                "an extra (dependencies, remarks or time trace) of this source is over 16 MiB; "
                "do without it, or compile the source in parts");
        if (extras[i].error)
            return extras[i].error;
        extras[i].give(result.extras[i].data, result.extras[i].bytes);
    }
    return 0;
}

/* A preamble is kept with all that it depends on, a request's answer with what is the request's. */
int Run::write_inputs()
{
    BoundedStream::Kept inputs{MW_EXTRA_BYTES_MAX};
    BoundedStream out(inputs);
    bool all = job.emit == MW_EMIT_PREAMBLE;
    if (!job.readable_dirs)
        return 0;
    for (const auto &[path, what] : view->lookups)
        if (all || !view->readable(path))
            (out << what << path).write('\0');
    if (!inputs.error)
        inputs.give(result.inputs.data, result.inputs.bytes);
    return inputs.error == -E2BIG ? 0 : inputs.error; /* too many: unknown */
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

/* The syntax of x86 assembly is an option of the process, which the code generator looks at when it
 * sets up. So runs with -masm=intel have the process for themselves, and all others share it. */
pthread_rwlock_t asm_syntax_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

bool is_intel(const mw_bridge_job &job)
{
    StringRef syntax;
    for (size_t i = 0; i < job.arg_count; i++) {
        StringRef arg(job.args[i]);
        if (arg.consume_front("-masm="))
            syntax = arg; /* the last one is obeyed */
    }
    return syntax == "intel";
}

struct AsmSyntax {
    llvm::cl::Option *option = nullptr;

    explicit AsmSyntax(bool intel)
    {
        if (intel ? pthread_rwlock_wrlock(&asm_syntax_lock)
                  : pthread_rwlock_rdlock(&asm_syntax_lock))
            abort();
        if (intel)
            option = llvm::cl::getRegisteredOptions().lookup("x86-asm-syntax");
        if (option)
            option->addOccurrence(0, option->ArgStr, "intel");
    }

    ~AsmSyntax()
    {
        if (option)
            option->reset();
        if (pthread_rwlock_unlock(&asm_syntax_lock))
            abort();
    }
};

std::atomic<bool> recovering; /* set once, before threads exist: relaxed */

int run_unguarded(const mw_bridge_job &job, mw_bridge_result &result)
{
    return Owned<Run>(new Run(job, result))->run();
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

extern "C" void mw_bridge_leave_memory(void)
{
    memory_is_left.store(true, std::memory_order_relaxed);
}

extern "C" void mw_bridge_pause_after_prefix(void (*fn)(void *user, struct mw_bridge_rest *rest),
                                             void *user)
{
    HeadStart::set_pause(fn, user);
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
    AsmSyntax syntax(is_intel(*job));
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
    if (result->end != MW_BRIDGE_RETURNED) {
        llvm::RestorePrettyStackState(trace);
        if (job->extras & 1u << MW_EXTRA_TIME_TRACE)
            llvm::timeTraceProfilerCleanup();
    }
    return rc;
}

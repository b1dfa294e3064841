// One ELF file as Tally sees it: segments, symbols, unwind ranges, lines, build-id.
//
// Problem.  Discovery wants to know where procedures begin and end, reports want names and lines,
// and many programs come stripped.  Every byte of the file is hostile.
//
// Idea.  Each fact is read once, checked, and remembers where it came from.  Procedure bounds come
// from .eh_frame (present in stripped programs too), from .symtab, .dynsym and from separate debug
// files (/usr/lib/debug/.build-id/xx/yyyy.debug, .gnu_debuglink).
//
// Not handled: big-endian, 32-bit, relocatable objects (refused by name).  This room decodes no
// instructions and knows nothing of running processes; addresses are the module's own (LinkAddr).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"

namespace tally::elf {

struct Segment {  // one PT_LOAD
  LinkRange range;
  FileOffset offset;
  uint64_t file_size_bytes = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
};

struct Section {
  std::string name;
  LinkRange range;
  bool executable = false;
};

enum class SymbolSource : uint8_t { kSymtab, kDynsym, kDebugFile };

struct Symbol {      // functions only (STT_FUNC, STT_GNU_IFUNC), defined ones
  LinkRange range;   // may be empty when the size is not given
  std::string name;  // demangled on request by `demangle`
  SymbolSource source = SymbolSource::kSymtab;
  bool global = false;  // not local to its source file
};

// A stretch of code, and where an exception arrives that leaves a call in it.
struct CallSite {
  LinkRange covered;
  LinkAddr landing_pad;
  LinkRange procedure;  // as .eh_frame has it
};

struct ExceptionTables {
  std::vector<CallSite> call_sites;  // those with a landing pad, sorted by `covered.begin`
  bool complete = true;              // every table was read to its end
};

struct SourceLine {
  std::string file;
  int line = 0;
};

struct Dependencies;  // dependencies.h

enum class FileType : uint8_t { kExecutable, kShared };  // ET_EXEC, ET_DYN

class Image {
 public:
  // Reads and checks the file.  Errors: not found / not readable, not ELF, truncated, 32-bit,
  // foreign architecture, no loadable segments, tables out of bounds; one line each, naming the
  // path.  Symbols and lines are read on first use, so opening is quick (large libraries cost
  // milliseconds at most).
  static Result<std::shared_ptr<Image>> open(const std::string& path);
  // The same from bytes in memory (the vdso). `name` stands for the path.
  static Result<std::shared_ptr<Image>> from_bytes(const std::string& name,
                                                   std::vector<uint8_t> bytes);
  // An image that knows nothing: for code that never was a file.
  static std::shared_ptr<Image> without_file(const std::string& name);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::string& path() const;
  const std::string& build_id() const;  // lower-case hex, empty when there is none
  FileType type() const;
  LinkAddr entry() const;
  const std::optional<std::string>& interpreter() const;  // PT_INTERP
  Dependencies dependencies() const;                      // what the loader is to load with it
  const std::vector<Segment>& segments() const;
  // What the loader makes read-only once it has relocated the file; empty if there is none.
  LinkRange relro() const;
  const std::vector<Section>& sections() const;  // allocated ones; empty if stripped of headers
  // The section of stubs for calls to other modules (.plt, .plt.sec, .plt.got) that the address
  // lies in; nullptr if in none.
  const Section* linkage_table_at(LinkAddr address) const;

  // Bytes of the file that are mapped at `address`, at most up to the end of that segment's file
  // part; empty when the address is in no segment.
  std::span<const uint8_t> bytes_at(LinkAddr address) const;

  // The same where the segment is not writable; empty in one that is.
  std::span<const uint8_t> constant_at(LinkAddr address) const;

  // The code has been read and will not be again soon: frees the memory of the file's pages.
  void drop_pages() const;

  // Ranges that .eh_frame describes, sorted by begin, overlaps and nonsense dropped.  Read on
  // first call from .eh_frame itself (not only .eh_frame_hdr: ends are needed).
  const std::vector<LinkRange>& unwind_ranges() const;
  // The range that contains `address`.
  std::optional<LinkRange> unwind_range_at(LinkAddr address) const;

  // Where exceptions land (exception_table.h), for all procedures that .eh_frame has a table of.
  const ExceptionTables& exception_tables() const;

  // Function symbols sorted by address (then by preference: sized, global, shortest name).
  const std::vector<Symbol>& symbols() const;
  // The symbol whose range contains `address`, else (size 0) starts exactly there; nullptr if none.
  const Symbol* symbol_at(LinkAddr address) const;
  const Symbol* symbol_named(std::string_view name) const;

  // Source line from .debug_line of the file or of its separate debug file.
  std::optional<SourceLine> line_at(LinkAddr address) const;

  // Path of the separate debug file in use, if one was found.
  std::optional<std::string> debug_file() const;

  // elfutils handle for .eh_frame CFI, for `unwind`; nullptr when there is no CFI.  The type is
  // Dwarf_CFI*, kept opaque so that only this room includes elfutils.
  void* cfi() const;

 private:
  Image();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// C++ and Rust names for people; returns the input when it is not mangled.
std::string demangle(const std::string& name);

}  // namespace tally::elf

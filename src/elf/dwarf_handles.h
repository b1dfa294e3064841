// Ownership of elfutils' handles, and the two tables read through them: call frame information and
// source lines.
//
// elfutils works here on bytes that Layout has already checked, through elf_memory, so the vdso
// works like any other module.  It gets a writable copy of its own, since libelf changes section
// headers in place when it decompresses a section.  Only this room includes elfutils.
//
// Limits: elfutils caches inside its handles without locking.  LineTable locks for itself; users of
// Cfi must not share a handle between threads without a lock of their own.
#pragma once

#include <elfutils/libdw.h>
#include <libelf.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/address.h"
#include "elf/file_bytes.h"
#include "elf/image.h"

namespace tally::elf {

struct ElfCloser {
  void operator()(Elf* elf) const { elf_end(elf); }
};
struct DwarfCloser {
  void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
};
struct EhFrameCfiCloser {
  void operator()(Dwarf_CFI* cfi) const { dwarf_cfi_end(cfi); }
};
using ElfHandle = std::unique_ptr<Elf, ElfCloser>;
using DwarfHandle = std::unique_ptr<Dwarf, DwarfCloser>;

class Cfi {
 public:
  // .eh_frame; if there is none, .debug_frame (Go's linker writes only that one).
  explicit Cfi(const FileBytes& file);
  Dwarf_CFI* handle() const { return eh_frame_ ? eh_frame_.get() : debug_frame_; }

 private:
  // Declared in the order of dependence: the last is destroyed first.
  FileBytes bytes_;
  ElfHandle elf_;
  DwarfHandle dwarf_;
  std::unique_ptr<Dwarf_CFI, EhFrameCfiCloser> eh_frame_;
  Dwarf_CFI* debug_frame_ = nullptr;  // belongs to dwarf_
};

class LineTable {
 public:
  explicit LineTable(const FileBytes& file);
  std::optional<SourceLine> at(LinkAddr address);

 private:
  // Units say which addresses they cover; their line programs are run only when asked for.
  struct UnitRange {
    LinkRange range;
    Dwarf_Off unit = 0;  // offset of the unit's DIE
  };

  void add_unit(Dwarf_Die* unit);

  std::mutex mutex_;
  FileBytes bytes_;
  ElfHandle elf_;
  DwarfHandle dwarf_;
  std::vector<UnitRange> units_;  // sorted by begin
};

}  // namespace tally::elf

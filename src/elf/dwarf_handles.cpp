// Opening elfutils' handles, and looking up lines.
//
// dwarf_addrdie would need .debug_aranges, which clang does not write; so the ranges of all units
// are collected once from their DIEs.  That touches one DIE per unit, not the units' contents.
#include "elf/dwarf_handles.h"

#include <algorithm>

namespace tally::elf {

namespace {

// nullptr when libelf refuses the bytes, which must outlive the handle.
ElfHandle open_elf(FileBytes& bytes) {
  static const bool version_known = elf_version(EV_CURRENT) != EV_NONE;
  const size_t size_bytes = bytes.span().size();
  if (!version_known || size_bytes == 0) return nullptr;
  return ElfHandle(elf_memory(reinterpret_cast<char*>(bytes.writable_data()), size_bytes));
}

}  // namespace

Cfi::Cfi(const FileBytes& file) : bytes_(file.writable_copy()), elf_(open_elf(bytes_)) {
  if (elf_ == nullptr) return;
  eh_frame_.reset(dwarf_getcfi_elf(elf_.get()));
  if (eh_frame_ != nullptr) return;
  dwarf_.reset(dwarf_begin_elf(elf_.get(), DWARF_C_READ, nullptr));
  if (dwarf_ != nullptr) debug_frame_ = dwarf_getcfi(dwarf_.get());
}

LineTable::LineTable(const FileBytes& file) : bytes_(file.writable_copy()), elf_(open_elf(bytes_)) {
  if (elf_ == nullptr) return;
  dwarf_.reset(dwarf_begin_elf(elf_.get(), DWARF_C_READ, nullptr));
  if (dwarf_ == nullptr) return;
  Dwarf_CU* unit = nullptr;
  Dwarf_Die die = {};
  while (dwarf_get_units(dwarf_.get(), unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
    add_unit(&die);
  }
  std::ranges::sort(units_, {}, [](const UnitRange& u) { return u.range.begin; });
}

void LineTable::add_unit(Dwarf_Die* unit) {
  Dwarf_Addr base = 0;
  Dwarf_Addr begin = 0;
  Dwarf_Addr end = 0;
  // Procedures that the linker dropped leave ranges at address zero.
  for (ptrdiff_t next = dwarf_ranges(unit, 0, &base, &begin, &end); next > 0;
       next = dwarf_ranges(unit, next, &base, &begin, &end)) {
    if (begin == 0 || begin >= end) continue;
    units_.push_back({{LinkAddr(begin), LinkAddr(end)}, dwarf_dieoffset(unit)});
  }
}

std::optional<SourceLine> LineTable::at(LinkAddr address) {
  const std::lock_guard lock(mutex_);
  const auto next = std::ranges::upper_bound(units_, address, {},
                                             [](const UnitRange& u) { return u.range.begin; });
  if (next == units_.begin() || !std::prev(next)->range.contains(address)) return std::nullopt;
  Dwarf_Die unit = {};
  if (dwarf_offdie(dwarf_.get(), std::prev(next)->unit, &unit) == nullptr) return std::nullopt;
  Dwarf_Line* line = dwarf_getsrc_die(&unit, address.value());
  if (line == nullptr) return std::nullopt;
  int number = 0;
  const char* file = dwarf_linesrc(line, nullptr, nullptr);
  // Line 0 means "no line of the source": code the compiler made up.
  if (file == nullptr || dwarf_lineno(line, &number) != 0 || number <= 0) return std::nullopt;
  return SourceLine{file, number};
}

}  // namespace tally::elf

// What a stub of a linkage table calls, by name; see truth.h.
//
// The first call through a stub goes by way of ld.so (lazy binding), so that no edge leads from the
// stub to what was called; where a program calls but once, names have to come from the file:
//
//     stub:  jmp *slot  ->  the relocation of that slot (.rela.plt, .rela.dyn)  ->  its symbol
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "isa/insn.h"
#include "verify/truth.h"

namespace tally::verify {
namespace {

const elf::Section* section_named(const elf::Image& image, std::string_view name) {
  for (const elf::Section& section : image.sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

template <class Record>
bool read_record(const elf::Image& image, LinkAddr at, Record& record) {
  const auto bytes = image.bytes_at(at);
  if (bytes.size() < sizeof record) return false;
  std::memcpy(&record, bytes.data(), sizeof record);
  return true;
}

std::string symbol_of(const elf::Image& image, uint64_t index) {
  const elf::Section* symbols = section_named(image, ".dynsym");
  const elf::Section* names = section_named(image, ".dynstr");
  Elf64_Sym symbol{};
  if (symbols == nullptr || names == nullptr ||
      !read_record(image, symbols->range.begin + index * sizeof symbol, symbol)) {
    return {};
  }
  const auto bytes = image.bytes_at(names->range.begin + symbol.st_name);
  const auto end = std::find(bytes.begin(), bytes.end(), uint8_t{0});
  return end == bytes.end() ? std::string() : std::string(bytes.begin(), end);
}

}  // namespace

std::string called_by_stub(const elf::Image& image, LinkAddr stub) {
  if (image.linkage_table_at(stub) == nullptr) return {};
  const auto slot = isa::pointer_of_stub(image.bytes_at(stub), stub.value());
  if (!slot) return {};
  for (const char* name : {".rela.plt", ".rela.dyn"}) {
    const elf::Section* table = section_named(image, name);
    if (table == nullptr) continue;
    Elf64_Rela entry{};
    for (LinkAddr at = table->range.begin; at < table->range.end; at = at + sizeof entry) {
      if (!read_record(image, at, entry)) break;
      if (entry.r_offset == *slot) return symbol_of(image, ELF64_R_SYM(entry.r_info));
    }
  }
  return {};
}

}  // namespace tally::verify

// Function symbols of a file, from .symtab and .dynsym, and their lookup by address and by name.
//
// Symbol tables overlap themselves: aliases share an address, .dynsym repeats .symtab, assembly
// nests functions.  Lookup by address must still be quick and have one answer, so the overlaps are
// resolved once, by a sweep over all begins and ends, into disjoint stretches with one owner each:
// the symbol that begins last and, among aliases, the preferred one.
//
//   outer  |--------------------|          stretches: outer, inner, outer
//   inner         |------|
//
// Not handled: symbols of type NOTYPE (labels in assembly), and the compressed .gnu_debugdata.
#pragma once

#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "elf/image.h"
#include "elf/layout.h"

namespace tally::elf {

class SymbolTable {
 public:
  // `debug` is the separate debug file's layout, nullptr if there is none.  Symbols must lie in
  // executable segments of `program`; a size that leads out of the segment counts as not given.
  SymbolTable(const Layout& program, const Layout* debug);
  SymbolTable(const SymbolTable&) = delete;  // the maps point into symbols_
  SymbolTable& operator=(const SymbolTable&) = delete;

  const std::vector<Symbol>& symbols() const { return symbols_; }
  const Symbol* at(LinkAddr address) const;
  const Symbol* named(std::string_view name) const;

 private:
  struct Stretch {
    LinkRange range;
    size_t symbol = 0;
  };

  void index_names() const;
  void build_stretches();
  void add_stretch(LinkAddr begin, LinkAddr end, size_t symbol);

  std::vector<Symbol> symbols_;
  std::vector<Stretch> stretches_;  // sorted, disjoint
  // Few ask by name: made when the first one does.
  mutable std::once_flag names_once_;
  mutable std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace tally::elf

// From a name in a profile to the program's symbol; private to this room.
//
// Problem.  Names of functions are unique within a source file only: bzip2 has two `myfeof`, of
// which a table by name knows one.  A profile's count of the other is then compared with the wrong
// function, and called wrong.
//
// Idea.  Forms say more than the name: gcov and LLVM the source file, BOLT a number (`name/2`: the
// second local symbol of this name by address).  Where that does not decide, there is no symbol,
// and what the profile says of the name is not compared.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "elf/image.h"

namespace tally::claims {

class SymbolNames {
 public:
  explicit SymbolNames(const elf::Image& image);

  // The only symbol of this name; of several the one whose code comes from `file` (its folders do
  // not matter); nullptr when that is none or more than one.
  const elf::Symbol* of_file(std::string_view name, std::string_view file) const;
  const elf::Symbol* only(std::string_view name) const { return of_file(name, ""); }
  // As BOLT names it: "main", "cmp/2", "cmp/t.c/1".
  const elf::Symbol* of_bolt(const std::string& name) const;

 private:
  std::vector<const elf::Symbol*> all(std::string_view name) const;
  bool is_from(const elf::Symbol& symbol, std::string_view file) const;

  const elf::Image& image_;
  std::unordered_multimap<std::string_view, const elf::Symbol*> by_name_;
};

}  // namespace tally::claims

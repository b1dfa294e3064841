// The bytes behind a claim: which module, is it code, which instruction.
//
// Images are opened once and only used when they are the build that the profile is of; a module
// without bytes (generated code, a file that is gone) makes no findings, only a note.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "claims/claims.h"
#include "elf/image.h"
#include "isa/insn.h"

namespace tally::claims {

struct PlaceHash {
  size_t operator()(const Place& place) const {
    return std::hash<LinkAddr>()(place.address) ^ (size_t{place.module} << 48);
  }
};
template <class Value>
using PlaceMap = std::unordered_map<Place, Value, PlaceHash>;

enum class Bytes : uint8_t {
  kUnknown,  // no file to look at
  kCode,
  kOutside,        // in no segment
  kData,           // in a segment that is not executable
  kPadding,        // executable, but in no section of code
  kNoInstruction,  // does not decode
};

class Code {
 public:
  explicit Code(const Claims& claims);

  const elf::Image* image(uint32_t module) const;  // nullptr: no bytes
  Bytes kind_of(const Place& place);
  // size 0 when there is none.
  isa::Insn insn_at(const Place& place);
  // "deflate+0x1c", "gzip+0x4a10".
  std::string name_of(const Place& place) const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Module {
    std::shared_ptr<elf::Image> image;
    std::vector<LinkRange> sections;  // executable, sorted
  };
  const Claims& claims_;
  std::vector<Module> modules_;
  std::vector<std::string> notes_;
  PlaceMap<isa::Insn> decoded_;
};

}  // namespace tally::claims

// Names for addresses: procedures, modules, source lines.
//
// Names come from the profile first, then from the module's file, if the file at the recorded path
// is still the one that ran.  Same means: same build-id; without a build-id, same size.  A file
// that differs is never used, and `complaints` says so.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "elf/image.h"
#include "profile/model.h"

namespace tally::report {

class Symbols {
 public:
  // `profile` is valid and outlives this.
  explicit Symbols(const profile::Profile& profile);

  // The file of the module, opened on first use; the error says why there is none, in one line.
  const Result<std::shared_ptr<elf::Image>>& image(uint32_t module);

  // "gzip"; the whole path when another module's file has the same name.
  const std::string& module_name(uint32_t module) const { return module_names_[module]; }

  // Demangled name; "gzip+0x4a10" when it has none.
  std::string procedure_name(const profile::Procedure& procedure);
  // The name as it is in the symbol table; empty when there is none.
  std::string raw_name(const profile::Procedure& procedure);
  // "gzip+0x4a10".
  std::string address_name(uint32_t module, LinkAddr address) const;
  // "deflate.c:381"; empty when unknown.
  std::string source_line(uint32_t module, LinkAddr address);

  // Why names or lines are missing, one line per module that was asked for and not available.
  std::vector<std::string> complaints() const;

 private:
  const profile::Profile& profile_;
  std::vector<std::string> module_names_;
  std::vector<std::optional<Result<std::shared_ptr<elf::Image>>>> images_;
};

}  // namespace tally::report

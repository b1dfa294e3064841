// From what a person types to a place in the profile.
//
// Accepted: `0x4a10` or `4a10` (the module's own ELF address), `gzip+0x4a10` (module and address,
// as the reports print it), `deflate` (symbol, mangled or not) and `deflate+0x1c`.  Symbols win
// over hexadecimal, so that a function called `add` can be asked for.  When several modules fit,
// the main program is meant if the text is an address; a symbol must be made unique with --module.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "profile/flow_index.h"
#include "profile/model.h"
#include "report/symbols.h"

namespace tally::report {

struct Place {
  uint32_t module = 0;
  LinkAddr address;
  bool operator==(const Place&) const = default;
};

// `module_filter` is empty, a module's path, or the last part of it.
Result<Place> locate(const profile::Profile& profile, Symbols& symbols, const std::string& text,
                     const std::string& module_filter);

// Blocks of the module whose bytes include the address, by id.
std::vector<uint32_t> blocks_at(const profile::Profile& profile, Place place);

}  // namespace tally::report

// See own_profile.h.
#include "verify/own_profile.h"

#include "profile/file.h"

namespace tally::verify {

Result<std::vector<Correction>> corrections_of(const std::string& path,
                                               std::optional<uint32_t> run) {
  std::vector<Correction> corrections;
  TRY_ASSIGN(profile::Reader reader, profile::Reader::open(path));
  for (size_t i = 0; i < reader.runs().size(); ++i) {
    if (run && reader.runs()[i].number != *run) continue;
    TRY_ASSIGN(const profile::Profile profile, reader.read(i));
    for (const profile::Block& b : profile.blocks) {
      Correction c;
      for (const profile::PartialRun& p : b.partial) {
        if (p.first_instruction == 0) c.first_instruction += p.delta;
        if (p.last_instruction == b.instruction_sizes.size()) c.last_instruction += p.delta;
      }
      if (c.first_instruction == 0 && c.last_instruction == 0) continue;
      const profile::Procedure& procedure = profile.procedures[b.procedure_id];
      c.module = profile.modules[procedure.module_id].path;
      c.block = b.address;
      corrections.push_back(std::move(c));
    }
  }
  return corrections;
}

}  // namespace tally::verify

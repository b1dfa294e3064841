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
      int64_t delta = 0;
      for (const profile::PartialRun& p : b.partial) {
        if (p.first_instruction == 0) delta += p.delta;
      }
      if (delta == 0) continue;
      const profile::Procedure& procedure = profile.procedures[b.procedure_id];
      corrections.push_back({profile.modules[procedure.module_id].path, b.address, delta});
    }
  }
  return corrections;
}

}  // namespace tally::verify

// How much of each module's code a profile speaks of, in bytes of its executable sections.
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

struct Stretch {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Bytes in the union of the stretches that lie in one of the sections.
uint64_t union_bytes(std::vector<Stretch>& stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  uint64_t sum = 0;
  uint64_t covered_to = 0;
  for (const Stretch& stretch : stretches) {
    const uint64_t begin = std::max(stretch.begin, covered_to);
    if (stretch.end <= begin) continue;
    sum += stretch.end - begin;
    covered_to = stretch.end;
  }
  return sum;
}

class Meter {
 public:
  explicit Meter(Inspection& inspection)
      : inspection_(inspection),
        known_(inspection.claims.modules.size()),
        executed_(inspection.claims.modules.size()) {}

  void run() {
    const Claims& claims = inspection_.claims;
    for (const BlockClaim& block : claims.blocks) {
      add(block.begin, block.size_bytes, block.count > 0);
    }
    for (const InstructionClaim& claim : claims.instructions) {
      add(claim.at, inspection_.code.insn_at(claim.at).size, claim.count > 0);
    }
    if (claims.blocks.empty() && claims.instructions.empty()) {
      for (const auto& [place, node] : inspection_.nodes) {
        add(place, node.size_bytes, node.in > 0 || node.out > 0);
      }
    }
    for (uint32_t module = 0; module < claims.modules.size(); ++module) measure(module);
  }

 private:
  void add(const Place& place, uint64_t size_bytes, bool executed) {
    const uint64_t begin = place.address.value();
    if (place.module >= known_.size() || begin + size_bytes < begin) return;
    known_[place.module].push_back({begin, begin + size_bytes});
    if (executed) executed_[place.module].push_back({begin, begin + size_bytes});
  }

  void measure(uint32_t module) {
    const elf::Image* image = inspection_.code.image(module);
    if (image == nullptr) return;
    Known known{.module = module};
    for (const elf::Section& section : image->sections()) {
      if (section.executable) known.code_bytes += section.range.size_bytes();
    }
    if (image->sections().empty()) {
      for (const elf::Segment& segment : image->segments()) {
        if (segment.executable) known.code_bytes += segment.file_size_bytes;
      }
    }
    known.known_bytes = union_bytes(known_[module]);
    known.executed_bytes = union_bytes(executed_[module]);
    inspection_.report.known.push_back(known);
  }

  Inspection& inspection_;
  std::vector<std::vector<Stretch>> known_;
  std::vector<std::vector<Stretch>> executed_;
};

}  // namespace

void measure_known(Inspection& inspection) {
  Meter(inspection).run();
}

}  // namespace tally::claims

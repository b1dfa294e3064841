// See interruptions.h.
#include "verify/interruptions.h"

#include <fmt/format.h>

namespace tally::verify {
namespace {

constexpr const char* kAtATime = "a signal that comes at a time of its own";

bool is_way_into(const Finding& f) {
  return f.role != EdgeRole::kCallReturn && f.role != EdgeRole::kFallthrough && !f.to.empty();
}

}  // namespace

Interruptions::Interruptions(const Truth& truth, const Judgement& judgement) : truth_(truth) {
  mark_handlers();
  mark_called(judgement);
  mark_executed();
}

void Interruptions::mark_handlers() {
  for (const auto& [path, module] : truth_.modules) {
    for (const auto& [address, what] : module.signal_places) {
      const bool sent = what == SignalPlace::kSentThere;
      const Procedure procedure = procedure_at(truth_, path, LinkAddr(address));
      std::string words =
          (sent ? "began where a handler led of " : "is a handler of ") + std::string(kAtATime);
      if (!truth_.knows_interruptions) {
        words = std::string(sent ? "began where a signal's handler led" : "is a signal's handler") +
                ", and what sent the signal is not known";
      }
      marks_.try_emplace(procedure, Mark{.why = words, .any_count = sent});
    }
  }
}

// Follows differences: a call that the profile has more often, of a procedure that is marked.
void Interruptions::mark_called(const Judgement& judgement) {
  for (bool more = true; more;) {
    more = false;
    for (const Finding& f : judgement.findings) {
      if (!is_way_into(f)) continue;
      const auto from = marks_.find(procedure_at(truth_, f.module, f.address));
      const Procedure called = procedure_at(truth_, f.to_module, f.to_address);
      if (from == marks_.end() || called.second != f.to_address.value()) continue;
      if (!from->second.any_count && f.claimed < f.counted) continue;
      const std::string words =
          fmt::format("is called by {}, which {}", name_of(truth_, from->first), from->second.why);
      const Mark mark{.why = words, .any_count = from->second.any_count};
      more = marks_.try_emplace(called, mark).second || more;
    }
  }
}

void Interruptions::mark_executed() {
  for (const auto& [path, module] : truth_.modules) {
    for (const auto& [address, count] : module.interrupting) {
      const std::string words = fmt::format("was executed by the handler of {}", kAtATime);
      marks_.try_emplace(procedure_at(truth_, path, LinkAddr(address)), Mark{.why = words});
    }
  }
}

std::string Interruptions::why(const Finding& finding) const {
  const auto found = marks_.find(procedure_at(truth_, finding.module, finding.address));
  if (found == marks_.end()) return {};
  const TruthModule* module = truth_.module(finding.module);
  if (module != nullptr && truth_.knows_interruptions && !found->second.any_count) {
    const auto within = module->interrupting.find(finding.address.value());
    const uint64_t most = within == module->interrupting.end() ? 0 : within->second;
    if (finding.claimed < finding.counted && finding.counted - finding.claimed > most) return {};
  }
  return fmt::format("{} {}", name_of(truth_, found->first), found->second.why);
}

}  // namespace tally::verify

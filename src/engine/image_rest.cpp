// Procedures are translated again while several threads stand still.  See renewal.h.
#include "engine/image_run.h"

#include <algorithm>

namespace tally::engine {

ImageRun::Rest ImageRun::look_at_rest(const std::set<pid_t>& stopped) const {
  Rest rest;
  // If nobody has one, the process is ending: the calls on stacks that were left (left_stacks.h)
  // are still to be closed in the units that made them.
  rest.is_in_vain =
      std::ranges::none_of(threads_, [](const auto& thread) { return !!thread.second.slot; });
  for (const auto& [tid, thread] : threads_) {
    // One without a slot has executed its last instruction.
    if (!thread.slot || stopped.contains(tid) || service_.is_held_back(*thread.slot)) continue;
    rest.is_complete = false;
    if (service_.posted_request(*thread.slot)) continue;  // it runs on when it has its answer
    const tracee::Doing doing = tracee::doing(tid);
    if (doing == tracee::Doing::kWaits) rest.to_stop.push_back(tid);
    rest.is_in_vain |= doing == tracee::Doing::kWaitsOtherwise;
  }
  return rest;
}

Result<ImageRun::AtRest> ImageRun::renew_at_rest(const std::set<pid_t>& asked) {
  const PhaseTimer timer(phases_, Phase::kStop);
  std::vector<Renewals::Standing> standing;
  AtRest result;
  std::optional<uint32_t> giver;
  for (const auto& [tid, thread] : threads_) {
    if (!thread.slot) continue;
    const uint32_t slot = *thread.slot;
    // What is open on its stack is on the ledger already.
    if (service_.is_closed_ahead(slot) || service_.has_left(slot)) return AtRest();
    std::optional<std::vector<BlockRef>> open;
    std::optional<uint32_t> inside;
    const bool is_held_back = service_.is_held_back(slot);
    if (is_held_back) {
      open = service_.open_calls_of_held(slot);
      // One that is about to be stopped could not.
      if (!giver && !asked.contains(tid)) {
        giver = slot;
        result.giver = tid;
      }
    } else {
      TRY_ASSIGN(const Signals::Outside at, signals_.bring_to_rest(tid, slot));
      if (at.other) return AtRest{at.other, std::nullopt};
      if (!at.ready) return AtRest();
      open = ledger_.open_calls_at(at.position, at.original, slot);
      if (at.position.kind == Position::Kind::kInBlock) inside = at.position.ref.unit;
    }
    if (!open) return AtRest();
    standing.push_back({slot, std::move(*open), inside, is_held_back});
  }
  service_.at_rest(standing, giver);
  if (!service_.gives_back()) result.giver.reset();
  return result;
}

}  // namespace tally::engine

// Procedures are translated again while several threads stand still.  See renewal.h.
#include "engine/image_run.h"

namespace tally::engine {

using tracee::Event;
using translate::Request;

// The unit that a thread will still execute something of, or is about to leave by a way of which
// the unit's equations know nothing yet.
std::optional<uint32_t> ImageRun::unit_around(uint32_t slot, const Position& position) const {
  if (position.kind == Position::Kind::kInBlock) return position.ref.unit;
  if (const std::optional<uint32_t> branch = service_.asking_branch(slot)) return branch;
  return std::nullopt;
}

Result<std::optional<Event>> ImageRun::renew_at_rest() {
  const PhaseTimer timer(phases_, Phase::kStop);
  std::vector<Renewals::Standing> standing;
  for (const auto& [tid, thread] : threads_) {
    if (!thread.slot || thread.own_process) return std::optional<Event>();
    const uint32_t slot = *thread.slot;
    // What is open on its stack is on the ledger already.
    if (service_.is_closed_ahead(slot) || service_.has_left(slot)) return std::optional<Event>();
    TRY_ASSIGN(const Signals::Outside at, signals_.bring_to_rest(tid, slot));
    if (at.other) return at.other;
    if (!at.ready) return std::optional<Event>();
    auto open = ledger_.open_calls_at(at.position, at.original, slot);
    if (!open) return std::optional<Event>();
    standing.push_back({slot, std::move(*open), unit_around(slot, at.position)});
  }
  service_.at_rest(standing);
  return std::optional<Event>();
}

}  // namespace tally::engine

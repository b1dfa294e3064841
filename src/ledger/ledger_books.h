// What the ledger of abnormal flow (ledger.h) says when all is booked: what a profile's equations
// need beside the counters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/translated.h"
#include "profile/model.h"

namespace tally::engine {

struct LedgerTerm {
  uint64_t entered = 0;
  uint64_t left = 0;
  std::string detail;
};

class LedgerBooks {
 public:
  // Unit, block, kind, and the block's instruction at which flow appears or in front of which it
  // vanishes (their number: at the end).
  using TermKey = std::tuple<uint32_t, uint32_t, profile::AbnormalKind, uint32_t>;
  const std::map<TermKey, LedgerTerm>& terms() const { return terms_; }
  using PartialKey =
      std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // unit, block, first, last
  const std::map<PartialKey, int64_t>& partials() const { return partials_; }
  // Flow that went over from a block of changed code to the unit that replaced it, by (block with
  // the instruction that was next, where it went on).
  using MoveKey = std::pair<BlockRef, BlockRef>;
  const std::map<MoveKey, uint64_t>& moves() const { return moves_; }
  // Blocks that were entered, but whose counter did not run: by (unit, block).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& uncounted() const { return uncounted_; }
  // Edges whose counter ran more often than control took the edge: by (unit, edge).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& overcounted() const {
    return overcounted_;
  }
  // Direct calls whose thread died before the callee began: by (unit, block).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& unarrived() const { return unarrived_; }
  // Calls that were open when their procedure was translated again, by (unit, block that calls).
  struct HandedOver {
    uint64_t from = 0;  // made by this unit, to be come back to in the next
    uint64_t to = 0;    // the other way round
  };
  const std::map<std::pair<uint32_t, uint32_t>, HandedOver>& handed_over() const {
    return handed_over_;
  }
  const std::vector<profile::Issue>& issues() const { return issues_; }
  // Arrivals that are threads found at the attach, by the block and instruction they stood at.
  const std::map<BlockRef, uint64_t>& attached() const { return attached_; }
  // Arrivals by the `rt_sigreturn` of a handler that had changed where its thread goes on.
  const std::map<BlockRef, uint64_t>& sent_by_handlers() const { return sent_by_handlers_; }

 protected:
  std::map<BlockRef, uint64_t> attached_;
  std::map<BlockRef, uint64_t> sent_by_handlers_;
  std::map<TermKey, LedgerTerm> terms_;
  std::map<PartialKey, int64_t> partials_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> uncounted_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> overcounted_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> unarrived_;
  std::map<std::pair<uint32_t, uint32_t>, HandedOver> handed_over_;
  std::map<MoveKey, uint64_t> moves_;
  std::vector<profile::Issue> issues_;
};

}  // namespace tally::engine

// What flows through one unit: its graph, and all that was measured of it.
//
// Problem.  A unit's counters alone do not balance: control also comes in and goes out by ways that
// only showed at run time, and by those that are on the ledger of abnormal flow.
//
// Idea.  The static graph is built again, and what was seen at run time is added as measured edges:
// the pairs of its indirect jumps, arrivals from elsewhere.  The ledger's terms make it balance.
//
//   block --pair counted 5--> block     an indirect jump within the unit
//   block --pair counted 2--> EXIT      ... out of it
//   EXIT  --arrival, 3------> block     control that came to the middle of it
//
// Both the profile at the end of a run (finish.cpp) and the weights of a procedure that is
// translated again while the program runs (engine/renewal.h) are solved from that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cache/translated.h"
#include "ledger/ledger_books.h"
#include "placement/placement.h"

namespace tally::engine {

struct UnitEquations {
  placement::Graph graph;  // the procedure's edges, EXIT -> root, what was seen at run time
  placement::Measured measured;
  std::vector<placement::AbnormalFlow> abnormal;
  std::optional<placement::EdgeId> rest;  // of a jump's pair that is not counted
};

class UnitFlows {
 public:
  // `counters`: the sums over all threads, by counter number.  All three must outlive this.
  UnitFlows(const Translated& translated, const LedgerBooks& ledger,
            std::span<const uint64_t> counters);

  UnitEquations equations_of(const Unit& unit) const;
  // The same where it is known how often control came to the entry from elsewhere.
  UnitEquations equations_of(const Unit& unit, uint64_t entries) const;
  // How often that was so, as far as it has counters: by indirect branches, by arrivals.
  uint64_t entered(const Unit& unit) const { return entered_[unit.id]; }
  // The unit's indirect branches that have led anywhere.
  const std::vector<const SiteState*>& sites_of(const Unit& unit) const {
    return sites_of_[unit.id];
  }
  // How often control began in the middle of a block, by the instruction where it began.
  const std::map<uint32_t, uint64_t>& begun_inside(BlockRef block) const;
  bool is_begun_inside(const Unit& unit) const {
    const auto it = begun_inside_.lower_bound({unit.id, 0});
    return it != begun_inside_.end() && it->first.first == unit.id;
  }
  // Calls that were open when their procedure was translated again, and that this unit's block was
  // given for it.
  uint64_t handed_to(BlockRef block) const;

 private:
  struct Inflow {
    uint32_t block;
    uint64_t count;
  };
  uint64_t counter(uint32_t index) const;
  // Of a plan; nothing, if it is unnumbered.
  uint64_t planned(int32_t counter) const;
  void flow_into(BlockRef to, uint64_t count, bool measured_elsewhere);
  void make_graph_of(const Unit& unit, UnitEquations& equations) const;
  uint64_t times_counted(const Unit& unit, uint32_t block) const;

  const Translated& translated_;
  const LedgerBooks& ledger_;
  std::span<const uint64_t> counters_;
  std::vector<std::vector<Inflow>> inflow_;              // by unit
  std::vector<uint64_t> entered_;                        // by unit
  std::vector<std::vector<const SiteState*>> sites_of_;  // by unit
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, uint64_t>> begun_inside_;
};

}  // namespace tally::engine

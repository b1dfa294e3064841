// What has been translated, as far as counts are concerned: what a profile is made from.
//
// Units with their graphs and counters, and the ways into them that only showed at run time, each
// with a counter of its own.  The code cache (code_cache.h) adds to it while the program runs;
// after the run, the profile is solved from it (finish.h), and it says what each counter stands for
// (instruction_weights.h).  When the monitor was killed, it is read back from a file (recover.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/modules.h"
#include "cache/plan.h"
#include "profile/model.h"
#include "translate/unit.h"

namespace tally::engine {

struct BlockRef {
  uint32_t unit = UINT32_MAX;
  uint32_t block = 0;
  uint32_t insn = 0;  // control came to this instruction of the block, not to its start
  bool valid() const { return unit != UINT32_MAX; }
  auto operator<=>(const BlockRef&) const = default;
};

// How control came to an address; it decides what the address is taken for.
enum class Arrival : uint8_t { kCall, kJump, kReturn };

struct Unit {
  uint32_t id = 0;
  Module* module = nullptr;
  Area* area = nullptr;  // holds it, and the pieces that lead from it and into it
  translate::Lies lies = translate::Lies::kAmongOthers;  // where in it
  cfg::Procedure procedure;                              // without its instructions
  SharedVector<uint8_t> insn_sizes;                      // by instruction
  translate::Plan plan;
  translate::UnitCode code;
  profile::Provenance provenance = profile::Provenance::kFlow;
  uint32_t first_link = 0, first_site = 0, first_syscall = 0, first_block = 0, first_edge = 0;
  uint32_t first_check = 0;
  // See generated.h.
  bool replaceable = false;  // the program may replace this code
  bool open_calls = false;   // its calls have a second way out (cfg::DiscoverRequest)
  bool checked = false;      // ... at any time: it compares its own bytes
  bool dead = false;         // the code is not there any more, or another unit stands for it
  // Of one procedure, translated again while the program runs (engine/renewal.h).
  std::optional<uint32_t> renews;      // the unit before this one
  std::optional<uint32_t> renewed_by;  // the unit after it
  bool is_nobodys = false;             // ... to which all ways lead (compact.cpp)
  std::vector<uint8_t> source;         // replaceable: the bytes it was made from, from ...
  uint32_t source_offset = 0;          // ... this distance from the procedure's base on

  CacheAddr label(uint32_t block) const {
    CHECK(code.blocks[block].exists()) << "a block that was left out";
    return code.address(code.blocks[block].label);
  }
  // Where control enters that is to begin with instruction `ref.insn`.
  CacheAddr entry_of(const BlockRef& ref) const {
    const CacheAddr begin = label(ref.block);
    if (ref.insn == 0) return begin;
    return code.address(code.offset_of_insn(ref.block, ref.insn));
  }
  uint8_t flags_live_at(const BlockRef& ref) const {
    if (ref.insn != 0 || checked) return isa::flag::kAll;
    return procedure.blocks[ref.block].flags_live_in;
  }
  // See recall.h.
  LinkAddr asked;  // translation was asked for here ...
  Arrival asked_how = Arrival::kCall;
  bool recalled = false;            // ... by an earlier run
  bool weighed = false;             // its counters lie by measured weights
  bool for_now = false;             // ... of which too few were known to go by them for good
  uint32_t ran_bytes = 0;           // ... of its code that had run by then, for all that is known
  bool confirmed = false;           // see edge_weights.h
  uint32_t rank = 0;                // see left_to_callers
  bool counts_branches = false;     // branches to its entry have counters: another's did not
  std::vector<uint8_t> idle_edges;  // until it has been emitted: that never ran in one
  std::vector<uint32_t> led_from;   // until then: see ExpectedCounts
  // That have run often, and hardly ever, in an earlier run (counter_numbers.h); empty: none has.
  std::vector<bool> busiest_blocks, busy_blocks, seldom_blocks;

  // Whether its callers say how often it was entered: those of a lower rank (entry_callers.h).
  bool left_to_callers() const { return rank != 0; }
  // Where its direct branches lead, those that call and those that leave it.
  template <class Do>
  void for_each_branch_out(Do action) const {
    for (const cfg::Edge& edge : procedure.edges) {
      if (edge.kind == cfg::EdgeKind::kLeave) action(edge.target);
    }
    for (const translate::Link& link : code.links) {
      if (link.edge == translate::Link::kCallLink) action(link.target);
    }
  }
  LinkAddr address_of(uint32_t block) const {
    return procedure.address_of(procedure.blocks[block]);
  }
  // Of the block's instruction `insn`; of its end if it has no more than that.
  LinkAddr address_of(uint32_t block, uint32_t insn) const {
    const cfg::Block& b = procedure.blocks[block];
    uint32_t offset = 0;
    for (uint32_t i = 0; i < insn && i < b.insn_count; ++i) offset += insn_sizes[b.first_insn + i];
    return procedure.address_of(b) + offset;
  }
  LinkAddr end_of(uint32_t block) const { return procedure.end_of(procedure.blocks[block]); }
};

// One entry of a lookup chain.
struct ChainEntry {
  uint64_t original = 0;
  CacheAddr entry;
  CacheAddr mismatch_field;
};
using Chain = std::vector<ChainEntry>;

// A pair (site, target) that has been seen.
struct Pair {
  TargetAddr target;
  BlockRef to;
  uint32_t counter = 0;
  translate::Stub stub;
  bool cut = false;       // the target was unmapped
  bool recalled = false;  // an earlier run has made it
  bool rest = false;      // not counted: what the site's others leave (cache/rest.cpp)
};

// A table of the program's that a site's own index leads through (translate::IndexHead).
struct IndexTable {
  uint32_t table_offset = 0;        // of 256 pointers, in the tables
  CacheAddr fallback;               // where those without a target lead
  std::vector<TargetAddr> targets;  // by index, as far as the program's table could be read
  std::vector<uint32_t> stub_of;    // by pair; kNone if no index leads to its target
  std::vector<translate::IndexedStub> stubs;  // the fallback's the first, if it is one
  uint32_t led = 0;                           // pairs with a stub
  // Where it leads no more, threads may still be in a stub.
  enum class State : uint8_t { kNotYet, kLeads, kNoMore };
  State state = State::kNotYet;
  static constexpr uint32_t kNone = UINT32_MAX;
};

struct SiteState {
  uint32_t unit = 0;
  translate::Site site;
  std::vector<Pair> pairs;
  std::unique_ptr<std::array<Chain, 256>> buckets;  // once there are many pairs
  Chain chain;                                      // before that
  uint32_t table_offset = 0;
  translate::HashKind hash = translate::HashKind::kBits4to11;
  std::unique_ptr<IndexTable> by_index;
  std::optional<uint32_t> rest;  // of `pairs`, the one that is not counted
  bool leads_by_index() const {
    return by_index != nullptr && by_index->state == IndexTable::State::kLeads;
  }
  // What is looked up on the way to its pairs.
  void forget_chains() {
    buckets.reset();
    Chain().swap(chain);
  }
};

// The counted ways into a block for those that come by no branch to it.
struct ArrivalStub {
  BlockRef to;
  uint32_t counter = 0;
  translate::Stub stub;      // for returns
  translate::LinkStub sent;  // for threads that the monitor sends there
};

// A direct branch into or out of replaceable code, or into the middle of a procedure, with the unit
// it led to at the time.
struct LinkPair {
  uint32_t link = 0;
  BlockRef to;
  uint32_t counter = 0;
  translate::LinkStub stub;
};

// That got its number after its unit was made.
struct LateCounter {
  uint32_t unit = 0;
  uint32_t index = 0;  // of the block, or the edge
  translate::EmitRequest::Counts what = translate::EmitRequest::Counts::kBlock;
};

class Translated {
 public:
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  const Unit& unit(uint32_t id) const { return *units_[id]; }
  const std::vector<SiteState>& sites() const { return sites_; }
  // (site, pair) in the order in which they were seen.
  const std::vector<std::pair<uint32_t, uint32_t>>& pair_order() const { return pair_order_; }
  const std::vector<ArrivalStub>& arrivals() const { return arrivals_; }
  const std::vector<LinkPair>& link_pairs() const { return link_pairs_; }
  const std::vector<LateCounter>& late_counters() const { return late_counters_; }
  // All counters have numbers below it; not all of these are counters.
  uint32_t counters_used() const { return next_counter_; }
  TargetAddr address_of(BlockRef ref) const;
  // Whether control that comes to `ref` enters its procedure at its beginning.
  bool is_entry(BlockRef ref) const {
    return ref.insn == 0 && units_[ref.unit]->procedure.entry_block == ref.block;
  }
  // Counters that hold what a register had (inductions.h).
  bool is_induced(size_t counter) const { return counter < induced_.size() && induced_[counter]; }
  const std::unordered_map<uint32_t, int64_t>& induced_steps() const { return induced_steps_; }
  // Gives back most of a unit's memory, once it is on the books.
  void release(uint32_t id);

 protected:
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<SiteState> sites_;
  std::vector<std::pair<uint32_t, uint32_t>> pair_order_;
  std::vector<ArrivalStub> arrivals_;
  std::vector<LinkPair> link_pairs_;
  std::vector<LateCounter> late_counters_;
  uint32_t next_counter_ = 0;
  std::vector<bool> induced_;                            // by counter; as long as need be
  std::unordered_map<uint32_t, int64_t> induced_steps_;  // of those
};

}  // namespace tally::engine

// Programs made up at random, of procedures that call each other and jump to each other, run at
// random: what is solved from their counters must be what ran, and what each counter stands for
// must add up to the instructions that were executed, though most procedures leave it to their
// callers to say how often they were entered.  Runs begin in the middle of procedures, and end
// anywhere.
#include "ledger/left_to_callers.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <span>

#include "cache/entry_callers.h"
#include "cache/plan.h"
#include "ledger/finish.h"
#include "ledger/instruction_weights.h"
#include "profile/checks.h"

namespace {

using namespace tally;
using namespace tally::engine;
using profile::AbnormalKind;
using translate::kNoCounter;

constexpr std::array<uint8_t, isa::kInsnBytesMax> kCode{};
constexpr uint64_t kApart = 0x1000;  // between entries

enum class Recursion : uint8_t { kNo, kYes };
// By ranks that fit, or by any, as a record of another program has them.
enum class Ranks : uint8_t { kChosen, kAny };

// Units that nobody has translated.
class Made : public Translated {
 public:
  Made(std::mt19937& random, uint32_t count, Recursion recursion, Ranks ranks = Ranks::kChosen)
      : random_(random) {
    for (uint32_t i = 0; i < count; ++i) {
      make_procedure(i, recursion == Recursion::kYes ? 0 : i + 1, count);
    }
    if (ranks == Ranks::kChosen) choose();
    for (const auto& unit : units_) {
      if (ranks == Ranks::kAny) unit->rank = below(5);
      cfg::CodeView view;
      view.code_at = [](LinkAddr) { return std::span(kCode); };
      MeasuredWeights measured;
      measured.from_callers = unit->left_to_callers();
      unit->plan = make_plan(unit->procedure, view, PlacementKind::kEdges, measured,
                             [this] { return next_counter_++; });
    }
    for (uint32_t site = 0; site < sites_.size(); ++site) {
      for (uint32_t i = 0; i < sites_[site].pairs.size(); ++i) {
        sites_[site].pairs[i].counter = next_counter_++;
        pair_order_.emplace_back(site, i);
      }
      choose_rest(sites_[site]);
    }
    make_link_pairs();
    for (const auto& unit : units_) {
      ArrivalStub arrival;
      arrival.to = {unit->id, unit->procedure.entry_block, 0};
      arrival.counter = next_counter_++;
      arrivals_.push_back(arrival);
    }
  }
  static uint32_t unit_at(LinkAddr entry) {
    return static_cast<uint32_t>(entry.value() / kApart) - 1;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // It leads to procedures from `first` on.
  void make_procedure(uint32_t id, uint32_t first, uint32_t count) {
    auto unit = std::make_unique<Unit>();
    unit->id = id;
    unit->module = &module_;
    unit->first_link = links_;
    unit->first_site = static_cast<uint32_t>(sites_.size());
    cfg::Procedure& p = unit->procedure;
    p.entry = LinkAddr(kApart * (id + 1));
    const uint32_t blocks = 1 + below(6);
    uint32_t offset = 0;
    for (uint32_t b = 0; b < blocks; ++b) {
      cfg::Block block;
      block.offset = offset;
      block.first_insn = static_cast<uint32_t>(p.insns.size());
      block.insn_count = 1 + below(5);
      block.size_bytes = block.insn_count;
      offset += block.size_bytes;
      for (uint32_t i = 0; i < block.insn_count; ++i) {
        p.insns.emplace_back().flags_written = below(2) == 0 ? isa::flag::kAll : uint8_t{0};
      }
      block.first_edge = static_cast<uint32_t>(p.edges.size());
      const bool last = b + 1 == blocks;
      const bool leads = first < count && below(2) == 0;
      const LinkAddr target(kApart * (1 + first + (leads ? below(count - first) : 0)));
      if (last) {
        // A jump to its own entry would not leave it.
        const bool jumps = leads && target != p.entry;
        const End jump = blocks == 1 && below(2) == 0 ? End::kIndirectJump : End::kJump;
        end(*unit, block, b, jumps ? jump : End::kReturn, target, blocks, count);
      } else if (leads) {
        end(*unit, block, b, below(3) == 0 ? End::kIndirectCall : End::kCall, target, blocks,
            count);
      } else {
        constexpr std::array kEnds{End::kNext, End::kConditional, End::kConditional, End::kReturn};
        end(*unit, block, b, kEnds[below(kEnds.size())], target, blocks, count);
      }
      block.edge_count = static_cast<uint32_t>(p.edges.size()) - block.first_edge;
      p.blocks.edit().push_back(block);
    }
    p.range = {p.entry, p.entry + offset};
    unit->insn_sizes.edit().assign(p.insns.size(), 1);
    unit->code.blocks.resize(p.blocks.size());
    links_ += static_cast<uint32_t>(unit->code.links.size());
    units_.push_back(std::move(unit));
  }

  enum class End : uint8_t {
    kNext,
    kConditional,
    kCall,
    kIndirectCall,
    kJump,
    kIndirectJump,
    kReturn
  };
  void end(Unit& unit, cfg::Block& block, uint32_t b, End how, LinkAddr target, uint32_t blocks,
           uint32_t count) {
    std::vector<cfg::Edge>& edges = unit.procedure.edges.edit();
    const auto edge = static_cast<uint32_t>(edges.size());
    switch (how) {
      case End::kNext:
        edges.push_back({b, b + 1, cfg::EdgeKind::kFallthrough, {}});
        return;
      case End::kConditional:
        block.end = isa::Flow::kConditional;
        edges.push_back({b, below(blocks), cfg::EdgeKind::kTaken, {}});
        edges.push_back({b, b + 1, cfg::EdgeKind::kFallthrough, {}});
        return;
      case End::kCall:
        block.end = isa::Flow::kCall;
        edges.push_back({b, b + 1, cfg::EdgeKind::kCallReturn, {}});
        unit.code.links.push_back({{}, {}, target, b, translate::Link::kCallLink});
        return;
      case End::kIndirectCall: {
        block.end = isa::Flow::kIndirectCall;
        edges.push_back({b, b + 1, cfg::EdgeKind::kCallReturn, {}});
        SiteState site;
        site.unit = unit.id;
        site.site.block = b;
        site.site.call = true;
        unit.code.sites.push_back(site.site);
        site.pairs.emplace_back().to = {unit_at(target), 0, 0};
        if (below(2) == 0) site.pairs.emplace_back().to = {unit.id + below(count - unit.id), 0, 0};
        sites_.push_back(std::move(site));
        return;
      }
      case End::kIndirectJump: {  // a slot of a linkage table
        block.end = isa::Flow::kIndirectJump;
        SiteState site;
        site.unit = unit.id;
        site.site.block = b;
        unit.code.sites.push_back(site.site);
        site.pairs.emplace_back().to = {unit_at(target), 0, 0};
        sites_.push_back(std::move(site));
        return;
      }
      case End::kJump:
        block.end = isa::Flow::kJump;
        edges.push_back({b, cfg::kExitBlock, cfg::EdgeKind::kLeave, target});
        unit.code.links.push_back({{}, {}, target, b, edge});
        return;
      case End::kReturn:
        block.end = isa::Flow::kReturn;
        edges.push_back({b, cfg::kExitBlock, cfg::EdgeKind::kReturn, {}});
    }
  }

  void choose() {
    EntryCallers callers;
    for (const auto& unit : units_) {
      std::vector<EntryCallers::Branch> branches;
      unit->for_each_branch_out([&](LinkAddr target) {
        branches.push_back({target.value(), below(2) * below(100)});
      });
      callers.add(0, unit->procedure.entry.value(), below(8) != 0, below(1000), branches);
    }
    const std::vector<uint32_t> ranks = callers.ranks();
    for (const auto& unit : units_) unit->rank = ranks[unit->id];
  }
  // As CodeCache::may_be_rest does.
  void choose_rest(SiteState& site) {
    const Unit& from = *units_[site.unit];
    const auto i = below(static_cast<uint32_t>(site.pairs.size()));
    const Unit& to = *units_[site.pairs[i].to.unit];
    if (below(4) == 0 || (!site.site.call && !from.left_to_callers())) return;
    if (to.left_to_callers() && from.rank >= to.rank) return;
    site.pairs[i].rest = true;
    site.rest = i;
  }
  // As CodeCache::way_in does, where branches may not enter as they are.
  void make_link_pairs() {
    for (const auto& unit : units_) {
      for (uint32_t i = 0; i < unit->code.links.size(); ++i) {
        const Unit& to = *units_[unit_at(unit->code.links[i].target)];
        if (!to.left_to_callers() || unit->rank < to.rank) continue;
        LinkPair pair;
        pair.link = unit->first_link + i;
        pair.to = {to.id, to.procedure.entry_block, 0};
        pair.counter = next_counter_++;
        link_pairs_.push_back(pair);
      }
    }
  }

  std::mt19937& random_;
  Module module_;
  uint32_t links_ = 0;
};

class Books : public LedgerBooks {
 public:
  void term(BlockRef ref, uint32_t insn, uint64_t entered, uint64_t left) {
    LedgerTerm& term = terms_[{ref.unit, ref.block, AbnormalKind::kOther, insn}];
    term.entered += entered;
    term.left += left;
  }
  void unexecuted(BlockRef ref, uint32_t first, uint32_t last) {
    partials_[{ref.unit, ref.block, first, last}] -= 1;
  }
  void uncounted(BlockRef ref) { uncounted_[{ref.unit, ref.block}] += 1; }
  void unarrived(BlockRef ref) { unarrived_[{ref.unit, ref.block}] += 1; }
};

// Runs the program, and keeps what Tally would: counters and bookings.  Beside it, what ran.
class Runs {
 public:
  Runs(const Made& made, std::mt19937& random) : made_(made), random_(random), weights_(made) {
    counters.assign(made.counters_used(), 0);
    for (const auto& unit : made.units()) blocks.emplace_back(unit->procedure.blocks.size(), 0);
    entries.assign(made.units().size(), 0);
    weights_.update();
  }

  void run() {
    steps_ = 400;
    const auto unit = static_cast<uint32_t>(random_() % made_.units().size());
    const cfg::Procedure& p = made_.unit(unit).procedure;
    if (random_() % 2 == 0) {  // by an arrival, at the entry
      ++counters[made_.arrivals()[unit].counter];
      call(unit, 0);
      return;
    }
    // A thread begins in the middle, at the start of a block.
    const auto block = static_cast<uint32_t>(random_() % p.blocks.size());
    books.term({unit, block, 0}, 0, 1, 0);
    book({BookingKind::kEntered, unit, block}, 1);
    if (block == p.entry_block) ++entries[unit];
    go({unit, block, 0}, 0);
  }
  // What all counters and bookings stand for.
  uint64_t weighed() const {
    uint64_t sum = booked_;
    for (size_t i = 0; i < counters.size(); ++i) sum += counters[i] * weights_.of_counters()[i];
    return sum;
  }

  std::vector<uint64_t> counters;
  Books books;
  std::vector<std::vector<uint64_t>> blocks;  // by unit, by block: times entered
  std::vector<uint64_t> entries;              // by unit
  uint64_t executed = 0;

 private:
  static constexpr int kDepthMax = 40;
  bool ends_here() { return --steps_ < 0 || random_() % 64 == 0; }
  void count(int32_t counter) {
    if (counter != kNoCounter) ++counters[static_cast<size_t>(counter)];
  }
  void book(const BookingKey& key, int64_t times) { booked_ += weights_.of_booking(key, times); }

  // False if the run has ended in there.
  bool call(uint32_t unit, int depth) {
    ++entries[unit];
    return go({unit, made_.unit(unit).procedure.entry_block, 0}, depth);
  }

  // It ends with `done` instructions of the block executed.
  bool stop(BlockRef at, uint32_t done) {
    const cfg::Block& block = made_.unit(at.unit).procedure.blocks[at.block];
    const int32_t counter = made_.unit(at.unit).plan.block_counter[at.block];
    if (counter != kNoCounter && random_() % 2 == 0) {
      books.uncounted(at);
      book({BookingKind::kUncounted, at.unit, at.block}, 1);
    } else {
      count(counter);
    }
    executed += done;
    if (done < block.insn_count) {
      books.unexecuted(at, done, block.insn_count);
      book({BookingKind::kUnexecuted, at.unit, 0}, block.insn_count - int64_t{done});
      book({BookingKind::kUncalled, at.unit, at.block}, 1);
    }
    leave(at, done);
    return false;
  }
  void leave(BlockRef at, uint32_t insn) {
    books.term(at, insn, 0, 1);
    book({BookingKind::kLeft, at.unit, at.block}, 1);
  }

  bool go(BlockRef at, int depth) {
    while (true) {
      const Unit& unit = made_.unit(at.unit);
      const cfg::Block& block = unit.procedure.blocks[at.block];
      ++blocks[at.unit][at.block];
      if (ends_here()) return stop(at, static_cast<uint32_t>(random_() % block.insn_count));
      const bool calls = block.end == isa::Flow::kCall || block.end == isa::Flow::kIndirectCall;
      if (calls && depth == kDepthMax) return stop(at, 0);
      count(unit.plan.block_counter[at.block]);
      executed += block.insn_count;
      if (calls && !make_call(unit, at, depth)) {
        leave(at, block.insn_count);  // the call is never come back from
        return false;
      }
      if (block.end == isa::Flow::kIndirectJump) {
        const uint32_t to = take_pair(unit, at.block);
        ++entries[to];
        at = {to, made_.unit(to).procedure.entry_block, 0};
        continue;
      }
      const uint32_t e = block.first_edge + static_cast<uint32_t>(random_() % block.edge_count);
      const cfg::Edge& edge = unit.procedure.edges[e];
      count(unit.plan.edge_counter[e]);
      if (edge.kind == cfg::EdgeKind::kReturn) return true;
      if (edge.kind == cfg::EdgeKind::kLeave) {
        const uint32_t to = Made::unit_at(edge.target);
        count_pair(unit, at.block, e);
        ++entries[to];
        at = {to, made_.unit(to).procedure.entry_block, 0};
      } else {
        at.block = edge.to;
      }
    }
  }

  bool make_call(const Unit& unit, BlockRef at, int depth) {
    if (random_() % 32 == 0) {  // between the call and what it calls
      books.unarrived(at);
      book({BookingKind::kUncalled, at.unit, at.block}, 1);
      return false;
    }
    if (unit.procedure.blocks[at.block].end == isa::Flow::kIndirectCall) {
      return call(take_pair(unit, at.block), depth + 1);
    }
    for (const translate::Link& link : unit.code.links) {
      const bool is_it = link.edge == translate::Link::kCallLink && link.block == at.block;
      if (!is_it) continue;
      count_pair(unit, at.block, translate::Link::kCallLink);
      return call(Made::unit_at(link.target), depth + 1);
    }
    ADD_FAILURE() << "a call without a link";
    return false;
  }
  void count_pair(const Unit& unit, uint32_t block, uint32_t edge) {
    for (const LinkPair& pair : made_.link_pairs()) {
      const uint32_t index = pair.link - unit.first_link;
      if (index >= unit.code.links.size()) continue;
      const translate::Link& link = unit.code.links[index];
      if (link.block == block && link.edge == edge) ++counters[pair.counter];
    }
  }
  // Where an indirect branch goes.
  uint32_t take_pair(const Unit& unit, uint32_t block) {
    const SiteState& site = site_of(unit, block);
    const Pair& pair = site.pairs[random_() % site.pairs.size()];
    if (!pair.rest) ++counters[pair.counter];
    return pair.to.unit;
  }
  const SiteState& site_of(const Unit& unit, uint32_t block) const {
    for (const SiteState& site : made_.sites()) {
      if (site.unit == unit.id && site.site.block == block) return site;
    }
    ADD_FAILURE() << "a call without a site";
    return made_.sites().front();
  }

  const Made& made_;
  std::mt19937& random_;
  InstructionWeights weights_;
  uint64_t booked_ = 0;
  int steps_ = 0;
};

profile::Profile profile_of(Made& made, const Runs& runs) {
  profile::Profile profile;
  build_profile({made,
                 runs.books,
                 runs.counters,
                 {profile::Module()},
                 [](const Unit&) { return std::string(); }},
                profile);
  return profile;
}

struct Seen {
  size_t left = 0;   // units that left it to their callers
  size_t rests = 0;  // branches with a target that is not counted
};

void check(Recursion recursion, Ranks ranks, uint32_t seed, Seen& seen) {
  std::mt19937 random(seed);
  Made made(random, 1 + random() % 8, recursion, ranks);
  for (const auto& unit : made.units()) seen.left += unit->left_to_callers() ? 1 : 0;
  for (const SiteState& site : made.sites()) seen.rests += site.rest ? 1 : 0;
  Runs runs(made, random);
  for (int i = 0; i < 30; ++i) runs.run();
  EXPECT_EQ(runs.weighed(), runs.executed) << "seed " << seed;
  const profile::Profile profile = profile_of(made, runs);
  EXPECT_TRUE(profile.issues.empty()) << "seed " << seed << ": " << profile.issues.front().message;
  EXPECT_EQ(profile::count_flow_faults(profile), 0u) << "seed " << seed;
  for (size_t unit = 0; unit < runs.blocks.size(); ++unit) {
    EXPECT_EQ(profile.procedures[unit].entries, runs.entries[unit]) << "seed " << seed;
  }
  size_t number = 0;
  for (const std::vector<uint64_t>& blocks : runs.blocks) {
    for (const uint64_t times : blocks) {
      EXPECT_EQ(profile.blocks[number].count, times) << "seed " << seed << ", block " << number;
      ++number;
    }
  }
}

void check_all(Recursion recursion, Ranks ranks) {
  Seen seen;
  for (uint32_t seed = 1; seed <= 1500; ++seed) check(recursion, ranks, seed, seen);
  EXPECT_GT(seen.left, 3000u);
  EXPECT_GT(seen.rests, 400u);
}

TEST(LeftToCallers, CountsAreWhatRan) {
  check_all(Recursion::kNo, Ranks::kChosen);
}

TEST(LeftToCallers, WithProceduresThatLeadToThemselves) {
  check_all(Recursion::kYes, Ranks::kChosen);
}

// Whatever is on record.
TEST(LeftToCallers, WithAnyRanks) {
  check_all(Recursion::kNo, Ranks::kAny);
  check_all(Recursion::kYes, Ranks::kAny);
}

}  // namespace

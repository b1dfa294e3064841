// Measured weights of edges, as a run leaves them for the next of the same program.
//
// Problem.  Counters are placed before a procedure runs, so its edges are weighed by rules of thumb
// (placement.h), which do not know that one side of a branch is the rule and the other the
// exception.  A profile knows, but reading one costs a large program a second.
//
// Idea.  What an earlier run leaves (recall.h) holds a byte for each edge of each procedure that it
// has executed.  A spanning tree asks for nothing but the order of the weights within a procedure,
// so the byte says how far below the procedure's heaviest edge this one is:
//
//     count     1,000,000   1,000,000   500,000   3         0
//     step            255         255       239   1         0        (16 steps for each halving)
//
// What is less than about a 60,000th of the heaviest shares step 1.  Where steps are alike, and
// where the earlier run has not been, the rules of thumb decide (plan.cpp).
//
// It is a guess: any placement counts exactly.  Discovery may find a procedure otherwise than it
// did then (other code in its way, another jump table), so a digest of blocks and edges tells, and
// that procedure keeps the rules of thumb.
//
// When weights are renewed.  Those of a large run are worth more than those of a small one, so a
// procedure's are replaced by those of a run in which its heaviest edge was heavier, or as heavy
// and something ran that had never run before (up to a factor of two, all is as heavy).  But the
// file is not written for that alone, unless a sixteenth of what the run has executed had weights
// of a run less than a sixteenth as large, or none.
//
// What never ran may yet do so with other input.  A procedure is confirmed when a run that was told
// its weights has run it, and no edge that had never run before.  Where what is left out has to be
// made all at once, should it be wanted, it is left out of such procedures only (defer.cpp).  The
// file is written for that, too, if a sixteenth of all procedures that have run are confirmed now
// that were not, or the reverse.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/flat_map.h"
#include "cache/entry_callers.h"
#include "cache/recall.h"
#include "cache/translated.h"
#include "cfg/procedure.h"
#include "placement/placement.h"

namespace tally::engine {

inline constexpr unsigned kStepsForHalf = 16;  // a step more: 1.044 times as heavy

// Tells one outcome of discovery from another, as far as the numbers of edges go.
uint32_t shape_of(const cfg::Procedure& procedure);

// Of the heaviest count, down to that of a step which is not 0.
constexpr uint32_t halvings(uint32_t step) {
  return (UINT8_MAX - step) / kStepsForHalf;
}
// What a step says of a count: within a factor of two.
constexpr uint64_t count_of_step(uint64_t heaviest, uint8_t step) {
  return step == 0 ? 0 : heaviest >> halvings(step);
}

// A step for each count, behind those that are there.  `heaviest`: the largest count.
void append_steps(std::span<const uint64_t> counts, uint64_t heaviest, std::vector<uint8_t>& out);

// How often each of a procedure's edges ran; those of an indirect jump's table, which are not
// counted one by one, as often as control came to their target by no other edge.
std::vector<uint64_t> counts_of_edges(const cfg::Procedure& procedure,
                                      const placement::Solution& solution);

// Those that an earlier run has left; never changed, so that fork children share them.
class EdgeWeights {
 public:
  // Takes the weights out of a recollection that is sound.
  explicit EdgeWeights(Recollection& recollection);

  struct Known {
    const Recollection::Weighed* weighed = nullptr;  // nullptr: none, or of another graph
    std::span<const uint8_t> steps;                  // by edge
  };
  Known find(const std::string& build_id, const cfg::Procedure& procedure, uint32_t shape) const;
  // Whether any procedure may leave its entries to callers.
  bool has_ranks() const { return has_ranks_; }
  // How often the most frequent part of the procedure that begins there ran, or up to half less; 0
  // where nothing is known.
  uint64_t times_run(const std::string& build_id, LinkAddr entry) const;

 private:
  std::vector<Recollection::Weighed> weighed_;
  std::vector<uint64_t> first_;  // by `weighed_`: in `steps_`
  std::vector<uint8_t> steps_;
  bool has_ranks_ = false;
  // By build-id: link address of an entry -> index in `weighed_`.
  std::map<std::string, FlatMap<uint32_t>> by_entry_;
};

// Where an indirect branch has led most: the entry of a unit.
struct LedMost {
  uint32_t unit = 0;
  uint64_t times = 0;
};

// Adds weights to what is left, one unit after the other, as their counts become known.
class WeightsToLeave {
 public:
  // `before`: what this run was told; may be nullptr.
  WeightsToLeave(Recollected& left, const EdgeWeights* before) : left_(left), before_(before) {}

  // `solution`: of the procedure's edges first, in its order.
  void add(const Unit& unit, const placement::Solution& solution,
           const std::vector<LedMost>& led = {});
  // When all are added and will be left: says which of them leave their entries to callers.
  void settle();
  // Whether what was not known makes a difference.
  bool is_news() const {
    const bool weighs = total_ > 0 && fresh_ * kShareThatMatters >= total_;
    return weighs || (ran_ > 0 && turned_ * kShareThatMatters >= ran_);
  }

 private:
  static constexpr double kShareThatMatters = 16;
  static constexpr uint8_t kBitsThatMatter = 4;

  Recollected& left_;
  const EdgeWeights* before_;
  EntryCallers callers_;              // of all weighed ones
  std::vector<uint32_t> weighed_as_;  // by unit: its number in `left_`, from 1 on
  struct Led {
    uint32_t from = 0;  // number, from 1 on
    LedMost to;
  };
  std::vector<Led> led_;
  double total_ = 0, fresh_ = 0;  // executions of edges: all, and those without good weights
  double ran_ = 0, turned_ = 0;   // procedures: all that ran, those confirmed or no longer so
};

}  // namespace tally::engine

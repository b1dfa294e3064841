// How many instructions each increment of a counter stands for.
//
// Problem.  How many instructions did one thread execute?  Solving every unit once more with that
// thread's counters alone would say so, but hundreds of threads times a large program is too much.
//
// Idea.  All counts are linear in what was measured, and so is their sum: every counter has a
// weight, found once, and a thread's total is a sum of products.  The weights are potentials.  Give
// each half of a block (placement/propagate.cpp) a number p so that along every count that is not
// measured
//
//     p(to) = p(from) + instructions that one pass stands for     (a block: its size; an edge: 0)
//
// Conservation says that for any p the sum of p(half) * (out - in + abnormal) is zero; added to the
// total, everything that is not measured cancels out, and what is left is
//
//     a counter on edge u->v      p(u, out) - p(v, in)
//     a counter in block b        p(b, in) - p(b, out) + instructions of b
//     flow that entered at b      p(EXIT, out) - p(b, in)
//     flow that left from b       p(b, out) - p(EXIT, in)
//
// What is not measured forms a forest (the spanning tree), so that such p exist; with every block
// counted p is 0.  Arithmetic is modulo 2^64: weights may be negative, totals are not.
//
// A unit that leaves its entries to its callers (cache/entry_callers.h) has EXIT -> root measured
// as well, and each entry stands for
//
//     e = p(EXIT, out) - p(root, in)
//
// which is what a direct branch there stands for besides: e is added to the size of a block that
// calls it and to the step of an edge that leads there, and to the counter of any other way in.  So
// callees come before their callers, and weights of units may change when others are translated.
//
// Limits: conservation must hold for the thread alone.  It does not when a stack moves from one
// thread to another.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/code_cache.h"
#include "ledger/bookings.h"
#include "ledger/left_to_callers.h"

namespace tally::engine {

class InstructionWeights {
 public:
  explicit InstructionWeights(const Translated& cache) : cache_(cache), left_to_callers_(cache) {}

  // Takes in what has been translated and linked since the last time.
  void update();
  const Translated& cache() const { return cache_; }
  // By counter number; as many as there were counters at the last update.
  const std::vector<uint64_t>& of_counters() const { return counters_; }
  // What `times` such bookings add to the total.
  uint64_t of_booking(const BookingKey& key, int64_t times) const;

 private:
  struct Halves {
    std::vector<uint64_t> in, out;  // by block; EXIT is the last
    std::vector<uint64_t> size;     // by block: its instructions, and what its call stands for
    uint64_t entry = 0;             // e
  };
  bool stands_for_more() const;
  void begin_again();
  void add_units();
  void add_unit(const Unit& unit);
  void add_late(const LateCounter& late);
  uint64_t step_of(const Unit& unit, const cfg::Edge& edge) const;
  uint64_t of_edge(const Unit& unit, uint32_t edge) const;
  uint64_t of_entry(const Unit& from, LinkAddr target) const;
  void take_from_callers();
  void add_flow_into(uint32_t counter, BlockRef to, bool counted_as_edge);
  void add_pair(const SiteState& site, const Pair& pair);
  uint64_t of_block(const Unit& unit, uint32_t block) const;

  const Translated& cache_;
  LeftToCallers left_to_callers_;
  std::vector<Halves> halves_;  // by unit
  std::vector<uint64_t> counters_;
  size_t pairs_done_ = 0, arrivals_done_ = 0, link_pairs_done_ = 0, late_done_ = 0;
};

}  // namespace tally::engine

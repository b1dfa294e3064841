// What makes a run faster and changes no count.  Each can be switched off by its name
// (`--no-opt=NAME`), so that a fault can be found by bisection.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tally::engine {

enum class Optimization : uint8_t {
  kAhead,    // procedures that are sure to be called are translated with their caller
  kTables,   // the first jump through a table known to discovery leads to all of its targets
  kRecall,   // what an earlier run of the program has translated is translated at once (recall.h)
  kWeights,  // counters go where, by an earlier run's counts, they cost least (edge_weights.h)
  kRenewal,  // procedures that turn out to be hot are translated again (engine/renewal.h)
  kOrder,    // blocks lie in the order in which, by an earlier run's counts, they follow each other
  kDefer,    // what never ran, by an earlier run's counts, has no code until control gets there
  kShared,   // procedures are found once for all programs of a session (known_procedures.h)
  kJoins,    // branches to a procedure lead there before they are first taken
  kNotes,    // a thread goes on to a target that is known, and notes it down (known_targets.h)
  kHashes,   // an indirect branch with many targets finds them through a table
  kFlags,    // where the flags are dead, a counter is one instruction
  kLow32,    // addresses are told apart by their low 32 bits where that is enough
  kPaired,   // calls and returns pair up where that is better (return_targets.h)
  kUnspilled,  // a jump through a register keeps no other one where the flags can be made again
  kIndex,      // such a jump through a table is led by the program's own index (index_tables.cpp)
  kSealed,     // a branch through a pointer that nobody can write is not compared (sealed_memory.h)
  kThrough,    // calls of a stub that does nothing but take one go on at once (shortcuts.cpp)
  kFound,      // procedures are read as an earlier run has found them (found_procedures.h)
  kPacked,     // counters lie by how often they counted in an earlier run (counter_numbers.h)
  kSparse,     // what seldom runs shares tables that take less memory (landings.h, lookup.cpp)
  kDirect,     // landings without a number stand where their low bits say (direct_landings.h)
  kAsks,       // where it is asked for what is not there yet takes no memory (Region::map_asks)
  kFronts,     // what leads to a block most lies in front of it, and falls into it (fronts.cpp)
  kNear,       // jumps inside a procedure take two bytes where that suffices (emit_unit.cpp)
  kCallers,    // how often a procedure was entered is left to its callers (entry_callers.h)
  kRest,       // where an indirect branch leads most is what its other targets leave (rest.cpp)
  kCompact,  // a first run's code is made once more, and the memory for it given back (compact.cpp)
  kInduction,  // a register of the program's counts the runs of a loop (inductions.h)
};
inline constexpr std::array<std::string_view, 29> kOptimizationNames = {
    "ahead",  "tables",  "recall", "weights", "renewal",  "order",  "defer",     "shared",
    "joins",  "notes",   "hashes", "flags",   "low32",    "paired", "unspilled", "index",
    "sealed", "through", "found",  "packed",  "sparse",   "direct", "asks",      "fronts",
    "near",   "callers", "rest",   "compact", "induction"};

// Those that are on.
class Optimizations {
 public:
  bool has(Optimization one) const { return (on_ & bit(one)) != 0; }
  // False if there is none of this name.
  bool switch_off(std::string_view name) {
    for (size_t i = 0; i < kOptimizationNames.size(); ++i) {
      if (kOptimizationNames[i] != name) continue;
      on_ &= ~bit(static_cast<Optimization>(i));
      return true;
    }
    return false;
  }

 private:
  static uint32_t bit(Optimization one) { return 1u << static_cast<uint32_t>(one); }
  uint32_t on_ = ~0u;
};

}  // namespace tally::engine

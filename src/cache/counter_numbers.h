// Which counter of a thread's block is whose.
//
// Problem.  Processors tell whether a load may need the data of a store that is still under way by
// the low 12 bits of their addresses.  Where these are alike and the addresses are not, the load
// waits.  An increment is such a store, and so is keeping a register in the thread's block; among
// the loads are what the program takes off its stack, and that register's own return.  Another
// problem: three quarters of a large program's counters never count, and if they lie among the
// others, these take several times as many pages.
//
// Idea.  A page has 512 counters.  What an earlier run's weights say of a counter decides where it
// lies:
//
//     offset in the page      0x000                 0x800              0xfc0
//     a page with busy ones   | others               | busy              | kept |
//     a page of idle ones     | idle                                     | kept |
//     any other               | others                                   | kept |
//
// *Busy* is what has counted often; the rest of its pages goes to others before they take a page of
// their own.  *Idle* is what has never counted: its pages are there only if it does so now.  What
// is kept free is where the thread's block has its registers (translate::tcb::kSpillRcx).
//
// So what is busy in a thread's block is half a page, and the block is placed such that the part of
// the stack that the program uses most is in the other half (Region::place_thread):
//
//     low 12 bits of addresses    | busy counters, registers | the stack, most of the time |
//
// Nothing depends on it but time and memory: a number is a counter, whatever was expected of it.
// What is not handled: the program's loads and stores elsewhere, and Tally's tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cfg/procedure.h"
#include "translate/unit.h"

namespace tally::engine {

enum class Expected : uint8_t {
  kIdle,
  kSome,  // or nothing is known
  kBusy,
};

class CounterNumbers {
 public:
  static constexpr uint32_t kPageCounters = 512;

  // A number that nobody has had.
  uint32_t take(Expected expected);

 private:
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  std::vector<Range>& of(Expected expected);
  void begin_page(Expected expected);

  std::vector<Range> busy_, idle_, others_;  // free numbers of pages that have been begun
  uint32_t pages_ = 0;
};

struct ExpectedCounts {
  std::vector<Expected> counters;   // by their numbers in the plan; empty: nothing is known
  std::vector<bool> busy_blocks;    // empty: none is
  std::vector<uint8_t> idle_edges;  // by edge, not 0: it never ran; empty: nothing is known
};

// What to expect of a procedure's blocks and of its counters, of which there are `counters`: from
// the step of each edge (edge_weights.h) below a count of `heaviest_bits` bits.
ExpectedCounts expected_counts(const cfg::Procedure& procedure, const translate::Plan& plan,
                               uint32_t counters, std::span<const uint8_t> steps,
                               uint32_t heaviest_bits);

}  // namespace tally::engine

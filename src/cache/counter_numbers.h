// Which counter of a thread's block is whose.
//
// Problem.  Processors tell whether a load may need the data of a store that is still under way by
// the low 12 bits of their addresses.  Where these are alike and the addresses are not, the load
// waits.  An increment is such a store, and so is keeping a register in the thread's block; among
// the loads are what the program takes off its stack, and that register's own return.  Another
// problem: three quarters of a large program's counters never count, and many of the others hardly
// ever do.  If all lie side by side, each thread takes several times as many pages as it need.
//
// Idea.  A page has 512 counters.  What an earlier run's weights say of a counter decides where it
// lies:
//
//     offset in the page      0x000                 0x800              0xfc0
//     a page with busy ones   | others               | busy              | kept |
//     a page of one kind      | idle, seldom, or others                  | kept |
//
// *Busy* is what has counted often; the rest of its pages goes to others before they take a page of
// their own.  *Idle* is what has never counted: its pages are there only if it does so now.
// *Seldom* is what has hardly ever counted: a thread that does none of it has none of its pages.
// The first of it lies among others, since a page for a few would be no gain.  What is kept free is
// where the thread's block has its registers (translate::tcb::kSpillRcx).
//
// A thread's block begins in the middle of a page (below), so each of these pages lies on two of
// memory, and pages that follow each other share one.  So pages are begun in groups of one kind:
//
//     pages of the block   0 1 2 3 4 5 6 7 | 8 ... 15 | 16 ... 23 | 24 ... 39 | ...
//                          busy and others | idle     | seldom    | idle      | ...
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
  kSeldom,
  kSome,  // or nothing is known
  kBusy,
};

class CounterNumbers {
 public:
  static constexpr uint32_t kPageCounters = 512;
  // Pages in a group: each kind's next one has twice as many.
  static constexpr uint32_t kGroupMin = 8, kGroupMax = 64;

  // From now on pages are begun as if there had been none.
  void begin_again();
  // A number that nobody has had.
  uint32_t take(Expected expected);

 private:
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  // Pages of a kind: numbers that are free in those that have been begun, and the pages of its last
  // group that have not.
  struct Kind {
    std::vector<Range> free;
    Range unbegun;
    uint32_t group = kGroupMin;  // pages of the next one
  };
  uint32_t next_page(Kind& kind);
  void begin_page(Expected expected);
  std::vector<Range>& free_for(Expected expected);

  Kind idle_, seldom_, others_;
  std::vector<Range> busy_;  // free numbers in the busy halves of pages of others
  uint32_t pages_ = 0;       // of all groups
  uint32_t seldom_among_others_ = 0;
};

struct ExpectedCounts {
  std::vector<Expected> counters;    // by their numbers in the plan; empty: nothing is known
  std::vector<bool> busiest_blocks;  // of the busy ones; empty: none is
  std::vector<bool> busy_blocks;     // empty: none is
  std::vector<bool> seldom_blocks;   // the same
  std::vector<uint8_t> idle_edges;   // by edge, not 0: it never ran; empty: nothing is known
  // By block: from which an indirect jump of the procedure leads there most, and often;
  // translate::EmitRequest::kNotLed for none.  Empty: none does.
  std::vector<uint32_t> led_from;
};

// What to expect of a procedure's blocks and of its counters, of which there are `counters`: from
// the step of each edge (edge_weights.h) below a count of `heaviest_bits` bits.
ExpectedCounts expected_counts(const cfg::Procedure& procedure, const translate::Plan& plan,
                               uint32_t counters, std::span<const uint8_t> steps,
                               uint32_t heaviest_bits);

}  // namespace tally::engine

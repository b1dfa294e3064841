// Stacks that nobody is running on: who waits there.
//
// Problem.  A program that switches stacks (swapcontext, setjmp and longjmp from stack to stack, or
// instructions of its own) leaves procedures waiting, whose calls are still open.  If control comes
// back, they return as if nothing had happened.  If it never does, their flow ends there.
//
// Idea.  The chain of procedures on a stack is kept when it is left, until somebody goes on there:
//
//   A: main > step > swapcontext  --->  B: start > body          left: A = main > step
//   B: start > body > swapcontext --->  A: ... > step            left: B = start > body
//
// What is left when the run ends is closed on the ledger, as any procedure that is active then.
// Which of the stacks it is that control comes to is not guessed from where the stack pointer lies
// (a stack may be part of another's frame, or memory that was another stack before): the chain of
// callers that call frame information shows there must be the one that was left.
//
// A stack whose memory is used for another has a chain that stays here, to be closed in the end.
// It does no harm: whoever is found to have the same chain at the same place has the same calls
// open.  Chains that are equal are kept once, however many stacks were left like that.
//
// Limits.  Frames that were copied from one place to another (continuations that run twice) are
// nobody's: who comes to them is named by the ledger.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "elf/unwind.h"
#include "ledger/interruptions.h"

namespace tally::engine {

struct LeftStack {
  // Of the procedure that switched stacks (its own activation comes first; it does not wait).
  elf::BackTrace trace;
  uint32_t unit = 0;               // that procedure
  std::optional<uint64_t> bottom;  // the stack pointer with which the stack began, if that was seen
  bool inherited = false;          // from before the fork that made this process
  std::vector<Interruption> interruptions;  // of handlers that wait there
  // Snapshots of procedures that wait there, by unit.
  std::map<uint32_t, elf::BackTrace> snapshots;
  // The threads that left a stack so, while they live.
  std::vector<std::optional<uint32_t>> slots;
};

// The procedure that waits at frame `frame` of `trace` is the innermost of `there`, and its callers
// are the same.
bool is_same_stack(const elf::BackTrace& trace, size_t frame, const elf::BackTrace& there);

class LeftStacks {
 public:
  bool empty() const { return stacks_.empty(); }
  // `stack` has one thread in `slots`.
  void add(LeftStack stack);
  // Stacks whose innermost frame ends within [begin, end].
  bool any_within(uint64_t begin, uint64_t end) const;

  struct Found {
    LeftStack stack;   // `slots` has one thread
    size_t frame = 0;  // of its trace: who goes on
  };
  // The stack where a return with stack pointer `stack_pointer` goes to `destination`, if its
  // frames are as they were: `is_intact` tells.
  template <class IsIntact>
  std::optional<Found> take_returned_to(uint64_t stack_pointer, TargetAddr destination,
                                        const IsIntact& is_intact) {
    const auto [first, last] = stacks_.equal_range(stack_pointer);
    for (auto it = last; it != first;) {
      --it;
      const auto& frames = it->second.trace.frames;
      if (frames.size() < 2 || frames[1].pc != destination) continue;
      if (is_intact(it->second.trace)) return Found{take(it), 1};
    }
    return std::nullopt;
  }
  // The stack that `there` shows.
  std::optional<Found> take_shown_by(const elf::BackTrace& there);
  // Those in memory that is given back.
  std::vector<LeftStack> take_within(TargetRange range);
  std::vector<LeftStack> take_all();

  // Calls `visit(stack)` for each that the thread of a slot has left; it is its no more.
  template <class Visit>
  void disown(uint32_t slot, const Visit& visit) {
    for (auto& [key, stack] : stacks_) {
      for (std::optional<uint32_t>& owner : stack.slots) {
        if (owner != slot) continue;
        visit(stack);
        owner.reset();
      }
    }
  }

  // Those that the thread of a slot has left with handlers waiting.
  std::vector<LeftStack> take_interrupted(uint32_t slot);

  // What a forked process has of its parent's.
  void inherit(const LeftStacks& parent);

 private:
  using Stacks = std::multimap<uint64_t, LeftStack>;
  LeftStack take(Stacks::iterator it);

  Stacks stacks_;  // by where the innermost frame ends; the newest last
};

}  // namespace tally::engine

// What signals have interrupted and not yet given back.
//
// Problem.  A signal suspends a thread between two instructions, and what comes of it shows only
// later: the handler returns to the very same place (nothing has happened to the flow), or it
// returns elsewhere, jumps away, or the thread ends meanwhile (the interrupted block was left where
// it stood).
//
// Idea.  Each interruption is remembered under the address of the kernel's frame on the program's
// stack (its ucontext), which is what `rt_sigreturn` and every back-trace come across.  A record
// says where the thread stood in the program, and where in the code cache it goes on, so that the
// counters in front of that place do not run twice and those behind it are not missed.
//
// Records need not come back in order: handlers are left by longjmp, and programs that switch
// stacks return from them in any order.  A record that is never taken is dropped when a frame is
// built at the same address.
#pragma once

#include <sys/user.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cache/code_cache.h"

namespace tally::engine {

// Where the kernel's ucontext has a register, by its number in encoding order.
inline constexpr std::array<uint64_t, 16> kContextOf = {144, 152, 136, 128, 160, 120, 112, 104,
                                                        40,  48,  56,  64,  72,  80,  88,  96};

// Where a thread is, in the program's terms.
struct Position {
  enum class Kind : uint8_t {
    kUnknown,
    kInBlock,  // `done` instructions of `ref` are executed, no way out has been counted but ...
    kBetween,  // between procedures: at the entry of a callee or behind a return; only the frames
               // of the back-trace are open
    kOutside,  // at an address that is no code of the program
  };
  Kind kind = Kind::kUnknown;
  BlockRef ref;
  uint32_t done = 0;
  bool block_counted = true;  // the block's own counter, if any, has been incremented
  // ... this edge out of the unit, which has been counted and leads to code not reached yet.
  std::optional<uint32_t> counted_edge;
  TargetAddr pc;                      // for unwinding
  bool pc_is_return_address = false;  // kBetween: `pc` is where a return went
  bool pc_is_on_stack = false;        // kBetween: the return address has just been pushed
  uint64_t stack_bytes = 0;           // what translated code has pushed beyond the program's own
  // Inside a loop that a register counts: what its counter is to get if control goes no further.
  struct InLoop {
    uint32_t counter = 0;
    uint8_t reg = 0;
    uint64_t value = 0;
  };
  std::optional<InLoop> in_loop;
};

struct Interruption {
  uint64_t context = 0;          // address of the kernel's ucontext
  user_regs_struct registers{};  // the program's, with original addresses
  Position position;
  CacheAddr resume;        // where the same instruction goes on; 0 if it cannot
  CacheAddr restart;       // a system call: where it is made again; 0 for anything else
  bool inherited = false;  // by fork: the block was not entered in this process
};

class Interruptions {
 public:
  // Returns the record that was forgotten because it had the same frame, if any.
  std::optional<Interruption> push(uint32_t slot, const Interruption& interruption);
  const Interruption* find(uint32_t slot, uint64_t context) const;
  // The record whose frame is the nearest farther out than the stack pointer.
  const Interruption* innermost(uint32_t slot, uint64_t stack_pointer) const;
  std::optional<Interruption> take(uint32_t slot, uint64_t context);
  void forget(uint32_t slot) { by_slot_.erase(slot); }
  // All of a thread's records, to be put back in the same state.
  std::vector<Interruption> of(uint32_t slot) const {
    const auto it = by_slot_.find(slot);
    return it == by_slot_.end() ? std::vector<Interruption>() : it->second;
  }
  void restore(uint32_t slot, std::vector<Interruption> records) {
    by_slot_[slot] = std::move(records);
  }
  // A thread that shares its parent's stack is inside the same handlers.
  void inherit(uint32_t slot, uint32_t parent);

  // The same for a process that was forked: its code cache is another.
  void inherit_from(const Interruptions& parent, uint32_t parent_slot, uint32_t slot);

  // Where handlers return to, as seen on their stacks.
  void note_restorer(TargetAddr address) { restorers_.insert(address.value()); }
  bool is_restorer(TargetAddr address) const { return restorers_.contains(address.value()); }
  // Also true behind its first instructions.
  bool is_in_restorer(TargetAddr address) const;

 private:
  std::map<uint32_t, std::vector<Interruption>> by_slot_;
  std::set<uint64_t> restorers_;
};

}  // namespace tally::engine

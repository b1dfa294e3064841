// Probes for procedures that move the stack pointer and jump away.
//
// longjmp and the exception unwinder leave procedures that never return.  They get two probes: a
// snapshot of the stack at entry, the commitment in front of the jump (ledger.h).  (Farther in,
// GCC's unwinder has written over its own frame, and libc describes the stack longjmp goes to.)
// OCaml raises that way from the middle of procedures that are called often and seldom raise: there
// the snapshot is taken at the start of the block that jumps.
//
// So do returns that pop what their own block has put there, by `push` or by an instruction that
// names the stack pointer and that isa/emulate.h knows.  If it was put over an address that
// was there before, the procedure comes back elsewhere than behind its call, which stays open for
// good; what was there is looked at before (`kReturnSlot`) and at the return (`kReturnChanged`):
//
//     add $3, (%rsp)     the return address: what lies behind the call is left out
//     ret
//
// If it was pushed, the return is a jump, which may lead behind a call that nobody made
// (`kJumpByReturn`).  What a compiler makes of an indirect branch against speculation (call what
// follows, put the target over the return address, return) is that too, but needs no probe: such a
// call may be answered by a jump as it is.  A return address that was changed in an earlier block
// is not seen, nor is one that another procedure has changed; within the block it is looked for
// back to where a frame ends (`leave`).
//
// Modules without any call frame information need none: their calls have a second way out, so that
// their frames never stay open, and many of them move the stack pointer all the time (interpreters
// that are generated at every return, Go at every change of goroutine).
#pragma once

#include <cstdint>
#include <vector>

#include "cfg/procedure.h"

namespace tally::engine {

enum class EventKind : uint8_t { kSnapshot, kCommit, kReturnSlot, kReturnChanged, kJumpByReturn };

// Where the address lies that was popped right before a return by jump (isa::returns_by_jump).
inline constexpr int32_t kPoppedSlotBytes = -8;

struct WantedEvent {
  EventKind kind = EventKind::kSnapshot;
  uint32_t insn = 0;  // in the procedure: the probe stands in front of it
  uint32_t block = 0;
  uint32_t insn_in_block = 0;
  // kReturnSlot, kReturnChanged: from the stack pointer to what will be popped, or has been.
  int32_t slot_bytes = 0;
  bool operator==(const WantedEvent&) const = default;
};

// In the order of their instructions.  Code beyond the procedure that was looked at is added to
// `sources`.
std::vector<WantedEvent> find_events(const cfg::Procedure& procedure, const cfg::CodeView& view,
                                     std::vector<LinkRange>& sources);

}  // namespace tally::engine

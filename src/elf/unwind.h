// Back-traces from registers, memory and .eh_frame: who is active on this stack?
//
// Problem.  When a program ends in the middle of a call chain, the flow of every active procedure
// stays open; the paper closes it with one edge per active procedure (Ball-Larus, section 3.1,
// Figure 4).  So we need the exact list of active call sites, without frame pointers and without
// running code in the target.
//
// Idea.  Evaluate the DWARF call frame information with elfutils' tables: for each frame the rule
// of the canonical frame address and of each saved register, read from the target's memory.
//
// Honesty.  The trace says how it ended.  kOutermost means CFI itself marked the end (return
// address undefined, or zero); anything else is an incomplete back-trace and must be reported.
//
// Not handled: frames without CFI that nobody knows about (they end the trace by name); signal
// frames are recognized by the CFI's 'S' augmentation so that the pc is not decremented.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "elf/image.h"

namespace tally::elf {

// DWARF numbering for x86-64: 0 rax, 1 rdx, 2 rcx, 3 rbx, 4 rsi, 5 rdi, 6 rbp, 7 rsp, 8-15 r8-r15,
// 16 the return address (pc).
inline constexpr int kDwarfRegisterCount = 17;
inline constexpr int kDwarfRbp = 6;
inline constexpr int kDwarfRsp = 7;
inline constexpr int kDwarfPc = 16;

struct UnwindRegisters {
  std::array<uint64_t, kDwarfRegisterCount> value{};
  std::array<bool, kDwarfRegisterCount> known{};
};

// Where a module sits: target address = link address + bias.
struct UnwindModule {
  std::shared_ptr<const Image> image;
  uint64_t bias = 0;
};

// What a signal interrupted: registers as they were then.
struct SignalContext {
  UnwindRegisters registers;
  bool pc_is_exact = true;  // false: the pc is a return address, its call is still open
};

struct UnwindTarget {
  // The module that contains the address; nullopt when none does.
  std::function<std::optional<UnwindModule>(TargetAddr)> module_at;
  // Reads size_bytes; false when the memory is not there.
  std::function<bool(TargetAddr, void*, size_t size_bytes)> read_memory;
  // If the pc is where a signal handler returns to: what its signal interrupted, kept at the stack
  // pointer.  May be empty; signal frames are then known by call frame information alone.
  std::function<std::optional<SignalContext>(TargetAddr pc, uint64_t stack_pointer)> signal_context;
  // The caller of a frame that has no call frame information, if somebody knows it by other means;
  // the caller's pc is a return address, or 0 if there is no caller.  `inner` is the pc of the
  // frame that it called, 0 at the innermost.  Where the pc is in no module at all, the frame is
  // left out. May be empty.
  std::function<std::optional<UnwindRegisters>(const UnwindRegisters&, bool pc_is_exact,
                                               TargetAddr inner)>
      caller_of;
  // True for a frame that nobody called, whatever its description says: a thread that was born in
  // the middle of a procedure, on a stack of its own.  May be empty.
  std::function<bool(const UnwindRegisters&)> is_outermost;
  // What goes on below a frame that is described as the outermost, if somebody knows that: threads
  // of a C library under stacks that a runtime system has made.  May be empty.
  std::function<std::optional<UnwindRegisters>(const UnwindRegisters&)> below_outermost;
};

struct Frame {
  TargetAddr pc;   // innermost: the given pc; others: the return address into this frame
  TargetAddr cfa;  // rsp just before the call that created the frame, and after the frame returns
  // The frame of a signal's return code: nobody called it, and what the next frame was doing was
  // interrupted.
  bool signal_frame = false;
  uint64_t context = 0;  // of a signal frame: where the kernel's ucontext lies
};

enum class TraceEnd : uint8_t {
  kOutermost,
  kNoModule,
  kNoCfi,
  kUnreadable,
  kUnsupported,
  kTooDeep
};

struct BackTrace {
  std::vector<Frame> frames;  // innermost first
  TraceEnd end = TraceEnd::kOutermost;
  std::string detail;  // for every end but kOutermost: what was seen, where
};

// Walks from `registers` (pc, rsp and what else is known) outwards.  At most `frames_max` frames.
// A frame whose CFA does not lie above the previous one's ends the walk (kUnsupported): memory is
// hostile, and the loop must end.
BackTrace unwind(const UnwindRegisters& registers, const UnwindTarget& target, size_t frames_max);

}  // namespace tally::elf

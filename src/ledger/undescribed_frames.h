// Callers of code that has no call frame information.
//
// Problem.  Generated code, and what compilers put into a program's text by themselves (the
// built-ins of V8), comes without call frame information; a back-trace ends there, though the
// procedures farther out have callers too, whose flow is open.
//
// Idea.  Conventions that say where the return address must be; it is believed only if a call that
// Tally has translated stands in front of it:
//
//   where libc makes a thread              at the stack pointer; its description ends in front of
//                                          the `syscall`.  The thread just born has no caller.
//   at a procedure's first instruction     at the stack pointer
//   frame pointers (V8, HotSpot's          rbp points to the caller's rbp; the return address lies
//   interpreter and stubs)                 above it
//   generated code without (QEMU,          the innermost return address on the stack that belongs
//   HotSpot's compilers)                   to a call from other code into generated code
//   other code without (musl's libc)       the same for calls from described code into code without
//                                          a description; where the whole stack up to its bottom
//                                          has none, nobody else is active
//   stacks of their own (goroutines)       the same on the stack that the thread was born with, if
//                                          there is exactly one
//   a signal's handler that has called    the kernel's frame: nobody farther out is its caller
//   nobody described (any of these)
//   debug information of such code, where  the same
//   it leads nowhere (Go's switches) or
//   ends (goroutines)
//
// Those that search pass over frames of undescribed code.  That is no loss: calls there have a
// second way out, so that their frames never stay open (cfg::DiscoverRequest::open_calls).
//
// Limits.  A frame that keeps neither convention hides its caller if rbp is still that of a frame
// farther out than its caller's; a dead word on the stack may look like the return address sought,
// if its procedure's caller still stands where its description says.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cache/code_cache.h"
#include "elf/unwind.h"

namespace tally::engine {

// The process as a back-trace sees it, with nothing known but what its modules describe.  Both must
// outlive it.
elf::UnwindTarget unwind_target(const ModuleMap& modules, const tracee::Process& process);

class UndescribedFrames {
 public:
  // `is_call`: whether an address is known to lie behind a call.  `birth`: the stack pointer that
  // the thread was born with, if that was seen.  `main_stack`: the first thread's stack, as far as
  // it had grown when it was looked up last; it is remembered there.  `handler_return`: where the
  // return address of the innermost signal handler lies whose frame is farther out than a stack
  // pointer.
  UndescribedFrames(const ModuleMap& modules, CodeCache& cache, const tracee::Process& process,
                    std::function<bool(TargetAddr)> is_call, std::optional<uint64_t> birth,
                    TargetRange& main_stack,
                    std::function<std::optional<uint64_t>(uint64_t)> handler_return)
      : modules_(modules),
        cache_(cache),
        process_(process),
        is_call_(std::move(is_call)),
        birth_(birth),
        main_stack_(main_stack),
        handler_return_(std::move(handler_return)) {}

  // The registers in the caller of a frame, as far as they are known; nullopt if it cannot be told.
  // `pc_is_exact`: the pc is not a return address.  `inner`: the pc of the frame that this one
  // called; 0 at the innermost.
  std::optional<elf::UnwindRegisters> caller_of(const elf::UnwindRegisters& frame, bool pc_is_exact,
                                                TargetAddr inner) const;
  // Whether a stack that a thread has just come to by a jump begins there: it is not the thread's
  // own, nobody waits on it right there, and the address is one of a file's code that nothing
  // describes, and that no call comes back to (Boost's contexts begin so).
  bool begins_stack(TargetAddr pc, uint64_t stack_pointer) const;
  // The same below a frame that debug information takes for the outermost.
  std::optional<elf::UnwindRegisters> below_outermost(const elf::UnwindRegisters& frame) const;

 private:
  bool is_undescribed(TargetAddr pc) const;
  bool has_waiting(uint64_t stack_pointer) const;
  static bool is_behind_clone(const Module& module, LinkAddr pc);
  std::optional<elf::UnwindRegisters> return_at(uint64_t stack_pointer) const;
  std::optional<elf::UnwindRegisters> to_restorer(uint64_t at) const;
  std::optional<elf::UnwindRegisters> by_frame_pointer(const elf::UnwindRegisters& frame) const;
  std::optional<elf::UnwindRegisters> by_search(uint64_t stack_pointer) const;
  bool enters_generated_code(TargetAddr return_address) const;
  std::optional<elf::UnwindRegisters> keeper_of_frame_pointer(
      const elf::UnwindRegisters& frame) const;
  std::optional<elf::UnwindRegisters> described_caller(const elf::UnwindRegisters& frame) const;
  std::optional<elf::UnwindRegisters> described_caller_at(const elf::UnwindRegisters& frame,
                                                          uint64_t at) const;
  std::vector<uint64_t> calls_out_of_description(uint64_t begin, uint64_t end, size_t most) const;
  bool may_be_active(TargetAddr back, uint64_t at) const;
  std::optional<uint64_t> stack_end(uint64_t stack_pointer) const;
  bool read(uint64_t address, uint64_t& word) const;

  const ModuleMap& modules_;
  CodeCache& cache_;
  const tracee::Process& process_;
  std::function<bool(TargetAddr)> is_call_;
  std::optional<uint64_t> birth_;
  TargetRange& main_stack_;
  std::function<std::optional<uint64_t>(uint64_t)> handler_return_;
};

}  // namespace tally::engine

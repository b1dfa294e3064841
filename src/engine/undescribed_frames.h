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
//
// The last passes over frames of generated code.  That is no loss: calls there have a second way
// out, so that their frames never stay open (cfg::DiscoverRequest::replaceable).
//
// Limits.  A frame that keeps neither convention hides its caller if rbp is still that of a frame
// farther out; a dead word on the stack may look like the return address sought.  Either way flow
// is not conserved then, and the profile says so.
#pragma once

#include <functional>
#include <optional>

#include "elf/unwind.h"
#include "engine/code_cache.h"

namespace tally::engine {

class UndescribedFrames {
 public:
  // `is_call`: whether an address is known to lie behind a call.
  UndescribedFrames(const ModuleMap& modules, CodeCache& cache, const tracee::Process& process,
                    std::function<bool(TargetAddr)> is_call)
      : modules_(modules), cache_(cache), process_(process), is_call_(std::move(is_call)) {}

  // The registers in the caller of a frame, as far as they are known; nullopt if it cannot be told.
  // `pc_is_exact`: the pc is not a return address.
  std::optional<elf::UnwindRegisters> caller_of(const elf::UnwindRegisters& frame,
                                                bool pc_is_exact) const;

 private:
  static bool is_behind_clone(const Module& module, LinkAddr pc);
  std::optional<elf::UnwindRegisters> return_at(uint64_t stack_pointer) const;
  std::optional<elf::UnwindRegisters> by_frame_pointer(const elf::UnwindRegisters& frame) const;
  std::optional<elf::UnwindRegisters> by_search(uint64_t stack_pointer) const;
  bool enters_generated_code(TargetAddr return_address) const;
  bool read(uint64_t address, uint64_t& word) const;

  const ModuleMap& modules_;
  CodeCache& cache_;
  const tracee::Process& process_;
  std::function<bool(TargetAddr)> is_call_;
};

}  // namespace tally::engine

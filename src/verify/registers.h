// Registers as the kernel hands them out, and as the emulator wants them.
#pragma once

#include <sys/user.h>

#include "isa/emulate.h"

namespace tally::verify {

inline isa::Registers from_kernel(const user_regs_struct& r) {
  return {.general = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10,
                      r.r11, r.r12, r.r13, r.r14, r.r15},
          .rip = r.rip,
          .flags = r.eflags,
          .fs_base = r.fs_base};
}

inline void to_kernel(const isa::Registers& from, user_regs_struct& r) {
  const auto& g = from.general;
  r.rax = g[0], r.rcx = g[1], r.rdx = g[2], r.rbx = g[3];
  r.rsp = g[4], r.rbp = g[5], r.rsi = g[6], r.rdi = g[7];
  r.r8 = g[8], r.r9 = g[9], r.r10 = g[10], r.r11 = g[11];
  r.r12 = g[12], r.r13 = g[13], r.r14 = g[14], r.r15 = g[15];
  r.rip = from.rip;
  r.eflags = from.flags;
}

}  // namespace tally::verify

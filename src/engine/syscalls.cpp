// System calls that concern the monitor.
//
//   mmap, mprotect, munmap, ...   which memory the program believes executable; the kernel is never
//                                 told, so that nothing runs unseen
//   rt_sigreturn                  where a handler returns to must be found in the code cache
//   execve                        the stack must be on the ledger before it is gone
//   rseq                          answered ENOSYS: its abort test compares addresses in the cache
//   arch_prctl, seccomp, ...      what would break the counters or the mailbox is refused by name
//
// All others are executed by the program's own code without a question.
#include <asm/prctl.h>
#include <errno.h>
#include <linux/prctl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "engine/service.h"

namespace tally::engine {

using namespace translate;

namespace {

enum : unsigned { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi, kR8, kR9, kR10, kR11 };

TargetRange page_range(uint64_t address, uint64_t size_bytes) {
  const uint64_t begin = address & ~uint64_t{0xfff};
  return {TargetAddr(begin), TargetAddr((address + size_bytes + 0xfff) & ~uint64_t{0xfff})};
}

bool changes_memory(uint64_t number) {
  return number == SYS_mmap || number == SYS_mprotect || number == SYS_pkey_mprotect ||
         number == SYS_munmap || number == SYS_mremap;
}

}  // namespace

void Service::finish_syscall(uint32_t slot, uint64_t result, uint64_t r11) {
  const auto site_id = load<uint32_t>(slot, tcb::kArgument);
  const BlockRef ref = cache_.syscall_block(site_id);
  const Unit& unit = cache_.unit(ref.unit);
  set_reg(slot, kRax, result);
  set_reg(slot, kR11, r11);
  set_reg(slot, kRcx, unit.module->to_target(unit.end_of(ref.block)).value());
  // The call may have changed the very code that made it.
  auto on = cache_.behind_syscall(site_id);
  if (!on) return fail(on.error());
  if (unit.dead) ledger_.leave_behind_call(ref, on->to);
  store(slot, tcb::kResume, on->resume.value());
  answer(slot, Action::kResume);
}

// What Tally cannot let happen, named before harm is done.
Status Service::refuse_syscall(uint64_t number, const std::array<uint64_t, 6>& arguments) {
  switch (number) {
    case SYS_arch_prctl:
      if (arguments[0] == ARCH_SET_GS) {
        return make_error("the program sets the gs register, which Tally needs for its counters");
      }
      break;
    case SYS_prctl:
      if (arguments[0] == PR_SET_SECCOMP) {
        return make_error("the program installs a seccomp filter, which could stop Tally's code");
      }
      break;
    case SYS_seccomp:
      if (arguments[0] <= 1) {
        return make_error("the program installs a seccomp filter, which could stop Tally's code");
      }
      break;
    case SYS_shmat:
      if (arguments[2] & SHM_EXEC) {
        return make_error("the program maps shared memory as code, which is not supported yet");
      }
      break;
    default:
      break;
  }
  return Ok{};
}

// A C library that was running before Tally came knows that registering succeeds: a thread for
// which it does not ends the program.  So it does, and the kernel is told at the end.
uint64_t Service::answer_rseq(uint32_t slot, const std::array<uint64_t, 6>& arguments) {
  constexpr uint64_t kUnregister = 1;
  if (!on_failure_) return static_cast<uint64_t>(-ENOSYS);
  rseq_[slot] = std::nullopt;
  if ((arguments[2] & kUnregister) == 0) {
    rseq_[slot] = tracee::RseqConfig{arguments[0], static_cast<uint32_t>(arguments[1]),
                                     static_cast<uint32_t>(arguments[3])};
  }
  return 0;
}

Status Service::before_syscall(uint32_t slot) {
  PendingCall call;
  call.number = reg(slot, kRax);
  call.arguments = {reg(slot, kRdi), reg(slot, kRsi), reg(slot, kRdx),
                    reg(slot, kR10), reg(slot, kR8),  reg(slot, kR9)};
  if (call.number == SYS_rt_sigreturn) return before_sigreturn(slot);
  TRY(refuse_syscall(call.number, call.arguments));
  const auto flags = load<uint64_t>(slot, tcb::kFlags);
  const uint64_t rflags = 0x202 | (flags >> 8 & 0xd5) | (flags & 1) << 11;
  if (call.number == SYS_rseq) {
    finish_syscall(slot, answer_rseq(slot, call.arguments), rflags);
    return Ok{};
  }
  if (call.number == SYS_arch_prctl && call.arguments[0] == ARCH_GET_GS) {
    const uint64_t zero = 0;
    const bool written = process_.write_memory(TargetAddr(call.arguments[1]), &zero, sizeof zero);
    finish_syscall(slot, written ? 0 : static_cast<uint64_t>(-EFAULT), rflags);
    return Ok{};
  }
  const bool takes_protection =
      call.number == SYS_mmap || call.number == SYS_mprotect || call.number == SYS_pkey_mprotect;
  if (takes_protection && (call.arguments[2] & PROT_EXEC)) {
    // The kernel keeps code readable where it is executable.
    uint64_t protection = call.arguments[2] & ~static_cast<uint64_t>(PROT_EXEC);
    protection |= PROT_READ;
    set_reg(slot, kRdx, protection);
  }
  if (call.number == SYS_execve || call.number == SYS_execveat) {
    exec_backups_.insert_or_assign(slot, ledger_.state());
    user_regs_struct regs{};
    const elf::UnwindRegisters u = registers_of(slot, TargetAddr());
    regs.rbx = u.value[3];
    regs.rbp = u.value[elf::kDwarfRbp];
    regs.rsp = u.value[elf::kDwarfRsp];
    regs.r12 = u.value[12];
    regs.r13 = u.value[13];
    regs.r14 = u.value[14];
    regs.r15 = u.value[15];
    regs.rip = region_.areas().front().gateway.begin.value();
    ledger_.close_thread(regs, slot, profile::AbnormalKind::kProgramExit, "execve");
  }
  pending_[slot] = call;
  answer(slot, Action::kProgramSyscall);
  return Ok{};
}

// The kernel is about to restore what a signal interrupted: original addresses.  The frame's pc is
// replaced by the place in the code cache, the rest is as the program has it.
Status Service::before_sigreturn(uint32_t slot) {
  constexpr uint64_t kContextRsp = 160;  // offsets in the kernel's ucontext
  constexpr uint64_t kContextRip = 168;
  const uint64_t context = reg(slot, kRsp);
  uint64_t stack_pointer = 0;
  uint64_t pc = 0;
  // A frame that cannot be read is the kernel's to refuse.
  if (process_.read_memory(TargetAddr(context + kContextRsp), &stack_pointer, 8) &&
      process_.read_memory(TargetAddr(context + kContextRip), &pc, sizeof pc)) {
    CacheAddr resume = ledger_.way_back(slot, context, TargetAddr(pc));
    const bool back = resume != CacheAddr();
    if (!back) {
      TRY_ASSIGN(const BlockRef ref, cache_.resolve(TargetAddr(pc), Arrival::kReturn));
      resume = CacheAddr(pc);  // no code: faults there, as it would natively
      if (ref.valid()) {
        TRY_ASSIGN(resume, cache_.arrive(ref));
      }
    }
    // Nothing may fail from here on: what fails is asked again.
    const BlockRef call = cache_.syscall_block(load<uint32_t>(slot, tcb::kArgument));
    ledger_.handler_left(slot, call, context, back, stack_pointer);
    const uint64_t value = resume.value();
    process_.write_memory(TargetAddr(context + kContextRip), &value, sizeof value);
  }
  answer(slot, Action::kProgramSyscall);
  return Ok{};
}

bool Service::cancel_syscall(uint32_t slot, user_regs_struct& regs) {
  auto it = pending_.find(slot);
  if (it == pending_.end()) return false;
  regs.rdx = it->second.arguments[2];
  pending_.erase(it);
  if (auto backup = exec_backups_.find(slot); backup != exec_backups_.end()) {
    ledger_.restore(std::move(backup->second));
    exec_backups_.erase(backup);
  }
  return true;
}

Status Service::after_syscall(uint32_t slot) {
  const PendingCall call = pending_[slot];
  pending_.erase(slot);
  const uint64_t result = reg(slot, kRax);
  const bool failed = static_cast<int64_t>(result) < 0 && static_cast<int64_t>(result) >= -4095;
  // rdx was changed on the way in; the kernel would have left it alone.
  set_reg(slot, kRdx, call.arguments[2]);
  if (auto it = exec_backups_.find(slot); it != exec_backups_.end()) {
    ledger_.restore(std::move(it->second));  // the exec failed, the stack is still there
    exec_backups_.erase(it);
  }
  if (!failed && changes_memory(call.number)) TRY(memory_changed(call, result));
  finish_syscall(slot, result, reg(slot, kR11));
  return Ok{};
}

Status Service::memory_changed(const PendingCall& call, uint64_t result) {
  const auto& [address, size_bytes, protection, flags, a4, a5] = call.arguments;
  switch (call.number) {
    case SYS_mmap:
      return generated_.mapped(page_range(result, size_bytes), protection, flags);
    case SYS_mprotect:
    case SYS_pkey_mprotect: {
      TargetRange range = page_range(address, size_bytes);
      if (protection & PROT_GROWSDOWN) {
        TRY_ASSIGN(range.begin, modules_.mapping_begin(range.begin));
      }
      return generated_.protection_changed(range, protection);
    }
    case SYS_munmap:
      generated_.unmapped(page_range(address, size_bytes));
      return Ok{};
    case SYS_mremap: {
      const TargetRange from = page_range(address, size_bytes);
      if (!modules_.has_code_in(from)) return Ok{};
      return generated_.moved(from, page_range(result, protection));  // the third is the new size
    }
    default:
      return Ok{};
  }
}

}  // namespace tally::engine

// System calls that concern the monitor.
//
//   mmap, mprotect, munmap, ...   which memory the program believes executable; the kernel is never
//                                 told, so that nothing runs unseen
//   rt_sigreturn                  where a handler returns to must be found in the code cache
//   execve, exit                  the stack must be on the ledger before it is gone; a thread that
//                                 is killed on its way out is not seen any more
//   execve, exit_group            end all other threads: see `ends_others`
//   setrlimit, prlimit            limits of address space leave out what is ours
//   mlockall                      locks memory as it is touched: ours is vast, and hardly any of it
//                                 ever exists
//   rseq                          answered ENOSYS: its abort test compares addresses in the cache
//   seccomp                       filters must let the mailbox's own calls pass
//   ptrace                        a process has one tracer, and that is Tally: named where the
//                                 program is refused for it
//   clone, clone3                 children that no tracer is to see would run in the code cache
//   unseen arch_prctl, personality, ...  what would break the counters or the mailbox is refused by
//   name
//
// All others are executed by the program's own code without a question.
#include <asm/prctl.h>
#include <errno.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/seccomp.h"
#include "engine/service.h"

namespace tally::engine {

using namespace translate;

namespace {

enum : unsigned { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi, kR8, kR9, kR10, kR11 };

constexpr const char* kStrictMode =
    "the program enters seccomp's strict mode, which would stop Tally's code";
constexpr uint32_t kAskPersonality = 0xffffffff;

// The kernel looks at 32 bits of what says which of several things is asked for: an operation, its
// flags, an option, a personality.
bool is(uint64_t argument, uint32_t value) {
  return static_cast<uint32_t>(argument) == value;
}

TargetRange page_range(uint64_t address, uint64_t size_bytes) {
  const uint64_t begin = address & ~uint64_t{0xfff};
  return {TargetAddr(begin), TargetAddr((address + size_bytes + 0xfff) & ~uint64_t{0xfff})};
}

// As on processors without them: returns do not go where calls came from in the code cache.
bool is_about_shadow_stacks(uint64_t code) {
  constexpr uint64_t kFirst = 0x5001;  // ARCH_SHSTK_ENABLE
  constexpr uint64_t kLast = 0x5005;   // ARCH_SHSTK_STATUS
  return code >= kFirst && code <= kLast;
}

// As by kernels that have none: system calls would be told apart by their address in the code
// cache, and Tally's own trapped with the program's.
bool dispatches_calls(uint64_t number, const std::array<uint64_t, 6>& arguments) {
  constexpr uint32_t kSetSyscallUserDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11
  return number == SYS_prctl && is(arguments[0], kSetSyscallUserDispatch);
}

bool changes_memory(uint64_t number) {
  return number == SYS_mmap || number == SYS_mprotect || number == SYS_pkey_mprotect ||
         number == SYS_munmap || number == SYS_mremap;
}

// ... or its program: nothing comes back unless it fails.
bool ends_thread(uint64_t number) {
  return number == SYS_execve || number == SYS_execveat || number == SYS_exit;
}

}  // namespace

std::vector<uint32_t> Service::ends_others() const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, call] : pending_) {
    if (call.number == SYS_execve || call.number == SYS_execveat || call.number == SYS_exit_group) {
      slots.push_back(slot);
    }
  }
  return slots;
}

bool Service::has_left(uint32_t slot) const {
  auto it = pending_.find(slot);
  return it != pending_.end() && it->second.number == SYS_exit;
}

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
  if (unit.dead) ledger_.leave_behind_call(slot, ref, on->to);
  store(slot, tcb::kResume, on->resume.value());
  answer(slot, Action::kResume);
}

namespace {

// With flags or an argument the kernel refuses it, which is how libraries find out whether there is
// such a system call (libseccomp does).
bool enters_strict_mode(uint64_t number, const std::array<uint64_t, 6>& arguments) {
  if (number == SYS_seccomp) {
    return is(arguments[0], SECCOMP_SET_MODE_STRICT) && is(arguments[1], 0) && arguments[2] == 0;
  }
  return is(arguments[0], PR_SET_SECCOMP) && arguments[1] == SECCOMP_MODE_STRICT;
}

}  // namespace

namespace {

// What a call maps anew, unmaps, moves or protects, whatever is there.
std::array<TargetRange, 2> replaced_memory(uint64_t number,
                                           const std::array<uint64_t, 6>& arguments) {
  const TargetRange first = page_range(arguments[0], arguments[1]);
  switch (number) {
    case SYS_mmap: {
      const bool is_fixed = (arguments[3] & MAP_FIXED) != 0;
      const bool replaces = is_fixed && (arguments[3] & MAP_FIXED_NOREPLACE) == 0;
      return {replaces ? first : TargetRange{}};
    }
    case SYS_mremap: {
      const bool is_fixed = (arguments[3] & MREMAP_FIXED) != 0;
      return {first, is_fixed ? page_range(arguments[4], arguments[2]) : TargetRange{}};
    }
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return {first};
    default:
      return {};
  }
}

}  // namespace

Status Service::refuse_own_memory(uint64_t number, const std::array<uint64_t, 6>& arguments) const {
  for (const TargetRange range : replaced_memory(number, arguments)) {
    if (!region_.is_in(range)) continue;
    return make_error(
        "the program maps, unmaps, moves or protects {:#x}-{:#x}, where the memory is that Tally "
        "counts in",
        range.begin.value(), range.end.value());
  }
  return Ok{};
}

// What Tally cannot let happen, named before harm is done.
Status Service::refuse_syscall(uint64_t number, const std::array<uint64_t, 6>& arguments) {
  switch (number) {
    case SYS_arch_prctl:
      if (is(arguments[0], ARCH_SET_GS)) {
        return make_error("the program sets the gs register, which Tally needs for its counters");
      }
      break;
    case SYS_prctl:
    case SYS_seccomp:
      if (enters_strict_mode(number, arguments)) return make_error(kStrictMode);
      break;
    case SYS_personality:
      if (!is(arguments[0], kAskPersonality) && (arguments[0] & READ_IMPLIES_EXEC)) {
        return make_error(
            "the program makes all readable memory executable (personality READ_IMPLIES_EXEC), "
            "where code could run unseen");
      }
      break;
    case SYS_shmat:
      if (arguments[2] & SHM_EXEC) {
        return make_error("the program maps shared memory as code, which is not supported yet");
      }
      break;
    case SYS_clone3: {
      uint64_t flags = 0;
      const bool is_read = process_.read_memory(TargetAddr(arguments[0]), &flags, sizeof flags);
      if (is_read && (flags & CLONE_UNTRACED) != 0) {
        return make_error(
            "the program makes a process that no tracer is to see (clone3 with CLONE_UNTRACED), "
            "which would run unseen");
      }
      break;
    }
    default:
      return refuse_own_memory(number, arguments);
  }
  return Ok{};
}

namespace {

bool installs_filter(uint64_t number, const std::array<uint64_t, 6>& arguments) {
  return number == SYS_seccomp ? is(arguments[0], SECCOMP_SET_MODE_FILTER)
                               : number == SYS_prctl && is(arguments[0], PR_SET_SECCOMP) &&
                                     arguments[1] == SECCOMP_MODE_FILTER;
}

}  // namespace

// The files of a process that is not dumpable in /proc are root's: an ordinary user's monitor could
// not see its memory any more, nor its children's.  So the kernel is not told.
bool Service::answer_dumpable(uint32_t slot, const std::array<uint64_t, 6>& arguments,
                              uint64_t r11) {
  if (geteuid() == 0) return false;
  if (is(arguments[0], PR_SET_DUMPABLE) && arguments[1] <= 1) {
    dumpable_ = arguments[1];
    finish_syscall(slot, 0, r11);
    return true;
  }
  if (!is(arguments[0], PR_GET_DUMPABLE) || !dumpable_) return false;
  finish_syscall(slot, *dumpable_, r11);
  return true;
}

// Puts a filter with our prefix in the place of the program's; see seccomp.h.
Status Service::change_filter(uint32_t slot, uint64_t program) {
  sock_fprog given{};
  if (!process_.read_memory(TargetAddr(program), &given, sizeof given)) return Ok{};
  std::vector<sock_filter> filter(given.len);
  // What the kernel would refuse, it is given to refuse.
  if (filter.empty() || filter.size() > BPF_MAXINSNS ||
      !process_.read_memory(TargetAddr(reinterpret_cast<uint64_t>(given.filter)), filter.data(),
                            filter.size() * sizeof(sock_filter))) {
    return Ok{};
  }
  std::vector<uint64_t> ours;
  const GatewayCode& gateway = region_.areas().front().gateway;
  for (const CacheAddr insn :
       {gateway.wake_syscall, gateway.wait_syscall, gateway.monitor_syscall}) {
    ours.push_back(insn.value() + isa::kSyscallBytes);  // a filter sees the address behind it
  }
  TRY_ASSIGN(const std::vector<sock_filter> changed, allow_calls_from(ours, filter));
  uint8_t* room = region_.thread_memory(slot) + tcb::kFilter;
  const uint64_t at = region_.thread_block(slot).value() + tcb::kFilter;
  const uint64_t header[2] = {changed.size(), at + sizeof header};
  static_assert(sizeof header == sizeof(sock_fprog));
  memcpy(room, header, sizeof header);
  memcpy(room + sizeof header, changed.data(), changed.size() * sizeof(sock_filter));
  set_reg(slot, kRdx, at);
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

// What the kernel would refuse, it is given to refuse.
uint64_t Service::locks_for_kernel(uint64_t flags) {
  constexpr uint64_t kAsked = MCL_CURRENT | MCL_FUTURE;
  const bool is_valid = (flags & kAsked) != 0 && (flags & ~(kAsked | MCL_ONFAULT)) == 0;
  return is_valid ? flags | MCL_ONFAULT : flags;
}

// The kernel is never told that memory is executable; it keeps code readable where it is.
uint64_t Service::protection_for_kernel(uint64_t protection) {
  if ((protection & PROT_EXEC) == 0) return protection;
  return (protection & ~uint64_t{PROT_EXEC}) | PROT_READ;
}

// Made by the program's own code, behind which the child begins as well.
void Service::make_child(uint32_t slot, const PendingCall& call) {
  // The bit is not given back afterwards, when the kernel would have left the register alone.
  if (call.number == SYS_clone) {
    set_reg(slot, kRdi, call.arguments[0] & ~uint64_t{CLONE_UNTRACED});
  }
  const BlockRef ref = cache_.syscall_block(load<uint32_t>(slot, tcb::kArgument));
  const CacheAddr behind = cache_.syscall_site_of(ref)->behind;
  store(slot, tcb::kResume, behind.value() - isa::kSyscallBytes);
  answer(slot, Action::kResume);
}

Status Service::before_syscall(uint32_t slot) {
  PendingCall call;
  call.number = reg(slot, kRax);
  call.arguments = {reg(slot, kRdi), reg(slot, kRsi), reg(slot, kRdx),
                    reg(slot, kR10), reg(slot, kR8),  reg(slot, kR9)};
  if (call.number == SYS_rt_sigreturn) return before_sigreturn(slot);
  TRY(refuse_syscall(call.number, call.arguments));
  if (call.number == SYS_clone || call.number == SYS_clone3) {
    make_child(slot, call);
    return Ok{};
  }
  const auto flags = load<uint64_t>(slot, tcb::kFlags);
  const uint64_t rflags = 0x202 | (flags >> 8 & 0xd5) | (flags & 1) << 11;
  if (call.number == SYS_rseq) {
    finish_syscall(slot, answer_rseq(slot, call.arguments), rflags);
    return Ok{};
  }
  if (call.number == SYS_prctl && answer_dumpable(slot, call.arguments, rflags)) return Ok{};
  if (dispatches_calls(call.number, call.arguments) ||
      (call.number == SYS_arch_prctl && is_about_shadow_stacks(call.arguments[0]))) {
    finish_syscall(slot, static_cast<uint64_t>(-EINVAL), rflags);
    return Ok{};
  }
  if (call.number == SYS_arch_prctl && is(call.arguments[0], ARCH_GET_GS)) {
    const uint64_t zero = 0;
    const bool written = process_.write_memory(TargetAddr(call.arguments[1]), &zero, sizeof zero);
    finish_syscall(slot, written ? 0 : static_cast<uint64_t>(-EFAULT), rflags);
    return Ok{};
  }
  const bool takes_protection =
      call.number == SYS_mmap || call.number == SYS_mprotect || call.number == SYS_pkey_mprotect;
  if (takes_protection) set_reg(slot, kRdx, protection_for_kernel(call.arguments[2]));
  if (call.number == SYS_mlockall) set_reg(slot, kRdi, locks_for_kernel(call.arguments[0]));
  raise_limit(slot, call);
  if (installs_filter(call.number, call.arguments)) TRY(change_filter(slot, call.arguments[2]));
  if (ends_thread(call.number)) {
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
    const bool exit = call.number == SYS_exit;
    if (!exit && before_exec_) before_exec_(slot);
    const auto kind =
        exit ? profile::AbnormalKind::kThreadExit : profile::AbnormalKind::kProgramExit;
    exec_backups_.insert_or_assign(
        slot, ledger_.close_ahead(regs, slot, kind, exit ? "the thread ended" : "execve"));
  }
  pending_[slot] = call;
  answer(slot, Action::kProgramSyscall);
  return Ok{};
}

// A handler may have changed what bounds the index of a jump through a table, and has been checked.
void Service::check_index(CacheAddr resume, uint64_t context) {
  const std::optional<CodeCache::BoundIndex> bound = cache_.index_bounded_at(resume);
  if (!bound) return;
  uint64_t index = 0;
  const TargetAddr at(context + kContextOf[bound->reg]);
  if (!process_.read_memory(at, &index, sizeof index)) return;
  if (index > isa::kIndexMax) cache_.leave_index_of(bound->site);
}

// The kernel is about to restore what a signal interrupted: original addresses.  The frame's pc
// is replaced by the place in the code cache, the rest is as the program has it.
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
    BlockRef ref;
    if (!back) {
      TRY_ASSIGN(ref, cache_.resolve(TargetAddr(pc), Arrival::kReturn));
      resume = CacheAddr(pc);  // no code: faults there, as it would natively
      if (ref.valid()) {
        TRY_ASSIGN(resume, cache_.arrive(ref));
      }
    }
    // Nothing may fail from here on: what fails is asked again.
    const BlockRef call = cache_.syscall_block(load<uint32_t>(slot, tcb::kArgument));
    ledger_.handler_left(slot, call, context, back, stack_pointer);
    if (ref.valid()) ledger_.handler_goes_to(ref);
    if (back) check_index(resume, context);
    const uint64_t value = resume.value();
    process_.write_memory(TargetAddr(context + kContextRip), &value, sizeof value);
  }
  answer(slot, Action::kProgramSyscall);
  return Ok{};
}

bool Service::cancel_syscall(uint32_t slot, user_regs_struct& regs) {
  auto it = pending_.find(slot);
  if (it == pending_.end()) return false;
  it->second.give_back(regs);
  pending_.erase(it);
  if (auto backup = exec_backups_.find(slot); backup != exec_backups_.end()) {
    ledger_.take_back(slot, std::move(backup->second));
    exec_backups_.erase(backup);
  }
  return true;
}

// TALLY_DEBUG: mappings that the kernel refuses, natively as well, perhaps, or because of Tally.
// With the value `memory` all that changes memory.
void Service::explain_memory(const PendingCall& call, uint64_t result, bool failed) const {
  const char* wanted = std::getenv("TALLY_DEBUG");
  if (wanted == nullptr || !(failed || std::string_view(wanted) == "memory")) return;
  fmt::print(stderr, "tally: debug: process {}: system call {} ({:#x}) gave {:#x}\n",
             process_.pid(), call.number, fmt::join(call.arguments, ", "), result);
  if (!failed) return;
  const auto mappings = process_.mappings();
  if (!mappings) return;
  const TargetRange range = page_range(call.arguments[0], call.arguments[1]);
  fmt::print(stderr, "tally: debug: process {} has {} mappings, at these addresses:\n",
             process_.pid(), mappings->size());
  for (const tracee::Mapping& m : *mappings) {
    if (!overlaps(m.range, range)) continue;
    fmt::print(stderr, "tally: debug:   {:#x}-{:#x} {}\n", m.range.begin.value(),
               m.range.end.value(), m.path);
  }
}

Status Service::after_syscall(uint32_t slot) {
  const PendingCall call = pending_[slot];
  const auto is_error = [](uint64_t value) {
    return static_cast<int64_t>(value) < 0 && static_cast<int64_t>(value) >= -4095;
  };
  uint64_t result = reg(slot, kRax);
  if (!is_error(result)) {
    TRY_ASSIGN(result, keep_apart(call, result));
  }
  const bool failed = is_error(result);
  pending_.erase(slot);
  // As `PendingCall::give_back` does it.
  set_reg(slot, kRdx, call.arguments[2]);
  set_reg(slot, kRsi, call.arguments[1]);
  set_reg(slot, kRdi, call.arguments[0]);
  if (auto it = exec_backups_.find(slot); it != exec_backups_.end()) {
    ledger_.take_back(slot, std::move(it->second));  // the exec failed, the stack is still there
    exec_backups_.erase(it);
  }
  if (!failed) show_limit(call);
  if (call.number == SYS_ptrace && result == static_cast<uint64_t>(-EPERM))
    name_refused_trace(call);
  if (!failed && installs_filter(call.number, call.arguments)) region_.filter_installed();
  if (changes_memory(call.number)) explain_memory(call, result, failed);
  unseal_memory(call, failed ? std::nullopt : std::optional(result));
  if (!failed && changes_memory(call.number)) TRY(memory_changed(call, result));
  finish_syscall(slot, result, reg(slot, kR11));
  return Ok{};
}

// Debuggers and their like: what they do without is not what they would have done.
void Service::name_refused_trace(const PendingCall& call) {
  const uint64_t request = call.arguments[0];
  if (request != PTRACE_TRACEME && request != PTRACE_ATTACH && request != PTRACE_SEIZE) return;
  ledger_.issue("ptrace",
                "the program asked to trace a process or to be traced, which was refused: Tally is "
                "a process' one tracer; the run is not the same as without Tally");
}

// What a call may have mapped, unmapped or protected, even if it failed half way: then it has no
// result.
void Service::unseal_memory(const PendingCall& call, std::optional<uint64_t> result) {
  const auto& [address, size_bytes, third, flags, new_address, a5] = call.arguments;
  switch (call.number) {
    case SYS_mmap:
      return cache_.unseal(page_range(result.value_or(address), size_bytes));
    case SYS_mprotect:
    case SYS_pkey_mprotect:
    case SYS_munmap:
      return cache_.unseal(page_range(address, size_bytes));
    case SYS_mremap:
      cache_.unseal(page_range(address, size_bytes));
      return cache_.unseal(page_range(result.value_or(new_address), third));  // its new size
    case SYS_shmat:
      // The call does not say how large it is.
      return cache_.unseal({TargetAddr(result.value_or(size_bytes)), TargetAddr(UINT64_MAX)});
    default:
      return;
  }
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
      if ((protection & PROT_WRITE) == 0) modules_.note_sealed(range);
      return generated_.protection_changed(range, protection);
    }
    case SYS_munmap:
      generated_.unmapped(page_range(address, size_bytes));
      ledger_.stacks_unmapped(page_range(address, size_bytes));
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

// System calls of the watched program.  See watcher.h.
//
// The kernel stops a thread at the entry and at the end of each system call, so no breakpoint is
// needed there and nothing of it is emulated.  The edge behind a system call is only taken once
// control goes on: a signal that is delivered at its end may lead elsewhere, and an interrupted
// call may be made again.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "verify/watcher.h"

namespace tally::verify {
namespace {

constexpr const char* kSeesTracer =
    ", where it sees that it is traced: what it does then differs from an untraced run";
constexpr uint64_t kTrapBit = 1ull << (SIGTRAP - 1);

// Calls that say something of a descriptor, or read from it; that close it do neither.
bool is_about_input(const Call& call) {
  switch (call.number) {
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_fstat:
    case SYS_ioctl:
    case SYS_lseek:
    case SYS_fcntl:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_splice:
    case SYS_tee:
    case SYS_copy_file_range:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_flock:
    case SYS_fadvise64:
    case SYS_getsockopt:
    case SYS_getsockname:
    case SYS_getpeername:
      return static_cast<uint32_t>(call.arguments[0]) == 0;
    case SYS_sendfile:
      return static_cast<uint32_t>(call.arguments[1]) == 0;
    case SYS_mmap:
      return (call.arguments[3] & MAP_ANONYMOUS) == 0 &&
             static_cast<uint32_t>(call.arguments[4]) == 0;
    // A set of descriptors, which may have it; who starts others, or names files of /dev and /proc,
    // is seen by what these do and by what that opens.
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_ctl:
    case SYS_io_uring_setup:
    case SYS_sendmsg:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool may_restart(int64_t result) {
  return result == -512 || result == -513 || result == -514 || result == -516;
}

bool touches_memory_map(uint64_t number) {
  switch (number) {
    case SYS_mmap:
    case SYS_mprotect:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_shmat:
    case SYS_shmdt:
    case SYS_pkey_mprotect:
    case SYS_remap_file_pages:
      return true;
    default:
      return false;
  }
}

namespace {

// A child that no tracer is to see would run into breakpoints with nobody to answer.
void show_child(tracee::Process& process, pid_t tid, const tracee::SystemCallStop& stop,
                user_regs_struct& regs) {
  if (!stop.entry || stop.number != SYS_clone || (regs.rdi & CLONE_UNTRACED) == 0) return;
  regs.rdi &= ~uint64_t{CLONE_UNTRACED};
  process.set_registers(tid, regs);  // where that fails, it has been killed
}

}  // namespace

Status Watcher::call_stop(Thread& t) {
  user_regs_struct regs{};
  const auto stop = tracee::system_call_stop(t.tid);
  if (!stop || !t.space->process().try_registers(t.tid, regs)) return Ok{};  // killed meanwhile
  show_child(t.space->process(), t.tid, *stop, regs);
  if (t.cold) return cold_call(t, *stop, regs);
  if (stop->entry) {
    t.call = *stop;
    return call_entered(t, regs);
  }
  if (!t.in_call) {  // the end of the call by which a new thread began
    return advance(t, regs);
  }
  t.in_call = false;
  t.call.result = stop->result;
  return call_done(t, regs);
}

Status Watcher::call_entered(Thread& t, user_regs_struct& regs) {
  const uint64_t at = regs.rip - isa::kSyscallBytes;
  if (!catch_up(t, at, false)) lose(t, at, "at a system call");
  t.in_call = true;
  t.position.restarting = false;
  t.call.stack_pointer = regs.rsp;
  t.call.shares_memory = t.call.number == SYS_vfork;
  t.call.same_process = false;
  uint64_t flags = 0;
  const uint64_t first = t.call.arguments[0];
  if (t.call.number == SYS_clone) flags = first;
  if (t.call.number == SYS_clone3) t.space->read(first, &flags, sizeof flags);
  if (flags & CLONE_VM) t.call.shares_memory = true;
  if (flags & CLONE_THREAD) t.call.same_process = true;
  outcome_.looks_at_input = outcome_.looks_at_input || is_about_input(t.call);
  before_trap_call(t, regs);
  if (cold_) leave_to_the_cold(t);
  tracee::resume_watched(t.tid);
  return Ok{};
}

Status Watcher::call_done(Thread& t, user_regs_struct& regs) {
  if (t.become) {
    t.become = false;
    TRY(t.space->refresh(outcome_.notes));
    const std::string program = t.space->process().executable_path();
    tell([&](Checker& c) { c.program_started(t.pid, program); });
    begin_at(t, regs.rip);
    return advance(t, regs);
  }
  if (t.call.number == SYS_rt_sigreturn) return returned_from_signal(t, regs);
  after_trap_call(t, regs);
  if (touches_memory_map(t.call.number) && t.call.result >= 0)
    TRY(memory_changed(t, t.call.result));
  t.position.restarting = may_restart(t.call.result);
  t.position.behind_call = !t.position.restarting;
  let_go(t, regs);
  return Ok{};
}

Status Watcher::memory_changed(Thread& t, int64_t result) {
  const auto& a = t.call.arguments;
  const TargetRange named{TargetAddr(a[0]), TargetAddr(a[0] + a[1])};
  bool executable = false;
  switch (t.call.number) {
    case SYS_mmap: {
      const TargetAddr begin(static_cast<uint64_t>(result));
      t.space->forget({begin, begin + a[1]});
      executable = (a[2] & 4) != 0 || t.space->meets_code({begin, begin + a[1]});
      break;
    }
    case SYS_munmap:
      executable = t.space->meets_code(named);
      t.space->forget(named);
      break;
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      executable = (a[2] & 4) != 0 || t.space->meets_code(named);
      break;
    case SYS_mremap:
      executable = t.space->meets_code(named);
      break;
    default:
      executable = true;
      break;
  }
  if (!executable) return Ok{};
  return t.space->refresh(outcome_.notes);
}

// The program is where the signal struck, or where its handler has changed that to.
Status Watcher::returned_from_signal(Thread& t, user_regs_struct& regs) {
  const auto it = t.handlers.find(t.call.stack_pointer);
  const bool known = it != t.handlers.end();
  const OpenHandler handler = known ? it->second : OpenHandler{};
  if (known) {
    t.handlers.erase(it);
    note_interrupting(t);
    t.trap.blocked = handler.trap_blocked;
  }
  const bool back = known && handler.return_address == regs.rip;
  const bool trapped = handler.position.block != kNoBlock &&
                       code_.block(handler.position.block).how == BlockEnd::kTrap;
  if (back && trapped && !inside(t, handler.position.block, regs.rip)) {
    begin_at(t, regs.rip);  // behind the trap: its handler leads there, not the trap
  } else if (back && handler.position.block != kNoBlock) {
    t.position = handler.position;
    if (t.position.restarting) {
      // Interrupted for good (EINTR): control goes on behind it.  Else it is made again.
      const Mapped* mapped = mapped_of(t, t.position.block);
      const CodeBlock& b = code_.block(t.position.block);
      t.position.restarting = false;
      t.position.behind_call = mapped != nullptr && regs.rip == b.end.value() + mapped->bias;
    }
  } else {
    const Mapped* mapped = mapped_of(t, handler.position.block);
    if (mapped != nullptr) {
      cut_short(handler.position, LinkAddr(handler.return_address - mapped->bias));
    }
    begin_at(t, regs.rip);
    if (handler.interrupting) note_signal_place(t, SignalPlace::kSentThere);
  }
  unblock_trap(t);
  return advance(t, regs);
}

// ---- SIGTRAP ---------------------------------------------------------------------------------
// Met while SIGTRAP is blocked or ignored, a breakpoint would make the kernel unblock it and reset
// its handler.  So it is never really blocked or ignored, and the program reads what it believes.

// What a program reads there depends on who watches it.
void Watcher::note_maps(Thread& t) {
  const uint64_t at = t.call.arguments[t.call.number == SYS_openat ? 1 : 0];
  std::array<char, 32> path{};
  if (!t.space->read(at, path.data(), path.size() - 1)) return;
  const std::string_view name(path.data());
  if (name.starts_with("/dev/std") || name.ends_with("/fd/0")) outcome_.looks_at_input = true;
  if (!name.starts_with("/proc/")) return;
  if (name.ends_with("/status")) note("the program reads " + std::string(name) + kSeesTracer);
  if (!name.ends_with("/maps")) return;
  outcome_.reads_mappings = true;
  note("the program reads " + std::string(name) +
       ", which under `tally profile` shows Tally's memory as well");
}

void Watcher::note(const std::string& words) {
  auto& notes = outcome_.notes;
  if (std::find(notes.begin(), notes.end(), words) == notes.end()) notes.push_back(words);
}

// What it finds there the next time is what it left.
void Watcher::note_writes(const Thread& t) {
  const bool at = t.call.number == SYS_openat;
  const auto& a = t.call.arguments;
  if (!outcome_.writes_to.empty() || (a[at ? 2 : 1] & (O_WRONLY | O_RDWR | O_CREAT)) == 0) return;
  std::array<char, 256> path{};
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (!t.space->read(a[at ? 1 : 0] + i, &path[i], 1) || path[i] == '\0') break;
  }
  const std::string name(path.data());
  if (!name.starts_with("/dev/") && !name.starts_with("/proc/")) outcome_.writes_to = name;
}

void Watcher::before_trap_call(Thread& t, user_regs_struct& regs) {
  t.trap.old_set = t.trap.action = 0;
  t.trap.has_set = false;
  const auto& a = t.call.arguments;
  if (t.call.number == SYS_rseq && options_.deny_rseq) {
    regs.orig_rax = ~0ull;  // no such system call: the kernel answers ENOSYS
    t.space->process().set_registers(t.tid, regs);
  }
  if (t.call.number == SYS_openat || t.call.number == SYS_open) {
    note_maps(t);
    note_writes(t);
  }
  if (t.call.number == SYS_ptrace && a[0] == PTRACE_TRACEME) {
    note(std::string("the program asks to be traced") + kSeesTracer);
  }
  if (t.call.number == SYS_rt_sigprocmask) {
    uint64_t set = 0;
    t.trap.has_set = a[1] != 0 && t.space->read(a[1], &set, sizeof set);
    t.trap.named = (set & kTrapBit) != 0;
    t.trap.how = a[0];
    t.trap.old_set = a[2];
  }
  if (t.call.number == SYS_rt_sigaction) note_handler_set(t);
  if (t.call.number == SYS_rt_sigaction && a[0] == SIGTRAP && a[1] != 0) {
    uint64_t handler = 0;
    if (t.space->read(a[1], &handler, sizeof handler) && handler == 1) {  // SIG_IGN
      t.trap.action = a[1];
      regs.rsi = 0;  // only asks
      t.space->process().set_registers(t.tid, regs);
    }
  }
}

void Watcher::after_trap_call(Thread& t, user_regs_struct& regs) {
  const auto& a = t.call.arguments;
  if (t.call.number == SYS_rt_sigprocmask && t.call.result == 0) {
    const bool before = t.trap.blocked;
    if (t.trap.has_set) {
      if (t.trap.how == SIG_SETMASK) t.trap.blocked = t.trap.named;
      if (t.trap.named && t.trap.how != SIG_SETMASK) t.trap.blocked = t.trap.how == SIG_BLOCK;
      if (t.trap.named) unblock_trap(t);
    }
    uint64_t old = 0;
    if (t.trap.old_set != 0 && before && t.space->read(t.trap.old_set, &old, sizeof old)) {
      old |= kTrapBit;
      t.space->write(t.trap.old_set, &old, sizeof old);
    }
  }
  if (t.call.number != SYS_rt_sigaction || a[0] != SIGTRAP) return;
  const auto ignored = trap_ignored_.find(t.pid);
  if (a[2] != 0 && ignored != trap_ignored_.end()) {
    t.space->write(a[2], &ignored->second, sizeof ignored->second);
  }
  if (a[1] != 0) trap_ignored_.erase(t.pid);
  if (t.trap.action != 0) {
    std::array<uint64_t, 4> action{};
    t.space->read(t.trap.action, action.data(), sizeof action);
    trap_ignored_[t.pid] = action;
    regs.rsi = t.trap.action;
    t.space->process().set_registers(t.tid, regs);
    t.trap.action = 0;
  }
}

void Watcher::unblock_trap(Thread& t) {
  const uint64_t mask = t.space->process().signal_mask(t.tid);
  if ((mask & kTrapBit) == 0) return;
  t.trap.blocked = true;
  t.space->process().set_signal_mask(t.tid, mask & ~kTrapBit);
}

}  // namespace tally::verify

// Signals that come at a time of their own, and what is executed for them.  See interruptions.h.
#include <sys/syscall.h>

#include <algorithm>
#include <csignal>

#include "verify/watcher.h"

namespace tally::verify {
namespace {

constexpr uint64_t kStackMax = 8 << 20;  // bytes; what lies farther apart is another stack

// An instruction causes it.
bool is_of_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
         signal == SIGTRAP || signal == SIGSYS;
}

bool sends_to_itself(const Thread& t) {
  switch (t.call.number) {
    case SYS_kill:
    case SYS_rt_sigqueueinfo:
      return static_cast<pid_t>(t.call.arguments[0]) == t.pid;
    case SYS_tkill:
      return static_cast<pid_t>(t.call.arguments[0]) == t.tid;
    case SYS_tgkill:
    case SYS_rt_tgsigqueueinfo:
      return static_cast<pid_t>(t.call.arguments[1]) == t.tid;
    default:
      return false;
  }
}

}  // namespace

// Neither a fault, nor sent by the thread itself (SIGPIPE is: the kernel names the writer).
bool Watcher::is_interrupting(const Thread& t, const siginfo_t& info) {
  if (is_of_fault(info.si_signo) && info.si_code > 0) return false;
  const bool has_sender =
      info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE;
  if (!has_sender || info.si_pid != t.pid) return true;
  if (t.space->threads == 1) return false;
  return !(t.position.behind_call && (info.si_signo == SIGPIPE || sends_to_itself(t)));
}

void Watcher::note_interrupting(Thread& t) {
  t.in_interrupting = std::any_of(t.handlers.begin(), t.handlers.end(),
                                  [](const auto& entry) { return entry.second.interrupting; });
}

// Who stands above a handler's frame has left it, without a return.
void Watcher::leave_stack(Thread& t, uint64_t stack_pointer) {
  for (auto& [context, handler] : t.handlers) {
    if (stack_pointer > context && stack_pointer - context < kStackMax)
      handler.interrupting = false;
  }
  note_interrupting(t);
}

void Watcher::note_signal_place(Thread& t, SignalPlace what) {
  const BlockId block = t.position.block;
  if (block != kNoBlock) tell([&](Checker& c) { c.signal_place(block, what); });
}

// A call that sets a handler is about to be made.
void Watcher::note_handler_set(Thread& t) {
  const auto& a = t.call.arguments;
  uint64_t handler = 0;
  if (a[1] == 0 || is_of_fault(static_cast<int>(a[0]))) return;
  if (!t.space->read(a[1], &handler, sizeof handler) || handler <= 1) return;
  const BlockId block = arrive(t, handler);
  if (block != kNoBlock) tell([&](Checker& c) { c.signal_place(block, SignalPlace::kSet); });
}

}  // namespace tally::verify

// Watching a target from outside, unmodified but for breakpoints: system call stops, single steps
// and breakpoints.
//
// Problem.  A verifier must follow the program as it is, so nothing may be translated: the
// processor runs the original text, and control comes back where a one-byte `int3` stands, where a
// system call begins or ends, and after single steps.
//
// Idea.  `Breakpoints` writes `int3` through /proc/PID/mem, which gives the process pages of its
// own, so that the file and other processes never see it.  Nobody steps over a breakpoint: what
// stands under it is emulated by the caller, so a breakpoint stays where it is while several
// threads run.  Where emulation is impossible the caller removes it for the length of one step.
//
// Not handled: a program that reads its own text sees the breakpoints.
//
// The kernel unblocks SIGTRAP and resets its handler when a breakpoint is met while SIGTRAP is
// blocked or ignored; the caller has to see to it that it never is (see verify/traps.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/address.h"
#include "tracee/process.h"

namespace tally::tracee {

// From now on system calls of the thread, and of threads and processes it makes, can be told from
// traps (EventKind::kSystemCall).  False when the thread is gone.
bool watch_system_calls(pid_t tid);
// Lets a stopped thread run on to the next system call's entry or end, or any other event.
void resume_watched(pid_t tid, int signal = 0);
// Lets it go one instruction further; the end of the step is a SIGTRAP (Process::is_step_end).
void resume_for_one_step(pid_t tid, int signal = 0);

struct SystemCallStop {
  bool entry = false;
  uint64_t number = 0;  // entry
  std::array<uint64_t, 6> arguments{};
  int64_t result = 0;  // end: -errno on failure
};
// What a thread in a kSystemCall stop is doing; nothing when it was killed meanwhile.
std::optional<SystemCallStop> system_call_stop(pid_t tid);

class Breakpoints {
 public:
  // False when the memory cannot be written.  A second call for the same place does nothing.
  bool insert(const Process& process, TargetAddr at);
  bool remove(const Process& process, TargetAddr at);
  bool contains(TargetAddr at) const { return original_.contains(at.value()); }
  // The memory is gone or new: the breakpoints in it with it.
  void forget(TargetRange range);
  // Puts back, in what was read from memory, the bytes that stand under breakpoints.
  void hide(TargetAddr begin, uint8_t* bytes, size_t size_bytes) const;
  // Takes out those in a range that is still mapped, or just forgets them.
  void take_out(const Process& process, TargetRange range);
  // Takes one out, or all but those in `kept`, while threads may be running: one of them may have
  // met such a breakpoint already, so that its trap is still to come.
  void retire(const Process& process, TargetAddr at);
  void retire_all_but(const Process& process, const std::unordered_set<uint64_t>& kept);
  // Whether a trap there may be ours.
  bool explains_trap(TargetAddr at) const { return contains(at) || retired_.contains(at.value()); }
  // Takes all of them out of a process (a child that is let go).
  void remove_all(const Process& process);
  size_t size() const { return original_.size(); }

 private:
  std::unordered_map<uint64_t, uint8_t> original_;
  std::unordered_set<uint64_t> retired_;
};

}  // namespace tally::tracee

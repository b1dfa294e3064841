// Taking hold of a process that runs already, with all its threads.
//
// Problem.  A process cannot be seized at once: threads come and go while it is done, some sleep in
// system calls, some are inside the kernel and cannot be stopped for a while.  And whoever asks for
// the wrong process should learn why it cannot be had, before anything is done to it.
//
// Idea.  Look at /proc/PID/status first, refuse by name.  Then seize and interrupt every thread in
// /proc/PID/task, until a look finds no new one and all of them stand still.  Until the caller
// changes something, a thread that is let go (or whose tracer dies) goes on as if nothing had been:
// the kernel itself restarts the system calls it interrupted.
//
// Children that the process makes meanwhile are let go at once.
//
// Not handled: threads that stay inside the kernel for longer than ten seconds (waiting for a vfork
// child, or for a disk that does not answer); that is an error, by name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tally::tracee {

// Why `pid` cannot be profiled, as far as it shows from outside: no such process, a thread, a
// zombie, a kernel thread, this program itself, traced already, under a seccomp filter, another
// machine's code.
Status check_attachable(pid_t pid);

struct SeizedThread {
  pid_t tid = 0;
  bool group_stopped = false;  // by SIGSTOP and the like, before we came
};

// Seizes and stops all threads.  They die with the monitor only once `set_exit_kill` says so.
// Errors: not permitted, gone meanwhile, became another program meanwhile, a thread that does not
// stop; all are let go then.
Result<std::vector<SeizedThread>> seize_all(pid_t pid);

// The kernel's view of a stopped thread's restartable sequences.
struct RseqConfig {
  uint64_t address = 0;
  uint32_t size_bytes = 0;
  uint32_t signature = 0;
};
// Nothing when the thread has not registered any, or the kernel does not tell (before 5.13).
std::optional<RseqConfig> rseq_config(pid_t tid);

}  // namespace tally::tracee

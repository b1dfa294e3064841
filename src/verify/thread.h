// What the monitor knows of one thread of the watched program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "tracee/watch.h"
#include "verify/code.h"
#include "verify/space.h"

namespace tally::verify {

// Where a thread is, in terms of blocks.
struct Position {
  BlockId block = kNoBlock;  // entered
  // The block ended in a system call, which is done; whether control goes on behind it shows at the
  // next event.
  bool behind_call = false;
  // The kernel may make the interrupted system call again.
  bool restarting = false;
};

// A signal's handler that has not returned.
struct OpenHandler {
  Position position;
  uint64_t return_address = 0;
  bool trap_blocked = false;
  bool interrupting = false;  // its signal came at a time of its own
};

enum class Motion : uint8_t {
  kRun,      // to the next breakpoint or system call
  kStep,     // one instruction, through code that bears no breakpoints
  kSingle,   // one instruction that only the processor can do
  kHandler,  // into a signal's handler
};

struct Call : tracee::SystemCallStop {
  uint64_t stack_pointer = 0;
  bool shares_memory = false;  // a clone that does
  bool same_process = false;
  Call& operator=(const tracee::SystemCallStop& stop) {
    static_cast<tracee::SystemCallStop&>(*this) = stop;
    return *this;
  }
};

// The kernel forces SIGTRAP upon a program that blocks or ignores it, by unblocking it and
// resetting its handler.  So it never really is; this is what the program believes.
struct TrapBelief {
  bool blocked = false;
  uint64_t old_set = 0;  // sigprocmask in progress: where the old set goes
  uint64_t how = 0;      // its first argument
  bool named = false;    // the new set contains SIGTRAP
  bool has_set = false;
  uint64_t action = 0;  // sigaction in progress: the argument taken away
};

struct Thread {
  pid_t tid = 0;
  pid_t pid = 0;
  std::shared_ptr<Space> space;
  bool started = false;
  bool in_call = false;
  bool held = false;       // its event waits for its turn (turns.cpp)
  bool trapped = false;    // ... and is a breakpoint of ours
  bool listening = false;  // in a group stop
  bool become = false;     // execve has succeeded, its end is still to come
  Call call;
  Position position;
  Motion motion = Motion::kRun;
  bool cold = false;                 // only watched blocks of it are told of (cold.cpp)
  BlockId owed = kNoBlock;           // cold: told of as entered already
  BlockId stepped_block = kNoBlock;  // cold: whose last instruction is stepped
  uint64_t lifted = 0;               // the breakpoint taken out for a kSingle
  uint64_t killed_at = 0;            // where its registers were to be when it was killed
  uint64_t stepped_from = 0;         // kStep: the instruction
  bool stepped_pushf = false;
  uint64_t returns_to = 0;    // behind a call into the vsyscall page: a breakpoint for that return
  Position interrupted;       // kHandler: what was
  bool interrupting = false;  // kHandler: the signal came at a time of its own
  std::map<uint64_t, OpenHandler> handlers;  // by the address of the kernel's context
  bool in_interrupting = false;              // any of them is `interrupting`
  TrapBelief trap;
};

}  // namespace tally::verify

// A target held by ptrace.  The only room that calls ptrace.
//
// Problem.  Tally must start a program exactly as the shell would, stop it before its first
// instruction, make system calls in its name, see its threads come and go, and never leave it
// behind.
//
// Idea.  A child is forked, seized, and execs; from the exec stop on it is ours.
// PTRACE_O_EXITKILL makes the kernel kill it should the monitor die.  Everything the program can
// see (environment, descriptors, working directory, signal mask, argv) is inherited untouched.
//
//   fork --- child waits on a pipe --- PTRACE_SEIZE --- child execs --- PTRACE_EVENT_EXEC
//
// Children that a target makes are ours from their first stop on: `wait_for_event` reports the
// events of all of them, and each process that has memory of its own gets a `Process`.
//
// All calls that take a thread must come from the thread of the monitor that spawned the target:
// the kernel ties ptrace to it.  Reading and writing memory may come from any thread.
//
// A process that runs already is taken over by attach.h.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"

namespace tally::tracee {

struct Mapping {  // one line of /proc/PID/maps
  TargetRange range;
  uint64_t file_offset = 0;
  bool readable = false, writable = false, executable = false, shared = false;
  std::string path;  // empty for anonymous memory, "[stack]", "[vdso]", ...
};

enum class EventKind : uint8_t {
  kSignal,       // a signal is about to be delivered; `signal`, `info`
  kThreadBorn,   // `new_tid`: a thread (or a vfork child, see `vfork`) of ours was created
  kForked,       // `new_tid`: a process with memory of its own was created
  kThreadReady,  // first stop of a new thread or process
  kExec,         // the process has become another program
  kExiting,      // the thread is about to be gone; its registers can still be read
  kGone,         // the thread is gone: `exit_status` or `signal`
  kGroupStop,    // stopped by SIGSTOP and the like
  kSystemCall,   // enters or leaves a system call; only where watch.h asked for it
  kOther,        // the thread was killed at a stop; its end is still to be reported
};

// How the target's processor time is known: rusage of the reaped process.
struct Usage {
  double user_seconds = 0;
  double system_seconds = 0;
};

struct Event {
  EventKind kind = EventKind::kOther;
  pid_t tid = 0;
  pid_t new_tid = 0;
  // kExec: the thread that made the call; `tid` is the process.  0 if it was killed meanwhile.
  pid_t former_tid = 0;
  bool vfork = false;
  int signal = 0;       // kExiting: that the process dies of, 0 if it exits
  bool exited = false;  // kGone: by exit, with exit_status
  int exit_status = 0;
  siginfo_t info{};
  Usage usage;       // kGone
  std::string name;  // kExiting: what the thread is called
};

// Waits for the next event of any thread of any target.  Errors: no targets left.
Result<Event> wait_for_event();
// The same, but nothing when a signal reached this thread of the monitor first.
Result<std::optional<Event>> wait_for_event_or_signal();
// The next event of any thread if there is one already.
Result<std::optional<Event>> poll_event();
// Waits for the next event of one thread.
Result<Event> wait_for_event_of(pid_t tid);
// Lets a stopped thread run on, delivering `signal` (0 for none).
void resume(pid_t tid, int signal = 0);
// Leaves a group stop in place but keeps listening.
void listen(pid_t tid);
void detach(pid_t tid);
// True while a thread that listens in a group stop has nothing to report.
bool is_stopped(pid_t tid);
// Makes a running thread stop: kThreadReady, or kGroupStop.  Any other stop that comes first takes
// its place.
void interrupt(pid_t tid);
// Some system calls answer EINTR to a mere stop (epoll_wait, receiving with a timeout).  A thread
// that is stopped in such a call without a handler to run makes it again instead.
void hide_stop(pid_t tid);
// What a thread is doing, as far as a stop would matter to it.
enum class Doing : uint8_t {
  kRuns,
  // It waits in a system call that the program will not notice to be stopped: the kernel (or
  // `hide_stop`) makes it again, with the time that is left, and nothing of it has been done yet.
  kWaits,
  kWaitsOtherwise,
};
Doing doing(pid_t tid);
// The thread has made processes that live, or have not been waited for; true if that is not known.
bool may_have_children(pid_t tid);
// Whether the kernel kills the stopped thread's process should the monitor die.
void set_exit_kill(pid_t tid, bool on);
// True when a thread that should be stopped was killed; its end is still to be reported.
bool is_dying(pid_t tid);
std::string executable_path(pid_t pid);  // /proc/PID/exe
std::string thread_name(pid_t tid);      // /proc/TID/comm; empty when it is gone

class Process {
 public:
  // Starts argv[0] (looked up as a shell does, see program.h) and returns at its exec stop. Errors:
  // not found (127), not executable (126), ptrace forbidden; nothing is left running.
  static Result<std::unique_ptr<Process>> spawn(const std::vector<std::string>& argv);
  // A process that is ours already: a child of a target at its first stop, or a process at its
  // exec stop.
  static Result<std::unique_ptr<Process>> adopt(pid_t pid);
  // From the exec stop, which is inside of execve, to its very end, where system calls can be made.
  static Status finish_exec(pid_t pid);
  ~Process();  // kills the target if it is still there
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  // The process is gone (its end was reported), or somebody else's now: there is nothing to kill.
  void let_go() { gone_ = true; }
  void resume(pid_t tid, int signal = 0) { tracee::resume(tid, signal); }
  // Lets a stopped thread go one instruction further, delivering `signal` (0 for none; with a
  // handler the step ends at the handler's first instruction), and waits for whatever that thread
  // reports next: no other thread is looked at.  Errors: the thread is gone without a report.
  Result<Event> step(pid_t tid, int signal);
  // Brings a thread that is stopped anywhere to a stop from which the kernel will look at its
  // registers as if they were its own: it then restarts the system call they speak of.  Returns
  // what happened instead, if anything.
  Result<std::optional<Event>> stop_again(pid_t tid);
  // True for the event that ends a step: an instruction or system call done.  While a thread is
  // stepped only: its own `int1` looks alike, since virtual machines may lose a step's cause (seen:
  // once in ten million steps).
  static bool is_step_end(const Event& event);
  static bool is_handler_entry(const Event& event);
  // Replaces what a thread in a signal stop will learn about its signal.
  void set_signal_info(pid_t tid, const siginfo_t& info);
  // Makes a signal pending for one thread.
  void send_signal(pid_t tid, int signal);
  // The signals that have a handler (bit n - 1 for signal n), or are ignored, in the process of a
  // thread; as the kernel knows it.
  struct Dispositions {
    uint64_t caught = 0;
    uint64_t ignored = 0;
  };
  Dispositions dispositions(pid_t tid) const;
  void kill_all();

  // All zero when the thread was killed meanwhile.
  user_regs_struct registers(pid_t tid) const;
  bool try_registers(pid_t tid, user_regs_struct& regs) const;
  // False when the thread was killed meanwhile.
  bool set_registers(pid_t tid, const user_regs_struct& regs);
  uint64_t signal_mask(pid_t tid) const;
  void set_signal_mask(pid_t tid, uint64_t mask);

  // Makes the stopped thread execute one system call at `syscall_insn` (the address of a `syscall`
  // instruction in executable memory) and restores its registers.  Returns the raw result, -errno
  // on failure.
  Result<int64_t> remote_syscall(pid_t tid, TargetAddr syscall_insn, long number,
                                 const std::array<uint64_t, 6>& arguments);

  bool read_memory(TargetAddr address, void* data, size_t size_bytes) const;
  bool write_memory(TargetAddr address, const void* data, size_t size_bytes) const;
  // The same, and true as well if the process has no memory any more: it has ended.
  bool write_memory_if_there(TargetAddr address, const void* data, size_t size_bytes) const;
  Result<std::vector<Mapping>> mappings() const;
  // Takes a descriptor of the target into the monitor.
  Result<int> take_descriptor(int target_fd) const;
  std::string executable_path() const { return tracee::executable_path(pid_); }
  double cpu_seconds() const;  // used so far, by all threads

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  Status open_memory();

  pid_t pid_;
  int memory_fd_ = -1;
  bool gone_ = false;
};

// Parses the text of /proc/PID/maps.
std::vector<Mapping> parse_mappings(const std::string& text);

}  // namespace tally::tracee

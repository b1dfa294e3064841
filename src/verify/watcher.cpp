// Events of the kernel.  See watcher.h.
#include "verify/watcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "verify/surroundings.h"

namespace tally::verify {
namespace {

constexpr int kKernelTrap = 0x80;  // si_code of int3
constexpr uint64_t kTrapFlag = 0x100;
constexpr uint64_t kFrameToPc = 168;  // from the kernel's context in a frame to the saved rip
constexpr double kProgressSeconds = 0.25;

double now_seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

bool is_fault(const siginfo_t& info) {
  return info.si_code > 0 &&
         (info.si_signo == SIGSEGV || info.si_signo == SIGBUS || info.si_signo == SIGFPE ||
          info.si_signo == SIGILL || info.si_signo == SIGTRAP);
}

// Makes waiting come to an end now and then, so that time limits hold while the program runs
// without a stop.  Timers are not inherited by children, and handlers end at exec.
class Ticker {
 public:
  Ticker() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &before_);
    set(kProgressSeconds);
  }
  ~Ticker() {
    set(0);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  static void set(double seconds) {
    const auto microseconds = static_cast<suseconds_t>(seconds * 1e6);
    const itimerval every{.it_interval = {0, microseconds}, .it_value = {0, microseconds}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
  struct sigaction before_ {};
};

}  // namespace

Watcher::Watcher(const WatchOptions& options, Code& code, const std::vector<Checker*>& checkers)
    : options_(options), code_(code), checkers_(checkers) {
  code_.on_split = [this](BlockId upper, BlockId lower) { split(upper, lower); };
}

Result<Outcome> watch(const WatchOptions& options, Code& code,
                      const std::vector<Checker*>& checkers) {
  Watcher watcher(options, code, checkers);
  Result<Outcome> outcome = watcher.run();
  code.on_split = nullptr;
  return outcome;
}

Result<Outcome> Watcher::run() {
  began_ = std::chrono::steady_clock::now();
  TRY(start());
  const Ticker ticker;
  Status status = loop();
  if (!status) {
    end_everything(status.error().message);
    return status.error();
  }
  outcome_.seconds = now_seconds(began_);
  return outcome_;
}

Status Watcher::start() {
  Result<std::unique_ptr<tracee::Process>> process = [&] {
    const Randomization randomization(options_.randomize, options_.upwards);
    return tracee::Process::spawn(options_.command);
  }();
  if (!process) return process.error();
  TRY(add_mappings(**process, options_.more_mappings));
  root_ = (*process)->pid();
  Thread& t = threads_[root_];
  t.tid = t.pid = root_;
  t.started = true;
  t.space = std::make_shared<Space>(code_, std::move(*process));
  t.space->threads = 1;
  outcome_.processes = outcome_.threads = 1;
  outcome_.looks_at_input = !options_.follow_children;  // a child may, unseen
  if (!tracee::watch_system_calls(root_)) return make_error("the program died before it started");
  TRY(t.space->refresh(outcome_.notes));
  const std::string program = t.space->process().executable_path();
  tell([&](Checker& c) { c.process_born(root_, 0); });
  tell([&](Checker& c) { c.thread_born(root_, root_); });
  tell([&](Checker& c) { c.program_started(root_, program); });
  user_regs_struct regs = t.space->process().registers(root_);
  unblock_trap(t);
  begin_at(t, regs.rip);
  return advance(t, regs);
}

bool Watcher::should_turn_cold() {
  if (options_.budget_seconds <= 0 || cold_) return false;
  return now_seconds(began_) > options_.budget_seconds / 2;
}

bool Watcher::should_end() {
  if (ending_) return false;
  const double seconds = now_seconds(began_);
  if (options_.interrupted != nullptr && options_.interrupted->load()) {
    end_everything("interrupted");
    return true;
  }
  if (options_.seconds_max > 0 && seconds > options_.seconds_max) {
    end_everything(fmt::format("the program did not end within {:.0f} s", options_.seconds_max));
    return true;
  }
  if (options_.progress && seconds >= next_progress_) {
    next_progress_ = seconds + kProgressSeconds;
    options_.progress(outcome_.blocks, seconds);
  }
  return false;
}

// All that is left is killed; the loop goes on until it is reported.
void Watcher::end_everything(const std::string& why) {
  outcome_.complete = false;
  outcome_.why_incomplete = why;
  ending_ = true;
  for (auto& [tid, t] : threads_) kill(t.pid, SIGKILL);
}

Status Watcher::loop() {
  while (!threads_.empty()) {
    should_end();
    const bool was_cold = cold_;
    const auto before = std::chrono::steady_clock::now();
    TRY_ASSIGN(const std::optional<tracee::Event> event, tracee::wait_for_event_or_signal());
    outcome_.waiting_seconds += now_seconds(before);
    if (event) TRY(take(*event));
    if (!event || (cold_ && !was_cold)) TRY(look_after_turns());
  }
  return Ok{};
}

Status Watcher::handle(const tracee::Event& event) {
  using tracee::EventKind;
  if (event.kind == EventKind::kGone) {
    gone(event);
    return Ok{};
  }
  if (event.kind == EventKind::kExec) return exec(event);
  const auto it = threads_.find(event.tid);
  if (it == threads_.end()) {
    // A child that stops before the event of its birth: it waits for that.
    if (event.kind == EventKind::kThreadReady)
      unclaimed_.emplace(event.tid, 0);
    else
      tracee::resume(event.tid);
    return Ok{};
  }
  Thread& t = it->second;
  t.listening = false;
  if (t.lifted != 0) {
    t.space->breakpoints.insert(t.space->process(), TargetAddr(t.lifted));
    t.lifted = 0;
  }
  switch (event.kind) {
    case EventKind::kSignal:
      return signal_stop(t, event);
    case EventKind::kSystemCall:
      ++outcome_.system_call_stops;
      return call_stop(t);
    case EventKind::kThreadBorn:
    case EventKind::kForked:
      ++outcome_.other_stops;
      TRY(adopt_child(t, event));
      tracee::resume_watched(t.tid);
      return Ok{};
    case EventKind::kThreadReady:
      ++outcome_.other_stops;
      return thread_ready(t);
    case EventKind::kExiting:
      ++outcome_.other_stops;
      exiting(t);
      return Ok{};
    case EventKind::kGroupStop:
      t.listening = true;
      tracee::listen(t.tid);
      return Ok{};
    case EventKind::kOther:
      return Ok{};  // goes on to its end by itself
    default:
      tracee::resume_watched(t.tid);
      return Ok{};
  }
}

Status Watcher::adopt_child(Thread& parent, const tracee::Event& event) {
  const bool forked = event.kind == tracee::EventKind::kForked && !parent.call.shares_memory;
  const bool new_process = forked || event.vfork || !parent.call.same_process;
  Thread& t = threads_[event.new_tid];
  t.tid = event.new_tid;
  t.pid = new_process ? event.new_tid : parent.pid;
  t.trap = TrapBelief{.blocked = parent.trap.blocked};
  if (forked) {
    TRY_ASSIGN(std::unique_ptr<tracee::Process> process, tracee::Process::adopt(event.new_tid));
    t.space = std::make_shared<Space>(code_, std::move(process));
    t.space->inherit(*parent.space);
  } else {
    t.space = parent.space;
  }
  ++t.space->threads;
  ++outcome_.threads;
  if (new_process) {
    ++outcome_.processes;
    tell([&](Checker& c) { c.process_born(t.pid, parent.pid); });
  }
  tell([&](Checker& c) { c.thread_born(t.pid, t.tid); });
  if (unclaimed_.erase(event.new_tid) == 0) return Ok{};
  tracee::Event ready;
  ready.kind = tracee::EventKind::kThreadReady;
  ready.tid = event.new_tid;
  return take(ready);
}

Status Watcher::thread_ready(Thread& t) {
  if (t.started) {  // a stop without meaning, such as the end of a group stop
    if (t.in_call || t.motion == Motion::kRun) {
      tracee::resume_watched(t.tid);
    } else {
      tracee::resume_for_one_step(t.tid);
    }
    return Ok{};
  }
  t.started = true;
  if (ending_) {
    tracee::resume(t.tid);
    return Ok{};
  }
  user_regs_struct regs = t.space->process().registers(t.tid);
  const bool forked = t.tid == t.pid && t.space->threads == 1;
  if (forked && !options_.follow_children) {
    t.space->breakpoints.remove_all(t.space->process());
    t.space->process().let_go();
    const pid_t tid = t.tid;
    threads_.erase(tid);
    tracee::detach(tid);
    return Ok{};
  }
  if (cold_) {
    t.cold = true;
    return cold_go(t, regs, false);
  }
  begin_at(t, regs.rip);
  return advance(t, regs);
}

// The handler does not come back to what its signal interrupted.
void Watcher::abandon_handler(Thread& t, uint64_t context) {
  const auto it = t.handlers.find(context);
  if (it == t.handlers.end()) return;
  const OpenHandler h = it->second;
  t.handlers.erase(it);
  note_interrupting(t);
  const Mapped* mapped = mapped_of(t, h.position.block);
  if (mapped != nullptr) cut_short(h.position, LinkAddr(h.return_address - mapped->bias));
}

void Watcher::exiting(Thread& t) {
  if (t.cold) {
    tracee::resume(t.tid);
    return;
  }
  user_regs_struct regs{};
  const bool got = t.space->process().try_registers(t.tid, regs);
  if (t.started && !t.in_call && got && t.position.block != kNoBlock) {
    if (t.killed_at != 0) regs.rip = t.killed_at;
    // Killed on a breakpoint, before its trap was reported: the processor has gone past the byte.
    const Mapped* here = mapped_of(t, t.position.block);
    const bool inside =
        here != nullptr && code_.block(t.position.block).contains(LinkAddr(regs.rip - here->bias));
    if (!inside && t.killed_at == 0 && t.space->breakpoints.explains_trap(TargetAddr(regs.rip - 1)))
      --regs.rip;
    if (catch_up(t, regs.rip, true)) {
      const Mapped* mapped = mapped_of(t, t.position.block);
      if (mapped != nullptr) cut_short(t.position, LinkAddr(regs.rip - mapped->bias));
    } else {
      lose(t, regs.rip, "at its end");
    }
  }
  while (!t.handlers.empty()) abandon_handler(t, t.handlers.begin()->first);
  t.position = {};
  tracee::resume(t.tid);
}

void Watcher::gone(const tracee::Event& event) {
  unclaimed_.erase(event.tid);
  if (event.tid == root_) {
    outcome_.exited = event.exited;
    outcome_.exit_status = event.exit_status;
    outcome_.signal = event.signal;
  }
  const auto it = threads_.find(event.tid);
  if (it == threads_.end()) return;
  const pid_t pid = it->second.pid;
  tell([&](Checker& c) { c.thread_gone(pid, event.tid); });
  --it->second.space->threads;
  const std::shared_ptr<Space> space = it->second.space;
  threads_.erase(it);
  if (cold_) retire_warm_breakpoints();
  const bool last = std::none_of(threads_.begin(), threads_.end(),
                                 [&](const auto& t) { return t.second.pid == pid; });
  if (!last) return;
  tell([&](Checker& c) { c.process_gone(pid); });
  if (space->threads == 0) space->process().let_go();
}

// The process has become another program; its other threads are gone without a word.
Status Watcher::exec(const tracee::Event& event) {
  const auto caller = threads_.find(event.former_tid != 0 ? event.former_tid : event.tid);
  if (caller == threads_.end()) {
    tracee::resume(event.tid);
    return Ok{};
  }
  Thread fresh;
  fresh.tid = fresh.pid = event.tid;
  fresh.started = fresh.in_call = fresh.become = true;
  fresh.cold = cold_;
  fresh.trap.blocked = caller->second.trap.blocked;
  std::vector<pid_t> others;
  for (auto& [tid, t] : threads_) {
    if (t.pid == event.tid) others.push_back(tid);
  }
  for (const pid_t tid : others) {
    Thread& t = threads_[tid];
    --t.space->threads;
    if (t.space->threads == 0) t.space->process().let_go();
    if (tid != event.tid) tell([&](Checker& c) { c.thread_gone(event.tid, tid); });
    threads_.erase(tid);
  }
  TRY_ASSIGN(std::unique_ptr<tracee::Process> process, tracee::Process::adopt(event.tid));
  fresh.space = std::make_shared<Space>(code_, std::move(process));
  fresh.space->threads = 1;
  threads_[event.tid] = std::move(fresh);
  ++outcome_.other_stops;
  tracee::resume_watched(event.tid);  // to the end of execve
  return Ok{};
}

bool Watcher::ends_step(const Thread& t, const tracee::Event& event, const user_regs_struct& regs) {
  constexpr uint8_t kInt1 = 0xf1;
  if (!tracee::Process::is_step_end(event)) return false;
  if (event.info.si_code == TRAP_TRACE) return true;
  uint8_t before = 0;
  return !t.space->read(regs.rip - 1, &before, sizeof before) || before != kInt1;
}

bool Watcher::is_own_trap(const Thread& t, const tracee::Event& event) {
  return !t.cold && event.kind == tracee::EventKind::kSignal && event.signal == SIGTRAP &&
         event.info.si_code == kKernelTrap;
}

Status Watcher::signal_stop(Thread& t, const tracee::Event& event) {
  user_regs_struct regs{};
  if (!t.space->process().try_registers(t.tid, regs)) return Ok{};  // killed meanwhile
  if (t.cold) return cold_signal(t, event, regs);
  const bool trapped = std::exchange(t.trapped, false);
  if (is_own_trap(t, event) &&
      (trapped || t.space->breakpoints.explains_trap(TargetAddr(regs.rip - 1)))) {
    ++outcome_.breakpoint_stops;
    regs.rip -= 1;
    if (t.returns_to == regs.rip) {
      t.space->breakpoints.remove(t.space->process(), TargetAddr(regs.rip));
      t.returns_to = 0;
      follow_return(t, regs.rip);
      put_registers(t, regs);
      return advance(t, regs);
    }
    if (!catch_up(t, regs.rip, false)) lose(t, regs.rip, "at a breakpoint");
    return advance_from_breakpoint(t, regs);
  }
  if (tracee::Process::is_handler_entry(event)) return handler_entered(t, regs);
  const bool stepping = t.motion == Motion::kStep || t.motion == Motion::kSingle;
  if (stepping && ends_step(t, event, regs)) {
    ++outcome_.steps;
    return step_done(t, regs);
  }
  ++outcome_.signal_stops;
  return deliver(t, event, regs);
}

Status Watcher::advance_from_breakpoint(Thread& t, user_regs_struct& regs) {
  const uint64_t at = regs.rip;
  const Mapped* mapped = mapped_of(t, t.position.block);
  const bool known =
      mapped != nullptr && at == code_.block(t.position.block).last.value() + mapped->bias;
  if (known) return advance(t, regs);
  // The breakpoint is a leftover in the middle of what is a block now: nothing to emulate.
  put_registers(t, regs);
  single(t, at, 0);
  return Ok{};
}

// A signal for the program.
Status Watcher::deliver(Thread& t, const tracee::Event& event, user_regs_struct& regs) {
  const bool fault = is_fault(event.info);
  const bool behind_int3 = fault && event.signal == SIGTRAP;
  const uint64_t at = behind_int3 ? regs.rip - 1 : regs.rip;
  if (t.position.block != kNoBlock && !catch_up(t, at, !fault)) lose(t, at, "at a signal");
  const uint64_t bit = 1ull << (event.signal - 1);
  const bool handled = (t.space->process().dispositions(t.tid).caught & bit) != 0;
  if (handled) {
    t.interrupted = t.position;
    t.interrupting = is_interrupting(t, event.info);
    t.motion = Motion::kHandler;
    tracee::resume_for_one_step(t.tid, event.signal);
    return Ok{};
  }
  if (t.motion == Motion::kSingle) {
    single(t, regs.rip, event.signal);
    return Ok{};
  }
  let_go(t, regs, event.signal);
  return Ok{};
}

Status Watcher::handler_entered(Thread& t, user_regs_struct& regs) {
  const uint64_t context = regs.rsp + 8;
  OpenHandler handler{
      .position = t.interrupted, .trap_blocked = t.trap.blocked, .interrupting = t.interrupting};
  t.space->read(context + kFrameToPc, &handler.return_address, sizeof handler.return_address);
  abandon_handler(t, context);  // one that was left by siglongjmp had its frame here
  t.handlers[context] = handler;
  note_interrupting(t);
  unblock_trap(t);
  begin_at(t, regs.rip);
  note_signal_place(t, handler.interrupting ? SignalPlace::kHandler : SignalPlace::kOwn);
  return advance(t, regs);
}

Status Watcher::step_done(Thread& t, user_regs_struct& regs) {
  const bool single_step = t.motion == Motion::kSingle;
  if (t.stepped_pushf && !single_step) {
    uint64_t flags = 0;
    if (t.space->read(regs.rsp, &flags, sizeof flags)) {
      flags &= ~kTrapFlag;
      t.space->write(regs.rsp, &flags, sizeof flags);
    }
  }
  if (regs.eflags & kTrapFlag) {  // `popf` brought it back: it is not the program's own
    regs.eflags &= ~kTrapFlag;
    put_registers(t, regs);
  }
  const BlockId id = t.position.block;
  const Mapped* mapped = mapped_of(t, id);
  if (id == kNoBlock || mapped == nullptr) {
    t.position = {};
    follow_return(t, regs.rip);
    return advance(t, regs);
  }
  const CodeBlock& b = code_.block(id);
  const bool inside = b.contains(LinkAddr(regs.rip - mapped->bias));
  const bool branched = single_step && (b.how == BlockEnd::kBranch || b.how == BlockEnd::kCall ||
                                        b.how == BlockEnd::kJump || b.how == BlockEnd::kOpaque);
  if (branched && b.how == BlockEnd::kOpaque && regs.rip == b.end.value() + mapped->bias) {
    follow(t, regs.rip, EdgeRole::kFallthrough);
  } else if (branched) {
    follow_branch(t, regs.rip);
  } else if (!inside && !catch_up(t, regs.rip, false)) {
    lose(t, regs.rip, "after a step");
  }
  return advance(t, regs);
}

}  // namespace tally::verify

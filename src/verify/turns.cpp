// Turns: of the threads that share memory, one at a time executes.
//
// Problem.  A block can only be emulated as a whole while nobody else writes what it reads.  With
// several threads only branches were, at a stop for nearly each block.
//
// Idea.  A thread that has stopped is not looked at before the one whose turn it is enters a system
// call, ends, or has had its turn, if others wait; its event waits until then.  So while one is
// emulated the others stand still, or are in the kernel: what the program sees is an order that one
// processor would give it.
//
//   A  ...emulated...| read() |  in the kernel, its end waits for the turn |
//   B     waits      | ...emulated, stopped, emulated...   | futex()        | in the kernel
//
// Nothing rests on turns: whether the others do stand still is looked at each time (is_alone).  A
// thread that does not report for a quarter of a second (it may wait for another one without a
// system call, in a fault that a thread of its own has to serve) runs beside the next one, and then
// only branches are emulated.
//
// A thread in the kernel may have its memory written by the kernel.  Where it may be, loads and
// stores go straight to memory, one by one (nobody_writes); else through memory_cache.h.
//
// Other lengths of turns are other ways to meet, so that each run has its own (WatchOptions).
#include <sys/syscall.h>

#include <algorithm>

#include "verify/watcher.h"

namespace tally::verify {
namespace {

// While it lasts the kernel writes nothing to the program's memory but what nobody looks at before
// the call has ended.
bool writes_nothing(const Call& call) {
  constexpr uint64_t kPlain = 127;  // without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
  constexpr uint64_t kWait = 0;
  constexpr uint64_t kWake = 1;
  constexpr uint64_t kWaitBitset = 9;
  switch (call.number) {
    case SYS_futex: {
      const uint64_t what = call.arguments[1] & kPlain;
      return what == kWait || what == kWake || what == kWaitBitset;
    }
    case SYS_sched_yield:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_fsync:
    case SYS_fdatasync:
      return true;
    default:
      return false;
  }
}

// After these a thread may execute the program's instructions.
bool is_about_to_execute(const tracee::Event& event) {
  using tracee::EventKind;
  return event.kind == EventKind::kSignal || event.kind == EventKind::kSystemCall ||
         event.kind == EventKind::kThreadReady;
}

}  // namespace

bool Watcher::takes_turns(const Thread& t) const {
  return options_.ahead && !cold_ && !t.cold;
}

// Whether all others that share its memory stand still, or are in the kernel.
bool Watcher::is_alone(const Thread& t) const {
  if (t.space->threads == 1) return true;
  return std::all_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    const Thread& other = entry.second;
    return other.space != t.space || other.tid == t.tid || !other.started || other.held ||
           other.in_call || other.listening;
  });
}

bool Watcher::nobody_writes(const Thread& t) const {
  if (t.space->threads == 1) return true;
  return std::all_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    const Thread& other = entry.second;
    return other.space != t.space || other.tid == t.tid || !other.started || other.held ||
           writes_nothing(other.call);
  });
}

// An event of any thread: handled now, or when it is the thread's turn.
Status Watcher::take(const tracee::Event& event) {
  const auto it = threads_.find(event.tid);
  if (it == threads_.end() || !takes_turns(it->second)) return handle(event);
  const std::shared_ptr<Space> space = it->second.space;
  Turns& turns = space->turns;
  if (!is_about_to_execute(event)) {
    if (event.kind == tracee::EventKind::kExiting || event.kind == tracee::EventKind::kGone) {
      drop_held(turns, it->second);
    }
    TRY(handle(event));
    return give_turns(*space);
  }
  const bool own = turns.runner == event.tid;
  if (own) ++turns.reports;
  const bool over = turns.over || outcome_.blocks - turns.blocks_before >= options_.turn_blocks;
  if (own && over && !turns.waiting.empty()) turns.runner = 0;
  if (turns.runner == 0 && turns.waiting.empty()) begin_turn(turns, event.tid);
  if (turns.runner == event.tid) {
    TRY(handle(event));
  } else {
    hold(it->second, event);
  }
  return give_turns(*space);
}

void Watcher::begin_turn(Turns& turns, pid_t tid) {
  turns.runner = tid;
  turns.blocks_before = outcome_.blocks;
  turns.over = false;
  ++turns.reports;
}

void Watcher::hold(Thread& t, const tracee::Event& event) {
  t.held = true;
  // By the time of its turn the breakpoint may be gone.
  user_regs_struct regs{};
  t.trapped = is_own_trap(t, event) && t.space->process().try_registers(t.tid, regs) &&
              t.space->breakpoints.explains_trap(TargetAddr(regs.rip - 1));
  t.space->turns.waiting.push_back(event);
}

// It was killed.
void Watcher::drop_held(Turns& turns, Thread& t) {
  t.held = t.trapped = false;
  std::erase_if(turns.waiting, [&](const tracee::Event& e) { return e.tid == t.tid; });
}

// Ends the turn of who does not execute any more, and gives the next ones theirs.
Status Watcher::give_turns(Space& space) {
  Turns& turns = space.turns;
  while (true) {
    const auto runner = threads_.find(turns.runner);
    const bool executes = runner != threads_.end() && runner->second.space.get() == &space &&
                          runner->second.started && !runner->second.in_call &&
                          !runner->second.listening && takes_turns(runner->second);
    if (!executes) turns.runner = 0;
    if (turns.runner != 0 || turns.waiting.empty()) return Ok{};
    const tracee::Event event = turns.waiting.front();
    turns.waiting.pop_front();
    const auto next = threads_.find(event.tid);
    if (next == threads_.end() || next->second.space.get() != &space) continue;
    next->second.held = false;
    begin_turn(turns, event.tid);
    TRY(handle(event));
  }
}

// Now and then: who has not reported since the last time is not waited for.
Status Watcher::look_after_turns() {
  std::vector<std::shared_ptr<Space>> spaces;
  for (const auto& [tid, t] : threads_) {
    if (t.held && std::ranges::find(spaces, t.space) == spaces.end()) spaces.push_back(t.space);
  }
  for (const std::shared_ptr<Space>& space : spaces) {
    Turns& turns = space->turns;
    if (cold_ || turns.reports == turns.reports_seen) turns.runner = 0;
    turns.reports_seen = turns.reports;
    TRY(give_turns(*space));
  }
  return Ok{};
}

}  // namespace tally::verify

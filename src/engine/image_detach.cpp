// Letting a process go.  See image_run.h.
//
//   threads   to a boundary between two instructions (bring_out)
//   ledger    every frame that is active is closed
//   process   its text gets its protection back, ours is unmapped
//   threads   go on at the original address, with the program's registers
//
// What the kernel knows of the program (handlers, signal frames, masks) was never changed; a system
// call that the stop has interrupted is restarted by the kernel itself, at the original `syscall`.
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/image_run.h"
#include "engine/signal_pause.h"

namespace tally::engine {

using namespace translate;
using profile::AbnormalKind;
using tracee::Event;

struct ImageRun::Leaver {
  pid_t tid = 0;
  uint32_t slot = 0;
  Signals::Outside at;
};

namespace {

// The numbers of landings, in the middle of the tables, are the target's own memory.
bool is_ours(const tracee::Mapping& m, const Region& region) {
  if (m.shared && m.path.starts_with("/memfd:tally")) return true;
  const TargetAddr tables(region.tables_base());
  return TargetRange{tables, tables + tables::kSizeBytes}.contains(m.range.begin);
}

}  // namespace

// Some wait for what another thread does for the monitor: they get their turn once it has.
Result<std::optional<Event>> ImageRun::bring_all_out(std::vector<Leaver>& leavers) {
  bool progress = true;
  size_t ready = 0;
  while (ready < leavers.size()) {
    if (!progress) return make_error("its threads wait for each other");
    progress = false;
    for (Leaver& leaver : leavers) {
      if (leaver.at.ready) continue;
      TRY_ASSIGN(leaver.at, signals_.bring_out(leaver.tid, leaver.slot));
      if (leaver.at.other) return leaver.at.other;
      if (!leaver.at.ready && tracee::is_dying(leaver.tid)) {
        Event gone;
        gone.tid = leaver.tid;
        return std::optional<Event>(gone);
      }
      if (!leaver.at.ready) continue;
      progress = true;
      ++ready;
    }
  }
  return std::optional<Event>();
}

// The kernel has kept everything but the permission to execute.
Status ImageRun::go_native(const RemoteCall& call) {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  for (const tracee::Mapping& m : mappings) {
    if (is_ours(m, region_) || m.executable) continue;
    for (const auto& module : modules_.all()) {
      if (module->gone) continue;
      for (const TargetRange& r : module->executable) {
        const TargetRange part = intersection(r, m.range);
        if (part.empty() || part.end <= part.begin) continue;
        const uint64_t protection = PROT_EXEC | (m.readable ? uint64_t{PROT_READ} : 0) |
                                    (m.writable ? uint64_t{PROT_WRITE} : 0);
        TRY_ASSIGN(const int64_t result,
                   call(SYS_mprotect, {part.begin.value(), part.size_bytes(), protection}));
        if (result != 0) {
          return make_error("cannot make text at {:#x} executable again: {}", part.begin.value(),
                            strerror(static_cast<int>(-result)));
        }
      }
    }
  }
  return Ok{};
}

// Puts the process' memory back to what it was, by system calls of a stopped thread.
Status ImageRun::remove_region(pid_t tid) {
  const SignalPause pause(*process_, tid);
  TRY(go_native(remote_call_by(tid)));
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  TRY(find_syscall_insn(mappings));
  const RemoteCall call = remote_call_by(tid);
  for (const tracee::Mapping& m : mappings) {
    if (!is_ours(m, region_)) continue;
    TRY_ASSIGN(const int64_t result,
               call(SYS_munmap, {m.range.begin.value(), m.range.size_bytes()}));
    if (result != 0) {
      return make_error("cannot unmap {:#x}: {}", m.range.begin.value(),
                        strerror(static_cast<int>(-result)));
    }
  }
  return region_.forget_target(call);
}

Result<std::optional<Event>> ImageRun::detach() {
  std::vector<Leaver> leavers;
  for (const auto& [tid, thread] : threads_) {
    if (thread.slot) leavers.push_back({tid, *thread.slot, {}});
  }
  CHECK(!leavers.empty()) << "nobody to let go";
  TRY_ASSIGN(const std::optional<Event> other, bring_all_out(leavers));
  if (other) return other;
  ledger_.close_left_stacks(AbnormalKind::kDetach,
                            "was waiting on a stack of its own when Tally let the process go");
  for (const Leaver& leaver : leavers) {
    cache_.take_notes(leaver.slot, CodeCache::AfterVisits::kEnds);
    ledger_.close_thread_at(leaver.at.position, leaver.at.original, leaver.slot,
                            AbnormalKind::kDetach, "was active when Tally let the process go");
    std::optional<tracee::RseqConfig>& rseq = threads_[leaver.tid].rseq;
    rseq = service_.rseq_of(leaver.slot, rseq);
    service_.close_slot(leaver.slot);
    totals_.name(leaver.slot);
    totals_.end(leaver.slot, "detach");
  }
  for (Leaver& leaver : leavers) {
    user_regs_struct& regs = leaver.at.original;
    regs.gs_base = 0;
    process_->set_registers(leaver.tid, regs);
  }
  TRY(remove_region(leavers.front().tid));
  for (const Leaver& leaver : leavers) {
    const auto& rseq = threads_[leaver.tid].rseq;
    if (rseq && !register_rseq(leaver.tid, *rseq, true)) {
      ledger_.issue(fmt::format("thread {}", leaver.tid),
                    "its restartable sequences could not be registered again: it goes on without");
    }
  }
  for (const Leaver& leaver : leavers) {
    TRY(process_->stop_again(leaver.tid));
    tracee::set_exit_kill(leaver.tid, false);
  }
  for (const Leaver& leaver : leavers) {
    signals_.forget(leaver.tid);
    tracee::detach(leaver.tid);
  }
  threads_.clear();
  facts_.exited = true;
  facts_.ended = "detach";
  end(process_->cpu_seconds());
  process_->let_go();
  return std::optional<Event>();
}

}  // namespace tally::engine

// One program image on its way through Tally: its translation, its ledger, its threads.
//
// Problem.  A program starts others, becomes others, and forks.  Each program image counts for
// itself: it has modules, a code cache and counters of its own.
//
// Idea.  An image run begins when a process execs or is forked, and ends when the process ends or
// becomes another program.  It lives in one process at a time; a vfork child shares its memory and
// belongs to it like a thread until it execs.  The session (session.h) receives all events and
// hands each to the image run that owns the thread.
//
//   start or exec   set_up   -> map the region -> make text non-executable -> translate the entry
//   fork            adopt    -> a region of its own in place of the parent's -> go on mid-run
//   attach          attach   -> as at start, then each thread goes on in the cache where it stood
//   detach          detach   -> each thread goes on where it stands, natively; nothing is left
//   mapped the end         collect  -> solve every unit -> profile
//
// All but `set_up` happens under the lock of the service thread, which serves the mailboxes of all
// image runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cache/code_cache.h"
#include "cache/phases.h"
#include "cache/return_targets.h"
#include "engine/end_steps.h"
#include "engine/run_options.h"
#include "engine/service.h"
#include "engine/signals.h"
#include "ledger/kept_run.h"
#include "ledger/ledger.h"
#include "ledger/thread_totals.h"
#include "tracee/attach.h"
#include "tracee/process.h"

namespace tally::engine {

class ImageRun {
 public:
  // `files`: what the session knows of files.
  ImageRun(std::unique_ptr<tracee::Process> process, const RunOptions& options, KnownFiles& files)
      : process_(std::move(process)),
        options_(options),
        files_(files),
        modules_(*process_, files, phases_),
        cache_(region_, modules_, *process_, options.placement, phases_),
        ledger_(cache_, modules_, region_, *process_),
        service_(region_, cache_, modules_, ledger_, *process_, phases_),
        totals_(cache_, region_, ledger_),
        signals_(*process_, region_, cache_, ledger_, service_) {
    cache_.set_optimizations(options.optimizations);
    if (options.stress_defer) cache_.defer_always();
    if (options.stress_index) cache_.index_always();
    service_.set_before_exec([this](uint32_t slot) { totals_.name(slot); });
  }

  // Prepares the image that its process has just begun to execute; does not resume it.
  Status set_up();

  // Takes over a process in mid-run: a fork child at its first stop, made by thread `maker` of
  // `parent`.  Does not resume it.  When it fails and the process `is_untouched`, it can be let go.
  Status adopt(ImageRun& parent, pid_t maker);
  bool is_untouched() const { return !region_.exists(); }

  // Takes over a process that runs already; all its threads are stopped.  Does not resume them.
  // When it fails, the process is as it was before, and can be let go.
  Status attach(const std::vector<tracee::SeizedThread>& seized);
  // Lets the process go; all its threads are stopped.  They go on natively, with nothing of ours
  // left mapped; no event of theirs will come any more.  Returns an event that must be handled
  // first, if there is one: then nothing is let go yet.  Errors: it could not be let go.
  Result<std::optional<tracee::Event>> detach();

  // A thread (or a vfork child: `own_process`) stands at its first stop.
  void start_thread(pid_t tid, pid_t parent, bool own_process);
  // A fork child stands at its first stop: it goes on natively, with nothing of ours left mapped.
  void release_child(pid_t tid, const std::string& why);
  // The thread is about to be gone; resumes it.
  void thread_exiting(const tracee::Event& event);
  void thread_gone(const tracee::Event& event);
  // The thread (of this image, or a vfork child) has become another program.
  void thread_execed(pid_t former_tid);
  // A signal is about to be delivered; resumes the thread, or returns what else happened to it.
  std::optional<tracee::Event> signal_stop(tracee::Event event);

  // Whether all threads stand still, those that are `stopped` and those that are held back; and who
  // may be stopped now.
  struct Rest {
    bool is_complete = true;
    // One waits for something, and must not be stopped; or there is nobody to stand still.
    bool is_in_vain = false;
    std::vector<pid_t> to_stop;
  };
  Rest look_at_rest(const std::set<pid_t>& stopped) const;
  struct AtRest {
    std::optional<tracee::Event> other;  // has happened to one of them instead
    std::optional<pid_t> giver;          // gives memory back, and the others must stand still yet
  };
  // They do: hot procedures are translated again, if they stand where that can be done (renewal.h).
  // `asked`: those that will be stopped, though they need not be.
  Result<AtRest> renew_at_rest(const std::set<pid_t>& asked);

  // Another thread is about to end this one, or somebody has: then it goes by itself from the stop
  // where it stands to that at its exit; who resumes it there, thinking of the former, lets it go
  // unseen.  Only a killing from outside is not foreseen.
  bool is_ending(pid_t tid) const;

  // Every thread that is ours is in `parked`, so that `detach` can let them go.
  bool all_parked(const std::set<pid_t>& parked) const {
    return !threads_.empty() && std::all_of(threads_.begin(), threads_.end(), [&](const auto& t) {
      return parked.contains(t.first);
    });
  }
  bool has_vfork_child() const {
    return std::ranges::any_of(threads_, [](const auto& t) { return t.second.own_process; });
  }
  // A process of its own that shares this image's memory until it execs.
  bool is_vfork_child(pid_t tid) const {
    auto it = threads_.find(tid);
    return it != threads_.end() && it->second.own_process;
  }
  // The program filters its system calls; the programs it becomes will, too.
  bool is_filtered() const { return region_.is_filtered(); }
  void issue(const std::string& scope, const std::string& message) {
    ledger_.issue(scope, message);
  }

  // The process has become another program: its threads are gone.
  void replaced();
  // The process is gone or replaced, and no vfork child is left that shares its memory.
  bool is_over() const { return over_ && threads_.empty(); }
  // Facts of the run that are known when it begins.
  profile::Run& facts() { return facts_; }
  const profile::Run& facts() const { return facts_; }

  // The process of this image has ended or become another: the counts, once the service thread
  // knows this image no more.
  void collect(profile::Profile& result);

  // Its file, if there is one; nobody else needs it once the profile is there.
  std::unique_ptr<KeptRun> take_kept() { return std::move(kept_); }
  // The facts are complete, and the program may run.
  void begin_keeping() {
    if (kept_) kept_->begin(facts_);
  }

  Service& service() { return service_; }
  tracee::Process& process() { return *process_; }
  pid_t pid() const { return process_->pid(); }
  // Of its thread, for --stress-end; it is set up.
  EndSteps end_steps() const {
    const translate::GatewayCode& gateway = region_.areas().front().gateway;
    return {options_.stress_end_steps, gateway.posted, gateway.answered};
  }
  void dump_state(std::ostream& out) const;

 private:
  struct Thread {
    std::optional<uint32_t> slot;
    bool own_process = false;  // a vfork child: shares our memory for a while
    bool fatal_signal = false;
    std::optional<tracee::RseqConfig> rseq;  // was registered with the kernel before we came
  };

  RemoteCall remote_call() { return remote_call_by(process_->pid()); }
  RemoteCall remote_call_by(pid_t tid) {
    return [this, tid](long number, const std::array<uint64_t, 6>& arguments) {
      return process_->remote_syscall(tid, syscall_insn_, number, arguments);
    };
  }
  Status open_kept();
  enum class Recalls : uint8_t { kNo, kYes };  // what an earlier run has left
  Status map_everything(TargetAddr scratch, Recalls recalls);
  Status take_region_of(const ImageRun& parent, const RemoteCall& call);
  Status begin_attached(pid_t tid, user_regs_struct& regs);
  // Around where a thread's block is to go by its stack (Service::open_slot).
  std::optional<uint64_t> busy_stack(uint64_t address) const {
    const bool packed = options_.optimizations.has(Optimization::kPacked);
    return packed ? std::optional(address) : std::nullopt;
  }
  Result<BlockRef> interrupted_call(TargetAddr pc);
  Status go_native(const RemoteCall& call);
  Status remove_region(pid_t tid);
  Status refuse_locked_memory();
  Status register_rseq(pid_t tid, const tracee::RseqConfig& config, bool on);
  struct Leaver;  // a thread that is let go
  Result<std::optional<tracee::Event>> bring_all_out(std::vector<Leaver>& leavers);
  Status check_target();
  Status begin_at(TargetAddr pc, user_regs_struct regs, const ImageRun& parent, pid_t maker,
                  uint32_t parent_slot);
  void areas_by_mailbox();
  void leave_code_map();
  void solve(profile::Profile& result);
  void name_nothing_counted(profile::Profile& result);
  void end(double cpu_seconds);
  void expect_end();
  void name_vanished(pid_t tid);
  void count_loops(std::vector<uint64_t>& counters);
  void end_unseen(pid_t tid, uint32_t slot);
  Status find_syscall_insn(const std::vector<tracee::Mapping>& mappings);
  Status hide_text();
  void choose_forms();
  void keep_apart();
  void enable_feedback();
  void recall();
  bool leaves_found() const;
  void leave_found();
  void leave(const Recollected& left);
  bool caught_by_net(const tracee::Event& event);
  bool back_from_vsyscall(uint32_t slot, user_regs_struct& regs);
  void explain_signal(const tracee::Event& event);

  std::unique_ptr<tracee::Process> process_;
  const RunOptions& options_;
  KnownFiles& files_;
  std::unique_ptr<KeptRun> kept_;
  PhaseTimes phases_;
  Region region_;
  ModuleMap modules_;
  CodeCache cache_;
  Ledger ledger_;
  Service service_;
  ThreadTotals totals_;
  Signals signals_;
  TargetAddr syscall_insn_;
  std::map<pid_t, Thread> threads_;
  uint32_t threads_total_ = 1;
  bool net_named_ = false;
  profile::Run facts_;
  Recollection::Returns returns_before_;  // of an earlier run
  bool alike_before_ = false;             // in an earlier run, code came that is alike
  CodeSizes code_sizes_;
  std::string program_build_id_;  // where what it has executed may be kept for the next run
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double cpu_before_seconds_ = 0;  // what the process had used when this image began
  bool over_ = false;
  // Somebody ended threads of ours: the others will follow, unless it was a filter that ends one.
  std::chrono::steady_clock::time_point doomed_until_;
};

}  // namespace tally::engine

// The mailbox: what the target asks of the monitor while it runs.
//
// Problem.  Misses come by the ten thousand when a program starts, and must neither use a signal
// nor cost a ptrace stop.
//
// Idea.  A thread of the target writes its request into its block of shared memory and waits there;
// a thread of the monitor (service_thread.h) watches all blocks of all image runs and has the
// requests of each answered by its service.  System calls that concern Tally (mapping code,
// signals, exec) come the same way: the service may change their arguments before the target
// executes them.
//
// Not handled: anything that needs ptrace; that belongs to the session's own thread.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cache/code_cache.h"
#include "cache/generated.h"
#include "engine/renewal.h"
#include "ledger/ledger.h"
#include "tracee/attach.h"

namespace tally::engine {

class Service {
 public:
  Service(Region& region, CodeCache& cache, ModuleMap& modules, Ledger& ledger,
          tracee::Process& process, PhaseTimes& phases)
      : region_(region),
        cache_(cache),
        modules_(modules),
        ledger_(ledger),
        process_(process),
        phases_(phases),
        generated_(modules, cache),
        renewals_(region, cache, ledger, phases) {}
  // Everything here is used under the lock of the service thread.

  // Answers what is asked; false when nothing was.
  bool serve_all();
  // The service thread is about to sleep: from now on requests ring the doorbell.  Returns what the
  // doorbell shows.
  uint32_t fall_asleep();
  // Hot procedures are looked for from time to time (renewal.h).
  void begin_renewals(bool always) { renewals_.begin(always); }
  Renewals::Clock::time_point next_look() const { return renewals_.next_look(); }
  void look_for_renewals(Renewals::Clock::time_point now);
  // How all threads can be made to stand still: `ask` is called when they should.
  void set_rest(std::function<void()> ask) { ask_for_rest_ = std::move(ask); }
  // They should, from then on until `end_rest`.
  bool wants_rest() const { return renewals_.is_resting(); }
  // The thread has asked where all are to stand still, and waits.
  bool is_held_back(uint32_t slot) const;
  // The calls that are open of one that is; nothing where that is not known for sure.
  std::optional<std::vector<BlockRef>> open_calls_of_held(uint32_t slot) const;
  // All do, these.  `giver`: see Renewals::at_rest.
  void at_rest(std::span<const Renewals::Standing> threads, std::optional<uint32_t> giver);
  // While one gives memory back, the others go on standing still.
  bool gives_back() const { return renewals_.giver().has_value(); }
  // Whoever is held back is answered.
  void end_rest() { renewals_.end_rest(); }
  void wake_up();
  const uint32_t* doorbell() const;

  // Prepares a thread's block and watches it; nullopt when there are too many threads at once.
  // `stack`: the address around which most of its stack will be that it uses, if its block is to
  // lie by that (Region::place_thread).
  std::optional<uint32_t> open_slot(std::optional<uint64_t> stack);
  void close_slot(uint32_t slot);

  // Threads' blocks are in a file that outlives the monitor.
  void keep_in(KeptRun* kept) { kept_ = kept; }

  // The first error, if any; the target is killed when it happens.
  std::optional<Error> error() const { return error_; }
  void fail(Error error);

  // A process that Tally has attached to is not killed when something fails: nothing is served any
  // more, and `on_failure` is called, once.
  void spare_target(std::function<void()> on_failure) { on_failure_ = std::move(on_failure); }
  // In such a process: what a thread has told of its restartable sequences meanwhile, so that the
  // kernel can learn it at the end; `before` is what it knew when Tally came.
  std::optional<tracee::RseqConfig> rseq_of(uint32_t slot,
                                            std::optional<tracee::RseqConfig> before) const {
    auto it = rseq_.find(slot);
    return it == rseq_.end() ? before : it->second;
  }
  // What a thread has asked for and not been answered yet.
  std::optional<translate::Request> posted_request(uint32_t slot) const;
  // True for one that books something: it must be served before the thread can be let go.
  bool is_to_be_served(uint32_t slot, translate::Request request) const {
    return request == translate::Request::kSyscallDone ||
           (request == translate::Request::kEvent &&
            asked(slot).argument < CodeCache::kStaleEventBase);
  }
  // The program's registers of a thread with such a request; `regs` are the kernel's.  Errors: the
  // place in the program is not known.
  Result<user_regs_struct> registers_at_request(uint32_t slot, const user_regs_struct& regs,
                                                const Position& position) const;
  // Serves a stopped thread's request, if it has posted one.  False if it must wait for what
  // another thread does for the monitor.
  bool serve_now(uint32_t slot);
  // Takes back a system call that the target is about to execute for the program; restores what was
  // changed of its arguments.  False if there is none.
  bool cancel_syscall(uint32_t slot, user_regs_struct& regs);
  // Threads on their way into a system call that ends all others of their process, unless it fails.
  std::vector<uint32_t> ends_others() const;
  // The thread is in its last system call, and what was open on its stack is on the ledger.
  bool has_left(uint32_t slot) const;
  // The thread's stack was closed on the ledger in front of an execve that has now succeeded.
  void exec_succeeded(uint32_t slot) { exec_backups_.erase(slot); }
  uint64_t requests() const;
  // Of one kind.
  uint64_t requests(translate::Request kind) const { return requests_[static_cast<size_t>(kind)]; }
  // True if that is so and the execve has not come back: the thread's stack is on the books.
  bool is_closed_ahead(uint32_t slot) const { return exec_backups_.contains(slot); }
  // Called in front of every execve, while the thread is still the program it was.
  void set_before_exec(std::function<void(uint32_t slot)> call) { before_exec_ = std::move(call); }
  // The indirect branch that the thread asked about last, if it asked about one.
  std::optional<uint32_t> asking_site(uint32_t slot) const {
    const auto request = load<uint32_t>(slot, translate::tcb::kRequest);
    if (request != static_cast<uint32_t>(translate::Request::kIndirect)) return std::nullopt;
    return load<uint32_t>(slot, translate::tcb::kArgument);
  }
  // What the program believes of its PR_SET_DUMPABLE, if it is not true; a forked child believes it
  // as well.
  std::optional<uint64_t> pretended_dumpable() const { return dumpable_; }
  uint64_t limit_added_bytes() const { return limit_added_bytes_; }
  void inherit_limit(uint64_t added_bytes) { limit_added_bytes_ = added_bytes; }
  void pretend_dumpable(std::optional<uint64_t> value) { dumpable_ = value; }
  const GeneratedCode& generated() const { return generated_; }

  // Executes a system call in the thread whose request is being served.  It cannot be waited for:
  // the first time an error comes back, the thread is sent to make the call, and its request is
  // served once more from the beginning; then the result is there.
  Result<int64_t> call_in_target(long number, const std::array<uint64_t, 6>& arguments);
  // From now on such calls are made by a thread at a stop; an empty function ends that.
  void call_by_stopped_thread(RemoteCall call) { stopped_thread_call_ = std::move(call); }

 private:
  struct PendingCall {
    uint64_t number = 0;
    std::array<uint64_t, 6> arguments{};
    // What may have been changed on the way in; the kernel would have left it alone.
    void give_back(user_regs_struct& regs) const {
      regs.rdi = arguments[0];
      regs.rsi = arguments[1];
      regs.rdx = arguments[2];
    }
  };

  void serve(uint32_t slot);
  void renew(uint32_t slot, Ledger::Way way);
  // The process has had but one thread, and Tally has been there from its start.
  bool is_alone() const { return slots_used_ == 1 && active_.size() == 1 && !on_failure_; }
  Renewals::Company company() const;
  Result<CacheAddr> answer_event(uint32_t slot);
  Status before_syscall(uint32_t slot);
  Status before_sigreturn(uint32_t slot);
  Status after_syscall(uint32_t slot);
  Status memory_changed(const PendingCall& call, uint64_t result);
  void check_index(CacheAddr resume, uint64_t context);
  void unseal_memory(const PendingCall& call, std::optional<uint64_t> result);
  static uint64_t locks_for_kernel(uint64_t flags);
  static uint64_t protection_for_kernel(uint64_t protection);
  void explain_memory(const PendingCall& call, uint64_t result, bool failed) const;
  Result<uint64_t> keep_apart(const PendingCall& call, uint64_t result);
  void name_refused_trace(const PendingCall& call);
  uint64_t mapped_bytes() const;
  void raise_limit(uint32_t slot, const PendingCall& call);
  void show_limit(const PendingCall& call);
  bool answer_dumpable(uint32_t slot, const std::array<uint64_t, 6>& arguments, uint64_t r11);
  Status change_filter(uint32_t slot, uint64_t program);
  Status refuse_own_memory(uint64_t number, const std::array<uint64_t, 6>& arguments) const;
  void make_child(uint32_t slot, const PendingCall& call);
  Status refuse_syscall(uint64_t number, const std::array<uint64_t, 6>& arguments);
  void finish_syscall(uint32_t slot, uint64_t result, uint64_t r11);
  uint64_t answer_rseq(uint32_t slot, const std::array<uint64_t, 6>& arguments);
  void answer(uint32_t slot, translate::Action action);
  bool send_to_call(uint32_t slot);
  translate::Ask asked(uint32_t slot) const;
  bool has_asks(uint32_t slot);
  bool has_given_back(uint32_t slot);
  Result<CacheAddr> answer_check(uint32_t slot, uint32_t check);
  elf::UnwindRegisters registers_of(uint32_t slot, TargetAddr pc) const;
  uint64_t jump_destination(uint32_t slot, const Unit& unit, LinkAddr at) const;

  template <class T>
  T load(uint32_t slot, uint32_t offset) const {
    T value;
    std::memcpy(&value, region_.thread_memory(slot) + offset, sizeof value);
    return value;
  }
  template <class T>
  void store(uint32_t slot, uint32_t offset, T value) {
    std::memcpy(region_.thread_memory(slot) + offset, &value, sizeof value);
  }
  uint64_t reg(uint32_t slot, unsigned number) const;
  void set_reg(uint32_t slot, unsigned number, uint64_t value);

  Region& region_;
  CodeCache& cache_;
  ModuleMap& modules_;
  Ledger& ledger_;
  tracee::Process& process_;
  PhaseTimes& phases_;
  std::vector<uint32_t> active_;
  std::vector<uint32_t> free_;
  uint32_t slots_used_ = 0;
  std::optional<Error> error_;
  KeptRun* kept_ = nullptr;
  std::map<uint32_t, PendingCall> pending_;
  std::map<uint32_t, Ledger::Ahead> exec_backups_;
  std::function<void(uint32_t slot)> before_exec_;
  GeneratedCode generated_;
  Renewals renewals_;
  std::function<void()> ask_for_rest_;
  // Calls in the target: those made for the request being served, and the one still wanted.
  RemoteCall stopped_thread_call_;
  std::optional<uint32_t> caller_;  // the slot that makes them
  std::vector<std::pair<PendingCall, int64_t>> call_results_;
  std::vector<std::optional<TargetAddr>> places_;  // of `keep_apart`, by attempt
  size_t calls_replayed_ = 0;
  std::optional<PendingCall> wanted_call_;
  PendingCall sent_call_;
  std::array<uint64_t, 8> requests_{};  // by kind
  std::optional<uint64_t> dumpable_;
  uint64_t limit_added_bytes_ = 0;  // to the program's limit of address space; 0: not set
  std::function<void()> on_failure_;
  std::map<uint32_t, std::optional<tracee::RseqConfig>> rseq_;  // by slot
};

}  // namespace tally::engine

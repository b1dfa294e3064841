// See image_run.h.  Signals are in image_signals.cpp.
#include "engine/image_run.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>

#include "cache/code_map.h"
#include "cache/inductions.h"
#include "elf/dependencies.h"
#include "engine/describe.h"
#include "ledger/finish.h"
#include "ledger/keeper.h"
#include "ledger/perf_map.h"
#include "profile/checks.h"

namespace tally::engine {

using namespace translate;
using profile::AbnormalKind;

// How far below a program's first stack pointer its stack is most of the time, but for whole pages.
// In all but one of 13 programs the middle of the samples is less than 720 bytes from there.
constexpr uint64_t kFramesBelowStart = 0x6c0;

Status ImageRun::check_target() {
  auto file = files_.open(process_->executable_path());
  if (!file) {
    return make_error(ErrorKind::kNotExecutable, "{}: {}", process_->executable_path(),
                      file.error().message);
  }
  return Ok{};
}

// Any `syscall` instruction that is executable already will do for the first calls.
Status ImageRun::find_syscall_insn(const std::vector<tracee::Mapping>& mappings) {
  for (const bool vdso_only : {true, false}) {
    for (const tracee::Mapping& m : mappings) {
      if (!m.executable || m.path == "[vsyscall]" || (vdso_only != (m.path == "[vdso]"))) continue;
      std::vector<uint8_t> bytes(m.range.size_bytes());
      if (!process_->read_memory(m.range.begin, bytes.data(), bytes.size())) continue;
      for (size_t i = 0; i + 1 < bytes.size(); ++i) {
        if (bytes[i] == 0x0f && bytes[i + 1] == 0x05) {
          syscall_insn_ = m.range.begin + i;
          return Ok{};
        }
      }
    }
  }
  return make_error("no system call instruction to borrow in {}", process_->executable_path());
}

// From here on the program's own text cannot be executed: the safety net.
Status ImageRun::hide_text() {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, modules_.executable_mappings());
  for (const tracee::Mapping& m : mappings) {
    const TargetRange& range = m.range;
    if (m.shared && m.path.starts_with("/memfd:tally")) continue;  // ours
    const uint64_t protection = PROT_READ | (m.writable ? uint64_t{PROT_WRITE} : 0);
    TRY_ASSIGN(const int64_t result,
               remote_call()(SYS_mprotect, {range.begin.value(), range.size_bytes(), protection}));
    if (result != 0) {
      return make_error("cannot make text at {:#x} non-executable: {}", range.begin.value(),
                        strerror(static_cast<int>(-result)));
    }
  }
  return Ok{};
}

void ImageRun::enable_feedback() {
  if (!options_.feedback) return;
  // Counts of the earlier run, by module build and block addresses.
  auto weights =
      std::make_shared<std::map<std::string, std::map<std::pair<uint64_t, uint64_t>, double>>>();
  const profile::Profile& p = *options_.feedback;
  for (const profile::Edge& edge : p.edges) {
    const profile::Block& from = p.blocks[edge.from_block];
    const profile::Block& to = p.blocks[edge.to_block];
    const profile::Module& module = p.modules[p.procedures[from.procedure_id].module_id];
    (*weights)[module.build_id.empty() ? module.path : module.build_id]
              [{from.address.value(), to.address.value()}] += static_cast<double>(edge.count);
  }
  // Returns are no edges of a profile: what is entered where one ends leads to EXIT.
  for (const profile::Block& block : p.blocks) {
    if (!block.returns) continue;
    const profile::Module& module = p.modules[p.procedures[block.procedure_id].module_id];
    (*weights)[module.build_id.empty() ? module.path : module.build_id]
              [{block.address.value(), 0}] += static_cast<double>(block.count);
  }
  cache_.set_feedback([weights](const Module& module) -> FeedbackWeights {
    const std::string& id = module.image->build_id();
    auto it = weights->find(id.empty() ? module.path : id);
    if (it == weights->end()) return {};
    const auto* edges = &it->second;
    return [weights, edges](LinkAddr from, LinkAddr to) {
      auto found = edges->find({from.value(), to.value()});
      return found == edges->end() ? -1.0 : found->second;
    };
  });
}

// How addresses are told apart, and what returns look like.
void ImageRun::choose_forms() {
  // Libraries come closely below the loader; those that would collide are moved (keep_apart.cpp).
  constexpr uint64_t kRoomForLibrariesBytes = 16ull << 20;
  if (options_.optimizations.has(Optimization::kLow32) && !alike_before_ &&
      !modules_.low_halves_may_collide(kRoomForLibrariesBytes)) {
    cache_.set_compare(Compare::kLow32);
    keep_apart();
  }
  for (const auto& module : modules_.all()) {
    if (!module->main_program) continue;
    for (const TargetRange& range : module->executable) {
      code_sizes_.program_bytes += range.size_bytes();
    }
    code_sizes_.libraries_bytes += elf::code_bytes_of_libraries(*module->image);
  }
  cache_.set_code_bytes(code_sizes_.program_bytes);
  const bool may_pair = options_.optimizations.has(Optimization::kPaired);
  const bool is_known = !may_pair || returns_before_.calls > 0;
  cache_.set_returns(may_pair ? choose_returns(returns_before_, code_sizes_) : Returns::kJump,
                     is_known ? ReturnsHint::kFixed : ReturnsHint::kMayChange);
}

void ImageRun::keep_apart() {
  modules_.keep_apart([this] { cache_.compare_whole(); });
}

// In front of everything that is to be kept.
Status ImageRun::open_kept() {
  if (options_.keeper == nullptr) return Ok{};
  TRY_ASSIGN(kept_, options_.keeper->begin_run(process_->pid()));
  region_.keep_threads_in(kept_->descriptor(), kKeptSlotsOffset);
  cache_.keep_in(kept_.get());
  ledger_.keep_in(kept_.get());
  service_.keep_in(kept_.get());
  return Ok{};
}

Status ImageRun::set_up() {
  const PhaseTimer timer(phases_, Phase::kBegin);
  TRY(check_target());
  TRY(open_kept());
  describe_process(*process_, facts_);
  const pid_t pid = process_->pid();
  cpu_before_seconds_ = process_->cpu_seconds();
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  TRY(find_syscall_insn(mappings));
  const user_regs_struct start = process_->registers(pid);
  TRY(map_everything(TargetAddr(start.rsp - 4096), Recalls::kYes));
  const std::string program = process_->executable_path();

  const std::optional<uint32_t> slot =
      service_.open_slot(busy_stack(start.rsp - kFramesBelowStart));
  CHECK(slot.has_value()) << "the first thread has no slot";
  threads_[pid].slot = slot;
  totals_.begin(*slot, pid, "");
  TRY_ASSIGN(const BlockRef entry, cache_.resolve(TargetAddr(start.rip), Arrival::kCall));
  if (!entry.valid()) return make_error("{}: its entry is no code", program);
  ledger_.enter(*slot, entry, AbnormalKind::kProgramStart, "program start");
  const Unit& first = cache_.unit(entry.unit);
  ledger_.bottom({first.module->to_target(first.procedure.range.begin),
                  first.module->to_target(first.procedure.range.end)});
  // Without any call frame information nothing marks the end, and all calls have a second way out.
  if (first.module->image->unwind_ranges().empty()) ledger_.bottom(first.module->mapped);
  user_regs_struct regs = process_->registers(pid);
  regs.rip = cache_.unit(entry.unit).label(entry.block).value();
  regs.gs_base = region_.thread_block(*slot).value();
  // What is on the ledger by now would be wrong.
  if (!process_->set_registers(pid, regs)) return make_error("{} was killed", program);
  const bool weighs = options_.placement == PlacementKind::kEdges && options_.keeper == nullptr;
  if (weighs && options_.optimizations.has(Optimization::kRenewal)) {
    service_.begin_renewals(options_.stress_renewal);
  }
  return Ok{};
}

// What earlier runs of this program have left; for code that is there from its start on.
void ImageRun::recall() {
  if (!options_.optimizations.has(Optimization::kRecall)) return;
  for (const auto& module : modules_.all()) {
    if (module->generated) continue;
    if (module->main_program) program_build_id_ = module->image->build_id();
    if (!module->main_program) module->sealed = true;  // the loader, which begins with itself
  }
  if (program_build_id_.empty()) return;
  Recollection found = options_.recall.find(program_build_id_);
  returns_before_ = found.returns;
  alike_before_ = found.alike;
  // Also where they are not used: those of a larger run are left as they are.
  if (!found.weighed.empty()) cache_.set_weights(std::make_shared<const EdgeWeights>(found));
  cache_.set_recollection(std::move(found));
  if (cache_.weights() != nullptr && leaves_found()) {
    auto procedures = std::make_unique<FoundProcedures>(own_build_id());
    procedures->read(options_.recall.find_procedures(program_build_id_));
    cache_.set_found(std::move(procedures));
  }
}

// Counters are placed as in any other run of the program.
bool ImageRun::leaves_found() const {
  const Optimizations& on = options_.optimizations;
  return on.has(Optimization::kFound) && on.has(Optimization::kWeights) &&
         on.has(Optimization::kOrder) && on.has(Optimization::kCallers) &&
         options_.placement == PlacementKind::kEdges && options_.keeper == nullptr &&
         !options_.stress_defer;
}

// A guess that cannot be kept changes no count; the report shows why.
void ImageRun::leave(const Recollected& left) {
  if (Status kept = options_.recall.keep(program_build_id_, left.what); !kept) {
    facts_.more.emplace_back("recall_not_kept", kept.error().message);
  }
}

void ImageRun::leave_found() {
  const FoundProcedures* found = cache_.found();
  if (found == nullptr || !found->is_news()) return;
  const Status kept = own_build_id().empty()
                          ? make_error("this build of Tally has no build-id, by which to know it")
                          : options_.recall.keep_procedures(program_build_id_, found->file());
  if (!kept) facts_.more.emplace_back("procedures_not_kept", kept.error().message);
}

// The region, the modules, and the program's text out of reach.  `scratch`: writable memory of the
// target, which is put back.
Status ImageRun::map_everything(TargetAddr scratch, Recalls recalls) {
  const PhaseTimer timer(phases_, Phase::kRegion);
  const RemoteCall call = remote_call();
  cache_.set_remote_call(call);
  TRY(region_.create(*process_, call, scratch));
  TRY(modules_.refresh({}));
  const std::string program = process_->executable_path();
  for (auto& module : modules_.all()) {
    module->main_program = module->path == program;
    if (module->generated) continue;  // an executable stack; rarely used as code
    TRY(give_area(*module, region_, *process_, call));
  }
  if (recalls == Recalls::kYes) recall();
  choose_forms();
  cache_.initialize_tables();
  enable_feedback();
  // The instruction borrowed so far is about to become non-executable.
  syscall_insn_ = TargetAddr(region_.areas().front().gateway.monitor_syscall.value());
  TRY(hide_text());
  TRY(region_.close_target_descriptor(call));
  areas_by_mailbox();
  return Ok{};
}

// From now on areas are mapped while the program runs, by a thread that waits for an answer.
void ImageRun::areas_by_mailbox() {
  cache_.set_remote_call([this](long number, const std::array<uint64_t, 6>& arguments) {
    return service_.call_in_target(number, arguments);
  });
}

// ---- threads -----------------------------------------------------------------------------------

void ImageRun::start_thread(pid_t tid, pid_t parent, bool own_process) {
  const PhaseTimer timer(phases_, Phase::kStop);
  user_regs_struct regs{};
  if (!process_->try_registers(tid, regs)) {
    threads_[tid].own_process = own_process;  // killed before it began; its end is to come
    return;
  }
  const std::optional<uint32_t> slot = service_.open_slot(busy_stack(regs.rsp - kFramesBelowStart));
  if (!slot) {
    service_.fail(make_error("the program runs more than {} threads at once", kThreadsMax));
    return;
  }
  Thread& thread = threads_[tid];
  thread.slot = slot;
  thread.own_process = own_process;
  if (!own_process) ++threads_total_;
  totals_.begin(*slot, tid, own_process ? "vfork" : "thread");
  user_regs_struct parent_regs{};
  const bool shares_stack =
      own_process && process_->try_registers(parent, parent_regs) && parent_regs.rsp == regs.rsp;
  const uint32_t parent_slot = threads_[parent].slot.value_or(*slot);
  cache_.take_notes(parent_slot, CodeCache::AfterVisits::kGoesOn);
  ledger_.open_thread(regs, *slot, shares_stack || regs.orig_rax == SYS_vfork, parent_slot);
  regs.gs_base = region_.thread_block(*slot).value();
  process_->set_registers(tid, regs);
}

// A child with memory of its own goes on natively: original address, original protections, nothing
// of ours left mapped.
void ImageRun::release_child(pid_t tid, const std::string& why) {
  user_regs_struct regs{};
  if (!process_->try_registers(tid, regs)) return;  // killed before it began
  const Position position = ledger_.locate(regs, 0);
  CHECK(position.kind == Position::Kind::kInBlock) << "a child was born at " << regs.rip;
  const Unit& unit = cache_.unit(position.ref.unit);
  regs.rip = unit.module->to_target(unit.end_of(position.ref.block)).value();
  regs.rcx = regs.rip;
  regs.gs_base = 0;
  process_->set_registers(tid, regs);
  auto call = [&](long number, const std::array<uint64_t, 6>& arguments) {
    auto result = process_->remote_syscall(tid, syscall_insn_, number, arguments);
    if (!result || *result != 0) {
      ledger_.issue(fmt::format("process {}", tid),
                    "this child could not be let go cleanly and may have been harmed");
    }
  };
  for (const auto& module : modules_.all()) {
    if (module->gone) continue;
    for (const TargetRange& r : module->executable) {
      call(SYS_mprotect, {r.begin.value(), r.size_bytes(), PROT_READ | PROT_EXEC});
    }
    for (const TargetRange& r : module->writable) {
      call(SYS_mprotect, {r.begin.value(), r.size_bytes(), PROT_READ | PROT_WRITE | PROT_EXEC});
    }
  }
  call(SYS_munmap, {region_.tables_base(), tables::kSizeBytes});
  call(SYS_munmap, {region_.attic().value(), kAreasMax * kAreaSizeBytes});
  call(SYS_munmap, {region_.threads().value(), kThreadsMax * tcb::kBlockSizeBytes});
  for (size_t i = region_.areas().size(); i-- > 0;) {
    // The first area goes last: it holds the instruction that unmaps.
    call(SYS_munmap, {region_.areas()[i].base.value(), kAreaSizeBytes});
  }
  ledger_.issue("children", why);
  tracee::detach(tid);
}

bool ImageRun::is_ending(pid_t tid) const {
  if (std::chrono::steady_clock::now() < doomed_until_) return true;
  const std::vector<uint32_t> enders = service_.ends_others();
  return !enders.empty() && std::any_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    const Thread& thread = entry.second;
    return entry.first != tid && thread.slot && !thread.own_process &&
           std::find(enders.begin(), enders.end(), *thread.slot) != enders.end();
  });
}

void ImageRun::expect_end() {
  constexpr auto kForAWhile = std::chrono::seconds(1);
  doomed_until_ = std::chrono::steady_clock::now() + kForAWhile;
}

void ImageRun::thread_exiting(const tracee::Event& event) {
  const PhaseTimer timer(phases_, Phase::kStop);
  const pid_t tid = event.tid;
  auto it = threads_.find(tid);
  if (it == threads_.end() || !it->second.slot) return process_->resume(tid);
  const uint32_t slot = *it->second.slot;
  cache_.take_notes(slot, CodeCache::AfterVisits::kEnds);
  user_regs_struct regs{};
  if (service_.has_left(slot)) {
    totals_.end(slot, "exit", event.name);  // its stack is on the ledger
  } else if (process_->try_registers(tid, regs)) {
    if (!it->second.own_process) expect_end();
    // Signals without a handler do not all kill: SIGCHLD, those that are ignored.
    const bool killed = it->second.fatal_signal && event.signal != 0;
    const AbnormalKind kind = killed ? AbnormalKind::kFault : AbnormalKind::kProgramExit;
    if (!service_.is_closed_ahead(slot)) {
      ledger_.close_thread(regs, slot, kind,
                           killed ? "died of a signal" : "still active at the end");
    }
    const char* ended = killed                            ? "signal"
                        : regs.orig_rax == SYS_exit_group ? "exit_group"
                                                          : "process end";
    totals_.end(slot, ended, event.name);
  } else {
    end_unseen(tid, slot);
  }
  service_.close_slot(slot);
  it->second.slot.reset();
  process_->resume(tid);
}

void ImageRun::thread_gone(const tracee::Event& event) {
  const PhaseTimer timer(phases_, Phase::kStop);
  // One that was killed on its way out does not stop there any more.
  if (auto it = threads_.find(event.tid); it != threads_.end() && it->second.slot) {
    const uint32_t slot = *it->second.slot;
    end_unseen(event.tid, slot);
    service_.close_slot(slot);
  }
  threads_.erase(event.tid);
  signals_.forget(event.tid);
  if (event.tid != process_->pid()) return;
  process_->let_go();
  facts_.exited = event.exited;
  facts_.exit_status = event.exit_status;
  facts_.signal = event.signal;
  facts_.ended = event.exited ? "exit" : "signal";
  end(event.usage.user_seconds + event.usage.system_seconds);
}

void ImageRun::end(double cpu_seconds) {
  over_ = true;
  facts_.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  facts_.target_cpu_seconds = std::max(0.0, cpu_seconds - cpu_before_seconds_);
  if (kept_) kept_->end(facts_);
}

void ImageRun::replaced() {
  for (auto it = threads_.begin(); it != threads_.end();) {
    if (it->second.own_process) {
      ++it;
      continue;
    }
    if (it->second.slot) end_unseen(it->first, *it->second.slot);
    it = threads_.erase(it);
  }
  process_->let_go();
  facts_.exited = true;
  facts_.ended = "exec";
  end(process_->cpu_seconds());
}

// A thread has ended without a stop.
void ImageRun::end_unseen(pid_t tid, uint32_t slot) {
  cache_.take_notes(slot, CodeCache::AfterVisits::kEnds);
  const bool left = service_.has_left(slot);
  if (!left) {
    name_vanished(tid);
    ledger_.drop_inherited(slot);
  }
  totals_.end(slot, left ? "exit" : "vanished");
}

void ImageRun::name_vanished(pid_t tid) {
  ledger_.issue(fmt::format("thread {}", tid),
                "vanished before its stack could be read; the counts of its active procedures may "
                "be off by one");
  if (cache_.induced_steps().empty()) return;
  ledger_.issue(fmt::format("thread {}", tid),
                "vanished, perhaps in a loop that a register counts, whose counts may be off by "
                "more than one then");
}

// What was open on its stack was closed on the ledger in front of the execve.
void ImageRun::thread_execed(pid_t former_tid) {
  auto it = threads_.find(former_tid);
  if (it == threads_.end()) return;
  if (it->second.slot) {
    cache_.take_notes(*it->second.slot, CodeCache::AfterVisits::kEnds);
    service_.exec_succeeded(*it->second.slot);
    service_.close_slot(*it->second.slot);
    totals_.end(*it->second.slot, "exec");
  }
  threads_.erase(it);
}

// ---- the end -----------------------------------------------------------------------------------

void ImageRun::dump_state(std::ostream& out) const {
  out << "target " << process_->pid() << ", threads " << threads_.size() << ", units "
      << cache_.units().size() << "\n";
  for (const auto& [tid, thread] : threads_) {
    user_regs_struct regs{};
    if (!process_->try_registers(tid, regs)) continue;
    out << fmt::format("  thread {}: rip {:#x} rsp {:#x} rcx {:#x}\n", tid, regs.rip, regs.rsp,
                       regs.rcx);
  }
}

// Where nothing was counted, there is nothing to solve.
void ImageRun::name_nothing_counted(profile::Profile& result) {
  result.modules = describe_modules(modules_);
  result.issues.push_back({"the program", "nothing was counted (--placement=none)", 1});
  for (const profile::Issue& issue : ledger_.issues()) result.issues.push_back(issue);
}

void ImageRun::leave_code_map() {
  const char* path = std::getenv("TALLY_CODE_MAP");
  if (path == nullptr) return;
  if (Status written = write_code_map(cache_, path); !written) {
    ledger_.issue("TALLY_CODE_MAP", written.error().message);
  }
}

namespace {

// No issue is the claim that every count is exact: an equation that does not hold says otherwise,
// whatever the reason.
void name_imbalance(profile::Profile& profile) {
  if (!profile.issues.empty()) return;
  const uint64_t faults = profile::count_flow_faults(profile);
  if (faults == 0) return;
  profile.issues.push_back({"flow",
                            "equations of this profile do not hold, for a reason that Tally did "
                            "not notice; the counts in them are not exact",
                            faults});
}

}  // namespace

// Loops that a register counts: from what their counters hold to how often they ran.  None of that
// is increments.
void ImageRun::count_loops(std::vector<uint64_t>& counters) {
  for (const auto& [counter, step] : cache_.induced_steps()) {
    facts_.counter_increments -= counters[counter];
    const std::optional<uint64_t> runs = runs_of_loop(counters[counter], step);
    if (!runs) {
      ledger_.issue("loops",
                    "what a register counted of a loop cannot be; the counts of its procedure are "
                    "not exact");
    }
    counters[counter] = runs.value_or(0);
  }
}

// Counts from counters.
void ImageRun::solve(profile::Profile& result) {
  const PhaseTimer timer(phases_, Phase::kSolve);
  ledger_.close_left_stacks(AbnormalKind::kProgramExit, "left waiting on a stack of its own");
  ledger_.settle_inherited();
  std::vector<uint64_t> counters(cache_.counters_used(), 0);
  totals_.finish(counters.size(),
                 [&](size_t counter, uint64_t value) { counters[counter] += value; });
  for (const uint64_t value : counters) facts_.counter_increments += value;
  count_loops(counters);
  // The profile of a large program is as large as what it is made from; both should not be here at
  // once more than need be.
  constexpr uint64_t kLargeBlocks = 300'000;
  // What is left is known by what only running needs, the weights when all is solved.
  const bool leaves = !program_build_id_.empty();
  Recollected left = leaves ? cache_.recollect(counters) : Recollected();
  WeightsToLeave weights(left, cache_.weights().get());
  region_.unmap();
  cache_.seal();
  if (cache_.stats().blocks > kLargeBlocks) malloc_trim(0);
  if (!service_.generated().doubt().empty()) {
    ledger_.issue("changed code", service_.generated().doubt());
  }
  std::vector<std::pair<uint32_t, uint64_t>> rests;  // by counters that did not count
  const PerfMap names = PerfMap::read(process_->pid());
  build_profile(
      {cache_, ledger_, counters, describe_modules(modules_),
       [&](const Unit& unit) { return procedure_name(unit, names); },
       [&](const Unit& unit, const placement::Solution& solution, const std::vector<LedMost>& led) {
         if (leaves) weights.add(unit, solution, led);
       },
       [&](const Pair& pair, uint64_t times) { rests.emplace_back(pair.counter, times); }},
      result);
  name_imbalance(result);
  for (const auto& [counter, times] : rests) counters[counter] = times;
  if (leaves) cache_.recollect_led(counters, left);
  const Recollection::Returns returns = measure_returns(result);
  facts_.more.emplace_back("return_millibits", std::to_string(returns.millibits));
  left.what.returns = better_known(returns_before_, returns);
  const bool other_returns = choose_returns(left.what.returns, code_sizes_) !=
                             choose_returns(returns_before_, code_sizes_);
  left.what.alike = alike_before_ || cache_.came_to_compare_whole();
  const bool other_forms = other_returns || left.what.alike != alike_before_;
  const bool news = left.news || weights.is_news() || (leaves && other_forms);
  // Where a run is not exact, the next had better be able to say so, too (entry_callers.h).
  const bool exact = result.issues.empty();
  const bool doubt = !exact && cache_.weights() != nullptr && cache_.weights()->has_ranks();
  if (news || (leaves && doubt)) {
    if (exact) weights.settle();
    leave(left);
  }
  leave_found();
  totals_.add_rows(result, facts_.begun);
  facts_.counters = cache_.stats().counters;
}

void ImageRun::collect(profile::Profile& result) {
  // Before anything is read: reading a page makes it exist.
  const TouchedMemory touched = region_.touched();
  leave_code_map();
  if (options_.placement == PlacementKind::kNone) {
    name_nothing_counted(result);
  } else {
    solve(result);
  }
  result.run = std::move(facts_);
  profile::Run& run = result.run;
  run.threads = threads_total_;
  run.code_cache_bytes = cache_.stats().code_bytes;
  run.instructions_translated = cache_.stats().instructions;
  run.misses = service_.requests();
  run.more.emplace_back("procedures_translated", std::to_string(cache_.stats().units));
  run.more.emplace_back("indirect_pairs", std::to_string(cache_.stats().pairs));
  const std::pair<const char*, Request> kinds[] = {{"misses_link", Request::kLink},
                                                   {"misses_indirect", Request::kIndirect},
                                                   {"misses_return", Request::kReturn},
                                                   {"misses_system_call", Request::kSyscall},
                                                   {"misses_probe", Request::kEvent}};
  for (const auto& [name, kind] : kinds) {
    run.more.emplace_back(name, std::to_string(service_.requests(kind)));
  }
  run.more.emplace_back("code_caches", std::to_string(region_.areas().size()));
  const uint64_t tables_bytes = touched.tables_bytes + cache_.landings().touched_bytes();
  run.more.emplace_back("memory_tables_bytes", std::to_string(tables_bytes));
  run.more.emplace_back("memory_code_bytes", std::to_string(touched.code_bytes));
  run.more.emplace_back("memory_threads_bytes", std::to_string(touched.threads_bytes));
  run.more.emplace_back("procedures_replaced", std::to_string(cache_.stats().invalidated));
  run.more.emplace_back("procedures_known", std::to_string(cache_.stats().known));
  run.more.emplace_back("procedures_reread", std::to_string(cache_.stats().reread));
  run.more.emplace_back("procedures_recalled", std::to_string(cache_.stats().recalled));
  run.more.emplace_back("procedures_weighed", std::to_string(cache_.stats().weighed));
  run.more.emplace_back("procedures_left_to_callers",
                        std::to_string(cache_.stats().left_to_callers));
  run.more.emplace_back("branches_with_rest", std::to_string(cache_.stats().rests));
  run.more.emplace_back("procedures_renewed", std::to_string(cache_.stats().renewed));
  run.more.emplace_back("compactions", std::to_string(cache_.stats().compactions));
  run.more.emplace_back("code_given_back_bytes", std::to_string(cache_.stats().given_back_bytes));
  run.more.emplace_back("procedures_left_out", std::to_string(cache_.stats().left_out));
  run.more.emplace_back("code_pages_shared", std::to_string(cache_.stats().pages_shared));
  if (cache_.stats().compactions > 0) {
    run.more.emplace_back("memory_most_bytes", std::to_string(cache_.stats().most_bytes));
  }
  run.more.emplace_back("procedures_paired_late", std::to_string(cache_.stats().paired_late));
  run.more.emplace_back("jumps_by_index", std::to_string(cache_.stats().indexed));
  run.more.emplace_back("stubs_in_front", std::to_string(cache_.stats().fronts));
  run.more.emplace_back("loops_by_register", std::to_string(cache_.stats().induced));
  run.more.emplace_back("branches_hashed", std::to_string(cache_.stats().hashed));
  run.more.emplace_back("branches_sealed", std::to_string(cache_.stats().sealed));
  run.more.emplace_back("branches_unsealed", std::to_string(cache_.stats().unsealed));
  run.more.emplace_back("branches_through", std::to_string(cache_.stats().shortcuts));
  run.more.emplace_back("blocks_apart", std::to_string(cache_.stats().apart));
  run.more.emplace_back("blocks_deferred", std::to_string(cache_.stats().deferred));
  run.more.emplace_back("blocks_made_late", std::to_string(cache_.stats().made_late));
  run.more.emplace_back("returns_paired", cache_.returns_form() == Returns::kJump ? "0" : "1");
  run.more.emplace_back("visits_noted", std::to_string(cache_.stats().noted));
  run.more.emplace_back("landings_hashed", std::to_string(cache_.landings().hashed()));
  run.more.emplace_back("landings_direct", std::to_string(cache_.landings().direct()));
  run.more.emplace_back("pages_numbered", std::to_string(cache_.landings().numbered_pages()));
  run.more.emplace_back("asks_with_code", std::to_string(cache_.stats().asks_with_code));
  if (cache_.came_to_compare_whole()) run.more.emplace_back("addresses_alike", "1");
  if (cache_.landings().has_given_numbers_up()) run.more.emplace_back("landings_not_written", "1");
  phases_.name_all([&](const char* fact, uint64_t microseconds) {
    run.more.emplace_back(fact, std::to_string(microseconds));
  });
}

}  // namespace tally::engine

// See session.h.
#include "engine/session.h"

#include <fmt/format.h>
#include <linux/sched.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>

#include "engine/code_cache.h"
#include "engine/finish.h"
#include "engine/ledger.h"
#include "engine/service.h"
#include "tracee/process.h"

namespace tally::engine {

using namespace translate;
using profile::AbnormalKind;
using tracee::Event;

namespace {

struct Thread {
  std::optional<uint32_t> slot;
  bool own_process = false;  // a vfork child: shares our memory for a while
  bool fatal_signal = false;
};

double cpu_seconds(int who) {
  struct rusage usage {};
  getrusage(who, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

class Session {
 public:
  Session(std::unique_ptr<tracee::Process> process, const RunOptions& options)
      : process_(std::move(process)),
        options_(options),
        modules_(*process_),
        cache_(region_, modules_, *process_, options.placement),
        ledger_(cache_, modules_, region_, *process_),
        service_(region_, cache_, modules_, ledger_, *process_) {}

  ~Session() {
    set_check_dump_hook(nullptr);
    service_.stop();
  }

  Status set_up();
  Status loop();
  void collect(RunResult& result);

 private:
  RemoteCall remote_call() {
    return [this](long number, const std::array<uint64_t, 6>& arguments) {
      return process_->remote_syscall(process_->pid(), syscall_insn_, number, arguments);
    };
  }
  Status check_target();
  Status find_syscall_insn(const std::vector<tracee::Mapping>& mappings);
  Status hide_text();
  void handle(const Event& event);
  void thread_born(const Event& event);
  void thread_ready(pid_t tid);
  void start_thread(pid_t tid, pid_t parent, bool own_process);
  void release_child(pid_t tid);
  void thread_exiting(pid_t tid);
  void thread_gone(const Event& event);
  void process_execed(const Event& event);
  void signal_stop(const Event& event);
  bool caught_by_net(const Event& event);
  void explain_signal(const Event& event);
  void dump_state(std::ostream& out);
  void enable_feedback();

  std::unique_ptr<tracee::Process> process_;
  const RunOptions& options_;
  Region region_;
  ModuleMap modules_;
  CodeCache cache_;
  Ledger ledger_;
  Service service_;
  TargetAddr syscall_insn_;
  std::map<pid_t, Thread> threads_;
  std::map<pid_t, pid_t> expected_;  // threads announced, not yet seen: child -> parent
  std::set<pid_t> expected_vfork_;
  std::set<pid_t> expected_fork_;
  std::set<pid_t> early_;  // threads seen, not yet announced
  uint32_t threads_total_ = 1;
  bool over_ = false;
  bool replaced_ = false;  // by exec
  bool net_named_ = false;
  RunResult end_;
};

Status Session::check_target() {
  auto image = elf::Image::open(process_->executable_path());
  if (!image) {
    return make_error(ErrorKind::kNotExecutable, "{}: {}", options_.command[0],
                      image.error().message);
  }
  return Ok{};
}

// Any `syscall` instruction that is executable already will do for the first calls.
Status Session::find_syscall_insn(const std::vector<tracee::Mapping>& mappings) {
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
  return make_error("no system call instruction to borrow in {}", options_.command[0]);
}

// From here on the program's own text cannot be executed: the safety net.
Status Session::hide_text() {
  TRY_ASSIGN(const std::vector<TargetRange> ranges, modules_.executable_ranges());
  for (const TargetRange& range : ranges) {
    if (region_.area_at(CacheAddr(range.begin.value())) != nullptr) continue;
    TRY_ASSIGN(const int64_t result,
               remote_call()(SYS_mprotect, {range.begin.value(), range.size_bytes(), PROT_READ}));
    if (result != 0) {
      return make_error("cannot make text at {:#x} non-executable: {}", range.begin.value(),
                        strerror(static_cast<int>(-result)));
    }
  }
  return Ok{};
}

void Session::enable_feedback() {
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

Status Session::set_up() {
  TRY(check_target());
  const pid_t pid = process_->pid();
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  TRY(find_syscall_insn(mappings));
  const user_regs_struct start = process_->registers(pid);
  const RemoteCall call = remote_call();
  cache_.set_remote_call(call);
  TRY(region_.create(*process_, call, TargetAddr(start.rsp - 4096)));
  TRY(modules_.refresh({}));
  const std::string program = process_->executable_path();
  for (auto& module : modules_.all()) {
    module->main_program = module->path == program;
    TRY_ASSIGN(module->area, region_.area_for(module->mapped, *process_, call));
  }
  cache_.initialize_tables();
  // Libraries come within a gigabyte below the loader; should one ever come elsewhere and collide,
  // that is refused by name.
  if (!modules_.low_halves_may_collide(1ull << 30)) {
    cache_.set_compare(Compare::kLow32);
    modules_.forbid_collisions();
  }
  enable_feedback();
  // The instruction borrowed so far is about to become non-executable.
  syscall_insn_ = TargetAddr(region_.areas().front().gateway.syscall_insn.value());
  TRY(hide_text());
  TRY(region_.close_target_descriptor(call));
  // Later modules must be within reach of an area that exists.
  cache_.set_remote_call([](long, const std::array<uint64_t, 6>&) -> Result<int64_t> {
    return make_error("a module was mapped out of reach of the code cache");
  });

  const std::optional<uint32_t> slot = service_.open_slot();
  threads_[pid].slot = slot;
  TRY_ASSIGN(const BlockRef entry, cache_.resolve(TargetAddr(start.rip), Arrival::kCall));
  if (!entry.valid()) return make_error("{}: its entry is no code", program);
  ledger_.enter(entry, AbnormalKind::kProgramStart, "program start");
  const Unit& first = cache_.unit(entry.unit);
  ledger_.bottom({first.module->to_target(first.procedure.range.begin),
                  first.module->to_target(first.procedure.range.end)});
  user_regs_struct regs = process_->registers(pid);
  regs.rip = cache_.unit(entry.unit).label(entry.block).value();
  regs.gs_base = region_.thread_block(*slot).value();
  process_->set_registers(pid, regs);
  set_check_dump_hook([this](std::ostream& out) { dump_state(out); });
  return Ok{};
}

Status Session::loop() {
  service_.start();
  process_->resume(process_->pid());
  while (!over_) {
    auto event = process_->wait();
    if (!event) return event.error();
    std::lock_guard lock(service_.mutex());
    handle(*event);
  }
  service_.stop();
  if (auto error = service_.error()) return *error;
  return Ok{};
}

void Session::handle(const Event& event) {
  switch (event.kind) {
    case tracee::EventKind::kThreadBorn:
    case tracee::EventKind::kForked:
      return thread_born(event);
    case tracee::EventKind::kThreadReady:
      return thread_ready(event.tid);
    case tracee::EventKind::kExec:
      return process_execed(event);
    case tracee::EventKind::kExiting:
      return thread_exiting(event.tid);
    case tracee::EventKind::kGone:
      return thread_gone(event);
    case tracee::EventKind::kSignal:
      return signal_stop(event);
    case tracee::EventKind::kGroupStop:
      return process_->listen(event.tid);
    case tracee::EventKind::kOther:
      return process_->resume(event.tid);
  }
}

// ---- threads and children ----------------------------------------------------------------------

void Session::thread_born(const Event& event) {
  const user_regs_struct regs = process_->registers(event.tid);
  uint64_t flags = 0;
  switch (regs.orig_rax) {
    case SYS_clone:
      flags = regs.rdi;
      break;
    case SYS_clone3:
      if (!process_->read_memory(TargetAddr(regs.rdi), &flags, sizeof flags)) flags = 0;
      break;
    case SYS_vfork:
      flags = CLONE_VM | CLONE_VFORK;
      break;
    default:
      break;
  }
  if (flags & CLONE_VM) {
    expected_[event.new_tid] = event.tid;
    if (!(flags & CLONE_THREAD)) expected_vfork_.insert(event.new_tid);
  } else {
    expected_fork_.insert(event.new_tid);
  }
  // The parent goes on only when its child has been taken care of: a fork child shares the block
  // of shared memory with its parent until then.
  process_->resume(event.tid);
  if (early_.erase(event.new_tid) > 0) thread_ready(event.new_tid);
}

void Session::thread_ready(pid_t tid) {
  if (threads_.contains(tid)) return process_->resume(tid);  // continued after a stop
  if (expected_fork_.erase(tid) > 0) return release_child(tid);
  auto it = expected_.find(tid);
  if (it == expected_.end()) {
    early_.insert(tid);
    return;
  }
  const pid_t parent = it->second;
  expected_.erase(it);
  start_thread(tid, parent, expected_vfork_.erase(tid) > 0);
}

void Session::start_thread(pid_t tid, pid_t parent, bool own_process) {
  const std::optional<uint32_t> slot = service_.open_slot();
  if (!slot) {
    service_.fail(make_error("the program runs more than {} threads at once", kThreadsMax));
    return;
  }
  Thread& thread = threads_[tid];
  thread.slot = slot;
  thread.own_process = own_process;
  if (!own_process) ++threads_total_;
  user_regs_struct regs = process_->registers(tid);
  user_regs_struct parent_regs{};
  const bool shares_stack =
      own_process && process_->try_registers(parent, parent_regs) && parent_regs.rsp == regs.rsp;
  ledger_.open_thread(regs, *slot, shares_stack || regs.orig_rax == SYS_vfork);
  regs.gs_base = region_.thread_block(*slot).value();
  process_->set_registers(tid, regs);
  process_->resume(tid);
}

// A child with memory of its own goes on natively: original address, original protections, nothing
// of ours left mapped.
void Session::release_child(pid_t tid) {
  user_regs_struct regs = process_->registers(tid);
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
  }
  call(SYS_munmap, {region_.tables_base(), tables::kSizeBytes});
  call(SYS_munmap, {region_.thread_block(0).value(), kThreadsMax * tcb::kBlockSizeBytes});
  for (size_t i = region_.areas().size(); i-- > 0;) {
    // The first area goes last: it holds the instruction that unmaps.
    call(SYS_munmap, {region_.areas()[i].base.value(), kAreaSizeBytes});
  }
  ledger_.issue("children", "child processes ran natively and were not counted");
  process_->detach(tid);
}

void Session::thread_exiting(pid_t tid) {
  auto it = threads_.find(tid);
  if (it == threads_.end() || !it->second.slot) return process_->resume(tid);
  const uint32_t slot = *it->second.slot;
  user_regs_struct regs{};
  if (process_->try_registers(tid, regs)) {
    const bool alone = regs.orig_rax == SYS_exit;
    const AbnormalKind kind = it->second.fatal_signal           ? AbnormalKind::kFault
                              : alone && tid != process_->pid() ? AbnormalKind::kThreadExit
                                                                : AbnormalKind::kProgramExit;
    ledger_.close_thread(regs, slot, kind,
                         it->second.fatal_signal ? "died of a signal" : "still active at the end");
  } else {
    ledger_.issue(fmt::format("thread {}", tid),
                  "vanished before its stack could be read; the counts of its active procedures "
                  "may be off by one");
  }
  service_.close_slot(slot);
  it->second.slot.reset();
  process_->resume(tid);
}

void Session::thread_gone(const Event& event) {
  threads_.erase(event.tid);
  if (event.tid != process_->pid()) return;
  end_.exited = event.exited;
  end_.exit_status = event.exit_status;
  end_.signal = event.signal;
  over_ = true;
}

void Session::process_execed(const Event& event) {
  std::string program = fmt::format("/proc/{}/exe", event.tid);
  char path[4096];
  const ssize_t length = readlink(program.c_str(), path, sizeof path);
  if (length > 0) program.assign(path, static_cast<size_t>(length));
  auto it = threads_.find(event.tid);
  const bool ours = event.tid == process_->pid();
  if (it != threads_.end() && it->second.slot) {
    service_.exec_succeeded(*it->second.slot);
    service_.close_slot(*it->second.slot);
    it->second.slot.reset();
  }
  ledger_.issue(
      ours ? "the program" : "children",
      ours ? fmt::format("replaced itself by {}, which ran natively and was not counted", program)
           : std::string("child processes ran natively and were not counted"));
  if (ours) replaced_ = true;
  threads_.erase(event.tid);
  process_->detach(event.tid);
}

// ---- signals -----------------------------------------------------------------------------------

// Control reached the program's own text, which cannot be executed: nobody foresaw this transfer.
bool Session::caught_by_net(const Event& event) {
  if (event.signal != SIGSEGV || event.info.si_code != SEGV_ACCERR) return false;
  user_regs_struct regs = process_->registers(event.tid);
  if (reinterpret_cast<uint64_t>(event.info.si_addr) != regs.rip ||
      modules_.at(TargetAddr(regs.rip)) == nullptr) {
    return false;
  }
  auto ref = cache_.resolve(TargetAddr(regs.rip), Arrival::kReturn);
  if (!ref || !ref->valid()) return false;
  if (!net_named_) {
    net_named_ = true;
    ledger_.issue("safety net",
                  "control reached original code by a way Tally did not foresee; counts around it "
                  "may be incomplete");
  }
  regs.rip = cache_.unit(ref->unit).entry_of(*ref).value();
  process_->set_registers(event.tid, regs);
  process_->resume(event.tid);
  return true;
}

void Session::signal_stop(const Event& event) {
  if (caught_by_net(event)) return;
  if (event.signal < 65 && service_.has_handler(event.signal)) {
    service_.fail(
        make_error("the program handles signal {} ({}), and signal handlers are not supported yet",
                   event.signal, strsignal(event.signal)));
    process_->resume(event.tid);
    return;
  }
  auto it = threads_.find(event.tid);
  if (it != threads_.end()) it->second.fatal_signal = true;
  if (std::getenv("TALLY_DEBUG") != nullptr) explain_signal(event);
  process_->resume(event.tid, event.signal);
}

// TALLY_DEBUG: where in the program and in the code cache a signal hit.
void Session::explain_signal(const Event& event) {
  const user_regs_struct regs = process_->registers(event.tid);
  const uint32_t slot = threads_[event.tid].slot.value_or(0);
  const Position p = ledger_.locate(regs, slot);
  std::string text = fmt::format(
      "tally: debug: signal {} code {} address {:#x} rip {:#x} rsp {:#x} rcx {:#x} rax {:#x} "
      "target "
      "{:#x} position kind {} done {} pc {:#x}\n",
      event.signal, event.info.si_code, reinterpret_cast<uint64_t>(event.info.si_addr), regs.rip,
      regs.rsp, regs.rcx, regs.rax, ledger_.requested_target(slot), static_cast<int>(p.kind),
      p.done, p.pc.value());
  if (const Module* module = modules_.containing(p.pc)) {
    text += fmt::format("tally: debug: in {}+{:#x}\n", module->path, module->to_link(p.pc).value());
  }
  uint8_t bytes[160];
  if (process_->read_memory(TargetAddr(regs.rip - 32), bytes, sizeof bytes)) {
    text += "tally: debug: bytes around rip:";
    for (const uint8_t b : bytes) text += fmt::format(" {:02x}", b);
    text += '\n';
  }
  const elf::BackTrace trace = ledger_.back_trace([&] {
    elf::UnwindRegisters u = unwind_registers(regs);
    u.value[elf::kDwarfPc] = p.pc.value();
    return u;
  }());
  for (const elf::Frame& frame : trace.frames) {
    const Module* module = modules_.containing(frame.pc);
    text += fmt::format("tally: debug:   frame {}+{:#x}\n", module ? module->path : "?",
                        module ? module->to_link(frame.pc).value() : frame.pc.value());
  }
  std::fputs(text.c_str(), stderr);
}

// ---- the end -----------------------------------------------------------------------------------

void Session::dump_state(std::ostream& out) {
  out << "target " << process_->pid() << ", threads " << threads_.size() << ", units "
      << cache_.units().size() << "\n";
  for (const auto& [tid, thread] : threads_) {
    user_regs_struct regs{};
    if (!process_->try_registers(tid, regs)) continue;
    out << fmt::format("  thread {}: rip {:#x} rsp {:#x} rcx {:#x}\n", tid, regs.rip, regs.rsp,
                       regs.rcx);
  }
}

void Session::collect(RunResult& result) {
  result.exited = end_.exited;
  result.exit_status = end_.exit_status;
  result.signal = end_.signal;
  std::vector<uint64_t> counters(cache_.counters_used(), 0);
  for (uint32_t slot = 0; slot < service_.slots_ever_used(); ++slot) {
    const uint8_t* memory = region_.thread_memory(slot) + tcb::kCounters;
    for (size_t c = 0; c < counters.size(); ++c) {
      uint64_t value = 0;
      memcpy(&value, memory + 8 * c, sizeof value);
      counters[c] += value;
    }
  }
  // The profile of a large program is as large as what it is made from; both should not be here at
  // once more than need be.
  region_.unmap();
  cache_.seal();
  malloc_trim(0);
  build_profile(cache_, modules_, ledger_, counters, result.profile);
  profile::Run& run = result.profile.run;
  run.exited = end_.exited;
  run.exit_status = end_.exit_status;
  run.signal = end_.signal;
  run.threads = threads_total_;
  run.counters = counters.size();
  for (uint64_t value : counters) run.counter_increments += value;
  run.code_cache_bytes = cache_.stats().code_bytes;
  run.instructions_translated = cache_.stats().instructions;
  run.misses = service_.requests();
  run.target_cpu_seconds = process_->usage().user_seconds + process_->usage().system_seconds;
  run.more.emplace_back("procedures_translated", std::to_string(cache_.stats().units));
  run.more.emplace_back("indirect_pairs", std::to_string(cache_.stats().pairs));
}

volatile pid_t forwarding_to = 0;

void forward_signal(int signal, siginfo_t* info, void*) {
  if (info->si_code != SI_KERNEL && forwarding_to > 0) kill(forwarding_to, signal);
}

void describe_environment(const RunOptions& options, profile::Run& run) {
  run.command_line = options.command;
  char folder[4096];
  if (getcwd(folder, sizeof folder) != nullptr) run.working_directory = folder;
  std::string environment;
  for (char** e = environ; *e != nullptr; ++e) {
    environment += *e;
    environment += '\0';
  }
  // FNV-1a: tells equal environments from different ones, guards against nothing else.
  uint64_t digest = 0xcbf29ce484222325ull;
  for (const char c : environment) digest = (digest ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  run.environment_digest = fmt::format("{:016x}", digest);
  utsname name{};
  if (uname(&name) == 0) {
    run.host = name.nodename;
    run.kernel = name.release;
  }
}

}  // namespace

Result<RunResult> run(const RunOptions& options) {
  RunResult result;
  describe_environment(options, result.profile.run);
  const auto begin = std::chrono::steady_clock::now();
  result.profile.run.start_unix_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count());
  TRY_ASSIGN(std::unique_ptr<tracee::Process> process, tracee::Process::spawn(options.command));
  // ^C reaches the whole foreground group: it is for the target, and we follow when it goes.  Sent
  // to us alone, it is handed on.
  struct sigaction forward {};
  struct sigaction interrupt {};
  struct sigaction quit {};
  forwarding_to = process->pid();
  forward.sa_sigaction = forward_signal;
  forward.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGINT, &forward, &interrupt);
  sigaction(SIGQUIT, &forward, &quit);
  Status status = Ok{};
  {
    Session session(std::move(process), options);
    status = session.set_up();
    if (status) status = session.loop();
    if (status) {
      result.profile.run.wall_seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      session.collect(result);
    }
  }
  sigaction(SIGINT, &interrupt, nullptr);
  sigaction(SIGQUIT, &quit, nullptr);
  if (!status) return status.error();
  result.profile.run.monitor_cpu_seconds = cpu_seconds(RUSAGE_SELF);
  return result;
}

}  // namespace tally::engine

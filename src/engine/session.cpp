// See session.h.
#include "engine/session.h"

#include <fmt/format.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "engine/image_run.h"
#include "engine/service_thread.h"
#include "tracee/process.h"

namespace tally::engine {

using tracee::Event;

namespace {

double cpu_seconds(int who) {
  struct rusage usage {};
  getrusage(who, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// The conductor: receives the events of all threads and hands each to the image run it belongs to.
class Session {
 public:
  Session(std::unique_ptr<tracee::Process> process, const RunOptions& options)
      : image_(std::make_unique<ImageRun>(std::move(process), options)), main_pid_(image_->pid()) {}
  ~Session() { set_check_dump_hook(nullptr); }

  Status set_up();
  Status loop();
  void collect(RunResult& result);

 private:
  void handle(const Event& event);
  void thread_born(const Event& event);
  void process_execed(const Event& event);
  uint64_t clone_flags(const Event& event) const;

  std::unique_ptr<ImageRun> image_;
  const pid_t main_pid_;
  std::map<pid_t, Event> early_;  // first stops of threads whose birth is not yet announced
  bool over_ = false;
  RunResult end_;
  ServiceThread service_thread_;
};

Status Session::set_up() {
  TRY(image_->set_up());
  set_check_dump_hook([this](std::ostream& out) { image_->dump_state(out); });
  return Ok{};
}

Status Session::loop() {
  {
    std::lock_guard lock(service_thread_.mutex());
    service_thread_.add(image_->service());
  }
  image_->process().resume(main_pid_);
  while (!over_) {
    auto event = tracee::wait_for_event();
    if (!event) return event.error();
    std::lock_guard lock(service_thread_.mutex());
    handle(*event);
  }
  service_thread_.stop();
  if (auto error = image_->service().error()) return *error;
  return Ok{};
}

void Session::handle(const Event& event) {
  tracee::Process& process = image_->process();
  switch (event.kind) {
    case tracee::EventKind::kThreadBorn:
    case tracee::EventKind::kForked:
      return thread_born(event);
    case tracee::EventKind::kThreadReady:
      if (image_->knows(event.tid)) return process.resume(event.tid);  // continued after a stop
      early_[event.tid] = event;
      return;
    case tracee::EventKind::kExec:
      return process_execed(event);
    case tracee::EventKind::kExiting:
      return image_->thread_exiting(event.tid);
    case tracee::EventKind::kGone:
      image_->thread_gone(event);
      if (event.tid != main_pid_) return;
      end_.exited = event.exited;
      end_.exit_status = event.exit_status;
      end_.signal = event.signal;
      over_ = true;
      return;
    case tracee::EventKind::kSignal:
      if (auto other = image_->signal_stop(event)) handle(*other);
      return;
    case tracee::EventKind::kGroupStop:
      return process.listen(event.tid);
    case tracee::EventKind::kOther:
      return process.resume(event.tid);
  }
}

// ---- threads and children ----------------------------------------------------------------------

uint64_t Session::clone_flags(const Event& event) const {
  const tracee::Process& process = image_->process();
  user_regs_struct regs{};
  if (!process.try_registers(event.tid, regs)) return 0;
  uint64_t flags = 0;
  switch (regs.orig_rax) {
    case SYS_clone:
      return regs.rdi;
    case SYS_clone3:
      if (!process.read_memory(TargetAddr(regs.rdi), &flags, sizeof flags)) return 0;
      return flags;
    case SYS_vfork:
      return CLONE_VM | CLONE_VFORK;
    default:
      return 0;
  }
}

// The child is waited for and taken care of before its maker goes on: until then they share the
// region, and what is known of the maker's memory holds for the child's.
void Session::thread_born(const Event& event) {
  const uint64_t flags = clone_flags(event);
  const pid_t tid = event.new_tid;
  Event first;
  if (auto it = early_.find(tid); it != early_.end()) {
    first = it->second;
    early_.erase(it);
  } else if (auto waited = tracee::wait_for_event_of(tid)) {
    first = *waited;
  } else {
    return image_->process().resume(event.tid);
  }
  if (first.kind != tracee::EventKind::kThreadReady &&
      first.kind != tracee::EventKind::kGroupStop) {
    handle(first);  // killed before it began
  } else if (!(flags & CLONE_VM)) {
    image_->release_child(tid);
  } else {
    image_->start_thread(tid, event.tid, !(flags & CLONE_THREAD));
    if (first.kind == tracee::EventKind::kGroupStop) {
      image_->process().listen(tid);
    } else {
      image_->process().resume(tid);
    }
  }
  image_->process().resume(event.tid);
}

void Session::process_execed(const Event& event) {
  char path[4096];
  std::string program = fmt::format("/proc/{}/exe", event.tid);
  const ssize_t length = readlink(program.c_str(), path, sizeof path);
  if (length > 0) program.assign(path, static_cast<size_t>(length));
  image_->thread_execed(event.former_tid);
  const bool ours = event.tid == main_pid_;
  image_->issue(
      ours ? "the program" : "children",
      ours ? fmt::format("replaced itself by {}, which ran natively and was not counted", program)
           : std::string("child processes ran natively and were not counted"));
  image_->process().detach(event.tid);
}

// ---- the end -----------------------------------------------------------------------------------

void Session::collect(RunResult& result) {
  result.exited = end_.exited;
  result.exit_status = end_.exit_status;
  result.signal = end_.signal;
  image_->collect(result.profile);
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

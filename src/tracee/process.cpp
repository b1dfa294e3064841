// Spawning, stopping and inspecting the target.  See process.h.
#include "tracee/process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "tracee/proc_files.h"
#include "tracee/program.h"
#include "tracee/watch.h"

namespace tally::tracee {
namespace {

constexpr long kOptions = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                          PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;
// Until the exec it is our own child that is traced.  A sanitizer's runtime gives that a thread of
// its own, which would wait for us at its exit while the exec waits for it.
constexpr long kOptionsUntilExec = PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;

void* as_pointer(uint64_t value) {
  return reinterpret_cast<void*>(value);  // NOLINT: ptrace takes integers as pointers
}

struct Pipe {
  int fd[2] = {-1, -1};
  ~Pipe() {
    for (int f : fd) {
      if (f >= 0) close(f);
    }
  }
  void close_end(int i) {
    close(fd[i]);
    fd[i] = -1;
  }
};

// The child's half of spawn: wait for the go, then become the program.  Reports errno if it cannot.
[[noreturn]] void become(const std::string& path, const std::vector<std::string>& argv, Pipe& go,
                         Pipe& error) {
  char byte = 0;
  close(go.fd[1]);
  if (read(go.fd[0], &byte, 1) != 1) _exit(127);
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));  // NOLINT
  arguments.push_back(nullptr);
  execve(path.c_str(), arguments.data(), environ);
  const int code = errno;
  if (write(error.fd[1], &code, sizeof code) < 0) _exit(126);
  _exit(127);
}

// What the checks before could not see.
Error exec_error(const std::string& program, int code) {
  const ErrorKind kind = code == ENOENT ? ErrorKind::kNotFound : ErrorKind::kNotExecutable;
  switch (code) {
    case ENOENT:
      return make_error(kind, "{}: no such program, or its interpreter or loader is missing",
                        program);
    case EACCES:
      return make_error(kind, "{}: not executable here; is its file system mounted noexec?",
                        program);
    case ENOEXEC:
      return make_error(kind,
                        "{}: neither an ELF program for this machine nor a script with #!; run "
                        "its interpreter instead",
                        program);
    default:
      return make_error(kind, "{}: cannot be executed: {}", program, strerror(code));
  }
}

bool is_event(int status, int event) {
  return status >> 8 == (SIGTRAP | event << 8);
}

// Waits until the thread stops.  An error when it dies instead; its end is left for wait_for_event
// to report.
Result<int> wait_for_stop(pid_t tid) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(tid), &info, WEXITED | WSTOPPED | WNOWAIT | __WALL) < 0) {
    if (errno != EINTR) return make_error("lost the target: {}", strerror(errno));
  }
  if (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) {
    return make_error("the target died while it was being set up");
  }
  int status = 0;
  while (waitpid(tid, &status, __WALL) < 0) {
    if (errno != EINTR) return make_error("lost the target: {}", strerror(errno));
  }
  if (is_event(status, PTRACE_EVENT_EXIT)) {
    ptrace(PTRACE_CONT, tid, nullptr, nullptr);
    return make_error("the target died while it was being set up");
  }
  return status;
}

// Goes on until the trap that belongs to `request`.  A signal that comes meanwhile (only those that
// cannot be blocked do) is sent again afterwards, when the program is ready for it.
Status go_to_trap(pid_t tid, decltype(PTRACE_CONT) request) {
  std::vector<int> postponed;
  while (true) {
    if (ptrace(request, tid, nullptr, nullptr) != 0) {
      return make_error("cannot step the target: {}", strerror(errno));
    }
    TRY_ASSIGN(const int status, wait_for_stop(tid));
    if (status >> 8 == SIGTRAP) break;
    const bool group_stop = status >> 16 == PTRACE_EVENT_STOP;
    if (!group_stop || WSTOPSIG(status) != SIGTRAP) postponed.push_back(WSTOPSIG(status));
  }
  for (const int signal : postponed) kill(tid, signal);
  return Ok{};
}

}  // namespace

Result<std::unique_ptr<Process>> Process::spawn(const std::vector<std::string>& argv) {
  CHECK(!argv.empty()) << "spawn without a program";
  TRY_ASSIGN(const std::string path, find_program(argv[0]));
  TRY(check_program(path));
  Pipe go;
  Pipe error;
  if (pipe2(go.fd, O_CLOEXEC) != 0 || pipe2(error.fd, O_CLOEXEC) != 0) {
    return make_error("cannot make a pipe: {}", strerror(errno));
  }
  const pid_t pid = fork();
  if (pid < 0) return make_error("cannot fork: {}", strerror(errno));
  if (pid == 0) become(path, argv, go, error);
  std::unique_ptr<Process> process(new Process(pid));
  error.close_end(1);
  if (ptrace(PTRACE_SEIZE, pid, nullptr, as_pointer(kOptionsUntilExec)) != 0) {
    return make_error("ptrace is forbidden here ({}); `tally doctor` says what to do",
                      strerror(errno));
  }
  if (write(go.fd[1], "g", 1) != 1) return make_error("cannot start the child");
  while (true) {
    int status = 0;
    const pid_t got = waitpid(pid, &status, __WALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return make_error("lost the child: {}", strerror(errno));
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      process->gone_ = true;
      int code = 0;
      if (read(error.fd[0], &code, sizeof code) == sizeof code) return exec_error(argv[0], code);
      return make_error("{}: died before it started", argv[0]);
    }
    if (is_event(status, PTRACE_EVENT_EXEC)) break;
    if (is_event(status, PTRACE_EVENT_EXIT)) {
      ptrace(PTRACE_CONT, pid, nullptr, nullptr);
      continue;
    }
    ptrace(PTRACE_CONT, pid, nullptr, as_pointer(WIFSTOPPED(status) ? WSTOPSIG(status) : 0));
  }
  if (ptrace(PTRACE_SETOPTIONS, pid, nullptr, as_pointer(kOptions)) != 0) {
    return make_error("cannot follow the target: {}", strerror(errno));
  }
  TRY(finish_exec(pid));
  TRY(process->open_memory());
  return process;
}

Status Process::finish_exec(pid_t pid) {
  return go_to_trap(pid, PTRACE_SYSCALL);
}

Status Process::open_memory() {
  const std::string memory = "/proc/" + std::to_string(pid_) + "/mem";
  memory_fd_ = open(memory.c_str(), O_RDWR | O_CLOEXEC);
  if (memory_fd_ < 0) return make_error("cannot open {}: {}", memory, strerror(errno));
  return Ok{};
}

Result<std::unique_ptr<Process>> Process::adopt(pid_t pid) {
  std::unique_ptr<Process> process(new Process(pid));
  TRY(process->open_memory());
  return process;
}

Process::~Process() {
  kill_all();
  if (memory_fd_ >= 0) close(memory_fd_);
}

void Process::kill_all() {
  if (gone_) return;
  kill(pid_, SIGKILL);
  int status = 0;
  // Threads must be reaped before their leader reports; exit stops are passed through.
  while (true) {
    const pid_t got = waitpid(-1, &status, __WALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (WIFSTOPPED(status)) ptrace(PTRACE_CONT, got, nullptr, nullptr);
    if (got == pid_ && !WIFSTOPPED(status)) break;
  }
  gone_ = true;
}

namespace {

// What the kernel says of a stop.  Of a thread that was killed there meanwhile it says nothing, or
// already what belongs to the stop at its exit, with no sign of that: then this is nothing.
std::optional<unsigned long> message_of(pid_t tid, int trap) {
  unsigned long message = 0;
  siginfo_t now{};
  if (ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message) != 0) return std::nullopt;
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &now) != 0) return std::nullopt;
  if (now.si_code != (SIGTRAP | trap << 8)) return std::nullopt;
  return message;
}

Event decode_stop(pid_t tid, int status) {
  Event event;
  event.tid = tid;
  if (WIFEXITED(status) || WIFSIGNALED(status)) {
    event.kind = EventKind::kGone;
    event.exited = WIFEXITED(status);
    event.exit_status = event.exited ? WEXITSTATUS(status) : 0;
    event.signal = event.exited ? 0 : WTERMSIG(status);
    return event;
  }
  const int trap = status >> 16;
  const bool speaks = trap != 0 && trap != PTRACE_EVENT_STOP;
  const auto message = speaks ? message_of(tid, trap) : std::optional<unsigned long>();
  switch (trap) {
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_FORK:
      if (!message) return event;
      event.kind = trap == PTRACE_EVENT_FORK ? EventKind::kForked : EventKind::kThreadBorn;
      event.vfork = trap == PTRACE_EVENT_VFORK;
      event.new_tid = static_cast<pid_t>(*message);
      return event;
    case PTRACE_EVENT_EXEC:
      event.kind = EventKind::kExec;
      event.former_tid = static_cast<pid_t>(message.value_or(0));
      return event;
    case PTRACE_EVENT_EXIT:
      event.kind = EventKind::kExiting;
      event.signal = static_cast<int>(message.value_or(0) & 0x7f);
      event.name = thread_name(tid);
      return event;
    case PTRACE_EVENT_STOP:
      event.signal = WSTOPSIG(status);
      event.kind = event.signal == SIGTRAP ? EventKind::kThreadReady : EventKind::kGroupStop;
      return event;
    default:
      break;
  }
  event.signal = WSTOPSIG(status);
  if (event.signal == (SIGTRAP | 0x80)) {
    event.kind = EventKind::kSystemCall;
    return event;
  }
  event.kind = EventKind::kSignal;
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &event.info) != 0) event.kind = EventKind::kOther;
  return event;
}

Result<std::optional<Event>> wait_once(pid_t which, int options = 0) {
  int status = 0;
  struct rusage usage {};
  const pid_t tid = wait4(which, &status, __WALL | options, &usage);
  if (tid == 0 || (tid < 0 && errno == EINTR)) return std::optional<Event>();
  if (tid < 0) return make_error("no target left to wait for: {}", strerror(errno));
  Event event = decode_stop(tid, status);
  event.usage.user_seconds = static_cast<double>(usage.ru_utime.tv_sec) +
                             static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
  event.usage.system_seconds = static_cast<double>(usage.ru_stime.tv_sec) +
                               static_cast<double>(usage.ru_stime.tv_usec) * 1e-6;
  return std::optional<Event>(event);
}

Result<Event> wait_on(pid_t which) {
  while (true) {
    TRY_ASSIGN(const std::optional<Event> event, wait_once(which));
    if (event) return *event;
  }
}

}  // namespace

Result<Event> wait_for_event() {
  return wait_on(-1);
}

Result<std::optional<Event>> wait_for_event_or_signal() {
  return wait_once(-1);
}

Result<std::optional<Event>> poll_event() {
  return wait_once(-1, WNOHANG);
}

Result<Event> wait_for_event_of(pid_t tid) {
  return wait_on(tid);
}

// A thread that is killed at one stop goes on to the next by itself, that at its exit.  Who resumes
// it there, thinking of the former, never hears of the latter.
static bool has_end_to_report(pid_t tid) {
  siginfo_t info{};
  constexpr int kLook = WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL;
  if (waitid(P_PID, static_cast<id_t>(tid), &info, kLook) != 0 || info.si_pid != tid) return false;
  const bool stopped = info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED;
  return !stopped || info.si_status >> 8 == PTRACE_EVENT_EXIT;
}

void resume(pid_t tid, int signal) {
  if (has_end_to_report(tid)) return;
  // ESRCH means that the thread was killed meanwhile; its end is reported by wait_for_event.
  ptrace(PTRACE_CONT, tid, nullptr, as_pointer(static_cast<uint64_t>(signal)));
}

void listen(pid_t tid) {
  ptrace(PTRACE_LISTEN, tid, nullptr, nullptr);
}

void detach(pid_t tid) {
  ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
}

bool is_stopped(pid_t tid) {
  siginfo_t info{};
  constexpr int kLook = WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL;
  return waitid(P_PID, static_cast<id_t>(tid), &info, kLook) == 0 && info.si_pid == 0;
}

void interrupt(pid_t tid) {
  ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
}

void hide_stop(pid_t tid) {
  constexpr int64_t kErestartNoHand = 514;  // the kernel: EINTR if there is a handler after all
  user_regs_struct regs{};
  if (ptrace(PTRACE_GETREGS, tid, nullptr, &regs) != 0) return;
  if (static_cast<int64_t>(regs.orig_rax) < 0 || static_cast<int64_t>(regs.rax) != -EINTR) return;
  regs.rax = static_cast<uint64_t>(-kErestartNoHand);
  ptrace(PTRACE_SETREGS, tid, nullptr, &regs);
}

static bool is_made_again_unharmed(long number, const std::array<uint64_t, 6>& arguments) {
  switch (number) {
    case SYS_futex:
      return (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ||
             (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_read:
    case SYS_accept:
    case SYS_accept4:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_pause:
    case SYS_rt_sigsuspend:
      return true;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
      return static_cast<int32_t>(arguments[3]) < 0;  // for ever
    case SYS_epoll_pwait2:
      return arguments[3] == 0;
    case SYS_rt_sigtimedwait:
      return arguments[2] == 0;
    case SYS_recvfrom:
      return (arguments[3] & MSG_WAITALL) == 0;
    case SYS_recvmsg:
      return (arguments[2] & MSG_WAITALL) == 0;
    default:
      return false;
  }
}

Doing doing(pid_t tid) {
  std::ifstream file(fmt::format("/proc/{}/syscall", tid));
  long number = -1;
  if (!(file >> number)) return Doing::kRuns;  // "running"
  std::array<uint64_t, 6> arguments{};
  for (uint64_t& argument : arguments) {
    std::string word;
    file >> word;
    argument = std::strtoull(word.c_str(), nullptr, 16);
  }
  return is_made_again_unharmed(number, arguments) ? Doing::kWaits : Doing::kWaitsOtherwise;
}

bool may_have_children(pid_t tid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", tid, tid));
  std::string child;
  return !file || static_cast<bool>(file >> child);
}

bool watch_system_calls(pid_t tid) {
  return ptrace(PTRACE_SETOPTIONS, tid, nullptr, as_pointer(kOptions | PTRACE_O_TRACESYSGOOD)) == 0;
}

void resume_watched(pid_t tid, int signal) {
  ptrace(PTRACE_SYSCALL, tid, nullptr, as_pointer(static_cast<uint64_t>(signal)));
}

void resume_for_one_step(pid_t tid, int signal) {
  ptrace(PTRACE_SINGLESTEP, tid, nullptr, as_pointer(static_cast<uint64_t>(signal)));
}

std::optional<SystemCallStop> system_call_stop(pid_t tid) {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, as_pointer(sizeof info), &info) <= 0) return {};
  SystemCallStop stop;
  if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
    stop.entry = true;
    stop.number = info.entry.nr;
    for (size_t i = 0; i < stop.arguments.size(); ++i) stop.arguments[i] = info.entry.args[i];
    return stop;
  }
  if (info.op != PTRACE_SYSCALL_INFO_EXIT) return {};
  stop.result = info.exit.rval;
  return stop;
}

void set_exit_kill(pid_t tid, bool on) {
  ptrace(PTRACE_SETOPTIONS, tid, nullptr,
         as_pointer(on ? kOptions : kOptions & ~PTRACE_O_EXITKILL));
}

bool is_dying(pid_t tid) {
  if (has_end_to_report(tid)) return true;
  user_regs_struct regs{};
  return ptrace(PTRACE_GETREGS, tid, nullptr, &regs) != 0;
}

Result<Event> Process::step(pid_t tid, int signal) {
  if (!has_end_to_report(tid) &&
      ptrace(PTRACE_SINGLESTEP, tid, nullptr, as_pointer(static_cast<uint64_t>(signal))) != 0 &&
      errno != ESRCH) {
    return make_error("cannot step thread {}: {}", tid, strerror(errno));
  }
  return wait_for_event_of(tid);
}

Result<std::optional<Event>> Process::stop_again(pid_t tid) {
  tracee::interrupt(tid);
  tracee::resume(tid);
  TRY_ASSIGN(const Event event, wait_for_event_of(tid));
  const bool stopped = event.kind == EventKind::kThreadReady || event.kind == EventKind::kGroupStop;
  return stopped ? std::optional<Event>() : std::optional<Event>(event);
}

bool Process::is_step_end(const Event& event) {
  return event.kind == EventKind::kSignal && event.signal == SIGTRAP &&
         (event.info.si_code == TRAP_TRACE || event.info.si_code == TRAP_BRKPT);
}

// The stop behind the building of a frame is announced by the signal's number as its code.
bool Process::is_handler_entry(const Event& event) {
  return event.kind == EventKind::kSignal && event.signal == SIGTRAP &&
         event.info.si_code == SIGTRAP;
}

void Process::set_signal_info(pid_t tid, const siginfo_t& info) {
  siginfo_t copy = info;
  const long result = ptrace(PTRACE_SETSIGINFO, tid, nullptr, &copy);
  CHECK(result == 0 || errno == ESRCH) << "set siginfo of " << tid << ": " << strerror(errno);
}

void Process::send_signal(pid_t tid, int signal) {
  syscall(SYS_tkill, tid, signal);
}

Process::Dispositions Process::dispositions(pid_t tid) const {
  const std::string status = status_of(tid);  // empty: killed meanwhile
  const auto set = [&](const char* name) {
    return strtoull(status_field(status, name).c_str(), nullptr, 16);
  };
  return {.caught = set("SigCgt"), .ignored = set("SigIgn")};
}

bool Process::try_registers(pid_t tid, user_regs_struct& regs) const {
  return ptrace(PTRACE_GETREGS, tid, nullptr, &regs) == 0;
}

user_regs_struct Process::registers(pid_t tid) const {
  user_regs_struct regs{};
  const bool got = try_registers(tid, regs);
  CHECK(got || errno == ESRCH) << "registers of thread " << tid << ": " << strerror(errno);
  return regs;
}

bool Process::set_registers(pid_t tid, const user_regs_struct& regs) {
  // Of a thread that had been killed when they were read.  It may stand at its exit by now, where
  // the kernel would take registers again, but not these.
  if (regs.cs == 0) return false;
  user_regs_struct copy = regs;
  const long result = ptrace(PTRACE_SETREGS, tid, nullptr, &copy);
  CHECK(result == 0 || errno == ESRCH) << "set registers of " << tid << ": " << strerror(errno);
  return result == 0;
}

uint64_t Process::signal_mask(pid_t tid) const {
  uint64_t mask = 0;
  ptrace(PTRACE_GETSIGMASK, tid, as_pointer(sizeof mask), &mask);
  return mask;
}

void Process::set_signal_mask(pid_t tid, uint64_t mask) {
  ptrace(PTRACE_SETSIGMASK, tid, as_pointer(sizeof mask), &mask);
}

Result<int64_t> Process::remote_syscall(pid_t tid, TargetAddr syscall_insn, long number,
                                        const std::array<uint64_t, 6>& arguments) {
  const user_regs_struct saved = registers(tid);
  user_regs_struct regs = saved;
  regs.rip = syscall_insn.value();
  regs.rax = static_cast<uint64_t>(number);
  regs.rdi = arguments[0];
  regs.rsi = arguments[1];
  regs.rdx = arguments[2];
  regs.r10 = arguments[3];
  regs.r8 = arguments[4];
  regs.r9 = arguments[5];
  regs.orig_rax = static_cast<uint64_t>(-1);  // no system call is to be restarted
  set_registers(tid, regs);
  // To its entry and to its end.  A single step would do, but its trap makes the kernel forget
  // that the program ignores or blocks SIGTRAP.
  TRY(go_to_trap(tid, PTRACE_SYSCALL));
  TRY(go_to_trap(tid, PTRACE_SYSCALL));
  const user_regs_struct after = registers(tid);
  set_registers(tid, saved);
  return static_cast<int64_t>(after.rax);
}

bool Process::read_memory(TargetAddr address, void* data, size_t size_bytes) const {
  auto* out = static_cast<char*>(data);
  size_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = pread(memory_fd_, out + done, size_bytes - done,
                              static_cast<off_t>(address.value() + done));
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

bool Process::write_memory(TargetAddr address, const void* data, size_t size_bytes) const {
  return pwrite(memory_fd_, data, size_bytes, static_cast<off_t>(address.value())) ==
         static_cast<ssize_t>(size_bytes);
}

bool Process::write_memory_if_there(TargetAddr address, const void* data, size_t size_bytes) const {
  const ssize_t done = pwrite(memory_fd_, data, size_bytes, static_cast<off_t>(address.value()));
  return done == static_cast<ssize_t>(size_bytes) || done == 0;
}

Result<std::vector<Mapping>> Process::mappings() const {
  const std::string path = "/proc/" + std::to_string(pid_) + "/maps";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return make_error("cannot read {}: {}", path, strerror(errno));
  std::string text;
  char buffer[16384];
  ssize_t got = 0;
  while ((got = read(fd, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(got));
  close(fd);
  if (got < 0) return make_error("cannot read {}: {}", path, strerror(errno));
  return parse_mappings(text);
}

Result<int> Process::take_descriptor(int target_fd) const {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd < 0)
    return make_error("pidfd_open: {}; a kernel 5.6 or newer is needed", strerror(errno));
  const auto fd = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, target_fd, 0));
  const int code = errno;
  close(pidfd);
  if (fd < 0) return make_error("pidfd_getfd: {}; a kernel 5.6 or newer is needed", strerror(code));
  return fd;
}

std::string thread_name(pid_t tid) {
  std::string name = contents_of("/proc/" + std::to_string(tid) + "/comm");
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

std::string executable_path(pid_t pid) {
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  char buffer[4096];
  const ssize_t length = readlink(link.c_str(), buffer, sizeof buffer);
  return length > 0 ? std::string(buffer, static_cast<size_t>(length)) : std::string();
}

double Process::cpu_seconds() const {
  clockid_t clock = 0;
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::vector<Mapping> parse_mappings(const std::string& text) {
  std::vector<Mapping> result;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    unsigned long long begin = 0, limit = 0, offset = 0;
    char permissions[5] = {};
    int consumed = 0;
    if (sscanf(line.c_str(), "%llx-%llx %4s %llx %*s %*s %n", &begin, &limit, permissions, &offset,
               &consumed) < 4) {
      continue;
    }
    Mapping m;
    m.range = {TargetAddr(begin), TargetAddr(limit)};
    m.file_offset = offset;
    m.readable = permissions[0] == 'r';
    m.writable = permissions[1] == 'w';
    m.executable = permissions[2] == 'x';
    m.shared = permissions[3] == 's';
    if (consumed > 0 && static_cast<size_t>(consumed) < line.size()) {
      m.path = line.substr(static_cast<size_t>(consumed));
    }
    result.push_back(std::move(m));
  }
  return result;
}

}  // namespace tally::tracee

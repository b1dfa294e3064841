// See attach.h.
#include "tracee/attach.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

#include "elf/image.h"
#include "tracee/proc_files.h"
#include "tracee/process.h"

namespace tally::tracee {
namespace {

constexpr auto kStopMax = std::chrono::seconds(10);
constexpr long kNapNanoseconds = 100'000;

pid_t number(const std::string& text) {
  return static_cast<pid_t>(strtol(text.c_str(), nullptr, 10));
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat one {};
  struct stat other {};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

std::string user_name(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? std::to_string(uid) : entry->pw_name;
}

Error forbidden(pid_t pid, int code) {
  if (code == ESRCH) return make_error("process {} ended while Tally attached to it", pid);
  const auto uid = static_cast<uid_t>(number(status_field(status_of(pid), "Uid")));
  if (uid != geteuid() && geteuid() != 0) {
    return make_error("process {} belongs to {}; run tally as that user or as root", pid,
                      user_name(uid));
  }
  const int scope = number(contents_of("/proc/sys/kernel/yama/ptrace_scope"));
  if (scope > 0) {
    return make_error(
        "process {} cannot be traced: this kernel lets a program trace only its own children "
        "(kernel.yama.ptrace_scope is {}); run tally as root{}",
        pid, scope, scope < 3 ? ", or sysctl kernel.yama.ptrace_scope=0" : "");
  }
  return make_error(
      "process {} cannot be traced: {}; it may have more rights than this user (a set-uid program, "
      "capabilities), or ptrace is forbidden here: `tally doctor` finds out",
      pid, strerror(code));
}

// Everything known about one attempt.  Until all threads stand, nothing has been changed.
class Seizing {
 public:
  explicit Seizing(pid_t pid) : pid_(pid) {}

  Result<std::vector<SeizedThread>> run() {
    Status status = take_all();
    if (!status) {
      let_go();
      return status.error();
    }
    std::vector<SeizedThread> result;
    for (const auto& [tid, state] : threads_)
      result.push_back({tid, state == State::kGroupStopped});
    return result;
  }

 private:
  enum class State : uint8_t { kRunning, kStopped, kGroupStopped };

  Status take_all() {
    const auto deadline = std::chrono::steady_clock::now() + kStopMax;
    do {
      TRY(seize_new());
      TRY(wait_until_all_stand(deadline));
      TRY(seize_new());
    } while (!all_stand());
    if (threads_.contains(pid_)) return Ok{};
    return make_error("the main thread of process {} has ended; such a process cannot be taken",
                      pid_);
  }

  bool all_stand() const {
    return std::none_of(threads_.begin(), threads_.end(),
                        [](const auto& t) { return t.second == State::kRunning; });
  }

  Status seize_new() {
    const std::string folder = "/proc/" + std::to_string(pid_) + "/task";
    DIR* listing = opendir(folder.c_str());
    if (listing == nullptr) return forbidden(pid_, ESRCH);
    std::optional<Error> error;
    while (const dirent* entry = readdir(listing)) {
      const pid_t tid = number(entry->d_name);
      if (tid <= 0 || threads_.contains(tid) || error) continue;
      constexpr long kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                                PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;
      if (ptrace(PTRACE_SEIZE, tid, nullptr, kOptions) == 0) {
        threads_[tid] = State::kRunning;
        interrupt(tid);
      } else if (is_ours(tid)) {  // made by a thread that was seized before
        threads_.emplace(tid, State::kRunning);
      } else if (errno != ESRCH && !is_dead(tid)) {
        error = forbidden(pid_, errno);
      }
    }
    closedir(listing);
    if (error) return *error;
    return Ok{};
  }

  static bool is_ours(pid_t tid) {
    const int code = errno;
    const bool ours = number(status_field(status_of(tid), "TracerPid")) == getpid();
    errno = code;
    return ours;
  }
  static bool is_dead(pid_t tid) {
    const int code = errno;
    const std::string state = status_field(status_of(tid), "State");
    errno = code;
    return state.empty() || state[0] == 'Z' || state[0] == 'X';
  }

  Status wait_until_all_stand(std::chrono::steady_clock::time_point deadline) {
    while (!all_stand()) {
      int status = 0;
      const pid_t tid = waitpid(-1, &status, __WALL | WNOHANG);
      if (tid > 0) {
        TRY(note(tid, status));
        continue;
      }
      if (tid < 0 && errno == ECHILD) return forbidden(pid_, ESRCH);
      if (std::chrono::steady_clock::now() > deadline) return does_not_stop();
      const timespec nap{0, kNapNanoseconds};
      nanosleep(&nap, nullptr);
    }
    return Ok{};
  }

  Error does_not_stop() const {
    pid_t tid = 0;
    for (const auto& [t, state] : threads_) {
      if (state == State::kRunning) tid = t;
    }
    const std::string where =
        contents_of("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(tid) + "/wchan");
    return make_error(
        "thread {} of process {} does not stop: it is inside the kernel{}{}; try again later", tid,
        pid_, where.empty() || where == "0" ? "" : " in ", where == "0" ? "" : where);
  }

  Status note(pid_t tid, int status) {
    if (!WIFSTOPPED(status)) {
      threads_.erase(tid);
      children_.erase(tid);
      if (tid == pid_) return make_error("process {} ended while Tally attached to it", pid_);
      return Ok{};
    }
    const int trap = status >> 16;
    if (trap == PTRACE_EVENT_STOP) {
      stands(tid, WSTOPSIG(status));
      return Ok{};
    }
    if (trap == PTRACE_EVENT_EXEC) {
      threads_.clear();
      threads_[tid] = State::kStopped;
      return make_error("process {} became another program while Tally attached to it; try again",
                        pid_);
    }
    if (trap == PTRACE_EVENT_CLONE || trap == PTRACE_EVENT_FORK || trap == PTRACE_EVENT_VFORK) {
      unsigned long born = 0;
      ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &born);
      note_birth(static_cast<pid_t>(born));
    }
    // Whatever else it was, the thread goes on with it and stops at the next occasion.
    const bool signal = trap == 0 && WSTOPSIG(status) != SIGTRAP;
    interrupt(tid);
    resume(tid, signal ? WSTOPSIG(status) : 0);
    return Ok{};
  }

  void stands(pid_t tid, int signal) {
    if (number(status_field(status_of(tid), "Tgid")) != pid_) {
      children_.erase(tid);
      return detach(tid);  // a child, born meanwhile
    }
    hide_stop(tid);
    threads_[tid] = signal == SIGTRAP ? State::kStopped : State::kGroupStopped;
  }

  void note_birth(pid_t tid) {
    if (number(status_field(status_of(tid), "Tgid")) == pid_) {
      threads_.emplace(tid, State::kRunning);
    } else {
      children_.insert(tid);
    }
  }

  void let_go() {
    for (const auto& [tid, state] : threads_) {
      if (state != State::kRunning) detach(tid);
    }
    // Those that do not stand are let go by the kernel when this process ends.
  }

  pid_t pid_;
  std::map<pid_t, State> threads_;
  std::set<pid_t> children_;
};

}  // namespace

Status check_attachable(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  const std::string status = status_of(pid);
  if (status.empty()) return make_error("there is no process {}", pid);
  const std::string state = status_field(status, "State");
  if (const pid_t process = number(status_field(status, "Tgid")); process != pid) {
    return make_error("{} is a thread of process {}; give that one", pid, process);
  }
  if (state[0] == 'Z' || state[0] == 'X') {
    if (number(status_field(status, "Threads")) > 1) {
      return make_error("the main thread of process {} has ended; such a process cannot be taken",
                        pid);
    }
    return make_error("process {} has ended already (a zombie, waiting for its parent)", pid);
  }
  if (status_field(status, "VmSize").empty()) {
    return make_error("process {} is a kernel thread ({})", pid, status_field(status, "Name"));
  }
  if (pid == getpid() || same_file(proc + "/exe", "/proc/self/exe")) {
    return make_error("process {} is tally itself", pid);
  }
  if (const pid_t tracer = number(status_field(status, "TracerPid")); tracer != 0) {
    return make_error(
        "process {} is traced already, by process {} ({}); a process has one tracer, so that one "
        "must let it go first",
        pid, tracer, status_field(status_of(tracer), "Name"));
  }
  if (number(status_field(status, "Seccomp")) > 0) {
    return make_error(
        "process {} runs under a seccomp filter, which may kill it for system calls that Tally "
        "makes in its name",
        pid);
  }
  if (access((proc + "/exe").c_str(), R_OK) != 0) return forbidden(pid, EACCES);
  auto image = elf::Image::open(proc + "/exe");
  if (!image) return make_error("process {}: {}", pid, image.error().message);
  return Ok{};
}

Result<std::vector<SeizedThread>> seize_all(pid_t pid) {
  return Seizing(pid).run();
}

std::optional<RseqConfig> rseq_config(pid_t tid) {
  struct Configuration {  // as in linux/ptrace.h of 5.13 and later
    uint64_t address;
    uint32_t size_bytes, signature, flags, padding;
  } now{};
  constexpr auto kGetRseqConfiguration = static_cast<decltype(PTRACE_CONT)>(0x420f);
  const long got = ptrace(kGetRseqConfiguration, tid, sizeof now, &now);
  if (got < static_cast<long>(sizeof now) || now.address == 0) return std::nullopt;
  return RseqConfig{now.address, now.size_bytes, now.signature};
}

}  // namespace tally::tracee

#include "tracee/probe.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace tally::tracee {
namespace {

constexpr uint64_t kMagic = 0x54414c4c59212121;  // "TALLY!!!"
constexpr size_t kPageBytes = 4096;
constexpr auto kDeadline = std::chrono::seconds(5);
constexpr int kSyscallStop = SIGTRAP | 0x80;  // with PTRACE_O_TRACESYSGOOD

// One page that the child and we both see; the child leaves here how far it came.
struct Shared {
  uint64_t gs_magic = kMagic;  // first: gs base will point at the page, so gs:0 reads this
  std::atomic<uint32_t> read_gs{0};
  std::atomic<uint64_t> gs_seen{0};
  std::atomic<int> traceme_errno{0};
  std::atomic<int> memfd{-1};
  std::atomic<int> memfd_errno{0};
  std::atomic<int> execute_errno{-1};  // -1: not tried
  std::atomic<uint32_t> futex_word{0};
  std::atomic<uint32_t> woken{0};
  std::atomic<uint32_t> finished{0};
};
static_assert(sizeof(Shared) <= kPageBytes);

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

// --- the child's side: only system calls, it is a fork ----------------------------------------

// Leaves a memfd with kMagic in it, and runs one `ret` that was written through one mapping of it
// and is executed through another: what a code cache does.
void child_memfd(Shared& shared) {
  int fd = static_cast<int>(syscall(SYS_memfd_create, "tally-probe", 0));
  if (fd < 0 || ftruncate(fd, kPageBytes) != 0) {
    shared.memfd_errno = errno;
    return;
  }
  void* data = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    shared.memfd_errno = errno;
    return;
  }
  std::memcpy(data, &kMagic, sizeof kMagic);
  static_cast<uint8_t*>(data)[sizeof kMagic] = 0xc3;  // ret
  shared.memfd = fd;
  void* code = mmap(nullptr, kPageBytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  if (code == MAP_FAILED) {
    shared.execute_errno = errno;
    return;
  }
  auto entry = reinterpret_cast<void (*)()>(reinterpret_cast<uintptr_t>(code) + sizeof kMagic);
  entry();
  shared.execute_errno = 0;
}

[[noreturn]] void child_main(Shared& shared) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
    shared.traceme_errno = errno;
    _exit(1);
  }
  raise(SIGSTOP);  // first stop: the monitor sets our gs base and looks at a system call
  if (shared.read_gs != 0) {
    uint64_t seen = 0;
    asm volatile("movq %%gs:0, %0" : "=r"(seen));
    shared.gs_seen = seen;
  }
  child_memfd(shared);
  raise(SIGSTOP);  // second stop: the monitor takes the memfd and reads our memory
  timespec timeout{2, 0};
  shared.woken = futex(&shared.futex_word, FUTEX_WAIT, 0, &timeout) == 0 ? 1 : 0;
  shared.finished = 1;
  _exit(0);
}

// --- the monitor's side -----------------------------------------------------------------------

// A traced child; killed and reaped when this goes away, whatever state it is in.
class ProbeChild {
 public:
  explicit ProbeChild(Shared& shared) : pid_(fork()) {
    if (pid_ == 0) child_main(shared);
  }
  ~ProbeChild() {
    if (pid_ <= 0 || reaped_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, __WALL);
  }
  ProbeChild(const ProbeChild&) = delete;
  ProbeChild& operator=(const ProbeChild&) = delete;

  pid_t pid() const { return pid_; }

  // The next change of state, or nothing when none came before the deadline.
  std::optional<int> wait() {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < end) {
      int status = 0;
      pid_t got = waitpid(pid_, &status, WNOHANG | __WALL);
      if (got == pid_) {
        reaped_ = WIFEXITED(status) || WIFSIGNALED(status);
        return status;
      }
      if (got < 0 && errno != EINTR) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return std::nullopt;
  }

  // Lets it run to its next SIGSTOP, past the stops of system calls on the way.
  bool run_to_sigstop() {
    if (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) return false;
    auto status = wait();
    return status && WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGSTOP;
  }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

// Runs the steps in order and keeps their results.
class Rehearsal {
 public:
  explicit Rehearsal(Shared& shared) : shared_(shared), child_(shared) {}

  std::vector<ProbeResult> run() {
    if (!probe_ptrace()) return skip_rest();
    probe_gs_base();
    probe_syscall_info();
    if (!child_.run_to_sigstop()) {
      add("ptrace-continue", ProbeState::kFailed, "the traced child did not go on after a stop",
          "another tracer or a sandbox interferes; run outside of it");
      return skip_rest();
    }
    check_gs_base();
    probe_memory_read();
    probe_memfd();
    probe_futex();
    return std::move(results_);
  }

 private:
  void add(std::string name, ProbeState state, std::string seen, std::string remedy) {
    results_.push_back({std::move(name), state, std::move(seen), std::move(remedy)});
  }
  void ok(std::string name, std::string seen) {
    add(std::move(name), ProbeState::kOk, std::move(seen), "");
  }
  void failed(std::string name, std::string what, int error, std::string remedy) {
    add(std::move(name), ProbeState::kFailed, fmt::format("{}: {}", what, std::strerror(error)),
        std::move(remedy));
  }

  std::vector<ProbeResult> skip_rest() {
    for (const char* name : {"gs-base", "syscall-info", "memory-read", "memfd", "memfd-execute",
                             "pidfd-getfd", "shared-futex"}) {
      bool present = false;
      for (const ProbeResult& result : results_) present |= result.name == name;
      if (!present) add(name, ProbeState::kNotTried, "needs a traced child", "");
    }
    return std::move(results_);
  }

  bool probe_ptrace() {
    const std::string remedy =
        "in a container: docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined; "
        "on the host: sudo sysctl kernel.yama.ptrace_scope=1";
    if (child_.pid() < 0) {
      failed("ptrace", "fork", errno, "raise the limit of processes (ulimit -u)");
      return false;
    }
    auto status = child_.wait();
    if (shared_.traceme_errno != 0) {
      failed("ptrace", "PTRACE_TRACEME", shared_.traceme_errno, remedy);
      return false;
    }
    if (!status || !WIFSTOPPED(*status)) {
      add("ptrace", ProbeState::kFailed, "the traced child never stopped", remedy);
      return false;
    }
    if (ptrace(PTRACE_SETOPTIONS, child_.pid(), nullptr,
               PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) != 0) {
      failed("ptrace", "PTRACE_SETOPTIONS (exit kill, syscall stops)", errno, remedy);
      return false;
    }
    ok("ptrace", "traced a child; it dies with its tracer");
    return true;
  }

  void probe_gs_base() {
    user_regs_struct regs{};
    if (ptrace(PTRACE_GETREGS, child_.pid(), nullptr, &regs) != 0) {
      failed("gs-base", "PTRACE_GETREGS", errno, "use a kernel with full ptrace (not gVisor)");
      return;
    }
    regs.gs_base = reinterpret_cast<uintptr_t>(&shared_);
    if (ptrace(PTRACE_SETREGS, child_.pid(), nullptr, &regs) != 0) {
      failed("gs-base", "PTRACE_SETREGS with another gs base", errno,
             "use a kernel with full ptrace (not gVisor)");
      return;
    }
    shared_.read_gs = 1;
  }

  // After the child went on: did `mov gs:0` read what we made gs point at?
  void check_gs_base() {
    if (shared_.read_gs == 0) return;  // already reported
    if (shared_.gs_seen == kMagic) {
      ok("gs-base", "a traced child reads through the gs base we set");
    } else {
      add("gs-base", ProbeState::kFailed, "the child did not read through the gs base we set",
          "use a kernel with full ptrace (not gVisor)");
    }
  }

  void probe_syscall_info() {
    const std::string remedy = "needs Linux 5.3 or newer";
    if (ptrace(PTRACE_SYSCALL, child_.pid(), nullptr, nullptr) != 0) {
      failed("syscall-info", "PTRACE_SYSCALL", errno, remedy);
      return;
    }
    auto status = child_.wait();
    if (!status || !WIFSTOPPED(*status) || WSTOPSIG(*status) != kSyscallStop) {
      add("syscall-info", ProbeState::kFailed, "no stop at a system call", remedy);
      return;
    }
    __ptrace_syscall_info info{};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child_.pid(), sizeof info, &info) <= 0) {
      failed("syscall-info", "PTRACE_GET_SYSCALL_INFO", errno, remedy);
    } else if (info.op != PTRACE_SYSCALL_INFO_ENTRY) {
      add("syscall-info", ProbeState::kFailed, "a system call's entry is not told from its exit",
          remedy);
    } else {
      ok("syscall-info", "stopped at a system call's entry and knew it");
    }
  }

  void probe_memory_read() {
    uint64_t value = 0;
    iovec local{&value, sizeof value};
    iovec remote{&shared_.gs_magic, sizeof value};
    ssize_t got = process_vm_readv(child_.pid(), &local, 1, &remote, 1, 0);
    if (got == ssize_t{sizeof value} && value == kMagic) {
      ok("memory-read", "read a traced child's memory");
    } else {
      failed("memory-read", "process_vm_readv", got < 0 ? errno : EIO,
             "allow process_vm_readv in the sandbox (docker: --cap-add=SYS_PTRACE)");
    }
  }

  void probe_memfd() {
    if (shared_.memfd < 0) {
      failed("memfd", "memfd_create in the child", shared_.memfd_errno,
             "allow memfd_create in the sandbox");
      add("memfd-execute", ProbeState::kNotTried, "needs a memfd", "");
      add("pidfd-getfd", ProbeState::kNotTried, "needs a memfd", "");
      return;
    }
    ok("memfd", "the child made shared memory");
    if (shared_.execute_errno == 0) {
      ok("memfd-execute", "the child ran code written to shared memory");
    } else {
      failed("memfd-execute", "mapping shared memory executable", shared_.execute_errno,
             "sudo sysctl vm.memfd_noexec=0; with SELinux: sudo setsebool -P "
             "selinuxuser_execmod 1");
    }
    probe_pidfd_getfd();
  }

  void probe_pidfd_getfd() {
    const std::string remedy =
        "needs Linux 5.6 or newer; in a container: --security-opt seccomp=unconfined";
    int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child_.pid(), 0));
    if (pidfd < 0) {
      failed("pidfd-getfd", "pidfd_open", errno, remedy);
      return;
    }
    int fd = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, shared_.memfd.load(), 0));
    int error = errno;
    close(pidfd);
    if (fd < 0) {
      failed("pidfd-getfd", "pidfd_getfd", error, remedy);
      return;
    }
    uint64_t value = 0;
    if (pread(fd, &value, sizeof value, 0) == ssize_t{sizeof value} && value == kMagic) {
      ok("pidfd-getfd", "took over the child's shared memory");
    } else {
      add("pidfd-getfd", ProbeState::kFailed, "the file taken over is not the child's", remedy);
    }
    close(fd);
  }

  void probe_futex() {
    ptrace(PTRACE_CONT, child_.pid(), nullptr, nullptr);
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    // Until one sleeper was woken: only that shows that both sides mean the same futex.
    while (futex(&shared_.futex_word, FUTEX_WAKE, 1, nullptr) != 1 && shared_.finished == 0 &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    child_.wait();
    if (shared_.woken == 1) {
      ok("shared-futex", "woke the child through shared memory");
    } else {
      add("shared-futex", ProbeState::kFailed, "the child was not woken through shared memory",
          "allow futex on shared memory in the sandbox");
    }
  }

  Shared& shared_;
  ProbeChild child_;
  std::vector<ProbeResult> results_;
};

}  // namespace

std::vector<ProbeResult> probe_tracing() {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return {{"shared-memory", ProbeState::kFailed,
             fmt::format("mapping one page: {}", std::strerror(errno)), "free some memory"}};
  }
  auto* shared = new (page) Shared;
  std::vector<ProbeResult> results = Rehearsal(*shared).run();
  munmap(page, kPageBytes);
  return results;
}

}  // namespace tally::tracee

// Taking hold of a process that runs already.  See image_run.h.
//
// Stacks, registers, signal frames and function pointers of the process hold original addresses,
// and go on doing so: a thread only has to be set to the copy of the instruction it stands at.  A
// thread inside a system call is set behind the copy of its `syscall`, with the kernel's registers
// as they are, so that the kernel itself restarts what the stop has interrupted, there.
//
// Frames that are open at this moment were entered before our time; the ledger remembers them by
// their return addresses and enters those that turn out to matter (ledger_inherited.cpp).
//
// Until the very end no register of a thread has changed, and what was mapped can be taken back.
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "engine/describe.h"
#include "engine/image_run.h"
#include "engine/signal_pause.h"

namespace tally::engine {

using namespace translate;

namespace {

// `syscall` leaves the address behind it in rcx.  A thread may also stand in front of a handler
// that has interrupted a call: then only the number is left.
bool is_in_call(const user_regs_struct& regs) {
  return static_cast<int64_t>(regs.orig_rax) >= 0 && regs.rcx == regs.rip;
}

bool will_restart(const user_regs_struct& regs) {
  const auto result = static_cast<int64_t>(regs.rax);
  return static_cast<int64_t>(regs.orig_rax) >= 0 &&
         (result == -516 || (result <= -512 && result >= -514));
}

// Code with pages of its own was written to after it had been mapped.
RangeSet changed_code(pid_t pid) {
  RangeSet changed;
  std::ifstream smaps(fmt::format("/proc/{}/smaps", pid));
  TargetRange range;
  bool executable = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    char permissions[5] = {};
    unsigned long long anonymous_kb = 0;
    if (sscanf(line.c_str(), "%llx-%llx %4s", &begin, &end, permissions) == 3) {
      range = {TargetAddr(begin), TargetAddr(end)};
      executable = permissions[2] == 'x';
    } else if (executable && sscanf(line.c_str(), "Anonymous: %llu kB", &anonymous_kb) == 1 &&
               anonymous_kb > 0) {
      changed.add(range);
    }
  }
  return changed;
}

// Whether the page at that address exists.
Result<bool> exists(pid_t pid, TargetAddr address) {
  constexpr uint64_t kPageBytes = 4096;
  constexpr uint64_t kPresent = uint64_t{1} << 63;
  uint64_t entry = 0;
  const std::string path = fmt::format("/proc/{}/pagemap", pid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return make_error("cannot read {}: {}", path, strerror(errno));
  const auto at = static_cast<off_t>(address.value() / kPageBytes * sizeof entry);
  const ssize_t got = pread(fd, &entry, sizeof entry, at);
  close(fd);
  if (got != sizeof entry) return make_error("cannot read {}", path);
  return (entry & kPresent) != 0;
}

// A thread inside a restartable sequence has been preempted: the sequence is to be abandoned.
void abandon_sequence(tracee::Process& process, const tracee::RseqConfig& config,
                      user_regs_struct& regs) {
  constexpr uint64_t kCriticalSection = 8;  // offset in struct rseq
  struct Section {
    uint32_t version, flags;
    uint64_t begin, size_bytes, abort;
  } section{};
  uint64_t at = 0;
  const TargetAddr pointer(config.address + kCriticalSection);
  if (!process.read_memory(pointer, &at, sizeof at) || at == 0) return;
  if (!process.read_memory(TargetAddr(at), &section, sizeof section)) return;
  if (!is_in_call(regs) && regs.rip - section.begin < section.size_bytes) regs.rip = section.abort;
  at = 0;
  process.write_memory(pointer, &at, sizeof at);
}

}  // namespace

// The block that ends in the `syscall` in front of `pc`.
Result<BlockRef> ImageRun::interrupted_call(TargetAddr pc) {
  const TargetAddr insn = pc - isa::kSyscallBytes;
  uint8_t bytes[isa::kSyscallBytes] = {};
  process_->read_memory(insn, bytes, sizeof bytes);
  if (bytes[0] != 0x0f || bytes[1] != 0x05) {
    return make_error(
        "a thread is inside a system call made by other means than `syscall`, at {:#x}",
        insn.value());
  }
  TRY_ASSIGN(const BlockRef ref, cache_.resolve(insn, Arrival::kJump));
  const bool last = ref.valid() && cache_.syscall_site_of(ref) != nullptr &&
                    ref.insn + 1 == cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  if (!last) return make_error("a thread is inside a system call at {:#x}, no code", insn.value());
  return ref;
}

// Sets `regs` to where the thread goes on in the code cache.
Status ImageRun::begin_attached(pid_t tid, user_regs_struct& regs) {
  Thread& thread = threads_[tid];
  const elf::UnwindRegisters original = unwind_registers(regs);
  BlockRef inside;
  BlockRef at;
  if (is_in_call(regs)) {
    TRY_ASSIGN(const BlockRef call, interrupted_call(TargetAddr(regs.rip)));
    const uint8_t* classes = region_.tables() + tables::kSyscallClass;
    if (will_restart(regs) && classes[regs.orig_rax & 0xffff] != 0) {
      at = call;  // one that we must see: it is made again, from the beginning
      regs.rax = regs.orig_rax;
      regs.orig_rax = static_cast<uint64_t>(-1);
    } else {
      inside = {call.unit, call.block};
      regs.rip = cache_.syscall_site_of(call)->behind.value();
    }
  } else {
    if (will_restart(regs)) {
      return make_error(
          "a thread is inside a system call made by other means than `syscall`, {:#x}", regs.rip);
    }
    regs.orig_rax = static_cast<uint64_t>(-1);
    TRY_ASSIGN(at, cache_.resolve(TargetAddr(regs.rip), Arrival::kJump));
    if (!at.valid()) {
      return make_error("thread {} is at {:#x}, which is no code of the program", tid, regs.rip);
    }
  }
  if (at.valid()) {
    TRY_ASSIGN(const CacheAddr entry, cache_.arrive(at));
    regs.rip = entry.value();
  }
  thread.slot = service_.open_slot(busy_stack(regs.rsp));
  if (!thread.slot) return make_error("the process has more than {} threads", kThreadsMax);
  totals_.begin(*thread.slot, tid, "attach");
  ledger_.attach_thread(original, *thread.slot, inside, at);
  regs.gs_base = region_.thread_block(*thread.slot).value();
  return Ok{};
}

Status ImageRun::register_rseq(pid_t tid, const tracee::RseqConfig& config, bool on) {
  constexpr uint64_t kUnregister = 1;
  const SignalPause pause(*process_, tid);
  TRY_ASSIGN(const int64_t result,
             remote_call_by(tid)(SYS_rseq, {config.address, config.size_bytes, on ? 0 : kUnregister,
                                            config.signature}));
  if (result == 0) return Ok{};
  return make_error("rseq of thread {}: {}", tid, strerror(static_cast<int>(-result)));
}

// What Tally reserves is vast, and must not come to exist.  Whether what is mapped from now on
// does, only a mapping tells.
Status ImageRun::refuse_locked_memory() {
  constexpr uint64_t kPageBytes = 4096;
  const RemoteCall call = remote_call();
  TRY_ASSIGN(const int64_t page, call(SYS_mmap, {0, kPageBytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0}));
  if (page < 0) return make_error("no page could be mapped: {}", strerror(static_cast<int>(-page)));
  const auto at = static_cast<uint64_t>(page);
  const Result<bool> is_there = exists(pid(), TargetAddr(at));
  TRY(call(SYS_munmap, {at, kPageBytes}));
  if (!is_there) return is_there.error();
  if (!*is_there) return Ok{};
  return make_error(
      "the process locks all memory that it will have (mlockall with MCL_FUTURE), so what Tally "
      "reserves would take all there is; begin it under Tally instead");
}

Status ImageRun::attach(const std::vector<tracee::SeizedThread>& seized) {
  describe_process(*process_, facts_);
  cpu_before_seconds_ = process_->cpu_seconds();
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  TRY(find_syscall_insn(mappings));
  modules_.expect_running(fmt::format("/proc/{}/root", pid()), changed_code(pid()));
  std::map<pid_t, user_regs_struct> registers;
  for (const tracee::SeizedThread& t : seized) {
    user_regs_struct& regs = registers[t.tid];
    if (!process_->try_registers(t.tid, regs)) return make_error("thread {} is gone", t.tid);
    if (regs.gs_base != 0) return make_error("the program uses the gs register, which Tally needs");
    threads_[t.tid].rseq = tracee::rseq_config(t.tid);
  }
  threads_total_ = static_cast<uint32_t>(seized.size());
  for (const auto& [tid, thread] : threads_) {
    if (!thread.rseq) continue;
    abandon_sequence(*process_, *thread.rseq, registers[tid]);
    TRY(register_rseq(tid, *thread.rseq, false));
  }
  for (const tracee::SeizedThread& t : seized) tracee::set_exit_kill(t.tid, true);
  const auto original = registers;
  Status status = Ok{};
  bool is_mapped = false;
  {
    const SignalPause pause(*process_, pid());
    status = refuse_locked_memory();
    is_mapped = !!status;
    if (is_mapped) {
      status = map_everything(TargetAddr(registers[pid()].rsp & ~uint64_t{0xfff}), Recalls::kNo);
    }
    for (auto it = registers.begin(); status && it != registers.end(); ++it) {
      status = begin_attached(it->first, it->second);
    }
  }
  std::optional<Error> failure;
  if (!status) {
    failure = status.error();
    registers = original;
    if (Status undone = is_mapped ? remove_region(pid()) : Ok{}; !undone) {
      failure = make_error("{}; and the process may have been harmed: {}", failure->message,
                           undone.error().message);
    }
    for (const auto& [tid, thread] : threads_) {
      if (thread.rseq) (void)register_rseq(tid, *thread.rseq, true);
      tracee::set_exit_kill(tid, false);
    }
  }
  for (const auto& [tid, regs] : registers) {
    process_->set_registers(tid, regs);
    TRY(process_->stop_again(tid));
  }
  if (failure) return *failure;
  return Ok{};
}

}  // namespace tally::engine

// Claim: unwind() lists exactly the active call sites, seen against glibc's backtrace().
//
// The target is this process: registers come from getcontext() or from a signal's context, memory
// through process_vm_readv so that a wrong address is an answer instead of a crash, modules from
// dl_iterate_phdr.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "elf/unwind.h"

namespace tally::elf {
namespace {

struct LoadedModule {
  TargetRange range;
  uint64_t bias = 0;
  std::string path;
};

int collect_module(dl_phdr_info* info, size_t, void* data) {
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    begin = std::min(begin, info->dlpi_addr + header.p_vaddr);
    end = std::max(end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
  }
  std::string path = info->dlpi_name;
  if (path.empty()) path = "/proc/self/exe";
  static_cast<std::vector<LoadedModule>*>(data)->push_back(
      {{TargetAddr(begin), TargetAddr(end)}, info->dlpi_addr, path});
  return 0;
}

// Reads this process as if it were a foreign one.
class SelfTarget {
 public:
  SelfTarget() {
    dl_iterate_phdr(collect_module, &modules_);
    target_.module_at = [this](TargetAddr address) { return module_at(address); };
    target_.read_memory = [](TargetAddr address, void* bytes, size_t size_bytes) {
      iovec local{bytes, size_bytes};
      iovec remote{reinterpret_cast<void*>(address.value()), size_bytes};
      return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) ==
             static_cast<ssize_t>(size_bytes);
    };
  }
  const UnwindTarget& target() const { return target_; }

 private:
  std::optional<UnwindModule> module_at(TargetAddr address) {
    for (const LoadedModule& module : modules_) {
      if (!module.range.contains(address)) continue;
      auto& image = images_[module.path];
      if (image == nullptr) {
        auto opened = Image::open(module.path);
        if (!opened) return std::nullopt;
        image = *opened;
      }
      return UnwindModule{image, module.bias};
    }
    return std::nullopt;
  }

  std::vector<LoadedModule> modules_;
  std::map<std::string, std::shared_ptr<const Image>> images_;
  UnwindTarget target_;
};

UnwindRegisters from_context(const ucontext_t& context) {
  constexpr int kOrder[kDwarfRegisterCount] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                               REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                               REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  UnwindRegisters result;
  for (size_t i = 0; i < kDwarfRegisterCount; ++i) {
    result.value[i] = static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[i]]);
    result.known[i] = true;
  }
  return result;
}

struct Observation {
  BackTrace trace;
  std::vector<uint64_t> expected;  // return addresses by glibc, innermost first
  int repetitions = 1;
  double best_us = 1e9;
};
Observation* observed = nullptr;
SelfTarget* self = nullptr;

[[gnu::noinline]] void compare_with(void* const* frames, int count, const ucontext_t& context) {
  for (int i = 0; i < count; ++i) {
    observed->expected.push_back(reinterpret_cast<uint64_t>(frames[i]));
  }
  for (int i = 0; i < observed->repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    observed->trace = unwind(from_context(context), self->target(), 1000);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    observed->best_us = std::min(observed->best_us, spent.count());
  }
}

// Must not be inlined: its own frame differs between the two views, everything outside is equal.
// Nothing lives here across getcontext(), which might return twice.
[[gnu::noinline]] void observe() {
  void* frames[256];
  const int count = ::backtrace(frames, 256);
  ucontext_t context;
  ::getcontext(&context);
  compare_with(frames, count, context);
}

// Sanitizers put a wrapper of their own around backtrace(), which is one frame more inside.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kWrapperFrames = 1;
#else
constexpr size_t kWrapperFrames = 0;
#endif

void expect_equal_outside_innermost(const Observation& observation) {
  const auto& frames = observation.trace.frames;
  EXPECT_EQ(observation.trace.end, TraceEnd::kOutermost) << observation.trace.detail;
  ASSERT_EQ(frames.size() + kWrapperFrames, observation.expected.size());
  for (size_t i = 1; i < frames.size(); ++i) {
    EXPECT_EQ(frames[i].pc.value(), observation.expected[i + kWrapperFrames]) << "frame " << i;
  }
}

void expect_growing(const BackTrace& trace) {
  for (size_t i = 1; i < trace.frames.size(); ++i) {
    EXPECT_GT(trace.frames[i].cfa, trace.frames[i - 1].cfa) << "frame " << i;
  }
}

[[gnu::noinline]] int nest(int depth) {
  if (depth == 0) {
    observe();
    return 0;
  }
  int below = nest(depth - 1);
  asm volatile("" : "+r"(below));  // keeps the optimizer from making this a loop or a jump
  return below + 1;
}

int compare_observing(const void* a, const void* b) {
  if (observed->expected.empty()) observe();
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

class UnwindInProcess : public testing::Test {
 protected:
  void SetUp() override {
    self = &self_;
    observed = &observation_;
  }
  SelfTarget self_;
  Observation observation_;
};

TEST_F(UnwindInProcess, NestedCallsEqualGlibc) {
  EXPECT_EQ(nest(30), 30);
  expect_equal_outside_innermost(observation_);
  EXPECT_GT(observation_.trace.frames.size(), 32u);
  expect_growing(observation_.trace);
}

TEST_F(UnwindInProcess, ThroughAFrameOfTheLibrary) {
  int values[] = {3, 1, 2};
  std::qsort(values, 3, sizeof(int), compare_observing);
  EXPECT_EQ(values[0], 1);
  expect_equal_outside_innermost(observation_);
  expect_growing(observation_.trace);
}

TEST_F(UnwindInProcess, ThreadEndsOutermost) {
  std::thread thread([] { nest(3); });
  thread.join();
  expect_equal_outside_innermost(observation_);
}

TEST_F(UnwindInProcess, ThroughAnException) {
  struct Observer {
    ~Observer() { nest(2); }  // runs during unwinding, below _Unwind_RaiseException
  };
  try {
    const Observer observer;
    throw 1;
  } catch (int) {
  }
  expect_equal_outside_innermost(observation_);
}

TEST_F(UnwindInProcess, FrameLimitIsNamed) {
  nest(30);
  ucontext_t context;
  ::getcontext(&context);
  const BackTrace trace = unwind(from_context(context), self_.target(), 2);
  EXPECT_EQ(trace.frames.size(), 2u);
  EXPECT_EQ(trace.end, TraceEnd::kTooDeep);
  EXPECT_TRUE(unwind(from_context(context), self_.target(), 0).frames.empty());
}

// The goal is 10 us a frame; a loaded machine and a debug build with sanitizers get slack.
TEST_F(UnwindInProcess, TwentyFramesAreQuick) {
  observation_.repetitions = 20;
  nest(14);
  const double frames = static_cast<double>(observation_.trace.frames.size());
  EXPECT_GT(frames, 20);
  EXPECT_LT(observation_.best_us / frames, 50);
  RecordProperty("ns_per_frame", static_cast<int>(observation_.best_us * 1000 / frames));
}

// --- signals ---------------------------------------------------------------------------------

volatile sig_atomic_t signal_seen = 0;
ucontext_t interrupted;

void handle_observing(int, siginfo_t*, void* context) {
  signal_seen = 1;
  auto* machine_state = static_cast<ucontext_t*>(context);
  std::memcpy(&interrupted, machine_state, sizeof(interrupted));
  observe();
  machine_state->uc_mcontext.gregs[REG_RIP] += 2;  // over the ud2
}

void install(int signal, int flags) {
  struct sigaction action = {};
  action.sa_sigaction = handle_observing;
  action.sa_flags = SA_SIGINFO | flags;
  ASSERT_EQ(::sigaction(signal, &action, nullptr), 0);
}

// Neighbours with different rules, so that looking up a byte too far left or right shows:
// `fault_at_entry` is interrupted at its first byte, and the return address of `end_in_call` is the
// first byte of the next procedure.
extern "C" void fault_at_entry();
extern "C" void end_in_call(void (*never_returns)());
asm(R"(
  .text
  .type before_fault, @function
before_fault:
  .cfi_startproc
  .cfi_def_cfa_offset 64
  nop
  .cfi_endproc
  .size before_fault, .-before_fault
  .globl fault_at_entry
  .type fault_at_entry, @function
fault_at_entry:
  .cfi_startproc
  ud2
  ret
  .cfi_endproc
  .size fault_at_entry, .-fault_at_entry
  .globl end_in_call
  .type end_in_call, @function
end_in_call:
  .cfi_startproc
  push %rbx
  .cfi_adjust_cfa_offset 8
  call *%rdi
  .cfi_endproc
  .size end_in_call, .-end_in_call
  .type after_call, @function
after_call:
  .cfi_startproc
  ret
  .cfi_endproc
  .size after_call, .-after_call
)");

std::jmp_buf out_of_call;
void observe_and_leave() {
  observe();
  std::longjmp(out_of_call, 1);
}

TEST_F(UnwindInProcess, CallAsTheLastInstruction) {
  if (setjmp(out_of_call) == 0) end_in_call(observe_and_leave);
  expect_equal_outside_innermost(observation_);
}

void expect_signal_frame(const Observation& observation) {
  const auto& frames = observation.trace.frames;
  const uint64_t at = static_cast<uint64_t>(interrupted.uc_mcontext.gregs[REG_RIP]);
  size_t signal_frames = 0;
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    if (!frames[i].signal_frame) continue;
    ++signal_frames;
    EXPECT_EQ(frames[i + 1].pc.value(), at);
    EXPECT_EQ(frames[i].cfa.value(), static_cast<uint64_t>(interrupted.uc_mcontext.gregs[REG_RSP]));
  }
  EXPECT_EQ(signal_frames, 1u);
}

TEST_F(UnwindInProcess, ThroughASignalHandler) {
  install(SIGILL, 0);
  fault_at_entry();
  ASSERT_EQ(signal_seen, 1);
  expect_equal_outside_innermost(observation_);
  expect_signal_frame(observation_);
  expect_growing(observation_.trace);
  // The same from the interrupted registers: what lies outside the signal frame, without it.
  const BackTrace outside = unwind(from_context(interrupted), self_.target(), 1000);
  EXPECT_EQ(outside.end, TraceEnd::kOutermost) << outside.detail;
  ASSERT_LT(outside.frames.size(), observation_.trace.frames.size());
  EXPECT_EQ(outside.frames.back().pc, observation_.trace.frames.back().pc);
  EXPECT_EQ(outside.frames.back().cfa, observation_.trace.frames.back().cfa);
}

// The handler's stack below and above the thread's own: the CFA jumps up or down.
TEST_F(UnwindInProcess, ThroughASignalHandlerOnAnotherStack) {
  constexpr size_t kStackSize = 1 << 20;
  void* arena =
      ::mmap(nullptr, 3 * kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(arena, MAP_FAILED);
  char* stacks = static_cast<char*>(arena);
  for (char* handler_stack : {stacks, stacks + 2 * kStackSize}) {
    observation_ = {};
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ASSERT_EQ(::pthread_attr_setstack(&attributes, stacks + kStackSize, kStackSize), 0);
    const auto body = [](void* memory) -> void* {
      stack_t stack = {};
      stack.ss_sp = memory;
      stack.ss_size = kStackSize;
      ::sigaltstack(&stack, nullptr);
      install(SIGILL, SA_ONSTACK);
      fault_at_entry();
      return nullptr;
    };
    pthread_t thread = {};
    ASSERT_EQ(::pthread_create(&thread, &attributes, body, handler_stack), 0);
    ::pthread_join(thread, nullptr);
    ::pthread_attr_destroy(&attributes);
    expect_equal_outside_innermost(observation_);
    expect_signal_frame(observation_);
  }
  ::munmap(arena, 3 * kStackSize);
}

// --- procedure linkage table ---------------------------------------------------------------------

// In every slot of .plt the CFA depends on how far the pc is into the slot.
TEST_F(UnwindInProcess, InsideTheProcedureLinkageTable) {
  const auto libc = Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  if (!libc) GTEST_SKIP() << libc.error().message;
  const auto& sections = (*libc)->sections();
  const auto plt = std::ranges::find(sections, ".plt", &Section::name);
  if (plt == sections.end()) GTEST_SKIP() << "libc has no .plt";
  const uint64_t stack[] = {1, 2, 3, 4, 5, 6, 7, 0};
  UnwindTarget target;
  target.module_at = [&](TargetAddr) { return UnwindModule{*libc, 0}; };
  target.read_memory = [&](TargetAddr address, void* bytes, size_t size_bytes) {
    const uint64_t into = address.value() - 0x1000;
    if (into > sizeof(stack) || size_bytes > sizeof(stack) - into) return false;
    std::memcpy(bytes, reinterpret_cast<const char*>(stack) + into, size_bytes);
    return true;
  };
  // slot: jmp (6 bytes), push (5 bytes): from byte 11 on there is one word more on the stack.
  for (uint64_t byte = 0; byte < 16; ++byte) {
    UnwindRegisters registers;
    registers.value[kDwarfRsp] = 0x1000;
    registers.value[kDwarfPc] = plt->range.begin.value() + 16 + byte;
    registers.known[kDwarfRsp] = registers.known[kDwarfPc] = true;
    const BackTrace trace = unwind(registers, target, 1);
    ASSERT_EQ(trace.frames.size(), 1u);
    EXPECT_EQ(trace.frames[0].cfa.value(), byte >= 11 ? 0x1010u : 0x1008u) << "byte " << byte;
  }
}

TEST_F(UnwindInProcess, NoModuleAndNoPcAreNamed) {
  UnwindRegisters registers;
  EXPECT_EQ(unwind(registers, self_.target(), 10).end, TraceEnd::kUnsupported);
  registers.known[kDwarfPc] = true;
  registers.value[kDwarfPc] = 16;
  const BackTrace trace = unwind(registers, self_.target(), 10);
  EXPECT_EQ(trace.end, TraceEnd::kNoModule);
  EXPECT_NE(trace.detail.find("0x10"), std::string::npos);
  EXPECT_EQ(trace.frames.size(), 1u);
}

}  // namespace
}  // namespace tally::elf

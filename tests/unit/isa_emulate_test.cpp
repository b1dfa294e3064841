// Emulated instructions against the processor: every form, on random registers and memory.
//
// A child stands still under ptrace with one page of code and two pages of data; each case writes
// an instruction there, sets random registers, single-steps it, and compares what came of it with
// what the emulator makes of the same state.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "isa/emulate.h"

namespace tally::isa {
namespace {

constexpr uint64_t kCode = 0x10000000, kData = 0x20000000, kDataSize = 8192;
constexpr uint64_t kCf = 1, kPf = 4, kAf = 16, kZf = 64, kSf = 128, kOf = 2048;
constexpr uint64_t kStatus = kCf | kPf | kAf | kZf | kSf | kOf;

class Bytes : public Memory {
 public:
  explicit Bytes(const uint8_t* from) : bytes(from, from + kDataSize) {}
  bool read(uint64_t address, void* data, size_t size) override {
    if (!inside(address, size)) return false;
    memcpy(data, &bytes[address - kData], size);
    return true;
  }
  bool write(uint64_t address, const void* data, size_t size) override {
    if (!inside(address, size)) return false;
    memcpy(&bytes[address - kData], data, size);
    return true;
  }
  std::vector<uint8_t> bytes;

 private:
  static bool inside(uint64_t address, size_t size) {
    return address >= kData && address + size <= kData + kDataSize;
  }
};

class Emulate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const int shared = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void* code_at = reinterpret_cast<void*>(kCode);
    void* data_at = reinterpret_cast<void*>(kData);
    code = static_cast<uint8_t*>(mmap(code_at, 4096, 7, shared, -1, 0));
    data = static_cast<uint8_t*>(mmap(data_at, kDataSize, 3, shared, -1, 0));
    ASSERT_EQ(reinterpret_cast<uint64_t>(code), kCode);
    ASSERT_EQ(reinterpret_cast<uint64_t>(data), kData);
    child = fork();
    if (child == 0) {
      ptrace(PTRACE_TRACEME, 0, 0, 0);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(ptrace(PTRACE_GETREGS, child, 0, &base), 0);
  }
  static void TearDownTestSuite() {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    munmap(code, 4096);
    munmap(data, kDataSize);
  }

  static uint64_t pick() {
    switch (random() % 6) {
      case 0:
        return 0;
      case 1:
        return ~0ull >> (random() % 64);
      case 2:
        return 1ull << (random() % 64);
      case 3:
        return random() % 5;
      default:
        return random();
    }
  }

  // rbx, rsi and rsp point into the data, r8 is a small index: what addresses are made of.
  static Registers random_registers() {
    Registers r;
    for (uint64_t& g : r.general) g = pick();
    r.general[3] = kData + 1024 + random() % 512;
    r.general[6] = kData + 4096 + random() % 512;
    r.general[kRsp] = kData + 2048 + (random() % 64) * 8;
    r.general[8] = random() % 64;
    r.rip = kCode;
    r.flags = 0x202 | (random() & kStatus);
    return r;
  }

  static user_regs_struct to_kernel(const Registers& r) {
    user_regs_struct k = base;
    const auto& g = r.general;
    k.rax = g[0], k.rcx = g[1], k.rdx = g[2], k.rbx = g[3], k.rsp = g[4], k.rbp = g[5];
    k.rsi = g[6], k.rdi = g[7], k.r8 = g[8], k.r9 = g[9], k.r10 = g[10], k.r11 = g[11];
    k.r12 = g[12], k.r13 = g[13], k.r14 = g[14], k.r15 = g[15];
    k.rip = r.rip, k.eflags = r.flags, k.orig_rax = ~0ull;
    return k;
  }

  // One instruction, `times` over.  `undefined`: flags that the manual leaves open.
  static void check(const std::vector<uint8_t>& bytes, uint64_t undefined = 0, int times = 60) {
    std::vector<uint8_t> padded = bytes;
    padded.resize(32, 0x90);
    const Operation operation = decode_operation(padded, kCode);
    const std::string text = format(padded, kCode);
    ASSERT_NE(operation.op, Op::kUnknown) << text;
    ASSERT_EQ(operation.size, bytes.size()) << text;
    memcpy(code, padded.data(), padded.size());
    for (int i = 0; i < times; ++i) {
      for (uint64_t at = 0; at < kDataSize; at += 8) {
        const uint64_t word = at % 16 == 0 ? random() : kData + random() % 512;
        memcpy(data + at, &word, 8);
      }
      const Registers before = random_registers();
      Bytes memory(data);
      Registers ours = before;
      const bool done = execute(operation, 0, ours, memory);
      const user_regs_struct kernel = to_kernel(before);
      ASSERT_EQ(ptrace(PTRACE_SETREGS, child, 0, &kernel), 0);
      ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, child, 0, 0), 0);
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSTOPPED(status));
      if (!done) {
        ++refused;
        continue;
      }
      ASSERT_EQ(WSTOPSIG(status), SIGTRAP) << text;
      user_regs_struct after{};
      ASSERT_EQ(ptrace(PTRACE_GETREGS, child, 0, &after), 0);
      Registers expected = ours;
      expected.flags = (after.eflags & ~0x100ull & ~undefined) | (ours.flags & undefined);
      const user_regs_struct mine = to_kernel(expected);
      const auto same = [&](const char* name, uint64_t a, uint64_t b) {
        ASSERT_EQ(a, b) << text << ": " << name;
      };
      same("rax", mine.rax, after.rax), same("rcx", mine.rcx, after.rcx);
      same("rdx", mine.rdx, after.rdx), same("rbx", mine.rbx, after.rbx);
      same("rsp", mine.rsp, after.rsp), same("rbp", mine.rbp, after.rbp);
      same("rsi", mine.rsi, after.rsi), same("rdi", mine.rdi, after.rdi);
      same("r8", mine.r8, after.r8), same("r15", mine.r15, after.r15);
      same("rip", mine.rip, after.rip);
      same("flags", ours.flags & kStatus & ~undefined, after.eflags & kStatus & ~undefined);
      ASSERT_EQ(memcmp(memory.bytes.data(), data, kDataSize), 0) << text << ": memory";
      ++compared;
    }
  }

  static uint64_t random() { return generator(); }
  inline static std::mt19937_64 generator{20261121};
  inline static uint8_t* code = nullptr;
  inline static uint8_t* data = nullptr;
  inline static pid_t child = 0;
  inline static user_regs_struct base{};
  inline static uint64_t compared = 0, refused = 0;
};

TEST_F(Emulate, AllConditionsOfJumpsSetsAndMoves) {
  for (uint8_t c = 0; c < 16; ++c) {
    check({static_cast<uint8_t>(0x70 + c), 0x10});
    check({0x0f, static_cast<uint8_t>(0x80 + c), 0x20, 0, 0, 0});
    check({0x0f, static_cast<uint8_t>(0x90 + c), 0xc1});
    check({0x0f, static_cast<uint8_t>(0x90 + c), 0x03});
    check({0x48, 0x0f, static_cast<uint8_t>(0x40 + c), 0xc2});
    check({0x0f, static_cast<uint8_t>(0x40 + c), 0x43, 0x08});
  }
}

TEST_F(Emulate, CountedBranches) {
  for (uint8_t op = 0xe0; op <= 0xe3; ++op) {
    check({op, 0x10});
    check({0x67, op, 0x10});
  }
}

TEST_F(Emulate, CallsJumpsReturns) {
  check({0xe8, 0x10, 0, 0, 0});
  check({0xe9, 0x10, 0, 0, 0});
  check({0xeb, 0x10});
  check({0xff, 0xd3});              // call rbx
  check({0xff, 0xe6});              // jmp rsi
  check({0xff, 0x53, 0x08});        // call [rbx+8]
  check({0x42, 0xff, 0x14, 0xc3});  // call [rbx+r8*8]
  check({0x42, 0xff, 0x24, 0xc6});  // jmp [rsi+r8*8]
  check({0xff, 0x54, 0x24, 0x10});  // call [rsp+16]: the address is taken before the push

  check({0xc3});
  check({0xc2, 0x18, 0x00});
  check({0xf3, 0xc3});
  check({0xf2, 0xff, 0xe3});  // bnd jmp rbx
  check({0x3e, 0xff, 0xe3});  // notrack jmp rbx
}

TEST_F(Emulate, SumsAndLogicInAllWidthsAndForms) {
  for (uint8_t group = 0; group < 8; ++group) {
    if (group == 2 || group == 3) continue;  // adc, sbb are left to the processor
    const uint64_t undefined = group == 1 || group == 4 || group == 6 ? kAf : 0;
    const auto op = static_cast<uint8_t>(group << 3);
    for (uint8_t form = 0; form < 4; ++form) {
      const auto code_byte = static_cast<uint8_t>(op | form);
      check({code_byte, 0xd1}, undefined);              // cl, dl or ecx, edx
      check({code_byte, 0xe5}, undefined);              // ch, ah or ebp, esp
      check({code_byte, 0x43, 0x10}, undefined);        // [rbx+16]
      check({0x48, code_byte, 0x46, 0x10}, undefined);  // [rsi+16]
      check({0x66, code_byte, 0xca}, undefined);
      check({0x42, code_byte, 0x4c, 0xc3, 0x08}, undefined);  // [rbx+r8*8+8]
    }
    check({static_cast<uint8_t>(op | 4), 0x81}, undefined);
    check({0x48, static_cast<uint8_t>(op | 5), 0x81, 0x23, 0x45, 0x97}, undefined);
    const auto modrm = static_cast<uint8_t>(0xc0 | op | 1);
    check({0x80, modrm, 0x9f}, undefined);
    check({0x83, modrm, 0x9f}, undefined);
    check({0x48, 0x81, modrm, 0x78, 0x56, 0x34, 0x92}, undefined);
    check({0x66, 0x83, static_cast<uint8_t>(0x43 | op), 0x08, 0xfe}, undefined);
  }
}

TEST_F(Emulate, TestsNegationsSteps) {
  check({0x84, 0xd1}, kAf);
  check({0x48, 0x85, 0xff}, kAf);
  check({0xa8, 0x80}, kAf);
  check({0xf6, 0x43, 0x05, 0x81}, kAf);
  check({0x48, 0xf7, 0xc1, 0x00, 0x00, 0x00, 0x80}, kAf);
  for (const uint8_t modrm : std::initializer_list<uint8_t>{0xc0, 0xc8, 0x43, 0x4b}) {
    for (const uint8_t op : std::initializer_list<uint8_t>{0xfe, 0xff}) {
      std::vector<uint8_t> bytes = {op, modrm};
      if (modrm < 0xc0) bytes.push_back(0x10);
      check(bytes);
      bytes.insert(bytes.begin(), 0x48);
      check(bytes);
    }
  }
  for (const uint8_t op : std::initializer_list<uint8_t>{0xf6, 0xf7}) {
    check({op, 0xd1});  // not
    check({op, 0xd9});  // neg
    check({0x48, op, 0x5b, 0x08});
    check({0x66, op, 0x53, 0x08});
  }
}

TEST_F(Emulate, ShiftsByConstants) {
  for (const uint8_t reg : std::initializer_list<uint8_t>{4, 5, 7}) {
    const auto modrm = static_cast<uint8_t>(0xc1 | reg << 3);
    check({0xd1, modrm}, kAf);
    check({0x48, 0xd1, modrm}, kAf);
    check({0xd0, modrm}, kAf);
    for (const uint8_t count : std::initializer_list<uint8_t>{0, 1, 2, 7, 15, 31, 33, 63, 64}) {
      const uint64_t undefined = kAf | kOf;
      check({0xc1, modrm, count}, undefined);
      check({0x48, 0xc1, modrm, count}, undefined);
      check({0x66, 0xc1, modrm, count}, undefined);
      check({0xc0, modrm, count}, undefined);
      check({0xc1, static_cast<uint8_t>(0x43 | reg << 3), 0x04, count}, undefined);
    }
  }
}

TEST_F(Emulate, MovesOfAllKinds) {
  for (const uint8_t op : std::initializer_list<uint8_t>{0x88, 0x89, 0x8a, 0x8b}) {
    check({op, 0xd1});
    check({op, 0xe7});
    check({op, 0x43, 0x20});
    check({0x48, op, 0x4e, 0x20});
    check({0x66, op, 0x4e, 0x20});
    check({0x44, op, 0x7b, 0x21});
    check({0x40, op, 0xf7});  // sil, dil
  }
  check({0xb8, 1, 2, 3, 0x84});
  check({0x48, 0xb9, 1, 2, 3, 4, 5, 6, 7, 0x88});
  check({0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0xff});
  check({0xc6, 0x43, 0x02, 0x99});
  check({0x66, 0xc7, 0x43, 0x02, 0x99, 0x88});
  for (const uint8_t op : std::initializer_list<uint8_t>{0xb6, 0xb7, 0xbe, 0xbf}) {
    check({0x0f, op, 0xca});
    check({0x48, 0x0f, op, 0x4b, 0x07});
    check({0x66, 0x0f, op, 0xca});
  }
  check({0x48, 0x63, 0xca});
  check({0x48, 0x63, 0x4b, 0x08});
  check({0x48, 0x8d, 0x4c, 0xc3, 0x08});
  check({0x8d, 0x4c, 0x0b, 0xf8});
  check({0x66, 0x8d, 0x4b, 0x08});
  check({0x98}), check({0x48, 0x98}), check({0x66, 0x98});
  check({0x99}), check({0x48, 0x99}), check({0x66, 0x99});
  check({0x0f, 0x1f, 0x44, 0x00, 0x00}), check({0xf3, 0x0f, 0x1e, 0xfa}), check({0x90});
}

TEST_F(Emulate, TheStack) {
  for (uint8_t reg = 0; reg < 8; ++reg) {
    check({static_cast<uint8_t>(0x50 + reg)});
    if (reg != 4) check({static_cast<uint8_t>(0x58 + reg)});
    check({0x41, static_cast<uint8_t>(0x50 + reg)});
  }
  check({0x5c});
  check({0x6a, 0x90});
  check({0x68, 0x78, 0x56, 0x34, 0x92});
  check({0xff, 0x73, 0x08});
  check({0x48, 0x89, 0xdd});
}

TEST_F(Emulate, Products) {
  constexpr uint64_t kOpen = kSf | kZf | kAf | kPf;
  check({0x0f, 0xaf, 0xca}, kOpen);
  check({0x48, 0x0f, 0xaf, 0x4b, 0x08}, kOpen);
  check({0x6b, 0xca, 0xf7}, kOpen);
  check({0x48, 0x69, 0xca, 0x78, 0x56, 0x34, 0x92}, kOpen);
  check({0x66, 0x6b, 0xca, 0x30}, kOpen);
}

TEST_F(Emulate, LeavesToTheProcessorWhatItDoesNotKnow) {
  const std::vector<std::vector<uint8_t>> foreign = {
      {0xf0, 0xff, 0x03},        // lock inc
      {0x65, 0x8b, 0x03},        // gs
      {0x67, 0x8b, 0x03},        // 32-bit address
      {0xf3, 0xa4},              // rep movsb
      {0x0f, 0x05},              // syscall
      {0xcd, 0x80},              // int 0x80
      {0xcc},                    // int3
      {0xd3, 0xe0},              // shl eax, cl
      {0x0f, 0x28, 0xc1},        // movaps
      {0x0f, 0xa2},              // cpuid
      {0x11, 0xc8},              // adc
      {0x8e, 0xd0},              // mov ss
      {0x0f, 0x31},              // rdtsc
      {0x48, 0x0f, 0xc1, 0x03},  // xadd
  };
  for (std::vector<uint8_t> bytes : foreign) {
    bytes.resize(16, 0x90);
    EXPECT_EQ(decode_operation(bytes, kCode).op, Op::kUnknown) << format(bytes, kCode);
  }
}

TEST_F(Emulate, ChangesNothingWhenMemoryIsMissing) {
  const std::vector<uint8_t> call = {0xff, 0x10, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                                     0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
  Registers r = random_registers();
  r.general[0] = 64;
  const Registers before = r;
  Bytes memory(data);
  EXPECT_FALSE(execute(decode_operation(call, kCode), 0, r, memory));
  EXPECT_EQ(r.general, before.general);
  EXPECT_EQ(r.rip, before.rip);
}

TEST_F(Emulate, ComparedMoreThanItRefused) {
  EXPECT_GT(compared, 10 * refused);
}

}  // namespace
}  // namespace tally::isa

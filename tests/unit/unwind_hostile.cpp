// Claim: whatever the target's memory holds, a walk ends, and says by name why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "elf/unwind.h"
#include "elf_exercise.h"

namespace tally::elf {
namespace {

class UnwindHostile : public testing::Test {
 protected:
  void SetUp() override {
    auto image = Image::open("/lib/x86_64-linux-gnu/libc.so.6");
    if (!image) GTEST_SKIP() << image.error().message;
    image_ = *image;
    registers_.known.fill(true);
    registers_.value.fill(kStack);
    registers_.value[kDwarfPc] = pc_in("qsort");
    target_.module_at = [this](TargetAddr) { return UnwindModule{image_, 0}; };
  }

  uint64_t pc_in(const std::string& name) const {
    const Symbol* symbol = image_->symbol_named(name);
    CHECK(symbol != nullptr) << name;
    return symbol->range.begin.value();
  }
  BackTrace walk_over(std::function<uint64_t(uint64_t address)> word_at, size_t frames_max = 1000) {
    target_.read_memory = [&](TargetAddr address, void* bytes, size_t size_bytes) {
      for (size_t i = 0; i + 8 <= size_bytes; i += 8) {
        const uint64_t word = word_at(address.value() + i);
        std::memcpy(static_cast<char*>(bytes) + i, &word, 8);
      }
      return true;
    };
    return unwind(registers_, target_, frames_max);
  }

  static constexpr uint64_t kStack = 0x7ffc00000000;
  std::shared_ptr<const Image> image_;
  UnwindRegisters registers_;
  UnwindTarget target_;
};

TEST_F(UnwindHostile, RandomMemory) {
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 2000; ++i) {
    const auto& ranges = image_->unwind_ranges();
    const LinkAddr pc = ranges[random() % ranges.size()].begin + random() % 8;
    ASSERT_EQ(walk_random_memory(image_, pc, random), "") << "iteration " << i;
  }
}

TEST_F(UnwindHostile, ZeroReturnAddressIsTheOutermostFrame) {
  const BackTrace trace = walk_over([](uint64_t) { return 0; });
  EXPECT_EQ(trace.end, TraceEnd::kOutermost);
  EXPECT_EQ(trace.frames.size(), 1u);
  EXPECT_EQ(trace.frames[0].cfa.value(), kStack + 8);
}

TEST_F(UnwindHostile, UnreadableMemory) {
  target_.read_memory = [](TargetAddr, void*, size_t) { return false; };
  const BackTrace trace = unwind(registers_, target_, 1000);
  EXPECT_EQ(trace.end, TraceEnd::kUnreadable);
  EXPECT_NE(trace.detail.find("0x7ffc00000000"), std::string::npos) << trace.detail;
  EXPECT_NE(trace.detail.find("libc.so.6"), std::string::npos) << trace.detail;
}

TEST_F(UnwindHostile, EndlessRecursionIsTooDeep) {
  const uint64_t pc = registers_.value[kDwarfPc];
  const BackTrace trace = walk_over([&](uint64_t) { return pc + 1; }, 100);
  EXPECT_EQ(trace.end, TraceEnd::kTooDeep);
  EXPECT_EQ(trace.frames.size(), 100u);
}

// In a procedure with a frame pointer, CFA = saved rbp + 16: memory chooses the next CFA.
TEST_F(UnwindHostile, FrameBelowItsCalleeIsRefused) {
  constexpr uint64_t kFramePointer = kStack + 0x100;
  registers_.value[kDwarfRbp] = kFramePointer;
  std::optional<uint64_t> pc;
  for (const LinkRange& range : image_->unwind_ranges()) {
    if (range.size_bytes() < 64) continue;
    registers_.value[kDwarfPc] = range.begin.value() + 32;
    const BackTrace trace = walk_over([](uint64_t) { return 0; });
    if (trace.frames[0].cfa.value() != kFramePointer + 16) continue;
    pc = registers_.value[kDwarfPc];
    break;
  }
  if (!pc) GTEST_SKIP() << "no procedure with a frame pointer";
  for (const uint64_t next : {kFramePointer, kStack}) {
    const BackTrace trace =
        walk_over([&](uint64_t address) { return address == kFramePointer ? next : *pc + 1; });
    EXPECT_EQ(trace.end, TraceEnd::kUnsupported);
    EXPECT_NE(trace.detail.find("does not lie above"), std::string::npos) << trace.detail;
    EXPECT_EQ(trace.frames.size(), 2u);
  }
}

// Each signal frame may move the CFA anywhere; memory in which signal frames go in a circle must
// not hold the walk for ever.
TEST_F(UnwindHostile, CircleOfSignalFrames) {
  auto trampoline = std::ranges::find_if(
      image_->symbols(), [](const Symbol& symbol) { return symbol.name == "__restore_rt"; });
  if (trampoline == image_->symbols().end()) GTEST_SKIP() << "libc6-dbg is not installed";
  const uint64_t at = trampoline->range.begin.value();
  registers_.value[kDwarfPc] = at;
  // In the kernel's frame the saved rsp is at +160 and the saved pc at +168; every word serves as
  // either: an address in the trampoline that is a readable stack as well.
  const BackTrace trace = walk_over([&](uint64_t) { return at; }, 50);
  EXPECT_EQ(trace.end, TraceEnd::kTooDeep) << trace.detail;
  EXPECT_EQ(trace.frames.size(), 50u);
}

TEST_F(UnwindHostile, NoCfiAtThisAddress) {
  registers_.value[kDwarfPc] = image_->segments().front().range.begin.value() + 64;
  const BackTrace trace = walk_over([](uint64_t) { return 0; });
  EXPECT_EQ(trace.end, TraceEnd::kNoCfi);
  EXPECT_EQ(trace.frames.size(), 1u);
}

TEST(UnwindDebugFrame, StandsInForEhFrame) {
  std::string folder = testing::TempDir() + "tally-cfi-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string flags = "-g -O0 -nostdlib -static -fno-asynchronous-unwind-tables ";
  std::ofstream(folder + "/p.c") << "void _start(void) { for (;;) {} }\n";
  const bool built =
      std::system(("cd " + folder + " && gcc " + flags + "p.c -o p 2>/dev/null").c_str()) == 0;
  const auto image = Image::open(folder + "/p");
  std::filesystem::remove_all(folder);
  if (!built || !image) GTEST_SKIP() << "gcc is not installed";
  EXPECT_TRUE((*image)->unwind_ranges().empty());
  UnwindRegisters registers;
  registers.known.fill(true);
  registers.value.fill(0x1000);
  registers.value[kDwarfPc] = (*image)->entry().value();
  UnwindTarget target;
  target.module_at = [&](TargetAddr) { return UnwindModule{*image, 0}; };
  target.read_memory = [](TargetAddr, void* bytes, size_t size_bytes) {
    std::memset(bytes, 0, size_bytes);
    return true;
  };
  const BackTrace trace = unwind(registers, target, 10);
  EXPECT_EQ(trace.end, TraceEnd::kOutermost) << trace.detail;
  EXPECT_EQ(trace.frames.at(0).cfa.value(), 0x1008u);
}

}  // namespace
}  // namespace tally::elf

// The cache of a target's memory: reads see the stores before them, memory has all of them in the
// end, and what cannot be read or written is refused where it is asked for.
#include "verify/memory_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace tally::verify {
namespace {

constexpr size_t kPageBytes = 4096;

// A process that stands still, with memory that it shares with us.
class MemoryCacheTest : public testing::Test {
 protected:
  static constexpr size_t kPages = 100;  // more than are kept
  void SetUp() override {
    // Behind the writable pages one that is read only, then nothing.
    memory_ = static_cast<uint8_t*>(mmap(nullptr, (kPages + 2) * kPageBytes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      mprotect(memory_ + kPages * kPageBytes, kPageBytes, PROT_READ);
      munmap(memory_ + (kPages + 1) * kPageBytes, kPageBytes);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void TearDown() override {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    munmap(memory_, (kPages + 2) * kPageBytes);
  }
  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory_) + offset; }

  uint8_t* memory_ = nullptr;
  pid_t pid_ = 0;
  MemoryCache cache_;
};

TEST_F(MemoryCacheTest, IsAsMemoryWithoutIt) {
  std::mt19937_64 random(7);
  std::vector<uint8_t> shadow(kPages * kPageBytes);
  for (int window = 0; window < 60; ++window) {
    cache_.begin();
    // Few pages at a time, or many, so that some have to go.
    const size_t first = random() % (kPages - 4) * kPageBytes;
    const size_t span = window % 2 == 0 ? 3 * kPageBytes : shadow.size() - first;
    for (int i = 0; i < 4000; ++i) {
      const size_t size = size_t{1} << random() % 6;
      const size_t offset = first + random() % (span - size);
      std::array<uint8_t, 32> bytes{};
      if (random() % 2 == 0) {
        ASSERT_TRUE(cache_.read(pid_, at(offset), bytes.data(), size));
        ASSERT_EQ(std::memcmp(bytes.data(), shadow.data() + offset, size), 0) << window << " " << i;
      } else {
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
        ASSERT_TRUE(cache_.write(pid_, at(offset), bytes.data(), size));
        std::memcpy(shadow.data() + offset, bytes.data(), size);
      }
    }
    ASSERT_TRUE(cache_.end(pid_));
    ASSERT_EQ(std::memcmp(memory_, shadow.data(), shadow.size()), 0) << window;
    // What happens while the process runs is seen in the next window.
    const size_t offset = random() % shadow.size();
    shadow[offset] = memory_[offset] = static_cast<uint8_t>(random());
  }
}

TEST_F(MemoryCacheTest, RefusesWhatMemoryRefuses) {
  cache_.begin();
  const uint64_t value = 7;
  uint64_t read = 0;
  const size_t read_only = kPages * kPageBytes;
  EXPECT_TRUE(cache_.write(pid_, at(0), &value, sizeof value));
  EXPECT_TRUE(cache_.read(pid_, at(read_only), &read, sizeof read));
  EXPECT_FALSE(cache_.write(pid_, at(read_only), &value, sizeof value));
  EXPECT_FALSE(cache_.read(pid_, at(read_only + kPageBytes), &read, sizeof read));
  EXPECT_FALSE(cache_.write(pid_, at(read_only + kPageBytes), &value, sizeof value));
  // Across the end of what is writable, and of what is there.
  EXPECT_FALSE(cache_.write(pid_, at(read_only - 4), &value, sizeof value));
  EXPECT_FALSE(cache_.read(pid_, at(read_only + kPageBytes - 4), &read, sizeof read));
  EXPECT_TRUE(cache_.end(pid_));
  EXPECT_EQ(memory_[0], 7);
}

TEST_F(MemoryCacheTest, SaysThatAStoreGotLost) {
  cache_.begin();
  const uint64_t value = 7;
  ASSERT_TRUE(cache_.write(pid_, at(0), &value, sizeof value));
  ASSERT_TRUE(cache_.write(pid_, at(8), &value, sizeof value));
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  EXPECT_FALSE(cache_.end(pid_));
  cache_.begin();
  EXPECT_TRUE(cache_.end(pid_));
}

}  // namespace
}  // namespace tally::verify

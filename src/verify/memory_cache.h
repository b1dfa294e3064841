// Memory of a target that stands still, without a system call for each load and store.
//
// Problem.  Emulated blocks load and store all the time; reading eight bytes of another process
// costs as much as reading a page, and half of a verification's time went there.
//
// Idea.  Between two resumes of a process whose other threads stand still (turns.cpp), nobody but
// us touches its memory.
// So a page is read once, and stores are collected and written in one go before the process goes
// on.  They are written in the program's order: memory that is shared with another process must
// not show a flag before what the flag stands for.  The first store to a page goes through at
// once, so that a page that cannot be written is found where the store is.
//
// Not handled: what another process or the kernel (io_uring) writes to shared memory meanwhile is
// seen after the next resume.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tally::verify {

class MemoryCache {
 public:
  // Straight to the target; false when not all of it could be done.
  static bool read_now(pid_t pid, uint64_t address, void* data, size_t size_bytes);
  static bool write_now(pid_t pid, uint64_t address, const void* data, size_t size_bytes);

  bool active() const { return active_; }
  void begin();
  bool read(pid_t pid, uint64_t address, void* data, size_t size_bytes);
  bool write(pid_t pid, uint64_t address, const void* data, size_t size_bytes);
  // Writes what was collected, and forgets all pages.  False when a store could not be written.
  bool end(pid_t pid);

 private:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr size_t kPages = 64;     // a power of two
  static constexpr size_t kStores = 1024;  // as many as one system call writes
  static constexpr uint64_t kNoPage = ~uint64_t{0};
  struct Page {
    uint64_t number = kNoPage;
    bool writable = false;  // a store to it has succeeded
    std::array<uint8_t, kPageBytes> bytes;
  };
  struct Store {
    uint64_t address = 0;
    uint32_t offset = 0;  // in stored_
    uint32_t size_bytes = 0;
  };

  Page& slot(uint64_t number) { return (*pages_)[number % kPages]; }
  Page* page_of(pid_t pid, uint64_t address);
  bool flush(pid_t pid);

  std::unique_ptr<std::array<Page, kPages>> pages_;
  std::vector<size_t> used_;  // slots
  std::vector<Store> stores_;
  std::vector<uint8_t> stored_;
  bool active_ = false;
  bool failed_ = false;  // a store has got lost
};

}  // namespace tally::verify

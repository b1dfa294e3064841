// A kept run on disk: what `--keep-counters` writes and `tally recover` reads.
//
// One sparse file for each program image.  The first part is memory that monitor and target write
// to directly, so that it holds what was true at the very last moment; the journal is appended to
// before the program can make use of what it says.
//
//   0        header (KeptHeader)
//   4 kB     cells: the amounts of the journal's bookings, 8 bytes each
//   64 MB    thread blocks as in translate/layout.h, with their counters
//   128 GB   journal: records of (size, checksum, kind, payload)
//
// A record whose checksum is wrong, or that is cut short, was being written when the monitor was
// killed: nothing in it was used yet, and the journal ends in front of it.
//
// Numbers in payloads are LEB128; the order of fields is that of the functions which write and read
// them (kept_run.cpp, recover.cpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "translate/layout.h"

namespace tally::engine {

inline constexpr char kKeptMagic[16] = "tally kept run\n";
inline constexpr uint32_t kKeptVersion = 1;

struct KeptHeader {
  char magic[16];
  uint32_t version;
  uint32_t broken;  // the journal could not be written any more: the file is of no use
  uint64_t monitor_pid, monitor_start;  // and when it was started, as in /proc/PID/stat
  uint64_t target_pid, target_start;
  uint64_t threads;  // that have begun
  uint64_t slots;    // thread blocks in use
  uint64_t busy;     // more than 0: the ledger is being written to
};

inline constexpr uint64_t kKeptCellsOffset = 4096;
inline constexpr uint64_t kKeptSlotsOffset = 64ull << 20;
inline constexpr uint64_t kKeptCellsMax = (kKeptSlotsOffset - kKeptCellsOffset) / 8;
inline constexpr uint64_t kKeptJournalOffset = 128ull << 30;
static_assert(kKeptSlotsOffset + translate::kThreadsMax * translate::tcb::kBlockSizeBytes <=
              kKeptJournalOffset);

enum class KeptRecord : uint8_t {
  kFacts = 1,     // of the run; from here on the program may run
  kModule = 2,    // the newest with a number counts
  kUnit = 3,      // numbered in order, from 0; so are the following
  kPair = 4,      // a target of an indirect branch
  kArrival = 5,   // a way into a block from elsewhere
  kLinkPair = 6,  // a direct branch with a counter of its own
  kBooking = 7,   // of the ledger; its amount is in the cell of its number
  kEnd = 8,       // how the run ended
};

struct KeptRecordHeader {
  uint32_t size_bytes;
  uint32_t checksum;  // of kind and payload
};
inline constexpr uint32_t kKeptRecordMax = 64 << 20;

enum class KeptBooking : uint8_t {
  kEntered = 0,  // terms of the ledger
  kLeft = 1,
  kPartial = 2,
  kUncounted = 3,
  kOvercounted = 4,
  kUnarrived = 5,
  kMove = 6,
  kIssue = 7,
};

// FNV-1a: against torn and damaged records, not against people.
inline uint32_t kept_checksum(std::span<const uint8_t> bytes) {
  uint32_t sum = 0x811c9dc5;
  for (const uint8_t byte : bytes) sum = (sum ^ byte) * 0x01000193u;
  return sum;
}

// A record on its way to the journal.
class KeptWriter {
 public:
  explicit KeptWriter(KeptRecord kind) { u8(static_cast<uint8_t>(kind)); }
  void u8(uint8_t value) { bytes_.push_back(value); }
  void number(uint64_t value) {
    while (value >= 0x80) {
      u8(static_cast<uint8_t>(value | 0x80));
      value >>= 7;
    }
    u8(static_cast<uint8_t>(value));
  }
  void text(std::string_view value) {
    number(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  void raw(std::span<const uint8_t> value) {
    number(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace tally::engine

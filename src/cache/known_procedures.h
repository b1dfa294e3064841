// Procedures that an earlier image run has found in the same file, with their counters placed.
//
// Problem.  Finding a procedure's blocks and placing its counters is most of the work for a process
// that ends after some milliseconds, and every process has the loader's and the C library's.
//
// Idea.  Discovery rests on bytes of the file alone, but for two cases that are not shared: where
// another unit is in the way, and where a jump table lies in memory that may be written (then it is
// read from the process, and may hold relocated addresses).  What it rests on is remembered by a
// digest and compared before the result is used again, so that a file changed in place cannot lead
// to a translation of code that is not there any more.  The plan numbers its counters from 0 on;
// each unit gets numbers of its own.
//
// Memory: all procedures of a session together take at most `kBytesMax`; what does not fit is found
// anew each time.  A large file's procedures are remembered from the second image run on, so that a
// single large program pays nothing for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/counter_numbers.h"
#include "cache/events.h"
#include "cfg/procedure.h"
#include "elf/image.h"
#include "translate/unit.h"

namespace tally::engine {

struct KnownProcedure {
  cfg::Procedure procedure;  // with its instructions
  std::vector<uint8_t> insn_sizes;
  translate::Plan plan;  // no events; counters from 0 on
  uint32_t counters = 0;
  bool weighed = false;    // by an earlier run's counts
  bool confirmed = false;  // see edge_weights.h
  uint32_t rank = 0;       // see Unit
  ExpectedCounts expected;
  std::vector<WantedEvent> events;
  std::vector<LinkRange> sources;
  uint64_t digest = 0;  // of the bytes there
  size_t size_bytes() const;
  // All but the memory, for another procedure, which discovery fills in.
  void forget();
};

// Whether what a discovery rests on cannot be changed in memory without the file.
bool rests_on_file(const elf::Image& image, std::span<const LinkRange> sources);
// Of the bytes there; nullopt where the file has none.
std::optional<uint64_t> digest_of(const elf::Image& image, std::span<const LinkRange> sources);

// What a procedure is found by.
struct ProcedureKey {
  LinkRange range;
  LinkAddr entry;
  LinkAddr reached;  // where control came to
  bool open_calls = false;
  bool operator==(const ProcedureKey&) const = default;
};

class KnownProcedures {
 public:
  // How much all files of a session remember.
  using Budget = std::shared_ptr<std::atomic<size_t>>;
  static constexpr size_t kBytesMax = 96 << 20;
  static constexpr uint64_t kLargeFileBytes = 4 << 20;

  KnownProcedures(const elf::Image& image, Budget used) : image_(image), used_(std::move(used)) {}
  ~KnownProcedures() { *used_ -= bytes_; }
  KnownProcedures(const KnownProcedures&) = delete;
  KnownProcedures& operator=(const KnownProcedures&) = delete;

  // nullptr when nothing is known, or the bytes are others by now.
  std::shared_ptr<const KnownProcedure> find(const ProcedureKey& key);
  // Remembers it, if it rests on the file alone and there is room.
  void add(const ProcedureKey& key, std::shared_ptr<KnownProcedure> procedure);

 private:
  struct Hash {
    size_t operator()(const ProcedureKey& key) const {
      return std::hash<uint64_t>()(key.reached.value() * 31 + key.entry.value());
    }
  };
  const elf::Image& image_;
  Budget used_;
  size_t bytes_ = 0;
  std::unordered_map<ProcedureKey, std::shared_ptr<const KnownProcedure>, Hash> known_;
};

}  // namespace tally::engine

// What an earlier run of the same program has translated.
//
// Problem.  A run asks the monitor for each procedure and each target of an indirect branch when
// control first gets there: thousands of requests, each with a thread that waits, goes to sleep and
// is woken.  The next run of the program asks for nearly the same.
//
// Idea.  At its end a run writes down what it has executed of files that have a build-id: which
// addresses translation was asked for, where direct branches came by counters of their own, and
// which targets indirect branches had, the most frequent last.  The next run translates a module's
// part of it with the first request for code of that module, and makes the pairs as soon as both
// sides are there; so the most frequent target comes first in its chain.  How heavy the edges were
// tells it where counters cost least (edge_weights.h), how returns are best made
// (return_targets.h), and whether low halves of addresses tell code apart (compare_whole.cpp).
//
//     run 1:  f?  g?  h?  f->h?  ...  6,500 requests           recall/<build-id>, 90 KB
//     run 2:  _start? (and all else with it)  ...  some hundred requests
//
// It is a guess and nothing else: what is made in vain has counts of 0, what is missing is asked
// for.  The file is believed only as far as its digest, its version and the build-ids go, and may
// be deleted at any time; runs that write at once replace it whole, one after the other.
//
// Jump tables are read from memory, so a module's part waits until the loader has relocated it and
// made that read-only (Module::sealed).
//
// Beside it lie the procedures as they were found (found_procedures.h).
//
// Not handled: code without a file, files without a build-id, libraries that are linked so that
// nothing is made read-only, children of fork (most of them exec), processes that are attached to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tally::engine {

struct Recollection {
  struct Asked {          // translation was asked for here
    uint32_t module = 0;  // in `modules`
    uint8_t how = 0;      // an Arrival
    uint64_t address = 0;
    auto operator<=>(const Asked&) const = default;
  };
  struct Led {  // an indirect branch, by the block it ends, led there
    uint32_t module = 0, to_module = 0;
    uint64_t block = 0, to = 0;
    auto operator<=>(const Led&) const = default;
  };
  struct Entered {  // direct branches came here, each by a counter of its own
    uint32_t module = 0;
    uint64_t block = 0;
    auto operator<=>(const Entered&) const = default;
  };
  struct Weighed {  // a procedure that was executed, and how often each of its edges was
    uint32_t module = 0;
    uint32_t shape = 0;         // of its graph
    uint64_t entry = 0;         // link address
    uint32_t edges = 0;         // so many of `steps`, one procedure's behind the other's
    uint8_t heaviest_bits = 0;  // of the largest count at one of its edges, entries among them
    bool confirmed = false;     // a later run ran it, and nothing that had never run before
    uint32_t rank = 0;          // if not 0, its entries are left to callers (entry_callers.h)
    auto operator<=>(const Weighed&) const = default;
  };
  struct Returns {           // how hard they are to foretell (return_targets.h)
    uint64_t calls = 0;      // of the run that this is from; 0: not known
    uint32_t millibits = 0;  // for each of them
    auto operator<=>(const Returns&) const = default;
  };
  std::vector<std::string> modules;  // build-ids
  std::vector<Asked> asked;          // in the order they were
  std::vector<Entered> entered;
  std::vector<Led> led;  // seldom taken ones first
  std::vector<Weighed> weighed;
  std::vector<uint8_t> steps;
  Returns returns;
  bool alike = false;  // code came that is alike to other code (compare_whole.cpp)
  // More are not kept; the largest program of bench/programs.py has a quarter of this.
  static constexpr size_t kStepsMax = 4 << 20;
};

// What a run has to leave; it is written only where it differs.
struct Recollected {
  Recollection what;
  std::vector<std::optional<uint32_t>> module_of;  // by unit, of those that are on record
  bool keeps_vain = false;                         // what was recalled in vain stays on record
  bool news = false;  // it is more than this run was told, or much less
};

// As bytes, and back.  Errors: damaged, of another version, too large.
std::vector<uint8_t> encode_recollection(const Recollection& recollection);
Result<Recollection> decode_recollection(std::span<const uint8_t> bytes);

// The folder of such files, for each program one of each kind, by its build-id.
class RecallFolder {
 public:
  RecallFolder() = default;  // none: nothing is found, nothing kept
  explicit RecallFolder(std::string path, uint64_t bytes_max = kFolderBytesMax)
      : path_(std::move(path)), bytes_max_(bytes_max) {}

  // Nothing where there is none that can be believed.
  Recollection find(const std::string& build_id) const;
  // Replaces what is there.  Beyond `bytes_max` the oldest files go.  Errors: it could not be
  // written; then nothing has changed.
  Status keep(const std::string& build_id, const Recollection& recollection) const;
  // The same for a file of found procedures, which is for FoundProcedures to believe.
  std::vector<uint8_t> find_procedures(const std::string& build_id) const;
  Status keep_procedures(const std::string& build_id, std::span<const uint8_t> bytes) const;

  static constexpr size_t kBuildIdBytesMax = 128;
  static constexpr uint64_t kFileBytesMax = 16ull << 20;
  static constexpr uint64_t kFolderBytesMax = 256ull << 20;

 private:
  std::vector<uint8_t> read(const std::string& build_id, const char* suffix) const;
  Status replace(const std::string& build_id, const char* suffix,
                 std::span<const uint8_t> bytes) const;
  void make_room() const;
  std::string path_;
  uint64_t bytes_max_ = kFolderBytesMax;
};

}  // namespace tally::engine

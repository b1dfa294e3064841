// What a session has learned of files that several image runs have mapped.
//
// Problem.  A shell script starts `sh`, `cat`, `expr` hundreds of times, each with the same loader
// and C library.  Symbols and call frame information of a library are some milliseconds of work.
//
// Idea.  A file is read once for as long as it stays the same: same device, inode, size and times
// of change.  A file that was changed a moment ago may be changed again within the same tick of its
// clock, so such a one is read anew each time until it has settled.  The vdso is known by its
// bytes.
//
// What is shared never changes once it is known, so the finisher may read it while the service
// thread does; the store itself belongs to the thread that holds the lock of the service thread.
//
// Memory: a file that some image run uses is kept in any case.  Of the others the last used are
// kept, up to `kIdleFilesMax` of them and `kIdleBytesMax` of file; larger ones go with their run.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cache/known_procedures.h"
#include "elf/image.h"

namespace tally::engine {

class KnownFile {
 public:
  KnownFile(std::shared_ptr<elf::Image> image, KnownProcedures::Budget budget, uint64_t size_bytes)
      : image_(std::move(image)),
        procedures_(*image_, std::move(budget)),
        small_(size_bytes <= KnownProcedures::kLargeFileBytes) {}

  const std::shared_ptr<elf::Image>& image() const { return image_; }
  // Link addresses of abort, exit, ...
  const std::unordered_set<uint64_t>& never_return();
  // One more image run has it mapped.
  void add_user() { ++users_; }
  // nullptr for a file that is too large to be remembered for a single image run.
  KnownProcedures* procedures() { return small_ || users_ > 1 ? &procedures_ : nullptr; }

 private:
  std::shared_ptr<elf::Image> image_;
  KnownProcedures procedures_;
  bool small_;
  uint64_t users_ = 0;  // so far
  bool names_read_ = false;
  std::unordered_set<uint64_t> never_return_;
};

class KnownFiles {
 public:
  static constexpr size_t kIdleFilesMax = 32;
  static constexpr uint64_t kIdleBytesMax = 64 << 20;
  static constexpr std::chrono::seconds kSettleTime{2};

  // A file is taken to stay as it is once its last change is `settle_time` ago.
  explicit KnownFiles(std::chrono::nanoseconds settle_time = kSettleTime)
      : settle_time_(settle_time) {}

  // The file that is at `path` now.  Errors: as elf::Image::open.
  Result<std::shared_ptr<KnownFile>> open(const std::string& path);
  // The vdso, by its bytes.
  Result<std::shared_ptr<KnownFile>> vdso(std::vector<uint8_t> bytes);

 private:
  struct Identity {
    uint64_t device = 0, inode = 0, size_bytes = 0;
    int64_t changed_ns = 0, modified_ns = 0;
    auto operator<=>(const Identity&) const = default;
  };
  struct Known {
    Identity identity;
    std::weak_ptr<KnownFile> file;
  };
  static Identity identity_of(const struct stat& status);
  bool is_settled(const Identity& identity) const;
  void forget_gone();
  void keep(const std::shared_ptr<KnownFile>& file, uint64_t size_bytes);

  std::chrono::nanoseconds settle_time_;
  KnownProcedures::Budget budget_ = std::make_shared<std::atomic<size_t>>(0);
  std::map<std::string, Known> by_path_;
  struct Kept {
    std::shared_ptr<KnownFile> file;
    uint64_t size_bytes = 0;
  };
  std::list<Kept> kept_;  // the last used first
  std::vector<uint8_t> vdso_bytes_;
  std::shared_ptr<KnownFile> vdso_;
};

}  // namespace tally::engine

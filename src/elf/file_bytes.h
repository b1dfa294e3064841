// The bytes of one file: mapped read-only, or owned when they never were a file (the vdso).
//
// Mapping keeps opening cheap: a 200 MB library costs the pages that are looked at.  The price is
// that somebody who shortens the file while Tally looks at it kills Tally with SIGBUS; linkers and
// package managers replace files instead of shortening them, and the target would die as well.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tally::elf {

class FileBytes {
 public:
  // Regular files only; never blocks on a pipe or a device.
  static Result<FileBytes> map(const std::string& path);
  explicit FileBytes(std::vector<uint8_t> owned) : owned_(std::move(owned)) {}
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  std::span<const uint8_t> span() const;

 private:
  FileBytes() = default;

  void* mapping_ = nullptr;
  size_t mapping_size_bytes_ = 0;
  std::vector<uint8_t> owned_;
};

}  // namespace tally::elf

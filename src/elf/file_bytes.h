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
  // Takes the pages of a large file (8 MB) out of our memory; they come back when looked at.  Owned
  // or written bytes stay.
  void drop_pages() const;

  // The same bytes once more, for a library that writes into what it reads: libelf changes section
  // headers in place when it decompresses a section.  Empty when memory is short.  Pages are copied
  // only when written.
  FileBytes writable_copy() const;
  uint8_t* writable_data();  // of a writable_copy() only

 private:
  FileBytes() = default;

  int fd_ = -1;  // kept open for writable_copy()
  void* mapping_ = nullptr;
  size_t mapping_size_bytes_ = 0;
  bool writable_ = false;
  std::vector<uint8_t> owned_;
};

}  // namespace tally::elf

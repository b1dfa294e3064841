// Opening and mapping, with an error line for every way this fails.
#include "elf/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tally::elf {
namespace {

Error open_error(const std::string& path, int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return make_error(ErrorKind::kNotFound, "{}: no such file; check the path", path);
    case EACCES:
    case EPERM:
      return make_error(ErrorKind::kNotExecutable,
                        "{}: not readable by this user; Tally must read the code it counts: try "
                        "`chmod u+r` or a readable copy",
                        path);
    default:
      return make_error("{}: cannot open: {}", path, std::strerror(error_number));
  }
}

}  // namespace

Result<FileBytes> FileBytes::map(const std::string& path) {
  FileBytes result;
  result.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (result.fd_ < 0) return open_error(path, errno);
  struct stat status = {};
  if (::fstat(result.fd_, &status) != 0) return open_error(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorKind::kNotExecutable, "{}: {}; give an executable file", path,
                      S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
  }
  if (status.st_size == 0) return result;
  const size_t size_bytes = static_cast<size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, result.fd_, 0);
  if (mapping == MAP_FAILED) {
    return make_error("{}: cannot map {} bytes: {}", path, size_bytes, std::strerror(errno));
  }
  result.mapping_ = mapping;
  result.mapping_size_bytes_ = size_bytes;
  return result;
}

void FileBytes::drop_pages() const {
  // What a small file takes is less than finding its pages again would cost the next process.
  constexpr size_t kLargeBytes = 8 << 20;
  if (mapping_ == nullptr || writable_ || mapping_size_bytes_ < kLargeBytes) return;
  // That fails only where there is nothing to gain.
  ::madvise(mapping_, mapping_size_bytes_, MADV_DONTNEED);
}

FileBytes FileBytes::writable_copy() const {
  FileBytes result;
  result.writable_ = true;
  if (mapping_ == nullptr) {
    result.owned_ = owned_;
    return result;
  }
  void* mapping = ::mmap(nullptr, mapping_size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_, 0);
  if (mapping == MAP_FAILED) return result;
  result.mapping_ = mapping;
  result.mapping_size_bytes_ = mapping_size_bytes_;
  return result;
}

uint8_t* FileBytes::writable_data() {
  CHECK(writable_) << "these bytes are shared with everybody who reads the file";
  return mapping_ != nullptr ? static_cast<uint8_t*>(mapping_) : owned_.data();
}

FileBytes::FileBytes(FileBytes&& other) noexcept {
  *this = std::move(other);
}

// Swapping leaves the cleaning up to `other`; both stay valid.
FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_bytes_, other.mapping_size_bytes_);
  std::swap(writable_, other.writable_);
  std::swap(owned_, other.owned_);
  return *this;
}

FileBytes::~FileBytes() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_size_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

std::span<const uint8_t> FileBytes::span() const {
  if (mapping_ != nullptr) return {static_cast<const uint8_t*>(mapping_), mapping_size_bytes_};
  return owned_;
}

}  // namespace tally::elf

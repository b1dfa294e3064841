// See partial_file.h.
#include "profile/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace tally::profile {
namespace {

constexpr std::string_view kMark = ".partial-";

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The process that made the file of this name, if it is a provisional name of the target.
std::optional<pid_t> maker_of(std::string_view name, std::string_view target) {
  if (!name.starts_with(target)) return std::nullopt;
  name.remove_prefix(target.size());
  if (!name.starts_with(kMark)) return std::nullopt;
  name.remove_prefix(kMark.size());
  pid_t maker = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data(), end, maker);
  if (error != std::errc() || at != end || maker <= 0) return std::nullopt;
  return maker;
}

// A file that its maker, or somebody who is about to remove it, holds stays.
void remove_if_left(const std::string& name, pid_t maker) {
  if (maker != ::getpid() && (::kill(maker, 0) == 0 || errno != ESRCH)) return;
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  struct stat info {};
  const bool plain = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (plain && ::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(name.c_str());
  ::close(fd);
}

void remove_left(const std::string& target) {
  const std::string name = std::filesystem::path(target).filename().string();
  std::error_code error;
  std::filesystem::directory_iterator at(folder_of(target), error);
  // What cannot be listed or removed is in nobody's way.
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string found = at->path().filename().string();
    if (const auto maker = maker_of(found, name)) remove_if_left(at->path().string(), *maker);
  }
}

}  // namespace

PartialFile::PartialFile(const std::string& target)
    : target_(target), name_(fmt::format("{}{}{}", target, kMark, ::getpid())) {}

PartialFile::~PartialFile() {
  if (created_) ::unlink(name_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

int PartialFile::create() {
  constexpr int kTriesMax = 100;
  remove_left(target_);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    descriptor_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) {
      if (errno != EEXIST || tries + 1 == kTriesMax) return errno;
      ::usleep(1000);  // about to be removed
      continue;
    }
    // A file system without locks: nobody can take the file for one that was left.
    const bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat info {};
    if (!taken && ::fstat(descriptor_, &info) == 0 && info.st_nlink > 0) {
      created_ = true;
      return 0;
    }
    // Somebody took it for one that was left, before it was locked.
    ::close(descriptor_);
    descriptor_ = -1;
  }
  return EBUSY;
}

int PartialFile::move_to_target() {
  if (::fsync(descriptor_) != 0) return errno;
  if (::rename(name_.c_str(), target_.c_str()) != 0) return errno;
  created_ = false;
  // The profile is complete and in place; a folder that cannot be synced (some file systems
  // refuse) leaves only the name's survival of a power failure open.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return 0;
}

}  // namespace tally::profile

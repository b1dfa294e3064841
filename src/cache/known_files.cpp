// See known_files.h.
#include "cache/known_files.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tally::engine {
namespace {

constexpr std::array<std::string_view, 18> kNeverReturn = {"abort",
                                                           "exit",
                                                           "_exit",
                                                           "_Exit",
                                                           "__assert_fail",
                                                           "longjmp",
                                                           "__longjmp_chk",
                                                           "__stack_chk_fail",
                                                           "__cxa_throw",
                                                           "__cxa_rethrow",
                                                           "_Unwind_Resume",
                                                           "__cxa_bad_cast",
                                                           "__fortify_fail",
                                                           "__chk_fail",
                                                           "__libc_fatal",
                                                           "pthread_exit",
                                                           "__cxa_throw_bad_array_new_length",
                                                           "_ZSt9terminatev"};

int64_t nanoseconds(const timespec& time) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  return int64_t{time.tv_sec} * kPerSecond + time.tv_nsec;
}

}  // namespace

const std::unordered_set<uint64_t>& KnownFile::never_return() {
  if (names_read_) return never_return_;
  names_read_ = true;
  for (const elf::Symbol& symbol : image_->symbols()) {
    if (std::ranges::find(kNeverReturn, symbol.name) != kNeverReturn.end()) {
      never_return_.insert(symbol.range.begin.value());
    }
  }
  return never_return_;
}

KnownFiles::Identity KnownFiles::identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .changed_ns = nanoseconds(status.st_ctim),
          .modified_ns = nanoseconds(status.st_mtim)};
}

bool KnownFiles::is_settled(const Identity& identity) const {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t last = std::max(identity.changed_ns, identity.modified_ns);
  return nanoseconds(now) - last >= settle_time_.count();
}

Result<std::shared_ptr<KnownFile>> KnownFiles::open(const std::string& path) {
  // What is opened may be another file than what was looked at before: then it is not the file of
  // this identity, and found out by looking once more.
  struct stat before {};
  const bool found = ::stat(path.c_str(), &before) == 0;
  const Identity identity = identity_of(before);
  if (const auto known = by_path_.find(path); found && known != by_path_.end()) {
    std::shared_ptr<KnownFile> file = known->second.file.lock();
    if (file != nullptr && known->second.identity == identity) {
      keep(file, identity.size_bytes);
      return file;
    }
    by_path_.erase(known);
  }
  const bool settled = found && is_settled(identity);
  TRY_ASSIGN(std::shared_ptr<elf::Image> image, elf::Image::open(path));
  auto file = std::make_shared<KnownFile>(std::move(image), budget_, identity.size_bytes);
  struct stat after {};
  if (!settled || ::stat(path.c_str(), &after) != 0 || identity_of(after) != identity) return file;
  forget_gone();
  by_path_[path] = {identity, file};
  keep(file, identity.size_bytes);
  return file;
}

// Names only, but a session may go on for days.
void KnownFiles::forget_gone() {
  constexpr size_t kNamesMax = 1024;
  if (by_path_.size() < kNamesMax) return;
  std::erase_if(by_path_, [](const auto& entry) { return entry.second.file.expired(); });
}

void KnownFiles::keep(const std::shared_ptr<KnownFile>& file, uint64_t size_bytes) {
  std::erase_if(kept_, [&](const Kept& one) { return one.file == file; });
  kept_.push_front({file, size_bytes});
  uint64_t sum_bytes = 0;
  size_t files = 0;
  std::erase_if(kept_, [&](const Kept& one) {
    if (files == kIdleFilesMax || sum_bytes + one.size_bytes > kIdleBytesMax) return true;
    ++files;
    sum_bytes += one.size_bytes;
    return false;
  });
}

Result<std::shared_ptr<KnownFile>> KnownFiles::vdso(std::vector<uint8_t> bytes) {
  if (vdso_ != nullptr && bytes == vdso_bytes_) return vdso_;
  TRY_ASSIGN(std::shared_ptr<elf::Image> image, elf::Image::from_bytes("[vdso]", bytes));
  vdso_ = std::make_shared<KnownFile>(std::move(image), budget_, bytes.size());
  vdso_bytes_ = std::move(bytes);
  return vdso_;
}

}  // namespace tally::engine

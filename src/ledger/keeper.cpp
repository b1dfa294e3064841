// See keeper.h.
#include "ledger/keeper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace tally::engine {

namespace fs = std::filesystem;

std::vector<std::string> kept_files(const std::string& path) {
  std::vector<std::pair<uint32_t, std::string>> found;
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) found.push_back({1, path});
  const fs::path parent = fs::path(path).parent_path();
  const std::string prefix = fs::path(path).filename().string() + ".";
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    uint32_t number = 0;
    const char* begin = name.data() + prefix.size();
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(begin, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 2 || *begin == '0') continue;
    found.push_back({number, path + "." + std::to_string(number)});
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> result;
  result.reserve(found.size());
  for (auto& [number, name] : found) result.push_back(std::move(name));
  return result;
}

Result<std::unique_ptr<Keeper>> Keeper::create(const std::string& path) {
  if (path.empty()) {
    return make_error(ErrorKind::kUsage, "--keep-counters: the file's name is empty");
  }
  // Programs change folders; the file stays where it is.
  std::error_code error;
  const std::string absolute = fs::absolute(path, error).string();
  if (const auto files = kept_files(absolute); !files.empty()) {
    return make_error(
        "--keep-counters={}: {} exists; `tally recover {}` makes a profile of it, or remove it",
        path, files.front(), path);
  }
  // Better to learn now than when the program runs that nothing can be kept there.
  TRY_ASSIGN(const std::unique_ptr<KeptRun> trial, KeptRun::create(absolute, 0));
  return std::unique_ptr<Keeper>(new Keeper(absolute));
}

Keeper::~Keeper() = default;

Result<std::unique_ptr<KeptRun>> Keeper::begin_run(pid_t target) {
  std::lock_guard lock(mutex_);
  const uint32_t number = ++files_;
  return KeptRun::create(number == 1 ? path_ : fmt::format("{}.{}", path_, number), target);
}

void Keeper::remove_all() {
  for (const std::string& file : kept_files(path_)) unlink(file.c_str());
}

}  // namespace tally::engine

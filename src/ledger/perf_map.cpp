// See perf_map.h.
#include "ledger/perf_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

namespace tally::engine {
namespace {

constexpr size_t kFileBytesMax = 256 << 20;
constexpr size_t kNameBytesMax = 4096;

// A hexadecimal number and the blank behind it, taken off the front of `text`.
// HotSpot writes 0x in front.
bool take_number(std::string_view& text, uint64_t& value) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

PerfMap PerfMap::parse(const std::string& text) {
  PerfMap map;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    uint64_t begin = 0;
    uint64_t size_bytes = 0;
    if (!take_number(line, begin) || !take_number(line, size_bytes)) continue;
    if (line.empty() || size_bytes == 0 || begin + size_bytes < begin) continue;
    // What the new code overlaps is not there any more.
    auto first = map.entries_.lower_bound(begin);
    if (first != map.entries_.begin()) {
      auto before = std::prev(first);
      if (before->first + before->second.size_bytes > begin) first = before;
    }
    auto last = map.entries_.lower_bound(begin + size_bytes);
    map.entries_.erase(first, last);
    map.entries_[begin] = {size_bytes, std::string(line.substr(0, kNameBytesMax))};
  }
  return map;
}

PerfMap PerfMap::read(pid_t pid) {
  const std::string path = fmt::format("/tmp/perf-{}.map", pid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return {};
  struct stat facts {};
  std::string text;
  if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) {
    char buffer[65536];
    ssize_t got = 0;
    while (text.size() < kFileBytesMax && (got = ::read(fd, buffer, sizeof buffer)) > 0) {
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return parse(text);
}

std::string PerfMap::name_at(TargetAddr address) const {
  auto next = entries_.upper_bound(address.value());
  if (next == entries_.begin()) return {};
  const auto& [begin, entry] = *std::prev(next);
  return address.value() - begin < entry.size_bytes ? entry.name : std::string();
}

}  // namespace tally::engine

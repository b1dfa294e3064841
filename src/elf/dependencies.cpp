// See dependencies.h.
#include "elf/dependencies.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "elf/layout.h"

namespace tally::elf {
namespace {

constexpr size_t kNamesMax = 1024, kDirectoriesMax = 64;
// The longest string that is believed; a list of directories is one, too.
constexpr ptrdiff_t kStringMaxBytes = 64 << 10;
constexpr std::array kUsualDirectories = {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
                                          "/lib64", "/usr/lib64"};

class DynamicTable {
 public:
  explicit DynamicTable(const Layout& layout) : layout_(layout) {
    if (!layout.dynamic) return;
    ByteReader reader(layout.dynamic->bytes);
    while (!reader.at_end()) {
      const auto entry = reader.fixed<Elf64_Dyn>();
      if (!reader.ok() || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_STRTAB) strings_ = layout.bytes_at(LinkAddr(entry.d_un.d_ptr));
      entries_.push_back(entry);
    }
  }

  // All strings of entries with this tag.
  std::vector<std::string> strings(int64_t tag) const {
    std::vector<std::string> result;
    for (const Elf64_Dyn& entry : entries_) {
      if (entry.d_tag != tag || result.size() >= kNamesMax) continue;
      const uint64_t at = entry.d_un.d_val;
      if (at >= strings_.size()) continue;
      const auto begin = strings_.begin() + static_cast<ptrdiff_t>(at);
      const auto limit = begin + std::min(kStringMaxBytes, strings_.end() - begin);
      const auto end = std::find(begin, limit, '\0');
      if (end != limit) result.emplace_back(begin, end);
    }
    return result;
  }

 private:
  const Layout& layout_;
  std::span<const uint8_t> strings_;
  std::vector<Elf64_Dyn> entries_;
};

// The directories of a list with colons.
void append_directories(std::string_view list, const std::string& origin,
                        std::vector<std::string>& directories) {
  while (!list.empty() && directories.size() < kDirectoriesMax) {
    const size_t end = std::min(list.find(':'), list.size());
    std::string one(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    for (const std::string_view name : {"$ORIGIN", "${ORIGIN}"}) {
      if (one.starts_with(name)) one.replace(0, name.size(), origin);
    }
    // What is left is relative to a directory that we are not in, or of another kind.
    if (one.starts_with('/') && one.find('$') == std::string::npos) directories.push_back(one);
  }
}

uint64_t code_bytes_of(const std::string& path) {
  const auto image = Image::open(path);
  return image ? code_bytes(**image) : 0;
}

uint64_t code_bytes_of(const std::string& name, const std::vector<std::string>& directories) {
  if (name.starts_with('/')) return code_bytes_of(name);
  if (name.find('/') != std::string::npos) return 0;
  for (const std::string& directory : directories) {
    const std::string path = directory + "/" + name;
    std::error_code missing;
    if (std::filesystem::exists(path, missing)) return code_bytes_of(path);
  }
  return 0;
}

}  // namespace

Dependencies read_dependencies(const Layout& layout, const std::string& path) {
  const DynamicTable table(layout);
  Dependencies result;
  result.names = table.strings(DT_NEEDED);
  std::vector<std::string> lists = table.strings(DT_RUNPATH);
  if (lists.empty()) lists = table.strings(DT_RPATH);
  const std::string origin = std::filesystem::path(path).parent_path();
  for (const std::string& list : lists) append_directories(list, origin, result.directories);
  return result;
}

uint64_t code_bytes(const Image& image) {
  uint64_t sum = 0;
  for (const Segment& segment : image.segments()) {
    if (segment.executable) sum += segment.range.size_bytes();
  }
  return sum;
}

uint64_t code_bytes_of_libraries(const Image& program) {
  Dependencies dependencies = program.dependencies();
  dependencies.directories.insert(dependencies.directories.end(), kUsualDirectories.begin(),
                                  kUsualDirectories.end());
  uint64_t sum = 0;
  for (const std::string& name : dependencies.names) {
    sum += code_bytes_of(name, dependencies.directories);
  }
  return sum;
}

}  // namespace tally::elf

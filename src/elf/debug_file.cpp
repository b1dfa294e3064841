// Finding the separate debug file and proving that it belongs to the program.
#include "elf/debug_file.h"

#include <array>
#include <filesystem>

#include "base/bytes.h"

namespace tally::elf {
namespace {

constexpr std::string_view kDebugRoot = "/usr/lib/debug";

// The CRC of .gnu_debuglink: the usual 32-bit one (IEEE 802.3, reflected).
constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) crc = kCrcTable[(crc ^ byte) & 0xff] ^ (crc >> 8);
  return ~crc;
}

struct DebugLink {
  std::string file_name;
  uint32_t crc = 0;
};

std::optional<DebugLink> read_debug_link(const Layout& layout) {
  const SectionHeader* section = layout.section_named(".gnu_debuglink");
  if (section == nullptr) return std::nullopt;
  ByteReader reader(section->contents);
  const std::string_view name = reader.cstring();
  reader.align(4);
  const uint32_t crc = reader.u32();
  // The file chooses the name, not the folder.
  const bool plain =
      !name.empty() && name.find('/') == std::string_view::npos && name != "." && name != "..";
  if (!reader.ok() || !plain) return std::nullopt;
  return DebugLink{std::string(name), crc};
}

// Absence and nonsense mean "not this one": the search goes on, and the caller reports by
// Image::debug_file() which file is in use.
std::optional<DebugFile> open_if_ours(const std::string& path, const std::string& build_id,
                                      std::optional<uint32_t> crc) {
  auto bytes = FileBytes::map(path);
  if (!bytes) return std::nullopt;
  auto layout = read_layout(path, bytes->span(), Purpose::kDebugFile);
  if (!layout || read_build_id(*layout) != build_id) return std::nullopt;
  if (crc && crc32(bytes->span()) != *crc) return std::nullopt;
  // Moving FileBytes keeps the mapping where it is, so the layout stays valid.
  return DebugFile{path, std::move(bytes).value(), std::move(layout).value()};
}

std::vector<std::string> debug_link_candidates(const std::string& program_path,
                                               const std::string& file_name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::canonical(program_path, error);
  if (error) return {};  // from memory: the name is no path
  const std::string folder = program.parent_path().string();
  std::vector<std::string> result;
  for (const std::string& candidate : {folder + "/" + file_name, folder + "/.debug/" + file_name,
                                       std::string(kDebugRoot) + folder + "/" + file_name}) {
    if (candidate != program.string()) result.push_back(candidate);
  }
  return result;
}

}  // namespace

std::optional<DebugFile> find_debug_file(const std::string& program_path,
                                         const Layout& program_layout,
                                         const std::string& build_id) {
  if (build_id.size() > 2) {
    const std::string path = fmt::format("{}/.build-id/{}/{}.debug", kDebugRoot,
                                         build_id.substr(0, 2), build_id.substr(2));
    if (auto found = open_if_ours(path, build_id, std::nullopt)) return found;
  }
  const auto link = read_debug_link(program_layout);
  if (!link) return std::nullopt;
  for (const std::string& path : debug_link_candidates(program_path, link->file_name)) {
    if (auto found = open_if_ours(path, build_id, link->crc)) return found;
  }
  return std::nullopt;
}

}  // namespace tally::elf

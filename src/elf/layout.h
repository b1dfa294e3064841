// What the headers of one ELF file say, checked against the size of the file.
//
// Everything else in this room starts from a Layout, so the bounds are proven once: the file part
// of every segment and every section with contents lies inside the file, no end overflows, and
// PT_LOAD segments are sorted and disjoint.  What the headers claim *about* the contents stays
// hostile.
//
// A separate debug file has headers of its own kind: the segments are those of the program, but
// their bytes are missing.  Purpose::kDebugFile therefore looks at sections only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "elf/image.h"

namespace tally::elf {

struct SectionHeader {
  std::string_view name;  // points into the file's bytes
  uint32_t type = 0;
  uint64_t flags = 0;
  LinkAddr address;
  uint64_t size_bytes = 0;            // in memory
  std::span<const uint8_t> contents;  // in the file; empty for SHT_NOBITS
  uint32_t link = 0;
};

// A part of the file with the address it is mapped at.
struct MappedPart {
  LinkAddr address;
  std::span<const uint8_t> bytes;
};

struct Layout {
  std::span<const uint8_t> file;
  FileType type = FileType::kExecutable;
  LinkAddr entry;
  std::vector<Segment> segments;
  std::vector<SectionHeader> sections;           // all of them, section 0 included, in file order
  std::vector<std::span<const uint8_t>> notes4;  // notes aligned to 4 bytes
  std::vector<std::span<const uint8_t>> notes8;  // notes aligned to 8 bytes
  std::optional<std::string> interpreter;
  std::optional<MappedPart> eh_frame_header;  // PT_GNU_EH_FRAME
  std::optional<MappedPart> dynamic;          // PT_DYNAMIC
  LinkRange relro;                            // PT_GNU_RELRO, empty if there is none

  // File bytes mapped at `address`, up to the end of that segment's file part.
  std::span<const uint8_t> bytes_at(LinkAddr address) const;
  // The segment whose memory contains `address`; nullptr if none does.
  const Segment* segment_at(LinkAddr address) const;
  const SectionHeader* section_named(std::string_view name) const;
};

enum class Purpose : uint8_t { kProgram, kDebugFile };

// `name` is the path for error messages.  The result points into `file`.
Result<Layout> read_layout(const std::string& name, std::span<const uint8_t> file, Purpose purpose);

// Lower-case hex; empty when there is none.
std::string read_build_id(const Layout& layout);

}  // namespace tally::elf

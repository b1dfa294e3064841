// A walk over the records of .eh_frame that trusts nothing: each record is read inside its own
// bounds, and a damaged length ends the walk with what was found so far.
#include "elf/eh_frame.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/bytes.h"

namespace tally::elf {
namespace {

// Pointer encodings: the low four bits are the format, the next three what it is relative to
// (Linux Standard Base, "DWARF exception header encoding").
constexpr uint8_t kOmit = 0xff;
constexpr uint8_t kFormatMask = 0x0f;
constexpr uint8_t kRelativeMask = 0x70;
constexpr uint8_t kIndirect = 0x80;
enum Format : uint8_t {
  kAbsolute = 0x0,
  kUleb = 0x1,
  kUdata2 = 0x2,
  kUdata4 = 0x3,
  kUdata8 = 0x4,
  kSleb = 0x9,
  kSdata2 = 0xa,
  kSdata4 = 0xb,
  kSdata8 = 0xc,
};
enum Relative : uint8_t { kNotRelative = 0x00, kPcRelative = 0x10, kDataRelative = 0x30 };

std::optional<uint64_t> read_format(ByteReader& reader, uint8_t encoding) {
  uint64_t value = 0;
  switch (encoding & kFormatMask) {
    case kAbsolute:
    case kUdata8:
      value = reader.u64();
      break;
    case kUleb:
      value = reader.uleb();
      break;
    case kUdata2:
      value = reader.u16();
      break;
    case kUdata4:
      value = reader.u32();
      break;
    case kSleb:
      value = static_cast<uint64_t>(reader.sleb());
      break;
    case kSdata2:
      value = static_cast<uint64_t>(int64_t{reader.s16()});
      break;
    case kSdata4:
      value = static_cast<uint64_t>(int64_t{reader.s32()});
      break;
    case kSdata8:
      value = static_cast<uint64_t>(reader.s64());
      break;
    default:
      return std::nullopt;
  }
  if (!reader.ok()) return std::nullopt;
  return value;
}

// What encoded pointers are relative to.
struct Bases {
  uint64_t reader_begin = 0;  // address of the reader's byte 0, for pc-relative ones
  uint64_t data = 0;          // for data-relative ones
};

std::optional<uint64_t> read_pointer(ByteReader& reader, uint8_t encoding, const Bases& bases) {
  if (encoding == kOmit || (encoding & kIndirect) != 0) return std::nullopt;
  const uint64_t field = bases.reader_begin + reader.position();
  const std::optional<uint64_t> value = read_format(reader, encoding);
  if (!value) return std::nullopt;
  // A zero means "no address" whatever it is relative to: the linker dropped the procedure.
  if (*value == 0) return std::nullopt;
  switch (encoding & kRelativeMask) {
    case kNotRelative:
      return *value;
    case kPcRelative:
      return field + *value;
    case kDataRelative:
      return bases.data + *value;
    default:
      return std::nullopt;
  }
}

struct EhFrame {
  LinkAddr address;
  std::span<const uint8_t> bytes;
  bool zero_ends = false;  // no size is known: the first zero length is the end
};

std::optional<EhFrame> find_by_header(const Layout& layout) {
  if (!layout.eh_frame_header) return std::nullopt;
  const MappedPart& header = *layout.eh_frame_header;
  ByteReader reader(header.bytes);
  const uint8_t version = reader.u8();
  const uint8_t pointer_encoding = reader.u8();
  reader.skip(2);  // encodings of the search table, which libdw reads
  if (!reader.ok() || version != 1) return std::nullopt;
  const Bases bases{.reader_begin = header.address.value(), .data = header.address.value()};
  const auto address = read_pointer(reader, pointer_encoding, bases);
  if (!address) return std::nullopt;
  const auto bytes = layout.bytes_at(LinkAddr(*address));
  if (bytes.empty()) return std::nullopt;
  return EhFrame{LinkAddr(*address), bytes, true};
}

std::optional<EhFrame> find_eh_frame(const Layout& layout) {
  const SectionHeader* section = layout.section_named(".eh_frame");
  if (section != nullptr && !section->contents.empty()) {
    return EhFrame{section->address, section->contents, false};
  }
  return find_by_header(layout);
}

class EhFrameReader {
 public:
  EhFrameReader(const Layout& layout, const EhFrame& eh_frame)
      : layout_(layout), eh_frame_(eh_frame), data_base_(global_offset_table(layout)) {}

  std::vector<LinkRange> read() {
    ByteReader reader(eh_frame_.bytes);
    while (reader.ok() && !reader.at_end()) {
      const size_t record_offset = reader.position();
      uint64_t length = reader.u32();
      if (length == 0) {
        if (eh_frame_.zero_ends) break;
        continue;  // `ld -r` and crtend.o leave terminators in the middle
      }
      if (length == kLongLength) length = reader.u64();
      const size_t body_offset = reader.position();
      reader.skip(length);
      if (!reader.ok()) break;
      add_record(record_offset, body_offset, body_offset + length);
    }
    return std::move(ranges_);
  }

 private:
  static constexpr uint32_t kLongLength = 0xffffffff;

  // The psABI's base of data-relative pointers; 0 if the file has none, which then fails the test
  // against the executable segments.
  static uint64_t global_offset_table(const Layout& layout) {
    const SectionHeader* section = layout.section_named(".got.plt");
    if (section == nullptr) section = layout.section_named(".got");
    return section == nullptr ? 0 : section->address.value();
  }

  ByteReader reader_at(size_t begin, size_t end) const {
    ByteReader reader(eh_frame_.bytes.first(end));
    reader.seek(begin);
    return reader;
  }

  void add_record(size_t record_offset, size_t body_offset, size_t end) {
    ByteReader reader = reader_at(body_offset, end);
    const uint32_t cie_distance = reader.u32();
    if (!reader.ok()) return;
    if (cie_distance == 0) {
      encodings_.emplace(record_offset, read_cie(reader));
      return;
    }
    if (cie_distance > body_offset) return;
    const auto encoding = fde_encoding(body_offset - cie_distance);
    if (encoding) add_fde(reader, *encoding);
  }

  // CIEs stand before their FDEs as every linker writes them; others are read on demand.
  std::optional<uint8_t> fde_encoding(size_t cie_offset) {
    const auto known = encodings_.find(cie_offset);
    if (known != encodings_.end()) return known->second;
    const auto encoding = read_cie_at(cie_offset);
    encodings_.emplace(cie_offset, encoding);
    return encoding;
  }

  std::optional<uint8_t> read_cie_at(size_t offset) const {
    ByteReader reader = reader_at(offset, eh_frame_.bytes.size());
    uint64_t length = reader.u32();
    if (length == kLongLength) length = reader.u64();
    if (!reader.ok() || length > reader.remaining()) return std::nullopt;
    reader = reader_at(reader.position(), reader.position() + length);
    if (reader.u32() != 0) return std::nullopt;
    return read_cie(reader);
  }

  // The encoding of the FDEs' addresses; nullopt when the CIE makes no sense.
  std::optional<uint8_t> read_cie(ByteReader reader) const {
    const uint8_t version = reader.u8();
    if (version != 1 && version != 3) return std::nullopt;
    const std::string_view augmentation = reader.cstring();
    reader.uleb();  // code alignment
    reader.sleb();  // data alignment
    if (version == 1) {
      reader.u8();  // return address column
    } else {
      reader.uleb();
    }
    if (!reader.ok()) return std::nullopt;
    if (augmentation.empty()) return kAbsolute;
    if (augmentation.front() != 'z') return std::nullopt;  // "eh": GCC 2, before x86-64
    reader.uleb();                                         // size of the augmentation data
    return encoding_in(augmentation.substr(1), reader);
  }

  static std::optional<uint8_t> encoding_in(std::string_view augmentation, ByteReader& reader) {
    for (const char letter : augmentation) {
      switch (letter) {
        case 'R': {
          const uint8_t encoding = reader.u8();
          if (!reader.ok()) return std::nullopt;
          return encoding;
        }
        case 'P':
          read_format(reader, reader.u8());
          break;  // personality routine
        case 'L':
          reader.u8();
          break;   // encoding of the LSDA pointer
        case 'S':  // signal frame
        case 'B':
          break;  // AArch64 pointer signing key
        default:
          return std::nullopt;
      }
    }
    return kAbsolute;
  }

  void add_fde(ByteReader& reader, uint8_t encoding) {
    const Bases bases{.reader_begin = eh_frame_.address.value(), .data = data_base_};
    const auto begin = read_pointer(reader, encoding, bases);
    if (!begin) return;
    const auto size_bytes = read_format(reader, encoding);
    if (!size_bytes || *size_bytes == 0) return;
    if (!in_executable_segment(*begin, *size_bytes)) return;
    ranges_.push_back({LinkAddr(*begin), LinkAddr(*begin + *size_bytes)});
  }

  bool in_executable_segment(uint64_t begin, uint64_t size_bytes) {
    if (last_segment_ == nullptr || !last_segment_->range.contains(LinkAddr(begin))) {
      last_segment_ = layout_.segment_at(LinkAddr(begin));
    }
    return last_segment_ != nullptr && last_segment_->executable &&
           size_bytes <= last_segment_->range.end.value() - begin;
  }

  const Layout& layout_;
  const EhFrame& eh_frame_;
  uint64_t data_base_;
  std::unordered_map<size_t, std::optional<uint8_t>> encodings_;  // by offset of the CIE
  const Segment* last_segment_ = nullptr;
  std::vector<LinkRange> ranges_;
};

void sort_and_drop_overlaps(std::vector<LinkRange>& ranges) {
  const auto by_begin_then_end = [](const LinkRange& a, const LinkRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  if (!std::ranges::is_sorted(ranges, by_begin_then_end)) {
    std::ranges::sort(ranges, by_begin_then_end);
  }
  LinkAddr covered_end;
  std::erase_if(ranges, [&](const LinkRange& range) {
    if (range.begin < covered_end) return true;
    covered_end = range.end;
    return false;
  });
}

}  // namespace

std::vector<LinkRange> read_unwind_ranges(const Layout& layout) {
  const auto eh_frame = find_eh_frame(layout);
  if (!eh_frame) return {};
  std::vector<LinkRange> ranges = EhFrameReader(layout, *eh_frame).read();
  sort_and_drop_overlaps(ranges);
  return ranges;
}

}  // namespace tally::elf

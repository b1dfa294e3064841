// A walk over the records of .eh_frame that trusts nothing: each record is read inside its own
// bounds, and a damaged length ends the walk with what was found so far.
#include "elf/eh_frame.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/bytes.h"
#include "elf/eh_pointer.h"

namespace tally::elf {
namespace {

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
  const PointerBases bases{.reader_begin = header.address.value(), .data = header.address.value()};
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

// What a CIE says of its FDEs.
struct Cie {
  uint8_t addresses = kPointerAbsolute;  // encoding of an FDE's range
  bool has_data = false;                 // augmentation data follow the range
  uint8_t exception_table = kPointerOmitted;
};

class EhFrameReader {
 public:
  EhFrameReader(const Layout& layout, const EhFrame& eh_frame)
      : layout_(layout), eh_frame_(eh_frame), data_base_(global_offset_table(layout)) {}

  std::vector<FrameDescription> read() {
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
    return std::move(frames_);
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
      cies_.emplace(record_offset, read_cie(reader));
      return;
    }
    if (cie_distance > body_offset) return;
    const auto cie = cie_at(body_offset - cie_distance);
    if (cie) add_fde(reader, *cie);
  }

  // CIEs stand before their FDEs as every linker writes them; others are read on demand.
  std::optional<Cie> cie_at(size_t offset) {
    const auto known = cies_.find(offset);
    if (known != cies_.end()) return known->second;
    const auto cie = read_cie_at(offset);
    cies_.emplace(offset, cie);
    return cie;
  }

  std::optional<Cie> read_cie_at(size_t offset) const {
    ByteReader reader = reader_at(offset, eh_frame_.bytes.size());
    uint64_t length = reader.u32();
    if (length == kLongLength) length = reader.u64();
    if (!reader.ok() || length > reader.remaining()) return std::nullopt;
    reader = reader_at(reader.position(), reader.position() + length);
    if (reader.u32() != 0) return std::nullopt;
    return read_cie(reader);
  }

  // nullopt when the CIE makes no sense.
  std::optional<Cie> read_cie(ByteReader reader) const {
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
    if (augmentation.empty()) return Cie{};
    if (augmentation.front() != 'z') return std::nullopt;  // "eh": GCC 2, before x86-64
    reader.uleb();                                         // size of the augmentation data
    return encodings_in(augmentation.substr(1), reader);
  }

  static std::optional<Cie> encodings_in(std::string_view augmentation, ByteReader& reader) {
    Cie cie{.has_data = true};
    for (const char letter : augmentation) {
      switch (letter) {
        case 'R':
          cie.addresses = reader.u8();
          break;
        case 'P':
          read_pointer_value(reader, reader.u8());
          break;  // personality routine
        case 'L':
          cie.exception_table = reader.u8();
          break;
        case 'S':  // signal frame
        case 'B':
          break;  // AArch64 pointer signing key
        default:
          return std::nullopt;
      }
    }
    return reader.ok() ? std::optional(cie) : std::nullopt;
  }

  void add_fde(ByteReader& reader, const Cie& cie) {
    const PointerBases bases{.reader_begin = eh_frame_.address.value(), .data = data_base_};
    const auto begin = read_pointer(reader, cie.addresses, bases);
    if (!begin) return;
    const auto size_bytes = read_pointer_value(reader, cie.addresses);
    if (!size_bytes || *size_bytes == 0) return;
    if (!in_executable_segment(*begin, *size_bytes)) return;
    FrameDescription frame{.range = {LinkAddr(*begin), LinkAddr(*begin + *size_bytes)}};
    if (cie.has_data && cie.exception_table != kPointerOmitted) {
      reader.uleb();  // size of the augmentation data
      const auto table = read_pointer(reader, cie.exception_table, bases);
      if (table) frame.exception_table = LinkAddr(*table);
    }
    frames_.push_back(frame);
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
  std::unordered_map<size_t, std::optional<Cie>> cies_;  // by offset
  const Segment* last_segment_ = nullptr;
  std::vector<FrameDescription> frames_;
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

std::vector<FrameDescription> read_frames(const Layout& layout) {
  const auto eh_frame = find_eh_frame(layout);
  if (!eh_frame) return {};
  return EhFrameReader(layout, *eh_frame).read();
}

std::vector<LinkRange> read_unwind_ranges(const Layout& layout) {
  std::vector<LinkRange> ranges;
  for (const FrameDescription& frame : read_frames(layout)) ranges.push_back(frame.range);
  sort_and_drop_overlaps(ranges);
  return ranges;
}

}  // namespace tally::elf

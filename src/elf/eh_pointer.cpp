// See eh_pointer.h.
#include "elf/eh_pointer.h"

namespace tally::elf {
namespace {

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

}  // namespace

std::optional<uint64_t> read_pointer_value(ByteReader& reader, uint8_t encoding) {
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

std::optional<uint64_t> read_pointer(ByteReader& reader, uint8_t encoding,
                                     const PointerBases& bases) {
  if (encoding == kPointerOmitted || (encoding & kIndirect) != 0) return std::nullopt;
  const uint64_t field = bases.reader_begin + reader.position();
  const std::optional<uint64_t> value = read_pointer_value(reader, encoding);
  if (!value || *value == 0) return std::nullopt;
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

}  // namespace tally::elf

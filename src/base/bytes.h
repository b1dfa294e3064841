// A cursor over bytes that nobody vouched for.
//
// Problem.  Headers, notes and unwind tables come from files that may be cut short, damaged or made
// to hurt.  Checking each read by hand is tedious, and the check that is forgotten is the bug.
//
// Idea.  Failure sticks.  A read past the end returns 0, moves nothing and makes ok() false for
// good, so a parser reads the fields of a record one after another and asks once at the end:
//
//   ByteReader reader(bytes);
//   uint32_t length = reader.u32();
//   uint64_t alignment = reader.uleb();
//   if (!reader.ok()) return make_error("...");
//
// A loop over records must test ok() (or that remaining() shrank): zeros alone never end one.
//
// Not handled: big-endian data; the only files Tally reads are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace tally {

static_assert(std::endian::native == std::endian::little, "values are copied without swapping");

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  bool at_end() const { return remaining() == 0; }

  // Jumping behind the last byte is a failure, to just behind it is not.
  void seek(uint64_t position) {
    if (position > bytes_.size()) return fail();
    if (ok_) position_ = static_cast<size_t>(position);
  }
  void skip(uint64_t size_bytes) {
    if (size_bytes > remaining()) return fail();
    if (ok_) position_ += static_cast<size_t>(size_bytes);
  }
  // Advances to the next multiple of `alignment` (a power of two), counted from the first byte.
  void align(uint64_t alignment) { skip((alignment - position_ % alignment) % alignment); }

  uint8_t u8() { return fixed<uint8_t>(); }
  uint16_t u16() { return fixed<uint16_t>(); }
  uint32_t u32() { return fixed<uint32_t>(); }
  uint64_t u64() { return fixed<uint64_t>(); }
  int16_t s16() { return fixed<int16_t>(); }
  int32_t s32() { return fixed<int32_t>(); }
  int64_t s64() { return fixed<int64_t>(); }

  // A plain structure as the file lays it out, for example Elf64_Phdr.
  template <class T>
  T fixed() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!ok_ || sizeof(T) > remaining()) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // LEB128 of at most 64 bits; a longer encoding is a failure unless it only repeats the sign.
  uint64_t uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t byte = u8();
      if (!ok_) return 0;
      const uint64_t bits = byte & 0x7f;
      if (shift >= 64 ? bits != 0 : (bits << shift) >> shift != bits) return failed();
      if (shift < 64) value |= bits << shift;
      if ((byte & 0x80) == 0) return value;
      if (shift > kLebBitsMax) return failed();
    }
  }
  int64_t sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t byte = u8();
      if (!ok_) return 0;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) {
        const unsigned width = shift + 7;
        if (width < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << width;
        return static_cast<int64_t>(value);
      }
      if (shift > kLebBitsMax) return static_cast<int64_t>(failed());
    }
  }

  // The characters up to a zero byte, which must be there; the reader moves behind it.
  std::string_view cstring() {
    if (!ok_) return {};
    const uint8_t* begin = bytes_.data() + position_;
    const void* zero = at_end() ? nullptr : std::memchr(begin, 0, remaining());
    if (zero == nullptr) {
      fail();
      return {};
    }
    const size_t length = static_cast<size_t>(static_cast<const uint8_t*>(zero) - begin);
    position_ += length + 1;
    return {reinterpret_cast<const char*>(begin), length};
  }

  std::span<const uint8_t> bytes(uint64_t size_bytes) {
    if (!ok_ || size_bytes > remaining()) {
      fail();
      return {};
    }
    const auto result = bytes_.subspan(position_, static_cast<size_t>(size_bytes));
    position_ += static_cast<size_t>(size_bytes);
    return result;
  }

 private:
  // Padded encodings are legal, but not without end.
  static constexpr unsigned kLebBitsMax = 20 * 7;

  void fail() { ok_ = false; }
  uint64_t failed() {
    ok_ = false;
    return 0;
  }

  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace tally

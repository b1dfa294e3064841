// Writing x86-64 machine code: the few instructions that generated code is made of.
//
// An Assembler writes forward into a buffer that the target maps elsewhere; `here()` is the address
// the target sees.  It never grows: running out of room is noted (`overflowed()`), and the caller
// throws the unit away.  The methods are named after what they emit; the byte sequences are the
// shortest ones whose length does not depend on a value, so that lengths are constants.
//
// `gs(d)` stands for the thread's block in shared memory: [gs:d].  None of the moves, lea, jrcxz
// and jumps changes a flag; those that do say so.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/address.h"
#include "base/check.h"

namespace tally::isa {

inline constexpr uint32_t kJumpBytes = 5;  // jmp rel32

class Assembler {
 public:
  Assembler(uint8_t* begin, size_t size_bytes, CacheAddr address)
      : begin_(begin), at_(begin), end_(begin + size_bytes), address_(address) {}

  CacheAddr here() const { return address_ + static_cast<uint64_t>(at_ - begin_); }
  uint32_t offset() const { return static_cast<uint32_t>(at_ - begin_); }
  bool overflowed() const { return overflowed_; }

  void bytes(const uint8_t* data, size_t size_bytes) {
    if (!room(size_bytes)) return;
    std::memcpy(at_, data, size_bytes);
    at_ += size_bytes;
  }
  void u8(uint8_t v) { put(v); }
  void u32(uint32_t v) { put(v); }
  void u64(uint64_t v) { put(v); }

  // ---- thread block --------------------------------------------------------------------------
  void mov_gs_rcx(uint32_t d) { gs_form(0x48, 0x89, 1, d); }
  void mov_rcx_gs(uint32_t d) { gs_form(0x48, 0x8b, 1, d); }
  void mov_ecx_gs(uint32_t d) { gs_form(0, 0x8b, 1, d); }
  void mov_gs_reg(uint32_t d, unsigned reg) { gs_form(rex_w(reg), 0x89, reg & 7, d); }
  void mov_reg_gs(unsigned reg, uint32_t d) { gs_form(rex_w(reg), 0x8b, reg & 7, d); }
  void mov_gs32_imm(uint32_t d, uint32_t imm) {
    gs_form(0, 0xc7, 0, d);
    u32(imm);
  }
  void inc_gs(uint32_t d) { gs_form(0x48, 0xff, 0, d); }  // changes all flags but CF
  void add_gs_reg(uint32_t d, unsigned reg) {             // changes flags
    gs_form(rex_w(reg), 0x01, reg & 7, d);
  }
  void sub_gs_reg(uint32_t d, unsigned reg) {  // changes flags
    gs_form(rex_w(reg), 0x29, reg & 7, d);
  }
  void cmp_gs32_imm(uint32_t d, uint32_t imm) {  // changes flags
    gs_form(0, 0x81, 7, d);
    u32(imm);
  }
  void cmp_reg32_imm(unsigned reg, uint32_t imm) {  // of the first eight; changes flags
    raw(0x81, static_cast<uint8_t>(0xf8 | reg));
    u32(imm);
  }
  void jmp_gs(uint32_t d) { gs_form(0, 0xff, 4, d); }

  // ---- registers -----------------------------------------------------------------------------
  void lea_ecx_rcx(int32_t d) { raw3(0x8d, 0x89, static_cast<uint32_t>(d)); }
  void lea_rcx_rcx_1() { raw(0x48, 0x8d, 0x49, 0x01); }
  // rcx + reg, of any register but rsp
  void lea_rcx_rcx_reg(unsigned reg) {
    raw(static_cast<uint8_t>(0x48 | (reg >= 8 ? 2 : 0)), 0x8d, 0x0c,
        static_cast<uint8_t>(0x01 | (reg & 7) << 3));
  }
  void not_rcx() { raw(0x48, 0xf7, 0xd1); }
  void movzx_ecx_ax() { raw(0x0f, 0xb7, 0xc8); }
  void movzx_ecx_byte_rcx(uint32_t abs) { raw3(0x0f, 0xb6, 0x89, abs); }
  void movzx_ecx_word_rcx(uint32_t abs) { raw3(0x0f, 0xb7, 0x89, abs); }
  void mov_ecx_rcx(uint32_t abs) { raw3(0x8b, 0x89, abs); }
  // Of rax, rcx, rdx and rbx (0 to 3 in encoding order), whose second byte has a name.
  void lea_times8(unsigned reg) {
    raw(0x8d, static_cast<uint8_t>(0x04 | reg << 3), static_cast<uint8_t>(0xc5 | reg << 3)), u32(0);
  }
  void lea_times2(unsigned reg) {
    raw(0x8d, static_cast<uint8_t>(0x04 | reg << 3), static_cast<uint8_t>(reg << 3 | reg));
  }
  void movzx_second_byte(unsigned reg) {
    raw(0x0f, 0xb6, static_cast<uint8_t>(0xc4 | reg << 3 | reg));
  }
  // Of any register; the upper bytes become zero.
  void movzx_low_byte(unsigned to, unsigned from) {
    raw(static_cast<uint8_t>(0x40 | (to >= 8 ? 4 : 0) | (from >= 8 ? 1 : 0)), 0x0f, 0xb6,
        static_cast<uint8_t>(0xc0 | (to & 7) << 3 | (from & 7)));
  }
  void pop_rcx() { u8(0x59); }
  void lea_rsp_rsp(uint32_t d) { raw(0x48, 0x8d, 0xa4, 0x24), u32(d); }
  // Loads an address within 2 GB of here.
  void lea_rcx_address(uint64_t target) {
    raw(0x48, 0x8d, 0x0d);
    rel32(target);
  }
  // Loads of 4, 2 and 1 bytes from within 2 GB of here; the rest of rcx becomes zero.
  void mov_ecx_at(uint64_t target) { raw(0x8b, 0x0d), rel32(target); }
  void movzx_ecx_word_at(uint64_t target) { raw(0x0f, 0xb7, 0x0d), rel32(target); }
  void movzx_ecx_byte_at(uint64_t target) { raw(0x0f, 0xb6, 0x0d), rel32(target); }
  void mov_rcx_imm64(uint64_t imm) { raw(0x48, 0xb9), u64(imm); }
  void mov_rcx_at_rcx() { raw(0x48, 0x8b, 0x09); }
  void mov_top_imm(uint32_t imm) { raw(0x48, 0xc7, 0x04, 0x24), u32(imm); }
  // Two halves: the second instruction ends in the upper one.
  void mov_top_imm64(uint64_t imm) {
    raw(0xc7, 0x04, 0x24), u32(static_cast<uint32_t>(imm));
    raw(0xc7, 0x44, 0x24, 0x04), u32(static_cast<uint32_t>(imm >> 32));
  }
  void mov_ecx_top() { raw(0x8b, 0x0c, 0x24); }
  void mov_rcx_top() { raw(0x48, 0x8b, 0x0c, 0x24); }
  void mov_top_rcx() { raw(0x48, 0x89, 0x0c, 0x24); }
  void mov_rcx_popped() { raw(0x48, 0x8b, 0x4c, 0x24, 0xf8); }
  void mov_ecx_ecx() { raw(0x89, 0xc9); }
  void mov_rcx_table_rcx8(uint32_t abs) { raw(0x48, 0x8b, 0x0c, 0xcd), u32(abs); }
  void push_imm32(uint32_t imm) { u8(0x68), u32(imm); }
  void push_rip(uint64_t target) { raw(0xff, 0x35), rel32(target); }

  // ---- control -------------------------------------------------------------------------------
  void jmp(uint64_t target) { u8(0xe9), rel32(target); }
  void call(uint64_t target) { u8(0xe8), rel32(target); }
  void ret(uint16_t pop_bytes) {
    if (pop_bytes == 0) return u8(0xc3);
    raw(0xc2, static_cast<uint8_t>(pop_bytes), static_cast<uint8_t>(pop_bytes >> 8));
  }
  void jcc(uint8_t condition, uint64_t target) {
    raw(0x0f, static_cast<uint8_t>(0x80 | condition));
    rel32(target);
  }
  void jrcxz(uint8_t distance_bytes) { raw(0xe3, distance_bytes); }
  void jmp_table_times8(unsigned reg, uint32_t abs) {  // reg as for lea_times8
    raw(0xff, 0x24, static_cast<uint8_t>(0xc5 | reg << 3)), u32(abs);
  }
  void jmp_table_of_index(unsigned index, uint32_t abs) {  // any but rsp
    if (index >= 8) u8(0x42);
    raw(0xff, 0x24, static_cast<uint8_t>(0xc5 | (index & 7) << 3)), u32(abs);
  }
  void jmp_table_rcx8(uint32_t abs) { jmp_table_times8(1, abs); }
  // jmp [slot], the 8-byte slot following at once, aligned so that it may be patched at any time.
  // Returns the slot's address; reaches everywhere.
  CacheAddr jmp_slot(uint64_t target) {
    nops(static_cast<unsigned>((8 - ((here().value() + 6) & 7)) & 7));
    raw(0xff, 0x25), u32(0);
    const CacheAddr slot = here();
    u64(target);
    return slot;
  }
  // A jump that chooses the short form when the target is near.
  void jmp_anywhere(uint64_t target) {
    const auto distance = static_cast<int64_t>(target - (here().value() + 5));
    if (distance == static_cast<int32_t>(distance)) {
      jmp(target);
    } else {
      jmp_slot(target);
    }
  }
  void syscall_insn() { raw(0x0f, 0x05); }

  void nops(unsigned count) {
    while (count-- > 0) u8(0x90);
  }
  // The same in as few instructions as may be.
  void fill(size_t size_bytes) {
    static constexpr uint8_t kNop[8][8] = {{0x90},
                                           {0x66, 0x90},
                                           {0x0f, 0x1f, 0x00},
                                           {0x0f, 0x1f, 0x40, 0x00},
                                           {0x0f, 0x1f, 0x44, 0x00, 0x00},
                                           {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
                                           {0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00},
                                           {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00}};
    while (size_bytes > 0) {
      const size_t one = size_bytes < 8 ? size_bytes : 8;
      bytes(kNop[one - 1], one);
      size_bytes -= one;
    }
  }
  // A 32-bit field may be patched while another thread runs through it if it does not straddle 8
  // bytes.
  static bool may_be_patched(uint64_t field) { return (field & 7) <= 4; }
  // How many bytes must come first so that it is so of a field behind `prefix_bytes` more bytes.
  unsigned padding_for_patch(unsigned prefix_bytes) const {
    const uint64_t field = here().value() + prefix_bytes;
    return may_be_patched(field) ? 0 : static_cast<unsigned>(8 - (field & 7));
  }
  void align_patch(unsigned prefix_bytes) { fill(padding_for_patch(prefix_bytes)); }

  // The same for the field of a `jcc` that follows, by prefixes that mean nothing to it: between a
  // comparison and its jump, which processors take for one, no instruction may come.
  void align_patch_jcc() {
    constexpr unsigned kOpcodeBytes = 2;
    constexpr uint8_t kSegmentPrefix = 0x2e;
    for (unsigned left = padding_for_patch(kOpcodeBytes); left > 0; --left) u8(kSegmentPrefix);
  }

  // Pads so that the five bytes of a `jmp rel32` do not straddle 8 bytes: it may become something
  // else as a whole.
  void align_patch_jmp() {
    while ((here().value() & 7) > 3) u8(0x90);
  }

  // Points the 32-bit field that starts at `field_offset` to `target`.
  void patch_rel32(uint32_t field_offset, uint64_t target) {
    if (overflowed_) return;
    const uint64_t next = address_.value() + field_offset + 4;
    const auto distance = static_cast<int64_t>(target - next);
    CHECK(distance == static_cast<int32_t>(distance)) << "branch out of reach: " << distance;
    const auto narrow = static_cast<int32_t>(distance);
    std::memcpy(begin_ + field_offset, &narrow, 4);
  }
  void patch_u8(uint32_t offset, uint8_t value) {
    if (!overflowed_) begin_[offset] = value;
  }

 private:
  static uint8_t rex_w(unsigned reg) { return static_cast<uint8_t>(0x48 | (reg >= 8 ? 4 : 0)); }
  bool room(size_t size_bytes) {
    if (static_cast<size_t>(end_ - at_) >= size_bytes) return true;
    overflowed_ = true;
    return false;
  }
  template <class T>
  void put(T v) {
    bytes(reinterpret_cast<const uint8_t*>(&v), sizeof v);
  }
  template <class... B>
  void raw(B... b) {
    const uint8_t data[] = {static_cast<uint8_t>(b)...};
    bytes(data, sizeof data);
  }
  void raw3(uint8_t a, uint8_t b, uint32_t d) { raw(a, b), u32(d); }
  void raw3(uint8_t a, uint8_t b, uint8_t c, uint32_t d) { raw(a, b, c), u32(d); }
  // [gs:d] with a register or opcode extension in ModRM.reg.
  void gs_form(uint8_t rex, uint8_t opcode, unsigned reg, uint32_t d) {
    uint8_t data[9];
    size_t n = 0;
    data[n++] = 0x65;
    if (rex) data[n++] = rex;
    data[n++] = opcode;
    data[n++] = static_cast<uint8_t>(0x04 | reg << 3);
    data[n++] = 0x25;
    std::memcpy(data + n, &d, 4);
    bytes(data, n + 4);
  }
  void rel32(uint64_t target) {
    const uint64_t next = here().value() + 4;
    const auto distance = static_cast<int64_t>(target - next);
    CHECK(distance == static_cast<int32_t>(distance) || overflowed_)
        << "branch out of reach: " << distance;
    u32(static_cast<uint32_t>(distance));
  }

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  CacheAddr address_;
  bool overflowed_ = false;
};

}  // namespace tally::isa

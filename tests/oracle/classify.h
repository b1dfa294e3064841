// The few classes of instructions that the single-stepper treats differently: not a decoder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace oracle {

enum class Class : uint8_t {
  kOther,
  kBranch,
  kIndirect,
  kCall,
  kReturn,
  kSyscall,
  kRep,
  kPushf,
  kMovSs,
  kInt3,
};

inline const char* name_of(Class c) {
  switch (c) {
    case Class::kBranch:
      return "branch";
    case Class::kIndirect:
      return "indirect";
    case Class::kCall:
      return "call";
    case Class::kReturn:
      return "ret";
    case Class::kSyscall:
      return "syscall";
    default:
      return "other";
  }
}

struct Classified {
  Class kind = Class::kOther;
  unsigned length = 0;  // only for kMovSs
};

inline unsigned modrm_length(const uint8_t* p) {
  unsigned mod = p[0] >> 6, rm = p[0] & 7;
  if (mod == 3) return 1;
  unsigned n = 1;
  if (rm == 4) {
    n++;
    if (mod == 0 && (p[1] & 7) == 5) return n + 4;
  } else if (mod == 0 && rm == 5) {
    return n + 4;
  }
  return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

inline Classified classify(const uint8_t* bytes, size_t size) {
  size_t i = 0;
  bool rep = false;
  for (; i < size; i++) {
    uint8_t b = bytes[i];
    if (b == 0xf2 || b == 0xf3) rep = true;
    bool prefix = b == 0x66 || b == 0x67 || b == 0xf2 || b == 0xf3 || b == 0xf0 || b == 0x2e ||
                  b == 0x36 || b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65;
    if (!prefix) break;
  }
  if (i < size && (bytes[i] & 0xf0) == 0x40) i++;
  if (i + 1 >= size) return {};
  uint8_t op = bytes[i], next = bytes[i + 1];
  unsigned reg = (next >> 3) & 7;
  if (op == 0x0f) {
    if (next == 0x05) return {Class::kSyscall};
    if ((next & 0xf0) == 0x80) return {Class::kBranch};
    return {};
  }
  bool string =
      (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf) || (op >= 0x6c && op <= 0x6f);
  if (string && rep) return {Class::kRep};
  if ((op & 0xf0) == 0x70 || op == 0xe9 || op == 0xeb || (op >= 0xe0 && op <= 0xe3))
    return {Class::kBranch};
  if (op == 0xe8 || (op == 0xff && (reg == 2 || reg == 3))) return {Class::kCall};
  if (op == 0xff && (reg == 4 || reg == 5)) return {Class::kIndirect};
  if (op == 0xc2 || op == 0xc3 || op == 0xca || op == 0xcb || op == 0xcf) return {Class::kReturn};
  if (op == 0x9c) return {Class::kPushf};
  if (op == 0xcc || op == 0xf1 || op == 0xcd) return {Class::kInt3};
  if (op == 0x8e && reg == 2) return {Class::kMovSs, unsigned(i) + 1 + modrm_length(bytes + i + 1)};
  return {};
}

}  // namespace oracle

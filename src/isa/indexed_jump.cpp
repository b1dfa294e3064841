// See indexed_jump.h.
#include "isa/indexed_jump.h"

#include <string.h>

#include <vector>

#include "isa/insn.h"

namespace tally::isa {
namespace {

constexpr size_t kInsnsMax = 12;  // looked at

// An instruction of one opcode byte, or of two if the first is 0x0f, without any prefix but REX.
struct Plain {
  uint16_t opcode = 0;
  uint8_t modrm = 0;
  uint8_t rex = 0;
  std::span<const uint8_t> rest;  // behind ModRM

  uint8_t reg() const { return static_cast<uint8_t>((modrm >> 3 & 7) | (rex & 4) << 1); }
  uint8_t rm() const { return static_cast<uint8_t>((modrm & 7) | (rex & 1) << 3); }
  bool is_register_form() const { return modrm >= 0xc0; }
  bool is_wide() const { return (rex & 8) != 0; }
};

std::optional<Plain> plain(std::span<const uint8_t> bytes) {
  Plain p;
  size_t at = 0;
  if (at < bytes.size() && (bytes[at] & 0xf0) == 0x40) p.rex = bytes[at++];
  if (at >= bytes.size()) return std::nullopt;
  p.opcode = bytes[at++];
  if (p.opcode == 0x0f) {
    if (at >= bytes.size()) return std::nullopt;
    p.opcode = static_cast<uint16_t>(0x0f00 | bytes[at++]);
  }
  if (at >= bytes.size()) return std::nullopt;
  p.modrm = bytes[at++];
  p.rest = bytes.subspan(at);
  return p;
}

uint32_t immediate_of(std::span<const uint8_t> rest) {
  uint32_t value = 0;
  if (rest.size() == sizeof value) memcpy(&value, rest.data(), sizeof value);
  return rest.size() == sizeof value ? value : UINT32_MAX;
}

// The whole register is below 256 behind it.
bool bounds(std::span<const uint8_t> bytes, uint8_t reg) {
  constexpr uint16_t kMovzxByte = 0x0fb6, kAndByte = 0x83, kAnd = 0x81, kAndEax = 0x25;
  constexpr uint8_t kAndInGroup = 4;
  const auto p = plain(bytes);
  if (!p) return false;
  if (p->opcode == kMovzxByte) return p->reg() == reg;
  if (p->opcode == kAndEax && p->rex == 0) {
    return reg == 0 && immediate_of(bytes.subspan(1)) <= kIndexMax;
  }
  if (!p->is_register_form() || p->rm() != reg || (p->modrm >> 3 & 7) != kAndInGroup) return false;
  if (p->opcode == kAndByte) return p->rest.size() == 1 && p->rest[0] < 0x80;
  return p->opcode == kAnd && immediate_of(p->rest) <= kIndexMax;
}

// The other register of `mov reg, other` of 32 bits.
std::optional<uint8_t> copied_from(std::span<const uint8_t> bytes, uint8_t reg) {
  constexpr uint16_t kStore = 0x89, kLoad = 0x8b;
  const auto p = plain(bytes);
  if (!p || !p->is_register_form() || p->is_wide() || !p->rest.empty()) return std::nullopt;
  if (p->opcode == kStore && p->rm() == reg) return p->reg();
  if (p->opcode == kLoad && p->reg() == reg) return p->rm();
  return std::nullopt;
}

class Finder {
 public:
  explicit Finder(std::span<const std::span<const uint8_t>> insns) : insns_(insns) {
    const size_t count = insns.size();
    low_ = count > kInsnsMax ? count - kInsnsMax : 0;
    for (size_t i = low_; i < count; ++i) steps_.push_back(decode_for_table(insns[i], 0));
  }

  std::optional<IndexedJump> find() const {
    const size_t jump = insns_.size() - 1;
    const TableInsn& last = step(jump);
    if (last.step != TableStep::kJump || last.has_memory) return std::nullopt;
    IndexedJump found;
    const auto load = load_of(jump, last.source, found);
    if (!load) return std::nullopt;
    const MemoryOperand& memory = step(*load).memory;
    if (memory.base == kRip || memory.index < 0) return std::nullopt;
    if (memory.displacement != static_cast<int32_t>(memory.displacement)) return std::nullopt;
    found.has_base = memory.base >= 0;
    found.base = static_cast<uint8_t>(found.has_base ? memory.base : 0);
    found.displacement = static_cast<int32_t>(memory.displacement);
    found.index = static_cast<uint8_t>(memory.index);
    const auto set = writer(memory.index, *load);
    if (!set) return std::nullopt;
    if (bounds(insns_[*set], found.index)) {
      if (may_fault(*set + 1, *load)) return std::nullopt;
      found.bounded_by = static_cast<uint8_t>(*set);
      found.first = static_cast<uint8_t>(*load);
      return found;
    }
    const auto from = copied_from(insns_[*set], found.index);
    if (!from || *from == found.index || *set > UINT8_MAX) return std::nullopt;
    found.masked = true;
    found.from = *from;
    found.first = found.bounded_by = static_cast<uint8_t>(*set);
    return found;
  }

 private:
  bool may_fault(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      if (step(i).has_memory && step(i).step != TableStep::kLea) return true;
    }
    return false;
  }

  const TableInsn& step(size_t i) const { return steps_[i - low_]; }

  // The last instruction in front of `before` that writes the register, if it is in sight.
  std::optional<size_t> writer(int reg, size_t before) const {
    for (size_t i = before; i-- > low_;) {
      if ((step(i).written_mask >> reg & 1) != 0) return i;
    }
    return std::nullopt;
  }

  // What loads from the table; whether the table holds distances goes to `found`.
  std::optional<size_t> load_of(size_t jump, int reg, IndexedJump& found) const {
    if (reg < 0 || reg > 15) return std::nullopt;
    auto at = writer(reg, jump);
    if (!at || *at > UINT8_MAX) return std::nullopt;
    if (step(*at).step == TableStep::kLoad) {
      return step(*at).memory.scale == 8 ? at : std::nullopt;
    }
    if (step(*at).step != TableStep::kAdd || step(*at).has_memory) return std::nullopt;
    const int base = step(*at).source;
    at = writer(reg, *at);
    if (!at || step(*at).step != TableStep::kLoadSigned) return std::nullopt;
    const MemoryOperand& memory = step(*at).memory;
    if (memory.scale != 4 || memory.base != base || memory.displacement != 0) return std::nullopt;
    found.holds_distances = true;
    return at;
  }

  std::span<const std::span<const uint8_t>> insns_;
  size_t low_ = 0;
  std::vector<TableInsn> steps_;
};

}  // namespace

std::optional<IndexedJump> indexed_jump(std::span<const std::span<const uint8_t>> insns) {
  if (insns.size() < 2 || insns.size() > UINT8_MAX) return std::nullopt;
  return Finder(insns).find();
}

std::optional<uint64_t> loads_address(std::span<const uint8_t> bytes, uint64_t address,
                                      unsigned reg) {
  constexpr uint8_t kLea = 0x8d, kSizeBytes = 7;
  if (bytes.size() != kSizeBytes || (bytes[0] & 0xfb) != 0x48 || bytes[1] != kLea) {
    return std::nullopt;
  }
  const auto p = plain(bytes);
  if (!p || (p->modrm & 0xc7) != 0x05 || p->reg() != reg) return std::nullopt;
  int32_t distance = 0;
  memcpy(&distance, p->rest.data(), sizeof distance);
  return address + kSizeBytes + static_cast<uint64_t>(static_cast<int64_t>(distance));
}

}  // namespace tally::isa

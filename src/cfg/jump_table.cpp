// Jump tables of GCC and Clang.
//
// The shapes (rI is the index, rT the table's address, loaded nearby or hoisted out of a loop):
//
//   PIC, 32-bit distances          non-PIC, pointers              computed goto
//     cmp  rI, 9                     cmp  rI, 9
//     ja   default                   ja   default
//     lea  rT, [rip+table]           jmp  [rI*8 + table]            jmp [rT + rI*8]
//     movsxd rX, dword [rT+rI*4]       or mov rX, [rI*8 + table]
//     add  rX, rT                         jmp rX
//     jmp  rX
//
// The number of entries comes from the compare if one is in sight; else the table is read until
// several entries in a row point outside of the procedure (single ones lead to its cold part:
// python's interpreter begins with one).  Reading too much yields blocks that never run; reading
// too little, blocks found at run time.  Neither changes a count.
#include <algorithm>
#include <cstring>

#include "cfg/procedure.h"

namespace tally::cfg {
namespace {

using isa::TableInsn;
using isa::TableStep;

constexpr uint64_t kEntriesMax = 4096;
constexpr unsigned kStrangersMax = 16;

struct Table {
  LinkAddr address;
  bool distances = false;  // 32-bit distances from the table, else 64-bit pointers
};

class Matcher {
 public:
  explicit Matcher(std::span<const WindowInsn> window) {
    for (const WindowInsn& w : window) {
      insns_.push_back(isa::decode_for_table(w.bytes, w.address.value()));
    }
  }

  bool match(Table& table) {
    const int jump = static_cast<int>(insns_.size()) - 1;
    if (jump < 0 || insns_[jump].step != TableStep::kJump) return false;
    if (insns_[jump].has_memory) return match_pointers(insns_[jump], jump, table);
    return match_register(insns_[jump].source, jump, table);
  }

  // Entries by the last compare with a constant, 0 when none is in sight.
  uint64_t bound() const {
    for (size_t i = insns_.size(); i-- > 0;) {
      const TableInsn& insn = insns_[i];
      if (insn.step == TableStep::kCompare && !insn.has_memory && insn.source < 0 &&
          insn.immediate > 0 && insn.immediate < static_cast<int64_t>(kEntriesMax)) {
        return static_cast<uint64_t>(insn.immediate) + 1;
      }
      if (insns_.size() - i > 16) break;
    }
    return 0;
  }

 private:
  // The last instruction before `before` that writes the register; -1 if none is in sight.
  int writer(int reg, int before) const {
    for (int i = before - 1; i >= 0; --i) {
      if (reg >= 0 && reg < 16 && (insns_[i].written_mask >> reg & 1)) return i;
    }
    return -1;
  }

  // The constant address a register holds, if `lea reg, [rip+x]` loaded it.
  bool constant_of(int reg, int before, LinkAddr& address) const {
    const int i = writer(reg, before);
    if (i < 0) return false;
    if (insns_[i].step == TableStep::kMove && insns_[i].source >= 0) {
      return constant_of(insns_[i].source, i, address);
    }
    if (insns_[i].step != TableStep::kLea || insns_[i].memory.base != isa::kRip) return false;
    address = LinkAddr(static_cast<uint64_t>(insns_[i].memory.displacement));
    return true;
  }

  bool match_pointers(const TableInsn& load, int at, Table& table) const {
    const isa::MemoryOperand& m = load.memory;
    if (m.index < 0 || m.scale != 8) return false;
    table.distances = false;
    if (m.base < 0) {
      table.address = LinkAddr(static_cast<uint64_t>(m.displacement));
      return true;
    }
    if (!constant_of(m.base, at, table.address)) return false;
    table.address += static_cast<uint64_t>(m.displacement);
    return true;
  }

  bool match_register(int reg, int before, Table& table) const {
    const int i = writer(reg, before);
    if (i < 0) return false;
    const TableInsn& insn = insns_[i];
    switch (insn.step) {
      case TableStep::kMove:
        return insn.source >= 0 && match_register(insn.source, i, table);
      case TableStep::kLoad:
        return match_pointers(insn, i, table);
      case TableStep::kAdd:
        return match_distances(insn.destination, i, table) ||
               match_distances(insn.source, i, table);
      default:
        return false;
    }
  }

  bool match_distances(int reg, int before, Table& table) const {
    const int i = writer(reg, before);
    if (i < 0 || insns_[i].step != TableStep::kLoadSigned) return false;
    const isa::MemoryOperand& m = insns_[i].memory;
    if (m.index < 0 || m.scale != 4 || m.base < 0 || m.displacement != 0) return false;
    table.distances = true;
    return constant_of(m.base, i, table.address);
  }

  std::vector<TableInsn> insns_;
};

bool read_entry(const Table& table, uint64_t i, const CodeView& view, LinkAddr& target) {
  if (table.distances) {
    int32_t distance = 0;
    if (!view.read_data(table.address + 4 * i, &distance, sizeof distance)) return false;
    target = table.address + static_cast<uint64_t>(static_cast<int64_t>(distance));
    return true;
  }
  uint64_t pointer = 0;
  if (!view.read_data(table.address + 8 * i, &pointer, sizeof pointer)) return false;
  target = LinkAddr(pointer - view.pointer_bias);
  return true;
}

}  // namespace

std::vector<LinkAddr> jump_table_targets(std::span<const WindowInsn> window, const CodeView& view,
                                         LinkRange range) {
  std::vector<LinkAddr> targets;
  Matcher matcher(window);
  Table table;
  if (!view.read_data || !matcher.match(table)) return targets;
  const uint64_t bound = matcher.bound();
  unsigned strangers = 0;
  for (uint64_t i = 0; i < (bound ? bound : kEntriesMax); ++i) {
    LinkAddr target;
    if (!read_entry(table, i, view, target)) break;
    if (!range.contains(target)) {
      if (!bound && ++strangers > kStrangersMax) break;
      continue;
    }
    strangers = 0;
    targets.push_back(target);
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

}  // namespace tally::cfg

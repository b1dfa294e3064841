// Evaluates the DWARF expressions that occur in call frame information.
//
// libdw hands out every rule of a frame as an expression, the simple ones included: "saved at
// CFA - 16" is `call_frame_cfa; plus_uconst -16`.  Hand-written rules are longer; the procedure
// linkage table's CFA depends on where in a 16-byte slot the pc is:
//
//   breg7 rsp+8; breg16 rip+0; lit15; and; lit11; ge; lit3; shl; plus
//
// The expression comes from the file and the memory from the target, both hostile: the stack and
// the number of steps are bounded, and every failure has a name.
//
// Not handled (kUnsupported): operations that need a procedure's debug info (fbreg, call*, entry
// values), pieces, typed operations, other address spaces, thread-local addresses.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elf/unwind.h"

namespace tally::elf {

// Why a walk, or one rule of it, stopped.
struct UnwindFailure {
  TraceEnd end = TraceEnd::kUnsupported;
  std::string detail;
};

enum class LocationKind : uint8_t {
  kMemory,  // the value is an address, where the register was saved
  kValue,   // the value is the register's value itself
};

struct Location {
  LocationKind kind = LocationKind::kMemory;
  uint64_t value = 0;
};

class ExpressionEvaluator {
 public:
  using ReadWord = std::function<bool(uint64_t address, void* bytes, size_t size_bytes)>;

  // `cfa` is absent while the CFA itself is being computed.  The arguments must outlive the object.
  ExpressionEvaluator(const UnwindRegisters& registers, std::optional<uint64_t> cfa,
                      const ReadWord& read)
      : registers_(registers), cfa_(cfa), read_(read) {}

  // nullopt on failure, which then is in failure().
  std::optional<Location> evaluate(std::span<const Dwarf_Op> operations);
  const UnwindFailure& failure() const { return failure_; }

 private:
  bool step(const Dwarf_Op& operation);
  bool step_pushing(const Dwarf_Op& operation);
  bool step_on_stack(const Dwarf_Op& operation);
  bool step_unary(const Dwarf_Op& operation);
  bool step_binary(const Dwarf_Op& operation);
  bool jump(std::span<const Dwarf_Op> operations, const Dwarf_Op& from);

  bool push(uint64_t value);
  std::optional<uint64_t> pop();
  bool push_register(uint64_t number, uint64_t offset);
  bool pick(uint64_t depth);
  bool rotate();
  bool dereference(uint64_t size_bytes);
  bool fail(TraceEnd end, std::string detail);

  const UnwindRegisters& registers_;
  std::optional<uint64_t> cfa_;
  const ReadWord& read_;
  std::vector<uint64_t> stack_;
  size_t next_ = 0;  // index of the operation to run next
  LocationKind kind_ = LocationKind::kMemory;
  UnwindFailure failure_;
};

}  // namespace tally::elf

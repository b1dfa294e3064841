// Returns while the program has alignment checks switched on (the AC flag).
//
// Numbers of landings stand at return addresses, so most are read from addresses that are not
// aligned, and then the processor raises SIGBUS where natively nothing happens.  That one
// instruction is executed here instead; the return goes on behind it as always.  It costs a stop,
// which only programs pay that look for an old processor, or for accesses that are not aligned.
//
// Not handled: a program that blocks or ignores SIGBUS meanwhile.  The kernel has then unblocked
// it, and reset what it does, before anybody learns of the fault.
#include <array>
#include <cstring>

#include "engine/signals.h"

namespace tally::engine {

using namespace translate;

namespace {

constexpr uint64_t kAlignmentChecks = 1ull << 18;  // in the flags

// How a return reads a number: by its bytes in front of the 32-bit displacement, which is where
// the numbers are.
struct NumberLoad {
  std::array<uint8_t, 3> opcode;
  uint32_t opcode_bytes;
  uint32_t number_bytes;
  uint32_t size_bytes() const { return opcode_bytes + static_cast<uint32_t>(sizeof(uint32_t)); }
};
constexpr NumberLoad kLoads[] = {
    {{0x0f, 0xb7, 0x89}, 3, 2},  // movzx ecx, word [rcx + numbers]
    {{0x8b, 0x89}, 2, 4},        // mov ecx, [rcx + numbers]
};

}  // namespace

const uint8_t* Signals::code_at(CacheAddr address) const {
  return region_.area_at(address) == nullptr ? nullptr : region_.code(address);
}

bool Signals::read_number(user_regs_struct& regs) const {
  if ((regs.eflags & kAlignmentChecks) == 0) return false;
  const uint8_t* code = code_at(CacheAddr(regs.rip));
  if (code == nullptr) return false;
  const uint32_t numbers = region_.tables_base() + tables::kLandingNumbers;
  for (const NumberLoad& load : kLoads) {
    if (memcmp(code, load.opcode.data(), load.opcode_bytes) != 0) continue;
    if (memcmp(code + load.opcode_bytes, &numbers, sizeof numbers) != 0) continue;
    if (regs.rcx > UINT32_MAX) return false;
    uint32_t number = 0;
    const TargetAddr at(uint64_t{numbers} + regs.rcx);
    if (!process_.read_memory(at, &number, load.number_bytes)) return false;
    regs.rcx = number;
    regs.rip += load.size_bytes();
    return true;
  }
  return false;
}

bool Signals::is_of_alignment_checks(const tracee::Event& event) {
  if (event.signal != SIGBUS || event.info.si_code != BUS_ADRALN) return false;
  user_regs_struct regs{};
  if (!process_.try_registers(event.tid, regs) || !read_number(regs)) return false;
  process_.set_registers(event.tid, regs);
  process_.resume(event.tid);
  return true;
}

}  // namespace tally::engine

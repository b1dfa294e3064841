// Where a thread that waits for an answer would be in the program itself.  See service.h.
#include <sys/syscall.h>

#include "engine/service.h"

namespace tally::engine {

using namespace translate;

namespace {

// The gateway keeps the flags as `lahf` and `seto` give them.
uint64_t flags_register(uint64_t before, uint64_t kept) {
  constexpr uint64_t kOverflow = 1 << 11;
  constexpr uint64_t kLahf = 0xd5;
  return (before & ~(kLahf | kOverflow)) | (kept >> 8 & kLahf) | ((kept & 1) != 0 ? kOverflow : 0);
}

}  // namespace

Result<user_regs_struct> Service::registers_at_request(uint32_t slot, const user_regs_struct& regs,
                                                       const Position& position) const {
  user_regs_struct r = registers_put_down(region_.thread_memory(slot), regs);
  r.eflags = flags_register(regs.eflags, load<uint64_t>(slot, tcb::kFlags));
  r.orig_rax = static_cast<uint64_t>(-1);
  const auto [request, argument] = asked(slot);
  const auto end_of = [&](BlockRef ref) {
    const Unit& unit = cache_.unit(ref.unit);
    return unit.module->to_target(unit.end_of(ref.block)).value();
  };
  switch (request) {
    case Request::kLink:
      r.rip = cache_.link_target(argument).value();
      return r;
    case Request::kIndirect:
    case Request::kReturn:
      r.rip = load<uint64_t>(slot, tcb::kTarget);
      return r;
    case Request::kSyscall:
      r.rip = end_of(cache_.syscall_block(argument)) - isa::kSyscallBytes;
      return r;
    case Request::kSyscallDone: {
      r.rip = end_of(cache_.syscall_block(argument));
      r.rcx = r.rip;
      if (auto it = pending_.find(slot); it != pending_.end()) it->second.give_back(r);
      return r;
    }
    case Request::kEvent:
    case Request::kAsk:  // not any more
      break;
  }
  if (argument >= CodeCache::kEdgeWaitEventBase) {
    r.rip = cache_.target_of(cache_.global_edge(argument - CodeCache::kEdgeWaitEventBase)).value();
    return r;
  }
  const bool waits = argument >= CodeCache::kWaitEventBase;
  if (argument >= CodeCache::kUnsupportedEventBase && !waits) {
    const BlockRef ref = cache_.global_block(argument - CodeCache::kUnsupportedEventBase);
    const isa::Flow flow = cache_.unit(ref.unit).procedure.blocks[ref.block].end;
    // An operand out of reach may be anywhere in its block.
    if (flow != isa::Flow::kUnsupported) {
      return make_error("a thread stands in the middle of a block, nobody knows where");
    }
  }
  r.rip = position.pc.value();
  return r;
}

}  // namespace tally::engine

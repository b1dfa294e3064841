// From an address in the code cache to a place in the program.
//
// Most threads stop at an instruction's copy or behind a `syscall`; those are exact.  A thread that
// is killed in the middle of a branch's translation may be anywhere in it: what matters is which
// counters have run and whether a push or pop has happened.
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "ledger/ledger.h"

namespace tally::engine {

using namespace translate;

namespace {

// Bytes of the sequences in translate/emit_unit.cpp.
constexpr uint32_t kLoadPoppedBytes = 5;  // mov rcx, [rsp - 8]
constexpr uint32_t kReturnPopped = 10;    // mov gs:[spill], rcx; pop rcx
constexpr uint32_t kJumpBytes = 5;

// The offset right behind the `syscall` that ends a block.
uint32_t behind_syscall(const Unit& unit, uint32_t block) {
  for (const SyscallSite& site : unit.code.syscalls) {
    if (site.block == block) return unit.code.offset_of(site.behind);
  }
  return UINT32_MAX;
}

// At the copy of a `syscall`.  If the kernel has rolled it back, to make it once more, it has begun
// all the same; rcx holds the address behind it then.  Who comes there for the first time has come
// over a `jrcxz`.
bool is_made_again(const user_regs_struct& regs) {
  return regs.rcx != 0;
}

// From the beginning of a return; where it does not pop at once, it reads then.
uint32_t bytes_to_popped(const BlockCode& code) {
  return kReturnPopped + (code.counts_in_return ? code.probe_counted - code.probe_begin : 0);
}

// What a thread is about to ask that has come to an entry of the gateway.
Request entry_at(const Gateways& entries, CacheAddr address) {
  if (address < entries.indirect) return Request::kLink;
  if (address < entries.ret) return Request::kIndirect;
  if (address < entries.syscall) return Request::kReturn;
  if (address < entries.event) return Request::kSyscall;
  return address < entries.ask ? Request::kEvent : Request::kAsk;
}

// By its number in encoding order.
uint64_t register_of(const user_regs_struct& regs, uint8_t number) {
  const std::array<uint64_t, 16> values = {
      regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi,
      regs.r8,  regs.r9,  regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15};
  return values[number];
}

// Behind the `call` of a call block, where the way to a landing elsewhere may lie.
bool is_behind_call(const Unit& unit, uint32_t block, uint32_t offset) {
  for (const Thunk& thunk : unit.code.thunks) {
    if (thunk.block == block) return offset >= thunk.back;
  }
  return false;
}

}  // namespace

uint64_t Ledger::tcb_u64(uint32_t slot, uint32_t offset) const {
  uint64_t value = 0;
  memcpy(&value, region_.thread_memory(slot) + offset, sizeof value);
  return value;
}

std::string Ledger::name_of(const Position& position) const {
  switch (position.kind) {
    case Position::Kind::kUnknown:
      return "nothing that is known";
    case Position::Kind::kOutside:
      return fmt::format("{}, no code of the program", modules_.name_of(position.pc));
    case Position::Kind::kInBlock:
      return fmt::format("{}, {} instructions into its block", modules_.name_of(position.pc),
                         position.done);
    case Position::Kind::kBetween:
      break;
  }
  if (position.pc_is_on_stack) return "a call that has not arrived";
  return fmt::format("{}, about to {}", modules_.name_of(position.pc),
                     position.pc_is_return_address ? "come back there" : "go on there");
}

uint64_t Ledger::requested_target(uint32_t slot) const {
  return tcb_u64(slot, tcb::kTarget);
}

TargetAddr Ledger::insn_address(BlockRef ref, uint32_t index) const {
  const Unit& unit = cache_.unit(ref.unit);
  return unit.module->to_target(unit.address_of(ref.block, index));
}

Position Ledger::at_start_of(BlockRef ref) {
  Position p;
  p.kind = Position::Kind::kInBlock;
  p.ref = ref;
  p.done = ref.insn;
  const Unit& unit = cache_.unit(ref.unit);
  p.block_counted = unit.plan.block_counter[ref.block] == kNoCounter ||
                    (ref.insn != 0 && unit.code.blocks[ref.block].probe_insn <= ref.insn);
  p.pc = insn_address(ref, ref.insn);
  return p;
}

// In front of the instruction from which on the code has changed.
Position Ledger::at_check(uint32_t check) {
  const CodeCache::CheckPoint point = cache_.check_point(check);
  Position p;
  p.kind = Position::Kind::kInBlock;
  p.ref = {point.ref.unit, point.ref.block};
  p.done = point.ref.insn;
  p.block_counted = point.counted;
  p.pc = insn_address(p.ref, p.done);
  return p;
}

// All instructions done, no way out counted.  The pc is the last instruction's: behind it another
// procedure may begin.
Position Ledger::at_end_of(BlockRef ref) {
  Position p;
  p.kind = Position::Kind::kInBlock;
  p.ref = ref;
  p.done = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  p.pc = insn_address(ref, p.done - 1);
  return p;
}

// The same on the way along an edge that leaves the unit, behind its counter if it has one.
Position Ledger::at_end_along(BlockRef ref, uint32_t edge) {
  Position p = at_end_of(ref);
  const std::vector<int32_t>& counters = cache_.unit(ref.unit).plan.edge_counter;
  if (edge != Link::kCallLink && counters[edge] != kNoCounter) p.counted_edge = edge;
  return p;
}

// The call is done as far as the caller goes: the return address is on the stack, and the callee,
// if it is code at all, has not begun.
Position Ledger::behind_call() {
  Position p;
  p.kind = Position::Kind::kBetween;
  p.pc_is_on_stack = true;
  return p;
}

// Sent there by the monitor, which has booked where it comes from.
Position Ledger::on_way_to(TargetAddr target) {
  Position p;
  p.kind = Position::Kind::kBetween;
  p.pc = target;
  return p;
}

Position Ledger::behind_return(TargetAddr target) {
  Position p;
  p.kind = Position::Kind::kBetween;
  p.pc = target;
  p.pc_is_return_address = true;
  return p;
}

Position Ledger::locate(const user_regs_struct& regs, uint32_t slot) {
  Position p = place_of(regs, slot);
  if (p.kind == Position::Kind::kInBlock) p.in_loop = loop_at(p, regs, slot);
  return p;
}

// What a register has that counts the position's block, if the block's loop has been entered.
std::optional<Position::InLoop> Ledger::loop_at(const Position& position,
                                                const user_regs_struct& regs, uint32_t slot) const {
  const Unit& unit = cache_.unit(position.ref.unit);
  const Plan::Induction* induction = unit.plan.induction_of(position.ref.block);
  if (induction == nullptr || !has_entered(CacheAddr(regs.rip))) return std::nullopt;
  const auto counter = static_cast<uint32_t>(unit.plan.block_counter[induction->block]);
  const uint64_t value = register_of(waiting_registers(regs, slot), induction->reg);
  return Position::InLoop{counter, induction->reg, value};
}

// Whether a thread that is at a loop's block, or on its way there, has passed what tells its
// counter: edges do so at the place from which on they count as taken.  The pieces that lead into
// units from elsewhere do not, but for a door's end.
bool Ledger::has_entered(CacheAddr address) const {
  const Area* area = region_.area_at(address);
  if (area == nullptr || address < area->gateway.end || area->is_among_asks(address)) return true;
  const CodeRecord* record = cache_.record_at(address);
  if (record == nullptr || record->in_unit()) return true;
  return record->kind == CodeRecord::Kind::kDoor &&
         address >= cache_.doors()[record->index].entered;
}

Position Ledger::place_of(const user_regs_struct& regs, uint32_t slot) {
  const CacheAddr address(regs.rip);
  const Area* area = region_.area_at(address);
  if (area == nullptr) {
    Position p;
    p.kind = Position::Kind::kOutside;
    p.pc = TargetAddr(regs.rip);
    // A jump to nowhere came from the branch that asked last.
    if (regs.rip != tcb_u64(slot, tcb::kResume)) return p;
    const Position before = locate_in_gateway(slot);
    return before.kind == Position::Kind::kUnknown ? p : before;
  }
  if (address < area->gateway.end) {
    if (address >= area->gateway.entries.lookup) return locate_in_lookup(*area, regs, slot);
    if (address >= area->gateway.noted && address < area->gateway.entries.ret &&
        area == &region_.areas().front()) {
      return at_start_of(cache_.visited_block(CacheAddr(tcb_u64(slot, tcb::kResume))));
    }
    if (address >= area->gateway.entries.link) {
      return locate_request(entry_at(area->gateway.entries, address), argument_of(slot), slot);
    }
    return locate_in_gateway(slot);
  }
  if (area->is_among_asks(address)) {
    const Ask* ask = region_.ask_at(address, CacheAddr(regs.rcx));
    return ask == nullptr ? Position{} : locate_request(ask->request, ask->argument, slot);
  }
  const CodeRecord* record = cache_.record_at(address);
  if (record == nullptr) return {};
  switch (record->kind) {
    case CodeRecord::Kind::kUnit:
    case CodeRecord::Kind::kUnitCold: {
      const Unit& unit = cache_.unit(record->index);
      return locate_in_unit(unit, unit.code.offset_of(address), regs, slot);
    }
    case CodeRecord::Kind::kPair: {
      const SiteState& site = cache_.sites()[record->index];
      const Pair& pair = site.pairs[record->pair];
      if (pair.stub.is_counted_at(address)) return at_start_of(pair.to);
      const BlockRef from{site.unit, site.site.block};
      return site.site.call ? behind_call() : at_end_of(from);
    }
    case CodeRecord::Kind::kIndexed: {
      const CodeCache::TailPlace place = cache_.tail_place(*record, address);
      Position p = at_start_of(place.ref);
      p.block_counted = p.block_counted || place.side == CodeCache::Side::kTail;
      return p;
    }
    case CodeRecord::Kind::kArrival: {
      const ArrivalStub& arrival = cache_.arrivals()[record->index];
      if (arrival.stub.is_counted_at(address)) return at_start_of(arrival.to);
      if (address >= arrival.sent.counted) return at_start_of(arrival.to);
      if (address >= arrival.sent.entry) return on_way_to(cache_.address_of(arrival.to));
      return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
    }
    case CodeRecord::Kind::kLinkPair: {
      const LinkPair& pair = cache_.link_pairs()[record->index];
      if (address >= pair.stub.counted) return at_start_of(pair.to);
      const BlockRef from = cache_.link_block(pair.link);
      const bool call = cache_.unit(from.unit).procedure.blocks[from.block].end == isa::Flow::kCall;
      return call ? behind_call() : at_end_along(from, cache_.link_edge(pair.link));
    }
    case CodeRecord::Kind::kDoor:
      return at_start_of(cache_.doors()[record->index].to);
    case CodeRecord::Kind::kDispatch: {
      const SiteState& site = cache_.sites()[record->index];
      const BlockRef from{site.unit, site.site.block};
      return site.site.call ? behind_call() : at_end_of(from);
    }
  }
  return {};
}

// A return that has no landing, or came to the wrong one.  Its entries are not single instructions:
// those of further areas align what they jump through.
Position Ledger::locate_in_lookup(const Area& area, const user_regs_struct& regs, uint32_t slot) {
  const CacheAddr address(regs.rip);
  const GatewayCode& gateway = area.gateway;
  const CacheAddr popped = gateway.plainly.popped;
  const CacheAddr pop = gateway.plainly.on_stack;
  const bool is_first = &area == &region_.areas().front();
  const CacheAddr entries_end = is_first ? popped : gateway.end;
  const bool on_stack = (address >= gateway.entries.ret_pop && address < entries_end) ||
                        address == pop || address == gateway.found_return ||
                        address == gateway.on_stack_asks ||
                        (address >= gateway.on_stack_begin && address < gateway.direct_end);
  if (on_stack) return in_front_of_return(regs);
  const bool not_stored =
      (address >= gateway.entries.ret_popped && address < gateway.entries.ret_pop) ||
      address == popped || address == popped + kLoadPoppedBytes ||
      (address >= gateway.popped_begin && address < gateway.on_stack_asks);
  if (not_stored) return behind_popped_return(regs);
  const bool in_rcx =
      address == pop + 1 || (address > gateway.on_stack_asks && address < gateway.on_stack_begin);
  if (in_rcx) return behind_return(TargetAddr(regs.rcx));
  return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
}

// In front of a `ret`: as if it had happened.  On the stack lies the original address, or already
// the landing's.
Position Ledger::in_front_of_return(const user_regs_struct& regs) {
  uint64_t top = 0;
  if (!process_.read_memory(TargetAddr(regs.rsp), &top, sizeof top)) return {};
  Position p = behind_return(TargetAddr(top));
  p.stack_bytes = sizeof top;
  const CacheAddr landing(top);
  if (region_.area_at(landing) == nullptr) return p;
  const CodeRecord* record = cache_.record_at(landing);
  if (record == nullptr) return {};
  if (record->kind == CodeRecord::Kind::kArrival) {
    p.pc = cache_.address_of(cache_.arrivals()[record->index].to);
    return p;
  }
  if (!record->in_unit()) return {};
  const Unit& unit = cache_.unit(record->index);
  const uint32_t offset = unit.code.offset_of(landing);
  for (uint32_t b = 0; b < unit.code.blocks.size(); ++b) {
    if (unit.code.blocks[b].landing == offset) p.pc = unit.module->to_target(unit.address_of(b));
  }
  return p;
}

// What a return has popped still lies below the stack pointer.
Position Ledger::behind_popped_return(const user_regs_struct& regs) {
  uint64_t popped = 0;
  if (!process_.read_memory(TargetAddr(regs.rsp - 8), &popped, sizeof popped)) return {};
  return behind_return(TargetAddr(popped));
}

// A thread inside the gateway is where its request says.
Position Ledger::locate_in_gateway(uint32_t slot) {
  const auto request = static_cast<uint32_t>(tcb_u64(slot, tcb::kRequest));
  return locate_request(static_cast<Request>(request), argument_of(slot), slot);
}

uint32_t Ledger::argument_of(uint32_t slot) const {
  return static_cast<uint32_t>(tcb_u64(slot, tcb::kArgument));
}

Position Ledger::locate_request(Request request, uint32_t argument, uint32_t slot) {
  const TargetAddr target(tcb_u64(slot, tcb::kTarget));
  switch (request) {
    case Request::kAsk: {
      const CacheAddr stood(tcb_u64(slot, tcb::kAsked));
      const Ask* ask = region_.ask_at(stood, stood);
      return ask == nullptr ? Position{} : locate_request(ask->request, ask->argument, slot);
    }
    case Request::kLink: {
      const BlockRef ref = cache_.link_block(argument);
      const Unit& unit = cache_.unit(ref.unit);
      const bool call = unit.procedure.blocks[ref.block].end == isa::Flow::kCall;
      return call ? behind_call() : at_end_along(ref, cache_.link_edge(argument));
    }
    case Request::kIndirect: {
      const SiteState& site = cache_.sites()[argument];
      const BlockRef from{site.unit, site.site.block};
      return site.site.call ? behind_call() : at_end_of(from);
    }
    case Request::kReturn:
      return behind_return(target);
    case Request::kSyscall:
    case Request::kSyscallDone: {
      const BlockRef ref = cache_.syscall_block(argument);
      Position p = at_end_of(ref);
      // execve that succeeds, or a call in whose middle the thread was killed: executed.
      return p;
    }
    case Request::kEvent:
      if (argument >= CodeCache::kStaleEventBase && argument < CodeCache::kUnsupportedEventBase) {
        return at_check(argument - CodeCache::kStaleEventBase);
      }
      if (argument < CodeCache::kUnsupportedEventBase) {
        const EventState& event = cache_.event(argument);
        Position p = at_start_of({event.unit, event.block});
        p.done = event.insn;
        p.pc = insn_address(p.ref, p.done);
        const Unit& unit = cache_.unit(event.unit);
        p.block_counted = p.block_counted || unit.code.blocks[event.block].probe_insn <= event.insn;
        return p;
      } else if (argument >= CodeCache::kEdgeWaitEventBase) {
        const uint32_t edge = argument - CodeCache::kEdgeWaitEventBase;
        return at_end_of(cache_.from_of(cache_.global_edge(edge)));
      } else if (argument >= CodeCache::kWaitEventBase) {
        return at_start_of(cache_.global_block(argument - CodeCache::kWaitEventBase));
      } else {
        const BlockRef ref = cache_.global_block(argument - CodeCache::kUnsupportedEventBase);
        Position p = at_end_of(ref);
        p.done -= 1;
        return p;
      }
  }
  return {};
}

// In a stub, at the jump to the gateway: which stub's thread it is says what it asks for.
Position Ledger::locate_behind_ask(Mark::Kind kind, uint32_t slot) {
  switch (kind) {
    case Mark::Kind::kLinkStub:
      return locate_request(Request::kLink, argument_of(slot), slot);
    case Mark::Kind::kSiteMiss:
      return locate_request(Request::kIndirect, argument_of(slot), slot);
    case Mark::Kind::kSyscallStub: {
      Position p = at_end_of(cache_.syscall_block(argument_of(slot)));
      p.done -= 1;
      return p;
    }
    case Mark::Kind::kStaleStub:
    case Mark::Kind::kWait:
    case Mark::Kind::kEdgeWait:
      return locate_request(Request::kEvent, argument_of(slot), slot);
    case Mark::Kind::kEdgeStub:
      break;
  }
  return {};
}

Position Ledger::locate_in_unit(const Unit& unit, uint32_t offset, const user_regs_struct& regs,
                                uint32_t slot) {
  const UnitCode& code = unit.code;
  const TargetAddr target(tcb_u64(slot, tcb::kTarget));
  const UnitCode::Part& part = code.part_of(offset);
  if (offset >= part.stubs_begin) {
    auto it = std::upper_bound(code.marks.begin(), code.marks.end(), offset,
                               [](uint32_t o, const Mark& m) { return o < m.offset; });
    if (it == code.marks.begin()) return {};
    const Mark& mark = *(it - 1);
    if (offset >= mark.ask_offset) return locate_behind_ask(mark.kind, slot);
    switch (mark.kind) {
      case Mark::Kind::kEdgeStub: {
        const cfg::Edge& edge = unit.procedure.edges[mark.index];
        if (offset < mark.counted_offset) return at_half_probe(unit, mark.index, offset);
        if (edge.to == cfg::kExitBlock) return at_end_along({unit.id, edge.from}, mark.index);
        return at_start_of({unit.id, edge.to});
      }
      case Mark::Kind::kLinkStub: {
        const Link& link = code.links[mark.index];
        const BlockRef ref{unit.id, link.block};
        const bool call = unit.procedure.blocks[link.block].end == isa::Flow::kCall;
        return call ? behind_call() : at_end_along(ref, link.edge);
      }
      case Mark::Kind::kSiteMiss: {
        const Site& site = code.sites[mark.index];
        const BlockRef ref{unit.id, site.block};
        return site.call ? behind_call() : at_end_of(ref);
      }
      case Mark::Kind::kSyscallStub: {
        Position p = at_end_of({unit.id, code.syscalls[mark.index].block});
        p.done -= 1;
        return p;
      }
      case Mark::Kind::kStaleStub:
        return at_check(unit.first_check + mark.index);
      case Mark::Kind::kWait:
        return at_start_of({unit.id, mark.index});
      case Mark::Kind::kEdgeWait:
        return at_end_of({unit.id, unit.procedure.edges[mark.index].from});
    }
    return {};
  }
  if (offset >= part.thunks_begin) return locate_in_thunk(unit, offset);
  const std::optional<uint32_t> block = code.block_at(offset);
  return block ? locate_in_block(unit, *block, offset, regs, slot) : Position{};
}

// Until the return address is on the stack, the call has not happened.
Position Ledger::locate_in_thunk(const Unit& unit, uint32_t offset) {
  const auto& thunks = unit.code.thunks;
  const Thunk& thunk = *(std::upper_bound(thunks.begin(), thunks.end(), offset,
                                          [](uint32_t o, const Thunk& t) { return o < t.offset; }) -
                         1);
  if (offset >= thunk.pushed) return behind_call();
  Position p = at_end_of({unit.id, thunk.block});
  p.done -= 1;
  p.stack_bytes = sizeof(uint64_t);
  return p;
}

// On the way along an edge that is not yet taken: its counter may have counted it, though, while
// that of a loop knows nothing.
Position Ledger::at_half_probe(const Unit& unit, uint32_t edge, uint32_t offset) {
  Position p = at_end_of({unit.id, unit.procedure.edges[edge].from});
  for (const UnitCode::HalfProbe& half : unit.code.half_probes) {
    if (half.edge == edge && offset >= half.counted) p.counted_edge = edge;
  }
  return p;
}

// Behind a block's instructions, where the way along one of its edges may have a probe.
Position Ledger::on_inline_edge(const Unit& unit, uint32_t block, uint32_t offset) {
  const BlockCode& code = unit.code.blocks[block];
  if (code.edge_counted == 0) return at_end_of({unit.id, block});
  const uint32_t edge = code.inline_edge;
  if (offset < code.edge_counted) return at_half_probe(unit, edge, offset);
  const cfg::BlockIndex to = unit.procedure.edges[edge].to;
  return to == cfg::kExitBlock ? at_end_along({unit.id, block}, edge) : at_start_of({unit.id, to});
}

// At the jump whose field this is, or in front of it at what aligns the field: there a call's
// return address is on the stack already.
bool Ledger::is_behind_push(const Unit& unit, uint32_t offset, uint32_t field) {
  constexpr uint32_t kPaddingMax = 4;
  constexpr uint8_t kNops[] = {0x90, 0x66, 0x0f, 0x1f, 0x00};
  const uint32_t jump = field - 1;
  if (offset >= jump) return true;
  if (jump - offset > kPaddingMax) return false;
  const uint8_t* code = region_.code(unit.code.address(offset));
  return std::all_of(code, code + (jump - offset), [&](uint8_t byte) {
    return std::ranges::find(kNops, byte) != std::end(kNops);
  });
}

Position Ledger::locate_in_block(const Unit& unit, uint32_t block, uint32_t offset,
                                 const user_regs_struct& regs, uint32_t slot) {
  const BlockCode& code = unit.code.blocks[block];
  const cfg::Block& b = unit.procedure.blocks[block];
  const BlockRef ref{unit.id, block};
  if (offset < code.label) {
    if (code.return_counted < code.label && offset >= code.return_counted) return at_start_of(ref);
    if (offset < code.landing_accept && code.landing_accept != code.landing) {
      return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
    }
    return behind_return(unit.module->to_target(unit.address_of(block)));
  }
  const uint32_t* first = unit.code.insn_offset.data() + code.first_insn;
  const uint32_t* last = first + b.insn_count;
  const auto index = static_cast<uint32_t>(std::upper_bound(first, last, offset) - first);
  Position p;
  p.kind = Position::Kind::kInBlock;
  p.ref = ref;
  p.block_counted = unit.plan.block_counter[block] == kNoCounter || offset >= code.probe_counted;
  // Instructions that began at or before the offset: all but the last of them are done, and that
  // one too if the offset lies behind its copy.
  p.done = index == 0 ? 0 : index - 1;
  if (index == 0 || offset == first[index - 1]) {
    p.pc = insn_address(ref, p.done);
    return p;
  }
  const uint32_t into = offset - first[index - 1];
  const uint32_t size = unit.insn_sizes[b.first_insn + index - 1];
  const bool is_terminator = index == b.insn_count && b.end != isa::Flow::kNone;
  if (!is_terminator) {
    if (into >= size) p.done = index;
    if (p.done == b.insn_count) {
      return on_inline_edge(unit, block, offset);
    }
    p.pc = insn_address(ref, p.done);
    return p;
  }
  switch (b.end) {
    case isa::Flow::kSystemCall:
      if (offset >= behind_syscall(unit, block)) {
        return on_inline_edge(unit, block, offset);
      }
      if (is_made_again(regs) && offset + isa::kSyscallBytes == behind_syscall(unit, block)) {
        return at_end_of(ref);
      }
      break;
    case isa::Flow::kReturn:
      // Up to where it looks at the stack, rcx is spilled, perhaps the block counted, and no more.
      if (into < bytes_to_popped(code)) break;
      // The jump at the end, to ask, has what it asks for in the thread's block.
      if (code.pops_more && offset + kJumpBytes == code.end) {
        return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
      }
      // Up to a `ret` nothing has left the stack; behind it lies the way of a miss.
      if (unit.code.returns != Returns::kJump || code.pops_more) return in_front_of_return(regs);
      return behind_popped_return(regs);
    case isa::Flow::kCall: {
      if (is_behind_call(unit, block, offset)) {
        return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
      }
      for (const Link& link : unit.code.links) {
        if (link.block == block && is_behind_push(unit, offset, unit.code.offset_of(link.field))) {
          return behind_call();
        }
      }
      break;
    }
    case isa::Flow::kIndirectCall:
    case isa::Flow::kIndirectJump:
      if (is_behind_call(unit, block, offset)) {
        return behind_return(TargetAddr(tcb_u64(slot, tcb::kTarget)));
      }
      for (const Site& site : unit.code.sites) {
        if (site.block == block && is_behind_push(unit, offset, unit.code.offset_of(site.field))) {
          const TargetAddr target(tcb_u64(slot, tcb::kTarget));
          return site.call ? behind_call() : at_end_of(ref);
        }
      }
      break;
    default:
      return on_inline_edge(unit, block, offset);
  }
  p.pc = insn_address(ref, p.done);
  return p;
}

}  // namespace tally::engine

// A unit: one procedure's translation in the code cache.
//
// Problem.  The program must run elsewhere, counted, and never see that it does.
//
// Idea.  Blocks are copied in address order, or in that of the plan (an earlier run's hot paths
// then fall through); what is not control flow is copied byte for byte (a RIP-relative displacement
// is adjusted).  A conditional branch to the block that lies next is turned round.  Branches inside
// the unit go to the copies; branches out of it go to a stub that asks the monitor once and is then
// patched away.  Every address that the program can observe is the original one: a call pushes the
// original return address.
//
//   original                        copy
//   call f                          push [original return address]; jmp f'
//   ret                             mov gs:[spill], rcx; pop rcx; mov ecx, ecx
//                                   movzx ecx, word [numbers + rcx]; jmp [landings + rcx*8]
//                          or, where they pair up (`Returns`):
//   call f                          call thunk
//     thunk                         mov [rsp], original return address (two halves); jmp f'
//   ret                             mov gs:[spill], rcx; mov ecx, [rsp]
//                                   mov ecx, [numbers + rcx]; mov rcx, [landings + rcx*8]
//                                   jrcxz miss; mov [rsp], rcx; ret
//   (return address)                landing: mov rcx, gs:[spill]
//   jmp/call r/m                    mov gs:[spill], rcx; mov rcx, r/m; mov gs:[target], rcx
//                                   (push ...); jmp first pair stub of this site
//   (site, target) pair stub        is gs:[target] it? else next pair stub
//                                   mov rcx, gs:[spill]; inc counter of the pair; jmp target'
//   site with many targets          ... mov gs:[target], rcx; nop; (bits of the address to ch)
//                                   movzx ecx, ch; jmp [table of pair stubs + rcx*8]
//   jmp rax that needs no spill     mov gs:[target], rax; (bits of the address to ah)
//                                   movzx eax, ah; jmp [table of pair stubs + rax*8]
//     its pair stub                 cmp gs:[target], it; jne next; inc; mov rax, gs:[target]
//                                   (flags made again, if they are live); jmp target'
//   syscall                         look at the number's class; plain ones are executed here,
//                                   then rcx gets the original address
//
// A landing is found by a number that stands at the low 32 bits of the return address; it checks
// nothing as long as no two modules' code is alike in them.  What stands at other addresses, and
// beside the return addresses, is no number (cache/landing_numbers.h).  Landings that are seldom
// returned to have none, and are looked up by a hash of the address (cache/landings.h).
//
// A comparison is of the low 32 bits as long as no two modules' code is alike in them, and of all
// 64 otherwise (`Compare`), so no two addresses of code are ever confused.  It goes through jrcxz,
// which changes no flag.  Where the flags are live, increments go through lea, which changes none.
//
// A jump through a register needs no other register to be kept (`Unspilled`): its value is the
// target, which is known.  Where the flags can be made again (isa/flags_again.h), as they can
// behind the addition or comparison of a compiled `switch`, the comparison may be a plain one, too.
// Should control ever get to such a jump without what makes its flags, it is made one of the other
// kind.
//
// If such a jump goes through a table of the program's (isa/indexed_jump.h), its index may lead,
// too. Then each target's code does what is left of the block by itself, and compares in a
// register:
//
//   movzx edx, r15b                 movzx edx, r15b
//   movsxd rax, [rcx + rdx*4]       jmp [table + rdx*8]    (a jump to what follows, until there is
//   add rax, rcx                    movsxd ...; add ...     a table)
//   jmp rax                         mov gs:[target], rax; ... as above
//     its stub for a target         movsxd rax, [rcx + rdx*4]; add rax, rcx; cmp eax, it
//                                   jne the jump above; inc; (flags made again); jmp target'
//
// The table is a guess, and may be: who is led wrongly finds out.
//
// Where an earlier run says which jump leads to a block most, the stub for that may lie in front of
// the block and fall into it (`Front`): an interpreter then takes one jump less for each
// instruction of its program.  So may the stub of a call or jump from elsewhere in front of an
// entry.
//
// A branch through a pointer that nobody can write any more (cache/sealed_memory.h) has one target,
// and is a jump to it; what it asks with is loaded only where it asks:
//
//   jmp [rip + slot]                jmp its stub           its stub: inc gs:[counter]; jmp target'
//
// Where that is all that a block does, as in a linkage table, direct branches to it may lead to the
// stub at once.
//
// What to insert comes in as a `Plan`: counters in blocks and on edges, events at instructions.
//
// Code that may change while it runs (`EmitRequest::checked`) compares its own bytes with those it
// was translated from, at the front of every block and behind every store; where they differ, an
// event asks for a new translation.
//
// Numbers of landings are not aligned.  Where the program has alignment checks switched on, the
// monitor reads them in the thread's stead (engine/alignment.cpp).
//
// Not handled: addresses out of reach of the area (named when control gets there); a signal handler
// that interrupts a thread between such a jump and what made its flags, and changes the flags that
// it goes on with, if what is jumped to looks at them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/check.h"
#include "cfg/procedure.h"
#include "isa/assembler.h"
#include "isa/flags_again.h"
#include "isa/indexed_jump.h"
#include "translate/layout.h"

namespace tally::translate {

inline constexpr int32_t kNoCounter = -1;
// Of one that gets its number when its code is made: until then it has not counted anything.
inline constexpr int32_t kUnnumbered = -2;

// Probes of a unit.  Further kinds (witnesses, register values) become further vectors here.
struct Plan {
  std::vector<int32_t> block_counter;  // by block; kNoCounter for none, kUnnumbered
  std::vector<int32_t> edge_counter;   // by edge index; the same
  struct Event {
    uint32_t insn = 0;  // index in Procedure::insns; the event happens in front of it
    uint32_t event = 0;
  };
  std::vector<Event> events;  // sorted by insn
  // Blocks whose counter is a register of the program's (cache/inductions.h): one that the block,
  // which leads to itself, moves by a constant.  Sorted by block; no two lead to each other.
  struct Induction {
    uint32_t block = 0;
    uint32_t insn = 0;  // of the block, which moves the register
    uint8_t reg = 0;    // neither rcx nor rsp
    int64_t step = 0;   // by which; not 0
  };
  std::vector<Induction> inductions;
  const Induction* induction_of(uint32_t block) const {
    const auto it = std::ranges::lower_bound(inductions, block, {}, &Induction::block);
    return it == inductions.end() || it->block != block ? nullptr : &*it;
  }
  // Blocks as they are to lie in the code, and how many of them in the body; empty: all, by
  // address.
  std::vector<uint32_t> order;
  uint32_t in_body = 0;
  // By edge: blocks that it leads to get their code with those that it leaves
  // (cache/blocks_together.h).  Empty: those that are left out get theirs all at once.
  std::vector<bool> followed;
};

// A direct branch that leaves the unit.
struct Link {
  CacheAddr field;      // its 32-bit distance, to be patched
  CacheAddr miss_stub;  // asks the monitor
  LinkAddr target;
  uint32_t block = 0;
  uint32_t edge = 0;  // the kLeave edge, kCallLink for a call
  static constexpr uint32_t kCallLink = UINT32_MAX;
};

// A jump through a register, behind whose comparisons the flags can be made again.
struct Unspilled {
  uint8_t reg = 0;  // rax, rcx, rdx or rbx, in encoding order
  isa::FlagsAgain flags;
};

// In front of the tail of a block that jumps through a table (isa/indexed_jump.h).
struct IndexHead {
  isa::IndexedJump jump;
  CacheAddr field;  // 32-bit distance of a `jmp` to the tail, over ...
  // ... room for the dispatch: a mask and a jump through a table of 256 pointers.
  static constexpr uint32_t kRoomBytes = 12;
};

// An indirect jump or call.
struct Site {
  CacheAddr field;      // 32-bit distance of its `jmp first pair stub`
  CacheAddr miss_stub;  // asks the monitor
  uint32_t block = 0;
  bool call = false;
  uint32_t room_bytes = 0;  // behind the jump, for the dispatch of a hash table
  std::optional<Unspilled> unspilled;
  std::optional<IndexHead> head;   // only with `unspilled`
  std::optional<TargetAddr> slot;  // of the pointer, if that may last: nothing is compared then
  bool alone = false;  // only with `slot`: its block does nothing else, and counts nothing
};

struct SyscallSite {
  CacheAddr behind;  // right behind the `syscall` itself
  CacheAddr resume;  // the code behind it, with rcx = original address
  uint32_t block = 0;
};

// What an offset in the stubs of a unit belongs to, for threads that die there.
struct Mark {
  enum class Kind : uint8_t {
    kEdgeStub,
    kLinkStub,
    kSiteMiss,
    kSyscallStub,
    kStaleStub,
    kWait,
    kEdgeWait
  };
  uint32_t offset = 0;
  Kind kind = Kind::kEdgeStub;
  uint32_t index = 0;           // edge, link, site, syscall site, check, block (unit-local)
  uint32_t counted_offset = 0;  // kEdgeStub: from here on the edge is counted, and crossed
  // Others: a jump, by which other stubs may go, too; tcb::kArgument says whose thread it is.
  uint32_t ask_offset = UINT32_MAX;
};

// A place where a unit compares the bytes it was made from with what the program has there now.
struct Check {
  uint32_t block = 0;
  uint32_t insn = 0;  // block-local: the bytes of this instruction up to the block's end
};

struct BlockCode {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t label = kNone;         // where branches inside the unit enter
  uint32_t landing = kNone;       // return landing; kNone if the block is not behind a call
  uint32_t landing_accept = 0;    // behind the landing's comparison, if it has one
  uint32_t return_counted = 0;    // from here to `label` the return edge has been counted
  uint32_t probe_begin = 0;       // the block's counter
  uint32_t probe_counted = 0;     // from here on it has been incremented
  uint32_t probe_insn = 0;        // block-local instruction in front of which it sits: behind them
                                  // all, if it is part of the return
  uint32_t end = 0;               // end of the block's code
  uint32_t edge_counted = 0;      // inline counter of an edge: counted from here on (0: none)
  uint32_t inline_edge = 0;       // that edge
  uint32_t first_insn = 0;        // its first instruction's place in UnitCode::insn_offset
  bool pops_more = false;         // a return that pops more than its address
  bool counts_in_return = false;  // the return, which has spilled rcx, counts before it pops
  bool exists() const { return label != kNone; }
};

// By block.  Of a large program most blocks have no code and never get any: they take four bytes.
class BlockCodes {
 public:
  size_t size() const { return place_of_.size(); }
  void resize(size_t blocks) { place_of_.resize(blocks, kNowhere); }
  void reserve_more(size_t codes) { codes_.reserve(codes_.size() + codes); }
  const BlockCode& operator[](size_t block) const {
    static constexpr BlockCode kNone;
    const uint32_t place = place_of_[block];
    return place == kNowhere ? kNone : codes_[place];
  }
  // To be filled in.  References to others do not last.
  BlockCode& make(size_t block) {
    uint32_t& place = place_of_[block];
    if (place == kNowhere) {
      place = static_cast<uint32_t>(codes_.size());
      codes_.emplace_back();
    }
    return codes_[place];
  }
  // Those that have been made, in that order.
  std::span<const BlockCode> made() const { return codes_; }
  std::span<BlockCode> made() { return codes_; }

 private:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  std::vector<uint32_t> place_of_;
  std::vector<BlockCode> codes_;
};

// Room in front of a block, which ends where the block begins, for the stub of one indirect branch
// that leads there.
struct Front {
  static constexpr uint32_t kElsewhere = UINT32_MAX - 1;
  uint32_t block = 0;
  uint32_t from = 0;  // the block that jumps; kElsewhere: not one of the unit's
  CacheAddr entry;    // where the stub begins
  bool taken = false;
};

// Behind the blocks of a part: what a call goes through.
struct Thunk {
  uint32_t offset = 0;  // the landing's address is on the stack
  uint32_t pushed = 0;  // the original return address is
  uint32_t block = 0;
  uint32_t back = 0;  // behind the `call`
};

// Calls and returns as jumps are fewer instructions, and the processor predicts some thousand
// targets of them; as `call` and `ret` they keep its return predictor in step, whatever the size of
// the program.
enum class Returns : uint8_t {
  kJump,
  kPaired,
  kPairedLate,  // in a program that began with jumps: landings have numbers of two bytes
};

// A unit has two parts that lie apart, so that the instruction cache and the page tables see only
// what runs: the body, and behind `cold_begin` blocks that never ran, by an earlier run's counts,
// and stubs that run seldom if ever.  Each begins with blocks; behind them come the thunks of their
// calls, the stubs of their counted edges and the addresses that they push, which run as often as
// what leads to them.  Offsets below are from `begin`, those in the cold part kColdOffset more than
// from `cold_begin`.
//
// Blocks that never ran, or are unlikely to, may be left out (`EmitRequest::defer`).  For each that
// others lead to there is a place at which a thread waits until the monitor has made it, and others
// with it: a late part, like the others, which lies behind `cold_begin` too.  What leads to the
// place leads there from then on.  So are the stubs of counted edges that lead to such blocks or
// never ran.  What leaves from such blocks (links, sites, system calls) is on the lists all the
// time, behind all others and with its numbers, but without a place in the code.
inline constexpr uint32_t kColdOffset = 1u << 31;

// What is asked for at one of the places that are known by their addresses (asks::).
struct Ask {
  Request request = Request::kAsk;  // kLink or kEvent; kAsk: nothing
  uint32_t argument = 0;
};

struct UnitCode {
  CacheAddr begin;
  CacheAddr cold_begin;
  bool has_overflowed = false;  // an assembler ran out of room
  uint32_t size_bytes = 0;      // of all parts
  uint32_t body_bytes = 0;
  uint32_t cold_bytes = 0;
  struct Part {
    uint32_t thunks_begin = 0;  // behind the blocks
    uint32_t stubs_begin = 0;   // behind the thunks
  };
  Part body, cold;
  struct LatePart : Part {
    uint32_t begin = 0, end = 0;
  };
  std::vector<LatePart> late;  // sorted by offset
  // While some are left out: blocks that calls come back to, each with the edge, sorted.
  std::vector<std::pair<uint32_t, uint32_t>> return_edges;
  struct Wait {
    static constexpr uint32_t kNone = UINT32_MAX;
    CacheAddr address;           // of an ask, or of a stub where five bytes may be replaced at once
    uint32_t block = 0;          // for which it stands ...
    uint32_t edge = kNone;       // ... or for the stub of this edge, which is counted, ...
    uint32_t edge_stub = kNone;  // ... and which is here once it has been made
    bool is_ask = false;
    bool is_over = false;  // what it stands for has been made
    bool is_edge() const { return edge != kNone; }
  };
  std::vector<Wait> waits;        // if blocks have been left out
  std::vector<uint32_t> wait_of;  // by block, while some are: its wait; Wait::kNone
  struct WaitField {              // a 32-bit distance that leads to an ask
    CacheAddr field;
    uint32_t wait = 0;
  };
  std::vector<WaitField> wait_fields;
  std::vector<Ask> asks;        // by number, from that of the request's first one on
  uint32_t asks_with_code = 0;  // for which there was none
  bool is_whole = true;         // none are
  Returns returns = Returns::kPaired;
  // Null: none of them.
  const LatePart* late_part_at(uint32_t offset) const {
    const auto behind = std::ranges::upper_bound(late, offset, {}, &LatePart::begin);
    return behind == late.begin() ? nullptr : &*(behind - 1);
  }
  const Part& part_of(uint32_t offset) const {
    if (offset < kColdOffset) return body;
    const LatePart* part = late_part_at(offset);
    return part == nullptr ? cold : *part;
  }
  CacheAddr address(uint32_t offset) const {
    return offset < kColdOffset ? begin + offset : cold_begin + (offset - kColdOffset);
  }
  // Of an address in either part; the cold one is always the upper.
  uint32_t offset_of(CacheAddr address) const {
    return address >= cold_begin ? static_cast<uint32_t>(address - cold_begin) + kColdOffset
                                 : static_cast<uint32_t>(address - begin);
  }
  // Where instructions' copies begin, behind their probes: a block's from its `first_insn` on.
  std::vector<uint32_t> insn_offset;
  uint32_t offset_of_insn(uint32_t block, uint32_t insn) const {
    const size_t place = size_t{blocks[block].first_insn} + insn;
    CHECK(place < insn_offset.size()) << "where instruction " << insn << " of block " << block;
    return insn_offset[place];
  }
  BlockCodes blocks;
  std::vector<Front> fronts;  // as they lie in the body
  // Blocks as they lie in the body, the cold part, the late ones; empty: all, by address.
  std::vector<uint32_t> order;
  // Whose code an offset among the blocks belongs to.
  std::optional<uint32_t> block_at(uint32_t offset) const;
  std::vector<Thunk> thunks;  // sorted by offset
  std::vector<Mark> marks;    // of stubs, sorted by offset
  std::vector<Link> links;
  std::vector<Site> sites;
  std::vector<SyscallSite> syscalls;
  struct {  // the first of each that leaves a block that was left out at first
    uint32_t link = 0, site = 0, syscall = 0;
  } left_out;
  // Of the jump that ends a block; null if it keeps a register, or is none.
  const Unspilled* unspilled_at(uint32_t block) const {
    for (const Site& site : sites) {
      if (site.block == block) return site.unspilled ? &*site.unspilled : nullptr;
    }
    return nullptr;
  }
  // Edges that have a counter and cross a loop's border: from where on they are counted only.
  struct HalfProbe {
    uint32_t edge = 0;
    uint32_t counted = 0;
  };
  std::vector<HalfProbe> half_probes;
  std::vector<Check> checks;
  struct EventResume {
    uint32_t event = 0;
    CacheAddr resume;  // behind the probe
  };
  std::vector<EventResume> events;
  // Nobody runs there any more, and nobody has begun in the middle of a block.
  void forget_blocks() {
    const size_t all = blocks.size();
    blocks = BlockCodes();
    blocks.resize(all);
  }
  // Nobody runs there any more: what only tells where in the code somebody is.
  void forget_places() {
    std::vector<uint32_t>().swap(insn_offset);
    std::vector<uint32_t>().swap(order);
    std::vector<uint32_t>().swap(wait_of);
    std::vector<Wait>().swap(waits);
    std::vector<WaitField>().swap(wait_fields);
    std::vector<Thunk>().swap(thunks);
    std::vector<Mark>().swap(marks);
    std::vector<std::pair<uint32_t, uint32_t>>().swap(return_edges);
  }
};

// Addresses that generated code refers to.
struct Gateways {
  CacheAddr link, indirect, ret, syscall, event;  // entries of the gateway of this area
  // An indirect jump or call to a target that its site has not seen: noted, or asked for.
  CacheAddr visit, visit_by_call;
  CacheAddr lookup;      // a return without a number, or to another's landing: looks it up
  CacheAddr ret_pop;     // a return without a number, its address still on the stack
  CacheAddr ret_popped;  // the same, its address popped
  // Where numbers without a landing lead, if returns are jumps: `ret_popped` of the first area.
  // In the other form they lead to 0.
  CacheAddr no_landing;
  CacheAddr ask;  // whoever stood at an ask
};

// How much of an address tells it from all others.
enum class Compare : uint8_t { kLow32, kAll64 };

struct EmitRequest {
  const cfg::Procedure* procedure = nullptr;
  const Plan* plan = nullptr;
  const cfg::CodeView* view = nullptr;
  uint64_t bias = 0;         // target address = link address + bias
  uint32_t tables_base = 0;  // address of the tables in the target
  Gateways gateways;
  Compare compare = Compare::kAll64;
  Returns returns = Returns::kPaired;
  bool unspilled = true;  // jumps keep no register where none need be kept
  bool by_index = true;   // and may be led by the program's own index
  // Whether the pointer in a slot at a fixed address may be there to last; none: no pointer is.
  std::function<bool(TargetAddr slot)> may_last;
  bool near_jumps = true;          // jumps inside the unit take two bytes where that suffices
  uint8_t flags_assumed_live = 0;  // flags that counters keep even where they are known to be dead
  // Gives the counter of a block, or of an edge, its number, in the plan; only if some have none.
  enum class Counts : uint8_t { kBlock, kEdge };
  std::function<void(Counts what, uint32_t index)> give_number;
  uint32_t first_link = 0;  // global numbers of the unit's first link, site, syscall site and
  uint32_t first_site = 0;  // of the event raised at an unsupported instruction or trap
  uint32_t first_syscall = 0;
  uint32_t first_block_event = 0;  // event number = first_block_event + block
  // Number that threads write to their block (tcb::kWhere) on every way into the unit, in front of
  // its counters; 0: they do not.
  uint32_t where = 0;
  // The code may change while it runs: every block compares its bytes before it runs (see
  // emit_check).
  bool checked = false;
  uint32_t first_check_event = 0;  // event number = first_check_event + check
  // Blocks behind those of the plan's body are left out; not with `checked` or `where`.
  bool defer = false;
  uint32_t first_wait_event = 0;  // event number = first_wait_event + block
  // Then also the stubs of these edges; by edge, may be empty.
  std::span<const uint8_t> idle_edges;
  uint32_t first_edge_wait_event = 0;  // event number = first_edge_wait_event + edge
  // By block: that whose indirect branch leads there most, and for whose stub there is to be room
  // in front (`Front::from`); kNotLed: none.  May be empty.  Not with `checked` or `where`.
  static constexpr uint32_t kNotLed = UINT32_MAX;
  std::span<const uint32_t> led_from;
  uint32_t indexed_above = 0;  // more targets than these, and the program's index leads
  // Numbers of asks that the unit may have, and the beginning of the area that they are in.
  CacheAddr area;
  uint32_t first_ask = 0, asks_end = 0;
};

// Emits the unit; `code.has_overflowed` where there is not enough room.
UnitCode emit_unit(isa::Assembler& hot, isa::Assembler& cold, const EmitRequest& request);

// Emits some of the blocks that were left out, of which the procedure must have the instructions,
// and the stubs of edges that wait and lead to blocks that have code by then.  What calls among
// them come back to must be among them, or have code.  `cold` must be in the area of the unit's
// cold part, behind all of the unit, and have room for late_bound_bytes.  What waits for them is
// the caller's to lead there.
void emit_late(isa::Assembler& cold, const EmitRequest& request, std::span<const uint32_t> blocks,
               UnitCode& code);

// Upper bounds of the bytes that the two need.
size_t emit_bound_bytes(const cfg::Procedure& procedure);
size_t late_bound_bytes(const cfg::Procedure& procedure, std::span<const uint32_t> blocks,
                        const UnitCode& code);

// ---- pieces shared by units and the lookup chains ----------------------------------------------

// Increments a counter; one instruction where the flags allow it.  Returns the offset from which
// on the counter has been incremented.  No code for `kCountNothing`.
inline constexpr uint32_t kCountNothing = UINT32_MAX;
uint32_t emit_counter(isa::Assembler& as, uint32_t counter, uint8_t flags_live);
// The same where rcx has been spilled: it is another afterwards, and no flag is.  Always code.
uint32_t emit_counter_through_rcx(isa::Assembler& as, uint32_t counter);
// The same where rcx is to be loaded from the thread's block, which then has no other to spill it.
uint32_t emit_counter_and_rcx(isa::Assembler& as, uint32_t counter, uint8_t flags_live);

// What a register has when control enters a loop is taken from a counter, what it has when control
// leaves is added to it (Plan::Induction): the offset from which on that is done.
enum class Crossing : uint8_t { kEnters, kLeaves };
uint32_t emit_crossing(isa::Assembler& as, Crossing crossing, uint32_t counter, uint8_t reg,
                       uint8_t flags_live);

// Compares where control wants to go (gs:[target]) with an original address; falls through when
// equal, else jumps to a field (offset returned, 0 if unused) that the caller points somewhere.
// Changes rcx and no flag: the address may belong to a stub farther down the chain, or to a target
// never seen before, and that one may look at the flags.
struct Verify {
  uint32_t mismatch_fields[2] = {0, 0};
};
Verify emit_verify(isa::Assembler& as, uint64_t original, Compare compare);
// Of its first instruction, which whoever comes with the address in rcx may leave out, where the
// low half alone is compared.
inline constexpr uint32_t kLoadTargetBytes = 8;
void point_mismatch(isa::Assembler& as, const Verify& verify, uint64_t target);

// A stub that is the only way from a site (or from anywhere, for returns) to a target: verify,
// count, go.
struct Stub {
  CacheAddr entry;     // compares
  CacheAddr accept;    // behind the comparison; rcx, or what was compared, is reloaded here
  CacheAddr counted;   // from here on the counter has been incremented
  CacheAddr mismatch;  // from here on: what goes on to the next stub of the chain, if that is apart
  CacheAddr mismatch_field;  // 32-bit distance to it
  CacheAddr end;
  // Nothing but the target follows up to there (`Front`).
  void extend_to(CacheAddr target) { mismatch = end = target; }
  // The counter has been incremented for a thread that is about to execute what is there.
  bool is_counted_at(CacheAddr address) const { return address >= counted && address < mismatch; }
};
// `where` (0: none): what the thread writes to tcb::kWhere, in front of the counter or behind it.
struct Whereabouts {
  uint32_t where = 0;
  bool behind_counter = false;
};
// How a stub ends: in a jump to its target, or right in front of it (`Front`).
enum class Ends : uint8_t { kJumps, kFalls };
Stub emit_stub(isa::Assembler& as, uint64_t original, uint32_t counter, uint8_t flags_live,
               CacheAddr target, CacheAddr miss, Compare compare, Whereabouts at = {},
               Ends ends = Ends::kJumps);
// The same for a site that keeps no register.  Without live flags they are left as they come.
Stub emit_unspilled_stub(isa::Assembler& as, uint64_t original, uint32_t counter,
                         uint8_t flags_live, CacheAddr target, CacheAddr miss,
                         const Unspilled& jump, Whereabouts at = {}, Ends ends = Ends::kJumps);
// For a pointer that lasts: nothing is compared, and nothing kept.  Who has asked has kept rcx.
Stub emit_sealed_stub(isa::Assembler& as, uint32_t counter, uint8_t flags_live, CacheAddr target,
                      CacheAddr miss, Whereabouts at = {}, Ends ends = Ends::kJumps);
// Keeps rcx, and notes where the pointer in a slot leads: what the others do in front of the jump.
void emit_load_slot(isa::Assembler& as, TargetAddr slot);
// The way from an `IndexHead` to one target: the block's tail, and a comparison of where it leads.
struct IndexedStub {
  CacheAddr entry;     // the tail's copy
  CacheAddr compares;  // behind the tail
  CacheAddr counted;   // from here on the pair's counter has been incremented
  CacheAddr end;
  // Back to the jump, which asks who knows; behind the other way, or somewhere else.
  CacheAddr mismatch, mismatch_end;
  void extend_to(CacheAddr target) { end = target; }
  bool is_counted_at(CacheAddr address) const { return address >= counted && address < end; }
  bool is_mismatch(CacheAddr address) const {
    return address >= mismatch && address < mismatch_end;
  }
};
// `site_jump`: the copy of the jump in the unit.
IndexedStub emit_indexed_stub(isa::Assembler& as, std::span<const uint8_t> tail, uint64_t original,
                              uint32_t counter, uint8_t flags_live, CacheAddr target,
                              CacheAddr site_jump, const Unspilled& jump);
// The same in front of the target.  `mismatch`: what emit_index_mismatch has made.
IndexedStub emit_indexed_front(isa::Assembler& as, std::span<const uint8_t> tail, uint64_t original,
                               uint32_t counter, uint8_t flags_live, CacheRange mismatch,
                               const Unspilled& jump);
CacheRange emit_index_mismatch(isa::Assembler& as, CacheAddr site_jump, const Unspilled& jump);
// For indexes without a target, where the head has masked one: the tail's first instruction, then
// `behind_it`.
IndexedStub emit_index_fallback(isa::Assembler& as, std::span<const uint8_t> first,
                                CacheAddr behind_it);
// Into the room of a head.
void emit_index_dispatch(isa::Assembler& as, const isa::IndexedJump& jump, uint32_t table_address);

// Gives the register, and the flags if they matter, what they had in front of the jump.
enum class FlagsMatter : uint8_t { kNo, kYes };
void emit_again(isa::Assembler& as, const Unspilled& jump, FlagsMatter flags);

// A counted way to a block, for threads whose registers are the program's: from a direct branch
// that may have to be taken back or leads into the middle of a procedure, or from the monitor.
struct LinkStub {
  CacheAddr entry;
  CacheAddr counted;  // from here on the counter has been incremented
  CacheAddr end;
};
LinkStub emit_link_stub(isa::Assembler& as, uint32_t counter, uint8_t flags_live, CacheAddr target,
                        Whereabouts at = {});

// The code that talks to the monitor.  Each area has entries of its own, within reach of its code;
// the talking itself, and every system call, is done by the first area's, so that a filter of
// system calls (engine/seccomp.h) need not know the areas to come.
struct GatewayCode {
  CacheAddr saved;     // from here up to the entries, a thread's registers are in its block
  CacheAddr posted;    // ... and its request is the one that it has asked with
  CacheAddr answered;  // from `posted` up to here it waits
  Gateways entries;
  CacheAddr syscall_insn;     // the `syscall` executed for the program; a thread born here resumes
  CacheAddr monitor_syscall;  // the one for calls that the monitor makes in the target's name
  CacheAddr wake_syscall, wait_syscall;  // those of the mailbox
  CacheAddr noted;  // from here up to the entry behind it, a visit is noted; it goes on at kResume
  CacheAddr found_return;  // the `ret` of a return that has looked its landing up
  // Where such returns go on that are found in no table by the low bits of their address, and in
  // each of these tables (tables::kDirectSizes).
  struct Finding {
    CacheAddr popped, on_stack;
  };
  Finding plainly;
  std::array<Finding, std::size(tables::kDirectSizes)> directly;
  // All of the latter: what comes with its address popped, then what has it on the stack, up to
  // what pops it to ask.
  CacheAddr popped_begin, on_stack_asks, on_stack_begin, direct_end;
  CacheAddr begin, end;
};
// `first`: of the first area; null for that one itself.
GatewayCode emit_gateway(isa::Assembler& as, uint32_t tables_base,
                         const GatewayCode* first = nullptr);

// A page of asks, wherever it is mapped.
void emit_asks(isa::Assembler& as, uint32_t tables_base);

// Dispatch code of a hash table for a site with many targets.
enum class HashKind : uint8_t { kBits8to15, kBits5to12, kBits4to11, kBits0to7 };
uint8_t hash_of(HashKind kind, uint64_t original);
// `reg` holds the original target: rcx, or what is jumped through (`Unspilled`).  Changes no flag.
inline constexpr unsigned kDispatchRegister = 1;
CacheAddr emit_hash_dispatch(isa::Assembler& as, HashKind kind, uint32_t table_address,
                             unsigned reg = kDispatchRegister);
// Bytes of the longest dispatch but that of kBits0to7.
inline constexpr uint32_t kInlineDispatchBytes = 20;

}  // namespace tally::translate

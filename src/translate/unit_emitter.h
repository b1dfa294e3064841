// The emitter behind emit_unit and emit_late: what its two halves share.
//
// emit_unit.cpp writes blocks and the instructions that end them, of these emit_jumps.cpp the
// direct jumps; emit_fronts.cpp leaves room in front of blocks; emit_stubs.cpp what lies behind
// them: thunks of calls, stubs, addresses that calls push, and what stands for blocks that were
// left out.  See unit.h for what the code looks like and why.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::translate {

using cfg::BlockIndex;
using cfg::Edge;
using cfg::EdgeKind;
using isa::Assembler;
using isa::Flow;
using isa::Insn;

// Of one unit, and used once: emit() or emit_late().
class UnitEmitter {
 public:
  // `far`: blocks whose jumps ahead are known to lead too far for a distance of one byte.
  UnitEmitter(Assembler& hot, Assembler& cold, const EmitRequest& request,
              const std::vector<BlockIndex>& far = {})
      : hot_(hot),
        cold_(cold),
        as_(&hot),
        request_(request),
        procedure_(*request.procedure),
        plan_(*request.plan),
        bytes_(request.view->code_at(request.procedure->range.begin)),
        far_(far) {}

  UnitCode emit();
  // Whose jumps have led too far after all.  If there are any, the code is not to be used.
  const std::vector<BlockIndex>& too_far() const { return too_far_; }

  // Blocks that were left out of `code`, behind each other; sorted.
  void emit_late(std::span<const BlockIndex> blocks, UnitCode& code);

 private:
  struct Field {  // a 32-bit distance in one of the two parts
    Assembler* part = nullptr;
    uint32_t offset = 0;
    void point_to(uint64_t target) const { part->patch_rel32(offset, target); }
    CacheAddr address() const { return CacheAddr(part->here().value() - part->offset() + offset); }
    bool may_be_patched() const { return Assembler::may_be_patched(address().value()); }
  };
  enum class Into : uint8_t { kLabel, kLanding };
  struct Fixup {  // a distance inside the unit, patched at the end
    Field field;
    BlockIndex block;
    Into into = Into::kLabel;
  };
  struct NearFixup {  // the same, of one byte, from a block to one that lies ahead
    uint32_t offset = 0;
    BlockIndex from, to;
  };
  struct PendingThunk {
    Field field;  // of the `call`
    BlockIndex block;
    uint32_t back;
  };
  struct TakenEdge {  // a counted one that jumps
    Field field;
    uint32_t edge;
  };
  struct ColdLink {  // the stub behind an unresolved link
    Field field;
    uint32_t link;
  };
  struct ColdSite {  // the stub behind an indirect branch or a system call
    Field field;
    uint32_t index;
  };
  struct ColdCheck {  // the stub behind a comparison with changed code
    std::vector<Field> fields;
    uint32_t check = 0;
  };
  struct PoolEntry {
    Field field;
    uint64_t value;
  };

  // Blocks of one part, and what belongs to them.
  void emit_part(BlockIndex begin, BlockIndex end, UnitCode::Part& part) {
    for (BlockIndex i = begin; i < end; ++i) {
      next_ = i + 1 < end ? in_order(i + 1) : cfg::kExitBlock;
      emit_block(in_order(i));
    }
    finish_part(part);
  }

  void finish_part(UnitCode::Part& part);

  // ---- blocks without code -----------------------------------------------------------------

  // They keep the numbers of what leaves from them: emit_late finds these by block and edge.
  void leave_out(BlockIndex begin, BlockIndex end);
  void list_ways_out(BlockIndex b);

  bool leaves_out(const Edge& edge) const;

  // Stubs for blocks and for edges that have no code and are led to.
  void emit_waits();
  // The end of the stub that was marked last.
  void emit_ask(uint32_t argument, CacheAddr gateway);
  // A place that stands for a wait; `fields`: all that lead there may be patched.
  enum class Fields : uint8_t { kMayBePatched, kMayNot };
  uint32_t add_wait(UnitCode::Wait wait, uint32_t event, Fields fields);
  void lead_to_wait(const Field& field, uint32_t wait);
  // Its number is the next one; none if all are taken.
  std::optional<CacheAddr> take_ask(Request request, uint32_t argument);
  bool has_asks() const { return request_.first_ask < request_.asks_end; }
  // Whether the block will have no code.
  bool is_left_out(BlockIndex b) const {
    if (!leaves_out_ || code_.blocks[b].exists()) return false;
    return is_late_ ? !std::ranges::binary_search(late_, b) : place_[b] >= plan_.in_body;
  }
  // The edges among them, once their targets have code.
  void emit_late_edge_stubs();

  // Offsets kept in UnitCode.
  uint32_t to_unit_offset(uint32_t part_offset) const {
    return as_ == &hot_ ? part_offset - hot_base_ : part_offset - cold_base_ + kColdOffset;
  }
  uint32_t at() const { return to_unit_offset(as_->offset()); }
  // The 32-bit field just emitted.
  Field last_field() const { return {as_, as_->offset() - 4}; }
  uint64_t original(LinkAddr a) const { return a.value() + request_.bias; }

  // Of a counter whose code is about to be made, its number, which it may get now.
  int32_t number_of_block(BlockIndex b) const {
    if (plan_.block_counter[b] == kUnnumbered) {
      request_.give_number(EmitRequest::Counts::kBlock, b);
    }
    return plan_.block_counter[b];
  }
  int32_t number_of_edge(uint32_t edge) const {
    if (plan_.edge_counter[edge] == kUnnumbered) {
      request_.give_number(EmitRequest::Counts::kEdge, edge);
    }
    return plan_.edge_counter[edge];
  }
  uint32_t emit_count(int32_t counter, uint8_t flags_live) {
    return to_unit_offset(emit_counter(*as_, static_cast<uint32_t>(counter),
                                       flags_live | request_.flags_assumed_live));
  }

  // The edge that comes back from a call into each block; at most one unless code overlaps.
  void find_return_edges();
  void keep_return_edges();
  void find_places();
  BlockIndex in_order(BlockIndex i) const { return plan_.order.empty() ? i : plan_.order[i]; }
  // Whether control can fall into another block from the one that is being emitted.
  bool falls_into(BlockIndex to) const { return next_ == to && !behind_a_call(to); }
  uint32_t return_edge_of(BlockIndex b) const;
  bool behind_a_call(BlockIndex b) const { return return_edge_of(b) != BlockCode::kNone; }

  void emit_landing(BlockIndex b);

  // What is known of the indirect jump that ends a block.
  struct Jump {
    std::optional<Unspilled> unspilled;
    std::optional<IndexHead> head;
  };
  Jump jump_of(BlockIndex b) const;
  // Where its counter sits: in front of this of its instructions; UINT32_MAX if it has none.
  uint32_t probe_insn(BlockIndex b) const;
  // Room in front of a block (emit_fronts.cpp).
  void emit_front(BlockIndex b);
  bool may_have_front(BlockIndex b) const;
  uint32_t front_bytes(BlockIndex b) const;
  uint32_t front_bytes_at_most(BlockIndex b) const;
  uint32_t ways_of_jump(BlockIndex b) const;

  // Room for a dispatch, in front of the tail of a jump through a table.
  void emit_index_head();

  // The first point of the block at which `inc` may change the flags; the front if there is none.
  uint32_t counter_position(const cfg::Block& block, uint8_t& live) const;

  void emit_block(BlockIndex b);

  // Compares the bytes of a block, from one of its instructions on, with those it was made from.
  // No flag is changed: should they differ, the new code may look at the flags first of all.
  void emit_check(BlockIndex b, uint32_t insn_of_block);

  // Falls through where `size_bytes` bytes of the program's code are as they were.
  void emit_compare(uint32_t offset, uint32_t size_bytes);

  bool has_event(uint32_t insn_index) const {
    return std::ranges::binary_search(plan_.events, insn_index, {}, &Plan::Event::insn);
  }
  void emit_events(uint32_t insn_index) {
    const auto it = std::ranges::lower_bound(plan_.events, insn_index, {}, &Plan::Event::insn);
    if (it == plan_.events.end() || it->insn != insn_index) return;
    emit_event(it->event);
  }

  void emit_event(uint32_t event) {
    as_->mov_gs32_imm(tcb::kArgument, event);
    as_->jmp(request_.gateways.event.value());
    code_.events.push_back({event, as_->here()});
  }

  std::span<const uint8_t> bytes_of(const Insn& insn) const {
    return bytes_.subspan(insn.offset, insn.size);
  }

  // Bytes that are no code may decode to an operand gigabytes away.  Should control ever get there
  // after all, the event names it.
  bool out_of_reach(const Insn& insn) const;

  void copy(const Insn& insn);
  void patch_displacement(uint32_t field, uint64_t target);

  // A jump to a block of the unit, not counted.  It takes two bytes where the block lies near
  // behind or is expected to lie near ahead, and may be patched if the block is left out.
  void emit_jump_inside(std::optional<uint8_t> condition, BlockIndex from, BlockIndex to);
  bool is_near_behind(BlockIndex to) const;
  bool is_near_ahead(BlockIndex from, BlockIndex to) const;
  uint32_t expected_bytes(BlockIndex b) const;
  uint32_t edge_counters_bytes(const cfg::Block& block) const;
  void apply_near_fixups();

  // A jump along an edge whose counter, if any, has been emitted.
  void emit_jump_along(BlockIndex from, uint32_t edge_index, bool may_fall);

  // Falls into the next block, or jumps to it, counting the edge on the way.
  void emit_next(BlockIndex b, uint32_t edge_index);
  void add_link(Field field, LinkAddr target, BlockIndex block, uint32_t edge);

  // Behind the others; or where it was listed, from `listed` on, when its block was left out: these
  // are in the order that `is_before` tells.  Returns its index.
  template <class T, class IsBefore>
  static uint32_t put(const T& one, std::vector<T>& list, std::optional<size_t> listed,
                      const IsBefore& is_before) {
    if (!listed) {
      list.push_back(one);
      return static_cast<uint32_t>(list.size() - 1);
    }
    const auto first = list.begin() + static_cast<ptrdiff_t>(*listed);
    const auto at = std::partition_point(first, list.end(), is_before);
    CHECK(at != list.end() && at->block == one.block) << "not on the list of what was left out";
    *at = one;
    return static_cast<uint32_t>(at - list.begin());
  }

  // Where a 32-bit distance leads that stands for an edge.
  void emit_taken(BlockIndex b, uint32_t edge_index, Field field);
  bool is_plain_inside(uint32_t edge_index) const {
    return !has_probe(edge_index) && procedure_.edges[edge_index].to != cfg::kExitBlock;
  }
  // Whether there is anything to do on the way along it.
  bool has_probe(uint32_t edge_index) const {
    return plan_.edge_counter[edge_index] != kNoCounter || crossed_by(edge_index);
  }
  struct CrossedEdge {  // enters or leaves a loop whose counter is a register
    Crossing crossing = Crossing::kEnters;
    uint32_t counter = 0;
    uint8_t reg = 0;
  };
  std::optional<CrossedEdge> crossed_by(uint32_t edge_index) const;
  uint32_t emit_edge_probe(uint32_t edge_index);
  void emit_conditional(BlockIndex b, const Insn& insn);

  // loop, jrcxz: only 8-bit distances, so they hop over a jump to the fall-through path.
  void emit_counted_jump(BlockIndex b, const Insn& insn);
  void emit_push_return(const Insn& insn);
  void emit_call(BlockIndex b, const Insn& insn);

  // `call next`: a push and a jump.
  bool is_call_next(const cfg::Block& block) const {
    return procedure_.edges[block.first_edge].kind == EdgeKind::kJump;
  }

  // A call that pairs with a return: the landing must follow at once, where the processor expects
  // the return.
  void emit_call_through_thunk(BlockIndex b, const Insn& insn);
  void emit_thunks();

  // Goes to the callee, the return address being on the stack.
  void emit_callee(BlockIndex b, const Insn& insn);

  // The jump to a site's pair stubs.  A jump or call through a fixed pointer, as those of the
  // procedure linkage table, seldom has more than one target; others keep room for the dispatch
  // that is written behind the jump when there are many.
  void emit_site(BlockIndex b, const Insn& insn, bool call,
                 std::optional<Unspilled> unspilled = {});

  // mov rcx, r/m64 with the operand of `jmp r/m64` or `call r/m64`.
  void emit_load_target(const Insn& insn);

  bool is_alone(BlockIndex b) const;
  std::optional<TargetAddr> lasting_slot(const isa::Insn& insn) const;
  // Of a jump through rax, rcx, rdx or rbx, behind which the flags can be made again.
  // `jump` is the last of `insns`, the bytes of the block's instructions.
  std::optional<Unspilled> unspilled_jump(const Insn& jump,
                                          std::span<const std::span<const uint8_t>> insns) const;

  void emit_indirect(BlockIndex b, const Insn& insn);
  void emit_return(const Insn& insn);
  void emit_return_of_processor(uint32_t pop_bytes);

  // rcx is free here, the kernel overwrites it; it is kept for a signal's handler that looks at it.
  void emit_syscall(BlockIndex b, const Insn& insn);
  void emit_terminator(BlockIndex b, const Insn& insn);

  void mark(Mark::Kind kind, uint32_t index, uint32_t counted = 0) {
    code_.marks.push_back(Mark{at(), kind, index, counted, UINT32_MAX});
  }

  // Counted edges that jump, close to the bodies: the back edges of loops are among them.
  void emit_edge_stubs();
  uint32_t emit_edge_stub(uint32_t edge_index);  // returns where it is
  void emit_cold();
  void emit_pool();

  void apply_fixups() {
    for (const Fixup& fixup : fixups_) {
      if (code_.blocks[fixup.block].exists()) fixup.field.point_to(address_of(fixup).value());
    }
  }

  CacheAddr address_of(const Fixup& fixup) const;

  Assembler& hot_;
  Assembler& cold_;
  Assembler* as_;  // the part being written
  const EmitRequest& request_;
  const cfg::Procedure& procedure_;
  const Plan& plan_;
  std::span<const uint8_t> bytes_;  // of the procedure's range
  UnitCode code_;
  uint32_t hot_base_ = 0;
  uint32_t cold_base_ = 0;
  BlockIndex block_ = 0;               // being emitted
  BlockIndex next_ = cfg::kExitBlock;  // that will lie behind it
  Jump jump_;                          // of its end
  std::vector<uint32_t> place_;        // emit: by block, in the order
  std::vector<uint32_t> return_edge_;  // by block: by which a call comes back to it, or kNone
  bool is_late_ = false;
  std::span<const BlockIndex> late_;  // emit_late: what is to be emitted
  std::vector<BlockIndex> far_, too_far_;
  std::vector<NearFixup> near_fixups_;
  std::vector<Fixup> fixups_;
  std::vector<TakenEdge> taken_edges_;
  std::vector<ColdLink> cold_links_;
  std::vector<ColdCheck> cold_checks_;
  std::vector<PoolEntry> pool_;
  bool leaves_out_ = false;
  std::vector<TakenEdge> idle_edges_;  // whose stubs are left out
  std::vector<ColdSite> site_fields_;
  std::vector<ColdSite> syscall_fields_;
  struct {  // emit_late: where those begin that have places on the lists
    std::optional<size_t> link, site, syscall;
  } listed_;
  std::vector<PendingThunk> thunks_;
  struct {
    const Assembler* part = nullptr;
    CacheAddr gateway;
    uint64_t jump = 0;  // to it, in a stub
  } last_ask_;
};

}  // namespace tally::translate

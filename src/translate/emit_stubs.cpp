// Emission of one unit: what lies behind its blocks, and in place of those that are left out.  See
// unit.h.
#include "translate/unit_emitter.h"

namespace tally::translate {

void UnitEmitter::emit_late(std::span<const BlockIndex> blocks, UnitCode& code) {
  code_ = std::move(code);
  as_ = &cold_;
  cold_base_ = cold_.offset() - static_cast<uint32_t>(cold_.here() - code_.cold_begin);
  is_late_ = true;
  late_ = blocks;
  listed_ = {code_.left_out.link, code_.left_out.site, code_.left_out.syscall};
  code_.order.insert(code_.order.end(), blocks.begin(), blocks.end());
  leaves_out_ = code_.order.size() < code_.blocks.size();
  UnitCode::LatePart part;
  part.begin = at();
  for (size_t i = 0; i < blocks.size(); ++i) {
    next_ = i + 1 < blocks.size() ? blocks[i + 1] : cfg::kExitBlock;
    emit_block(blocks[i]);
  }
  finish_part(part);
  emit_cold();
  emit_waits();
  apply_fixups();
  CHECK(!cold_.overflowed()) << "a late part of a unit is longer than its bound";
  part.end = at();
  code_.late.push_back(part);
  code_.size_bytes += part.end - part.begin;
  code_.is_whole = !leaves_out_;
  if (code_.is_whole) {
    std::vector<uint32_t>().swap(code_.wait_of);
    std::vector<std::pair<uint32_t, uint32_t>>().swap(code_.return_edges);
  }
  code = std::move(code_);
}

void UnitEmitter::leave_out(BlockIndex begin, BlockIndex end) {
  code_.is_whole = false;
  keep_return_edges();
  code_.order.resize(begin);
  code_.wait_of.assign(code_.blocks.size(), UnitCode::Wait::kNone);
  code_.left_out.link = static_cast<uint32_t>(code_.links.size());
  code_.left_out.site = static_cast<uint32_t>(code_.sites.size());
  code_.left_out.syscall = static_cast<uint32_t>(code_.syscalls.size());
  std::vector<BlockIndex> left(plan_.order.begin() + begin, plan_.order.begin() + end);
  std::ranges::sort(left);
  for (const BlockIndex b : left) list_ways_out(b);
}

void UnitEmitter::list_ways_out(BlockIndex b) {
  const cfg::Block& block = procedure_.blocks[b];
  for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
    const Edge& edge = procedure_.edges[e];
    if (edge.kind == EdgeKind::kLeave) {
      code_.links.push_back(Link{CacheAddr(), CacheAddr(), edge.target, b, e});
    }
  }
  const Insn& last = procedure_.insns[block.first_insn + block.insn_count - 1];
  if (block.end == Flow::kCall && !is_call_next(block)) {
    code_.links.push_back(
        Link{CacheAddr(), CacheAddr(), LinkAddr(last.target), b, Link::kCallLink});
  } else if (block.end == Flow::kIndirectCall || block.end == Flow::kIndirectJump) {
    Site site;
    site.block = b;
    site.call = block.end == Flow::kIndirectCall;
    code_.sites.push_back(site);
  } else if (block.end == Flow::kSystemCall) {
    code_.syscalls.push_back(SyscallSite{CacheAddr(), CacheAddr(), b});
  }
}

// A counter that never counts is mostly on an edge that never ran.
bool UnitEmitter::leaves_out(const Edge& edge) const {
  if (!leaves_out_ || edge.to == cfg::kExitBlock) return false;
  const auto index = static_cast<size_t>(&edge - procedure_.edges.data());
  const bool is_idle = !request_.idle_edges.empty() && request_.idle_edges[index] != 0;
  return is_idle || is_left_out(edge.to);
}

std::optional<CacheAddr> UnitEmitter::take_ask(Request request, uint32_t argument) {
  const auto number = static_cast<uint32_t>(request_.first_ask + code_.asks.size());
  if (number >= request_.asks_end) return std::nullopt;
  code_.asks.push_back({request, argument});
  return request_.area + asks::offset_of(number);
}

uint32_t UnitEmitter::add_wait(UnitCode::Wait wait, uint32_t event, Fields fields) {
  std::optional<CacheAddr> ask;
  if (fields == Fields::kMayBePatched) ask = take_ask(Request::kEvent, event);
  wait.is_ask = ask.has_value();
  if (!ask) {
    ++code_.asks_with_code;
    as_->align_patch_jmp();
    if (wait.is_edge()) {
      mark(Mark::Kind::kEdgeWait, wait.edge);
    } else {
      mark(Mark::Kind::kWait, wait.block);
    }
    ask = as_->here();
    emit_ask(event, request_.gateways.event);
  }
  wait.address = *ask;
  code_.waits.push_back(wait);
  return static_cast<uint32_t>(code_.waits.size() - 1);
}

void UnitEmitter::lead_to_wait(const Field& field, uint32_t wait) {
  field.point_to(code_.waits[wait].address.value());
  if (code_.waits[wait].is_ask) code_.wait_fields.push_back({field.address(), wait});
}

// Of stubs that ask one behind the other, most go by the jump of one in front of them.
void UnitEmitter::emit_ask(uint32_t argument, CacheAddr gateway) {
  constexpr uint64_t kShortJumpBytes = 2, kShortDistanceMax = 128;
  as_->mov_gs32_imm(tcb::kArgument, argument);
  code_.marks.back().ask_offset = at();
  const uint64_t behind = as_->here().value() + kShortJumpBytes;
  if (last_ask_.gateway == gateway && last_ask_.part == as_ &&
      behind - last_ask_.jump <= kShortDistanceMax) {
    as_->u8(0xeb);
    as_->u8(static_cast<uint8_t>(last_ask_.jump - behind));
    return;
  }
  last_ask_ = {as_, gateway, as_->here().value()};
  as_->jmp(gateway.value());
}

void UnitEmitter::emit_waits() {
  const auto fields = [](bool may) { return may ? Fields::kMayBePatched : Fields::kMayNot; };
  for (const TakenEdge& taken : idle_edges_) {
    UnitCode::Wait wait;
    wait.edge = taken.edge;
    const uint32_t event = request_.first_edge_wait_event + taken.edge;
    lead_to_wait(taken.field, add_wait(wait, event, fields(taken.field.may_be_patched())));
  }
  for (const Fixup& fixup : fixups_) {
    const BlockIndex b = fixup.block;
    if (code_.blocks[b].exists()) continue;
    CHECK(fixup.into == Into::kLabel) << "a call comes back to a block that was left out";
    const bool may = fixup.field.may_be_patched();
    uint32_t& waits = code_.wait_of[b];
    if (waits == UnitCode::Wait::kNone || (code_.waits[waits].is_ask && !may)) {
      UnitCode::Wait wait;
      wait.block = b;
      waits = add_wait(wait, request_.first_wait_event + b, fields(may));
    }
    lead_to_wait(fixup.field, waits);
  }
}

void UnitEmitter::emit_late_edge_stubs() {
  for (UnitCode::Wait& wait : code_.waits) {
    if (!wait.is_edge() || wait.edge_stub != UnitCode::Wait::kNone) continue;
    if (!is_left_out(procedure_.edges[wait.edge].to)) wait.edge_stub = emit_edge_stub(wait.edge);
  }
}

void UnitEmitter::emit_thunks() {
  for (const PendingThunk& pending : thunks_) {
    const cfg::Block& block = procedure_.blocks[pending.block];
    const Insn& insn = procedure_.insns[block.first_insn + block.insn_count - 1];
    Thunk thunk;
    thunk.block = pending.block;
    thunk.back = pending.back;
    thunk.offset = at();
    pending.field.point_to(as_->here().value());
    const uint64_t back = original(procedure_.range.begin + insn.offset + insn.size);
    if (back < (1ull << 31)) {
      as_->mov_top_imm(static_cast<uint32_t>(back));
    } else {
      as_->mov_top_imm64(back);
    }
    thunk.pushed = at();
    emit_callee(pending.block, insn);
    code_.thunks.push_back(thunk);
  }
  thunks_.clear();
}

uint32_t UnitEmitter::emit_edge_stub(uint32_t edge_index) {
  const Edge& edge = procedure_.edges[edge_index];
  const uint32_t begin = at();
  mark(Mark::Kind::kEdgeStub, edge_index);
  const size_t own_mark = code_.marks.size() - 1;
  code_.marks[own_mark].counted_offset = emit_edge_probe(edge_index);
  emit_jump_along(edge.from, edge_index, false);
  return begin;
}

void UnitEmitter::emit_edge_stubs() {
  for (const TakenEdge& taken : taken_edges_) {
    if (leaves_out(procedure_.edges[taken.edge])) {
      idle_edges_.push_back(taken);
      continue;
    }
    taken.field.point_to(as_->here().value());
    emit_edge_stub(taken.edge);
  }
  taken_edges_.clear();
}

void UnitEmitter::emit_cold() {
  for (size_t i = 0; i < cold_links_.size(); ++i) {
    const uint32_t argument = request_.first_link + cold_links_[i].link;
    std::optional<CacheAddr> ask = take_ask(Request::kLink, argument);
    if (!ask) {
      ++code_.asks_with_code;
      mark(Mark::Kind::kLinkStub, cold_links_[i].link);
      ask = as_->here();
      emit_ask(argument, request_.gateways.link);
    }
    cold_links_[i].field.point_to(ask->value());
    code_.links[cold_links_[i].link].miss_stub = *ask;
  }
  for (const auto& [field, i] : site_fields_) {
    mark(Mark::Kind::kSiteMiss, i);
    field.point_to(as_->here().value());
    code_.sites[i].miss_stub = as_->here();
    if (const auto& jump = code_.sites[i].unspilled) {
      emit_again(*as_, *jump, FlagsMatter::kYes);
      as_->mov_gs_rcx(tcb::kSpillRcx);
    }
    if (const auto& slot = code_.sites[i].slot) emit_load_slot(*as_, *slot);
    const Gateways& ways = request_.gateways;
    emit_ask(request_.first_site + i, code_.sites[i].call ? ways.visit_by_call : ways.visit);
  }
  for (const auto& [field, i] : syscall_fields_) {
    mark(Mark::Kind::kSyscallStub, i);
    field.point_to(as_->here().value());
    emit_ask(request_.first_syscall + i, request_.gateways.syscall);
  }
  for (const ColdCheck& cold : cold_checks_) {
    mark(Mark::Kind::kStaleStub, cold.check);
    for (const Field& field : cold.fields) field.point_to(as_->here().value());
    as_->mov_rcx_gs(tcb::kSpillProbe);
    emit_ask(request_.first_check_event + cold.check, request_.gateways.event);
  }
}

void UnitEmitter::emit_pool() {
  if (pool_.empty()) return;
  as_->nops(static_cast<unsigned>((8 - (as_->here().value() & 7)) & 7));
  for (const PoolEntry& entry : pool_) {
    entry.field.point_to(as_->here().value());
    as_->u64(entry.value);
  }
  pool_.clear();
}

CacheAddr UnitEmitter::address_of(const Fixup& fixup) const {
  const BlockCode& block = code_.blocks[fixup.block];
  return code_.address(fixup.into == Into::kLabel ? block.label : block.landing);
}

}  // namespace tally::translate

// Emission of one unit: its blocks, and the instructions that end them.  See unit.h.
#include "translate/unit_emitter.h"

namespace tally::translate {

UnitCode UnitEmitter::emit() {
  code_.returns = request_.returns;
  code_.begin = hot_.here();
  code_.cold_begin = cold_.here();
  hot_base_ = hot_.offset();
  cold_base_ = cold_.offset();
  code_.blocks.resize(procedure_.blocks.size());
  find_return_edges();
  find_places();
  const auto count = static_cast<BlockIndex>(procedure_.blocks.size());
  const BlockIndex in_body = plan_.order.empty() ? count : plan_.in_body;
  code_.order = plan_.order;
  leaves_out_ = request_.defer && in_body < count;
  code_.blocks.reserve_more(leaves_out_ ? in_body : count);
  emit_part(0, in_body, code_.body);
  code_.body_bytes = at();
  as_ = &cold_;
  if (leaves_out_) leave_out(in_body, count);
  emit_part(in_body, code_.is_whole ? count : in_body, code_.cold);
  emit_cold();
  if (!code_.is_whole) emit_waits();
  apply_fixups();
  apply_near_fixups();
  code_.cold_bytes = cold_.offset() - cold_base_;
  code_.has_overflowed = hot_.overflowed() || cold_.overflowed();
  code_.size_bytes = code_.body_bytes + code_.cold_bytes;
  return std::move(code_);
}

void UnitEmitter::finish_part(UnitCode::Part& part) {
  part.thunks_begin = at();
  emit_thunks();
  part.stubs_begin = at();
  emit_edge_stubs();
  emit_late_edge_stubs();
  emit_pool();
}

void UnitEmitter::find_return_edges() {
  return_edge_.assign(procedure_.blocks.size(), BlockCode::kNone);
  for (uint32_t e = 0; e < procedure_.edges.size(); ++e) {
    const Edge& edge = procedure_.edges[e];
    if (edge.kind == EdgeKind::kCallReturn) return_edge_[edge.to] = e;
  }
}

// As late parts find them.
void UnitEmitter::keep_return_edges() {
  const auto count =
      std::ranges::count_if(return_edge_, [](uint32_t edge) { return edge != BlockCode::kNone; });
  code_.return_edges.reserve(static_cast<size_t>(count));
  for (BlockIndex b = 0; b < return_edge_.size(); ++b) {
    if (return_edge_[b] != BlockCode::kNone) code_.return_edges.emplace_back(b, return_edge_[b]);
  }
}

uint32_t UnitEmitter::return_edge_of(BlockIndex b) const {
  if (!is_late_) return return_edge_[b];
  const auto found = std::ranges::lower_bound(code_.return_edges, std::pair(b, 0u));
  const bool is_there = found != code_.return_edges.end() && found->first == b;
  return is_there ? found->second : BlockCode::kNone;
}

void UnitEmitter::find_places() {
  place_.resize(procedure_.blocks.size());
  for (BlockIndex i = 0; i < place_.size(); ++i) place_[in_order(i)] = i;
}

void UnitEmitter::emit_landing(BlockIndex b) {
  BlockCode& code = code_.blocks.make(b);
  const cfg::Block& block = procedure_.blocks[b];
  code.landing = at();
  if (request_.compare == Compare::kAll64) {
    const Verify verify =
        emit_verify(*as_, original(procedure_.address_of(block)), request_.compare);
    point_mismatch(*as_, verify, request_.gateways.lookup.value());
  }
  code.landing_accept = at();
  if (request_.where != 0) as_->mov_gs32_imm(tcb::kWhere, request_.where);
  const int32_t counter = number_of_edge(return_edge_of(b));
  const auto live = static_cast<uint8_t>(block.flags_live_in | request_.flags_assumed_live);
  const uint32_t counted = emit_counter_and_rcx(
      *as_, counter == kNoCounter ? kCountNothing : static_cast<uint32_t>(counter), live);
  code.return_counted = to_unit_offset(counted);
}

uint32_t UnitEmitter::counter_position(const cfg::Block& block, uint8_t& live) const {
  const std::optional<uint32_t> dead = procedure_.insn_with_dead(isa::flag::kChangedByInc, block);
  live = dead ? 0 : isa::flag::kAll;
  return dead.value_or(0);
}

void UnitEmitter::emit_block(BlockIndex b) {
  block_ = b;
  const cfg::Block& block = procedure_.blocks[b];
  BlockCode& code = code_.blocks.make(b);
  emit_front(b);
  if (behind_a_call(b)) emit_landing(b);
  code.label = at();
  if (request_.where != 0 && b == procedure_.entry_block) {
    as_->mov_gs32_imm(tcb::kWhere, request_.where);
  }
  if (request_.checked) emit_check(b, 0);
  const int32_t counter = number_of_block(b);
  const Plan::Induction* induction = plan_.induction_of(b);
  uint8_t live = 0;
  code.probe_insn = counter == kNoCounter ? UINT32_MAX : counter_position(block, live);
  code.counts_in_return = live != 0 && block.end == Flow::kReturn && request_.where == 0 &&
                          request_.flags_assumed_live == 0;
  if (code.counts_in_return) code.probe_insn = block.insn_count;
  if (induction != nullptr) code.probe_insn = induction->insn + 1;
  jump_ = jump_of(b);
  code.first_insn = static_cast<uint32_t>(code_.insn_offset.size());
  for (uint32_t i = 0; i < block.insn_count; ++i) {
    const uint32_t index = block.first_insn + i;
    if (i == code.probe_insn) {
      code.probe_begin = at();
      code.probe_counted = induction != nullptr ? at() : emit_count(counter, live);
    }
    emit_events(index);
    if (jump_.head && i == jump_.head->jump.first) emit_index_head();
    code_.insn_offset.push_back(at());
    const Insn& insn = procedure_.insns[index];
    if (insn.flow == Flow::kNone) {
      copy(insn);
      if (insn.may_change_code && i + 1 < block.insn_count) emit_check(b, i + 1);
    } else {
      emit_terminator(b, insn);
    }
  }
  if (block.end == Flow::kNone) emit_next(b, block.first_edge);
  code.end = at();
}

// What each target does for itself must be the program's instructions and nothing else.
UnitEmitter::Jump UnitEmitter::jump_of(BlockIndex b) const {
  const cfg::Block& block = procedure_.blocks[b];
  Jump result;
  if (block.end != Flow::kIndirectJump) return result;
  const auto insns = procedure_.insns_of(block);
  std::vector<std::span<const uint8_t>> bytes;
  for (const Insn& insn : insns) bytes.push_back(bytes_of(insn));
  result.unspilled = unspilled_jump(insns.back(), bytes);
  if (!result.unspilled || !request_.by_index || request_.checked || request_.where != 0) {
    return result;
  }
  const auto jump = isa::indexed_jump(bytes);
  if (!jump) return result;
  constexpr uint32_t kTailBytesMax = 64;
  if (insns.back().offset - insns[jump->first].offset > kTailBytesMax) return result;
  const uint32_t probe = probe_insn(b);
  if (probe != UINT32_MAX && probe > jump->first) return result;
  for (uint32_t i = jump->first; i < block.insn_count; ++i) {
    if (has_event(block.first_insn + i)) return result;
    if (i + 1 < block.insn_count && insns[i].disp_offset != 0) return result;
  }
  result.head = IndexHead{*jump, CacheAddr()};
  return result;
}

uint32_t UnitEmitter::probe_insn(BlockIndex b) const {
  uint8_t live = 0;
  if (plan_.block_counter[b] == kNoCounter) return UINT32_MAX;
  return counter_position(procedure_.blocks[b], live);
}

void UnitEmitter::emit_index_head() {
  as_->align_patch_jmp();
  as_->jmp(as_->here().value() + isa::kJumpBytes + IndexHead::kRoomBytes);
  jump_.head->field = last_field().address();
  for (uint32_t i = 0; i < IndexHead::kRoomBytes; ++i) as_->u8(0xcc);
}

void UnitEmitter::emit_check(BlockIndex b, uint32_t insn_of_block) {
  const cfg::Block& block = procedure_.blocks[b];
  const Insn& first = procedure_.insns[block.first_insn + insn_of_block];
  const uint32_t end = block.offset + block.size_bytes;
  ColdCheck cold;
  cold.check = static_cast<uint32_t>(code_.checks.size());
  code_.checks.push_back({b, insn_of_block});
  as_->mov_gs_rcx(tcb::kSpillProbe);
  for (uint32_t from = first.offset; from < end;) {
    // Aligned loads only: programs that look for an old processor set the alignment check flag.
    const uint64_t place = original(procedure_.range.begin + from);
    const uint32_t left = end - from;
    const uint32_t size = place % 4 == 0 && left >= 4 ? 4 : place % 2 == 0 && left >= 2 ? 2 : 1;
    emit_compare(from, size);
    cold.fields.push_back(last_field());
    from += size;
  }
  as_->mov_rcx_gs(tcb::kSpillProbe);
  cold_checks_.push_back(std::move(cold));
}

void UnitEmitter::emit_compare(uint32_t offset, uint32_t size_bytes) {
  const uint64_t place = original(procedure_.range.begin + offset);
  uint32_t expected = 0;
  for (uint32_t i = size_bytes; i-- > 0;) expected = expected << 8 | bytes_[offset + i];
  if (size_bytes == 4) {
    as_->mov_ecx_at(place);
  } else if (size_bytes == 2) {
    as_->movzx_ecx_word_at(place);
  } else {
    as_->movzx_ecx_byte_at(place);
  }
  as_->lea_ecx_rcx(static_cast<int32_t>(0u - expected));
  as_->jrcxz(5);  // over the jmp
  as_->jmp(as_->here().value());
}

bool UnitEmitter::out_of_reach(const Insn& insn) const {
  if (insn.disp_offset == 0) return false;
  const auto distance = static_cast<int64_t>(insn.target + request_.bias - as_->here().value());
  constexpr int64_t kSlackBytes = 4096;
  return distance > INT32_MAX - kSlackBytes || distance < INT32_MIN + kSlackBytes;
}

void UnitEmitter::copy(const Insn& insn) {
  if (out_of_reach(insn)) return emit_event(request_.first_block_event + block_);
  const auto bytes = bytes_of(insn);
  as_->bytes(bytes.data(), bytes.size());
  if (insn.disp_offset != 0) {
    // The displacement counts from the end of the instruction, behind any immediate.
    patch_displacement(as_->offset() - insn.size + insn.disp_offset, insn.target + request_.bias);
  }
}

void UnitEmitter::patch_displacement(uint32_t field, uint64_t target) {
  const uint64_t next = as_->here().value();
  const auto distance = static_cast<int64_t>(target - next);
  CHECK(distance == static_cast<int32_t>(distance) || as_->overflowed())
      << "RIP-relative operand out of reach";
  const uint64_t field_end = as_->here().value() - as_->offset() + field + 4;
  as_->patch_rel32(field, field_end + static_cast<uint64_t>(distance));
}

void UnitEmitter::emit_push_return(const Insn& insn) {
  const uint64_t address = original(procedure_.range.begin + insn.offset + insn.size);
  if (address < (1ull << 31)) {
    as_->push_imm32(static_cast<uint32_t>(address));
    return;
  }
  as_->push_rip(as_->here().value());
  pool_.push_back({last_field(), address});
}

void UnitEmitter::emit_call(BlockIndex b, const Insn& insn) {
  const cfg::Block& block = procedure_.blocks[b];
  if (is_call_next(block)) {
    emit_push_return(insn);
    return emit_next(b, block.first_edge);
  }
  emit_call_through_thunk(b, insn);
}

void UnitEmitter::emit_call_through_thunk(BlockIndex b, const Insn& insn) {
  const auto edge = procedure_.edge_of_kind(procedure_.blocks[b], EdgeKind::kCallReturn);
  if (!edge || request_.returns == Returns::kJump) {
    emit_push_return(insn);
    return emit_callee(b, insn);
  }
  as_->call(as_->here().value());
  thunks_.push_back({last_field(), b, at()});
  const BlockIndex back = procedure_.edges[*edge].to;
  if (next_ == back) return;
  as_->jmp(as_->here().value());
  fixups_.push_back({last_field(), back, Into::kLanding});
}

void UnitEmitter::emit_callee(BlockIndex b, const Insn& insn) {
  if (insn.flow != Flow::kCall) return emit_site(b, insn, true);
  as_->align_patch(1);
  as_->jmp(as_->here().value());
  add_link(last_field(), LinkAddr(insn.target), b, Link::kCallLink);
}

void UnitEmitter::emit_site(BlockIndex b, const Insn& insn, bool call,
                            std::optional<Unspilled> unspilled) {
  as_->align_patch_jmp();
  as_->jmp(as_->here().value());
  Site site{last_field().address(),
            CacheAddr(),
            b,
            call,
            0,
            unspilled,
            unspilled ? jump_.head : std::nullopt,
            lasting_slot(insn)};
  site.alone = site.slot && !call && is_alone(b);
  const Field field = last_field();
  if (insn.disp_offset == 0) {
    site.room_bytes = kInlineDispatchBytes;
    for (uint32_t i = 0; i < site.room_bytes; ++i) as_->u8(0xcc);
  }
  const auto is_before = [&](const Site& listed) { return listed.block < b; };
  site_fields_.push_back({field, put(site, code_.sites, listed_.site, is_before)});
}

// Whether the instruction that ends a block is all that there is to it.
bool UnitEmitter::is_alone(BlockIndex b) const {
  constexpr std::array<uint8_t, 4> kEndbr64{0xf3, 0x0f, 0x1e, 0xfa};
  const cfg::Block& block = procedure_.blocks[b];
  if (plan_.block_counter[b] != kNoCounter || request_.where != 0 || request_.checked) return false;
  const auto insns = procedure_.insns_of(block);
  for (uint32_t i = 0; i < insns.size(); ++i) {
    const bool is_last = i + 1 == insns.size();
    if (has_event(block.first_insn + i)) return false;
    if (!is_last && !std::ranges::equal(bytes_of(insns[i]), kEndbr64)) return false;
  }
  return true;
}

// Where the pointer is that a branch goes through, if it may be there to last.
std::optional<TargetAddr> UnitEmitter::lasting_slot(const Insn& insn) const {
  if (!request_.may_last || insn.disp_offset == 0) return std::nullopt;
  const auto bytes = bytes_of(insn);
  for (uint32_t i = 0; i + 1 < insn.modrm_offset; ++i) {
    const bool elsewhere = bytes[i] == 0x64 || bytes[i] == 0x65 || bytes[i] == 0x67;  // fs, gs, eip
    if (elsewhere) return std::nullopt;
  }
  const TargetAddr slot(insn.target + request_.bias);
  return request_.may_last(slot) ? std::optional(slot) : std::nullopt;
}

void UnitEmitter::emit_load_target(const Insn& insn) {
  const auto bytes = bytes_of(insn);
  uint8_t rex = 0x48;
  for (uint32_t i = 0; i + 1 < insn.modrm_offset; ++i) {
    const uint8_t byte = bytes[i];
    if (byte == 0x64 || byte == 0x67) as_->u8(byte);
    const bool is_rex = (byte & 0xf0) == 0x40 && i + 2 == insn.modrm_offset;
    if (is_rex) rex = static_cast<uint8_t>(0x48 | (byte & 3));
  }
  as_->u8(rex);
  as_->u8(0x8b);
  as_->u8(static_cast<uint8_t>((bytes[insn.modrm_offset] & 0xc7) | 1 << 3));
  const uint32_t operand = as_->offset();
  as_->bytes(bytes.data() + insn.modrm_offset + 1, insn.size - insn.modrm_offset - 1u);
  if (insn.disp_offset != 0) {
    patch_displacement(operand + insn.disp_offset - insn.modrm_offset - 1u,
                       insn.target + request_.bias);
  }
}

std::optional<Unspilled> UnitEmitter::unspilled_jump(
    const Insn& jump, std::span<const std::span<const uint8_t>> insns) const {
  if (!request_.unspilled || request_.compare != Compare::kLow32) return std::nullopt;
  if (insns.size() < 2) return std::nullopt;
  const std::span<const uint8_t> bytes = insns.back();
  const uint8_t through = bytes[jump.modrm_offset];
  constexpr uint8_t kRax = 0xe0, kNotrack = 0x3e;  // ModRM of jmp rax
  if ((through & 0xfc) != kRax || bytes.size() != jump.modrm_offset + 1u) return std::nullopt;
  // In front of the opcode no REX that would name another register.
  const bool prefixed = jump.modrm_offset == 2 && bytes[0] == kNotrack;
  if (jump.modrm_offset != 1 && !prefixed) return std::nullopt;
  const auto flags = isa::flags_again(insns.first(insns.size() - 1));
  if (!flags) return std::nullopt;
  return Unspilled{static_cast<uint8_t>(through & 3), *flags};
}

void UnitEmitter::emit_indirect(BlockIndex b, const Insn& insn) {
  if (out_of_reach(insn)) return emit_event(request_.first_block_event + b);
  if (jump_.unspilled) {
    as_->mov_gs_reg(tcb::kTarget, jump_.unspilled->reg);
    return emit_site(b, insn, false, jump_.unspilled);
  }
  if (!lasting_slot(insn)) {
    as_->mov_gs_rcx(tcb::kSpillRcx);
    emit_load_target(insn);
    as_->mov_gs_rcx(tcb::kTarget);
  }
  if (insn.flow == Flow::kIndirectCall) return emit_call_through_thunk(b, insn);
  emit_site(b, insn, false);
}

void UnitEmitter::emit_return(const Insn& insn) {
  BlockCode& code = code_.blocks.make(block_);
  code.pops_more = insn.return_pop_bytes != 0;
  as_->mov_gs_rcx(tcb::kSpillRcx);
  if (code.counts_in_return) {
    const auto counter = static_cast<uint32_t>(plan_.block_counter[block_]);
    code.probe_begin = at();
    code.probe_counted = to_unit_offset(emit_counter_through_rcx(*as_, counter));
  }
  if (request_.returns != Returns::kJump || insn.return_pop_bytes != 0) {
    if (insn.by_jump) as_->lea_rsp_rsp(0u - 8);  // where it lies still
    return emit_return_of_processor(insn.return_pop_bytes);
  }
  if (insn.by_jump) {
    as_->mov_rcx_popped();
  } else {
    as_->pop_rcx();
  }
  if (request_.compare == Compare::kAll64) as_->mov_gs_rcx(tcb::kTarget);
  as_->mov_ecx_ecx();
  as_->movzx_ecx_word_rcx(request_.tables_base + tables::kLandingNumbers);
  as_->jmp_table_rcx8(request_.tables_base + tables::kLandings);
}

void UnitEmitter::emit_return_of_processor(uint32_t pop_bytes) {
  if (request_.compare == Compare::kAll64) {
    as_->mov_rcx_top();
    as_->mov_gs_rcx(tcb::kTarget);
    as_->mov_ecx_ecx();
  } else {
    as_->mov_ecx_top();
  }
  const bool jumps = request_.returns == Returns::kJump;
  if (request_.returns == Returns::kPaired) {
    as_->mov_ecx_rcx(request_.tables_base + tables::kLandingNumbers);
    as_->mov_rcx_table_rcx8(request_.tables_base + tables::kWideLandings);
  } else if (request_.returns == Returns::kPairedLate) {
    as_->movzx_ecx_word_rcx(request_.tables_base + tables::kLandingNumbers);
    as_->mov_rcx_table_rcx8(request_.tables_base + tables::kLateLandings);
  } else {
    // Where other returns jump, no landing is not 0.  The low half alone may take a landing for
    // none, which then is asked for.
    as_->movzx_ecx_word_rcx(request_.tables_base + tables::kLandingNumbers);
    as_->mov_rcx_table_rcx8(request_.tables_base + tables::kLandings);
    const auto none = static_cast<uint32_t>(request_.gateways.no_landing.value());
    as_->mov_gs_rcx(tcb::kSpillProbe);
    as_->lea_ecx_rcx(static_cast<int32_t>(0u - none));
  }
  as_->jrcxz(0);
  const uint32_t behind_jrcxz = as_->offset();
  if (jumps) as_->mov_rcx_gs(tcb::kSpillProbe);
  as_->mov_top_rcx();
  as_->ret(static_cast<uint16_t>(pop_bytes));
  as_->patch_u8(behind_jrcxz - 1, static_cast<uint8_t>(as_->offset() - behind_jrcxz));
  if (pop_bytes == 0) return as_->jmp(request_.gateways.ret_pop.value());
  as_->mov_rcx_top();
  as_->mov_gs_rcx(tcb::kTarget);
  as_->lea_rsp_rsp(8 + pop_bytes);
  as_->jmp(request_.gateways.lookup.value());
}

void UnitEmitter::emit_syscall(BlockIndex b, const Insn& insn) {
  as_->mov_gs_rcx(tcb::kSpillRcx);
  as_->movzx_ecx_ax();
  as_->movzx_ecx_byte_rcx(request_.tables_base + tables::kSyscallClass);
  as_->jrcxz(5);
  as_->jmp(as_->here().value());
  const Field field = last_field();
  as_->syscall_insn();
  const CacheAddr behind = as_->here();
  as_->lea_rcx_address(original(procedure_.range.begin + insn.offset + insn.size));
  const SyscallSite site{behind, as_->here(), b};
  const auto is_before = [&](const SyscallSite& listed) { return listed.block < b; };
  syscall_fields_.push_back({field, put(site, code_.syscalls, listed_.syscall, is_before)});
  emit_next(b, procedure_.blocks[b].first_edge);
}

void UnitEmitter::emit_terminator(BlockIndex b, const Insn& insn) {
  switch (insn.flow) {
    case Flow::kConditional:
      return emit_conditional(b, insn);
    case Flow::kCountedJump:
      return emit_counted_jump(b, insn);
    case Flow::kJump:
      return emit_next(b, procedure_.blocks[b].first_edge);
    case Flow::kCall:
      return emit_call(b, insn);
    case Flow::kIndirectCall:
    case Flow::kIndirectJump:
      return emit_indirect(b, insn);
    case Flow::kReturn:
      return emit_return(insn);
    case Flow::kSystemCall:
      return emit_syscall(b, insn);
    case Flow::kTrap:
      copy(insn);
      as_->u8(0x0f);  // ud2: nothing comes back from here without the monitor
      as_->u8(0x0b);
      return;
    case Flow::kUnsupported:
      return emit_event(request_.first_block_event + b);
    case Flow::kNone:
      break;
  }
  CHECK(false) << "not a terminator";
}
std::optional<uint32_t> UnitCode::block_at(uint32_t offset) const {
  const auto begins_behind = [&](uint32_t i) {
    const BlockCode& block = blocks[order.empty() ? i : order[i]];
    return offset < (block.landing == BlockCode::kNone ? block.label : block.landing);
  };
  // The last block that begins at or before the offset.
  uint32_t low = 0;
  uint32_t high = static_cast<uint32_t>(order.empty() ? blocks.size() : order.size());
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (begins_behind(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == 0) return std::nullopt;
  return order.empty() ? low - 1 : order[low - 1];
}

// Where a jump was expected to be near, and is not, all is done once more without that.
UnitCode emit_unit(isa::Assembler& hot, isa::Assembler& cold, const EmitRequest& request) {
  std::vector<BlockIndex> far;
  while (true) {
    isa::Assembler body = hot, behind = cold;
    UnitEmitter emitter(body, behind, request, far);
    UnitCode code = emitter.emit();
    if (emitter.too_far().empty() || code.has_overflowed) {
      hot = body;
      cold = behind;
      return code;
    }
    far.insert(far.end(), emitter.too_far().begin(), emitter.too_far().end());
  }
}

void emit_late(isa::Assembler& cold, const EmitRequest& request, std::span<const uint32_t> blocks,
               UnitCode& code) {
  isa::Assembler none(nullptr, 0, CacheAddr());
  UnitEmitter(none, cold, request).emit_late(blocks, code);
}

namespace {
constexpr size_t kUnitOverheadBytes = 256;
// Landing (80), counter (38), thunk, terminator and stubs (190), room in front (230), and what each
// instruction may grow.
size_t block_bound_bytes(const cfg::Block& block) {
  return block.size_bytes + 720u + block.insn_count * 4u;
}
}  // namespace

size_t emit_bound_bytes(const cfg::Procedure& procedure) {
  size_t bound = kUnitOverheadBytes;
  for (const cfg::Block& block : procedure.blocks) bound += block_bound_bytes(block);
  return bound;
}

size_t late_bound_bytes(const cfg::Procedure& procedure, std::span<const uint32_t> blocks,
                        const UnitCode& code) {
  size_t bound = kUnitOverheadBytes;
  for (const uint32_t b : blocks) bound += block_bound_bytes(procedure.blocks[b]);
  constexpr size_t kEdgeStubBytesMax = 128;
  return bound + kEdgeStubBytesMax * code.waits.size();
}

}  // namespace tally::translate

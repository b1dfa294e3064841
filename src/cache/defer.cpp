// Blocks that are not expected to run have no code until control gets there.
//
// Problem.  Whole procedures are found and their counters placed, but of a large program two thirds
// of all blocks are never executed.  Their copies are most of the code cache, and a good part of
// what a run costs before it begins.
//
// Idea.  A unit gets code for the blocks of its body only (translate/unit.h): those that have run,
// if earlier runs have left weights of it, or this run some milliseconds' counts (renew.cpp), and
// those that are likely to run otherwise (blocks_together.h).  Its graph and its counters are those
// of the whole procedure, so nothing that counts knows the difference: what has no code was not
// executed, and its counters are zero.  The first thread that comes to such a block waits at a
// stub, and the block is made, with those that are likely to run if it does.
//
//     body:  A: ...; jz C'      C':  ask for block C      becomes   A: ...; jz C
//            B: ...; ret
//
// C' is one of many places that are all alike and take no memory of their own (cache/region.h,
// `map_asks`); or a stub, if there is no such place, or what leads there could not be patched while
// threads run.  A stub becomes a jump to C.
//
// Where an edge that is counted jumps to such a block, or has never run, its stub (an increment and
// a jump) is left out in the same way, and made with the block.
//
// Of procedures that are read back (found_procedures.h) it is not known which blocks are likely to
// run together: the first thread that comes to any has all of them made.  Of those that an earlier
// run has confirmed (edge_weights.h) hardly any is ever asked for.
//
// Blocks are known by their addresses all the time, so other ways to them (an indirect branch, a
// handler's return, an arrival) end in `resolve`, which has them made.
//
// They are made from the same bytes as the beginning, which are the file's: what the program has
// there by then may be others, or not be readable at the moment.  Who is in the unit still runs
// what was there when it was made, as if it had been made as a whole.
//
// Not handled: code that the program may replace, and kept counters, whose journal wants units as a
// whole: their units are made as a whole.
#include <algorithm>

#include "cache/blocks_together.h"
#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

bool CodeCache::may_defer(const Unit& unit) const {
  return optimizations_.has(Optimization::kDefer) && kept_ == nullptr && !unit.replaceable &&
         !unit.checked && !unit.module->generated && unit.module->image != nullptr;
}

// Of those that have no code yet.
std::vector<uint32_t> CodeCache::blocks_with(const Unit& unit, uint32_t block) const {
  const auto exists = [&](uint32_t b) { return unit.code.blocks[b].exists(); };
  if (!unit.plan.followed.empty()) {
    return blocks_together(unit.procedure, unit.plan.followed, block, exists);
  }
  std::vector<uint32_t> all;
  for (uint32_t b = 0; b < unit.code.blocks.size(); ++b) {
    if (!exists(b)) all.push_back(b);
  }
  return all;
}

// Makes blocks that were left out of a unit, and leads there all who wait or will come.
Status CodeCache::make_late(Unit& unit, std::span<const uint32_t> blocks) {
  // Memory for as many instructions as the largest procedure has is kept from one to the next.
  cfg::Procedure& procedure = unit.procedure;
  procedure.insns.swap(late_insns_);
  const Status made = emit_late(unit, blocks);
  procedure.insns.swap(late_insns_);
  TRY(made);
  stats_.made_late += blocks.size();
  register_late(unit);
  return Ok{};
}

Status CodeCache::emit_late(Unit& unit, std::span<const uint32_t> blocks) {
  const PhaseTimer timer(phases_, Phase::kEmit);
  cfg::CodeView file;
  file.code_at = [&](LinkAddr at) { return unit.module->image->bytes_at(at); };
  cfg::Procedure& procedure = unit.procedure;
  procedure.insns.resize(std::max(procedure.insns.size(), unit.insn_sizes.size()));
  for (const uint32_t b : blocks) {
    if (decode_block(file, unit.insn_sizes, procedure.blocks[b], procedure)) continue;
    return make_error("{}: the file was changed while the program runs, at {:#x}",
                      unit.module->path, unit.address_of(b).value());
  }
  Area& area = *unit.area;
  const Room room = area.cold(unit.lies);
  if (room.next() + late_bound_bytes(procedure, blocks, unit.code) > room.end) {
    return make_error("the code cache is full ({} MB); the program runs more code than fits",
                      kAreaSizeBytes >> 20);
  }
  isa::Assembler cold = area.assembler(room);
  EmitRequest request = emit_request(unit, procedure, area);
  request.view = &file;
  request.returns = unit.code.returns;
  request.give_number = [&](EmitRequest::Counts what, uint32_t index) {
    number_counter(unit, what, index);
    late_counters_.push_back({unit.id, index, what});
  };
  translate::emit_late(cold, request, blocks, unit.code);
  const UnitCode::LatePart& part = unit.code.late.back();
  room.used_bytes += (part.end - part.begin + 15u) & ~15u;
  take_asks(unit.code, area);
  return Ok{};
}

void CodeCache::register_late(Unit& unit) {
  const PhaseTimer timer(phases_, Phase::kLink);
  const UnitCode& code = unit.code;
  const CacheAddr begin = code.address(code.late.back().begin);
  const CacheAddr end = code.address(code.late.back().end);
  add_record(*unit.area, CodeRecord{begin, CodeRecord::Kind::kUnitCold, unit.id, 0});
  stats_.code_bytes += static_cast<uint64_t>(end - begin);
  for (uint32_t i = code.left_out.site; i < code.sites.size(); ++i) {
    SiteState& state = sites_[unit.first_site + i];
    // One that has a place already may have been changed since (keep_flags).
    if (state.site.field == CacheAddr()) state.site = code.sites[i];
  }
  for (uint32_t i = code.left_out.syscall; i < code.syscalls.size(); ++i) {
    syscalls_[unit.first_syscall + i].site = code.syscalls[i];
  }
  note_resumes(code);
  for (uint32_t i = code.left_out.link; i < code.links.size(); ++i) {
    const bool is_new = code.links[i].field >= begin && code.links[i].field < end;
    if (is_new && optimizations_.has(Optimization::kJoins)) join_or_wait(unit.first_link + i);
  }
  // Last of all: from now on threads get there.
  end_waits(unit);
  // Of a procedure that seemed to be over the entry, too, has been left out.
  const BlockRef entry{unit.id, unit.procedure.entry_block};
  if (unit.dead || !has_code(entry) || !optimizations_.has(Optimization::kJoins)) return;
  const bool is_made_now = unit.label(entry.block) >= begin && unit.label(entry.block) < end;
  if (is_made_now) join_waiting(address_of(entry), entry);
}

void CodeCache::end_waits(Unit& unit) {
  UnitCode& code = unit.code;
  const auto made = [&](const UnitCode::Wait& wait) {
    return wait.is_edge() ? code.address(wait.edge_stub) : unit.label(wait.block);
  };
  for (UnitCode::Wait& wait : code.waits) {
    if (wait.is_over) continue;
    wait.is_over =
        wait.is_edge() ? wait.edge_stub != UnitCode::Wait::kNone : code.blocks[wait.block].exists();
    if (wait.is_over && !wait.is_ask) put_jmp(wait.address + 1, made(wait));
  }
  std::erase_if(code.wait_fields, [&](const UnitCode::WaitField& one) {
    const UnitCode::Wait& wait = code.waits[one.wait];
    if (wait.is_over) set_branch(one.field, made(wait));
    return wait.is_over;
  });
}

// Must be asked before any way is made into a block.
Status CodeCache::give_code(BlockRef ref) {
  if (has_code(ref)) return Ok{};
  Unit& unit = *units_[ref.unit];
  return make_late(unit, blocks_with(unit, ref.block));
}

Result<BlockRef> CodeCache::with_code(BlockRef ref) {
  TRY(give_code(ref));
  return ref;
}

Result<CacheAddr> CodeCache::take_wait(uint32_t block) {
  TRY(check_room());
  const BlockRef ref = global_block(block);
  TRY(give_code(ref));
  return units_[ref.unit]->label(ref.block);
}

// The edge is counted from there on.
Result<CacheAddr> CodeCache::take_edge_wait(uint32_t edge) {
  TRY(check_room());
  const EdgeRef ref = global_edge(edge);
  Unit& unit = *units_[ref.unit];
  const auto& waits = unit.code.waits;
  const auto wait = std::ranges::find(waits, ref.edge, &UnitCode::Wait::edge) - waits.begin();
  CHECK(wait < std::ssize(waits)) << "nobody waits at edge " << ref.edge;
  TRY(give_code({ref.unit, unit.procedure.edges[ref.edge].to}));
  // Between blocks that are there already.
  if (waits[static_cast<size_t>(wait)].edge_stub == UnitCode::Wait::kNone) TRY(make_late(unit, {}));
  return unit.code.address(waits[static_cast<size_t>(wait)].edge_stub);
}

}  // namespace tally::engine

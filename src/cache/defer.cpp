// Blocks that never ran, by an earlier run's counts, have no code until control gets there.
//
// Problem.  Whole procedures are found and their counters placed, but of a large program two thirds
// of all blocks are never executed.  Their copies are most of the code cache, and a good part of
// what a later run costs before it begins.
//
// Idea.  A unit of which earlier runs have left weights, and which has run the same ways in two of
// them (edge_weights.h), gets code for the blocks of its body only (translate/unit.h).  Its graph
// and its counters are those of the whole procedure, so nothing that counts knows the difference:
// what has no code was not executed, and its counters are zero.  The first thread that comes to
// such a block waits at a stub, and the rest of the unit is made: once for each unit.
//
//     body:  A: ...; jz C'      C':  ask for block C      becomes   A: ...; jz C
//            B: ...; ret
//
// C' is one of many places that are all alike and take no memory of their own (cache/region.h,
// `map_asks`); or a stub, if there is no such place, or what leads there could not be patched while
// threads run.  A stub becomes a jump to C.
//
// Counters of such units are mostly on edges that never ran, since there they cost nothing.  Where
// such an edge jumps, its stub (an increment and a jump) is left out in the same way, and made with
// the rest.
//
// Blocks are known by their addresses all the time, so other ways to them (an indirect branch, a
// handler's return, an arrival) end in `resolve`, which has the rest made.
//
// The rest is made from the same bytes as the beginning, which are the file's: what the program has
// there by then may be others, or not be readable at the moment.  Who is in the unit still runs
// what was there when it was made, as if it had been made as a whole.
//
// Not handled: code that the program may replace, and kept counters, whose journal wants units as a
// whole: their units are made as a whole.  So are those of procedures that are translated again in
// mid-run, after some milliseconds of which nothing is known of what never runs.
#include <algorithm>

#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

bool CodeCache::may_defer(const Unit& unit) const {
  return optimizations_.has(Optimization::kDefer) && kept_ == nullptr && !unit.renews &&
         !unit.replaceable && !unit.checked && !unit.module->generated &&
         unit.module->image != nullptr;
}

// Makes what was left out of a unit, and leads there all who wait or will come.
Status CodeCache::emit_rest(Unit& unit) {
  cfg::CodeView file;
  file.code_at = [&](LinkAddr at) { return unit.module->image->bytes_at(at); };
  const std::optional<cfg::Procedure> procedure = with_instructions(unit, file);
  if (!procedure) {
    return make_error("{}: the file was changed while the program runs, at {:#x}",
                      unit.module->path, unit.procedure.entry.value());
  }
  Area& area = *unit.area;
  const uint64_t at = kAreaHalfBytes + area.cold_used_bytes;
  if (at + rest_bound_bytes(*procedure, unit.code) > kAreaColdEnd) {
    return make_error("the code cache is full ({} MB); the program runs more code than fits",
                      kAreaSizeBytes >> 20);
  }
  // What has no place yet comes last (translate/unit.h).
  const auto has_place = [](const Link& link) { return link.field != CacheAddr(); };
  const auto first_new = std::ranges::partition_point(unit.code.links, has_place);
  const auto old_links = static_cast<uint32_t>(first_new - unit.code.links.begin());
  stats_.made_late += unit.procedure.blocks.size() - unit.code.order.size();
  {
    const PhaseTimer timer(phases_, Phase::kEmit);
    isa::Assembler cold(area.memory + at, kAreaColdEnd - at, area.base + at);
    EmitRequest request = emit_request(unit, *procedure, area);
    request.view = &file;
    request.returns = unit.code.returns;
    translate::emit_rest(cold, request, unit.code);
    area.cold_used_bytes += (unit.code.rest_bytes + 15u) & ~15u;
    take_asks(unit.code, area);
  }
  register_rest(unit, old_links);
  return Ok{};
}

void CodeCache::register_rest(Unit& unit, uint32_t old_links) {
  const PhaseTimer timer(phases_, Phase::kLink);
  const UnitCode& code = unit.code;
  add_record(*unit.area,
             CodeRecord{code.address(code.rest_begin), CodeRecord::Kind::kUnitCold, unit.id, 0});
  stats_.code_bytes += code.rest_bytes;
  for (uint32_t i = 0; i < code.sites.size(); ++i) {
    SiteState& state = sites_[unit.first_site + i];
    // One that has a place already may have been changed since (keep_flags).
    if (state.site.field == CacheAddr()) state.site = code.sites[i];
  }
  for (uint32_t i = 0; i < code.syscalls.size(); ++i) {
    syscalls_[unit.first_syscall + i].site = code.syscalls[i];
  }
  note_resumes(code);
  for (uint32_t i = old_links; i < code.links.size(); ++i) {
    if (optimizations_.has(Optimization::kJoins)) join_or_wait(unit.first_link + i);
  }
  // Last of all: from now on threads get there.
  const auto made = [&](const UnitCode::Wait& wait) {
    return wait.is_edge() ? code.address(wait.edge_stub) : unit.label(wait.block);
  };
  for (const UnitCode::Wait& wait : code.waits) {
    if (!wait.is_ask) put_jmp(wait.address + 1, made(wait));
  }
  for (const UnitCode::WaitField& one : code.wait_fields) {
    set_branch(one.field, made(code.waits[one.wait]));
  }
  std::vector<UnitCode::WaitField>().swap(unit.code.wait_fields);
}

// Must be asked before any way is made into a block.
Status CodeCache::give_code(BlockRef ref) {
  return has_code(ref) ? Status(Ok{}) : emit_rest(*units_[ref.unit]);
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
  if (!unit.code.is_whole) TRY(emit_rest(unit));
  const auto wait = std::ranges::find(unit.code.waits, ref.edge, &UnitCode::Wait::edge);
  CHECK(wait != unit.code.waits.end()) << "nobody waits at edge " << ref.edge;
  return unit.code.address(wait->edge_stub);
}

}  // namespace tally::engine

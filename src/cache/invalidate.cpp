// Taking translations back: code that the program has replaced.  See generated.h for when.
#include <algorithm>

#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

// ---- what a unit was made from -----------------------------------------------------------------

void CodeCache::keep_source(Unit& unit, const cfg::CodeView& view) {
  const cfg::Procedure& p = unit.procedure;
  uint32_t end = 0;
  for (const cfg::Block& b : p.blocks) end = std::max(end, b.offset + b.size_bytes);
  unit.source_offset = p.blocks.front().offset;
  const auto bytes = view.code_at(p.range.begin + unit.source_offset);
  const size_t wanted = end - unit.source_offset;
  CHECK(bytes.size() >= wanted) << "translated code that cannot be read";
  unit.source.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(wanted));
}

void CodeCache::keep_sources(const Module& module) {
  for (const auto& unit : units_) {
    if (unit->module == &module && !unit->dead && unit->source.empty()) {
      keep_source(*unit, module.view);
    }
  }
}

bool CodeCache::is_as_translated(uint32_t id) const {
  const Unit& unit = *units_[id];
  std::vector<uint8_t> now(unit.source.size());
  const LinkAddr begin = unit.procedure.range.begin + unit.source_offset;
  if (!process_.read_memory(unit.module->to_target(begin), now.data(), now.size())) return false;
  for (const cfg::Block& block : unit.procedure.blocks) {
    const size_t at = block.offset - unit.source_offset;
    if (!std::equal(now.begin() + static_cast<ptrdiff_t>(at),
                    now.begin() + static_cast<ptrdiff_t>(at + block.size_bytes),
                    unit.source.begin() + static_cast<ptrdiff_t>(at))) {
      return false;
    }
  }
  return true;
}

std::vector<uint32_t> CodeCache::units_in(const Module& module, TargetRange range) const {
  const LinkAddr begin = module.to_link(range.begin);
  const LinkAddr end = module.to_link(range.end);
  std::vector<uint32_t> result;
  for (const uint32_t id : units_meeting(module, {begin, end})) {
    const cfg::Procedure& p = units_[id]->procedure;
    const bool inside = std::any_of(p.blocks.begin(), p.blocks.end(), [&](const cfg::Block& b) {
      return p.address_of(b) < end && begin < p.end_of(b);
    });
    if (inside) result.push_back(id);
  }
  return result;
}

// ---- cutting a unit out ------------------------------------------------------------------------

void CodeCache::remove_entry(Chain& chain, CacheAddr entry, CacheAddr miss,
                             const std::function<void(CacheAddr)>& set_head) {
  auto it = std::find_if(chain.begin(), chain.end(),
                         [&](const ChainEntry& e) { return e.entry == entry; });
  if (it == chain.end()) return;
  const CacheAddr next = it + 1 == chain.end() ? miss : (it + 1)->entry;
  if (it == chain.begin()) {
    set_head(next);
  } else {
    set_branch((it - 1)->mismatch_field, next);
  }
  chain.erase(it);
}

void CodeCache::remove_pair(uint32_t site_id, uint32_t index) {
  SiteState& state = sites_[site_id];
  Pair& pair = state.pairs[index];
  pair.cut = true;
  unset_index(state, index);
  if (state.buckets == nullptr) {
    remove_entry(state.chain, pair.stub.entry, state.site.miss_stub,
                 [&](CacheAddr head) { lead(state, head); });
    return;
  }
  const uint8_t hash = hash_of(state.hash, pair.target.value());
  remove_entry((*state.buckets)[hash], pair.stub.entry, state.site.miss_stub,
               [&](CacheAddr head) { set_table_head(state.table_offset, hash, head); });
}

void CodeCache::unlink(const Unit& unit) {
  auto it = incoming_.find(unit.id);
  if (it == incoming_.end()) return;
  for (const Incoming& in : it->second) {
    switch (in.kind) {
      case Incoming::Kind::kLinkPair: {
        const uint32_t link_id = link_pairs_[in.index].link;
        auto current = current_pair_.find(link_id);
        if (current == current_pair_.end() || current->second != in.index) break;
        current_pair_.erase(current);
        const auto [source, index] = links_[link_id];
        const Link& link = units_[source]->code.links[index];
        set_branch(link.field, link.miss_stub);
        break;
      }
      case Incoming::Kind::kPair:
        remove_pair(in.index, in.pair);
        break;
      case Incoming::Kind::kArrival:
        landings_.remove(address_of(arrivals_[in.index].to).value());
        break;
    }
  }
  incoming_.erase(it);
}

void CodeCache::invalidate(uint32_t id) {
  Unit& unit = *units_[id];
  if (unit.dead) return;
  unit.dead = true;
  stats_.invalidated += 1;
  if (!unit.replaceable) {
    known_targets_.forget_if([&](TargetAddr, BlockRef to) { return to.unit == id; });
  }
  const cfg::Procedure& p = unit.procedure;
  by_range_.remove(unit.module->id, p.range, id);
  for (uint32_t b = 0; b < p.blocks.size(); ++b) {
    const uint64_t address = unit.module->to_target(unit.address_of(b)).value();
    const BlockCode& code = unit.code.blocks[b];
    if (code.landing != BlockCode::kNone) landings_.remove(address);
    const auto found = blocks_.find(address);
    if (found && *found == (static_cast<uint64_t>(id) << 32 | b)) {
      blocks_.set(address, kGone);
    }
    if (call_blocks_.find(address) != nullptr) call_blocks_.set(address, kGone);
  }
  blocks_.remove(id, p, unit.module->bias);
  unlink(unit);
  // Ways into code that was taken to be unchangeable are not on a list.
  if (!unit.replaceable) {
    cut({unit.module->to_target(p.address_of(p.blocks.front())),
         unit.module->to_target(p.end_of(p.blocks.back()))});
  }
}

bool CodeCache::discard_if_changed(uint32_t id) {
  const Unit& unit = *units_[id];
  if (unit.dead) return true;
  if (!unit.checked || is_as_translated(id)) return false;
  invalidate(id);
  return true;
}

// ---- threads inside ----------------------------------------------------------------------------

CodeCache::CheckPoint CodeCache::check_point(uint32_t check) const {
  const auto [id, index] = checks_[check];
  const Unit& unit = *units_[id];
  const Check& c = unit.code.checks[index];
  const bool has_counter = unit.plan.block_counter[c.block] != kNoCounter;
  return {{id, c.block, c.insn}, !has_counter || unit.code.blocks[c.block].probe_insn < c.insn};
}

Result<CodeCache::WayOn> CodeCache::take_stale(uint32_t check) {
  TRY(check_room());
  const BlockRef old = check_point(check).ref;
  const TargetAddr address = address_of(old);
  invalidate(old.unit);
  TRY_ASSIGN(const BlockRef ref, resolve(address, Arrival::kJump));
  if (!ref.valid()) return WayOn{CacheAddr(address.value()), {}};
  return WayOn{arrival_at(ref).sent.entry, ref};
}

Result<CodeCache::WayOn> CodeCache::behind_syscall(uint32_t site) {
  const SyscallState& state = syscalls_[site];
  const Unit& unit = *units_[state.unit];
  if (!unit.dead) return WayOn{state.site.resume, {}};
  const TargetAddr address = unit.module->to_target(unit.end_of(state.site.block));
  TRY_ASSIGN(const BlockRef ref, resolve(address, Arrival::kJump));
  if (!ref.valid()) return WayOn{CacheAddr(address.value()), {}};
  return WayOn{arrival_at(ref).sent.entry, ref};
}

}  // namespace tally::engine

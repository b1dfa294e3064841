// What is translated before anyone asks for it.  See code_cache.h.
//
// A miss costs both sides: the target keeps its registers, waits and goes to sleep, the monitor
// wakes up and looks around.  That is more than a procedure's translation.  So what is sure to be
// asked for is made with the answer to the request before it:
//
//   f:  push rbx            g is called whenever f is entered (unless h does not come back), and
//       call h              so is h: both are translated with f.  What lies behind the branch is
//       call g@plt          not.  g's slot of the linkage table leads to where its pointer points
//       test eax, eax       at the moment, unless that is the loader's resolver.
//       je ...
//
// What is made in vain (h did not come back, the pointer is changed) costs its translation, and
// shows in the profile as a procedure that was never entered.
#include "cache/code_cache.h"

namespace tally::engine {

namespace {

constexpr uint32_t kNoLink = UINT32_MAX;
// Of one answer: a program's `main` is sure to call much, and the target waits.
constexpr size_t kAheadMax = 64;
// A table that is larger has targets most of which are never jumped to.
constexpr size_t kTableTargetsMax = 64;

// By block: the link that leaves at its end, a call's if there are several.
std::vector<uint32_t> links_by_block(const Unit& unit) {
  std::vector<uint32_t> result(unit.procedure.blocks.size(), kNoLink);
  for (uint32_t i = 0; i < unit.code.links.size(); ++i) {
    const translate::Link& link = unit.code.links[i];
    uint32_t& slot = result[link.block];
    if (slot == kNoLink || link.edge == translate::Link::kCallLink) slot = i;
  }
  return result;
}

}  // namespace

// Direct calls and jumps out of the unit in the blocks that run whenever it is entered.
std::vector<CodeCache::Certain> CodeCache::certain_callees(const Unit& unit) {
  std::vector<Certain> result;
  const cfg::Procedure& p = unit.procedure;
  const std::vector<uint32_t> link_at = links_by_block(unit);
  std::vector<bool> seen(p.blocks.size(), false);
  uint32_t b = p.entry_block;
  while (b != cfg::kExitBlock && !seen[b]) {
    seen[b] = true;
    const cfg::Block& block = p.blocks[b];
    const bool call = block.end == isa::Flow::kCall || block.end == isa::Flow::kIndirectCall;
    const bool straight = block.end == isa::Flow::kNone || block.end == isa::Flow::kJump;
    if (!call && !straight) break;
    if (link_at[b] != kNoLink) {
      const TargetAddr target = unit.module->to_target(unit.code.links[link_at[b]].target);
      result.push_back({target, call ? Arrival::kCall : Arrival::kJump});
    }
    if (call) {
      const auto back = p.edge_of_kind(block, cfg::EdgeKind::kCallReturn);
      b = back ? p.edges[*back].to : cfg::kExitBlock;
    } else {
      b = block.edge_count == 1 ? p.edges[block.first_edge].to : cfg::kExitBlock;
    }
  }
  return result;
}

void CodeCache::translate_ahead() {
  recall_fresh();
  if (!optimizations_.has(Optimization::kAhead)) return fresh_.clear();
  for (size_t i = 0; i < fresh_.size() && fresh_.size() < kAheadMax; ++i) {
    const uint32_t id = fresh_[i];
    if (units_[id]->replaceable) continue;
    for (const Certain& callee : certain_callees(*units_[id])) {
      if (fresh_.size() < kAheadMax) make_ahead(callee);
    }
    follow_linkage_slot(id);
  }
  fresh_.clear();
}

// What cannot be translated is named when control gets there, not now.
BlockRef CodeCache::make_ahead(const Certain& callee) {
  if (const auto found = blocks_.find(callee.target.value())) {
    return *found == kGone ? BlockRef{} : unpack(*found);
  }
  const Module* module = modules_.at(callee.target);
  const bool plain = module != nullptr && module->area != nullptr &&
                     !module->area->is_for_pieces() && !module->generated && !module->from_memory;
  if (!plain || !check_room()) return {};
  Result<BlockRef> ref = resolve(callee.target, callee.how);
  return ref ? *ref : BlockRef{};
}

// A slot of the linkage table jumps through a pointer.
void CodeCache::follow_linkage_slot(uint32_t id) {
  const Unit& unit = *units_[id];
  const LinkAddr entry = unit.procedure.entry;
  if (unit.code.sites.empty() || unit.module->image->linkage_table_at(entry) == nullptr) return;
  const auto place = isa::pointer_of_stub(unit.module->view.code_at(entry), entry.value());
  uint64_t pointer = 0;
  if (!place ||
      !process_.read_memory(unit.module->to_target(LinkAddr(*place)), &pointer, sizeof pointer)) {
    return;
  }
  const TargetAddr target(pointer);
  const Module* module = modules_.at(target);
  // Not bound yet: the slot's own second half.
  if (module == nullptr || module->generated || module->image == nullptr ||
      module->image->linkage_table_at(module->to_link(target)) != nullptr) {
    return;
  }
  const uint32_t site = unit.first_site;
  if (sites_[site].site.field == CacheAddr()) return;
  const BlockRef to = make_ahead({target, Arrival::kJump});
  if (!to.valid() || units_[to.unit]->replaceable || !give_code(to)) return;
  if (may_join(sites_[site], target)) join_pair(site, target, to);
}

// The targets of a jump through a table, but for the one that has asked.
void CodeCache::join_table(uint32_t site_id, TargetAddr asked) {
  if (!optimizations_.has(Optimization::kTables)) return;
  const SiteState& state = sites_[site_id];
  const Unit& unit = *units_[state.unit];
  if (state.site.call || !state.pairs.empty() || unit.replaceable) return;
  const cfg::Procedure& p = unit.procedure;
  const cfg::Block& block = p.blocks[state.site.block];
  if (block.edge_count < 2 || block.edge_count > kTableTargetsMax) return;
  for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
    const cfg::Edge& edge = p.edges[e];
    if (edge.kind != cfg::EdgeKind::kTableJump) continue;
    const TargetAddr target = unit.module->to_target(edge.target);
    const auto found = blocks_.find(target.value());
    if (target == asked || !found || *found == kGone) continue;
    const BlockRef to = unpack(*found);
    if (to.unit == unit.id && has_code(to)) join_pair(site_id, target, to);
  }
}

}  // namespace tally::engine

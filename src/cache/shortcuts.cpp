// Direct branches to linkage stubs lead to where these lead.
//
// Problem.  A call of a library's function goes through a linkage stub, which jumps through a
// pointer.  If that pointer lasts (sealed_memory.h), two jumps are left of it in the code cache,
// one behind the other, where one would do.
//
// Idea.  The stub's unit does nothing but jump, and counts nothing: how often it ran is how often
// its one pair was counted.  So whoever calls it may go to the pair's counter at once:
//
//     call puts@plt                                         puts@plt: jmp [rip + slot]
//       push ...; jmp unit of puts@plt                        jmp pair
//                                                             pair: inc gs:[counter]; jmp puts'
//     becomes
//       push ...; jmp pair
//
// Who is in front of the counter is at the end of the stub's block, wherever it came from.  If
// nothing is counted there (rest.cpp), they lead to the function itself.  As soon
// as the pointer does not last, or has no target any more, the branches lead to the unit again.
//
// Not handled: stubs whose pointer can be written, which load and compare it first; blocks that
// hold nothing but a direct jump, which compilers seldom leave.
#include "cache/code_cache.h"

namespace tally::engine {

// The site of a procedure that does nothing but go on where a pointer leads that lasts.
const SiteState* CodeCache::leads_on(BlockRef entry) const {
  const cfg::Block& block = units_[entry.unit]->procedure.blocks[entry.block];
  const bool jumps = block.end == isa::Flow::kIndirectJump;
  if (!jumps || !optimizations_.has(Optimization::kThrough)) return nullptr;
  const SiteState* state = site_of(entry);
  return state != nullptr && state->site.alone ? state : nullptr;
}

// Where the stub of the site's only pair leads, if nothing is counted there.
CacheAddr CodeCache::way_behind(const SiteState& state, CacheAddr stub) const {
  if (!state.rest || state.pairs[*state.rest].cut) return stub;
  const Pair& pair = state.pairs[*state.rest];
  // Who branches to the linkage stub lies in its area; others may be out of reach.
  const bool in_reach = units_[pair.to.unit]->area == units_[state.unit]->area;
  const bool is_its = in_reach && stub == pair.stub.entry;
  return is_its ? units_[pair.to.unit]->entry_of(pair.to) : stub;
}

// Where a direct branch to the entry of a procedure leads; not to the entry itself if all that is
// there is done by now.
CacheAddr CodeCache::way_through(uint32_t link_id, BlockRef entry) {
  const CacheAddr label = units_[entry.unit]->label(entry.block);
  const SiteState* state = leads_on(entry);
  if (state == nullptr) return label;
  const CacheAddr to =
      state->chain.empty() ? label : way_behind(*state, state->chain.front().entry);
  const auto site_id = static_cast<uint32_t>(state - sites_.data());
  shortcuts_[site_id].push_back({link_id, to});
  if (to != label) stats_.shortcuts += 1;
  return to;
}

// The site leads somewhere else, or nowhere, from now on.
void CodeCache::lead_shortcuts(const SiteState& state, CacheAddr head) {
  const auto found = shortcuts_.find(static_cast<uint32_t>(&state - sites_.data()));
  if (found == shortcuts_.end()) return;
  const CacheAddr label = units_[state.unit]->label(state.site.block);
  const CacheAddr to = head == state.site.miss_stub ? label : way_behind(state, head);
  std::vector<Shortcut> kept;
  for (const Shortcut& shortcut : found->second) {
    const auto [unit, index] = links_[shortcut.link];
    const CacheAddr field = units_[unit]->code.links[index].field;
    // Who has been led elsewhere meanwhile is not ours any more.
    if (branch_target(field) != shortcut.led_to) continue;
    if (to != label) stats_.shortcuts += 1;
    set_branch(field, to);
    kept.push_back({shortcut.link, to});
  }
  found->second = std::move(kept);
}

}  // namespace tally::engine

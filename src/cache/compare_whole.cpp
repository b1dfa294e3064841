// Code that is alike to other code in the low 32 bits of its address, and comes while the program
// runs.
//
// Problem.  Comparisons look at the low halves of addresses, and numbers of landings stand at them
// (translate/unit.h), as long as no two pieces of code are alike in them.  What the kernel places
// is kept apart (modules_apart.cpp).  But a program may want its code at an address of its own:
// SBCL has eight gigabytes of it at 0x10'0000'0000, which are alike to everything.
//
// Idea.  Before such code can run, everything that compares low halves only is taken out of use;
// what is made from then on compares whole addresses.
//
//     indirect branches   lose their pairs, which are made again when somebody comes, and then
//                         compare both halves.  Those that keep no register, and indexes, cannot
//                         do that, and are led like all others (keep_flags)
//     returns             find no numbers any more: all landings stand in the hash table, which
//                         goes by whole addresses.  Units stay as they are, and new ones are like
//                         them: returns note no address, and landings compare nothing
//
// Threads may run meanwhile: what they are in the middle of cannot lead to code that is not there
// yet.  Lookups of returns cost some forty instructions; the next run of the program knows, and
// compares whole addresses from the start (Recollection::alike).
#include "cache/code_cache.h"

namespace tally::engine {

using translate::Compare;

void CodeCache::compare_whole() {
  if (compare() == Compare::kAll64) return;
  came_to_compare_whole_ = true;
  for (uint32_t id = 0; id < sites_.size(); ++id) {
    if (!units_[sites_[id].unit]->is_nobodys) compare_whole_at(id);
  }
  landings_.number_no_more();
}

// A branch through a pointer that nobody can write compares nothing.
void CodeCache::compare_whole_at(uint32_t site_id) {
  SiteState& state = sites_[site_id];
  if (state.pairs.empty() || state.site.slot) return;
  if (state.site.unspilled) return keep_flags(site_id);
  for (Pair& pair : state.pairs) pair.cut = true;
  state.forget_chains();
  // A hash table's dispatch may stand behind it, without a jump.
  put_jmp(state.site.field, state.site.miss_stub);
}

}  // namespace tally::engine

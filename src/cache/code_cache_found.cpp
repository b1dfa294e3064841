// Procedures that an earlier run has found are taken as it has left them.  See found_procedures.h.
#include "cache/code_cache.h"

#include "cache/inductions.h"

namespace tally::engine {

// As what several processes share (known_procedures.h), but for what an earlier run knows of it.
bool CodeCache::may_be_found(const Unit& unit, const cfg::DiscoverRequest& request) const {
  return found_ != nullptr && !request.known_elsewhere && is_recalled(*unit.module);
}

// Into `unshared_`.
bool CodeCache::reread(const Unit& unit, const ProcedureKey& key) {
  if (!found_->find(*unit.module->image, key, *weights_, *unshared_)) return false;
  if (!may_be_placed(unit, *unshared_)) return false;
  const bool defers = may_defer(unit) && unshared_->confirmed;
  const Wanted wanted = defers ? Wanted::kBody : Wanted::kAll;
  if (!decode_instructions(unit.module->view, wanted, *unshared_)) return false;
  find_inductions(unshared_->procedure, unshared_->insn_sizes, unit.module->view, unshared_->plan);
  stats_.reread += 1;
  stats_.weighed += 1;
  return true;
}

}  // namespace tally::engine

// See sealed_memory.h.
#include "cache/sealed_memory.h"

#include <algorithm>
#include <functional>

namespace tally::engine {

namespace {

constexpr uint64_t kPointerBytes = 8;

TargetRange relocated_part(const Module& module) {
  if (module.generated || module.image == nullptr) return {};
  const LinkRange relro = module.image->relro();
  return {module.to_target(relro.begin), module.to_target(relro.end)};
}

}  // namespace

bool SealedMemory::may_hold(const Module& module, TargetAddr slot) {
  const TargetRange relocated = relocated_part(module);
  return slot >= relocated.begin && slot + kPointerBytes <= relocated.end;
}

bool SealedMemory::holds(const Module& module, TargetAddr slot) {
  if (!may_hold(module, slot)) return false;
  if (!looked_at_.contains(slot)) look();
  const TargetRange* sealed = sealed_.at(slot);
  return sealed != nullptr && slot + kPointerBytes <= sealed->end;
}

std::optional<TargetAddr> SealedMemory::pointer_at(TargetAddr slot) const {
  uint64_t pointer = 0;
  if (!process_.read_memory(slot, &pointer, sizeof pointer)) return std::nullopt;
  return TargetAddr(pointer);
}

// At all modules that are there, since asking takes long in processes with many mappings.
void SealedMemory::look() {
  const auto mappings = process_.mappings();
  for (const auto& module : modules_.all()) {
    const TargetRange relocated = relocated_part(*module);
    if (module->gone || relocated.empty()) continue;
    looked_at_.add(relocated);
    if (!mappings) continue;
    // They are sorted.
    auto at = std::ranges::lower_bound(*mappings, relocated.begin, std::ranges::less_equal(),
                                       [](const tracee::Mapping& m) { return m.range.end; });
    for (; at != mappings->end() && at->range.begin < relocated.end; ++at) {
      const bool is_sealed = at->readable && !at->writable && !at->shared;
      if (is_sealed) sealed_.add(intersection(at->range, relocated));
    }
  }
}

bool SealedMemory::changed(TargetRange range) {
  looked_at_.remove(range);
  const bool was_sealed = sealed_.meets(range);
  sealed_.remove(range);
  return was_sealed;
}

}  // namespace tally::engine

// See sealed_memory.h.
#include "cache/sealed_memory.h"

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
  if (!looked_at_.contains(slot)) look_at(relocated_part(module));
  const TargetRange* sealed = sealed_.at(slot);
  return sealed != nullptr && slot + kPointerBytes <= sealed->end;
}

std::optional<TargetAddr> SealedMemory::pointer_at(TargetAddr slot) const {
  uint64_t pointer = 0;
  if (!process_.read_memory(slot, &pointer, sizeof pointer)) return std::nullopt;
  return TargetAddr(pointer);
}

void SealedMemory::look_at(TargetRange relocated) {
  looked_at_.add(relocated);
  const auto mappings = process_.mappings();
  if (!mappings) return;
  for (const tracee::Mapping& m : *mappings) {
    if (!overlaps(m.range, relocated)) continue;
    if (m.readable && !m.writable && !m.shared) sealed_.add(intersection(m.range, relocated));
  }
}

bool SealedMemory::changed(TargetRange range) {
  looked_at_.remove(range);
  const bool was_sealed = sealed_.meets(range);
  sealed_.remove(range);
  return was_sealed;
}

}  // namespace tally::engine

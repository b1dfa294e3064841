// See known_procedures.h.
#include "cache/known_procedures.h"

#include <algorithm>
#include <cstring>

namespace tally::engine {

namespace {

// Multiply and fold, a word at a time.
uint64_t digest_on(uint64_t state, std::span<const uint8_t> bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t step = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), step);
    bytes = bytes.subspan(step);
    const auto product = static_cast<unsigned __int128>(state ^ word) * kFactor;
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    state += word;  // a state that happens to be zero must not swallow what follows
  }
  return state;
}

template <class T>
size_t bytes_of(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

}  // namespace

size_t KnownProcedure::size_bytes() const {
  return sizeof *this + bytes_of(procedure.blocks) + bytes_of(procedure.insns) +
         bytes_of(procedure.edges) + bytes_of(insn_sizes) + bytes_of(plan.block_counter) +
         bytes_of(plan.edge_counter) + bytes_of(plan.order) + bytes_of(events) + bytes_of(sources);
}

void KnownProcedure::forget() {
  insn_sizes.clear();
  counters = 0;
  events.clear();
  sources.clear();
}

std::optional<uint64_t> KnownProcedures::digest_of(const std::vector<LinkRange>& sources) const {
  uint64_t digest = 0x54616C6C79ull;
  for (const LinkRange& range : sources) {
    if (range.empty()) continue;
    const std::span<const uint8_t> bytes = image_.bytes_at(range.begin);
    if (bytes.size() < range.size_bytes()) return std::nullopt;
    digest = digest_on(digest, bytes.first(range.size_bytes()));
  }
  return digest;
}

std::shared_ptr<const KnownProcedure> KnownProcedures::find(const ProcedureKey& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  if (digest_of(found->second->sources) == found->second->digest) return found->second;
  bytes_ -= found->second->size_bytes();
  *used_ -= found->second->size_bytes();
  known_.erase(found);
  return nullptr;
}

void KnownProcedures::add(const ProcedureKey& key, std::shared_ptr<KnownProcedure> procedure) {
  const auto may_change = [&](const LinkRange& range) {
    return std::ranges::any_of(image_.segments(), [&](const elf::Segment& segment) {
      return segment.writable && segment.range.begin < range.end && range.begin < segment.range.end;
    });
  };
  if (std::ranges::any_of(procedure->sources, may_change)) return;
  const std::optional<uint64_t> digest = digest_of(procedure->sources);
  const size_t size = procedure->size_bytes();
  if (!digest || *used_ + size > kBytesMax) return;
  procedure->digest = *digest;
  if (!known_.emplace(key, std::move(procedure)).second) return;
  bytes_ += size;
  *used_ += size;
}

}  // namespace tally::engine

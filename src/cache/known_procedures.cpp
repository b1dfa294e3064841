// See known_procedures.h.
#include "cache/known_procedures.h"

#include <algorithm>

#include "base/mix.h"

namespace tally::engine {

namespace {

template <class Vector>
size_t bytes_of(const Vector& vector) {
  return vector.capacity() * sizeof(typename Vector::value_type);
}

}  // namespace

size_t KnownProcedure::size_bytes() const {
  return sizeof *this + bytes_of(procedure.blocks) + bytes_of(procedure.insns) +
         bytes_of(procedure.edges) + bytes_of(insn_sizes) + bytes_of(plan.block_counter) +
         bytes_of(plan.edge_counter) + bytes_of(plan.order) + bytes_of(expected.counters) +
         plan.followed.capacity() / 8 + expected.busiest_blocks.capacity() / 8 +
         expected.busy_blocks.capacity() / 8 + expected.seldom_blocks.capacity() / 8 +
         bytes_of(expected.idle_edges) + bytes_of(expected.led_from) + bytes_of(events) +
         bytes_of(sources);
}

void KnownProcedure::forget() {
  insn_sizes.clear();
  counters = 0;
  expected.counters.clear();
  expected.busiest_blocks.clear();
  expected.busy_blocks.clear();
  expected.seldom_blocks.clear();
  expected.idle_edges.clear();
  expected.led_from.clear();
  events.clear();
  sources.clear();
}

bool rests_on_file(const elf::Image& image, std::span<const LinkRange> sources) {
  return std::ranges::none_of(sources, [&](const LinkRange& range) {
    return std::ranges::any_of(image.segments(), [&](const elf::Segment& segment) {
      return segment.writable && segment.range.begin < range.end && range.begin < segment.range.end;
    });
  });
}

std::optional<uint64_t> digest_of(const elf::Image& image, std::span<const LinkRange> sources) {
  uint64_t digest = 0x54616C6C79ull;
  for (const LinkRange& range : sources) {
    if (range.empty()) continue;
    const std::span<const uint8_t> bytes = image.bytes_at(range.begin);
    if (bytes.size() < range.size_bytes()) return std::nullopt;
    digest = mix_bytes(digest, bytes.first(range.size_bytes()));
  }
  return digest;
}

std::shared_ptr<const KnownProcedure> KnownProcedures::find(const ProcedureKey& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  if (digest_of(image_, found->second->sources) == found->second->digest) return found->second;
  bytes_ -= found->second->size_bytes();
  *used_ -= found->second->size_bytes();
  known_.erase(found);
  return nullptr;
}

void KnownProcedures::add(const ProcedureKey& key, std::shared_ptr<KnownProcedure> procedure) {
  if (!rests_on_file(image_, procedure->sources)) return;
  const std::optional<uint64_t> digest = digest_of(image_, procedure->sources);
  const size_t size = procedure->size_bytes();
  if (!digest || *used_ + size > kBytesMax) return;
  procedure->digest = *digest;
  if (!known_.emplace(key, std::move(procedure)).second) return;
  bytes_ += size;
  *used_ += size;
}

}  // namespace tally::engine

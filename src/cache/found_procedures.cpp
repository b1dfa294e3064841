// See found_procedures.h.  The file: magic, who made it, build-ids, entries, bodies, and a
// digest of all before it.
#include "cache/found_procedures.h"

#include <algorithm>
#include <utility>

#include "base/mix.h"
#include "cache/record_bytes.h"

namespace tally::engine {

namespace {

constexpr uint64_t kMagic = 0x646e756f66'5954;  // "TYfound"
constexpr uint64_t kDigestSeed = 0x66'6f75'6e64;
// The rest is room for what tells them apart.
constexpr uint64_t kBodiesBytesMax = FoundProcedures::kFileBytesMax / 8 * 7;

uint64_t digest_of_file(std::span<const uint8_t> body) {
  return mix_bytes(mix(kDigestSeed, body.size()), body);
}

// Of what counters were placed by.
uint32_t digest_of_weights(const EdgeWeights::Known& known) {
  const uint64_t seed = mix(kDigestSeed, known.weighed->rank == 0 ? 0 : 1);
  return static_cast<uint32_t>(mix_bytes(mix(seed, known.steps.size()), known.steps));
}

}  // namespace

bool FoundProcedures::read(std::vector<uint8_t> file) {
  if (file.size() < sizeof(uint64_t) || file.size() > kFileBytesMax) return false;
  const auto body = std::span<const uint8_t>(file).first(file.size() - sizeof(uint64_t));
  ByteReader end(std::span<const uint8_t>(file).last(sizeof(uint64_t)));
  if (end.u64() != digest_of_file(body)) return false;
  ByteReader reader(body);
  if (reader.u64() != kMagic) return false;
  if (maker_.empty() || read_string(reader) != maker_) return false;
  if (!read_entries(reader)) {
    modules_.clear();
    entries_.clear();
    by_key_.clear();
    return false;
  }
  for (Entry& entry : entries_) entry.first += reader.position();
  bodies_ = std::move(file);
  return true;
}

// What is behind the entries must be their bodies, one behind the other.
bool FoundProcedures::read_entries(ByteReader& reader) {
  for (uint32_t left = reader.u32(); left > 0 && reader.ok(); --left) {
    modules_.push_back(read_string(reader));
  }
  uint64_t first = 0;
  const uint32_t count = reader.u32();
  constexpr size_t kEntryBytes = 45;
  if (!reader.ok() || count > reader.remaining() / kEntryBytes) return false;
  entries_.reserve(count);
  by_key_.reserve(count);
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    Entry entry;
    entry.module = reader.u32();
    entry.key.range.begin = LinkAddr(reader.u64());
    entry.key.range.end = entry.key.range.begin + reader.u32();
    entry.key.entry = LinkAddr(reader.u64());
    entry.key.reached = LinkAddr(reader.u64());
    entry.key.open_calls = reader.u8() != 0;
    entry.shape = reader.u32();
    entry.weights_digest = reader.u32();
    entry.size_bytes = reader.u32();
    entry.first = first;
    first += entry.size_bytes;
    if (entry.module >= modules_.size()) return false;
    by_key_.emplace(hash_of(entry.module, entry.key), i);
    entries_.push_back(entry);
  }
  return reader.ok() && first == reader.remaining();
}

uint64_t FoundProcedures::hash_of(uint32_t module, const ProcedureKey& key) {
  return mix(mix(mix(module, key.range.begin.value()), key.entry.value()), key.reached.value());
}

uint32_t FoundProcedures::module_of(const std::string& build_id) {
  const auto it = std::ranges::find(modules_, build_id);
  if (it == modules_.end()) modules_.push_back(build_id);
  return static_cast<uint32_t>(std::ranges::find(modules_, build_id) - modules_.begin());
}

FoundProcedures::Entry* FoundProcedures::entry_of(uint32_t module, const ProcedureKey& key) {
  const auto [begin, end] = by_key_.equal_range(hash_of(module, key));
  for (auto it = begin; it != end; ++it) {
    Entry& entry = entries_[it->second];
    if (entry.module == module && entry.key == key) return &entry;
  }
  return nullptr;
}

bool FoundProcedures::find(const elf::Image& image, const ProcedureKey& key,
                           const EdgeWeights& weights, KnownProcedure& into) {
  const auto module = std::ranges::find(modules_, image.build_id());
  if (module == modules_.end()) return false;
  Entry* entry = entry_of(static_cast<uint32_t>(module - modules_.begin()), key);
  if (entry == nullptr) return false;
  const auto body = std::span<const uint8_t>(bodies_).subspan(entry->first, entry->size_bytes);
  if (!decode_found(body, key, into)) return false;
  const EdgeWeights::Known known = weights.find(image.build_id(), into.procedure, entry->shape);
  if (known.weighed == nullptr || digest_of_weights(known) != entry->weights_digest) return false;
  if (!rests_on_file(image, into.sources)) return false;
  if (digest_of(image, into.sources) != into.digest) return false;
  into.weighed = true;
  into.confirmed = known.weighed->confirmed;
  into.rank = known.weighed->rank;
  into.expected = expected_counts(into.procedure, into.plan, into.counters, known.steps,
                                  known.weighed->heaviest_bits);
  if (!entry->needed) used_bytes_ += entry->size_bytes;
  entry->needed = true;
  return true;
}

void FoundProcedures::add(const elf::Image& image, const ProcedureKey& key,
                          const EdgeWeights& weights, const KnownProcedure& known) {
  const uint32_t shape = shape_of(known.procedure);
  const EdgeWeights::Known weighed = weights.find(image.build_id(), known.procedure, shape);
  const std::string& build_id = image.build_id();
  if (weighed.weighed == nullptr || !rests_on_file(image, known.sources)) return;
  if (weighed.weighed->rank != known.rank) return;  // not placed as it may be
  const std::optional<uint64_t> digest = digest_of(image, known.sources);
  if (!digest || key.range.size_bytes() > UINT32_MAX) return;
  std::vector<uint8_t> body = encode_found(known);
  put(body, *digest);
  if (used_bytes_ + fresh_bytes_ + body.size() > kBodiesBytesMax) return;
  const uint32_t module = module_of(build_id);
  const Entry entry{module,
                    key,
                    shape,
                    digest_of_weights(weighed),
                    bodies_.size(),
                    static_cast<uint32_t>(body.size()),
                    true};
  fresh_bytes_ += body.size();
  bodies_.insert(bodies_.end(), body.begin(), body.end());
  if (Entry* before = entry_of(module, key)) {
    *before = entry;
    return;
  }
  by_key_.emplace(hash_of(module, key), static_cast<uint32_t>(entries_.size()));
  entries_.push_back(entry);
}

bool FoundProcedures::is_news() const {
  constexpr uint64_t kShareThatMatters = 16;
  return fresh_bytes_ * kShareThatMatters > used_bytes_;
}

std::vector<uint8_t> FoundProcedures::file() const {
  std::vector<uint8_t> out;
  put(out, kMagic);
  put_string(out, maker_);
  put(out, static_cast<uint32_t>(modules_.size()));
  for (const std::string& build_id : modules_) put_string(out, build_id);
  std::vector<const Entry*> written;
  uint64_t bodies_bytes = 0;
  for (const Entry& entry : entries_) bodies_bytes += entry.size_bytes;
  for (const Entry& entry : entries_) {
    if (entry.needed || bodies_bytes <= kBodiesBytesMax) written.push_back(&entry);
  }
  put(out, static_cast<uint32_t>(written.size()));
  for (const Entry* one : written) {
    const Entry& entry = *one;
    put(out, entry.module);
    put(out, entry.key.range.begin.value());
    put(out, static_cast<uint32_t>(entry.key.range.size_bytes()));
    put(out, entry.key.entry.value());
    put(out, entry.key.reached.value());
    put(out, static_cast<uint8_t>(entry.key.open_calls));
    put(out, entry.shape);
    put(out, entry.weights_digest);
    put(out, entry.size_bytes);
  }
  for (const Entry* entry : written) {
    const auto body = std::span(bodies_).subspan(entry->first, entry->size_bytes);
    out.insert(out.end(), body.begin(), body.end());
  }
  put(out, digest_of_file(out));
  return out;
}

const std::string& own_build_id() {
  static const std::string id = [] {
    const auto own = elf::Image::open("/proc/self/exe");
    return own ? (*own)->build_id() : std::string();
  }();
  return id;
}

}  // namespace tally::engine

// Procedures of a program that is there, found and placed as a run would do it, for tests of what
// is left of them.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "cache/events.h"
#include "cache/found_procedures.h"
#include "cache/plan.h"
#include "cfg/view.h"

namespace tally::engine {

struct Example {
  ProcedureKey key;
  KnownProcedure known;
  std::vector<uint8_t> steps;  // of its edges
};

class Examples {
 public:
  explicit Examples(const std::string& path) {
    auto opened = elf::Image::open(path);
    CHECK(opened.ok()) << path;
    image_ = *opened;
    view_ = cfg::view_of(image_);
  }
  const elf::Image& image() const { return *image_; }
  const cfg::CodeView& view() const { return view_; }

  // Nothing where no code is.  `random` says what has run, and how often.
  std::optional<Example> make(LinkRange range, bool open_calls, std::mt19937_64& random) {
    Example result;
    result.key = {range, range.begin, range.begin, open_calls};
    cfg::DiscoverRequest request;
    request.range = range;
    request.entry = range.begin;
    request.open_calls = open_calls;
    request.never_returns = [](LinkAddr target) { return target.value() % 64 == 0; };
    cfg::Discoverer discoverer(view_);
    KnownProcedure& known = result.known;
    discoverer.discover(request, known.procedure);
    const cfg::Procedure& p = known.procedure;
    if (p.entry_block == cfg::kExitBlock) return std::nullopt;
    for (const isa::Insn& insn : p.insns) known.insn_sizes.push_back(insn.size);
    for (size_t e = 0; e < p.edges.size(); ++e) {
      result.steps.push_back(random() % 2 == 0 ? 0 : static_cast<uint8_t>(random()));
    }
    known.plan = make_plan(p, view_, PlacementKind::kEdges, {{}, result.steps, true},
                           [&] { return known.counters++; });
    known.events = find_events(p, view_, known.sources);
    const std::vector<LinkRange> sources = discoverer.sources(p);
    known.sources.insert(known.sources.end(), sources.begin(), sources.end());
    return result;
  }

  // Of all that call frame information describes, in order.
  std::vector<Example> make_all(size_t most, std::mt19937_64& random) {
    std::vector<Example> result;
    for (const LinkRange& range : image_->unwind_ranges()) {
      if (result.size() == most) break;
      if (auto one = make(range, random() % 4 == 0, random)) result.push_back(std::move(*one));
    }
    return result;
  }

 private:
  std::shared_ptr<elf::Image> image_;
  cfg::CodeView view_;
};

// What a run that knows these weights was told.
inline EdgeWeights weights_of(const std::vector<Example>& examples, const std::string& build_id,
                              bool confirmed) {
  Recollection recollection;
  recollection.modules = {build_id};
  for (const Example& example : examples) {
    const cfg::Procedure& p = example.known.procedure;
    recollection.weighed.push_back(
        {0, shape_of(p), p.entry.value(), static_cast<uint32_t>(p.edges.size()), 9, confirmed});
    recollection.steps.insert(recollection.steps.end(), example.steps.begin(), example.steps.end());
  }
  return EdgeWeights(recollection);
}

// What is read back, with a digest behind it as FoundProcedures writes it.
inline std::vector<uint8_t> body_of(const KnownProcedure& known, uint64_t digest) {
  std::vector<uint8_t> body = encode_found(known);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&digest);
  body.insert(body.end(), bytes, bytes + sizeof digest);
  return body;
}

}  // namespace tally::engine

// See landing_pads.h.
#include "claims/landing_pads.h"

#include <algorithm>

namespace tally::claims {
namespace {

bool is_call(const isa::Insn& insn) {
  return insn.flow == isa::Flow::kCall || insn.flow == isa::Flow::kIndirectCall;
}

}  // namespace

void LandingPads::Lost::add(const std::optional<Wide>& more) {
  unknown = unknown || !more;
  if (more) count += *more;
}

LandingPads::LandingPads(Inspection& inspection) : inspection_(inspection) {
  for (uint32_t module = 0; module < inspection.claims.modules.size(); ++module) {
    const elf::Image* image = inspection.code.image(module);
    if (image == nullptr) continue;
    for (const elf::CallSite& site : image->exception_tables().call_sites) {
      const Place place{module, site.landing_pad};
      places_.insert(place);
      Pad& pad = pads_[place];
      pad.covered.push_back(site.covered);
      pad.procedure = {module, site.procedure.begin};
      if (!look_into(module, site.covered, pad)) other_throwers_.insert(module);
    }
  }
}

bool LandingPads::known(uint32_t module) const {
  const elf::Image* image = inspection_.code.image(module);
  return image != nullptr && image->exception_tables().complete;
}

bool LandingPads::is_leaf(const Place& procedure) {
  const auto [slot, is_new] = leaves_.try_emplace(procedure, false);
  if (is_new) slot->second = scan_leaf(procedure);
  return slot->second;
}

bool LandingPads::scan_leaf(const Place& procedure) {
  const elf::Symbol* symbol =
      inspection_.code.image(procedure.module)->symbol_at(procedure.address);
  if (symbol == nullptr || symbol->range.begin != procedure.address) return false;
  for (Place at = procedure; at.address < symbol->range.end;) {
    const isa::Insn insn = inspection_.code.insn_at(at);
    const bool jumps = insn.flow == isa::Flow::kJump || insn.flow == isa::Flow::kConditional ||
                       insn.flow == isa::Flow::kCountedJump;
    if (jumps && !symbol->range.contains(LinkAddr(insn.target))) return false;
    if (!jumps && insn.flow != isa::Flow::kNone && insn.flow != isa::Flow::kReturn) return false;
    if (insn.size == 0) return false;
    at.address += insn.size;
  }
  return !symbol->range.empty();
}

LandingPads::Pad* LandingPads::pad_of(uint32_t module, const CallMade& call) {
  if (call.target != LinkAddr() && is_leaf({module, call.target})) return nullptr;
  const auto& sites = inspection_.code.image(module)->exception_tables().call_sites;
  const auto next = std::ranges::upper_bound(
      sites, call.last_byte, {}, [](const elf::CallSite& site) { return site.covered.begin; });
  if (next == sites.begin() || !std::prev(next)->covered.contains(call.last_byte)) return nullptr;
  return &pads_.at({module, std::prev(next)->landing_pad});
}

void LandingPads::lose(uint32_t module, const std::vector<const CallMade*>& calls,
                       const std::optional<Wide>& lost) {
  std::set<Pad*> pads;
  std::set<Place> procedures;
  for (const CallMade* call : calls) {
    Pad* pad = pad_of(module, *call);
    if (pad == nullptr) continue;
    pads.insert(pad);
    procedures.insert(pad->procedure);
  }
  for (Pad* pad : pads) pad->lost.add(lost);
  for (const Place& procedure : procedures) procedures_[procedure].add(lost);
}

void LandingPads::add_block(const Place& begin, const std::vector<CallMade>& calls,
                            std::optional<Wide> in, std::optional<Wide> out) {
  if (pads_.empty() || calls.empty()) return;
  std::vector<const CallMade*> between;  // calls since the last known count
  std::optional<Wide> before = in;
  for (const CallMade& call : calls) {
    if (call.count != 0) {
      const bool falls = before && *before >= call.count;
      lose(begin.module, between, falls ? std::optional(*before - call.count) : std::nullopt);
      before = call.count;
      between.clear();
    }
    between.push_back(&call);
  }
  // All that were made may be lost, if how often the block was left does not show.
  const Wide left = std::min(out.value_or(0), before.value_or(0));
  lose(begin.module, between, before ? std::optional(*before - left) : std::nullopt);
}

bool LandingPads::look_into(uint32_t module, LinkRange covered, Pad& pad) {
  bool call = true;
  for (Place at{module, covered.begin}; at.address < covered.end;) {
    const isa::Insn insn = inspection_.code.insn_at(at);
    if (insn.size == 0) return true;
    call = is_call(insn);
    (call ? pad.calls : pad.more) = true;
    at.address += insn.size;
  }
  return call;
}

bool LandingPads::only_from_calls(const Place& place, const Pad& pad) const {
  return pad.calls && !(pad.more && other_throwers_.contains(place.module));
}

// What leaves a pad or calls from there, and came by no edge.
Wide LandingPads::arrivals(const Place& place) const {
  const auto found = inspection_.nodes.find(place);
  if (found == inspection_.nodes.end()) return 0;
  const Node& node = found->second;
  return std::max<Wide>(0, std::max(node.out, node.calls) - node.in);
}

void LandingPads::check_pad(const Place& place, const Pad& pad) {
  const Wide arrived = arrivals(place);
  if (arrived == 0) return;
  if (pad.lost.unknown || !only_from_calls(place, pad)) {
    ++inspection_.report.open;
    return;
  }
  ++inspection_.report.equations;
  if (arrived <= pad.lost.count) return;
  Node& node = inspection_.nodes[place];
  node.count = node.in + arrived;
  inspection_.compare(Rule::kIn, place, node.count, node.in + pad.lost.count);
  wrong_.insert(pad.procedure);
}

// Calls between two known counts may be covered by different pads: together these have arrivals
// for what was lost there once.
void LandingPads::check_procedures() {
  struct Sum {
    Wide arrived = 0;
    Place most = {};
    size_t pads = 0;
    bool known = true;
  };
  std::map<Place, Sum> sums;
  for (const Place& place : judged_) {
    const Wide arrived = arrivals(place);
    if (arrived == 0) continue;
    const Pad& pad = pads_.at(place);
    Sum& sum = sums[pad.procedure];
    if (sum.pads++ == 0 || arrived > arrivals(sum.most)) sum.most = place;
    sum.arrived += arrived;
    sum.known = sum.known && only_from_calls(place, pad);
  }
  for (const auto& [procedure, sum] : sums) {
    const Lost& lost = procedures_[procedure];
    if (sum.pads < 2 || !sum.known || lost.unknown || wrong_.contains(procedure)) continue;
    ++inspection_.report.equations;
    if (sum.arrived <= lost.count) continue;
    Node& node = inspection_.nodes[sum.most];
    node.count = node.in + arrivals(sum.most);
    inspection_.compare(Rule::kIn, sum.most, node.count, node.count - (sum.arrived - lost.count));
  }
}

void LandingPads::check() {
  for (const Place& place : judged_) check_pad(place, pads_.at(place));
  check_procedures();
}

}  // namespace tally::claims
